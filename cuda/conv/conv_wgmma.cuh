/* wgmma and mbarrier for kernels compiled for sm_90a.
 *
 * Fragments of wgmma.m64nNk16 with A in registers: each warp of a warpgroup has 16 rows of A and of the sums, laid out as in
 * mma.m16n8k16 (conv_mma.cuh), whatever rows of a tensor they are.  B (N x 16) lies in shared memory as core matrices of 8 x 8
 * (128 bytes), without swizzling: eight n of eight k each, or (N_MAJOR) eight k of eight n.
 *
 * Kernels guard their bodies by FLIM_HOPPER: only sm_90a has these instructions.
 *
 * Between wgmma and wait, registers of A and of the sums belong to the tensor cores: flim_hold keeps the compiler from giving
 * them away.
 */
#ifndef FLIM_CUDA_CONV_WGMMA_CUH
#define FLIM_CUDA_CONV_WGMMA_CUH

#include "cuda/conv/conv_mma.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define FLIM_HOPPER 1
#else
#define FLIM_HOPPER 0
#endif

/* Descriptor of B: bytes to the core matrix of the next eight k, and of the next eight n. */
__device__ __forceinline__ uint64_t flim_wgmma_descriptor(uint32_t shared, uint32_t next_k, uint32_t next_n)
{
    return (uint64_t)((shared & 0x3ffff) >> 4) | (uint64_t)(next_k >> 4) << 16 | (uint64_t)(next_n >> 4) << 32;
}

template <typename T> constexpr bool flim_is_bf16 = false;
template <> constexpr bool flim_is_bf16<__nv_bfloat16> = true;

/* d += a b: 64 x N of a warpgroup, N twice the number of d.  N_MAJOR: B lies n by n for each k. */
/* clang-format off */
#define FLIM_WGMMA_N48(TYPE) \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n" \
                 "wgmma.mma_async.sync.aligned.m64n48k16.f32." TYPE "." TYPE " {" \
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, " \
                 "%12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23}, " \
                 "{%24, %25, %26, %27}, %28, p, 1, 1, %29;\n}" \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), \
                   "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), \
                   "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), \
                   "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]) \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(N_MAJOR))

template <typename T, int N_MAJOR = 0>
__device__ __forceinline__ void flim_wgmma(float (&d)[24], const uint32_t (&a)[4], uint64_t b)
{
    if constexpr (flim_is_bf16<T>)
        FLIM_WGMMA_N48("bf16");
    else
        FLIM_WGMMA_N48("f16");
}

#define FLIM_WGMMA_N96(TYPE) \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n" \
                 "wgmma.mma_async.sync.aligned.m64n96k16.f32." TYPE "." TYPE " {" \
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, " \
                 "%12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, " \
                 "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, " \
                 "%36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47}, " \
                 "{%48, %49, %50, %51}, %52, p, 1, 1, %53;\n}" \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), \
                   "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), \
                   "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), \
                   "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), \
                   "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), \
                   "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), \
                   "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), \
                   "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]) \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(N_MAJOR))

template <typename T, int N_MAJOR = 0>
__device__ __forceinline__ void flim_wgmma(float (&d)[48], const uint32_t (&a)[4], uint64_t b)
{
    if constexpr (flim_is_bf16<T>)
        FLIM_WGMMA_N96("bf16");
    else
        FLIM_WGMMA_N96("f16");
}

#undef FLIM_WGMMA_N48
#undef FLIM_WGMMA_N96
/* clang-format on */

__device__ __forceinline__ void flim_wgmma_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void flim_wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int N> __device__ __forceinline__ void flim_wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

template <int N> __device__ __forceinline__ void flim_hold(float (&v)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+f"(v[i])::"memory");
}

__device__ __forceinline__ void flim_hold(uint32_t (&v)[4])
{
    asm volatile("" : "+r"(v[0]), "+r"(v[1]), "+r"(v[2]), "+r"(v[3])::"memory");
}

/* What this thread has written to shared memory is seen by wgmma after the next barrier. */
__device__ __forceinline__ void flim_fence_proxy()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void flim_barrier_init(uint32_t barrier, int threads)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(threads) : "memory");
}

__device__ __forceinline__ void flim_barrier_arrive(uint32_t barrier)
{
    asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared::cta.b64 state, [%0];\n}" ::"r"(barrier) : "memory");
}

/* Until the phase of this parity is complete. */
__device__ __forceinline__ void flim_barrier_wait(uint32_t barrier, int parity)
{
    uint32_t done = 0;
    while (!done)
        asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                     : "=r"(done)
                     : "r"(barrier), "r"(parity)
                     : "memory");
}

/* Comes to named barrier `id` of `threads` threads without waiting; flim_barrier waits. */
__device__ __forceinline__ void flim_barrier_pass(int id, int threads)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

#endif
