/* 1x1x1 convolution without padding, its rows of channels times a matrix: forward with stride 1 or 2 in y and x, data gradient
 * with stride 1, weight gradient of the forward ones.
 *
 * For: the skips of blocks that widen, whose time is their bytes: x is read where it lies, every second row and column of it.
 * Owns: nothing; scratch only within the call.
 * Errors: the CUDA error of the launch; cudaErrorInvalidValue for problems that the _supported functions refuse.
 */
#ifndef FLIM_CUDA_CONV1X1X1_H
#define FLIM_CUDA_CONV1X1X1_H

#include <cuda_runtime_api.h>

#include "cuda/conv/conv_arguments.h"
#include "flim/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* FORWARD, with the sums for BatchNorm or without, and DATA, on weights as stored; 16-bit types, 8, 16, 32, 64, 128 or 256 channels on either side, compute
 * capability >= 8.0. */
bool flim_conv1x1x1_supported(const flim_conv_problem *problem, const flim_card *card);
/* It gathers the sums in less time than another kernel and a pass over y. */
bool flim_conv1x1x1_gathers(const flim_conv_problem *problem, const flim_card *card);
size_t flim_conv1x1x1_scratch_bytes(const flim_conv_problem *problem);
cudaError_t flim_conv1x1x1_run(const flim_conv_problem *problem, const flim_conv_arguments *arguments, const flim_card *card,
                               cudaStream_t stream);

/* WEIGHT, x PLAIN or NORM_ACT_ON_LOAD; types, channels and cards as above. */
bool flim_wgrad1x1x1_supported(const flim_conv_problem *problem, const flim_card *card);
size_t flim_wgrad1x1x1_scratch_bytes(const flim_conv_problem *problem);
/* arguments->master = the weight gradient (out_channels,in_channels,1,1,1). */
cudaError_t flim_wgrad1x1x1_run(const flim_conv_problem *problem, const flim_conv_arguments *arguments, const flim_card *card,
                                cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
