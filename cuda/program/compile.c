#include "cuda/program/compile.h"

#include <stdio.h>
#include <stdlib.h>

#include "cuda/device/check.h"
#include "core/alloc.h"
#include "cuda/program/layout.h"
#include "cuda/program/program_ops.h"
#include "cuda/program/ranks.h"
#include "cuda/program/schedule_build.h"
#include "cuda/program/state.h"

/* $XDG_CACHE_HOME/flimcv, else ~/.cache/flimcv; empty if there is neither. */
static void default_cache_folder(char *path, size_t size)
{
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    path[0] = 0;
    if (xdg && xdg[0] == '/') {
        snprintf(path, size, "%s/flimcv", xdg);
    } else if (home && home[0] == '/') {
        snprintf(path, size, "%s/.cache/flimcv", home);
    }
}

/* Tuning a convolution ran out of memory: the program is not laid out yet, so which batch would do is an estimate.  What a
 * cell needs is mostly its convolutions' outputs, saved for the backward pass. */
static flim_status explain_tuning(const flim_cuda_program *p, flim_error *err)
{
    size_t free_bytes = 0, total = 0;
    (void)cudaMemGetInfo(&free_bytes, &total);
    double cell = 0;
    for (int u = 0; u < p->base.net.n_units; u++) {
        const flim_unit *unit = &p->base.net.unit[u];
        cell += (double)unit->conv_out[0] * unit->conv_out[1] * unit->conv_out[2] *
                flim_storage_channels(unit->out_channels) * (double)flim_storage_size(p->launch.type);
    }
    const int64_t fits = (int64_t)((double)free_bytes / (1.5 * cell)); /* gradients of one more layer, workspace */
    if (fits >= 1 && fits < p->batch && err) {
        return flim_fail(err, FLIM_ERROR_MEMORY, "%s; a batch of about %lld cells fits, not %lld", err->text, (long long)fits,
                         (long long)p->batch);
    }
    return FLIM_ERROR_MEMORY;
}

/* What AUTO came to, for those who look at the program's options. */
static void note_recompute(flim_cuda_program *p, const flim_recompute_set *set, uint32_t all)
{
    if (p->base.options.recompute == FLIM_RECOMPUTE_AUTO) {
        p->base.options.recompute = set->outputs == 0 && set->blocks == 0 ? FLIM_RECOMPUTE_NONE
                                    : set->blocks == all                  ? FLIM_RECOMPUTE_ALL
                                                                          : FLIM_RECOMPUTE_AUTO;
    }
}

/* The training schedule: as it is, or with everything recomputed that can be, or (AUTO) with just enough of that to stay
 * within the memory.  First comes what costs next to nothing, outputs that another kernel writes along the way (or, of a unit by sign
 * mask, the epilogue); then blocks, each time the one that saves most. */
static flim_status build_training(flim_cuda_program *p, const flim_conv_search_options *search, flim_error *err)
{
    const flim_program_options *o = &p->base.options;
    const flim_network *net = &p->base.net;
    flim_recompute_set set = {0}, best = {0};
    if (o->recompute == FLIM_RECOMPUTE_ALL) {
        set = (flim_recompute_set){.outputs = FLIM_MAX_UNITS, .blocks = UINT32_MAX};
    }
    for (;;) {
        FLIM_TRY(flim_schedule_build(&p->train, p->device, net, o->precision, true, o->train_batch, o->deterministic, &set,
                                     search, err));
        if (o->recompute != FLIM_RECOMPUTE_AUTO) {
            return FLIM_OK;
        }
        const uint32_t all = (1u << (p->train.n_blocks - 1)) - 1; /* the last block is never recomputed */
        if (flim_program_lay_out(p, NULL) + p->train.arena.bytes <= o->memory_limit) {
            note_recompute(p, &set, all);
            return FLIM_OK;
        }
        if (set.outputs < flim_schedule_recomputable(&p->train)) {
            set.outputs++;
            continue;
        }
        if (set.blocks == all) {
            note_recompute(p, &set, all);
            return FLIM_OK;
        }
        int64_t least = INT64_MAX;
        for (int b = 0; b < p->train.n_blocks - 1; b++) {
            const flim_recompute_set more = {set.outputs, set.blocks | 1u << b};
            if (more.blocks == set.blocks) {
                continue;
            }
            FLIM_TRY(flim_schedule_build(&p->train, p->device, net, o->precision, true, o->train_batch, o->deterministic,
                                         &more, search, err));
            if (p->train.arena.bytes < least) {
                least = p->train.arena.bytes;
                best = more;
            }
        }
        set = best;
    }
}

