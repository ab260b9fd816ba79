/* The algorithm fp32: implicit matrix products without tensor cores (conv_fp32.h); a variant per tiling. */
#include <stdio.h>

#include "cuda/conv/conv_choice.h"
#include "cuda/conv/conv_fp32.h"
#include "cuda/device/check.h"
#include "cuda/device/cuda_device.h"

static bool supported(const flim_conv_problem *problem, const flim_card *card)
{
    (void)card;
    return !flim_conv_is_fused(problem) && flim_fp32_supported(problem);
}

static flim_status variants(flim_cuda_device *device, const flim_conv_choice *base, flim_conv_offer *offer, void *to,
                            flim_error *err)
{
    const flim_conv_problem *problem = &base->problem;
    int tiling[FLIM_FP32_TILES];
    bool more = true;
    (void)err;
    const int n = flim_fp32_tiles(problem, &device->card, tiling);
    for (int i = 0; i < n && more; i++) {
        flim_conv_choice c = *base;
        c.variant = tiling[i];
        c.workspace = flim_fp32_workspace(problem, tiling[i], &device->card);
        snprintf(c.engine, sizeof c.engine, "fp32 %s", flim_fp32_tile_name(problem->op, tiling[i]));
        more = offer(to, &c);
    }
    return FLIM_OK;
}

static flim_status run(flim_cuda_device *device, const flim_conv_choice *choice, const flim_conv_arguments *a,
                       flim_error *err)
{
    return flim_cuda_check(
        flim_fp32_run(&choice->problem, a->n, choice->variant, &device->card, a->x, a->w, a->y, a->scratch, device->stream),
        "a convolution in fp32", err);
}

const flim_conv_algorithm flim_conv_fp32 = {.name = "fp32", .supported = supported, .variants = variants, .run = run};
