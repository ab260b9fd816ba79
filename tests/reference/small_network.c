#include "reference/small_network.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "reference/formula.h"

static void ok(flim_status status, const flim_error *err)
{
    if (status != FLIM_OK) {
        fprintf(stderr, "a small network: %s\n", err->text);
        abort();
    }
}

flim_network ref_small_network(const int size[3], const ref_row *rows, int n, int hidden, int outputs)
{
    flim_network net;
    flim_error err = {0};
    flim_network_begin(&net, outputs == 1 ? 2 : outputs, 2, size[0], size[1], size[2]);
    for (int i = 0; i < n && rows[i].out_channels > 0; i++) {
        const ref_row *r = &rows[i];
        flim_unit u = {.input = r->input,
                       .skip = r->skip,
                       .act = (r->what & REF_ACT) != 0,
                       .pool_t = r->what & REF_POOL ? 2 : 1,
                       .dropout = (r->what & REF_DROP) != 0,
                       .block = i,
                       .out_channels = r->out_channels,
                       .kernel = {r->kernel[0], r->kernel[1], r->kernel[2]},
                       .stride = {r->stride[0], r->stride[1], r->stride[2]},
                       .pad = {r->pad[0], r->pad[1], r->pad[2]}};
        snprintf(u.conv, sizeof u.conv, "%c.conv", 'a' + i);
        if (r->what & REF_BN) {
            snprintf(u.bn, sizeof u.bn, "%c.bn", 'a' + i);
        }
        ok(flim_network_add_unit(&net, &u, &err), &err);
    }
    const flim_head head = {
        .name = "head", .unit = net.n_units - 1, .hidden = hidden, .outputs = outputs, .loss = flim_class_loss(net.classes)};
    ok(flim_network_add_head(&net, &head, &err), &err);
    ok(flim_network_finish(&net, &err), &err);
    return net;
}

/* Sixty-fourths of the power of two that gives the layer's output a variance near 1: 7 bits, which bf16 holds. */
static void fill_weight(const flim_tensor *t, uint32_t tag, float *at)
{
    const double fan_in = (double)(t->count / t->shape[0]);
    double bound = 1;
    while (bound * bound * fan_in > 3) {
        bound /= 2;
    }
    for (int64_t i = 0; i < t->count; i++) {
        at[i] = (float)(rint((2 * ref_uniform(tag, i) - 1) * 64) / 64 * bound);
    }
}

void ref_small_weights(const flim_network *net, uint32_t seed, float *parameters, float *statistics)
{
    for (int k = 0; k < net->n_tensors; k++) {
        const flim_tensor *t = &net->tensor[k];
        const uint32_t tag = 1000 * (seed + 1) + (uint32_t)k;
        float *at = (flim_tensor_is_statistic(t) ? statistics : parameters) + t->offset;
        if (t->role == FLIM_TENSOR_CONV_WEIGHT || t->role == FLIM_TENSOR_LINEAR_WEIGHT) {
            fill_weight(t, tag, at);
            continue;
        }
        for (int64_t i = 0; i < t->count; i++) {
            const double u = ref_uniform(tag, i);
            const bool positive = t->role == FLIM_TENSOR_BN_WEIGHT || t->role == FLIM_TENSOR_RUNNING_VAR;
            at[i] = (float)(positive ? 0.5 + u : u - 0.4);
        }
        if (t->role == FLIM_TENSOR_BN_WEIGHT) {
            at[t->count > 1] = -at[t->count > 1]; /* a learnt gamma may be negative */
        }
    }
}
