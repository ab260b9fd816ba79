/* The algorithm wgrad_narrow: weight gradients of 3x3x3 convolutions of 8 or 16 channels (conv3x3x3_narrow.h). */
#include "cuda/conv/conv3x3x3_narrow.h"
#include "cuda/conv/conv_choice.h"
#include "cuda/device/check.h"
#include "cuda/device/cuda_device.h"

static bool supported(const flim_conv_problem *problem, const flim_card *card)
{
    return flim_narrow3x3x3_supported(problem, card->capability);
}

static flim_status variants(flim_cuda_device *device, const flim_conv_choice *base, flim_conv_offer *offer, void *to,
                            flim_error *err)
{
    (void)device, (void)err;
    return flim_conv_offer_one(base, flim_narrow3x3x3_scratch_bytes(&base->problem), offer, to);
}

static flim_status run(flim_cuda_device *device, const flim_conv_choice *choice, const flim_conv_arguments *arguments,
                       flim_error *err)
{
    return flim_cuda_check(flim_narrow3x3x3_run(&choice->problem, arguments, &device->card, device->stream), choice->engine,
                           err);
}

const flim_conv_algorithm flim_conv_wgrad_narrow = {
    .name = "wgrad_narrow", .fp32_gradient = true, .supported = supported, .variants = variants, .run = run};
