/* Life and state of a compiled program: compile, memory plan, allocation, reading and writing state. */
#include "program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "core/alloc.h"
#include "graph.h"
#include "transfer.h"

#define INITIAL_LOSS_SCALE 65536.0f /* as torch's GradScaler */

/* ---- layout of the fixed part of the allocation ------------------------------------------------------------------------- */

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
    const flim_head *head = &net->head;
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
    block->id = take(&c, batch * 6 * (int64_t)sizeof *block->id);
    block->bytes = c.used;
    return c.used;
}

/* Sets all pointers into memory at `base` (NULL: only sizes) and returns the bytes of the fixed part. */
static int64_t lay_out(flim_cuda_program *p, char *base)
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

/* ---- life ------------------------------------------------------------------------------------------------------------------ */

static void destroy(flim_program *base)
{
    flim_cuda_program *p = flim_cuda_program_of(base);
    if (!p->device->base.info.described && cudaSetDevice(p->device->ordinal) == cudaSuccess) {
        (void)cudaStreamSynchronize(p->device->copy_stream);
        (void)cudaStreamSynchronize(p->device->stream);
        flim_graph_free(p);
        flim_transfer_free(p);
        (void)cudaFree(p->memory);
    }
    flim_cuda_kept_free(&p->kept);
    flim_free(p);
}

/* Saved activations, a line for each block: units whose names begin with the same word (res1). */
static void add_saved(const flim_pass *pass, flim_memory_plan *plan)
{
    const flim_network *net = pass->net;
    for (int u = 0; u < net->n_units;) {
        const char *block = net->unit[u].conv;
        const int word = (int)strcspn(block, ".");
        char name[48];
        int64_t bytes = 0;
        do {
            bytes += flim_pass_saved_at_peak(pass, u++);
        } while (u < net->n_units && strncmp(net->unit[u].conv, block, (size_t)word + 1) == 0);
        snprintf(name, sizeof name, "saved activations of %.*s", word < 24 ? word : 24, block);
        flim_memory_add(plan, name, FLIM_MEMORY_DEVICE, bytes);
    }
}

static flim_status memory(const flim_program *base, flim_memory_plan *plan, flim_error *err)
{
    static const char *const uses[] = {"saved activations", "passing activations", "gradients of activations",
                                       "convolution workspace"};
    const flim_cuda_program *p = (const flim_cuda_program *)base;
    const flim_pass *most = p->train.arena.bytes >= p->predict.arena.bytes ? &p->train : &p->predict;
    int64_t rest = p->arena_bytes;
    (void)err;
    flim_memory_add(plan, "parameters", FLIM_MEMORY_DEVICE, p->bytes_parameters);
    flim_memory_add(plan, "BatchNorm statistics", FLIM_MEMORY_DEVICE, p->bytes_statistics);
    flim_memory_add(plan, "gradients", FLIM_MEMORY_DEVICE, p->bytes_gradients);
    flim_memory_add(plan, "Adam moments", FLIM_MEMORY_DEVICE, p->bytes_moments);
    flim_memory_add(plan, "weight copies", FLIM_MEMORY_DEVICE, p->bytes_weights);
    flim_memory_add(plan, "input buffers", FLIM_MEMORY_DEVICE, p->bytes_stages);
    flim_memory_add(plan, "sums and head", FLIM_MEMORY_DEVICE, p->bytes_scratch);
    for (int u = 0; u < FLIM_USES; u++) {
        if (u == FLIM_USE_SAVED) {
            add_saved(most, plan);
        } else {
            flim_memory_add(plan, uses[u], FLIM_MEMORY_DEVICE, most->at_peak[u]);
        }
        rest -= most->at_peak[u];
    }
    flim_memory_add(plan, "gaps between activations", FLIM_MEMORY_DEVICE, rest);
    flim_memory_add(plan, "cells of the data", FLIM_MEMORY_DEVICE, p->kept.bytes);
    flim_memory_add(plan, "call arguments and logits", FLIM_MEMORY_PINNED, flim_transfer_pinned_bytes(p));
    return FLIM_OK;
}

