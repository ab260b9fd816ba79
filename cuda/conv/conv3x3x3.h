/* 3x3x3 convolution with 32 channels in and out, stride 1, padding 1: forward and data gradient, with what stands before and
 * after it.
 *
 * For: res1.  Forward: the previous unit's BatchNorm + activation are applied as x is loaded, so its activation need not be stored; the
 *      own BatchNorm's sums are gathered as z is stored.  Data gradient: the gradient passes the previous unit's activation, and the two
 *      sums that unit's BatchNorm needs in its backward pass are gathered as it is stored.
 * Owns: nothing; scratch only within the call.
 * Errors: the CUDA error of the launch; cudaErrorInvalidValue for shapes that flim_k3_supported refuses.
 */
#ifndef FLIM_CUDA_CONV_K3_H
#define FLIM_CUDA_CONV_K3_H

#include <cuda_runtime_api.h>

#include "cuda/conv/conv_types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct flim_k3_shape {
    flim_conv_type type;
    int64_t n; /* cells */
    int t, h, w;
} flim_k3_shape;

/* What follows the data gradient da (n,T,H,W,32), where the convolution's input was leaky_relu(u), u = z * scale + shift:
 *   du = (da + add) * leaky_relu'(u),   sums = (sum du, sum du (z - mean)) per channel, of du as stored. */
typedef struct flim_k3_epilogue {
    const void *z; /* (n,T,H,W,32) of the previous unit */
    const float *scale, *shift; /* (32), its folded BatchNorm */
    const float *mean; /* (32), what z is centred by */
    const void *add; /* (n,T,H,W,32) another gradient of the same activation (a skip's), or NULL */
    const float *add_scale; /* one float, device: what `add` is multiplied by; NULL = 1 */
} flim_k3_epilogue;

/* True where the kernels run: compute capability >= 8.0 (sm = 80, 89, 90 ...), n*T*H*W < 2^31, rows that fit shared memory. */
bool flim_k3_supported(const flim_k3_shape *shape, int sm);
size_t flim_k3_scratch_bytes(void);

/* z (n,T,H,W,32) = conv(x) + bias.  x: (n,T,H,W,32), or the previous unit's z where `prologue` is not NULL.  weight fp32
 * (32,32,3,3,3), bias fp32 (32).  sums: double (2,32) or NULL: sum and sum of squares per channel of z as stored. */
cudaError_t flim_k3_forward(const flim_k3_shape *shape, const void *x, const flim_conv_prologue *prologue,
                            const float *weight, const float *bias, void *z, double *sums, void *scratch,
                            cudaStream_t stream);

/* dx (n,T,H,W,32) = data gradient of dz, through `epilogue` where it is not NULL (then sums, double (2,32), may be wanted). */
cudaError_t flim_k3_backward_data(const flim_k3_shape *shape, const void *dz, const float *weight,
                                  const flim_k3_epilogue *epilogue, void *dx, double *sums, void *scratch,
                                  cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
