/* The rules that every set of folds must keep, asserted on what was made and on what was read. */
#include <inttypes.h>
#include <stdio.h>

#include "core/try.h"
#include "core/alloc.h"
#include "cv/split/split_internal.h"

enum { NOWHERE = 0, IN_TRAIN, IN_VAL, IN_TEST, IN_HOLDOUT, IN_UNUSED };
static const char *const part_names[] = {"no set", "train", "val", "test", "holdout", "unused"};

typedef struct checker {
    const flim_splits *splits;
    const flim_split_data *data; /* NULL: indices only */
    uint8_t *cell; /* (n) the part of the fold in hand */
    uint8_t *group; /* (groups) likewise */
    int *test_fold; /* (n) 1 + the fold that tests the cell; 0 = none */
    int *group_fold; /* (groups) likewise */
} checker;

/* "cell 12 ('a_b_c')" */
static const char *cell_text(const checker *c, int64_t cell, char buffer[256])
{
    if (c->data && c->data->name) {
        snprintf(buffer, 256, "cell %" PRId64 " ('%s')", cell, c->data->name[cell]);
    } else {
        snprintf(buffer, 256, "cell %" PRId64, cell);
    }
    return buffer;
}

static flim_status mark(checker *c, const char *where, const int64_t *list, int64_t count, uint8_t part, bool whole_groups,
                        flim_error *err)
{
    char text[256], buffer[32];
    for (int64_t i = 0; i < count; i++) {
        int64_t cell = list[i];
        if (cell < 0 || cell >= c->splits->n) {
            return flim_fail(err, FLIM_ERROR_DATA,
                             "splits, %s %s: cell %" PRId64 " is out of range, the data has %" PRId64 " cells", where,
                             part_names[part], cell, c->splits->n);
        }
        if (i > 0 && list[i - 1] >= cell) {
            return flim_fail(err, FLIM_ERROR_DATA, "splits, %s %s: indices must rise, but %" PRId64 " follows %" PRId64,
                             where, part_names[part], cell, list[i - 1]);
        }
        if (c->cell[cell] != NOWHERE) {
            return flim_fail(err, FLIM_ERROR_DATA, "splits, %s: %s is in both %s and %s", where, cell_text(c, cell, text),
                             part_names[c->cell[cell]], part_names[part]);
        }
        c->cell[cell] = part;
        if (whole_groups) {
            uint8_t *group = &c->group[c->data->group[cell]];
            if (*group != NOWHERE && *group != part) {
                return flim_fail(err, FLIM_ERROR_DATA,
                                 "splits, %s: group '%s' is in both %s and %s (%s); mode %s keeps groups whole", where,
                                 flim_split_group(c->data, c->data->group[cell], buffer), part_names[*group],
                                 part_names[part], cell_text(c, cell, text), flim_split_mode_name(c->splits->mode));
            }
            *group = part;
        }
    }
    return FLIM_OK;
}

