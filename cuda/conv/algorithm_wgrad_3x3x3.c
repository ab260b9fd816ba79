/* The algorithm wgrad_3x3x3: weight gradients of 3x3x3 convolutions (conv3x3x3_wgrad.h). */
#include "cuda/conv/conv3x3x3_wgrad.h"
#include "cuda/conv/conv_choice.h"
#include "cuda/device/check.h"
#include "cuda/device/cuda_device.h"

static bool supported(const flim_conv_problem *problem, const flim_card *card)
{
    return flim_wgrad3x3x3_supported(problem, card->capability);
}

static flim_status variants(flim_cuda_device *device, const flim_conv_choice *base, flim_conv_offer *offer, void *to,
                            flim_error *err)
{
    (void)device, (void)err;
    return flim_conv_offer_one(base, flim_wgrad3x3x3_scratch_bytes(&base->problem), offer, to);
}

static flim_status run(flim_cuda_device *device, const flim_conv_choice *choice, const flim_conv_arguments *arguments,
                       flim_error *err)
{
    return flim_cuda_check(flim_wgrad3x3x3_run(&choice->problem, arguments, &device->card, device->stream), choice->engine,
                           err);
}

/* Where wgmma is there cuDNN's need less from 64 channels on: 128 to 128 on an H200 0.21 ms, 0.56 by this.  Only this one reads what is
 * still to be normalised. */
static bool guess(const flim_conv_problem *problem, const flim_card *card)
{
    return card->capability != 90 || problem->c <= 32 || problem->x_form != FLIM_INPUT_PLAIN;
}

const flim_conv_algorithm flim_conv_wgrad_3x3x3 = {
    .name = "wgrad_3x3x3", .fp32_gradient = true, .supported = supported, .guess = guess, .variants = variants, .run = run};
