#include "flim/predict.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/file.h"
#include "core/try.h"
#include "formats/json.h"
#include "flim/settings.h"
#include "flim/weights.h"
#include "results/fold_result.h"
#include "train/evaluation.h"

enum { MAX_MODELS = 4096, PATH_BYTES = 4096 };

/* One prediction at work; all of it is released by `release`. */
typedef struct job {
    const flim_predict_request *request;
    const flim_train_hooks *hooks;
    char (*model)[PATH_BYTES]; /* (n_models) weight files */
    int n_models;
    double threshold;
    bool mask_counts; /* as in training */
    bool tta; /* asked for, or as the run evaluated itself: its thresholds are of such scores */
    char trained_on[65]; /* SHA-256 of the run's data; "" if it is not known */
    flim_weights_info weights; /* of the first model */
    flim_dataset *dataset;
    const flim_dataset_info *info;
    flim_trainer trainer;
    flim_ensemble ensemble;
    int64_t *cells; /* (n) 0, 1, 2, ... */
} job;

/* ---- models ---- */

static flim_status add_model(job *j, const char *path, flim_error *err)
{
    char(*grown)[PATH_BYTES] = flim_realloc(j->model, (size_t)j->n_models + 1, sizeof *grown, err);
    if (!grown) {
        return FLIM_ERROR_MEMORY;
    }
    j->model = grown;
    snprintf(grown[j->n_models++], PATH_BYTES, "%s", path);
    return FLIM_OK;
}

/* What splits.json says of the run: the number of its folds, and the data that it was trained on. */
static flim_status read_splits(job *j, flim_error *err)
{
    char path[PATH_BYTES];
    flim_splits splits = {0};
    snprintf(path, sizeof path, "%s/splits.json", j->request->model);
    FLIM_TRY(flim_splits_read(path, NULL, &splits, err));
    memcpy(j->trained_on, splits.sha256, sizeof j->trained_on);
    if (j->n_models < splits.n_folds) {
        flim_log_line(&j->hooks->log, FLIM_LOG_WARNING, "%s: %d of its %d folds are done; only those are averaged",
                      j->request->model, j->n_models, splits.n_folds);
    }
    flim_splits_free(&splits);
    return FLIM_OK;
}

/* All finished folds of a run folder, and the mean of their thresholds. */
static flim_status find_folds(job *j, flim_error *err)
{
    char path[PATH_BYTES];
    const char *folder = j->request->model;
    double sum = 0, threshold = 0.5;
    for (int k = 0; k < MAX_MODELS; k++) {
        if (flim_fold_is_done(folder, k)) {
            snprintf(path, sizeof path, "%s/fold_%d/best.safetensors", folder, k);
            FLIM_TRY(add_model(j, path, err));
            FLIM_TRY(flim_fold_threshold(folder, k, &threshold, err));
            sum += threshold;
        }
    }
    if (j->n_models == 0) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s: no finished fold (fold_K/DONE) to predict with", folder);
    }
    j->threshold = sum / j->n_models;
    return read_splits(j, err);
}

/* How the run prepared its counts. */
static flim_status read_config(job *j, const char *path, flim_error *err)
{
    flim_settings settings;
    FLIM_TRY(flim_settings_init(&settings, err));
    const flim_status status = flim_settings_read(&settings, path, err);
    j->mask_counts = settings.mask_counts;
    j->tta = j->tta || settings.tta;
    flim_settings_free(&settings);
    return status;
}

static flim_status find_models(job *j, flim_error *err)
{
    char config[PATH_BYTES];
    j->threshold = 0.5;
    snprintf(config, sizeof config, "%s/config.yaml", j->request->model);
    if (flim_file_exists(config)) {
        FLIM_TRY(find_folds(j, err));
        FLIM_TRY(read_config(j, config, err));
    } else {
        FLIM_TRY(add_model(j, j->request->model, err));
    }
    if (!isnan(j->request->threshold)) {
        j->threshold = j->request->threshold;
    }
    FLIM_TRY(flim_weights_probe(j->model[0], &j->weights, err));
    j->mask_counts = j->mask_counts || j->weights.mask_counts;
    return FLIM_OK;
}

