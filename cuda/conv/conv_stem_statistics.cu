/* The stem's BatchNorm without the stem's output.
 *
 * The convolution's output at a position is linear in its window x (2 channels x 7 taps, zero outside time): z_c = w_c . x +
 * b_c. So over all N = n T H W positions
 *     mean(z_c) = w_c . mu + b_c,      var(z_c) = w_c' Cov w_c,      mu = E x,  Cov = E x x' - mu mu',
 * and all that has to be summed is the window's first moments and its 14 x 14 second-moment matrix.  A window is a stretch of
 * its pixel's series s(0..T-1), and a product of two taps i <= j over all t is the series' autocorrelation at lag d = j - i
 * less the few products at the ends that fall outside:
 *     sum_t s(t+i-3) s(t+j-3) = R_d - sum_{u < i-3} s(u) s(u+d) - sum_{r < 3-j} s(T-1-r) s(T-1-r-d).
 * The mask channel is a constant m in time, so its products with the signal need only sums of m s and its own products only
 * counts.  One pass over the signal gathers 9 sums (kernel `body`), a second one over six samples at either end 31 (`ends`),
 * both in fp32 over at most 64 terms, then in double; `finish` adds the blocks' sums in fixed order and does the algebra in
 * double. Inputs and weights are rounded to T first, as in the products of the forward pass.
 *
 * Floor at batch 64, base: 29 MB of fp32 signal = 10 us on an H100.
 */
#include "cuda/conv/conv_stem.cuh"
#include "cuda/kernels/reduce.cuh"

#include "flim/network.h"

namespace
{

enum {
    THREADS = 256,
    SPAN = 64, /* time bins a thread sums */
    LAGS = 7,
    BODY = LAGS + 2, /* R_0..R_6, sum s, sum m s */
    ENDS = 6 + 6 + 3 + 3 + 6 + 6 + 1, /* head and tail products, sums of s and m s at head and tail, sum m */
    FINISH_THREADS = 1024
};

/* Adds v[0..COUNT) over the block and stores the sums at out[i * stride]. */
template <int COUNT> __device__ __forceinline__ void block_sums(const double (&v)[COUNT], double *out, int64_t stride)
{
    __shared__ double part[THREADS / 32][COUNT];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        const double s = warp_sum(v[i]);
        if (lane == 0)
            part[warp][i] = s;
    }
    __syncthreads();
    if (threadIdx.x < COUNT) {
        double s = 0.0;
        for (int w = 0; w < THREADS / 32; w++)
            s += part[w][threadIdx.x];
        out[threadIdx.x * stride] = s;
    }
}

/* grid (pixel blocks, time spans): out[quantity][span * pixel blocks + pixel block]. */
template <typename T> __global__ void __launch_bounds__(THREADS) body(stem_geometry p, double *out)
{
    const int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    float lag[LAGS] = {}, sum = 0.0f, masked = 0.0f;
    if (at < p.pixels) {
        const int64_t cell = at / p.hw;
        const T *column = static_cast<const T *>(p.signal) + cell * p.t * p.hw + (at - cell * p.hw);
        const int first = blockIdx.y * SPAN;
        float before[LAGS - 1]; /* the six samples before the eight in hand, oldest first */
#pragma unroll
        for (int i = 0; i < LAGS - 1; i++)
            before[i] = first - 6 + i >= 0 ? flim_round<T>((float)column[(int64_t)(first - 6 + i) * p.hw]) : 0.0f;
#pragma unroll 2
        for (int tau = first; tau < first + SPAN; tau += 8) {
            float x[8];
#pragma unroll
            for (int i = 0; i < 8; i++)
                x[i] = tau + i < p.t ? flim_round<T>((float)column[(int64_t)(tau + i) * p.hw]) : 0.0f;
#pragma unroll
            for (int i = 0; i < 8; i++) {
                sum += x[i];
#pragma unroll
                for (int d = 0; d < LAGS; d++)
                    lag[d] += x[i] * (i - d >= 0 ? x[i - d] : before[6 + i - d]);
            }
#pragma unroll
            for (int i = 0; i < LAGS - 1; i++)
                before[i] = x[2 + i];
        }
        masked = p.mask[at] ? sum : 0.0f;
    }
    double v[BODY];
#pragma unroll
    for (int d = 0; d < LAGS; d++)
        v[d] = lag[d];
    v[LAGS] = sum;
    v[LAGS + 1] = masked;
    const int64_t blocks = (int64_t)gridDim.x * gridDim.y;
    block_sums<BODY>(v, out + (int64_t)blockIdx.y * gridDim.x + blockIdx.x, blocks);
}

