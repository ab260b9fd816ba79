/* Texts however they are stored: HDF5's strings of fixed and variable length, MATLAB's references and character codes. */
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/try.h"
#include "data/hdf5/hdf5_chunks.h"
#include "data/hdf5/hdf5_column.h"

/* A fixed-length string as text: up to the first zero byte; Fortran's blank padding is no part of it. */
static char *fixed_string(const char *bytes, size_t size, H5T_str_t padding, flim_error *err)
{
    size_t length = strnlen(bytes, size);
    while (padding == H5T_STR_SPACEPAD && length && bytes[length - 1] == ' ') {
        length--;
    }
    char *text = flim_alloc(length + 1, 1, err);
    if (text) {
        memcpy(text, bytes, length);
    }
    return text;
}

/* HDF5 allocates each variable-length string by what the file says; this keeps the sum under the file's limit. */
typedef struct budget {
    int64_t left;
} budget;

static void *budget_alloc(size_t size, void *info)
{
    budget *b = info;
    if (size > INT64_MAX || (int64_t)size > b->left) {
        return NULL;
    }
    b->left -= (int64_t)size;
    return flim_alloc(size, 1, NULL); /* HDF5 pairs it with budget_free */
}

static void budget_free(void *memory, void *info)
{
    (void)info;
    flim_free(memory);
}

/* The n strings of an open column or attribute into list. */
static flim_status own_strings(const flim_h5_column *s, int64_t n, char **list, flim_error *err)
{
    const size_t size = H5Tget_size(s->type);
    const bool variable = H5Tis_variable_str(s->type) > 0;
    const H5T_str_t padding = variable ? H5T_STR_NULLTERM : H5Tget_strpad(s->type);
    char *buffer = NULL;
    hid_t transfer = -1;
    budget left = {flim_h5_limit(s->h5)};
    flim_status status = FLIM_OK;
    FLIM_TRY(flim_h5_check_bytes(s->h5, s->name, n, size, err));
    if (!(buffer = flim_alloc((size_t)n, size, err))) {
        return FLIM_ERROR_MEMORY;
    }
    transfer = H5Pcreate(H5P_DATASET_XFER);
    if (transfer < 0 || H5Pset_vlen_mem_manager(transfer, budget_alloc, &left, budget_free, &left) < 0 ||
        (s->attribute >= 0 ? H5Aread(s->attribute, s->type, buffer)
                           : flim_h5_read_values(s->h5, s->dataset, s->type, H5S_ALL, H5S_ALL, transfer, buffer)) < 0) {
        status = flim_h5_column_cannot_read(s, err);
        goto done;
    }
    for (int64_t i = 0; i < n && status == FLIM_OK; i++) {
        if (variable) {
            const char *text = ((char **)(void *)buffer)[i];
            list[i] = flim_strdup(text ? text : "", err);
        } else {
            list[i] = fixed_string(buffer + (size_t)i * size, size, padding, err);
        }
        status = list[i] ? FLIM_OK : FLIM_ERROR_MEMORY;
    }
    if (variable) {
        H5Dvlen_reclaim(s->type, s->space, s->attribute >= 0 ? H5P_DEFAULT : transfer, buffer);
    }
done:
    flim_h5_drop(transfer);
    flim_free(buffer);
    return status;
}

/* netCDF's attributes for texts, too: one that stands for no value is no donor's name.  An empty one is what the findings call
 * a missing group. */
static flim_status check_fill(const flim_h5_column *s, const char *attribute, int64_t n, char *const *list, flim_error *err)
{
    flim_status status = FLIM_OK;
    char *fill = NULL;
    if (H5Aexists(s->dataset, attribute) <= 0) {
        return FLIM_OK;
    }
    flim_h5_column a = {.h5 = s->h5, .name = attribute, .dataset = -1, .type = -1, .space = -1};
    a.attribute = H5Aopen(s->dataset, attribute, H5P_DEFAULT);
    a.type = a.attribute >= 0 ? H5Aget_type(a.attribute) : -1;
    a.space = a.attribute >= 0 ? H5Aget_space(a.attribute) : -1;
    if (a.type >= 0 && a.space >= 0 && H5Tget_class(a.type) == H5T_STRING && H5Sget_simple_extent_npoints(a.space) == 1) {
        status = own_strings(&a, 1, &fill, err);
    }
    for (int64_t i = 0; i < n && status == FLIM_OK && fill && fill[0]; i++) {
        if (strcmp(list[i], fill) == 0) {
            status =
                flim_fail(err, FLIM_ERROR_DATA,
                          "%s: /%s: cell %lld: found '%.200s', which marks a missing value (attribute %s); expected a text",
                          s->h5->path, s->name, (long long)i, fill, attribute);
        }
    }
    flim_free(fill);
    flim_h5_column_close(&a);
    return status;
}