/* ---- data against weights ---- */

/* A class that goes by its number has no name. */
static bool is_named(const char *name, int k)
{
    char number[16];
    snprintf(number, sizeof number, "%d", k);
    return name && strcmp(name, number) != 0;
}

/* Labels of the data must mean what the model's do.  The data may lack some of the model's classes, and may name none. */
static flim_status check_classes(const job *j, flim_error *err)
{
    const flim_dataset_info *info = j->info;
    flim_json *names = NULL, *ours = NULL; /* both through JSON, which keeps no bytes that are not UTF-8 */
    flim_status status = FLIM_OK;
    int of_model = 0, of_data = 0; /* classes with a name */
    if (info->classes > j->weights.classes) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s has labels of %d classes, %s knows %d", info->path[0], info->classes,
                         j->model[0], j->weights.classes);
    }
    if (!info->label || !j->weights.class_names[0]) {
        return FLIM_OK;
    }
    FLIM_TRY_DONE(flim_json_parse(j->weights.class_names, strlen(j->weights.class_names), j->model[0], &names, err));
    ours = flim_json_array();
    for (int k = 0; k < info->classes; k++) {
        flim_json_add_string(ours, info->class_name[k]);
    }
    for (int k = 0; k < j->weights.classes; k++) {
        of_model += is_named(flim_json_string(flim_json_at(names, (size_t)k)), k);
        of_data += k < info->classes && is_named(info->class_name[k], k);
    }
    for (int k = 0; k < info->classes && of_model && of_data; k++) {
        const char *name = flim_json_string(flim_json_at(names, (size_t)k));
        const char *own = flim_json_string(flim_json_at(ours, (size_t)k));
        if (name && own && strcmp(name, own) != 0) {
            FLIM_TRY_DONE(flim_fail(err, FLIM_ERROR_DATA, "class %d is '%s' in %s and '%s' in %s", k, info->class_name[k],
                                    info->path[0], name, j->model[0]));
        }
    }
    if ((of_model > 0) != (of_data > 0)) {
        flim_log_line(&j->hooks->log, FLIM_LOG_WARNING,
                      "%s names no classes, %s does: label 0 is taken for '%s', and so on in that order",
                      of_model ? info->path[0] : j->model[0], of_model ? j->model[0] : info->path[0],
                      of_model ? flim_json_string(flim_json_at(names, 0)) : info->class_name[0]);
    }
done:
    flim_json_free(names);
    flim_json_free(ours);
    return status;
}

static flim_status open_data(job *j, flim_error *err)
{
    const flim_predict_request *r = j->request;
    const flim_dataset_options options = {.axes = r->axes, .mask_counts = j->mask_counts, .log = &j->hooks->log};
    FLIM_TRY(flim_dataset_open(r->data, r->n_data, &options, &j->dataset, err));
    const flim_dataset_info *info = j->info = flim_dataset_get_info(j->dataset);
    const flim_weights_info *w = &j->weights;
    if (w->t && (w->t != info->t || w->h != info->h || w->w != info->w)) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s has cells of %d x %d x %d, %s was trained on %d x %d x %d", info->path[0],
                         info->t, info->h, info->w, j->model[0], w->t, w->h, w->w);
    }
    char sha256[65];
    flim_dataset_sha256(j->dataset, sha256);
    if (j->trained_on[0] && strcmp(j->trained_on, sha256) == 0) {
        flim_log_line(&j->hooks->log, FLIM_LOG_WARNING,
                      "%s has the labels, groups and names of the data that %s was trained on: if it is those data, what "
                      "follows is no test score (fold_metrics %s shows those)",
                      info->path[0], r->model, r->model);
    }
    return check_classes(j, err);
}

