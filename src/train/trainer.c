#include "train/trainer.h"

#include "backend/backend.h"
#include "core/alloc.h"
#include "core/try.h"

flim_status flim_trainer_create(const char *device, flim_precision precision, const flim_log *log, flim_trainer *out,
                                flim_error *err)
{
    *out = (flim_trainer){0};
    FLIM_TRY(flim_device_open(device, log, &out->device, err));
    out->precision = flim_device_precision(flim_device_get_info(out->device), precision);
    return flim_device_check_precision(out->device, out->precision, err);
}

void flim_trainer_destroy(flim_trainer *trainer)
{
    flim_trainer_drop(trainer);
    flim_free(trainer->initial_parameter);
    flim_free(trainer->initial_statistic);
    flim_device_close(trainer->device);
    *trainer = (flim_trainer){0};
}

flim_status flim_trainer_compile(flim_trainer *trainer, const flim_program_options *options, flim_error *err)
{
    trainer->batch = options->train_batch;
    trainer->eval_batch = options->eval_batch;
    return flim_program_compile(trainer->device, &trainer->net, options, &trainer->program, err);
}

flim_status flim_trainer_allocate(flim_trainer *trainer, flim_dataset *dataset, const flim_loader_options *options,
                                  flim_error *err)
{
    int64_t now;
    FLIM_TRY(flim_loader_create(dataset, options, &trainer->loader, err));
    FLIM_TRY(flim_device_memory_free(trainer->device, &trainer->free_before, err));
    FLIM_TRY(flim_program_allocate(trainer->program, err));
    FLIM_TRY(flim_device_memory_free(trainer->device, &now, err));
    trainer->allocated_bytes = trainer->free_before - now;
    return FLIM_OK;
}

void flim_trainer_drop_loader(flim_trainer *trainer)
{
    flim_loader_destroy(trainer->loader);
    trainer->loader = NULL;
}

void flim_trainer_drop(flim_trainer *trainer)
{
    flim_trainer_drop_loader(trainer);
    flim_program_destroy(trainer->program);
    flim_free(trainer->cache_widths);
    trainer->program = NULL;
    trainer->cache_widths = NULL;
}

flim_status flim_trainer_load(flim_trainer *trainer, const float *parameter, const float *statistic, flim_error *err)
{
    FLIM_TRY(flim_program_write(trainer->program, FLIM_STATE_PARAMETERS, parameter, err));
    return flim_program_write(trainer->program, FLIM_STATE_STATISTICS, statistic, err);
}

flim_status flim_trainer_run_phase(flim_trainer *trainer, const flim_phase *phase, const flim_phase_work *work, void *context,
                                   flim_error *err)
{
    flim_loader *loader = trainer->loader;
    const flim_batch *batch = NULL, *held = NULL; /* held: the program may still read it */
    flim_error ignored;
    flim_status status = flim_loader_begin(loader, phase, err);
    while (status == FLIM_OK && (status = flim_loader_next(loader, &batch, err)) == FLIM_OK && batch) {
        status = work->run(context, batch, err);
        if (held) {
            flim_loader_release(loader, held);
        }
        held = batch;
        status = status == FLIM_OK && work->after ? work->after(context, err) : status;
    }
    const flim_status finished = work->finish(context, status == FLIM_OK ? err : &ignored);
    if (held) {
        flim_loader_release(loader, held);
    }
    flim_loader_cancel(loader);
    return status == FLIM_OK ? finished : status;
}
