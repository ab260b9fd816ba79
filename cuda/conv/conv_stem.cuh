/* Shared by conv_stem*.cu: the state between passes, limits, and how the input is read. */
#ifndef FLIM_CUDA_CONV_STEM_CUH
#define FLIM_CUDA_CONV_STEM_CUH

#include "cuda/conv/conv_mma.cuh"
#include "cuda/conv/conv_stem.h"

enum {
    STEM_TAPS = 7, /* of the stem's kernel, in t */
    STEM_WINDOW = 2 * 7, /* window element: input channel * 7 + tap */
    STEM_STEPS = 48, /* most steps (of two time bins) a block walks before it stages input again */
    STEM_WORDS = STEM_STEPS + 4, /* 32-bit words of a pixel's staged samples; 52 % 32 = 20: no bank conflicts in a fragment */
    STEM_MAX_T = 65535 * 64, /* time bins */
    STEM_BLOCKS = 528 * 32 /* most blocks of a persistent kernel with down, times channels */
};

struct stem_state {
    double count; /* n * T * H * W */
    double mean[STEM_WINDOW]; /* of the window */
    double cov[STEM_WINDOW * STEM_WINDOW]; /* biased covariance of the window */
    float scale[FLIM_STEM_MOST_CHANNELS], shift[FLIM_STEM_MOST_CHANNELS]; /* u = scale * (weight . window) + shift */
    float invstd[FLIM_STEM_MOST_CHANNELS];
};

/* What every kernel needs of the problem. */
struct stem_geometry {
    const void *signal; /* (n,T,HW) */
    const uint8_t *mask; /* (n,HW) */
    int64_t pixels; /* n * HW */
    int hw, t, to; /* to = ceil(T/2) */
    int tiles; /* pixel tiles */
    int steps; /* of time, of each tile */
};

/* What a block of a persistent kernel walks: an equal share of all (tile, step), tile by tile. */
struct stem_share {
    int64_t at, end;
};

static inline struct stem_geometry stem_make_geometry(const flim_conv_problem *s, const flim_conv_arguments *a, int tile,
                                                      int total)
{
    struct stem_geometry g;
    g.signal = a->x;
    g.mask = a->stem.mask;
    g.hw = s->in[1] * s->in[2];
    g.pixels = a->n * g.hw;
    g.t = s->in[0];
    g.to = (g.t + 1) / 2;
    g.tiles = (int)((g.pixels + tile - 1) / tile);
    g.steps = total;
    return g;
}

/* Blocks that share a persistent kernel's walk, at most `most`: what the card holds at once if `apart` such walks, of channels of
 * their own, run side by side. */
template <typename Kernel>
inline int stem_grid(const stem_geometry &g, int most, int apart, Kernel kernel, int threads, const flim_card *card)
{
    int blocks = 0;
    if (cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, 0) != cudaSuccess || blocks < 1)
        blocks = 1;
    const int64_t shares = ((int64_t)g.tiles * g.steps + 7) / 8; /* of at least 8 steps */
    int64_t grid = (int64_t)card->processors * blocks / apart; /* one more would walk alone after all others */
    grid = grid < 1 ? 1 : grid < most ? grid : most;
    return (int)(shares < grid ? shares : grid);
}

__device__ __forceinline__ stem_share stem_share_of_block(const stem_geometry &g)
{
    const int64_t total = (int64_t)g.tiles * g.steps;
    return {total * blockIdx.x / gridDim.x, total * (blockIdx.x + 1) / gridDim.x};
}

/* The next piece of the share: steps first .. last - 1 of a tile, at most STEM_STEPS.  False at the end. */
__device__ __forceinline__ bool stem_next(const stem_geometry &g, stem_share &share, int &tile, int &first, int &last)
{
    if (share.at >= share.end)
        return false;
    tile = (int)(share.at / g.steps);
    first = (int)(share.at % g.steps);
    const int64_t left = share.end - share.at;
    last = min(g.steps, first + (int)min(left, (int64_t)STEM_STEPS));
    share.at += last - first;
    return true;
}

size_t stem_statistics_scratch(const flim_conv_problem *s);
size_t stem_backward_scratch(int channels);
size_t stem_alone_backward_scratch(int channels);
/* Batch statistics of the stem's convolution output over all n*T*H*W positions -> state; moves the running statistics. */
cudaError_t stem_statistics(const flim_conv_problem *problem, const flim_conv_arguments *arguments, cudaStream_t stream);
/* The running statistics -> state. */
cudaError_t stem_running(const flim_conv_problem *problem, const flim_conv_arguments *arguments, cudaStream_t stream);
cudaError_t stem_backward(const flim_conv_problem *problem, const flim_conv_arguments *arguments, const flim_card *card,
                          cudaStream_t stream);
/* The stem alone; its forward pass follows the statistics in stem.state. */
cudaError_t stem_alone_forward(const flim_conv_problem *problem, const flim_conv_arguments *arguments, const flim_card *card,
                               cudaStream_t stream);
cudaError_t stem_alone_backward(const flim_conv_problem *problem, const flim_conv_arguments *arguments, const flim_card *card,
                                cudaStream_t stream);

