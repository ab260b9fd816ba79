/* 3x3x3 convolutions C -> K, stride 1 and 2, by direct sums in double precision. */
#ifndef FLIM_CONV3X3X3_REFERENCE_CUH
#define FLIM_CONV3X3X3_REFERENCE_CUH

#include "check_util.cuh"

namespace
{

struct size {
    int64_t n;
    int t, h, w; /* of the layer's input */
    int c, k, stride; /* channels in and out; stride in y and x */

    __host__ __device__ int ho() const
    {
        return (h - 1) / stride + 1;
    }
    __host__ __device__ int wo() const
    {
        return (w - 1) / stride + 1;
    }
    int64_t x_elements() const
    {
        return n * t * h * w * c;
    }
    int64_t y_elements() const
    {
        return n * t * ho() * wo() * k;
    }
};

/* out = conv(x) + bias, or the data gradient (data) of x without bias. */
template <typename T>
__global__ void ref_conv(size s, const T *x, const float *weight, const float *bias, bool data, double *out)
{
    const int ci = data ? s.k : s.c, co = data ? s.c : s.k, hi = data ? s.ho() : s.h, wi = data ? s.wo() : s.w,
              ho = data ? s.h : s.ho(), wo = data ? s.w : s.wo();
    const int64_t count = s.n * s.t * ho * wo * co;
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < count; i += (int64_t)gridDim.x * blockDim.x) {
        const int o = (int)(i % co);
        const int64_t at = i / co, cell = at / wo / ho / s.t;
        const int xo = (int)(at % wo), yo = (int)(at / wo % ho), to = (int)(at / wo / ho % s.t);
        double sum = bias ? bias[o] : 0.0;
        for (int tap = 0; tap < 27; tap++) {
            const int t = to + tap / 9 - 1; /* of the data gradient the taps run backwards */
            int y = yo * (data ? 1 : s.stride) + tap / 3 % 3 - 1, x_at = xo * (data ? 1 : s.stride) + tap % 3 - 1;
            if (data && (y % s.stride != 0 || x_at % s.stride != 0))
                continue;
            y = data ? y / s.stride : y, x_at = data ? x_at / s.stride : x_at;
            if ((unsigned)t >= (unsigned)s.t || (unsigned)y >= (unsigned)hi || (unsigned)x_at >= (unsigned)wi)
                continue;
            const T *from = x + (((cell * s.t + t) * hi + y) * wi + x_at) * ci;
            for (int c = 0; c < ci; c++)
                sum += (double)(float)from[c] *
                       (double)(float)(T)(data ? weight[(c * co + o) * 27 + 26 - tap] : weight[(o * ci + c) * 27 + tap]);
        }
        out[i] = sum;
    }
}

/* (K,C,27) -> (K,27,C), rounded. */
template <typename T> __global__ void store_weight(int k, int c, const float *weight, T *w)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < k * c * 27; i += gridDim.x * blockDim.x)
        w[(i / 27 / c * 27 + i % 27) * c + i / 27 % c] = (T)weight[i];
}

/* The largest share of its terms by which a sum over `out`, as stored, is off: of a data gradient du and du (z - mean), without z of a forward
 * convolution v and v^2, v being out - mean. */
template <typename T>
double worst_sum(const std::vector<T> &out, const device_array<T> *z, const device_array<float> &mean, int channels,
                 const device_array<double> &sums)
{
    const std::vector<T> others = z ? z->host() : std::vector<T>();
    const std::vector<float> about = mean.host();
    const size_t c = (size_t)channels;
    std::vector<double> want(2 * c, 0.0), scale(2 * c, 0.0);
    for (size_t i = 0; i < out.size(); i++) {
        const double stored = (double)(float)out[i], v = z ? stored : stored - about[i % c],
                     other = z ? (double)(float)others[i] - about[i % c] : v;
        want[i % c] += v;
        want[c + i % c] += v * other;
        scale[i % c] += std::fabs(v);
        scale[c + i % c] += std::fabs(v * other);
    }
    const std::vector<double> got = sums.host();
    double worst = 0.0;
    for (size_t i = 0; i < 2 * c; i++) {
        const double off =
            std::fabs(got[i] - want[i]) / std::max(scale[i], 1e-30); /* 0 of a channel that is dropped everywhere */
        worst = off > worst || off != off ? off : worst;
    }
    return worst;
}

} // namespace
#endif
