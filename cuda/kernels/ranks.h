/* Kernels of ranks that train together, between the calls of NCCL (cuda/program/ranks.h).  Pointers, launches and errors are as
 * kernels.h has them. */
#ifndef FLIM_CUDA_KERNELS_RANKS_H
#define FLIM_CUDA_KERNELS_RANKS_H

#include "cuda/kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* moves (count + 1): zero, so that BatchNorm's kernels, which take them for running statistics, leave there what their batch
 * adds to these; the last says whether that counts. */
cudaError_t flim_k_begin_moves(const flim_launch *l, float *moves, int64_t count, bool counts);
/* running (count) moved by all (ranks, count + 1) in turn: (1 - *momentum) running + move, if it counts. */
cudaError_t flim_k_make_moves(const flim_launch *l, float *running, const float *all, int64_t count, int ranks,
                              const double *momentum);
/* A part of the parameter array. */
typedef struct flim_range {
    int64_t begin, end;
} flim_range;
/* flim_k_gather of the weights that lie in `range`. */
cudaError_t flim_k_gather_range(const flim_launch *l, const flim_weight_table *table, int n, int64_t elements,
                                flim_range range, const float *loss_scale, bool add, float *gradients);
/* sum (count) = all[0] + all[1] + ... of all (ranks, count), in that order. */
cudaError_t flim_k_sum_ranks(const flim_launch *l, float *sum, const float *all, int64_t count, int ranks);
/* *gradient becomes NaN if this rank had a loss that is not finite: no rank updates then. */
cudaError_t flim_k_tell_nonfinite(const flim_launch *l, const flim_device_state *state, float *gradient);

/* ---- BatchNorm over the batches of all ranks (batchnorm_forward.cu, batchnorm_backward.cu, head.cu) ----
 *
 * Kernels `sync` leave what this rank's cells give in own, doubles: how many values per channel there are, then planes of channels;
 * NCCL gathers those of all ranks, and kernels `ranks` do with them, in the ranks' order, what flim_k_norm_train, _grad_norm and
 * _head_* do with those of one batch.  c: storage channels. */
typedef struct flim_rank_sums {
    const double *all; /* (ranks, stride) */
    int64_t stride;
    int ranks, rank;
} flim_rank_sums;

/* own: 1 + 2 c: means and sums of squared deviations, from flim_k_stats or from a convolution's sums (flim_k_norm_train_sums). */
cudaError_t flim_k_sync_moments(const flim_launch *l, const float *partial, flim_blocks b, int c, double *own);
cudaError_t flim_k_sync_moments_sums(const flim_launch *l, const double *sums, int64_t count, const flim_norm *norm,
                                     double *own);
cudaError_t flim_k_norm_train_ranks(const flim_launch *l, const double *all, int64_t stride, int ranks,
                                    const flim_norm *norm);
/* own: 1 + planes c: the sums of flim_k_grad_sums; 1 + 2 c: sums of dv and dv z from those of a convolution. */
cudaError_t flim_k_sync_grad_sums(const flim_launch *l, const float *partial, flim_blocks b, int c, int planes, int64_t count,
                                  double *own);
cudaError_t flim_k_sync_grad_sums_of_du(const flim_launch *l, const flim_written_gradient *du, int64_t count,
                                        const flim_norm *norm, double *own);
/* The gradients of gamma, beta and bias are those of this rank's cells.  du: this rank's, count values per channel. */
cudaError_t flim_k_grad_norm_ranks(const flim_launch *l, const flim_rank_sums *sums, const flim_grad_norm *main,
                                   const flim_grad_norm *skip, float *dv_scale, bool scaled, bool add,
                                   const float *loss_scale);
cudaError_t flim_k_grad_norm_ranks_of_du(const flim_launch *l, const flim_rank_sums *sums, const flim_written_gradient *du,
                                         int64_t count, const flim_grad_norm *main, bool scaled, bool add,
                                         const float *loss_scale);
/* own: 1 + 2 hidden.  Forward with h->cells >= 0; backward with 1 at least, after flim_k_head_loss. */
cudaError_t flim_k_sync_head_moments(const flim_launch *l, const flim_head_kernels *h, double *own);
cudaError_t flim_k_head_forward_ranks(const flim_launch *l, const flim_head_kernels *h, const flim_rank_sums *sums);
cudaError_t flim_k_sync_head_sums(const flim_launch *l, const flim_head_kernels *h, double *own);
cudaError_t flim_k_head_backward_ranks(const flim_launch *l, const flim_head_kernels *h, const flim_rank_sums *sums);

#ifdef __cplusplus
}
#endif

#endif
