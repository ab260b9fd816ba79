/* splits.json, and nnU-Net's splits_final.json on reading. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/spelling.h"
#include "core/try.h"
#include "cv/split/split_internal.h"
#include "formats/json.h"
#include "flim/split.h"

static flim_json *index_array(const int64_t *list, int64_t n)
{
    flim_json *array = flim_json_array();
    for (int64_t i = 0; i < n; i++) {
        flim_json_add_integer(array, list[i]);
    }
    return array;
}

flim_status flim_splits_write(const flim_splits *splits, const char *path, flim_error *err)
{
    flim_json *root = flim_json_object(), *data = flim_json_object(), *folds = flim_json_array();
    flim_json_set_string(root, "mode", flim_split_mode_name(splits->mode));
    flim_json_set_unsigned(root, "seed", splits->seed);
    flim_json_set_integer(data, "n", splits->n);
    flim_json_set_string(data, "sha256", splits->sha256[0] ? splits->sha256 : NULL);
    flim_json_set(root, "data", data);
    for (int f = 0; f < splits->n_folds; f++) {
        const flim_fold *fold = &splits->fold[f];
        flim_json *object = flim_json_object();
        flim_json_set(object, "train", index_array(fold->train, fold->n_train));
        flim_json_set(object, "val", index_array(fold->val, fold->n_val));
        flim_json_set(object, "test", index_array(fold->test, fold->n_test));
        flim_json_add(folds, object);
    }
    flim_json_set(root, "folds", folds);
    flim_json_set(root, "holdout", index_array(splits->holdout, splits->n_holdout));
    if (splits->n_unused > 0) {
        flim_json_set(root, "unused", index_array(splits->unused, splits->n_unused));
    }
    flim_status status = flim_json_write(root, path, err);
    flim_json_free(root);
    return status;
}

typedef struct reader {
    const char *path;
    const flim_split_data *data; /* may be NULL */
    flim_split_names names;
    bool by_name; /* whole numbers are names */
} reader;

static int by_index(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static flim_status find_name(reader *r, const char *where, const char *name, int64_t *cell, flim_error *err)
{
    if (!r->data || !r->data->name) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s, %s: has cell names ('%s'), but the data has no /name; use indices",
                         r->path, where, name);
    }
    int found;
    FLIM_TRY(flim_split_find_name(&r->names, name, cell, &found, err));
    if (found == 0) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s, %s: the data has no cell named '%s'", r->path, where, name);
    }
    return found == 1 ? FLIM_OK
                      : flim_fail(err, FLIM_ERROR_DATA, "%s, %s: several cells of the data are named '%s'; use indices",
                                  r->path, where, name);
}

/* ---- whole numbers: indices or names? */

/* What has been seen of a file's whole numbers. */
typedef struct readings {
    int64_t numbers, as_index, as_name; /* of them all: how many can be read so */
    bool differ; /* a number that can be read both ways, as two cells: */
    int64_t number, named; /* this one, and the cell of that name */
} readings;

static flim_status try_readings(reader *r, const flim_json *array, readings *seen, flim_error *err)
{
    const size_t n = flim_json_length(array);
    for (size_t i = 0; i < n; i++) {
        int64_t value, cell = -1;
        int count = 0;
        char text[32];
        if (flim_json_string(flim_json_at(array, i)) || !flim_json_integer(flim_json_at(array, i), &value)) {
            continue;
        }
        snprintf(text, sizeof text, "%" PRId64, value);
        FLIM_TRY(flim_split_find_name(&r->names, text, &cell, &count, err));
        const bool index = value >= 0 && value < r->data->n;
        seen->numbers++;
        seen->as_index += index;
        seen->as_name += count == 1;
        if (index && count == 1 && cell != value && !seen->differ) {
            seen->differ = true;
            seen->number = value;
            seen->named = cell;
        }
    }
    return FLIM_OK;
}

