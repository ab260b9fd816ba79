#include "cuda/program/layout.h"

#include "backend/loss.h"
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

/* One of the unit's convolutions is a data gradient that takes the weights flipped. */
static bool wants_flipped(const flim_schedule_unit *su)
{
    const flim_conv_choice *choice = su->conv[su->unit->transposed ? FLIM_CONV_FORWARD : FLIM_CONV_DATA];
    return choice && choice->algorithm->flipped;
}

static int64_t weight_bytes(const flim_schedule *schedule, int u)
{
    const flim_schedule_unit *su = &schedule->unit[u];
    return su->k * flim_volume(su->unit->kernel) * su->c * flim_storage_size(schedule->type);
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
                           .momentum = p->call.step ? &p->call.step->momentum : NULL,
                           .running_mean = flim_cuda_tensor(p, statistics, u, FLIM_TENSOR_RUNNING_MEAN, 0),
                           .running_var = flim_cuda_tensor(p, statistics, u, FLIM_TENSOR_RUNNING_VAR, 0)};
    su->norm.affine = (flim_affine){take(c, row), take(c, row)};
    su->norm.mean = take(c, row);
    su->norm.invstd = take(c, row);
    if (weights_from) {
        su->norm.weight_scale = weights_from->unit[u].norm.weight_scale;
    }
    if (fused) { /* the kernel adds the bias */
        su->norm.bias = NULL;
    }
    if ((fused && su->fusion != FLIM_FUSION_STEM_ALONE) || su->gathers) {
        su->conv_sums = take(c, 2 * su->k * (int64_t)sizeof(double));
    }
    if (flim_schedule_stem_of(schedule, u) >= 0) {
        su->stem_state = take(c, (int64_t)flim_stem_state_bytes());
    }
    if (weights_from && !fused) {
        su->w = weights_from->unit[u].w;
        su->w_flipped = !wants_flipped(su)                      ? NULL
                        : wants_flipped(&weights_from->unit[u]) ? weights_from->unit[u].w_flipped
                                                                : take(c, weight_bytes(schedule, u));
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
        const bool stored =
            su->fusion != FLIM_FUSION_STEM && (!fused || copied_gradient); /* else the scale alone is needed */
        float *scale = take(c, sizeof(float) + 2 * sizeof(unsigned));
        su->w = stored ? take(c, bytes) : NULL;
        su->w_flipped = stored && wants_flipped(su) ? take(c, bytes) : NULL;
        su->dw = stored && copied_gradient ? take(c, bytes) : NULL;
        su->norm.weight_scale = scale;
        su->weight_item = table->n;
        table->item[table->n++] =
            (flim_weight_item){.o = unit->transposed ? unit->in_channels : unit->out_channels,
                               .i = unit->transposed ? unit->out_channels : unit->in_channels,
                               .taps = taps,
                               .k = unit->transposed ? su->c : su->k,
                               .c = unit->transposed ? su->k : su->c,
                               .offset = flim_network_tensor(schedule->net, u, FLIM_TENSOR_CONV_WEIGHT, 0)->offset,
                               .first = table->elements,
                               .storage = su->w,
                               .grad = su->dw,
                               .scale = scale,
                               .amax = scale ? (unsigned *)(scale + 1) : NULL};
        table->elements += stored ? count : 0;
    }
    p->weights = take(c, sizeof *p->weights);
}

static void lay_pooled_head(flim_cuda_program *p, int k, const flim_loss_sums *sums, const flim_loss_batch *batch, cursor *c)
{
    const flim_network *net = &p->base.net;
    const flim_head *head = &net->head[k];
    const int h = net->n_units + k, hidden_stored = flim_storage_channels(head->hidden);
    const int64_t f = sizeof(float), d = sizeof(double), n = p->batch;
    const int64_t channels = flim_storage_channels(head->in_channels), over_batch = flim_loss_is_over_batch(head->loss);
    p->head[k] = (flim_head_kernels){.head = *head,
                                     .in = head->in_channels,
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
                                     .batch = *batch,
                                     .sums = *sums,
                                     .smoothing = p->call.step ? &p->call.step->label_smoothing : NULL,
                                     .focal_gamma = p->call.step ? &p->call.step->focal_gamma : NULL,
                                     .momentum = p->call.step ? &p->call.step->momentum : NULL,
                                     .dlogits = take(c, n * head->outputs * f),
                                     .embedded = take(c, over_batch * n * head->outputs * d),
                                     .embedded_gradient = take(c, over_batch * n * head->outputs * d),
                                     .embedded_norm = take(c, over_batch * n * d),
                                     .similarity_slope = take(c, over_batch * n * n * d),
                                     .similarity = take(c, over_batch * n * n * f),
                                     .dz = take(c, n * head->hidden * f),
                                     .dmean = take(c, n * channels * f),
                                     .pixels = flim_volume(net->unit[head->unit].out),
                                     .dfc1_weight = flim_cuda_tensor(p, p->gradients, h, FLIM_TENSOR_LINEAR_WEIGHT, 0),
                                     .dfc1_bias = flim_cuda_tensor(p, p->gradients, h, FLIM_TENSOR_BIAS, 0),
                                     .dgamma = flim_cuda_tensor(p, p->gradients, h, FLIM_TENSOR_BN_WEIGHT, 0),
                                     .dbeta = flim_cuda_tensor(p, p->gradients, h, FLIM_TENSOR_BN_BIAS, 0),
                                     .dfc2_weight = flim_cuda_tensor(p, p->gradients, h, FLIM_TENSOR_LINEAR_WEIGHT, 1),
                                     .dfc2_bias = flim_cuda_tensor(p, p->gradients, h, FLIM_TENSOR_BIAS, 1)};
}

