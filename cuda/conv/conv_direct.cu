#include "cuda/conv/conv_direct.h"
#include "cuda/kernels/reduce.cuh"
#include "cuda/kernels/vector.cuh"

namespace
{

enum { THREADS = 256 };

__device__ int64_t volume(const int size[3])
{
    return (int64_t)size[0] * size[1] * size[2];
}

/* Splits a pixel number into t, y, x. */
__device__ void position(int64_t pixel, const int size[3], int at[3])
{
    at[2] = (int)(pixel % size[2]);
    at[1] = (int)(pixel / size[2] % size[1]);
    at[0] = (int)(pixel / size[2] / size[1]);
}

template <typename T> __device__ double rounded(double v)
{
    return (double)to_float(from_float<T>((float)v));
}

/* x at element i of channel c, what is fused applied. */
template <typename T> __device__ double x_value(const flim_conv_problem &p, const flim_conv_arguments &a, int64_t i, int c)
{
    const float v = to_float(static_cast<const T *>(a.x)[i]);
    if (p.x_form != FLIM_INPUT_NORM_ACT_ON_LOAD)
        return (double)v;
    const float u = fmaf(v, a.prologue.scale[c], a.prologue.shift[c]);
    return (double)to_float(from_float<T>(fmaxf(u, 0.01f * u)));
}

template <typename T>
__device__ double w_value(const flim_conv_problem &p, const flim_conv_arguments &a, int k, int64_t tap, int c)
{
    const int64_t taps = volume(p.kernel);
    if (!p.master)
        return (double)to_float(static_cast<const T *>(a.w)[(k * taps + tap) * p.c + c]);
    return k < p.out_channels && c < p.in_channels
               ? rounded<T>((double)a.master[((int64_t)k * p.in_channels + c) * taps + tap])
               : 0.0;
}

template <typename T>
__device__ double forward_term(const flim_conv_problem &p, const flim_conv_arguments &a, int64_t output, int64_t i)
{
    const int k = (int)(output % p.k), c = (int)(i % p.c);
    const int64_t pixels = volume(p.out), tap = i / p.c;
    int o[3], f[3];
    position(output / p.k % pixels, p.out, o);
    position(tap, p.kernel, f);
    int64_t at = output / p.k / pixels;
    for (int d = 0; d < 3; d++) {
        const int q = o[d] * p.stride[d] - p.pad[d] + f[d];
        if (q < 0 || q >= p.in[d])
            return 0.0;
        at = at * p.in[d] + q;
    }
    return x_value<T>(p, a, at * p.c + c, c) * w_value<T>(p, a, k, tap, c);
}

template <typename T>
__device__ double data_term(const flim_conv_problem &p, const flim_conv_arguments &a, int64_t output, int64_t i)
{
    const int c = (int)(output % p.c), k = (int)(i % p.k);
    const int64_t pixels = volume(p.in), tap = i / p.k;
    int o[3], f[3];
    position(output / p.c % pixels, p.in, o);
    position(tap, p.kernel, f);
    int64_t at = output / p.c / pixels;
    for (int d = 0; d < 3; d++) {
        const int q = o[d] + p.pad[d] - f[d];
        if (q < 0 || q % p.stride[d] != 0 || q / p.stride[d] >= p.out[d])
            return 0.0;
        at = at * p.out[d] + q / p.stride[d];
    }
    return (double)to_float(static_cast<const T *>(a.y)[at * p.k + k]) * w_value<T>(p, a, k, tap, c);
}

template <typename T>
__device__ double weight_term(const flim_conv_problem &p, const flim_conv_arguments &a, int64_t output, int64_t i)
{
    const int64_t taps = volume(p.kernel), pixels = volume(p.out);
    const int c = (int)(output % p.c), k = (int)(output / p.c / taps);
    int o[3], f[3];
    position(i % pixels, p.out, o);
    position(output / p.c % taps, p.kernel, f);
    int64_t at = i / pixels;
    for (int d = 0; d < 3; d++) {
        const int q = o[d] * p.stride[d] - p.pad[d] + f[d];
        if (q < 0 || q >= p.in[d])
            return 0.0;
        at = at * p.in[d] + q;
    }
    return x_value<T>(p, a, at * p.c + c, c) * (double)to_float(static_cast<const T *>(a.y)[i * p.k + k]);
}

/* The gradient that the epilogue adds at an output. */
template <typename T> __device__ double added(const flim_conv_problem &p, const flim_conv_arguments &a, int64_t output)
{
    const double by = a.epilogue.add_scale ? (double)*a.epilogue.add_scale : 1.0;
    const T *add = static_cast<const T *>(a.epilogue.add);
    int64_t at = output;
    if (p.add == FLIM_ADD_STRIDED) {
        int o[3];
        position(output / p.c % volume(p.in), p.in, o);
        at = output / p.c / volume(p.in);
        for (int d = 0; d < 3; d++) {
            if (o[d] % p.stride[d] != 0)
                return 0.0;
            at = at * p.out[d] + o[d] / p.stride[d];
        }
        at = at * p.c + output % p.c;
    }
    return by * (double)to_float(add[at]);
}

/* What follows the sum of an output: the bias, or the epilogue. */
template <typename T>
__device__ double finish(const flim_conv_problem &p, const flim_conv_arguments &a, int64_t output, double sum)
{
    if (p.op == FLIM_CONV_FORWARD && p.master && output % p.k < p.out_channels)
        return sum + (double)a.bias[output % p.k];
    if (!p.epilogue)
        return sum;
    const int c = (int)(output % p.c);
    const float z = to_float(static_cast<const T *>(a.epilogue.z)[output]);
    const double v = sum + (p.add ? added<T>(p, a, output) : 0.0);
    const bool positive = p.sign_mask ? a.epilogue.sign_mask[output / 8] >> output % 8 & 1
                                      : fmaf(z, a.epilogue.scale[c], a.epilogue.shift[c]) > 0.0f;
    const double keep = p.sign_mask ? (double)a.epilogue.keep[output / p.c / volume(p.in) * p.c + c] : 1.0;
    return keep * (positive ? v : 0.01 * v);
}

/* A large odd stride spreads the samples over positions and channels. */
__device__ int64_t sample_at(int64_t sample, int64_t outputs)
{
    return (int64_t)((unsigned long long)sample * 2654435761ull % (unsigned long long)outputs);
}

/* One block per output. */
template <typename T>
__global__ void __launch_bounds__(THREADS)
    direct(flim_conv_problem p, flim_conv_arguments a, bool fp32_gradient, int64_t outputs, double *expected, double *got)
{
    const int64_t taps = volume(p.kernel), sample = sample_at(blockIdx.x, outputs), row = sample / taps;
    /* fp32 (out_channels,in_channels,taps) -> (k,taps,c) */
    const int64_t output = fp32_gradient ? (row / p.in_channels * taps + sample % taps) * p.c + row % p.in_channels : sample;
    const int64_t terms = p.op == FLIM_CONV_FORWARD ? taps * p.c : p.op == FLIM_CONV_DATA ? taps * p.k : a.n * volume(p.out);
    double sum = 0.0;
    for (int64_t i = threadIdx.x; i < terms; i += THREADS)
        sum += p.op == FLIM_CONV_FORWARD ? forward_term<T>(p, a, output, i)
               : p.op == FLIM_CONV_DATA  ? data_term<T>(p, a, output, i)
                                         : weight_term<T>(p, a, output, i);
    sum = block_sum<THREADS>(sum);
    if (threadIdx.x > 0)
        return;
    const void *under_test = p.op == FLIM_CONV_FORWARD ? a.y : p.op == FLIM_CONV_DATA ? a.x : a.w;
    expected[blockIdx.x] = finish<T>(p, a, output, sum);
    got[blockIdx.x] = fp32_gradient ? (double)a.master[sample] : (double)to_float(static_cast<const T *>(under_test)[output]);
}

/* One block per channel. */
template <typename T>
__global__ void __launch_bounds__(THREADS)
    direct_sums(bool epilogue, const T *y, const T *z, const float *mean, int64_t positions, const double *sums, double *out)
{
    const int c = blockIdx.x, channels = gridDim.x;
    double sum[4] = {}; /* of v and its partner's product, then of their absolute values */
    for (int64_t i = threadIdx.x; i < positions; i += THREADS) {
        const double v = (double)to_float(y[i * channels + c]);
        const double product = v * (epilogue ? (double)(to_float(z[i * channels + c]) - mean[c]) : v);
        sum[0] += v, sum[1] += product, sum[2] += fabs(v), sum[3] += fabs(product);
    }
    for (int i = 0; i < 4; i++) {
        const double s = block_sum<THREADS>(sum[i]);
        if (threadIdx.x == 0)
            out[i * channels + c] = s;
    }
    for (int i = threadIdx.x; i < 2; i += THREADS)
        out[(4 + i) * channels + c] = sums[i * channels + c];
}

/* ---- the stem -----------------------------------------------------------------------------------------------------------
 * */

/* Per channel: the convolution's output without bias becomes u = z * scale + shift, zhat = (z - mean) * invstd. */
struct stem_norm {
    double scale[FLIM_STEM_MOST_CHANNELS], shift[FLIM_STEM_MOST_CHANNELS], mean[FLIM_STEM_MOST_CHANNELS],
        invstd[FLIM_STEM_MOST_CHANNELS];
    double sum[FLIM_STEM_MOST_CHANNELS], product[FLIM_STEM_MOST_CHANNELS]; /* sum dv, sum dv zhat */
};
static_assert(sizeof(stem_norm) == FLIM_STEM_NORM * sizeof(double), "what callers keep for it");

/* As flim_stem_is_alone. */
__device__ bool is_alone(const flim_conv_problem &p)
{
    return p.stem && p.kernel[0] == FLIM_STEM_WINDOW / 2;
}

/* Window element i = channel * 7 + tap of a position, rounded to T. */
template <typename T>
__device__ double window(const flim_conv_problem &p, const flim_conv_arguments &a, int64_t cell, int t, int pixel, int i)
{
    const int hw = p.in[1] * p.in[2], tau = t + i % 7 - 3;
    if (tau < 0 || tau >= p.in[0])
        return 0.0;
    return i < 7 ? (double)to_float(static_cast<const T *>(a.x)[(cell * p.in[0] + tau) * hw + pixel])
                 : (a.stem.mask[cell * hw + pixel] ? 1.0 : 0.0);
}

template <typename T>
__device__ double stem_z(const flim_conv_problem &p, const flim_conv_arguments &a, int64_t cell, int t, int pixel, int c)
{
    double s = 0.0;
    for (int i = 0; i < FLIM_STEM_WINDOW; i++)
        s += rounded<T>((double)a.stem.weight[c * FLIM_STEM_WINDOW + i]) * window<T>(p, a, cell, t, pixel, i);
    return s;
}

template <typename T>
__device__ double stem_activation(const flim_conv_problem &p, const flim_conv_arguments &a, const stem_norm *norm,
                                  int64_t cell, int t, int pixel, int c)
{
    const double u = stem_z<T>(p, a, cell, t, pixel, c) * norm->scale[c] + norm->shift[c];
    return rounded<T>(u > 0.0 ? u : 0.01 * u);
}

/* One block per channel: statistics over all positions, or the running ones. */
template <typename T>
__global__ void __launch_bounds__(THREADS)
    stem_moments(flim_conv_problem p, flim_conv_arguments a, bool batch, stem_norm *norm)
{
    __shared__ double mean;
    const int c = blockIdx.x, hw = p.in[1] * p.in[2];
    const int64_t positions = a.n * p.in[0] * hw;
    double var = 0.0;
    for (int pass = 0; pass < 2; pass++) {
        double s = 0.0;
        for (int64_t i = threadIdx.x; i < positions && batch; i += THREADS) {
            const double z = stem_z<T>(p, a, i / hw / p.in[0], (int)(i / hw % p.in[0]), (int)(i % hw), c);
            s += pass == 0 ? z : (z - mean) * (z - mean);
        }
        s = block_sum<THREADS>(s) / (double)positions;
        if (threadIdx.x == 0 && pass == 0)
            mean = batch ? s : (double)a.stem.running_mean[c] - (double)a.stem.bias[c];
        var = batch ? s : (double)a.stem.running_var[c];
        __syncthreads();
    }
    if (threadIdx.x > 0)
        return;
    norm->mean[c] = mean;
    norm->invstd[c] = 1.0 / sqrt(var + (double)a.stem.eps);
    norm->scale[c] = (double)a.stem.gamma[c] * norm->invstd[c];
    norm->shift[c] = (double)a.stem.beta[c] - mean * norm->scale[c];
}

/* One thread per output of the stem alone. */
template <typename T>
__global__ void __launch_bounds__(THREADS)
    stem_alone_forward(flim_conv_problem p, flim_conv_arguments a, const stem_norm *norm, int64_t samples, double *expected,
                       double *got)
{
    const int hw = p.in[1] * p.in[2];
    const int64_t sample = (int64_t)blockIdx.x * THREADS + threadIdx.x, output = sample_at(sample, a.n * volume(p.out) * p.k),
                  at = output / p.k;
    if (sample >= samples)
        return;
    expected[sample] =
        stem_activation<T>(p, a, norm, at / hw / p.in[0], (int)(at / hw % p.in[0]), (int)(at % hw), (int)(output % p.k));
    got[sample] = (double)to_float(static_cast<const T *>(a.y)[output]);
}

/* One block per output of down. */
template <typename T>
__global__ void __launch_bounds__(THREADS)
    stem_forward(flim_conv_problem p, flim_conv_arguments a, const stem_norm *norm, double *expected, double *got)
{
    const int hw = p.in[1] * p.in[2];
    const int64_t output = sample_at(blockIdx.x, a.n * volume(p.out) * p.k), at = output / p.k;
    const int o = (int)(output % p.k), pixel = (int)(at % hw), m = (int)(at / hw % p.out[0]);
    double term = 0.0;
    for (int i = threadIdx.x; i < 3 * p.c; i += THREADS) {
        const int j = i / p.c, c = i % p.c, t = 2 * m - 1 + j;
        if (t >= 0 && t < p.in[0])
            term += stem_activation<T>(p, a, norm, at / hw / p.out[0], t, pixel, c) *
                    rounded<T>((double)a.master[((int64_t)o * p.c + c) * 3 + j]);
    }
    const double sum = block_sum<THREADS>(term);
    if (threadIdx.x == 0) {
        expected[blockIdx.x] = sum + (double)a.bias[o];
        got[blockIdx.x] = (double)to_float(static_cast<const T *>(a.y)[output]);
    }
}

template <typename T> __device__ double stem_dz(const flim_conv_problem &p, const flim_conv_arguments &a, int64_t i, int o)
{
    const float du = to_float(static_cast<const T *>(a.y)[i]);
    if (p.dz_form == FLIM_INPUT_PLAIN)
        return (double)du;
    const float by = a.dz_norm.du_scale ? *a.dz_norm.du_scale : 1.0f, z = to_float(static_cast<const T *>(a.dz_norm.z)[i]);
    return (double)to_float(from_float<T>(fmaf(a.dz_norm.a[o] / by, du, fmaf(a.dz_norm.b[o], z, a.dz_norm.d[o]))));
}

/* The gradient of the stem's output at a position: y, or the data gradient of down. */
template <typename T> __device__ double stem_da(const flim_conv_problem &p, const flim_conv_arguments &a, int64_t i, int c)
{
    const int hw = p.in[1] * p.in[2], pixel = (int)(i % hw), t = (int)(i / hw % p.in[0]);
    const int64_t cell = i / hw / p.in[0];
    double s = 0.0;
    if (is_alone(p))
        return (double)to_float(static_cast<const T *>(a.y)[i * p.k + c]);
    for (int j = 0; j < 3; j++) {
        const int twice = t + 1 - j;
        if (twice % 2 != 0 || twice < 0 || twice / 2 >= p.out[0])
            continue;
        for (int o = 0; o < p.k; o++)
            s += stem_dz<T>(p, a, ((cell * p.out[0] + twice / 2) * hw + pixel) * p.k + o, o) *
                 rounded<T>((double)a.stem.down_weight[((int64_t)o * p.c + c) * 3 + j]);
    }
    return s;
}

/* The gradient of u at a position of the stem, and zhat there. */
template <typename T>
__device__ double stem_dv(const flim_conv_problem &p, const flim_conv_arguments &a, const stem_norm *norm, int64_t i, int c,
                          double *zhat)
{
    const int hw = p.in[1] * p.in[2], pixel = (int)(i % hw), t = (int)(i / hw % p.in[0]);
    const int64_t cell = i / hw / p.in[0];
    const double z = stem_z<T>(p, a, cell, t, pixel, c), s = stem_da<T>(p, a, i, c);
    *zhat = (z - norm->mean[c]) * norm->invstd[c];
    return rounded<T>(z * norm->scale[c] + norm->shift[c] > 0.0 ? s : 0.01 * s);
}

/* One block per channel. */
template <typename T>
__global__ void __launch_bounds__(THREADS) stem_dv_sums(flim_conv_problem p, flim_conv_arguments a, stem_norm *norm)
{
    const int c = blockIdx.x;
    double sum = 0.0, product = 0.0, zhat;
    for (int64_t i = threadIdx.x; i < a.n * volume(p.in); i += THREADS) {
        const double dv = stem_dv<T>(p, a, norm, i, c, &zhat);
        sum += dv;
        product += dv * zhat;
    }
    sum = block_sum<THREADS>(sum);
    product = block_sum<THREADS>(product);
    if (threadIdx.x == 0) {
        norm->sum[c] = sum;
        norm->product[c] = product;
    }
}

/* One block per element of the stem's weight, through BatchNorm's textbook backward; block 0 also the other parameters. */
template <typename T>
__global__ void __launch_bounds__(THREADS)
    stem_dweight(flim_conv_problem p, flim_conv_arguments a, const stem_norm *norm, double *expected, double *got)
{
    const int c = blockIdx.x / FLIM_STEM_WINDOW, k = blockIdx.x % FLIM_STEM_WINDOW, hw = p.in[1] * p.in[2];
    const int64_t positions = a.n * volume(p.in);
    double s = 0.0, zhat;
    for (int64_t i = threadIdx.x; i < positions; i += THREADS) {
        const double dv = stem_dv<T>(p, a, norm, i, c, &zhat);
        s += norm->scale[c] * (dv - norm->sum[c] / (double)positions - zhat * norm->product[c] / (double)positions) *
             window<T>(p, a, i / hw / p.in[0], (int)(i / hw % p.in[0]), (int)(i % hw), k);
    }
    s = block_sum<THREADS>(s);
    if (threadIdx.x == 0) {
        expected[blockIdx.x] = s;
        got[blockIdx.x] = (double)(is_alone(p) ? a.master : a.stem.dweight)[blockIdx.x];
    }
    for (int i = threadIdx.x; blockIdx.x == 0 && i < p.k; i += THREADS) {
        const int bias = p.k * FLIM_STEM_WINDOW + i, gamma = bias + p.k, beta = gamma + p.k;
        expected[bias] = 0.0, got[bias] = (double)a.stem.dbias[i];
        expected[gamma] = norm->product[i], got[gamma] = (double)a.stem.dgamma[i];
        expected[beta] = norm->sum[i], got[beta] = (double)a.stem.dbeta[i];
    }
}

/* One block per element of down's weight. */
template <typename T>
__global__ void __launch_bounds__(THREADS)
    stem_down_dweight(flim_conv_problem p, flim_conv_arguments a, const stem_norm *norm, double *expected, double *got)
{
    const int64_t sample = sample_at(blockIdx.x, (int64_t)p.k * p.c * 3);
    const int j = (int)(sample % 3), c = (int)(sample / 3 % p.c), o = (int)(sample / 3 / p.c), hw = p.in[1] * p.in[2];
    double s = 0.0;
    for (int64_t i = threadIdx.x; i < a.n * volume(p.out); i += THREADS) {
        const int pixel = (int)(i % hw), t = 2 * (int)(i / hw % p.out[0]) - 1 + j;
        if (t >= 0 && t < p.in[0])
            s += stem_dz<T>(p, a, i * p.k + o, o) * stem_activation<T>(p, a, norm, i / hw / p.out[0], t, pixel, c);
    }
    s = block_sum<THREADS>(s);
    if (threadIdx.x == 0) {
        expected[blockIdx.x] = s;
        got[blockIdx.x] = (double)a.master[sample];
    }
}

} // namespace

