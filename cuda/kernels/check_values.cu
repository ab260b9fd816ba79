/* Random data, and a count of values that are not finite: for measurements and checks. */
#include "cuda/kernels/vector.cuh"

__device__ static float hash_value(uint32_t i, uint32_t seed)
{
    uint32_t x = i * 0x9E3779B9u + seed * 0x85EBCA6Bu;
    x ^= x >> 16;
    x *= 0x7FEB352Du;
    x ^= x >> 15;
    x *= 0x846CA68Bu;
    x ^= x >> 16;
    return (float)(int32_t)x * (1.0f / 2147483648.0f);
}

template <typename T> __global__ void fill_kernel(T *data, int64_t count, uint32_t seed)
{
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < count; i += (int64_t)gridDim.x * blockDim.x) {
        data[i] = from_float<T>(hash_value((uint32_t)i, seed));
    }
}

cudaError_t flim_k_fill(const flim_launch *l, void *data, int64_t count, uint32_t seed)
{
    FLIM_BY_TYPE(l->type, (fill_kernel<T><<<(unsigned)l->processors * 8, 256, 0, l->stream>>>((T *)data, count, seed)));
    return cudaGetLastError();
}

template <typename T> __global__ void nonfinite_kernel(const T *data, int64_t count, unsigned long long *nonfinite)
{
    unsigned long long mine = 0;
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < count; i += (int64_t)gridDim.x * blockDim.x) {
        mine += !isfinite(to_float(data[i]));
    }
    if (mine) {
        atomicAdd(nonfinite, mine);
    }
}

cudaError_t flim_k_count_nonfinite(const flim_launch *l, const void *data, int64_t count, unsigned long long *nonfinite)
{
    FLIM_BY_TYPE(l->type, (nonfinite_kernel<T>
                           <<<(unsigned)l->processors * 8, 256, 0, l->stream>>>((const T *)data, count, nonfinite)));
    return cudaGetLastError();
}
