/* Weight gradient of narrow 3x3x3 convolutions: 8 or 16 channels of x, as many or twice as many of y.
 *
 * For: the entries and blocks of presets tiny and small, whose channels do not fill the blocks of conv3x3x3_wgrad.h.
 * Owns: nothing; scratch only within the call.
 * Errors: the CUDA error of the launch; cudaErrorInvalidValue for problems that flim_narrow3x3x3_supported refuses.
 */
#ifndef FLIM_CUDA_CONV3X3X3_NARROW_H
#define FLIM_CUDA_CONV3X3X3_NARROW_H

#include <cuda_runtime_api.h>

#include "cuda/conv/conv_arguments.h"
#include "flim/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* WEIGHT, x PLAIN or NORM_ACT_ON_LOAD, stride 1 or 2 in y and x, padding 1, 16-bit types, compute capability >= 8.0. */
bool flim_narrow3x3x3_supported(const flim_conv_problem *problem, int sm);
size_t flim_narrow3x3x3_scratch_bytes(const flim_conv_problem *problem);

/* arguments->master = the weight gradient (out_channels,in_channels,3,3,3), as conv3x3x3_wgrad.h writes it. */
cudaError_t flim_narrow3x3x3_run(const flim_conv_problem *problem, const flim_conv_arguments *arguments,
                                 const flim_card *card, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
