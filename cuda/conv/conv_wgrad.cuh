/* What weight gradients share: each block stores its sums, and a second kernel adds the blocks' in fixed order, so that equal inputs give
 * equal bits.
 *
 * For: conv3x3x3_wgrad.cu and conv3x3x3_wgrad_wgmma.cu (also the form of their problems), conv3x3x3_narrow.cu, conv1x1x1_wgrad.cu.
 */
#ifndef FLIM_CUDA_CONV_WGRAD_CUH
#define FLIM_CUDA_CONV_WGRAD_CUH

#include "cuda/conv/conv_arguments.h"
#include "cuda/conv/conv_problem.h"

enum {
    FLIM_WGRAD_ROWS = 8, /* rows of 32 threads of the kernel that adds */
    FLIM_WGRAD_MOST_BLOCKS = 160 /* aim for the grid, at least the number of pairs */
};

/* Sum over `blocks` of what lies `step` floats apart from `from` on; on row 0 alone, false on the others.  Block (32, FLIM_WGRAD_ROWS). */
__device__ __forceinline__ bool flim_wgrad_add(const float *from, int64_t step, int blocks, float *sum)
{
    __shared__ float part[FLIM_WGRAD_ROWS][32];
    const int lane = threadIdx.x, row = threadIdx.y;
    float s = 0.0f;
    for (int b = row; b < blocks; b += FLIM_WGRAD_ROWS)
        s += from[b * step];
    part[row][lane] = s;
    __syncthreads();
    if (row > 0)
        return false;
    for (int i = 1; i < FLIM_WGRAD_ROWS; i++)
        s += part[i][lane];
    *sum = s;
    return true;
}

/* The weight's gradient, written or added. */
__device__ __forceinline__ void flim_wgrad_give(float *out, float s, const float *unscale, bool accumulate)
{
    const float value = s * (unscale ? *unscale : 1.0f);
    *out = accumulate ? *out + value : value;
}

inline int flim_ceil_div(int a, int b)
{
    return (a + b - 1) / b;
}

/* 3x3x3, padding 1, stride 1 or 2 in y and x, 16-bit types, nothing fused but the activation of x. */
inline bool flim_wgrad_has_form(const flim_conv_problem *p)
{
    static const int three[3] = {3, 3, 3}, one[3] = {1, 1, 1};
    const int stride[3] = {1, p->stride[2], p->stride[2]};
    return p->op == FLIM_CONV_WEIGHT && p->type != FLIM_STORAGE_FP32 && !p->stem && !p->sums &&
           p->x_form != FLIM_INPUT_NORM_ON_LOAD && p->dz_form == FLIM_INPUT_PLAIN &&
           flim_conv_has_shape(p, three, stride, one) && (p->stride[2] == 1 || p->stride[2] == 2) && p->n > 0 &&
           p->in[0] > 0 && p->in[1] > 0 && p->in[2] > 0 && p->c > 0 && p->k > 0 &&
           (int64_t)p->in[1] * p->in[2] * (p->c > p->k ? p->c : p->k) < INT32_MAX;
}

#endif
