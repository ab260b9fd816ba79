#include "results/fold_result.h"

#include <inttypes.h>
#include <math.h>
#include <sys/stat.h>

#include "core/file.h"
#include "core/lock.h"
#include "core/try.h"

#define SEEN_KEY "test_cells_seen_by_init_weights"

void flim_fold_folder(int k, char out[32])
{
    if (k == FLIM_FINAL_FOLD) {
        snprintf(out, 32, "final");
    } else if (k == FLIM_PRETRAINING_FOLD) {
        snprintf(out, 32, "pretraining");
    } else {
        snprintf(out, 32, "fold_%d", k);
    }
}

/* Of a file of fold k. */
static flim_status path_of(const char *run_folder, int k, const char *name, char out[FLIM_FILE_PATH], flim_error *err)
{
    char folder[32], below[96];
    flim_fold_folder(k, folder);
    snprintf(below, sizeof below, "%s/%s", folder, name);
    return flim_path_in(run_folder, below, out, err);
}

bool flim_run_is_worked_at(const char *run_folder)
{
    char path[FLIM_FILE_PATH];
    return flim_path_in(run_folder, FLIM_RUN_WORKING, path, NULL) != FLIM_OK || flim_lock_is_shared(path);
}

bool flim_run_is_pretraining(const char *run_folder)
{
    char path[FLIM_FILE_PATH], config[FLIM_FILE_PATH];
    struct stat about;
    return flim_path_in(run_folder, "pretraining", path, NULL) == FLIM_OK && stat(path, &about) == 0 &&
           S_ISDIR(about.st_mode) && flim_path_in(run_folder, "config.yaml", config, NULL) == FLIM_OK &&
           flim_file_exists(config);
}

bool flim_fold_is_done(const char *run_folder, int k)
{
    char path[FLIM_FILE_PATH];
    return path_of(run_folder, k, "DONE", path, NULL) == FLIM_OK && flim_file_exists(path);
}

const char *flim_fold_name(int k, char out[32])
{
    if (k == FLIM_FINAL_FOLD) {
        return "the final model";
    }
    if (k == FLIM_PRETRAINING_FOLD) {
        return "the pretraining";
    }
    snprintf(out, 32, "fold %d", k);
    return out;
}

static flim_status read_summary(const char *run_folder, int k, flim_json **json, char path[FLIM_FILE_PATH], flim_error *err)
{
    FLIM_TRY(path_of(run_folder, k, "summary.json", path, err));
    return flim_json_read(path, json, err);
}

flim_status flim_summary_threshold(const flim_json *summary, const char *path, double *threshold, flim_error *err)
{
    return flim_json_number(flim_json_get(summary, "threshold"), threshold) && *threshold >= 0 && *threshold <= 1
               ? FLIM_OK
               : flim_fail(err, FLIM_ERROR_DATA, "%s: no number \"threshold\" from 0 to 1", path);
}

flim_status flim_fold_threshold(const char *run_folder, int k, double *threshold, flim_error *err)
{
    char path[FLIM_FILE_PATH];
    flim_json *json = NULL;
    FLIM_TRY(read_summary(run_folder, k, &json, path, err));
    const flim_status status = flim_summary_threshold(json, path, threshold, err);
    flim_json_free(json);
    return status;
}

/* The predictions must be those of the fold's test set: each of its cells once, and no other. */
static flim_status check_predictions(const flim_predictions *p, const flim_fold *part, const char *path, flim_error *err)
{
    if (p->n != part->n_test) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s: %" PRId64 " cells, the fold's test set in splits.json has %" PRId64, path,
                         p->n, part->n_test);
    }
    for (int64_t i = 0; i < p->n; i++) {
        if (p->index[i] != part->test[i]) {
            return flim_fail(err, FLIM_ERROR_DATA,
                             "%s, row %" PRId64 ": cell %" PRId64 ", splits.json tests %" PRId64 " there", path, i + 1,
                             p->index[i], part->test[i]);
        }
        if (p->label[i] < 0) {
            return flim_fail(err, FLIM_ERROR_DATA, "%s, row %" PRId64 ": no label", path, i + 1);
        }
    }
    return FLIM_OK;
}

static flim_status get_summary(const flim_json *json, const char *path, flim_fold_result *out, flim_error *err)
{
    const struct {
        const char *key;
        int64_t *to;
    } wholes[] = {{"n_train", &out->n_train},
                  {"n_val", &out->n_val},
                  {"n_test", &out->n_test},
                  {"epochs", &out->epochs},
                  {"best_epoch", &out->best_epoch}};
    for (size_t i = 0; i < sizeof wholes / sizeof wholes[0]; i++) {
        if (!flim_json_integer(flim_json_get(json, wholes[i].key), wholes[i].to)) {
            return flim_fail(err, FLIM_ERROR_DATA, "%s: no whole number \"%s\"", path, wholes[i].key);
        }
    }
    const flim_json *seen = flim_json_get(json, SEEN_KEY); /* only there if the fold had weights to start from */
    out->has_start = seen != NULL;
    if (seen && !flim_json_is_null(seen) && !flim_json_integer(seen, &out->seen)) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s: \"%s\" is not a whole number", path, SEEN_KEY);
    }
    out->seen = seen && flim_json_is_null(seen) ? -1 : out->seen;
    return flim_summary_threshold(json, path, &out->threshold, err);
}

