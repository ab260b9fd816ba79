#include "cuda/program/launch.h"

#include "cuda/device/check.h"
#include "cuda/program/operation.h"
#include "cuda/program/ranks.h"

flim_status flim_cuda_run_operation(flim_cuda_program *p, flim_schedule *s, const flim_operation *op, int64_t n, bool first,
                                    flim_error *err)
{
    typedef flim_status run_task(const flim_task *task, flim_error *err);
    static run_task *const runs[] = {[FLIM_OP_CONV] = flim_run_conv,
                                     [FLIM_OP_NORM] = flim_run_norm,
                                     [FLIM_OP_EPILOGUE] = flim_run_epilogue,
                                     [FLIM_OP_HEAD] = flim_run_head,
                                     [FLIM_OP_GRAD_SUMS] = flim_run_grad_sums,
                                     [FLIM_OP_GRAD_APPLY] = flim_run_grad_apply,
                                     [FLIM_OP_WEIGHT] = flim_run_weight,
                                     [FLIM_OP_DATA] = flim_run_data,
                                     [FLIM_OP_STEM_FORWARD] = flim_run_stem_forward,
                                     [FLIM_OP_STEM_BACKWARD] = flim_run_stem_backward};
    const flim_task t = {.p = p, .s = s, .op = op, .su = &s->unit[op->unit], .n = n, .first = first};
    return runs[op->kind](&t, err);
}

/* sync_batchnorm: what an operation does on a rank without cells, which takes part in what all share: its running statistics move
 * as those of the others. */
static flim_status run_without_cells(flim_cuda_program *p, flim_schedule *s, const flim_operation *op, flim_error *err)
{
    const flim_task t = {.p = p, .s = s, .op = op, .su = &s->unit[op->unit], .n = 0};
    const flim_schedule_unit *from = op->kind == FLIM_OP_DATA ? flim_task_owner(&t, op->in[FLIM_IN_Z]) : NULL;
    flim_rank_sums sums;
    switch (op->kind) {
    case FLIM_OP_NORM: return t.su->norm.present ? flim_task_share_norm(&t, true, err) : FLIM_OK;
    case FLIM_OP_HEAD: return flim_run_head(&t, err);
    case FLIM_OP_GRAD_SUMS:
        return flim_task_shares_grad_sums(&t) ? flim_task_share(&t, true, flim_task_grad_sums(&t), &sums, err) : FLIM_OK;
    case FLIM_OP_DATA:
        return from && from->norm.present ? flim_task_share(&t, true, 1 + 2 * (int64_t)from->k, &sums, err) : FLIM_OK;
    case FLIM_OP_CONV:
    case FLIM_OP_EPILOGUE:
    case FLIM_OP_GRAD_APPLY:
    case FLIM_OP_WEIGHT:
    case FLIM_OP_STEM_FORWARD:
    case FLIM_OP_STEM_BACKWARD: break;
    }
    return FLIM_OK;
}

static flim_status run_dropout(flim_cuda_program *p, flim_schedule *schedule, int64_t n, flim_error *err)
{
    const flim_network *net = &p->base.net;
    flim_dropout_table table = {0};
    const int n_dropouts = net->n_units + net->n_heads;
    for (int u = 0; u < n_dropouts; u++) {
        const flim_head_kernels *head = u < net->n_units ? NULL : &p->head[u - net->n_units];
        float *multiplier = head ? (float *)head->dropout : schedule->unit[u].dropout;
        if (multiplier) {
            table.item[table.n].unit = (uint32_t)u;
            table.item[table.n].channels = head ? head->hidden : net->unit[u].out_channels;
            table.item[table.n].c = head ? head->dropout_stride : schedule->unit[u].k;
            table.item[table.n].p = head ? &p->call.step->dropout : &p->call.step->block_dropout;
            table.item[table.n++].multiplier = multiplier;
        }
        if (table.n == 8 || (table.n > 0 && u == n_dropouts - 1)) {
            FLIM_TRY_CUDA(flim_k_dropout(&p->launch, &table, p->call.id, n));
            table.n = 0;
        }
    }
    return FLIM_OK;
}

flim_status flim_cuda_store_weights(flim_cuda_program *p, const flim_device_state *state, flim_error *err)
{
    const flim_weight_table *table = &p->weights_host;
    FLIM_TRY_CUDA(flim_k_weights(&p->launch, p->weights, table->n, table->elements, p->parameters,
                                 p->launch.type == FLIM_STORAGE_FP16, state));
    for (int i = 0; i < 2; i++) {
        const flim_schedule *schedule = i == 0 ? &p->train : &p->predict;
        for (int u = 0; schedule->batch > 0 && u < p->base.net.n_units; u++) {
            const flim_schedule_unit *su = &schedule->unit[u];
            const bool transposed = su->unit->transposed;
            if (su->w_flipped && (i == 0 || su->w_flipped != p->train.unit[u].w_flipped)) {
                FLIM_TRY_CUDA(flim_k_flip(&p->launch, su->w, transposed ? su->c : su->k, (int)flim_volume(su->unit->kernel),
                                          transposed ? su->k : su->c, su->w_flipped));
            }
        }
    }
    return FLIM_OK;
}

