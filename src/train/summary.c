/* The run's result: recomputed from the predictions of the folds that are done, never from numbers kept in memory, so that a
 * resumed run, a single fold run later and a whole run end in the same files. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "core/file.h"
#include "flim/json.h"
#include "flim/weights.h"
#include "train/run.h"

/* One finished fold, read back. */
typedef struct done_fold {
    int k;
    int64_t n_train, n_val, n_test, epochs, best_epoch;
    double threshold;
    flim_predictions predictions;
    flim_metrics metrics, metrics_half; /* at the chosen threshold and at 0.5 */
} done_fold;

static flim_status required_integer(const flim_json *json, const char *path, const char *key, int64_t *out, flim_error *err)
{
    const flim_json *value = flim_json_get(json, key);
    return value && flim_json_integer(value, out) ? FLIM_OK
                                                  : flim_fail(err, FLIM_ERROR_DATA, "%s: no whole number '%s'", path, key);
}

static flim_status read_fold(flim_run *run, int k, done_fold *fold, flim_error *err)
{
    char path[FLIM_PATH_MAX], name[64];
    flim_json *json = NULL;
    *fold = (done_fold){.k = k};
    snprintf(name, sizeof name, "fold_%d/summary.json", k);
    flim_status status = flim_run_folder_path(run, name, path, err);
    if (status == FLIM_OK) {
        status = flim_json_read(path, &json, err);
    }
    if (status != FLIM_OK) {
        return status;
    }
    const struct {
        const char *key;
        int64_t *to;
    } wholes[] = {{"n_train", &fold->n_train},
                  {"n_val", &fold->n_val},
                  {"n_test", &fold->n_test},
                  {"epochs", &fold->epochs},
                  {"best_epoch", &fold->best_epoch}};
    for (size_t i = 0; i < sizeof wholes / sizeof wholes[0] && status == FLIM_OK; i++) {
        status = required_integer(json, path, wholes[i].key, wholes[i].to, err);
    }
    const flim_json *threshold = flim_json_get(json, "threshold");
    if (status == FLIM_OK && (!threshold || !flim_json_number(threshold, &fold->threshold))) {
        status = flim_fail(err, FLIM_ERROR_DATA, "%s: no number 'threshold'", path);
    }
    flim_json_free(json);
    if (status == FLIM_OK) {
        snprintf(name, sizeof name, "fold_%d/predictions.csv", k);
        status = flim_run_folder_path(run, name, path, err);
    }
    if (status == FLIM_OK) {
        status = flim_predictions_read(path, &fold->predictions, err);
    }
    const flim_predictions *p = &fold->predictions;
    if (status == FLIM_OK && (p->n != run->splits.fold[k].n_test || p->classes != run->info->classes)) {
        status = flim_fail(err, FLIM_ERROR_DATA, "%s: %" PRId64 " cells of %d classes, the test part has %" PRId64 " of %d",
                           path, p->n, p->classes, run->splits.fold[k].n_test, run->info->classes);
    }
    if (status == FLIM_OK) {
        status = flim_metrics_compute(p->n, p->classes, p->label, p->logits, fold->threshold, &fold->metrics, err);
    }
    return status == FLIM_OK ? flim_metrics_compute(p->n, p->classes, p->label, p->logits, 0.5, &fold->metrics_half, err)
                             : status;
}

static flim_json *metrics_json(const double value[FLIM_N_METRICS])
{
    flim_json *object = flim_json_object();
    for (int m = 0; m < FLIM_N_METRICS; m++) {
        flim_json_set_number(object, flim_metric_name((flim_metric)m), value[m]);
    }
    return object;
}

/* Metrics over all out-of-fold predictions together, with the decisions that each fold made at its own threshold. */
static flim_status pooled_metrics(const done_fold *folds, int n_folds, int classes, flim_metrics *out, flim_error *err)
{
    int64_t n = 0, at = 0;
    const int outputs = classes == 2 ? 1 : classes;
    for (int i = 0; i < n_folds; i++) {
        n += folds[i].predictions.n;
    }
    int32_t *label = flim_alloc((size_t)n, sizeof *label, err); /* (n) */
    int32_t *predicted = flim_alloc((size_t)n, sizeof *predicted, err); /* (n) */
    float *logits = flim_alloc((size_t)(n * outputs), sizeof *logits, err); /* (n,K') */
    flim_status status = label && logits && predicted ? FLIM_OK : FLIM_ERROR_MEMORY;
    for (int i = 0; i < n_folds && status == FLIM_OK; i++) {
        const flim_predictions *p = &folds[i].predictions;
        memcpy(label + at, p->label, (size_t)p->n * sizeof *label);
        memcpy(predicted + at, p->predicted, (size_t)p->n * sizeof *predicted);
        memcpy(logits + at * outputs, p->logits, (size_t)(p->n * outputs) * sizeof *logits);
        at += p->n;
    }
    if (status == FLIM_OK) {
        status = flim_metrics_of_decisions(n, classes, label, logits, predicted, out, err);
    }
    flim_free(label);
    flim_free(predicted);
    flim_free(logits);
    return status;
}

