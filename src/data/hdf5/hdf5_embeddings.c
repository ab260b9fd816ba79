/* Embeddings as HDF5 files: made in memory, and read. */
#include <string.h>

#include "core/alloc.h"
#include "core/try.h"
#include "data/hdf5/hdf5_internal.h"
#include "data/hdf5/hdf5_memory.h"
#include "flim/embeddings.h"

/* n texts as a dataset of UTF-8 text of the longest one's length. */
static bool write_texts(hid_t file, const char *name, char *const *text, int64_t n)
{
    size_t longest = 1;
    for (int64_t i = 0; i < n; i++) {
        const size_t length = strlen(text[i]);
        longest = length > longest ? length : longest;
    }
    char *packed = flim_alloc((size_t)n, longest, NULL);
    hid_t type = flim_h5_memory_text(longest);
    for (int64_t i = 0; packed && i < n; i++) {
        for (size_t k = 0; text[i][k]; k++) {
            packed[(size_t)i * longest + k] = text[i][k];
        }
    }
    const hsize_t size[1] = {(hsize_t)n};
    const bool good = packed && type >= 0 && H5Tset_cset(type, H5T_CSET_UTF8) >= 0 &&
                      flim_h5_memory_values(file, name, type, type, 1, size, packed);
    flim_h5_drop(type);
    flim_free(packed);
    return good;
}

static bool write_all(hid_t file, const flim_embeddings *e)
{
    const hsize_t size[3] = {(hsize_t)e->models, (hsize_t)e->n, (hsize_t)e->width};
    bool good = flim_h5_memory_values(file, "embedding", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 3, size, e->value);
    if (e->label) {
        good = good && flim_h5_memory_values(file, "label", H5T_STD_I32LE, H5T_NATIVE_INT32, 1, &size[1], e->label) &&
               write_texts(file, "class_name", e->class_name, e->classes);
    }
    good = good && (!e->group || write_texts(file, "group", e->group, e->n));
    return good && (!e->name || write_texts(file, "name", e->name, e->n));
}

flim_status flim_embeddings_hdf5(const flim_embeddings *e, void **bytes, size_t *count, flim_error *err)
{
    flim_h5_guard guard = flim_h5_enter(NULL);
    hid_t file = flim_h5_memory_create("embeddings");
    const bool good = file >= 0 && write_all(file, e);
    const flim_status status = flim_h5_memory_image(file, good, "embeddings", bytes, count, err);
    flim_h5_leave(guard);
    return status;
}

/* ---- reading */

static flim_status not_ours(const flim_h5 *h5, const char *what, flim_error *err)
{
    return flim_fail(err, FLIM_ERROR_DATA, "%s is no file of predict --embeddings: %s", h5->path, what);
}

/* An open dataset's sizes, which must have `rank` axes and values of that kind.  Under the lock. */
static bool has_shape(hid_t set, int rank, H5T_class_t kind, hsize_t size[8])
{
    int axes = 0;
    hid_t type = H5Dget_type(set);
    const bool good = flim_h5_shape(set, &axes, size) && axes == rank && H5Tget_class(type) == kind;
    flim_h5_drop(type);
    return good;
}

static flim_status read_numbers(flim_h5 *h5, const char *name, hid_t set, hid_t type, void *out, flim_error *err)
{
    if (flim_h5_read_values(h5, set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, out) < 0) {
        char reason[256];
        flim_h5_reason(reason, sizeof reason);
        return flim_fail(err, FLIM_ERROR_DATA, "%s: /%s cannot be read: %s", h5->path, name, reason);
    }
    return FLIM_OK;
}

