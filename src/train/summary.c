/* The run's result: recomputed from the predictions of the folds that are done, never from numbers in memory, so that a
 * resumed run, a single fold run later and a whole run end in the same files. */
#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "core/file.h"
#include "core/try.h"
#include "results/baseline_results.h"
#include "train/run.h"

/* All that the summary says. */
typedef struct summary {
    flim_fold_result *fold; /* (n) those that are done */
    int n, n_folds; /* n_folds: of the run */
    double mean[FLIM_N_METRICS], sd[FLIM_N_METRICS], mean_half[FLIM_N_METRICS], sd_half[FLIM_N_METRICS];
    int used[FLIM_N_METRICS]; /* folds in which a metric is defined */
    flim_metrics pooled, pooled_half, holdout, baseline[FLIM_N_BASELINES];
    bool held_out, has_baseline[FLIM_N_BASELINES];
    bool has_shift; /* every fold has a calibration */
    flim_metrics calibrated, corrected; /* pooled; only with has_shift */
} summary;

static flim_status metrics_of(flim_predictions *p, flim_metrics *out, flim_error *err)
{
    const flim_status status = flim_metrics_of_decisions(p->n, p->classes, p->label, p->logits, p->predicted, out, err);
    flim_predictions_free(p);
    return status;
}

/* Hold-out metrics from holdout_predictions.csv, if that exists. */
static flim_status holdout_metrics(const flim_run *run, summary *s, flim_error *err)
{
    char path[FLIM_PATH_MAX];
    flim_predictions p;
    FLIM_TRY(flim_run_folder_path(run, "holdout_predictions.csv", path, err));
    if (!flim_file_exists(path)) {
        return FLIM_OK;
    }
    FLIM_TRY(flim_predictions_read(path, &p, err));
    s->held_out = true;
    return metrics_of(&p, &s->holdout, err);
}

static flim_status baseline_metrics(const flim_run *run, const flim_pool *pool, summary *s, flim_error *err)
{
    for (int b = 0; b < FLIM_N_BASELINES; b++) {
        flim_predictions p;
        flim_error why; /* without the scan there are none, which has been said */
        FLIM_TRY(flim_baseline_read(run->folder, b, pool, &p, &s->has_baseline[b], &why, err));
        FLIM_TRY(s->has_baseline[b] ? metrics_of(&p, &s->baseline[b], err) : FLIM_OK);
    }
    return FLIM_OK;
}

/* Everything of the folds that are done; s->n = 0 if none is. */
static flim_status collect(const flim_run *run, const flim_splits *splits, summary *s, flim_error *err)
{
    flim_pool pool = {0};
    flim_status status = FLIM_OK;
    s->n_folds = splits->n_folds;
    s->fold = flim_alloc((size_t)splits->n_folds, sizeof *s->fold, err);
    FLIM_TRY_DONE(s->fold ? FLIM_OK : FLIM_ERROR_MEMORY);
    for (int k = 0; k < splits->n_folds; k++) {
        if (flim_fold_is_done(run->folder, k)) {
            FLIM_TRY_DONE(flim_fold_result_read(run->folder, k, &splits->fold[k], &s->fold[s->n++], err));
        }
    }
    if (s->n > 0) {
        FLIM_TRY_DONE(flim_spread_over_folds(s->fold, s->n, true, s->mean_half, s->sd_half, s->used, err));
        FLIM_TRY_DONE(flim_spread_over_folds(s->fold, s->n, false, s->mean, s->sd, s->used, err));
        FLIM_TRY_DONE(flim_pool_make(s->fold, s->n, &pool, err));
        FLIM_TRY_DONE(flim_pool_metrics(&pool, &s->pooled, &s->pooled_half, err));
        FLIM_TRY_DONE(flim_pool_shift_metrics(&pool, s->fold, s->n, &s->has_shift, &s->calibrated, &s->corrected, err));
        FLIM_TRY_DONE(holdout_metrics(run, s, err));
        FLIM_TRY_DONE(baseline_metrics(run, &pool, s, err));
    }
done:
    flim_pool_free(&pool);
    return status;
}

