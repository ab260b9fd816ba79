#include "cuda/program/layout.h"

#include "cuda/program/fusion.h"

/* Hands out the allocation in order; with base NULL it only counts. */
typedef struct cursor {
    char *base;
    int64_t used;
} cursor;

static void *take(cursor *c, int64_t bytes)
{
    void *at = c->base ? c->base + c->used : NULL;
    c->used += (bytes + 255) / 256 * 256;
    return at;
}

/* Per-channel constants, weights and dropout multipliers of one unit of a schedule. */
static void lay_unit(flim_cuda_program *p, flim_schedule *schedule, int u, cursor *c, const flim_schedule *weights_from)
{
    flim_schedule_unit *su = &schedule->unit[u];
    const bool fused = flim_fusion_forward_fused(schedule, u);
    const int64_t row = su->k * (int64_t)sizeof(float);
    float *statistics = schedule->train ? p->pending : p->statistics;
    su->norm = (flim_norm){.channels = su->unit->out_channels,
                           .c = su->k,
                           .present = su->unit->bn[0] != 0,
                           .gamma = flim_cuda_tensor(p, p->parameters, u, FLIM_TENSOR_BN_WEIGHT, 0),
                           .beta = flim_cuda_tensor(p, p->parameters, u, FLIM_TENSOR_BN_BIAS, 0),
                           .bias = flim_cuda_tensor(p, p->parameters, u, FLIM_TENSOR_BIAS, 0),
                           .running_mean = flim_cuda_tensor(p, statistics, u, FLIM_TENSOR_RUNNING_MEAN, 0),
                           .running_var = flim_cuda_tensor(p, statistics, u, FLIM_TENSOR_RUNNING_VAR, 0)};
    su->norm.affine = (flim_affine){take(c, row), take(c, row)};
    su->norm.mean = take(c, row);
    su->norm.invstd = take(c, row);
    if (fused) { /* the kernel adds the bias, and rounds the weights without a scale */
        su->norm.bias = NULL;
        su->conv_sums = take(c, 2 * su->k * (int64_t)sizeof(double));
    }
    if (flim_schedule_stem_of(schedule, u) >= 0) {
        su->stem_state = take(c, (int64_t)flim_stem_state_bytes());
    }
    if (weights_from && !fused) {
        su->w = weights_from->unit[u].w;
        su->norm.weight_scale = weights_from->unit[u].norm.weight_scale;
    }
    if (schedule->train) {
        su->grad =
            (flim_grad_affine){take(c, row), take(c, row), take(c, row), take(c, sizeof(float)), take(c, sizeof(float))};
        su->dv_scale = take(c, sizeof(float));
        su->add_scale = take(c, sizeof(float));
        su->sums = take(c, FLIM_MAX_PARTIAL_SUMS * su->k * (int64_t)sizeof(double));
        su->counter = take(c, sizeof(int));
        su->dropout = su->unit->dropout ? take(c, schedule->batch * row) : NULL;
    }
}

