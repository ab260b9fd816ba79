#include "cuda/program/launch.h"

#include "cuda/device/check.h"
#include "cuda/program/fusion.h"
#include "cuda/program/ranks.h"

/* One operation as it is run: its operands resolved by in_of, out_of and scratch_of. */
typedef struct job {
    flim_cuda_program *p;
    flim_schedule *s;
    const flim_operation *op;
    const flim_schedule_unit *su; /* the operation's */
    int64_t n; /* cells */
    bool first; /* of its accumulation: gradients are assigned, else added to */
} job;

static void *in_of(const job *j, int slot)
{
    return flim_schedule_at(j->s, j->p->arena, j->op->in[slot]);
}

static void *out_of(const job *j, int slot)
{
    return flim_schedule_at(j->s, j->p->arena, j->op->out[slot]);
}

static void *scratch_of(const job *j)
{
    return flim_schedule_at(j->s, j->p->arena, j->op->scratch);
}

/* The unit whose tensor an operand is; NULL for none. */
static const flim_schedule_unit *owner_of(const job *j, int buffer)
{
    const int unit = buffer == FLIM_NO_BUFFER ? -1 : j->s->label[buffer].unit;
    return unit < 0 ? NULL : &j->s->unit[unit];
}

static float *parameter(const job *j, int u, flim_tensor_role role)
{
    return flim_cuda_tensor(j->p, j->p->parameters, u, role, 0);
}

static float *gradient(const job *j, int u, flim_tensor_role role)
{
    return flim_cuda_tensor(j->p, j->p->gradients, u, role, 0);
}

/* Running statistics: those of the update under way, or those that hold. */
static float *statistic(const job *j, int u, flim_tensor_role role)
{
    return flim_cuda_tensor(j->p, j->s->train ? j->p->pending : j->p->statistics, u, role, 0);
}

/* ---- forward ------------------------------------------------------------------------------------------------------------- */

static flim_conv_arguments begin_conv(const job *j)
{
    return (flim_conv_arguments){.n = j->n, .scratch = scratch_of(j)};
}

/* Enqueues the operation's convolution. */
static flim_status run_choice(const job *j, const flim_conv_arguments *a, flim_error *err)
{
    if (flim_conv_run(j->p->device, j->op->conv, a, err) != FLIM_OK) {
        return flim_fail_prefix(err, "%s: ", j->su->unit->conv);
    }
    return FLIM_OK;
}

/* What a convolution applies to x as it loads it. */
static flim_conv_prologue prologue_of(const job *j)
{
    const flim_schedule_unit *from = owner_of(j, j->op->in[FLIM_IN_X]);
    return j->op->input_form == FLIM_INPUT_NORM_ACT_ON_LOAD
               ? (flim_conv_prologue){.scale = from->norm.affine.scale, .shift = from->norm.affine.shift}
               : (flim_conv_prologue){0};
}

/* The stored weights, flipped if the operation is a data gradient that takes them so. */
static void *weights_of(const job *j, bool data_gradient)
{
    return data_gradient && j->su->w_flipped ? j->su->w_flipped : j->su->w;
}

/* z = conv(x); of a transposed unit the data gradient of the convolution from z to x.  recomputed: BatchNorm has its statistics. */
static flim_status run_conv(const job *j, flim_error *err)
{
    const int u = j->op->unit;
    const bool transposed = j->su->unit->transposed;
    flim_conv_arguments a = begin_conv(j);
    a.x = transposed ? out_of(j, FLIM_OUT) : in_of(j, FLIM_IN_X);
    a.y = transposed ? in_of(j, FLIM_IN_X) : out_of(j, FLIM_OUT);
    a.w = weights_of(j, transposed);
    a.master = parameter(j, u, FLIM_TENSOR_CONV_WEIGHT);
    a.bias = parameter(j, u, FLIM_TENSOR_BIAS);
    a.weight_scale = j->su->norm.weight_scale;
    a.prologue = prologue_of(j);
    a.sums = j->op->recomputed ? NULL : j->su->conv_sums;
    a.sums_about = j->su->norm.running_mean;
    return run_choice(j, &a, err);
}

