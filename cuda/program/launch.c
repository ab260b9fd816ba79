#include "cuda/program/launch.h"

#include "cuda/device/check.h"

static flim_status run_plan(flim_cuda_program *p, flim_pass *pass, int u, flim_conv_op op, int64_t n, const void *x,
                            const void *w, const void *y, flim_error *err)
{
    const flim_pass_unit *pu = &pass->unit[u];
    flim_status status =
        flim_conv_plan_run(p->device, pu->plan[op], n, x, w, y, flim_pass_at(pass, p->arena, pu->workspace[op]), err);
    return status == FLIM_OK ? FLIM_OK : flim_fail_prefix(err, "%s: ", pu->unit->conv);
}

static void *z_of(flim_cuda_program *p, const flim_pass *pass, int u)
{
    return flim_pass_at(pass, p->arena, pass->unit[u].z);
}

/* z = conv(x): by its plan, or by conv_k3.h, which applies what stands between a virtual input's z and its y.  again: BatchNorm has
 * its statistics. */
static flim_status run_conv(flim_cuda_program *p, flim_pass *pass, int u, int64_t n, bool again, flim_error *err)
{
    const flim_pass_unit *pu = &pass->unit[u];
    const int input = pu->unit->input;
    const flim_pass_unit *from = input < 0 ? NULL : &pass->unit[input];
    const bool apply = from && from->is_virtual;
    void *x = flim_pass_at(pass, p->arena, !from ? pass->input : apply ? from->z : from->y);
    if (!pu->k3) {
        return run_plan(p, pass, u, FLIM_CONV_FORWARD, n, x, pu->w, z_of(p, pass, u), err);
    }
    const flim_k3_shape shape = flim_pass_k3_shape(pass, u, n);
    const flim_conv_prologue prologue = {.scale = apply ? from->norm.affine.scale : NULL,
                                         .shift = apply ? from->norm.affine.shift : NULL};
    return flim_cuda_check(flim_k3_forward(&shape, x, apply ? &prologue : NULL,
                                           flim_cuda_tensor(p, p->parameters, u, FLIM_TENSOR_CONV_WEIGHT, 0),
                                           flim_cuda_tensor(p, p->parameters, u, FLIM_TENSOR_BIAS, 0), z_of(p, pass, u),
                                           pass->train && !again ? pu->conv_sums : NULL,
                                           flim_pass_at(pass, p->arena, pu->workspace[FLIM_CONV_FORWARD]), p->launch.stream),
                           pu->unit->conv, err);
}

static flim_status run_norm(flim_cuda_program *p, flim_pass *pass, int u, int64_t n, flim_error *err)
{
    const flim_pass_unit *pu = &pass->unit[u];
    const int64_t pixels = flim_volume(pu->unit->conv_out);
    if (!pass->train || !pu->norm.present) {
        return flim_cuda_check(flim_k_norm_fixed(&p->launch, &pu->norm), "BatchNorm", err);
    }
    if (pu->conv_sums) {
        return flim_cuda_check(flim_k_norm_train_sums(&p->launch, pu->conv_sums, n * pixels, &pu->norm), "BatchNorm", err);
    }
    flim_blocks blocks = flim_blocks_for(n, pixels, pu->k, p->launch.processors);
    FLIM_TRY_CUDA(flim_k_stats(&p->launch, z_of(p, pass, u), blocks, pu->k, p->partial));
    FLIM_TRY_CUDA(flim_k_norm_train(&p->launch, p->partial, blocks, &pu->norm));
    return FLIM_OK;
}

static flim_stem_input stem_input(flim_cuda_program *p, const flim_pass *pass)
{
    char *at = flim_pass_at(pass, p->arena, pass->input);
    return (flim_stem_input){.signal = at, .mask = (const uint8_t *)at + pass->mask_offset};
}

static flim_stem_parameters stem_parameters(flim_cuda_program *p, const flim_pass *pass)
{
    float *at = p->parameters;
    return (flim_stem_parameters){.weight = flim_cuda_tensor(p, at, pass->stem, FLIM_TENSOR_CONV_WEIGHT, 0),
                                  .bias = flim_cuda_tensor(p, at, pass->stem, FLIM_TENSOR_BIAS, 0),
                                  .gamma = flim_cuda_tensor(p, at, pass->stem, FLIM_TENSOR_BN_WEIGHT, 0),
                                  .beta = flim_cuda_tensor(p, at, pass->stem, FLIM_TENSOR_BN_BIAS, 0),
                                  .down_weight = flim_cuda_tensor(p, at, pass->down, FLIM_TENSOR_CONV_WEIGHT, 0),
                                  .down_bias = flim_cuda_tensor(p, at, pass->down, FLIM_TENSOR_BIAS, 0)};
}