/* The n strings of an open column or attribute, each of them a value. */
static flim_status valid_strings(const flim_h5_column *s, int64_t n, char **list, flim_error *err)
{
    FLIM_TRY(own_strings(s, n, list, err));
    if (s->attribute >= 0) {
        return FLIM_OK;
    }
    FLIM_TRY(check_fill(s, "_FillValue", n, list, err));
    return check_fill(s, "missing_value", n, list, err);
}

/* ---- MATLAB */

/* UTF-16 codes as UTF-8; half a pair becomes a question mark.  `blanks`: those at the end are padding. */
static char *text_of_codes(const uint16_t *code, size_t count, size_t step, bool blanks, flim_error *err)
{
    while (count && (code[(count - 1) * step] == 0 || (blanks && code[(count - 1) * step] == ' '))) {
        count--;
    }
    char *text = flim_alloc(3 * count + 1, 1, err);
    size_t used = 0;
    for (size_t i = 0; text && i < count; i++) {
        uint32_t c = code[i * step];
        if (c >= 0xd800 && c < 0xe000) {
            const uint32_t low = i + 1 < count ? code[(i + 1) * step] : 0;
            const bool pair = c < 0xdc00 && low >= 0xdc00 && low < 0xe000;
            c = pair ? 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00) : '?';
            i += pair;
        }
        if (c == 0) {
            c = ' '; /* a text ends at its first zero byte elsewhere; here none does */
        }
        if (c < 0x80) {
            text[used++] = (char)c;
        } else if (c < 0x800) {
            text[used++] = (char)(0xc0 | c >> 6);
            text[used++] = (char)(0x80 | (c & 63));
        } else if (c < 0x10000) {
            text[used++] = (char)(0xe0 | c >> 12);
            text[used++] = (char)(0x80 | (c >> 6 & 63));
            text[used++] = (char)(0x80 | (c & 63));
        } else {
            text[used++] = (char)(0xf0 | c >> 18);
            text[used++] = (char)(0x80 | (c >> 12 & 63));
            text[used++] = (char)(0x80 | (c >> 6 & 63));
            text[used++] = (char)(0x80 | (c & 63));
        }
    }
    return text;
}

/* What a reference leads to, as text: character codes along one axis, or nothing (MATLAB_empty). */
static flim_status referenced_text(const flim_h5_column *s, int64_t i, hobj_ref_t reference, char **text, flim_error *err)
{
    flim_status status = FLIM_OK;
    hsize_t sizes[8] = {0}, count = 1;
    int rank = 0, long_axes = 0;
    uint16_t *code = NULL;
    const hid_t target = reference ? H5Rdereference2(s->dataset, H5P_DEFAULT, H5R_OBJECT, &reference) : -1;
    const hid_t type = target >= 0 && H5Iget_type(target) == H5I_DATASET ? H5Dget_type(target) : -1;
    const bool codes =
        type >= 0 && H5Tget_class(type) == H5T_INTEGER && H5Tget_size(type) <= 2 && flim_h5_shape(target, &rank, sizes);
    for (int axis = 0; axis < rank; axis++) {
        count *= sizes[axis] < UINT32_MAX && count < UINT32_MAX ? sizes[axis] : UINT32_MAX;
        long_axes += sizes[axis] != 1;
    }
    if (codes && H5Aexists(target, "MATLAB_empty") > 0) {
        count = 0;
    }
    if (type >= 0 && H5Aexists(target, "MATLAB_empty") > 0) {
        *text = flim_strdup("", err);
        status = *text ? FLIM_OK : FLIM_ERROR_MEMORY;
    } else if (!codes || long_axes > 1) {
        char found[256] = "nothing";
        if (target >= 0) {
            flim_h5_describe(target, found, sizeof found);
        }
        status = flim_fail(err, FLIM_ERROR_DATA,
                           "%s: /%s: cell %lld: its reference leads to %s, expected a text (character codes)", s->h5->path,
                           s->name, (long long)i, found);
    } else if ((status = flim_h5_check_bytes(s->h5, s->name, (int64_t)count, sizeof *code, err)) == FLIM_OK &&
               (status = flim_h5_check_storage(s->h5, s->name, target, err)) == FLIM_OK &&
               (status = flim_h5_check_chunks(s->h5, s->name, target, err)) == FLIM_OK) {
        if (!(code = flim_alloc((size_t)count + 1, sizeof *code, err))) {
            status = FLIM_ERROR_MEMORY;
        } else if (flim_h5_read_values(s->h5, target, H5T_NATIVE_UINT16, H5S_ALL, H5S_ALL, H5P_DEFAULT, code) < 0) {
            status = flim_h5_column_cannot_read(s, err);
        } else {
            *text = text_of_codes(code, (size_t)count, 1, false, err);
            status = *text ? FLIM_OK : FLIM_ERROR_MEMORY;
        }
    }
    flim_free(code);
    flim_h5_drop(type);
    flim_h5_drop(target);
    return status;
}

