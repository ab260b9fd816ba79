/* What weight gradients share: each block stores its sums, and a second kernel adds the blocks' in fixed order, so that equal inputs give
 * equal bits.
 *
 * For: conv3x3x3_wgrad.cu (all of it: blocks of 32 x 32 channels, C by K "pairs"), conv3x3x3_wgrad_wgmma.cu (the form of problems, the
 *      second kernel), conv3x3x3_narrow.cu and conv1x1x1_wgrad.cu (the second kernel).
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

/* Bytes for the sums of all blocks, `partial` floats each. */
inline size_t flim_wgrad_scratch(int pairs, int partial)
{
    return sizeof(float) * (size_t)partial *
           (size_t)(pairs > FLIM_WGRAD_MOST_BLOCKS ? pairs : FLIM_WGRAD_MOST_BLOCKS / pairs * pairs);
}

/* Fills a kernel's arguments but for its tiling, which is there: `steps` are those that the blocks of a pair share; returns the grid. */
template <typename ARGUMENTS>
dim3 flim_wgrad_arguments(ARGUMENTS &a, const flim_conv_problem &here, const flim_conv_arguments *arguments, int block,
                          int steps_of_a_tile, int pairs, int processors)
{
    a.x = arguments->x;
    a.dz = arguments->y;
    a.partial = static_cast<float *>(arguments->scratch);
    a.n = here.n;
    a.c = here.c, a.k = here.k, a.t = here.in[0], a.h = here.in[1], a.w = here.in[2], a.stride = here.stride[2];
    a.ho = flim_ceil_div(a.h, a.stride), a.wo = flim_ceil_div(a.w, a.stride);
    a.blocks_c = flim_ceil_div(a.c, block);
    if (here.x_form == FLIM_INPUT_NORM_ACT_ON_LOAD) {
        a.scale = arguments->prologue.scale;
        a.shift = arguments->prologue.shift;
    }
    const int64_t steps = a.n * a.p.tiles_y * a.p.tiles_x * (int64_t)steps_of_a_tile;
    a.share = (processors < FLIM_WGRAD_MOST_BLOCKS ? processors : FLIM_WGRAD_MOST_BLOCKS) / pairs;
    a.share = a.share < 1 ? 1 : a.share;
    a.share = steps < a.share ? (int)steps : a.share;
    return dim3((unsigned)a.share, (unsigned)pairs);
}

#endif
