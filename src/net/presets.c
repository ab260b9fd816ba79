/* The published network: stem, down and residual blocks at three resolutions, in any width and depth. */
#include "flim/network.h"

#include <stdio.h>
#include <string.h>

#include "core/try.h"

static const struct {
    const char *name;
    flim_model_size size;
} presets[] = {[FLIM_PRESET_NANO] = {"nano", {4, 1}},    [FLIM_PRESET_TINY] = {"tiny", {8, 1}},
               [FLIM_PRESET_SMALL] = {"small", {16, 1}}, [FLIM_PRESET_BASE] = {"base", {32, 1}},
               [FLIM_PRESET_LARGE] = {"large", {64, 1}}, [FLIM_PRESET_XLARGE] = {"xlarge", {128, 1}},
               [FLIM_PRESET_GIANT] = {"giant", {192, 3}}};

flim_model_size flim_preset_size(flim_preset preset)
{
    return presets[preset].size;
}

flim_model_size flim_model_size_of(flim_preset preset, int64_t width, int64_t depth)
{
    const flim_model_size size = flim_preset_size(preset);
    return (flim_model_size){width > 0 ? (int)width : size.width, depth > 0 ? (int)depth : size.depth};
}

/* A unit of `block` named `name`: BatchNorm and leaky ReLU over a convolution that keeps the size at stride 1. */
static flim_unit make_unit(const char *block, const char *name, const char *bn, int input, int out_channels)
{
    flim_unit u = {.input = input, .skip = -1, .act = true, .out_channels = out_channels, .stride = {1, 1, 1}};
    snprintf(u.conv, sizeof u.conv, "%s.%s", block, name);
    snprintf(u.bn, sizeof u.bn, "%s.%s", block, bn);
    return u;
}

static void set_kernel(flim_unit *u, int t, int y, int x)
{
    const int kernel[3] = {t, y, x};
    for (int d = 0; d < 3; d++) {
        u->kernel[d] = kernel[d];
        u->pad[d] = kernel[d] / 2;
    }
}

/* Two 3x3x3 convolutions and a skip over them, pooled and dropped out at the end: recompute block number `block`. */
static flim_status add_residual(flim_network *net, const char *name, int block, int out_channels, int spatial, int pool_t,
                                flim_error *err)
{
    const int input = net->n_units - 1;
    int skip = input;
    if (net->unit[input].out_channels != out_channels || spatial != 1) {
        flim_unit point = make_unit(name, "skip.conv", "skip.bn", input, out_channels);
        set_kernel(&point, 1, 1, 1);
        point.stride[1] = point.stride[2] = spatial;
        point.act = false;
        point.block = block;
        FLIM_TRY(flim_network_add_unit(net, &point, err));
        skip = net->n_units - 1;
    }
    flim_unit first = make_unit(name, "conv1", "bn1", input, out_channels);
    set_kernel(&first, 3, 3, 3);
    first.stride[1] = first.stride[2] = spatial;
    first.block = block;
    FLIM_TRY(flim_network_add_unit(net, &first, err));
    flim_unit second = make_unit(name, "conv2", "bn2", net->n_units - 1, out_channels);
    set_kernel(&second, 3, 3, 3);
    second.skip = skip;
    second.pool_t = pool_t;
    second.dropout = true;
    second.block = block;
    return flim_network_add_unit(net, &second, err);
}

/* `depth` residual blocks at one resolution: the first changes it and the channels, the last is pooled. */
static flim_status add_stage(flim_network *net, int number, int depth, int out_channels, int spatial, int pool_t,
                             flim_error *err)
{
    for (int i = 1; i <= depth; i++) {
        char name[FLIM_NAME_MAX];
        snprintf(name, sizeof name, i == 1 ? "res%d" : "res%d_%d", number, i);
        FLIM_TRY(add_residual(net, name, number, out_channels, i == 1 ? spatial : 1, i == depth ? pool_t : 1, err));
    }
    return FLIM_OK;
}

static flim_status check_sizes(flim_model_size size, int classes, int t, int h, int w, flim_error *err)
{
    if (size.width < 4 || size.width > 1024 || size.width % 4 != 0) {
        return flim_fail(err, FLIM_ERROR_USAGE, "network width %d: must be a multiple of 4 from 4 to 1024", size.width);
    }
    if (size.depth < 1 || size.depth > FLIM_MAX_DEPTH) {
        return flim_fail(err, FLIM_ERROR_USAGE, "network depth %d: must be 1 to %d residual blocks at each resolution",
                         size.depth, FLIM_MAX_DEPTH);
    }
    if (classes < 2 || classes > 10000) {
        return flim_fail(err, FLIM_ERROR_USAGE, "a network for %d classes: there must be 2 to 10000", classes);
    }
    if (t < 8 || h < 3 || w < 3 || t > 65536 || h > 4096 || w > 4096) {
        return flim_fail(err, FLIM_ERROR_USAGE, "cells of %d time bins x %d x %d pixels: must be T 8..65536 and H, W 3..4096",
                         t, h, w);
    }
    return FLIM_OK;
}

static void name_preset(flim_network *net)
{
    for (size_t i = 0; i < sizeof presets / sizeof presets[0]; i++) {
        if (presets[i].size.width == net->width && presets[i].size.depth == net->depth) {
            snprintf(net->preset, sizeof net->preset, "%s", presets[i].name);
        }
    }
}

