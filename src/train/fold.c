/* One fold: the epochs, the choice of the best one on the inner validation part, and the evaluation.
 *
 * The test part is read once, after training has ended and epoch and threshold are chosen: it chooses nothing.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/clock.h"
#include "core/file.h"
#include "core/try.h"
#include "flim/weights.h"
#include "results/fold_result.h"
#include "train/run.h"

/* A fold at work. */
typedef struct fold {
    flim_run *run;
    int k; /* 0-based */
    const flim_fold *part;
    flim_fold_state state;
    flim_monitor monitor; /* val_loss where the validation part lacks a class */
    float *val_logits; /* (n_val,K') */
    char folder[FLIM_PATH_MAX], checkpoint[FLIM_PATH_MAX];
} fold;

static int64_t batches_of(int64_t cells, int64_t batch)
{
    return (cells + batch - 1) / batch;
}

/* torch.optim.lr_scheduler.CosineAnnealingLR(T_max=epochs, eta_min=1e-6), stepped once an epoch. */
static double learning_rate(const flim_run *run, int64_t epoch)
{
    const double eta_min = 1e-6, pi = 3.14159265358979323846;
    return eta_min + (run->lr - eta_min) * (1.0 + cos(pi * (double)epoch / (double)run->settings->epochs)) / 2.0;
}

/* ---- state to and from the program ---- */

static flim_status put_state(fold *f, flim_error *err)
{
    flim_program *program = f->run->program;
    flim_fold_state *s = &f->state;
    FLIM_TRY(flim_program_write(program, FLIM_STATE_PARAMETERS, s->parameter, err));
    FLIM_TRY(flim_program_write(program, FLIM_STATE_STATISTICS, s->statistic, err));
    FLIM_TRY(flim_program_write(program, FLIM_STATE_MOMENT1, s->moment1, err));
    FLIM_TRY(flim_program_write(program, FLIM_STATE_MOMENT2, s->moment2, err));
    FLIM_TRY(flim_program_set_counters(program, &s->counters, err));
    return flim_program_set_totals(program, &s->totals, err);
}

static flim_status get_state(fold *f, flim_error *err)
{
    flim_program *program = f->run->program;
    flim_fold_state *s = &f->state;
    FLIM_TRY(flim_program_read(program, FLIM_STATE_PARAMETERS, s->parameter, err));
    FLIM_TRY(flim_program_read(program, FLIM_STATE_STATISTICS, s->statistic, err));
    FLIM_TRY(flim_program_read(program, FLIM_STATE_MOMENT1, s->moment1, err));
    FLIM_TRY(flim_program_read(program, FLIM_STATE_MOMENT2, s->moment2, err));
    return flim_program_get_counters(program, &s->counters, err);
}

static flim_status save(fold *f, flim_error *err)
{
    flim_status status = get_state(f, err);
    return status == FLIM_OK
               ? flim_checkpoint_submit(f->run->checkpoints, &f->state, f->checkpoint, f->run->checkpoint_text, err)
               : status;
}

/* Weights to start from: --init-weights or Kaiming, both with fresh moments. */
static void initialise(fold *f)
{
    const flim_run *run = f->run;
    flim_fold_state *s = &f->state;
    s->counters.loss_scale = run->precision == FLIM_PRECISION_FP16 ? 65536.0 : 1.0;
    s->totals.nonfinite_call = -1;
    if (run->initial_parameter) {
        memcpy(s->parameter, run->initial_parameter, (size_t)s->parameters * sizeof(float));
        memcpy(s->statistic, run->initial_statistic, (size_t)s->statistics * sizeof(float));
    } else {
        flim_network_init(&run->net, run->settings->seed, (uint32_t)f->k, s->parameter, s->statistic);
    }
}

/* ---- one epoch of training ---- */

static double sum_of_weights(const flim_draw *draws, int64_t from, int64_t to)
{
    double sum = 0;
    for (int64_t i = from; i < to; i++) {
        sum += (double)draws[i].weight;
    }
    return sum;
}

/* Training batch number `call` (0-based) of the epoch was not finite: which cells were in it.  A gradient that is not finite is
 * seen at the end of its window of accumulated batches, so the whole window is named. */
