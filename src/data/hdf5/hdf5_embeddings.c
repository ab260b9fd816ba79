/* Embeddings as HDF5 files: made in memory, and read. */
#include <stddef.h>
#include <stdio.h>
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

/* Where the values come from: the data's hash, and of each model its fold, its run's splits and its weights. */
static bool write_origin(hid_t file, const flim_embeddings *e)
{
    const hsize_t size[1] = {(hsize_t)e->models};
    char **text = flim_alloc(2 * (size_t)e->models, sizeof *text, NULL);
    int32_t *fold = flim_alloc((size_t)e->models, sizeof *fold, NULL);
    hid_t sha = flim_h5_memory_text(sizeof e->data_sha256 - 1);
    bool good = text && fold && sha >= 0;
    for (int m = 0; good && m < e->models; m++) {
        text[m] = e->model[m].splits_sha256;
        text[e->models + m] = e->model[m].weights_sha256;
        fold[m] = e->model[m].fold;
    }
    good = good && flim_h5_memory_attribute(file, "data_sha256", sha, sha, e->data_sha256) &&
           flim_h5_memory_values(file, "fold", H5T_STD_I32LE, H5T_NATIVE_INT32, 1, size, fold) &&
           write_texts(file, "splits_sha256", text, e->models) &&
           write_texts(file, "weights_sha256", text + e->models, e->models);
    flim_h5_drop(sha);
    flim_free(text);
    flim_free(fold);
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
    good = good && (!e->model || write_origin(file, e));
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

/* As many texts as there are cells or models, NULL if the file has none; takes the lock itself. */
static flim_status read_texts(flim_h5 *h5, const char *name, const char *missing, int64_t n, char ***out, flim_error *err)
{
    int64_t count = 0;
    if (!flim_h5_has(&h5->source, name)) {
        return FLIM_OK;
    }
    FLIM_TRY(flim_h5_read_texts(&h5->source, name, out, &count, err));
    if (count != n) {
        flim_free_list(*out, count);
        *out = NULL;
        return not_ours(h5, missing, err);
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

/* /fold (M), which must be there, under the lock. */
static flim_status read_folds(flim_h5 *h5, flim_embeddings *e, flim_error *err)
{
    hsize_t size[8] = {0};
    hid_t set = -1;
    int32_t *fold = flim_alloc((size_t)e->models, sizeof *fold, err);
    flim_status status = FLIM_OK;
    FLIM_TRY_DONE(fold ? FLIM_OK : FLIM_ERROR_MEMORY);
    FLIM_TRY_DONE(flim_h5_dataset(h5, "fold", true, "numbers (M)", H5P_DEFAULT, &set, err));
    FLIM_TRY_DONE(has_shape(set, 1, H5T_INTEGER, size) && size[0] == (hsize_t)e->models
                      ? FLIM_OK
                      : not_ours(h5, "/fold is not one integer per model", err));
    FLIM_TRY_DONE(read_numbers(h5, "fold", set, H5T_NATIVE_INT32, fold, err));
    for (int m = 0; m < e->models; m++) {
        e->model[m].fold = fold[m];
    }
done:
    flim_h5_drop(set);
    flim_free(fold);
    return status;
}

/* A hash per model into its member at `offset`; takes the lock itself. */
static flim_status read_hashes(flim_h5 *h5, const char *name, flim_embeddings *e, size_t offset, flim_error *err)
{
    char **text = NULL;
    FLIM_TRY(read_texts(h5, name, "a hash per model is missing", e->models, &text, err));
    for (int m = 0; text && m < e->models; m++) {
        snprintf((char *)&e->model[m] + offset, sizeof e->data_sha256, "%s", text[m]);
    }
    flim_free_list(text, e->models);
    return FLIM_OK;
}

/* Where the values come from, as write_origin has left it; an older file says nothing. */
static flim_status read_origin(flim_h5 *h5, flim_embeddings *e, flim_error *err)
{
    char **text = NULL;
    int64_t count = 0;
    if (!flim_h5_has(&h5->source, "fold")) {
        return FLIM_OK;
    }
    e->model = flim_alloc((size_t)e->models, sizeof *e->model, err);
    FLIM_TRY(e->model ? FLIM_OK : FLIM_ERROR_MEMORY);
    flim_h5_guard guard = flim_h5_enter(h5);
    const flim_status status = read_folds(h5, e, err);
    flim_h5_leave(guard);
    FLIM_TRY(status);
    FLIM_TRY(read_hashes(h5, "splits_sha256", e, offsetof(flim_embedded_model, splits_sha256), err));
    FLIM_TRY(read_hashes(h5, "weights_sha256", e, offsetof(flim_embedded_model, weights_sha256), err));
    FLIM_TRY(flim_h5_attribute_strings(&h5->source, "data_sha256", &text, &count, err));
    snprintf(e->data_sha256, sizeof e->data_sha256, "%s", count == 1 ? text[0] : "");
    flim_free_list(text, count);
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
    status = status == FLIM_OK ? read_texts(h5, "group", "a text per cell is missing", e.n, &e.group, err) : status;
    status = status == FLIM_OK ? read_texts(h5, "name", "a text per cell is missing", e.n, &e.name, err) : status;
    status = status == FLIM_OK ? read_origin(h5, &e, err) : status;
    flim_h5_close(h5);
    if (status == FLIM_OK) {
        *out = e;
    } else {
        flim_embeddings_free(&e);
    }
    return status;
}
