/* What simple models reach in the run's own folds, beside the network: class frequencies, the confounds (brightness, cell size,
 * peak bin), and the decay summed over the mask.  baseline_*.csv are predictions like the network's. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "core/file.h"
#include "cv/baseline.h"
#include "results/baseline_results.h"
#include "train/run.h"

/* Features (n,F) of a baseline, or NULL where it needs none; the caller frees them.  */
static flim_status features_of(const flim_run *run, int b, double **out, int *features, flim_error *err)
{
    const int64_t n = run->info->n;
    const int bins = run->info->t;
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
        memcpy(x, run->decay, (size_t)(n * bins) * sizeof *x);
        return FLIM_OK;
    }
    for (int64_t i = 0; i < n; i++) {
        const double *decay = run->decay + i * bins; /* (T) */
        int peak = 0;
        for (int t = 1; t < bins; t++) {
            peak = decay[t] > decay[peak] ? t : peak;
        }
        x[3 * i] = log1p(run->summary[i].photons);
        x[3 * i + 1] = (double)run->summary[i].mask_pixels;
        x[3 * i + 2] = peak;
    }
    return FLIM_OK;
}

/* The predictions of the test cells of finished folds, in order of fold and cell. */
static flim_status write_predictions(flim_run *run, int b, const float *logits, const int32_t *predicted, flim_error *err)
{
    char path[FLIM_PATH_MAX], name[64];
    const int outputs = run->net.head[0].outputs;
    flim_predictions all = {0};
    int64_t n = 0, at = 0;
    for (int k = 0; k < run->splits.n_folds; k++) {
        n += flim_fold_is_done(run->folder, k) ? run->splits.fold[k].n_test : 0;
    }
    int64_t *cells = flim_alloc((size_t)n, sizeof *cells, err); /* (n) */
    float *part = flim_alloc((size_t)(n * outputs), sizeof *part, err); /* (n,K') */
    flim_status status = cells && part ? FLIM_OK : FLIM_ERROR_MEMORY;
    for (int k = 0; k < run->splits.n_folds && status == FLIM_OK; k++) {
        const flim_fold *fold = &run->splits.fold[k];
        for (int64_t i = 0; flim_fold_is_done(run->folder, k) && i < fold->n_test; i++, at++) {
            cells[at] = fold->test[i];
            memcpy(part + at * outputs, logits + fold->test[i] * outputs, (size_t)outputs * sizeof *part);
        }
    }
    if (status == FLIM_OK) {
        status = flim_predictions_of(run->info, run->info->classes, cells, n, part, 0.5, &all, err);
    }
    for (int64_t i = 0; i < n && status == FLIM_OK; i++) {
        all.predicted[i] = predicted[cells[i]]; /* decided at its own fold's threshold */
    }
    snprintf(name, sizeof name, "baseline_%s.csv", flim_baseline_name(b));
    if (status == FLIM_OK) {
        status = flim_run_folder_path(run, name, path, err);
    }
    if (status == FLIM_OK) {
        status = flim_predictions_write(&all, path, err);
    }
    flim_predictions_free(&all);
    flim_free(cells);
    flim_free(part);
    return status;
}

flim_status flim_run_baselines(flim_run *run, flim_error *err)
{
    const size_t n = (size_t)run->info->n;
    const flim_logistic_options options = {.ridge = 1.0,
                                           .balanced = true,
                                           .threshold_for_f1 = run->settings->threshold_for == FLIM_OBJECTIVE_F1,
                                           .stop = run->hooks->stop};
    if (!run->summary) {
        flim_log_line(&run->log, FLIM_LOG_NOTE, "no baselines: they need the scan that --no-scan leaves out");
        return FLIM_OK;
    }
    float *logits = flim_alloc(n * (size_t)run->net.head[0].outputs, sizeof *logits, err); /* (n,K') */
    int32_t *predicted = flim_alloc(n, sizeof *predicted, err); /* (n) */
    double *threshold = flim_alloc((size_t)run->splits.n_folds, sizeof *threshold, err); /* (n_folds) */
    flim_status status = logits && predicted && threshold ? FLIM_OK : FLIM_ERROR_MEMORY;
    for (int b = 0; b < FLIM_N_BASELINES && status == FLIM_OK; b++) {
        double *x;
        int features;
        status = features_of(run, b, &x, &features, err);
        if (status == FLIM_OK) {
            status =
                flim_baseline_run(&run->splits, &run->split_data, x, features, &options, logits, predicted, threshold, err);
        }
        if (status == FLIM_OK) {
            status = write_predictions(run, b, logits, predicted, err);
        }
        flim_free(x);
    }
    flim_free(logits);
    flim_free(predicted);
    flim_free(threshold);
    return status;
}
