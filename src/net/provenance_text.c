/* A provenance as the JSON text of a weight file's metadata, and back. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/parse.h"
#include "core/try.h"
#include "flim/provenance.h"
#include "formats/json.h"
#include "net/cell_set.h"

#define PRETRAINING "pretraining"

enum { FORMAT = 1, LARGEST_SIZE = 1 << 20, MOST_NAMES = 65536 };

/* ---- writing ---- */

static flim_status set_cells(flim_json *cells, const char *key, const flim_cell_set *set, flim_error *err)
{
    char *text = flim_cell_set_text(set, err);
    if (!text) {
        return FLIM_ERROR_MEMORY;
    }
    flim_json_set_string(cells, key, text);
    flim_free(text);
    return FLIM_OK;
}

static flim_status set_all_cells(flim_json *json, const flim_provenance *p, flim_error *err)
{
    if (!p->cells_are_known || p->train.n + p->val.n + p->inherited.n > FLIM_CELL_SET_MOST) {
        flim_json_set_null(json, "cells");
        return FLIM_OK;
    }
    flim_json *cells = flim_json_object();
    flim_status status = FLIM_OK;
    FLIM_TRY_DONE(set_cells(cells, "train", &p->train, err));
    FLIM_TRY_DONE(set_cells(cells, "val", &p->val, err));
    FLIM_TRY_DONE(set_cells(cells, "inherited", &p->inherited, err));
    flim_json_set_bool(cells, "inherited_is_known", p->inherited_is_known);
done:
    flim_json_set(json, "cells", cells);
    return status;
}

static flim_json *name_list(char *const *name, int n)
{
    flim_json *list = flim_json_array();
    for (int i = 0; i < n; i++) {
        flim_json_add_string(list, name[i]);
    }
    return list;
}

/* Files of trainings stay as they were: the kind is said by pretrainings only. */
static void set_kind(flim_json *json, const flim_provenance *p)
{
    if (p->pretraining) {
        flim_json_set_string(json, "kind", PRETRAINING);
        flim_json_set(json, "donors", name_list(p->donor, p->donors));
        flim_json_set(json, "files", name_list(p->file, p->files));
    }
}

char *flim_provenance_text(const flim_provenance *p, flim_error *err)
{
    flim_json *json = flim_json_object(), *shape = flim_json_array();
    char seed[24], *text = NULL, *copy = NULL;
    flim_status status = FLIM_OK;
    const int sizes[] = {p->t, p->h, p->w};
    for (int i = 0; i < 3; i++) {
        flim_json_add_integer(shape, sizes[i]);
    }
    snprintf(seed, sizeof seed, "%" PRIu64, p->seed);
    flim_json_set_integer(json, "format", FORMAT);
    flim_json_set_string(json, "program", p->program);
    set_kind(json, p);
    flim_json_set_integer(json, "fold", p->fold);
    flim_json_set_integer(json, "folds", p->folds);
    flim_json_set_string(json, "splits_sha256", p->splits_sha256);
    flim_json_set_string(json, "seed", seed); /* a text: JSON's numbers have no 64 bits everywhere */
    flim_json_set(json, "classes", name_list(p->class_name, p->classes));
    flim_json_set(json, "shape", shape);
    flim_json_set_number(json, "time_range_ns", p->time_range_ns > 0 ? p->time_range_ns : (double)NAN);
    flim_json_set_string(json, "mask", flim_mask_origin_name(p->mask));
    flim_json_set_bool(json, "mask_counts", p->mask_counts);
    flim_json_set_string(json, "preprocessing", p->preprocessing);
    flim_json_set_string(json, "recipe", p->recipe ? p->recipe : "");
    FLIM_TRY_DONE(set_all_cells(json, p, err));
    text = flim_json_text(json);
    copy = text ? flim_strdup(text, err) : NULL;
    if (!text) {
        flim_fail(err, FLIM_ERROR_MEMORY, "out of host memory for the provenance of weights");
    }
done:
    flim_json_text_free(text);
    flim_json_free(json);
    return copy;
}

