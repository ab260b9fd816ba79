/* The algorithm conv_strided: data gradients of stride 2 from 64 channels on compute capability 9.0 (conv_strided.h). */
#include "cuda/conv/conv_choice.h"
#include "cuda/conv/conv_strided.h"
#include "cuda/device/check.h"
#include "cuda/device/cuda_device.h"

static flim_status variants(flim_cuda_device *device, const flim_conv_choice *base, flim_conv_offer *offer, void *to,
                            flim_error *err)
{
    (void)device, (void)err;
    return flim_conv_offer_one(base, flim_conv_strided_scratch_bytes(&base->problem), offer, to);
}

static flim_status run(flim_cuda_device *device, const flim_conv_choice *choice, const flim_conv_arguments *arguments,
                       flim_error *err)
{
    return flim_cuda_check(flim_conv_strided_run(&choice->problem, arguments, &device->card, device->stream), choice->engine,
                           err);
}

const flim_conv_algorithm flim_conv_strided = {.name = "conv_strided",
                                               .supported = flim_conv_strided_supported,
                                               .guess = flim_conv_strided_walks_far,
                                               .variants = variants,
                                               .run = run};
