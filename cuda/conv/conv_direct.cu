#include "cuda/conv/conv_direct.h"
#include "cuda/kernels/vector.cuh"

__device__ static int64_t volume(const int size[3])
{
    return (int64_t)size[0] * size[1] * size[2];
}

/* Splits a pixel number into t, y, x. */
__device__ static void position(int64_t pixel, const int size[3], int at[3])
{
    at[2] = (int)(pixel % size[2]);
    at[1] = (int)(pixel / size[2] % size[1]);
    at[0] = (int)(pixel / size[2] / size[1]);
}

template <typename T>
__device__ static double forward_term(const flim_conv_problem &p, const T *x, const T *w, int64_t output, int64_t i)
{
    const int k = (int)(output % p.k), c = (int)(i % p.c);
    const int64_t pixels = volume(p.out), tap = i / p.c, n = output / p.k / pixels;
    int o[3], f[3];
    position(output / p.k % pixels, p.out, o);
    position(tap, p.kernel, f);
    int64_t at = n;
    for (int d = 0; d < 3; d++) {
        int q = o[d] * p.stride[d] - p.pad[d] + f[d];
        if (q < 0 || q >= p.in[d]) {
            return 0;
        }
        at = at * p.in[d] + q;
    }
    return (double)to_float(x[at * p.c + c]) * (double)to_float(w[((int64_t)k * volume(p.kernel) + tap) * p.c + c]);
}

template <typename T>
__device__ static double data_term(const flim_conv_problem &p, const T *w, const T *y, int64_t output, int64_t i)
{
    const int c = (int)(output % p.c), k = (int)(i % p.k);
    const int64_t pixels = volume(p.in), tap = i / p.k, n = output / p.c / pixels;
    int o[3], f[3];
    position(output / p.c % pixels, p.in, o);
    position(tap, p.kernel, f);
    int64_t at = n;
    for (int d = 0; d < 3; d++) {
        int q = o[d] + p.pad[d] - f[d];
        if (q < 0 || q % p.stride[d] != 0 || q / p.stride[d] >= p.out[d]) {
            return 0;
        }
        at = at * p.out[d] + q / p.stride[d];
    }
    return (double)to_float(y[at * p.k + k]) * (double)to_float(w[((int64_t)k * volume(p.kernel) + tap) * p.c + c]);
}

template <typename T>
__device__ static double weight_term(const flim_conv_problem &p, const T *x, const T *y, int64_t output, int64_t i)
{
    const int64_t taps = volume(p.kernel), pixels = volume(p.out), n = i / pixels;
    const int c = (int)(output % p.c), k = (int)(output / p.c / taps);
    int o[3], f[3];
    position(i % pixels, p.out, o);
    position(output / p.c % taps, p.kernel, f);
    int64_t at = n;
    for (int d = 0; d < 3; d++) {
        int q = o[d] * p.stride[d] - p.pad[d] + f[d];
        if (q < 0 || q >= p.in[d]) {
            return 0;
        }
        at = at * p.in[d] + q;
    }
    return (double)to_float(x[at * p.c + c]) * (double)to_float(y[i * p.k + k]);
}

/* One block an output. */
template <typename T>
__global__ void __launch_bounds__(256) direct_kernel(flim_conv_problem p, const T *x, const T *w, const T *y, bool master,
                                                     int64_t outputs, double *expected, double *got)
{
    __shared__ double shared[256];
    /* a large odd stride spreads the samples over positions and channels */
    const int64_t sample = (int64_t)((unsigned long long)blockIdx.x * 2654435761ull % (unsigned long long)outputs);
    int64_t output = sample;
    if (master) { /* fp32 (out_channels,in_channels,taps) */
        const int64_t taps = volume(p.kernel), row = sample / taps;
        output = (row / p.in_channels * taps + sample % taps) * p.c + row % p.in_channels;
    }
    const int64_t terms = p.op == FLIM_CONV_FORWARD ? volume(p.kernel) * p.c
                          : p.op == FLIM_CONV_DATA  ? volume(p.kernel) * p.k
                                                    : p.n * volume(p.out);
    double sum = 0;
    for (int64_t i = threadIdx.x; i < terms; i += 256) {
        sum += p.op == FLIM_CONV_FORWARD ? forward_term<T>(p, x, w, output, i)
               : p.op == FLIM_CONV_DATA  ? data_term<T>(p, w, y, output, i)
                                         : weight_term<T>(p, x, y, output, i);
    }
    shared[threadIdx.x] = sum;
    for (int half = 128; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) {
            shared[threadIdx.x] += shared[threadIdx.x + half];
        }
    }
    if (threadIdx.x == 0) {
        expected[blockIdx.x] = shared[0];
        if (master) {
            got[blockIdx.x] = ((const float *)w)[sample];
        } else {
            got[blockIdx.x] = to_float((p.op == FLIM_CONV_FORWARD ? y : p.op == FLIM_CONV_DATA ? x : w)[output]);
        }
    }
}

cudaError_t flim_conv_direct(const flim_launch *l, const flim_conv_problem *p, const void *x, const void *w, const void *y,
                             bool master, int samples, double *expected, double *got)
{
    int64_t outputs = p->op == FLIM_CONV_FORWARD ? flim_conv_y_elements(p)
                      : p->op == FLIM_CONV_DATA  ? flim_conv_x_elements(p)
                      : master                   ? flim_conv_master_elements(p)
                                                 : flim_conv_w_elements(p);
    FLIM_BY_TYPE(l->type, (direct_kernel<T><<<(unsigned)samples, 256, 0, l->stream>>>(
                              *p, (const T *)x, (const T *)w, (const T *)y, master, outputs, expected, got)));
    return cudaGetLastError();
}
