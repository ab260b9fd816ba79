/* Life of a compiled program: its memory, said and then allocated, and the table of its functions. */
#include "cuda/program/program_ops.h"

#include <stdio.h>
#include <string.h>

#include "cuda/device/check.h"
#include "backend/shortage.h"
#include "core/alloc.h"
#include "cuda/program/execute.h"
#include "cuda/program/graph.h"
#include "cuda/program/inspect.h"
#include "cuda/program/layout.h"
#include "cuda/program/profile.h"
#include "cuda/program/ranks.h"
#include "cuda/program/ranks_time.h"
#include "cuda/program/schedule_build.h"
#include "cuda/program/state.h"
#include "cuda/program/transfer.h"

/* Undoes `allocate`, as far as it got. */
static void free_memory(flim_cuda_program *p)
{
    if (!p->device->base.info.described && cudaSetDevice(p->device->ordinal) == cudaSuccess) {
        (void)cudaStreamSynchronize(p->device->copy_stream);
        (void)cudaStreamSynchronize(p->device->stream);
        flim_graph_free(p);
        flim_cuda_ranks_leave(p);
        flim_transfer_free(p);
        flim_cuda_cache_end(&p->cache);
        (void)cudaFree(p->memory);
        p->memory = NULL;
        (void)cudaGetLastError();
    }
}

static void destroy(flim_program *base)
{
    flim_cuda_program *p = flim_cuda_program_of(base);
    free_memory(p);
    flim_cuda_cache_free(&p->cache);
    flim_free(p);
}

/* Saved activations, a line per block: units whose names begin with the same word (res1). */
static void add_saved(const flim_schedule *schedule, flim_memory_plan *plan)
{
    const flim_network *net = schedule->net;
    for (int u = 0; u < net->n_units;) {
        const char *block = net->unit[u].conv;
        const int word = (int)strcspn(block, ".");
        char name[48];
        int64_t bytes = 0;
        do {
            bytes += flim_schedule_saved_at_peak(schedule, u++);
        } while (u < net->n_units && strncmp(net->unit[u].conv, block, (size_t)word + 1) == 0);
        snprintf(name, sizeof name, "saved activations of %.*s", word < 24 ? word : 24, block);
        flim_memory_add(plan, name, FLIM_MEMORY_DEVICE, bytes);
    }
}

static flim_status memory(const flim_program *base, flim_memory_plan *plan, flim_error *err)
{
    static const char *const uses[] = {"saved activations", "temporary activations", "gradients of activations"};
    const flim_cuda_program *p = (const flim_cuda_program *)base;
    const flim_schedule *most = p->train.arena.bytes >= p->predict.arena.bytes ? &p->train : &p->predict;
    int64_t rest = p->arena_bytes;
    (void)err;
    flim_memory_add(plan, "parameters", FLIM_MEMORY_DEVICE, p->bytes_parameters);
    flim_memory_add(plan, "BatchNorm statistics", FLIM_MEMORY_DEVICE, p->bytes_statistics);
    flim_memory_add(plan, "gradients", FLIM_MEMORY_DEVICE, p->bytes_gradients);
    flim_memory_add(plan, "Adam moments", FLIM_MEMORY_DEVICE, p->bytes_moments);
    flim_memory_add(plan, "averages of weights and statistics", FLIM_MEMORY_DEVICE, p->bytes_average);
    flim_memory_add(plan, "statistics and gradients of other ranks", FLIM_MEMORY_DEVICE, p->bytes_ranks);
    flim_memory_add(plan, "weight copies", FLIM_MEMORY_DEVICE, p->bytes_weights);
    flim_memory_add(plan, "input buffers", FLIM_MEMORY_DEVICE, p->bytes_stages);
    flim_memory_add(plan, "sums and head", FLIM_MEMORY_DEVICE, p->bytes_scratch);
    for (int u = 0; u < FLIM_USES; u++) {
        if (u == FLIM_USE_SAVED) {
            add_saved(most, plan);
        } else if (u == FLIM_USE_WORKSPACE) {
            flim_memory_add_workspace(plan, most->at_peak[u]);
        } else {
            flim_memory_add(plan, uses[u], FLIM_MEMORY_DEVICE, most->at_peak[u]);
        }
        rest -= most->at_peak[u];
    }
    flim_memory_add(plan, "gaps between activations", FLIM_MEMORY_DEVICE, rest);
    flim_memory_add(plan, "cells of the data", FLIM_MEMORY_DEVICE, p->cache.bytes);
    flim_memory_add(plan, "call arguments and logits", FLIM_MEMORY_PINNED,
                    flim_transfer_pinned_bytes(p) + flim_cuda_cache_pinned_bytes(&p->cache));
    return FLIM_OK;
}

static int64_t all_bytes(const flim_cuda_program *p)
{
    return p->fixed_bytes + p->arena_bytes + p->cache.bytes;
}

