/* Two sums per channel over a convolution's output, gathered where the output is at hand: for BatchNorm, forward (z, z^2) and
 * backward.
 *
 * For: conv3x3x3*.cu, conv_strided_wgmma.cu and conv_stem.cu, whose threads hold C / 4 neighbouring channels of C each: lane = 4 g + q has those from
 *      C / 4 q on. A block leaves its part with give_sums, add_sums adds all parts (and those of conv1x1x1.cu).  Both in fixed
 *      order: equal inputs give equal bits.
 */
#ifndef FLIM_CUDA_CONV_CUH
#define FLIM_CUDA_CONV_CUH

#include "cuda/kernels/reduce.cuh"

/* All threads of a block wait for one another. */
struct whole_block {
    __device__ __forceinline__ void operator()() const
    {
        __syncthreads();
    }
};

/* The block's part of both sums -> partial[block] (2,C).  part: shared memory of (warps,2,C) floats, free for this.  wait: a barrier of
 * the first `warps` warps, which have the sums. */
template <int C, typename Wait = whole_block>
__device__ __forceinline__ void give_sums(const float (&first)[C / 4], const float (&second)[C / 4], int warps, float *part,
                                          float *partial, Wait wait = {})
{
    const int tid = threadIdx.x, warp = tid / 32, g = tid % 32 / 4, q = tid % 4;
    wait();
#pragma unroll
    for (int i = 0; i < C / 4; i++) {
        float s = first[i], v = second[i];
#pragma unroll
        for (int step = 4; step < 32; step *= 2) {
            s += __shfl_xor_sync(0xffffffffu, s, step);
            v += __shfl_xor_sync(0xffffffffu, v, step);
        }
        if (g == 0) {
            part[warp * 2 * C + C / 4 * q + i] = s;
            part[warp * 2 * C + C + C / 4 * q + i] = v;
        }
    }
    wait();
    for (int i = tid; i < 2 * C; i += 32 * warps) {
        float s = 0.0f;
        for (int w = 0; w < warps; w++)
            s += part[w * 2 * C + i];
        partial[blockIdx.x * 2 * C + i] = s;
    }
}

/* Sums of `blocks` blocks' parts, each (2,C) floats -> out (2,channels) from channel `C blockIdx.y` on; there are gridDim.y such sets of
 * parts, one after the other.  Grid (2 C, channels / C), block THREADS. */
template <int THREADS> __global__ void __launch_bounds__(THREADS) add_sums(const float *partial, int blocks, double *out)
{
    __shared__ double part[THREADS / 32];
    const int width = gridDim.x, c = width / 2, first = blockIdx.y * c;
    const float *from = partial + (int64_t)blockIdx.y * blocks * width + blockIdx.x;
    double s = 0.0;
    for (int b = threadIdx.x; b < blocks; b += THREADS)
        s += from[b * width];
    s = warp_sum(s);
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = s;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < THREADS / 32; w++)
            s += part[w];
        out[blockIdx.x / c * (c * gridDim.y) + first + blockIdx.x % c] = s;
    }
}

#endif
