/* BatchNorm and convolutions backward. */
#include "cuda/device/check.h"
#include "cuda/program/fusion.h"
#include "cuda/program/operation.h"
#include "cuda/program/ranks.h"

/* The dense head that reads unit u: there is one if the unit has a buffer for what it gives. */
static int dense_head_of(const flim_network *net, int u)
{
    int k = 0;
    while (net->head[k].unit != u || net->head[k].kind != FLIM_HEAD_DENSE) {
        k++;
    }
    return k;
}

static flim_grad_input grad_input_of(const flim_task *t, int slot)
{
    const flim_schedule_unit *reader = flim_task_owner(t, t->op->in[slot]);
    flim_grad_input source = {.kind = FLIM_GRAD_INPUT_DENSE, .data = flim_task_in(t, slot), .scale_a = reader->dv_scale};
    if (t->s->label[t->op->in[slot]].kind == FLIM_BUFFER_HEAD_DY) {
        source.scale_a = t->p->dense[dense_head_of(t->s->net, t->op->unit)].dy_scale;
    }
    if (t->s->label[t->op->in[slot]].kind == FLIM_BUFFER_DX) {
        source.scale_a = reader->grad.scale;
        source.scale_b = reader->norm.weight_scale;
        if (flim_fusion_compact_dx(reader->unit)) {
            source.kind = FLIM_GRAD_INPUT_STRIDED;
            for (int d = 0; d < 3; d++) {
                source.stride[d] = reader->unit->stride[d];
                source.size[d] = reader->unit->conv_out[d];
            }
        }
    }
    return source;
}

/* The gradient of the unit's y: what pooled heads give, and the contributions that the operation reads. */
static flim_grad_inputs grad_inputs_of(const flim_task *t)
{
    flim_grad_inputs out = {.h = t->su->unit->out[1], .w = t->su->unit->out[2]};
    for (int k = 0; k < t->s->net->n_heads; k++) {
        if (t->s->net->head[k].unit == t->op->unit && t->s->net->head[k].kind == FLIM_HEAD_POOLED) {
            out.item[out.n++] = (flim_grad_input){.kind = FLIM_GRAD_INPUT_BROADCAST, .data = t->p->head[k].dmean};
        }
    }
    for (int slot = FLIM_IN_GRADIENT; slot < FLIM_OPERATION_INPUTS; slot++) {
        if (t->op->in[slot] != FLIM_NO_BUFFER) {
            out.item[out.n++] = grad_input_of(t, slot);
        }
    }
    return out;
}

static flim_grad_norm grad_norm_of(const flim_task *t, int u)
{
    return (flim_grad_norm){.norm = t->s->unit[u].norm,
                            .out = t->s->unit[u].grad,
                            .dgamma = flim_task_gradient(t, u, FLIM_TENSOR_BN_WEIGHT),
                            .dbeta = flim_task_gradient(t, u, FLIM_TENSOR_BN_BIAS),
                            .dbias = flim_task_gradient(t, u, FLIM_TENSOR_BIAS)};
}

/* The skip's BatchNorm is applied along with the unit's own. */
static bool has_fused_skip(const flim_task *t)
{
    const int skip = t->su->unit->skip;
    return skip >= 0 && t->s->unit[skip].fusion == FLIM_FUSION_SKIP;
}

bool flim_task_shares_grad_sums(const flim_task *t)
{
    return t->p->ranks.sync && (t->su->norm.present || (has_fused_skip(t) && t->s->unit[t->su->unit->skip].norm.present));
}

int64_t flim_task_grad_sums(const flim_task *t)
{
    return 1 + (has_fused_skip(t) ? 4 : 3) * (int64_t)t->su->k;
}

flim_status flim_run_grad_sums(const flim_task *t, flim_error *err)
{
    flim_cuda_program *p = t->p;
    const flim_unit *unit = t->su->unit;
    const flim_epilogue epilogue = flim_task_epilogue(t);
    const bool fused = epilogue.skip == FLIM_SKIP_NORMALISED;
    const flim_grad_inputs dy = grad_inputs_of(t);
    const flim_blocks blocks = flim_blocks_for(t->n, flim_volume(unit->out), t->su->k, p->launch.processors);
    const flim_grad_norm main = grad_norm_of(t, t->op->unit),
                         skip = fused ? grad_norm_of(t, unit->skip) : (flim_grad_norm){0};
    FLIM_TRY_CUDA(flim_k_grad_sums(&p->launch, &epilogue, &dy, blocks, p->partial, flim_task_out(t, FLIM_OUT)));
    if (flim_task_shares_grad_sums(t)) {
        flim_rank_sums sums;
        FLIM_TRY_CUDA(flim_k_sync_grad_sums(&p->launch, p->partial, blocks, t->su->k, fused ? 4 : 3,
                                            t->n * flim_volume(unit->conv_out), p->ranks.own));
        FLIM_TRY(flim_task_share(t, false, flim_task_grad_sums(t), &sums, err));
        return flim_cuda_check(flim_k_grad_norm_ranks(&p->launch, &sums, &main, fused ? &skip : NULL, t->su->dv_scale,
                                                      p->scaled, !t->first, &p->state->loss_scale),
                               "BatchNorm backward", err);
    }
    FLIM_TRY_CUDA(flim_k_grad_norm(&p->launch, p->partial, blocks, t->n * flim_volume(unit->conv_out), &main,
                                   fused ? &skip : NULL, t->su->dv_scale, p->scaled, true, !t->first, &p->state->loss_scale,
                                   t->su->sums, t->su->counter));
    return FLIM_OK;
}

