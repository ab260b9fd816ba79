/* The algorithm fused_stem: the network's first two units in one (conv_stem.h). */
#include "cuda/conv/conv_stem.h"
#include "cuda/conv/conv_choice.h"
#include "cuda/device/check.h"
#include "cuda/device/cuda_device.h"

static bool supported(const flim_conv_problem *problem, const flim_card *card)
{
    return flim_stem_supported(problem, card->capability);
}

static flim_status variants(flim_cuda_device *device, const flim_conv_choice *base, flim_conv_offer *offer, void *to,
                            flim_error *err)
{
    (void)device, (void)err;
    return flim_conv_offer_one(base, flim_stem_scratch_bytes(&base->problem), offer, to);
}

static flim_status run(flim_cuda_device *device, const flim_conv_choice *choice, const flim_conv_arguments *arguments,
                       flim_error *err)
{
    return flim_cuda_check(flim_stem_run(&choice->problem, arguments, &device->card, device->stream), choice->engine, err);
}

const flim_conv_algorithm flim_conv_fused_stem = {
    .name = "fused_stem", .fused = true, .fp32_gradient = true, .supported = supported, .variants = variants, .run = run};