/* Sets r->by_name.  counted: the file is of the shape whose numbers count cells. */
static flim_status choose_reading(reader *r, const flim_json *folds, flim_splits_by by, bool counted, flim_error *err)
{
    static const char *const parts[] = {"train", "val", "test"};
    readings seen = {0};
    if (by == FLIM_SPLITS_BY_NAME && counted) {
        return flim_fail(err, FLIM_ERROR_USAGE,
                         "numbers in the splits file of a run count cells, so they are no names; leave splits_by out");
    }
    r->by_name = by == FLIM_SPLITS_BY_NAME;
    if (by != FLIM_SPLITS_BY_AUTO || counted || !r->data || !r->data->name) {
        return FLIM_OK;
    }
    for (size_t f = 0; f < flim_json_length(folds); f++) {
        for (size_t p = 0; p < sizeof parts / sizeof parts[0]; p++) {
            FLIM_TRY(try_readings(r, flim_json_get(flim_json_at(folds, f), parts[p]), &seen, err));
        }
    }
    const bool names = seen.numbers > 0 && seen.as_name == seen.numbers, indices = seen.as_index == seen.numbers;
    r->by_name = names && !indices;
    return names && indices && seen.differ
               ? flim_fail(err, FLIM_ERROR_DATA,
                           "its numbers can be read in two ways: %" PRId64 " is cell %" PRId64
                           " counted from 0, which is named '%s', or the cell named '%" PRId64 "', which is cell %" PRId64
                           "; say which with --splits-by index or --splits-by name (splits_by: index or name)",
                           seen.number, seen.number, r->data->name[seen.number], seen.number, seen.named)
               : FLIM_OK;
}

/* Reads an array of indices or names, sorted; absent = empty if that is allowed. */
static flim_status read_part(reader *r, const flim_json *object, const char *fold, const char *key, bool needed,
                             int64_t **list, int64_t *count, flim_error *err)
{
    const flim_json *array = flim_json_get(object, key);
    if ((!array || flim_json_is_null(array)) && needed) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s, %s: \"%s\" is missing", r->path, fold, key);
    }
    if (array && !flim_json_is_null(array) && !flim_json_is_array(array)) { /* it would count as empty */
        return flim_fail(err, FLIM_ERROR_DATA, "%s, %s: \"%s\" is not a list of cells", r->path, fold, key);
    }
    size_t n = flim_json_length(array);
    char where[64];
    snprintf(where, sizeof where, "%s %s", fold, key);
    *list = flim_alloc(n, sizeof **list, err);
    if (!*list) {
        return FLIM_ERROR_MEMORY;
    }
    for (size_t i = 0; i < n; i++) {
        const flim_json *item = flim_json_at(array, i);
        const char *name = flim_json_string(item);
        char text[32];
        int64_t number = 0;
        const bool whole = !name && flim_json_integer(item, &number);
        if (whole && r->by_name) {
            snprintf(text, sizeof text, "%" PRId64, number);
            name = text;
        }
        if (name) {
            FLIM_TRY(find_name(r, where, name, &(*list)[i], err));
        } else if (whole) {
            (*list)[i] = number;
        } else {
            return flim_fail(err, FLIM_ERROR_DATA, "%s, %s: entry %zu is neither a cell's index nor its name", r->path, where,
                             i);
        }
    }
    qsort(*list, n, sizeof **list, by_index);
    *count = (int64_t)n;
    return FLIM_OK;
}

/* What a key of our own stands for must be of its kind: a hash that is no text would be a check that is not made. */
static flim_status wrong_kind(const reader *r, const char *key, const char *expected, flim_error *err)
{
    return flim_fail(err, FLIM_ERROR_DATA, "%s: \"%s\" is not %s; correct it, or leave it out", r->path, key, expected);
}

/* NULL for a key that is absent, too. */
static const flim_json *get(const flim_json *object, const char *key)
{
    const flim_json *value = flim_json_get(object, key);
    return flim_json_is_null(value) ? NULL : value;
}

static flim_status read_mode(const reader *r, const flim_json *mode, flim_splits *out, flim_error *err)
{
    const char *text = flim_json_string(mode);
    int value = FLIM_SPLIT_AUTO;
    if (mode && !text) {
        return wrong_kind(r, "mode", "a text", err);
    }
    if (text &&
        (flim_parse_choice("mode", text, flim_split_mode_names, &value, NULL) != FLIM_OK || value == FLIM_SPLIT_AUTO)) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s: mode '%s' is not one that splits can have", r->path, text);
    }
    out->mode = (flim_split_mode)value;
    return FLIM_OK;
}

