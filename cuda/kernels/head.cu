/* Heads in fp32: fc1 -> BatchNorm -> leaky ReLU -> dropout -> fc2 -> loss, a few hundred thousand multiply-adds: one block
 * per hidden column (or cell) and plain loops; and the losses of dense heads, one block per cell. */
#include "cuda/kernels/vector.cuh"
#include "cuda/kernels/moments.cuh"
#include "cuda/kernels/ranks.h"

#include "backend/loss.h"

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

/* fc1's outputs in hidden column j; returns the sum of this thread's. */
__device__ static double hidden_outputs(const flim_head_kernels &h, int j)
{
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
    return sum;
}

/* Sum of squared deviations from the mean. */
__device__ static double deviations(const flim_head_kernels &h, int j, double mean)
{
    double square = 0;
    for (int64_t n = threadIdx.x; n < h.cells; n += THREADS) {
        double d = h.z[n * h.hidden + j] - mean;
        square += d * d;
    }
    return block_sum(square);
}

/* The running statistics by a batch of 1 + `others` cells. */
__device__ static void move_running(const flim_head_kernels &h, int j, double mean, double square, double others)
{
    if (threadIdx.x == 0) {
        const double momentum = *h.momentum;
        h.running_mean[j] = (float)((1 - momentum) * h.running_mean[j] + momentum * mean);
        h.running_var[j] = (float)((1 - momentum) * h.running_var[j] + momentum * square / others);
    }
}

/* BatchNorm, leaky ReLU and dropout of hidden column j. */
__device__ static void normalise(const flim_head_kernels &h, int j, double mean, double var)
{
    const float m = (float)mean, invstd = (float)(1.0 / sqrt(var + FLIM_BN_EPS_EXACT));
    if (threadIdx.x == 0) {
        h.norm_mean[j] = m;
        h.norm_invstd[j] = invstd;
    }
    for (int64_t n = threadIdx.x; n < h.cells; n += THREADS) {
        float v = (h.z[n * h.hidden + j] - m) * invstd * h.gamma[j] + h.beta[j];
        v = v > 0 ? v : v * FLIM_LEAKY_SLOPE;
        h.h[n * h.hidden + j] = h.dropout ? v * h.dropout[n * h.dropout_stride + j] : v;
    }
}

/* One block per hidden column j. */
__global__ void __launch_bounds__(THREADS) hidden_kernel(flim_head_kernels h, bool train)
{
    const int j = blockIdx.x;
    const double sum = hidden_outputs(h, j);
    double mean = h.running_mean[j], var = h.running_var[j];
    if (train && h.cells > 1) {
        mean = block_sum(sum) / (double)h.cells;
        const double square = deviations(h, j, mean);
        var = square / (double)h.cells;
        move_running(h, j, mean, square, (double)(h.cells - 1));
    }
    normalise(h, j, mean, var);
}

/* One warp per logit. */
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

/* What head number 0 leaves of a cell's loss, and the heads after it add. */
__device__ static void note_loss(const flim_loss_sums &sums, int64_t n, double loss, float weight, bool correct)
{
    sums.loss[n] = sums.add ? sums.loss[n] + loss : loss;
    if (!sums.add) {
        sums.correct[n] = correct;
        if (sums.weight) {
            sums.weight[n] = weight;
        }
    }
}

/* One thread per cell; the loss in double. */
__global__ void __launch_bounds__(THREADS) loss_kernel(flim_head_kernels h)
{
    int64_t n = blockIdx.x * (int64_t)THREADS + threadIdx.x;
    if (n >= h.cells) {
        return;
    }
    const float *x = h.logits + n * h.outputs;
    const flim_target target = {.label = h.batch.label[n],
                                .smoothing = *h.smoothing,
                                .gamma = *h.focal_gamma,
                                .distribution = h.batch.target ? h.batch.target + n * h.batch.classes : NULL,
                                .signal = 0};
    const double weight = flim_cell_weight(&h.head, h.batch.weight[n], target.label), scaled = weight * h.head.weight;
    double norm[FLIM_LOSS_NORMS] = {0};
    const double loss = flim_loss_of(h.head.loss, x, h.outputs, &target, norm);
    for (int k = 0; k < h.outputs; k++) {
        const double slope = flim_loss_slope(h.head.loss, x, k, h.outputs, &target, norm);
        h.dlogits[n * h.outputs + k] = (float)(slope * (scaled / *h.batch.divisor * *h.batch.loss_scale));
    }
    note_loss(h.sums, n, loss * scaled, (float)weight, flim_predicted_by(x, h.outputs) == target.label);
}

