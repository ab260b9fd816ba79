#include "train/trainer.h"

#include <stdio.h>
#include <string.h>

#include "backend/backend.h"
#include "core/alloc.h"
#include "core/try.h"
#include "train/order.h"

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

void flim_device_of_rank(const flim_ranks *ranks, const char *kind, char *out, size_t size)
{
    if (strcmp(kind, "cuda") == 0) {
        snprintf(out, size, "cuda:%d", flim_ranks_local_rank(ranks));
    } else {
        snprintf(out, size, "%s", kind);
    }
}

flim_status flim_trainer_check_cards(const flim_trainer *trainer, flim_error *err)
{
    const int n = flim_ranks_size(trainer->ranks);
    const flim_device_info *device = flim_device_get_info(trainer->device);
    char own[64] = "";
    snprintf(own, sizeof own, "%s", device->own_memory ? device->uuid : "");
    char(*all)[64] = flim_alloc((size_t)n, sizeof *all, err); /* (n) */
    flim_status status = all ? flim_ranks_gather(trainer->ranks, own, sizeof own, all, err) : FLIM_ERROR_MEMORY;
    for (int i = 1; i < n && status == FLIM_OK; i++) {
        for (int j = 0; j < i && status == FLIM_OK && all[i][0]; j++) {
            if (strcmp(all[i], all[j]) == 0) {
                status =
                    flim_fail(err, FLIM_ERROR_USAGE,
                              "--parallel data: ranks %d and %d have the same card: start one process per card of a host "
                              "(mpirun -n N, srun -n N)",
                              j, i);
            }
        }
    }
    flim_free(all);
    return status;
}

/* The others compile the same. */
static flim_status tell_compile(const flim_trainer *trainer, const flim_program_options *options, flim_error *err)
{
    flim_program_options sent = *options;
    flim_order order = {.kind = FLIM_ORDER_COMPILE};
    flim_status status = FLIM_OK;
    sent.cache_dir = NULL;
    sent.log = NULL;
    sent.stop = NULL;
    sent.ranks = NULL;
    FLIM_TRY_DONE(flim_order_put(&order, &trainer->precision, sizeof trainer->precision, err));
    FLIM_TRY_DONE(flim_order_put(&order, &trainer->net, sizeof trainer->net, err));
    FLIM_TRY_DONE(flim_order_put(&order, &sent, sizeof sent, err));
    status = flim_order_send(trainer->ranks, &order, err);
done:
    flim_order_free(&order);
    return status;
}

flim_status flim_trainer_compile(flim_trainer *trainer, const flim_program_options *options, flim_error *err)
{
    flim_program_options own = *options;
    own.ranks = trainer->ranks;
    trainer->batch = options->train_batch;
    trainer->sync_batchnorm = options->sync_batchnorm;
    trainer->eval_batch = options->eval_batch;
    FLIM_TRY(flim_leads(trainer->ranks) ? tell_compile(trainer, options, err) : FLIM_OK);
    const flim_status status = flim_program_compile(trainer->device, &trainer->net, &own, &trainer->program, err);
    return flim_ranks_settle(trainer->ranks, status, err);
}

static flim_status tell_allocate(const flim_trainer *trainer, const flim_dataset *dataset, const flim_loader_options *options,
                                 flim_error *err)
{
    flim_loader_options sent = *options;
    flim_order order = {.kind = FLIM_ORDER_ALLOCATE};
    flim_status status = FLIM_OK;
    sent.device = NULL;
    sent.log = NULL;
    FLIM_TRY_DONE(flim_order_put(&order, &sent, sizeof sent, err));
    if (options->device_cached) {
        FLIM_TRY_DONE(flim_order_put(&order, trainer->cache_widths, (size_t)flim_dataset_get_info(dataset)->n, err));
    }
    status = flim_order_send(trainer->ranks, &order, err);
done:
    flim_order_free(&order);
    return status;
}

