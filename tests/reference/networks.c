#include "reference/networks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void ok(flim_status status, const flim_error *err)
{
    if (status != FLIM_OK) {
        fprintf(stderr, "a test network: %s\n", err->text);
        abort();
    }
}

flim_unit ref_new_unit(const char *name, int input, int channels, int kt, int ks, int stride_t, int stride_s)
{
    flim_unit u = {.input = input, .skip = -1, .act = true, .out_channels = channels};
    const int kernel[3] = {kt, ks, ks}, stride[3] = {stride_t, stride_s, stride_s};
    snprintf(u.conv, sizeof u.conv, "%s.conv", name);
    snprintf(u.bn, sizeof u.bn, "%s.bn", name);
    for (int d = 0; d < 3; d++) {
        u.kernel[d] = kernel[d];
        u.stride[d] = stride[d];
        u.pad[d] = (kernel[d] - 1) / 2;
    }
    return u;
}

void ref_add_unit(flim_network *net, flim_unit u)
{
    flim_error err = {0};
    ok(flim_network_add_unit(net, &u, &err), &err);
}

/* One channel of the input's size, from the unit before: a reconstruction. */
flim_unit ref_decoder(const flim_network *net, int kt, int ks, int stride_t, int stride_s)
{
    flim_unit u = ref_new_unit("decoder", net->n_units - 1, 1, kt, ks, stride_t, stride_s);
    u.transposed = true;
    u.act = false;
    u.bn[0] = 0;
    memcpy(u.conv_out, net->in, sizeof u.conv_out);
    return u;
}

void ref_add_head(flim_network *net, const char *name, int at, flim_loss loss, float weight)
{
    const bool dense = loss == FLIM_LOSS_SQUARED || loss == FLIM_LOSS_SQUARED_MASKED;
    flim_head head = {.kind = dense ? FLIM_HEAD_DENSE : FLIM_HEAD_POOLED,
                      .unit = at,
                      .hidden = dense ? 0 : 6,
                      .outputs = dense ? 0 : flim_class_outputs(net->classes),
                      .loss = loss,
                      .weight = weight};
    flim_error err = {0};
    snprintf(head.name, sizeof head.name, "%s", name);
    ok(flim_network_add_head(net, &head, &err), &err);
}

void ref_finish(flim_network *net)
{
    flim_error err = {0};
    ok(flim_network_finish(net, &err), &err);
}

/* Two units: stride 2 in time, and back. */
void ref_autoencoder(flim_network *net)
{
    flim_network_begin(net, 2, 2, 12, 5, 4);
    ref_add_unit(net, ref_new_unit("encoder", -1, 8, 3, 3, 2, 1));
    ref_add_unit(net, ref_decoder(net, 4, 3, 2, 1));
    ref_add_head(net, "reconstruction", 1, FLIM_LOSS_SQUARED, 1);
    ref_finish(net);
}

/* Odd sizes, other strides, and a transposed unit with BatchNorm, activation and a skip; only the mask's voxels count. */
void ref_masked_autoencoder(flim_network *net)
{
    flim_network_begin(net, 2, 2, 13, 7, 5);
    ref_add_unit(net, ref_new_unit("first", -1, 16, 3, 1, 1, 1));
    ref_add_unit(net, ref_new_unit("encoder", 0, 24, 3, 3, 2, 2));
    flim_unit up = ref_new_unit("up", 1, 16, 3, 3, 2, 2);
    up.transposed = true;
    up.skip = 0;
    up.dropout = true;
    up.block = 1;
    memcpy(up.conv_out, net->unit[0].out, sizeof up.conv_out);
    ref_add_unit(net, up);
    flim_unit last = ref_decoder(net, 3, 1, 1, 1);
    last.block = 1;
    ref_add_unit(net, last);
    ref_add_head(net, "reconstruction", 3, FLIM_LOSS_SQUARED_MASKED, 2);
    ref_finish(net);
}

/* One head in the middle, where units read on, and two at the end. */
void ref_three_heads(flim_network *net)
{
    flim_network_begin(net, REF_CLASSES, 2, 16, 5, 5);
    ref_add_unit(net, ref_new_unit("one", -1, 8, 3, 3, 2, 1));
    flim_unit two = ref_new_unit("two", 0, 8, 3, 3, 1, 1);
    two.skip = 0;
    two.dropout = true;
    ref_add_unit(net, two);
    flim_unit three = ref_new_unit("three", 1, 16, 3, 3, 1, 2);
    three.pool_t = 2;
    three.dropout = true;
    three.block = 1;
    ref_add_unit(net, three);
    ref_add_head(net, "head", 2, FLIM_LOSS_SOFTMAX, 1);
    ref_add_head(net, "middle", 1, FLIM_LOSS_SOFT_TARGETS, 0.5f);
    ref_add_head(net, "beside", 2, FLIM_LOSS_SOFT_TARGETS, 0.25f);
    ref_finish(net);
}

/* A classifier and a reconstruction that share their encoder; the first unit has a head, too. */
void ref_two_tasks(flim_network *net)
{
    flim_network_begin(net, 2, 2, 12, 6, 5);
    ref_add_unit(net, ref_new_unit("encoder", -1, 8, 3, 3, 2, 1));
    ref_add_unit(net, ref_decoder(net, 4, 3, 2, 1));
    ref_add_head(net, "head", 0, FLIM_LOSS_BINARY, 1);
    ref_add_head(net, "reconstruction", 1, FLIM_LOSS_SQUARED, 4);
    ref_finish(net);
}

void ref_class_weights(flim_network *net)
{
    ref_three_heads(net);
    static const float weight[REF_CLASSES] = {0.5f, 2, 1.25f};
    for (int k = 0; k < net->n_heads; k++) {
        net->head[k].n_class_weights = REF_CLASSES;
        memcpy(net->head[k].class_weight, weight, sizeof weight);
    }
}

void ref_pretraining(flim_network *net)
{
    const flim_pretraining what = {.masked = true, .contrastive = 0.5f};
    flim_error err = {0};
    ok(flim_network_build_pretraining(net, (flim_model_size){4, 1}, 2, 19, 6, 5, &what, &err), &err);
}

void ref_pretraining_by_class(flim_network *net)
{
    const flim_pretraining what = {.masked = true, .squared = true, .contrastive = 1, .by_class = true, .temperature = 0.5f};
    flim_error err = {0};
    ok(flim_network_build_pretraining(net, (flim_model_size){4, 1}, REF_CLASSES, 16, 5, 5, &what, &err), &err);
}

void ref_features(flim_network *net)
{
    flim_network_begin(net, 2, 2, 12, 5, 4);
    ref_add_unit(net, ref_new_unit("encoder", -1, 8, 3, 3, 2, 1));
    ref_finish(net);
}
