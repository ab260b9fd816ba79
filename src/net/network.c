#include "flim/network.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/parse.h"
#include "flim/random.h"

static const struct {
    const char *name;
    int width;
} presets[] = {{"tiny", 8}, {"small", 16}, {"base", 32}, {"large", 64}, {"xlarge", 128}};
enum { N_PRESETS = sizeof presets / sizeof presets[0] };

flim_status flim_network_preset_width(const char *preset, int *width, flim_error *err)
{
    const char *names[N_PRESETS];
    for (int i = 0; i < N_PRESETS; i++) {
        if (strcmp(preset, presets[i].name) == 0) {
            *width = presets[i].width;
            return FLIM_OK;
        }
        names[i] = presets[i].name;
    }
    return flim_fail(err, FLIM_ERROR_USAGE,
                     "unknown preset '%s' (did you mean '%s'? there are tiny, small, base, large, xlarge)", preset,
                     flim_nearest(preset, names, N_PRESETS));
}

static int conv_size(int in, int kernel, int stride, int pad)
{
    return (in + 2 * pad - kernel) / stride + 1;
}

/* Adds a unit reading unit `input` (-1 = the network's input); kernel, stride, pad are t,y,x.  Returns its number. */
static int add_unit(flim_network *net, const char *conv, const char *bn, int input, int out_channels, const int kernel[3],
                    const int stride[3], const int pad[3])
{
    flim_unit *u = &net->unit[net->n_units];
    *u = (flim_unit){.input = input, .skip = -1, .act = true, .pool_t = 1, .out_channels = out_channels};
    snprintf(u->conv, sizeof u->conv, "%s", conv);
    snprintf(u->bn, sizeof u->bn, "%s", bn);
    u->in_channels = input < 0 ? net->channels : net->unit[input].out_channels;
    for (int d = 0; d < 3; d++) {
        u->kernel[d] = kernel[d];
        u->stride[d] = stride[d];
        u->pad[d] = pad[d];
        u->in[d] = input < 0 ? net->in[d] : net->unit[input].out[d];
        u->conv_out[d] = conv_size(u->in[d], kernel[d], stride[d], pad[d]);
        u->out[d] = u->conv_out[d];
    }
    return net->n_units++;
}

static void end_unit(flim_unit *u, int pool_t, bool dropout)
{
    u->pool_t = pool_t;
    u->out[0] = u->conv_out[0] / pool_t;
    u->dropout = dropout;
}

/* Two 3x3x3 convolutions and a skip over them; pooled and dropped out at the end.  Returns the last unit's number. */
static int add_residual(flim_network *net, const char *block, int input, int out_channels, int spatial, int pool_t)
{
    static const int three[3] = {3, 3, 3}, one[3] = {1, 1, 1}, none[3] = {0, 0, 0};
    const int stride[3] = {1, spatial, spatial};
    char conv[FLIM_NAME_MAX], bn[FLIM_NAME_MAX];
    int skip = input;
    if (net->unit[input].out_channels != out_channels || spatial != 1) {
        snprintf(conv, sizeof conv, "%s.skip.conv", block);
        snprintf(bn, sizeof bn, "%s.skip.bn", block);
        skip = add_unit(net, conv, bn, input, out_channels, one, stride, none);
        net->unit[skip].act = false;
    }
    snprintf(conv, sizeof conv, "%s.conv1", block);
    snprintf(bn, sizeof bn, "%s.bn1", block);
    int first = add_unit(net, conv, bn, input, out_channels, three, stride, one);
    snprintf(conv, sizeof conv, "%s.conv2", block);
    snprintf(bn, sizeof bn, "%s.bn2", block);
    int second = add_unit(net, conv, bn, first, out_channels, three, one, one);
    net->unit[second].skip = skip;
    end_unit(&net->unit[second], pool_t, true);
    return second;
}

static flim_tensor *add_tensor(flim_network *net, const char *prefix, const char *suffix, flim_tensor_role role, int unit,
                               int ndim, const int *shape)
{
    flim_tensor *t = &net->tensor[net->n_tensors++];
    *t = (flim_tensor){.role = role, .ndim = ndim, .count = 1, .unit = unit};
    char name[FLIM_NAME_MAX]; /* prefix points into net, too */
    snprintf(name, sizeof name, "%.40s.%s", prefix, suffix);
    memcpy(t->name, name, sizeof name);
    for (int i = 0; i < ndim; i++) {
        t->shape[i] = shape[i];
        t->count *= shape[i];
    }
    int64_t *total = flim_tensor_is_statistic(t) ? &net->statistics : &net->parameters;
    t->offset = *total;
    *total += t->count;
    return t;
}

