#include "cuda/program/device_cells.h"

#include <string.h>

#include "cuda/device/check.h"
#include "core/alloc.h"

/* The device side in order; each part at a multiple of 256 bytes. */
static int64_t rounded(int64_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

static int64_t place_at(void)
{
    return FLIM_KEPT_VALUES * (int64_t)sizeof(float);
}

static int64_t mask_at(const flim_cuda_kept *kept)
{
    return place_at() + rounded(kept->n * (int64_t)sizeof *kept->place);
}

static int64_t voxels_at(const flim_cuda_kept *kept)
{
    return mask_at(kept) + rounded(kept->n * kept->pixels);
}

void flim_cuda_kept_free(flim_cuda_kept *kept)
{
    flim_free(kept->place);
    flim_free(kept->value);
    *kept = (flim_cuda_kept){0};
}

flim_status flim_cuda_kept_plan(flim_cuda_kept *kept, int64_t voxels, int64_t pixels, const flim_kept_cells *cells,
                                flim_error *err)
{
    flim_cuda_kept_free(kept);
    if (!cells || cells->n == 0) {
        return FLIM_OK;
    }
    kept->n = cells->n;
    kept->voxels = voxels;
    kept->pixels = pixels;
    kept->place = flim_alloc((size_t)cells->n, sizeof *kept->place, err);
    kept->value = flim_alloc(FLIM_KEPT_VALUES, sizeof *kept->value, err);
    if (!kept->place || !kept->value) {
        flim_cuda_kept_free(kept);
        return FLIM_ERROR_MEMORY;
    }
    memcpy(kept->value, cells->value, FLIM_KEPT_VALUES * sizeof *kept->value);
    int64_t at = voxels_at(kept);
    for (int64_t i = 0; i < cells->n; i++) {
        kept->place[i] = (uint64_t)at | cells->bytes[i];
        at += (voxels * cells->bytes[i] + 15) / 16 * 16;
    }
    kept->bytes = rounded(at);
    return FLIM_OK;
}

flim_status flim_cuda_kept_place(flim_cuda_kept *kept, char *memory, cudaStream_t stream, flim_error *err)
{
    flim_status status = FLIM_OK;
    if (kept->n == 0) {
        return status;
    }
    kept->memory = memory;
    FLIM_TRY_CUDA_DONE(
        cudaMemcpyAsync(memory, kept->value, FLIM_KEPT_VALUES * sizeof *kept->value, cudaMemcpyHostToDevice, stream));
    FLIM_TRY_CUDA_DONE(cudaMemcpyAsync(memory + place_at(), kept->place, (size_t)kept->n * sizeof *kept->place,
                                       cudaMemcpyHostToDevice, stream));
    FLIM_TRY_CUDA_DONE(cudaStreamSynchronize(stream));
done:
    return status;
}

flim_status flim_cuda_kept_put(flim_cuda_kept *kept, int64_t cell, const void *voxels, const uint8_t *mask,
                               cudaStream_t stream, flim_error *err)
{
    const uint64_t place = kept->place[cell];
    const size_t bytes = (size_t)kept->voxels * (place & 15);
    FLIM_TRY_CUDA(cudaMemcpyAsync(kept->memory + (place & ~(uint64_t)15), voxels, bytes, cudaMemcpyHostToDevice, stream));
    FLIM_TRY_CUDA(cudaMemcpyAsync(kept->memory + mask_at(kept) + cell * kept->pixels, mask, (size_t)kept->pixels,
                                  cudaMemcpyHostToDevice, stream));
    FLIM_TRY_CUDA(cudaStreamSynchronize(stream));
    return FLIM_OK;
}

flim_kept_view flim_cuda_kept_view(const flim_cuda_kept *kept)
{
    return (flim_kept_view){.memory = kept->memory,
                            .value = (const float *)(const void *)kept->memory,
                            .place = (const uint64_t *)(const void *)(kept->memory + place_at()),
                            .mask = (const uint8_t *)kept->memory + mask_at(kept)};
}
