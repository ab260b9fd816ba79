/* A training step that several ranks share: what goes between their cards, by NCCL.
 *
 * For: launch.c, which runs a step, and program_ops.c.  A call of each rank is what as many calls of one program would be
 *      (flim_program_train).  The moves of the running statistics are gathered when the forward pass has ended, gradients are
 *      summed in a few buckets while the backward pass goes on, in the order in which it finishes them.
 * Order: all ranks enqueue the same calls of NCCL in the same order: moves, (the statistics of a batch of one cell), buckets.
 *      With `deterministic` gradients are gathered and summed in the order of the ranks, else as NCCL likes to.
 * Errors: FLIM_ERROR_DEVICE.
 */
#ifndef FLIM_CUDA_RANKS_H
#define FLIM_CUDA_RANKS_H

#include "cuda/kernels/ranks.h"
#include "cuda/program/cuda_program.h"

/* sync_batchnorm: each BatchNorm's sums are gathered in doubles between the kernel that makes them and the one that uses them, on
 * the compute stream's way (flim_cuda_ranks_share), 2 per BatchNorm and step; no moves.  All ranks must have the same schedule.
 *
 * Before the layout, whether the program has ranks; once its training schedule stands, the buckets. */
void flim_cuda_ranks_init(flim_cuda_program *p);
void flim_cuda_ranks_plan(flim_cuda_program *p);
/* Joins the cards; all ranks together, with their programs' memory there.  status: how that went, of this rank. */
flim_status flim_cuda_ranks_join(flim_cuda_program *p, flim_status status, flim_error *err);
void flim_cuda_ranks_leave(flim_cuda_program *p);

/* A training step of n cells (0: none, and its operations are not run): before it, after operation number i of the schedule,
 * before its update. */
flim_status flim_cuda_ranks_begin(flim_cuda_program *p, int64_t n, bool first, flim_error *err);
flim_status flim_cuda_ranks_after(flim_cuda_program *p, int i, bool first, bool last, flim_error *err);
flim_status flim_cuda_ranks_end(flim_cuda_program *p, flim_error *err);

/* Gathers the `count` doubles of every rank's `own`; *out: those of all, for what is enqueued after it. */
flim_status flim_cuda_ranks_share(flim_cuda_program *p, int64_t count, flim_rank_sums *out, flim_error *err);
/* The same of a rank without cells, which has zeros. */
flim_status flim_cuda_ranks_share_none(flim_cuda_program *p, int64_t count, flim_rank_sums *out, flim_error *err);

#endif