/* sync_batchnorm: what `own` has of this rank, or zeros, with what the others have. */
static flim_status share(const job *j, bool none, int64_t count, flim_rank_sums *out, flim_error *err)
{
    return none ? flim_cuda_ranks_share_none(j->p, count, out, err) : flim_cuda_ranks_share(j->p, count, out, err);
}

/* Statistics of all ranks' cells; none: this one has none. */
static flim_status norm_ranks(const job *j, bool none, flim_error *err)
{
    flim_rank_sums sums;
    FLIM_TRY(share(j, none, 1 + 2 * (int64_t)j->su->k, &sums, err));
    FLIM_TRY_CUDA(flim_k_norm_train_ranks(&j->p->launch, sums.all, sums.stride, sums.ranks, &j->su->norm));
    return FLIM_OK;
}

static flim_status run_norm(const job *j, flim_error *err)
{
    const flim_schedule_unit *su = j->su;
    const bool sync = j->s->train && j->p->ranks.sync;
    const flim_launch *launch = &j->p->launch;
    const int64_t pixels = flim_volume(su->unit->conv_out);
    if (!j->s->train || !su->norm.present) {
        return flim_cuda_check(flim_k_norm_fixed(launch, &su->norm), "BatchNorm", err);
    }
    if (su->conv_sums && !sync) {
        return flim_cuda_check(flim_k_norm_train_sums(launch, su->conv_sums, j->n * pixels, &su->norm), "BatchNorm", err);
    }
    if (su->conv_sums) {
        FLIM_TRY_CUDA(flim_k_sync_moments_sums(launch, su->conv_sums, j->n * pixels, &su->norm, j->p->ranks.own));
        return norm_ranks(j, false, err);
    }
    flim_blocks blocks = flim_blocks_for(j->n, pixels, su->k, launch->processors);
    FLIM_TRY_CUDA(flim_k_stats(launch, in_of(j, FLIM_IN_Z), blocks, su->k, j->p->partial));
    if (sync) {
        FLIM_TRY_CUDA(flim_k_sync_moments(launch, j->p->partial, blocks, su->k, j->p->ranks.own));
        return norm_ranks(j, false, err);
    }
    FLIM_TRY_CUDA(flim_k_norm_train(launch, j->p->partial, blocks, &su->norm));
    return FLIM_OK;
}

/* What follows the unit's convolution: its z, and what the operation reads beside it. */
static flim_epilogue epilogue_of(const job *j)
{
    static const flim_skip_kind kinds[] = {[FLIM_INPUT_PLAIN] = FLIM_SKIP_PLAIN,
                                           [FLIM_INPUT_NORM_ON_LOAD] = FLIM_SKIP_NORMALISED,
                                           [FLIM_INPUT_NORM_ACT_ON_LOAD] = FLIM_SKIP_ACTIVATED};
    const flim_unit *unit = j->su->unit;
    const int skip = j->op->in[FLIM_IN_SKIP];
    flim_epilogue epilogue = {.cells = j->n,
                              .t = unit->conv_out[0],
                              .hw = unit->conv_out[1] * unit->conv_out[2],
                              .c = j->su->k,
                              .pool = unit->pool_t,
                              .act = unit->act,
                              .z = in_of(j, FLIM_IN_Z),
                              .affine = j->su->norm.affine,
                              .dropout = j->s->train ? j->su->dropout : NULL};
    epilogue.skip_in = epilogue.z;
    if (skip != FLIM_NO_BUFFER && j->s->label[skip].kind == FLIM_BUFFER_SIGN_MASK) {
        epilogue.skip = FLIM_SKIP_SIGN_MASK;
        epilogue.sign_mask = in_of(j, FLIM_IN_SKIP);
    } else if (skip != FLIM_NO_BUFFER) {
        epilogue.skip = kinds[j->op->input_form];
        epilogue.skip_in = in_of(j, FLIM_IN_SKIP);
        epilogue.skip_affine = owner_of(j, skip)->norm.affine;
    }
    return epilogue;
}

