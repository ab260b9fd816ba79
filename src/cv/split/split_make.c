#include "flim/split.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/bytes.h"
#include "core/host_memory.h"
#include "core/stop.h"
#include "core/try.h"
#include "core/text.h"
#include "cv/split/split_internal.h"
#include "flim/dataset.h"

void flim_splits_free(flim_splits *splits)
{
    for (int f = 0; splits->fold && f < splits->n_folds; f++) {
        flim_free(splits->fold[f].train);
        flim_free(splits->fold[f].val);
        flim_free(splits->fold[f].test);
    }
    flim_free(splits->fold);
    flim_free(splits->holdout);
    flim_free(splits->unused);
    *splits = (flim_splits){0};
}

flim_status flim_split_check_input(const flim_split_data *data, const flim_split_request *request, flim_error *err)
{
    if (!data->label || data->n < 1) {
        return flim_fail(err, FLIM_ERROR_USAGE, "cannot split: the data has %s", data->n < 1 ? "no cells" : "no labels");
    }
    if (!(request->val_fraction >= 0 && request->val_fraction < 1)) {
        return flim_fail(err, FLIM_ERROR_USAGE, "val_fraction: %g is out of range, must be at least 0 and below 1",
                         request->val_fraction);
    }
    for (int64_t i = 0; i < data->n; i++) {
        if (data->label[i] < 0 || data->label[i] >= data->classes) {
            return flim_fail(err, FLIM_ERROR_DATA, "cell %" PRId64 ": label %" PRId32 " is out of range, expected 0..%d", i,
                             data->label[i], data->classes - 1);
        }
        if (data->group && (data->group[i] < 0 || data->group[i] >= data->groups)) {
            return flim_fail(err, FLIM_ERROR_DATA,
                             "cell %" PRId64 ": group number %" PRId64 " is out of range, expected 0..%" PRId64, i,
                             data->group[i], data->groups - 1);
        }
    }
    return FLIM_OK;
}

/* auto's rule, and what every mode needs: two classes, enough cells, enough groups. */
static flim_status resolve_mode(const flim_split_table *table, const flim_split_request *request, flim_split_mode *mode,
                                int *folds, flim_error *err)
{
    int present = 0, only = 0;
    for (int c = 0; c < table->data->classes; c++) {
        if (table->class_cells[c] > 0) {
            present++;
            only = c;
        }
    }
    char buffer[32];
    const char *outside = request->n_holdout ? " outside the hold-out groups" : "";
    if (table->n == 0) {
        return flim_fail(err, FLIM_ERROR_USAGE, "cannot train: the hold-out groups contain all %" PRId64 " cells",
                         table->data->n);
    }
    if (present < 2) {
        return flim_fail(err, FLIM_ERROR_USAGE,
                         "cannot train: all %" PRId64 " cells%s are of one class, '%s'; two are needed", table->n, outside,
                         flim_split_class(table->data, only, buffer));
    }
    *mode = request->mode;
    *folds = request->folds;
    if (*mode != FLIM_SPLIT_LEAVE_ONE_GROUP_OUT && *folds < 2) {
        return flim_fail(err, FLIM_ERROR_USAGE, "folds: %d is too few, cross-validation needs at least 2", *folds);
    }
    if (*mode == FLIM_SPLIT_AUTO) {
        bool enough = table->data->group && table->groups >= *folds;
        *mode = enough ? FLIM_SPLIT_STRATIFIED_GROUP : FLIM_SPLIT_STRATIFIED;
        if (!table->data->group) {
            flim_log_line(request->log, FLIM_LOG_WARNING,
                          "cv auto: stratified by cell, because the data has no /group: if cells of one donor or dish are in "
                          "both training and test set, the scores will be too optimistic (leakage)");
        } else if (!enough) {
            flim_log_line(request->log, FLIM_LOG_WARNING,
                          "cv auto: stratified by cell, because /group has %" PRId64 " group%s%s for %d folds", table->groups,
                          flim_s(table->groups), outside, *folds);
        }
    }
    if (flim_split_by_group(*mode)) {
        if (!table->data->group) {
            return flim_fail(err, FLIM_ERROR_USAGE, "cv %s: the data has no /group; add it, or use --cv stratified",
                             flim_split_mode_name(*mode));
        }
        if (table->groups < 2) {
            return flim_fail(err, FLIM_ERROR_USAGE, "cv %s: there is one group%s, '%s'; at least 2 are needed",
                             flim_split_mode_name(*mode), outside, flim_split_group(table->data, table->group_id[0], buffer));
        }
        if (*mode == FLIM_SPLIT_LEAVE_ONE_GROUP_OUT) {
            *folds = (int)table->groups;
        } else if (*folds > table->groups) {
            return flim_fail(err, FLIM_ERROR_USAGE,
                             "folds: %d folds requested, but there are %" PRId64 " group%s%s; use --folds %" PRId64
                             " or fewer, or --cv stratified (which splits groups)",
                             *folds, table->groups, flim_s(table->groups), outside, table->groups);
        }
    }
    if (*folds > table->n) {
        return flim_fail(err, FLIM_ERROR_USAGE, "folds: %d folds requested, but there are %" PRId64 " cell%s%s", *folds,
                         table->n, flim_s(table->n), outside);
    }
    return FLIM_OK;
}

