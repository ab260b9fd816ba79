#include "cv/mixup.h"

#include "core/alloc.h"
#include "core/exact_math.h"
#include "core/try.h"
#include "cv/sort_by_key.h"

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
    int64_t *start = flim_alloc((size_t)data->groups + 1, sizeof *start, err);
    int64_t *cell = flim_alloc((size_t)n, 2 * sizeof *cell, err), *sorted = cell ? cell + n : NULL; /* (n) of the draws */
    uint8_t *times = flim_alloc((size_t)data->n, sizeof *times, err); /* (n) how often a cell was a partner */
    double share = 0;
    FLIM_TRY_DONE(start && cell && times ? FLIM_OK : FLIM_ERROR_MEMORY);
    for (int64_t i = 0; i < n; i++) {
        cell[i] = draws[i].cell;
    }
    if (by_group) {
        flim_sort_by_key(cell, n, data->group, data->groups, start, sorted);
    }
    for (int64_t i = 0; i < n; i++) {
        if (rule->share == FLIM_MIXUP_SHARE_CELL || i % batch == 0) {
            const bool mixes = flim_random_uniform(&random) < rule->probability;
            share = mixes ? 1 - flim_draw_beta(&random, rule->alpha) : 0;
        }
        const int64_t group = by_group ? data->group[cell[i]] : 0;
        const int64_t from = by_group ? start[group] : 0, to = by_group ? start[group + 1] : n;
        const int64_t at = from + (int64_t)flim_random_below(&random, (uint64_t)(to - from));
        const uint32_t partner = (uint32_t)(by_group ? sorted : cell)[at];
        /* Repeats from 128 on are partners': a cell and itself as a partner are two draws. */
        mix[i] = (flim_mix){partner, 128u + (times[partner]++ & 127u), (float)share};
    }
done:
    flim_free(start);
    flim_free(cell);
    flim_free(times);
    return status;
}