static flim_status read_header(const reader *r, const flim_json *root, flim_splits *out, bool *has_mode, flim_error *err)
{
    const flim_json *mode = get(root, "mode"), *seed = get(root, "seed"), *about = get(root, "data");
    const flim_json *n = get(about, "n"), *sha256 = get(about, "sha256");
    const char *hash = flim_json_string(sha256);
    *has_mode = mode != NULL;
    FLIM_TRY(read_mode(r, mode, out, err));
    if (seed && !flim_json_unsigned(seed, &out->seed)) {
        return wrong_kind(r, "seed", "a whole number from 0 to 2^64-1", err);
    }
    if (n && (!flim_json_integer(n, &out->n) || out->n < 1)) {
        return wrong_kind(r, "n", "a number of cells", err);
    }
    if (sha256 && (!hash || strlen(hash) >= sizeof out->sha256)) {
        return wrong_kind(r, "sha256", "a text of 64 digits", err);
    }
    snprintf(out->sha256, sizeof out->sha256, "%s", hash ? hash : "");
    return FLIM_OK;
}

static void unmark(bool *mark, int64_t n, const int64_t *list, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        if (list[i] >= 0 && list[i] < n) { /* what is out of range is said later */
            mark[list[i]] = false;
        }
    }
}

/* One split needs no cell that it does not name. */
static flim_status use_no_more(flim_splits *out, const flim_split_data *data, flim_error *err)
{
    const flim_fold *fold = &out->fold[0];
    bool *mark = flim_alloc((size_t)data->n, sizeof *mark, err); /* (n) */
    if (!mark) {
        return FLIM_ERROR_MEMORY;
    }
    memset(mark, true, (size_t)data->n * sizeof *mark);
    unmark(mark, data->n, fold->train, fold->n_train);
    unmark(mark, data->n, fold->val, fold->n_val);
    unmark(mark, data->n, fold->test, fold->n_test);
    unmark(mark, data->n, out->holdout, out->n_holdout);
    flim_free(out->unused);
    out->unused = NULL;
    const flim_status status = flim_split_list(mark, data->n, &out->unused, &out->n_unused, err);
    flim_free(mark);
    return status;
}

/* A list of folds whose val is the test set has no "test" in any of them. */
static bool has_test(const flim_json *folds)
{
    bool found = false;
    for (size_t i = 0; i < flim_json_length(folds); i++) {
        found = found || flim_json_get(flim_json_at(folds, i), "test") != NULL;
    }
    return found;
}

/* A list under a name that no part has ("validation") would leave its cells out without a word.  known: names with blanks between. */
static flim_status check_lists(const reader *r, const flim_json *object, const char *where, const char *known,
                               flim_error *err)
{
    const char *key;
    const flim_json *value;
    for (void *at = NULL; flim_json_next(object, &at, &key, &value);) {
        const size_t length = strlen(key);
        bool is_known = !flim_json_is_array(value);
        for (const char *k = known; k && !is_known; k = strchr(k, ' ')) {
            k += *k == ' ';
            is_known = length > 0 && strncmp(k, key, length) == 0 && (k[length] == ' ' || k[length] == '\0');
        }
        if (!is_known) {
            char name[64];
            flim_text_escaped(key, name, sizeof name);
            return flim_fail(err, FLIM_ERROR_DATA, "%s, %s: a list '%s', which is none of its parts: these are %s", r->path,
                             where, name, known);
        }
    }
    return FLIM_OK;
}

/* Without a stated mode: group if the file keeps every group whole, else stratified. */
static flim_split_mode guess_mode(flim_splits *out, const flim_split_data *data)
{
    if (data && data->group) {
        out->mode = FLIM_SPLIT_GROUP;
        if (flim_splits_check(out, data, NULL) == FLIM_OK) {
            return FLIM_SPLIT_GROUP;
        }
    }
    return FLIM_SPLIT_STRATIFIED;
}

