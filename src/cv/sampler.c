#include "cv/sampler.h"

#include <stdlib.h>

#include "core/alloc.h"
#include "core/try.h"
#include "cv/sort_by_key.h"

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
 * 0..keys-1.  Scratch: start (keys + 1), order (n_part), and seen (n_part), zeroed. */
static void draw_from_pools(const int64_t *part, int64_t n_part, const int64_t *key, int64_t keys, int64_t *start,
                            int64_t *order, int64_t *seen, flim_random *random, flim_draw *draws)
{
    int64_t pools = 0; /* that are present: start becomes the list of where they begin */
    flim_sort_by_key(part, n_part, key, keys, start, order);
    for (int64_t k = 0; k < keys; k++) {
        const int64_t begin = start[k];
        if (start[k + 1] > begin) {
            start[pools++] = begin;
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

/* ---- class-group ---------------------------------------------------------------------------------------------------------- */

/* The table cells of a part that are not empty, by ascending size; their cells lie one after the other in `cell`. */
typedef struct table {
    int64_t n; /* table cells */
    int64_t *start; /* (n + 1) in `cell` */
    int64_t *cell; /* (n_part) */
    int64_t bounded; /* the first of them, which give all draws that they may */
    int64_t left; /* draws that are left to the others, left / (n - bounded) to each */
} table;

typedef struct keyed {
    int64_t size, key, cell; /* size: of the table cell */
} keyed;

static int by_size_and_key(const void *a, const void *b)
{
    const keyed *x = a, *y = b;
    if (x->size != y->size) {
        return x->size < y->size ? -1 : 1;
    }
    if (x->key != y->key) {
        return x->key < y->key ? -1 : 1;
    }
    return x->cell < y->cell ? -1 : x->cell > y->cell;
}

static int64_t size_of(const table *t, int64_t k)
{
    return t->start[k + 1] - t->start[k];
}

static void table_free(table *t)
{
    flim_free(t->start);
    flim_free(t->cell);
    *t = (table){0};
}

/* Which table cells are bounded: the smallest first, as long as their equal share of what is left is more than they may give. */
static void bound(table *t, int64_t n_part, int64_t repeats)
{
    t->left = n_part;
    for (t->bounded = 0; t->bounded < t->n; t->bounded++) {
        const int64_t most = size_of(t, t->bounded) * repeats;
        if (most * (t->n - t->bounded) > t->left) {
            return;
        }
        t->left -= most;
    }
}

static flim_status table_make(int64_t repeats, const flim_split_data *data, const int64_t *part, int64_t n_part, table *out,
                              flim_error *err)
{
    const size_t keys = (size_t)data->classes * (size_t)data->groups;
    flim_status status = FLIM_OK;
    *out = (table){0};
    int64_t *size = flim_alloc(keys, sizeof *size, err);
    keyed *sorted = flim_alloc((size_t)n_part, sizeof *sorted, err);
    out->start = flim_alloc((size_t)n_part + 1, sizeof *out->start, err);
    out->cell = flim_alloc((size_t)n_part, sizeof *out->cell, err);
    FLIM_TRY_DONE(size && sorted && out->start && out->cell ? FLIM_OK : FLIM_ERROR_MEMORY);
    for (int64_t i = 0; i < n_part; i++) {
        sorted[i] = (keyed){.key = data->label[part[i]] * data->groups + data->group[part[i]], .cell = part[i]};
        size[sorted[i].key]++;
    }
    for (int64_t i = 0; i < n_part; i++) {
        sorted[i].size = size[sorted[i].key];
    }
    qsort(sorted, (size_t)n_part, sizeof *sorted, by_size_and_key);
    for (int64_t i = 0; i < n_part; i++) {
        out->cell[i] = sorted[i].cell;
        if (i == 0 || sorted[i].key != sorted[i - 1].key) {
            out->start[out->n++] = i;
        }
    }
    out->start[out->n] = n_part;
    bound(out, n_part, repeats);
done:
    flim_free(size);
    flim_free(sorted);
    if (status != FLIM_OK) {
        table_free(out);
    }
    return status;
}

/* `draws` of the table cell's members (n), in random order: each as often as the others, some once more. */
static void draw_members(int64_t *member, int64_t n, int64_t draws, flim_random *random, int64_t *out)
{
    flim_random_shuffle(random, member, (size_t)n);
    for (int64_t i = 0; i < draws; i++) {
        out[i] = member[i % n];
    }
}

/* The whole numbers of draws are those of a systematic sample: with S the expected numbers' running sums, which are
 * fractions of one denominator, and one random offset u for all, floor(S + u) at the end less that at the beginning.  Its
 * expectation is exact, and no number is off by one or more. */
static void draw_from_table(table *t, int64_t n_part, flim_random *random, int64_t *order, int64_t repeats)
{
    const int64_t others = t->n - t->bounded, parts = others > 0 ? others : 1;
    const int64_t offset = (int64_t)flim_random_below(random, (uint64_t)parts);
    int64_t sum = offset, at = 0;
    for (int64_t k = 0; k < t->n; k++) {
        const int64_t next = sum + (k < t->bounded ? size_of(t, k) * repeats * parts : t->left);
        const int64_t draws = next / parts - sum / parts;
        draw_members(t->cell + t->start[k], size_of(t, k), draws, random, order + at);
        at += draws;
        sum = next;
    }
    flim_random_shuffle(random, order, (size_t)n_part);
}

/* seen: (n) of all cells, zeroed. */
static void number_repeats(const int64_t *order, int64_t n_part, uint32_t *seen, flim_draw *draws)
{
    for (int64_t i = 0; i < n_part; i++) {
        draws[i] = (flim_draw){.cell = (uint32_t)order[i], .repeat = seen[order[i]]++, .weight = 1};
    }
}

static flim_status draw_class_group(int64_t repeats, const flim_split_data *data, const int64_t *part, int64_t n_part,
                                    flim_random *random, flim_draw *draws, flim_error *err)
{
    table t;
    flim_status status = FLIM_OK;
    uint32_t *seen = flim_alloc((size_t)data->n, sizeof *seen, err);
    int64_t *order = flim_alloc((size_t)n_part, sizeof *order, err);
    FLIM_TRY_DONE(table_make(repeats, data, part, n_part, &t, err));
    FLIM_TRY_DONE(seen && order ? FLIM_OK : FLIM_ERROR_MEMORY);
    draw_from_table(&t, n_part, random, order, repeats);
    number_repeats(order, n_part, seen, draws);
done:
    table_free(&t);
    flim_free(seen);
    flim_free(order);
    return status;
}

static flim_status check_groups(const char *sampler, const flim_split_data *data, flim_error *err)
{
    return data->group ? FLIM_OK
                       : flim_fail(err, FLIM_ERROR_USAGE,
                                   "sampler %s: the data has no /group; use balanced or natural, or add /group", sampler);
}

flim_status flim_sampler_describe(int64_t repeats, const flim_split_data *data, const int64_t *part, int64_t n_part,
                                  flim_sampler_table *out, flim_error *err)
{
    table t;
    double squares = 0;
    *out = (flim_sampler_table){0};
    FLIM_TRY(check_groups("class-group", data, err));
    FLIM_TRY(table_make(repeats, data, part, n_part, &t, err));
    out->cells = t.n;
    out->bounded = t.bounded;
    for (int64_t k = 0; k < t.n; k++) {
        const double size = (double)size_of(&t, k);
        const double draws = k < t.bounded ? (double)repeats : (double)t.left / (double)(t.n - t.bounded) / size;
        squares += size * draws * draws;
        out->most = k == 0 || draws > out->most ? draws : out->most;
        out->least = k == 0 || draws < out->least ? draws : out->least;
    }
    out->effective = squares > 0 ? (double)n_part * (double)n_part / squares : 0;
    table_free(&t);
    return FLIM_OK;
}

/* ---- all of them ---------------------------------------------------------------------------------------------------------- */

flim_status flim_sampler_draw(flim_sampler sampler, int64_t repeats, const flim_split_data *data, const int64_t *part,
                              int64_t n_part, uint64_t seed, uint32_t fold, uint32_t epoch, flim_draw *draws, flim_error *err)
{
    const bool grouped = sampler == FLIM_SAMPLER_GROUP_BALANCED || sampler == FLIM_SAMPLER_CLASS_GROUP;
    FLIM_TRY(grouped ? check_groups(flim_sampler_names[sampler], data, err) : FLIM_OK);
    flim_status status = FLIM_OK;
    int64_t *start = NULL, *seen = NULL, *label = NULL;
    int64_t keys = sampler == FLIM_SAMPLER_GROUP_BALANCED ? data->groups : data->classes;
    flim_random random = flim_random_begin(&(flim_cell_id){.seed = seed, .fold = fold, .epoch = epoch}, FLIM_RANDOM_SAMPLER);
    if (sampler == FLIM_SAMPLER_CLASS_GROUP) {
        return draw_class_group(repeats, data, part, n_part, &random, draws, err);
    }
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

flim_status flim_sampler_prior(flim_sampler sampler, int64_t repeats, const flim_split_data *data, const int64_t *part,
                               int64_t n_part, uint64_t seed, uint32_t fold, int64_t first, int64_t epochs,
                               const double *class_weight, double *prior, flim_error *err)
{
    double sum = 0;
    flim_status status = FLIM_OK;
    flim_draw *draws = flim_alloc((size_t)n_part, sizeof *draws, err);
    FLIM_TRY_DONE(draws ? FLIM_OK : FLIM_ERROR_MEMORY);
    for (int c = 0; c < data->classes; c++) {
        prior[c] = 0;
    }
    for (int64_t epoch = first; epoch < first + epochs; epoch++) {
        FLIM_TRY_DONE(flim_sampler_draw(sampler, repeats, data, part, n_part, seed, fold, (uint32_t)epoch, draws, err));
        for (int64_t i = 0; i < n_part; i++) {
            const int32_t c = data->label[draws[i].cell];
            prior[c] += (double)draws[i].weight * (class_weight ? class_weight[c] : 1);
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
