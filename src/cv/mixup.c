#include "cv/mixup.h"

#include "core/alloc.h"
#include "core/exact_math.h"
#include "core/try.h"

double flim_draw_beta(flim_random *random, double a)
{
    for (;;) {
        const double u = flim_exact_log(1 - flim_random_uniform(random)) / a,
                     v = flim_exact_log(1 - flim_random_uniform(random)) / a; /* log U^(1/a), log V^(1/a) */
        if (flim_exact_exp(u) + flim_exact_exp(v) <= 1) { /* U / (U + V) by the larger of both, which does not underflow */
            return u > v ? 1 / (1 + flim_exact_exp(v - u)) : 1 - 1 / (1 + flim_exact_exp(u - v));
        }
    }
}

/* Draws sorted by the group of their cells: order (n), and where each group begins: start (groups + 1), zeroed. */
static void sort_by_group(const flim_split_data *data, const flim_draw *draws, int64_t n, int64_t *start, int64_t *order)
{
    for (int64_t i = 0; i < n; i++) {
        start[data->group[draws[i].cell] + 1]++;
    }
    for (int64_t g = 0; g < data->groups; g++) {
        start[g + 1] += start[g];
    }
    for (int64_t i = n; i-- > 0;) {
        order[--start[data->group[draws[i].cell] + 1]] = i;
    }
    for (int64_t g = 0; g < data->groups; g++) { /* start[g + 1] walked down to where g begins */
        start[g] = start[g + 1];
    }
    start[data->groups] = n;
}

flim_status flim_mixup_draw(const flim_mixup_rule *rule, const flim_split_data *data, uint64_t seed, uint32_t fold,
                            uint32_t epoch, const flim_draw *draws, int64_t n, int64_t batch, flim_mix *mix, flim_error *err)
{
    const bool by_group = rule->partner == FLIM_MIXUP_PARTNER_GROUP;
    if (by_group && !data->group) {
        return flim_fail(err, FLIM_ERROR_USAGE, "mixup-partner group: the data has no /group; use all, or add /group");
    }
    flim_status status = FLIM_OK;
    flim_random random = flim_random_begin(&(flim_cell_id){.seed = seed, .fold = fold, .epoch = epoch, .cell = UINT32_MAX},
                                           FLIM_RANDOM_MIXUP); /* of no cell */
    int64_t *start = flim_alloc((size_t)data->groups + 1, sizeof *start, err), *order = NULL;
    uint8_t *times = flim_alloc((size_t)data->n, sizeof *times, err); /* (n) how often a cell was a partner */
    double share = 0;
    order = start && times ? flim_alloc((size_t)n + 1, sizeof *order, err) : NULL;
    FLIM_TRY_DONE(order ? FLIM_OK : FLIM_ERROR_MEMORY);
    if (by_group) {
        sort_by_group(data, draws, n, start, order);
    }
    for (int64_t i = 0; i < n; i++) {
        if (rule->share == FLIM_MIXUP_SHARE_CELL || i % batch == 0) {
            const bool mixes = flim_random_uniform(&random) < rule->probability;
            share = mixes ? 1 - flim_draw_beta(&random, rule->alpha) : 0;
        }
        const int64_t group = by_group ? data->group[draws[i].cell] : 0;
        const int64_t from = by_group ? start[group] : 0, to = by_group ? start[group + 1] : n;
        const int64_t at = from + (int64_t)flim_random_below(&random, (uint64_t)(to - from));
        const uint32_t cell = draws[by_group ? order[at] : at].cell;
        /* Repeats from 128 on are partners': a cell and itself as a partner are two draws. */
        mix[i] = (flim_mix){cell, 128u + (times[cell]++ & 127u), (float)share};
    }
done:
    flim_free(start);
    flim_free(order);
    flim_free(times);
    return status;
}
