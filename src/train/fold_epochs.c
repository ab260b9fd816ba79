/* The epochs of a fold, and the choice of the best one on the validation set. */
#include <inttypes.h>
#include <math.h>

#include "core/alloc.h"
#include "core/bytes.h"
#include "core/clock.h"
#include "core/try.h"
#include "core/text.h"
#include "cv/mixup.h"
#include "cv/sampler.h"
#include "train/epoch.h"
#include "train/fold.h"
#include "train/lr_schedule.h"
#include "train/pretraining.h"

static flim_status save(void *context, flim_error *err)
{
    return flim_fold_save(context, err);
}

/* What --monitor is about, as it is. */
static double monitored(const flim_fold_work *f, const flim_epoch_row *row)
{
    switch (f->monitor) {
    case FLIM_MONITOR_ROC_AUC: return row->val_roc_auc;
    case FLIM_MONITOR_BALANCED_ACCURACY: return row->val_balanced_accuracy;
    case FLIM_MONITOR_F1: return row->val_f1;
    case FLIM_MONITOR_VAL_LOSS: break;
    }
    return row->val_loss;
}

/* Of the epoch in state: the schedule's, from what the epochs before came to; or that which the pace had after as many updates. */
static flim_status learning_rate(const flim_fold_work *f, double *rate, flim_error *err)
{
    const flim_fold_state *s = &f->state;
    if (f->pace) {
        const int64_t row = s->epoch * flim_fold_updates(f, f->part->n_train) / f->pace_updates;
        const int64_t last = f->pace->n_history - 1;
        *rate = f->pace->history[row < last ? row : last].learning_rate;
        return FLIM_OK;
    }
    const flim_lr_schedule schedule =
        flim_lr_schedule_of(f->run->settings, f->trainer->learning_rate, f->monitor != FLIM_MONITOR_VAL_LOSS);
    double *values = flim_alloc((size_t)s->n_history, sizeof *values, err); /* (n_history) */
    if (!values) {
        return FLIM_ERROR_MEMORY;
    }
    for (int64_t i = 0; i < s->n_history; i++) {
        values[i] = monitored(f, &s->history[i]);
    }
    *rate = flim_lr_at(&schedule, s->epoch, values);
    flim_free(values);
    return FLIM_OK;
}

/* flim_step.encoder_hold of the epoch in state. */
static float encoder_hold(const flim_fold_work *f)
{
    const flim_settings *s = f->run->settings;
    if (!s->pretrained[0]) {
        return 0.0f;
    }
    return s->freeze_encoder || f->state.epoch < s->unfreeze_after ? 1.0f : (float)(1.0 - s->encoder_lr_scale);
}

static void apply_class_weights(const flim_fold_work *f, flim_draw *draws, int64_t n)
{
    for (int64_t i = 0; f->class_weight && i < n; i++) {
        draws[i].weight *= (float)f->class_weight[f->study->info->label[draws[i].cell]];
    }
}

/* The pace of the first batches: what the whole run will take, once.  A validation cell takes about a third of a training cell:
 * the forward pass of three. */
static void estimate(void *context, double per_batch)
{
    flim_fold_work *f = context;
    flim_run *run = f->run;
    const int64_t batch = flim_run_batch_cells(run), batches = (f->part->n_train + batch - 1) / batch;
    const int64_t epochs = flim_run_epochs_left(run, f->study->splits.n_folds, f->k, f->first_epoch + f->state.epoch) + 1;
    const double per_cell = per_batch / (double)batch;
    const double epoch = per_batch * (double)batches + per_cell / 3 * (double)f->part->n_val;
    if (!run->time_estimated && f->part->n_test > 0) {
        run->time_estimated = true;
        flim_log_estimate(run, f->trainer, epoch * (double)epochs, per_batch, epochs);
        flim_run_event_estimate(f, epoch * (double)epochs, per_batch, epochs);
    }
}

static flim_status draw_epoch(const flim_fold_work *f, uint32_t number, flim_draw *draws, flim_error *err)
{
    const flim_settings *s = f->run->settings;
    const flim_fold *part = f->part;
    if (s->pretrains) {
        const flim_pairs_rule rule = flim_pretraining_pairs(s);
        return flim_pairs_draw(&rule, &f->study->split_data, part->train, part->n_train, s->seed, (uint32_t)f->k, number,
                               draws, err);
    }
    return flim_sampler_draw(s->sampler, s->sampler_repeats, &f->study->split_data, part->train, part->n_train, s->seed,
                             (uint32_t)f->k, number, draws, err);
}