flim_status flim_cuda_run_update(flim_cuda_program *p, bool first, bool last, flim_error *err)
{
    const flim_network *net = &p->base.net;
    const flim_weight_table *table = &p->weights_host;
    if (p->ranks.on) {
        FLIM_TRY(flim_cuda_ranks_end(p, err));
    }
    if (!p->ranks.on || (!last && p->ranks.cells > 0)) { /* those of an update's last step went out to the other ranks */
        FLIM_TRY_CUDA(
            flim_k_gather(&p->launch, p->weights, table->n, table->elements, &p->state->loss_scale, !first, p->gradients));
    }
    if (last) {
        const flim_update update = {.count = net->parameters,
                                    .encoder = flim_network_encoder_parameters(net),
                                    .n_statistics = net->statistics,
                                    .parameters = p->parameters,
                                    .moment1 = p->moment1,
                                    .moment2 = p->moment2,
                                    .gradients = p->gradients,
                                    .statistics = p->statistics,
                                    .pending = p->ranks.on && !p->ranks.sync ? p->ranks.running : p->pending,
                                    .average = p->average,
                                    .average_statistics = p->average_statistics,
                                    .partial = p->norm_partial};
        FLIM_TRY_CUDA(flim_k_update(&p->launch, p->state, p->call.step, &update, p->dynamic));
        FLIM_TRY(flim_cuda_store_weights(p, p->state, err));
    }
    return FLIM_OK;
}

/* The running statistics from and to `pending`, which training's kernels move. */
static flim_status copy_statistics(flim_cuda_program *p, float *to, const float *from, flim_error *err)
{
    FLIM_TRY_CUDA(cudaMemcpyAsync(to, from, (size_t)p->base.net.statistics * sizeof(float), cudaMemcpyDeviceToDevice,
                                  p->launch.stream));
    return FLIM_OK;
}

static bool is_forward(const flim_operation *op)
{
    return op->kind == FLIM_OP_CONV || op->kind == FLIM_OP_STEM_FORWARD || op->kind == FLIM_OP_NORM ||
           op->kind == FLIM_OP_EPILOGUE || op->kind == FLIM_OP_HEAD;
}

flim_status flim_cuda_run_statistics(flim_cuda_program *p, int64_t n, flim_error *err)
{
    flim_schedule *s = &p->train;
    FLIM_TRY(n > 0 ? run_dropout(p, s, n, err) : FLIM_OK);
    FLIM_TRY(copy_statistics(p, p->pending, p->statistics, err));
    for (int i = 0; i < s->n_operations && is_forward(&s->operation[i]); i++) {
        const flim_operation *op = &s->operation[i];
        if (op->kind != FLIM_OP_HEAD) {
            FLIM_TRY(n > 0 ? flim_cuda_run_operation(p, s, op, n, true, err) : run_without_cells(p, s, op, err));
        } else if (p->base.net.head[op->head].kind == FLIM_HEAD_POOLED) {
            const flim_task t = {.p = p, .s = s, .op = op, .su = &s->unit[op->unit], .n = n, .first = true};
            flim_head_kernels head;
            FLIM_TRY(flim_run_pooled_forward(&t, &head, err));
        }
    }
    return copy_statistics(p, p->statistics, p->pending, err);
}

/* Tensors are read after the update, which chooses the scales of the weights anew. */
static flim_status note_weight_scales(flim_cuda_program *p, const flim_schedule *schedule, flim_error *err)
{
    for (int u = 0; u < p->base.net.n_units; u++) {
        const float *scale = schedule->unit[u].norm.weight_scale;
        p->weight_scale[u] = 1.0f;
        if (scale) {
            FLIM_TRY_CUDA(
                cudaMemcpyAsync(&p->weight_scale[u], scale, sizeof *scale, cudaMemcpyDeviceToHost, p->launch.stream));
            FLIM_TRY_CUDA(cudaStreamSynchronize(p->launch.stream));
        }
    }
    return FLIM_OK;
}

flim_status flim_cuda_run_schedule(flim_cuda_program *p, flim_schedule *schedule, int64_t n, bool first, bool last,
                                   flim_error *err)
{
    if (p->base.options.inspect) {
        FLIM_TRY(note_weight_scales(p, schedule, err));
    }
    const bool shared = schedule->train && p->ranks.on;
    if (schedule->train && n > 0) {
        FLIM_TRY(run_dropout(p, schedule, n, err));
    }
    if (shared) {
        FLIM_TRY(flim_cuda_ranks_begin(p, n, first, err));
    } else if (schedule->train && first) {
        FLIM_TRY(copy_statistics(p, p->pending, p->statistics, err));
    }
    for (int i = 0; i < schedule->n_operations; i++) {
        const flim_operation *op = &schedule->operation[i];
        FLIM_TRY(n > 0                     ? flim_cuda_run_operation(p, schedule, op, n, first, err)
                 : shared && p->ranks.sync ? run_without_cells(p, schedule, op, err)
                                           : FLIM_OK);
        FLIM_TRY(shared ? flim_cuda_ranks_after(p, i, first, last, err) : FLIM_OK);
    }
    if (schedule->train) {
        FLIM_TRY(flim_cuda_run_update(p, first, last, err));
    }
    return FLIM_OK;
}