flim_status flim_trainer_allocate(flim_trainer *trainer, flim_dataset *dataset, const flim_loader_options *options,
                                  flim_error *err)
{
    int64_t now;
    FLIM_TRY(flim_leads(trainer->ranks) ? tell_allocate(trainer, dataset, options, err) : FLIM_OK);
    flim_status status = flim_loader_create(dataset, options, &trainer->loader, err);
    status = status == FLIM_OK ? flim_device_memory_free(trainer->device, &trainer->free_before, err) : status;
    FLIM_TRY(flim_ranks_settle(trainer->ranks, status, err)); /* programs meet when they are allocated */
    FLIM_TRY(flim_ranks_settle(trainer->ranks, flim_program_allocate(trainer->program, err), err));
    FLIM_TRY(flim_device_memory_free(trainer->device, &now, err));
    trainer->allocated_bytes = trainer->free_before - now;
    return FLIM_OK;
}

int64_t flim_trainer_share(const flim_trainer *trainer, int64_t n, int64_t batch, int64_t *from)
{
    *from = batch * flim_trainer_batch_cells(trainer) +
            (trainer->sync_batchnorm ? flim_ranks_rank(trainer->ranks) * trainer->batch : 0);
    const int64_t left = n - *from;
    return left < 0 ? 0 : left < trainer->batch ? left : trainer->batch;
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

static size_t state_bytes(const flim_trainer *trainer, flim_state state)
{
    const bool statistics = state == FLIM_STATE_STATISTICS || state == FLIM_STATE_AVERAGE_STATISTICS;
    return (size_t)(statistics ? trainer->net.statistics : trainer->net.parameters) * sizeof(float);
}

static flim_status tell_write(const flim_trainer *trainer, flim_state state, const float *values, flim_error *err)
{
    flim_order order = {.kind = FLIM_ORDER_WRITE};
    flim_status status = FLIM_OK;
    FLIM_TRY_DONE(flim_order_put(&order, &state, sizeof state, err));
    FLIM_TRY_DONE(flim_order_put(&order, values, state_bytes(trainer, state), err));
    status = flim_order_send(trainer->ranks, &order, err);
done:
    flim_order_free(&order);
    return status;
}

flim_status flim_trainer_write(flim_trainer *trainer, flim_state state, const float *values, flim_error *err)
{
    FLIM_TRY(flim_leads(trainer->ranks) ? tell_write(trainer, state, values, err) : FLIM_OK);
    return flim_program_write(trainer->program, state, values, err);
}

/* An order of one piece, if there is anybody to give it to. */
static flim_status tell(const flim_trainer *trainer, flim_order_kind kind, const void *from, size_t bytes, flim_error *err)
{
    return flim_leads(trainer->ranks) ? flim_order_send_one(trainer->ranks, kind, from, bytes, err) : FLIM_OK;
}

flim_status flim_trainer_set_counters(flim_trainer *trainer, const flim_counters *counters, flim_error *err)
{
    FLIM_TRY(tell(trainer, FLIM_ORDER_COUNTERS, counters, sizeof *counters, err));
    return flim_program_set_counters(trainer->program, counters, err);
}

flim_status flim_trainer_set_totals(flim_trainer *trainer, const flim_totals *totals, flim_error *err)
{
    FLIM_TRY(tell(trainer, FLIM_ORDER_TOTALS, totals, sizeof *totals, err));
    return flim_program_set_totals(trainer->program, totals, err);
}

flim_status flim_trainer_exchange_average(flim_trainer *trainer, flim_error *err)
{
    FLIM_TRY(tell(trainer, FLIM_ORDER_EXCHANGE, NULL, 0, err));
    return flim_program_exchange_average(trainer->program, err);
}

flim_status flim_trainer_load(flim_trainer *trainer, const float *parameter, const float *statistic, flim_error *err)
{
    FLIM_TRY(flim_trainer_write(trainer, FLIM_STATE_PARAMETERS, parameter, err));
    return flim_trainer_write(trainer, FLIM_STATE_STATISTICS, statistic, err);
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
    if (status == FLIM_OK) {
        status = work->finish(context, err);
    } else { /* other ranks may not be there any more: nothing that needs them */
        (void)flim_program_wait(trainer->program, &ignored);
    }
    if (held) {
        flim_loader_release(loader, held);
    }
    flim_loader_cancel(loader);
    return status;
}