static void mean_and_sd(const done_fold *folds, int n, double mean[FLIM_N_METRICS], double sd[FLIM_N_METRICS],
                        int used[FLIM_N_METRICS], double *values)
{
    for (int m = 0; m < FLIM_N_METRICS; m++) {
        for (int i = 0; i < n; i++) {
            values[i] = folds[i].metrics.value[m];
        }
        flim_mean_sd(values, n, &mean[m], &sd[m], &used[m]);
    }
}

static flim_json *fold_json(const done_fold *fold)
{
    flim_json *json = flim_json_object();
    flim_json_set_integer(json, "fold", fold->k);
    flim_json_set_integer(json, "n_train", fold->n_train);
    flim_json_set_integer(json, "n_val", fold->n_val);
    flim_json_set_integer(json, "n_test", fold->n_test);
    flim_json_set_integer(json, "epochs", fold->epochs);
    flim_json_set_integer(json, "best_epoch", fold->best_epoch);
    flim_json_set_number(json, "threshold", fold->threshold);
    flim_json_set(json, "metrics", metrics_json(fold->metrics.value));
    flim_json_set(json, "metrics_at_0.5", metrics_json(fold->metrics_half.value));
    return json;
}

/* Hold-out metrics from holdout_predictions.csv, where that exists. */
static flim_status holdout_metrics(flim_run *run, flim_metrics *out, bool *found, flim_error *err)
{
    char path[FLIM_PATH_MAX];
    flim_predictions p = {0};
    *found = false;
    flim_status status = flim_run_folder_path(run, "holdout_predictions.csv", path, err);
    if (status != FLIM_OK || !flim_file_exists(path)) {
        return status;
    }
    status = flim_predictions_read(path, &p, err);
    if (status == FLIM_OK) {
        status = flim_metrics_compute(p.n, p.classes, p.label, p.logits, 0.5, out, err);
    }
    *found = status == FLIM_OK;
    flim_predictions_free(&p);
    return status;
}

static void put_csv_row(FILE *stream, const char *first, const done_fold *fold, const double value[FLIM_N_METRICS])
{
    fprintf(stream, "%s", first);
    if (fold) {
        fprintf(stream, ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%.9g", fold->n_train, fold->n_val,
                fold->n_test, fold->epochs, fold->best_epoch, fold->threshold);
    } else {
        fputs(",,,,,,", stream);
    }
    for (int m = 0; m < FLIM_N_METRICS; m++) {
        if (isnan(value[m])) {
            putc(',', stream);
        } else {
            fprintf(stream, ",%.9g", value[m]);
        }
    }
    putc('\n', stream);
}

static flim_status write_csv(flim_run *run, const done_fold *folds, int n, const double *mean, const double *sd,
                             const flim_metrics *pooled, const flim_metrics *holdout, flim_error *err)
{
    char path[FLIM_PATH_MAX], name[16];
    flim_file_writer writer;
    flim_status status = flim_run_folder_path(run, "summary.csv", path, err);
    if (status == FLIM_OK) {
        status = flim_file_begin(&writer, path, err);
    }
    if (status != FLIM_OK) {
        return status;
    }
    fputs("fold,n_train,n_val,n_test,epochs,best_epoch,threshold", writer.stream);
    for (int m = 0; m < FLIM_N_METRICS; m++) {
        fprintf(writer.stream, ",%s", flim_metric_name((flim_metric)m));
    }
    putc('\n', writer.stream);
    for (int i = 0; i < n; i++) {
        snprintf(name, sizeof name, "%d", folds[i].k);
        put_csv_row(writer.stream, name, &folds[i], folds[i].metrics.value);
    }
    put_csv_row(writer.stream, "mean", NULL, mean);
    put_csv_row(writer.stream, "sd", NULL, sd);
    put_csv_row(writer.stream, "pooled", NULL, pooled->value);
    if (holdout) {
        put_csv_row(writer.stream, "holdout", NULL, holdout->value);
    }
    return flim_file_commit(&writer, err);
}

