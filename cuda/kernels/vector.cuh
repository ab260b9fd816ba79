/* Eight channels at a time: loads, stores and conversions of the three storage types. */
#ifndef FLIM_CUDA_VECTOR_CUH
#define FLIM_CUDA_VECTOR_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuda/kernels/kernels.h"

struct float8 {
    float v[8];
};

template <typename T> __device__ __forceinline__ float8 load8(const T *at);
template <typename T> __device__ __forceinline__ void store8(T *at, const float8 &x);

template <> __device__ __forceinline__ float8 load8<float>(const float *at)
{
    float4 a = reinterpret_cast<const float4 *>(at)[0], b = reinterpret_cast<const float4 *>(at)[1];
    return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
}

template <> __device__ __forceinline__ void store8<float>(float *at, const float8 &x)
{
    reinterpret_cast<float4 *>(at)[0] = make_float4(x.v[0], x.v[1], x.v[2], x.v[3]);
    reinterpret_cast<float4 *>(at)[1] = make_float4(x.v[4], x.v[5], x.v[6], x.v[7]);
}

template <> __device__ __forceinline__ float8 load8<__half>(const __half *at)
{
    uint4 raw = *reinterpret_cast<const uint4 *>(at);
    const __half2 *h = reinterpret_cast<const __half2 *>(&raw);
    float8 out;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float2 f = __half22float2(h[i]);
        out.v[2 * i] = f.x;
        out.v[2 * i + 1] = f.y;
    }
    return out;
}

template <> __device__ __forceinline__ void store8<__half>(__half *at, const float8 &x)
{
    uint4 raw;
    __half2 *h = reinterpret_cast<__half2 *>(&raw);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        h[i] = __floats2half2_rn(x.v[2 * i], x.v[2 * i + 1]);
    }
    *reinterpret_cast<uint4 *>(at) = raw;
}

template <> __device__ __forceinline__ float8 load8<__nv_bfloat16>(const __nv_bfloat16 *at)
{
    uint4 raw = *reinterpret_cast<const uint4 *>(at);
    const unsigned *u = reinterpret_cast<const unsigned *>(&raw);
    float8 out;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        out.v[2 * i] = __uint_as_float(u[i] << 16);
        out.v[2 * i + 1] = __uint_as_float(u[i] & 0xffff0000u);
    }
    return out;
}

template <> __device__ __forceinline__ void store8<__nv_bfloat16>(__nv_bfloat16 *at, const float8 &x)
{
    uint4 raw;
    __nv_bfloat162 *h = reinterpret_cast<__nv_bfloat162 *>(&raw);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        h[i] = __floats2bfloat162_rn(x.v[2 * i], x.v[2 * i + 1]);
    }
    *reinterpret_cast<uint4 *>(at) = raw;
}

__device__ __forceinline__ float to_float(float x)
{
    return x;
}
__device__ __forceinline__ float to_float(__half x)
{
    return __half2float(x);
}
__device__ __forceinline__ float to_float(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}
template <typename T> __device__ __forceinline__ T from_float(float x);
template <> __device__ __forceinline__ float from_float<float>(float x)
{
    return x;
}
template <> __device__ __forceinline__ __half from_float<__half>(float x)
{
    return __float2half_rn(x);
}
template <> __device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float x)
{
    return __float2bfloat16_rn(x);
}

/* Runs CALL with T as the storage type. */
#define FLIM_BY_TYPE(type, CALL)                                                                                             \
    switch (type) {                                                                                                          \
    case FLIM_STORAGE_FP32: {                                                                                                \
        using T = float;                                                                                                     \
        CALL;                                                                                                                \
        break;                                                                                                               \
    }                                                                                                                        \
    case FLIM_STORAGE_FP16: {                                                                                                \
        using T = __half;                                                                                                    \
        CALL;                                                                                                                \
        break;                                                                                                               \
    }                                                                                                                        \
    case FLIM_STORAGE_BF16: {                                                                                                \
        using T = __nv_bfloat16;                                                                                             \
        CALL;                                                                                                                \
        break;                                                                                                               \
    }                                                                                                                        \
    }

#endif
