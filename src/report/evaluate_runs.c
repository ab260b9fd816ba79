/* From a run's predictions to rows and findings. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "core/shell.h"
#include "core/try.h"
#include "core/text.h"
#include "report/report_internal.h"

enum { FEW_GROUPS = 10, MOST_ROWS_BUT_FOLDS = 11 + FLIM_N_BASELINES };

const report_row *report_row_of(const report_run *run, report_kind kind)
{
    for (int r = 0; r < run->n_rows; r++) {
        if (run->row[r].kind == kind) {
            return &run->row[r];
        }
    }
    return NULL;
}

const report_row *report_baseline_row(const report_run *run, int baseline)
{
    for (int r = 0; r < run->n_rows; r++) {
        if (run->row[r].kind == REPORT_BASELINE && run->row[r].baseline == baseline) {
            return &run->row[r];
        }
    }
    return NULL;
}

static report_row *add_row(report_run *run, report_kind kind, const char *name, const double value[FLIM_N_METRICS])
{
    report_row *row = &run->row[run->n_rows++];
    *row = (report_row){.kind = kind};
    snprintf(row->name, sizeof row->name, "%s", name);
    memcpy(row->value, value, sizeof row->value);
    return row;
}

/* ---- folds */

/* Says which classes a fold does not test, and how the conventions treat them. */
static flim_status find_absent_classes(report_run *run, const flim_fold_result *fold, const flim_log *log, flim_error *err)
{
    const flim_predictions *p = &fold->predictions;
    int64_t *cells = flim_alloc((size_t)run->classes, sizeof *cells, err);
    char names[256] = "";
    int absent = 0;
    if (!cells) {
        return FLIM_ERROR_MEMORY;
    }
    for (int64_t i = 0; i < p->n; i++) {
        cells[p->label[i]]++;
    }
    for (int c = 0; c < run->classes; c++) {
        size_t used = strlen(names);
        if (cells[c] == 0) {
            snprintf(names + used, sizeof names - used, "%s'%s'", absent ? ", " : "", run->class_name[c]);
            absent++;
        }
    }
    if (absent) {
        report_find(run, log, FLIM_LOG_NOTE,
                    "fold %d tests no cell of class %s: its balanced accuracy is of %d of %d classes%s", fold->k, names,
                    run->classes - absent, run->classes,
                    run->classes > 2
                        ? "; the class's precision and F1 in the macro averages are 0 by convention (zero_division=0), which "
                          "lowers the means, and its recall is undefined"
                    : cells[1] == 0 ? "; precision and F1 are 0 by convention (zero_division=0), which lowers the means, and "
                                      "recall is undefined"
                                    : "; specificity is undefined");
    }
    flim_free(cells);
    return FLIM_OK;
}

static flim_status fold_rows(report_run *run, const flim_log *log, flim_error *err)
{
    int64_t differ = 0;
    for (int f = 0; f < run->n_folds; f++) {
        const flim_fold_result *fold = &run->fold[f];
        const flim_predictions *p = &fold->predictions;
        char name[32];
        for (int64_t i = 0; i < p->n; i++) {
            differ += p->predicted[i] != flim_predicted_class(p->classes, p->logits + i * p->outputs, fold->threshold);
        }
        snprintf(name, sizeof name, "fold %d", fold->k);
        add_row(run, REPORT_FOLD, name, fold->metrics.value)->fold = fold;
        FLIM_TRY(find_absent_classes(run, fold, log, err));
    }
    if (differ) {
        report_find(run, log, FLIM_LOG_WARNING,
                    "%" PRId64
                    " cell%s in predictions.csv with a class that is not that of the logits and the fold's threshold",
                    differ, flim_s(differ));
    }
    return FLIM_OK;
}

static flim_status spread_rows(report_run *run, const flim_log *log, flim_error *err)
{
    double mean[FLIM_N_METRICS], sd[FLIM_N_METRICS], sd0[FLIM_N_METRICS];
    int ignored[FLIM_N_METRICS];
    FLIM_TRY(flim_spread_over_folds(run->fold, run->n_folds, false, mean, sd, run->used, err));
    for (int m = 0; m < FLIM_N_METRICS; m++) {
        int used = run->used[m];
        sd0[m] = sd[m] * sqrt((used - 1.0) / used); /* of one value there is none */
        if (used < run->n_folds) {
            report_find(run, log, FLIM_LOG_NOTE, "%s: mean of %d of %d folds; undefined in the others (%s)",
                        flim_metric_title((flim_metric)m), used, run->n_folds, flim_metric_undefined_reason((flim_metric)m));
        }
    }
    add_row(run, REPORT_MEAN, "mean", mean);
    add_row(run, REPORT_SD1, "sd (ddof 1)", sd);
    add_row(run, REPORT_SD0, "sd (ddof 0)", sd0);
    if (run->classes == 2) {
        FLIM_TRY(flim_spread_over_folds(run->fold, run->n_folds, true, mean, sd, ignored, err));
        add_row(run, REPORT_MEAN_HALF, "mean, threshold 0.5", mean);
    }
    return FLIM_OK;
}