/* The epoch in state, from its batch number state.calls on. */
static flim_status train_epoch(flim_fold_work *f, flim_epoch_row *row, bool *lost, flim_error *err)
{
    const flim_settings *s = f->run->settings;
    const int64_t n = flim_pretraining_views(s) * f->part->n_train, number = f->first_epoch + f->state.epoch;
    flim_draw *draws = flim_alloc((size_t)n, sizeof *draws, err); /* (n) */
    flim_mix *mix = NULL; /* (n) */
    flim_status status = draws ? FLIM_OK : FLIM_ERROR_MEMORY;
    flim_epoch epoch = {.hooks = f->run->hooks,
                        .fold = f->k,
                        .folds = f->study->splits.n_folds,
                        .epochs = f->epochs,
                        .epochs_left = f->part->n_test > 0 ? flim_run_epochs_left(f->run, f->study->splits.n_folds, f->k,
                                                                                  f->first_epoch + f->state.epoch)
                                                           : f->epochs - f->state.epoch - 1,
                        .draws = draws,
                        .n = flim_fold_draws(f), /* the last epoch may end earlier */
                        .seed = s->seed,
                        .augment = f->run->augment,
                        .step = flim_step_defaults(),
                        .first_epoch = f->first_epoch,
                        .state = &f->state,
                        .notes = f->state.epoch_parameter != NULL,
                        .checkpoint_seconds = 60 * s->checkpoint_minutes,
                        .save = save,
                        .measured = f->run->time_logged ? NULL : estimate,
                        .context = f};
    FLIM_TRY_DONE(status);
    FLIM_TRY_DONE(learning_rate(f, &epoch.learning_rate, err));
    mix = s->mixup != FLIM_MIXUP_NONE ? flim_alloc((size_t)n, sizeof *mix, err) : NULL;
    FLIM_TRY_DONE(s->mixup == FLIM_MIXUP_NONE || mix ? FLIM_OK : FLIM_ERROR_MEMORY);
    epoch.step.weight_decay = (float)s->weight_decay;
    epoch.step.clip = (float)s->clip;
    epoch.step.label_smoothing = (float)s->label_smoothing;
    epoch.step.dropout = (float)s->dropout;
    epoch.step.block_dropout = (float)s->block_dropout;
    epoch.step.focal_gamma = (float)s->focal_gamma;
    epoch.step.average_decay = (float)s->ema;
    epoch.step.encoder_hold = encoder_hold(f);
    epoch.step.hide_share = s->pretrains ? flim_pretraining_hide_share(s) : 0;
    FLIM_TRY_DONE(draw_epoch(f, (uint32_t)number, draws, err));
    apply_class_weights(f, draws, n);
    if (mix) {
        const flim_mixup_rule rule = {s->mixup_alpha, s->mixup_probability, s->mixup_share, s->mixup_partner};
        FLIM_TRY_DONE(flim_mixup_draw(&rule, &f->study->split_data, s->seed, (uint32_t)f->k, (uint32_t)number, draws, n,
                                      flim_trainer_batch_cells(f->trainer), mix, err));
        epoch.mix = mix;
        epoch.mix_of = s->mixup == FLIM_MIXUP_COUNTS ? FLIM_MIX_COUNTS : FLIM_MIX_INPUT;
    }
    status = flim_trainer_epoch(f->trainer, &epoch, row, err);
    *lost = epoch.lost;
    row->hidden_bits = s->pretrains && status == FLIM_OK ? flim_pretraining_bits(s, &f->state.totals.hidden) : (double)NAN;
done:
    flim_free(draws);
    flim_free(mix);
    return status;
}

static flim_status validate(flim_fold_work *f, flim_epoch_row *row, flim_error *err)
{
    const int64_t n = f->part->n_val;
    const int classes = f->study->info->classes;
    const bool finite =
        f->trainer->precision != FLIM_PRECISION_FP16; /* there one epoch may overflow; it is not chosen then */
    int32_t *label = NULL; /* (n) */
    flim_metrics metrics;
    flim_status status = FLIM_OK;
    FLIM_TRY_DONE(flim_fold_evaluate(f, FLIM_PHASE_VALIDATE, f->state.epoch, finite, f->val_logits, &label, err));
    FLIM_TRY_DONE(flim_metrics_compute(n, classes, label, f->val_logits, 0.5, &metrics, err));
    row->val_loss = flim_mean_loss(n, classes, label, f->val_logits);
    row->val_accuracy = metrics.value[FLIM_ACCURACY];
    row->val_balanced_accuracy = metrics.value[FLIM_BALANCED_ACCURACY];
    row->val_f1 = metrics.value[FLIM_F1];
    row->val_roc_auc = metrics.value[FLIM_ROC_AUC];
done:
    flim_free(label);
    return status;
}

