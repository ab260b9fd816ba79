/* Warp-level building blocks of the convolution kernels: 16-bit packing, mma.sync, ldmatrix, movmatrix.
 *
 * Fragments of mma.m16n8k16 (PTX ISA), lane = 4 g + q, a register holds two 16-bit values, the lower index in the lower half:
 *   A (16 x 16): a[0] (g, 2q..) a[1] (g+8, 2q..) a[2] (g, 2q+8..) a[3] (g+8, 2q+8..)
 *   B (16 x 8):  b0 (2q.., g)   b1 (2q+8.., g)
 *   C (16 x 8):  c[0], c[1] (g, 2q..)  c[2], c[3] (g+8, 2q..)
 * So two neighbouring C tiles, packed, are the A operand of a product over their columns: a chain of products needs no shared
 * memory as long as the rows stay.
 *
 * All of it needs compute capability 8.0; older targets compile to a trap, and the callers' _supported functions say no.
 */
#ifndef FLIM_CUDA_CONV_MMA_CUH
#define FLIM_CUDA_CONV_MMA_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

#include "cuda/kernels/copy_async.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
#define FLIM_MMA 1
#else
#define FLIM_MMA 0
#endif

#define FLIM_SLOPE 0.01f

/* (lo, hi) rounded to nearest even and packed. */
template <typename T> __device__ __forceinline__ uint32_t flim_pack(float lo, float hi);

template <> __device__ __forceinline__ uint32_t flim_pack<__half>(float lo, float hi)
{
    const __half2 v = __floats2half2_rn(lo, hi);
    return *reinterpret_cast<const uint32_t *>(&v);
}

template <> __device__ __forceinline__ uint32_t flim_pack<__nv_bfloat16>(float lo, float hi)
{
#if FLIM_MMA
    const __nv_bfloat162 v = __floats2bfloat162_rn(lo, hi);
    return *reinterpret_cast<const uint32_t *>(&v);
#else
    return 0;
#endif
}

template <typename T> __device__ __forceinline__ float2 flim_unpack(uint32_t v);

template <> __device__ __forceinline__ float2 flim_unpack<__half>(uint32_t v)
{
    return __half22float2(*reinterpret_cast<const __half2 *>(&v));
}

template <> __device__ __forceinline__ float2 flim_unpack<__nv_bfloat16>(uint32_t v)
{
    return make_float2(__uint_as_float(v << 16), __uint_as_float(v & 0xffff0000u));
}

/* v rounded to T. */
template <typename T> __device__ __forceinline__ float flim_round(float v)
{
    return flim_unpack<T>(flim_pack<T>(v, 0.0f)).x;
}

__device__ __forceinline__ float flim_leaky(float u)
{
    return fmaxf(u, FLIM_SLOPE * u);
}

/* c += a b */
template <typename T>
__device__ __forceinline__ void flim_mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);

template <> __device__ __forceinline__ void flim_mma<__half>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
#if FLIM_MMA
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
    __trap();
#endif
}

template <>
__device__ __forceinline__ void flim_mma<__nv_bfloat16>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
#if FLIM_MMA
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
    __trap();
#endif
}

/* Four 8 x 8 matrices; lane i gives the address of row i % 8 of matrix i / 8 (16 bytes, aligned). */
__device__ __forceinline__ void flim_ldmatrix(uint32_t (&r)[4], uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

__device__ __forceinline__ void flim_ldmatrix_trans(uint32_t (&r)[4], uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

__device__ __forceinline__ void flim_ldmatrix2_trans(uint32_t &r0, uint32_t &r1, uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
                 : "=r"(r0), "=r"(r1)
                 : "r"(address)
                 : "memory");
}

/* Transposes an 8 x 8 matrix held one row a quad. */
__device__ __forceinline__ uint32_t flim_transpose(uint32_t v)
{
    uint32_t r;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(r) : "r"(v));
    return r;
}

/* Barrier `id` (1..15) of `threads` threads of the block. */
__device__ __forceinline__ void flim_barrier(int id, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/* The line of memory at `at` is on its way to the L2 cache. */
__device__ __forceinline__ void flim_prefetch(const void *at)
{
    asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
}

/* The previous unit's BatchNorm and activation on 8 channels. */
template <typename T> __device__ __forceinline__ void flim_activate8(uint4 &v, const float *scales, const float *shifts)
{
    uint32_t *word = &v.x;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        const float2 z = flim_unpack<T>(word[k]);
        const float2 scale = reinterpret_cast<const float2 *>(scales)[k];
        const float2 shift = reinterpret_cast<const float2 *>(shifts)[k];
        word[k] = flim_pack<T>(flim_leaky(z.x * scale.x + shift.x), flim_leaky(z.y * scale.y + shift.y));
    }
}

/* The same on a staged chunk, in place. */
template <typename T>
__device__ __forceinline__ void flim_activate_chunk(char *chunk, const float *scales, const float *shifts)
{
    uint4 *at = reinterpret_cast<uint4 *>(chunk);
    uint4 v = *at;
    flim_activate8<T>(v, scales, shifts);
    *at = v;
}

#endif
