#include "cuda/conv/conv_choice.h"

#include <stdio.h>

#include "cuda/device/check.h"
#include "cuda/device/cuda_device.h"

enum { DEFAULT_WORKSPACE = 256 << 20 };

int64_t flim_plan_workspace_limit(const flim_plan_options *options)
{
    return options->workspace_limit > 0 ? options->workspace_limit : DEFAULT_WORKSPACE;
}

bool flim_own_wgrad_shape(const flim_conv_problem *p, int in_channels, int out_channels, int sm, flim_wgrad_shape *out)
{
    if (p->op != FLIM_CONV_WEIGHT || p->type == FLIM_STORAGE_FP32) {
        return false;
    }
    for (int d = 0; d < 3; d++) {
        if (p->kernel[d] != 3 || p->pad[d] != 1) {
            return false;
        }
    }
    if (p->stride[0] != 1 || p->stride[1] != p->stride[2]) {
        return false;
    }
    *out = (flim_wgrad_shape){.type = p->type == FLIM_STORAGE_BF16 ? FLIM_CONV_BF16 : FLIM_CONV_FP16,
                              .n = p->n,
                              .c = p->c,
                              .k = p->k,
                              .t = p->in[0],
                              .h = p->in[1],
                              .w = p->in[2],
                              .stride = p->stride[1],
                              .dw_c = in_channels,
                              .dw_k = out_channels};
    return flim_wgrad_supported(out, sm);
}

static flim_fp32_card fp32_card(const flim_cuda_device *device)
{
    return (flim_fp32_card){.processors = device->card.processors,
                            .capability = device->card.capability,
                            .shared_bytes = device->card.shared_bytes};
}

int flim_own_plans(const flim_cuda_device *device, const flim_conv_plan *base, flim_conv_plan list[FLIM_FP32_TILES])
{
    const flim_conv_problem *problem = &base->problem;
    const flim_fp32_card card = fp32_card(device);
    flim_wgrad_shape shape;
    int tile[FLIM_FP32_TILES];
    if (flim_own_wgrad_shape(problem, problem->c, problem->k, device->sm, &shape)) {
        list[0] = *base;
        list[0].own = true;
        list[0].workspace = (int64_t)flim_wgrad_scratch_bytes(&shape);
        snprintf(list[0].engine, sizeof list[0].engine, "own");
        return 1;
    }
    const int n = flim_fp32_tiles(problem, &card, tile);
    for (int i = 0; i < n; i++) {
        list[i] = *base;
        list[i].tile = tile[i];
        list[i].workspace = flim_fp32_workspace(problem, tile[i], &card);
        snprintf(list[i].engine, sizeof list[i].engine, "own %s", flim_fp32_tile_name(problem->op, tile[i]));
    }
    return n;
}

flim_status flim_conv_plan_run(flim_cuda_device *device, const flim_conv_plan *plan, int64_t n, const void *x, const void *w,
                               const void *y, void *workspace, flim_error *err)
{
    if (plan->tile) {
        const flim_fp32_card card = fp32_card(device);
        return flim_cuda_check(flim_fp32_run(&plan->problem, n, plan->tile, &card, x, w, y, workspace, device->stream),
                               "a convolution in fp32", err);
    }
    if (plan->turned) {
        flim_conv_problem turned;
        (void)flim_conv_turn(&plan->problem, &turned);
        return flim_cudnn_plan_run(&device->cudnn, device->handle, &turned, &plan->cudnn, y, w, x, workspace, err);
    }
    return flim_cudnn_plan_run(&device->cudnn, device->handle, &plan->problem, &plan->cudnn, x, w, y, workspace, err);
}
