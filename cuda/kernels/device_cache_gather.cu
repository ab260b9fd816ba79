/* A batch gathered from the device cache: counts of 1 or 2 bytes through the signal table, finished signal
 * copied.  Plans of transforms act on the counts, before the table; of cells that are kept as finished signal they only move
 * voxels. */
#include "cuda/kernels/vector.cuh"

enum { THREADS = 256, AT_ONCE = 8 };

/* AT_ONCE values of a cell from `at` on, where both sides are aligned. */
__device__ __forceinline__ float8 values8(const char *voxels, int bytes, int64_t at, const float *__restrict__ value)
{
    float8 out;
    if (bytes == 4) {
        return load8<float>(reinterpret_cast<const float *>(voxels) + at);
    }
    if (bytes == 2) {
        const uint4 raw = *reinterpret_cast<const uint4 *>(voxels + 2 * at);
        const unsigned word[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            out.v[i] = __ldg(value + (word[i / 2] >> 16 * (i % 2) & 65535u));
        }
        return out;
    }
    const uint2 raw = *reinterpret_cast<const uint2 *>(voxels + at);
    const unsigned word[2] = {raw.x, raw.y};
#pragma unroll
    for (int i = 0; i < AT_ONCE; i++) {
        out.v[i] = __ldg(value + (word[i / 4] >> 8 * (i % 4) & 255u));
    }
    return out;
}

__device__ __forceinline__ float value1(const char *voxels, int bytes, int64_t at, const float *__restrict__ value)
{
    return bytes == 4   ? reinterpret_cast<const float *>(voxels)[at]
           : bytes == 2 ? __ldg(value + reinterpret_cast<const uint16_t *>(voxels)[at])
                        : __ldg(value + reinterpret_cast<const uint8_t *>(voxels)[at]);
}

/* blockIdx.y goes over the batch.  A cell's voxels begin at a multiple of 16 bytes; its offset in the batch does so only if
 * the cell's size allows. */
__global__ void __launch_bounds__(THREADS)
    gather_kernel(flim_cache_view cache, const flim_cell_id *__restrict__ id, int64_t n, int64_t voxels, int64_t pixels,
                  float *__restrict__ signal, uint8_t *__restrict__ mask)
{
    const int64_t first = blockIdx.x * (int64_t)THREADS + threadIdx.x, stride = (int64_t)gridDim.x * THREADS;
    const int64_t wide = voxels % AT_ONCE == 0 ? voxels / AT_ONCE : 0;
    for (int64_t b = blockIdx.y; b < n; b += gridDim.y) {
        const int64_t cell = id[b].cell;
        const uint64_t offset = cache.offset[cell];
        const int bytes = (int)(offset & 15);
        const char *from = cache.memory + (offset & ~(uint64_t)15);
        float *to = signal + b * voxels;
        for (int64_t i = first; i < wide; i += stride) {
            store8<float>(to + AT_ONCE * i, values8(from, bytes, AT_ONCE * i, cache.value));
        }
        for (int64_t i = AT_ONCE * wide + first; i < voxels; i += stride) {
            to[i] = value1(from, bytes, i, cache.value);
        }
        for (int64_t i = first; i < pixels; i += stride) {
            mask[b * pixels + i] = cache.mask[cell * pixels + i];
        }
    }
}

/* One cell of a batch, or the two that are mixed into one, as a block sees it. */
struct cell_work {
    flim_cell_transform own[2];
    const uint8_t *inside[2]; /* (H,W) their masks */
    flim_cell_view view[2];
    int parts; /* 1 or 2 */
};

/* That of cell b into shared memory; all threads of the block.  drawn: (n, parts); a second part of share 0 is none. */
__device__ __forceinline__ void load_work(cell_work *work, const flim_cache_view &cache,
                                          const flim_cell_transform *__restrict__ drawn, int parts, int64_t b, int t, int h,
                                          int w)
{
    __syncthreads(); /* that of the cell before is read no more */
    for (unsigned i = threadIdx.x; i < parts * (sizeof work->own[0] / sizeof(int)); i += THREADS) {
        reinterpret_cast<int *>(work->own)[i] = reinterpret_cast<const int *>(&drawn[b * parts])[i];
    }
    if (threadIdx.x < parts) {
        const int64_t cell = drawn[b * parts + threadIdx.x].cell;
        const uint64_t offset = cache.offset[cell];
        work->inside[threadIdx.x] = cache.mask + cell * h * w;
        work->view[threadIdx.x] = {cache.memory + (offset & ~(uint64_t)15), (int32_t)(offset & 15), t, h, w};
    }
    if (threadIdx.x == 0) {
        work->parts = parts == 2 && drawn[b * 2 + 1].share > 0 ? 2 : 1;
    }
    __syncthreads();
}

