/* Copies from device memory to shared memory that a thread starts and does not wait for (cp.async), and a thread's own queue of them.
 *
 * Before compute capability 8.0 there is no such copy: there the queue's loads are waited for, and nothing else uses it.
 * For: kernels of this folder and of cuda/conv.  Owns: nothing.
 */
#ifndef FLIM_CUDA_COPY_ASYNC_CUH
#define FLIM_CUDA_COPY_ASYNC_CUH

#include <stdint.h>

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define FLIM_COPY_ASYNC 1
#else
#define FLIM_COPY_ASYNC 0
#endif

__device__ __forceinline__ uint32_t flim_shared(const void *pointer)
{
    return (uint32_t)__cvta_generic_to_shared(pointer);
}

/* 16 bytes to shared memory; zeros if !valid (src must still be an address). */
__device__ __forceinline__ void flim_copy_async(uint32_t dst, const void *src, bool valid)
{
#if FLIM_COPY_ASYNC
    const int bytes = valid ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(dst), "l"(src), "r"(bytes) : "memory");
#endif
}

/* 4 bytes, at an address that is a multiple of 4. */
__device__ __forceinline__ void flim_copy_async_word(uint32_t dst, const void *src)
{
#if FLIM_COPY_ASYNC
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(dst), "l"(src) : "memory");
#endif
}

__device__ __forceinline__ void flim_copy_commit()
{
#if FLIM_COPY_ASYNC
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

/* Waits until at most N of this thread's latest groups are under way. */
template <int N> __device__ __forceinline__ void flim_copy_wait()
{
#if FLIM_COPY_ASYNC
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
#endif
}

/* What a thread loads for a pixel, VECTORS of 16 bytes and WORDS (0 or 1) of 4, as many pixels ahead as the registers would not hold.
 * Each thread has slots of its own, so no barrier is needed.  Blocks have 256 threads at most; the slots take 48 KB at most, which
 * every card grants without being asked. */
template <int VECTORS, int WORDS> struct load_queue {
    enum {
        THREADS = 256,
        PIXEL_BYTES = 16 * VECTORS + 4 * WORDS, /* a thread and pixel */
        FIT = 48 * 1024 / (THREADS * (PIXEL_BYTES > 0 ? PIXEL_BYTES : 1)),
        DEPTH = FIT > 4 ? 4 : FIT, /* pixels */
        BYTES = DEPTH * THREADS * PIXEL_BYTES
    };
    char *slot; /* of this thread: [pixel][vector][thread] 16 bytes, then [pixel][thread] 4 */

    __device__ __forceinline__ explicit load_queue(void *shared) : slot(static_cast<char *>(shared) + 16 * threadIdx.x)
    {
    }

    __device__ __forceinline__ char *vector_slot(int pixel, int vector) const
    {
        return slot + (pixel * VECTORS + vector) * THREADS * 16;
    }
    __device__ __forceinline__ char *word_slot(int pixel) const
    {
        return slot + DEPTH * VECTORS * THREADS * 16 - 12 * threadIdx.x + pixel * THREADS * 4;
    }
    __device__ __forceinline__ void load(int pixel, int vector, const void *from, bool valid) const
    {
#if FLIM_COPY_ASYNC
        flim_copy_async(flim_shared(vector_slot(pixel, vector)), from, valid);
#else
        *reinterpret_cast<uint4 *>(vector_slot(pixel, vector)) =
            valid ? *static_cast<const uint4 *>(from) : make_uint4(0, 0, 0, 0);
#endif
    }
    __device__ __forceinline__ void load_word(int pixel, const void *from) const
    {
#if FLIM_COPY_ASYNC
        flim_copy_async_word(flim_shared(word_slot(pixel)), from);
#else
        *reinterpret_cast<uint32_t *>(word_slot(pixel)) = *static_cast<const uint32_t *>(from);
#endif
    }
    __device__ __forceinline__ uint4 vector(int pixel, int vector) const
    {
        return *reinterpret_cast<const uint4 *>(vector_slot(pixel, vector));
    }
    __device__ __forceinline__ uint32_t word(int pixel) const
    {
        return *reinterpret_cast<const uint32_t *>(word_slot(pixel));
    }

    /* issue(pixel slot, q) starts the loads of q, use(pixel slot, q) takes them: for q = first, first + step, ... below end. */
    template <typename ISSUE, typename USE>
    static __device__ __forceinline__ void walk(unsigned first, unsigned end, unsigned step, ISSUE issue, USE use)
    {
        static_assert(DEPTH >= 2, "nothing would be on its way while a pixel is used");
        unsigned next = first;
#pragma unroll
        for (int ahead = 0; ahead < DEPTH - 1; ahead++, next += step) {
            if (next < end)
                issue(ahead, next);
            flim_copy_commit();
        }
        int now = 0, free = DEPTH - 1;
        for (unsigned q = first; q < end; q += step, next += step) {
            if (next < end)
                issue(free, next);
            flim_copy_commit();
            flim_copy_wait<DEPTH - 1>();
            use(now, q);
            free = now;
            now = now + 1 == DEPTH ? 0 : now + 1;
        }
    }
};

#endif