static void add_bn_tensors(flim_network *net, const char *prefix, int unit, int channels)
{
    add_tensor(net, prefix, "weight", FLIM_TENSOR_BN_WEIGHT, unit, 1, &channels);
    add_tensor(net, prefix, "bias", FLIM_TENSOR_BN_BIAS, unit, 1, &channels);
    add_tensor(net, prefix, "running_mean", FLIM_TENSOR_RUNNING_MEAN, unit, 1, &channels);
    add_tensor(net, prefix, "running_var", FLIM_TENSOR_RUNNING_VAR, unit, 1, &channels);
}

static void add_unit_tensors(flim_network *net, int unit)
{
    const flim_unit *u = &net->unit[unit];
    const int shape[5] = {u->out_channels, u->in_channels, u->kernel[0], u->kernel[1], u->kernel[2]};
    add_tensor(net, u->conv, "weight", FLIM_TENSOR_CONV_WEIGHT, unit, 5, shape);
    add_tensor(net, u->conv, "bias", FLIM_TENSOR_BIAS, unit, 1, &u->out_channels);
    if (u->bn[0]) {
        add_bn_tensors(net, u->bn, unit, u->out_channels);
    }
}

static void add_linear_tensors(flim_network *net, const char *prefix, int out, int in)
{
    const int shape[2] = {out, in};
    add_tensor(net, prefix, "weight", FLIM_TENSOR_LINEAR_WEIGHT, net->n_units, 2, shape);
    add_tensor(net, prefix, "bias", FLIM_TENSOR_BIAS, net->n_units, 1, &out);
}

/* state_dict order: a skip's tensors stand after its block's, though it runs first. */
static void add_tensors(flim_network *net)
{
    for (int u = 0; u < net->n_units; u++) {
        if (net->unit[u].act) {
            add_unit_tensors(net, u);
        }
        if (net->unit[u].skip >= 0 && !net->unit[net->unit[u].skip].act) {
            add_unit_tensors(net, net->unit[u].skip);
        }
    }
    const flim_head *head = &net->head;
    add_linear_tensors(net, "head.fc1", head->hidden, head->in_channels);
    add_bn_tensors(net, "head.bn", net->n_units, head->hidden);
    add_linear_tensors(net, "head.fc2", head->outputs, head->hidden);
}

flim_status flim_network_build(flim_network *net, int width, int classes, int t, int h, int w, flim_error *err)
{
    if (width < 4 || width > 1024 || width % 4 != 0) {
        return flim_fail(err, FLIM_ERROR_USAGE, "network width %d: must be a multiple of 4 from 4 to 1024", width);
    }
    if (classes < 2 || classes > 10000) {
        return flim_fail(err, FLIM_ERROR_USAGE, "a network for %d classes: there must be 2 to 10000", classes);
    }
    if (t < 8 || h < 3 || w < 3 || t > 65536 || h > 4096 || w > 4096) {
        return flim_fail(err, FLIM_ERROR_USAGE, "cells of %d time bins x %d x %d pixels: must be T 8..65536 and H, W 3..4096",
                         t, h, w);
    }
    *net = (flim_network){.preset = "custom", .width = width, .classes = classes, .channels = 2, .in = {t, h, w}};
    for (int i = 0; i < N_PRESETS; i++) {
        if (presets[i].width == width) {
            snprintf(net->preset, sizeof net->preset, "%s", presets[i].name);
        }
    }
    static const int stem_kernel[3] = {7, 1, 1}, stem_pad[3] = {3, 0, 0}, one[3] = {1, 1, 1};
    static const int down_kernel[3] = {3, 1, 1}, down_stride[3] = {2, 1, 1}, down_pad[3] = {1, 0, 0};
    int stem = add_unit(net, "stem.conv", "stem.bn", -1, width, stem_kernel, one, stem_pad);
    int down = add_unit(net, "down.conv", "down.bn", stem, width, down_kernel, down_stride, down_pad);
    int res1 = add_residual(net, "res1", down, width, 1, 1);
    int res2 = add_residual(net, "res2", res1, 2 * width, 2, 2);
    add_residual(net, "res3", res2, 4 * width, 2, 2);
    net->head = (flim_head){4 * width, 2 * width, classes == 2 ? 1 : classes};
    add_tensors(net);
    return FLIM_OK;
}