static int64_t all_bytes(const flim_cuda_program *p)
{
    return p->fixed_bytes + p->arena_bytes + p->kept.bytes;
}

/* cudaMalloc failed: says what was needed, what is free, and which batch would do (activations grow with the batch). */
static flim_status explain_memory(flim_cuda_program *p, flim_error *err)
{
    size_t free_bytes = 0, total = 0;
    (void)cudaMemGetInfo(&free_bytes, &total);
    const double gib = 1073741824.0;
    const int64_t per_batch = p->arena_bytes + p->bytes_stages + p->bytes_scratch, rest = all_bytes(p) - per_batch;
    char beside[440];
    flim_cuda_beside(p->device, beside, sizeof beside);
    int64_t fits = per_batch > 0 ? (int64_t)(((double)free_bytes - (double)rest) / (double)per_batch * (double)p->batch) : 0;
    const flim_program_options *o = &p->base.options; /* train_batch 0: predict, which has fewer flags */
    if (fits < 1) {
        const bool wide = o->precision == FLIM_PRECISION_FP32 || o->precision == FLIM_PRECISION_TF32;
        const bool has_bf16 = p->device->base.info.precisions & 1u << FLIM_PRECISION_BF16;
        return flim_fail(
            err, FLIM_ERROR_MEMORY,
            "out of device memory on %s: a batch of %lld cells needs %.2f GiB, %.2f of %.2f GiB are free, not enough for one "
            "cell; less is needed by a smaller preset%s%s%s",
            p->device->base.info.name, (long long)p->batch, (double)all_bytes(p) / gib, (double)free_bytes / gib,
            (double)total / gib,
            !wide      ? ""
            : has_bf16 ? ", --precision bf16"
                       : ", --precision fp16",
            o->train_batch > 0 && o->recompute != FLIM_RECOMPUTE_ALL ? ", --checkpoint-activations all" : "", beside);
    }
    return flim_fail(
        err, FLIM_ERROR_MEMORY,
        "out of device memory on %s: a batch of %lld cells needs %.2f GiB, %.2f of %.2f GiB are free; the largest batch that "
        "fits is %lld%s%s",
        p->device->base.info.name, (long long)p->batch, (double)all_bytes(p) / gib, (double)free_bytes / gib,
        (double)total / gib, (long long)(fits < p->batch ? fits : p->batch - 1),
        o->train_batch > 0
            ? " (--batch auto finds it, --accumulate keeps the cells an update, --checkpoint-activations auto makes room)"
            : "",
        beside);
}

static flim_status allocate(flim_program *base, flim_error *err)
{
    flim_cuda_program *p = flim_cuda_program_of(base);
    flim_status status = flim_cuda_device_use(p->device, err);
    if (status != FLIM_OK) {
        return status;
    }
    if (base->device->info.described) {
        return flim_fail(err, FLIM_ERROR_DEVICE, "%s is only described: it can be planned for, not run on",
                         base->device->info.name);
    }
    void *at = NULL;
    cudaError_t code = cudaMalloc(&at, (size_t)all_bytes(p));
    if (code == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        return explain_memory(p, err);
    }
    FLIM_TRY(flim_cuda_check(code, "cudaMalloc", err));
    p->memory = at;
    (void)lay_out(p, p->memory);
    p->arena = p->memory + p->fixed_bytes;
    cudaStream_t stream = p->device->stream;
    FLIM_TRY_CUDA(cudaMemsetAsync(p->memory, 0, (size_t)(p->fixed_bytes + p->arena_bytes), stream));
    FLIM_TRY_CUDA(cudaMemcpyAsync(p->weights, &p->weights_host, sizeof p->weights_host, cudaMemcpyHostToDevice, stream));
    FLIM_TRY_CUDA(cudaMemcpyAsync(p->state, &p->host_state, sizeof p->host_state, cudaMemcpyHostToDevice, stream));
    FLIM_TRY(flim_transfer_make(p, err));
    FLIM_TRY(flim_cuda_kept_place(&p->kept, p->memory + p->fixed_bytes + p->arena_bytes, stream, err));
    FLIM_TRY_CUDA(cudaStreamSynchronize(stream));
done:
    return status; /* what was made is freed by destroy */
}

