#include "data/cell_cache.h"

#include <stdatomic.h>
#include <string.h>

#include "core/alloc.h"

typedef enum cell_state { CELL_EMPTY, CELL_BEING_STORED, CELL_UINT8, CELL_UINT16, CELL_REFUSED } cell_state;

struct flim_cell_cache {
    int64_t n, voxels;
    size_t bytes; /* of a voxel there */
    uint8_t *memory; /* (n, voxels x bytes) */
    atomic_uchar *state; /* (n) cell_state */
};

flim_status flim_cell_cache_create(int64_t n, int64_t voxels, size_t bytes, flim_cell_cache **out, flim_error *err)
{
    *out = NULL;
    flim_cell_cache *cache = flim_alloc(1, sizeof *cache, err);
    if (!cache) {
        return FLIM_ERROR_MEMORY;
    }
    cache->n = n;
    cache->voxels = voxels;
    cache->bytes = bytes;
    cache->memory = flim_alloc_aligned((size_t)n, (size_t)voxels * bytes, err);
    cache->state = flim_alloc((size_t)n, sizeof *cache->state, err);
    if (!cache->memory || !cache->state) {
        flim_cell_cache_destroy(cache);
        return FLIM_ERROR_MEMORY;
    }
    for (int64_t i = 0; i < n; i++) {
        atomic_init(&cache->state[i], CELL_EMPTY);
    }
    *out = cache;
    return FLIM_OK;
}

void flim_cell_cache_destroy(flim_cell_cache *cache)
{
    if (cache) {
        flim_free(cache->memory);
        flim_free(cache->state);
        flim_free(cache);
    }
}

static void *memory_of(flim_cell_cache *cache, int64_t cell)
{
    return cache->memory + (size_t)cell * (size_t)cache->voxels * cache->bytes;
}

const void *flim_cell_cache_find(flim_cell_cache *cache, int64_t cell, flim_number *number)
{
    int state = atomic_load_explicit(&cache->state[cell], memory_order_acquire);
    if (state != CELL_UINT8 && state != CELL_UINT16) {
        return NULL;
    }
    *number = (flim_number){FLIM_UNSIGNED, state == CELL_UINT8 ? 1 : 2, false};
    return memory_of(cache, cell);
}

/* True for the one thread that may store the cell; it has to call `stored` then. */
static bool take(flim_cell_cache *cache, int64_t cell)
{
    unsigned char empty = CELL_EMPTY;
    return atomic_compare_exchange_strong(&cache->state[cell], &empty, CELL_BEING_STORED);
}

static void stored(flim_cell_cache *cache, int64_t cell, cell_state state)
{
    atomic_store_explicit(&cache->state[cell], (unsigned char)state, memory_order_release);
}

void flim_cell_cache_offer(flim_cell_cache *cache, int64_t cell, flim_number number, const void *values)
{
    if (!take(cache, cell)) {
        return;
    }
    uint8_t *restrict to = memory_of(cache, cell);
    const uint16_t *restrict wide = values;
    unsigned most = 0;
    if (number.size == 1) {
        memcpy(to, values, (size_t)cache->voxels);
        stored(cache, cell, CELL_UINT8);
        return;
    }
    for (int64_t i = 0; i < cache->voxels; i++) {
        most |= wide[i];
    }
    if (most <= 255) {
        for (int64_t i = 0; i < cache->voxels; i++) {
            to[i] = (uint8_t)wide[i];
        }
        stored(cache, cell, CELL_UINT8);
    } else if (cache->bytes == 2) {
        memcpy(to, values, (size_t)cache->voxels * sizeof *wide);
        stored(cache, cell, CELL_UINT16);
    } else {
        stored(cache, cell, CELL_REFUSED);
    }
}

void flim_cell_cache_offer_counts(flim_cell_cache *cache, int64_t cell, const float *counts)
{
    if (!take(cache, cell)) {
        return;
    }
    int bytes = flim_counts_bytes(counts, cache->voxels);
    if ((size_t)bytes > cache->bytes) { /* 4: never */
        stored(cache, cell, CELL_REFUSED);
        return;
    }
    flim_counts_narrow(counts, cache->voxels, bytes, memory_of(cache, cell));
    stored(cache, cell, bytes == 1 ? CELL_UINT8 : CELL_UINT16);
}
