/* The algorithm wgrad_wgmma: weight gradients of 3x3x3 convolutions on compute capability 9.0 (conv3x3x3_wgrad_wgmma.h). */
#include "cuda/conv/conv3x3x3_wgrad_wgmma.h"
#include "cuda/conv/conv_choice.h"
#include "cuda/device/check.h"
#include "cuda/device/cuda_device.h"

static flim_status variants(flim_cuda_device *device, const flim_conv_choice *base, flim_conv_offer *offer, void *to,
                            flim_error *err)
{
    (void)device, (void)err;
    return flim_conv_offer_one(base, flim_wgrad_wgmma_scratch_bytes(&base->problem), offer, to);
}

static flim_status run(flim_cuda_device *device, const flim_conv_choice *choice, const flim_conv_arguments *arguments,
                       flim_error *err)
{
    return flim_cuda_check(flim_wgrad_wgmma_run(&choice->problem, arguments, &device->card, device->stream), choice->engine,
                           err);
}

const flim_conv_algorithm flim_conv_wgrad_wgmma = {
    .name = "wgrad_wgmma", .fp32_gradient = true, .supported = flim_wgrad_wgmma_supported, .variants = variants, .run = run};
