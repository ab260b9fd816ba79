#include "results/pool.h"

#include <inttypes.h>
#include <string.h>

#include "core/alloc.h"
#include "core/try.h"

void flim_pool_free(flim_pool *pool)
{
    flim_free(pool->cell);
    flim_free(pool->fold);
    flim_free(pool->label);
    flim_free(pool->predicted);
    flim_free(pool->at_half);
    flim_free(pool->logits);
    flim_free(pool->name);
    flim_free(pool->group_of);
    *pool = (flim_pool){0};
}

flim_status flim_pool_make(const flim_fold_result *results, int n_results, flim_pool *out, flim_error *err)
{
    *out = (flim_pool){.classes = results[0].predictions.classes, .outputs = results[0].predictions.outputs};
    for (int r = 0; r < n_results; r++) {
        const flim_predictions *p = &results[r].predictions;
        if (p->classes != out->classes) {
            return flim_fail(err, FLIM_ERROR_DATA, "fold %d has %d classes, fold %d has %d", results[0].k, out->classes,
                             results[r].k, p->classes);
        }
        out->n += p->n;
    }
    size_t n = (size_t)out->n, outputs = (size_t)out->outputs, at = 0;
    out->cell = flim_alloc(n, sizeof *out->cell, err);
    out->fold = flim_alloc(n, sizeof *out->fold, err);
    out->label = flim_alloc(n, sizeof *out->label, err);
    out->predicted = flim_alloc(n, sizeof *out->predicted, err);
    out->at_half = flim_alloc(n, sizeof *out->at_half, err);
    out->logits = flim_alloc(n * outputs, sizeof *out->logits, err);
    out->name = flim_alloc(n, sizeof *out->name, err);
    out->group_of = flim_alloc(n, sizeof *out->group_of, err);
    if (!out->cell || !out->fold || !out->label || !out->predicted || !out->at_half || !out->logits || !out->name ||
        !out->group_of) {
        flim_pool_free(out);
        return FLIM_ERROR_MEMORY;
    }
    for (int r = 0; r < n_results; r++) {
        const flim_predictions *p = &results[r].predictions;
        for (int64_t i = 0; i < p->n; i++, at++) {
            const float *z = p->logits + (size_t)i * outputs; /* (K') */
            out->cell[at] = p->index[i];
            out->fold[at] = results[r].k;
            out->label[at] = p->label[i];
            out->predicted[at] = p->predicted[i];
            out->at_half[at] = flim_predicted_class(out->classes, z, 0.5);
            out->name[at] = p->name[i] ? p->name[i] : "";
            out->group_of[at] = p->group[i] ? p->group[i] : "";
            memcpy(out->logits + at * outputs, z, outputs * sizeof *z);
        }
    }
    return FLIM_OK;
}

flim_status flim_pool_metrics(const flim_pool *pool, flim_metrics *chosen, flim_metrics *at_half, flim_error *err)
{
    FLIM_TRY(flim_metrics_of_decisions(pool->n, pool->classes, pool->label, pool->logits, pool->predicted, chosen, err));
    return flim_metrics_of_decisions(pool->n, pool->classes, pool->label, pool->logits, pool->at_half, at_half, err);
}

flim_status flim_pool_shift_metrics(const flim_pool *pool, const flim_fold_result *results, int n_results, bool *found,
                                    flim_metrics *calibrated, flim_metrics *corrected, flim_error *err)
{
    flim_predictions all;
    int64_t at = 0; /* of the fold's first cell in the pool */
    *found = true;
    for (int r = 0; r < n_results; r++) {
        *found = *found && results[r].shift.classes > 0;
    }
    if (!*found) {
        return FLIM_OK;
    }
    FLIM_TRY(flim_predictions_create(pool->n, pool->classes, &all, err));
    flim_status status = FLIM_OK;
    memcpy(all.label, pool->label, (size_t)pool->n * sizeof *all.label);
    for (int pass = 0; pass < 2; pass++) {
        at = 0;
        for (int r = 0; r < n_results; r++) {
            const flim_predictions *p = &results[r].predictions;
            float *logits = all.logits + at * all.outputs; /* (p->n,K') */
            if (pass == 0) {
                flim_shift_calibrate(&results[r].shift, p->n, p->logits, logits);
            } else {
                flim_shift_correct(&results[r].shift, p->n, p->logits, logits);
            }
            at += p->n;
        }
        for (int64_t i = 0; i < all.n; i++) {
            all.predicted[i] = pass == 0 && pool->classes == 2
                                   ? pool->predicted[i]
                                   : flim_predicted_class(all.classes, all.logits + i * all.outputs, 0.5);
        }
        FLIM_TRY_DONE(flim_metrics_of_decisions(all.n, all.classes, all.label, all.logits, all.predicted,
                                                pass == 0 ? calibrated : corrected, err));
    }
done:
    flim_predictions_free(&all);
    return status;
}

flim_status flim_spread_over_folds(const flim_fold_result *results, int n_results, bool at_half, double mean[FLIM_N_METRICS],
                                   double sd[FLIM_N_METRICS], int used[FLIM_N_METRICS], flim_error *err)
{
    double *value = flim_alloc((size_t)n_results, sizeof *value, err);
    if (!value) {
        return FLIM_ERROR_MEMORY;
    }
    for (int m = 0; m < FLIM_N_METRICS; m++) {
        for (int r = 0; r < n_results; r++) {
            value[r] = (at_half ? &results[r].at_half : &results[r].metrics)->value[m];
        }
        flim_mean_sd(value, n_results, &mean[m], &sd[m], &used[m]);
    }
    flim_free(value);
    return FLIM_OK;
}