static flim_status run_stem_forward(flim_cuda_program *p, flim_pass *pass, int64_t n, flim_error *err)
{
    const flim_pass_unit *down = &pass->unit[pass->down];
    const flim_stem_shape shape = flim_pass_stem_shape(pass, n);
    const flim_stem_input input = stem_input(p, pass);
    const flim_stem_parameters parameters = stem_parameters(p, pass);
    void *scratch = flim_pass_at(pass, p->arena, down->workspace[FLIM_CONV_FORWARD]);
    float *statistics = pass->train ? p->pending : p->statistics;
    float *mean = flim_cuda_tensor(p, statistics, pass->stem, FLIM_TENSOR_RUNNING_MEAN, 0),
          *var = flim_cuda_tensor(p, statistics, pass->stem, FLIM_TENSOR_RUNNING_VAR, 0);
    if (pass->train) {
        FLIM_TRY_CUDA(flim_stem_statistics(&shape, &input, &parameters, FLIM_BN_EPS, FLIM_BN_MOMENTUM, mean, var,
                                           pass->stem_state, scratch, p->launch.stream));
    } else {
        FLIM_TRY_CUDA(flim_stem_running(&shape, &parameters, FLIM_BN_EPS, mean, var, pass->stem_state, p->launch.stream));
    }
    FLIM_TRY_CUDA(flim_stem_forward(&shape, &input, &parameters, pass->stem_state, z_of(p, pass, pass->down),
                                    pass->train ? down->conv_sums : NULL, scratch, p->launch.stream));
    return FLIM_OK;
}

static flim_status run_stem_backward(flim_cuda_program *p, flim_pass *pass, int64_t n, bool first, flim_error *err)
{
    const flim_pass_unit *down = &pass->unit[pass->down];
    const flim_stem_shape shape = flim_pass_stem_shape(pass, n);
    const flim_stem_input input = stem_input(p, pass);
    const flim_stem_parameters parameters = stem_parameters(p, pass);
    const flim_stem_gradients gradients = {
        .weight = flim_cuda_tensor(p, p->gradients, pass->stem, FLIM_TENSOR_CONV_WEIGHT, 0),
        .bias = flim_cuda_tensor(p, p->gradients, pass->stem, FLIM_TENSOR_BIAS, 0),
        .gamma = flim_cuda_tensor(p, p->gradients, pass->stem, FLIM_TENSOR_BN_WEIGHT, 0),
        .beta = flim_cuda_tensor(p, p->gradients, pass->stem, FLIM_TENSOR_BN_BIAS, 0),
        .down_weight = flim_cuda_tensor(p, p->gradients, pass->down, FLIM_TENSOR_CONV_WEIGHT, 0)};
    void *scratch = flim_pass_at(pass, p->arena, down->workspace[FLIM_CONV_WEIGHT]), *gradient;
    flim_conv_norm norm = {0};
    if (down->norm_on_load) {
        const flim_pass_unit *from = &pass->unit[down->gradient_from];
        norm = (flim_conv_norm){.z = z_of(p, pass, pass->down),
                                .a = down->grad.a,
                                .b = down->grad.b,
                                .d = down->grad.d,
                                .du_scale = from->grad.scale};
        gradient = flim_pass_at(pass, p->arena, from->dx);
    } else {
        gradient = flim_pass_at(pass, p->arena, down->dz);
    }
    return flim_cuda_check(flim_stem_backward(&shape, &input, &parameters, pass->stem_state, gradient,
                                              down->norm_on_load ? &norm : NULL, &gradients, down->grad.unscale, !first,
                                              scratch, p->launch.stream),
                           "the stem's gradients", err);
}

