#include "cuda/program/device_cache.h"

#include <string.h>

#include "cuda/device/check.h"
#include "core/alloc.h"

/* The device side in order; each part at a multiple of 256 bytes. */
static int64_t rounded(int64_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

static int64_t offsets_at(void)
{
    return FLIM_CACHE_VALUES * (int64_t)sizeof(float);
}

static int64_t mask_at(const flim_cuda_cache *cache)
{
    return offsets_at() + rounded(cache->n * (int64_t)sizeof *cache->offset);
}

static int64_t voxels_at(const flim_cuda_cache *cache)
{
    return mask_at(cache) + rounded(cache->n * cache->pixels);
}

void flim_cuda_cache_free(flim_cuda_cache *cache)
{
    flim_free(cache->offset);
    flim_free(cache->value);
    *cache = (flim_cuda_cache){0};
}

flim_status flim_cuda_cache_plan(flim_cuda_cache *cache, int64_t voxels, int64_t pixels, const flim_device_cache *cells,
                                 flim_error *err)
{
    flim_cuda_cache_free(cache);
    if (!cells || cells->n == 0) {
        return FLIM_OK;
    }
    cache->n = cells->n;
    cache->voxels = voxels;
    cache->pixels = pixels;
    cache->offset = flim_alloc((size_t)cells->n, sizeof *cache->offset, err);
    cache->value = flim_alloc(FLIM_CACHE_VALUES, sizeof *cache->value, err);
    if (!cache->offset || !cache->value) {
        flim_cuda_cache_free(cache);
        return FLIM_ERROR_MEMORY;
    }
    memcpy(cache->value, cells->value, FLIM_CACHE_VALUES * sizeof *cache->value);
    int64_t at = voxels_at(cache);
    for (int64_t i = 0; i < cells->n; i++) {
        cache->offset[i] = (uint64_t)at | cells->bytes[i];
        at += (voxels * cells->bytes[i] + 15) / 16 * 16;
    }
    cache->bytes = rounded(at);
    return FLIM_OK;
}

flim_status flim_cuda_cache_begin(flim_cuda_cache *cache, char *memory, cudaStream_t stream, flim_error *err)
{
    flim_status status = FLIM_OK;
    if (cache->n == 0) {
        return status;
    }
    cache->memory = memory;
    FLIM_TRY_CUDA_DONE(
        cudaMemcpyAsync(memory, cache->value, FLIM_CACHE_VALUES * sizeof *cache->value, cudaMemcpyHostToDevice, stream));
    FLIM_TRY_CUDA_DONE(cudaMemcpyAsync(memory + offsets_at(), cache->offset, (size_t)cache->n * sizeof *cache->offset,
                                       cudaMemcpyHostToDevice, stream));
    FLIM_TRY_CUDA_DONE(cudaStreamSynchronize(stream));
done:
    return status;
}

flim_status flim_cuda_cache_store(flim_cuda_cache *cache, int64_t cell, const void *voxels, const uint8_t *mask,
                                  cudaStream_t stream, flim_error *err)
{
    const uint64_t offset = cache->offset[cell];
    const size_t bytes = (size_t)cache->voxels * (offset & 15);
    FLIM_TRY_CUDA(cudaMemcpyAsync(cache->memory + (offset & ~(uint64_t)15), voxels, bytes, cudaMemcpyHostToDevice, stream));
    FLIM_TRY_CUDA(cudaMemcpyAsync(cache->memory + mask_at(cache) + cell * cache->pixels, mask, (size_t)cache->pixels,
                                  cudaMemcpyHostToDevice, stream));
    FLIM_TRY_CUDA(cudaStreamSynchronize(stream));
    return FLIM_OK;
}

flim_cache_view flim_cuda_cache_view(const flim_cuda_cache *cache)
{
    return (flim_cache_view){.memory = cache->memory,
                             .value = (const float *)(const void *)cache->memory,
                             .offset = (const uint64_t *)(const void *)(cache->memory + offsets_at()),
                             .mask = (const uint8_t *)cache->memory + mask_at(cache)};
}