/* ---- reading ---- */

static flim_status bad(const char *path, const char *key, const char *expected, flim_error *err)
{
    return flim_fail(err, FLIM_ERROR_DATA, "%s: provenance: '%s' must be %s", path, key, expected);
}

static flim_status get_integer(const flim_json *json, const char *path, const char *key, int64_t min, int64_t max, int *out,
                               flim_error *err)
{
    int64_t value = 0;
    char range[64];
    if (!flim_json_integer(flim_json_get(json, key), &value) || value < min || value > max) {
        snprintf(range, sizeof range, "a whole number from %" PRId64 " to %" PRId64, min, max);
        return bad(path, key, range, err);
    }
    *out = (int)value;
    return FLIM_OK;
}

/* A text of fewer than `size` bytes. */
static flim_status get_text(const flim_json *json, const char *path, const char *key, char *out, size_t size, flim_error *err)
{
    const char *text = flim_json_string(flim_json_get(json, key));
    if (!text || strlen(text) >= size) {
        return bad(path, key, "a short text", err);
    }
    memcpy(out, text, strlen(text) + 1);
    return FLIM_OK;
}

static flim_status get_names(const flim_json *json, const char *path, const char *key, char ***out, int *count,
                             flim_error *err)
{
    const flim_json *list = flim_json_get(json, key);
    const size_t n = flim_json_length(list);
    if (!flim_json_is_array(list) || n > MOST_NAMES) {
        return bad(path, key, "a list of names", err);
    }
    *out = flim_alloc(n, sizeof **out, err);
    if (!*out) {
        return FLIM_ERROR_MEMORY;
    }
    for (size_t i = 0; i < n; i++) {
        const char *name = flim_json_string(flim_json_at(list, i));
        if (!name) {
            return bad(path, key, "a list of names", err);
        }
        if (!((*out)[i] = flim_strdup(name, err))) {
            return FLIM_ERROR_MEMORY;
        }
        ++*count;
    }
    return FLIM_OK;
}

/* A file without a kind is of a training. */
static flim_status get_kind(const flim_json *json, const char *path, flim_provenance *out, flim_error *err)
{
    const flim_json *value = flim_json_get(json, "kind");
    const char *kind = flim_json_string(value);
    if (!value) {
        return FLIM_OK;
    }
    if (!kind || strcmp(kind, PRETRAINING) != 0) {
        return bad(path, "kind", "\"" PRETRAINING "\", or left out", err);
    }
    out->pretraining = true;
    FLIM_TRY(get_names(json, path, "donors", &out->donor, &out->donors, err));
    return get_names(json, path, "files", &out->file, &out->files, err);
}

static flim_status get_sizes(const flim_json *list, const char *path, flim_provenance *out, flim_error *err)
{
    int *const size[] = {&out->t, &out->h, &out->w};
    for (size_t i = 0; i < 3; i++) {
        int64_t value = 0;
        if (flim_json_length(list) != 3 || !flim_json_integer(flim_json_at(list, i), &value) || value < 0 ||
            value > LARGEST_SIZE) {
            return bad(path, "shape", "three sizes", err);
        }
        *size[i] = (int)value;
    }
    return FLIM_OK;
}

static flim_status get_mask(const flim_json *json, const char *path, flim_provenance *out, flim_error *err)
{
    const char *text = flim_json_string(flim_json_get(json, "mask"));
    for (int i = FLIM_MASK_ORIGIN_UNKNOWN; text && i <= FLIM_MASK_ORIGIN_COUNTS; i++) {
        if (strcmp(text, flim_mask_origin_name((flim_mask_origin)i)) == 0) {
            out->mask = (flim_mask_origin)i;
            return FLIM_OK;
        }
    }
    return bad(path, "mask", "\"file\", \"counts\" or \"unknown\"", err);
}