static flim_status run_head(flim_cuda_program *p, flim_pass *pass, int u, int64_t n, bool first, flim_error *err)
{
    const flim_pass_unit *pu = &pass->unit[u];
    flim_head_kernels head = p->head;
    float *statistics = pass->train ? p->pending : p->statistics;
    head.cells = n;
    head.add = !first;
    head.dropout = pass->train ? head.dropout : NULL;
    head.running_mean = flim_cuda_tensor(p, statistics, p->base.net.n_units, FLIM_TENSOR_RUNNING_MEAN, 0);
    head.running_var = flim_cuda_tensor(p, statistics, p->base.net.n_units, FLIM_TENSOR_RUNNING_VAR, 0);
    FLIM_TRY_CUDA(flim_k_mean(&p->launch, flim_pass_at(pass, p->arena, pu->y), n, head.pixels, pu->k, (float *)head.mean));
    FLIM_TRY_CUDA(flim_k_head_forward(&p->launch, &head, pass->train));
    if (pass->train) {
        FLIM_TRY_CUDA(flim_k_head_loss(&p->launch, &head));
        FLIM_TRY_CUDA(flim_k_account(&p->launch, p->state, head.loss, head.correct, head.weight, n, p->dynamic));
        FLIM_TRY_CUDA(flim_k_head_backward(&p->launch, &head, true));
    }
    return FLIM_OK;
}

static flim_grad_norm grad_norm_of(flim_cuda_program *p, flim_pass *pass, int u)
{
    return (flim_grad_norm){.norm = pass->unit[u].norm,
                            .out = pass->unit[u].grad,
                            .dgamma = flim_cuda_tensor(p, p->gradients, u, FLIM_TENSOR_BN_WEIGHT, 0),
                            .dbeta = flim_cuda_tensor(p, p->gradients, u, FLIM_TENSOR_BN_BIAS, 0),
                            .dbias = flim_cuda_tensor(p, p->gradients, u, FLIM_TENSOR_BIAS, 0)};
}

static flim_status run_grad_sums(flim_cuda_program *p, flim_pass *pass, int u, int64_t n, bool first, flim_error *err)
{
    const flim_pass_unit *pu = &pass->unit[u];
    const flim_unit *unit = pu->unit;
    const flim_tail tail = flim_pass_tail(pass, p->arena, u, n, true);
    const bool folded = tail.skip == FLIM_SKIP_NORMALISED;
    flim_sources dy;
    FLIM_TRY(flim_pass_sources(pass, p->arena, u, p->head.dmean, &dy, err));
    flim_blocks blocks = flim_blocks_for(n, flim_volume(unit->out), pu->k, p->launch.processors);
    FLIM_TRY_CUDA(flim_k_grad_sums(&p->launch, &tail, &dy, blocks, p->partial,
                                   pu->rewrites_y ? flim_pass_at(pass, p->arena, pu->y) : NULL));
    flim_grad_norm main = grad_norm_of(p, pass, u), skip = {0};
    if (folded) {
        skip = grad_norm_of(p, pass, unit->skip);
    }
    FLIM_TRY_CUDA(flim_k_grad_norm(&p->launch, p->partial, blocks, n * flim_volume(unit->conv_out), &main,
                                   folded ? &skip : NULL, pu->dv_scale, p->scaled, true, !first, &p->state->loss_scale,
                                   pu->sums, pu->counter));
    return FLIM_OK;
}

static flim_status run_grad_apply(flim_cuda_program *p, flim_pass *pass, int u, int64_t n, flim_error *err)
{
    const flim_pass_unit *pu = &pass->unit[u];
    flim_tail tail = flim_pass_tail(pass, p->arena, u, n, true);
    const flim_pass_unit *skip = tail.skip == FLIM_SKIP_NORMALISED ? &pass->unit[pu->unit->skip] : NULL;
    flim_sources dy;
    FLIM_TRY(flim_pass_sources(pass, p->arena, u, p->head.dmean, &dy, err));
    if (pu->gradient_from >= 0) {
        tail.act = false; /* the gradient came through it already */
    }
    return flim_cuda_check(flim_k_grad_apply(&p->launch, &tail, &dy, &pu->grad, skip ? &skip->grad : NULL, pu->dv_scale,
                                             flim_pass_at(pass, p->arena, pu->dz),
                                             skip ? flim_pass_at(pass, p->arena, skip->dz) : NULL,
                                             flim_pass_at(pass, p->arena, pu->dv)),
                           "BatchNorm backward", err);
}

/* The full batch's plan sums over spare cells too: they must be 0, not left-overs. */
static flim_status clear_spare(flim_cuda_program *p, void *tensor, int64_t cell_elements, int64_t n, int64_t batch,
                               flim_error *err)
{
    const int64_t cell = cell_elements * flim_storage_size(p->launch.type);
    return n == batch ? FLIM_OK
                      : flim_cuda_check(
                            cudaMemsetAsync((char *)tensor + n * cell, 0, (size_t)((batch - n) * cell), p->launch.stream),
                            "clearing spare cells", err);
}