/* ---- state ------------------------------------------------------------------------------------------------------------------ */

static flim_state_arrays states(const flim_program *base)
{
    const flim_cuda_program *p = (const flim_cuda_program *)base;
    return (flim_state_arrays){.parameters = p->parameters,
                               .gradients = p->gradients,
                               .moment1 = p->moment1,
                               .moment2 = p->moment2,
                               .statistics = p->statistics};
}

static flim_status read_state(flim_program *base, const float *from, size_t count, float *out, flim_error *err)
{
    flim_status status = flim_cuda_finish(flim_cuda_program_of(base), err);
    return status == FLIM_OK
               ? flim_cuda_check(cudaMemcpy(out, from, count * sizeof *out, cudaMemcpyDeviceToHost), "reading state", err)
               : status;
}

/* From pageable memory; what is enqueued afterwards sees it.  (cudaMemcpy may return with its last copy under way, and our streams
 * do not wait for it.) */
static flim_status upload(flim_cuda_program *p, void *to, const void *from, size_t bytes, flim_error *err)
{
    flim_status status;
    FLIM_TRY_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, p->device->stream));
    FLIM_TRY_CUDA(cudaStreamSynchronize(p->device->stream));
done:
    return status;
}

static flim_status write_state(flim_program *base, flim_state state, float *to, size_t count, const float *in,
                               flim_error *err)
{
    flim_cuda_program *p = flim_cuda_program_of(base);
    flim_status status;
    FLIM_TRY(flim_cuda_finish(p, err));
    FLIM_TRY(upload(p, to, in, count * sizeof *in, err));
    if (state == FLIM_STATE_PARAMETERS) {
        FLIM_TRY_CUDA(flim_k_weights(&p->launch, p->weights, p->weights_host.n, p->weights_host.elements, p->parameters,
                                     p->launch.type == FLIM_STORAGE_FP16, NULL));
        FLIM_TRY_CUDA(cudaStreamSynchronize(p->device->stream));
    } else if (state == FLIM_STATE_STATISTICS && p->pending) {
        FLIM_TRY(upload(p, p->pending, in, count * sizeof *in, err));
    }
done:
    return status;
}

static flim_status fetch(flim_cuda_program *p, flim_device_state *out, flim_error *err)
{
    if (!p->base.allocated) {
        *out = p->host_state;
        return FLIM_OK;
    }
    flim_status status = flim_cuda_finish(p, err);
    return status == FLIM_OK
               ? flim_cuda_check(cudaMemcpy(out, p->state, sizeof *out, cudaMemcpyDeviceToHost), "reading counters", err)
               : status;
}

static flim_status store(flim_cuda_program *p, const flim_device_state *in, flim_error *err)
{
    if (!p->base.allocated) {
        p->host_state = *in;
        return FLIM_OK;
    }
    return upload(p, p->state, in, sizeof *in, err);
}

static flim_status get_counters(flim_program *base, flim_counters *out, flim_error *err)
{
    flim_device_state s;
    flim_status status = fetch(flim_cuda_program_of(base), &s, err);
    if (status == FLIM_OK) {
        *out = (flim_counters){s.adam_step, s.skipped, s.skipped_in_row, (double)s.loss_scale, s.scale_growth};
    }
    return status;
}

