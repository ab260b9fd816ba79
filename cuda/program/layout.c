#include "cuda/program/layout.h"

/* Hands out pieces of the allocation in order; with base NULL it only counts. */
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

/* Per-channel constants, weights and dropout multipliers of one unit of a pass. */
static void lay_unit(flim_cuda_program *p, flim_pass *pass, int u, cursor *c, const flim_pass *weights_from)
{
    flim_pass_unit *pu = &pass->unit[u];
    const int64_t row = pu->k * (int64_t)sizeof(float);
    float *statistics = pass->train ? p->pending : p->statistics;
    pu->norm = (flim_norm){.channels = pu->unit->out_channels,
                           .c = pu->k,
                           .present = pu->unit->bn[0] != 0,
                           .gamma = flim_cuda_tensor(p, p->parameters, u, FLIM_TENSOR_BN_WEIGHT, 0),
                           .beta = flim_cuda_tensor(p, p->parameters, u, FLIM_TENSOR_BN_BIAS, 0),
                           .bias = flim_cuda_tensor(p, p->parameters, u, FLIM_TENSOR_BIAS, 0),
                           .running_mean = flim_cuda_tensor(p, statistics, u, FLIM_TENSOR_RUNNING_MEAN, 0),
                           .running_var = flim_cuda_tensor(p, statistics, u, FLIM_TENSOR_RUNNING_VAR, 0)};
    pu->norm.affine = (flim_affine){take(c, row), take(c, row)};
    pu->norm.mean = take(c, row);
    pu->norm.invstd = take(c, row);
    const bool own = pu->k3 || u == pass->down; /* these add the bias, and round the weights without a scale */
    if (own) {
        pu->norm.bias = NULL;
        pu->conv_sums = take(c, 2 * pu->k * (int64_t)sizeof(double));
    }
    if (weights_from && !own) {
        pu->w = weights_from->unit[u].w;
        pu->norm.weight_scale = weights_from->unit[u].norm.weight_scale;
    }
    if (pass->train) {
        pu->grad =
            (flim_grad_affine){take(c, row), take(c, row), take(c, row), take(c, sizeof(float)), take(c, sizeof(float))};
        pu->dv_scale = take(c, sizeof(float));
        pu->add_scale = take(c, sizeof(float));
        pu->sums = take(c, FLIM_MAX_PARTIAL_SUMS * pu->k * (int64_t)sizeof(double));
        pu->counter = take(c, sizeof(int));
        pu->dropout = pu->unit->dropout ? take(c, pass->batch * row) : NULL;
    }
}

/* Storage copies of the convolution weights, and room for their gradients as cuDNN writes them. */
static void lay_weights(flim_cuda_program *p, flim_pass *pass, cursor *c)
{
    flim_weight_table *table = &p->weights_host;
    *table = (flim_weight_table){0};
    for (int u = 0; u < pass->net->n_units; u++) {
        flim_pass_unit *pu = &pass->unit[u];
        const flim_unit *unit = pu->unit;
        const int taps = unit->kernel[0] * unit->kernel[1] * unit->kernel[2];
        const int64_t count = (int64_t)pu->k * taps * pu->c, bytes = count * flim_storage_size(pass->type);
        const bool own_gradient = pu->plan[FLIM_CONV_WEIGHT] && pu->plan[FLIM_CONV_WEIGHT]->own;
        if (u == pass->stem || u == pass->down || (pu->k3 && (own_gradient || !pass->train))) {
            continue; /* their kernels take the parameters as they are */
        }
        float *scale = take(c, sizeof(float));
        pu->w = take(c, bytes);
        pu->w_turned = pu->plan[FLIM_CONV_DATA] && pu->plan[FLIM_CONV_DATA]->turned ? take(c, bytes) : NULL;
        pu->dw = pass->train && !own_gradient ? take(c, bytes) : NULL;
        pu->norm.weight_scale = pu->k3 ? NULL : scale;
        pu->weight_item = table->n;
        table->item[table->n++] =
            (flim_weight_item){.o = unit->out_channels,
                               .i = unit->in_channels,
                               .taps = taps,
                               .k = pu->k,
                               .c = pu->c,
                               .offset = flim_network_tensor(pass->net, u, FLIM_TENSOR_CONV_WEIGHT, 0)->offset,
                               .first = table->elements,
                               .storage = pu->w,
                               .grad = pu->dw,
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
    flim_pass *passes[2] = {&p->train, &p->predict};
    for (int i = 0; i < 2; i++) {
        if (passes[i]->batch > 0 && passes[i]->stem >= 0) {
            passes[i]->stem_state = take(&c, (int64_t)flim_stem_state_bytes());
        }
    }
    p->bytes_scratch = c.used - mark;
    return c.used;
}
