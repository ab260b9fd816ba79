/* Do the probabilities of each test set say what they mean, before and after the fold's own calibration? */
#include <math.h>
#include <stdio.h>

#include "core/alloc.h"
#include "core/try.h"
#include "report/report_internal.h"

const flim_metric report_calibration_metric[REPORT_N_CALIBRATION] = {FLIM_ECE, FLIM_BRIER, FLIM_LOG_LOSS};

static report_calibration row_of(const char *name, int fold, const double *before, const double *after, double temperature)
{
    report_calibration row = {.fold = fold, .temperature = temperature};
    snprintf(row.name, sizeof row.name, "%s", name);
    for (int i = 0; i < REPORT_N_CALIBRATION; i++) {
        row.before[i] = before ? before[report_calibration_metric[i]] : (double)NAN;
        row.after[i] = after ? after[report_calibration_metric[i]] : (double)NAN;
    }
    return row;
}

/* Of the folds in which a figure is defined, by the same folds before and after: NaN in one leaves the fold out of both. */
static report_calibration mean_of(const report_run *run)
{
    report_calibration mean = row_of("mean", -1, NULL, NULL, NAN);
    double temperature = 0;
    int calibrated = 0;
    for (int i = 0; i < REPORT_N_CALIBRATION; i++) {
        double before = 0, after = 0;
        int n = 0;
        for (int f = 0; f < run->n_folds; f++) {
            const report_calibration *row = &run->calibration[f];
            if (!isnan(row->before[i]) && !isnan(row->after[i])) {
                before += row->before[i];
                after += row->after[i];
                n++;
            }
        }
        mean.before[i] = n ? before / n : (double)NAN;
        mean.after[i] = n ? after / n : (double)NAN;
    }
    for (int f = 0; f < run->n_folds; f++) {
        if (!isnan(run->calibration[f].temperature)) {
            temperature += run->calibration[f].temperature;
            calibrated++;
        }
    }
    mean.temperature = calibrated ? temperature / calibrated : (double)NAN;
    return mean;
}

flim_status report_calibration_rows(report_run *run, flim_error *err)
{
    const report_row *pooled = report_row_of(run, REPORT_POOLED), *calibrated = report_row_of(run, REPORT_CALIBRATED);
    char name[32];
    run->calibration = flim_alloc((size_t)run->n_folds + 2, sizeof *run->calibration, err);
    FLIM_TRY(run->calibration ? FLIM_OK : FLIM_ERROR_MEMORY);
    for (int f = 0; f < run->n_folds; f++) {
        const flim_fold_result *fold = &run->fold[f];
        const bool has = fold->shift.classes > 0;
        snprintf(name, sizeof name, "fold %d", fold->k);
        run->calibration[run->n_calibration++] =
            row_of(name, fold->k, fold->metrics.value, has ? fold->calibrated.value : NULL,
                   has ? fold->shift.calibration.temperature : (double)NAN);
    }
    const report_calibration mean = mean_of(run);
    run->calibration[run->n_calibration++] = mean;
    run->calibration[run->n_calibration++] =
        row_of("pooled", -1, pooled ? pooled->value : NULL, calibrated ? calibrated->value : NULL, NAN);
    return FLIM_OK;
}
