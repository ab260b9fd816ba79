#include "cuda/conv/conv_choice.h"

#include <stdio.h>

#include "cuda/device/check.h"
#include "cuda/device/cuda_device.h"

enum { DEFAULT_WORKSPACE = 256 << 20 };

int64_t flim_conv_workspace_limit(const flim_conv_search_options *options)
{
    return options->workspace_limit > 0 ? options->workspace_limit : DEFAULT_WORKSPACE;
}

static flim_fp32_card fp32_card(const flim_cuda_device *device)
{
    return (flim_fp32_card){.processors = device->card.processors,
                            .capability = device->card.capability,
                            .shared_bytes = device->card.shared_bytes};
}

int flim_custom_choices(const flim_cuda_device *device, const flim_conv_choice *base, flim_conv_choice list[FLIM_FP32_TILES])
{
    const flim_conv_problem *problem = &base->problem;
    const flim_fp32_card card = fp32_card(device);
    int tile[FLIM_FP32_TILES];
    if (flim_wgrad3x3x3_supported(problem, device->sm)) {
        list[0] = *base;
        list[0].custom = true;
        list[0].workspace = (int64_t)flim_wgrad3x3x3_scratch_bytes(problem);
        snprintf(list[0].engine, sizeof list[0].engine, "custom");
        return 1;
    }
    const int n = flim_fp32_tiles(problem, &card, tile);
    for (int i = 0; i < n; i++) {
        list[i] = *base;
        list[i].tile = tile[i];
        list[i].workspace = flim_fp32_workspace(problem, tile[i], &card);
        snprintf(list[i].engine, sizeof list[i].engine, "custom %s", flim_fp32_tile_name(problem->op, tile[i]));
    }
    return n;
}

flim_status flim_conv_run(flim_cuda_device *device, const flim_conv_choice *choice, const flim_conv_arguments *a,
                          flim_error *err)
{
    const flim_conv_problem *problem = &choice->problem;
    if (choice->custom) {
        return flim_cuda_check(flim_wgrad3x3x3_run(problem, a, device->stream), "a weight gradient", err);
    }
    if (choice->tile) {
        const flim_fp32_card card = fp32_card(device);
        return flim_cuda_check(
            flim_fp32_run(problem, a->n, choice->tile, &card, a->x, a->w, a->y, a->scratch, device->stream),
            "a convolution in fp32", err);
    }
    if (choice->flipped) {
        flim_conv_problem flipped;
        (void)flim_conv_flip(problem, &flipped);
        return flim_cudnn_plan_run(&device->cudnn, device->handle, &flipped, &choice->cudnn, a->y, a->w, a->x, a->scratch,
                                   err);
    }
    return flim_cudnn_plan_run(&device->cudnn, device->handle, problem, &choice->cudnn, a->x, a->w, a->y, a->scratch, err);
}