flim_status flim_run_grad_apply(const flim_task *t, flim_error *err)
{
    flim_epilogue epilogue = flim_task_epilogue(t);
    const flim_schedule_unit *skip = flim_task_owner(t, t->op->out[FLIM_OUT_SKIP_DZ]);
    const flim_grad_inputs dy = grad_inputs_of(t);
    if (t->su->gradient_from >= 0) { /* the gradient came through them already */
        epilogue.act = false;
        epilogue.dropout = NULL;
    }
    return flim_cuda_check(flim_k_grad_apply(&t->p->launch, &epilogue, &dy, &t->su->grad, skip ? &skip->grad : NULL,
                                             t->su->dv_scale, flim_task_out(t, FLIM_OUT), flim_task_out(t, FLIM_OUT_SKIP_DZ),
                                             flim_task_out(t, FLIM_OUT_DV)),
                           "BatchNorm backward", err);
}

/* ---- convolutions backward ----------------------------------------------------------------------------------------------- */

flim_status flim_run_weight(const flim_task *t, flim_error *err)
{
    const flim_schedule_unit *su = t->su;
    void *x = flim_task_in(t, FLIM_IN_X), *dz = flim_task_in(t, FLIM_IN_GRADIENT);
    flim_conv_arguments a = flim_task_conv(t);
    a.x = su->unit->transposed ? dz : x;
    a.y = su->unit->transposed ? x : dz;
    a.w = su->dw;
    a.master = flim_task_gradient(t, t->op->unit, FLIM_TENSOR_CONV_WEIGHT);
    a.prologue = flim_task_prologue(t);
    a.unscale = su->grad.unscale;
    a.accumulate = !t->first;
    return flim_task_run_conv(t, &a, err);
}

/* dx; with z of the input unit the gradient before that unit's activation, and the sums of its BatchNorm. */
flim_status flim_run_data(const flim_task *t, flim_error *err)
{
    flim_cuda_program *p = t->p;
    const flim_schedule_unit *su = t->su, *from = flim_task_owner(t, t->op->in[FLIM_IN_Z]);
    const bool transposed = su->unit->transposed;
    flim_conv_arguments a = flim_task_conv(t);
    a.x = transposed ? flim_task_in(t, FLIM_IN_GRADIENT) : flim_task_out(t, FLIM_OUT);
    a.y = transposed ? flim_task_out(t, FLIM_OUT) : flim_task_in(t, FLIM_IN_GRADIENT);
    a.w = flim_task_weights(t, !transposed);
    a.master = flim_task_parameter(t, t->op->unit, FLIM_TENSOR_CONV_WEIGHT);
    a.weight_scale = su->norm.weight_scale;
    if (!from) {
        return flim_task_run_conv(t, &a, err);
    }
    a.sums = from->sums;
    a.epilogue = (flim_conv_epilogue){.z = flim_task_in(t, FLIM_IN_Z),
                                      .scale = from->norm.affine.scale,
                                      .shift = from->norm.affine.shift,
                                      .sign_mask = flim_task_in(t, FLIM_IN_SKIP),
                                      .keep = from->dropout,
                                      .mean = from->norm.mean,
                                      .add = flim_task_in(t, FLIM_IN_GRADIENT + 1)};
    if (a.epilogue.add && p->launch.type == FLIM_STORAGE_FP16) { /* its weights have a scale in every case, dz in tf32 */
        const flim_grad_input add = grad_input_of(t, FLIM_IN_GRADIENT + 1);
        a.epilogue.add_scale = su->add_scale;
        FLIM_TRY_CUDA(
            flim_k_ratio(&p->launch, su->grad.scale, su->norm.weight_scale, add.scale_a, add.scale_b, su->add_scale));
    }
    FLIM_TRY(flim_task_run_conv(t, &a, err));
    const flim_grad_norm norm = grad_norm_of(t, su->unit->input);
    const flim_written_gradient du = {.values = flim_task_out(t, FLIM_OUT),
                                      .scale = su->grad.scale,
                                      .scale_b = su->norm.weight_scale,
                                      .sums = from->sums,
                                      .counter = from->counter};
    const int64_t count = t->n * flim_volume(from->unit->conv_out);
    if (p->ranks.sync && norm.norm.present) {
        flim_rank_sums sums;
        FLIM_TRY_CUDA(flim_k_sync_grad_sums_of_du(&p->launch, &du, count, &norm.norm, p->ranks.own));
        FLIM_TRY(flim_task_share(t, false, 1 + 2 * (int64_t)from->k, &sums, err));
        return flim_cuda_check(
            flim_k_grad_norm_ranks_of_du(&p->launch, &sums, &du, count, &norm, p->scaled, !t->first, &p->state->loss_scale),
            "BatchNorm backward", err);
    }
    FLIM_TRY_CUDA(flim_k_grad_norm_sums(&p->launch, &du, count, &norm, p->scaled, !t->first, &p->state->loss_scale));
    return FLIM_OK;
}