const flim_tensor *flim_network_find(const flim_network *net, const char *name)
{
    for (int i = 0; i < net->n_tensors; i++) {
        if (strcmp(net->tensor[i].name, name) == 0) {
            return &net->tensor[i];
        }
    }
    return NULL;
}

const flim_tensor *flim_network_tensor(const flim_network *net, int unit, flim_tensor_role role, int index)
{
    for (int i = 0; i < net->n_tensors; i++) {
        if (net->tensor[i].unit == unit && net->tensor[i].role == role && index-- == 0) {
            return &net->tensor[i];
        }
    }
    return NULL;
}

static int64_t volume(const int size[3])
{
    return (int64_t)size[0] * size[1] * size[2];
}

int flim_network_blocks(const flim_network *net, int block[FLIM_MAX_UNITS])
{
    int length[FLIM_MAX_UNITS] = {0}, words = 0, blocks = 0; /* units of each word */
    for (int u = 0; u < net->n_units; u++) {
        const char *name = net->unit[u].conv, *before = u > 0 ? net->unit[u - 1].conv : "";
        const size_t word = strcspn(name, ".");
        const bool same = u > 0 && strcspn(before, ".") == word && strncmp(name, before, word) == 0;
        words += !same;
        length[words - 1]++;
    }
    for (int w = 0, u = 0; w < words; w++) {
        const bool joins = w > 0 && length[w] == 1 && length[w - 1] == 1;
        blocks += !joins;
        for (int i = 0; i < length[w]; i++) {
            block[u++] = blocks - 1;
        }
    }
    return blocks;
}

int64_t flim_network_macs(const flim_network *net)
{
    int64_t sum = (int64_t)net->head.in_channels * net->head.hidden + (int64_t)net->head.hidden * net->head.outputs;
    for (int i = 0; i < net->n_units; i++) {
        const flim_unit *u = &net->unit[i];
        sum += volume(u->conv_out) * u->out_channels * u->in_channels * volume(u->kernel);
    }
    return sum;
}

int64_t flim_network_conv_elements(const flim_network *net)
{
    int64_t sum = 0;
    for (int i = 0; i < net->n_units; i++) {
        sum += volume(net->unit[i].conv_out) * net->unit[i].out_channels;
    }
    return sum;
}

int64_t flim_network_largest_tensor(const flim_network *net)
{
    int64_t largest = volume(net->in) * net->channels;
    for (int i = 0; i < net->n_units; i++) {
        int64_t elements = volume(net->unit[i].conv_out) * net->unit[i].out_channels;
        largest = elements > largest ? elements : largest;
    }
    return largest;
}

/* torch.nn.init: kaiming_normal_(a=0.01, mode="fan_out") for weights that feed an activation, sd 0.01 for the last linear. */
static double initial_sd(const flim_network *net, const flim_tensor *t)
{
    if (t->role == FLIM_TENSOR_LINEAR_WEIGHT && t == flim_network_tensor(net, net->n_units, FLIM_TENSOR_LINEAR_WEIGHT, 1)) {
        return 0.01;
    }
    double fan_out = t->shape[0];
    for (int i = 2; i < t->ndim; i++) {
        fan_out *= t->shape[i];
    }
    return sqrt(2.0 / (1.0 + (double)FLIM_LEAKY_SLOPE * (double)FLIM_LEAKY_SLOPE) / fan_out);
}

void flim_network_init(const flim_network *net, uint64_t seed, uint32_t fold, float *parameters, float *statistics)
{
    for (int i = 0; i < net->n_tensors; i++) {
        const flim_tensor *t = &net->tensor[i];
        float *at = (flim_tensor_is_statistic(t) ? statistics : parameters) + t->offset;
        if (t->role == FLIM_TENSOR_CONV_WEIGHT || t->role == FLIM_TENSOR_LINEAR_WEIGHT) {
            const flim_cell_id id = {.seed = seed, .fold = fold, .cell = (uint32_t)i};
            flim_random random = flim_random_begin(&id, FLIM_RANDOM_INIT);
            double sd = initial_sd(net, t);
            for (int64_t k = 0; k < t->count; k++) {
                at[k] = (float)(sd * flim_random_normal(&random));
            }
        } else {
            float value = t->role == FLIM_TENSOR_BN_WEIGHT || t->role == FLIM_TENSOR_RUNNING_VAR ? 1.0f : 0.0f;
            for (int64_t k = 0; k < t->count; k++) {
                at[k] = value;
            }
        }
    }
}
