/* What ranks do with statistics and gradients of each other: kernels between NCCL's calls. */
#include "cuda/kernels/ranks.h"

#include <math.h>

static unsigned grid_for(int64_t count)
{
    const int64_t blocks = (count + 255) / 256;
    return (unsigned)(blocks < 1 ? 1 : blocks > 1024 ? 1024 : blocks);
}

__global__ void __launch_bounds__(256) begin_moves_kernel(float *moves, int64_t count, float counts)
{
    for (int64_t i = blockIdx.x * 256ll + threadIdx.x; i <= count; i += gridDim.x * 256ll) {
        moves[i] = i < count ? 0.0f : counts;
    }
}

cudaError_t flim_k_begin_moves(const flim_launch *l, float *moves, int64_t count, bool counts)
{
    begin_moves_kernel<<<grid_for(count + 1), 256, 0, l->stream>>>(moves, count, counts ? 1.0f : 0.0f);
    return cudaGetLastError();
}

__global__ void __launch_bounds__(256)
    make_moves_kernel(float *__restrict__ running, const float *__restrict__ all, int64_t count, int ranks, const double *momentum)
{
    const double keep = 1 - *momentum;
    for (int64_t i = blockIdx.x * 256ll + threadIdx.x; i < count; i += gridDim.x * 256ll) {
        float value = running[i];
        for (int r = 0; r < ranks; r++) {
            const float *rank = all + r * (count + 1);
            if (rank[count] != 0.0f) {
                value = (float)(keep * value + rank[i]);
            }
        }
        running[i] = value;
    }
}

cudaError_t flim_k_make_moves(const flim_launch *l, float *running, const float *all, int64_t count, int ranks,
                              const double *momentum)
{
    make_moves_kernel<<<grid_for(count), 256, 0, l->stream>>>(running, all, count, ranks, momentum);
    return cudaGetLastError();
}

__global__ void __launch_bounds__(256)
    sum_ranks_kernel(float *__restrict__ sum, const float *__restrict__ all, int64_t count, int ranks)
{
    for (int64_t i = blockIdx.x * 256ll + threadIdx.x; i < count; i += gridDim.x * 256ll) {
        float value = all[i];
        for (int r = 1; r < ranks; r++) {
            value += all[r * count + i];
        }
        sum[i] = value;
    }
}

cudaError_t flim_k_sum_ranks(const flim_launch *l, float *sum, const float *all, int64_t count, int ranks)
{
    sum_ranks_kernel<<<grid_for(count), 256, 0, l->stream>>>(sum, all, count, ranks);
    return cudaGetLastError();
}

__global__ void tell_nonfinite_kernel(const flim_device_state *state, float *gradient)
{
    if (state->nonfinite_call >= 0) {
        *gradient = NAN;
    }
}

cudaError_t flim_k_tell_nonfinite(const flim_launch *l, const flim_device_state *state, float *gradient)
{
    tell_nonfinite_kernel<<<1, 1, 0, l->stream>>>(state, gradient);
    return cudaGetLastError();
}
