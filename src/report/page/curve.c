#include "report/page/curve.h"

#include <math.h>

#include "core/alloc.h"
#include "core/try.h"
#include "cv/metrics/rank.h"

void report_curve_free(report_curve *curve)
{
    flim_free(curve->x);
    flim_free(curve->y);
    *curve = (report_curve){0};
}

/* The scored cells: ranked (n) descending, positive (pool.n) by item; *n, *positives. */
static flim_status rank_cells(const report_run *run, const float *logits, int only, int c, flim_ranked *ranked,
                              bool *positive, int64_t *n, int64_t *positives, flim_error *err)
{
    const flim_pool *p = &run->pool;
    double *score = flim_alloc((size_t)p->n, sizeof *score, err);
    double *probability = flim_alloc((size_t)run->classes, sizeof *probability, err);
    const bool whole = score && probability;
    *n = *positives = 0;
    for (int64_t i = 0; whole && i < p->n; i++) {
        const float *z = logits + i * p->outputs; /* (K') */
        if (only >= 0 && p->fold[i] != only) {
            continue;
        }
        if (run->classes > 2) {
            flim_probabilities(1, run->classes, z, probability);
        }
        score[*n] = run->classes == 2 ? (double)z[0] : probability[c];
        positive[*n] = p->label[i] == c;
        *positives += p->label[i] == c;
        ++*n;
    }
    if (whole) {
        flim_rank_descending(*n, score, ranked);
    }
    flim_free(score);
    flim_free(probability);
    return whole ? FLIM_OK : FLIM_ERROR_MEMORY;
}

flim_status report_curve_make(const report_run *run, report_curve_kind kind, const float *logits, int only, int c,
                              report_curve *out, flim_error *err)
{
    const size_t cells = (size_t)run->pool.n;
    int64_t n, positives, hits = 0;
    flim_status status = FLIM_OK;
    flim_ranked *ranked = flim_alloc(cells, sizeof *ranked, err);
    bool *positive = flim_alloc(cells, sizeof *positive, err);
    *out = (report_curve){.x = flim_alloc(cells + 1, sizeof *out->x, err), .y = flim_alloc(cells + 1, sizeof *out->y, err)};
    FLIM_TRY_DONE(ranked && positive && out->x && out->y ? FLIM_OK : FLIM_ERROR_MEMORY);
    FLIM_TRY_DONE(rank_cells(run, logits, only, c, ranked, positive, &n, &positives, err));
    if (positives == 0 || positives == n) {
        goto done;
    }
    out->n = kind == REPORT_ROC; /* (0,0), which the arrays hold */
    for (int64_t i = 0; i < n; i++) {
        hits += positive[ranked[i].item];
        if (i + 1 == n || ranked[i + 1].score != ranked[i].score) {
            const double taken = (double)(i + 1), recall = (double)hits / (double)positives;
            out->x[out->n] = kind == REPORT_ROC ? (taken - (double)hits) / (double)(n - positives) : recall;
            out->y[out->n++] = kind == REPORT_ROC ? recall : (double)hits / taken;
        }
    }
done:
    flim_free(ranked);
    flim_free(positive);
    return status;
}

/* y at x.  ROC: on the line between neighbours, of points above each other the highest.  Precision: that of the first point whose
 * recall is no less, as average precision sums it. */
static double value_at(const report_curve *curve, report_curve_kind kind, double x)
{
    int64_t i = 0;
    if (kind == REPORT_PRECISION_RECALL) {
        while (i + 1 < curve->n && curve->x[i] < x) {
            i++;
        }
        return curve->y[i];
    }
    while (i + 1 < curve->n && curve->x[i + 1] <= x) {
        i++;
    }
    if (i + 1 == curve->n) {
        return curve->y[i];
    }
    const double share = (x - curve->x[i]) / (curve->x[i + 1] - curve->x[i]);
    return curve->y[i] + share * (curve->y[i + 1] - curve->y[i]);
}

flim_status report_curve_average(const report_run *run, report_curve_kind kind, const float *logits, report_mean_curve *out,
                                 flim_error *err)
{
    *out = (report_mean_curve){0};
    flim_status status = FLIM_OK;
    double *value = flim_alloc((size_t)run->n_folds * REPORT_GRID, sizeof *value, err); /* (REPORT_GRID, n_folds) */
    FLIM_TRY_DONE(value ? FLIM_OK : FLIM_ERROR_MEMORY);
    for (int f = 0; f < run->n_folds; f++) {
        report_curve curve = {0};
        status = report_curve_make(run, kind, logits, run->fold[f].k, 1, &curve, err);
        for (int g = 0; status == FLIM_OK && g < REPORT_GRID; g++) {
            value[g * run->n_folds + f] = curve.n ? value_at(&curve, kind, (double)g / (REPORT_GRID - 1)) : NAN;
        }
        report_curve_free(&curve);
        FLIM_TRY_DONE(status);
    }
    for (int g = 0; g < REPORT_GRID; g++) {
        flim_mean_sd(value + g * run->n_folds, run->n_folds, &out->mean[g], &out->sd[g], &out->folds);
    }
done:
    flim_free(value);
    return status;
}