/* cudaMalloc failed: says what was needed, what is free, and which batch would do (activations grow with the batch). */
static flim_status explain_memory(flim_cuda_program *p, flim_error *err)
{
    size_t free_bytes = 0, total = 0;
    (void)cudaMemGetInfo(&free_bytes, &total);
    const int64_t per_batch = p->arena_bytes + p->bytes_stages + p->bytes_scratch, rest = all_bytes(p) - per_batch;
    char beside[440];
    flim_cuda_beside(p->device, beside, sizeof beside);
    int64_t fits = per_batch > 0 ? (int64_t)(((double)free_bytes - (double)rest) / (double)per_batch * (double)p->batch) : 0;
    const flim_shortage shortage = {.needed = all_bytes(p),
                                    .available = (int64_t)free_bytes,
                                    .total = (int64_t)total,
                                    .fits = fits < p->batch ? fits : p->batch - 1,
                                    .beside = beside};
    return flim_fail_shortage(&p->base, &shortage, err);
}

static flim_status allocate(flim_program *base, flim_error *err)
{
    flim_cuda_program *p = flim_cuda_program_of(base);
    flim_status status = FLIM_OK;
    if (base->device->info.described) {
        return flim_fail(err, FLIM_ERROR_DEVICE, "%s is only a description: it can be planned for, not used",
                         base->device->info.name);
    }
    void *at = NULL;
    FLIM_TRY_DONE(flim_cuda_device_use(p->device, err));
    cudaError_t code = cudaMalloc(&at, (size_t)all_bytes(p));
    if (code == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        FLIM_TRY_DONE(explain_memory(p, err));
    }
    FLIM_TRY_DONE(flim_cuda_check(code, "cudaMalloc", err));
    p->memory = at;
    (void)flim_program_lay_out(p, p->memory);
    p->arena = p->memory + p->fixed_bytes;
    cudaStream_t stream = p->device->stream;
    FLIM_TRY_CUDA_DONE(cudaMemsetAsync(p->memory, 0, (size_t)(p->fixed_bytes + p->arena_bytes), stream));
    if (base->options.inspect) { /* NaN until something is written */
        FLIM_TRY_CUDA_DONE(cudaMemsetAsync(p->arena, 0xff, (size_t)p->arena_bytes, stream));
    }
    FLIM_TRY_CUDA_DONE(cudaMemcpyAsync(p->weights, &p->weights_host, sizeof p->weights_host, cudaMemcpyHostToDevice, stream));
    FLIM_TRY_CUDA_DONE(cudaMemcpyAsync(p->state, &p->host_state, sizeof p->host_state, cudaMemcpyHostToDevice, stream));
    FLIM_TRY_DONE(flim_transfer_make(p, err));
    FLIM_TRY_DONE(flim_cuda_cache_begin(&p->cache, p->memory + p->fixed_bytes + p->arena_bytes, stream, err));
    FLIM_TRY_CUDA_DONE(cudaStreamSynchronize(stream));
done:
    status = flim_cuda_ranks_join(p, status, err);
    if (status != FLIM_OK) {
        free_memory(p); /* pinned memory may be what was short: the caller may try again with less */
    }
    return status;
}

static flim_status wait_all(flim_program *base, flim_error *err)
{
    return flim_cuda_finish(flim_cuda_program_of(base), err);
}

static int64_t peak_bytes(const flim_program *base)
{
    return all_bytes((const flim_cuda_program *)base);
}

static bool replays(const flim_program *base)
{
    const flim_cuda_program *p = (const flim_cuda_program *)base;
    return p->n_graphs > 0 && !p->graphs_off;
}

static flim_status plan_cache(flim_program *base, const flim_device_cache *cells, flim_error *err)
{
    flim_cuda_program *p = flim_cuda_program_of(base);
    const int64_t pixels = (int64_t)base->net.in[1] * base->net.in[2];
    return flim_cuda_cache_plan(&p->cache, pixels * base->net.in[0], pixels, cells, p->batch, FLIM_SLOTS, err);
}

static flim_status store_cell(flim_program *base, int64_t cell, const void *voxels, const uint8_t *mask, flim_error *err)
{
    flim_cuda_program *p = flim_cuda_program_of(base);
    FLIM_TRY(flim_cuda_device_use(p->device, err));
    return flim_cuda_cache_store(&p->cache, cell, voxels, mask, p->device->stream, err);
}

const flim_program_ops flim_cuda_program_ops = {.destroy = destroy,
                                                .memory = memory,
                                                .allocate = allocate,
                                                .states = flim_state_arrays_of,
                                                .read = flim_state_read,
                                                .write = flim_state_write,
                                                .get_counters = flim_state_get_counters,
                                                .set_counters = flim_state_set_counters,
                                                .train = flim_cuda_train,
                                                .recalibrate = flim_cuda_recalibrate,
                                                .exchange_average = flim_cuda_exchange_average,
                                                .predict = flim_cuda_predict,
                                                .evaluate = flim_cuda_evaluate,
                                                .totals = flim_state_totals,
                                                .set_totals = flim_state_set_totals,
                                                .wait = wait_all,
                                                .peak_bytes = peak_bytes,
                                                .replays = replays,
                                                .profile = flim_cuda_profile,
                                                .time_exchange = flim_cuda_time_exchange,
                                                .plan_cache = plan_cache,
                                                .store_cell = store_cell,
                                                .read_tensor = flim_cuda_read_tensor};