/* The epoch's evaluation, where there is any; the program then has training's weights again. */
static flim_status evaluate(flim_fold_work *f, flim_epoch_row *row, flim_error *err)
{
    flim_error ignored = {0};
    if (f->run->settings->pretrains) {
        return flim_pretraining_evaluate(f, row, err);
    }
    flim_status status = flim_fold_weights_in(f, err);
    if (status == FLIM_OK && f->part->n_val > 0) {
        status = validate(f, row, err);
    }
    const flim_status restored = flim_fold_weights_out(f, status == FLIM_OK ? err : &ignored);
    return status == FLIM_OK ? restored : status;
}

/* True if this epoch is the best so far; its weights are then copied. */
static bool choose(flim_fold_work *f, const flim_epoch_row *row)
{
    flim_fold_state *s = &f->state;
    double value = f->part->n_val > 0 ? monitored(f, row) : 0;
    value = f->monitor == FLIM_MONITOR_VAL_LOSS ? -value : value; /* larger is better */
    value = isnan(value) ? -(double)INFINITY : value; /* an undefined metric never beats a defined one */
    if (f->part->n_val > 0 && s->best_epoch >= 0 && !(value > s->best_value)) {
        return false;
    }
    s->best_value = value;
    s->best_epoch = s->epoch;
    flim_fold_weights_keep(f);
    return true;
}

/* ", GPU 97 % busy, 400 W, 61 °C", of what the device reports. */
static void device_text(const flim_epoch_row *r, char *text, size_t size)
{
    const struct {
        double value;
        const char *format;
    } figure[] = {
        {100 * r->device_busy, ", GPU %.0f %% busy"}, {r->device_watts, ", %.0f W"}, {r->device_celsius, ", %.0f °C"}};
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < sizeof figure / sizeof figure[0] && used < size; i++) {
        if (!isnan(figure[i].value)) {
            used += (size_t)snprintf(text + used, size - used, figure[i].format, figure[i].value);
        }
    }
}

/* "loss 0.41, bits per photon +0.021 (evaluated +0.018), pairs found 63 %", of what there is. */
static void pretraining_text(const flim_fold_work *f, const flim_epoch_row *r, char *text, size_t size)
{
    const flim_settings *s = f->run->settings;
    size_t used = (size_t)snprintf(text, size, "loss %.4f", r->train_loss);
    if (!isnan(r->hidden_bits)) {
        used += (size_t)snprintf(text + used, size - used, ", bits per photon %+.4f", r->hidden_bits);
    }
    if (!isnan(r->val_hidden_bits)) {
        used += (size_t)snprintf(text + used, size - used, " (evaluated %+.4f)", r->val_hidden_bits);
    } else if (!isnan(r->val_hidden_loss)) {
        used += (size_t)snprintf(text + used, size - used, ", hidden voxels %.6f (evaluated %.6f)", r->hidden_loss,
                                 r->val_hidden_loss);
    }
    if (s->contrastive > 0) {
        snprintf(text + used, size - used, ", pairs found %.1f %%", 100 * r->train_accuracy);
    }
}

