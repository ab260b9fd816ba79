/* The weights that are evaluated, chosen and saved: training's, or their running average; with statistics made again or not. */
#include <string.h>

#include "core/alloc.h"
#include "core/try.h"
#include "cv/sampler.h"
#include "train/fold.h"
#include "train/recalibration.h"

enum { RECALIBRATION_CELLS = 512 }; /* of the training set, at most: eight of the usual batches */

/* ---- statistics made again ------------------------------------------------------------------------------------------------ */

/* How many cells: whole batches, so that each counts alike, or all of a part smaller than one. */
static int64_t recalibration_cells(const flim_fold_work *f)
{
    const int64_t n = f->part->n_train < RECALIBRATION_CELLS ? f->part->n_train : RECALIBRATION_CELLS;
    const int64_t batch = flim_trainer_batch_cells(f->trainer);
    return n > batch ? n / batch * batch : n;
}

/* The same cells in the same order for every evaluation of a fold: the first ones of the natural order of an epoch that is
 * none of training's.  In their order in the file a batch would be of one donor, and its variance too small.  To the user it is a
 * part of the validation. */
flim_status flim_fold_recalibrate(flim_fold_work *f, flim_error *err)
{
    const uint64_t seed = f->run->settings->seed;
    flim_draw *draws = flim_alloc((size_t)f->part->n_train, sizeof *draws, err); /* (n_train) */
    flim_status status = draws ? FLIM_OK : FLIM_ERROR_MEMORY;
    const flim_recalibration recalibration = {.hooks = f->run->hooks,
                                              .at = {.phase = FLIM_PHASE_VALIDATE,
                                                     .device = &f->trainer->telemetry.now,
                                                     .fold = f->k < f->study->splits.n_folds ? f->k : -1,
                                                     .folds = f->study->splits.n_folds,
                                                     .epoch = f->state.epoch + 1,
                                                     .epochs = f->epochs},
                                              .draws = draws,
                                              .n = recalibration_cells(f),
                                              .seed = seed,
                                              .fold = (uint32_t)f->k};
    FLIM_TRY_DONE(status);
    FLIM_TRY_DONE(flim_sampler_draw(FLIM_SAMPLER_NATURAL, 1, &f->study->split_data, f->part->train, f->part->n_train, seed,
                                    (uint32_t)f->k, UINT32_MAX, draws, err));
    status = flim_trainer_recalibrate(f->trainer, &recalibration, err);
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
        if (flim_leads(f->trainer->ranks) && !f->trainer->sync_batchnorm) { /* rank 0 made them alone */
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
