/* The weights that are evaluated, chosen and saved: training's, or their running average; with statistics made again or not. */
#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "core/clock.h"
#include "core/try.h"
#include "cv/sampler.h"
#include "train/fold.h"
#include "train/order.h"

enum { RECALIBRATION_CELLS = 512 }; /* of the training set, at most: eight of the usual batches */

/* ---- statistics made again ------------------------------------------------------------------------------------------------ */

typedef struct recalibration {
    flim_fold_work *f;
    int64_t batches, cells; /* done; of all */
    double begun;
} recalibration;

/* The mean over the batches so far: the new one moves it by its share. */
static flim_status recalibrate_batch(void *context, const flim_batch *batch, flim_error *err)
{
    recalibration *r = context;
    return flim_program_recalibrate(r->f->trainer->program, batch, 1.0 / (double)++r->batches, err);
}

/* To the user it is a part of the validation. */
static flim_status after_batch(void *context, flim_error *err)
{
    const recalibration *r = context;
    const flim_fold_work *f = r->f;
    const flim_train_hooks *hooks = f->run->hooks;
    if (hooks->progress) {
        const flim_progress at = {.phase = FLIM_PHASE_VALIDATE,
                                  .device = &f->trainer->telemetry.now,
                                  .fold = f->k < f->study->splits.n_folds ? f->k : -1,
                                  .folds = f->study->splits.n_folds,
                                  .epoch = f->state.epoch + 1,
                                  .epochs = f->epochs,
                                  .done = r->batches,
                                  .total = (r->cells + f->trainer->batch - 1) / f->trainer->batch,
                                  .cells = r->batches * f->trainer->batch,
                                  .seconds = flim_seconds() - r->begun,
                                  .loss = (double)NAN};
        hooks->progress(hooks->context, &at);
    }
    return flim_run_go_on(f->run, err);
}

static flim_status finish(void *context, flim_error *err)
{
    return flim_program_wait(((recalibration *)context)->f->trainer->program, err);
}

/* How many cells: whole batches, so that each counts alike, or all of a part smaller than one. */
static int64_t recalibration_cells(const flim_fold_work *f)
{
    const int64_t n = f->part->n_train < RECALIBRATION_CELLS ? f->part->n_train : RECALIBRATION_CELLS;
    return n > f->trainer->batch ? n / f->trainer->batch * f->trainer->batch : n;
}

/* The same cells in the same order for every evaluation of a fold: the first ones of the natural order of an epoch that is
 * none of training's.  In their order in the file a batch would be of one donor, and its variance too small. */
flim_status flim_fold_recalibrate(flim_fold_work *f, flim_error *err)
{
    static const flim_phase_work work = {recalibrate_batch, after_batch, finish};
    const uint64_t seed = f->run->settings->seed;
    recalibration r = {.f = f, .cells = recalibration_cells(f), .begun = flim_seconds()};
    flim_draw *draws = flim_alloc((size_t)f->part->n_train, sizeof *draws, err); /* (n_train) */
    flim_status status = draws ? FLIM_OK : FLIM_ERROR_MEMORY;
    FLIM_TRY_DONE(status);
    FLIM_TRY_DONE(flim_sampler_draw(FLIM_SAMPLER_NATURAL, 1, &f->study->split_data, f->part->train, f->part->n_train, seed,
                                    (uint32_t)f->k, UINT32_MAX, draws, err));
    const flim_phase phase = {
        .draws = draws, .n_draws = r.cells, .batch = f->trainer->batch, .seed = seed, .fold = (uint32_t)f->k};
    status = flim_trainer_run_phase(f->trainer, &phase, &work, &r, err);
done:
    flim_free(draws);
    return status;
}

/* ---- what is evaluated ---------------------------------------------------------------------------------------------------- */

flim_status flim_fold_weights_create(flim_fold_work *f, flim_error *err)
{
    const size_t statistics = (size_t)f->state.statistics;
    if (f->run->settings->recalibrate_bn) {
        f->recalibrated = flim_alloc(statistics, sizeof(float), err);
        f->kept_statistic = flim_alloc(statistics, sizeof(float), err);
        FLIM_TRY(f->recalibrated && f->kept_statistic ? FLIM_OK : FLIM_ERROR_MEMORY);
    }
    return f->run->settings->ema > 0 ? flim_fold_state_add_average(&f->state, err) : FLIM_OK;
}

void flim_fold_weights_free(flim_fold_work *f)
{
    flim_free(f->recalibrated);
    flim_free(f->kept_statistic);
    f->recalibrated = f->kept_statistic = NULL;
}

flim_status flim_fold_weights_in(flim_fold_work *f, flim_error *err)
{
    flim_program *program = f->trainer->program;
    if (f->run->settings->ema > 0) {
        FLIM_TRY(flim_trainer_exchange_average(f->trainer, err));
        f->exchanged = true;
    }
    if (f->recalibrated) {
        FLIM_TRY(flim_program_read(program, FLIM_STATE_STATISTICS, f->kept_statistic, err));
        f->replaced = true;
        FLIM_TRY(flim_fold_recalibrate(f, err));
        FLIM_TRY(flim_program_read(program, FLIM_STATE_STATISTICS, f->recalibrated, err));
        if (flim_leads(f->trainer->ranks)) { /* rank 0 made them alone */
            FLIM_TRY(flim_trainer_write(f->trainer, FLIM_STATE_STATISTICS, f->recalibrated, err));
        }
    }
    return FLIM_OK;
}

flim_status flim_fold_weights_out(flim_fold_work *f, flim_error *err)
{
    if (f->replaced) {
        f->replaced = false;
        FLIM_TRY(flim_trainer_write(f->trainer, FLIM_STATE_STATISTICS, f->kept_statistic, err));
    }
    if (f->exchanged) {
        f->exchanged = false;
        FLIM_TRY(flim_trainer_exchange_average(f->trainer, err));
    }
    return FLIM_OK;
}

void flim_fold_weights_evaluated(const flim_fold_work *f, const float **parameter, const float **statistic)
{
    const flim_fold_state *s = &f->state;
    const bool average = s->average_parameter != NULL;
    *parameter = average ? s->average_parameter : s->parameter;
    *statistic = f->recalibrated ? f->recalibrated : average ? s->average_statistic : s->statistic;
}

void flim_fold_weights_keep(flim_fold_work *f)
{
    flim_fold_state *s = &f->state;
    const float *parameter, *statistic;
    flim_fold_weights_evaluated(f, &parameter, &statistic);
    memcpy(s->best_parameter, parameter, (size_t)s->parameters * sizeof *parameter);
    memcpy(s->best_statistic, statistic, (size_t)s->statistics * sizeof *statistic);
}
