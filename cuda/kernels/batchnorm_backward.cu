/* Backward through a unit's epilogue, second of three: sums over dv become the coefficients of dz, the gradients of gamma,
 * beta and bias, and the scale that dz is stored with.  One small kernel, from the sums of epilogue_sums.cu or those that a
 * convolution gathered. */
#include <math.h>

#include "cuda/kernels/kernels.h"
#include "cuda/kernels/ranks.h"
#include "cuda/kernels/reduce.cuh"
#include "cuda/kernels/vector.cuh"

/* The power of two that brings a gradient's root mean square near 2^-9.  With at most 2^24 values per channel the largest
 * possible value (sqrt(count) times the rms) and the sums of the weight gradient then stay within fp16's range, and values
 * 2^-15 times the rms still count. */
__device__ static float scale_for(double mean_square)
{
    if (!(mean_square > 0.0) || isinf(mean_square)) {
        return 1.0f;
    }
    int exponent = -9 - (int)lrint(0.5 * log2(mean_square));
    exponent = exponent > 100 ? 100 : exponent < -100 ? -100 : exponent;
    return exp2f((float)exponent);
}

struct grad_norm_args {
    flim_blocks b;
    double count;
    flim_grad_norm main, skip;
    bool has_skip, scaled, frozen, add;
    float *dv_scale;
    const float *loss_scale;
};

__device__ static void give(float *to, int k, double value, bool add)
{
    if (to) {
        to[k] = (float)(add ? to[k] + value : value);
    }
}

/* Mean square of dz in one channel: dz is g dv with its projections on 1 and on zhat taken out.  s0 = sum dv, s1 = sum dv z,
 * s2 = sum dv^2. */
__device__ static double dz_square(const flim_grad_norm &n, int k, double count, double s0, double s1, double s2, bool frozen)
{
    const double invstd = n.norm.invstd[k], ws = n.norm.weight_scale ? *n.norm.weight_scale : 1.0;
    double g = n.norm.present ? n.norm.gamma[k] * invstd * ws : 1.0;
    double left = s2;
    s1 -= n.norm.mean[k] * s0;
    if (n.norm.present && !frozen) {
        left -= s0 * s0 / count + s1 * invstd * s1 * invstd / count;
    }
    return g * g * fmax(left, 1e-6 * s2) / count;
}

/* Coefficients and parameter gradients of one channel; s0 = sum dv, s1 = sum dv z. */
__device__ static void finish_channel(const flim_grad_norm &n, int k, double count, double s0, double s1, float scale,
                                      bool frozen, bool add, double unscale)
{
    const double invstd = n.norm.invstd[k], ws = n.norm.weight_scale ? *n.norm.weight_scale : 1.0;
    double a = 1.0, b = 0.0, d = 0.0, dbias = s0;
    s1 -= n.norm.mean[k] * s0;
    if (n.norm.present) {
        double g = n.norm.gamma[k] * invstd * ws, mean_zhat = s1 * invstd / count;
        a = g;
        dbias = g * s0;
        if (!frozen) {
            b = -g * mean_zhat * invstd;
            d = -g * s0 / count - b * n.norm.mean[k];
            dbias = 0.0; /* exact: BatchNorm takes the mean out */
        }
        give(n.dgamma, k, s1 * invstd * unscale, add);
        give(n.dbeta, k, s0 * unscale, add);
    }
    give(n.dbias, k, dbias * unscale, add);
    n.out.a[k] = (float)(a * scale);
    n.out.b[k] = (float)(b * scale);
    n.out.d[k] = (float)(d * scale);
}

struct dz_scales {
    float main, skip, dv;
};

/* Powers of two for dz, the skip's dz and dv; sum(i): sum number i over all blocks, planes of c channels.  One block of 128. */
template <typename SUM>
__device__ static dz_scales choose_scales(const grad_norm_args &args, double count, bool frozen, const SUM &sum)
{
    const int c = args.main.norm.c, channels = args.main.norm.channels;
    if (!args.scaled) {
        return {1.0f, 1.0f, 1.0f};
    }
    double square[3] = {0, 0, 0};
    for (int j = threadIdx.x; j < channels; j += 128) {
        const double s0 = sum(j), s2 = sum(2 * c + j);
        square[0] += dz_square(args.main, j, count, s0, sum(c + j), s2, frozen);
        square[1] += args.has_skip ? dz_square(args.skip, j, count, s0, sum(3 * c + j), s2, frozen) : 0.0;
        square[2] += s2 / count;
    }
    block_sum_all<128>(square[0], square[1], square[2]);
    return {scale_for(square[0] / channels), scale_for(square[1] / channels), scale_for(square[2] / channels)};
}