static flim_status nonfinite(const fold *f, const flim_draw *draws, int64_t n_draws, int64_t call, const char *what,
                             flim_error *err)
{
    const flim_settings *s = f->run->settings;
    char cells[512] = "", batches[64];
    size_t used = 0;
    const int64_t first = call / s->accumulate * s->accumulate, from = first * s->batch;
    const int64_t to = (call + 1) * s->batch < n_draws ? (call + 1) * s->batch : n_draws;
    int64_t named = from;
    for (; named < to && used < sizeof cells - 16; named++) {
        used += (size_t)snprintf(cells + used, sizeof cells - used, "%s%" PRIu32, named > from ? "," : "", draws[named].cell);
    }
    if (first < call) {
        snprintf(batches, sizeof batches, "batches %" PRId64 " to %" PRId64, first + 1, call + 1);
    } else {
        snprintf(batches, sizeof batches, "batch %" PRId64, call + 1);
    }
    return flim_fail(err, FLIM_ERROR_NONFINITE,
                     "fold %d: %s in epoch %" PRId64 ", %s (cells %s%s); look at these cells with flim_info --scan, or lower "
                     "--lr; its last checkpoint is kept",
                     f->k, what, f->state.epoch + 1, batches, cells, named < to ? ",..." : "");
}

/* The device's totals into *totals; FLIM_ERROR_NONFINITE where training must not go on. */
static flim_status look(const fold *f, const flim_draw *draws, int64_t n_draws, flim_totals *totals, flim_error *err)
{
    enum { MOST_SKIPPED = 24 }; /* in a row: 65536 halved to 1, and eight more at that */
    flim_program *program = f->run->program;
    flim_status status = flim_program_totals(program, false, totals, err);
    if (status == FLIM_OK && f->run->precision != FLIM_PRECISION_FP16) {
        return totals->nonfinite ? nonfinite(f, draws, n_draws, totals->nonfinite_call, "loss or gradient not finite", err)
                                 : FLIM_OK;
    }
    flim_counters counters = {0};
    if (status == FLIM_OK) {
        status = flim_program_get_counters(program, &counters, err);
    }
    if (status == FLIM_OK && counters.skipped_in_row >= MOST_SKIPPED) {
        char what[128];
        snprintf(what, sizeof what,
                 "gradients not finite in fp16 %" PRId64 " updates in a row, at a loss scale of %g by now,",
                 counters.skipped_in_row, counters.loss_scale);
        status = nonfinite(f, draws, n_draws, f->state.calls - 1, what, err);
    }
    return status;
}

static void show_progress(const fold *f, int64_t done, int64_t total, int64_t cells, double seconds,
                          const flim_totals *totals)
{
    const flim_train_hooks *hooks = f->run->hooks;
    flim_run_meter_look(f->run);
    if (hooks->progress) {
        const flim_progress at = {.phase = FLIM_PHASE_TRAIN,
                                  .device = &f->run->meter.now,
                                  .fold = f->k + 1,
                                  .folds = f->run->splits.n_folds,
                                  .epoch = f->state.epoch + 1,
                                  .epochs = f->run->settings->epochs,
                                  .done = done,
                                  .total = total,
                                  .cells = cells,
                                  .seconds = seconds,
                                  .loss = totals->weight > 0 ? totals->loss / totals->weight : NAN};
        hooks->progress(hooks->context, &at);
    }
}

/* The epoch in state, from its batch number state.calls on.  FLIM_INTERRUPTED leaves state at the batch it came to, or *lost =
 * true where that is inside a window of accumulated batches, and nothing is to be saved. */
