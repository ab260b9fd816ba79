/* Convolutions by direct summation in double, with all that may be fused: what an algorithm's output is checked against.
 *
 * For: conv_trial.c.  Owns: nothing.  Errors: the CUDA error of the launch.
 * Inputs, weights and activations are rounded to the storage type where the algorithms round them.
 */
#ifndef FLIM_CUDA_CONV_DIRECT_H
#define FLIM_CUDA_CONV_DIRECT_H

#include "cuda/conv/conv_stem.h"
#include "cuda/kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    FLIM_STEM_WINDOW = 14, /* channels times taps of the stem */
    FLIM_CONV_MOST_GROUPS = 5,
    /* doubles of `out` that flim_stem_direct leaves to samples and sums, and those of its own behind them */
    FLIM_STEM_NORM_AT = 2 * (FLIM_STEM_WINDOW + 3) * FLIM_STEM_MOST_CHANNELS,
    FLIM_STEM_NORM = 6 * FLIM_STEM_MOST_CHANNELS
};

/* Tensors that are compared: so many samples of each, one after the other. */
typedef struct flim_conv_groups {
    int n;
    int64_t size[FLIM_CONV_MOST_GROUPS];
} flim_conv_groups;

/* groups->size[0] outputs of the problem over arguments->n cells, spread over the output tensor -> out[0..], and the same
 * elements of the tensor under test behind them.  fp32_gradient: the weight gradient under test is arguments->master, else
 * arguments->w. */
cudaError_t flim_conv_direct(const flim_launch *l, const flim_conv_problem *problem, const flim_conv_arguments *arguments,
                             bool fp32_gradient, const flim_conv_groups *groups, double *out);
/* The sums over the output as stored -> out (3,2,channels): sums, the same of absolute values, and arguments->sums. */
cudaError_t flim_conv_direct_sums(const flim_launch *l, const flim_conv_problem *problem,
                                  const flim_conv_arguments *arguments, double *out);
/* As flim_conv_direct, for problems with `stem`.  FORWARD: groups->size[0] outputs.  WEIGHT: as many of the weight gradient,
 * and sets the groups of the stem's gradients: weight, bias, gamma, beta; of the stem alone those only. */
cudaError_t flim_stem_direct(const flim_launch *l, const flim_conv_problem *problem, const flim_conv_arguments *arguments,
                             flim_conv_groups *groups, double *out);

#ifdef __cplusplus
}
#endif
#endif