/* ---- all folds together */

static flim_status delong_of_pool(report_run *run, flim_error *err)
{
    const flim_pool *p = &run->pool;
    run->delong_auc = run->delong_se = NAN;
    run->delong = (flim_interval){NAN, NAN};
    if (run->classes != 2) {
        return FLIM_OK;
    }
    uint8_t *positive = flim_alloc((size_t)p->n, sizeof *positive, err);
    double *score = flim_alloc((size_t)p->n, sizeof *score, err);
    flim_status status = FLIM_OK;
    FLIM_TRY_DONE(positive && score ? FLIM_OK : FLIM_ERROR_MEMORY);
    for (int64_t i = 0; i < p->n; i++) {
        positive[i] = p->label[i] == 1;
        score[i] = (double)p->logits[i];
    }
    status = flim_delong(p->n, positive, score, 0.95, &run->delong_auc, &run->delong_se, &run->delong, err);
done:
    flim_free(positive);
    flim_free(score);
    return status;
}

static flim_status interval_rows(report_run *run, const flim_report_options *options, flim_error *err)
{
    const flim_pool *p = &run->pool;
    int used[FLIM_N_METRICS];
    double low[FLIM_N_METRICS], high[FLIM_N_METRICS];
    const flim_scored scored = {.n = p->n,
                                .classes = p->classes,
                                .label = p->label,
                                .logits = p->logits,
                                .predicted = p->predicted,
                                .group = run->by_group ? run->group_of : NULL,
                                .groups = run->groups};
    FLIM_TRY(flim_bootstrap(&scored, options->replicates, 0.95, options->seed, run->interval, used, err));
    if (run->by_group && run->groups < FEW_GROUPS) {
        report_find(run, options->log, FLIM_LOG_NOTE,
                    "the bootstrap resamples %" PRId64 " group%s: with so few, the intervals are rough and likely too narrow",
                    run->groups, flim_s(run->groups));
    }
    for (int m = 0; m < FLIM_N_METRICS; m++) {
        low[m] = run->interval[m].low;
        high[m] = run->interval[m].high;
    }
    add_row(run, REPORT_LOW, "95 % CI lower", low);
    add_row(run, REPORT_HIGH, "95 % CI upper", high);
    return FLIM_OK;
}

/* What is estimated of one test set's prior, and whether it can be. */
static void find_shift(report_run *run, const flim_fold_result *fold, const flim_log *log)
{
    const flim_fold_shift *s = &fold->shift;
    char text[256];
    size_t used = 0;
    for (int c = run->classes == 2; c < run->classes && used < sizeof text; c++) {
        used += (size_t)snprintf(text + used, sizeof text - used, "%s'%s' %.3f (%.3f to %.3f; the scores suggest %.3f)",
                                 used ? ", " : "", run->class_name[c], s->prior[FLIM_PRIOR_TARGET][c],
                                 s->prior[FLIM_PRIOR_LOW][c], s->prior[FLIM_PRIOR_HIGH][c], s->prior[FLIM_PRIOR_SEEN][c]);
    }
    report_find(run, log, FLIM_LOG_NOTE, "fold %d, from its unlabelled test cells: share of class %s; temperature %.3f%s",
                fold->k, text, s->calibration.temperature,
                s->cells < FLIM_FEW_CELLS_FOR_PRIOR ? "; fewer than 100 cells, so the share is rough" : "");
    if (flim_shift_is_refuted(s)) {
        report_find(run, log, FLIM_LOG_WARNING,
                    "fold %d: its test scores are not a mixture of its validation scores of each class (distance %.3f, p "
                    "%.3f): more than the class prior has shifted, so prior correction is not valid",
                    fold->k, s->test.distance, s->test.p);
    }
}

static flim_status shift_rows(report_run *run, const flim_log *log, flim_error *err)
{
    bool found;
    flim_metrics calibrated, corrected;
    FLIM_TRY(flim_pool_shift_metrics(&run->pool, run->fold, run->n_folds, &found, &calibrated, &corrected, err));
    if (found) {
        add_row(run, REPORT_CALIBRATED, "pooled, calibrated", calibrated.value);
        add_row(run, REPORT_CORRECTED, "pooled, prior (unlabelled cells)", corrected.value);
    }
    for (int f = 0; f < run->n_folds; f++) {
        if (run->fold[f].shift.classes > 0) {
            find_shift(run, &run->fold[f], log);
        }
    }
    return FLIM_OK;
}

