#include "train/epoch.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/clock.h"
#include "core/stop.h"
#include "core/try.h"

enum {
    CHECK_EVERY = 50, /* updates between two readings of the totals: each waits for the device */
    MOST_SKIPPED = 24 /* updates in a row, in fp16: the loss scale goes from 65536 to 1, and eight more at that */
};
#define MEASURED 2.0 /* seconds of batches, or half an epoch, before their pace is believed */
#define PATIENCE 5.0 /* seconds that a signal may wait for the end of an accumulation */

/* An epoch at work.  Several ranks have one each: they train `ranks` batches at a time, rank r the r-th of them, as if one
 * process did it one after the other; or one batch, of which each has a part (sync_batchnorm).  Where numbers of batches are said
 * (calls), they are those of all. */
typedef struct pass {
    flim_trainer *trainer;
    flim_epoch *epoch;
    int64_t first_call, calls; /* batches before it began, and of the whole epoch */
    int64_t update_end; /* the update of the batch at work ends with this call */
    int ranks, rank;
    int64_t cells; /* of a batch */
    int together; /* batches that the ranks train at a time */
    flim_draw *draws; /* this rank's share, in order; NULL = all are its own */
    flim_mix *mix;
    int64_t n_draws;
    bool ended; /* all ranks have agreed on the end, whatever it is */
    double begun, saved, in_device; /* seconds */
    double first_ended; /* seconds: the first batches, which warm up; 0 = not yet */
    int64_t first_calls; /* how many these were: one of each rank */
    bool measured; /* epoch->measured was called */
    flim_totals totals; /* as last read, for the progress line */
    bool notes; /* --diagnostics: the loss of each batch (of several ranks: of their batches together) */
    flim_totals before; /* the batch at work, then */
} pass;

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Cells of the epoch's first `calls` batches. */
static int64_t cells_of(const pass *p, int64_t calls)
{
    return smaller(calls * p->cells, p->epoch->n);
}

/* ---- not finite ---- */

/* Batch number `call` (0-based) was not finite: which cells were in it.  A gradient that is not finite is seen at the end
 * of its accumulation, so all batches of that are named. */
static flim_status nonfinite(const pass *p, int64_t call, const char *what, flim_error *err)
{
    const flim_epoch *e = p->epoch;
    char cells[512] = "", which[64];
    size_t used = 0;
    const int64_t batches = flim_trainer_update_batches(p->trainer);
    call = smaller(call, p->calls - 1); /* a program counts them by its own */
    const int64_t first = call / batches * batches, from = first * p->cells;
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
        snprintf(which, sizeof which, "batches %" PRId64 " to %" PRId64, first + 1, call + 1);
    } else {
        snprintf(which, sizeof which, "batch %" PRId64, call + 1);
    }
    return flim_fail(err, FLIM_ERROR_NONFINITE,
                     "%s%s in epoch %" PRId64
                     ", %s (cells %s%s); check these cells with flim_info --scan, or lower --lr; its last checkpoint is kept",
                     fold, what, e->state->epoch + 1, which, cells, named < to ? ",..." : "");
}

/* The device's totals into *totals; FLIM_ERROR_NONFINITE if training must not go on. */
static flim_status look_at_totals(const pass *p, flim_totals *totals, flim_error *err)
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

/* All ranks have the same totals, and see the same. */
static flim_status check_totals(pass *p, flim_totals *totals, flim_error *err)
{
    const flim_status status = look_at_totals(p, totals, err);
    p->ended = p->ended || status == FLIM_ERROR_NONFINITE;
    return status;
}

/* ---- a batch ---- */

