/* The table of units, heads and tensors. */
#include "flim/network.h"

#include <stdio.h>
#include <string.h>

#include "core/try.h"

static int64_t volume(const int size[3])
{
    return (int64_t)size[0] * size[1] * size[2];
}

void flim_network_begin(flim_network *net, int classes, int channels, int t, int h, int w)
{
    *net = (flim_network){.preset = "custom", .classes = classes, .channels = channels, .in = {t, h, w}};
}

static int conv_size(int in, int kernel, int stride, int pad)
{
    return (in + 2 * pad - kernel) / stride + 1;
}

/* T,H,W of z; of a transposed unit those that the caller wants, if a convolution of them has the size of x. */
static flim_status set_sizes(flim_unit *u, flim_error *err)
{
    for (int d = 0; d < 3; d++) {
        if (u->kernel[d] < 1 || u->stride[d] < 1 || u->pad[d] < 0) {
            return flim_fail(err, FLIM_ERROR_USAGE, "%s: kernel %d, stride %d, padding %d along axis %d: impossible", u->conv,
                             u->kernel[d], u->stride[d], u->pad[d], d);
        }
        const int conv_in = u->transposed ? u->conv_out[d] : u->in[d];
        const int conv_out = conv_size(conv_in, u->kernel[d], u->stride[d], u->pad[d]);
        if (conv_in + 2 * u->pad[d] < u->kernel[d] || conv_in < 1) {
            return flim_fail(err, FLIM_ERROR_USAGE, "%s: a kernel of %d does not fit into %d + 2 x %d along axis %d", u->conv,
                             u->kernel[d], conv_in, u->pad[d], d);
        }
        if (u->transposed && conv_out != u->in[d]) {
            return flim_fail(err, FLIM_ERROR_USAGE,
                             "%s: a transposed convolution from %d to %d along axis %d: its convolution gives %d", u->conv,
                             u->in[d], u->conv_out[d], d, conv_out);
        }
        u->conv_out[d] = u->transposed ? conv_in : conv_out;
        u->out[d] = d == 0 ? u->conv_out[d] / u->pool_t : u->conv_out[d];
    }
    return FLIM_OK;
}

flim_status flim_network_add_unit(flim_network *net, const flim_unit *unit, flim_error *err)
{
    const int n = net->n_units, last_block = n > 0 ? net->unit[n - 1].block : 0;
    if (n == FLIM_MAX_UNITS) {
        return flim_fail(err, FLIM_ERROR_USAGE, "%s: a network has at most %d units", unit->conv, FLIM_MAX_UNITS);
    }
    if (unit->input >= n || unit->skip >= n || unit->out_channels < 1 || unit->block < last_block ||
        unit->block > last_block + (n > 0)) {
        return flim_fail(err, FLIM_ERROR_USAGE,
                         "%s: reads units %d and %d of %d before it, has %d channels, block %d after %d: impossible",
                         unit->conv, unit->input, unit->skip, n, unit->out_channels, unit->block, last_block);
    }
    flim_unit *u = &net->unit[n];
    *u = *unit;
    u->pool_t = unit->pool_t > 1 ? unit->pool_t : 1;
    u->in_channels = u->input < 0 ? net->channels : net->unit[u->input].out_channels;
    memcpy(u->in, u->input < 0 ? net->in : net->unit[u->input].out, sizeof u->in);
    FLIM_TRY(set_sizes(u, err));
    const flim_unit *skip = u->skip < 0 ? NULL : &net->unit[u->skip];
    if (skip && (skip->out_channels != u->out_channels || memcmp(skip->out, u->conv_out, sizeof skip->out) != 0)) {
        return flim_fail(err, FLIM_ERROR_USAGE, "%s: adds %s, which has another shape", u->conv, skip->conv);
    }
    net->n_units++;
    return FLIM_OK;
}

flim_status flim_network_add_head(flim_network *net, const flim_head *head, flim_error *err)
{
    if (net->n_heads == FLIM_MAX_HEADS) {
        return flim_fail(err, FLIM_ERROR_USAGE, "%s: a network has at most %d heads", head->name, FLIM_MAX_HEADS);
    }
    if (head->unit < 0 || head->unit >= net->n_units) {
        return flim_fail(err, FLIM_ERROR_USAGE, "%s: reads unit %d of %d", head->name, head->unit, net->n_units);
    }
    const flim_unit *u = &net->unit[head->unit];
    const bool dense = head->kind == FLIM_HEAD_DENSE;
    const bool over_batch = flim_loss_is_over_batch(head->loss);
    if (flim_loss_is_hidden(head->loss) && net->channels != 3) {
        return flim_fail(err, FLIM_ERROR_USAGE, "%s: a loss over hidden voxels, but no input channel says which they are",
                         head->name);
    }
    if (dense != flim_loss_is_dense(head->loss) ||
        (dense && (u->out_channels != 1 || memcmp(u->out, net->in, sizeof u->out) != 0))) {
        return flim_fail(
            err, FLIM_ERROR_USAGE,
            "%s: a dense head has a loss per voxel and reads one channel of %d x %d x %d; %s has %d of %d x %d x %d",
            head->name, net->in[0], net->in[1], net->in[2], u->conv, u->out_channels, u->out[0], u->out[1], u->out[2]);
    }
    const int outputs = flim_class_outputs(net->classes);
    if (over_batch && (head->hidden < 1 || head->outputs < 2 || head->outputs > FLIM_MOST_EMBEDDED)) {
        return flim_fail(err, FLIM_ERROR_USAGE, "%s: %d hidden and %d outputs; a loss over the batch compares 2 to %d",
                         head->name, head->hidden, head->outputs, FLIM_MOST_EMBEDDED);
    }
    if (!dense && !over_batch &&
        (head->hidden < 1 || head->outputs != outputs || (head->loss == FLIM_LOSS_BINARY && outputs != 1) ||
         (head->loss == FLIM_LOSS_SOFTMAX && outputs == 1))) {
        return flim_fail(err, FLIM_ERROR_USAGE, "%s: %d hidden and %d outputs for %d classes, or a loss for another number",
                         head->name, head->hidden, head->outputs, net->classes);
    }
    if (head->n_class_weights != 0 && (head->n_class_weights != net->classes || net->classes > FLIM_MAX_CLASS_WEIGHTS)) {
        return flim_fail(err, FLIM_ERROR_USAGE, "%s: weights of %d classes; there are %d, of which at most %d have weights",
                         head->name, head->n_class_weights, net->classes, FLIM_MAX_CLASS_WEIGHTS);
    }
    flim_head *h = &net->head[net->n_heads++];
    *h = *head;
    h->in_channels = u->out_channels;
    h->outputs = dense ? 1 : head->outputs;
    h->weight = head->weight != 0.0f ? head->weight : 1.0f;
    h->temperature = head->temperature > 0.0f ? head->temperature : 0.07f;
    return FLIM_OK;
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
    const int shape[5] = {u->transposed ? u->in_channels : u->out_channels, u->transposed ? u->out_channels : u->in_channels,
                          u->kernel[0], u->kernel[1], u->kernel[2]};
    add_tensor(net, u->conv, "weight", FLIM_TENSOR_CONV_WEIGHT, unit, 5, shape);
    add_tensor(net, u->conv, "bias", FLIM_TENSOR_BIAS, unit, 1, &u->out_channels);
    if (u->bn[0]) {
        add_bn_tensors(net, u->bn, unit, u->out_channels);
    }
}

