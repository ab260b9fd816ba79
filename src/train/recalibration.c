#include "train/recalibration.h"

#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "core/clock.h"
#include "core/stop.h"
#include "core/try.h"

/* A recalibration at work, of one rank. */
typedef struct pass {
    flim_trainer *trainer;
    const flim_recalibration *what;
    int64_t done, batches; /* of all ranks together */
    flim_draw *draws; /* this rank's part, in order; NULL = all are its own */
    int64_t n_draws;
    bool shared, ended; /* other ranks are at it, too; all have agreed on the end */
    double begun; /* seconds */
} pass;

/* The mean over the batches so far: the new one moves it by its share. */
static flim_status recalibrate_batch(void *context, const flim_batch *batch, flim_error *err)
{
    pass *p = context;
    return flim_program_recalibrate(p->trainer->program, batch, 1.0 / (double)++p->done, err);
}

static void report_progress(const pass *p)
{
    const flim_train_hooks *hooks = p->what->hooks;
    if (hooks->progress) {
        flim_progress at = p->what->at;
        at.done = p->done;
        at.total = p->batches;
        at.cells = p->done * flim_trainer_batch_cells(p->trainer);
        at.seconds = flim_seconds() - p->begun;
        at.loss = (double)NAN;
        hooks->progress(hooks->context, &at);
    }
}

/* Rank 0 decides for all whether to go on. */
static flim_status after_batch(void *context, flim_error *err)
{
    pass *p = context;
    report_progress(p);
    bool stop = flim_stopped(p->what->hooks->stop);
    if (p->shared) {
        FLIM_TRY(flim_ranks_broadcast(p->trainer->ranks, &stop, sizeof stop, err));
        p->ended = stop;
    }
    return stop ? flim_fail(err, FLIM_INTERRUPTED, "interrupted") : FLIM_OK;
}

static flim_status finish(void *context, flim_error *err)
{
    pass *p = context;
    const flim_network *net = &p->trainer->net;
    const flim_batch none = {.t = net->in[0], .h = net->in[1], .w = net->in[2]};
    while (p->done < p->batches) { /* all cells of the last one are of other ranks */
        FLIM_TRY(recalibrate_batch(p, &none, err));
        FLIM_TRY(after_batch(p, err));
    }
    return flim_program_wait(p->trainer->program, err);
}

static flim_status take_share(pass *p, flim_error *err)
{
    const flim_recalibration *what = p->what;
    p->draws = flim_alloc((size_t)(p->batches * p->trainer->batch), sizeof *p->draws, err);
    FLIM_TRY(p->draws ? FLIM_OK : FLIM_ERROR_MEMORY);
    for (int64_t batch = 0, from; batch < p->batches; batch++) {
        const int64_t cells = flim_trainer_share(p->trainer, what->n, batch, &from);
        if (cells > 0) {
            memcpy(p->draws + p->n_draws, what->draws + from, (size_t)cells * sizeof *p->draws);
            p->n_draws += cells;
        }
    }
    return FLIM_OK;
}

static flim_status run(pass *p, flim_error *err)
{
    static const flim_phase_work work = {recalibrate_batch, after_batch, finish};
    const flim_recalibration *what = p->what;
    FLIM_TRY(p->shared ? take_share(p, err) : FLIM_OK);
    const flim_phase phase = {.draws = p->shared ? p->draws : what->draws,
                              .n_draws = p->shared ? p->n_draws : what->n,
                              .batch = p->trainer->batch,
                              .seed = what->seed,
                              .fold = what->fold};
    return flim_trainer_run_phase(p->trainer, &phase, &work, p, err);
}

static flim_status tell(const flim_trainer *trainer, const flim_recalibration *what, flim_error *err)
{
    flim_order order = {.kind = FLIM_ORDER_RECALIBRATE};
    flim_status status = FLIM_OK;
    FLIM_TRY_DONE(flim_order_put(&order, &what->n, sizeof what->n, err));
    FLIM_TRY_DONE(flim_order_put(&order, &what->seed, sizeof what->seed, err));
    FLIM_TRY_DONE(flim_order_put(&order, &what->fold, sizeof what->fold, err));
    FLIM_TRY_DONE(flim_order_put(&order, what->draws, (size_t)what->n * sizeof *what->draws, err));
    status = flim_order_send(trainer->ranks, &order, err);
done:
    flim_order_free(&order);
    return status;
}

flim_status flim_trainer_recalibrate(flim_trainer *trainer, const flim_recalibration *what, flim_error *err)
{
    const int64_t cells = flim_trainer_batch_cells(trainer);
    pass p = {.trainer = trainer,
              .what = what,
              .batches = (what->n + cells - 1) / cells,
              .shared = trainer->sync_batchnorm && flim_ranks_size(trainer->ranks) > 1,
              .begun = flim_seconds()};
    FLIM_TRY(p.shared && flim_leads(trainer->ranks) ? tell(trainer, what, err) : FLIM_OK);
    const flim_status status = run(&p, err);
    if (status != FLIM_OK && p.shared && !p.ended) {
        flim_ranks_break(trainer->ranks);
    }
    flim_free(p.draws);
    return status;
}

flim_status flim_trainer_follow_recalibration(flim_trainer *trainer, flim_order *order, flim_error *err)
{
    static const flim_train_hooks nobody = {0};
    flim_recalibration what = {.hooks = &nobody};
    flim_draw *draws = NULL;
    flim_status status = FLIM_OK;
    FLIM_TRY_DONE(flim_order_take(order, &what.n, sizeof what.n, err));
    FLIM_TRY_DONE(flim_order_take(order, &what.seed, sizeof what.seed, err));
    FLIM_TRY_DONE(flim_order_take(order, &what.fold, sizeof what.fold, err));
    draws = flim_alloc((size_t)what.n, sizeof *draws, err); /* (n) */
    FLIM_TRY_DONE(draws ? FLIM_OK : FLIM_ERROR_MEMORY);
    FLIM_TRY_DONE(flim_order_take(order, draws, (size_t)what.n * sizeof *draws, err));
    what.draws = draws;
    status = flim_trainer_recalibrate(trainer, &what, err);
done:
    flim_free(draws);
    return status;
}