static flim_status train_epoch(fold *f, flim_epoch_row *row, bool *lost, flim_error *err)
{
    enum { LOOK_EVERY = 50 }; /* updates between two looks at the totals: each waits for the device */
    const double patience = 5; /* seconds that a signal may wait for the end of a window */
    flim_run *run = f->run;
    const flim_settings *s = run->settings;
    const int64_t n = f->part->n_train, total = batches_of(n, s->batch);
    const flim_batch *batch = NULL, *held = NULL;
    flim_totals totals = f->state.totals;
    double begun = flim_seconds(), saved = begun, in_device = 0;
    flim_draw *draws = flim_alloc((size_t)n, sizeof *draws, err);
    if (!draws) {
        return FLIM_ERROR_MEMORY;
    }
    flim_status status = flim_sampler_draw(run->settings->sampler, &run->split_data, f->part->train, n, s->seed,
                                           (uint32_t)f->k, (uint32_t)f->state.epoch, draws, err);
    if (status != FLIM_OK) {
        goto done;
    }
    int64_t skip = f->state.calls * s->batch < n ? f->state.calls * s->batch : n;
    const flim_phase phase = {.draws = draws + skip,
                              .n_draws = n - skip,
                              .batch = s->batch,
                              .seed = s->seed,
                              .fold = (uint32_t)f->k,
                              .epoch = (uint32_t)f->state.epoch};
    flim_step step = {.learning_rate = (float)learning_rate(run, f->state.epoch),
                      .weight_decay = (float)s->weight_decay,
                      .beta1 = 0.9f,
                      .beta2 = 0.999f,
                      .epsilon = 1e-8f,
                      .clip = (float)s->clip,
                      .label_smoothing = (float)s->label_smoothing,
                      .dropout = (float)s->dropout};
    flim_run_meter_begin(run);
    status = flim_loader_begin(run->loader, &phase, err);
    while (status == FLIM_OK) {
        status = flim_loader_next(run->loader, &batch, err);
        if (status != FLIM_OK || !batch) {
            break;
        }
        /* A window is `accumulate` batches; the last of an epoch may be shorter. */
        int64_t call = f->state.calls, window = call / s->accumulate * s->accumulate;
        int64_t window_end = window + s->accumulate < total ? window + s->accumulate : total;
        step.first = call == window;
        step.last = call + 1 == window_end;
        if (step.first) {
            int64_t end = window_end * s->batch < n ? window_end * s->batch : n;
            step.divisor = sum_of_weights(draws, window * s->batch, end);
        }
        double called = flim_seconds();
        status = flim_program_train(run->program, batch, &step, err);
        if (held) {
            flim_loader_release(run->loader, held);
        }
        held = batch;
        if (status != FLIM_OK) {
            break;
        }
        f->state.calls++;
        if (f->state.calls % (LOOK_EVERY * s->accumulate) == 0 || f->state.calls == total) {
            status = look(f, draws, n, &totals, err);
        }
        in_device += flim_seconds() - called;
        int64_t cells = f->state.calls * s->batch < n ? f->state.calls * s->batch : n;
        show_progress(f, f->state.calls, total, cells - skip, flim_seconds() - begun, &totals);
        if (status == FLIM_OK && step.last && s->checkpoint_minutes > 0 && f->state.calls < total &&
            flim_seconds() - saved >= 60 * s->checkpoint_minutes) {
            status = look(f, draws, n, &f->state.totals, err); /* what is not finite never becomes a checkpoint */
            status = status == FLIM_OK ? save(f, err) : status;
            saved = flim_seconds();
        }
        if (status == FLIM_OK && flim_run_stopped(run)) {
            const int64_t made = f->state.calls - skip / s->batch; /* calls of this process */
            const double left = (double)(window_end - f->state.calls) * (flim_seconds() - begun) / (double)made;
            if (step.last) {
                status = look(f, draws, n, &f->state.totals, err);
                status = status == FLIM_OK ? flim_fail(err, FLIM_INTERRUPTED, "interrupted") : status;
            } else if (left > patience) {
                *lost = true; /* half a window cannot be kept: its gradients are in no checkpoint */
                status = flim_fail(err, FLIM_INTERRUPTED, "interrupted");
            }
        }
    }
    flim_error ignored;
    double called = flim_seconds();
    flim_status read = flim_program_totals(run->program, false, &f->state.totals, status == FLIM_OK ? err : &ignored);
    in_device += flim_seconds() - called;
    if (held) {
        flim_loader_release(run->loader, held);
    }
    flim_loader_stats loaded;
    flim_loader_get_stats(run->loader, &loaded);
    flim_loader_cancel(run->loader);
    status = status == FLIM_OK ? read : status;
    if (status == FLIM_OK) {
        flim_counters counters;
        status = flim_program_get_counters(run->program, &counters, err);
        const flim_totals *t = &f->state.totals;
        double seconds = flim_seconds() - begun;
        int64_t batches = total - skip / s->batch;
        *row = (flim_epoch_row){.epoch = f->state.epoch + 1,
                                .learning_rate = learning_rate(run, f->state.epoch),
                                .train_loss = t->loss / t->weight,
                                .train_accuracy = (double)t->correct / (double)t->cells,
                                .val_loss = NAN,
                                .val_accuracy = NAN,
                                .val_balanced_accuracy = NAN,
                                .val_f1 = NAN,
                                .val_roc_auc = NAN,
                                .grad_norm = t->grad_norm,
                                .cells = t->cells,
                                .updates = t->updates,
                                .skipped = counters.skipped - f->state.skipped_before,
                                .seconds = seconds,
                                .iterations_per_second = (double)batches / seconds,
                                .cells_per_second = (double)(n - skip) / seconds,
                                .wait_share = loaded.wait_seconds / seconds,
                                .device_share = in_device / seconds,
                                .peak_bytes = flim_program_peak_bytes(run->program)};
        flim_run_meter_end(run, row);
    }
done:
    flim_free(draws);
    return status;
}