/* Cells by class, each class shuffled, dealt out like cards: every class and every fold gets the floor or the ceiling of its
 * even share.  fold_of: (data->n). */
static flim_status deal_cells(const flim_split_table *table, int folds, uint64_t seed, int *fold_of, flim_error *err)
{
    flim_status status = FLIM_OK;
    flim_random random = flim_split_random(seed, FLIM_SPLIT_STAGE_TEST, 0);
    int64_t *numbers = flim_alloc((size_t)folds, sizeof *numbers, err);
    int64_t *cells = flim_alloc((size_t)table->n, sizeof *cells, err);
    FLIM_TRY_DONE(numbers && cells ? FLIM_OK : FLIM_ERROR_MEMORY);
    for (int f = 0; f < folds; f++) {
        numbers[f] = f;
    }
    flim_random_shuffle(&random, numbers, (size_t)folds);
    int64_t dealt = 0;
    for (int c = 0; c < table->data->classes; c++) {
        int64_t n = 0;
        for (int64_t i = 0; i < table->n; i++) {
            if (table->data->label[table->cell[i]] == c) {
                cells[n++] = table->cell[i];
            }
        }
        flim_random_shuffle(&random, cells, (size_t)n);
        for (int64_t i = 0; i < n; i++) {
            fold_of[cells[i]] = (int)numbers[dealt++ % folds];
        }
    }
done:
    flim_free(numbers);
    flim_free(cells);
    return status;
}

/* fold_of: (data->n) */
static flim_status deal_groups(const flim_split_table *table, flim_split_mode mode, int folds, uint64_t seed,
                               flim_cover *cover, int *fold_of, flim_error *err)
{
    flim_status status = FLIM_OK;
    int classes = table->data->classes;
    int *fold_of_group = flim_alloc((size_t)table->groups, sizeof *fold_of_group, err);
    int64_t *size = flim_alloc((size_t)table->groups, sizeof *size, err);
    FLIM_TRY_DONE(fold_of_group && size ? FLIM_OK : FLIM_ERROR_MEMORY);
    if (mode == FLIM_SPLIT_STRATIFIED_GROUP) {
        FLIM_TRY_DONE(flim_assign_groups(table->groups, classes, table->count, folds, seed, cover, fold_of_group, err));
    } else if (mode == FLIM_SPLIT_GROUP) {
        for (int64_t i = 0; i < table->n; i++) {
            size[table->group_of[i]]++;
        }
        FLIM_TRY_DONE(flim_assign_groups(table->groups, 0, size, folds, seed, NULL, fold_of_group, err));
    } else {
        for (int64_t g = 0; g < table->groups; g++) {
            fold_of_group[g] = (int)g;
        }
    }
    for (int64_t i = 0; i < table->n; i++) {
        fold_of[table->cell[i]] = fold_of_group[table->group_of[i]];
    }
done:
    flim_free(fold_of_group);
    flim_free(size);
    return status;
}

flim_status flim_split_set_complete(flim_splits *splits, const flim_split_data *data, flim_error *err)
{
    enum { IN_TRAIN = 1, IN_VAL = 2 };
    uint8_t *in = flim_alloc((size_t)data->classes, sizeof *in, err); /* (classes) */
    if (!in) {
        return FLIM_ERROR_MEMORY;
    }
    for (int f = 0; f < splits->n_folds; f++) {
        flim_fold *fold = &splits->fold[f];
        memset(in, 0, (size_t)data->classes);
        for (int64_t i = 0; i < fold->n_train; i++) {
            in[data->label[fold->train[i]]] |= IN_TRAIN;
        }
        for (int64_t i = 0; i < fold->n_val; i++) {
            in[data->label[fold->val[i]]] |= IN_VAL;
        }
        fold->val_complete = fold->n_val > 0;
        for (int c = 0; c < data->classes; c++) {
            fold->val_complete = fold->val_complete && in[c] != IN_TRAIN;
        }
    }
    flim_free(in);
    return FLIM_OK;
}