static flim_status check_fold(checker *c, int f, bool whole_groups, flim_error *err)
{
    const flim_splits *s = c->splits;
    const flim_fold *fold = &s->fold[f];
    char where[32], text[256], buffer[32];
    snprintf(where, sizeof where, "fold %d", f);
    if (fold->n_train < 1 || fold->n_test < 1) {
        return flim_fail(err, FLIM_ERROR_DATA, "splits, fold %d: the %s set is empty", f,
                         fold->n_test < 1 ? "test" : "train");
    }
    for (int64_t i = 0; i < s->n; i++) {
        c->cell[i] = NOWHERE;
    }
    for (int64_t g = 0; whole_groups && g < c->data->groups; g++) {
        c->group[g] = NOWHERE;
    }
    FLIM_TRY(mark(c, where, s->unused, s->n_unused, IN_UNUSED, false, err)); /* of some groups only a few cells are */
    FLIM_TRY(mark(c, where, s->holdout, s->n_holdout, IN_HOLDOUT, whole_groups, err));
    FLIM_TRY(mark(c, where, fold->train, fold->n_train, IN_TRAIN, whole_groups, err));
    FLIM_TRY(mark(c, where, fold->val, fold->n_val, IN_VAL, whole_groups, err));
    FLIM_TRY(mark(c, where, fold->test, fold->n_test, IN_TEST, whole_groups, err));
    for (int64_t i = 0; i < fold->n_test; i++) {
        int64_t cell = fold->test[i];
        if (c->test_fold[cell]) {
            return flim_fail(err, FLIM_ERROR_DATA, "splits: %s is in the test sets of fold %d and fold %d",
                             cell_text(c, cell, text), c->test_fold[cell] - 1, f);
        }
        c->test_fold[cell] = f + 1;
        if (whole_groups) {
            int *group = &c->group_fold[c->data->group[cell]];
            if (*group && *group != f + 1) {
                return flim_fail(err, FLIM_ERROR_DATA,
                                 "splits: group '%s' is in the test sets of fold %d and fold %d; mode %s keeps groups whole",
                                 flim_split_group(c->data, c->data->group[cell], buffer), *group - 1, f,
                                 flim_split_mode_name(s->mode));
            }
            *group = f + 1;
        }
    }
    return FLIM_OK;
}

flim_status flim_splits_check(const flim_splits *splits, const flim_split_data *data, flim_error *err)
{
    if (data && data->n != splits->n) {
        return flim_fail(err, FLIM_ERROR_DATA, "splits are for %" PRId64 " cells, but the data has %" PRId64, splits->n,
                         data->n);
    }
    bool whole_groups = flim_split_by_group(splits->mode) && data;
    if (whole_groups && !data->group) {
        return flim_fail(err, FLIM_ERROR_DATA, "splits of mode %s need /group, which is missing in the data",
                         flim_split_mode_name(splits->mode));
    }
    if (splits->n_folds < 1) {
        return flim_fail(err, FLIM_ERROR_DATA, "splits: no folds");
    }
    const bool single = splits->n_folds == 1; /* what it trains on is tested nowhere */
    int64_t tested = splits->n_holdout + splits->n_unused;
    for (int f = 0; f < splits->n_folds; f++) {
        tested += splits->fold[f].n_test + (single ? splits->fold[f].n_train + splits->fold[f].n_val : 0);
    }
    if (splits->n > 2 * tested + 1000) { /* before so many cells are looked at one by one: a file may say any number */
        return flim_fail(err, FLIM_ERROR_DATA, "splits: they are for %" PRId64 " cells, but only %" PRId64 " are in a set",
                         splits->n, tested);
    }
    flim_status status = FLIM_OK;
    size_t groups = whole_groups ? (size_t)data->groups : 0;
    checker c = {.splits = splits, .data = data};
    c.cell = flim_alloc((size_t)splits->n, sizeof *c.cell, err);
    c.group = flim_alloc(groups, sizeof *c.group, err);
    c.test_fold = flim_alloc((size_t)splits->n, sizeof *c.test_fold, err);
    c.group_fold = flim_alloc(groups, sizeof *c.group_fold, err);
    FLIM_TRY_DONE(c.cell && c.group && c.test_fold && c.group_fold ? FLIM_OK : FLIM_ERROR_MEMORY);
    for (int f = 0; f < splits->n_folds; f++) {
        FLIM_TRY_DONE(check_fold(&c, f, whole_groups, err));
    }
    for (int64_t i = 0; i < splits->n; i++) {
        char text[256];
        const bool out = c.cell[i] == IN_HOLDOUT || c.cell[i] == IN_UNUSED; /* in every fold */
        if (!out && !c.test_fold[i] && !(single && c.cell[i] != NOWHERE)) {
            status =
                flim_fail(err, FLIM_ERROR_DATA,
                          "splits: %s is in no test set; together the test sets must contain every cell that is not held out",
                          cell_text(&c, i, text));
            goto done;
        }
    }
done:
    flim_free(c.cell);
    flim_free(c.group);
    flim_free(c.test_fold);
    flim_free(c.group_fold);
    return status;
}
