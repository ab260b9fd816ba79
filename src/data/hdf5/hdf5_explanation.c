/* Explanations as HDF5 files: made in memory, and written by whoever writes files. */
#include "flim/explanation.h"

#include <string.h>

#include "core/alloc.h"
#include "core/try.h"
#include "data/hdf5/hdf5_internal.h"
#include "data/hdf5/hdf5_memory.h"

static const char formula[] = "effect = logit of the cell - logit of the cell without the photons of the block";
static const char format_attribute[] = "flim_explanation"; /* the version of the format, an integer */
enum { FORMAT = 1, RANK = 5, SHA256_TEXT = 64, MOST_MODELS = 100000 };

/* One dataset: where it is in the struct, its type and its sizes. */
typedef struct table {
    const char *name;
    void **data;
    bool real; /* float, else integers of `bytes` */
    int bytes, rank;
    hsize_t size[RANK];
} table;

enum { TABLES = 8 };

/* The datasets of e, whose sizes must be known; the arrays need not be there yet. */
static void list_tables(flim_explanation *e, table out[TABLES])
{
    const hsize_t m = (hsize_t)e->models, n = (hsize_t)e->n, k = (hsize_t)e->outputs, bt = (hsize_t)e->t_blocks,
                  by = (hsize_t)e->y_blocks, bx = (hsize_t)e->x_blocks;
    const table tables[TABLES] = {{"cell", (void **)&e->cell, false, 8, 1, {n}},
                                  {"fold", (void **)&e->fold, false, 4, 1, {m}},
                                  {"t_edge", (void **)&e->t_edge, false, 4, 1, {bt + 1}},
                                  {"y_edge", (void **)&e->y_edge, false, 4, 1, {by + 1}},
                                  {"x_edge", (void **)&e->x_edge, false, 4, 1, {bx + 1}},
                                  {"logit", (void **)&e->logits, true, 4, 3, {m, n, k}},
                                  {"time_effect", (void **)&e->time, true, 4, 4, {m, n, bt, k}},
                                  {"pixel_effect", (void **)&e->space, true, 4, 5, {m, n, by, bx, k}}};
    memcpy(out, tables, sizeof tables);
}

static hid_t memory_type(const table *t)
{
    return t->real ? H5T_NATIVE_FLOAT : t->bytes == 8 ? H5T_NATIVE_INT64 : H5T_NATIVE_INT32;
}

/* ---- writing, under the lock */

static bool write_all(hid_t file, const flim_explanation *e, const char *splits)
{
    table tables[TABLES];
    flim_explanation copy = *e;
    const int32_t version = FORMAT;
    const hsize_t models[1] = {(hsize_t)e->models};
    hid_t sha = flim_h5_memory_text(SHA256_TEXT), words = flim_h5_memory_text(sizeof formula - 1);
    bool good = sha >= 0 && words >= 0 &&
                flim_h5_memory_attribute(file, format_attribute, H5T_STD_I32LE, H5T_NATIVE_INT32, &version) &&
                flim_h5_memory_attribute(file, "formula", words, words, formula) &&
                flim_h5_memory_attribute(file, "data_sha256", sha, sha, e->data_sha256) &&
                flim_h5_memory_values(file, "splits_sha256", sha, sha, 1, models, splits);
    list_tables(&copy, tables);
    for (int i = 0; good && i < TABLES; i++) {
        const table *t = &tables[i];
        const hid_t type = t->real ? H5T_IEEE_F32LE : t->bytes == 8 ? H5T_STD_I64LE : H5T_STD_I32LE;
        good = flim_h5_memory_values(file, t->name, type, memory_type(t), t->rank, t->size, *t->data);
    }
    flim_h5_drop(words);
    flim_h5_drop(sha);
    return good;
}

flim_status flim_explanation_encode(const flim_explanation *e, void **bytes, size_t *count, flim_error *err)
{
    flim_status status = FLIM_OK;
    char *splits = flim_alloc((size_t)e->models, SHA256_TEXT, err); /* (M) of SHA256_TEXT each, without an end */
    *bytes = NULL;
    *count = 0;
    if (!splits) {
        return FLIM_ERROR_MEMORY;
    }
    for (int m = 0; m < e->models; m++) {
        memcpy(splits + (size_t)m * SHA256_TEXT, e->splits[m], strlen(e->splits[m]));
    }
    flim_h5_guard guard = flim_h5_enter(NULL);
    hid_t file = flim_h5_memory_create("explanation");
    const bool good = file >= 0 && write_all(file, e, splits);
    status = flim_h5_memory_image(file, good, "an explanation", bytes, count, err);
    flim_h5_leave(guard);
    flim_free(splits);
    return status;
}

/* ---- reading, under the lock */

static flim_status not_ours(const flim_h5 *h5, const char *what, flim_error *err)
{
    return flim_fail(err, FLIM_ERROR_DATA, "%s is no file of predict --explain: %s", h5->path, what);
}