/* The parts of one fold from the cells' fold numbers (-1 = held out). */
static flim_status make_fold(const flim_split_table *table, const int *fold_of, int f, const flim_splits *splits,
                             double fraction, flim_fold *fold, flim_error *err)
{
    int64_t n = table->data->n;
    flim_status status = FLIM_OK;
    bool *part = flim_alloc((size_t)n, sizeof *part, err);
    bool *val = flim_alloc((size_t)n, sizeof *val, err);
    FLIM_TRY_DONE(part && val ? FLIM_OK : FLIM_ERROR_MEMORY);
    for (int64_t i = 0; i < n; i++) {
        part[i] = fold_of[i] == f;
    }
    FLIM_TRY_DONE(flim_split_list(part, n, &fold->test, &fold->n_test, err));
    for (int64_t i = 0; i < n; i++) {
        part[i] = fold_of[i] >= 0 && fold_of[i] != f;
    }
    FLIM_TRY_DONE(flim_split_validation(table, part, flim_split_by_group(splits->mode), fraction, splits->seed, f, val, err));
    FLIM_TRY_DONE(flim_split_list(val, n, &fold->val, &fold->n_val, err));
    for (int64_t i = 0; i < n; i++) {
        part[i] = part[i] && !val[i];
    }
    status = flim_split_list(part, n, &fold->train, &fold->n_train, err);
done:
    flim_free(part);
    flim_free(val);
    return status;
}

/* Each fold lists its cells. */
static flim_status check_memory(const flim_splits *splits, int64_t n, flim_error *err)
{
    const double bytes = (double)splits->n_folds * (double)n * (double)sizeof *splits->fold->train;
    const double available = (double)flim_host_memory_now().available;
    return bytes < available
               ? FLIM_OK
               : flim_fail(err, FLIM_ERROR_USAGE,
                           "folds: the lists of %d folds of %" PRId64
                           " cells take %.1f GiB, of which %.1f are available; use fewer folds (--cv group --folds 10)",
                           splits->n_folds, n, flim_gib((int64_t)bytes), flim_gib((int64_t)available));
}

flim_split_data flim_split_data_of(const flim_dataset_info *info)
{
    return (flim_split_data){.n = info->n,
                             .classes = info->classes,
                             .label = info->label,
                             .class_name = info->class_name,
                             .groups = info->groups,
                             .group = info->group,
                             .group_name = info->group_name,
                             .name = info->name};
}

int64_t flim_splits_largest_part(const flim_splits *splits)
{
    int64_t most = 0;
    for (int k = 0; k < splits->n_folds; k++) {
        most = splits->fold[k].n_train > most ? splits->fold[k].n_train : most;
    }
    return most;
}

static flim_status go_on(const flim_split_request *request, flim_error *err)
{
    return flim_stopped(request->stop) ? flim_fail(err, FLIM_INTERRUPTED, "interrupted while the folds were made") : FLIM_OK;
}

/* Folds of all cells. */
static flim_status make_folds(const flim_split_data *data, const flim_split_request *request, flim_splits *out,
                              flim_error *err)
{
    *out = (flim_splits){.seed = request->seed, .n = data->n};
    flim_split_table table = {0};
    flim_cover cover = FLIM_COVER_UNKNOWN;
    bool *held_out = NULL, *held_cell = NULL;
    int *fold_of = NULL;
    flim_status status = FLIM_OK;
    FLIM_TRY_DONE(flim_split_check_input(data, request, err));
    held_out = flim_alloc((size_t)data->groups, sizeof *held_out, err);
    held_cell = flim_alloc((size_t)data->n, sizeof *held_cell, err);
    fold_of = flim_alloc((size_t)data->n, sizeof *fold_of, err);
    FLIM_TRY_DONE(held_out && held_cell && fold_of ? FLIM_OK : FLIM_ERROR_MEMORY);
    FLIM_TRY_DONE(flim_split_find_holdout(data, request, held_out, err));
    FLIM_TRY_DONE(flim_split_table_make(data, request->n_holdout ? held_out : NULL, &table, err));
    FLIM_TRY_DONE(resolve_mode(&table, request, &out->mode, &out->n_folds, err));
    for (int64_t i = 0; i < data->n; i++) {
        fold_of[i] = -1;
        held_cell[i] = data->group && held_out[data->group[i]];
    }
    out->fold = flim_alloc((size_t)out->n_folds, sizeof *out->fold, err);
    FLIM_TRY_DONE(out->fold ? FLIM_OK : FLIM_ERROR_MEMORY);
    FLIM_TRY_DONE(flim_split_list(held_cell, data->n, &out->holdout, &out->n_holdout, err));
    FLIM_TRY_DONE(out->mode == FLIM_SPLIT_STRATIFIED
                      ? deal_cells(&table, out->n_folds, request->seed, fold_of, err)
                      : deal_groups(&table, out->mode, out->n_folds, request->seed, &cover, fold_of, err));
    FLIM_TRY_DONE(check_memory(out, data->n, err));
    for (int f = 0; f < out->n_folds; f++) {
        FLIM_TRY_DONE(go_on(request, err));
        FLIM_TRY_DONE(make_fold(&table, fold_of, f, out, request->val_fraction, &out->fold[f], err));
    }
    FLIM_TRY_DONE(flim_split_set_complete(out, data, err));
    FLIM_TRY_DONE(flim_splits_check(out, data, err));
    status = flim_split_warn(out, data, flim_validation_of(request), cover, request->log, err);
done:
    flim_split_table_free(&table);
    flim_free(held_out);
    flim_free(held_cell);
    flim_free(fold_of);
    if (status != FLIM_OK) {
        flim_splits_free(out);
    }
    return status;
}