static void free_summary(summary *s)
{
    for (int i = 0; s->fold && i < s->n; i++) {
        flim_fold_result_free(&s->fold[i]);
    }
    flim_free(s->fold);
}

/* ---- files ---- */

/* [{"fold": 1, "reason": "..."}], or NULL if none has failed. */
static flim_json *failed_json(const flim_run *run, int n_folds)
{
    char reason[1024];
    flim_json *list = NULL;
    for (int k = 0; k < n_folds; k++) {
        if (flim_run_fold_has_failed(run, k, reason)) {
            list = list ? list : flim_json_array();
            flim_json *one = flim_json_object();
            flim_json_set_integer(one, "fold", k);
            flim_json_set_string(one, "reason", reason);
            flim_json_add(list, one);
        }
    }
    return list;
}

/* No fold is done: there are no numbers, which is not the same as zeros. */
static void set_undefined(summary *s)
{
    for (int m = 0; m < FLIM_N_METRICS; m++) {
        s->mean[m] = s->sd[m] = s->mean_half[m] = s->sd_half[m] = s->pooled.value[m] = s->pooled_half.value[m] = NAN;
    }
}

/* Of a run whose folds have been pretrained: how. */
static flim_status set_pretraining(const flim_run *run, flim_json *json, flim_error *err)
{
    flim_settings pretraining;
    char *words = NULL;
    if (!flim_settings_per_fold(run->settings)) {
        return FLIM_OK;
    }
    FLIM_TRY(flim_settings_of_pretraining(run->settings, &pretraining, err));
    const flim_status status = flim_settings_pretraining_words(run->settings, &pretraining, &words, err);
    flim_settings_free(&pretraining);
    FLIM_TRY(status);
    flim_json *about = flim_json_object(), *files = flim_json_array();
    flim_json_set_string(about, "of", "each fold, on its training set");
    flim_json_set_string(about, "settings", words);
    for (int i = 0; i < run->settings->pretraining_data.n; i++) {
        const char *file = run->settings->pretraining_data.item[i], *slash = strrchr(file, '/');
        flim_json_add_string(files, slash ? slash + 1 : file);
    }
    flim_json_set(about, "further_files", files);
    flim_json_set(json, "pretraining", about);
    flim_free(words);
    return FLIM_OK;
}

static flim_status write_json(const flim_run *run, const flim_study *study, const summary *s, flim_error *err)
{
    char path[FLIM_PATH_MAX];
    flim_json *json = flim_json_object(), *folds = flim_json_array(), *baselines = NULL;
    for (int i = 0; i < s->n; i++) {
        flim_json_add(folds, flim_fold_result_json(&s->fold[i]));
    }
    flim_json_set(json, "folds", folds);
    flim_json *failed = failed_json(run, s->n_folds);
    if (failed) {
        flim_json_set(json, "failed", failed);
    }
    flim_json_set(json, "mean", flim_metrics_json(s->mean));
    flim_json_set(json, "sd", flim_metrics_json(s->sd));
    flim_json_set(json, "pooled", flim_metrics_json(s->pooled.value));
    if (s->held_out) {
        flim_json_set(json, "holdout", flim_metrics_json(s->holdout.value));
    } else {
        flim_json_set_null(json, "holdout");
    }
    flim_json_set(json, "mean_at_0.5", flim_metrics_json(s->mean_half));
    flim_json_set(json, "pooled_at_0.5", flim_metrics_json(s->pooled_half.value));
    if (s->has_shift) {
        flim_json_set(json, "pooled_calibrated", flim_metrics_json(s->calibrated.value));
        flim_json_set(json, "pooled_prior_corrected", flim_metrics_json(s->corrected.value));
    }
    for (int b = 0; b < FLIM_N_BASELINES; b++) {
        if (s->has_baseline[b]) {
            if (!baselines) {
                flim_json_set(json, "baselines", baselines = flim_json_object());
            }
            flim_json_set(baselines, flim_baseline_name(b), flim_metrics_json(s->baseline[b].value));
        }
    }
    if ((flim_run_start_file(run)[0] || flim_settings_per_fold(run->settings)) && study->splits.n_holdout > 0) {
        const int64_t seen = flim_run_seen_holdout_cells(run, study);
        if (seen >= 0) {
            flim_json_set_integer(json, "holdout_cells_seen_by_init_weights", seen);
        } else {
            flim_json_set_null(json, "holdout_cells_seen_by_init_weights");
        }
    }
    if (run->unchecked.n > 0) {
        flim_json *unchecked = flim_json_array();
        for (int i = 0; i < run->unchecked.n; i++) {
            flim_json_add_string(unchecked, run->unchecked.item[i]);
        }
        flim_json_set(json, "unchecked", unchecked);
    }
    flim_json_set(json, "findings", flim_findings_json(&study->findings));
    flim_status status = FLIM_OK;
    FLIM_TRY_DONE(set_pretraining(run, json, err));
    FLIM_TRY_DONE(flim_run_folder_path(run, "summary.json", path, err));
    status = flim_json_write(json, path, err);
done:
    flim_json_free(json);
    return status;
}

