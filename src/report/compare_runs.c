/* In pairs, by fold and by cell: two runs, or a run's network and its baselines. */
#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "core/try.h"
#include "report/report_internal.h"

static bool same_part(const int64_t *a, int64_t n_a, const int64_t *b, int64_t n_b)
{
    return n_a == n_b && memcmp(a, b, (size_t)n_a * sizeof *a) == 0;
}

/* True if the training and validation cells together are the same in both folds.  seen: (n) zeroed scratch, left zeroed. */
static bool same_rest(const flim_fold *a, const flim_fold *b, uint8_t *seen)
{
    bool same = a->n_train + a->n_val == b->n_train + b->n_val;
    for (int mark = 1; mark >= 0; mark--) {
        for (int64_t i = 0; i < a->n_train; i++) {
            seen[a->train[i]] = (uint8_t)mark;
        }
        for (int64_t i = 0; i < a->n_val; i++) {
            seen[a->val[i]] = (uint8_t)mark;
        }
        for (int64_t i = 0; mark && same && i < b->n_train; i++) {
            same = seen[b->train[i]];
        }
        for (int64_t i = 0; mark && same && i < b->n_val; i++) {
            same = seen[b->val[i]];
        }
    }
    return same;
}

/* In every fold of the same data the same test cells and the same others to learn from; which of those are kept for
 * validation is part of a method, and may differ. */
static flim_status same_splits(const flim_splits *a, const flim_splits *b, bool *same, flim_error *err)
{
    *same = a->n_folds == b->n_folds;
    if (!*same) {
        return FLIM_OK;
    }
    uint8_t *seen = flim_alloc((size_t)a->n, sizeof *seen, err);
    for (int f = 0; seen && *same && f < a->n_folds; f++) {
        const flim_fold *x = &a->fold[f], *y = &b->fold[f];
        *same = same_part(x->test, x->n_test, y->test, y->n_test) && same_rest(x, y, seen);
    }
    flim_free(seen);
    return seen ? FLIM_OK : FLIM_ERROR_MEMORY;
}

/* Cells in the test set for each in the training set, over all folds. */
static double test_share(const flim_splits *splits)
{
    double test = 0, train = 0;
    for (int k = 0; k < splits->n_folds; k++) {
        test += (double)splits->fold[k].n_test;
        train += (double)splits->fold[k].n_train;
    }
    return test / train;
}

flim_status report_fold_values(const report_run *run, int baseline, double *value, flim_error *err)
{
    const int folds = run->splits.n_folds;
    int64_t at = 0; /* in the baseline's predictions, which stand in the pool's order */
    for (int i = 0; i < FLIM_N_METRICS * folds; i++) {
        value[i] = NAN;
    }
    for (int f = 0; f < run->n_folds; f++) {
        flim_metrics metrics = run->fold[f].metrics;
        const int64_t n = run->fold[f].predictions.n;
        if (baseline >= 0) {
            const flim_predictions *p = &run->baseline[baseline];
            FLIM_TRY(flim_metrics_of_decisions(n, p->classes, p->label + at, p->logits + at * p->outputs, p->predicted + at,
                                               &metrics, err));
        }
        at += n;
        for (int m = 0; m < FLIM_N_METRICS; m++) {
            value[m * folds + run->fold[f].k] = metrics.value[m];
        }
    }
    return FLIM_OK;
}

flim_status report_spread(const report_run *run, int baseline, flim_metric m, double *mean, double *sd, flim_error *err)
{
    int used;
    double *value = flim_alloc((size_t)FLIM_N_METRICS * (size_t)run->splits.n_folds, sizeof *value, err);
    const flim_status status = value ? report_fold_values(run, baseline, value, err) : FLIM_ERROR_MEMORY;
    if (status == FLIM_OK) {
        flim_mean_sd(value + (int)m * run->splits.n_folds, run->splits.n_folds, mean, sd, &used);
    }
    flim_free(value);
    return status;
}

static void test_folds(report_pair *out, const flim_splits *splits, const double *a, const double *b)
{
    for (int m = 0; m < FLIM_N_METRICS; m++) {
        out->fold_test[m] =
            flim_corrected_t_test(a + m * splits->n_folds, b + m * splits->n_folds, splits->n_folds, test_share(splits));
    }
}

