/* The network's stem (conv 2->C [7,1,1], BN, leaky ReLU) by kernels that never store its convolution's output, in two forms, which problems
 * with `stem` describe; x is the network's input in both:
 *   - with what reads it: stem and down's convolution (C->C [3,1,1], stride 2 in t), C = 8, 16, 32 or 64.  The problem's shapes are down's,
 *     and the stem's output is not stored either;
 *   - alone, of more channels: the problem's shapes are the stem's, y is its output.
 *
 * For: never storing the stem's output (28 % of all convolution outputs), or storing it once rather than before and after BatchNorm.
 *      FORWARD with sums takes batch statistics over the input, FORWARD without sums (prediction) the running ones; WEIGHT writes the
 *      gradients of all parameters.  The algebra stands at the top of conv_stem_statistics.cu and conv_stem_gradient.cu.
 * Owns: nothing.  `stem.state` must stay untouched from FORWARD to WEIGHT; scratch only within a call, so that all calls may
 *       share it
 *      with everything else on the stream.
 * Errors: the CUDA error of the launch; cudaErrorInvalidValue for problems that flim_stem_supported refuses.
 */
#ifndef FLIM_CUDA_CONV_STEM_H
#define FLIM_CUDA_CONV_STEM_H

#include <cuda_runtime_api.h>

#include "cuda/conv/conv_arguments.h"
#include "flim/device.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { FLIM_STEM_MOST_CHANNELS = 512 };

/* The problem with `stem` is of the stem alone. */
static inline bool flim_stem_is_alone(const flim_conv_problem *problem)
{
    return problem->stem && problem->kernel[0] == 7;
}

/* FORWARD and WEIGHT of down's shape with 8, 16, 32 or 64 channels (dz PLAIN or NORM_ON_LOAD), or of the stem's with a multiple of 8 from
 * 72 to FLIM_STEM_MOST_CHANNELS (dz PLAIN); T >= 6, 16-bit types, compute capability >= 8.0 (sm = 80, 86, 89, 90 ...). */
bool flim_stem_supported(const flim_conv_problem *problem, int sm);

size_t flim_stem_state_bytes(void);
/* Enough for FORWARD and WEIGHT of these sizes; grows with n. */
size_t flim_stem_scratch_bytes(const flim_conv_problem *problem);

/* FORWARD: statistics -> stem.state, then y = down's convolution of the stem's activation, with bias (down's), and sums of y
 * and y^2; alone y = the stem's activation, and no sums: nothing normalises it.  WEIGHT: the gradients of the stem's parameters, and of
 * down's weights in `master`, which alone takes the gradient of the stem's.  A bias before a BatchNorm has gradient 0 exactly (BN removes
 * constants); the stem's is written as such, down's is the caller's. */
cudaError_t flim_stem_run(const flim_conv_problem *problem, const flim_conv_arguments *arguments, const flim_card *card,
                          cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