/* With tf32's storage a gradient per voxel would be too small: a power of two brings it to the size of one per cell. */
static void lay_dense_head(flim_cuda_program *p, int k, const flim_loss_sums *sums, const flim_loss_batch *batch, cursor *c)
{
    const flim_network *net = &p->base.net;
    const int64_t voxels = flim_volume(net->in);
    double scale = 1;
    while (p->scaled && scale < (double)voxels) {
        scale *= 2;
    }
    p->dense[k] = (flim_dense_kernels){.head = net->head[k],
                                       .voxels = voxels,
                                       .plane = (int64_t)net->in[1] * net->in[2],
                                       .c = flim_storage_channels(1),
                                       .input_c = flim_storage_channels(net->channels),
                                       .batch = *batch,
                                       .sums = *sums,
                                       .scale = scale,
                                       .dy_scale = take(c, sizeof(float)),
                                       .prediction = take(c, p->predict.batch * voxels * (int64_t)sizeof(float))};
    if (flim_loss_is_hidden(net->head[k].loss)) {
        const int64_t d = sizeof(double), n = p->batch;
        const int plane = net->in[1] * net->in[2];
        p->hidden[k] = (flim_hidden_kernels){.head = net->head[k],
                                             .t = net->in[0],
                                             .plane = plane,
                                             .c = p->dense[k].c,
                                             .batch = *batch,
                                             .sums = *sums,
                                             .scale = scale,
                                             .dy_scale = p->dense[k].dy_scale,
                                             .margins = take(c, n * (3 * net->in[0] + plane) * d),
                                             .cell = take(c, n * 2 * d),
                                             .partial = take(c, n * FLIM_HIDDEN_PARTS * 2 * d),
                                             .totals = p->state ? &p->state->hidden : NULL};
    }
}

static void lay_heads(flim_cuda_program *p, cursor *c)
{
    const flim_network *net = &p->base.net;
    const int64_t n = net->n_heads > 0 ? p->batch : 0;
    flim_loss_sums sums = {.loss = take(c, n * (int64_t)sizeof(double)), .correct = take(c, n * (int64_t)sizeof(int32_t))};
    flim_loss_batch batch = {
        .label = p->call.label, .weight = p->call.weight, .target = p->call.target, .classes = net->classes};
    if (p->call.step) {
        batch.divisor = &p->call.step->divisor;
        batch.loss_scale = &p->state->loss_scale;
    }
    for (int k = 0; k < net->n_heads; k++) {
        if (k == 0 && net->head[k].n_class_weights > 0) {
            sums.weight = take(c, n * (int64_t)sizeof(float));
        }
        sums.add = k > 0;
        if (net->head[k].kind == FLIM_HEAD_DENSE) {
            lay_dense_head(p, k, &sums, &batch, c);
        } else {
            lay_pooled_head(p, k, &sums, &batch, c);
        }
    }
}

static bool has_soft_targets(const flim_network *net)
{
    bool has = false;
    for (int k = 0; k < net->n_heads; k++) {
        has = has || flim_loss_target(net->head[k].loss) == FLIM_TARGET_DISTRIBUTION;
    }
    return has;
}

int64_t flim_call_block_at(flim_call_block *block, char *base, const flim_network *net, int64_t batch)
{
    cursor c = {base, 0};
    block->step = take(&c, sizeof *block->step);
    block->label = take(&c, batch * (int64_t)sizeof *block->label);
    block->weight = take(&c, batch * (int64_t)sizeof *block->weight);
    block->target = has_soft_targets(net) ? take(&c, batch * net->classes * (int64_t)sizeof *block->target) : NULL;
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
    p->pending = train ? take(&c, S + (int64_t)sizeof(float)) : NULL; /* one more: flim_k_begin_moves */
    p->bytes_statistics = c.used - p->bytes_parameters;
    int64_t mark = c.used;
    p->gradients = train ? take(&c, P) : NULL;
    p->bytes_gradients = c.used - mark;
    mark = c.used;
    p->moment1 = train ? take(&c, P) : NULL;
    p->moment2 = train ? take(&c, P) : NULL;
    p->bytes_moments = c.used - mark;
    mark = c.used;
    p->average = train && p->base.options.average ? take(&c, P) : NULL;
    p->average_statistics = train && p->base.options.average ? take(&c, S) : NULL;
    p->bytes_average = c.used - mark;
    mark = c.used;
    if (train && p->ranks.on) {
        const int64_t moves = p->ranks.sync ? 0 : 1, sums = p->ranks.sums * (int64_t)sizeof(double);
        p->ranks.running = take(&c, moves * S);
        p->ranks.all_moves = take(&c, moves * p->ranks.size * (S + (int64_t)sizeof(float)));
        p->ranks.own = take(&c, sums);
        p->ranks.all = take(&c, p->ranks.size * sums);
        p->ranks.all_gradients = p->base.options.deterministic ? take(&c, p->ranks.size * P) : NULL;
    }
    p->bytes_ranks = c.used - mark;
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
    int64_t block = flim_call_block_at(&p->call, base ? base + c.used : NULL, net, p->batch);
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
    lay_heads(p, &c);
    for (int u = 0; train && u < net->n_units; u++) {
        const int item = p->train.unit[u].weight_item;
        if (item >= 0) {
            p->weights_host.item[item].grad_scale = p->train.unit[u].grad.scale;
        }
    }
    p->bytes_scratch = c.used - mark;
    return c.used;
}
