/* The algorithm wgrad_tma: weight gradients of 3x3x3 convolutions on compute capability 9.0 (conv3x3x3_wgrad_tma.h). */
#include "cuda/conv/conv3x3x3_wgrad_tma.h"
#include "cuda/conv/conv_choice.h"
#include "cuda/device/check.h"
#include "cuda/device/cuda_device.h"

static flim_status variants(flim_cuda_device *device, const flim_conv_choice *base, flim_conv_offer *offer, void *to,
                            flim_error *err)
{
    (void)device, (void)err;
    return flim_conv_offer_one(base, flim_wgrad_tma_scratch_bytes(&base->problem), offer, to);
}

static flim_status run(flim_cuda_device *device, const flim_conv_choice *choice, const flim_conv_arguments *arguments,
                       flim_error *err)
{
    return flim_cuda_check(flim_wgrad_tma_run(&choice->problem, arguments, &device->card, device->stream), choice->engine,
                           err);
}

/* On an H200 at 32 channels 0.48 ms (wgrad_3x3x3: 0.50), into 64 0.29 (0.40); from 64 on cuDNN's are faster. */
static bool guess(const flim_conv_problem *problem, const flim_card *card)
{
    (void)card;
    return problem->c <= 32;
}

const flim_conv_algorithm flim_conv_wgrad_tma = {.name = "wgrad_tma",
                                                   .guess = guess,
                                                   .fp32_gradient = true,
                                                   .supported = flim_wgrad_tma_supported,
                                                   .variants = variants,
                                                   .run = run};