static void add_linear_tensors(flim_network *net, const char *head, const char *layer, int unit, int out, int in)
{
    const int shape[2] = {out, in};
    char prefix[2 * FLIM_NAME_MAX];
    snprintf(prefix, sizeof prefix, "%s.%s", head, layer);
    add_tensor(net, prefix, "weight", FLIM_TENSOR_LINEAR_WEIGHT, unit, 2, shape);
    add_tensor(net, prefix, "bias", FLIM_TENSOR_BIAS, unit, 1, &out);
}

static void add_head_tensors(flim_network *net, int k)
{
    const flim_head *head = &net->head[k];
    const int unit = net->n_units + k;
    char bn[2 * FLIM_NAME_MAX];
    snprintf(bn, sizeof bn, "%s.bn", head->name);
    add_linear_tensors(net, head->name, "fc1", unit, head->hidden, head->in_channels);
    add_bn_tensors(net, bn, unit, head->hidden);
    add_linear_tensors(net, head->name, "fc2", unit, head->outputs, head->hidden);
}

/* The first unit that adds u; -1 = none. */
static int first_adder(const flim_network *net, int u)
{
    for (int r = u + 1; r < net->n_units; r++) {
        if (net->unit[r].skip == u) {
            return r;
        }
    }
    return -1;
}

/* state_dict order: the convolution on a skip (without activation) stands after the block that adds it, though it runs first. */
flim_status flim_network_finish(flim_network *net, flim_error *err)
{
    const int most = 6 * net->n_units + 8 * net->n_heads;
    if (most > FLIM_MAX_TENSORS) {
        return flim_fail(err, FLIM_ERROR_USAGE, "%d units and %d heads need up to %d tensors: at most %d", net->n_units,
                         net->n_heads, most, FLIM_MAX_TENSORS);
    }
    for (int u = 0; u < net->n_units; u++) {
        const int skip = net->unit[u].skip;
        if (net->unit[u].act || first_adder(net, u) < 0) {
            add_unit_tensors(net, u);
        }
        if (skip >= 0 && !net->unit[skip].act && first_adder(net, skip) == u) {
            add_unit_tensors(net, skip);
        }
    }
    for (int k = 0; k < net->n_heads; k++) {
        if (net->head[k].kind == FLIM_HEAD_POOLED) {
            add_head_tensors(net, k);
        }
    }
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

int flim_network_blocks(const flim_network *net)
{
    return net->n_units > 0 ? net->unit[net->n_units - 1].block + 1 : 0;
}

int64_t flim_head_outputs(const flim_network *net, int head)
{
    const flim_head *h = &net->head[head];
    return h->kind == FLIM_HEAD_DENSE ? volume(net->in) : h->outputs;
}

int64_t flim_network_encoder_parameters(const flim_network *net)
{
    for (int i = 0; i < net->n_tensors; i++) {
        if (net->tensor[i].unit >= net->n_units && !flim_tensor_is_statistic(&net->tensor[i])) {
            return net->tensor[i].offset;
        }
    }
    return net->parameters;
}

int64_t flim_network_outputs(const flim_network *net)
{
    int64_t sum = 0;
    for (int k = 0; k < net->n_heads; k++) {
        sum += flim_head_outputs(net, k);
    }
    return sum;
}

int64_t flim_network_macs(const flim_network *net)
{
    int64_t sum = 0;
    for (int k = 0; k < net->n_heads; k++) {
        const flim_head *h = &net->head[k];
        sum += h->kind == FLIM_HEAD_POOLED ? (int64_t)h->hidden * (h->in_channels + h->outputs) : 0;
    }
    for (int i = 0; i < net->n_units; i++) {
        const flim_unit *u = &net->unit[i];
        sum += volume(u->transposed ? u->in : u->conv_out) * u->out_channels * u->in_channels * volume(u->kernel);
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
