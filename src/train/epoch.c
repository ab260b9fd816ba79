#include "train/epoch.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "core/clock.h"
#include "core/stop.h"
#include "core/try.h"

enum {
    CHECK_EVERY = 50, /* updates between two readings of the totals: each waits for the device */
    MOST_SKIPPED = 24 /* updates in a row, in fp16: the loss scale goes from 65536 to 1, and eight more at that */
};
#define MEASURED 2.0 /* seconds of batches, or half an epoch, before their pace is believed */
#define PATIENCE 5.0 /* seconds that a signal may wait for the end of an accumulation */

/* An epoch at work. */
typedef struct pass {
    flim_trainer *trainer;
    flim_epoch *epoch;
    int64_t first_call, calls; /* batches before it began, and of the whole epoch */
    int64_t update_end; /* the update of the batch at work ends with this call */
    double begun, saved, in_device; /* seconds */
    double first_ended; /* seconds: the first batch, which warms up; 0 = not yet */
    bool measured; /* epoch->measured was called */
    flim_totals totals; /* as last read, for the progress line */
    flim_totals before; /* the batch at work, with --diagnostics */
} pass;

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Cells of the epoch's first `calls` batches. */
static int64_t cells_of(const pass *p, int64_t calls)
{
    return smaller(calls * p->trainer->batch, p->epoch->n);
}

/* ---- not finite ---- */

/* Batch number `call` (0-based) was not finite: which cells were in it.  A gradient that is not finite is seen at the end
 * of its accumulation, so all batches of that are named. */
static flim_status nonfinite(const pass *p, int64_t call, const char *what, flim_error *err)
{
    const flim_epoch *e = p->epoch;
    char cells[512] = "", batches[64];
    size_t used = 0;
    const int64_t first = call / p->trainer->accumulate * p->trainer->accumulate, from = first * p->trainer->batch;
    const int64_t to = cells_of(p, call + 1);
    char fold[32] = ""; /* none of the final model, nor of a pretraining */
    if (e->fold < e->folds) {
        snprintf(fold, sizeof fold, "fold %d: ", e->fold);
    }
    int64_t named = from;
    for (; named < to && used < sizeof cells - 16; named++) {
        used +=
            (size_t)snprintf(cells + used, sizeof cells - used, "%s%" PRIu32, named > from ? "," : "", e->draws[named].cell);
    }
    if (first < call) {
        snprintf(batches, sizeof batches, "batches %" PRId64 " to %" PRId64, first + 1, call + 1);
    } else {
        snprintf(batches, sizeof batches, "batch %" PRId64, call + 1);
    }
    return flim_fail(err, FLIM_ERROR_NONFINITE,
                     "%s%s in epoch %" PRId64
                     ", %s (cells %s%s); check these cells with flim_info --scan, or lower --lr; its last checkpoint is kept",
                     fold, what, e->state->epoch + 1, batches, cells, named < to ? ",..." : "");
}

/* The device's totals into *totals; FLIM_ERROR_NONFINITE if training must not go on. */
static flim_status check_totals(const pass *p, flim_totals *totals, flim_error *err)
{
    flim_program *program = p->trainer->program;
    flim_counters counters;
    char what[128];
    FLIM_TRY(flim_program_totals(program, false, totals, err));
    if (p->trainer->precision != FLIM_PRECISION_FP16) {
        return totals->nonfinite ? nonfinite(p, totals->nonfinite_call, "loss or gradient not finite", err) : FLIM_OK;
    }
    FLIM_TRY(flim_program_get_counters(program, &counters, err));
    if (counters.skipped_in_row < MOST_SKIPPED) {
        return FLIM_OK;
    }
    snprintf(what, sizeof what, "gradients not finite in fp16 %" PRId64 " updates in a row, at a loss scale of %g by now,",
             counters.skipped_in_row, counters.loss_scale);
    return nonfinite(p, p->epoch->state->calls - 1, what, err);
}

/* ---- a batch ---- */

/* Where the batch stands in its update: an update is `accumulate` batches, the last of an epoch may be shorter. */
static void place_in_update(pass *p)
{
    flim_epoch *e = p->epoch;
    const int64_t call = e->state->calls, accumulate = p->trainer->accumulate, begin = call / accumulate * accumulate;
    p->update_end = smaller(begin + accumulate, p->calls);
    e->step.first = call == begin;
    e->step.last = call + 1 == p->update_end;
    if (e->step.first) {
        e->step.divisor = 0;
        for (int64_t i = cells_of(p, begin); i < cells_of(p, p->update_end); i++) {
            e->step.divisor += (double)e->draws[i].weight;
        }
    }
}