/* dz of a channel that the tensor has and the unit has not. */
__device__ static void zero_channel(const flim_grad_norm &n, int k)
{
    n.out.a[k] = n.out.b[k] = n.out.d[k] = 0.0f;
}

__device__ static void give_scale(const flim_grad_norm &n, float scale, double unscale)
{
    *n.out.scale = scale;
    *n.out.unscale = (float)(unscale / scale);
}

__device__ static void give_scales(const grad_norm_args &args, const dz_scales &scales, double unscale)
{
    give_scale(args.main, scales.main, unscale);
    if (args.has_skip) {
        give_scale(args.skip, scales.skip, unscale);
    }
    if (args.dv_scale) {
        *args.dv_scale = scales.dv;
    }
}

/* Channel k of each plane over all blocks, on every thread of a block of 128; planes: 2 to 4. */
__device__ static void plane_sums(const float *__restrict__ partial, int64_t blocks, int c, int k, int planes,
                                  double (&sum)[4])
{
    sum[0] = sum[1] = sum[2] = sum[3] = 0;
#pragma unroll 4
    for (int64_t i = threadIdx.x; i < blocks; i += 128) {
#pragma unroll
        for (int s = 0; s < 4; s++) {
            sum[s] += s < planes ? partial[((int64_t)s * c + k) * blocks + i] : 0.0f;
        }
    }
    block_sum_all<128>(sum[0], sum[1], sum[2], sum[3]);
}

/* One block per channel sums the partials; the last block to finish does the rest for all channels. */
__global__ void __launch_bounds__(128)
    grad_norm_kernel(const float *__restrict__ partial, grad_norm_args args, double *sums, int *counter)
{
    __shared__ bool last;
    const int c = args.main.norm.c, k = blockIdx.x, planes = args.has_skip ? 4 : 3, tid = threadIdx.x;
    double sum[4];
    plane_sums(partial, args.b.blocks, c, k, planes, sum);
    if (tid == 0) {
        for (int s = 0; s < planes; s++) {
            sums[s * c + k] = sum[s];
        }
        __threadfence();
        last = atomicAdd(counter, 1) == (int)gridDim.x - 1;
    }
    __syncthreads();
    if (!last) {
        return;
    }
    __threadfence();
    const volatile double *all = sums;
    const int channels = args.main.norm.channels;
    const dz_scales scales = choose_scales(args, args.count, args.frozen, [=](int i) { return all[i]; });
    const double unscale = 1.0 / (double)*args.loss_scale;
    for (int j = tid; j < c; j += 128) {
        if (j >= channels) {
            zero_channel(args.main, j);
            if (args.has_skip) {
                zero_channel(args.skip, j);
            }
            continue;
        }
        finish_channel(args.main, j, args.count, all[j], all[c + j], scales.main, args.frozen, args.add, unscale);
        if (args.has_skip) {
            finish_channel(args.skip, j, args.count, all[j], all[3 * c + j], scales.skip, args.frozen, args.add, unscale);
        }
    }
    if (tid == 0) {
        give_scales(args, scales, unscale);
        *counter = 0;
    }
}

static grad_norm_args arguments_of(const flim_grad_norm *main, const flim_grad_norm *skip, bool scaled, bool add,
                                   const float *loss_scale)
{
    grad_norm_args args = {};
    args.main = *main;
    if (skip) {
        args.skip = *skip;
    }
    args.has_skip = skip != NULL;
    args.scaled = scaled;
    args.add = add;
    args.loss_scale = loss_scale;
    return args;
}

