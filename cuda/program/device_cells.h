/* All cells of a data set in device memory: --cache device.
 *
 * Counts lie as narrow as each cell allows (uint8, uint16; a cell that is neither as its finished fp32 signal), masks as bytes.
 * flim_k_gather_kept makes a batch of them, equal bit for bit to what the host would have sent.
 * Owns: the host side owns its arrays; the device side lies in the program's one allocation.
 */
#ifndef FLIM_CUDA_KEPT_CELLS_H
#define FLIM_CUDA_KEPT_CELLS_H

#include "flim/device.h"
#include "cuda/kernels/kernels.h"

typedef struct flim_cuda_kept {
    int64_t n; /* 0 = no cells are kept */
    int64_t voxels, pixels; /* of a cell */
    int64_t bytes; /* of the device side */
    uint64_t *place; /* (n) offset of a cell's voxels from `memory`, a multiple of 16, plus the bytes of a voxel: 1, 2, 4 */
    float *value; /* (FLIM_KEPT_VALUES) signal of a count */
    char *memory; /* on the device: value, place, masks, voxels; NULL before allocation */
} flim_cuda_kept;

enum { FLIM_KEPT_VALUES = 65536 };

/* Plans the device side and copies what is needed later; cells NULL: none.  Frees what was planned before. */
flim_status flim_cuda_kept_plan(flim_cuda_kept *kept, int64_t voxels, int64_t pixels, const flim_kept_cells *cells,
                                flim_error *err);
void flim_cuda_kept_free(flim_cuda_kept *kept); /* the host side */

/* Puts the device side at `memory` (kept->bytes of it) and uploads the tables. */
flim_status flim_cuda_kept_place(flim_cuda_kept *kept, char *memory, cudaStream_t stream, flim_error *err);
flim_status flim_cuda_kept_put(flim_cuda_kept *kept, int64_t cell, const void *voxels, const uint8_t *mask,
                               cudaStream_t stream, flim_error *err);
/* What the gathering kernel takes. */
flim_kept_view flim_cuda_kept_view(const flim_cuda_kept *kept);

#endif
