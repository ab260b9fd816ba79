/* wgmma, mbarrier and the copy engine (TMA) for kernels compiled for sm_90a.
 *
 * Both operands of wgmma.m64nNk16 lie in shared memory, A (64 x 16) and B (N x 16), as descriptors tell: in core matrices of 8 rows of 16
 * bytes without swizzling, or in swizzled rows.  Each warp of a warpgroup has 16 rows of the sums, laid out as in mma.m16n8k16
 * (conv_mma.cuh).
 *
 * Kernels guard their bodies by FLIM_HOPPER: only sm_90a has these instructions.
 *
 * Between wgmma and wait, the sums' registers belong to the tensor cores: flim_hold keeps the compiler from giving them away.
 */
#ifndef FLIM_CUDA_CONV_WGMMA_CUH
#define FLIM_CUDA_CONV_WGMMA_CUH

#include <cuda.h>

#include "cuda/conv/conv_mma.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define FLIM_HOPPER 1
#else
#define FLIM_HOPPER 0
#endif

/* Descriptor of core matrices, eight k of eight n or m each: bytes to that of the next eight k, and of the next eight n or m. */
__device__ __forceinline__ uint64_t flim_wgmma_descriptor(uint32_t shared, uint32_t next_k, uint32_t next_n)
{
    return (uint64_t)((shared & 0x3ffff) >> 4) | (uint64_t)(next_k >> 4) << 16 | (uint64_t)(next_n >> 4) << 32;
}

/* Descriptor of an operand in rows of SWIZZLE bytes (32, 64 or 128) that lie one after the other, as the copy engine writes them with that
 * swizzle: which 16 bytes of a row lie where depends on the address alone, so an operand may begin at any row.  A row has SWIZZLE / 2
 * values of one m or n, of which the operand takes 16 from any 32 bytes on; or values of as many m or n for one k, and `next` are the bytes
 * from them to the next so many. */
template <int SWIZZLE> __device__ __forceinline__ uint64_t flim_wgmma_rows(uint32_t shared, uint32_t next)
{
    static_assert(SWIZZLE == 32 || SWIZZLE == 64 || SWIZZLE == 128, "a row is one swizzled line");
    return flim_wgmma_descriptor(shared, next, 8 * SWIZZLE) | (SWIZZLE == 128 ? 1ull : SWIZZLE == 64 ? 2ull : 3ull) << 62;
}

template <typename T> constexpr bool flim_is_bf16 = false;
template <> constexpr bool flim_is_bf16<__nv_bfloat16> = true;

/* flim_wgmma<T, BY_K>(d, a, b): d += a b, 64 x N of a warpgroup, N twice the number of d.  BY_K: both operands lie k by k, as the second
 * form of flim_wgmma_rows; else the k's of each m and n are together. */
/* clang-format off */
#define FLIM_D16 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, " \
    "%12, %13, %14, %15"
#define FLIM_D24 FLIM_D16 ", " \
    "%16, %17, %18, %19, %20, %21, %22, %23"
#define FLIM_D32 FLIM_D24 ", " \
    "%24, %25, %26, %27, %28, %29, %30, %31"
#define FLIM_D48 FLIM_D32 ", " \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, " \
    "%44, %45, %46, %47"
#define FLIM_D96 FLIM_D48 ", " \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, " \
    "%60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, " \
    "%72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, " \
    "%84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define FLIM_OUT16 \
    "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), \
    "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), \
    "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), \
    "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
#define FLIM_OUT24 FLIM_OUT16, \
    "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), \
    "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23])
#define FLIM_OUT32 FLIM_OUT24, \
    "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), \
    "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
#define FLIM_OUT48 FLIM_OUT32, \
    "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), \
    "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), \
    "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), \
    "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47])
#define FLIM_OUT96 FLIM_OUT48, \
    "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), \
    "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), \
    "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), \
    "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]), \
    "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), \
    "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71]), \
    "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), \
    "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79]), \
    "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83]), \
    "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87]), \
    "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91]), \
    "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95])
#define FLIM_WGMMA_AS(TYPE, N, D, REST, ...) \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n" \
                 "wgmma.mma_async.sync.aligned.m64n" N "k16.f32." TYPE "." TYPE " {" D "}, " REST ";\n}" \
                 : __VA_ARGS__ \
                 : "l"(a), "l"(b), "n"(BY_K))
/* Of SUMS sums; REST: what follows them among the operands. */
#define FLIM_WGMMA_PRODUCT(SUMS, N, D, REST, ...) \
    template <typename T, int BY_K> __device__ __forceinline__ void flim_wgmma(float (&d)[SUMS], uint64_t a, uint64_t b) \
    { \
        if constexpr (flim_is_bf16<T>) \
            FLIM_WGMMA_AS("bf16", N, D, REST, __VA_ARGS__); \
        else \
            FLIM_WGMMA_AS("f16", N, D, REST, __VA_ARGS__); \
    }
FLIM_WGMMA_PRODUCT(16, "32", FLIM_D16, "%16, %17, p, 1, 1, %18, %18", FLIM_OUT16)
FLIM_WGMMA_PRODUCT(24, "48", FLIM_D24, "%24, %25, p, 1, 1, %26, %26", FLIM_OUT24)
FLIM_WGMMA_PRODUCT(32, "64", FLIM_D32, "%32, %33, p, 1, 1, %34, %34", FLIM_OUT32)
FLIM_WGMMA_PRODUCT(48, "96", FLIM_D48, "%48, %49, p, 1, 1, %50, %50", FLIM_OUT48)
FLIM_WGMMA_PRODUCT(96, "192", FLIM_D96, "%96, %97, p, 1, 1, %98, %98", FLIM_OUT96)
/* clang-format on */

#undef FLIM_D16
#undef FLIM_D24
#undef FLIM_D32
#undef FLIM_D48
#undef FLIM_D96
#undef FLIM_OUT16
#undef FLIM_OUT24
#undef FLIM_OUT32
#undef FLIM_OUT48
#undef FLIM_OUT96
#undef FLIM_WGMMA_AS
#undef FLIM_WGMMA_PRODUCT

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

/* A warpgroup gives away registers down to, or takes them up to, N per thread. */
template <int N> __device__ __forceinline__ void flim_registers_down()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

template <int N> __device__ __forceinline__ void flim_registers_up()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
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

/* Arrives, and expects `bytes` more of the copy engine before the phase is complete. */
__device__ __forceinline__ void flim_barrier_expect(uint32_t barrier, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

/* The copy engine fetches a box of a tensor of five dimensions, zeros where it reaches out of the tensor; its bytes count at the
 * barrier.  By one thread. */
__device__ __forceinline__ void flim_copy_box(uint32_t shared, const CUtensorMap *map, const int (&corner)[5],
                                              uint32_t barrier)
{
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, "
                 "%5, %6}], [%7];" ::"r"(shared),
                 "l"(map), "r"(corner[0]), "r"(corner[1]), "r"(corner[2]), "r"(corner[3]), "r"(corner[4]), "r"(barrier)
                 : "memory");
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