/* Stages the samples 2 first - 4 ... of PIXELS pixels from `pixel0` on as packed pairs: words[pixel][word], zero outside time
 * and for pixels past the end.  By all `threads` of the block, a multiple of PIXELS. */
template <typename T, int PIXELS>
__device__ __forceinline__ void stem_stage(const stem_geometry &p, int64_t pixel0, int first, int words, int threads,
                                           uint32_t (*staged)[STEM_WORDS])
{
    const int pixel = threadIdx.x % PIXELS;
    const int64_t at = pixel0 + pixel;
    const bool inside = at < p.pixels;
    const int64_t cell = inside ? at / p.hw : 0;
    const T *column = static_cast<const T *>(p.signal) + (cell * p.t * p.hw + (inside ? at - cell * p.hw : 0));
    const int tau0 = 2 * first - 4;
#pragma unroll 8
    for (int word = threadIdx.x / PIXELS; word < words; word += threads / PIXELS) {
        const int tau = tau0 + 2 * word;
        const float lo = inside && (unsigned)tau < (unsigned)p.t ? (float)column[(int64_t)tau * p.hw] : 0.0f;
        const float hi = inside && (unsigned)(tau + 1) < (unsigned)p.t ? (float)column[(int64_t)(tau + 1) * p.hw] : 0.0f;
        staged[pixel][word] = flim_pack<T>(lo, hi);
    }
}

/* The mask of 16 pixels from `first` on as lane 4 g + q wants it: `of` pixels g and g + 8, ones in both halves or zeros; of the pairs of
 * pixels 2q and 2q + 8, whose first is the lower half. */
template <typename T>
__device__ __forceinline__ void stem_masks(const stem_geometry &p, int64_t first, uint32_t (&of)[2], uint32_t (&pair)[2])
{
    const int g = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
    auto masked = [&](int pixel) {
        const int64_t at = first + pixel;
        return at < p.pixels && p.mask[at] ? 1.0f : 0.0f;
    };
#pragma unroll
    for (int r = 0; r < 2; r++) {
        of[r] = masked(g + 8 * r) != 0.0f ? flim_pack<T>(1.0f, 1.0f) : 0u;
        pair[r] = flim_pack<T>(masked(2 * q + 8 * r), masked(2 * q + 1 + 8 * r));
    }
}

/* Two 16-bit lanes' mask of which of the time bins tau, tau + 1 exist. */
__device__ __forceinline__ uint32_t stem_exists(int tau, int t)
{
    return ((unsigned)tau < (unsigned)t ? 0xffffu : 0u) | ((unsigned)(tau + 1) < (unsigned)t ? 0xffff0000u : 0u);
}

/* A scale of weights, which may be left out. */
__device__ __forceinline__ float stem_scale(const float *scale)
{
    return scale ? *scale : 1.0f;
}

/* B fragment registers of the stem's weights, times `scale`, for one n-tile whose column g is channel c: samples in k = 0..7, the mask in
 * k = 8..15, both at times 2m-4 ... 2m+3.  The output at 2m-1 (odd) has tap = slot, the one at 2m (even) tap = slot - 1. */
template <typename T>
__device__ __forceinline__ void stem_weight_fragment(const float *weight, float scale, int c, int q, bool odd,
                                                     uint32_t &signal, uint32_t &mask)
{
    float v[2][2];
    for (int channel = 0; channel < 2; channel++)
        for (int e = 0; e < 2; e++) {
            const int tap = 2 * q + e - (odd ? 0 : 1);
            v[channel][e] = tap >= 0 && tap < STEM_TAPS ? weight[(c * 2 + channel) * STEM_TAPS + tap] * scale : 0.0f;
        }
    signal = flim_pack<T>(v[0][0], v[0][1]);
    mask = flim_pack<T>(v[1][0], v[1][1]);
}

/* Calls CALL with T bound to the problem's type. */
#define STEM_BY_TYPE(problem, CALL)                                                                                          \
    do {                                                                                                                     \
        if ((problem)->type == FLIM_STORAGE_BF16) {                                                                          \
            using T = __nv_bfloat16;                                                                                         \
            CALL;                                                                                                            \
        } else {                                                                                                             \
            using T = __half;                                                                                                \
            CALL;                                                                                                            \
        }                                                                                                                    \
    } while (0)
/* The same with C bound to the channels of a problem with down. */
#define STEM_DISPATCH(problem, CALL) STEM_BY_TYPE(problem, STEM_BY_WIDTH((problem)->c, CALL))
#define STEM_BY_WIDTH(channels, CALL)                                                                                        \
    if ((channels) == 64) {                                                                                                  \
        constexpr int C = 64;                                                                                                \
        CALL;                                                                                                                \
    } else if ((channels) == 32) {                                                                                           \
        constexpr int C = 32;                                                                                                \
        CALL;                                                                                                                \
    } else if ((channels) == 16) {                                                                                           \
        constexpr int C = 16;                                                                                                \
        CALL;                                                                                                                \
    } else {                                                                                                                 \
        constexpr int C = 8;                                                                                                 \
        CALL;                                                                                                                \
    }

#endif
