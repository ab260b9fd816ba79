/* The stem by direct double-precision kernels, for check_stem.cu and check_stem_alone.cu: its convolution, BatchNorm's statistics, the
 * activation, and BatchNorm's textbook backward pass. */
#ifndef FLIM_STEM_REFERENCE_CUH
#define FLIM_STEM_REFERENCE_CUH

#include "check_util.cuh"

#include "cuda/conv/conv_stem.h"

namespace
{

struct problem {
    int64_t n;
    int t, to, hw, c; /* c channels */
};

/* Window element i = channel * 7 + tap of position (cell, t, pixel), rounded to T. */
template <typename T>
__device__ double window(const problem &p, const float *signal, const uint8_t *mask, int64_t cell, int t, int pixel, int i)
{
    const int tau = t + i % 7 - 3;
    if (tau < 0 || tau >= p.t)
        return 0.0;
    return i < 7 ? (double)(float)(T)signal[(cell * p.t + tau) * p.hw + pixel] : mask[cell * p.hw + pixel] ? 1.0 : 0.0;
}

/* z (n,T,HW,C) without bias */
template <typename T>
__global__ void ref_stem(problem p, const float *signal, const uint8_t *mask, const float *weight, double *z)
{
    const int64_t count = p.n * p.t * p.hw * p.c;
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < count; i += (int64_t)gridDim.x * blockDim.x) {
        const int c = (int)(i % p.c), pixel = (int)(i / p.c % p.hw), t = (int)(i / p.c / p.hw % p.t);
        const int64_t cell = i / p.c / p.hw / p.t;
        double s = 0.0;
        for (int k = 0; k < 14; k++)
            s += (double)(float)(T)weight[c * 14 + k] * window<T>(p, signal, mask, cell, t, pixel, k);
        z[i] = s;
    }
}

/* out (C): sum over positions of a, or of (a - centre)^2; block c */
__global__ void ref_channel_sum(problem p, const double *a, const double *centre, int64_t positions, double *out)
{
    __shared__ double part[256];
    const int c = blockIdx.x;
    double s = 0.0;
    for (int64_t i = threadIdx.x; i < positions; i += 256) {
        const double v = a[i * p.c + c] - (centre ? centre[c] : 0.0);
        s += centre ? v * v : v;
    }
    part[threadIdx.x] = s;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int i = 1; i < 256; i++)
            s += part[i];
        out[c] = s / (double)positions;
    }
}

/* z -> u in place, and act = round(leaky(u)) */
template <typename T>
__global__ void ref_activation(problem p, int64_t count, const double *mean, const double *var, const float *gamma,
                               const float *beta, double *u, double *act)
{
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < count; i += (int64_t)gridDim.x * blockDim.x) {
        const int c = (int)(i % p.c);
        const double v = gamma[c] * (u[i] - mean[c]) / sqrt(var[c] + 1e-5) + beta[c];
        u[i] = v;
        act[i] = (double)(float)(T)(float)(v > 0 ? v : 0.01 * v);
    }
}

/* sums (2,C): sum dv, sum dv zhat; block c */
__global__ void ref_dv_sums(problem p, int64_t positions, const double *dv, const double *u, const float *gamma,
                            const float *beta, double *out)
{
    __shared__ double part[2][256];
    const int c = blockIdx.x;
    double a = 0.0, b = 0.0;
    for (int64_t i = threadIdx.x; i < positions; i += 256) {
        a += dv[i * p.c + c];
        b += dv[i * p.c + c] * (u[i * p.c + c] - beta[c]) / gamma[c];
    }
    part[0][threadIdx.x] = a;
    part[1][threadIdx.x] = b;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int i = 1; i < 256; i++) {
            a += part[0][i];
            b += part[1][i];
        }
        out[c] = a;
        out[p.c + c] = b;
    }
}

/* dw (C,14) of the stem through BatchNorm's textbook backward; block (c, i) */
template <typename T>
__global__ void ref_dw_stem(problem p, const float *signal, const uint8_t *mask, const double *dv, const double *u,
                            const float *gamma, const float *beta, const double *var, const double *sums, double *dw)
{
    __shared__ double part[256];
    const int c = blockIdx.x, k = blockIdx.y;
    const int64_t positions = p.n * p.t * p.hw;
    double s = 0.0;
    for (int64_t i = threadIdx.x; i < positions; i += 256) {
        const int pixel = (int)(i % p.hw), t = (int)(i / p.hw % p.t);
        const int64_t cell = i / p.hw / p.t;
        const double zhat = (u[i * p.c + c] - beta[c]) / gamma[c];
        const double dz = gamma[c] / sqrt(var[c] + 1e-5) *
                          (dv[i * p.c + c] - sums[c] / (double)positions - zhat * sums[p.c + c] / (double)positions);
        s += dz * window<T>(p, signal, mask, cell, t, pixel, k);
    }
    part[threadIdx.x] = s;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int i = 1; i < 256; i++)
            s += part[i];
        dw[c * 14 + k] = s;
    }
}

__global__ void fill_signal(float *out, problem p, uint64_t seed)
{
    const int64_t count = p.n * p.t * p.hw;
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < count; i += (int64_t)gridDim.x * blockDim.x) {
        const int t = (int)(i / p.hw % p.t);
        const float photons = 60.0f * expf(-3.0f * (float)t / (float)p.t) * unit((uint64_t)i ^ (seed << 40));
        out[i] = log1pf(floorf(photons)) / 10.0f;
    }
}

template <typename T> __global__ void cast(const float *in, T *out, int64_t count)
{
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < count; i += (int64_t)gridDim.x * blockDim.x)
        out[i] = (T)in[i];
}

bool report(const char *what, const difference &d, double tolerance)
{
    const bool good = d.finite && d.relative <= tolerance;
    printf("    %-14s relative %.2e  worst %.2e  (tolerance %.0e) %s\n", what, d.relative, d.worst, tolerance,
           good ? "" : "FAILED");
    return good;
}

} // namespace

#endif