flim_status flim_splits_read(const char *path, const flim_split_data *data, flim_splits *out, flim_error *err)
{
    return flim_splits_read_by(FLIM_SPLITS_BY_AUTO, path, data, out, err);
}

flim_status flim_splits_read_by(flim_splits_by by, const char *path, const flim_split_data *data, flim_splits *out,
                                flim_error *err)
{
    *out = (flim_splits){.n = data ? data->n : 0};
    reader r = {.path = path, .data = data, .names = {.data = data}};
    flim_json *root = NULL;
    bool has_mode = false;
    flim_status status = FLIM_OK;
    FLIM_TRY(flim_json_read(path, &root, err));
    const bool single = flim_json_get(root, "test") != NULL; /* an object that is itself the one split */
    const bool bare = flim_json_is_array(root); /* the folds alone */
    const bool nnunet = bare && !has_test(root);
    const flim_json *folds = bare ? root : flim_json_get(root, "folds");
    size_t n_folds = single ? 1 : flim_json_length(folds);
    if (n_folds < 1 || n_folds > INT32_MAX) {
        status = flim_fail(
            err, FLIM_ERROR_DATA,
            "%s: no folds; expected {\"folds\": [{\"train\": [], \"val\": [], \"test\": []}]}, one split {\"train\": [], "
            "\"val\": [], \"test\": []}, or nnU-Net's [{\"train\": [], \"val\": []}]",
            path);
        goto done;
    }
    if (nnunet && !data) {
        status = flim_fail(err, FLIM_ERROR_DATA, "%s: nnU-Net's shape cannot be read without the data", path);
        goto done;
    }
    FLIM_TRY_DONE(bare ? FLIM_OK : read_header(&r, root, out, &has_mode, err));
    FLIM_TRY_DONE(
        bare ? FLIM_OK
             : check_lists(&r, root, "splits", single ? "train val test holdout unused" : "folds holdout unused", err));
    status = choose_reading(&r, folds, by, has_mode || out->sha256[0], err);
    if (status != FLIM_OK) {
        flim_fail_prefix(err, "%s: ", path);
        goto done;
    }
    out->fold = flim_alloc(n_folds, sizeof *out->fold, err);
    FLIM_TRY_DONE(out->fold ? FLIM_OK : FLIM_ERROR_MEMORY);
    out->n_folds = (int)n_folds;
    out->needs_validation = nnunet;
    for (int f = 0; f < out->n_folds; f++) {
        flim_fold *fold = &out->fold[f];
        const flim_json *object = single ? root : flim_json_at(folds, (size_t)f);
        char where[32];
        snprintf(where, sizeof where, "fold %d", f);
        FLIM_TRY_DONE(single ? FLIM_OK : check_lists(&r, object, where, nnunet ? "train val" : "train val test", err));
        FLIM_TRY_DONE(read_part(&r, object, where, "train", true, &fold->train, &fold->n_train, err));
        FLIM_TRY_DONE(read_part(&r, object, where, nnunet ? "val" : "test", true, &fold->test, &fold->n_test, err));
        /* nnU-Net has no third part: an absent key reads as empty */
        FLIM_TRY_DONE(read_part(&r, object, where, nnunet ? "" : "val", false, &fold->val, &fold->n_val, err));
    }
    FLIM_TRY_DONE(read_part(&r, bare ? NULL : root, "splits", "holdout", false, &out->holdout, &out->n_holdout, err));
    FLIM_TRY_DONE(read_part(&r, bare ? NULL : root, "splits", "unused", false, &out->unused, &out->n_unused, err));
    FLIM_TRY_DONE(out->n_folds == 1 && data ? use_no_more(out, data, err) : FLIM_OK);
    if (!has_mode) {
        out->mode = guess_mode(out, data);
    }
    status = flim_splits_check(out, data, err);
    if (status != FLIM_OK) {
        flim_fail_prefix(err, "%s: ", path);
    } else if (data) {
        status = flim_split_set_complete(out, data, err);
    }
done:
    flim_json_free(root);
    flim_split_names_free(&r.names);
    if (status != FLIM_OK) {
        flim_splits_free(out);
    }
    return status;
}