__device__ __forceinline__ void store_mask(const cell_work &work, int64_t b, unsigned first, unsigned stride,
                                           uint8_t *__restrict__ mask)
{
    const int h = work.view[0].h, w = work.view[0].w;
    const unsigned pixels = (unsigned)h * (unsigned)w;
    for (unsigned i = first; i < pixels; i += stride) {
        bool inside = false;
        for (int p = 0; p < work.parts; p++) {
            inside = inside || (!work.own[p].drop_mask &&
                                flim_cell_mask(&work.own[p], work.inside[p], h, w, (int32_t)i / w, (int32_t)i % w));
        }
        mask[b * pixels + i] = inside;
    }
}

/* own * share + other * share, rounded as the host rounds it. */
__device__ __forceinline__ float mixed(float a, float share_a, float b, float share_b)
{
    return __fadd_rn(__fmul_rn(share_a, a), __fmul_rn(share_b, b));
}

/* The signal of part p at output bin `bin`, pixel (y,x), none of whose photons moves; *photons: its count, unless it is kept as
 * finished signal, which only copies go through. */
__device__ __forceinline__ float part_value(const cell_work &work, int p, const float *__restrict__ value, int32_t bin,
                                            int32_t y, int32_t x, unsigned *photons)
{
    const flim_cell_transform &own = work.own[p];
    const flim_cell_view &view = work.view[p];
    const int32_t pixel = flim_map_pixel(&own.map, view.w, y, x);
    if (flim_cell_only_copies(&own)) {
        uint32_t unused;
        const int64_t source = flim_cell_source(&own, view.t, view.h * view.w, bin - own.shift, pixel, &unused);
        return source < 0 ? 0.0f : value1((const char *)view.voxels, view.bytes, source, value);
    }
    *photons = flim_cell_photons(&own, &view, bin, pixel, work.inside[p][pixel] != 0);
    return __ldg(value + *photons);
}

/* The same as gather_kernel, each cell changed as its transform says; none moves photons.  Two parts are mixed by their counts
 * if counts, else by their signals. */
__global__ void __launch_bounds__(THREADS)
    gather_transformed_kernel(flim_cache_view cache, const flim_cell_transform *__restrict__ drawn, int parts, bool counts,
                              int64_t n, int t, int h, int w, float *__restrict__ signal, uint8_t *__restrict__ mask)
{
    __shared__ cell_work work;
    const unsigned width = (unsigned)w, pixels = (unsigned)h * width, voxels = (unsigned)t * pixels;
    const unsigned first = blockIdx.x * THREADS + threadIdx.x, stride = gridDim.x * THREADS;
    for (int64_t b = blockIdx.y; b < n; b += gridDim.y) {
        load_work(&work, cache, drawn, parts, b, t, h, w);
        for (unsigned i = first; i < voxels; i += stride) {
            const unsigned bin = i / pixels, at = i - bin * pixels, y = at / width, x = at - y * width;
            unsigned own = 0, other = 0;
            float out = part_value(work, 0, cache.value, (int32_t)bin, (int32_t)y, (int32_t)x, &own);
            if (work.parts == 2) {
                const float second = part_value(work, 1, cache.value, (int32_t)bin, (int32_t)y, (int32_t)x, &other);
                const unsigned sum = own + other < FLIM_MOST_PHOTONS ? own + other : FLIM_MOST_PHOTONS;
                out = counts ? __ldg(cache.value + sum) : mixed(out, work.own[0].share, second, work.own[1].share);
            }
            signal[b * voxels + i] = out;
        }
        store_mask(work, b, first, stride, mask);
    }
}

/* Counts of a batch (n,T,H,W), which begin as zeros: each photon is added where it goes.  Two parts go into the same counts, or
 * the second into `second` if that is not NULL. */
