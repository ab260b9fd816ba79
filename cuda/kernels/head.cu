/* The head in fp32: fc1 -> BatchNorm -> leaky ReLU -> dropout -> fc2 -> loss.  A few hundred thousand multiply-adds: one block a
 * hidden unit (or a cell) and plain loops. */
#include "cuda/kernels/vector.cuh"

#include <math.h>

#define EPS 1e-5
#define MOMENTUM 0.1
#define SLOPE 0.01f
#define THREADS 128

/* Sum over the block, the same on every thread. */
__device__ static double block_sum(double value)
{
    __shared__ double shared[THREADS];
    __syncthreads();
    shared[threadIdx.x] = value;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) {
            shared[threadIdx.x] += shared[threadIdx.x + half];
        }
    }
    __syncthreads();
    return shared[0];
}

/* One block a hidden unit j. */
__global__ void __launch_bounds__(THREADS) hidden_kernel(flim_head_kernels h, bool train)
{
    const int j = blockIdx.x;
    const float *w = h.fc1_weight + (int64_t)j * h.in;
    double sum = 0;
    for (int64_t n = threadIdx.x; n < h.cells; n += THREADS) {
        const float *x = h.mean + n * h.c;
        float z = 0;
        for (int i = 0; i < h.in; i++) {
            z = fmaf(w[i], x[i], z);
        }
        z += h.fc1_bias[j];
        h.z[n * h.hidden + j] = z;
        sum += z;
    }
    double mean = h.running_mean[j], var = h.running_var[j];
    if (train && h.cells > 1) {
        mean = block_sum(sum) / (double)h.cells;
        double square = 0;
        for (int64_t n = threadIdx.x; n < h.cells; n += THREADS) {
            double d = h.z[n * h.hidden + j] - mean;
            square += d * d;
        }
        square = block_sum(square);
        var = square / (double)h.cells;
        if (threadIdx.x == 0) {
            h.running_mean[j] = (float)((1 - MOMENTUM) * h.running_mean[j] + MOMENTUM * mean);
            h.running_var[j] = (float)((1 - MOMENTUM) * h.running_var[j] + MOMENTUM * square / (double)(h.cells - 1));
        }
    }
    const float m = (float)mean, invstd = (float)(1.0 / sqrt(var + EPS));
    if (threadIdx.x == 0) {
        h.norm_mean[j] = m;
        h.norm_invstd[j] = invstd;
    }
    for (int64_t n = threadIdx.x; n < h.cells; n += THREADS) {
        float v = (h.z[n * h.hidden + j] - m) * invstd * h.gamma[j] + h.beta[j];
        v = v > 0 ? v : v * SLOPE;
        h.h[n * h.hidden + j] = h.dropout ? v * h.dropout[n * h.dropout_stride + j] : v;
    }
}

/* One warp a logit. */
__global__ void __launch_bounds__(THREADS) logits_kernel(flim_head_kernels h)
{
    int64_t item = (blockIdx.x * (int64_t)THREADS + threadIdx.x) / 32;
    if (item >= h.cells * h.outputs) {
        return;
    }
    int64_t n = item / h.outputs, k = item % h.outputs;
    float sum = 0;
    for (int j = threadIdx.x % 32; j < h.hidden; j += 32) {
        sum = fmaf(h.h[n * h.hidden + j], h.fc2_weight[k * h.hidden + j], sum);
    }
    for (int offset = 16; offset > 0; offset /= 2) {
        sum += __shfl_xor_sync(0xffffffffu, sum, offset);
    }
    if (threadIdx.x % 32 == 0) {
        h.logits[item] = sum + h.fc2_bias[k];
    }
}

cudaError_t flim_k_head_forward(const flim_launch *l, const flim_head_kernels *h, bool train)
{
    hidden_kernel<<<(unsigned)h->hidden, THREADS, 0, l->stream>>>(*h, train);
    logits_kernel<<<(unsigned)((h->cells * h->outputs * 32 + THREADS - 1) / THREADS), THREADS, 0, l->stream>>>(*h);
    return cudaGetLastError();
}

/* One thread a cell; the loss in double. */
__global__ void __launch_bounds__(THREADS) loss_kernel(flim_head_kernels h)
{
    int64_t n = blockIdx.x * (int64_t)THREADS + threadIdx.x;
    if (n >= h.cells) {
        return;
    }
    const float *x = h.logits + n * h.outputs;
    float *dx = h.dlogits + n * h.outputs;
    const int label = h.label[n], k_count = h.outputs;
    const double s = *h.smoothing, weight = h.weight[n], factor = weight / *h.divisor * *h.loss_scale;
    double loss;
    int best = 0;
    if (k_count == 1) {
        double v = x[0], target = label * (1 - s) + s / 2, e = exp(-fabs(v));
        loss = fmax(v, 0.0) - v * target + log1p(e);
        double sigmoid = v >= 0 ? 1 / (1 + e) : e / (1 + e);
        dx[0] = (float)((sigmoid - target) * factor);
        best = v > 0;
    } else {
        double most = x[0], sum = 0, mean = 0;
        for (int k = 1; k < k_count; k++) {
            if (x[k] > most) {
                most = x[k];
                best = k;
            }
        }
        for (int k = 0; k < k_count; k++) {
            sum += exp(x[k] - most);
            mean += x[k];
        }
        double log_sum = most + log(sum);
        loss = (1 - s) * (log_sum - x[label]) + s * (log_sum - mean / k_count);
        for (int k = 0; k < k_count; k++) {
            double target = (k == label ? 1 - s : 0.0) + s / k_count;
            dx[k] = (float)((exp(x[k] - log_sum) - target) * factor);
        }
    }
    h.loss[n] = loss * weight;
    h.correct[n] = best == label;
}