cudaError_t flim_k_head_loss(const flim_launch *l, const flim_head_kernels *h)
{
    loss_kernel<<<(unsigned)((h->cells + THREADS - 1) / THREADS), THREADS, 0, l->stream>>>(*h);
    return cudaGetLastError();
}

/* One block per cell. */
template <typename T> __global__ void __launch_bounds__(THREADS) dense_kernel(flim_dense_kernels d)
{
    const int64_t n = blockIdx.x;
    const T *y = (const T *)d.y + n * d.voxels * d.c, *x = (const T *)d.input + n * d.voxels * d.input_c;
    const bool masked = flim_loss_target(d.head.loss) == FLIM_TARGET_SIGNAL_IN_MASK;
    double pixels = 0, sum = 0;
    for (int64_t i = threadIdx.x; i < d.plane; i += THREADS) {
        pixels += !masked || (float)x[i * d.input_c + 1] != 0.0f;
    }
    const double count = block_sum(pixels) * (double)(d.voxels / d.plane);
    const double weight = flim_cell_weight(&d.head, d.batch.weight[n], d.batch.label[n]), scaled = weight * d.head.weight;
    const double share = count > 0 ? scaled / *d.batch.divisor * *d.batch.loss_scale * d.scale / count : 0;
    for (int64_t i = threadIdx.x; i < d.voxels; i += THREADS) {
        const flim_target target = {
            .label = 0, .smoothing = 0, .gamma = 0, .distribution = NULL, .signal = (float)x[i * d.input_c]};
        const float value = (float)y[i * d.c];
        double norm[FLIM_LOSS_NORMS] = {0}, slope = 0;
        if (!masked || (float)x[i * d.input_c + 1] != 0.0f) {
            sum += flim_loss_of(d.head.loss, &value, 1, &target, norm);
            slope = flim_loss_slope(d.head.loss, &value, 0, 1, &target, norm);
        }
        for (int c = 0; c < d.c; c++) {
            ((T *)d.dy)[(n * d.voxels + i) * d.c + c] = (T)(float)(c == 0 ? slope * share : 0.0);
        }
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) {
        note_loss(d.sums, n, count > 0 ? sum / count * scaled : 0.0, (float)weight, false);
        if (n == 0) {
            *d.dy_scale = (float)d.scale;
        }
    }
}

cudaError_t flim_k_dense_loss(const flim_launch *l, const flim_dense_kernels *d)
{
    FLIM_BY_TYPE(l->type, (dense_kernel<T><<<(unsigned)d->cells, THREADS, 0, l->stream>>>(*d)));
    return cudaGetLastError();
}

__device__ static void give(float *to, int64_t k, double value, double unscale, bool add)
{
    if (to) {
        value *= unscale;
        to[k] = (float)(add ? to[k] + value : value);
    }
}

/* dfc2_weight[:,j], for j = 0 dfc2_bias, and through dropout and activation to du[:,j] in dz; the block's sums of du and du zhat. */
__device__ static void backward_to_norm(const flim_head_kernels &h, int j, double unscale, double *s0, double *s1)
{
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
    double first = 0, second = 0;
    for (int64_t n = threadIdx.x; n < h.cells; n += THREADS) {
        float d = 0, zhat = (h.z[n * h.hidden + j] - mean) * invstd;
        for (int k = 0; k < h.outputs; k++) {
            d = fmaf(h.dlogits[n * h.outputs + k], h.fc2_weight[(int64_t)k * h.hidden + j], d);
        }
        if (h.dropout) {
            d *= h.dropout[n * h.dropout_stride + j];
        }
        d *= zhat * gamma + h.beta[j] > 0 ? 1.0f : FLIM_LEAKY_SLOPE;
        h.dz[n * h.hidden + j] = d;
        first += d;
        second += (double)d * zhat;
    }
    *s0 = block_sum(first);
    *s1 = block_sum(second);
    if (threadIdx.x == 0) {
        give(h.dgamma, j, *s1, unscale, h.add);
        give(h.dbeta, j, *s0, unscale, h.add);
    }
}