/* Storage copies of the convolution weights, and memory for their gradients as cuDNN writes them. */
static void lay_weights(flim_cuda_program *p, flim_schedule *schedule, cursor *c)
{
    flim_weight_table *table = &p->weights_host;
    *table = (flim_weight_table){0};
    for (int u = 0; u < schedule->net->n_units; u++) {
        flim_schedule_unit *su = &schedule->unit[u];
        const flim_unit *unit = su->unit;
        const int taps = unit->kernel[0] * unit->kernel[1] * unit->kernel[2];
        const int64_t count = (int64_t)su->k * taps * su->c, bytes = count * flim_storage_size(schedule->type);
        const bool fused = flim_fusion_forward_fused(schedule, u);
        const bool fp32_gradient = su->conv[FLIM_CONV_WEIGHT] && su->conv[FLIM_CONV_WEIGHT]->algorithm->fp32_gradient;
        const bool copied_gradient = schedule->train && !fp32_gradient;
        if (su->fusion == FLIM_FUSION_STEM || (fused && !copied_gradient)) {
            continue; /* their kernels take the parameters as they are */
        }
        float *scale = take(c, sizeof(float));
        su->w = take(c, bytes);
        su->w_flipped = su->conv[FLIM_CONV_DATA] && su->conv[FLIM_CONV_DATA]->algorithm->flipped ? take(c, bytes) : NULL;
        su->dw = copied_gradient ? take(c, bytes) : NULL;
        su->norm.weight_scale = fused ? NULL : scale;
        su->weight_item = table->n;
        table->item[table->n++] =
            (flim_weight_item){.o = unit->out_channels,
                               .i = unit->in_channels,
                               .taps = taps,
                               .k = su->k,
                               .c = su->c,
                               .offset = flim_network_tensor(schedule->net, u, FLIM_TENSOR_CONV_WEIGHT, 0)->offset,
                               .first = table->elements,
                               .storage = su->w,
                               .grad = su->dw,
                               .scale = scale};
        table->elements += count;
    }
    p->weights = take(c, sizeof *p->weights);
}

static void lay_head(flim_cuda_program *p, cursor *c)
{
    const flim_network *net = &p->base.net;
    const flim_head *head = &net->head[0];
    const int h = net->n_units, last = h - 1, hidden_stored = flim_storage_channels(head->hidden);
    const int64_t f = sizeof(float), n = p->batch, channels = flim_storage_channels(head->in_channels);
    const int *out = net->unit[last].out;
    p->head = (flim_head_kernels){.in = head->in_channels,
                                  .c = (int)channels,
                                  .hidden = head->hidden,
                                  .outputs = head->outputs,
                                  .fc1_weight = flim_cuda_tensor(p, p->parameters, h, FLIM_TENSOR_LINEAR_WEIGHT, 0),
                                  .fc1_bias = flim_cuda_tensor(p, p->parameters, h, FLIM_TENSOR_BIAS, 0),
                                  .gamma = flim_cuda_tensor(p, p->parameters, h, FLIM_TENSOR_BN_WEIGHT, 0),
                                  .beta = flim_cuda_tensor(p, p->parameters, h, FLIM_TENSOR_BN_BIAS, 0),
                                  .fc2_weight = flim_cuda_tensor(p, p->parameters, h, FLIM_TENSOR_LINEAR_WEIGHT, 1),
                                  .fc2_bias = flim_cuda_tensor(p, p->parameters, h, FLIM_TENSOR_BIAS, 1),
                                  .mean = take(c, n * channels * f),
                                  .dropout_stride = hidden_stored,
                                  .dropout = take(c, n * hidden_stored * f),
                                  .z = take(c, n * head->hidden * f),
                                  .h = take(c, n * head->hidden * f),
                                  .norm_mean = take(c, head->hidden * f),
                                  .norm_invstd = take(c, head->hidden * f),
                                  .logits = take(c, n * head->outputs * f),
                                  .label = p->call.label,
                                  .weight = p->call.weight,
                                  .dlogits = take(c, n * head->outputs * f),
                                  .loss = take(c, n * (int64_t)sizeof(double)),
                                  .correct = take(c, n * (int64_t)sizeof(int32_t)),
                                  .dz = take(c, n * head->hidden * f),
                                  .dmean = take(c, n * channels * f),
                                  .pixels = (int64_t)out[0] * out[1] * out[2],
                                  .dfc1_weight = flim_cuda_tensor(p, p->gradients, h, FLIM_TENSOR_LINEAR_WEIGHT, 0),
                                  .dfc1_bias = flim_cuda_tensor(p, p->gradients, h, FLIM_TENSOR_BIAS, 0),
                                  .dgamma = flim_cuda_tensor(p, p->gradients, h, FLIM_TENSOR_BN_WEIGHT, 0),
                                  .dbeta = flim_cuda_tensor(p, p->gradients, h, FLIM_TENSOR_BN_BIAS, 0),
                                  .dfc2_weight = flim_cuda_tensor(p, p->gradients, h, FLIM_TENSOR_LINEAR_WEIGHT, 1),
                                  .dfc2_bias = flim_cuda_tensor(p, p->gradients, h, FLIM_TENSOR_BIAS, 1)};
    if (p->call.step) {
        p->head.divisor = &p->call.step->divisor;
        p->head.smoothing = &p->call.step->label_smoothing;
        p->head.loss_scale = &p->state->loss_scale;
    }
}

