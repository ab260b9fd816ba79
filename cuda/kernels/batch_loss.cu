/* A loss over the batch: each cell's outputs beside those of all others (backend/similarity.h).  A few million multiply-adds. */
#include "cuda/kernels/reduce.cuh"
#include "cuda/kernels/vector.cuh"

#include "backend/similarity.h"

#define THREADS 128

/* One block per cell. */
__global__ void __launch_bounds__(THREADS) normalise_kernel(flim_head_kernels h)
{
    const float *x = h.logits + (int64_t)blockIdx.x * h.outputs;
    double sum = 0;
    for (int k = threadIdx.x; k < h.outputs; k += THREADS) {
        sum += (double)x[k] * x[k];
    }
    const double norm = sqrt(block_sum<THREADS>(sum)) + FLIM_LEAST_NORM;
    for (int k = threadIdx.x; k < h.outputs; k += THREADS) {
        h.embedded[(int64_t)blockIdx.x * h.outputs + k] = x[k] / norm;
    }
    if (threadIdx.x == 0) {
        h.embedded_norm[blockIdx.x] = norm;
    }
}

/* One block per cell: its row of similarities, a warp per other cell. */
__global__ void __launch_bounds__(THREADS) similarity_kernel(flim_head_kernels h)
{
    const int64_t i = blockIdx.x;
    const double *own = h.embedded + i * h.outputs;
    for (int64_t j = threadIdx.x / 32; j < h.cells; j += THREADS / 32) {
        const double *other = h.embedded + j * h.outputs;
        double sum = 0;
        for (int k = threadIdx.x % 32; k < h.outputs; k += 32) {
            sum += own[k] * other[k];
        }
        sum = warp_sum(sum);
        if (threadIdx.x % 32 == 0) {
            h.similarity[i * h.cells + j] =
                flim_is_compared(h.head.loss, h.batch.label, i, j) ? (float)(sum / h.head.temperature) : FLIM_NOT_COMPARED;
        }
    }
}

/* One thread per cell: its loss, and its row of similarities becomes its slopes. */
__global__ void __launch_bounds__(THREADS) batch_loss_kernel(flim_head_kernels h)
{
    const int64_t i = blockIdx.x * (int64_t)THREADS + threadIdx.x;
    if (i >= h.cells) {
        return;
    }
    float *row = h.similarity + i * h.cells;
    double *slope = h.similarity_slope + i * h.cells;
    const int64_t partner = flim_partner_of(i, h.cells);
    const flim_target target = {.label = (int)partner, .smoothing = 0, .gamma = 0, .distribution = NULL, .signal = 0};
    const double weight = flim_cell_weight(&h.head, h.batch.weight[i], h.batch.label[i]), scaled = weight * h.head.weight;
    const double scale = scaled / *h.batch.divisor * *h.batch.loss_scale;
    double norm[FLIM_LOSS_NORMS] = {0}, loss = 0;
    const int n = (int)h.cells;
    if (partner >= 0) {
        loss = flim_loss_of(h.head.loss, row, n, &target, norm);
    }
    for (int j = 0; j < n; j++) {
        slope[j] = partner < 0 ? 0 : flim_loss_slope(h.head.loss, row, j, n, &target, norm) * scale;
    }
    h.sums.loss[i] = h.sums.add ? h.sums.loss[i] + loss * scaled : loss * scaled;
    if (!h.sums.add) {
        h.sums.correct[i] = partner >= 0 && flim_predicted_by(row, n) == target.label;
        if (h.sums.weight) {
            h.sums.weight[i] = (float)weight;
        }
    }
}

/* One block per cell. */
__global__ void __launch_bounds__(THREADS) batch_gradient_kernel(flim_head_kernels h)
{
    const int64_t i = blockIdx.x, n = h.cells;
    const double *own = h.embedded + i * h.outputs;
    double *d = h.embedded_gradient + i * h.outputs, along = 0;
    for (int k = threadIdx.x; k < h.outputs; k += THREADS) {
        double sum = 0;
        for (int64_t j = 0; j < n; j++) {
            sum += (h.similarity_slope[i * n + j] + h.similarity_slope[j * n + i]) * h.embedded[j * h.outputs + k];
        }
        d[k] = sum / h.head.temperature;
        along += d[k] * own[k];
    }
    along = block_sum<THREADS>(along);
    for (int k = threadIdx.x; k < h.outputs; k += THREADS) {
        h.dlogits[i * h.outputs + k] = (float)((d[k] - along * own[k]) / h.embedded_norm[i]);
    }
}

cudaError_t flim_k_batch_loss(const flim_launch *l, const flim_head_kernels *h)
{
    const unsigned cells = (unsigned)h->cells;
    normalise_kernel<<<cells, THREADS, 0, l->stream>>>(*h);
    similarity_kernel<<<cells, THREADS, 0, l->stream>>>(*h);
    batch_loss_kernel<<<(cells + THREADS - 1) / THREADS, THREADS, 0, l->stream>>>(*h);
    batch_gradient_kernel<<<cells, THREADS, 0, l->stream>>>(*h);
    return cudaGetLastError();
}
