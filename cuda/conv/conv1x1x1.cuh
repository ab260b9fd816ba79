/* What the kernels of conv1x1x1.h share: which pixel of x belongs to a position of y.
 *
 * For: conv1x1x1.cu, conv1x1x1_wgrad.cu.
 */
#ifndef FLIM_CUDA_CONV1X1X1_CUH
#define FLIM_CUDA_CONV1X1X1_CUH

#include "cuda/conv/conv1x1x1.h"
#include "cuda/kernels/divisor.cuh"

/* Positions of y, all cells one after the other, and their pixels of x. */
struct flim_positions {
    int count;
    int stride, h, w, ho, wo;
    divisor by_ho, by_wo;

    __device__ __forceinline__ int pixel(int position) const
    {
        if (stride == 1)
            return position;
        const int row = divide(by_wo, position), x = position - row * wo, slice = divide(by_ho, row), y = row - slice * ho;
        return (slice * h + y * stride) * w + x * stride;
    }
};

inline flim_positions flim_positions_of(const flim_conv_problem *p, int64_t n)
{
    return {(int)(n * p->out[0] * p->out[1] * p->out[2]),
            p->stride[2],
            p->in[1],
            p->in[2],
            p->out[1],
            p->out[2],
            make_divisor(p->out[1]),
            make_divisor(p->out[2])};
}

inline bool flim_is_channels_1x1x1(int channels)
{
    return channels >= 8 && channels <= 256 && (channels & (channels - 1)) == 0;
}

/* 1x1x1 of such channels, no padding, stride 1 or 2 in y and x, nothing fused but the activation of x and sums of y. */
inline bool flim_has_form_1x1x1(const flim_conv_problem *p, const flim_card *card)
{
    static const int one[3] = {1, 1, 1}, none[3] = {0, 0, 0};
    const int stride[3] = {1, p->stride[2], p->stride[2]};
    return card->capability >= 80 && p->type != FLIM_STORAGE_FP32 && !p->master && !p->epilogue && !p->add && !p->stem &&
           p->dz_form == FLIM_INPUT_PLAIN && flim_conv_has_shape(p, one, stride, none) &&
           (p->stride[2] == 1 || p->stride[2] == 2) && flim_is_channels_1x1x1(p->c) && flim_is_channels_1x1x1(p->k) &&
           p->n > 0 && p->in[0] > 0 && p->in[1] > 0 && p->in[2] > 0 &&
           (double)p->n * p->in[0] * p->in[1] * p->in[2] < 2147483647.0;
}

#endif
