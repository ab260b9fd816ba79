/* A whole network: walks flim_network's table with ref_unit and the heads' functions. */
#include "reference/reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int64_t volume(const int size[3])
{
    return (int64_t)size[0] * size[1] * size[2];
}

ref_network *ref_network_create(const flim_network *net, const float *parameters, const float *statistics)
{
    ref_network *ref = calloc(1, sizeof *ref);
    if (!ref) {
        abort();
    }
    ref->net = net;
    ref->parameters = ref_from_floats(parameters, net->parameters);
    ref->statistics = ref_from_floats(statistics, net->statistics);
    ref->gradients = ref_array(net->parameters);
    ref->scale = ref_array(net->parameters);
    ref->m = ref_array(net->parameters);
    ref->v = ref_array(net->parameters);
    ref->average = ref_from_floats(parameters, net->parameters);
    ref->average_statistics = ref_from_floats(statistics, net->statistics);
    return ref;
}

void ref_network_free(ref_network *ref)
{
    if (ref) {
        free(ref->parameters);
        free(ref->statistics);
        free(ref->gradients);
        free(ref->scale);
        free(ref->m);
        free(ref->v);
        free(ref->average);
        free(ref->average_statistics);
        free(ref);
    }
}

/* Where the tensor of (unit, role, index) begins in an array laid out like the parameters or the statistics; NULL where
 * there is no such tensor. */
static double *find(const flim_network *net, int unit, flim_tensor_role role, int index, double *array)
{
    const flim_tensor *t = flim_network_tensor(net, unit, role, index);
    return t && array ? array + t->offset : NULL;
}

/* What one pass over the table works on. */
typedef struct pass {
    const flim_network *net;
    ref_observe *observe; /* or NULL */
    void *observer;
    const flim_batch *batch;
    double *parameters, *statistics; /* P, S */
    bool training;
    double momentum; /* of the running statistics */
    double dropout, block_dropout;
    double *gradients, *scale; /* P, overwritten; NULL = forward only */
    uint8_t *hidden; /* (n,T,H,W), or NULL without a third channel of the input */
    flim_hidden_totals *hidden_totals; /* or NULL */
    double *input; /* (n,channels,T,H,W) */
    double *y[FLIM_MAX_UNITS]; /* (n,C,out) of each unit */
    double *dy[FLIM_MAX_UNITS]; /* sums of what the consumers send back */
} pass;

/* (n,channels,T,H,W): the signal, 0 where it is hidden; the mask repeated at every time bin; what is hidden. */
static double *make_input(const flim_network *net, const flim_batch *batch, const uint8_t *hidden)
{
    const int64_t pixels = (int64_t)net->in[1] * net->in[2], voxels = pixels * net->in[0];
    double *input = ref_array(batch->n * net->channels * voxels);
    for (int64_t n = 0; n < batch->n; n++) {
        double *cell = input + n * net->channels * voxels;
        for (int64_t i = 0; i < voxels; i++) {
            const bool is_hidden = hidden && hidden[n * voxels + i];
            cell[i] = is_hidden ? 0 : (double)batch->signal[n * voxels + i];
            cell[voxels + i] = batch->mask[n * pixels + i % pixels];
            if (hidden) {
                cell[2 * voxels + i] = is_hidden;
            }
        }
    }
    return input;
}

/* NULL without a third channel of the input. */
static uint8_t *hide(const flim_network *net, const flim_batch *batch, const flim_step *step)
{
    const int64_t pixels = (int64_t)net->in[1] * net->in[2], voxels = pixels * net->in[0];
    uint8_t *hidden = net->channels == 3 ? malloc((size_t)(batch->n * voxels)) : NULL;
    if (!hidden && net->channels == 3) {
        abort();
    }
    for (int64_t n = 0; hidden && n < batch->n; n++) {
        ref_hide(&batch->id[n], step ? step->hide_share / 65536.0 : 0, net->in[0], net->in[1], net->in[2],
                 batch->mask + n * pixels, hidden + n * voxels);
    }
    return hidden;
}

static ref_unit_run unit_run(const pass *p, int u)
{
    const flim_network *net = p->net;
    const flim_unit *unit = &net->unit[u];
    return (ref_unit_run){.n = p->batch->n,
                          .id = p->batch->id,
                          .unit = (uint32_t)u,
                          .observe = p->observe,
                          .observer = p->observer,
                          .dropout = p->training ? p->block_dropout : 0,
                          .training = p->training,
                          .x = unit->input < 0 ? p->input : p->y[unit->input],
                          .skip = unit->skip < 0 ? NULL : p->y[unit->skip],
                          .weight = find(net, u, FLIM_TENSOR_CONV_WEIGHT, 0, p->parameters),
                          .bias = find(net, u, FLIM_TENSOR_BIAS, 0, p->parameters),
                          .gamma = find(net, u, FLIM_TENSOR_BN_WEIGHT, 0, p->parameters),
                          .beta = find(net, u, FLIM_TENSOR_BN_BIAS, 0, p->parameters),
                          .running_mean = find(net, u, FLIM_TENSOR_RUNNING_MEAN, 0, p->statistics),
                          .running_var = find(net, u, FLIM_TENSOR_RUNNING_VAR, 0, p->statistics)};
}