static void table_row(const flim_log *log, const char *first, const double value[FLIM_N_METRICS])
{
    static const flim_metric shown[] = {FLIM_ACCURACY, FLIM_BALANCED_ACCURACY, FLIM_F1,
                                        FLIM_MCC,      FLIM_ROC_AUC,           FLIM_LOG_LOSS};
    char text[256];
    size_t used = (size_t)snprintf(text, sizeof text, "  %-28s", first);
    for (size_t i = 0; i < sizeof shown / sizeof shown[0]; i++) {
        double v = value[shown[i]];
        used += (size_t)(isnan(v) ? snprintf(text + used, sizeof text - used, " %9s", "n/a")
                                  : snprintf(text + used, sizeof text - used, " %9.3f", v));
    }
    flim_log_line(log, FLIM_LOG_INFO, "%s", text);
}

/* Says so where brightness, cell size and peak bin alone do nearly as well as the network. */
static void warn_of_confounds(const flim_run *run, const flim_metrics *pooled)
{
    const double near = 0.03; /* of balanced accuracy */
    double network = pooled->value[FLIM_BALANCED_ACCURACY];
    double confounds = run->baseline[1].value[FLIM_BALANCED_ACCURACY], prior = run->baseline[0].value[FLIM_BALANCED_ACCURACY];
    if (run->has_baselines && confounds >= network - near && confounds > prior + near) {
        flim_log_line(
            &run->log, FLIM_LOG_WARNING,
            "brightness, cell size and peak bin alone reach a balanced accuracy of %.3f, the network %.3f: it may have "
            "learned no more than these",
            confounds, network);
    }
}

static void print_table(const flim_run *run, const done_fold *folds, int n, const double *mean, const double *sd,
                        const int *used, const flim_metrics *pooled, const flim_metrics *holdout)
{
    const flim_log *log = &run->log;
    char first[64];
    flim_log_line(log, FLIM_LOG_INFO, "Test parts, %d of %d folds (thresholds from the validation parts):", n,
                  run->splits.n_folds);
    flim_log_line(log, FLIM_LOG_INFO, "  %-28s %9s %9s %9s %9s %9s %9s", "fold (cells, best epoch)", "accuracy", "bal. acc.",
                  "F1", "MCC", "ROC AUC", "log loss");
    for (int i = 0; i < n; i++) {
        snprintf(first, sizeof first, "%d (%" PRId64 ", %" PRId64 ")", folds[i].k, folds[i].n_test, folds[i].best_epoch);
        table_row(log, first, folds[i].metrics.value);
    }
    table_row(log, "mean", mean);
    table_row(log, "sd (ddof 1)", sd);
    table_row(log, "pooled", pooled->value);
    if (holdout) {
        table_row(log, "holdout, fold ensemble", holdout->value);
    }
    for (int b = 0; run->has_baselines && b < FLIM_N_BASELINES; b++) {
        table_row(log, flim_run_baseline_title(b), run->baseline[b].value);
    }
    warn_of_confounds(run, pooled);
    for (int m = 0; m < FLIM_N_METRICS; m++) {
        if (used[m] > 0 && used[m] < n) {
            flim_log_line(log, FLIM_LOG_NOTE, "%s: mean of %d of %d folds (undefined in the others: %s)",
                          flim_metric_name((flim_metric)m), used[m], n, flim_metric_undefined_reason((flim_metric)m));
        }
    }
}

