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

/* One cell of a batch, as a block sees it. */
struct cell_work {
    flim_cell_transform own;
    const uint8_t *inside; /* (H,W) its mask */
    flim_cell_view view;
};

/* Cell b's into shared memory; all threads of the block. */
__device__ __forceinline__ void load_work(cell_work *work, const flim_cache_view &cache,
                                          const flim_cell_transform *__restrict__ drawn, const flim_cell_id *__restrict__ id,
                                          int64_t b, int t, int h, int w)
{
    __syncthreads(); /* that of the cell before is read no more */
    for (unsigned i = threadIdx.x; i < sizeof work->own / sizeof(int); i += THREADS) {
        reinterpret_cast<int *>(&work->own)[i] = reinterpret_cast<const int *>(&drawn[b])[i];
    }
    if (threadIdx.x == 0) {
        const int64_t cell = id[b].cell;
        const uint64_t offset = cache.offset[cell];
        work->inside = cache.mask + cell * h * w;
        work->view = {cache.memory + (offset & ~(uint64_t)15), (int32_t)(offset & 15), t, h, w};
    }
    __syncthreads();
}

__device__ __forceinline__ void store_mask(const cell_work &work, int64_t b, unsigned first, unsigned stride,
                                           uint8_t *__restrict__ mask)
{
    const unsigned w = (unsigned)work.view.w, pixels = (unsigned)work.view.h * w;
    for (unsigned i = first; i < pixels; i += stride) {
        mask[b * pixels + i] = !work.own.drop_mask && flim_cell_mask(&work.own, work.inside, work.view.h, work.view.w,
                                                                     (int32_t)(i / w), (int32_t)(i % w));
    }
}

/* The same as gather_kernel, each cell changed as its transform says; none moves photons. */
__global__ void __launch_bounds__(THREADS)
    gather_transformed_kernel(flim_cache_view cache, const flim_cell_transform *__restrict__ drawn,
                              const flim_cell_id *__restrict__ id, int64_t n, int t, int h, int w, float *__restrict__ signal,
                              uint8_t *__restrict__ mask)
{
    __shared__ cell_work work;
    const unsigned width = (unsigned)w, pixels = (unsigned)h * width, voxels = (unsigned)t * pixels;
    const unsigned first = blockIdx.x * THREADS + threadIdx.x, stride = gridDim.x * THREADS;
    for (int64_t b = blockIdx.y; b < n; b += gridDim.y) {
        load_work(&work, cache, drawn, id, b, t, h, w);
        const bool copies = flim_cell_only_copies(&work.own);
        for (unsigned i = first; i < voxels; i += stride) {
            const unsigned bin = i / pixels, at = i - bin * pixels, y = at / width;
            const int32_t pixel = flim_map_pixel(&work.own.map, w, (int32_t)y, (int32_t)(at - y * width));
            float value;
            if (copies) {
                uint32_t unused;
                const int64_t source =
                    flim_cell_source(&work.own, t, (int32_t)pixels, (int32_t)bin - work.own.shift, pixel, &unused);
                value =
                    source < 0 ? 0.0f : value1((const char *)work.view.voxels, work.view.bytes, source, cache.value);
            } else {
                value = __ldg(cache.value + flim_cell_photons(&work.own, &work.view, (int32_t)bin, pixel, work.inside[pixel] != 0));
            }
            signal[b * voxels + i] = value;
        }
        store_mask(work, b, first, stride, mask);
    }
}

/* Counts of a batch (n,T,H,W), which begins as zeros: each photon is added where it goes. */
__global__ void __launch_bounds__(THREADS)
    scatter_kernel(flim_cache_view cache, const flim_cell_transform *__restrict__ drawn, const flim_cell_id *__restrict__ id,
                   int64_t n, int t, int h, int w, unsigned *__restrict__ counts, uint8_t *__restrict__ mask)
{
    __shared__ cell_work work;
    const unsigned width = (unsigned)w, pixels = (unsigned)h * width, voxels = (unsigned)t * pixels;
    const unsigned first = blockIdx.x * THREADS + threadIdx.x, stride = gridDim.x * THREADS;
    for (int64_t b = blockIdx.y; b < n; b += gridDim.y) {
        load_work(&work, cache, drawn, id, b, t, h, w);
        for (unsigned i = first; i < voxels; i += stride) {
            const unsigned bin = i / pixels, at = i - bin * pixels, y = at / width, x = at - y * width;
            const int32_t pixel = flim_map_pixel(&work.own.map, w, (int32_t)y, (int32_t)x);
            const bool in_mask = work.inside[pixel] != 0;
            const unsigned photons = flim_cell_photons(&work.own, &work.view, (int32_t)bin, pixel, in_mask);
            unsigned *frame = counts + b * voxels + bin * pixels;
            if (work.own.n_moves == 0 && photons != 0) {
                frame[at] = photons;
            }
            for (unsigned k = 0; work.own.n_moves != 0 && k < photons; k++) {
                const int32_t to = flim_photon_goes_to(&work.own, work.inside, h, w, (int32_t)bin, (int32_t)y, (int32_t)x,
                                                       in_mask, k);
                if (to >= 0) {
                    atomicAdd(frame + to, 1u); /* of integers: in any order */
                }
            }
        }
        store_mask(work, b, first, stride, mask);
    }
}

/* Counts become their signal in place. */
__global__ void __launch_bounds__(THREADS) signal_kernel(const float *__restrict__ value, int64_t voxels, float *signal)
{
    const int64_t first = blockIdx.x * (int64_t)THREADS + threadIdx.x, stride = (int64_t)gridDim.x * THREADS;
    for (int64_t i = first; i < voxels; i += stride) {
        const unsigned count = reinterpret_cast<unsigned *>(signal)[i];
        signal[i] = __ldg(value + (count < FLIM_MOST_PHOTONS ? count : FLIM_MOST_PHOTONS));
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

cudaError_t flim_k_gather_transformed(const flim_launch *l, const flim_cache_view *cache, const flim_cell_transform *drawn,
                                      bool moves, const flim_cell_id *id, int64_t n, int t, int h, int w, float *signal,
                                      uint8_t *mask)
{
    const int64_t voxels = (int64_t)t * h * w;
    const dim3 grid = gather_grid(n, voxels);
    if (!moves) {
        gather_transformed_kernel<<<grid, THREADS, 0, l->stream>>>(*cache, drawn, id, n, t, h, w, signal, mask);
        return cudaGetLastError();
    }
    const cudaError_t code = cudaMemsetAsync(signal, 0, (size_t)(n * voxels) * sizeof *signal, l->stream);
    if (code != cudaSuccess) {
        return code;
    }
    scatter_kernel<<<grid, THREADS, 0, l->stream>>>(*cache, drawn, id, n, t, h, w, (unsigned *)signal, mask);
    const int64_t blocks = (n * voxels + 4 * THREADS - 1) / (4 * THREADS);
    signal_kernel<<<(unsigned)(blocks < 65536 ? blocks : 65536), THREADS, 0, l->stream>>>(cache->value, n * voxels, signal);
    return cudaGetLastError();
}
