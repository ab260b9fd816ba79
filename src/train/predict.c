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
    char trained_on[65]; /* SHA-256 of the run's data; "" where it is not known */
    flim_weights_info weights; /* of the first model */
    flim_device *device;
    flim_precision precision;
    flim_dataset *dataset;
    const flim_dataset_info *info;
    flim_network net;
    flim_program *program;
    flim_loader *loader;
    float *parameter, *statistic; /* (P), (S) */
    float *logits; /* (n,K') of one pass */
    double *one, *sum; /* (n,K) probabilities of one pass, and of all */
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
    flim_status status = flim_splits_read(path, NULL, &splits, err);
    if (status == FLIM_OK) {
        memcpy(j->trained_on, splits.sha256, sizeof j->trained_on);
        if (j->n_models < splits.n_folds) {
            flim_log_line(&j->hooks->log, FLIM_LOG_WARNING, "%s: %d of its %d folds are done; only those are averaged",
                          j->request->model, j->n_models, splits.n_folds);
        }
    }
    flim_splits_free(&splits);
    return status;
}

/* All finished folds of a run folder, their mean threshold, and how the run prepared its counts. */
static flim_status find_folds(job *j, flim_error *err)
{
    char path[PATH_BYTES];
    const char *folder = j->request->model;
    double sum = 0, threshold = 0.5;
    flim_status status = FLIM_OK;
    for (int k = 0; k < MAX_MODELS && status == FLIM_OK; k++) {
        if (!flim_fold_is_done(folder, k)) {
            continue;
        }
        snprintf(path, sizeof path, "%s/fold_%d/best.safetensors", folder, k);
        status = add_model(j, path, err);
        if (status == FLIM_OK) {
            status = flim_fold_threshold(folder, k, &threshold, err);
            sum += threshold;
        }
    }
    if (status == FLIM_OK && j->n_models == 0) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s: no finished fold (fold_K/DONE) to predict with", folder);
    }
    flim_settings settings;
    if (status == FLIM_OK) {
        status = read_splits(j, err);
    }
    if (status == FLIM_OK) {
        j->threshold = sum / j->n_models;
        status = flim_settings_init(&settings, err);
    }
    if (status == FLIM_OK) {
        snprintf(path, sizeof path, "%s/config.yaml", folder);
        status = flim_settings_read(&settings, path, err);
        j->mask_counts = settings.mask_counts;
        flim_settings_free(&settings);
    }
    return status;
}

static flim_status find_models(job *j, flim_error *err)
{
    char config[PATH_BYTES];
    j->threshold = 0.5;
    snprintf(config, sizeof config, "%s/config.yaml", j->request->model);
    flim_status status = flim_file_exists(config) ? find_folds(j, err) : add_model(j, j->request->model, err);
    if (!isnan(j->request->threshold)) {
        j->threshold = j->request->threshold;
    }
    if (status == FLIM_OK) {
        status = flim_weights_probe(j->model[0], &j->weights, err);
    }
    j->mask_counts = j->mask_counts || j->weights.mask_counts;
    return status;
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
    status = flim_json_parse(j->weights.class_names, strlen(j->weights.class_names), j->model[0], &names, err);
    ours = flim_json_array();
    for (int k = 0; k < info->classes; k++) {
        flim_json_add_string(ours, info->class_name[k]);
    }
    for (int k = 0; k < j->weights.classes && status == FLIM_OK; k++) {
        of_model += is_named(flim_json_string(flim_json_at(names, (size_t)k)), k);
        of_data += k < info->classes && is_named(info->class_name[k], k);
    }
    for (int k = 0; k < info->classes && of_model && of_data && status == FLIM_OK; k++) {
        const char *name = flim_json_string(flim_json_at(names, (size_t)k));
        const char *own = flim_json_string(flim_json_at(ours, (size_t)k));
        if (name && own && strcmp(name, own) != 0) {
            status = flim_fail(err, FLIM_ERROR_DATA, "class %d is '%s' in %s and '%s' in %s", k, info->class_name[k],
                               info->path[0], name, j->model[0]);
        }
    }
    if (status == FLIM_OK && (of_model > 0) != (of_data > 0)) {
        flim_log_line(&j->hooks->log, FLIM_LOG_WARNING,
                      "%s names no classes, %s does: label 0 is taken for '%s', and so on in that order",
                      of_model ? info->path[0] : j->model[0], of_model ? j->model[0] : info->path[0],
                      of_model ? flim_json_string(flim_json_at(names, 0)) : info->class_name[0]);
    }
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
                      "%s has the labels, groups and names of the data that %s was trained on: where it is those data, what "
                      "follows is no test score (fold_metrics %s shows those)",
                      info->path[0], r->model, r->model);
    }
    return check_classes(j, err);
}

static flim_status compile(job *j, flim_error *err)
{
    const flim_predict_request *r = j->request;
    flim_status status = flim_device_open(r->device, &j->hooks->log, &j->device, err);
    if (status == FLIM_OK) {
        j->precision = r->precision == FLIM_PRECISION_AUTO ? flim_device_get_info(j->device)->auto_precision : r->precision;
        status = flim_network_build(&j->net, j->weights.width, j->weights.classes, j->info->t, j->info->h, j->info->w, err);
    }
    if (status != FLIM_OK) {
        return status;
    }
    const flim_program_options program = {
        .precision = j->precision, .eval_batch = r->batch, .benchmark = true, .log = &j->hooks->log};
    const flim_loader_options loader = {.workers = (int)r->workers,
                                        .prefetch = (int)r->prefetch,
                                        .batch = r->batch,
                                        .device = j->device,
                                        .log = &j->hooks->log};
    FLIM_TRY(flim_program_compile(j->device, &j->net, &program, &j->program, err));
    FLIM_TRY(flim_program_allocate(j->program, err));
    return flim_loader_create(j->dataset, &loader, &j->loader, err);
}