static flim_status run_weight(flim_cuda_program *p, flim_pass *pass, int u, int64_t n, bool first, flim_error *err)
{
    const flim_pass_unit *pu = &pass->unit[u];
    const flim_conv_plan *plan = pu->plan[FLIM_CONV_WEIGHT];
    const int input = pu->unit->input;
    const flim_pass_unit *from = input < 0 ? NULL : &pass->unit[input];
    const bool apply = from && pu->weight_from_z;
    void *x = flim_pass_at(pass, p->arena, !from ? pass->input : apply ? from->z : from->y);
    void *dz = flim_pass_at(pass, p->arena, pu->dz);
    if (plan->own) {
        flim_conv_prologue prologue = {0};
        if (apply) {
            prologue = (flim_conv_prologue){.scale = from->norm.affine.scale, .shift = from->norm.affine.shift};
        }
        flim_wgrad_shape shape;
        (void)flim_own_wgrad_shape(&plan->problem, pu->unit->in_channels, pu->unit->out_channels, p->device->sm, &shape);
        shape.n = n;
        return flim_cuda_check(flim_wgrad(&shape, x, apply ? &prologue : NULL, dz,
                                          flim_cuda_tensor(p, p->gradients, u, FLIM_TENSOR_CONV_WEIGHT, 0), pu->grad.unscale,
                                          !first, flim_pass_at(pass, p->arena, pu->workspace[FLIM_CONV_WEIGHT]),
                                          p->launch.stream),
                               pu->unit->conv, err);
    }
    if (!plan->tile) {
        FLIM_TRY(clear_spare(p, x, flim_volume(pu->unit->in) * pu->c, n, pass->batch, err));
        FLIM_TRY(clear_spare(p, dz, flim_volume(pu->unit->conv_out) * pu->k, n, pass->batch, err));
    }
    FLIM_TRY(run_plan(p, pass, u, FLIM_CONV_WEIGHT, n, x, pu->dw, dz, err));
    return FLIM_OK;
}

/* dx; where the input unit takes its gradient from here, through its activation and with the sums of its BatchNorm. */
static flim_status run_data(flim_cuda_program *p, flim_pass *pass, int u, int64_t n, bool first, flim_error *err)
{
    const flim_pass_unit *pu = &pass->unit[u], *from = &pass->unit[pu->unit->input];
    void *dx = flim_pass_at(pass, p->arena, pu->dx), *dz = flim_pass_at(pass, p->arena, pu->dz);
    void *scratch = flim_pass_at(pass, p->arena, pu->workspace[FLIM_CONV_DATA]);
    if (!pu->k3) {
        return run_plan(p, pass, u, FLIM_CONV_DATA, n, dx, pu->w_turned ? pu->w_turned : pu->w, dz, err);
    }
    const flim_k3_shape shape = flim_pass_k3_shape(pass, u, n);
    const float *weight = flim_cuda_tensor(p, p->parameters, u, FLIM_TENSOR_CONV_WEIGHT, 0);
    if (from->gradient_from != u) {
        return flim_cuda_check(flim_k3_backward_data(&shape, dz, weight, NULL, dx, NULL, scratch, p->launch.stream),
                               pu->unit->conv, err);
    }
    flim_k3_epilogue epilogue = {.z = flim_pass_at(pass, p->arena, from->z),
                                 .scale = from->norm.affine.scale,
                                 .shift = from->norm.affine.shift,
                                 .mean = from->norm.mean};
    if (from->gradient_add >= 0) {
        const flim_pass_unit *add = &pass->unit[from->gradient_add];
        epilogue.add = flim_pass_at(pass, p->arena, add->dv);
        if (p->scaled) {
            epilogue.add_scale = pu->add_scale;
            FLIM_TRY_CUDA(flim_k_ratio(&p->launch, pu->grad.scale, add->dv_scale, pu->add_scale));
        }
    }
    FLIM_TRY_CUDA(flim_k3_backward_data(&shape, dz, weight, &epilogue, dx, from->sums, scratch, p->launch.stream));
    const flim_grad_norm norm = grad_norm_of(p, pass, pu->unit->input);
    FLIM_TRY_CUDA(flim_k_grad_norm_sums(&p->launch, from->sums, pu->grad.scale, n * flim_volume(from->unit->conv_out), &norm,
                                        p->scaled, !first, &p->state->loss_scale));
    return FLIM_OK;
}

