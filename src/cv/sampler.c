#include "cv/sampler.h"

#include "core/try.h"
#include "core/alloc.h"

static void draw_each_once(const int64_t *part, int64_t n_part, int64_t *order, flim_random *random, flim_draw *draws)
{
    for (int64_t i = 0; i < n_part; i++) {
        order[i] = part[i];
    }
    flim_random_shuffle(random, order, (size_t)n_part);
    for (int64_t i = 0; i < n_part; i++) {
        draws[i] = (flim_draw){.cell = (uint32_t)order[i], .repeat = 0, .weight = 1};
    }
}

/* A pool (class or group) uniformly among those present, then a cell of it uniformly, n_part times.  key: (n) of all cells,
 * 0..keys-1.  start: (keys + 1), order and seen: (n_part) scratch, zeroed. */
static void draw_from_pools(const int64_t *part, int64_t n_part, const int64_t *key, int64_t keys, int64_t *start,
                            int64_t *order, int64_t *seen, flim_random *random, flim_draw *draws)
{
    for (int64_t i = 0; i < n_part; i++) {
        start[key[part[i]] + 1]++;
    }
    for (int64_t k = 0; k < keys; k++) {
        start[k + 1] += start[k];
    }
    for (int64_t i = n_part; i-- > 0;) { /* counting sort; start[k + 1] walks down to where pool k begins */
        order[--start[key[part[i]] + 1]] = part[i];
    }
    int64_t pools = 0; /* start becomes the list of the beginnings of the pools that are present */
    for (int64_t i = 0; i < n_part; i++) {
        if (i == 0 || key[order[i]] != key[order[i - 1]]) {
            start[pools++] = i;
        }
    }
    start[pools] = n_part;
    for (int64_t i = 0; i < n_part; i++) {
        int64_t pool = (int64_t)flim_random_below(random, (uint64_t)pools);
        int64_t size = start[pool + 1] - start[pool];
        int64_t at = start[pool] + (int64_t)flim_random_below(random, (uint64_t)size);
        draws[i] = (flim_draw){.cell = (uint32_t)order[at], .repeat = (uint32_t)seen[at]++, .weight = 1};
    }
}

flim_status flim_sampler_draw(flim_sampler sampler, const flim_split_data *data, const int64_t *part, int64_t n_part,
                              uint64_t seed, uint32_t fold, uint32_t epoch, flim_draw *draws, flim_error *err)
{
    if (sampler == FLIM_SAMPLER_GROUP_BALANCED && !data->group) {
        return flim_fail(err, FLIM_ERROR_USAGE,
                         "sampler group-balanced: the data has no /group; use balanced or natural, or add /group");
    }
    flim_status status = FLIM_OK;
    int64_t *start = NULL, *seen = NULL, *label = NULL;
    int64_t keys = sampler == FLIM_SAMPLER_GROUP_BALANCED ? data->groups : data->classes;
    flim_random random = flim_random_begin(&(flim_cell_id){.seed = seed, .fold = fold, .epoch = epoch}, FLIM_RANDOM_SAMPLER);
    int64_t *order = flim_alloc((size_t)n_part, sizeof *order, err);
    if (!order) {
        return FLIM_ERROR_MEMORY;
    }
    if (sampler == FLIM_SAMPLER_NATURAL) {
        draw_each_once(part, n_part, order, &random, draws);
        goto done;
    }
    start = flim_alloc((size_t)keys + 1, sizeof *start, err);
    seen = flim_alloc((size_t)n_part, sizeof *seen, err);
    label = flim_alloc((size_t)data->n, sizeof *label, err);
    FLIM_TRY_DONE(start && seen && label ? FLIM_OK : FLIM_ERROR_MEMORY);
    for (int64_t i = 0; i < data->n; i++) {
        label[i] = data->label[i];
    }
    draw_from_pools(part, n_part, sampler == FLIM_SAMPLER_GROUP_BALANCED ? data->group : label, keys, start, order, seen,
                    &random, draws);
done:
    flim_free(order);
    flim_free(start);
    flim_free(seen);
    flim_free(label);
    return status;
}

flim_status flim_sampler_prior(flim_sampler sampler, const flim_split_data *data, const int64_t *part, int64_t n_part,
                               uint64_t seed, uint32_t fold, int64_t epochs, const float *class_weight, double *prior,
                               flim_error *err)
{
    double sum = 0;
    flim_status status = FLIM_OK;
    flim_draw *draws = flim_alloc((size_t)n_part, sizeof *draws, err);
    FLIM_TRY_DONE(draws ? FLIM_OK : FLIM_ERROR_MEMORY);
    for (int c = 0; c < data->classes; c++) {
        prior[c] = 0;
    }
    for (int64_t epoch = 0; epoch < epochs; epoch++) {
        FLIM_TRY_DONE(flim_sampler_draw(sampler, data, part, n_part, seed, fold, (uint32_t)epoch, draws, err));
        for (int64_t i = 0; i < n_part; i++) {
            const int32_t c = data->label[draws[i].cell];
            prior[c] += (double)draws[i].weight * (class_weight ? (double)class_weight[c] : 1);
        }
    }
    for (int c = 0; c < data->classes; c++) {
        sum += prior[c];
    }
    for (int c = 0; c < data->classes && sum > 0; c++) {
        prior[c] /= sum;
    }
done:
    flim_free(draws);
    return status;
}

void flim_class_weights(const flim_split_data *data, const int64_t *part, int64_t n_part, double *weight)
{
    int present = 0;
    for (int c = 0; c < data->classes; c++) {
        weight[c] = 0;
    }
    for (int64_t i = 0; i < n_part; i++) {
        weight[data->label[part[i]]] += 1;
    }
    for (int c = 0; c < data->classes; c++) {
        present += weight[c] > 0;
    }
    for (int c = 0; c < data->classes; c++) {
        weight[c] = weight[c] > 0 ? (double)n_part / (present * weight[c]) : 0;
    }
}