static flim_status set_counters(flim_program *base, const flim_counters *in, flim_error *err)
{
    flim_cuda_program *p = flim_cuda_program_of(base);
    flim_device_state s;
    flim_status status = fetch(p, &s, err);
    if (status != FLIM_OK) {
        return status;
    }
    s.adam_step = in->adam_step;
    s.skipped = in->skipped;
    s.skipped_in_row = in->skipped_in_row;
    s.scale_growth = in->scale_growth;
    /* A scale of 1 or less comes from another precision: fp16 then starts from its own. */
    s.loss_scale = !p->dynamic ? 1.0f : in->loss_scale > 1.0 ? (float)in->loss_scale : INITIAL_LOSS_SCALE;
    return store(p, &s, err);
}

static flim_status totals(flim_program *base, bool reset, flim_totals *out, flim_error *err)
{
    flim_cuda_program *p = flim_cuda_program_of(base);
    flim_device_state s;
    flim_status status = fetch(p, &s, err);
    if (status != FLIM_OK) {
        return status;
    }
    *out = (flim_totals){.loss = s.loss,
                         .weight = s.weight,
                         .cells = s.cells,
                         .correct = s.correct,
                         .updates = s.updates,
                         .grad_norm = s.grad_norm,
                         .nonfinite = s.nonfinite_call >= 0,
                         .nonfinite_call = s.nonfinite_call};
    if (reset) {
        s.loss = s.weight = 0;
        s.cells = s.correct = s.updates = s.calls = 0;
        s.nonfinite_call = -1;
        status = store(p, &s, err);
    }
    return status;
}

static flim_status set_totals(flim_program *base, const flim_totals *in, flim_error *err)
{
    flim_cuda_program *p = flim_cuda_program_of(base);
    flim_device_state s;
    flim_status status = fetch(p, &s, err);
    if (status != FLIM_OK) {
        return status;
    }
    s.loss = in->loss;
    s.weight = in->weight;
    s.cells = in->cells;
    s.correct = in->correct;
    s.updates = in->updates;
    s.grad_norm = in->grad_norm;
    s.nonfinite_call = in->nonfinite ? in->nonfinite_call : -1;
    return store(p, &s, err);
}

static flim_status wait_all(flim_program *base, flim_error *err)
{
    return flim_cuda_finish(flim_cuda_program_of(base), err);
}

static int64_t peak_bytes(const flim_program *base)
{
    return all_bytes((const flim_cuda_program *)base);
}

static bool replays(const flim_program *base)
{
    const flim_cuda_program *p = (const flim_cuda_program *)base;
    return p->n_graphs > 0 && !p->graphs_off;
}

static flim_status keep_cells(flim_program *base, const flim_kept_cells *cells, flim_error *err)
{
    flim_cuda_program *p = flim_cuda_program_of(base);
    const int64_t pixels = (int64_t)base->net.in[1] * base->net.in[2];
    return flim_cuda_kept_plan(&p->kept, pixels * base->net.in[0], pixels, cells, err);
}

static flim_status put_cell(flim_program *base, int64_t cell, const void *voxels, const uint8_t *mask, flim_error *err)
{
    flim_cuda_program *p = flim_cuda_program_of(base);
    flim_status status = flim_cuda_device_use(p->device, err);
    return status == FLIM_OK ? flim_cuda_kept_put(&p->kept, cell, voxels, mask, p->device->stream, err) : status;
}

static const flim_program_ops program_ops = {.destroy = destroy,
                                             .memory = memory,
                                             .allocate = allocate,
                                             .states = states,
                                             .read = read_state,
                                             .write = write_state,
                                             .get_counters = get_counters,
                                             .set_counters = set_counters,
                                             .train = flim_cuda_train,
                                             .predict = flim_cuda_predict,
                                             .totals = totals,
                                             .set_totals = set_totals,
                                             .wait = wait_all,
                                             .peak_bytes = peak_bytes,
                                             .replays = replays,
                                             .profile = flim_cuda_profile,
                                             .keep_cells = keep_cells,
                                             .put_cell = put_cell};