__global__ void __launch_bounds__(THREADS)
    scatter_kernel(flim_cache_view cache, const flim_cell_transform *__restrict__ drawn, int parts, int64_t n, int t, int h,
                   int w, unsigned *counts, unsigned *second, uint8_t *__restrict__ mask)
{
    __shared__ cell_work work;
    const unsigned width = (unsigned)w, pixels = (unsigned)h * width, voxels = (unsigned)t * pixels;
    const unsigned first = blockIdx.x * THREADS + threadIdx.x, stride = gridDim.x * THREADS;
    for (int64_t b = blockIdx.y; b < n; b += gridDim.y) {
        load_work(&work, cache, drawn, parts, b, t, h, w);
        for (unsigned i = first; i < voxels * work.parts; i += stride) {
            const int p = i >= voxels;
            const unsigned voxel = i - p * voxels, bin = voxel / pixels, at = voxel - bin * pixels, y = at / width,
                           x = at - y * width;
            const flim_cell_transform &own = work.own[p];
            const int32_t pixel = flim_map_pixel(&own.map, w, (int32_t)y, (int32_t)x);
            const bool in_mask = work.inside[p][pixel] != 0;
            const unsigned photons = flim_cell_photons(&own, &work.view[p], (int32_t)bin, pixel, in_mask);
            unsigned *frame = (p == 1 && second ? second : counts) + b * voxels + bin * pixels;
            if (own.n_moves == 0 && photons != 0) {
                atomicAdd(frame + at, photons); /* of integers: in any order */
            }
            for (unsigned k = 0; own.n_moves != 0 && k < photons; k++) {
                const int32_t to =
                    flim_photon_goes_to(&own, work.inside[p], h, w, (int32_t)bin, (int32_t)y, (int32_t)x, in_mask, k);
                if (to >= 0) {
                    atomicAdd(frame + to, 1u);
                }
            }
        }
        store_mask(work, b, first, stride, mask);
    }
}

__device__ __forceinline__ float value_of(const float *__restrict__ value, unsigned count)
{
    return __ldg(value + (count < FLIM_MOST_PHOTONS ? count : FLIM_MOST_PHOTONS));
}

/* Counts become their signal in place; with `second` those of two parts become the mixture of their signals. */
__global__ void __launch_bounds__(THREADS)
    signal_kernel(const float *__restrict__ value, const flim_cell_transform *__restrict__ drawn, int64_t cells,
                  int64_t voxels, const unsigned *__restrict__ second, float *signal)
{
    const int64_t first = blockIdx.x * (int64_t)THREADS + threadIdx.x, stride = (int64_t)gridDim.x * THREADS;
    for (int64_t b = blockIdx.y; b < cells; b += gridDim.y) {
        const bool mixes = second && drawn[2 * b + 1].share > 0;
        for (int64_t i = b * voxels + first; i < (b + 1) * voxels; i += stride) {
            const float own = value_of(value, reinterpret_cast<unsigned *>(signal)[i]);
            signal[i] = mixes ? mixed(own, drawn[2 * b].share, value_of(value, second[i]), drawn[2 * b + 1].share) : own;
        }
    }
}

static dim3 gather_grid(int64_t n, int64_t voxels)
{
    const int64_t blocks = (voxels / AT_ONCE + THREADS - 1) / THREADS;
    return dim3((unsigned)(blocks < 1 ? 1 : blocks > 1024 ? 1024 : blocks), (unsigned)(n < 65535 ? n : 65535));
}

cudaError_t flim_k_gather_cells(const flim_launch *l, const flim_cache_view *cache, const flim_cell_id *id, int64_t n, int t,
                                int h, int w, float *signal, uint8_t *mask)
{
    const int64_t pixels = (int64_t)h * w, voxels = pixels * t;
    gather_kernel<<<gather_grid(n, voxels), THREADS, 0, l->stream>>>(*cache, id, n, voxels, pixels, signal, mask);
    return cudaGetLastError();
}

cudaError_t flim_k_gather_transformed(const flim_launch *l, const flim_cache_view *cache, const flim_drawn_batch *d,
                                      int64_t n, int t, int h, int w, float *signal, uint8_t *mask)
{
    const int64_t voxels = (int64_t)t * h * w;
    const size_t bytes = (size_t)(n * voxels) * sizeof *signal;
    const dim3 grid = gather_grid(n, voxels);
    if (!d->moves) {
        gather_transformed_kernel<<<grid, THREADS, 0, l->stream>>>(*cache, d->drawn, d->parts, d->counts, n, t, h, w, signal,
                                                                   mask);
        return cudaGetLastError();
    }
    unsigned *second = d->parts == 2 && !d->counts ? (unsigned *)d->scratch : NULL;
    cudaError_t code = cudaMemsetAsync(signal, 0, bytes, l->stream);
    if (code == cudaSuccess && second) {
        code = cudaMemsetAsync(second, 0, bytes, l->stream);
    }
    if (code != cudaSuccess) {
        return code;
    }
    scatter_kernel<<<grid, THREADS, 0, l->stream>>>(*cache, d->drawn, d->parts, n, t, h, w, (unsigned *)signal, second, mask);
    signal_kernel<<<grid, THREADS, 0, l->stream>>>(cache->value, d->drawn, n, voxels, second, signal);
    return cudaGetLastError();
}