static flim_status pooled_rows(report_run *run, const flim_report_options *options, flim_error *err)
{
    flim_metrics pooled, at_half;
    FLIM_TRY(flim_pool_metrics(&run->pool, &pooled, &at_half, err));
    add_row(run, REPORT_POOLED, "pooled", pooled.value);
    run->by_group = run->groups > 1;
    for (int m = 0; m < FLIM_N_METRICS; m++) {
        run->interval[m] = (flim_interval){NAN, NAN};
    }
    if (options->replicates > 0 && !isnan(pooled.value[FLIM_LOG_LOSS])) {
        FLIM_TRY(interval_rows(run, options, err));
    }
    if (run->classes == 2) {
        add_row(run, REPORT_POOLED_HALF, "pooled, threshold 0.5", at_half.value);
    }
    FLIM_TRY(shift_rows(run, options->log, err));
    return delong_of_pool(run, err);
}

static flim_status holdout_row(report_run *run, flim_error *err)
{
    const flim_predictions *h = &run->holdout;
    flim_metrics metrics;
    if (h->n == 0) {
        return FLIM_OK;
    }
    for (int64_t i = 0; i < h->n; i++) {
        if (h->label[i] < 0 || h->classes != run->classes) {
            return flim_fail(err, FLIM_ERROR_DATA,
                             "%s/holdout_predictions.csv, row %" PRId64 ": no label, or another number of classes",
                             run->folder, i + 1);
        }
    }
    FLIM_TRY(flim_metrics_of_decisions(h->n, h->classes, h->label, h->logits, h->predicted, &metrics, err));
    add_row(run, REPORT_HOLDOUT, "holdout, fold ensemble", metrics.value);
    return FLIM_OK;
}

/* ---- baselines */

/* The row of a baseline that has been read, and what it says about the network. */
static flim_status baseline_row(report_run *run, int b, const flim_log *log, flim_error *err)
{
    const flim_predictions *p = &run->baseline[b];
    const double *network = report_row_of(run, REPORT_POOLED)->value;
    flim_metrics metrics;
    char sentence[512];
    FLIM_TRY(flim_metrics_of_decisions(p->n, p->classes, p->label, p->logits, p->predicted, &metrics, err));
    FLIM_TRY(report_compare_with_baseline(run, b, &run->against[b], err));
    add_row(run, REPORT_BASELINE, flim_baseline_title(b), metrics.value)->baseline = b;
    if (b == FLIM_BASELINE_CONFOUNDS &&
        flim_confounds_suffice(run->classes, network, metrics.value, sentence, sizeof sentence)) {
        report_find(run, log, FLIM_LOG_WARNING, "%s", sentence);
    } else if (b == FLIM_BASELINE_DECAY && flim_decay_suffices(network, metrics.value, sentence, sizeof sentence)) {
        report_find(run, log, FLIM_LOG_NOTE, "%s", sentence);
    }
    return FLIM_OK;
}

static flim_status baseline_rows(report_run *run, const flim_log *log, flim_error *err)
{
    flim_error first = {0};
    int missing = 0;
    char names[160] = "";
    for (int b = 0; b < FLIM_N_BASELINES; b++) {
        flim_error why = {0};
        bool found;
        FLIM_TRY(flim_baseline_read(run->folder, b, &run->pool, &run->baseline[b], &found, &why, err));
        if (found) {
            FLIM_TRY(baseline_row(run, b, log, err));
        } else {
            size_t used = strlen(names);
            snprintf(names + used, sizeof names - used, "%s'%s'", missing ? ", " : "", flim_baseline_title(b));
            first = missing++ ? first : why;
        }
    }
    if (missing) {
        char folder[4096];
        flim_shell_quote(run->folder, folder, sizeof folder);
        report_find(run, log, FLIM_LOG_WARNING, "no baseline %s: %s; train_cv --resume --out %s makes it", names, first.text,
                    folder);
    }
    return FLIM_OK;
}

flim_status report_evaluate(report_run *run, const flim_report_options *options, flim_error *err)
{
    const flim_log *log = options->log;
    run->row = flim_alloc((size_t)run->n_folds + MOST_ROWS_BUT_FOLDS, sizeof *run->row, err);
    run->matrix = flim_alloc((size_t)run->classes * (size_t)run->classes, sizeof *run->matrix, err);
    FLIM_TRY(run->row && run->matrix ? report_number_groups(run, err) : FLIM_ERROR_MEMORY);
    for (int64_t i = 0; i < run->pool.n; i++) {
        run->matrix[run->pool.label[i] * run->classes + run->pool.predicted[i]]++;
    }
    FLIM_TRY(report_find_shared_groups(run, log, err));
    FLIM_TRY(fold_rows(run, log, err));
    FLIM_TRY(spread_rows(run, log, err));
    FLIM_TRY(pooled_rows(run, options, err));
    FLIM_TRY(report_calibration_rows(run, err));
    FLIM_TRY(holdout_row(run, err));
    FLIM_TRY(baseline_rows(run, log, err));
    FLIM_TRY(report_check_summary(run, log));
    FLIM_TRY(report_group_rows(run, err));
    return run->finding_failed ? flim_fail(err, FLIM_ERROR_MEMORY, "out of host memory") : FLIM_OK;
}