static flim_status train_batch(void *context, const flim_batch *batch, flim_error *err)
{
    pass *p = context;
    place_in_update(p);
    const double called = flim_seconds();
    FLIM_TRY(flim_program_train(p->trainer->program, batch, &p->epoch->step, err));
    p->in_device += flim_seconds() - called;
    p->epoch->state->calls++;
    return FLIM_OK;
}

static void report_progress(pass *p)
{
    const flim_epoch *e = p->epoch;
    flim_telemetry_update(&p->trainer->telemetry, p->trainer->device);
    if (e->hooks->progress) {
        const flim_progress at = {.phase = FLIM_PHASE_TRAIN,
                                  .device = &p->trainer->telemetry.now,
                                  .fold = e->fold < e->folds ? e->fold : -1,
                                  .folds = e->folds,
                                  .epoch = e->state->epoch + 1,
                                  .epochs = e->epochs,
                                  .epochs_left = e->epochs_left,
                                  .done = e->state->calls,
                                  .total = p->calls,
                                  .cells = cells_of(p, e->state->calls) - cells_of(p, p->first_call),
                                  .seconds = flim_seconds() - p->begun,
                                  .loss = p->totals.weight > 0 ? p->totals.loss / p->totals.weight : NAN};
        e->hooks->progress(e->hooks->context, &at);
    }
}

/* A signal came.  The end of an accumulation that is near is waited for: half of one is in no checkpoint. */
static flim_status stop(pass *p, flim_error *err)
{
    flim_epoch *e = p->epoch;
    const double per_call = (flim_seconds() - p->begun) / (double)(e->state->calls - p->first_call);
    if (e->step.last) {
        FLIM_TRY(check_totals(p, &e->state->totals, err));
        return flim_fail(err, FLIM_INTERRUPTED, "interrupted");
    }
    e->lost = (double)(p->update_end - e->state->calls) * per_call > PATIENCE;
    return e->lost ? flim_fail(err, FLIM_INTERRUPTED, "interrupted") : FLIM_OK;
}

/* The pace of the batches after the first one. */
static void measure(pass *p)
{
    const flim_epoch *e = p->epoch;
    const int64_t calls = e->state->calls, after_first = calls - p->first_call - 1;
    if (p->measured || !e->measured) {
        return;
    }
    if (after_first == 0) {
        p->first_ended = flim_seconds();
    }
    const double seconds = flim_seconds() - p->first_ended;
    if (after_first > 0 && calls < p->calls && (seconds >= MEASURED || 2 * calls >= p->calls)) {
        p->measured = true;
        e->measured(e->context, seconds / (double)after_first);
    }
}

/* --diagnostics: the batch's mean loss, by what the totals have grown.  Waits for the device. */
static flim_status note_loss(pass *p, flim_error *err)
{
    flim_batch_losses *losses = &p->epoch->state->losses;
    flim_totals now;
    FLIM_TRY(flim_program_totals(p->trainer->program, false, &now, err));
    const double loss = (now.loss - p->before.loss) / (now.weight - p->before.weight);
    p->before = now;
    if (isfinite(loss)) { /* one that is not is dealt with where the totals are checked */
        losses->most = losses->moments.n > 0 && losses->most > loss ? losses->most : loss;
        flim_moments_add(&losses->moments, loss);
    }
    return FLIM_OK;
}

static flim_status after_batch(void *context, flim_error *err)
{
    pass *p = context;
    flim_epoch *e = p->epoch;
    const int64_t calls = e->state->calls;
    const double called = flim_seconds();
    flim_status status = e->state->epoch_parameter ? note_loss(p, err) : FLIM_OK;
    if (status == FLIM_OK && (calls % (CHECK_EVERY * p->trainer->accumulate) == 0 || calls == p->calls)) {
        status = check_totals(p, &p->totals, err);
    }
    p->in_device += flim_seconds() - called;
    report_progress(p);
    FLIM_TRY(status);
    measure(p);
    if (e->step.last && e->checkpoint_seconds > 0 && calls < p->calls && flim_seconds() - p->saved >= e->checkpoint_seconds) {
        FLIM_TRY(check_totals(p, &e->state->totals, err)); /* what is not finite never becomes a checkpoint */
        FLIM_TRY(e->save(e->context, err));
        p->saved = flim_seconds();
    }
    return flim_stopped(e->hooks->stop) ? stop(p, err) : FLIM_OK;
}