/* Index of the product of positions a <= b (0..2) among the six. */
__host__ __device__ constexpr int pair_index(int a, int b)
{
    return a == 0 ? b : a == 1 ? 2 + b : 5;
}

/* grid (pixel blocks): out[quantity][pixel block]; positions count from the start (head) or from the end (tail). */
template <typename T> __global__ void __launch_bounds__(THREADS) ends(stem_geometry p, double *out)
{
    const int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    double v[ENDS] = {};
    if (at < p.pixels) {
        const int64_t cell = at / p.hw;
        const T *column = static_cast<const T *>(p.signal) + cell * p.t * p.hw + (at - cell * p.hw);
        const float m = p.mask[at] ? 1.0f : 0.0f;
#pragma unroll
        for (int side = 0; side < 2; side++) {
            float x[6];
#pragma unroll
            for (int i = 0; i < 6; i++)
                x[i] = flim_round<T>((float)column[(int64_t)(side ? p.t - 1 - i : i) * p.hw]);
#pragma unroll
            for (int a = 0; a < 3; a++)
#pragma unroll
                for (int b = a; b < 3; b++)
                    v[6 * side + pair_index(a, b)] = (double)x[a] * x[b];
#pragma unroll
            for (int i = 0; i < 3; i++)
                v[12 + 3 * side + i] = x[i];
#pragma unroll
            for (int i = 0; i < 6; i++)
                v[18 + 6 * side + i] = m * x[i];
        }
        v[30] = m;
    }
    block_sums<ENDS>(v, out + blockIdx.x, gridDim.x);
}

struct fold_arguments {
    int channels;
    const float *weight, *weight_scale, *bias, *gamma, *beta;
    float eps;
    const double *momentum;
    float *running_mean, *running_var;
    stem_state *state;
};

/* One block: the blocks' sums -> moments -> mean and variance of each channel -> scale and shift. */
template <typename T>
__global__ void __launch_bounds__(FINISH_THREADS) finish(const double *body_sums, int64_t body_blocks, const double *end_sums,
                                                         int64_t end_blocks, stem_geometry p, fold_arguments f)
{
    __shared__ double sums[BODY + ENDS];
    __shared__ double mean[STEM_WINDOW], cov[STEM_WINDOW][STEM_WINDOW];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int i = warp; i < BODY + ENDS; i += FINISH_THREADS / 32) {
        const double *from = i < BODY ? body_sums + i * body_blocks : end_sums + (i - BODY) * end_blocks;
        const int64_t n = i < BODY ? body_blocks : end_blocks;
        double s = 0.0;
        for (int64_t j = lane; j < n; j += 32)
            s += from[j];
        s = warp_sum(s);
        if (lane == 0)
            sums[i] = s;
    }
    __syncthreads();

    const double *lag = sums, *end = sums + BODY;
    const double total = sums[LAGS], masked = sums[LAGS + 1], pixels_in = end[30];
    const double count = (double)p.pixels * p.t;
    if (threadIdx.x < STEM_WINDOW) {
        const int j = threadIdx.x % STEM_TAPS;
        double s;
        if (threadIdx.x < STEM_TAPS) {
            s = total;
            for (int u = 0; u < j - 3; u++)
                s -= end[12 + u];
            for (int r = 0; r < 3 - j; r++)
                s -= end[15 + r];
        } else {
            s = pixels_in * (p.t - (j > 3 ? j - 3 : 3 - j));
        }
        mean[threadIdx.x] = s / count;
    }
    __syncthreads();
    if (threadIdx.x < STEM_WINDOW * STEM_WINDOW) {
        const int a = threadIdx.x / STEM_WINDOW, b = threadIdx.x % STEM_WINDOW;
        const bool mask_a = a >= STEM_TAPS, mask_b = b >= STEM_TAPS;
        double s;
        if (mask_a == mask_b) {
            const int i = min(a, b) % STEM_TAPS, j = max(a, b) % STEM_TAPS, d = j - i;
            if (mask_a) {
                s = pixels_in * (p.t - max(0, 3 - i) - max(0, j - 3));
            } else {
                s = lag[d];
                for (int u = 0; u < i - 3; u++)
                    s -= end[pair_index(u, u + d)];
                for (int r = 0; r < 3 - j; r++)
                    s -= end[6 + pair_index(r, r + d)];
            }
        } else {
            const int i = min(a, b), j = max(a, b) - STEM_TAPS; /* tap i of the signal with tap j of the mask */
            s = masked;
            for (int u = 0; u < max(0, max(i - 3, i - j)); u++)
                s -= end[18 + u];
            for (int r = 0; r < max(0, max(3 - i, j - i)); r++)
                s -= end[24 + r];
        }
        cov[a][b] = s / count - mean[a] * mean[b];
        f.state->cov[threadIdx.x] = cov[a][b];
    }
    if (threadIdx.x < STEM_WINDOW)
        f.state->mean[threadIdx.x] = mean[threadIdx.x];
    if (threadIdx.x == 0)
        f.state->count = count;
    __syncthreads();
    if (threadIdx.x < f.channels) {
        const int c = threadIdx.x;
        const float by = stem_scale(f.weight_scale); /* all from here on is of scaled weights */
        double w[STEM_WINDOW], m = 0.0, var = 0.0;
        for (int i = 0; i < STEM_WINDOW; i++) {
            w[i] = flim_round<T>(f.weight[c * STEM_WINDOW + i] * by);
            m += w[i] * mean[i];
        }
        for (int i = 0; i < STEM_WINDOW; i++) {
            double s = 0.0;
            for (int j = 0; j < STEM_WINDOW; j++)
                s += cov[i][j] * w[j];
            var += w[i] * s;
        }
        var = fmax(var, 0.0);
        const double invstd = 1.0 / sqrt(var + (double)f.eps * by * by);
        const double scale = f.gamma[c] * invstd;
        f.state->scale[c] = (float)scale;
        f.state->shift[c] = (float)(f.beta[c] - m * scale);
        f.state->invstd[c] = (float)invstd;
        const float momentum = f.momentum ? (float)*f.momentum : FLIM_BN_MOMENTUM;
        if (f.running_mean)
            f.running_mean[c] += momentum * ((float)(m / by + f.bias[c]) - f.running_mean[c]);
        if (f.running_var)
            f.running_var[c] +=
                momentum * ((float)(var / ((double)by * by) * (count / fmax(count - 1.0, 1.0))) - f.running_var[c]);
    }
}

