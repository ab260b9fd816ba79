/* Weight gradient of 3x3x3 convolutions with few channels.
 *
 * For: conv [3,3,3 / 1,s,s / 1,1,1], s = 1 or 2, C and K multiples of 8: dW = sum over positions of dz (x) x, summed in fp32
 *      registers, equal bits on equal runs.  x may be the previous unit's z, to which BatchNorm and activation are applied on
 *      load.
 * Owns: nothing; scratch only within the call.
 * Errors: the CUDA error of the launch; cudaErrorInvalidValue for problems that flim_wgrad3x3x3_supported refuses.
 */
#ifndef FLIM_CUDA_CONV3X3X3_WGRAD_H
#define FLIM_CUDA_CONV3X3X3_WGRAD_H

#include <cuda_runtime_api.h>

#include "cuda/conv/conv_arguments.h"
#include "flim/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* WEIGHT of the shapes above, 16-bit types, compute capability >= 8.0 (sm = 80, 89, 90 ...). */
bool flim_wgrad3x3x3_supported(const flim_conv_problem *problem, int sm);
size_t flim_wgrad3x3x3_scratch_bytes(const flim_conv_problem *problem);

/* Writes the gradient of the real channels to arguments->master, or adds it if `accumulate`. */
cudaError_t flim_wgrad3x3x3_run(const flim_conv_problem *problem, const flim_conv_arguments *arguments, const flim_card *card,
                                cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