static flim_status run_epilogue(const job *j, flim_error *err)
{
    flim_epilogue epilogue = epilogue_of(j);
    epilogue.sign_mask = out_of(j, FLIM_OUT_SIGN_MASK);
    return flim_cuda_check(flim_k_epilogue_forward(&j->p->launch, &epilogue, out_of(j, FLIM_OUT)), "BatchNorm and activation",
                           err);
}

/* Totals of the hidden voxels; in training the loss and its share of dy, too. */
static flim_status run_hidden(const job *j, flim_error *err)
{
    flim_cuda_program *p = j->p;
    flim_hidden_kernels hidden = p->hidden[j->op->head];
    hidden.cells = j->n;
    hidden.y = in_of(j, FLIM_IN_X);
    hidden.voxel = in_of(j, FLIM_IN_TARGET);
    hidden.dy = out_of(j, FLIM_OUT);
    return flim_cuda_check(flim_k_hidden_loss(&p->launch, &hidden), "a loss over hidden voxels", err);
}

static flim_status run_dense_head(const job *j, flim_error *err)
{
    flim_cuda_program *p = j->p;
    if (flim_loss_is_hidden(p->base.net.head[j->op->head].loss)) {
        FLIM_TRY(run_hidden(j, err));
        if (j->s->train) {
            return FLIM_OK;
        }
    }
    flim_dense_kernels dense = p->dense[j->op->head];
    if (!j->s->train) {
        return flim_cuda_check(
            flim_k_to_planar(&p->launch, in_of(j, FLIM_IN_X), j->n, 1, dense.c, dense.voxels, dense.prediction),
            "a dense head", err);
    }
    dense.cells = j->n;
    dense.y = in_of(j, FLIM_IN_X);
    dense.input = in_of(j, FLIM_IN_TARGET);
    dense.dy = out_of(j, FLIM_OUT);
    return flim_cuda_check(flim_k_dense_loss(&p->launch, &dense), "a dense head", err);
}

/* The mean of y and the head's forward pass; *head gets what it worked on. */
static flim_status run_pooled_forward(const job *j, flim_head_kernels *out, flim_error *err)
{
    flim_cuda_program *p = j->p;
    const int h = p->base.net.n_units + j->op->head;
    flim_head_kernels head = p->head[j->op->head];
    head.cells = j->n;
    head.add = !j->first;
    head.dropout = j->s->train ? head.dropout : NULL;
    head.running_mean = statistic(j, h, FLIM_TENSOR_RUNNING_MEAN);
    head.running_var = statistic(j, h, FLIM_TENSOR_RUNNING_VAR);
    *out = head;
    if (j->n > 0) {
        FLIM_TRY_CUDA(flim_k_mean(&p->launch, in_of(j, FLIM_IN_X), j->n, head.pixels, j->su->k, (float *)head.mean));
    }
    if (j->s->train && p->ranks.sync) {
        flim_rank_sums sums;
        FLIM_TRY_CUDA(flim_k_sync_head_moments(&p->launch, &head, p->ranks.own));
        FLIM_TRY(flim_cuda_ranks_share(p, 1 + 2 * (int64_t)head.hidden, &sums, err));
        return flim_cuda_check(flim_k_head_forward_ranks(&p->launch, &head, &sums), "a head", err);
    }
    return flim_cuda_check(flim_k_head_forward(&p->launch, &head, j->s->train), "a head", err);
}

static flim_status run_pooled_backward(const job *j, const flim_head_kernels *head, flim_error *err)
{
    flim_cuda_program *p = j->p;
    if (!p->ranks.sync) {
        return flim_cuda_check(flim_k_head_backward(&p->launch, head, true), "a head", err);
    }
    flim_rank_sums sums;
    const int64_t count = 1 + 2 * (int64_t)head->hidden;
    if (j->n == 0) {
        return flim_cuda_ranks_share_none(p, count, &sums, err);
    }
    FLIM_TRY_CUDA(flim_k_sync_head_sums(&p->launch, head, p->ranks.own));
    FLIM_TRY(flim_cuda_ranks_share(p, count, &sums, err));
    return flim_cuda_check(flim_k_head_backward_ranks(&p->launch, head, &sums), "a head", err);
}