int64_t flim_call_block_at(flim_call_block *block, char *base, int64_t batch)
{
    cursor c = {base, 0};
    block->step = take(&c, sizeof *block->step);
    block->label = take(&c, batch * (int64_t)sizeof *block->label);
    block->weight = take(&c, batch * (int64_t)sizeof *block->weight);
    block->id = take(&c, batch * (int64_t)sizeof *block->id);
    block->bytes = c.used;
    return c.used;
}

int64_t flim_program_lay_out(flim_cuda_program *p, char *base)
{
    const flim_network *net = &p->base.net;
    const int64_t P = net->parameters * (int64_t)sizeof(float), S = net->statistics * (int64_t)sizeof(float);
    const bool train = p->train.batch > 0;
    cursor c = {base, 0};
    p->parameters = take(&c, P);
    p->bytes_parameters = c.used;
    p->statistics = take(&c, S);
    p->pending = train ? take(&c, S) : NULL;
    p->bytes_statistics = c.used - p->bytes_parameters;
    int64_t mark = c.used;
    p->gradients = train ? take(&c, P) : NULL;
    p->bytes_gradients = c.used - mark;
    mark = c.used;
    p->moment1 = train ? take(&c, P) : NULL;
    p->moment2 = train ? take(&c, P) : NULL;
    p->bytes_moments = c.used - mark;
    mark = c.used;
    lay_weights(p, train ? &p->train : &p->predict, &c);
    p->bytes_weights = c.used - mark;
    mark = c.used;
    const int64_t voxels = (int64_t)net->in[0] * net->in[1] * net->in[2], pixels = (int64_t)net->in[1] * net->in[2];
    for (int s = 0; s < FLIM_STAGES; s++) {
        p->stage[s].signal = take(&c, p->batch * voxels * (int64_t)sizeof(float));
        p->stage[s].mask = take(&c, p->batch * pixels);
    }
    p->bytes_stages = c.used - mark;
    mark = c.used;
    p->state = take(&c, sizeof *p->state);
    int64_t block = flim_call_block_at(&p->call, base ? base + c.used : NULL, p->batch);
    (void)take(&c, block);
    p->norm_partial = take(&c, FLIM_NORM_BLOCKS * (int64_t)sizeof(double));
    int widest = 8;
    for (int u = 0; u < net->n_units; u++) {
        const int k = flim_storage_channels(net->unit[u].out_channels);
        widest = k > widest ? k : widest;
        if (train) {
            const float *scale = p->train.unit[u].norm.weight_scale; /* lay_unit starts afresh */
            lay_unit(p, &p->train, u, &c, NULL);
            p->train.unit[u].norm.weight_scale = scale;
        }
        if (p->predict.batch > 0) {
            const float *scale = p->predict.unit[u].norm.weight_scale;
            lay_unit(p, &p->predict, u, &c, train ? &p->train : NULL);
            if (!train) {
                p->predict.unit[u].norm.weight_scale = scale;
            }
        }
    }
    p->partial =
        take(&c, ((int64_t)p->launch.processors * 8 + p->batch) * widest * FLIM_MAX_PARTIAL_SUMS * (int64_t)sizeof(float));
    lay_head(p, &c);
    for (int u = 0; train && u < net->n_units; u++) {
        const int item = p->train.unit[u].weight_item;
        if (item >= 0) {
            p->weights_host.item[item].grad_scale = p->train.unit[u].grad.scale;
        }
    }
    p->bytes_scratch = c.used - mark;
    return c.used;
}