/* BatchNorm's weight is called weight and its bias bias: of two BIAS tensors of a head, 0 is fc1's and 1 fc2's. */
static ref_head_run head_run(const pass *p, const flim_step *step, int k, double *logits)
{
    const flim_network *net = p->net;
    const int h = net->n_units + k, u = net->head[k].unit;
    const int *out = net->unit[u].out;
    return (ref_head_run){.n = p->batch->n,
                          .t = out[0],
                          .h = out[1],
                          .w = out[2],
                          .id = p->batch->id,
                          .unit = (uint32_t)h,
                          .dropout = p->dropout,
                          .label_smoothing = step ? (double)step->label_smoothing : 0,
                          .focal_gamma = step ? (double)step->focal_gamma : 0,
                          .training = p->training,
                          .momentum = p->momentum,
                          .divisor = step ? step->divisor : 1,
                          .label = step ? p->batch->label : NULL,
                          .cell_weight = p->batch->weight,
                          .target = p->batch->target,
                          .x = p->y[u],
                          .fc1_weight = find(net, h, FLIM_TENSOR_LINEAR_WEIGHT, 0, p->parameters),
                          .fc1_bias = find(net, h, FLIM_TENSOR_BIAS, 0, p->parameters),
                          .gamma = find(net, h, FLIM_TENSOR_BN_WEIGHT, 0, p->parameters),
                          .beta = find(net, h, FLIM_TENSOR_BN_BIAS, 0, p->parameters),
                          .fc2_weight = find(net, h, FLIM_TENSOR_LINEAR_WEIGHT, 1, p->parameters),
                          .fc2_bias = find(net, h, FLIM_TENSOR_BIAS, 1, p->parameters),
                          .running_mean = find(net, h, FLIM_TENSOR_RUNNING_MEAN, 0, p->statistics),
                          .running_var = find(net, h, FLIM_TENSOR_RUNNING_VAR, 0, p->statistics),
                          .logits = logits,
                          .dfc1_weight = find(net, h, FLIM_TENSOR_LINEAR_WEIGHT, 0, p->gradients),
                          .dfc1_bias = find(net, h, FLIM_TENSOR_BIAS, 0, p->gradients),
                          .dfc1_bias_scale = find(net, h, FLIM_TENSOR_BIAS, 0, p->scale),
                          .dfc1_weight_scale = find(net, h, FLIM_TENSOR_LINEAR_WEIGHT, 0, p->scale),
                          .dgamma = find(net, h, FLIM_TENSOR_BN_WEIGHT, 0, p->gradients),
                          .dbeta = find(net, h, FLIM_TENSOR_BN_BIAS, 0, p->gradients),
                          .dfc2_weight = find(net, h, FLIM_TENSOR_LINEAR_WEIGHT, 1, p->gradients),
                          .dfc2_bias = find(net, h, FLIM_TENSOR_BIAS, 1, p->gradients)};
}

static void add(double *to, const double *from, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        to[i] += from[i];
    }
}

/* The observer sees v, logits, dx's scale and dx of the head alone. */
static double run_pooled_head(const pass *p, const flim_step *step, int k, double *logits)
{
    const flim_head *head = &p->net->head[k];
    const int64_t n = p->batch->n, x = n * head->in_channels * volume(p->net->unit[head->unit].out);
    double *v = ref_array(n * head->hidden), *own_logits = ref_array(n * head->outputs), *dx = ref_array(x);
    double *dx_scale = ref_array(x);
    ref_head_run run = head_run(p, step, k, logits ? logits : own_logits);
    run.v = v;
    run.dx = p->gradients ? dx : NULL;
    run.dx_scale = run.dx ? dx_scale : NULL;
    ref_head(head, &run);
    if (p->observe) {
        p->observe(p->observer, p->net->n_units + k, REF_V, v, n * head->hidden);
        p->observe(p->observer, p->net->n_units + k, REF_Y, run.logits, n * head->outputs);
    }
    if (p->observe && run.dx) {
        p->observe(p->observer, p->net->n_units + k, REF_DX_SCALE, dx_scale, x);
        p->observe(p->observer, p->net->n_units + k, REF_DX, dx, x);
    }
    if (p->gradients) {
        add(p->dy[head->unit], dx, x);
    }
    free(v);
    free(own_logits);
    free(dx);
    free(dx_scale);
    return run.loss;
}