/* ---- validation and the choice of the epoch ---- */

static double monitored(const fold *f, const flim_epoch_row *row)
{
    switch (f->monitor) {
    case FLIM_MONITOR_ROC_AUC: return row->val_roc_auc;
    case FLIM_MONITOR_BALANCED_ACCURACY: return row->val_balanced_accuracy;
    case FLIM_MONITOR_F1: return row->val_f1;
    case FLIM_MONITOR_VAL_LOSS: break;
    }
    return -row->val_loss; /* larger is better for all */
}

static flim_status labels_of(const flim_run *run, const int64_t *part, int64_t n, int32_t **out, flim_error *err)
{
    *out = flim_alloc((size_t)n, sizeof **out, err); /* (n) */
    for (int64_t i = 0; *out && i < n; i++) {
        (*out)[i] = run->info->label[part[i]];
    }
    return *out ? FLIM_OK : FLIM_ERROR_MEMORY;
}

/* A network whose outputs are not finite has failed, whatever class its infinities would vote for. */
static flim_status check_outputs(const fold *f, const char *what, const int64_t *part, int64_t n, const float *logits,
                                 flim_error *err)
{
    const int outputs = f->run->net.head[0].outputs;
    for (int64_t i = 0; i < n * outputs; i++) {
        if (!isfinite(logits[i])) {
            return flim_fail(err, FLIM_ERROR_NONFINITE,
                             "fold %d: the network's output for cell %" PRId64 " of the %s part is not finite after epoch "
                             "%" PRId64 "; its last checkpoint is kept",
                             f->k, part[i / outputs], what, f->state.finished ? f->state.best_epoch + 1 : f->state.epoch + 1);
        }
    }
    return FLIM_OK;
}

static flim_status validate(fold *f, flim_epoch_row *row, flim_error *err)
{
    const flim_run *run = f->run;
    const int64_t n = f->part->n_val;
    int32_t *label = NULL;
    flim_metrics metrics;
    const flim_evaluation evaluation = flim_run_evaluation(run, FLIM_PHASE_VALIDATE, f->k, f->state.epoch);
    flim_status status = flim_evaluate(&evaluation, f->part->val, n, f->val_logits, err);
    if (status == FLIM_OK &&
        run->precision != FLIM_PRECISION_FP16) { /* there one epoch may overflow; it is not chosen then */
        status = check_outputs(f, "validation", f->part->val, n, f->val_logits, err);
    }
    if (status == FLIM_OK) {
        status = labels_of(run, f->part->val, n, &label, err);
    }
    if (status == FLIM_OK) {
        status = flim_metrics_compute(n, run->info->classes, label, f->val_logits, 0.5, &metrics, err);
    }
    if (status == FLIM_OK) {
        row->val_loss = flim_mean_loss(n, run->info->classes, label, f->val_logits);
        row->val_accuracy = metrics.value[FLIM_ACCURACY];
        row->val_balanced_accuracy = metrics.value[FLIM_BALANCED_ACCURACY];
        row->val_f1 = metrics.value[FLIM_F1];
        row->val_roc_auc = metrics.value[FLIM_ROC_AUC];
    }
    flim_free(label);
    return status;
}

static void keep_best(fold *f)
{
    flim_fold_state *s = &f->state;
    memcpy(s->best_parameter, s->parameter, (size_t)s->parameters * sizeof(float));
    memcpy(s->best_statistic, s->statistic, (size_t)s->statistics * sizeof(float));
    s->best_epoch = s->epoch;
}