flim_status flim_run_summary(flim_run *run, flim_error *err)
{
    int n = 0;
    flim_status status = FLIM_OK;
    flim_json *json = NULL;
    double mean[FLIM_N_METRICS], sd[FLIM_N_METRICS];
    int used[FLIM_N_METRICS];
    flim_metrics pooled, holdout;
    bool held_out = false;
    char path[FLIM_PATH_MAX];
    done_fold *folds = flim_alloc((size_t)run->splits.n_folds, sizeof *folds, err);
    double *values = flim_alloc((size_t)run->splits.n_folds, sizeof *values, err);
    if (!folds || !values) {
        status = FLIM_ERROR_MEMORY;
        goto done;
    }
    for (int k = 0; k < run->splits.n_folds && status == FLIM_OK; k++) {
        if (flim_run_fold_is_done(run, k)) {
            status = read_fold(run, k, &folds[n++], err);
        }
    }
    if (status != FLIM_OK || n == 0) {
        goto done;
    }
    status = pooled_metrics(folds, n, run->info->classes, &pooled, err);
    if (status == FLIM_OK) {
        status = holdout_metrics(run, &holdout, &held_out, err);
    }
    if (status != FLIM_OK) {
        goto done;
    }
    mean_and_sd(folds, n, mean, sd, used, values);
    json = flim_json_object();
    flim_json *list = flim_json_array();
    for (int i = 0; i < n; i++) {
        flim_json_add(list, fold_json(&folds[i]));
    }
    flim_json_set(json, "folds", list);
    flim_json_set(json, "mean", metrics_json(mean));
    flim_json_set(json, "sd", metrics_json(sd));
    flim_json_set(json, "pooled", metrics_json(pooled.value));
    if (held_out) {
        flim_json_set(json, "holdout", metrics_json(holdout.value));
    } else {
        flim_json_set_null(json, "holdout");
    }
    if (run->has_baselines) {
        flim_json *beside = flim_json_object();
        for (int b = 0; b < FLIM_N_BASELINES; b++) {
            flim_json_set(beside, flim_run_baseline_name(b), metrics_json(run->baseline[b].value));
        }
        flim_json_set(json, "baselines", beside);
    }
    status = flim_run_folder_path(run, "summary.json", path, err);
    if (status == FLIM_OK) {
        status = flim_json_write(json, path, err);
    }
    if (status == FLIM_OK) {
        status = write_csv(run, folds, n, mean, sd, &pooled, held_out ? &holdout : NULL, err);
    }
    if (status == FLIM_OK) {
        print_table(run, folds, n, mean, sd, used, &pooled, held_out ? &holdout : NULL);
    }
done:
    for (int i = 0; folds && i < n; i++) {
        flim_predictions_free(&folds[i].predictions);
    }
    flim_free(folds);
    flim_free(values);
    flim_json_free(json);
    return status;
}

/* ---- hold-out groups ---- */

flim_status flim_run_holdout(flim_run *run, flim_error *err)
{
    const int64_t n = run->splits.n_holdout;
    const int classes = run->info->classes, outputs = run->net.head.outputs;
    char path[FLIM_PATH_MAX], name[64];
    flim_predictions predictions = {0};
    if (n == 0) {
        return FLIM_OK;
    }
    for (int k = 0; k < run->splits.n_folds; k++) {
        if (!flim_run_fold_is_done(run, k)) {
            flim_log_line(&run->log, FLIM_LOG_NOTE, "hold-out groups are scored once all folds are done; fold %d is not", k);
            return FLIM_OK;
        }
    }
    float *parameter = flim_alloc((size_t)run->net.parameters, sizeof(float), err); /* (P) */
    float *statistic = flim_alloc((size_t)run->net.statistics, sizeof(float), err); /* (S) */
    float *logits = flim_alloc((size_t)(n * outputs), sizeof(float), err); /* (n,K') */
    double *one = flim_alloc((size_t)(n * classes), sizeof(double), err); /* (n,K) */
    double *sum = flim_alloc((size_t)(n * classes), sizeof(double), err); /* (n,K) */
    flim_status status = parameter && statistic && logits && one && sum ? FLIM_OK : FLIM_ERROR_MEMORY;
    for (int k = 0; k < run->splits.n_folds && status == FLIM_OK; k++) {
        snprintf(name, sizeof name, "fold_%d/best.safetensors", k);
        status = flim_run_folder_path(run, name, path, err);
        if (status == FLIM_OK) {
            status = flim_weights_read(path, &run->net, parameter, statistic, err);
        }
        if (status == FLIM_OK) {
            status = flim_program_write(run->program, FLIM_STATE_PARAMETERS, parameter, err);
        }
        if (status == FLIM_OK) {
            status = flim_program_write(run->program, FLIM_STATE_STATISTICS, statistic, err);
        }
        if (status == FLIM_OK) {
            const flim_evaluation evaluation = flim_run_evaluation(run, FLIM_PHASE_HOLDOUT, k, 0);
            status = flim_evaluate(&evaluation, run->splits.holdout, n, logits, err);
        }
        if (status == FLIM_OK) {
            flim_probabilities(n, classes, logits, one);
            for (int64_t i = 0; i < n * classes; i++) {
                sum[i] += one[i];
            }
        }
    }
    if (status == FLIM_OK) {
        flim_ensemble_logits(n, classes, sum, run->splits.n_folds, logits);
        status = flim_predictions_of(run->info, classes, run->splits.holdout, n, logits, 0.5, &predictions, err);
    }
    if (status == FLIM_OK) {
        status = flim_run_folder_path(run, "holdout_predictions.csv", path, err);
    }
    if (status == FLIM_OK) {
        status = flim_predictions_write(&predictions, path, err);
    }
    flim_predictions_free(&predictions);
    flim_free(parameter);
    flim_free(statistic);
    flim_free(logits);
    flim_free(one);
    flim_free(sum);
    return status;
}