/* ---- compile ---------------------------------------------------------------------------------------------------------------- */

/* $XDG_CACHE_HOME/flimcv, else ~/.cache/flimcv; empty where there is neither. */
static void default_cache_folder(char *path, size_t size)
{
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    path[0] = 0;
    if (xdg && xdg[0] == '/') {
        snprintf(path, size, "%s/flimcv", xdg);
    } else if (home && home[0] == '/') {
        snprintf(path, size, "%s/.cache/flimcv", home);
    }
}

/* Tuning a convolution found no room: the program is not laid out yet, so which batch would do is an estimate.  What a cell needs is
 * mostly its convolutions' outputs, kept for the backward pass. */
static flim_status explain_tuning(const flim_cuda_program *p, flim_error *err)
{
    size_t free_bytes = 0, total = 0;
    (void)cudaMemGetInfo(&free_bytes, &total);
    double cell = 0;
    for (int u = 0; u < p->base.net.n_units; u++) {
        const flim_unit *unit = &p->base.net.unit[u];
        cell += (double)unit->conv_out[0] * unit->conv_out[1] * unit->conv_out[2] *
                flim_storage_channels(unit->out_channels) * (double)flim_storage_size(p->launch.type);
    }
    const int64_t fits = (int64_t)((double)free_bytes / (1.5 * cell)); /* gradients of one more layer, workspace */
    if (fits >= 1 && fits < p->batch && err) {
        return flim_fail(err, FLIM_ERROR_MEMORY, "%s; a batch of about %lld cells fits, not %lld", err->text, (long long)fits,
                         (long long)p->batch);
    }
    return FLIM_ERROR_MEMORY;
}

/* What AUTO came to, for those who look at the program's options. */
static void note_drop(flim_cuda_program *p, const flim_pass_drop *drop, uint32_t all)
{
    if (p->base.options.recompute == FLIM_RECOMPUTE_AUTO) {
        p->base.options.recompute = drop->outputs == 0 && drop->blocks == 0 ? FLIM_RECOMPUTE_NONE
                                    : drop->blocks == all                   ? FLIM_RECOMPUTE_ALL
                                                                            : FLIM_RECOMPUTE_AUTO;
    }
}

/* The training pass: as it is, or with everything dropped that can be made again, or (AUTO) with just enough of that to stay
 * within the memory.  First goes what costs next to nothing, outputs that another pass writes again; then blocks, at each turn
 * the one that saves most. */
static flim_status build_training(flim_cuda_program *p, const flim_plan_options *plans, flim_error *err)
{
    const flim_program_options *o = &p->base.options;
    const flim_network *net = &p->base.net;
    flim_pass_drop drop = {0}, best = {0};
    if (o->recompute == FLIM_RECOMPUTE_ALL) {
        drop = (flim_pass_drop){.outputs = FLIM_MAX_UNITS, .blocks = UINT32_MAX};
    }
    for (;;) {
        flim_status status = flim_pass_build(&p->train, p->device, net, p->launch.type, true, o->train_batch,
                                             o->deterministic, &drop, plans, err);
        if (status != FLIM_OK || o->recompute != FLIM_RECOMPUTE_AUTO) {
            return status;
        }
        const uint32_t all = (1u << (p->train.n_blocks - 1)) - 1; /* the last block is never made again */
        if (lay_out(p, NULL) + p->train.arena.bytes <= o->memory_limit) {
            note_drop(p, &drop, all);
            return FLIM_OK;
        }
        if (drop.outputs < flim_pass_droppable(&p->train)) {
            drop.outputs++;
            continue;
        }
        if (drop.blocks == all) {
            note_drop(p, &drop, all);
            return FLIM_OK;
        }
        int64_t least = INT64_MAX;
        for (int b = 0; b < p->train.n_blocks - 1; b++) {
            const flim_pass_drop more = {drop.outputs, drop.blocks | 1u << b};
            if (more.blocks == drop.blocks) {
                continue;
            }
            status = flim_pass_build(&p->train, p->device, net, p->launch.type, true, o->train_batch, o->deterministic, &more,
                                     plans, err);
            if (status != FLIM_OK) {
                return status;
            }
            if (p->train.arena.bytes < least) {
                least = p->train.arena.bytes;
                best = more;
            }
        }
        drop = best;
    }
}