static void epoch_line(const fold *f, const flim_epoch_row *r, bool best)
{
    const flim_run *run = f->run;
    char val[160] = "", memory[48] = "", gpu[96] = "", wait[64] = "", skipped[64] = "";
    if (f->part->n_val > 0) {
        char auc[24] = "n/a";
        if (isfinite(r->val_roc_auc)) {
            snprintf(auc, sizeof auc, "%.3f", r->val_roc_auc);
        }
        snprintf(val, sizeof val, " | val loss %.4f acc %.3f F1 %.3f AUC %s%s", r->val_loss, r->val_accuracy, r->val_f1, auc,
                 best ? " *" : "");
    }
    if (flim_device_get_info(run->device)->own_memory) {
        snprintf(memory, sizeof memory, ", %.2f GiB", (double)r->peak_bytes / 1073741824.0);
    }
    if (!isnan(r->device_busy)) {
        snprintf(gpu, sizeof gpu, ", GPU %.0f %% busy", 100 * r->device_busy);
    }
    if (!isnan(r->device_watts)) {
        size_t used = strlen(gpu);
        snprintf(gpu + used, sizeof gpu - used, ", %.0f W", r->device_watts);
    }
    if (!isnan(r->device_celsius)) {
        size_t used = strlen(gpu);
        snprintf(gpu + used, sizeof gpu - used, ", %.0f °C", r->device_celsius);
    }
    snprintf(wait, sizeof wait, ", waited for cells %.1f %%", 100 * r->wait_share);
    if (r->skipped > 0) {
        snprintf(skipped, sizeof skipped, ", %" PRId64 " updates skipped (fp16)", r->skipped);
    }
    flim_log_line(&run->log, FLIM_LOG_INFO,
                  "fold %d epoch %" PRId64 "/%" PRId64
                  " | lr %.2e | train loss %.4f acc %.3f%s | %.2f it/s %.1f cells/s%s%s%s%s",
                  f->k, r->epoch, run->settings->epochs, r->learning_rate, r->train_loss, r->train_accuracy, val,
                  r->iterations_per_second, r->cells_per_second, memory, gpu, wait, skipped);
}

/* Epochs until the last one or until patience runs out; a checkpoint after each. */
static flim_status train(fold *f, flim_error *err)
{
    flim_fold_state *s = &f->state;
    const flim_settings *settings = f->run->settings;
    while (!s->finished) {
        flim_epoch_row row;
        bool lost = false;
        const bool whole = s->calls == 0;
        const double begun = flim_seconds();
        flim_status status = train_epoch(f, &row, &lost, err);
        if (status == FLIM_OK && f->part->n_val > 0) {
            status = validate(f, &row, err);
        }
        if (status == FLIM_INTERRUPTED && lost) {
            flim_log_line(&f->run->log, FLIM_LOG_NOTE,
                          "fold %d: the end of %" PRId64 " accumulated batches was too far away; resuming begins at the last "
                          "checkpoint",
                          f->k, settings->accumulate);
            return status;
        }
        if (status == FLIM_INTERRUPTED) {
            flim_error saved = {0};
            status = save(f, &saved);
            status = status == FLIM_OK ? flim_checkpoint_flush(f->run->checkpoints, &saved) : status;
            return status == FLIM_OK ? FLIM_INTERRUPTED : flim_fail(err, status, "%s", saved.text);
        }
        if (status == FLIM_OK) {
            status = get_state(f, err);
        }
        if (status != FLIM_OK) {
            return status;
        }
        double value = f->part->n_val > 0 ? monitored(f, &row) : 0;
        value = isnan(value) ? -(double)INFINITY : value; /* an undefined metric never beats a defined one */
        bool best = f->part->n_val == 0 || s->best_epoch < 0 || value > s->best_value;
        if (best) {
            s->best_value = value;
            keep_best(f);
        }
        epoch_line(f, &row, best);
        flim_run_note_epoch(f->run, f->k, s->epoch, whole, flim_seconds() - begun);
        s->history[s->n_history++] = row;
        s->finished = s->epoch + 1 >= settings->epochs ||
                      (f->part->n_val > 0 && settings->patience > 0 && s->epoch - s->best_epoch >= settings->patience);
        s->epoch++;
        s->calls = 0;
        s->skipped_before = s->counters.skipped;
        s->totals = (flim_totals){.nonfinite_call = -1};
        status = flim_program_set_totals(f->run->program, &s->totals, err);
        if (status == FLIM_OK) {
            status = flim_checkpoint_submit(f->run->checkpoints, s, f->checkpoint, f->run->checkpoint_text, err);
        }
        if (status == FLIM_OK) {
            status = flim_run_write_history(f->folder, s, err);
        }
        if (status == FLIM_OK) {
            status = flim_train_log_check(&f->run->file_log, err);
        }
        if (status != FLIM_OK) {
            return status;
        }
    }
    return FLIM_OK;
}