static flim_status write_csv(const flim_run *run, const summary *s, flim_error *err)
{
    char path[FLIM_PATH_MAX];
    flim_file_writer writer;
    FLIM_TRY(flim_run_folder_path(run, "summary.csv", path, err));
    FLIM_TRY(flim_file_begin(&writer, path, err));
    flim_result_csv_head(writer.stream, "fold");
    for (int i = 0; i < s->n; i++) {
        fprintf(writer.stream, "%d", s->fold[i].k);
        flim_result_csv_row(writer.stream, &s->fold[i], s->fold[i].metrics.value);
    }
    const struct {
        const char *name;
        const double *value;
    } rows[] = {{"mean", s->mean}, {"sd", s->sd}, {"pooled", s->pooled.value}, {"holdout", s->holdout.value}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0] - !s->held_out; i++) {
        fputs(rows[i].name, writer.stream);
        flim_result_csv_row(writer.stream, NULL, rows[i].value);
    }
    return flim_file_commit(&writer, err);
}

/* ---- the table ---- */

static void table_row(const flim_log *log, const char *first, const double value[FLIM_N_METRICS])
{
    static const flim_metric shown[] = {FLIM_ACCURACY, FLIM_BALANCED_ACCURACY, FLIM_F1,
                                        FLIM_MCC,      FLIM_ROC_AUC,           FLIM_LOG_LOSS};
    static const int widths[] = {6, 7, 6, 6, 6, 7}; /* with the name and the blanks 80 columns */
    char text[256];
    size_t used = (size_t)snprintf(text, sizeof text, "  %-34s", first);
    for (size_t i = 0; i < sizeof shown / sizeof shown[0]; i++) {
        double v = value[shown[i]];
        used += (size_t)(isnan(v) ? snprintf(text + used, sizeof text - used, " %*s", widths[i], "n/a")
                                  : snprintf(text + used, sizeof text - used, " %*.3f", widths[i], v));
    }
    flim_log_line(log, FLIM_LOG_RESULT, "%s", text);
}

static void failed_rows(const flim_run *run, int n_folds)
{
    char reason[1024];
    for (int k = 0; k < n_folds; k++) {
        if (flim_run_fold_has_failed(run, k, reason)) {
            flim_log_line(&run->log, FLIM_LOG_RESULT, "  %d has failed and is not included below", k);
        }
    }
}

