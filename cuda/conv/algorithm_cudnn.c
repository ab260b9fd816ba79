/* The algorithms cudnn and cudnn_flipped: cuDNN's engines (conv_cudnn.h), a variant each.  Flipped, a data gradient of stride
 * 1 is computed as a forward convolution; which is faster depends on the channels. */
#include <stdio.h>

#include "core/try.h"
#include "cuda/conv/conv_choice.h"
#include "cuda/device/check.h"
#include "cuda/device/cuda_device.h"

static bool supported(const flim_conv_problem *problem, const flim_card *card)
{
    (void)card;
    return !flim_conv_is_fused(problem);
}

static bool supported_flipped(const flim_conv_problem *problem, const flim_card *card)
{
    flim_conv_problem flipped;
    (void)card;
    return !flim_conv_is_fused(problem) && problem->type != FLIM_STORAGE_FP32 && flim_conv_flip(problem, &flipped);
}

/* The problem as cuDNN sees it. */
static flim_conv_problem library_problem(const flim_conv_choice *choice)
{
    flim_conv_problem problem = choice->problem;
    if (choice->algorithm->flipped) {
        (void)flim_conv_flip(&choice->problem, &problem);
    }
    return problem;
}

static flim_status variants(flim_cuda_device *device, const flim_conv_choice *base, flim_conv_offer *offer, void *to,
                            flim_error *err)
{
    const flim_conv_problem problem = library_problem(base);
    const flim_cudnn *cudnn = &device->cudnn;
    const char *card = device->base.info.name;
    flim_cudnn_candidates found;
    FLIM_TRY(flim_cudnn_candidates_find(cudnn, device->handle, card, &problem, &found, err));
    const int first = found.n;
    bool more = true;
    for (int i = 0; i < found.n && more; i++) {
        flim_conv_choice c = *base;
        snprintf(c.engine, sizeof c.engine, "cuDNN %lld%s", (long long)found.engine[i],
                 base->algorithm->flipped ? " flipped" : "");
        if (flim_cudnn_plan_build(cudnn, device->handle, card, &problem, &found, i, &c.cudnn, err) == FLIM_OK) {
            c.workspace = c.cudnn.workspace;
            more = offer(to, &c);
        }
        if (more && cudnn->card && i + 1 == first) { /* a described card */
            flim_cudnn_candidates_fallback(cudnn, &problem, &found);
        }
    }
    flim_cudnn_candidates_free(cudnn, &found);
    return FLIM_OK;
}

/* The weight gradient sums over spare cells too: they must be 0, not left-overs. */
static flim_status clear_spare(flim_cuda_device *device, const flim_conv_problem *p, const flim_conv_arguments *a,
                               flim_error *err)
{
    const int64_t size = flim_storage_size(p->type), spare = p->n - a->n, x = p->c * flim_volume(p->in) * size,
                  y = p->k * flim_volume(p->out) * size;
    if (p->op == FLIM_CONV_WEIGHT && spare > 0) {
        FLIM_TRY_CUDA(cudaMemsetAsync((char *)a->x + a->n * x, 0, (size_t)(spare * x), device->stream));
        FLIM_TRY_CUDA(cudaMemsetAsync((char *)a->y + a->n * y, 0, (size_t)(spare * y), device->stream));
    }
    return FLIM_OK;
}

static flim_status run(flim_cuda_device *device, const flim_conv_choice *choice, const flim_conv_arguments *a,
                       flim_error *err)
{
    const flim_conv_problem problem = library_problem(choice);
    const bool flipped = choice->algorithm->flipped;
    FLIM_TRY(clear_spare(device, &problem, a, err));
    return flim_cudnn_plan_run(&device->cudnn, device->handle, &problem, &choice->cudnn, flipped ? a->y : a->x, a->w,
                               flipped ? a->x : a->y, a->scratch, err);
}

const flim_conv_algorithm flim_conv_cudnn = {
    .name = "cudnn", .library = true, .supported = supported, .variants = variants, .run = run};

const flim_conv_algorithm flim_conv_cudnn_flipped = {.name = "cudnn_flipped",
                                                     .library = true,
                                                     .flipped = true,
                                                     .guess = flim_conv_not_first,
                                                     .supported = supported_flipped,
                                                     .variants = variants,
                                                     .run = run};