/* ---- after training ---- */

static flim_status write_summary(const fold *f, double threshold, const char *selection, const flim_metrics *val,
                                 const flim_metrics *test, const flim_metrics *test_half, flim_error *err)
{
    char path[FLIM_PATH_MAX];
    snprintf(path, sizeof path, "%.4000s/summary.json", f->folder);
    const flim_fold_result result = {.k = f->k,
                                     .n_train = f->part->n_train,
                                     .n_val = f->part->n_val,
                                     .n_test = f->part->n_test,
                                     .epochs = f->state.n_history,
                                     .best_epoch = f->state.best_epoch + 1,
                                     .threshold = threshold,
                                     .metrics = *test,
                                     .at_half = *test_half};
    flim_json *json = flim_fold_result_json(&result);
    flim_json_set_string(json, "selection", selection);
    flim_json_set(json, "val_metrics", flim_metrics_json(val->value));
    flim_status status = flim_json_write(json, path, err);
    flim_json_free(json);
    return status;
}

/* Weights of the chosen epoch, its threshold from the validation part, then the test part. */
static flim_status evaluate(fold *f, flim_error *err)
{
    flim_run *run = f->run;
    const flim_fold *part = f->part;
    const int classes = run->info->classes, outputs = run->net.head[0].outputs;
    char path[FLIM_PATH_MAX];
    int32_t *val_label = NULL, *test_label = NULL; /* (n_val), (n_test) */
    float *test_logits = NULL; /* (n_test,K') */
    flim_predictions predictions = {0};
    flim_metrics val = {0}, test, test_half;
    double threshold = 0.5;
    const int64_t last = f->state.n_history - 1;
    const flim_evaluation validation = flim_run_evaluation(run, FLIM_PHASE_VALIDATE, f->k, last);
    const flim_evaluation testing = flim_run_evaluation(run, FLIM_PHASE_TEST, f->k, last);

    snprintf(path, sizeof path, "%.4000s/best.safetensors", f->folder);
    flim_status status = flim_weights_write(path, &run->net, run->info->class_name, run->settings->mask_counts,
                                            f->state.best_parameter, f->state.best_statistic, err);
    if (status == FLIM_OK) {
        status = flim_program_write(run->program, FLIM_STATE_PARAMETERS, f->state.best_parameter, err);
    }
    if (status == FLIM_OK) {
        status = flim_program_write(run->program, FLIM_STATE_STATISTICS, f->state.best_statistic, err);
    }
    if (status == FLIM_OK) {
        status = flim_evaluate(&validation, part->val, part->n_val, f->val_logits, err);
    }
    if (status == FLIM_OK) {
        status = check_outputs(f, "validation", part->val, part->n_val, f->val_logits, err);
    }
    if (status == FLIM_OK) {
        status = labels_of(run, part->val, part->n_val, &val_label, err);
    }
    if (status == FLIM_OK && classes == 2 && part->n_val > 0 && part->val_complete) {
        const flim_metric objective = run->settings->threshold_for == FLIM_OBJECTIVE_F1 ? FLIM_F1 : FLIM_BALANCED_ACCURACY;
        status = flim_choose_threshold_for(objective, part->n_val, val_label, f->val_logits, &threshold, err);
    }
    if (status == FLIM_OK) {
        status = flim_metrics_compute(part->n_val, classes, val_label, f->val_logits, threshold, &val, err);
    }
    if (status != FLIM_OK) {
        goto done;
    }

    test_logits = flim_alloc((size_t)(part->n_test * outputs), sizeof *test_logits, err);
    if (!test_logits) {
        status = FLIM_ERROR_MEMORY;
        goto done;
    }
    status = flim_evaluate(&testing, part->test, part->n_test, test_logits, err);
    if (status == FLIM_OK) {
        status = check_outputs(f, "test", part->test, part->n_test, test_logits, err);
    }
    if (status == FLIM_OK) {
        status = labels_of(run, part->test, part->n_test, &test_label, err);
    }
    if (status == FLIM_OK) {
        status = flim_metrics_compute(part->n_test, classes, test_label, test_logits, threshold, &test, err);
    }
    if (status == FLIM_OK) {
        status = flim_metrics_compute(part->n_test, classes, test_label, test_logits, 0.5, &test_half, err);
    }
    if (status == FLIM_OK) {
        status = flim_predictions_of(run->info, classes, part->test, part->n_test, test_logits, threshold, &predictions, err);
    }
    if (status == FLIM_OK) {
        snprintf(path, sizeof path, "%.4000s/predictions.csv", f->folder);
        status = flim_predictions_write(&predictions, path, err);
    }
    if (status == FLIM_OK) {
        const char *selection = part->n_val > 0 ? "inner validation part" : "last epoch, no validation part";
        status = write_summary(f, threshold, selection, &val, &test, &test_half, err);
    }
    if (status == FLIM_OK) {
        char decided[32] = "";
        if (classes == 2) {
            snprintf(decided, sizeof decided, ", threshold %.3f", threshold);
        }
        flim_log_line(&run->log, FLIM_LOG_INFO,
                      "fold %d done: best epoch %" PRId64 " of %" PRId64
                      "%s, test accuracy %.3f, balanced accuracy %.3f (%" PRId64 " cells)",
                      f->k, f->state.best_epoch + 1, f->state.n_history, decided, test.value[FLIM_ACCURACY],
                      test.value[FLIM_BALANCED_ACCURACY], part->n_test);
    }
done:
    flim_predictions_free(&predictions);
    flim_free(val_label);
    flim_free(test_label);
    flim_free(test_logits);
    return status;
}