cudaError_t flim_conv_direct(const flim_launch *l, const flim_conv_problem *problem, const flim_conv_arguments *a,
                             bool fp32_gradient, const flim_conv_groups *groups, double *out)
{
    flim_conv_problem p = *problem;
    p.n = a->n;
    const bool master = p.op == FLIM_CONV_WEIGHT && fp32_gradient;
    const int64_t samples = groups->size[0];
    const int64_t outputs = p.op == FLIM_CONV_FORWARD ? flim_conv_y_elements(&p)
                            : p.op == FLIM_CONV_DATA  ? flim_conv_x_elements(&p)
                            : master                  ? flim_conv_master_elements(&p)
                                                      : flim_conv_w_elements(&p);
    FLIM_BY_TYPE(l->type,
                 (direct<T><<<(unsigned)samples, THREADS, 0, l->stream>>>(p, *a, master, outputs, out, out + samples)));
    return cudaGetLastError();
}

cudaError_t flim_conv_direct_sums(const flim_launch *l, const flim_conv_problem *p, const flim_conv_arguments *a, double *out)
{
    const bool data = p->op == FLIM_CONV_DATA;
    const int64_t positions = a->n * flim_volume(data ? p->in : p->out);
    FLIM_BY_TYPE(l->type, (direct_sums<T><<<(unsigned)(data ? p->c : p->k), THREADS, 0, l->stream>>>(
                              p->epilogue, static_cast<const T *>(data ? a->x : a->y), static_cast<const T *>(a->epilogue.z),
                              a->epilogue.mean, positions, a->sums, out)));
    return cudaGetLastError();
}