flim_status flim_fold_result_read(const char *run_folder, int k, const flim_fold *part, flim_fold_result *out,
                                  flim_error *err)
{
    char path[FLIM_FILE_PATH];
    flim_json *json = NULL;
    flim_predictions *p = &out->predictions;
    flim_status status = FLIM_OK;
    *out = (flim_fold_result){.k = k};
    FLIM_TRY_DONE(read_summary(run_folder, k, &json, path, err));
    FLIM_TRY_DONE(get_summary(json, path, out, err));
    FLIM_TRY_DONE(path_of(run_folder, k, "predictions.csv", path, err));
    FLIM_TRY_DONE(flim_predictions_read(path, p, err));
    FLIM_TRY_DONE(check_predictions(p, part, path, err));
    FLIM_TRY_DONE(flim_metrics_of_decisions(p->n, p->classes, p->label, p->logits, p->predicted, &out->metrics, err));
    FLIM_TRY_DONE(flim_metrics_compute(p->n, p->classes, p->label, p->logits, 0.5, &out->at_half, err));
    FLIM_TRY_DONE(flim_fold_shift_read(json, p->classes, path, &out->shift, err));
    FLIM_TRY_DONE(out->shift.classes > 0 ? flim_shift_metrics(&out->shift, p, &out->calibrated, &out->corrected, err)
                                         : FLIM_OK);
done:
    flim_json_free(json);
    if (status != FLIM_OK) {
        flim_fold_result_free(out);
    }
    return status;
}

void flim_fold_result_free(flim_fold_result *result)
{
    flim_predictions_free(&result->predictions);
    flim_fold_shift_free(&result->shift);
    *result = (flim_fold_result){0};
}

bool flim_fold_results_seen(const flim_fold_result *results, int n_results, char *text, size_t size)
{
    int64_t seen = 0, cells = 0;
    int unknown = 0;
    for (int i = 0; i < n_results; i++) {
        seen += results[i].has_start && results[i].seen > 0 ? results[i].seen : 0;
        unknown += results[i].has_start && results[i].seen < 0;
        cells += results[i].n_test;
    }
    if (seen > 0) {
        snprintf(text, size,
                 "the starting weights had seen %" PRId64 " of %" PRId64
                 " test cells in training or validation: the scores on these are not a test result",
                 seen, cells);
    } else if (unknown > 0) {
        snprintf(text, size, "whether the starting weights had seen test cells is not known in %d of %d folds", unknown,
                 n_results);
    }
    return seen > 0 || unknown > 0;
}

/* ---- as JSON and CSV ---- */

flim_json *flim_fold_result_json(const flim_fold_result *result)
{
    flim_json *object = flim_json_object();
    flim_json_set_integer(object, "fold", result->k);
    flim_json_set_integer(object, "n_train", result->n_train);
    flim_json_set_integer(object, "n_val", result->n_val);
    flim_json_set_integer(object, "n_test", result->n_test);
    flim_json_set_integer(object, "epochs", result->epochs);
    flim_json_set_integer(object, "best_epoch", result->best_epoch);
    flim_json_set_number(object, "threshold", result->threshold);
    if (result->has_start && result->seen >= 0) {
        flim_json_set_integer(object, SEEN_KEY, result->seen);
    } else if (result->has_start) {
        flim_json_set_null(object, SEEN_KEY);
    }
    flim_json_set(object, "metrics", flim_metrics_json(result->metrics.value));
    flim_json_set(object, "metrics_at_0.5", flim_metrics_json(result->at_half.value));
    flim_fold_shift_set_json(object, &result->shift, &result->metrics, &result->calibrated, &result->corrected);
    return object;
}

void flim_result_csv_head(FILE *stream, const char *first)
{
    fprintf(stream, "%s,n_train,n_val,n_test,epochs,best_epoch,threshold", first);
    for (int m = 0; m < FLIM_N_METRICS; m++) {
        fprintf(stream, ",%s", flim_metric_name((flim_metric)m));
    }
    putc('\n', stream);
}

void flim_result_csv_row(FILE *stream, const flim_fold_result *fold, const double value[FLIM_N_METRICS])
{
    if (fold) {
        fprintf(stream, ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%.9g", fold->n_train, fold->n_val,
                fold->n_test, fold->epochs, fold->best_epoch, fold->threshold);
    } else {
        fputs(",,,,,,", stream);
    }
    for (int m = 0; m < FLIM_N_METRICS; m++) {
        putc(',', stream);
        if (!isnan(value[m])) {
            fprintf(stream, "%.9g", value[m]);
        }
    }
    putc('\n', stream);
}