flim_status flim_splits_make(const flim_split_data *data, const flim_split_request *request, flim_splits *out,
                             flim_error *err)
{
    flim_split_data rest = {0};
    flim_split_request of_rest = *request;
    int64_t *cell = NULL; /* (rest.n) */
    flim_status status = FLIM_OK;
    if (!request->unused) {
        return request->n_test_groups > 0 ? flim_split_by_names(data, request, out, err)
                                          : make_folds(data, request, out, err);
    }
    *out = (flim_splits){0};
    of_rest.unused = NULL;
    FLIM_TRY_DONE(flim_split_check_input(data, request, err));
    FLIM_TRY_DONE(flim_split_rest(data, request->unused, &rest, &cell, err));
    FLIM_TRY_DONE(flim_splits_make(&rest, &of_rest, out, err));
    FLIM_TRY_DONE(flim_split_to_all(out, data, request->unused, cell, err));
    status = flim_splits_check(out, data, err);
done:
    flim_split_rest_free(&rest);
    flim_free(cell);
    if (status != FLIM_OK) {
        flim_splits_free(out);
    }
    return status;
}

/* Takes the cells marked in val (n) out of a fold's training set and makes them its validation set. */
static flim_status move_to_validation(flim_fold *fold, const bool *val, int64_t n, flim_error *err)
{
    int64_t *list = NULL, count = 0, kept = 0;
    FLIM_TRY(flim_split_list(val, n, &list, &count, err));
    flim_free(fold->val);
    fold->val = list;
    fold->n_val = count;
    for (int64_t i = 0; i < fold->n_train; i++) {
        if (!val[fold->train[i]]) {
            fold->train[kept++] = fold->train[i];
        }
    }
    fold->n_train = kept;
    return FLIM_OK;
}

flim_status flim_splits_add_validation(flim_splits *splits, const flim_split_data *data, const flim_split_request *request,
                                       flim_error *err)
{
    flim_split_table table = {0};
    bool *rest = NULL, *val = NULL;
    flim_status status = FLIM_OK;
    FLIM_TRY(flim_split_check_input(data, request, err));
    FLIM_TRY(flim_split_table_make(data, NULL, &table, err));
    rest = flim_alloc((size_t)data->n, sizeof *rest, err);
    val = flim_alloc((size_t)data->n, sizeof *val, err);
    FLIM_TRY_DONE(rest && val ? FLIM_OK : FLIM_ERROR_MEMORY);
    for (int f = 0; f < splits->n_folds; f++) {
        flim_fold *fold = &splits->fold[f];
        FLIM_TRY_DONE(go_on(request, err));
        if (fold->n_val > 0) {
            continue;
        }
        memset(rest, 0, (size_t)data->n * sizeof *rest);
        memset(val, 0, (size_t)data->n * sizeof *val);
        for (int64_t i = 0; i < fold->n_train; i++) {
            rest[fold->train[i]] = true;
        }
        FLIM_TRY_DONE(flim_split_validation(&table, rest, flim_split_by_group(splits->mode), request->val_fraction,
                                            request->seed, f, val, err));
        FLIM_TRY_DONE(move_to_validation(fold, val, data->n, err));
    }
    splits->needs_validation = false;
    FLIM_TRY_DONE(flim_split_set_complete(splits, data, err));
    FLIM_TRY_DONE(flim_splits_check(splits, data, err));
    status = flim_split_warn(splits, data, flim_validation_of(request), FLIM_COVER_UNKNOWN, request->log, err);
done:
    flim_split_table_free(&table);
    flim_free(rest);
    flim_free(val);
    return status;
}
