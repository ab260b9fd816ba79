#include "data/cell_table.h"

#include <math.h>
#include <stdlib.h>

#include "core/alloc.h"
#include "core/median.h"
#include "core/try.h"
#include "data/dataset_internal.h"

/* Sorts; -1 where there are none. */
static double median(double *values, int64_t n)
{
    return n == 0 ? -1 : flim_median(values, n);
}

double flim_largest_count(const flim_dataset *d, int64_t cell)
{
    int64_t local;
    const double most = flim_dataset_locate(d, cell, &local)->source->info.largest;
    return most < FLIM_COUNT_LIMIT || most == INFINITY ? most : FLIM_COUNT_LIMIT;
}

typedef struct keyed {
    int64_t group;
    int32_t label;
    int64_t cell;
} keyed;

static int by_key(const void *a, const void *b)
{
    const keyed *x = a, *y = b;
    int64_t order = x->group != y->group   ? x->group - y->group
                    : x->label != y->label ? x->label - y->label
                                           : x->cell - y->cell;
    return (order > 0) - (order < 0);
}

/* Sums up key[0..n-1]; scratch: (n) doubles. */
static flim_table_row sum_up(const flim_dataset *d, const keyed *key, int64_t n, const flim_cell_summary *summary,
                             double *scratch)
{
    flim_table_row row = {.group = key[0].group, .label = key[0].label, .cells = n};
    double photons = 0, zeros = 0, area = 0;
    int64_t lit = 0;
    for (int64_t i = 0; i < n; i++) {
        const flim_cell_summary *s = &summary[key[i].cell];
        photons += s->photons;
        zeros += (double)s->zero_voxels;
        area += (double)s->mask_pixels;
        row.saturated += s->max_count >= flim_largest_count(d, key[i].cell);
        row.all_zero += s->peak_bin < 0;
        row.empty_mask += s->mask_pixels == 0;
        scratch[i] = s->photons;
    }
    row.photons_median = median(scratch, n);
    for (int64_t i = 0; i < n; i++) {
        if (summary[key[i].cell].peak_bin >= 0) {
            scratch[lit++] = summary[key[i].cell].peak_bin;
        }
    }
    row.peak_bin = median(scratch, lit);
    row.photons_mean = photons / (double)n;
    row.zero_fraction = zeros / (double)n / (double)d->voxels;
    row.mask_area = area / (double)n;
    return row;
}

flim_status flim_cell_table_make(const flim_dataset *d, const flim_cell_summary *summary, flim_table_row **out,
                                 int64_t *n_rows, flim_error *err)
{
    const int64_t n = d->info.n;
    int64_t rows = 1, used = 0;
    flim_status status = FLIM_OK;
    flim_table_row *row = NULL;
    keyed *key = flim_alloc((size_t)n, sizeof *key, err);
    double *scratch = flim_alloc((size_t)n, sizeof *scratch, err);
    FLIM_TRY_DONE(key && scratch ? FLIM_OK : FLIM_ERROR_MEMORY);
    for (int64_t i = 0; i < n; i++) {
        key[i] = (keyed){d->group ? d->group[i] : -1, d->label ? d->label[i] : -1, i};
    }
    qsort(key, (size_t)n, sizeof *key, by_key);
    for (int64_t i = 1; i < n; i++) {
        rows += key[i].group != key[i - 1].group || key[i].label != key[i - 1].label;
    }
    row = flim_alloc((size_t)rows + 1, sizeof *row, err);
    FLIM_TRY_DONE(row ? FLIM_OK : FLIM_ERROR_MEMORY);
    for (int64_t first = 0, end; first < n; first = end) {
        for (end = first; end < n && key[end].group == key[first].group && key[end].label == key[first].label;) {
            end++;
        }
        row[used++] = sum_up(d, key + first, end - first, summary, scratch);
    }
    row[used] = sum_up(d, key, n, summary, scratch);
    row[used].group = row[used].label = -1;
    *out = row;
    *n_rows = used + 1;
done:
    flim_free(scratch);
    flim_free(key);
    return status;
}
