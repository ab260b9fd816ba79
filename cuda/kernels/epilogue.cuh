/* What the forward and the backward kernels of a unit's epilogue share, so that both see the same bits of v. */
#ifndef FLIM_CUDA_EPILOGUE_CUH
#define FLIM_CUDA_EPILOGUE_CUH

#include "cuda/kernels/divisor.cuh"
#include "cuda/kernels/vector.cuh"
#include "flim/network.h"

/* Eight channels as they lie in memory: loads are issued in this form, many at a time, and unpacked when they are used. */
template <typename T> struct raw8 {
    uint4 bits;
};
template <> struct raw8<float> {
    float4 low, high;
};

template <typename T> __device__ __forceinline__ raw8<T> load_raw(const T *at)
{
    return {*reinterpret_cast<const uint4 *>(at)};
}
template <> __device__ __forceinline__ raw8<float> load_raw<float>(const float *at)
{
    return {reinterpret_cast<const float4 *>(at)[0], reinterpret_cast<const float4 *>(at)[1]};
}
template <typename T> __device__ __forceinline__ float8 unpack(const raw8<T> &raw)
{
    return load8<T>(reinterpret_cast<const T *>(&raw));
}

/* Which pixels and channels a thread walks.  A block stays within one cell; threads hold 8 channels each.  Tensors of more
 * than 2048 channels take several blocks (grid.y). */
struct walk {
    int c, vectors, lanes, lane, channel; /* vectors: of the block */
    int64_t cell;
    unsigned begin, end;

    /* reversed: the blocks take the cells and their parts last to first. */
    __device__ __forceinline__ walk(const flim_blocks &b, int channels, bool reversed)
    {
        const unsigned block = reversed ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
        const int all = channels / 8, first = blockIdx.y * 256;
        c = channels;
        vectors = all < 256 ? all : 256;
        lanes = blockDim.x / vectors;
        lane = threadIdx.x / vectors;
        const int vector = first + threadIdx.x % vectors;
        const bool inside = vector < all;
        channel = (inside ? vector : all - 1) * 8;
        cell = block / b.chunks;
        begin = (unsigned)(block % b.chunks * b.chunk);
        end = (unsigned)(begin + b.chunk < b.pixels ? begin + b.chunk : b.pixels);
        if (!inside) {
            end = 0; /* nothing to do, but present at the block's barriers */
        }
    }
};

static inline dim3 walk_grid(const flim_blocks &b, int c)
{
    return dim3((unsigned)b.blocks, (unsigned)((c / 8 + 255) / 256));
}

static inline int walk_threads(int c)
{
    const int vectors = c / 8;
    return vectors >= 256 ? 256 : 256 / vectors * vectors;
}

/* v = z * scale + shift. */
struct affine8 {
    float8 scale, shift;
};

__device__ __forceinline__ affine8 load_affine(const flim_affine &a, int channel)
{
    return {load8<float>(a.scale + channel), load8<float>(a.shift + channel)};
}

/* v of one position: affine(z), plus the skip as it is or normalised. */
template <int SKIP>
__device__ __forceinline__ float epilogue_value(float z, float s, const affine8 &a, const affine8 &sa, int i)
{
    float v = fmaf(z, a.scale.v[i], a.shift.v[i]);
    if (SKIP == FLIM_SKIP_PLAIN) {
        v += s;
    } else if (SKIP == FLIM_SKIP_NORMALISED) {
        v += fmaf(s, sa.scale.v[i], sa.shift.v[i]);
    } else if (SKIP == FLIM_SKIP_ACTIVATED) {
        const float u = fmaf(s, sa.scale.v[i], sa.shift.v[i]);
        v += u > 0 ? u : u * FLIM_LEAKY_SLOPE;
    }
    return v;
}

/* The same in the backward pass; with a sign mask any value of its sign, which the forward pass noted as bit i. */
template <int SKIP>
__device__ __forceinline__ float epilogue_value_backward(unsigned bits, float z, float s, const affine8 &a, const affine8 &sa,
                                                         int i)
{
    return SKIP == FLIM_SKIP_SIGN_MASK ? (bits >> i & 1u ? 1.0f : -1.0f) : epilogue_value<SKIP>(z, s, a, sa, i);
}

/* First pixel of z behind pixel q of y. */
template <int POOL> __device__ __forceinline__ unsigned pooled_from(unsigned q, const divisor &hw)
{
    return POOL == 1 ? q : q + (unsigned)divide(hw, (int)q) * hw.number;
}

/* Dropout multipliers of a cell's 8 channels. */
__device__ __forceinline__ float8 load_keep(const float *dropout, int64_t cell, int c, int channel)
{
    if (dropout) {
        return load8<float>(dropout + cell * c + channel);
    }
    return {{1, 1, 1, 1, 1, 1, 1, 1}};
}

/* Sums acc[s][8] over the threads of a block that hold the same channels, in a fixed order; plane s of `partial`
 * ([C][blocks]) gets this block's sums.  shared: 8 floats per thread. */
template <int SUMS>
__device__ void block_sums(float (&acc)[SUMS][8], const walk &w, int64_t blocks, float *shared, float *partial)
{
    const int tid = threadIdx.x, vectors = w.vectors, width = vectors * 8, vector = tid % vectors, first = blockIdx.y * 2048;
    const bool in_warp = vectors < 32 && (vectors & (vectors - 1)) == 0;
    const int rows = in_warp ? (int)blockDim.x / 32 : w.lanes;
    const int row = in_warp ? tid / 32 : w.lane;
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
                shared[row * width + vector * 8 + i] = acc[s][i];
            }
        }
        __syncthreads();
        for (int k = tid; k < width && first + k < w.c; k += blockDim.x) {
            float sum = 0;
            for (int r = 0; r < rows; r++) {
                sum += shared[r * width + k];
            }
            partial[((int64_t)s * w.c + first + k) * blocks + blockIdx.x] = sum;
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
    } else if ((skip) == FLIM_SKIP_ACTIVATED) {                                                                              \
        constexpr int SKIP = FLIM_SKIP_ACTIVATED;                                                                            \
        CALL;                                                                                                                \
    } else {                                                                                                                 \
        constexpr int SKIP = FLIM_SKIP_NORMALISED;                                                                           \
        CALL;                                                                                                                \
    }

#endif
