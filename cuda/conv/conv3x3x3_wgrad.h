/* Weight gradient of 3x3x3 convolutions with few channels.
 *
 * For: conv [3,3,3 / 1,s,s / 1,1,1], s = 1 or 2, C and K multiples of 8: dW = sum over positions of dz (x) x, summed in fp32
 *      registers, equal bits on equal runs.  Optionally x is the previous unit's z with its BatchNorm and activation applied
 *      on load.
 * Owns: nothing; scratch only within the call.
 * Errors: the CUDA error of the launch; cudaErrorInvalidValue for shapes that flim_wgrad_supported refuses.
 */
#ifndef FLIM_CUDA_CONV_WGRAD_H
#define FLIM_CUDA_CONV_WGRAD_H

#include <cuda_runtime_api.h>

#include "cuda/conv/conv_types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct flim_wgrad_shape {
    flim_conv_type type;
    int64_t n; /* cells */
    int c, k; /* channels of x, of z */
    int t, h, w; /* of x; z is (T, ceil(H/s), ceil(W/s)) */
    int stride; /* s in y and x: 1 or 2 */
    int dw_c, dw_k; /* channels that dw has, 1..c and 1..k: x and z may be stored with more, whose gradient nobody wants */
} flim_wgrad_shape;

/* True where the kernel runs: C % 8 == 0, K % 8 == 0, stride 1 or 2, compute capability >= 8.0 (sm = 80, 89, 90 ...). */
bool flim_wgrad_supported(const flim_wgrad_shape *shape, int sm);
size_t flim_wgrad_scratch_bytes(const flim_wgrad_shape *shape);

/* x: (n,T,H,W,C), or the previous unit's z of that shape where `prologue` is not NULL.  dz: (n,T,Ho,Wo,K).
 * dw: fp32 (dw_k,dw_c,3,3,3), PyTorch's layout: = sum * *unscale (device float, NULL = 1), or added to where `accumulate`. */
cudaError_t flim_wgrad(const flim_wgrad_shape *shape, const void *x, const flim_conv_prologue *prologue, const void *dz,
                       float *dw, const float *unscale, bool accumulate, void *scratch, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
