/* Convolutions in fp32 without tensor cores: all three directions, any kernel up to 10 a side, NDHWC.
 *
 * For: flim_conv_problem with fp32 storage, where cuDNN has no quick engine for channels-last 3-D tensors.  An implicit
 *      matrix product of fused multiply-adds; equal bits on equal runs (the weight gradient's parts are added in fixed
 *      order).
 * Owns: nothing; the workspace counts only within the call.
 * Errors: the CUDA error of the launch; cudaErrorInvalidValue if flim_fp32_supported says no.
 *
 * Each way to tile a problem is a variant of the algorithm, numbered from 1, and the search times them.  Runs on compute
 * capability 7.5 and later.
 */
#ifndef FLIM_CUDA_CONV_FP32_H
#define FLIM_CUDA_CONV_FP32_H

#include <cuda_runtime_api.h>

#include "cuda/conv/conv_problem.h"
#include "flim/device.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { FLIM_FP32_TILES = 12 }; /* tiles are 1 .. FLIM_FP32_TILES; 0 stands for none */

/* fp32 storage, c and k multiples of 8, kernel sides up to 10, at most 8 positions a stride, tensors below 2^31 float4. */
bool flim_fp32_supported(const flim_conv_problem *problem);
/* The tiles that may be worth a try, best guess first; returns how many (0 if the problem is not supported). */
int flim_fp32_tiles(const flim_conv_problem *problem, const flim_card *card, int tile[FLIM_FP32_TILES]);
/* True if the tile is valid (not necessarily fast). */
bool flim_fp32_tile_fits(const flim_conv_problem *problem, int tile);
/* "128x64x16", or NULL for a tile that does not exist: rows x columns of outputs x values of their sums that are loaded at
 * once.  Rows are positions and columns channels; for the weight gradient output channels and (taps, input channels). */
const char *flim_fp32_tile_name(flim_conv_op op, int tile);
/* Bytes; 0 for all but the weight gradient, whose positions are shared out to the card's multiprocessors. */
int64_t flim_fp32_workspace(const flim_conv_problem *problem, int tile, const flim_card *card);

/* x, w, y (device) as in conv_problem.h, of which the first n <= problem->n cells are read and written: FORWARD writes y,
 * DATA x, WEIGHT w.  No other bytes change. */
cudaError_t flim_fp32_run(const flim_conv_problem *problem, int64_t n, int tile, const flim_card *card, const void *x,
                          const void *w, const void *y, void *workspace, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
