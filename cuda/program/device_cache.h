/* All cells of a data set in device memory: --cache device.
 *
 * Counts lie as narrow as each cell allows (uint8, uint16; a cell that is neither as its finished fp32 signal), masks as
 * bytes.  flim_k_gather_cells makes a batch of them, equal bit for bit to what the host would have sent.
 * Plans of transforms are made on the host and copied before the batch is gathered.
 * Owns: the host side owns its arrays and pinned memory; the device side lies in the program's one allocation.
 */
#ifndef FLIM_CUDA_DEVICE_CACHE_H
#define FLIM_CUDA_DEVICE_CACHE_H

#include "flim/device.h"
#include "cuda/kernels/kernels.h"
#include "data/transform.h"

typedef struct flim_cuda_cache {
    int64_t n; /* 0 = no cell is cached */
    int64_t voxels, pixels; /* of a cell */
    int64_t bytes; /* of the device side */
    uint64_t *offset; /* (n) offset of a cell's voxels from `memory`, a multiple of 16, plus the bytes of a voxel: 1, 2, 4 */
    float *value; /* (FLIM_CACHE_VALUES) signal of a count */
    uint64_t *photons; /* (n) of each cell, 0 if it is kept as finished signal */
    int64_t batch; /* cells per batch, at most */
    int slots; /* batches whose transforms may be on their way */
    flim_cell_transform *drawn; /* (slots, 2 batch) pinned; NULL before allocation */
    char *memory; /* on the device: value, offsets, masks, drawn, voxels; NULL before allocation */
} flim_cuda_cache;

enum { FLIM_CACHE_VALUES = 65536 };

/* Plans the device side and copies what is needed later; cells NULL: none.  Frees what was planned before.  batch, slots: the
 * cells per batch, and how many batches may be on their way. */
flim_status flim_cuda_cache_plan(flim_cuda_cache *cache, int64_t voxels, int64_t pixels, const flim_device_cache *cells,
                                 int64_t batch, int slots, flim_error *err);
int64_t flim_cuda_cache_pinned_bytes(const flim_cuda_cache *cache); /* of host memory, once allocated */
void flim_cuda_cache_end(flim_cuda_cache *cache); /* gives back what begin took; the plan stays */
void flim_cuda_cache_free(flim_cuda_cache *cache); /* the host side */

/* Puts the device side at `memory` (cache->bytes of it) and uploads the tables. */
flim_status flim_cuda_cache_begin(flim_cuda_cache *cache, char *memory, cudaStream_t stream, flim_error *err);
flim_status flim_cuda_cache_store(flim_cuda_cache *cache, int64_t cell, const void *voxels, const uint8_t *mask,
                                  cudaStream_t stream, flim_error *err);
/* A batch of cached cells, transformed and mixed, -> signal (n,T,H,W) and mask (n,H,W) on the device.  id: batch->id on the
 * device.  slot: of slots; its batch before must be done.  scratch: (n,T,H,W) on the device, whose contents are lost.
 * FLIM_ERROR_DATA names a cell whose counts are not what the transform or the mixture needs. */
flim_status flim_cuda_cache_gather(const flim_cuda_cache *cache, const flim_launch *l, const flim_transform_table *transform,
                                   const flim_batch *batch, const flim_cell_id *id, int slot, float *signal, uint8_t *mask,
                                   float *scratch, flim_error *err);

#endif
