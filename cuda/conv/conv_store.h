/* Chosen convolution plans of a device: looked for once a problem (in the cache, else by a search) and kept until it closes.
 *
 * For: programs ask for a plan a problem; folds, epochs and last partial batches (which run the full batch's plan) share them.
 * Owns: the store owns the plans until the device closes; pointers handed out stay valid.
 * Errors: those of plan_search.h; FLIM_ERROR_MEMORY.
 */
#ifndef FLIM_CUDA_PLAN_STORE_H
#define FLIM_CUDA_PLAN_STORE_H

#include "cuda/conv/conv_choice.h"
#include "cuda/conv/conv_cache.h"

typedef struct flim_plan_store {
    flim_conv_plan **plan;
    int n;
    flim_plan_cache cache;
    int searched, loaded; /* since the device was opened, for notes */
} flim_plan_store;

/* The plan for a problem; *out is the store's. */
flim_status flim_plan_store_get(struct flim_cuda_device *device, const flim_conv_problem *problem,
                                const flim_plan_options *options, const flim_conv_plan **out, flim_error *err);
/* Writes the cache's file where there are new plans. */
void flim_plan_store_save(struct flim_cuda_device *device, const flim_plan_options *options);
void flim_plan_store_free(struct flim_cuda_device *device);

#endif
