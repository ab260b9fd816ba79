/* Weight gradient of 3x3x3 convolutions by wgmma, on compute capability 9.0.
 *
 * For: what conv3x3x3_wgrad.h does, where C and K are multiples of 32.
 * Owns: nothing; scratch only within the call.
 * Errors: the CUDA error of the launch; cudaErrorInvalidValue for problems that flim_wgrad_tma_supported refuses.
 */
#ifndef FLIM_CUDA_CONV3X3X3_WGRAD_TMA_H
#define FLIM_CUDA_CONV3X3X3_WGRAD_TMA_H

#include <cuda_runtime_api.h>

#include "cuda/conv/conv_arguments.h"
#include "flim/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* WEIGHT of these shapes, 16-bit types; false where the program has no code for such cards. */
bool flim_wgrad_tma_supported(const flim_conv_problem *problem, const flim_card *card);
size_t flim_wgrad_tma_scratch_bytes(const flim_conv_problem *problem);

/* Writes the gradient to arguments->master, or adds it if `accumulate`. */
cudaError_t flim_wgrad_tma_run(const flim_conv_problem *problem, const flim_conv_arguments *arguments,
                                 const flim_card *card, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
