/* What kernels share whose tensors come by the copy engine (TMA), slice by slice in a ring of shared memory.
 *
 * A slice is a list of slots: a position's channels, 32, 64 or 128 bytes, 16-byte chunks swizzled by the slot's number as the engine does
 * it (the slice begins at a multiple of 1024 bytes).  Threads that neither copy nor multiply may apply the previous unit's BatchNorm
 * and activation to a slice before it is read.
 *
 * Compiled for sm_90a.
 */
#ifndef FLIM_CUDA_CONV_TMA_CUH
#define FLIM_CUDA_CONV_TMA_CUH

#include "cuda/conv/conv_wgmma.cuh"

enum {
    FLIM_TMA_LINE = 1024, /* bytes after which every swizzle repeats */
    FLIM_TMA_GROUP = 128, /* threads of a warpgroup */
    FLIM_TMA_GROUPS = 3, /* that multiply; of one more, the first thread orders copies */
    FLIM_TMA_THREADS = (FLIM_TMA_GROUPS + 1) * FLIM_TMA_GROUP,
    FLIM_TMA_ACTIVATING = FLIM_TMA_GROUP - 32 /* threads of its other warps, which may apply the activation */
};

/* The first line of a block's dynamic shared memory, which is asked for with a line more. */
__device__ __forceinline__ char *flim_tma_memory(char *memory)
{
    return memory + (FLIM_TMA_LINE - flim_shared(memory) % FLIM_TMA_LINE) % FLIM_TMA_LINE;
}

/* The barriers of a ring of at most MOST slices: a slice has come, all that multiply have read it, and (if READY) the activation is on
 * it. */
template <int MOST, bool READY> struct flim_ring_barriers {
    static constexpr int BYTES = (2 + READY) * MOST * 8;
    uint32_t at;
    __device__ __forceinline__ uint32_t there(int place) const
    {
        return at + 8 * place;
    }
    __device__ __forceinline__ uint32_t read(int place) const
    {
        return at + 8 * (MOST + place);
    }
    __device__ __forceinline__ uint32_t ready(int place) const
    {
        static_assert(READY, "the ring has such barriers");
        return at + 8 * (2 * MOST + place);
    }
    __device__ __forceinline__ void init() const
    {
        for (int i = 0; i < MOST; i++) {
            flim_barrier_init(there(i), 1);
            flim_barrier_init(read(i), FLIM_TMA_GROUPS * 4);
            if constexpr (READY)
                flim_barrier_init(ready(i), FLIM_TMA_ACTIVATING);
        }
    }
};

/* A place in a ring of slices, and the parity of the round it is in. */
struct flim_turn {
    int place = 0;
    uint32_t parity = 0;
    __device__ __forceinline__ void step(int ring)
    {
        if (++place == ring) {
            place = 0;
            parity ^= 1;
        }
    }
};

/* How THREADS threads share the chunks of slots of C channels: each has one chunk of every STEP-th slot. */
template <int C, int THREADS> struct flim_slot_share {
    static constexpr int CHUNKS = C / 8, STEP = THREADS / CHUNKS, MOST = 64 * STEP; /* slots: bits of `mine` */
    static_assert(STEP * CHUNKS == THREADS, "every thread has a chunk");

    static __device__ __forceinline__ int first(int thread)
    {
        return thread / CHUNKS;
    }
    /* Of a thread's 8 channels. */
    static __device__ __forceinline__ void constants(const float *from, int thread, float (&out)[8])
    {
#pragma unroll
        for (int i = 0; i < 8; i++)
            out[i] = from[thread % CHUNKS * 8 + i];
    }
    static __device__ __forceinline__ uint4 *chunk_of(char *slice, int thread, int i)
    {
        const int slot = first(thread) + i * STEP, fold = CHUNKS == 2   ? slot >> 2 & 1
                                                          : CHUNKS == 4 ? slot >> 1 & 3
                                                                        : slot & 7;
        return reinterpret_cast<uint4 *>(slice + slot * 2 * C + ((thread % CHUNKS ^ fold) << 4));
    }
    /* The activation on a thread's chunks; bit i of `mine`: of its i-th.  AT_ONCE of them are under way: a load takes hundreds of clocks
     * beside the products'. */
    template <typename T, int AT_ONCE>
    static __device__ __forceinline__ void activate(char *slice, int thread, uint64_t mine, const float (&scale)[8],
                                                    const float (&shift)[8])
    {
#pragma unroll 1
        for (int from = 0; mine; from += AT_ONCE, mine >>= AT_ONCE) {
            uint4 v[AT_ONCE];
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++)
                if (mine >> i & 1)
                    v[i] = *chunk_of(slice, thread, from + i);
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++)
                if (mine >> i & 1) {
                    flim_activate8<T>(v[i], scale, shift);
                    *chunk_of(slice, thread, from + i) = v[i];
                }
        }
    }
};

#endif