/* ---- passes ---- */

static flim_status allocate(job *j, flim_error *err)
{
    size_t n = (size_t)j->info->n, k = (size_t)j->weights.classes;
    j->parameter = flim_alloc((size_t)j->net.parameters, sizeof(float), err);
    j->statistic = flim_alloc((size_t)j->net.statistics, sizeof(float), err);
    j->logits = flim_alloc(n * (size_t)j->net.head[0].outputs, sizeof(float), err);
    j->one = flim_alloc(n * k, sizeof(double), err);
    j->sum = flim_alloc(n * k, sizeof(double), err);
    j->cells = flim_alloc(n, sizeof *j->cells, err);
    if (!j->parameter || !j->statistic || !j->logits || !j->one || !j->sum || !j->cells) {
        return FLIM_ERROR_MEMORY;
    }
    for (size_t i = 0; i < n; i++) {
        j->cells[i] = (int64_t)i;
    }
    return FLIM_OK;
}

static flim_status run_model(job *j, int m, flim_error *err)
{
    const int64_t n = j->info->n;
    const int symmetries = !j->request->flips ? 1 : j->info->h == j->info->w ? 8 : 4;
    flim_evaluation evaluation = {
        .program = j->program,
        .loader = j->loader,
        .outputs = j->net.head[0].outputs,
        .batch = j->request->batch,
        .hooks = j->hooks,
        .at = {.phase = FLIM_PHASE_TEST, .fold = m + 1, .folds = j->n_models, .epoch = 1, .epochs = 1}};
    FLIM_TRY(flim_weights_read(j->model[m], &j->net, j->parameter, j->statistic, err));
    FLIM_TRY(flim_program_write(j->program, FLIM_STATE_PARAMETERS, j->parameter, err));
    FLIM_TRY(flim_program_write(j->program, FLIM_STATE_STATISTICS, j->statistic, err));
    for (int k = 0; k < symmetries; k++) {
        if (j->request->flips) {
            evaluation.transform = (flim_transform){.n = 1, .step = {{FLIM_TRANSFORM_DIHEDRAL, 1, k, k}}};
        }
        FLIM_TRY(flim_evaluate(&evaluation, j->cells, n, j->logits, err));
        flim_probabilities(n, j->weights.classes, j->logits, j->one);
        for (int64_t i = 0; i < n * j->weights.classes; i++) {
            j->sum[i] += j->one[i] / symmetries;
        }
    }
    return FLIM_OK;
}

static void release(job *j)
{
    flim_loader_destroy(j->loader);
    flim_program_destroy(j->program);
    flim_dataset_close(j->dataset);
    flim_device_close(j->device);
    flim_free(j->model);
    flim_free(j->parameter);
    flim_free(j->statistic);
    flim_free(j->logits);
    flim_free(j->one);
    flim_free(j->sum);
    flim_free(j->cells);
}

static flim_status measure(const job *j, flim_metrics *metrics, flim_error *err)
{
    if (!j->info->label) {
        return flim_metrics_compute(0, j->weights.classes, NULL, NULL, j->threshold, metrics, err);
    }
    return flim_metrics_compute(j->info->n, j->weights.classes, j->info->label, j->logits, j->threshold, metrics, err);
}

flim_status flim_predict(const flim_predict_request *request, const flim_train_hooks *hooks, flim_predictions *out,
                         flim_metrics *metrics, flim_error *err)
{
    job j = {.request = request, .hooks = hooks};
    *out = (flim_predictions){0};
    flim_status status = find_models(&j, err);
    if (status == FLIM_OK) {
        status = open_data(&j, err);
    }
    if (status == FLIM_OK) {
        status = compile(&j, err);
    }
    if (status == FLIM_OK) {
        status = allocate(&j, err);
    }
    for (int m = 0; m < j.n_models && status == FLIM_OK; m++) {
        status = run_model(&j, m, err);
    }
    if (status == FLIM_OK) {
        /* One model seen once keeps its own logits, which saturate later than probabilities do. */
        if (j.n_models > 1 || request->flips) {
            flim_ensemble_logits(j.info->n, j.weights.classes, j.sum, j.n_models, j.logits);
        }
        status = flim_predictions_of(j.info, j.weights.classes, j.cells, j.info->n, j.logits, j.threshold, out, err);
    }
    if (status == FLIM_OK && metrics) {
        status = measure(&j, metrics, err);
    }
    if (status == FLIM_OK) {
        char decided[48] = "";
        if (j.weights.classes == 2) {
            snprintf(decided, sizeof decided, ", threshold %.4f", j.threshold);
        } else if (!isnan(request->threshold)) {
            flim_log_line(&hooks->log, FLIM_LOG_WARNING,
                          "the threshold is not used: with %d classes the most probable one is predicted", j.weights.classes);
        }
        flim_log_line(&hooks->log, FLIM_LOG_INFO, "%" PRId64 " cells, %d model%s%s%s", out->n, j.n_models,
                      j.n_models == 1 ? "" : "s", decided, request->flips ? ", averaged over flips" : "");
    } else {
        flim_predictions_free(out);
    }
    release(&j);
    return status;
}