static flim_status prepare(job *j, flim_error *err)
{
    const flim_predict_request *r = j->request;
    const flim_dataset_info *info = j->info;
    flim_trainer *t = &j->trainer;
    FLIM_TRY(flim_trainer_create(r->device, r->precision, &j->hooks->log, t, err));
    FLIM_TRY(flim_network_build(&t->net, j->weights.width, j->weights.classes, info->t, info->h, info->w, err));
    const flim_program_options program = {
        .precision = t->precision, .eval_batch = r->batch, .benchmark = true, .log = &j->hooks->log};
    const flim_loader_options loader = {.workers = (int)r->workers,
                                        .prefetch = (int)r->prefetch,
                                        .batch = r->batch,
                                        .device = t->device,
                                        .log = &j->hooks->log};
    FLIM_TRY(flim_trainer_compile(t, &program, err));
    FLIM_TRY(flim_trainer_allocate(t, j->dataset, &loader, err));
    FLIM_TRY(flim_ensemble_create(t, j->weights.classes, info->n, &j->ensemble, err));
    j->cells = flim_alloc((size_t)info->n, sizeof *j->cells, err);
    for (int64_t i = 0; j->cells && i < info->n; i++) {
        j->cells[i] = i;
    }
    return j->cells ? FLIM_OK : FLIM_ERROR_MEMORY;
}

/* ---- passes ---- */

static flim_status run_model(job *j, int m, flim_error *err)
{
    const flim_evaluation evaluation = {
        .hooks = j->hooks,
        .at = {.phase = FLIM_PHASE_TEST, .fold = m + 1, .folds = j->n_models, .epoch = 1, .epochs = 1},
        .tta = j->tta};
    FLIM_TRY(flim_ensemble_load(&j->ensemble, &j->trainer, j->model[m], err));
    return flim_ensemble_add(&j->ensemble, &j->trainer, &evaluation, j->cells, err);
}

static void release(job *j)
{
    flim_ensemble_free(&j->ensemble);
    flim_trainer_destroy(&j->trainer);
    flim_dataset_close(j->dataset);
    flim_free(j->model);
    flim_free(j->cells);
}

static void log_result(const job *j)
{
    char decided[48] = "";
    if (j->weights.classes == 2) {
        snprintf(decided, sizeof decided, ", threshold %.4f", j->threshold);
    } else if (!isnan(j->request->threshold)) {
        flim_log_line(&j->hooks->log, FLIM_LOG_WARNING,
                      "the threshold is not used: with %d classes the most probable one is predicted", j->weights.classes);
    }
    flim_log_line(&j->hooks->log, FLIM_LOG_INFO, "%" PRId64 " cells, %d model%s%s%s", j->info->n, j->n_models,
                  j->n_models == 1 ? "" : "s", decided, j->tta ? ", logits averaged over the symmetries" : "");
}

flim_status flim_predict(const flim_predict_request *request, const flim_train_hooks *hooks, flim_predictions *out,
                         flim_metrics *metrics, flim_error *err)
{
    job j = {.request = request, .hooks = hooks, .tta = request->tta};
    const float *logits; /* (n,K') */
    flim_status status = FLIM_OK;
    *out = (flim_predictions){0};
    FLIM_TRY_DONE(find_models(&j, err));
    FLIM_TRY_DONE(open_data(&j, err));
    FLIM_TRY_DONE(prepare(&j, err));
    for (int m = 0; m < j.n_models; m++) {
        FLIM_TRY_DONE(run_model(&j, m, err));
    }
    if (j.n_models > 1) { /* one model keeps its own logits, which saturate later */
        flim_ensemble_mean(&j.ensemble);
    }
    logits = j.ensemble.logits;
    FLIM_TRY_DONE(flim_predictions_of(j.info, j.weights.classes, j.cells, j.info->n, logits, j.threshold, out, err));
    if (metrics) {
        FLIM_TRY_DONE(flim_metrics_compute(j.info->label ? j.info->n : 0, j.weights.classes, j.info->label, logits,
                                           j.threshold, metrics, err));
    }
    log_result(&j);
done:
    if (status != FLIM_OK) {
        flim_predictions_free(out);
    }
    release(&j);
    return status;
}