static flim_status referenced_texts(const flim_h5_column *s, int64_t n, char **list, flim_error *err)
{
    flim_status status = FLIM_OK;
    int64_t left = flim_h5_limit(s->h5);
    FLIM_TRY(flim_h5_check_bytes(s->h5, s->name, n, sizeof(hobj_ref_t), err));
    hobj_ref_t *reference = flim_alloc((size_t)n, sizeof *reference, err);
    if (!reference) {
        return FLIM_ERROR_MEMORY;
    }
    if (flim_h5_read_values(s->h5, s->dataset, H5T_STD_REF_OBJ, H5S_ALL, H5S_ALL, H5P_DEFAULT, reference) < 0) {
        status = flim_h5_column_cannot_read(s, err);
    }
    for (int64_t i = 0; i < n && status == FLIM_OK; i++) {
        status = referenced_text(s, i, reference[i], &list[i], err);
        left -= status == FLIM_OK ? (int64_t)strlen(list[i]) : 0;
        if (status == FLIM_OK && left < 0) { /* all cells may lead to one long text */
            status = flim_fail(err, FLIM_ERROR_DATA, "%s: /%s: its texts are longer than the file can hold; it is damaged",
                               s->h5->path, s->name);
        }
    }
    flim_free(reference);
    return status;
}

/* A char array of n rows, which MATLAB stores as (length, n). */
static flim_status coded_texts(const flim_h5_column *s, int64_t n, char **list, flim_error *err)
{
    int rank;
    hsize_t sizes[8] = {0};
    flim_status status = FLIM_OK;
    flim_h5_shape(s->dataset, &rank, sizes);
    const int64_t length = (int64_t)sizes[0];
    FLIM_TRY(flim_h5_check_bytes(s->h5, s->name, length, (size_t)n * sizeof(uint16_t), err));
    uint16_t *code = flim_alloc((size_t)(length * n) + 1, sizeof *code, err);
    if (!code) {
        return FLIM_ERROR_MEMORY;
    }
    if (flim_h5_read_values(s->h5, s->dataset, H5T_NATIVE_UINT16, H5S_ALL, H5S_ALL, H5P_DEFAULT, code) < 0) {
        status = flim_h5_column_cannot_read(s, err);
    }
    for (int64_t i = 0; i < n && status == FLIM_OK; i++) {
        list[i] = text_of_codes(code + i, (size_t)length, (size_t)n, true, err);
        status = list[i] ? FLIM_OK : FLIM_ERROR_MEMORY;
    }
    flim_free(code);
    return status;
}

/* ---- any */

/* The attribute MATLAB_class of an open dataset. */
static void matlab_class(const flim_h5_column *s, char *text, size_t size)
{
    text[0] = '\0';
    if (s->dataset < 0 || H5Aexists(s->dataset, "MATLAB_class") <= 0) {
        return;
    }
    const hid_t id = H5Aopen(s->dataset, "MATLAB_class", H5P_DEFAULT), type = id >= 0 ? H5Aget_type(id) : -1;
    if (type >= 0 && H5Tget_class(type) == H5T_STRING && H5Tis_variable_str(type) == 0 && H5Tget_size(type) < size) {
        memset(text, 0, size);
        if (H5Aread(id, type, text) < 0) {
            text[0] = '\0';
        }
    }
    flim_h5_drop(type);
    flim_h5_drop(id);
}

const char *flim_h5_column_matlab_hint(const flim_h5_column *s)
{
    char class[64];
    matlab_class(s, class, sizeof class);
    return strcmp(class, "string") == 0 ? "; MATLAB's class string is an object that only MATLAB reads: save cellstr(x)"
           : strcmp(class, "categorical") == 0 ? "; MATLAB's class categorical is an object that only MATLAB reads: save "
                                                 "cellstr(x), or double(x) - 1 for labels"
           : strcmp(class, "table") == 0 ? "; MATLAB's class table is an object that only MATLAB reads: save its columns"
                                         : "";
}

flim_h5_text flim_h5_column_text(const flim_h5_column *s)
{
    char class[64];
    int rank;
    hsize_t sizes[8];
    if (s->attribute >= 0 || H5Tget_class(s->type) == H5T_STRING) {
        return FLIM_H5_STRINGS;
    }
    if (H5Tget_class(s->type) == H5T_REFERENCE && H5Tequal(s->type, H5T_STD_REF_OBJ) > 0) {
        return FLIM_H5_REFERENCES;
    }
    matlab_class(s, class, sizeof class);
    return strcmp(class, "char") == 0 && H5Tget_class(s->type) == H5T_INTEGER && flim_h5_shape(s->dataset, &rank, sizes) &&
                   rank == 2
               ? FLIM_H5_CODES
               : FLIM_H5_NO_TEXT;
}

flim_status flim_h5_column_texts(const flim_h5_column *s, int64_t n, char **list, flim_error *err)
{
    switch (flim_h5_column_text(s)) {
    case FLIM_H5_STRINGS: return valid_strings(s, n, list, err);
    case FLIM_H5_REFERENCES: return referenced_texts(s, n, list, err);
    case FLIM_H5_CODES: return coded_texts(s, n, list, err);
    case FLIM_H5_NO_TEXT: break;
    }
    return flim_h5_column_wrong_kind(s, "strings", err);
}
