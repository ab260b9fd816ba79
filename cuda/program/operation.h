/* One operation of a schedule as it is run: its operands resolved to pointers, and what enqueues it.
 *
 * For: launch.c, which has an entry per kind, and the files that have these: operation_forward.c, operation_head.c,
 *      operation_backward.c, operation_stem.c.
 * Owns: nothing.
 * Errors: FLIM_ERROR_DEVICE with the unit and CUDA's or cuDNN's reason.
 */
#ifndef FLIM_CUDA_OPERATION_H
#define FLIM_CUDA_OPERATION_H

#include "cuda/program/cuda_program.h"

typedef struct flim_task {
    flim_cuda_program *p;
    flim_schedule *s;
    const flim_operation *op;
    const flim_schedule_unit *su; /* the operation's */
    int64_t n; /* cells */
    bool first; /* of its accumulation: gradients are assigned, else added to */
} flim_task;

/* ---- operands */

static inline void *flim_task_in(const flim_task *t, int slot)
{
    return flim_schedule_at(t->s, t->p->arena, t->op->in[slot]);
}

static inline void *flim_task_out(const flim_task *t, int slot)
{
    return flim_schedule_at(t->s, t->p->arena, t->op->out[slot]);
}

static inline void *flim_task_scratch(const flim_task *t)
{
    return flim_schedule_at(t->s, t->p->arena, t->op->scratch);
}

/* The unit whose tensor an operand is; NULL for none. */
static inline const flim_schedule_unit *flim_task_owner(const flim_task *t, int buffer)
{
    const int unit = buffer == FLIM_NO_BUFFER ? -1 : t->s->label[buffer].unit;
    return unit < 0 ? NULL : &t->s->unit[unit];
}

static inline float *flim_task_parameter(const flim_task *t, int u, flim_tensor_role role)
{
    return flim_cuda_tensor(t->p, t->p->parameters, u, role, 0);
}

static inline float *flim_task_gradient(const flim_task *t, int u, flim_tensor_role role)
{
    return flim_cuda_tensor(t->p, t->p->gradients, u, role, 0);
}

/* Running statistics: those of the update under way, or those that hold. */
static inline float *flim_task_statistic(const flim_task *t, int u, flim_tensor_role role)
{
    return flim_cuda_tensor(t->p, t->s->train ? t->p->pending : t->p->statistics, u, role, 0);
}

/* ---- operation_forward.c */

/* What the arguments of every convolution have. */
flim_conv_arguments flim_task_conv(const flim_task *task);
/* Enqueues the operation's convolution. */
flim_status flim_task_run_conv(const flim_task *task, const flim_conv_arguments *arguments, flim_error *err);
/* What a convolution applies to x as it loads it. */
flim_conv_prologue flim_task_prologue(const flim_task *task);
/* The stored weights, flipped if the operation is a data gradient that takes them so. */
void *flim_task_weights(const flim_task *task, bool data_gradient);
/* What follows the unit's convolution: its z, and what the operation reads beside it. */
flim_epilogue flim_task_epilogue(const flim_task *task);
/* sync_batchnorm: what `own` has of this rank, or zeros, with what the others have. */
flim_status flim_task_share(const flim_task *task, bool none, int64_t count, flim_rank_sums *out, flim_error *err);
/* Statistics of all ranks' cells; none: this one has none. */
flim_status flim_task_share_norm(const flim_task *task, bool none, flim_error *err);
flim_status flim_run_conv(const flim_task *task, flim_error *err);
flim_status flim_run_norm(const flim_task *task, flim_error *err);
flim_status flim_run_epilogue(const flim_task *task, flim_error *err);

/* ---- operation_head.c */

flim_status flim_run_head(const flim_task *task, flim_error *err);
/* The mean of y and a pooled head's forward pass; *head gets what it worked on. */
flim_status flim_run_pooled_forward(const flim_task *task, flim_head_kernels *head, flim_error *err);

/* ---- operation_backward.c */

/* sync_batchnorm: whether the sums of this operation are needed over all ranks, and how many they are. */
bool flim_task_shares_grad_sums(const flim_task *task);
int64_t flim_task_grad_sums(const flim_task *task);
flim_status flim_run_grad_sums(const flim_task *task, flim_error *err);
flim_status flim_run_grad_apply(const flim_task *task, flim_error *err);
flim_status flim_run_weight(const flim_task *task, flim_error *err);
flim_status flim_run_data(const flim_task *task, flim_error *err);

/* ---- operation_stem.c */

flim_status flim_run_stem_forward(const flim_task *task, flim_error *err);
flim_status flim_run_stem_backward(const flim_task *task, flim_error *err);

#endif
