/* The operands of a convolution: one struct for every algorithm.
 *
 * All tensors are NDHWC, dense, 16-byte aligned, on the device.  The launch functions of this folder's kernels only enqueue
 * work on a stream (no allocation, no synchronisation, no host copy: they can be captured into a CUDA graph), return the
 * launch's error and give equal bits on equal runs: each block stores its partial sums, and a second kernel adds them in
 * fixed order.
 * Owns: nothing.  The caller owns all arrays and the scratch memory, whose size each algorithm reports.
 */
#ifndef FLIM_CUDA_CONV_ARGUMENTS_H
#define FLIM_CUDA_CONV_ARGUMENTS_H

#include <stdint.h>

#include "cuda/conv/conv_problem.h"

/* x_form NORM_ACT_ON_LOAD: x = round(leaky_relu(z * scale[c] + shift[c], 0.01)). */
typedef struct flim_conv_prologue {
    const float *scale, *shift; /* (c) */
} flim_conv_prologue;

/* What follows the data gradient da (n,in,c).  The convolution's input was leaky_relu(u), u = z * scale + shift.  Of problems with `sign_mask` it
 * was keep * leaky_relu(u + skip), and the bit says u + skip > 0; of others keep is 1.
 *   du = (da + add * *add_scale) * keep * leaky_relu',   sums = (sum du, sum du (z - mean)) per channel, of du as stored. */
typedef struct flim_conv_epilogue {
    const void *z; /* (n,in,c) of the previous unit */
    const float *scale, *shift; /* (c), its folded BatchNorm; NULL with `sign_mask` is allowed */
    const uint8_t *sign_mask; /* (n,in,c/8), a bit per channel, the lowest first */
    const float *keep; /* (n,c), read with `sign_mask`: 0 for a dropped channel, else one number for all */
    const float *mean; /* (c), what z is centred by */
    const void *add; /* (n,in,c) or (n,out,c), as the problem's `add` says: a skip's gradient of the same activation */
    const float *add_scale; /* one float, device; NULL = 1 */
} flim_conv_epilogue;

/* dz_form NORM_ON_LOAD: y holds du, the gradient of BatchNorm's output, and dz = round(a[k] * du / (*du_scale * *du_scale_b) + b[k] * z +
 * d[k]); with r = 1/std, N positions:  a = gamma r,  b = -gamma r^2 (sum du zhat) / N,  d = -a (sum du) / N - b mean. */
typedef struct flim_conv_dz_norm {
    const void *z; /* (n,out,k) */
    const float *a, *b, *d; /* (k) */
    const float *du_scale, *du_scale_b; /* one float each, a power of two: du is stored multiplied by both; NULL = 1 */
} flim_conv_dz_norm;

/* The stem, alone or in front of a convolution (problem.stem).  Parameters are fp32 in PyTorch's layouts. */
typedef struct flim_conv_stem {
    const uint8_t *mask; /* (n,H,W), 0 or not; x is the signal (n,T,H,W) */
    const float *weight, *bias; /* (C,2,7,1,1), (C) */
    const float *weight_scale; /* as that of flim_conv_arguments, of this weight */
    const float *gamma, *beta; /* (C), BatchNorm */
    float eps;
    const double *momentum; /* of the running statistics, on the device; NULL = 0.1 */
    float *running_mean, *running_var; /* (C); FORWARD with sums moves them, without sums it normalises by them */
    void *state; /* flim_stem_state_bytes(): FORWARD writes it, WEIGHT of the same input reads it */
    bool keeps_state; /* FORWARD once more: `state` is there, no statistics are taken or moved */
    const float *down_weight; /* (C,C,3,1,1), for WEIGHT, whose `master` is its gradient; not of the stem alone */
    float *dweight, *dbias, *dgamma,
        *dbeta; /* WEIGHT writes them, shaped as the parameters; NULL = not wanted; alone `master` is dweight */
} flim_conv_stem;

typedef struct flim_conv_arguments {
    int64_t n; /* cells, at most the problem's */
    void *x, *y; /* (n,in,c), (n,out,k); DATA writes x, FORWARD y */
    void *w; /* (k,kernel,c) in storage type: weights, or the weight gradient */
    float *master; /* fp32 (out_channels,in_channels,kernel): weights, or the weight gradient */
    const float *bias; /* (out_channels), with `master` */
    /* With `master` as weights (of a problem with `stem` also stem.down_weight): one float on the device, a power of two that
     * weights and bias are multiplied by before they are rounded, so y of FORWARD and x of DATA are so many times larger;
     * NULL = 1.  WEIGHT of the stem alone: y, a data gradient, is so many times larger. */
    const float *weight_scale;
    double *sums; /* (2,channels of the output); NULL = not wanted this time */
    const float *sums_about; /* (out_channels): FORWARD's sums are of y less *weight_scale times this; NULL = 0 */
    flim_conv_prologue prologue;
    flim_conv_epilogue epilogue;
    flim_conv_dz_norm dz_norm;
    flim_conv_stem stem;
    const float *unscale; /* fp32 weight gradient: times *unscale (device; NULL = 1), added to what is there if accumulate */
    bool accumulate;
    void *scratch; /* only within the call */
} flim_conv_arguments;

#endif