cudaError_t flim_k_head_loss(const flim_launch *l, const flim_head_kernels *h)
{
    loss_kernel<<<(unsigned)((h->cells + THREADS - 1) / THREADS), THREADS, 0, l->stream>>>(*h);
    return cudaGetLastError();
}

__device__ static void give(float *to, int64_t k, double value, double unscale, bool add)
{
    if (to) {
        value *= unscale;
        to[k] = (float)(add ? to[k] + value : value);
    }
}

/* One block a hidden unit j: dfc2_weight[:,j], through dropout, activation and BatchNorm to dz[:,j], and fc1's gradients. */
__global__ void __launch_bounds__(THREADS) hidden_backward_kernel(flim_head_kernels h, bool train)
{
    const int j = blockIdx.x;
    const double unscale = 1.0 / (double)*h.loss_scale;
    const float mean = h.norm_mean[j], invstd = h.norm_invstd[j], gamma = h.gamma[j];
    for (int k = threadIdx.x; k < h.outputs; k += THREADS) {
        double sum = 0, bias = 0;
        for (int64_t n = 0; n < h.cells; n++) {
            sum += (double)h.dlogits[n * h.outputs + k] * h.h[n * h.hidden + j];
            bias += h.dlogits[n * h.outputs + k];
        }
        give(h.dfc2_weight, (int64_t)k * h.hidden + j, sum, unscale, h.add);
        if (j == 0) {
            give(h.dfc2_bias, k, bias, unscale, h.add);
        }
    }
    double s0 = 0, s1 = 0;
    for (int64_t n = threadIdx.x; n < h.cells; n += THREADS) {
        float d = 0, zhat = (h.z[n * h.hidden + j] - mean) * invstd;
        for (int k = 0; k < h.outputs; k++) {
            d = fmaf(h.dlogits[n * h.outputs + k], h.fc2_weight[(int64_t)k * h.hidden + j], d);
        }
        if (h.dropout) {
            d *= h.dropout[n * h.dropout_stride + j];
        }
        d *= zhat * gamma + h.beta[j] > 0 ? 1.0f : SLOPE;
        h.dz[n * h.hidden + j] = d;
        s0 += d;
        s1 += (double)d * zhat;
    }
    s0 = block_sum(s0);
    s1 = block_sum(s1);
    const bool frozen = !train || h.cells == 1;
    if (threadIdx.x == 0) {
        give(h.dgamma, j, s1, unscale, h.add);
        give(h.dbeta, j, s0, unscale, h.add);
        give(h.dfc1_bias, j, frozen ? s0 * gamma * invstd : 0.0, unscale, h.add); /* BatchNorm takes the mean out */
    }
    const double m0 = frozen ? 0.0 : s0 / (double)h.cells, m1 = frozen ? 0.0 : s1 / (double)h.cells;
    for (int64_t n = threadIdx.x; n < h.cells; n += THREADS) {
        float zhat = (h.z[n * h.hidden + j] - mean) * invstd;
        h.dz[n * h.hidden + j] = (float)((double)gamma * invstd * (h.dz[n * h.hidden + j] - m0 - zhat * m1));
    }
    __syncthreads();
    for (int i = threadIdx.x; i < h.in; i += THREADS) {
        double sum = 0;
        for (int64_t n = 0; n < h.cells; n++) {
            sum += (double)h.dz[n * h.hidden + j] * h.mean[n * h.c + i];
        }
        give(h.dfc1_weight, (int64_t)j * h.in + i, sum, unscale, h.add);
    }
}

__global__ void __launch_bounds__(THREADS) dmean_kernel(flim_head_kernels h)
{
    const int64_t n = blockIdx.x;
    for (int i = threadIdx.x; i < h.c; i += THREADS) {
        double sum = 0;
        if (i < h.in) {
            for (int j = 0; j < h.hidden; j++) {
                sum += (double)h.dz[n * h.hidden + j] * h.fc1_weight[(int64_t)j * h.in + i];
            }
        }
        h.dmean[n * h.c + i] = (float)(sum / (double)h.pixels);
    }
}

cudaError_t flim_k_head_backward(const flim_launch *l, const flim_head_kernels *h, bool train)
{
    hidden_backward_kernel<<<(unsigned)h->hidden, THREADS, 0, l->stream>>>(*h, train);
    dmean_kernel<<<(unsigned)h->cells, THREADS, 0, l->stream>>>(*h);
    return cudaGetLastError();
}