flim_status flim_cuda_run_operation(flim_cuda_program *p, flim_pass *pass, const flim_operation *op, int64_t n, bool first,
                                    flim_error *err)
{
    const int u = op->unit;
    flim_tail tail;
    switch (op->kind) {
    case FLIM_OP_CONV: return run_conv(p, pass, u, n, op->again, err);
    case FLIM_OP_NORM: return run_norm(p, pass, u, n, err);
    case FLIM_OP_TAIL:
        tail = flim_pass_tail(pass, p->arena, u, n, false);
        return flim_cuda_check(flim_k_tail_forward(&p->launch, &tail, flim_pass_at(pass, p->arena, pass->unit[u].y)),
                               "BatchNorm and activation", err);
    case FLIM_OP_HEAD: return run_head(p, pass, u, n, first, err);
    case FLIM_OP_GRAD_SUMS: return run_grad_sums(p, pass, u, n, first, err);
    case FLIM_OP_GRAD_APPLY: return run_grad_apply(p, pass, u, n, err);
    case FLIM_OP_WEIGHT: return run_weight(p, pass, u, n, first, err);
    case FLIM_OP_DATA: return run_data(p, pass, u, n, first, err);
    case FLIM_OP_STEM_FORWARD: return run_stem_forward(p, pass, n, err);
    case FLIM_OP_STEM_BACKWARD: return run_stem_backward(p, pass, n, first, err);
    }
    return flim_fail(err, FLIM_ERROR, "internal: unknown operation");
}

static flim_status run_dropout(flim_cuda_program *p, flim_pass *pass, int64_t n, flim_error *err)
{
    const flim_network *net = &p->base.net;
    flim_dropout_table table = {0};
    for (int u = 0; u <= net->n_units; u++) {
        bool head = u == net->n_units;
        if (!head && !pass->unit[u].dropout) {
            continue;
        }
        table.item[table.n].unit = (uint32_t)u;
        table.item[table.n].channels = head ? net->head[0].hidden : net->unit[u].out_channels;
        table.item[table.n].c = head ? p->head.dropout_stride : pass->unit[u].k;
        table.item[table.n++].multiplier = head ? (float *)p->head.dropout : pass->unit[u].dropout;
        if (table.n == 8 || head) {
            FLIM_TRY_CUDA(flim_k_dropout(&p->launch, &table, p->call.id, n, &p->call.step->dropout));
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
    for (int u = 0; u < p->base.net.n_units; u++) {
        const flim_pass_unit *pu = &p->train.unit[u];
        if (p->train.batch > 0 && pu->w_turned) {
            FLIM_TRY_CUDA(flim_k_turn(&p->launch, pu->w, pu->k, (int)flim_volume(pu->unit->kernel), pu->c, pu->w_turned));
        }
    }
    return FLIM_OK;
}

flim_status flim_cuda_run_update(flim_cuda_program *p, bool first, bool last, flim_error *err)
{
    const flim_network *net = &p->base.net;
    const flim_weight_table *table = &p->weights_host;
    FLIM_TRY_CUDA(
        flim_k_gather(&p->launch, p->weights, table->n, table->elements, &p->state->loss_scale, !first, p->gradients));
    if (last) {
        FLIM_TRY_CUDA(flim_k_update(&p->launch, p->state, p->call.step, p->parameters, p->gradients, p->moment1, p->moment2,
                                    net->parameters, p->norm_partial, p->dynamic, p->statistics, p->pending,
                                    net->statistics));
        FLIM_TRY(flim_cuda_store_weights(p, p->state, err));
    }
    return FLIM_OK;
}

flim_status flim_cuda_run_pass(flim_cuda_program *p, flim_pass *pass, int64_t n, bool first, bool last, flim_error *err)
{
    if (pass->train) {
        FLIM_TRY(run_dropout(p, pass, n, err));
        if (first) {
            FLIM_TRY_CUDA(cudaMemcpyAsync(p->pending, p->statistics, (size_t)p->base.net.statistics * sizeof(float),
                                          cudaMemcpyDeviceToDevice, p->launch.stream));
        }
    }
    for (int i = 0; i < pass->n_operations; i++) {
        FLIM_TRY(flim_cuda_run_operation(p, pass, &pass->operation[i], n, first, err));
    }
    if (pass->train) {
        FLIM_TRY(flim_cuda_run_update(p, first, last, err));
    }
    return FLIM_OK;
}
