#include "flim/predict.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/try.h"
#include "core/text.h"
#include "train/evaluation.h"
#include "train/explain.h"
#include "train/models.h"

/* One prediction at work; all of it is released by `release`. */
typedef struct job {
    const flim_predict_request *request;
    const flim_train_hooks *hooks;
    flim_models models;
    double threshold;
    bool tta; /* asked for, or as the run evaluated itself: its thresholds are of such scores */
    bool looked_up; /* which cells the models have seen */
    flim_dataset *dataset;
    const flim_dataset_info *info;
    flim_trainer trainer;
    flim_ensemble ensemble;
    int64_t *cells; /* (n) 0, 1, 2, ... */
} job;

/* ---- data ---- */

/* Which cells the models have seen: every cell is read once more, unless it stays in memory. */
static flim_status look_up_cells(job *j, flim_error *err)
{
    const flim_dataset_info *info = j->info;
    const flim_log *log = &j->hooks->log;
    int64_t bad = 0;
    if (!j->models.any_cells_known || !j->request->scan) {
        return FLIM_OK;
    }
    flim_cell_summary *summary = flim_alloc((size_t)info->n, sizeof *summary, err); /* (n) */
    uint64_t *hash = flim_alloc((size_t)info->n, sizeof *hash, err); /* (n) */
    flim_status status = FLIM_OK;
    FLIM_TRY_DONE(summary && hash ? FLIM_OK : FLIM_ERROR_MEMORY);
    FLIM_TRY_DONE(flim_dataset_scan(j->dataset, (int)j->request->workers, j->hooks->stop, log, summary, NULL, &bad, err));
    for (int64_t i = 0; i < info->n; i++) {
        hash[i] = summary[i].hash;
    }
    flim_models_warn_of_seen(&j->models, info, hash, log);
    j->looked_up = true;
done:
    flim_free(summary);
    flim_free(hash);
    return status;
}

static flim_status open_data(job *j, flim_error *err)
{
    const flim_predict_request *r = j->request;
    const flim_dataset_options options = {.axes = r->axes,
                                          .mask_counts = j->models.mask_counts,
                                          .allow_external = r->allow_external,
                                          .stop = j->hooks->stop,
                                          .log = &j->hooks->log};
    FLIM_TRY(flim_dataset_open(r->data, r->n_data, &options, &j->dataset, err));
    const flim_dataset_info *info = j->info = flim_dataset_get_info(j->dataset);
    char sha256[65];
    FLIM_TRY(flim_models_check_data(&j->models, info, r->any_mask, &j->hooks->log, err));
    FLIM_TRY(look_up_cells(j, err));
    flim_dataset_sha256(j->dataset, sha256);
    if (!j->looked_up && j->models.trained_on[0] && strcmp(j->models.trained_on, sha256) == 0) {
        flim_log_line(&j->hooks->log, FLIM_LOG_WARNING,
                      "%s has the labels, groups and names of the data that %s was trained on: if these are the training "
                      "cells, the metrics below are not a test result (fold_metrics %s shows the test scores)",
                      info->path[0], j->models.run, j->models.run);
    }
    return FLIM_OK;
}

/* An encoder gets a head of two classes, whose outputs nobody sees. */
static bool is_encoder(const job *j)
{
    return j->models.weights.classes == 0;
}

static int network_classes(const job *j)
{
    return is_encoder(j) ? 2 : j->models.weights.classes;
}

static flim_status prepare(job *j, flim_error *err)
{
    const flim_predict_request *r = j->request;
    const flim_dataset_info *info = j->info;
    flim_trainer *t = &j->trainer;
    FLIM_TRY(flim_trainer_create(r->device, r->precision, &j->hooks->log, t, err));
    FLIM_TRY(flim_network_build_sized(&t->net, (flim_model_size){j->models.weights.width, j->models.weights.depth},
                                      network_classes(j), info->t, info->h, info->w, err));
    const flim_program_options program = {
        .precision = t->precision, .eval_batch = r->batch, .benchmark = true, .log = &j->hooks->log};
    const flim_loader_options loader = {.workers = (int)r->workers,
                                        .prefetch = (int)r->prefetch,
                                        .batch = r->batch,
                                        .device = t->device,
                                        .log = &j->hooks->log};
    FLIM_TRY(flim_trainer_compile(t, &program, err));
    FLIM_TRY(flim_trainer_allocate(t, j->dataset, &loader, err));
    FLIM_TRY(flim_ensemble_create(t, network_classes(j), info->n, &j->ensemble, err));
    j->cells = flim_alloc((size_t)info->n, sizeof *j->cells, err);
    for (int64_t i = 0; j->cells && i < info->n; i++) {
        j->cells[i] = i;
    }
    return j->cells ? FLIM_OK : FLIM_ERROR_MEMORY;
}