/* A dataset of the rank, sizes and kind of values that `expected` says; out as `type`. */
static flim_status read_values(flim_h5 *h5, const char *name, int rank, const hsize_t *size, H5T_class_t kind, hid_t type,
                               void *out, flim_error *err)
{
    hid_t set = -1, held = -1;
    hsize_t found[8];
    int axes = 0;
    flim_status status = FLIM_OK;
    FLIM_TRY_DONE(flim_h5_dataset(h5, name, true, "an array of an explanation", H5P_DEFAULT, &set, err));
    held = H5Dget_type(set);
    if (!flim_h5_shape(set, &axes, found) || axes != rank || memcmp(found, size, (size_t)rank * sizeof *size) != 0 ||
        H5Tget_class(held) != kind) {
        status = not_ours(h5, name, err);
    } else if (flim_h5_read_values(h5, set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, out) < 0) {
        char reason[256];
        flim_h5_reason(reason, sizeof reason);
        status = flim_fail(err, FLIM_ERROR_DATA, "%s: /%s cannot be read: %s", h5->path, name, reason);
    }
done:
    flim_h5_drop(held);
    flim_h5_drop(set);
    return status;
}

/* Sizes from /pixel_effect (M,n,BY,BX,K') and /time_effect (M,n,BT,K'). */
static flim_status read_sizes(flim_h5 *h5, flim_explanation *e, flim_error *err)
{
    static const char *const names[] = {"pixel_effect", "time_effect"};
    hsize_t size[2][8] = {{0}};
    for (int i = 0; i < 2; i++) {
        int rank = 0;
        hid_t set = -1;
        FLIM_TRY(flim_h5_dataset(h5, names[i], true, "effects", H5P_DEFAULT, &set, err));
        const bool good = flim_h5_shape(set, &rank, size[i]) && rank == 5 - i;
        flim_h5_drop(set);
        hsize_t values = 1;
        for (int j = 0; good && j < rank; j++) {
            values = size[i][j] > 0 && size[i][j] < (1u << 30) && values < (1u << 30) ? values * size[i][j] : 0;
        }
        if (!good || values == 0) {
            return not_ours(h5, names[i], err);
        }
        FLIM_TRY(flim_h5_check_bytes(h5, names[i], (int64_t)values, sizeof(float), err));
    }
    if (size[0][0] > MOST_MODELS) {
        return not_ours(h5, names[0], err);
    }
    *e = (flim_explanation){.models = (int)size[0][0],
                            .n = (int64_t)size[0][1],
                            .y_blocks = (int)size[0][2],
                            .x_blocks = (int)size[0][3],
                            .outputs = (int)size[0][4],
                            .t_blocks = (int)size[1][2]};
    return FLIM_OK;
}

static flim_status read_attributes(flim_h5 *h5, flim_explanation *e, flim_error *err)
{
    double version = 0;
    char **text = NULL;
    int64_t count = 0;
    flim_status status = FLIM_OK;
    FLIM_TRY_DONE(flim_h5_attribute_number(&h5->source, format_attribute, &version, err));
    if (version != FORMAT) {
        status = not_ours(h5, "its attribute flim_explanation is not 1", err);
        goto done;
    }
    FLIM_TRY_DONE(flim_h5_attribute_strings(&h5->source, "data_sha256", &text, &count, err));
    if (count != 1 || strlen(text[0]) != SHA256_TEXT) {
        status = not_ours(h5, "its attribute data_sha256", err);
        goto done;
    }
    memcpy(e->data_sha256, text[0], SHA256_TEXT + 1);
done:
    flim_free_list(text, count);
    return status;
}

static flim_status read_tables(flim_h5 *h5, flim_explanation *e, flim_error *err)
{
    table tables[TABLES];
    flim_status status = FLIM_OK;
    hid_t sha = flim_h5_memory_text(SHA256_TEXT);
    const hsize_t models[1] = {(hsize_t)e->models};
    char *splits = flim_alloc((size_t)e->models, SHA256_TEXT, err);
    e->splits = flim_alloc((size_t)e->models, sizeof *e->splits, err);
    FLIM_TRY_DONE(sha >= 0 && splits && e->splits ? FLIM_OK : FLIM_ERROR_MEMORY);
    list_tables(e, tables);
    for (int i = 0; i < TABLES; i++) {
        const table *t = &tables[i];
        size_t values = 1;
        for (int j = 0; j < t->rank; j++) {
            values *= (size_t)t->size[j];
        }
        *t->data = flim_alloc(values, (size_t)t->bytes, err);
        FLIM_TRY_DONE(*t->data ? FLIM_OK : FLIM_ERROR_MEMORY);
        FLIM_TRY_DONE(
            read_values(h5, t->name, t->rank, t->size, t->real ? H5T_FLOAT : H5T_INTEGER, memory_type(t), *t->data, err));
    }
    FLIM_TRY_DONE(read_values(h5, "splits_sha256", 1, models, H5T_STRING, sha, splits, err));
    for (int m = 0; m < e->models; m++) {
        memcpy(e->splits[m], splits + (size_t)m * SHA256_TEXT, SHA256_TEXT);
    }
done:
    flim_h5_drop(sha);
    flim_free(splits);
    return status;
}

flim_status flim_explanation_read(const char *path, flim_explanation *out, flim_error *err)
{
    const flim_source_options options = {0};
    flim_explanation e = {0};
    flim_h5 *h5 = NULL;
    flim_status status = FLIM_OK;
    *out = e;
    FLIM_TRY(flim_h5_open(path, &options, &h5, err));
    flim_h5_guard guard = flim_h5_enter(h5);
    status = read_sizes(h5, &e, err);
    status = status == FLIM_OK ? read_tables(h5, &e, err) : status;
    flim_h5_leave(guard);
    status = status == FLIM_OK ? read_attributes(h5, &e, err) : status; /* they take the lock themselves */
    flim_h5_close(h5);
    if (status == FLIM_OK) {
        *out = e;
    } else {
        flim_explanation_free(&e);
    }
    return status;
}
