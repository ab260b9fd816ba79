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

/* The same by drawn of transforms, one per cell. */
__global__ void __launch_bounds__(THREADS)
    gather_transformed_kernel(flim_cache_view cache, const flim_cell_transform *__restrict__ drawn, const flim_cell_id *__restrict__ id,
                          int64_t n, int t, int h, int w, float *__restrict__ signal, uint8_t *__restrict__ mask)
{
    __shared__ flim_cell_transform own;
    const unsigned width = (unsigned)w, pixels = (unsigned)h * width, voxels = (unsigned)t * pixels;
    const unsigned first = blockIdx.x * THREADS + threadIdx.x, stride = gridDim.x * THREADS;
    for (int64_t b = blockIdx.y; b < n; b += gridDim.y) {
        const int64_t cell = id[b].cell;
        const uint64_t offset = cache.offset[cell];
        const int bytes = (int)(offset & 15);
        const char *from = cache.memory + (offset & ~(uint64_t)15);
        const uint8_t *inside = cache.mask + cell * pixels;
        const flim_cell_view view = {from, bytes, t, h, w};
        __syncthreads(); /* that of the cell before is read no more */
        for (unsigned i = threadIdx.x; i < sizeof own / sizeof(int); i += THREADS) {
            reinterpret_cast<int *>(&own)[i] = reinterpret_cast<const int *>(&drawn[b])[i];
        }
        __syncthreads();
        const bool moves = flim_cell_only_moves(&own);
        for (unsigned i = first; i < voxels; i += stride) {
            const unsigned bin = i / pixels, at = i - bin * pixels, y = at / width;
            const int32_t pixel = flim_map_pixel(&own.map, w, (int32_t)y, (int32_t)(at - y * width));
            float value;
            if (moves) {
                uint32_t unused;
                const int64_t source = flim_cell_source(&own, t, (int32_t)pixels, (int32_t)bin - own.shift, pixel, &unused);
                value = source < 0 ? 0.0f : value1(from, bytes, source, cache.value);
            } else {
                value = __ldg(cache.value + flim_cell_photons(&own, &view, (int32_t)bin, pixel, inside[pixel] != 0));
            }
            signal[b * voxels + i] = value;
        }
        for (unsigned i = first; i < pixels; i += stride) {
            const unsigned y = i / width;
            const int32_t pixel = flim_map_pixel(&own.map, w, (int32_t)y, (int32_t)(i - y * width));
            mask[b * pixels + i] = own.drop_mask ? 0 : inside[pixel];
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

cudaError_t flim_k_gather_transformed(const flim_launch *l, const flim_cache_view *cache, const flim_cell_transform *drawn,
                                  const flim_cell_id *id, int64_t n, int t, int h, int w, float *signal, uint8_t *mask)
{
    const dim3 grid = gather_grid(n, (int64_t)t * h * w);
    gather_transformed_kernel<<<grid, THREADS, 0, l->stream>>>(*cache, drawn, id, n, t, h, w, signal, mask);
    return cudaGetLastError();
}