cudaError_t flim_k_grad_norm(const flim_launch *l, const float *partial, flim_blocks b, int64_t count,
                             const flim_grad_norm *main, const flim_grad_norm *skip, float *dv_scale, bool scaled, bool train,
                             bool add, const float *loss_scale, double *sums, int *counter)
{
    grad_norm_args args = arguments_of(main, skip, scaled, add, loss_scale);
    args.b = b;
    args.count = (double)count;
    args.frozen = !train || count == 1;
    args.dv_scale = dv_scale;
    grad_norm_kernel<<<(unsigned)main->norm.c, 128, 0, l->stream>>>(partial, args, sums, counter);
    return cudaGetLastError();
}

/* ---- of a gradient that a convolution has written ---- */

enum { SUMS_THREADS = 256, SUMS_BLOCKS = 16 /* doubles behind the sums of 8 channels */ };

struct written_gradient {
    const __half *values; /* (count,c); NULL: dz has no scale of its own */
    int64_t count;
    const float *scale, *scale_b;
    double *sums, *squares; /* (SUMS_BLOCKS) */
    int *counter;
};

static written_gradient written(const flim_written_gradient *du, int64_t count, int c, bool scaled)
{
    const __half *values = scaled ? static_cast<const __half *>(du->values) : NULL;
    return {values, count, du->scale, du->scale_b, du->sums, du->sums + 2 * c, du->counter};
}

__device__ static double scale_of(const written_gradient &du)
{
    return (double)*du.scale * (du.scale_b ? *du.scale_b : 1.0f);
}

/* (g du)^2 as stored at a random place of part `part` of `parts` equal ones, eight channels. */
__device__ static float square_at(const written_gradient &du, const flim_norm &n, int64_t part, int64_t parts)
{
    const unsigned chunks = n.c / 8, step = (unsigned)(du.count * chunks / parts);
    const int64_t at = part * step + (unsigned)part * 2654435761u % step; /* Knuth's multiplicative hash */
    const float8 value = load8(du.values + 8 * at);
    const float ws = n.weight_scale ? *n.weight_scale : 1.0f;
    const int k = 8 * (int)(at % chunks);
    float square = 0.0f;
    for (int j = 0; j < 8 && k + j < n.channels; j++) {
        const float v = n.gamma[k + j] * n.invstd[k + j] * ws * value.v[j];
        square += v * v;
    }
    return square;
}

/* The scale of dz, which is about g du: from the mean square of g du over 32,768 values, a vector from each of equal parts of the tensor.  That
 * need not be exact (scale_for), and may miss what a pass over all values sees; if all of them are 0, the scale is that at which du is stored.
 * In the last of the blocks of SUMS_THREADS to come here, which does the rest; 0 in the others. */
__device__ static float scale_by_sample(const written_gradient &du, const flim_norm &n)
{
    __shared__ bool last;
    const int64_t vectors = du.count * (n.c / 8), most = SUMS_BLOCKS * SUMS_THREADS, parts = vectors < most ? vectors : most,
                  part = (int64_t)blockIdx.x * SUMS_THREADS + threadIdx.x;
    if (!du.values) {
        return 1.0f;
    }
    const double square = block_sum<SUMS_THREADS>(part < parts ? (double)square_at(du, n, part, parts) : 0.0);
    if (threadIdx.x == 0) {
        du.squares[blockIdx.x] = square;
        __threadfence();
        last = atomicAdd(du.counter, 1) == SUMS_BLOCKS - 1;
    }
    __syncthreads();
    if (!last) {
        return 0.0f;
    }
    __threadfence();
    if (threadIdx.x == 0) {
        *du.counter = 0;
    }
    const volatile double *all = du.squares;
    double sum = 0.0;
    for (int i = 0; i < SUMS_BLOCKS; i++) {
        sum += all[i];
    }
    const double s = scale_of(du);
    return sum > 0.0 && !isinf(sum) ? scale_for(sum / ((double)parts * 8 * n.channels / n.c) / (s * s)) : (float)s;
}

