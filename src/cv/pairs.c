#include "cv/pairs.h"

#include "core/alloc.h"
#include "core/try.h"
#include "cv/sort_by_key.h"

/* Cells of a part sorted by class, then group: where each (class, group) begins, (classes * groups + 1). */
typedef struct table {
    int64_t *cell, *start;
    int64_t groups; /* at least 1 */
} table;

static int64_t group_of(const flim_split_data *data, int64_t cell)
{
    return data->group ? data->group[cell] : 0;
}

static flim_status sort(const flim_split_data *data, const int64_t *part, int64_t n_part, table *t, flim_error *err)
{
    flim_status status = FLIM_OK;
    t->groups = data->group ? data->groups : 1;
    const int64_t keys = data->classes * t->groups;
    int64_t *key = flim_alloc((size_t)data->n, sizeof *key, err); /* (n) of all cells */
    t->cell = flim_alloc((size_t)n_part, sizeof *t->cell, err);
    t->start = flim_alloc((size_t)keys + 1, sizeof *t->start, err);
    FLIM_TRY_DONE(key && t->cell && t->start ? FLIM_OK : FLIM_ERROR_MEMORY);
    for (int64_t i = 0; i < n_part; i++) {
        key[part[i]] = data->label[part[i]] * t->groups + group_of(data, part[i]);
    }
    flim_sort_by_key(part, n_part, key, keys, t->start, t->cell);
done:
    flim_free(key);
    return status;
}

static int64_t partner_of(const table *t, const flim_split_data *data, int64_t cell, flim_random *random)
{
    const int64_t class_first = data->label[cell] * t->groups, own = class_first + group_of(data, cell);
    const int64_t from = t->start[class_first], to = t->start[class_first + t->groups];
    const int64_t own_from = t->start[own], own_to = t->start[own + 1], others = (to - from) - (own_to - own_from);
    if (others > 0) {
        const int64_t at = from + (int64_t)flim_random_below(random, (uint64_t)others);
        return t->cell[at < own_from ? at : at + own_to - own_from];
    }
    if (own_to - own_from == 1) {
        return cell;
    }
    const int64_t at = own_from + (int64_t)flim_random_below(random, (uint64_t)(own_to - own_from - 1));
    return t->cell[at] == cell ? t->cell[own_to - 1] : t->cell[at];
}

/* The order (n_part), shuffled before, so that whole runs of `run` cells are of one group, the runs in random order. */
static flim_status by_group(const flim_split_data *data, int64_t run, int64_t n_part, int64_t *order, flim_random *random,
                            flim_error *err)
{
    flim_status status = FLIM_OK;
    const int64_t groups = data->groups;
    int64_t *start = flim_alloc((size_t)groups + 1, sizeof *start, err),
            *sorted = flim_alloc((size_t)n_part, sizeof *sorted, err);
    int64_t *runs = flim_alloc((size_t)(n_part / run) + 1, sizeof *runs, err), n_runs = 0, at = 0;
    FLIM_TRY_DONE(start && sorted && runs ? FLIM_OK : FLIM_ERROR_MEMORY);
    flim_sort_by_key(order, n_part, data->group, groups, start, sorted);
    for (int64_t g = 0; g < groups; g++) {
        for (int64_t i = start[g]; i + run <= start[g + 1]; i += run) {
            runs[n_runs++] = i;
        }
    }
    flim_random_shuffle(random, runs, (size_t)n_runs);
    for (int64_t r = 0; r < n_runs; r++) {
        for (int64_t i = 0; i < run; i++) {
            order[at++] = sorted[runs[r] + i];
        }
    }
    const int64_t rest = at;
    for (int64_t g = 0; g < groups; g++) {
        const int64_t from = start[g], to = start[g + 1];
        for (int64_t i = from + (to - from) / run * run; i < to; i++) {
            order[at++] = sorted[i];
        }
    }
    flim_random_shuffle(random, order + rest, (size_t)(n_part - rest));
done:
    flim_free(start);
    flim_free(sorted);
    flim_free(runs);
    return status;
}

flim_status flim_pairs_draw(const flim_pairs_rule *rule, const flim_split_data *data, const int64_t *part, int64_t n_part,
                            uint64_t seed, uint32_t fold, uint32_t epoch, flim_draw *draws, flim_error *err)
{
    const bool by_class = rule->paired && rule->pairs == FLIM_PAIRS_CLASS, donors = rule->from == FLIM_BATCH_FROM_DONOR;
    const int views = rule->paired ? 2 : 1;
    flim_random random = flim_random_begin(&(flim_cell_id){.seed = seed, .fold = fold, .epoch = epoch, .cell = UINT32_MAX},
                                           FLIM_RANDOM_PAIRS); /* of no cell */
    table t = {0};
    flim_status status = FLIM_OK;
    int64_t *order = flim_alloc((size_t)n_part, sizeof *order, err);
    uint8_t *times = flim_alloc((size_t)data->n, sizeof *times, err); /* (n) how often a cell was drawn */
    FLIM_TRY_DONE(order && times ? FLIM_OK : FLIM_ERROR_MEMORY);
    FLIM_TRY_DONE(!by_class || data->label
                      ? FLIM_OK
                      : flim_fail(err, FLIM_ERROR_USAGE, "contrastive-pairs class: the data has no /label; use view"));
    FLIM_TRY_DONE(!donors || data->group
                      ? FLIM_OK
                      : flim_fail(err, FLIM_ERROR_USAGE, "batch-from donor: the data has no /group; use all"));
    FLIM_TRY_DONE(by_class ? sort(data, part, n_part, &t, err) : FLIM_OK);
    for (int64_t i = 0; i < n_part; i++) {
        order[i] = part[i];
    }
    flim_random_shuffle(&random, order, (size_t)n_part);
    FLIM_TRY_DONE(donors ? by_group(data, rule->batch / views, n_part, order, &random, err) : FLIM_OK);
    for (int64_t i = 0; i < n_part; i++) {
        for (int v = 0; v < views; v++) {
            const int64_t cell = v == 1 && by_class ? partner_of(&t, data, order[i], &random) : order[i];
            draws[views * i + v] = (flim_draw){.cell = (uint32_t)cell, .repeat = times[cell]++, .weight = 1};
        }
    }
done:
    flim_free(t.cell);
    flim_free(t.start);
    flim_free(order);
    flim_free(times);
    return status;
}
