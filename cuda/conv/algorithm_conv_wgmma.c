/* The algorithm conv_wgmma: 3x3x3 from 64 channels on weights as stored, on compute capability 9.0 (conv3x3x3.h). */
#include <stdio.h>

#include "cuda/conv/conv3x3x3.h"
#include "cuda/conv/conv_choice.h"
#include "cuda/device/check.h"
#include "cuda/device/cuda_device.h"

static flim_status variants(flim_cuda_device *device, const flim_conv_choice *base, flim_conv_offer *offer, void *to,
                            flim_error *err)
{
    bool more = true;
    (void)device, (void)err;
    for (int turns = 0; turns < 2 && more;
         turns++) { /* without turns first: as the search found for every layer of base and large */
        flim_conv_choice c = *base;
        c.variant = turns;
        c.workspace = base->problem.sums ? (int64_t)flim_conv3x3x3_scratch_bytes() : 0;
        snprintf(c.engine, sizeof c.engine, "%s%s", base->algorithm->name, turns ? "" : " free");
        more = offer(to, &c);
    }
    return FLIM_OK;
}

static flim_status run(flim_cuda_device *device, const flim_conv_choice *choice, const flim_conv_arguments *arguments,
                       flim_error *err)
{
    return flim_cuda_check(
        flim_conv_wgmma_run(&choice->problem, arguments, choice->variant == 1, &device->card, device->stream), choice->engine,
        err);
}

const flim_conv_algorithm flim_conv_wgmma = {.name = "conv_wgmma",
                                             .guess = flim_conv_wgmma_walks_far,
                                             .supported = flim_conv_wgmma_supported,
                                             .gathers = flim_conv_wgmma_walks_far,
                                             .variants = variants,
                                             .run = run};
