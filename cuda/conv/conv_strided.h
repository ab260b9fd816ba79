/* Data gradient of 3x3x3 convolutions with stride 2 in y and x, from 64 channels, by wgmma on compute capability 9.0.
 *
 * For: the first convolution of a block that halves the image.  The gradient passes the activation of the unit before it, whose side was
 *      noted in bits, after that of the block's skip is added, and the two sums that this unit's BatchNorm needs are gathered.
 * Owns: nothing; scratch only within the call.
 * Errors: the CUDA error of the launch; cudaErrorInvalidValue for problems that flim_conv_strided_supported refuses.
 */
#ifndef FLIM_CUDA_CONV_STRIDED_H
#define FLIM_CUDA_CONV_STRIDED_H

#include <cuda_runtime_api.h>

#include "cuda/conv/conv_arguments.h"
#include "flim/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* DATA of these shapes on weights as stored: y of 64 channels, x of a multiple of 32, 16-bit types, rows of y of at most 86; as it is, or
 * with epilogue by sign mask, sums, and a compact gradient to add or none.  False where the program has no code for such cards. */
bool flim_conv_strided_supported(const flim_conv_problem *problem, const flim_card *card);
/* Its blocks walk far enough to be faster than another kernel, where there is one. */
bool flim_conv_strided_walks_far(const flim_conv_problem *problem, const flim_card *card);
size_t flim_conv_strided_scratch_bytes(const flim_conv_problem *problem);

/* Writes arguments->x, and arguments->sums. */
cudaError_t flim_conv_strided_run(const flim_conv_problem *problem, const flim_conv_arguments *arguments,
                                  const flim_card *card, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