/* The batch was held to the tensors that were to be stored; a fused kernel that has failed its check since makes them larger.
 * FLIM_ERROR_DEVICE, as for convolutions that fail near 2^31: the search for a batch goes on below. */
static flim_status check_tensors(const flim_schedule *s, flim_error *err)
{
    flim_error why = {0};
    return s->batch == 0 || flim_check_tensor_size(s->batch, flim_schedule_largest_tensor(s), &why) == FLIM_OK
               ? FLIM_OK
               : flim_fail(err, FLIM_ERROR_DEVICE, "%s, since a fused convolution failed its check on this card", why.text);
}

flim_status flim_cuda_compile(flim_device *base, const flim_network *net, const flim_program_options *options,
                              flim_program **out, flim_error *err)
{
    flim_cuda_device *device = flim_cuda_device_of(base);
    char cache[4096];
    default_cache_folder(cache, sizeof cache);
    /* Timing could choose another engine in the next run, and with it other bits: deterministic takes the first guess. */
    const flim_conv_search_options search = {.benchmark = options->benchmark && !options->deterministic,
                                             .workspace_limit = options->workspace_limit,
                                             .cache_dir = options->cache_dir ? options->cache_dir
                                                          : cache[0]         ? cache
                                                                             : NULL,
                                             .log = options->log,
                                             .stop = options->stop,
                                             .no_stem = options->sync_batchnorm && flim_ranks_size(options->ranks) > 1};
    flim_status status;
    flim_cuda_program *p = flim_alloc(1, sizeof *p, err);
    if (!p) {
        return FLIM_ERROR_MEMORY;
    }
    p->base = (flim_program){.ops = &flim_cuda_program_ops, .device = base, .net = *net, .options = *options};
    p->device = device;
    flim_cuda_ranks_init(p);
    p->scaled = options->precision == FLIM_PRECISION_TF32;
    p->dynamic = options->precision == FLIM_PRECISION_FP16;
    p->batch = options->train_batch > options->eval_batch ? options->train_batch : options->eval_batch;
    const flim_storage type = flim_cuda_storage(options->precision);
    p->launch = (flim_launch){device->stream, type, device->card.processors};
    p->host_state = flim_state_initial(p->dynamic);
    if (device->cudnn.version < 91600 && !base->info.described) {
        flim_log_line(
            options->log, FLIM_LOG_WARNING,
            "cuDNN %zu.%zu.%zu: versions below 9.16 have wrong or broken 3D convolutions; every plan is checked, but 9.16 or "
            "later is advised",
            device->cudnn.version / 10000, device->cudnn.version / 100 % 100, device->cudnn.version % 100);
    }
    FLIM_TRY_DONE(flim_cuda_device_use(device, err));
    flim_conv_store *store;
    FLIM_TRY_DONE(flim_conv_store_of(device, &store, err));
    const int searched = store->searched, loaded = store->loaded;
    if (options->eval_batch > 0) {
        FLIM_TRY_DONE(flim_schedule_build(&p->predict, device, &p->base.net, options->precision, false, options->eval_batch,
                                          options->deterministic, &(flim_recompute_set){0}, &search, err));
    }
    if (options->train_batch > 0) {
        FLIM_TRY_DONE(build_training(p, &search, err));
    }
    flim_conv_store_save(store, &search);
    FLIM_TRY_DONE(check_tensors(&p->predict, err));
    FLIM_TRY_DONE(check_tensors(&p->train, err));
    if (store->searched > searched || store->loaded > loaded) {
        flim_log_line(options->log, FLIM_LOG_NOTE, "convolution plans: %d %s, %d from the cache", store->searched - searched,
                      search.benchmark ? "tuned" : "chosen by heuristic", store->loaded - loaded);
    }
    if (options->inspect) {
        p->graphs_off = true;
        flim_arena_place_apart(&p->train.arena);
        flim_arena_place_apart(&p->predict.arena);
    }
    flim_cuda_ranks_plan(p);
    p->fixed_bytes = flim_program_lay_out(p, NULL);
    p->arena_bytes = p->train.arena.bytes > p->predict.arena.bytes ? p->train.arena.bytes : p->predict.arena.bytes;
done:
    if (status == FLIM_ERROR_MEMORY && !base->info.described) {
        status = explain_tuning(p, err);
    }
    if (status != FLIM_OK) {
        flim_cuda_program_ops.destroy(&p->base);
    } else {
        *out = &p->base;
    }
    return status;
}
