#include "flim/embeddings.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/try.h"

/* A copy of n texts in out, which index picks; NULL: in order. */
static flim_status copy_texts(const char *const *text, const int64_t *index, int64_t n, char ***out, flim_error *err)
{
    *out = flim_alloc((size_t)n, sizeof **out, err);
    for (int64_t i = 0; *out && i < n; i++) {
        (*out)[i] = flim_strdup(text[index ? index[i] : i], err);
        FLIM_TRY((*out)[i] ? FLIM_OK : FLIM_ERROR_MEMORY);
    }
    return *out ? FLIM_OK : FLIM_ERROR_MEMORY;
}

flim_status flim_embeddings_create(int models, int width, const flim_dataset_info *info, flim_embeddings *out,
                                   flim_error *err)
{
    *out = (flim_embeddings){.models = models, .width = width, .n = info->n};
    out->value = flim_alloc((size_t)models * (size_t)info->n * (size_t)width, sizeof *out->value, err);
    out->model = flim_alloc((size_t)models, sizeof *out->model, err);
    FLIM_TRY(out->value && out->model ? FLIM_OK : FLIM_ERROR_MEMORY);
    for (int m = 0; m < models; m++) {
        out->model[m].fold = -1;
    }
    if (info->label) {
        out->label = flim_alloc((size_t)info->n, sizeof *out->label, err);
        FLIM_TRY(out->label ? FLIM_OK : FLIM_ERROR_MEMORY);
        memcpy(out->label, info->label, (size_t)info->n * sizeof *out->label);
        out->classes = info->classes;
        FLIM_TRY(copy_texts(info->class_name, NULL, info->classes, &out->class_name, err));
    }
    FLIM_TRY(info->group ? copy_texts(info->group_name, info->group, info->n, &out->group, err) : FLIM_OK);
    return info->name ? copy_texts(info->name, NULL, info->n, &out->name, err) : FLIM_OK;
}

void flim_embeddings_free(flim_embeddings *e)
{
    flim_free(e->value);
    flim_free(e->label);
    flim_free(e->model);
    flim_free_list(e->class_name, e->classes);
    flim_free_list(e->group, e->n);
    flim_free_list(e->name, e->n);
    *e = (flim_embeddings){0};
}

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "values are written without swapping bytes");

/* NumPy's format 1.0: magic, version, length of the header, the header as a Python literal that ends at a multiple of 64 bytes. */
flim_status flim_embeddings_npy(const flim_embeddings *e, void **bytes, size_t *count, flim_error *err)
{
    enum { START = 10, ALIGNMENT = 64, MOST = 256 };
    static const uint8_t magic[] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0};
    char shape[96], header[MOST];
    if (e->models == 1) {
        snprintf(shape, sizeof shape, "(%" PRId64 ", %d)", e->n, e->width);
    } else {
        snprintf(shape, sizeof shape, "(%d, %" PRId64 ", %d)", e->models, e->n, e->width);
    }
    int length = snprintf(header, sizeof header, "{'descr': '<f4', 'fortran_order': False, 'shape': %s, }", shape);
    while ((START + length + 1) % ALIGNMENT != 0) {
        header[length++] = ' ';
    }
    header[length++] = '\n';
    const size_t values = (size_t)e->models * (size_t)e->n * (size_t)e->width;
    uint8_t *out = flim_alloc(START + (size_t)length + 4 * values, 1, err);
    if (!out) {
        return FLIM_ERROR_MEMORY;
    }
    memcpy(out, magic, sizeof magic);
    out[8] = (uint8_t)(length & 255);
    out[9] = (uint8_t)(length >> 8);
    memcpy(out + START, header, (size_t)length);
    memcpy(out + START + length, e->value, 4 * values);
    *bytes = out;
    *count = START + (size_t)length + 4 * values;
    return FLIM_OK;
}