static void log_epoch(const flim_fold_work *f, const flim_epoch_row *r, bool best)
{
    char train[200], val[160] = "", memory[48] = "", gpu[96], skipped[64] = "", auc[24] = "n/a";
    if (isfinite(r->val_roc_auc)) {
        snprintf(auc, sizeof auc, "%.3f", r->val_roc_auc);
    }
    if (f->part->n_val > 0) {
        snprintf(val, sizeof val, " | val loss %.4f acc %.3f F1 %.3f AUC %s%s", r->val_loss, r->val_accuracy, r->val_f1, auc,
                 best ? " *" : "");
    }
    if (flim_device_get_info(f->trainer->device)->own_memory) {
        snprintf(memory, sizeof memory, ", %.2f GiB", flim_gib(r->peak_bytes));
    }
    if (r->skipped > 0) {
        snprintf(skipped, sizeof skipped, ", %" PRId64 " update%s skipped (fp16)", r->skipped, flim_s(r->skipped));
    }
    device_text(r, gpu, sizeof gpu);
    if (f->run->settings->pretrains) {
        pretraining_text(f, r, train, sizeof train);
    } else {
        snprintf(train, sizeof train, "train loss %.4f acc %.3f", r->train_loss, r->train_accuracy);
    }
    flim_log_line(&f->run->log, best && f->part->n_val > 0 ? FLIM_LOG_BEST : FLIM_LOG_INFO,
                  "%s epoch %" PRId64 "/%" PRId64 " | lr %.2e | %s%s | %.2f it/s %.1f cells/s%s%s, data wait %.1f %%%s",
                  f->name, r->epoch, f->epochs, r->learning_rate, train, val, r->iterations_per_second, r->cells_per_second,
                  memory, gpu, 100 * r->wait_share, skipped);
}

/* A signal came: the checkpoint is written, unless it could not be gone on from. */
static flim_status interrupted(flim_fold_work *f, bool lost, flim_error *err)
{
    flim_error why = {0};
    if (lost) {
        flim_log_line(&f->run->log, FLIM_LOG_NOTE,
                      "%s: the end of %" PRId64 " accumulated batches was too far away; resuming begins at the last "
                      "checkpoint",
                      f->name, f->run->settings->accumulate);
        return FLIM_INTERRUPTED;
    }
    flim_status status = flim_fold_save(f, &why);
    status = status == FLIM_OK ? flim_checkpoint_flush(f->run->checkpoints, &why) : status;
    return status == FLIM_OK ? FLIM_INTERRUPTED : flim_fail(err, status, "%s", why.text);
}

/* What a call says once: after its first epoch what memory it takes, after the first whole one what time and money the
 * rest will. */
static void log_once(flim_fold_work *f, bool whole, double seconds)
{
    flim_run *run = f->run;
    if (run->epochs_trained++ == 0) {
        flim_log_memory_use(run, f->trainer);
    }
    if (whole && !run->time_logged && f->part->n_test > 0) { /* half an epoch after --resume says little */
        run->time_logged = true;
        flim_log_time_left(run, f->study->splits.n_folds, f->k, f->first_epoch + f->state.epoch, seconds);
    }
}

/* The state goes to the next epoch, and to the disk. */
static flim_status end_epoch(flim_fold_work *f, const flim_epoch_row *row, flim_error *err)
{
    flim_fold_state *s = &f->state;
    const flim_settings *settings = f->run->settings;
    s->history[s->n_history++] = *row;
    s->finished = s->epoch + 1 >= f->epochs ||
                  (f->part->n_val > 0 && settings->patience > 0 && s->epoch - s->best_epoch >= settings->patience);
    s->epoch++;
    s->calls = 0;
    s->skipped_before = s->counters.skipped;
    s->totals = (flim_totals){.nonfinite_call = -1};
    flim_fold_state_begin_epoch(s);
    FLIM_TRY(flim_trainer_set_totals(f->trainer, &s->totals, err));
    FLIM_TRY(flim_checkpoint_submit(f->run->checkpoints, s, f->checkpoint, f->identity, err));
    FLIM_TRY(flim_fold_record_epoch(f, err));
    return flim_train_log_check(&f->run->file_log, err);
}

flim_status flim_fold_train(flim_fold_work *f, flim_error *err)
{
    while (!f->state.finished) {
        flim_epoch_row row;
        bool lost = false;
        const bool whole = f->state.calls == 0;
        const double begun = flim_seconds();
        flim_status status = train_epoch(f, &row, &lost, err);
        if (status == FLIM_OK) {
            status = evaluate(f, &row, err);
        }
        if (status == FLIM_INTERRUPTED) {
            return interrupted(f, lost, err);
        }
        FLIM_TRY(status);
        FLIM_TRY(flim_fold_get_state(f, err));
        FLIM_TRY(flim_fold_diagnose(f, &row, err));
        const bool best = choose(f, &row);
        log_epoch(f, &row, best);
        flim_run_event_epoch(f, &row, best);
        log_once(f, whole, flim_seconds() - begun);
        FLIM_TRY(end_epoch(f, &row, err));
        if (whole) {
            flim_run_watch_load(f->run, f->trainer, &row, flim_seconds() - begun);
        }
    }
    return FLIM_OK;
}