static double run_hidden_head(const pass *p, const flim_step *step, const flim_head *head, double *logits)
{
    const ref_hidden_run run = {.n = p->batch->n,
                                .t = p->net->in[0],
                                .pixels = p->net->in[1] * p->net->in[2],
                                .y = p->y[head->unit],
                                .signal = p->batch->signal,
                                .cell_weight = p->batch->weight,
                                .mask = p->batch->mask,
                                .hidden = p->hidden,
                                .divisor = step ? step->divisor : 1};
    flim_hidden_totals ignored = {0};
    double loss = 0;
    if (logits) {
        memcpy(logits, run.y, (size_t)(run.n * run.t * run.pixels) * sizeof *logits);
    }
    if (step) {
        ref_hidden_head(head, &run, p->hidden_totals ? p->hidden_totals : &ignored, &loss,
                        p->gradients ? p->dy[head->unit] : NULL);
    }
    return loss;
}

/* Loss of head k (step NULL: none), its gradients, and in `logits` what it predicts. */
static double run_head(const pass *p, const flim_step *step, int k, double *logits)
{
    const flim_head *head = &p->net->head[k];
    if (head->kind == FLIM_HEAD_POOLED) {
        return run_pooled_head(p, step, k, logits);
    }
    if (head->loss == FLIM_LOSS_HIDDEN_POISSON || head->loss == FLIM_LOSS_HIDDEN_SQUARED) {
        return run_hidden_head(p, step, head, logits);
    }
    ref_dense_run run = {.n = p->batch->n,
                         .voxels = volume(p->net->in),
                         .pixels = (int64_t)p->net->in[1] * p->net->in[2],
                         .y = p->y[head->unit],
                         .signal = p->batch->signal,
                         .mask = p->batch->mask,
                         .label = p->batch->label,
                         .cell_weight = p->batch->weight,
                         .divisor = step ? step->divisor : 1,
                         .dy = p->gradients ? p->dy[head->unit] : NULL};
    if (logits) {
        memcpy(logits, run.y, (size_t)(run.n * run.voxels) * sizeof *logits);
    }
    if (step) {
        ref_dense_head(head, &run);
    }
    return run.loss;
}

/* Sends one unit's dy to its input and skip; each may have other consumers, so dx and dskip are added. */
static void unit_backward(pass *p, int u)
{
    const flim_network *net = p->net;
    const flim_unit *unit = &net->unit[u];
    const int64_t in = p->batch->n * unit->in_channels * volume(unit->in);
    const int64_t out = p->batch->n * unit->out_channels * volume(unit->conv_out);
    double *dx = ref_array(in), *dskip = ref_array(out);
    ref_unit_run run = unit_run(p, u);
    run.dy = p->dy[u];
    run.dx = unit->input >= 0 ? dx : NULL;
    run.dskip = dskip;
    run.dweight = find(net, u, FLIM_TENSOR_CONV_WEIGHT, 0, p->gradients);
    run.dbias = find(net, u, FLIM_TENSOR_BIAS, 0, p->gradients);
    run.dgamma = find(net, u, FLIM_TENSOR_BN_WEIGHT, 0, p->gradients);
    run.dbeta = find(net, u, FLIM_TENSOR_BN_BIAS, 0, p->gradients);
    run.dbias_scale = find(net, u, FLIM_TENSOR_BIAS, 0, p->scale);
    run.dbeta_scale = find(net, u, FLIM_TENSOR_BN_BIAS, 0, p->scale);
    run.dgamma_scale = find(net, u, FLIM_TENSOR_BN_WEIGHT, 0, p->scale);
    ref_unit(unit, &run);
    if (unit->input >= 0) {
        add(p->dy[unit->input], dx, in);
    }
    if (unit->skip >= 0) {
        add(p->dy[unit->skip], dskip, out);
    }
    free(dx);
    free(dskip);
}

/* Forward, and backward where gradients are wanted.  step NULL: no loss.  Returns sum(weight * loss) / divisor. */
static double run_pass(pass *p, const flim_step *step, double *logits)
{
    const flim_network *net = p->net;
    p->hidden = hide(net, p->batch, step);
    p->input = make_input(net, p->batch, p->hidden);
    for (int u = 0; u < net->n_units; u++) {
        const int64_t count = p->batch->n * net->unit[u].out_channels * volume(net->unit[u].out);
        p->y[u] = ref_array(count);
        p->dy[u] = ref_array(count);
        ref_unit_run run = unit_run(p, u);
        run.momentum = p->momentum;
        run.y = p->y[u];
        ref_unit(&net->unit[u], &run);
    }
    double loss = 0;
    for (int k = 0; k < net->n_heads; k++) {
        loss += run_head(p, step, k, logits);
        logits = logits ? logits + p->batch->n * flim_head_outputs(net, k) : NULL;
    }
    for (int u = net->n_units - 1; u >= 0 && p->gradients; u--) {
        unit_backward(p, u);
    }
    for (int u = 0; u < net->n_units; u++) {
        free(p->y[u]);
        free(p->dy[u]);
    }
    free(p->input);
    free(p->hidden);
    return loss;
}

