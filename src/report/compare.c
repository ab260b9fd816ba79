/* Two runs in pairs: by fold and by cell. */
#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "report/parts.h"

static bool same_part(const int64_t *a, int64_t n_a, const int64_t *b, int64_t n_b)
{
    return n_a == n_b && memcmp(a, b, (size_t)n_a * sizeof *a) == 0;
}

/* The same data and the same test and training parts in every fold; how a fold chooses its validation part within the rest may
 * differ. */
static bool same_splits(const flim_splits *a, const flim_splits *b)
{
    if (a->n != b->n || a->n_folds != b->n_folds || strcmp(a->sha256, b->sha256) != 0) {
        return false;
    }
    for (int f = 0; f < a->n_folds; f++) {
        if (!same_part(a->fold[f].test, a->fold[f].n_test, b->fold[f].test, b->fold[f].n_test)) {
            return false;
        }
    }
    return true;
}

/* Fold k of a run, NULL where it is not done. */
static const report_fold *fold_of(const report_run *run, int k)
{
    for (int f = 0; f < run->n_folds; f++) {
        if (run->fold[f].k == k) {
            return &run->fold[f];
        }
    }
    return NULL;
}

static flim_status compare_folds(report_comparison *out, flim_error *err)
{
    int folds = out->a->splits.n_folds;
    double *value_a = flim_alloc((size_t)folds, sizeof *value_a, err),
           *value_b = flim_alloc((size_t)folds, sizeof *value_b, err);
    flim_status status = value_a && value_b ? FLIM_OK : FLIM_ERROR_MEMORY;
    for (int m = 0; m < FLIM_N_METRICS && status == FLIM_OK; m++) {
        double test = 0, train = 0;
        for (int k = 0; k < folds; k++) {
            const report_fold *a = fold_of(out->a, k), *b = fold_of(out->b, k);
            value_a[k] = a ? a->metrics.value[m] : NAN;
            value_b[k] = b ? b->metrics.value[m] : NAN;
            test += (double)out->a->splits.fold[k].n_test;
            train += (double)out->a->splits.fold[k].n_train;
        }
        out->fold_test[m] = flim_corrected_t_test(value_a, value_b, folds, test / train);
    }
    flim_free(value_a);
    flim_free(value_b);
    return status;
}

/* Cells that both have predicted: who was right? */
static flim_status compare_cells(report_comparison *out, flim_error *err)
{
    const report_pool *a = &out->a->pool, *b = &out->b->pool;
    int64_t n = out->a->splits.n;
    int8_t *right = flim_alloc((size_t)n, sizeof *right, err); /* (n) 0 = not predicted by a, 1 = wrong, 2 = right */
    if (!right) {
        return FLIM_ERROR_MEMORY;
    }
    for (int64_t i = 0; i < a->n; i++) {
        right[a->cell[i]] = (int8_t)(1 + (a->label[i] == a->predicted[i]));
    }
    for (int64_t i = 0; i < b->n; i++) {
        int8_t of_a = right[b->cell[i]];
        bool of_b = b->label[i] == b->predicted[i];
        out->only_a += of_a == 2 && !of_b;
        out->only_b += of_a == 1 && of_b;
    }
    out->cell_test = flim_mcnemar(out->only_a, out->only_b);
    flim_free(right);
    return FLIM_OK;
}

flim_status report_compare(const report_run *a, const report_run *b, report_comparison *out, flim_error *err)
{
    *out = (report_comparison){.a = a, .b = b};
    out->same_splits = a->classes == b->classes && same_splits(&a->splits, &b->splits);
    if (!out->same_splits) {
        return FLIM_OK; /* what is paired would not be pairs */
    }
    flim_status status = compare_folds(out, err);
    return status == FLIM_OK ? compare_cells(out, err) : status;
}
