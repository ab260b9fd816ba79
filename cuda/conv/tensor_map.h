/* Tensor maps: what Hopper's copy engine (TMA) knows of a tensor in device memory that it fetches boxes of.
 *
 * For: kernels compiled for sm_90a.
 * Owns: nothing.  A map holds the tensor's address and is passed to a kernel by value.
 * Errors: cudaErrorInvalidValue for what the driver refuses, cudaErrorNotSupported if the driver is older than CUDA 12.
 */
#ifndef FLIM_CUDA_TENSOR_MAP_H
#define FLIM_CUDA_TENSOR_MAP_H

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "cuda/device/storage.h"

/* Of a dense tensor of 16-bit values, size[0] the fastest (channels); boxes of box[0] x ... x box[4] values, every[i]-th along dimension i.
 * box[0] is 32 or 64, and the 16-byte parts of each such line of 64 or 128 bytes are swizzled.  Outside of the tensor are zeros. */
cudaError_t flim_tensor_map(CUtensorMap *map, flim_storage type, const void *at, const int64_t size[5], const int box[5],
                            const int every[5]);

#endif