/* /embedding (M,n,C), under the lock. */
static flim_status read_embedding(flim_h5 *h5, flim_embeddings *e, flim_error *err)
{
    enum { LARGEST = 1 << 30 };
    hsize_t size[8] = {0}, values = 1;
    hid_t set = -1;
    flim_status status = FLIM_OK;
    FLIM_TRY_DONE(flim_h5_dataset(h5, "embedding", true, "numbers (M,n,C)", H5P_DEFAULT, &set, err));
    const bool good = has_shape(set, 3, H5T_FLOAT, size);
    for (int i = 0; good && i < 3; i++) {
        values = size[i] > 0 && size[i] < LARGEST && values < LARGEST ? values * size[i] : 0;
    }
    FLIM_TRY_DONE(good && values > 0 ? FLIM_OK : not_ours(h5, "/embedding is not (M,n,C) of floats", err));
    FLIM_TRY_DONE(flim_h5_check_bytes(h5, "embedding", (int64_t)values, sizeof(float), err));
    *e = (flim_embeddings){.models = (int)size[0], .n = (int64_t)size[1], .width = (int)size[2]};
    e->value = flim_alloc((size_t)values, sizeof *e->value, err);
    FLIM_TRY_DONE(e->value ? FLIM_OK : FLIM_ERROR_MEMORY);
    status = read_numbers(h5, "embedding", set, H5T_NATIVE_FLOAT, e->value, err);
done:
    flim_h5_drop(set);
    return status;
}

/* /label (n), if there is one, under the lock. */
static flim_status read_label(flim_h5 *h5, flim_embeddings *e, flim_error *err)
{
    hsize_t size[8] = {0};
    hid_t set = -1;
    flim_status status = FLIM_OK;
    FLIM_TRY_DONE(flim_h5_dataset(h5, "label", false, "numbers", H5P_DEFAULT, &set, err));
    if (set < 0) {
        return FLIM_OK;
    }
    FLIM_TRY_DONE(has_shape(set, 1, H5T_INTEGER, size) && size[0] == (hsize_t)e->n
                      ? FLIM_OK
                      : not_ours(h5, "/label is not one integer per cell", err));
    e->label = flim_alloc((size_t)e->n, sizeof *e->label, err);
    FLIM_TRY_DONE(e->label ? FLIM_OK : FLIM_ERROR_MEMORY);
    status = read_numbers(h5, "label", set, H5T_NATIVE_INT32, e->label, err);
done:
    flim_h5_drop(set);
    return status;
}

/* As many texts as there are cells, NULL if the file has none; takes the lock itself. */
static flim_status read_per_cell(flim_h5 *h5, const char *name, int64_t n, char ***out, flim_error *err)
{
    int64_t count = 0;
    if (!flim_h5_has(&h5->source, name)) {
        return FLIM_OK;
    }
    FLIM_TRY(flim_h5_read_texts(&h5->source, name, out, &count, err));
    if (count != n) {
        flim_free_list(*out, count);
        *out = NULL;
        return not_ours(h5, "a text per cell is missing", err);
    }
    return FLIM_OK;
}

/* The names of the classes, which all labels must have. */
static flim_status read_classes(flim_h5 *h5, flim_embeddings *e, flim_error *err)
{
    int64_t count = 0;
    if (!e->label) {
        return FLIM_OK;
    }
    FLIM_TRY(flim_h5_read_texts(&h5->source, "class_name", &e->class_name, &count, err));
    e->classes = (int)count;
    for (int64_t i = 0; i < e->n; i++) {
        if (e->label[i] < 0 || e->label[i] >= e->classes) {
            return not_ours(h5, "a label has no class_name", err);
        }
    }
    return FLIM_OK;
}

flim_status flim_embeddings_read(const char *path, flim_embeddings *out, flim_error *err)
{
    const flim_source_options options = {0};
    flim_embeddings e = {0};
    flim_h5 *h5 = NULL;
    *out = e;
    FLIM_TRY(flim_h5_open(path, &options, &h5, err));
    flim_h5_guard guard = flim_h5_enter(h5);
    flim_status status = read_embedding(h5, &e, err);
    status = status == FLIM_OK ? read_label(h5, &e, err) : status;
    flim_h5_leave(guard);
    status = status == FLIM_OK ? read_classes(h5, &e, err) : status;
    status = status == FLIM_OK ? read_per_cell(h5, "group", e.n, &e.group, err) : status;
    status = status == FLIM_OK ? read_per_cell(h5, "name", e.n, &e.name, err) : status;
    flim_h5_close(h5);
    if (status == FLIM_OK) {
        *out = e;
    } else {
        flim_embeddings_free(&e);
    }
    return status;
}