/* Zeroed values that say which data and weights they are of. */
static flim_status begin_embeddings(job *j, flim_error *err)
{
    flim_embeddings *e = j->request->embeddings;
    if (!e) {
        return FLIM_OK;
    }
    FLIM_TRY(flim_embeddings_create(j->models.n, j->trainer.net.head[0].in_channels, j->info, e, err));
    flim_dataset_sha256(j->dataset, e->data_sha256);
    for (int m = 0; m < e->models; m++) {
        const flim_provenance *about = &j->models.model[m].about;
        flim_weights_info info;
        FLIM_TRY(flim_weights_probe(j->models.model[m].path, true, &info, err));
        memcpy(e->model[m].weights_sha256, info.sha256, sizeof info.sha256);
        if (about->is_known && !about->pretraining) {
            e->model[m].fold = about->fold;
            memcpy(e->model[m].splits_sha256, about->splits_sha256, sizeof about->splits_sha256);
        }
    }
    return FLIM_OK;
}

/* The cells to explain: each must be there, and once. */
static flim_status choose_cells(const job *j, flim_explanation *e, flim_error *err)
{
    const flim_predict_request *r = j->request;
    uint8_t *seen = flim_alloc((size_t)j->info->n, 1, err); /* (n) */
    flim_status status = FLIM_OK;
    FLIM_TRY_DONE(seen ? FLIM_OK : FLIM_ERROR_MEMORY);
    for (int64_t i = 0; i < e->n; i++) {
        const int64_t cell = r->n_explain_cells ? r->explain_cell[i] : i;
        if (cell < 0 || cell >= j->info->n || seen[cell]) {
            status = flim_fail(err, FLIM_ERROR_USAGE, "cell %" PRId64 " to explain: %s", cell,
                               cell >= 0 && cell < j->info->n ? "named twice" : "the data has no cell of this number");
            goto done;
        }
        seen[cell] = 1;
        e->cell[i] = cell;
    }
done:
    flim_free(seen);
    return status;
}

static flim_status begin_explanation(job *j, flim_error *err)
{
    const flim_predict_request *r = j->request;
    flim_explanation *e = r->explanation;
    if (!e) {
        return FLIM_OK;
    }
    FLIM_TRY(flim_explanation_create(j->models.n, j->trainer.net.head[0].outputs,
                                     r->n_explain_cells ? r->n_explain_cells : j->info->n, j->info->t, j->info->h, j->info->w,
                                     r->explain_bins, r->explain_pixels, e, err));
    flim_dataset_sha256(j->dataset, e->data_sha256);
    for (int m = 0; m < j->models.n; m++) {
        const flim_provenance *about = &j->models.model[m].about;
        e->fold[m] = about->is_known ? about->fold : -1;
        memcpy(e->splits[m], about->splits_sha256, sizeof e->splits[m]);
    }
    return choose_cells(j, e, err);
}

/* ---- passes ---- */

/* The first cell whose output is not finite: a class of it would be no prediction. */
static flim_status check_outputs(const job *j, const char *path, flim_error *err)
{
    const int64_t outputs = j->trainer.net.head[0].outputs;
    for (int64_t i = 0; i < j->info->n * outputs; i++) {
        if (!isfinite(j->ensemble.logits[i])) {
            const int64_t cell = i / outputs;
            return flim_fail(err, FLIM_ERROR_NONFINITE,
                             "the network's output for cell %" PRId64
                             "%s%s%s is %g, with the weights of %s: check the cell with flim_info --scan; if others fail "
                             "too, the weights are extreme. Nothing was written",
                             cell, j->info->name ? " (" : "", j->info->name ? j->info->name[cell] : "",
                             j->info->name ? ")" : "", (double)j->ensemble.logits[i], path);
        }
    }
    return FLIM_OK;
}

static flim_status load_model(job *j, int m, flim_error *err)
{
    flim_ensemble *e = &j->ensemble;
    flim_trainer *t = &j->trainer;
    const char *path = j->models.model[m].path;
    if (!is_encoder(j)) {
        return flim_ensemble_load(e, t, path, err);
    }
    flim_network_init(&t->net, 0, 0, e->parameter, e->statistic);
    FLIM_TRY(flim_weights_read_encoder(path, &t->net, e->parameter, e->statistic, err));
    return flim_trainer_load(t, e->parameter, e->statistic, err);
}

