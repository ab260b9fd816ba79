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

#ifdef __cplusplus
}
#endif

#endif
