/* Training against validation, from the folds' history.csv (report/fit.h). */
#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "core/try.h"
#include "flim/settings.h"
#include "report/report_internal.h"

/* Whether training draws the classes about equally, by the run's config.yaml. */
static bool draws_classes_equally(const report_run *run)
{
    char path[REPORT_PATH];
    flim_settings settings;
    bool equally = false;
    snprintf(path, sizeof path, "%.4000s/config.yaml", run->folder);
    if (flim_settings_init(&settings, NULL) != FLIM_OK) {
        return equally;
    }
    if (flim_settings_read(&settings, path, NULL) == FLIM_OK) {
        equally = settings.sampler == FLIM_SAMPLER_BALANCED || settings.sampler == FLIM_SAMPLER_CLASS_GROUP;
    }
    flim_settings_free(&settings);
    return equally;
}

/* Of the pool's cells, which are as common as those of training. */
static double most_common_share(const report_run *run)
{
    int64_t most = 0;
    for (int c = 0; c < run->classes; c++) {
        int64_t cells = 0;
        for (int64_t i = 0; i < run->pool.n; i++) {
            cells += run->pool.label[i] == c;
        }
        most = cells > most ? cells : most;
    }
    return (double)most / (double)run->pool.n;
}

static report_fit_point point_of(const report_history *h, int64_t i)
{
    return (report_fit_point){.epoch = h->column[REPORT_EPOCH][i],
                              .train_loss = h->column[REPORT_TRAIN_LOSS][i],
                              .val_loss = h->column[REPORT_VAL_LOSS][i],
                              .train_accuracy = h->column[REPORT_TRAIN_ACCURACY][i],
                              .val_accuracy = h->column[REPORT_VAL_ACCURACY][i]};
}

static report_fit fit_of(const report_run *run, const flim_fold_result *fold, double common)
{
    static const report_fit_point none = {NAN, NAN, NAN, NAN, NAN};
    const report_history *h = &run->history[fold->k];
    report_fit fit = {
        .fold = fold->k, .n_val = run->splits.fold[fold->k].n_val, .common = common, .chosen = none, .last = none};
    for (int64_t i = 0; i < h->n; i++) {
        fit.chosen = h->column[REPORT_EPOCH][i] == (double)fold->best_epoch ? point_of(h, i) : fit.chosen;
        fit.last = point_of(h, i);
    }
    report_fit_judge(&fit);
    return fit;
}

static void add_share(report_fit_point *mean, const report_fit_point *point, int n)
{
    mean->epoch += point->epoch / n;
    mean->train_loss += point->train_loss / n;
    mean->val_loss += point->val_loss / n;
    mean->train_accuracy += point->train_accuracy / n;
    mean->val_accuracy += point->val_accuracy / n;
}

flim_status report_fit_make(const report_run *run, report_errors *out, flim_error *err)
{
    const double common = draws_classes_equally(run) ? 1.0 / run->classes : most_common_share(run);
    report_fit mean = {.fold = -1, .common = common};
    int known = 0;
    out->fit = flim_alloc((size_t)run->n_folds + 1, sizeof *out->fit, err);
    FLIM_TRY(out->fit ? FLIM_OK : FLIM_ERROR_MEMORY);
    for (int f = 0; f < run->n_folds; f++) {
        out->fit[out->n_fit] = fit_of(run, &run->fold[f], common);
        known += out->fit[out->n_fit++].verdict != REPORT_FIT_UNKNOWN;
    }
    for (int f = 0; f < run->n_folds; f++) {
        const report_fit *fit = &out->fit[f];
        if (fit->verdict != REPORT_FIT_UNKNOWN) {
            add_share(&mean.chosen, &fit->chosen, known);
            add_share(&mean.last, &fit->last, known);
            mean.n_val += fit->n_val;
        }
    }
    if (known > 1) {
        report_fit_judge(&mean);
        out->fit[out->n_fit++] = mean;
    }
    return FLIM_OK;
}
