#include "cuda/conv/conv_store.h"

#include <string.h>

#include "core/alloc.h"
#include "cuda/device/cuda_device.h"
#include "cuda/conv/conv_search.h"

static bool same_problem(const flim_conv_problem *a, const flim_conv_problem *b)
{
    char x[320], y[320];
    flim_conv_text(a, x, sizeof x);
    flim_conv_text(b, y, sizeof y);
    return strcmp(x, y) == 0;
}

flim_status flim_plan_store_get(flim_cuda_device *device, const flim_conv_problem *problem, const flim_plan_options *options,
                                const flim_conv_plan **out, flim_error *err)
{
    flim_plan_store *store = &device->store;
    *out = NULL;
    for (int i = 0; i < store->n; i++) {
        const flim_conv_plan *known = store->plan[i];
        if (known->benchmarked == options->benchmark && known->workspace <= flim_plan_workspace_limit(options) &&
            same_problem(&known->problem, problem)) {
            *out = known;
            return FLIM_OK;
        }
    }
    flim_conv_plan **list = flim_realloc(store->plan, (size_t)store->n + 1, sizeof(flim_conv_plan *), err);
    if (!list) {
        return FLIM_ERROR_MEMORY;
    }
    store->plan = list;
    flim_conv_plan *plan = flim_alloc(1, sizeof *plan, err);
    if (!plan) {
        return FLIM_ERROR_MEMORY;
    }
    plan->problem = *problem;
    plan->benchmarked = options->benchmark;
    bool cached = false;
    flim_status status = flim_plan_cache_find(device, options, plan, &cached, err);
    if (status == FLIM_OK && !cached) {
        status = flim_plan_search(device, options, plan, err);
        if (status == FLIM_OK && options->benchmark) {
            status = flim_plan_cache_add(device, plan, err);
        }
    }
    if (status != FLIM_OK) {
        flim_cudnn_plan_free(&device->cudnn, &plan->cudnn);
        flim_free(plan);
        return status;
    }
    store->loaded += cached;
    store->searched += !cached;
    store->plan[store->n++] = plan;
    *out = plan;
    return FLIM_OK;
}

void flim_plan_store_save(flim_cuda_device *device, const flim_plan_options *options)
{
    flim_plan_cache_write(device, options);
}

void flim_plan_store_free(flim_cuda_device *device)
{
    flim_plan_store *store = &device->store;
    for (int i = 0; i < store->n; i++) {
        flim_cudnn_plan_free(&device->cudnn, &store->plan[i]->cudnn);
        flim_free(store->plan[i]);
    }
    flim_free(store->plan);
    flim_plan_cache_free(&store->cache);
    *store = (flim_plan_store){0};
}