/* Where the batch stands in its update: an update is `accumulate` batches of each rank, the last of an epoch may be shorter. */
static void place_in_update(pass *p)
{
    flim_epoch *e = p->epoch;
    const int64_t call = e->state->calls, batches = flim_trainer_update_batches(p->trainer), begin = call / batches * batches;
    p->update_end = smaller(begin + batches, p->calls);
    e->step.first = call == begin;
    e->step.last = call + p->together >= p->update_end;
    const int64_t last = p->calls - 1; /* the only batch that may have one cell */
    const bool single = !p->trainer->sync_batchnorm && last < call + p->together && e->n - cells_of(p, last) == 1;
    e->step.single = single ? (int)(last - call) + 1 : 0;
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
    p->epoch->state->calls = smaller(p->epoch->state->calls + p->together, p->update_end);
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

/* What is to happen between two batches.  Rank 0 decides for all. */
typedef struct decision {
    bool save; /* a checkpoint is due */
    bool stop; /* a signal came */
    bool lost; /* at once, inside an accumulation whose end is too far away: half of one is in no checkpoint */
} decision;

static flim_status decide(const pass *p, decision *out, flim_error *err)
{
    const flim_epoch *e = p->epoch;
    const double per_call = (flim_seconds() - p->begun) / (double)(e->state->calls - p->first_call);
    const bool last = e->step.last, stopped = flim_stopped(e->hooks->stop);
    *out = (decision){.save = last && e->checkpoint_seconds > 0 && e->state->calls < p->calls &&
                              flim_seconds() - p->saved >= e->checkpoint_seconds,
                      .lost = stopped && !last && (double)(p->update_end - e->state->calls) * per_call > PATIENCE};
    out->stop = stopped && (last || out->lost);
    return flim_ranks_broadcast(p->trainer->ranks, out, sizeof *out, err);
}

static flim_status carry_out(pass *p, const decision *d, flim_error *err)
{
    flim_epoch *e = p->epoch;
    if (d->save || (d->stop && !d->lost)) {
        FLIM_TRY(check_totals(p, &e->state->totals, err)); /* what is not finite never becomes a checkpoint */
    }
    if (d->save && e->save) {
        FLIM_TRY(e->save(e->context, err));
    }
    p->saved = d->save ? flim_seconds() : p->saved;
    e->lost = d->lost;
    p->ended = d->stop;
    return d->stop ? flim_fail(err, FLIM_INTERRUPTED, "interrupted") : FLIM_OK;
}

/* The pace of the batches after the first one. */
static void measure(pass *p)
{
    const flim_epoch *e = p->epoch;
    const int64_t calls = e->state->calls;
    if (p->measured || !e->measured) {
        return;
    }
    if (p->first_ended == 0) {
        p->first_ended = flim_seconds();
        p->first_calls = calls - p->first_call;
    }
    const int64_t after_first = calls - p->first_call - p->first_calls;
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
    const int64_t calls = p->epoch->state->calls;
    decision d;
    const double called = flim_seconds();
    flim_status status = p->notes ? note_loss(p, err) : FLIM_OK;
    if (status == FLIM_OK && (calls % (CHECK_EVERY * flim_trainer_update_batches(p->trainer)) == 0 || calls == p->calls)) {
        status = check_totals(p, &p->totals, err);
    }
    p->in_device += flim_seconds() - called;
    report_progress(p);
    FLIM_TRY(status);
    measure(p);
    FLIM_TRY(decide(p, &d, err));
    return carry_out(p, &d, err);
}

static flim_status finish(void *context, flim_error *err)
{
    pass *p = context;
    const flim_network *net = &p->trainer->net;
    const flim_batch none = {.t = net->in[0], .h = net->in[1], .w = net->in[2]};
    while (p->epoch->state->calls < p->calls) { /* the last batches, or all cells of the last one, are of other ranks */
        FLIM_TRY(train_batch(p, &none, err));
        FLIM_TRY(after_batch(p, err));
    }
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

/* ---- several ranks ---- */

/* The batches of this rank: of each `ranks` of them one, or a part of each. */
static flim_status take_share(pass *p, flim_error *err)
{
    const flim_epoch *e = p->epoch;
    const int64_t first = e->state->calls + (p->together > 1 ? p->rank : 0);
    const size_t room = (size_t)((p->calls / p->together + 1) * p->trainer->batch);
    p->draws = flim_alloc(room, sizeof *p->draws, err);
    p->mix = e->mix ? flim_alloc(room, sizeof *p->mix, err) : NULL;
    FLIM_TRY(p->draws && (p->mix || !e->mix) ? FLIM_OK : FLIM_ERROR_MEMORY);
    for (int64_t call = first, from; call < p->calls; call += p->together) {
        const int64_t cells = flim_trainer_share(p->trainer, e->n, call, &from);
        for (int64_t i = from; i < from + cells; i++) {
            if (p->mix) {
                p->mix[p->n_draws] = e->mix[i];
            }
            p->draws[p->n_draws++] = e->draws[i];
        }
    }
    return FLIM_OK;
}

/* An epoch without the pointers in it. */
static flim_status tell_epoch(const flim_trainer *trainer, const flim_epoch *epoch, flim_error *err)
{
    const bool mixed = epoch->mix != NULL;
    flim_order order = {.kind = FLIM_ORDER_EPOCH};
    flim_status status = FLIM_OK;
    FLIM_TRY_DONE(flim_order_put(&order, epoch, sizeof *epoch, err));
    FLIM_TRY_DONE(flim_order_put(&order, &epoch->state->epoch, sizeof epoch->state->epoch, err));
    FLIM_TRY_DONE(flim_order_put(&order, &epoch->state->calls, sizeof epoch->state->calls, err));
    FLIM_TRY_DONE(flim_order_put(&order, &epoch->state->totals, sizeof epoch->state->totals, err));
    FLIM_TRY_DONE(flim_order_put(&order, &trainer->accumulate, sizeof trainer->accumulate, err));
    FLIM_TRY_DONE(flim_order_put(&order, &mixed, sizeof mixed, err));
    FLIM_TRY_DONE(flim_order_put(&order, epoch->draws, (size_t)epoch->n * sizeof *epoch->draws, err));
    FLIM_TRY_DONE(flim_order_put(&order, epoch->mix, mixed ? (size_t)epoch->n * sizeof *epoch->mix : 0, err));
    status = flim_order_send(trainer->ranks, &order, err);
done:
    flim_order_free(&order);
    return status;
}

static flim_status follow_epoch(flim_trainer *trainer, flim_order *order, flim_epoch *epoch, flim_draw **draws,
                                flim_mix **mix, flim_error *err)
{
    static const flim_train_hooks nobody = {0};
    flim_fold_state *state = epoch->state;
    flim_epoch_row row;
    bool mixed;
    FLIM_TRY(flim_order_take(order, epoch, sizeof *epoch, err));
    FLIM_TRY(flim_order_take(order, &state->epoch, sizeof state->epoch, err));
    FLIM_TRY(flim_order_take(order, &state->calls, sizeof state->calls, err));
    FLIM_TRY(flim_order_take(order, &state->totals, sizeof state->totals, err));
    FLIM_TRY(flim_order_take(order, &trainer->accumulate, sizeof trainer->accumulate, err));
    FLIM_TRY(flim_order_take(order, &mixed, sizeof mixed, err));
    *draws = flim_alloc((size_t)epoch->n, sizeof **draws, err);
    *mix = flim_alloc(mixed ? (size_t)epoch->n : 0, sizeof **mix, err);
    FLIM_TRY(*draws && *mix ? FLIM_OK : FLIM_ERROR_MEMORY);
    FLIM_TRY(flim_order_take(order, *draws, (size_t)epoch->n * sizeof **draws, err));
    FLIM_TRY(flim_order_take(order, *mix, mixed ? (size_t)epoch->n * sizeof **mix : 0, err));
    epoch->hooks = &nobody;
    epoch->draws = *draws;
    epoch->mix = mixed ? *mix : NULL;
    epoch->state = state;
    epoch->measured = NULL;
    epoch->save = NULL;
    epoch->context = NULL;
    return flim_trainer_epoch(trainer, epoch, &row, err);
}

flim_status flim_trainer_follow_epoch(flim_trainer *trainer, flim_order *order, flim_error *err)
{
    flim_fold_state state = {0};
    flim_epoch epoch = {.state = &state};
    flim_draw *draws = NULL;
    flim_mix *mix = NULL;
    const flim_status status = follow_epoch(trainer, order, &epoch, &draws, &mix, err);
    flim_free(draws);
    flim_free(mix);
    return status;
}

/* One number for many, for all of which a single bit counts; against accidents only, but at the speed of memory. */
static uint64_t mixed_bits(const float *values, size_t n)
{
    uint64_t state = n;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        state = (state ^ bits) * 0x9e3779b97f4a7c15u;
        state ^= state >> 29;
    }
    return state;
}

/* All ranks have the same weights and running statistics at an epoch's end, to the bit; if not, a card or a library of one of them
 * is at fault. */
static flim_status compare_weights(const flim_trainer *trainer, flim_error *err)
{
    const size_t parameters = (size_t)trainer->net.parameters, n = parameters + (size_t)trainer->net.statistics;
    const size_t ranks = (size_t)flim_ranks_size(trainer->ranks);
    flim_status status = FLIM_OK;
    if (ranks == 1) {
        return FLIM_OK;
    }
    float *weights = flim_alloc(n, sizeof *weights, err); /* (P + S) */
    uint64_t own, *all = flim_alloc(ranks, sizeof *all, err); /* (ranks) */
    FLIM_TRY_DONE(weights && all ? FLIM_OK : FLIM_ERROR_MEMORY);
    FLIM_TRY_DONE(flim_program_read(trainer->program, FLIM_STATE_PARAMETERS, weights, err));
    FLIM_TRY_DONE(flim_program_read(trainer->program, FLIM_STATE_STATISTICS, weights + parameters, err));
    own = mixed_bits(weights, n);
    FLIM_TRY_DONE(flim_ranks_gather(trainer->ranks, &own, sizeof own, all, err));
    for (size_t r = 1; r < ranks && status == FLIM_OK; r++) {
        if (all[r] != all[0]) {
            status = flim_fail(err, FLIM_ERROR_DEVICE,
                               "the weights of rank %zu are no longer those of rank 0: its device or a library of its host "
                               "computes otherwise; the last checkpoint is kept",
                               r);
        }
    }
done:
    flim_free(weights);
    flim_free(all);
    return status;
}

/* ---- the whole ---- */

static flim_status run(pass *p, flim_error *err)
{
    static const flim_phase_work work = {train_batch, after_batch, finish};
    const flim_epoch *e = p->epoch;
    const int64_t skip = cells_of(p, e->state->calls);
    FLIM_TRY(p->ranks > 1 ? take_share(p, err) : FLIM_OK);
    const flim_phase phase = {.draws = p->draws ? p->draws : e->draws + skip,
                              .n_draws = p->draws ? p->n_draws : e->n - skip,
                              .batch = p->trainer->batch,
                              .seed = e->seed,
                              .fold = (uint32_t)e->fold,
                              .epoch = (uint32_t)(e->first_epoch + e->state->epoch),
                              .transform = e->augment,
                              .mix = p->draws ? p->mix
                                     : e->mix ? e->mix + skip
                                              : NULL,
                              .mix_of = e->mix_of,
                              .smoothing = e->step.label_smoothing};
    FLIM_TRY(flim_trainer_run_phase(p->trainer, &phase, &work, p, err));
    return compare_weights(p->trainer, err);
}

flim_status flim_trainer_epoch(flim_trainer *trainer, flim_epoch *epoch, flim_epoch_row *row, flim_error *err)
{
    flim_fold_state *state = epoch->state;
    const double now = flim_seconds();
    pass p = {.trainer = trainer,
              .epoch = epoch,
              .first_call = state->calls,
              .calls = (epoch->n + flim_trainer_batch_cells(trainer) - 1) / flim_trainer_batch_cells(trainer),
              .ranks = flim_ranks_size(trainer->ranks),
              .rank = flim_ranks_rank(trainer->ranks),
              .cells = flim_trainer_batch_cells(trainer),
              .together = flim_trainer_call_batches(trainer),
              .begun = now,
              .saved = now,
              .totals = state->totals,
              .notes = epoch->notes,
              .before = state->totals};
    epoch->step.learning_rate = (float)epoch->learning_rate;
    FLIM_TRY(flim_leads(trainer->ranks) ? tell_epoch(trainer, epoch, err) : FLIM_OK);
    flim_telemetry_begin(&trainer->telemetry, trainer->device);
    const flim_status status = run(&p, err);
    if (status != FLIM_OK && !p.ended) {
        flim_ranks_break(trainer->ranks);
    }
    flim_free(p.draws);
    flim_free(p.mix);
    return status == FLIM_OK ? fill_row(&p, row, err) : status;
}