static flim_status run_model(job *j, int m, flim_error *err)
{
    const flim_embeddings *embeddings = j->request->embeddings;
    const flim_evaluation evaluation = {
        .hooks = j->hooks,
        .at = {.phase = FLIM_PHASE_PREDICT, .fold = m, .folds = j->models.n, .epoch = 1, .epochs = 1},
        .tta = j->tta,
        .pooled = embeddings ? embeddings->value + m * embeddings->n * embeddings->width : NULL};
    FLIM_TRY(load_model(j, m, err));
    FLIM_TRY(flim_ensemble_add(&j->ensemble, &j->trainer, &evaluation, j->cells, err));
    FLIM_TRY(check_outputs(j, j->models.model[m].path, err));
    flim_explanation *e = j->request->explanation;
    return e ? flim_explain_model(&j->trainer, j->dataset, j->hooks, m, e, err) : FLIM_OK;
}

static void release(job *j)
{
    flim_ensemble_free(&j->ensemble);
    flim_trainer_destroy(&j->trainer);
    flim_dataset_close(j->dataset);
    flim_models_free(&j->models);
    flim_free(j->cells);
}

static void log_result(const job *j)
{
    char decided[48] = "";
    if (j->models.weights.classes == 2) {
        snprintf(decided, sizeof decided, ", threshold %.4f", j->threshold);
    } else if (!isnan(j->request->threshold)) {
        flim_log_line(&j->hooks->log, FLIM_LOG_WARNING,
                      "the threshold is not used: with %d classes the most probable class is predicted",
                      j->models.weights.classes);
    }
    flim_log_line(&j->hooks->log, FLIM_LOG_INFO, "%" PRId64 " cell%s, %d model%s%s%s", j->info->n, flim_s(j->info->n),
                  j->models.n, flim_s(j->models.n), decided, j->tta ? ", logits averaged over the symmetries" : "");
}

flim_status flim_predict(const flim_predict_request *request, const flim_train_hooks *hooks, flim_predictions *out,
                         flim_metrics *metrics, flim_error *err)
{
    job j = {.request = request, .hooks = hooks};
    const float *logits; /* (n,K') */
    flim_status status = FLIM_OK;
    *out = (flim_predictions){0};
    if (request->explanation) {
        *request->explanation = (flim_explanation){0};
    }
    if (request->embeddings) {
        *request->embeddings = (flim_embeddings){0};
    }
    FLIM_TRY_DONE(
        flim_models_find(request->model, request->n_models, request->embeddings != NULL, &hooks->log, &j.models, err));
    j.threshold = isnan(request->threshold) ? j.models.threshold : request->threshold;
    j.tta = request->tta || j.models.tta;
    if (is_encoder(&j) && request->explanation) {
        FLIM_TRY_DONE(flim_fail(err, FLIM_ERROR_USAGE, "%s is an encoder without a head: it has no logits to explain",
                                j.models.model[0].path));
    }
    FLIM_TRY_DONE(open_data(&j, err));
    FLIM_TRY_DONE(prepare(&j, err));
    FLIM_TRY_DONE(begin_embeddings(&j, err));
    FLIM_TRY_DONE(begin_explanation(&j, err));
    for (int m = 0; m < j.models.n; m++) {
        FLIM_TRY_DONE(run_model(&j, m, err));
    }
    if (is_encoder(&j)) {
        flim_log_line(&hooks->log, FLIM_LOG_INFO, "%" PRId64 " cells, %d encoder%s without a head: no classes are predicted",
                      j.info->n, j.models.n, j.models.n == 1 ? "" : "s");
        goto done;
    }
    if (j.models.n > 1) { /* one model keeps its own logits, which saturate later */
        flim_ensemble_mean(&j.ensemble);
    }
    logits = j.ensemble.logits;
    FLIM_TRY_DONE(flim_predictions_of(j.info, j.models.weights.classes, j.cells, j.info->n, logits, j.threshold, out, err));
    if (metrics) {
        FLIM_TRY_DONE(flim_metrics_compute(j.info->label ? j.info->n : 0, j.models.weights.classes, j.info->label, logits,
                                           j.threshold, metrics, err));
    }
    log_result(&j);
done:
    if (status != FLIM_OK) {
        flim_predictions_free(out);
    }
    if (status != FLIM_OK && request->embeddings) {
        flim_embeddings_free(request->embeddings);
    }
    if (status != FLIM_OK && request->explanation) {
        flim_explanation_free(request->explanation);
    }
    release(&j);
    return status;
}
