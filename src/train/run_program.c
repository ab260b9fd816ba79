/* The run's program: network, initial weights, batch, compiling and allocating, with smaller batches if memory lacks. */
#include <inttypes.h>

#include "backend/backend.h"
#include "core/alloc.h"
#include "core/try.h"
#include "plan/plan.h"
#include "train/pretraining.h"
#include "train/run.h"

flim_status flim_run_build_network(flim_run *run, const flim_study *study, flim_trainer *trainer, flim_error *err)
{
    const flim_settings *s = run->settings;
    const flim_dataset_info *info = study->info;
    if (s->pretrains) {
        FLIM_TRY(flim_pretraining_build(run, study, &trainer->net, err));
        FLIM_TRY(s->batch == 0 ? flim_run_find_batch(run, study, trainer, err) : FLIM_OK);
        run->adjusted.batch -= s->contrastive > 0 ? s->batch % 2 : 0; /* of pairs */
        flim_run_scale_learning_rate(run, study, trainer);
        return FLIM_OK;
    }
    FLIM_TRY(flim_network_build_sized(&trainer->net, flim_model_size_of(s->preset, s->width, s->depth), info->classes,
                                      info->t, info->h, info->w, err));
    if (s->mixup != FLIM_MIXUP_NONE) {
        trainer->net.head[0].loss = FLIM_LOSS_SOFT_TARGETS;
    }
    FLIM_TRY(flim_run_read_initial_weights(run, study, trainer, err));
    FLIM_TRY(s->batch == 0 ? flim_run_find_batch(run, study, trainer, err) : FLIM_OK);
    flim_run_scale_learning_rate(run, study, trainer);
    return FLIM_OK;
}

static flim_status compile(const flim_run *run, const flim_study *study, flim_trainer *trainer, flim_error *err)
{
    const flim_settings *s = run->settings;
    const flim_plan_budget budget = flim_run_budget(run, trainer);
    const flim_plan_request request = {.net = &trainer->net,
                                       .batch = s->batch,
                                       .eval_batch = s->eval_batch ? s->eval_batch : s->batch,
                                       .average = s->ema > 0,
                                       .prefetch = (int)s->prefetch,
                                       .cache_bytes = study->info->cache_bytes};
    const int64_t limit = flim_plan_limit(trainer->device, &request, &budget) - flim_run_device_cache_bytes(run, study);
    const flim_program_options options = {.precision = trainer->precision,
                                          .train_batch = request.batch,
                                          .eval_batch = request.eval_batch,
                                          .benchmark = s->benchmark,
                                          .deterministic = s->deterministic,
                                          .recompute = s->checkpoint_activations,
                                          .memory_limit = limit,
                                          .average = request.average,
                                          .sync_batchnorm = s->sync_batchnorm,
                                          .log = &run->log,
                                          .stop = run->hooks->stop};
    trainer->accumulate = s->accumulate;
    FLIM_TRY(flim_trainer_compile(trainer, &options, err));
    return flim_run_plan_device_cache(run, study, trainer, err);
}

static flim_status allocate(const flim_run *run, const flim_study *study, flim_trainer *trainer, flim_error *err)
{
    const flim_settings *s = run->settings;
    const flim_loader_options loader = {.workers = (int)s->workers,
                                        .prefetch = (int)s->prefetch,
                                        .batch = trainer->batch > trainer->eval_batch ? trainer->batch : trainer->eval_batch,
                                        .device = trainer->device,
                                        .device_cached = trainer->cache_widths != NULL,
                                        .mixes = s->mixup != FLIM_MIXUP_NONE,
                                        .log = &run->log};
    flim_startup_network(run, trainer);
    FLIM_TRY(flim_log_memory_plan(run, study, trainer, err));
    const flim_status status = flim_trainer_allocate(trainer, study->dataset, &loader, err);
    if (status == FLIM_ERROR_MEMORY && trainer->cache_widths && s->cache == FLIM_CACHE_AUTO && !trainer->program->allocated) {
        flim_log_line(&run->log, FLIM_LOG_NOTE, "less device memory than planned; decoded cells are not cached there");
        flim_trainer_drop_loader(trainer);
        FLIM_TRY(flim_run_drop_device_cache(run, study, trainer, err));
        return allocate(run, study, trainer, err); /* once: no cell is cached there now */
    }
    FLIM_TRY(status);
    return flim_run_fill_device_cache(run, study, trainer, err);
}

/* False if there is no smaller batch, or none is wanted. */
static bool take_smaller_batch(flim_run *run, const flim_study *study, flim_trainer *trainer, bool begun,
                               const flim_error *why)
{
    if (!begun && flim_run_lower_found_batch(run, why)) {
        flim_run_scale_learning_rate(run, study, trainer);
        return true;
    }
    return flim_run_shrink_batch(run, study, why);
}

flim_status flim_run_make_program(flim_run *run, const flim_study *study, flim_trainer *trainer, bool begun, flim_error *err)
{
    for (;;) {
        flim_error why = {0};
        flim_trainer_drop(trainer);
        flim_status status = compile(run, study, trainer, &why);
        status = status == FLIM_OK ? allocate(run, study, trainer, &why) : status;
        if (status == FLIM_OK) {
            return FLIM_OK;
        }
        if (status != FLIM_ERROR_MEMORY || !take_smaller_batch(run, study, trainer, begun, &why)) {
            return flim_fail(err, status, "%s", why.text);
        }
    }
}