static int64_t count_correct(const flim_network *net, const flim_batch *batch, const double *logits)
{
    const int outputs = net->head[0].outputs;
    int64_t correct = 0;
    if (net->head[0].kind == FLIM_HEAD_DENSE) {
        return 0;
    }
    if (net->head[0].loss == FLIM_LOSS_CONTRASTIVE || net->head[0].loss == FLIM_LOSS_CONTRASTIVE_CLASS) {
        return 0; /* not compared */
    }
    for (int64_t n = 0; n < batch->n; n++) {
        const double *l = logits + n * outputs;
        int best = outputs == 1 ? l[0] > 0 : 0;
        for (int k = 1; k < outputs; k++) {
            best = l[k] > l[best] ? k : best;
        }
        correct += best == batch->label[n];
    }
    return correct;
}

/* Exponential average whose decay begins at 1/10: that of update t, from 1, is min(decay, t / (9 + t)). */
static void average(double *mean, const double *values, int64_t count, int64_t t, const flim_step *step)
{
    double decay = (double)t / (double)(9 + t);
    decay = (double)step->average_decay < decay ? (double)step->average_decay : decay;
    for (int64_t i = 0; i < count; i++) {
        mean[i] = decay * mean[i] + (1 - decay) * values[i];
    }
}

void ref_network_recalibrate(ref_network *ref, const flim_batch *batch, double share)
{
    pass p = {.net = ref->net,
              .batch = batch,
              .parameters = ref->parameters,
              .statistics = ref->statistics,
              .training = true,
              .momentum = share};
    run_pass(&p, NULL, NULL);
}

void ref_network_train(ref_network *ref, const flim_batch *batch, const flim_step *step)
{
    const flim_network *net = ref->net;
    double *gradients = ref_array(net->parameters), *scale = ref_array(net->parameters);
    double *logits = ref_array(batch->n * flim_network_outputs(net));
    pass p = {.net = net,
              .observe = ref->observe,
              .observer = ref->observer,
              .batch = batch,
              .parameters = ref->parameters,
              .statistics = ref->statistics,
              .training = true,
              .momentum = 0.1,
              .dropout = (double)step->dropout,
              .block_dropout = (double)step->block_dropout,
              .gradients = gradients,
              .scale = scale,
              .hidden_totals = &ref->hidden};
    ref->loss += run_pass(&p, step, logits) * step->divisor;
    ref->correct += count_correct(net, batch, logits);
    if (step->first) {
        memset(ref->gradients, 0, (size_t)net->parameters * sizeof *ref->gradients);
        memset(ref->scale, 0, (size_t)net->parameters * sizeof *ref->scale);
    }
    add(ref->gradients, gradients, net->parameters);
    add(ref->scale, scale, net->parameters);
    if (step->last) {
        memcpy(gradients, ref->gradients, (size_t)net->parameters * sizeof *gradients);
        ref->grad_norm = ref_clip(gradients, net->parameters, (double)step->clip);
        ref_adamw(ref->parameters, gradients, ref->m, ref->v, net->parameters, ++ref->updates, step);
        average(ref->average, ref->parameters, net->parameters, ref->updates, step);
        average(ref->average_statistics, ref->statistics, net->statistics, ref->updates, step);
    }
    free(gradients);
    free(scale);
    free(logits);
}

void ref_network_predict(ref_network *ref, const flim_batch *batch, double *logits)
{
    pass p = {.net = ref->net,
              .observe = ref->observe,
              .observer = ref->observer,
              .batch = batch,
              .parameters = ref->parameters,
              .statistics = ref->statistics};
    run_pass(&p, NULL, logits);
}

void ref_network_evaluate(ref_network *ref, const flim_batch *batch, const flim_step *step)
{
    pass p = {.net = ref->net,
              .batch = batch,
              .parameters = ref->parameters,
              .statistics = ref->statistics,
              .hidden_totals = &ref->hidden};
    run_pass(&p, step, NULL);
}

double ref_network_loss(const ref_network *ref, const flim_batch *batch, const flim_step *step)
{
    pass p = {.net = ref->net,
              .batch = batch,
              .parameters = ref->parameters,
              .statistics = ref->statistics,
              .training = true,
              .dropout = (double)step->dropout,
              .block_dropout = (double)step->block_dropout};
    return run_pass(&p, step, NULL);
}