__global__ void __launch_bounds__(SUMS_THREADS) grad_norm_sums_kernel(written_gradient du, grad_norm_args args)
{
    const int c = args.main.norm.c, channels = args.main.norm.channels, tid = threadIdx.x;
    const double s = scale_of(du), unscale = 1.0 / (double)*args.loss_scale;
    const float scale = scale_by_sample(du, args.main.norm);
    if (scale == 0.0f) {
        return;
    }
    for (int k = tid; k < c; k += SUMS_THREADS) {
        if (k >= channels) {
            zero_channel(args.main, k);
            continue;
        }
        const double s0 = du.sums[k] / s, s1 = du.sums[c + k] / s + args.main.norm.mean[k] * s0;
        finish_channel(args.main, k, args.count, s0, s1, scale, args.frozen, args.add, unscale);
    }
    if (tid == 0) {
        give_scale(args.main, scale, unscale);
    }
}

cudaError_t flim_k_grad_norm_sums(const flim_launch *l, const flim_written_gradient *du, int64_t count,
                                  const flim_grad_norm *main, bool scaled, bool add, const float *loss_scale)
{
    grad_norm_args args = arguments_of(main, NULL, scaled, add, loss_scale);
    args.count = (double)count;
    args.frozen = count == 1;
    grad_norm_sums_kernel<<<scaled ? SUMS_BLOCKS : 1, SUMS_THREADS, 0, l->stream>>>(written(du, count, main->norm.c, scaled),
                                                                                    args);
    return cudaGetLastError();
}

/* ---- sums over the batches of several ranks ---- */

/* One block per channel; own: count, then planes of (c). */
__global__ void __launch_bounds__(128)
    own_sums_kernel(const float *__restrict__ partial, int64_t blocks, int c, int planes, double count, double *own)
{
    const int k = blockIdx.x;
    double sum[4];
    plane_sums(partial, blocks, c, k, planes, sum);
    if (threadIdx.x == 0) {
        own[0] = count; /* the same from every block */
        for (int s = 0; s < planes; s++) {
            own[1 + s * c + k] = sum[s];
        }
    }
}

cudaError_t flim_k_sync_grad_sums(const flim_launch *l, const float *partial, flim_blocks b, int c, int planes, int64_t count,
                                  double *own)
{
    own_sums_kernel<<<(unsigned)c, 128, 0, l->stream>>>(partial, b.blocks, c, planes, (double)count, own);
    return cudaGetLastError();
}

__global__ void own_sums_of_du_kernel(written_gradient du, flim_norm m, double *own)
{
    const int k = blockIdx.x * blockDim.x + threadIdx.x;
    const double s = scale_of(du);
    if (k == 0) {
        own[0] = (double)du.count;
    }
    if (k < m.c) {
        const bool real = k < m.channels;
        const double s0 = real ? du.sums[k] / s : 0.0;
        own[1 + k] = s0;
        own[1 + m.c + k] = real ? du.sums[m.c + k] / s + m.mean[k] * s0 : 0.0;
    }
}

cudaError_t flim_k_sync_grad_sums_of_du(const flim_launch *l, const flim_written_gradient *du, int64_t count,
                                        const flim_norm *norm, double *own)
{
    own_sums_of_du_kernel<<<(unsigned)(norm->c + 127) / 128, 128, 0, l->stream>>>(written(du, count, norm->c, false), *norm,
                                                                                  own);
    return cudaGetLastError();
}

/* Sum number `at` over the ranks, in their order. */
__device__ static double over_ranks(const flim_rank_sums &sums, int64_t at)
{
    double sum = sums.all[at];
    for (int r = 1; r < sums.ranks; r++) {
        sum += sums.all[r * sums.stride + at];
    }
    return sum;
}

/* finish_channel with the coefficients of the whole batch, and the parameter gradients of this rank's part of it: those of the ranks
 * are summed with all others. */
__device__ static void finish_shared_channel(const flim_grad_norm &n, int k, double count, double s0, double s1, double own0,
                                             double own1, float scale, bool frozen, bool add, double unscale)
{
    flim_grad_norm coefficients = n;
    coefficients.dgamma = coefficients.dbeta = coefficients.dbias = NULL;
    finish_channel(coefficients, k, count, s0, s1, scale, frozen, add, unscale);
    const double invstd = n.norm.invstd[k], ws = n.norm.weight_scale ? *n.norm.weight_scale : 1.0;
    double dbias = own0;
    if (n.norm.present) {
        dbias = frozen ? n.norm.gamma[k] * invstd * ws * own0 : 0.0;
        give(n.dgamma, k, (own1 - n.norm.mean[k] * own0) * invstd * unscale, add);
        give(n.dbeta, k, own0 * unscale, add);
    }
    give(n.dbias, k, dbias * unscale, add);
}