static flim_status run_pooled_head(const job *j, flim_error *err)
{
    flim_cuda_program *p = j->p;
    flim_head_kernels head;
    FLIM_TRY(run_pooled_forward(j, &head, err));
    if (j->s->train && j->n > 0) {
        FLIM_TRY_CUDA(flim_loss_is_over_batch(head.head.loss) ? flim_k_batch_loss(&p->launch, &head)
                                                              : flim_k_head_loss(&p->launch, &head));
    }
    return j->s->train ? run_pooled_backward(j, &head, err) : FLIM_OK;
}

/* The last head's operation adds what all of them left to the totals. */
static flim_status run_head(const job *j, flim_error *err)
{
    flim_cuda_program *p = j->p;
    const flim_network *net = &p->base.net;
    if (net->head[j->op->head].kind == FLIM_HEAD_DENSE) {
        FLIM_TRY(j->n > 0 ? run_dense_head(j, err) : FLIM_OK);
    } else {
        FLIM_TRY(run_pooled_head(j, err));
    }
    if (j->s->train && j->op->head == net->n_heads - 1) {
        const flim_loss_sums *sums = net->head[0].kind == FLIM_HEAD_DENSE ? &p->dense[0].sums : &p->head[0].sums;
        FLIM_TRY_CUDA(flim_k_account(&p->launch, p->state, sums->loss, sums->correct,
                                     sums->weight ? sums->weight : p->call.weight, j->n, p->dynamic));
    }
    return FLIM_OK;
}

/* ---- BatchNorm backward -------------------------------------------------------------------------------------------------- */

/* The dense head that reads unit u: there is one if the unit has a buffer for what it gives. */
static int dense_head_of(const flim_network *net, int u)
{
    int k = 0;
    while (net->head[k].unit != u || net->head[k].kind != FLIM_HEAD_DENSE) {
        k++;
    }
    return k;
}