static flim_status finish(void *context, flim_error *err)
{
    pass *p = context;
    const double called = flim_seconds();
    const flim_status status = flim_program_totals(p->trainer->program, false, &p->epoch->state->totals, err);
    p->in_device += flim_seconds() - called;
    return status;
}

/* ---- the epoch ---- */

static flim_status fill_row(const pass *p, flim_epoch_row *row, flim_error *err)
{
    const flim_epoch *e = p->epoch;
    const flim_totals *t = &e->state->totals;
    const flim_moments *losses = &e->state->losses.moments;
    const double seconds = flim_seconds() - p->begun;
    flim_loader_stats loaded;
    flim_counters counters;
    flim_loader_get_stats(p->trainer->loader, &loaded);
    FLIM_TRY(flim_program_get_counters(p->trainer->program, &counters, err));
    *row = (flim_epoch_row){.epoch = e->state->epoch + 1,
                            .learning_rate = e->learning_rate,
                            .train_loss = t->loss / t->weight,
                            .train_accuracy = (double)t->correct / (double)t->cells,
                            .val_loss = (double)NAN,
                            .val_accuracy = (double)NAN,
                            .val_balanced_accuracy = (double)NAN,
                            .val_f1 = (double)NAN,
                            .val_roc_auc = (double)NAN,
                            .grad_norm = t->grad_norm,
                            .grad_norm_mean = t->updates > 0 ? t->grad_norm_sum / (double)t->updates : (double)NAN,
                            .grad_norm_least = t->updates > 0 ? t->grad_norm_least : (double)NAN,
                            .grad_norm_most = t->updates > 0 ? t->grad_norm_most : (double)NAN,
                            .cells = t->cells,
                            .updates = t->updates,
                            .skipped = counters.skipped - e->state->skipped_before,
                            .seconds = seconds,
                            .iterations_per_second = (double)(p->calls - p->first_call) / seconds,
                            .cells_per_second = (double)(e->n - cells_of(p, p->first_call)) / seconds,
                            .wait_share = loaded.wait_seconds / seconds,
                            .device_share = p->in_device / seconds,
                            .peak_bytes = flim_program_peak_bytes(p->trainer->program),
                            .batch_loss_sd = flim_moments_sd(losses),
                            .batch_loss_most = losses->n > 0 ? e->state->losses.most : (double)NAN,
                            .inactive = (double)NAN,
                            .dead = (double)NAN,
                            .update_size = (double)NAN,
                            .hidden_loss = t->hidden.voxels > 0 ? t->hidden.loss / t->hidden.voxels : (double)NAN,
                            .hidden_bits = (double)NAN,
                            .val_hidden_loss = (double)NAN,
                            .val_hidden_bits = (double)NAN};
    flim_telemetry_end(&p->trainer->telemetry, row);
    return FLIM_OK;
}

flim_status flim_trainer_epoch(flim_trainer *trainer, flim_epoch *epoch, flim_epoch_row *row, flim_error *err)
{
    static const flim_phase_work work = {train_batch, after_batch, finish};
    flim_fold_state *state = epoch->state;
    const double now = flim_seconds();
    pass p = {.trainer = trainer,
              .epoch = epoch,
              .first_call = state->calls,
              .calls = (epoch->n + trainer->batch - 1) / trainer->batch,
              .begun = now,
              .saved = now,
              .totals = state->totals,
              .before = state->totals};
    const int64_t skip = cells_of(&p, state->calls);
    const flim_phase phase = {.draws = epoch->draws + skip,
                              .n_draws = epoch->n - skip,
                              .batch = trainer->batch,
                              .seed = epoch->seed,
                              .fold = (uint32_t)epoch->fold,
                              .epoch = (uint32_t)(epoch->first_epoch + state->epoch),
                              .transform = epoch->augment,
                              .mix = epoch->mix ? epoch->mix + skip : NULL,
                              .mix_of = epoch->mix_of,
                              .smoothing = epoch->step.label_smoothing};
    epoch->step.learning_rate = (float)epoch->learning_rate;
    flim_telemetry_begin(&trainer->telemetry, trainer->device);
    FLIM_TRY(flim_trainer_run_phase(trainer, &phase, &work, &p, err));
    return fill_row(&p, row, err);
}
