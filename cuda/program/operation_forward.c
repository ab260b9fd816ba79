/* Convolutions, BatchNorm and activations forward. */
#include "cuda/device/check.h"
#include "cuda/program/operation.h"
#include "cuda/program/ranks.h"

flim_conv_arguments flim_task_conv(const flim_task *t)
{
    return (flim_conv_arguments){.n = t->n, .scratch = flim_task_scratch(t)};
}

flim_status flim_task_run_conv(const flim_task *t, const flim_conv_arguments *a, flim_error *err)
{
    if (flim_conv_run(t->p->device, t->op->conv, a, err) != FLIM_OK) {
        return flim_fail_prefix(err, "%s: ", t->su->unit->conv);
    }
    return FLIM_OK;
}

flim_conv_prologue flim_task_prologue(const flim_task *t)
{
    const flim_schedule_unit *from = flim_task_owner(t, t->op->in[FLIM_IN_X]);
    return t->op->input_form == FLIM_INPUT_NORM_ACT_ON_LOAD
               ? (flim_conv_prologue){.scale = from->norm.affine.scale, .shift = from->norm.affine.shift}
               : (flim_conv_prologue){0};
}

void *flim_task_weights(const flim_task *t, bool data_gradient)
{
    return data_gradient && t->su->w_flipped ? t->su->w_flipped : t->su->w;
}

/* z = conv(x); of a transposed unit the data gradient of the convolution from z to x.  recomputed: BatchNorm has its statistics. */
flim_status flim_run_conv(const flim_task *t, flim_error *err)
{
    const int u = t->op->unit;
    const bool transposed = t->su->unit->transposed;
    flim_conv_arguments a = flim_task_conv(t);
    a.x = transposed ? flim_task_out(t, FLIM_OUT) : flim_task_in(t, FLIM_IN_X);
    a.y = transposed ? flim_task_in(t, FLIM_IN_X) : flim_task_out(t, FLIM_OUT);
    a.w = flim_task_weights(t, transposed);
    a.master = flim_task_parameter(t, u, FLIM_TENSOR_CONV_WEIGHT);
    a.bias = flim_task_parameter(t, u, FLIM_TENSOR_BIAS);
    a.weight_scale = t->su->norm.weight_scale;
    a.prologue = flim_task_prologue(t);
    a.sums = t->op->recomputed ? NULL : t->su->conv_sums;
    a.sums_about = t->su->norm.running_mean;
    return flim_task_run_conv(t, &a, err);
}

flim_status flim_task_share(const flim_task *t, bool none, int64_t count, flim_rank_sums *out, flim_error *err)
{
    return none ? flim_cuda_ranks_share_none(t->p, count, out, err) : flim_cuda_ranks_share(t->p, count, out, err);
}

flim_status flim_task_share_norm(const flim_task *t, bool none, flim_error *err)
{
    flim_rank_sums sums;
    FLIM_TRY(flim_task_share(t, none, 1 + 2 * (int64_t)t->su->k, &sums, err));
    FLIM_TRY_CUDA(flim_k_norm_train_ranks(&t->p->launch, sums.all, sums.stride, sums.ranks, &t->su->norm));
    return FLIM_OK;
}

flim_status flim_run_norm(const flim_task *t, flim_error *err)
{
    const flim_schedule_unit *su = t->su;
    const bool sync = t->s->train && t->p->ranks.sync;
    const flim_launch *launch = &t->p->launch;
    const int64_t pixels = flim_volume(su->unit->conv_out);
    if (!t->s->train || !su->norm.present) {
        return flim_cuda_check(flim_k_norm_fixed(launch, &su->norm), "BatchNorm", err);
    }
    if (su->conv_sums && !sync) {
        return flim_cuda_check(flim_k_norm_train_sums(launch, su->conv_sums, t->n * pixels, &su->norm), "BatchNorm", err);
    }
    if (su->conv_sums) {
        FLIM_TRY_CUDA(flim_k_sync_moments_sums(launch, su->conv_sums, t->n * pixels, &su->norm, t->p->ranks.own));
        return flim_task_share_norm(t, false, err);
    }
    flim_blocks blocks = flim_blocks_for(t->n, pixels, su->k, launch->processors);
    FLIM_TRY_CUDA(flim_k_stats(launch, flim_task_in(t, FLIM_IN_Z), blocks, su->k, t->p->partial));
    if (sync) {
        FLIM_TRY_CUDA(flim_k_sync_moments(launch, t->p->partial, blocks, su->k, t->p->ranks.own));
        return flim_task_share_norm(t, false, err);
    }
    FLIM_TRY_CUDA(flim_k_norm_train(launch, t->p->partial, blocks, &su->norm));
    return FLIM_OK;
}

flim_epilogue flim_task_epilogue(const flim_task *t)
{
    static const flim_skip_kind kinds[] = {[FLIM_INPUT_PLAIN] = FLIM_SKIP_PLAIN,
                                           [FLIM_INPUT_NORM_ON_LOAD] = FLIM_SKIP_NORMALISED,
                                           [FLIM_INPUT_NORM_ACT_ON_LOAD] = FLIM_SKIP_ACTIVATED};
    const flim_unit *unit = t->su->unit;
    const int skip = t->op->in[FLIM_IN_SKIP];
    flim_epilogue epilogue = {.cells = t->n,
                              .t = unit->conv_out[0],
                              .hw = unit->conv_out[1] * unit->conv_out[2],
                              .c = t->su->k,
                              .pool = unit->pool_t,
                              .act = unit->act,
                              .z = flim_task_in(t, FLIM_IN_Z),
                              .affine = t->su->norm.affine,
                              .dropout = t->s->train ? t->su->dropout : NULL};
    epilogue.skip_in = epilogue.z;
    if (skip != FLIM_NO_BUFFER && t->s->label[skip].kind == FLIM_BUFFER_SIGN_MASK) {
        epilogue.skip = FLIM_SKIP_SIGN_MASK;
        epilogue.sign_mask = flim_task_in(t, FLIM_IN_SKIP);
    } else if (skip != FLIM_NO_BUFFER) {
        epilogue.skip = kinds[t->op->input_form];
        epilogue.skip_in = flim_task_in(t, FLIM_IN_SKIP);
        epilogue.skip_affine = flim_task_owner(t, skip)->norm.affine;
    }
    return epilogue;
}

flim_status flim_run_epilogue(const flim_task *t, flim_error *err)
{
    flim_epilogue epilogue = flim_task_epilogue(t);
    epilogue.sign_mask = flim_task_out(t, FLIM_OUT_SIGN_MASK);
    return flim_cuda_check(flim_k_epilogue_forward(&t->p->launch, &epilogue, flim_task_out(t, FLIM_OUT)),
                           "BatchNorm and activation", err);
}
