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

static int64_t drawn_at(const flim_cuda_cache *cache)
{
    return mask_at(cache) + rounded(cache->n * cache->pixels);
}

static int64_t voxels_at(const flim_cuda_cache *cache)
{
    return drawn_at(cache) + rounded(2 * cache->batch * (int64_t)sizeof(flim_cell_transform));
}

int64_t flim_cuda_cache_pinned_bytes(const flim_cuda_cache *cache)
{
    return cache->slots * 2 * cache->batch * (int64_t)sizeof(flim_cell_transform);
}

void flim_cuda_cache_end(flim_cuda_cache *cache)
{
    if (cache->drawn) {
        (void)cudaFreeHost(cache->drawn);
    }
    cache->drawn = NULL;
    cache->memory = NULL;
}

void flim_cuda_cache_free(flim_cuda_cache *cache)
{
    flim_cuda_cache_end(cache);
    flim_free(cache->offset);
    flim_free(cache->value);
    flim_free(cache->photons);
    *cache = (flim_cuda_cache){0};
}

flim_status flim_cuda_cache_plan(flim_cuda_cache *cache, int64_t voxels, int64_t pixels, const flim_device_cache *cells,
                                 int64_t batch, int slots, flim_error *err)
{
    flim_cuda_cache_free(cache);
    if (!cells || cells->n == 0) {
        return FLIM_OK;
    }
    cache->n = cells->n;
    cache->voxels = voxels;
    cache->pixels = pixels;
    cache->batch = batch;
    cache->slots = slots;
    cache->photons = flim_alloc((size_t)cells->n, sizeof *cache->photons, err);
    cache->offset = flim_alloc((size_t)cells->n, sizeof *cache->offset, err);
    cache->value = flim_alloc(FLIM_CACHE_VALUES, sizeof *cache->value, err);
    if (!cache->offset || !cache->value || !cache->photons) {
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
        cudaHostAlloc((void **)&cache->drawn, (size_t)flim_cuda_cache_pinned_bytes(cache), cudaHostAllocDefault));
    FLIM_TRY_CUDA_DONE(
        cudaMemcpyAsync(memory, cache->value, FLIM_CACHE_VALUES * sizeof *cache->value, cudaMemcpyHostToDevice, stream));
    FLIM_TRY_CUDA_DONE(cudaMemcpyAsync(memory + offsets_at(), cache->offset, (size_t)cache->n * sizeof *cache->offset,
                                       cudaMemcpyHostToDevice, stream));
    FLIM_TRY_CUDA_DONE(cudaStreamSynchronize(stream));
done:
    return status;
}

static uint64_t sum_of(const void *voxels, int bytes, int64_t n)
{
    const uint8_t *narrow = voxels;
    const uint16_t *wide = voxels;
    uint64_t sum = 0;
    for (int64_t i = 0; bytes <= 2 && i < n; i++) {
        sum += bytes == 1 ? narrow[i] : wide[i];
    }
    return sum;
}

flim_status flim_cuda_cache_store(flim_cuda_cache *cache, int64_t cell, const void *voxels, const uint8_t *mask,
                                  cudaStream_t stream, flim_error *err)
{
    const uint64_t offset = cache->offset[cell];
    const size_t bytes = (size_t)cache->voxels * (offset & 15);
    cache->photons[cell] = sum_of(voxels, (int)(offset & 15), cache->voxels);
    FLIM_TRY_CUDA(cudaMemcpyAsync(cache->memory + (offset & ~(uint64_t)15), voxels, bytes, cudaMemcpyHostToDevice, stream));
    FLIM_TRY_CUDA(cudaMemcpyAsync(cache->memory + mask_at(cache) + cell * cache->pixels, mask, (size_t)cache->pixels,
                                  cudaMemcpyHostToDevice, stream));
    FLIM_TRY_CUDA(cudaStreamSynchronize(stream));
    return FLIM_OK;
}

static flim_cache_view view_of(const flim_cuda_cache *cache)
{
    return (flim_cache_view){.memory = cache->memory,
                             .value = (const float *)(const void *)cache->memory,
                             .offset = (const uint64_t *)(const void *)(cache->memory + offsets_at()),
                             .mask = (const uint8_t *)cache->memory + mask_at(cache)};
}

/* Whether cell number `cell` has what is needed of it. */
static flim_status check_photons(const flim_cuda_cache *cache, const char *needs, uint32_t cell, flim_error *err)
{
    if (needs && (cache->offset[cell] & 15) == 4) {
        (void)flim_fail(err, FLIM_ERROR_DATA, FLIM_NO_PHOTONS, needs);
        return flim_fail_prefix(err, "cell %u in device memory: ", (unsigned)cell);
    }
    return FLIM_OK;
}

static flim_status draw(const flim_cuda_cache *cache, const flim_transform_table *transform, const flim_batch *batch,
                        int64_t i, flim_cell_transform *out, flim_error *err)
{
    static const flim_mix alone = {0};
    const uint32_t cell = batch->id[i].cell;
    const flim_mix *mix = batch->mix ? &batch->mix[i] : &alone;
    const bool mixed = mix->share > 0;
    const char *needs = mixed && batch->mix_of == FLIM_MIX_COUNTS ? "--mixup counts" : transform->needs_photons;
    const uint64_t photons[2] = {cache->photons[cell], mixed ? cache->photons[mix->cell] : 0};
    flim_cell_transform drawn[2];
    FLIM_TRY(check_photons(cache, needs, cell, err));
    FLIM_TRY(mixed ? check_photons(cache, needs, mix->cell, err) : FLIM_OK);
    const int parts = flim_transform_draw_mixed(transform, &batch->id[i], mix, batch->mix_of, photons, drawn);
    out[0] = drawn[0];
    if (batch->mix) {
        out[1] = parts == 2 ? drawn[1] : (flim_cell_transform){.cell = cell};
    }
    return FLIM_OK;
}

flim_status flim_cuda_cache_gather(const flim_cuda_cache *cache, const flim_launch *l, const flim_transform_table *transform,
                                   const flim_batch *batch, const flim_cell_id *id, int slot, float *signal, uint8_t *mask,
                                   float *scratch, flim_error *err)
{
    const flim_cache_view view = view_of(cache);
    const int64_t n = batch->n;
    const int t = transform->t, h = transform->h, w = transform->w, parts = batch->mix ? 2 : 1;
    if (transform->n == 0 && !batch->mix) {
        FLIM_TRY_CUDA(flim_k_gather_cells(l, &view, id, n, t, h, w, signal, mask));
        return FLIM_OK;
    }
    flim_cell_transform *drawn = cache->drawn + slot * 2 * cache->batch;
    for (int64_t i = 0; i < n; i++) {
        FLIM_TRY(draw(cache, transform, batch, i, drawn + i * parts, err));
    }
    const flim_drawn_batch d = {.drawn = (void *)(cache->memory + drawn_at(cache)),
                                .parts = parts,
                                .counts = batch->mix_of == FLIM_MIX_COUNTS,
                                .moves = transform->moves,
                                .scratch = scratch};
    FLIM_TRY_CUDA(cudaMemcpyAsync(cache->memory + drawn_at(cache), drawn, (size_t)(n * parts) * sizeof *drawn,
                                  cudaMemcpyHostToDevice, l->stream));
    FLIM_TRY_CUDA(flim_k_gather_transformed(l, &view, &d, n, t, h, w, signal, mask));
    return FLIM_OK;
}
