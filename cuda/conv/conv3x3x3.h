/* 3x3x3 convolution with padding 1, fused with the BatchNorm and activation around it: 8, 16 or 32 channels to as many, or 8 to
 * 16 and 16 to 32, then also with stride 2 in y and x.
 *
 * For: res1.  FORWARD: the previous unit's BatchNorm + activation are applied as x is loaded, so its activation need not be
 *      stored; the sums for the unit's own BatchNorm are gathered as z is stored.  DATA: the gradient passes the previous
 *      unit's activation, and the two sums that unit's BatchNorm needs in its backward pass are gathered as it is stored.
 * Owns: nothing; scratch only within the call.
 * Errors: the CUDA error of the launch; cudaErrorInvalidValue for problems that flim_conv3x3x3_supported refuses.
 */
#ifndef FLIM_CUDA_CONV3X3X3_H
#define FLIM_CUDA_CONV3X3X3_H

#include <cuda_runtime_api.h>

#include "cuda/conv/conv_arguments.h"
#include "flim/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* FORWARD (x PLAIN or NORM_ACT_ON_LOAD) or DATA (with or without epilogue) on the fp32 parameters, compute capability >= 8.0
 * (sm = 80, 89, 90 ...), n*T*H*W < 2^31, rows that fit shared memory. */
bool flim_conv3x3x3_supported(const flim_conv_problem *problem, int sm);
/* Ways to compute a problem; they sum in different orders. */
typedef enum flim_conv3x3x3_variant {
    FLIM_CONV3X3X3_USUAL, /* every problem that is supported has it */
    FLIM_CONV3X3X3_WIDE, /* 8 and 16 channels, more pixels a warp */
    FLIM_CONV3X3X3_WGMMA_FREE, /* as the next, whose warpgroups wait for one another's products */
    FLIM_CONV3X3X3_WGMMA, /* 16 and 32 channels, stride 1, by products of whole warpgroups: capability 9.0 */
    FLIM_CONV3X3X3_VARIANTS
} flim_conv3x3x3_variant;
extern const char *const flim_conv3x3x3_variant_names[FLIM_CONV3X3X3_VARIANTS];
/* A supported problem can be computed that way on the card. */
bool flim_conv3x3x3_has_variant(const flim_conv_problem *problem, flim_conv3x3x3_variant variant, const flim_card *card);
size_t flim_conv3x3x3_scratch_bytes(void);

/* FORWARD: y = conv(x) + bias, sums of y and y^2.  DATA: x = data gradient of y, through the epilogue, with its sums. */
cudaError_t flim_conv3x3x3_run(const flim_conv_problem *problem, const flim_conv_arguments *arguments,
                               flim_conv3x3x3_variant variant, const flim_card *card, cudaStream_t stream);

/* By wgmma on weights as stored: FORWARD from 64 channels to a multiple of 32, x PLAIN or NORM_ACT_ON_LOAD, with the sums for BatchNorm or
 * without, DATA the other way, as it is or with epilogue and sums, stride 1; compute capability 9.0, and a program that has code for it. */
bool flim_conv_wgmma_supported(const flim_conv_problem *problem, const flim_card *card);
/* Its blocks walk far enough to be faster than another kernel (and a pass over y for the sums). */
bool flim_conv_wgmma_walks_far(const flim_conv_problem *problem, const flim_card *card);
cudaError_t flim_conv_wgmma_run(const flim_conv_problem *problem, const flim_conv_arguments *arguments, bool turns,
                                const flim_card *card, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
