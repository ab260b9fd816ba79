/* The algorithm fused_3x3x3: 3x3x3 with 32 channels and what is fused with it (conv3x3x3.h). */
#include <stdio.h>

#include "cuda/conv/conv3x3x3.h"
#include "cuda/conv/conv_choice.h"
#include "cuda/device/check.h"
#include "cuda/device/cuda_device.h"

static bool supported(const flim_conv_problem *problem, const flim_card *card)
{
    return flim_conv3x3x3_supported(problem, card->capability);
}

/* What is not timed takes the first: on an H200 wgmma needs three quarters of the usual one's time in every place that has it. */
static const flim_conv3x3x3_variant order[FLIM_CONV3X3X3_VARIANTS] = {FLIM_CONV3X3X3_WGMMA, FLIM_CONV3X3X3_USUAL,
                                                                      FLIM_CONV3X3X3_WIDE, FLIM_CONV3X3X3_WGMMA_FREE};

static flim_status variants(flim_cuda_device *device, const flim_conv_choice *base, flim_conv_offer *offer, void *to,
                            flim_error *err)
{
    bool more = true;
    (void)err;
    for (int i = 0; i < FLIM_CONV3X3X3_VARIANTS && more; i++) {
        flim_conv_choice c = *base;
        if (!flim_conv3x3x3_has_variant(&base->problem, order[i], &device->card)) {
            continue;
        }
        c.variant = (int)order[i];
        c.workspace = (int64_t)flim_conv3x3x3_scratch_bytes();
        snprintf(c.engine, sizeof c.engine, "%s%s", base->algorithm->name, flim_conv3x3x3_variant_names[order[i]]);
        more = offer(to, &c);
    }
    return FLIM_OK;
}

static flim_status run(flim_cuda_device *device, const flim_conv_choice *choice, const flim_conv_arguments *arguments,
                       flim_error *err)
{
    return flim_cuda_check(flim_conv3x3x3_run(&choice->problem, arguments, (flim_conv3x3x3_variant)choice->variant,
                                              &device->card, device->stream),
                           choice->engine, err);
}

const flim_conv_algorithm flim_conv_fused_3x3x3 = {
    .name = "fused_3x3x3", .fused = true, .supported = supported, .variants = variants, .run = run};
