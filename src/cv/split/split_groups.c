/* One split of whole groups that are named: --train-groups, --val-groups, --test-groups. */
#include "core/alloc.h"
#include "core/try.h"
#include "cv/split/split_internal.h"

enum { UNNAMED = 0, TRAIN, VAL, TEST, HOLDOUT };
static const char *const keys[] = {"", "train_groups", "val_groups", "test_groups", "holdout_group"};

/* The set that a list of the request puts groups into. */
typedef struct placing {
    uint8_t *part; /* (groups) */
    uint8_t in;
} placing;

static flim_status place(void *context, int64_t group, const char *name, flim_error *err)
{
    const placing *p = context;
    uint8_t *part = &p->part[group];
    if (*part != UNNAMED && *part != p->in) {
        return flim_fail(err, FLIM_ERROR_USAGE, "group '%s' is named by %s and by %s", name, keys[*part], keys[p->in]);
    }
    *part = p->in;
    return FLIM_OK;
}

static flim_status hold_out(const flim_split_data *data, uint8_t *part, const char *name, flim_error *err)
{
    int64_t group;
    FLIM_TRY(flim_split_find_group(data, keys[HOLDOUT], name, &group, err));
    return place(&(placing){part, HOLDOUT}, group, name, err);
}

/* part (groups) from the request. */
static flim_status place_groups(const flim_split_data *data, const flim_split_request *r, uint8_t *part, flim_error *err)
{
    const struct {
        uint8_t in;
        const char *const *name;
        int n;
    } lists[] = {{HOLDOUT, r->holdout_group, r->n_holdout},
                 {TRAIN, r->train_group, r->n_train_groups},
                 {VAL, r->val_group, r->n_val_groups},
                 {TEST, r->test_group, r->n_test_groups}};
    for (size_t l = 0; l < sizeof lists / sizeof lists[0]; l++) {
        placing p = {part, lists[l].in};
        for (int i = 0; i < lists[l].n; i++) {
            FLIM_TRY(lists[l].in == HOLDOUT
                         ? hold_out(data, part, lists[l].name[i], err)
                         : flim_split_each_group(data, keys[lists[l].in], lists[l].name[i], place, &p, err));
        }
    }
    for (int64_t g = 0; g < data->groups && r->n_train_groups == 0; g++) {
        part[g] = part[g] == UNNAMED ? TRAIN : part[g];
    }
    return FLIM_OK;
}

/* The cells of the groups in that part. */
static flim_status list_of(const flim_split_data *data, const uint8_t *part, uint8_t in, bool *mark, int64_t **list,
                           int64_t *count, flim_error *err)
{
    for (int64_t i = 0; i < data->n; i++) {
        mark[i] = part[data->group[i]] == in;
    }
    return flim_split_list(mark, data->n, list, count, err);
}

flim_status flim_split_by_names(const flim_split_data *data, const flim_split_request *request, flim_splits *out,
                                flim_error *err)
{
    uint8_t *part = NULL; /* (groups) */
    bool *mark = NULL; /* (n) */
    flim_fold *fold = NULL;
    flim_status status = FLIM_OK;
    *out = (flim_splits){.mode = FLIM_SPLIT_GROUP, .seed = request->seed, .n = data->n};
    FLIM_TRY_DONE(flim_split_check_input(data, request, err));
    if (!data->group) {
        FLIM_TRY_DONE(flim_fail(err, FLIM_ERROR_USAGE, "test_groups '%s': the data has no /group", request->test_group[0]));
    }
    part = flim_alloc((size_t)data->groups, sizeof *part, err);
    mark = flim_alloc((size_t)data->n, sizeof *mark, err);
    fold = out->fold = flim_alloc(1, sizeof *out->fold, err);
    FLIM_TRY_DONE(part && mark && fold ? FLIM_OK : FLIM_ERROR_MEMORY);
    out->n_folds = 1;
    FLIM_TRY_DONE(place_groups(data, request, part, err));
    FLIM_TRY_DONE(list_of(data, part, TRAIN, mark, &fold->train, &fold->n_train, err));
    FLIM_TRY_DONE(list_of(data, part, VAL, mark, &fold->val, &fold->n_val, err));
    FLIM_TRY_DONE(list_of(data, part, TEST, mark, &fold->test, &fold->n_test, err));
    FLIM_TRY_DONE(list_of(data, part, HOLDOUT, mark, &out->holdout, &out->n_holdout, err));
    FLIM_TRY_DONE(list_of(data, part, UNNAMED, mark, &out->unused, &out->n_unused, err));
    if (fold->n_train == 0) {
        FLIM_TRY_DONE(flim_fail(err, FLIM_ERROR_USAGE, "test_groups: no group is left to train on"));
    }
    if (fold->n_val == 0 && request->val_fraction > 0) {
        FLIM_TRY_DONE(flim_splits_add_validation(out, data, request, err));
        goto done;
    }
    FLIM_TRY_DONE(flim_split_set_complete(out, data, err));
    FLIM_TRY_DONE(flim_splits_check(out, data, err));
    status = flim_split_warn(out, data, flim_validation_of(request), FLIM_COVER_UNKNOWN, request->log, err);
done:
    flim_free(part);
    flim_free(mark);
    if (status != FLIM_OK) {
        flim_splits_free(out);
    }
    return status;
}