__global__ void running(fold_arguments f)
{
    const int c = threadIdx.x;
    const double by = stem_scale(f.weight_scale), invstd = 1.0 / (sqrt((double)f.running_var[c] + (double)f.eps) * by);
    const double scale = f.gamma[c] * invstd;
    f.state->scale[c] = (float)scale;
    f.state->shift[c] = (float)(f.beta[c] + ((double)f.bias[c] - f.running_mean[c]) * by * scale);
    f.state->invstd[c] = (float)invstd;
}

int pixel_blocks(const flim_conv_problem *s, int64_t n)
{
    return (int)((n * s->in[1] * s->in[2] + THREADS - 1) / THREADS);
}

int spans(const flim_conv_problem *s)
{
    return (s->in[0] + SPAN - 1) / SPAN;
}

fold_arguments make_fold(const flim_conv_problem *problem, const flim_conv_stem *s)
{
    return {problem->k,
            s->weight,
            s->weight_scale,
            s->bias,
            s->gamma,
            s->beta,
            s->eps,
            s->momentum,
            s->running_mean,
            s->running_var,
            static_cast<stem_state *>(s->state)};
}

template <typename T>
void launch(const flim_conv_problem *problem, const flim_conv_arguments *a, const stem_geometry &p, cudaStream_t stream)
{
    const int across = pixel_blocks(problem, a->n), along = spans(problem);
    double *sums = static_cast<double *>(a->scratch), *end_sums = sums + (int64_t)BODY * across * along;
    body<T><<<dim3(across, along), THREADS, 0, stream>>>(p, sums);
    ends<T><<<across, THREADS, 0, stream>>>(p, end_sums);
    finish<T>
        <<<1, FINISH_THREADS, 0, stream>>>(sums, (int64_t)across * along, end_sums, across, p, make_fold(problem, &a->stem));
}

} // namespace

static_assert(STEM_MAX_T <= 65535 * SPAN, "time spans are blocks in y");
static_assert((int)FLIM_STEM_MOST_CHANNELS <= (int)FINISH_THREADS, "finish has a thread per channel");

size_t flim_stem_state_bytes(void)
{
    return (sizeof(stem_state) + 255) / 256 * 256;
}

size_t stem_statistics_scratch(const flim_conv_problem *s)
{
    return sizeof(double) * (size_t)pixel_blocks(s, s->n) * (size_t)(BODY * spans(s) + ENDS);
}

cudaError_t stem_statistics(const flim_conv_problem *problem, const flim_conv_arguments *arguments, cudaStream_t stream)
{
    const stem_geometry p = stem_make_geometry(problem, arguments, THREADS, problem->in[0]);
    STEM_BY_TYPE(problem, (launch<T>(problem, arguments, p, stream)));
    return cudaGetLastError();
}

cudaError_t stem_running(const flim_conv_problem *problem, const flim_conv_arguments *arguments, cudaStream_t stream)
{
    running<<<1, (unsigned)problem->k, 0, stream>>>(make_fold(problem, &arguments->stem));
    return cudaGetLastError();
}