/* The fold's place in the run folder; a fold that failed before is started afresh from its checkpoint. */
static flim_status open_folder(fold *f, flim_error *err)
{
    char name[32], failed[FLIM_PATH_MAX];
    snprintf(name, sizeof name, "fold_%d", f->k);
    FLIM_TRY(flim_run_folder_path(f->run, name, f->folder, err));
    snprintf(f->checkpoint, sizeof f->checkpoint, "%.4000s/checkpoint", f->folder);
    snprintf(failed, sizeof failed, "%.4000s/FAILED", f->folder);
    unlink(failed);
    return flim_make_folder(f->checkpoint, err);
}

/* A checkpoint's place in its epoch, counted in the present batches: --resume-override may have changed their size.  Its cells
 * must end at an update of both. */
static flim_status convert_place(fold *f, flim_error *err)
{
    flim_fold_state *s = &f->state;
    const flim_settings *now = f->run->settings;
    const int64_t n = f->part->n_train, effective = now->batch * now->accumulate;
    if (s->calls > 0 && (s->batch != now->batch || s->accumulate != now->accumulate)) {
        const int64_t cells = s->calls * s->batch < n ? s->calls * s->batch : n;
        if (cells < n && cells % effective != 0) {
            return flim_fail(err, FLIM_ERROR_USAGE,
                             "fold %d: its checkpoint stands %" PRId64 " cells inside an epoch, at batches of %" PRId64
                             " x %" PRId64 "; --batch x --accumulate must divide that, %" PRId64 " x %" PRId64 " does not",
                             f->k, cells, s->batch, s->accumulate, now->batch, now->accumulate);
        }
        s->calls = batches_of(cells, now->batch);
        s->totals.calls = s->calls;
    }
    s->batch = now->batch;
    s->accumulate = now->accumulate;
    return FLIM_OK;
}

/* Under the present identity, or one that an override has left behind. */
static flim_status read_checkpoint(fold *f, bool *found, flim_error *err)
{
    const flim_run *run = f->run;
    const char **identity = flim_alloc((size_t)run->accepted.n + 1, sizeof *identity, err);
    if (!identity) {
        return FLIM_ERROR_MEMORY;
    }
    identity[0] = run->checkpoint_text;
    for (int i = 0; i < run->accepted.n; i++) {
        identity[i + 1] = run->accepted.item[i];
    }
    flim_status status = flim_checkpoint_read(&f->state, f->checkpoint, identity, run->accepted.n + 1, &run->log, found, err);
    flim_free(identity);
    return status;
}

