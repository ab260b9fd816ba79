#include "cuda/conv/conv_store.h"

#include <string.h>

#include "core/alloc.h"
#include "core/try.h"
#include "cuda/conv/conv_search.h"
#include "cuda/device/cuda_device.h"

static void free_store(flim_cuda_device *device)
{
    flim_conv_store *store = device->conv_store;
    for (int i = 0; i < store->n; i++) {
        flim_cudnn_plan_free(&device->cudnn, &store->choice[i]->cudnn);
        flim_free(store->choice[i]);
    }
    flim_free(store->choice);
    flim_conv_cache_free(&store->cache);
    flim_free(store);
    device->conv_store = NULL;
}

flim_status flim_conv_store_of(flim_cuda_device *device, flim_conv_store **out, flim_error *err)
{
    if (!device->conv_store) {
        flim_conv_store *store = flim_alloc(1, sizeof *store, err);
        if (!store) {
            return FLIM_ERROR_MEMORY;
        }
        store->device = device;
        device->conv_store = store;
        device->free_conv_store = free_store;
    }
    *out = device->conv_store;
    return FLIM_OK;
}

static const flim_conv_choice *find_known(const flim_conv_store *store, const flim_conv_problem *problem,
                                          const flim_conv_search_options *options)
{
    for (int i = 0; i < store->n; i++) {
        const flim_conv_choice *known = store->choice[i];
        const flim_conv_algorithm *a = known->algorithm;
        if (known->benchmarked == options->benchmark && flim_conv_same_problem(&known->problem, problem) &&
            (!a || (flim_conv_fits(known, options) && !(options->without && strcmp(options->without, a->name) == 0)))) {
            return known;
        }
    }
    return NULL;
}

/* Takes the choice from the cache, else searches it. */
static flim_status find_new(flim_conv_store *store, const flim_conv_search_options *options, flim_conv_choice *choice,
                            flim_error *err)
{
    bool cached = false;
    const flim_conv_choice empty = *choice;
    FLIM_TRY(flim_conv_cache_find(&store->cache, store->device, options, choice, &cached, err));
    if (cached && !flim_conv_is_right(store->device, options, choice)) {
        flim_conv_cache_forget(&store->cache, choice);
        flim_cudnn_plan_free(&store->device->cudnn, &choice->cudnn);
        *choice = empty;
        cached = false;
    }
    if (!cached) {
        FLIM_TRY(flim_conv_search(store->device, options, choice, err));
        if (options->benchmark) {
            FLIM_TRY(flim_conv_cache_add(&store->cache, store->device, choice, err));
        }
    }
    store->loaded += cached;
    store->searched += !cached;
    return FLIM_OK;
}

flim_status flim_conv_choose(flim_conv_store *store, const flim_conv_problem *problem,
                             const flim_conv_search_options *options, const flim_conv_choice **out, flim_error *err)
{
    *out = find_known(store, problem, options);
    if (*out) {
        return (*out)->algorithm ? FLIM_OK : flim_fail(err, FLIM_ERROR_DEVICE, "a fused convolution failed its check");
    }
    flim_conv_choice **list = flim_realloc(store->choice, (size_t)store->n + 1, sizeof(flim_conv_choice *), err);
    if (!list) {
        return FLIM_ERROR_MEMORY;
    }
    store->choice = list;
    flim_conv_choice *choice = flim_alloc(1, sizeof *choice, err);
    if (!choice) {
        return FLIM_ERROR_MEMORY;
    }
    choice->problem = *problem;
    choice->benchmarked = options->benchmark;
    const flim_status status = find_new(store, options, choice, err);
    if (status == FLIM_ERROR_DEVICE && !options->without && flim_conv_is_fused(problem)) {
        *choice = (flim_conv_choice){.problem = *problem, .benchmarked = options->benchmark};
        store->choice[store->n++] = choice;
        return status;
    }
    if (status != FLIM_OK) {
        flim_cudnn_plan_free(&store->device->cudnn, &choice->cudnn);
        flim_free(choice);
        return status;
    }
    store->choice[store->n++] = choice;
    *out = choice;
    return FLIM_OK;
}

bool flim_conv_store_has_failed(const flim_conv_store *store, const flim_conv_problem *problem)
{
    for (int i = 0; i < store->n; i++) {
        flim_conv_problem known = store->choice[i]->problem;
        known.n = problem->n;
        known.deterministic = problem->deterministic;
        if (!store->choice[i]->algorithm && flim_conv_same_problem(&known, problem)) {
            return true;
        }
    }
    return false;
}

void flim_conv_store_save(flim_conv_store *store, const flim_conv_search_options *options)
{
    flim_conv_cache_write(&store->cache, store->device, options);
}