flim_status flim_cuda_compile(flim_device *base, const flim_network *net, const flim_program_options *options,
                              flim_program **out, flim_error *err)
{
    flim_cuda_device *device = flim_cuda_device_of(base);
    char cache[4096];
    default_cache_folder(cache, sizeof cache);
    /* Timing could choose another engine in the next run, and with it other bits: deterministic takes the first guess. */
    const flim_plan_options plans = {.benchmark = options->benchmark && !options->deterministic,
                                     .workspace_limit = options->workspace_limit,
                                     .cache_dir = options->cache_dir ? options->cache_dir
                                                  : cache[0]         ? cache
                                                                     : NULL,
                                     .log = options->log,
                                     .stop = options->stop};
    flim_status status;
    flim_cuda_program *p = flim_alloc(1, sizeof *p, err);
    if (!p) {
        return FLIM_ERROR_MEMORY;
    }
    p->base = (flim_program){.ops = &program_ops, .device = base, .net = *net, .options = *options};
    p->device = device;
    p->scaled = options->precision == FLIM_PRECISION_TF32;
    p->dynamic = options->precision == FLIM_PRECISION_FP16;
    p->batch = options->train_batch > options->eval_batch ? options->train_batch : options->eval_batch;
    const flim_storage type = options->precision == FLIM_PRECISION_FP32   ? FLIM_STORAGE_FP32
                              : options->precision == FLIM_PRECISION_BF16 ? FLIM_STORAGE_BF16
                                                                          : FLIM_STORAGE_FP16;
    p->launch = (flim_launch){device->stream, type, base->info.threads};
    p->host_state = (flim_device_state){.nonfinite_call = -1, .loss_scale = p->dynamic ? INITIAL_LOSS_SCALE : 1.0f};
    if (device->cudnn.version < 91600 && !base->info.described) {
        flim_log_line(
            options->log, FLIM_LOG_WARNING,
            "cuDNN %zu.%zu.%zu: versions below 9.16 have wrong or broken 3D convolutions; every plan is checked, but 9.16 or "
            "later is advised",
            device->cudnn.version / 10000, device->cudnn.version / 100 % 100, device->cudnn.version % 100);
    }
    FLIM_TRY(flim_cuda_device_use(device, err));
    const int searched = device->store.searched, loaded = device->store.loaded;
    if (options->eval_batch > 0) {
        FLIM_TRY(flim_pass_build(&p->predict, device, &p->base.net, type, false, options->eval_batch, options->deterministic,
                                 &(flim_pass_drop){0}, &plans, err));
    }
    if (options->train_batch > 0) {
        FLIM_TRY(build_training(p, &plans, err));
    }
    flim_plan_store_save(device, &plans);
    if (device->store.searched > searched || device->store.loaded > loaded) {
        flim_log_line(options->log, FLIM_LOG_NOTE, "convolution plans: %d %s, %d from the cache",
                      device->store.searched - searched, plans.benchmark ? "tuned" : "chosen by heuristic",
                      device->store.loaded - loaded);
    }
    p->fixed_bytes = lay_out(p, NULL);
    p->arena_bytes = p->train.arena.bytes > p->predict.arena.bytes ? p->train.arena.bytes : p->predict.arena.bytes;
done:
    if (status == FLIM_ERROR_MEMORY && !base->info.described) {
        status = explain_tuning(p, err);
    }
    if (status != FLIM_OK) {
        destroy(&p->base);
    } else {
        *out = &p->base;
    }
    return status;
}
