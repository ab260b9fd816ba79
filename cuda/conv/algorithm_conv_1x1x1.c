/* The algorithm conv_1x1x1: 1x1x1 forward and compact data gradient (conv1x1x1.h). */
#include "cuda/conv/conv1x1x1.h"
#include "cuda/conv/conv_choice.h"
#include "cuda/device/check.h"
#include "cuda/device/cuda_device.h"

static flim_status variants(flim_cuda_device *device, const flim_conv_choice *base, flim_conv_offer *offer, void *to,
                            flim_error *err)
{
    (void)device, (void)err;
    return flim_conv_offer_one(base, flim_conv1x1x1_scratch_bytes(&base->problem), offer, to);
}

static flim_status run(flim_cuda_device *device, const flim_conv_choice *choice, const flim_conv_arguments *arguments,
                       flim_error *err)
{
    return flim_cuda_check(flim_conv1x1x1_run(&choice->problem, arguments, &device->card, device->stream), choice->engine,
                           err);
}

const flim_conv_algorithm flim_conv_1x1x1 = {.name = "conv_1x1x1",
                                             .supported = flim_conv1x1x1_supported,
                                             .gathers = flim_conv1x1x1_gathers,
                                             .variants = variants,
                                             .run = run};
