/* The network's first two units in one piece: stem (conv 2->32 [7,1,1], BN, leaky ReLU) and down's convolution
 * (32->32 [3,1,1], stride 2 in t).
 *
 * For: never storing the stem's output (28 % of all convolution outputs).  Training calls, in this order,
 *      flim_stem_statistics, flim_stem_forward, [the rest of the network], flim_stem_backward; prediction calls
 *      flim_stem_running, flim_stem_forward.  The algebra stands at the top of conv_stem.cu.
 * Owns: nothing.  `state` must stay untouched from statistics/running to the backward pass; `scratch` only within a call, so
 *      all calls may share it with everything else on the stream.
 * Errors: the CUDA error of the launch; cudaErrorInvalidValue for impossible shapes.
 */
#ifndef FLIM_CUDA_CONV_STEM_H
#define FLIM_CUDA_CONV_STEM_H

#include <cuda_runtime_api.h>

#include "cuda/conv/conv_types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct flim_stem_shape {
    flim_conv_type type; /* of z_down and dz_down, and what inputs, weights and activations are rounded to for products */
    bool signal_is_float; /* signal holds floats; else `type` */
    int64_t n; /* cells */
    int t, h, w; /* of the input: T >= 6 */
} flim_stem_shape;

/* The input as the loader sends it; rounded to `type` on load. */
typedef struct flim_stem_input {
    const void *signal; /* (n,T,H,W) */
    const uint8_t *mask; /* (n,H,W), 0 or not */
} flim_stem_input;

/* fp32 parameters in PyTorch's layouts, device. */
typedef struct flim_stem_parameters {
    const float *weight; /* (32,2,7,1,1) */
    const float *bias; /* (32) */
    const float *gamma, *beta; /* (32), BatchNorm of the stem */
    const float *down_weight; /* (32,32,3,1,1) */
    const float *down_bias; /* (32) */
} flim_stem_parameters;

/* Gradients, fp32, PyTorch's layouts, device.  Any may be NULL (not wanted).  A bias before a BatchNorm has gradient 0 exactly
 * (BN removes constants); the stem's is written as such, down's is the caller's. */
typedef struct flim_stem_gradients {
    float *weight, *bias; /* (32,2,7,1,1), (32) */
    float *gamma, *beta; /* (32) */
    float *down_weight; /* (32,32,3,1,1) */
} flim_stem_gradients;

/* True where these kernels run: 32 channels, a card of compute capability 8.0 or later (sm = 80, 86, 89, 90 ...). */
bool flim_stem_supported(int channels, int sm);

size_t flim_stem_state_bytes(void);
/* Most scratch that any of the calls below needs for this shape; grows with n. */
size_t flim_stem_scratch_bytes(const flim_stem_shape *shape);

/* Batch statistics of the stem's convolution output over all n*T*H*W positions -> state.  running_mean/var (32): moved by
 * `momentum` (unbiased variance), or left alone where NULL. */
cudaError_t flim_stem_statistics(const flim_stem_shape *shape, const flim_stem_input *input,
                                 const flim_stem_parameters *parameters, float eps, float momentum, float *running_mean,
                                 float *running_var, void *state, void *scratch, cudaStream_t stream);

/* Prediction: the running statistics -> state. */
cudaError_t flim_stem_running(const flim_stem_shape *shape, const flim_stem_parameters *parameters, float eps,
                              const float *running_mean, const float *running_var, void *state, cudaStream_t stream);

/* z_down (n,ceil(T/2),H,W,32) = down's convolution of the stem's activation, with bias.  sums: double (2,32) or NULL: sum and
 * sum of squares per channel of z_down as stored (rounded), over all positions. */
cudaError_t flim_stem_forward(const flim_stem_shape *shape, const flim_stem_input *input,
                              const flim_stem_parameters *parameters, const void *state, void *z_down, double *sums,
                              void *scratch, cudaStream_t stream);

/* dz_down (n,ceil(T/2),H,W,32): gradient of z_down; with norm (may be NULL) the gradient of what down's BatchNorm makes of it, from
 * which dz follows on load and is never stored.  Writes the gradients times *unscale (a device float; NULL = 1), or adds them to
 * what is there where `accumulate`.  Only after flim_stem_statistics (not _running) of the same input. */
cudaError_t flim_stem_backward(const flim_stem_shape *shape, const flim_stem_input *input,
                               const flim_stem_parameters *parameters, const void *state, const void *dz_down,
                               const flim_conv_norm *norm, const flim_stem_gradients *gradients, const float *unscale,
                               bool accumulate, void *scratch, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
