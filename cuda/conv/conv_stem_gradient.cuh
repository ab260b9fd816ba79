/* What the backward passes of the stem share: their sums over blocks, and where they leave G for the closed form (conv_stem_gradient.cu). */
#ifndef FLIM_CUDA_CONV_STEM_GRADIENT_CUH
#define FLIM_CUDA_CONV_STEM_GRADIENT_CUH

#include "cuda/conv/conv_stem.cuh"

enum {
    STEM_REDUCE_THREADS = 256,
    STEM_REDUCE_ROWS = STEM_REDUCE_THREADS / 32,
    STEM_G = 2 * 16 /* numbers of a channel: [time of the step: odd, even][samples, mask][slot] */
};

/* Where gradients go, each NULL = not wanted: times *unscale (NULL = 1), added to what is there if accumulate. */
struct stem_gradients {
    float *weight, *bias, *gamma, *beta;
    const float *unscale;
    bool accumulate;
};

__device__ __forceinline__ void stem_put(float *out, double value, const stem_gradients &target)
{
    if (out)
        *out = (float)(value * (target.unscale ? *target.unscale : 1.0f)) + (target.accumulate ? *out : 0.0f);
}

/* A block of STEM_REDUCE_THREADS adds first[b * stride + lane] over the blocks b in fixed order; true in the warp whose lanes have the
 * sums. */
__device__ __forceinline__ bool stem_reduce(const float *first, int64_t stride, int blocks, double &sum)
{
    __shared__ double part[STEM_REDUCE_ROWS][32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    sum = 0.0;
    for (int b = warp; b < blocks; b += STEM_REDUCE_ROWS)
        sum += first[b * stride + lane];
    part[warp][lane] = sum;
    __syncthreads();
    for (int w = 1; w < STEM_REDUCE_ROWS && warp == 0; w++)
        sum += part[w][lane];
    return warp == 0;
}

/* Where a sum of dv with a slot of the window at an odd or an even time is among the G of all channels (C,STEM_G). */
__device__ __forceinline__ int stem_g_at(int c, int even, int mask, int slot)
{
    return c * STEM_G + even * 16 + mask * 8 + slot;
}

/* G (C,STEM_G) -> the gradients of the stem's parameters. */
cudaError_t stem_finish(const flim_conv_problem *problem, const flim_conv_arguments *arguments, const double *g_sums,
                        const stem_gradients &target, cudaStream_t stream);

#endif