namespace
{

template <typename T>
void launch_stem(const flim_launch *l, const flim_conv_problem &p, const flim_conv_arguments &a, const flim_conv_groups &g,
                 stem_norm *norm, double *out)
{
    const bool forward = p.op == FLIM_CONV_FORWARD, alone = flim_stem_is_alone(&p);
    const unsigned first = (unsigned)g.size[0], channels = (unsigned)p.k,
                   behind = alone ? 0 : first; /* down's weight gradient */
    int64_t samples = 0;
    for (int i = 0; i < g.n; i++)
        samples += g.size[i];
    stem_moments<T><<<channels, THREADS, 0, l->stream>>>(p, a, !forward || p.sums, norm);
    if (forward && alone) {
        stem_alone_forward<T>
            <<<(first + THREADS - 1) / THREADS, THREADS, 0, l->stream>>>(p, a, norm, samples, out, out + samples);
        return;
    }
    if (forward) {
        stem_forward<T><<<first, THREADS, 0, l->stream>>>(p, a, norm, out, out + samples);
        return;
    }
    stem_dv_sums<T><<<channels, THREADS, 0, l->stream>>>(p, a, norm);
    if (!alone)
        stem_down_dweight<T><<<first, THREADS, 0, l->stream>>>(p, a, norm, out, out + samples);
    stem_dweight<T><<<channels * FLIM_STEM_WINDOW, THREADS, 0, l->stream>>>(p, a, norm, out + behind, out + samples + behind);
}

} // namespace

cudaError_t flim_stem_direct(const flim_launch *l, const flim_conv_problem *p, const flim_conv_arguments *a,
                             flim_conv_groups *groups, double *out)
{
    if (p->op == FLIM_CONV_WEIGHT && flim_stem_is_alone(p))
        *groups = {4, {(int64_t)p->k * FLIM_STEM_WINDOW, p->k, p->k, p->k}};
    else if (p->op == FLIM_CONV_WEIGHT)
        *groups = {5, {groups->size[0], (int64_t)p->k * FLIM_STEM_WINDOW, p->k, p->k, p->k}};

    stem_norm *norm = reinterpret_cast<stem_norm *>(out + FLIM_STEM_NORM_AT);
    if (p->type == FLIM_STORAGE_BF16)
        launch_stem<__nv_bfloat16>(l, *p, *a, *groups, norm, out);
    else
        launch_stem<__half>(l, *p, *a, *groups, norm, out);
    return cudaGetLastError();
}
