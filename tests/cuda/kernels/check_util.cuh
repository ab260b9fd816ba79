/* Helpers of conv_check: random device data, comparison in double, timing.  A failed CUDA call ends the program. */
#ifndef FLIM_CHECK_UTIL_CUH
#define FLIM_CHECK_UTIL_CUH

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <cuda_runtime.h>

#include "cuda/conv/conv_mma.cuh"
#include "cuda/conv/conv_arguments.h"
#include "flim/device.h"

#define CHECK(call)                                                                                                          \
    do {                                                                                                                     \
        const cudaError_t error_ = (call);                                                                                   \
        if (error_ != cudaSuccess) {                                                                                         \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(error_));                       \
            exit(1);                                                                                                         \
        }                                                                                                                    \
    } while (0)

/* The card as the kernels take it, or what --card says of it. */
flim_card &check_card();

template <typename T> __global__ void multiply(T *data, int64_t count, float by)
{
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < count; i += (int64_t)gridDim.x * blockDim.x)
        data[i] = (T)((float)data[i] * by);
}

/* Device memory, filled with NaN patterns (0xff) so that unwritten outputs show. */
template <typename T> struct device_array {
    T *data = nullptr;
    int64_t count = 0;
    explicit device_array(int64_t n) : count(n)
    {
        CHECK(cudaMalloc(&data, sizeof(T) * (size_t)std::max<int64_t>(n, 1)));
        poison();
    }
    ~device_array()
    {
        cudaFree(data);
    }
    device_array(const device_array &) = delete;
    device_array &operator=(const device_array &) = delete;
    void poison()
    {
        CHECK(cudaMemset(data, 0xff, sizeof(T) * (size_t)std::max<int64_t>(count, 1)));
    }
    std::vector<T> host() const
    {
        std::vector<T> v((size_t)count);
        CHECK(cudaMemcpy(v.data(), data, sizeof(T) * (size_t)count, cudaMemcpyDeviceToHost));
        return v;
    }
    operator T *() const
    {
        return data;
    }
};

__device__ __forceinline__ uint32_t hash32(uint64_t x)
{
    x ^= x >> 33, x *= 0xff51afd7ed558ccdull, x ^= x >> 33, x *= 0xc4ceb9fe1a85ec53ull, x ^= x >> 33;
    return (uint32_t)x;
}

__device__ __forceinline__ float unit(uint64_t x)
{
    return (float)(hash32(x) >> 8) * (1.0f / 16777216.0f);
}

/* About normal (sum of four uniforms), times scale, plus offset. */
template <typename T> __global__ void fill_normal(T *out, int64_t count, float scale, float offset, uint64_t seed)
{
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < count; i += (int64_t)gridDim.x * blockDim.x) {
        const uint64_t key = ((uint64_t)i * 4) ^ (seed << 40);
        const float v = (unit(key) + unit(key + 1) + unit(key + 2) + unit(key + 3) - 2.0f) * 1.7320508f;
        out[i] = (T)(v * scale + offset);
    }
}

template <typename T> void random_normal(device_array<T> &a, float scale, float offset, uint64_t seed)
{
    fill_normal<T><<<1024, 256>>>(a.data, a.count, scale, offset, seed);
    CHECK(cudaGetLastError());
}

static __global__ void fill_bytes(uint8_t *out, int64_t count, float share, uint64_t seed)
{
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < count; i += (int64_t)gridDim.x * blockDim.x)
        out[i] = unit((uint64_t)i ^ (seed << 40)) < share;
}

struct difference {
    double relative; /* ||a - b|| / ||b|| */
    double worst; /* max |a - b| / max |b| */
    bool finite;
};

template <typename A, typename B> difference compare(const device_array<A> &a, const device_array<B> &b)
{
    const std::vector<A> x = a.host();
    const std::vector<B> y = b.host();
    double num = 0, den = 0, worst = 0, largest = 0;
    bool finite = true;
    for (size_t i = 0; i < y.size(); i++) {
        const double u = (double)(float)x[i], v = (double)y[i];
        finite = finite && std::isfinite(u);
        num += (u - v) * (u - v);
        den += v * v;
        worst = std::max(worst, std::fabs(u - v));
        largest = std::max(largest, std::fabs(v));
    }
    return {den > 0 ? std::sqrt(num / den) : std::sqrt(num), largest > 0 ? worst / largest : worst, finite};
}

template <typename A> bool same_bits(const std::vector<A> &a, const std::vector<A> &b)
{
    return a.size() == b.size() && memcmp(a.data(), b.data(), a.size() * sizeof(A)) == 0;
}

/* Median ms of `run` over 20 calls after 3. */
template <typename F> float median_ms(F run)
{
    cudaEvent_t start, stop;
    CHECK(cudaEventCreate(&start));
    CHECK(cudaEventCreate(&stop));
    for (int i = 0; i < 3; i++)
        run();
    std::vector<float> ms;
    for (int i = 0; i < 20; i++) {
        float v;
        CHECK(cudaEventRecord(start));
        run();
        CHECK(cudaEventRecord(stop));
        CHECK(cudaEventSynchronize(stop));
        CHECK(cudaEventElapsedTime(&v, start, stop));
        ms.push_back(v);
    }
    CHECK(cudaEventDestroy(start));
    CHECK(cudaEventDestroy(stop));
    std::sort(ms.begin(), ms.end());
    return ms[ms.size() / 2];
}

#endif