static void print_table(const flim_run *run, int classes, const summary *s)
{
    const flim_log *log = &run->log;
    const bool two = classes == 2; /* with more the most probable class is predicted, and there is no threshold */
    char first[64], sentence[512];
    flim_log_line(log, FLIM_LOG_RESULT, "Test-set metrics, %d of %d folds%s:", s->n, s->n_folds,
                  two ? " (thresholds chosen on the validation sets)" : "");
    flim_log_line(log, FLIM_LOG_RESULT, "  %-34s %6s %7s %6s %6s %6s %7s", "fold (cells, best epoch)", "acc", "bal.acc", "F1",
                  "MCC", "AUC", "logloss");
    for (int i = 0; i < s->n; i++) {
        snprintf(first, sizeof first, "%d (%" PRId64 ", %" PRId64 ")", s->fold[i].k, s->fold[i].n_test,
                 s->fold[i].best_epoch);
        table_row(log, first, s->fold[i].metrics.value);
    }
    failed_rows(run, s->n_folds);
    table_row(log, "mean", s->mean);
    table_row(log, "sd (ddof 1)", s->sd);
    table_row(log, "pooled", s->pooled.value);
    if (two) {
        table_row(log, "pooled, threshold 0.5", s->pooled_half.value);
    }
    if (s->has_shift) {
        table_row(log, "pooled, calibrated", s->calibrated.value);
        table_row(log, "pooled, prior corrected *", s->corrected.value);
        flim_log_line(log, FLIM_LOG_RESULT, "  * to the likeliest prior of each test set, from its unlabelled test cells");
    }
    if (s->held_out) {
        table_row(log, "holdout, fold ensemble", s->holdout.value);
    }
    for (int b = 0, shown = 0; b < FLIM_N_BASELINES; b++) {
        if (s->has_baseline[b]) {
            if (!shown++) {
                flim_log_line(log, FLIM_LOG_RESULT, "Baselines on the same folds (pooled):");
            }
            table_row(log, flim_baseline_title(b), s->baseline[b].value);
        }
    }
    if (flim_settings_per_fold(run->settings)) {
        flim_log_line(log, FLIM_LOG_RESULT,
                      "Each fold started from an encoder that was pretrained on its own training set%s.",
                      run->settings->pretraining_data.n > 0 ? " and --pretraining-data" : "");
    }
    if (flim_fold_results_seen(s->fold, s->n, sentence, sizeof sentence)) {
        flim_log_line(log, FLIM_LOG_WARNING, "%s", sentence);
    }
    if (s->has_baseline[FLIM_BASELINE_CONFOUNDS] &&
        flim_confounds_suffice(classes, s->pooled.value, s->baseline[FLIM_BASELINE_CONFOUNDS].value, sentence,
                               sizeof sentence)) {
        flim_log_line(log, FLIM_LOG_WARNING, "%s", sentence);
    }
    for (int m = 0; m < FLIM_N_METRICS; m++) {
        if (s->used[m] < s->n) {
            flim_log_line(log, FLIM_LOG_NOTE, "%s: mean of %d of %d folds (undefined in the others: %s)",
                          flim_metric_title((flim_metric)m), s->used[m], s->n, flim_metric_undefined_reason((flim_metric)m));
        }
    }
    /* Last, so that nobody misses it. */
    if (s->has_baseline[FLIM_BASELINE_DECAY] &&
        flim_decay_suffices(s->pooled.value, s->baseline[FLIM_BASELINE_DECAY].value, sentence, sizeof sentence)) {
        flim_log_line(log, FLIM_LOG_RESULT, "%c%s.", toupper((unsigned char)sentence[0]), sentence + 1);
    }
}

flim_status flim_run_summary(const flim_run *run, const flim_study *study, flim_error *err)
{
    summary s = {0};
    char reason[1024];
    flim_status status = FLIM_OK;
    FLIM_TRY_DONE(collect(run, &study->splits, &s, err));
    bool any = s.n > 0;
    for (int k = 0; k < s.n_folds && !any; k++) {
        any = flim_run_fold_has_failed(run, k, reason);
    }
    if (s.n == 0) {
        set_undefined(&s);
    }
    if (any) {
        FLIM_TRY_DONE(write_json(run, study, &s, err));
        FLIM_TRY_DONE(write_csv(run, &s, err));
        print_table(run, study->info->classes, &s);
        flim_run_event_summary(run, s.n, s.n_folds, s.mean, s.sd, s.pooled.value);
    }
done:
    free_summary(&s);
    return status;
}
