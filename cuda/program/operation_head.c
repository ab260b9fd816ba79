/* Heads: forward, loss and backward are one operation. */
#include "cuda/device/check.h"
#include "cuda/program/operation.h"
#include "cuda/program/ranks.h"

/* Totals of the hidden voxels; in training the loss and its share of dy, too. */
static flim_status run_hidden(const flim_task *t, flim_error *err)
{
    flim_cuda_program *p = t->p;
    flim_hidden_kernels hidden = p->hidden[t->op->head];
    hidden.cells = t->n;
    hidden.y = flim_task_in(t, FLIM_IN_X);
    hidden.voxel = flim_task_in(t, FLIM_IN_TARGET);
    hidden.dy = flim_task_out(t, FLIM_OUT);
    return flim_cuda_check(flim_k_hidden_loss(&p->launch, &hidden), "a loss over hidden voxels", err);
}

static flim_status run_dense_head(const flim_task *t, flim_error *err)
{
    flim_cuda_program *p = t->p;
    if (flim_loss_is_hidden(p->base.net.head[t->op->head].loss)) {
        FLIM_TRY(run_hidden(t, err));
        if (t->s->train) {
            return FLIM_OK;
        }
    }
    flim_dense_kernels dense = p->dense[t->op->head];
    if (!t->s->train) {
        return flim_cuda_check(
            flim_k_to_planar(&p->launch, flim_task_in(t, FLIM_IN_X), t->n, 1, dense.c, dense.voxels, dense.prediction),
            "a dense head", err);
    }
    dense.cells = t->n;
    dense.y = flim_task_in(t, FLIM_IN_X);
    dense.input = flim_task_in(t, FLIM_IN_TARGET);
    dense.dy = flim_task_out(t, FLIM_OUT);
    return flim_cuda_check(flim_k_dense_loss(&p->launch, &dense), "a dense head", err);
}

flim_status flim_run_pooled_forward(const flim_task *t, flim_head_kernels *out, flim_error *err)
{
    flim_cuda_program *p = t->p;
    const int h = p->base.net.n_units + t->op->head;
    flim_head_kernels head = p->head[t->op->head];
    head.cells = t->n;
    head.add = !t->first;
    head.dropout = t->s->train ? head.dropout : NULL;
    head.running_mean = flim_task_statistic(t, h, FLIM_TENSOR_RUNNING_MEAN);
    head.running_var = flim_task_statistic(t, h, FLIM_TENSOR_RUNNING_VAR);
    *out = head;
    if (t->n > 0) {
        FLIM_TRY_CUDA(flim_k_mean(&p->launch, flim_task_in(t, FLIM_IN_X), t->n, head.pixels, t->su->k, (float *)head.mean));
    }
    if (t->s->train && p->ranks.sync) {
        flim_rank_sums sums;
        FLIM_TRY_CUDA(flim_k_sync_head_moments(&p->launch, &head, p->ranks.own));
        FLIM_TRY(flim_cuda_ranks_share(p, 1 + 2 * (int64_t)head.hidden, &sums, err));
        return flim_cuda_check(flim_k_head_forward_ranks(&p->launch, &head, &sums), "a head", err);
    }
    return flim_cuda_check(flim_k_head_forward(&p->launch, &head, t->s->train), "a head", err);
}

static flim_status run_pooled_backward(const flim_task *t, const flim_head_kernels *head, flim_error *err)
{
    flim_cuda_program *p = t->p;
    if (!p->ranks.sync) {
        return flim_cuda_check(flim_k_head_backward(&p->launch, head, true), "a head", err);
    }
    flim_rank_sums sums;
    const int64_t count = 1 + 2 * (int64_t)head->hidden;
    if (t->n == 0) {
        return flim_cuda_ranks_share_none(p, count, &sums, err);
    }
    FLIM_TRY_CUDA(flim_k_sync_head_sums(&p->launch, head, p->ranks.own));
    FLIM_TRY(flim_cuda_ranks_share(p, count, &sums, err));
    return flim_cuda_check(flim_k_head_backward_ranks(&p->launch, head, &sums), "a head", err);
}

static flim_status run_pooled_head(const flim_task *t, flim_error *err)
{
    flim_cuda_program *p = t->p;
    flim_head_kernels head;
    FLIM_TRY(flim_run_pooled_forward(t, &head, err));
    if (t->s->train && t->n > 0) {
        FLIM_TRY_CUDA(flim_loss_is_over_batch(head.head.loss) ? flim_k_batch_loss(&p->launch, &head)
                                                              : flim_k_head_loss(&p->launch, &head));
    }
    return t->s->train ? run_pooled_backward(t, &head, err) : FLIM_OK;
}

/* The last head's operation adds what all of them left to the totals. */
flim_status flim_run_head(const flim_task *t, flim_error *err)
{
    flim_cuda_program *p = t->p;
    const flim_network *net = &p->base.net;
    if (net->head[t->op->head].kind == FLIM_HEAD_DENSE) {
        FLIM_TRY(t->n > 0 ? run_dense_head(t, err) : FLIM_OK);
    } else {
        FLIM_TRY(run_pooled_head(t, err));
    }
    if (t->s->train && t->op->head == net->n_heads - 1) {
        const flim_loss_sums *sums = net->head[0].kind == FLIM_HEAD_DENSE ? &p->dense[0].sums : &p->head[0].sums;
        FLIM_TRY_CUDA(flim_k_account(&p->launch, p->state, sums->loss, sums->correct,
                                     sums->weight ? sums->weight : p->call.weight, t->n, p->dynamic));
    }
    return FLIM_OK;
}