/* All units up to the last resolution. */
static flim_status begin_encoder(flim_network *net, flim_model_size size, int classes, int channels, int t, int h, int w,
                                 flim_error *err)
{
    const int width = size.width, depth = size.depth;
    FLIM_TRY(check_sizes(size, classes, t, h, w, err));
    flim_network_begin(net, classes, channels, t, h, w);
    net->width = width;
    net->depth = depth;
    name_preset(net);
    flim_unit stem = make_unit("stem", "conv", "bn", -1, width), down = make_unit("down", "conv", "bn", 0, width);
    set_kernel(&stem, 7, 1, 1);
    set_kernel(&down, 3, 1, 1);
    down.stride[0] = 2;
    FLIM_TRY(flim_network_add_unit(net, &stem, err));
    FLIM_TRY(flim_network_add_unit(net, &down, err));
    FLIM_TRY(add_stage(net, 1, depth, width, 1, 1, err));
    FLIM_TRY(add_stage(net, 2, depth, 2 * width, 2, 2, err));
    return add_stage(net, 3, depth, 4 * width, 2, 2, err);
}

flim_status flim_network_build(flim_network *net, int width, int classes, int t, int h, int w, flim_error *err)
{
    return flim_network_build_sized(net, (flim_model_size){width, 1}, classes, t, h, w, err);
}

flim_status flim_network_build_sized(flim_network *net, flim_model_size size, int classes, int t, int h, int w,
                                     flim_error *err)
{
    const int width = size.width;
    FLIM_TRY(begin_encoder(net, size, classes, 2, t, h, w, err));
    const flim_head head = {.name = "head",
                            .unit = net->n_units - 1,
                            .hidden = 2 * width,
                            .outputs = flim_class_outputs(classes),
                            .loss = flim_class_loss(classes)};
    FLIM_TRY(flim_network_add_head(net, &head, err));
    return flim_network_finish(net, err);
}

/* ---- pretraining ---- */

/* A transposed convolution to the size of unit `to`'s input, in time and space: what the stage at that unit undoes. */
static flim_unit make_up(const flim_network *net, const char *name, const int size[3], int channels, int block)
{
    flim_unit u = make_unit(name, "conv", "bn", net->n_units - 1, channels);
    u.transposed = true;
    u.block = block;
    memcpy(u.conv_out, size, sizeof u.conv_out);
    return u;
}

/* From the last resolution back to the input's, three steps: each undoes the halvings of one stage, with a quarter, then half of
 * the channels before it; the last has one channel, neither BatchNorm nor activation. */
static flim_status add_decoder(flim_network *net, int depth, flim_error *err)
{
    const int width = net->width, block = net->unit[net->n_units - 1].block + 1;
    const int stage2 = 2 + 2 * depth, stage3 = stage2 + 2 * depth + 1; /* the first units of res2 and res3 */
    flim_unit up = make_up(net, "decoder.up1", net->unit[stage3].in, width, block);
    for (int step = 0; step < 2; step++) {
        if (step == 1) {
            up = make_up(net, "decoder.up2", net->unit[stage2].in, width / 2, block);
        }
        set_kernel(&up, 2, 3, 3);
        up.pad[0] = 0; /* as the pool, which drops an odd last bin */
        up.stride[0] = up.stride[1] = up.stride[2] = 2;
        FLIM_TRY(flim_network_add_unit(net, &up, err));
    }
    flim_unit last = make_up(net, "decoder.out", net->in, 1, block);
    set_kernel(&last, 3, 1, 1);
    last.stride[0] = 2;
    last.bn[0] = '\0';
    last.act = false;
    return flim_network_add_unit(net, &last, err);
}

flim_status flim_network_build_pretraining(flim_network *net, flim_model_size size, int classes, int t, int h, int w,
                                           const flim_pretraining *what, flim_error *err)
{
    FLIM_TRY(begin_encoder(net, size, classes, what->masked ? 3 : 2, t, h, w, err));
    const int encoded = net->n_units - 1;
    if (what->contrastive > 0) {
        const flim_head projector = {.name = "projector",
                                     .unit = encoded,
                                     .hidden = 2 * size.width,
                                     .outputs = FLIM_PROJECTED,
                                     .loss = what->by_class ? FLIM_LOSS_CONTRASTIVE_CLASS : FLIM_LOSS_CONTRASTIVE,
                                     .weight = what->contrastive,
                                     .temperature = what->temperature};
        FLIM_TRY(flim_network_add_head(net, &projector, err));
    }
    if (what->masked) {
        FLIM_TRY(add_decoder(net, size.depth, err));
        const flim_head reconstruction = {.name = "reconstruction",
                                          .kind = FLIM_HEAD_DENSE,
                                          .unit = net->n_units - 1,
                                          .loss = what->squared ? FLIM_LOSS_HIDDEN_SQUARED : FLIM_LOSS_HIDDEN_POISSON};
        FLIM_TRY(flim_network_add_head(net, &reconstruction, err));
    }
    if (net->n_heads == 0) {
        return flim_fail(err, FLIM_ERROR_USAGE, "a pretraining that is neither masked nor contrastive learns nothing");
    }
    return flim_network_finish(net, err);
}
