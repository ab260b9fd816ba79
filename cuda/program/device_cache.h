/* All cells of a data set in device memory: --cache device.
 *
 * Counts lie as narrow as each cell allows (uint8, uint16; a cell that is neither as its finished fp32 signal), masks as
 * bytes.  flim_k_gather_cells makes a batch of them, equal bit for bit to what the host would have sent.
 * Owns: the host side owns its arrays; the device side lies in the program's one allocation.
 */
#ifndef FLIM_CUDA_DEVICE_CACHE_H
#define FLIM_CUDA_DEVICE_CACHE_H

#include "flim/device.h"
#include "cuda/kernels/kernels.h"

typedef struct flim_cuda_cache {
    int64_t n; /* 0 = no cell is cached */
    int64_t voxels, pixels; /* of a cell */
    int64_t bytes; /* of the device side */
    uint64_t *offset; /* (n) offset of a cell's voxels from `memory`, a multiple of 16, plus the bytes of a voxel: 1, 2, 4 */
    float *value; /* (FLIM_CACHE_VALUES) signal of a count */
    char *memory; /* on the device: value, offsets, masks, voxels; NULL before allocation */
} flim_cuda_cache;

enum { FLIM_CACHE_VALUES = 65536 };

/* Plans the device side and copies what is needed later; cells NULL: none.  Frees what was planned before. */
flim_status flim_cuda_cache_plan(flim_cuda_cache *cache, int64_t voxels, int64_t pixels, const flim_device_cache *cells,
                                 flim_error *err);
void flim_cuda_cache_free(flim_cuda_cache *cache); /* the host side */

/* Puts the device side at `memory` (cache->bytes of it) and uploads the tables. */
flim_status flim_cuda_cache_begin(flim_cuda_cache *cache, char *memory, cudaStream_t stream, flim_error *err);
flim_status flim_cuda_cache_store(flim_cuda_cache *cache, int64_t cell, const void *voxels, const uint8_t *mask,
                                  cudaStream_t stream, flim_error *err);
/* What the gathering kernel takes. */
flim_cache_view flim_cuda_cache_view(const flim_cuda_cache *cache);

#endif
