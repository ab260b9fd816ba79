/* What the forward and the backward kernels of a unit's tail share, so that both see the same bits of v. */
#ifndef FLIM_CUDA_TAIL_CUH
#define FLIM_CUDA_TAIL_CUH

#include "vector.cuh"

#define SLOPE 0.01f

struct affine8 {
    float8 mean, scale, shift;
};

__device__ __forceinline__ affine8 load_affine(const flim_affine &a, int channel)
{
    return {load8<float>(a.mean + channel), load8<float>(a.scale + channel), load8<float>(a.shift + channel)};
}

/* v of one position: affine(z), plus the skip as it is or normalised.  zc, sc: z and skip about their means. */
template <int SKIP> __device__ __forceinline__ float tail_value(float zc, float sc, const affine8 &a, const affine8 &s, int i)
{
    float v = fmaf(zc, a.scale.v[i], a.shift.v[i]);
    if (SKIP == FLIM_SKIP_PLAIN) {
        v += sc;
    } else if (SKIP == FLIM_SKIP_NORMALISED) {
        v += fmaf(sc, s.scale.v[i], s.shift.v[i]);
    }
    return v;
}

template <typename T> __device__ __forceinline__ float8 load_centred(const T *at, const float8 &mean)
{
    float8 x = load8<T>(at);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        x.v[i] -= mean.v[i];
    }
    return x;
}

/* The skip operand: nothing, the tensor as it is, or z_skip about its mean. */
template <typename T, int SKIP> __device__ __forceinline__ float8 load_skip(const T *at, const affine8 &s)
{
    if (SKIP == FLIM_SKIP_NORMALISED) {
        return load_centred<T>(at, s.mean);
    }
    if (SKIP == FLIM_SKIP_PLAIN) {
        return load8<T>(at);
    }
    return {{0, 0, 0, 0, 0, 0, 0, 0}};
}

/* Sums acc[s][8] over the threads of a block that hold the same channels, in a fixed order; plane s of `partial` ([C][blocks])
 * gets this block's sums.  shared: 8 floats a thread. */
template <int SUMS>
__device__ void block_sums(float (&acc)[SUMS][8], int c, int64_t blocks, int64_t block, float *shared, float *partial)
{
    const int vectors = c / 8, tid = threadIdx.x, vector = tid % vectors;
    const bool in_warp = vectors < 32 && (vectors & (vectors - 1)) == 0;
    const int rows = in_warp ? (int)blockDim.x / 32 : (int)blockDim.x / vectors;
    const int row = in_warp ? tid / 32 : tid / vectors;
    const bool writes = !in_warp || (tid & 31) < vectors;
#pragma unroll
    for (int s = 0; s < SUMS; s++) {
        if (in_warp) {
#pragma unroll
            for (int i = 0; i < 8; i++) {
                for (int offset = vectors; offset < 32; offset *= 2) {
                    acc[s][i] += __shfl_xor_sync(0xffffffffu, acc[s][i], offset);
                }
            }
        }
        __syncthreads();
        if (writes) {
#pragma unroll
            for (int i = 0; i < 8; i++) {
                shared[row * c + vector * 8 + i] = acc[s][i];
            }
        }
        __syncthreads();
        for (int k = tid; k < c; k += blockDim.x) {
            float sum = 0;
            for (int r = 0; r < rows; r++) {
                sum += shared[r * c + k];
            }
            partial[((int64_t)s * c + k) * blocks + block] = sum;
        }
    }
}

/* Runs CALL with constants SKIP and POOL. */
#define FLIM_BY_SHAPE(skip, pool, CALL)                                                                                      \
    if ((pool) == 1) {                                                                                                       \
        constexpr int POOL = 1;                                                                                              \
        FLIM_BY_SKIP(skip, CALL)                                                                                             \
    } else {                                                                                                                 \
        constexpr int POOL = 2;                                                                                              \
        FLIM_BY_SKIP(skip, CALL)                                                                                             \
    }
#define FLIM_BY_SKIP(skip, CALL)                                                                                             \
    if ((skip) == FLIM_SKIP_NONE) {                                                                                          \
        constexpr int SKIP = FLIM_SKIP_NONE;                                                                                 \
        CALL;                                                                                                                \
    } else if ((skip) == FLIM_SKIP_PLAIN) {                                                                                  \
        constexpr int SKIP = FLIM_SKIP_PLAIN;                                                                                \
        CALL;                                                                                                                \
    } else {                                                                                                                 \
        constexpr int SKIP = FLIM_SKIP_NORMALISED;                                                                           \
        CALL;                                                                                                                \
    }

#endif
