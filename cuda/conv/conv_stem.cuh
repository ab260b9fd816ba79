/* Shared by conv_stem*.cu: the state between passes, limits, and how the input is read. */
#ifndef FLIM_CUDA_CONV_STEM_CUH
#define FLIM_CUDA_CONV_STEM_CUH

#include "cuda/conv/conv_mma.cuh"
#include "cuda/conv/conv_stem.h"

enum {
    STEM_C = 32, /* channels */
    STEM_TAPS = 7, /* of the stem's kernel, in t */
    STEM_WINDOW = 2 * 7, /* window element: input channel * 7 + tap */
    STEM_STEPS = 48, /* most steps (of two time bins) a block walks before it stages input again */
    STEM_WORDS = STEM_STEPS + 4, /* 32-bit words of a pixel's staged samples; 52 % 32 = 20: no bank conflicts in a fragment */
    STEM_MAX_T = 65535 * 64, /* time bins */
    STEM_GRID = 528, /* most blocks of a persistent kernel */
    STEM_BLOCKS_A_SM = 3 /* blocks of 128 threads that fit an SM with 168 registers a thread */
};

struct stem_state {
    double count; /* n * T * H * W */
    double mean[STEM_WINDOW]; /* of the window */
    double cov[STEM_WINDOW * STEM_WINDOW]; /* biased covariance of the window */
    float scale[STEM_C], shift[STEM_C]; /* u = scale * (weight . window) + shift */
    float invstd[STEM_C];
};

/* What every kernel needs of the problem. */
struct stem_geometry {
    const void *signal; /* (n,T,HW) */
    const uint8_t *mask; /* (n,HW) */
    int64_t pixels; /* n * HW */
    int hw, t, to; /* to = ceil(T/2) */
    int tiles; /* pixel tiles */
    int segments; /* time segments, each of `steps` steps but the last */
    int steps;
    int total_steps;
};

/* Splits `total` steps of time into equal segments of about 32, at most STEM_STEPS. */
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
    g.segments = total < 48 ? 1 : (total + 16) / 32;
    g.steps = (total + g.segments - 1) / g.segments;
    g.total_steps = total;
    return g;
}

/* Blocks of a persistent kernel: what the current device holds at once, at most one for each item. */
static inline int stem_grid(const struct stem_geometry *g)
{
    const int64_t items = (int64_t)g->tiles * g->segments;
    int device = 0, sms = 0;
    if (cudaGetDevice(&device) != cudaSuccess ||
        cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device) != cudaSuccess || sms < 1)
        sms = 1;
    int64_t grid = (int64_t)sms * STEM_BLOCKS_A_SM;
    if (grid > STEM_GRID)
        grid = STEM_GRID;
    return (int)(items < grid ? items : grid);
}

size_t stem_statistics_scratch(const flim_conv_problem *s);
size_t stem_backward_scratch(void);
/* Batch statistics of the stem's convolution output over all n*T*H*W positions -> state; moves the running statistics. */
cudaError_t stem_statistics(const flim_conv_problem *problem, const flim_conv_arguments *arguments, cudaStream_t stream);
/* The running statistics -> state. */
cudaError_t stem_running(const flim_conv_arguments *arguments, cudaStream_t stream);
cudaError_t stem_backward(const flim_conv_problem *problem, const flim_conv_arguments *arguments, cudaStream_t stream);

/* Stages the samples 2 first - 4 ... of PIXELS pixels from `pixel0` on as packed pairs: words[pixel][word], zero outside time
 * and for pixels past the end. */
template <typename T, int PIXELS, int THREADS>
__device__ __forceinline__ void stem_stage(const stem_geometry &p, int64_t pixel0, int first, int words,
                                           uint32_t (*staged)[STEM_WORDS])
{
    const int pixel = threadIdx.x % PIXELS;
    const int64_t at = pixel0 + pixel;
    const bool inside = at < p.pixels;
    const int64_t cell = inside ? at / p.hw : 0;
    const T *column = static_cast<const T *>(p.signal) + (cell * p.t * p.hw + (inside ? at - cell * p.hw : 0));
    const int tau0 = 2 * first - 4;
#pragma unroll 8
    for (int word = threadIdx.x / PIXELS; word < words; word += THREADS / PIXELS) {
        const int tau = tau0 + 2 * word;
        const float lo = inside && (unsigned)tau < (unsigned)p.t ? (float)column[(int64_t)tau * p.hw] : 0.0f;
        const float hi = inside && (unsigned)(tau + 1) < (unsigned)p.t ? (float)column[(int64_t)(tau + 1) * p.hw] : 0.0f;
        staged[pixel][word] = flim_pack<T>(lo, hi);
    }
}

/* Two 16-bit lanes' mask of which of the time bins tau, tau + 1 exist. */
__device__ __forceinline__ uint32_t stem_exists(int tau, int t)
{
    return ((unsigned)tau < (unsigned)t ? 0xffffu : 0u) | ((unsigned)(tau + 1) < (unsigned)t ? 0xffff0000u : 0u);
}

/* B fragment registers of the stem's weights for one n-tile whose column g is channel c: samples in k = 0..7, the mask in
 * k = 8..15, both at times 2m-4 ... 2m+3.  The output at 2m-1 (odd) has tap = slot, the one at 2m (even) tap = slot - 1. */
template <typename T>
__device__ __forceinline__ void stem_weight_fragment(const float *weight, int c, int q, bool odd, uint32_t &signal,
                                                     uint32_t &mask)
{
    float v[2][2];
    for (int channel = 0; channel < 2; channel++)
        for (int e = 0; e < 2; e++) {
            const int tap = 2 * q + e - (odd ? 0 : 1);
            v[channel][e] = tap >= 0 && tap < STEM_TAPS ? weight[(c * 2 + channel) * STEM_TAPS + tap] : 0.0f;
        }
    signal = flim_pack<T>(v[0][0], v[0][1]);
    mask = flim_pack<T>(v[1][0], v[1][1]);
}

/* Calls CALL with T bound to the problem's type. */
#define STEM_DISPATCH(problem, CALL)                                                                                         \
    do {                                                                                                                     \
        if ((problem)->type == FLIM_STORAGE_BF16) {                                                                          \
            using T = __nv_bfloat16;                                                                                         \
            CALL;                                                                                                            \
        } else {                                                                                                             \
            using T = __half;                                                                                                \
            CALL;                                                                                                            \
        }                                                                                                                    \
    } while (0)

#endif
