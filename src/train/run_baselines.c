/* What simple models reach in the run's own folds, beside the network: class frequencies, the confounds (brightness, cell
 * size, peak bin), and the decay summed over the mask.  baseline_*.csv are predictions like the network's. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "core/try.h"
#include "cv/baseline.h"
#include "results/baseline_results.h"
#include "train/run.h"

/* Features (n,F) of a baseline, or NULL if it needs none; the caller frees them.  */
static flim_status features_of(const flim_study *study, int b, double **out, int *features, flim_error *err)
{
    const int64_t n = study->info->n;
    const int bins = study->info->t;
    *out = NULL;
    *features = b == FLIM_BASELINE_PRIOR ? 0 : b == FLIM_BASELINE_CONFOUNDS ? 3 : bins;
    if (b == FLIM_BASELINE_PRIOR) {
        return FLIM_OK;
    }
    double *x = *out = flim_alloc((size_t)(n * *features), sizeof *x, err);
    if (!x) {
        return FLIM_ERROR_MEMORY;
    }
    if (b == FLIM_BASELINE_DECAY) {
        memcpy(x, study->decay, (size_t)(n * bins) * sizeof *x);
        return FLIM_OK;
    }
    for (int64_t i = 0; i < n; i++) {
        const double *decay = study->decay + i * bins; /* (T) */
        int peak = 0;
        for (int t = 1; t < bins; t++) {
            peak = decay[t] > decay[peak] ? t : peak;
        }
        x[3 * i] = log1p(study->summary[i].photons);
        x[3 * i + 1] = (double)study->summary[i].mask_pixels;
        x[3 * i + 2] = peak;
    }
    return FLIM_OK;
}

/* The predictions of the test cells of finished folds, in order of fold and cell.  logits: (n,K'), predicted: (n). */
static flim_status write_one(const flim_run *run, const flim_study *study, int b, const float *logits,
                             const int32_t *predicted, flim_error *err)
{
    const flim_splits *splits = &study->splits;
    const int classes = study->info->classes, outputs = flim_class_outputs(classes);
    char path[FLIM_PATH_MAX], name[64];
    flim_predictions all = {0};
    int64_t n = 0;
    flim_status status = FLIM_OK;
    int64_t *cells = flim_alloc((size_t)splits->n, sizeof *cells, err); /* (n) */
    float *rows = flim_alloc((size_t)(splits->n * outputs), sizeof *rows, err); /* (n,K') */
    FLIM_TRY_DONE(cells && rows ? FLIM_OK : FLIM_ERROR_MEMORY);
    for (int k = 0; k < splits->n_folds; k++) {
        const flim_fold *fold = &splits->fold[k];
        const int64_t n_test = flim_fold_is_done(run->folder, k) ? fold->n_test : 0;
        for (int64_t i = 0; i < n_test; i++, n++) {
            cells[n] = fold->test[i];
            memcpy(rows + n * outputs, logits + fold->test[i] * outputs, (size_t)outputs * sizeof *rows);
        }
    }
    FLIM_TRY_DONE(flim_predictions_of(study->info, classes, cells, n, rows, 0.5, &all, err));
    for (int64_t i = 0; i < n; i++) {
        all.predicted[i] = predicted[cells[i]]; /* decided at its own fold's threshold */
    }
    snprintf(name, sizeof name, "baseline_%s.csv", flim_baseline_name(b));
    FLIM_TRY_DONE(flim_run_folder_path(run, name, path, err));
    status = flim_predictions_write(&all, path, err);
done:
    flim_predictions_free(&all);
    flim_free(cells);
    flim_free(rows);
    return status;
}

flim_status flim_run_write_baselines(const flim_run *run, const flim_study *study, const flim_run_baselines *baselines,
                                     flim_error *err)
{
    for (int b = 0; b < FLIM_N_BASELINES && baselines->logits[b]; b++) {
        FLIM_TRY(flim_run_go_on(run, err));
        FLIM_TRY(write_one(run, study, b, baselines->logits[b], baselines->predicted[b], err));
    }
    return FLIM_OK;
}

static flim_status fit(const flim_run *run, const flim_study *study, int b, flim_run_baselines *out, flim_error *err)
{
    const size_t n = (size_t)study->info->n, outputs = (size_t)flim_class_outputs(study->info->classes);
    const flim_logistic_options options = {
        .ridge = 1.0, .balanced = true, .threshold_for = run->settings->threshold_for, .stop = run->hooks->stop};
    double *x = NULL, *threshold = NULL; /* (n,F), (n_folds) */
    int features;
    flim_status status = FLIM_OK;
    out->logits[b] = flim_alloc(n * outputs, sizeof *out->logits[b], err);
    out->predicted[b] = flim_alloc(n, sizeof *out->predicted[b], err);
    threshold = flim_alloc((size_t)study->splits.n_folds, sizeof *threshold, err);
    FLIM_TRY_DONE(out->logits[b] && out->predicted[b] && threshold ? FLIM_OK : FLIM_ERROR_MEMORY);
    FLIM_TRY_DONE(features_of(study, b, &x, &features, err));
    status = flim_baseline_run(&study->splits, &study->split_data, x, features, &options, out->logits[b], out->predicted[b],
                               threshold, err);
done:
    flim_free(x);
    flim_free(threshold);
    return status;
}

flim_status flim_run_fit_baselines(const flim_run *run, const flim_study *study, flim_run_baselines *out, flim_error *err)
{
    *out = (flim_run_baselines){0};
    if (!study->summary) {
        flim_log_line(&run->log, FLIM_LOG_NOTE, "no baselines: they need the scan, which --no-scan skips");
        return FLIM_OK;
    }
    for (int b = 0; b < FLIM_N_BASELINES; b++) {
        FLIM_TRY(fit(run, study, b, out, err));
    }
    return FLIM_OK;
}

void flim_run_free_baselines(flim_run_baselines *baselines)
{
    for (int b = 0; b < FLIM_N_BASELINES; b++) {
        flim_free(baselines->logits[b]);
        flim_free(baselines->predicted[b]);
    }
}