static flim_grad_input grad_input_of(const job *j, int slot)
{
    const flim_schedule_unit *reader = owner_of(j, j->op->in[slot]);
    flim_grad_input source = {.kind = FLIM_GRAD_INPUT_DENSE, .data = in_of(j, slot), .scale_a = reader->dv_scale};
    if (j->s->label[j->op->in[slot]].kind == FLIM_BUFFER_HEAD_DY) {
        source.scale_a = j->p->dense[dense_head_of(j->s->net, j->op->unit)].dy_scale;
    }
    if (j->s->label[j->op->in[slot]].kind == FLIM_BUFFER_DX) {
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
static flim_grad_inputs grad_inputs_of(const job *j)
{
    flim_grad_inputs out = {.h = j->su->unit->out[1], .w = j->su->unit->out[2]};
    for (int k = 0; k < j->s->net->n_heads; k++) {
        if (j->s->net->head[k].unit == j->op->unit && j->s->net->head[k].kind == FLIM_HEAD_POOLED) {
            out.item[out.n++] = (flim_grad_input){.kind = FLIM_GRAD_INPUT_BROADCAST, .data = j->p->head[k].dmean};
        }
    }
    for (int slot = FLIM_IN_GRADIENT; slot < FLIM_OPERATION_INPUTS; slot++) {
        if (j->op->in[slot] != FLIM_NO_BUFFER) {
            out.item[out.n++] = grad_input_of(j, slot);
        }
    }
    return out;
}

static flim_grad_norm grad_norm_of(const job *j, int u)
{
    return (flim_grad_norm){.norm = j->s->unit[u].norm,
                            .out = j->s->unit[u].grad,
                            .dgamma = gradient(j, u, FLIM_TENSOR_BN_WEIGHT),
                            .dbeta = gradient(j, u, FLIM_TENSOR_BN_BIAS),
                            .dbias = gradient(j, u, FLIM_TENSOR_BIAS)};
}

/* The skip's BatchNorm is applied along with the unit's own. */
static bool has_fused_skip(const job *j)
{
    const int skip = j->su->unit->skip;
    return skip >= 0 && j->s->unit[skip].fusion == FLIM_FUSION_SKIP;
}

/* sync_batchnorm: the sums of this operation are needed over all ranks. */
static bool shares_grad_sums(const job *j)
{
    return j->p->ranks.sync && (j->su->norm.present || (has_fused_skip(j) && j->s->unit[j->su->unit->skip].norm.present));
}

static int64_t grad_sums_of(const job *j)
{
    return 1 + (has_fused_skip(j) ? 4 : 3) * (int64_t)j->su->k;
}

static flim_status run_grad_sums(const job *j, flim_error *err)
{
    flim_cuda_program *p = j->p;
    const flim_unit *unit = j->su->unit;
    const flim_epilogue epilogue = epilogue_of(j);
    const bool fused = epilogue.skip == FLIM_SKIP_NORMALISED;
    const flim_grad_inputs dy = grad_inputs_of(j);
    const flim_blocks blocks = flim_blocks_for(j->n, flim_volume(unit->out), j->su->k, p->launch.processors);
    const flim_grad_norm main = grad_norm_of(j, j->op->unit),
                         skip = fused ? grad_norm_of(j, unit->skip) : (flim_grad_norm){0};
    FLIM_TRY_CUDA(flim_k_grad_sums(&p->launch, &epilogue, &dy, blocks, p->partial, out_of(j, FLIM_OUT)));
    if (shares_grad_sums(j)) {
        flim_rank_sums sums;
        FLIM_TRY_CUDA(flim_k_sync_grad_sums(&p->launch, p->partial, blocks, j->su->k, fused ? 4 : 3,
                                            j->n * flim_volume(unit->conv_out), p->ranks.own));
        FLIM_TRY(share(j, false, grad_sums_of(j), &sums, err));
        return flim_cuda_check(flim_k_grad_norm_ranks(&p->launch, &sums, &main, fused ? &skip : NULL, j->su->dv_scale,
                                                      p->scaled, !j->first, &p->state->loss_scale),
                               "BatchNorm backward", err);
    }
    FLIM_TRY_CUDA(flim_k_grad_norm(&p->launch, p->partial, blocks, j->n * flim_volume(unit->conv_out), &main,
                                   fused ? &skip : NULL, j->su->dv_scale, p->scaled, true, !j->first, &p->state->loss_scale,
                                   j->su->sums, j->su->counter));
    return FLIM_OK;
}

static flim_status run_grad_apply(const job *j, flim_error *err)
{
    flim_epilogue epilogue = epilogue_of(j);
    const flim_schedule_unit *skip = owner_of(j, j->op->out[FLIM_OUT_SKIP_DZ]);
    const flim_grad_inputs dy = grad_inputs_of(j);
    epilogue.act = epilogue.act && j->su->gradient_from < 0; /* else the gradient came through it already */
    return flim_cuda_check(flim_k_grad_apply(&j->p->launch, &epilogue, &dy, &j->su->grad, skip ? &skip->grad : NULL,
                                             j->su->dv_scale, out_of(j, FLIM_OUT), out_of(j, FLIM_OUT_SKIP_DZ),
                                             out_of(j, FLIM_OUT_DV)),
                           "BatchNorm backward", err);
}

/* ---- convolutions backward ----------------------------------------------------------------------------------------------- */

static flim_status run_weight(const job *j, flim_error *err)
{
    const flim_schedule_unit *su = j->su;
    void *x = in_of(j, FLIM_IN_X), *dz = in_of(j, FLIM_IN_GRADIENT);
    flim_conv_arguments a = begin_conv(j);
    a.x = su->unit->transposed ? dz : x;
    a.y = su->unit->transposed ? x : dz;
    a.w = su->dw;
    a.master = gradient(j, j->op->unit, FLIM_TENSOR_CONV_WEIGHT);
    a.prologue = prologue_of(j);
    a.unscale = su->grad.unscale;
    a.accumulate = !j->first;
    return run_choice(j, &a, err);
}

/* dx; with z of the input unit the gradient before that unit's activation, and the sums of its BatchNorm. */
static flim_status run_data(const job *j, flim_error *err)
{
    flim_cuda_program *p = j->p;
    const flim_schedule_unit *su = j->su, *from = owner_of(j, j->op->in[FLIM_IN_Z]);
    const bool transposed = su->unit->transposed;
    flim_conv_arguments a = begin_conv(j);
    a.x = transposed ? in_of(j, FLIM_IN_GRADIENT) : out_of(j, FLIM_OUT);
    a.y = transposed ? out_of(j, FLIM_OUT) : in_of(j, FLIM_IN_GRADIENT);
    a.w = weights_of(j, !transposed);
    a.master = parameter(j, j->op->unit, FLIM_TENSOR_CONV_WEIGHT);
    a.weight_scale = su->norm.weight_scale;
    if (!from) {
        return run_choice(j, &a, err);
    }
    a.sums = from->sums;
    a.epilogue = (flim_conv_epilogue){.z = in_of(j, FLIM_IN_Z),
                                      .scale = from->norm.affine.scale,
                                      .shift = from->norm.affine.shift,
                                      .mean = from->norm.mean,
                                      .add = in_of(j, FLIM_IN_GRADIENT + 1)};
    if (a.epilogue.add && p->launch.type == FLIM_STORAGE_FP16) { /* its weights have a scale in every case, dz in tf32 */
        a.epilogue.add_scale = su->add_scale;
        FLIM_TRY_CUDA(flim_k_ratio(&p->launch, su->grad.scale, su->norm.weight_scale,
                                   owner_of(j, j->op->in[FLIM_IN_GRADIENT + 1])->dv_scale, su->add_scale));
    }
    FLIM_TRY(run_choice(j, &a, err));
    const flim_grad_norm norm = grad_norm_of(j, su->unit->input);
    if (p->ranks.sync && norm.norm.present) {
        flim_rank_sums sums;
        FLIM_TRY_CUDA(flim_k_sync_grad_sums_of_du(&p->launch, from->sums, su->grad.scale, su->norm.weight_scale,
                                                  j->n * flim_volume(from->unit->conv_out), &norm.norm, p->ranks.own));
        FLIM_TRY(share(j, false, 1 + 2 * (int64_t)from->k, &sums, err));
        return flim_cuda_check(flim_k_grad_norm_ranks_of_du(&p->launch, &sums, su->grad.scale, su->norm.weight_scale, &norm,
                                                            p->scaled, !j->first, &p->state->loss_scale),
                               "BatchNorm backward", err);
    }
    FLIM_TRY_CUDA(flim_k_grad_norm_sums(&p->launch, from->sums, su->grad.scale, su->norm.weight_scale,
                                        j->n * flim_volume(from->unit->conv_out), &norm, p->scaled, !j->first,
                                        &p->state->loss_scale));
    return FLIM_OK;
}

/* ---- the stem ------------------------------------------------------------------------------------------------------------ */

/* What both directions need. */
static flim_conv_arguments begin_stem(const job *j)
{
    const int stem = j->su->partner, down = j->op->unit;
    char *input = in_of(j, FLIM_IN_X);
    flim_conv_arguments a = begin_conv(j);
    a.x = input;
    a.weight_scale = j->su->norm.weight_scale;
    a.stem = (flim_conv_stem){.mask = (const uint8_t *)input + j->s->mask_offset,
                              .weight = parameter(j, stem, FLIM_TENSOR_CONV_WEIGHT),
                              .weight_scale = j->s->unit[stem].norm.weight_scale,
                              .bias = parameter(j, stem, FLIM_TENSOR_BIAS),
                              .gamma = parameter(j, stem, FLIM_TENSOR_BN_WEIGHT),
                              .beta = parameter(j, stem, FLIM_TENSOR_BN_BIAS),
                              .eps = FLIM_BN_EPS,
                              .momentum = &j->p->call.step->momentum,
                              .running_mean = statistic(j, stem, FLIM_TENSOR_RUNNING_MEAN),
                              .running_var = statistic(j, stem, FLIM_TENSOR_RUNNING_VAR),
                              .state = j->su->stem_state,
                              .down_weight = parameter(j, down, FLIM_TENSOR_CONV_WEIGHT)};
    return a;
}

static flim_status run_stem_forward(const job *j, flim_error *err)
{
    flim_conv_arguments a = begin_stem(j);
    a.y = out_of(j, FLIM_OUT);
    a.master = parameter(j, j->op->unit, FLIM_TENSOR_CONV_WEIGHT);
    a.bias = parameter(j, j->op->unit, FLIM_TENSOR_BIAS);
    a.sums = j->su->conv_sums;
    a.sums_about = j->su->norm.running_mean;
    return run_choice(j, &a, err);
}

static flim_status run_stem_backward(const job *j, flim_error *err)
{
    const int stem = j->su->partner;
    const flim_grad_affine *grad = &j->su->grad;
    flim_conv_arguments a = begin_stem(j);
    a.y = in_of(j, FLIM_IN_GRADIENT);
    a.master = gradient(j, j->op->unit, FLIM_TENSOR_CONV_WEIGHT);
    a.stem.dweight = gradient(j, stem, FLIM_TENSOR_CONV_WEIGHT);
    a.stem.dbias = gradient(j, stem, FLIM_TENSOR_BIAS);
    a.stem.dgamma = gradient(j, stem, FLIM_TENSOR_BN_WEIGHT);
    a.stem.dbeta = gradient(j, stem, FLIM_TENSOR_BN_BIAS);
    a.dz_norm = (flim_conv_dz_norm){.z = in_of(j, FLIM_IN_Z),
                                    .a = grad->a,
                                    .b = grad->b,
                                    .d = grad->d,
                                    .du_scale = owner_of(j, j->op->in[FLIM_IN_GRADIENT])->grad.scale,
                                    .du_scale_b = owner_of(j, j->op->in[FLIM_IN_GRADIENT])->norm.weight_scale};
    a.unscale = grad->unscale;
    a.accumulate = !j->first;
    return run_choice(j, &a, err);
}

/* ---- passes -------------------------------------------------------------------------------------------------------------- */

flim_status flim_cuda_run_operation(flim_cuda_program *p, flim_schedule *s, const flim_operation *op, int64_t n, bool first,
                                    flim_error *err)
{
    static flim_status (*const runs[])(const job *j, flim_error *err) = {[FLIM_OP_CONV] = run_conv,
                                                                         [FLIM_OP_NORM] = run_norm,
                                                                         [FLIM_OP_EPILOGUE] = run_epilogue,
                                                                         [FLIM_OP_HEAD] = run_head,
                                                                         [FLIM_OP_GRAD_SUMS] = run_grad_sums,
                                                                         [FLIM_OP_GRAD_APPLY] = run_grad_apply,
                                                                         [FLIM_OP_WEIGHT] = run_weight,
                                                                         [FLIM_OP_DATA] = run_data,
                                                                         [FLIM_OP_STEM_FORWARD] = run_stem_forward,
                                                                         [FLIM_OP_STEM_BACKWARD] = run_stem_backward};
    const job j = {.p = p, .s = s, .op = op, .su = &s->unit[op->unit], .n = n, .first = first};
    return runs[op->kind](&j, err);
}

/* sync_batchnorm: what an operation does on a rank without cells, which takes part in what all share: its running statistics move
 * as those of the others. */
static flim_status run_without_cells(flim_cuda_program *p, flim_schedule *s, const flim_operation *op, flim_error *err)
{
    const job j = {.p = p, .s = s, .op = op, .su = &s->unit[op->unit], .n = 0};
    const flim_schedule_unit *from = op->kind == FLIM_OP_DATA ? owner_of(&j, op->in[FLIM_IN_Z]) : NULL;
    flim_rank_sums sums;
    switch (op->kind) {
    case FLIM_OP_NORM: return j.su->norm.present ? norm_ranks(&j, true, err) : FLIM_OK;
    case FLIM_OP_HEAD: return run_head(&j, err);
    case FLIM_OP_GRAD_SUMS: return shares_grad_sums(&j) ? share(&j, true, grad_sums_of(&j), &sums, err) : FLIM_OK;
    case FLIM_OP_DATA: return from && from->norm.present ? share(&j, true, 1 + 2 * (int64_t)from->k, &sums, err) : FLIM_OK;
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
            const job j = {.p = p, .s = s, .op = op, .su = &s->unit[op->unit], .n = n, .first = true};
            flim_head_kernels head;
            FLIM_TRY(run_pooled_forward(&j, &head, err));
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