/* Whether no epoch is left; --resume-override may have changed how many there are. */
static bool is_finished(const fold *f)
{
    const flim_fold_state *s = &f->state;
    const flim_settings *now = f->run->settings;
    return s->calls == 0 && s->n_history > 0 &&
           (s->epoch >= now->epochs ||
            (f->part->n_val > 0 && now->patience > 0 && s->epoch - 1 - s->best_epoch >= now->patience));
}

void flim_run_fold_clean(flim_run *run, int k)
{
    char folder[FLIM_PATH_MAX], name[32];
    snprintf(name, sizeof name, "fold_%d/checkpoint", k);
    if (flim_run_folder_path(run, name, folder, NULL) == FLIM_OK && flim_file_exists(folder)) {
        flim_checkpoint_remove(folder);
    }
}

/* Every class of the data has a validation cell.  Without, an AUC is undefined and an F1 may be 0 in each epoch, so that the first
 * one would be taken for the best; also where the training part lacks the class, too, and the validation part is as complete as
 * can be. */
static bool has_all_classes(const flim_run *run, const flim_fold *part)
{
    for (int c = 0; c < run->info->classes; c++) {
        bool found = false;
        for (int64_t i = 0; i < part->n_val && !found; i++) {
            found = run->info->label[part->val[i]] == c;
        }
        if (!found) {
            return false;
        }
    }
    return true;
}

flim_status flim_run_fold(flim_run *run, int k, flim_error *err)
{
    fold f = {.run = run, .k = k, .part = &run->splits.fold[k], .monitor = run->settings->monitor};
    bool found = false;
    char path[FLIM_PATH_MAX];
    flim_status status = open_folder(&f, err);
    if (status != FLIM_OK) {
        return status;
    }
    if (f.part->n_val > 0 && f.monitor != FLIM_MONITOR_VAL_LOSS && !has_all_classes(run, f.part)) {
        flim_log_line(&run->log, FLIM_LOG_WARNING, "fold %d: its validation part lacks a class; val_loss chooses the epoch",
                      k);
        f.monitor = FLIM_MONITOR_VAL_LOSS;
    }
    status = flim_fold_state_create(&run->net, run->settings->epochs, &f.state, err);
    if (status != FLIM_OK) {
        return status;
    }
    f.val_logits = flim_alloc((size_t)(f.part->n_val * run->net.head[0].outputs), sizeof *f.val_logits, err);
    if (!f.val_logits) {
        status = FLIM_ERROR_MEMORY;
        goto done;
    }
    status = read_checkpoint(&f, &found, err);
    if (status == FLIM_OK) {
        status = convert_place(&f, err);
        f.state.finished = is_finished(&f);
    }
    if (status == FLIM_OK && found) {
        flim_log_line(&run->log, FLIM_LOG_NOTE, "fold %d: goes on from its checkpoint, epoch %" PRId64 ", batch %" PRId64, k,
                      f.state.epoch + 1, f.state.calls + 1);
    } else if (status == FLIM_OK) {
        initialise(&f);
    }
    if (status == FLIM_OK) {
        status = put_state(&f, err);
    }
    if (status == FLIM_OK) {
        status = train(&f, err);
    }
    flim_error unwritten = {0}; /* an error of the last checkpoint must not hide an earlier one */
    flim_status flushed = flim_checkpoint_flush(run->checkpoints, &unwritten);
    if (status == FLIM_OK && flushed != FLIM_OK) {
        status = flim_fail(err, flushed, "%s", unwritten.text);
    }
    if (status == FLIM_OK) {
        status = flim_run_write_history(f.folder, &f.state, err); /* a kill may have come between it and the checkpoint */
    }
    if (status == FLIM_OK) {
        status = evaluate(&f, err);
    }
    if (status == FLIM_OK) {
        snprintf(path, sizeof path, "%.4000s/DONE", f.folder);
        status = flim_file_write(path, "done\n", 5, err);
    }
    if (status == FLIM_OK) {
        flim_checkpoint_remove(f.checkpoint);
    } else if (status == FLIM_ERROR_NONFINITE && err) {
        flim_error reason = *err;
        snprintf(path, sizeof path, "%.4000s/FAILED", f.folder);
        flim_status written = flim_file_write(path, reason.text, strlen(reason.text), err);
        status = written == FLIM_OK ? flim_fail(err, FLIM_ERROR_NONFINITE, "%s", reason.text) : written;
    }
done:
    flim_free(f.val_logits);
    flim_fold_state_free(&f.state);
    return status;
}