static flim_status get_cells(const flim_json *cells, const char *path, flim_provenance *out, flim_error *err)
{
    const struct {
        const char *key;
        flim_cell_set *set;
    } sets[] = {{"train", &out->train}, {"val", &out->val}, {"inherited", &out->inherited}};
    if (flim_json_is_null(cells)) {
        return FLIM_OK;
    }
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) {
        const char *text = flim_json_string(flim_json_get(cells, sets[i].key));
        if (!text) {
            return bad(path, sets[i].key, "the base64 text of a list of cells", err);
        }
        const flim_status status = flim_cell_set_parse(text, sets[i].set, err);
        if (status == FLIM_ERROR_DATA) {
            flim_fail_prefix(err, "%s: provenance: cells '%s': ", path, sets[i].key);
        }
        FLIM_TRY(status);
    }
    out->cells_are_known = true;
    return flim_json_boolean(flim_json_get(cells, "inherited_is_known"), &out->inherited_is_known)
               ? FLIM_OK
               : bad(path, "inherited_is_known", "true or false", err);
}

static flim_status get_all(const flim_json *json, const char *path, flim_provenance *out, flim_error *err)
{
    int format = 0;
    char seed[24];
    const flim_json *range = flim_json_get(json, "time_range_ns");
    const char *recipe = flim_json_string(flim_json_get(json, "recipe"));
    FLIM_TRY(get_integer(json, path, "format", FORMAT, FORMAT, &format, err));
    FLIM_TRY(get_text(json, path, "program", out->program, sizeof out->program, err));
    FLIM_TRY(get_integer(json, path, "fold", -1, 65535, &out->fold, err));
    FLIM_TRY(get_integer(json, path, "folds", 0, 65536, &out->folds, err));
    FLIM_TRY(get_text(json, path, "splits_sha256", out->splits_sha256, sizeof out->splits_sha256, err));
    FLIM_TRY(get_text(json, path, "seed", seed, sizeof seed, err));
    if (flim_parse_u64("seed", seed, &out->seed, NULL) != FLIM_OK) {
        return bad(path, "seed", "a whole number as text", err);
    }
    FLIM_TRY(get_kind(json, path, out, err));
    FLIM_TRY(get_names(json, path, "classes", &out->class_name, &out->classes, err));
    FLIM_TRY(get_sizes(flim_json_get(json, "shape"), path, out, err));
    if (!flim_json_is_null(range) &&
        (!flim_json_number(range, &out->time_range_ns) || !(out->time_range_ns > 0 && out->time_range_ns < 1e9))) {
        return bad(path, "time_range_ns", "nanoseconds above 0, or null", err);
    }
    FLIM_TRY(get_mask(json, path, out, err));
    if (!flim_json_boolean(flim_json_get(json, "mask_counts"), &out->mask_counts)) {
        return bad(path, "mask_counts", "true or false", err);
    }
    FLIM_TRY(get_text(json, path, "preprocessing", out->preprocessing, sizeof out->preprocessing, err));
    if (!recipe) {
        return bad(path, "recipe", "a text", err);
    }
    if (!(out->recipe = flim_strdup(recipe, err))) {
        return FLIM_ERROR_MEMORY;
    }
    return get_cells(flim_json_get(json, "cells"), path, out, err);
}

flim_status flim_provenance_parse(const char *text, const char *path, flim_provenance *out, flim_error *err)
{
    flim_json *json = NULL;
    flim_status status = FLIM_OK;
    *out = (flim_provenance){.fold = -1};
    FLIM_TRY_DONE(flim_json_parse(text, strlen(text), path, &json, err));
    FLIM_TRY_DONE(flim_json_is_object(json) ? FLIM_OK : bad(path, "provenance", "a JSON object", err));
    status = get_all(json, path, out, err);
done:
    flim_json_free(json);
    out->is_known = status == FLIM_OK;
    if (status != FLIM_OK) {
        flim_provenance_free(out);
    }
    return status;
}