/* Through BatchNorm to dz[:,j], and fc1's gradients; m0, m1: means of du and du zhat, 0 if the statistics are frozen. */
__device__ static void backward_through_norm(const flim_head_kernels &h, int j, double unscale, double m0, double m1)
{
    const float mean = h.norm_mean[j], invstd = h.norm_invstd[j], gamma = h.gamma[j];
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

/* One block per hidden column j. */
__global__ void __launch_bounds__(THREADS) hidden_backward_kernel(flim_head_kernels h, bool train)
{
    const int j = blockIdx.x;
    const double unscale = 1.0 / (double)*h.batch.loss_scale;
    double s0, s1;
    backward_to_norm(h, j, unscale, &s0, &s1);
    const bool frozen = !train || h.cells == 1;
    if (threadIdx.x == 0) { /* BatchNorm takes the mean out */
        give(h.dfc1_bias, j, frozen ? s0 * h.gamma[j] * h.norm_invstd[j] : 0.0, unscale, h.add);
    }
    backward_through_norm(h, j, unscale, frozen ? 0.0 : s0 / (double)h.cells, frozen ? 0.0 : s1 / (double)h.cells);
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

/* ---- the same with BatchNorm over the batches of several ranks ---- */

/* One block per hidden column j: fc1, and its moments over this rank's cells, of which there may be none. */
__global__ void __launch_bounds__(THREADS) shared_hidden_kernel(flim_head_kernels h, double *own)
{
    const int j = blockIdx.x;
    const double sum = hidden_outputs(h, j);
    const double mean = h.cells > 0 ? block_sum(sum) / (double)h.cells : 0.0;
    const double square = deviations(h, j, mean);
    if (threadIdx.x == 0) {
        own[0] = (double)h.cells; /* the same from every block */
        own[1 + j] = mean;
        own[1 + h.hidden + j] = square;
    }
}

cudaError_t flim_k_sync_head_moments(const flim_launch *l, const flim_head_kernels *h, double *own)
{
    shared_hidden_kernel<<<(unsigned)h->hidden, THREADS, 0, l->stream>>>(*h, own);
    return cudaGetLastError();
}

/* One block per hidden column j. */
__global__ void __launch_bounds__(THREADS) shared_norm_kernel(flim_head_kernels h, flim_rank_sums sums)
{
    const int j = blockIdx.x;
    const moments all = join_ranks(sums.all, sums.stride, sums.ranks, h.hidden, j);
    double mean = h.running_mean[j], var = h.running_var[j];
    __syncthreads(); /* read before they are moved */
    if (all.n > 1.5) {
        mean = all.mean;
        var = all.m2 / all.n;
        move_running(h, j, mean, all.m2, all.n - 1);
    }
    normalise(h, j, mean, var);
}

cudaError_t flim_k_head_forward_ranks(const flim_launch *l, const flim_head_kernels *h, const flim_rank_sums *sums)
{
    shared_norm_kernel<<<(unsigned)h->hidden, THREADS, 0, l->stream>>>(*h, *sums);
    if (h->cells > 0) {
        logits_kernel<<<(unsigned)((h->cells * h->outputs * 32 + THREADS - 1) / THREADS), THREADS, 0, l->stream>>>(*h);
    }
    return cudaGetLastError();
}

/* One block per hidden column j. */
__global__ void __launch_bounds__(THREADS) shared_backward_sums_kernel(flim_head_kernels h, double *own)
{
    const int j = blockIdx.x;
    double s0, s1;
    backward_to_norm(h, j, 1.0 / (double)*h.batch.loss_scale, &s0, &s1);
    if (threadIdx.x == 0) {
        own[0] = (double)h.cells;
        own[1 + j] = s0;
        own[1 + h.hidden + j] = s1;
    }
}

cudaError_t flim_k_sync_head_sums(const flim_launch *l, const flim_head_kernels *h, double *own)
{
    shared_backward_sums_kernel<<<(unsigned)h->hidden, THREADS, 0, l->stream>>>(*h, own);
    return cudaGetLastError();
}

/* One block per hidden column j. */
__global__ void __launch_bounds__(THREADS) shared_backward_kernel(flim_head_kernels h, flim_rank_sums sums)
{
    const int j = blockIdx.x;
    const double unscale = 1.0 / (double)*h.batch.loss_scale;
    double cells = 0, s0 = 0, s1 = 0;
    for (int r = 0; r < sums.ranks; r++) {
        const double *of = sums.all + r * sums.stride;
        cells += of[0];
        s0 += of[1 + j];
        s1 += of[1 + h.hidden + j];
    }
    const bool frozen = cells < 1.5;
    if (threadIdx.x == 0) { /* BatchNorm takes the mean out */
        const double own = sums.all[sums.rank * sums.stride + 1 + j];
        give(h.dfc1_bias, j, frozen ? own * h.gamma[j] * h.norm_invstd[j] : 0.0, unscale, h.add);
    }
    backward_through_norm(h, j, unscale, frozen ? 0.0 : s0 / cells, frozen ? 0.0 : s1 / cells);
}

cudaError_t flim_k_head_backward_ranks(const flim_launch *l, const flim_head_kernels *h, const flim_rank_sums *sums)
{
    shared_backward_kernel<<<(unsigned)h->hidden, THREADS, 0, l->stream>>>(*h, *sums);
    dmean_kernel<<<(unsigned)h->cells, THREADS, 0, l->stream>>>(*h);
    return cudaGetLastError();
}