/* One block. */
__global__ void __launch_bounds__(128) grad_norm_ranks_kernel(flim_rank_sums sums, grad_norm_args args)
{
    const int c = args.main.norm.c, channels = args.main.norm.channels, tid = threadIdx.x;
    const double count = over_ranks(sums, 0), unscale = 1.0 / (double)*args.loss_scale;
    const double *own = sums.all + sums.rank * sums.stride;
    const bool frozen = count < 1.5;
    const dz_scales scales = choose_scales(args, count, frozen, [=](int i) { return over_ranks(sums, 1 + i); });
    for (int j = tid; j < c; j += 128) {
        if (j >= channels) {
            zero_channel(args.main, j);
            if (args.has_skip) {
                zero_channel(args.skip, j);
            }
            continue;
        }
        const double s0 = over_ranks(sums, 1 + j), own0 = own[1 + j];
        finish_shared_channel(args.main, j, count, s0, over_ranks(sums, 1 + c + j), own0, own[1 + c + j], scales.main, frozen,
                              args.add, unscale);
        if (args.has_skip) {
            finish_shared_channel(args.skip, j, count, s0, over_ranks(sums, 1 + 3 * c + j), own0, own[1 + 3 * c + j],
                                  scales.skip, frozen, args.add, unscale);
        }
    }
    if (tid == 0) {
        give_scales(args, scales, unscale);
    }
}

cudaError_t flim_k_grad_norm_ranks(const flim_launch *l, const flim_rank_sums *sums, const flim_grad_norm *main,
                                   const flim_grad_norm *skip, float *dv_scale, bool scaled, bool add,
                                   const float *loss_scale)
{
    grad_norm_args args = arguments_of(main, skip, scaled, add, loss_scale);
    args.dv_scale = dv_scale;
    grad_norm_ranks_kernel<<<1, 128, 0, l->stream>>>(*sums, args);
    return cudaGetLastError();
}

/* Each rank stores its dz with a scale of its own. */
__global__ void __launch_bounds__(SUMS_THREADS)
    grad_norm_ranks_of_du_kernel(flim_rank_sums sums, written_gradient du, grad_norm_args args)
{
    const int c = args.main.norm.c, channels = args.main.norm.channels, tid = threadIdx.x;
    const double unscale = 1.0 / (double)*args.loss_scale;
    const double count = over_ranks(sums, 0), *own = sums.all + sums.rank * sums.stride;
    const float scale = scale_by_sample(du, args.main.norm);
    if (scale == 0.0f) {
        return;
    }
    for (int k = tid; k < c; k += SUMS_THREADS) {
        if (k >= channels) {
            zero_channel(args.main, k);
            continue;
        }
        finish_shared_channel(args.main, k, count, over_ranks(sums, 1 + k), over_ranks(sums, 1 + c + k), own[1 + k],
                              own[1 + c + k], scale, count < 1.5, args.add, unscale);
    }
    if (tid == 0) {
        give_scale(args.main, scale, unscale);
    }
}

cudaError_t flim_k_grad_norm_ranks_of_du(const flim_launch *l, const flim_rank_sums *sums, const flim_written_gradient *du,
                                         int64_t count, const flim_grad_norm *main, bool scaled, bool add,
                                         const float *loss_scale)
{
    grad_norm_ranks_of_du_kernel<<<scaled ? SUMS_BLOCKS : 1, SUMS_THREADS, 0, l->stream>>>(
        *sums, written(du, count, main->norm.c, scaled), arguments_of(main, NULL, scaled, add, loss_scale));
    return cudaGetLastError();
}

__global__ void ratio_kernel(const float *a, const float *a_times, const float *b, const float *b_times, float *out)
{
    *out = *a * (a_times ? *a_times : 1.0f) / (*b * (b_times ? *b_times : 1.0f));
}

cudaError_t flim_k_ratio(const flim_launch *l, const float *a, const float *a_times, const float *b, const float *b_times,
                         float *out)
{
    ratio_kernel<<<1, 1, 0, l->stream>>>(a, a_times, b, b_times, out);
    return cudaGetLastError();
}