flim_status report_compare_with_baseline(const report_run *run, int baseline, report_pair *out, flim_error *err)
{
    const flim_predictions *p = &run->baseline[baseline];
    const size_t values = (size_t)FLIM_N_METRICS * (size_t)run->splits.n_folds;
    double *simple = flim_alloc(values, sizeof *simple, err), *network = flim_alloc(values, sizeof *network, err);
    *out = (report_pair){.paired = true};
    flim_status status = FLIM_OK;
    FLIM_TRY_DONE(simple && network ? report_fold_values(run, baseline, simple, err) : FLIM_ERROR_MEMORY);
    FLIM_TRY_DONE(report_fold_values(run, -1, network, err));
    test_folds(out, &run->splits, simple, network);
    for (int64_t i = 0; i < p->n; i++) {
        bool by_simple = p->predicted[i] == p->label[i], by_network = run->pool.predicted[i] == p->label[i];
        out->only_a += by_simple && !by_network;
        out->only_b += by_network && !by_simple;
    }
    out->cell_test = flim_mcnemar(out->only_a, out->only_b);
done:
    flim_free(simple);
    flim_free(network);
    return status;
}

/* Cells that both runs have predicted: who was right? */
static flim_status compare_cells(const report_run *a, const report_run *b, report_pair *out, flim_error *err)
{
    int8_t *right =
        flim_alloc((size_t)a->splits.n, sizeof *right, err); /* (n) 0 = not predicted by a, 1 = wrong, 2 = right */
    if (!right) {
        return FLIM_ERROR_MEMORY;
    }
    for (int64_t i = 0; i < a->pool.n; i++) {
        right[a->pool.cell[i]] = (int8_t)(1 + (a->pool.label[i] == a->pool.predicted[i]));
    }
    for (int64_t i = 0; i < b->pool.n; i++) {
        int8_t of_a = right[b->pool.cell[i]];
        bool of_b = b->pool.label[i] == b->pool.predicted[i];
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
    out->same_data =
        a->classes == b->classes && a->splits.n == b->splits.n && strcmp(a->splits.sha256, b->splits.sha256) == 0;
    if (out->same_data) {
        FLIM_TRY(same_splits(&a->splits, &b->splits, &out->pair.paired, err));
    }
    if (!out->pair.paired) {
        return FLIM_OK; /* their folds are no pairs */
    }
    const size_t values = (size_t)FLIM_N_METRICS * (size_t)a->splits.n_folds;
    double *of_a = flim_alloc(values, sizeof *of_a, err), *of_b = flim_alloc(values, sizeof *of_b, err);
    flim_status status = FLIM_OK;
    FLIM_TRY_DONE(of_a && of_b ? FLIM_OK : FLIM_ERROR_MEMORY);
    FLIM_TRY_DONE(report_fold_values(a, -1, of_a, err));
    FLIM_TRY_DONE(report_fold_values(b, -1, of_b, err));
    test_folds(&out->pair, &a->splits, of_a, of_b);
    status = compare_cells(a, b, &out->pair, err);
done:
    flim_free(of_a);
    flim_free(of_b);
    return status;
}

void report_explain_unpaired(const report_comparison *c, char *text, size_t bytes)
{
    const report_run *a = c->a, *b = c->b;
    if (!c->same_data) {
        snprintf(text, bytes, "Not compared: the runs have other cells, labels or groups.");
        return;
    }
    int used = snprintf(
        text, bytes, "The same cells, but split otherwise (%s: %s, %s: %s): the folds cannot be paired, so no test is made.",
        a->label, report_mode(a), b->label, report_mode(b));
    if ((a->shared_groups > 0) != (b->shared_groups > 0) && used > 0 && (size_t)used < bytes) {
        const report_run *leaky = a->shared_groups > 0 ? a : b, *clean = leaky == a ? b : a;
        snprintf(text + used, bytes - (size_t)used,
                 " %s has learned from cells of the groups that it is tested on, %s has not: only %s estimates performance "
                 "on unseen groups (donors).",
                 leaky->label, clean->label, clean->label);
    }
}
