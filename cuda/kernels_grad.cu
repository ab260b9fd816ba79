/* Backward through a unit's tail: one pass that sums, a small kernel that turns the sums into coefficients, one pass that writes
 * dz.  With g = gamma / sd:  dz = g (dv - mean(dv) - zhat mean(dv zhat)). */
#include "tail.cuh"

#include <math.h>

struct multipliers {
    float m[FLIM_MAX_SOURCES];
};

__device__ __forceinline__ multipliers source_multipliers(const flim_sources &dy)
{
    multipliers out;
#pragma unroll
    for (int k = 0; k < FLIM_MAX_SOURCES; k++) {
        out.m[k] = 0;
        if (k < dy.n) {
            float a = dy.item[k].scale_a ? *dy.item[k].scale_a : 1.0f, b = dy.item[k].scale_b ? *dy.item[k].scale_b : 1.0f;
            out.m[k] = (1.0f / a) * (1.0f / b); /* powers of two: exact */
        }
    }
    return out;
}

/* dy of 8 channels at pixel q of y. */
template <typename T>
__device__ __forceinline__ float8 sum_sources(const flim_sources &dy, const multipliers &m, int64_t cell, int64_t pixels,
                                              int64_t q, int c, int channel)
{
    float8 sum = {{0, 0, 0, 0, 0, 0, 0, 0}};
#pragma unroll
    for (int k = 0; k < FLIM_MAX_SOURCES; k++) {
        if (k >= dy.n) {
            break;
        }
        const flim_source &s = dy.item[k];
        float8 x = {{0, 0, 0, 0, 0, 0, 0, 0}};
        if (s.kind == FLIM_SOURCE_DENSE) {
            x = load8<T>((const T *)s.data + (cell * pixels + q) * c + channel);
        } else if (s.kind == FLIM_SOURCE_BROADCAST) {
            x = load8<float>((const float *)s.data + cell * c + channel);
        } else {
            unsigned hw = (unsigned)(dy.h * dy.w), t = (unsigned)q / hw, r = (unsigned)q % hw, h = r / (unsigned)dy.w,
                     w = r % (unsigned)dy.w;
            unsigned st = (unsigned)s.stride[0], sh = (unsigned)s.stride[1], sw = (unsigned)s.stride[2];
            if (t % st == 0 && h % sh == 0 && w % sw == 0) {
                int64_t at = ((cell * s.size[0] + t / st) * s.size[1] + h / sh) * s.size[2] + w / sw;
                x = load8<T>((const T *)s.data + at * c + channel);
            }
        }
#pragma unroll
        for (int i = 0; i < 8; i++) {
            sum.v[i] = fmaf(x.v[i], m.m[k], sum.v[i]);
        }
    }
    return sum;
}

template <typename T, int SKIP, int POOL>
__global__ void __launch_bounds__(512) grad_sums_kernel(flim_tail tail, flim_sources dy, flim_blocks b, float *partial, T *y)
{
    extern __shared__ float shared[];
    constexpr int SUMS = SKIP == FLIM_SKIP_NORMALISED ? 4 : 3;
    const int c = tail.c, vectors = c / 8, lanes = blockDim.x / vectors, vector = threadIdx.x % vectors,
              lane = threadIdx.x / vectors;
    const int channel = vector * 8;
    const int64_t cell = blockIdx.x / b.chunks, begin = blockIdx.x % b.chunks * b.chunk;
    const int64_t end = begin + b.chunk < b.pixels ? begin + b.chunk : b.pixels;
    const int64_t in_base = cell * tail.t * tail.hw;
    const T *z = (const T *)tail.z + in_base * c + channel, *skip = (const T *)tail.skip_in + in_base * c + channel;
    const affine8 a = load_affine(tail.affine, channel);
    const affine8 s = SKIP == FLIM_SKIP_NORMALISED ? load_affine(tail.skip_affine, channel) : a;
    const multipliers m = source_multipliers(dy);
    float8 keep = {{1, 1, 1, 1, 1, 1, 1, 1}};
    if (tail.dropout) {
        keep = load8<float>(tail.dropout + cell * c + channel);
    }
    const float slope = tail.act ? SLOPE : 1.0f;
    float acc[SUMS][8] = {};
#pragma unroll 2
    for (int64_t q = begin + lane; q < end; q += lanes) {
        int64_t p = POOL == 1 ? q : q + q / tail.hw * tail.hw;
        float8 g = sum_sources<T>(dy, m, cell, b.pixels, q, c, channel);
        float8 z0 = load_centred<T>(z + p * c, a.mean), s0 = load_skip<T, SKIP>(skip + p * c, s), z1, s1;
        if (POOL == 2) {
            z1 = load_centred<T>(z + (p + tail.hw) * c, a.mean);
            s1 = load_skip<T, SKIP>(skip + (p + tail.hw) * c, s);
        }
        float8 r;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            float v = tail_value<SKIP>(z0.v[i], s0.v[i], a, s, i), zc = z0.v[i], sc = s0.v[i];
            if (POOL == 2) {
                float v1 = tail_value<SKIP>(z1.v[i], s1.v[i], a, s, i);
                bool second = v1 > v || v1 != v1;
                v = second ? v1 : v;
                zc = second ? z1.v[i] : zc;
                sc = second ? s1.v[i] : sc;
            }
            float dv = g.v[i] * keep.v[i] * (v > 0 ? 1.0f : slope);
            acc[0][i] += dv;
            acc[1][i] = fmaf(dv, zc, acc[1][i]);
            acc[2][i] = fmaf(dv, dv, acc[2][i]);
            if (SKIP == FLIM_SKIP_NORMALISED) {
                acc[SUMS - 1][i] = fmaf(dv, sc, acc[SUMS - 1][i]);
            }
            r.v[i] = (v > 0 ? v : v * slope) * keep.v[i];
        }
        if (y) {
            store8<T>(y + (cell * b.pixels + q) * c + channel, r);
        }
    }
    block_sums<SUMS>(acc, c, b.blocks, blockIdx.x, shared, partial);
}

cudaError_t flim_k_grad_sums(const flim_launch *l, const flim_tail *tail, const flim_sources *dy, flim_blocks b,
                             float *partial, void *y)
{
    int threads = flim_threads_for(tail->c);
    FLIM_BY_TYPE(l->type,
                 FLIM_BY_SHAPE(tail->skip, tail->pool,
                               (grad_sums_kernel<T, SKIP, POOL>
                                <<<(unsigned)b.blocks, threads, threads * 32, l->stream>>>(*tail, *dy, b, partial, (T *)y))));
    return cudaGetLastError();
}

/* The power of two that brings a gradient's root mean square near 2^-9.  With at most 2^24 values a channel the largest
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

/* Mean square of dz in one channel: dz is g dv with its projections on 1 and on zhat taken out. */
__device__ static double dz_square(const flim_grad_norm &n, int k, double count, double s0, double s1, double s2, bool frozen)
{
    double invstd = n.norm.invstd[k], ws = n.norm.weight_scale ? *n.norm.weight_scale : 1.0;
    double g = n.norm.present ? n.norm.gamma[k] * invstd * ws : 1.0;
    double left = s2;
    if (n.norm.present && !frozen) {
        left -= s0 * s0 / count + s1 * invstd * s1 * invstd / count;
    }
    return g * g * fmax(left, 1e-6 * s2) / count;
}

/* Coefficients and parameter gradients of one channel; s0 = sum dv, s1 = sum dv (z - mean). */
__device__ static void finish_channel(const flim_grad_norm &n, int k, double count, double s0, double s1, float scale,
                                      bool frozen, bool add, double unscale)
{
    double invstd = n.norm.invstd[k], ws = n.norm.weight_scale ? *n.norm.weight_scale : 1.0;
    double a = 1.0, b = 0.0, d = 0.0, dbias = s0;
    if (n.norm.present) {
        double g = n.norm.gamma[k] * invstd * ws, mean_zhat = s1 * invstd / count;
        a = g;
        dbias = g * s0;
        if (!frozen) {
            b = -g * mean_zhat * invstd;
            d = -g * s0 / count;
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

/* One block a channel sums the partials; the last block to finish does the rest for all channels. */
__global__ void __launch_bounds__(128)
    grad_norm_kernel(const float *__restrict__ partial, grad_norm_args args, double *sums, int *counter)
{
    __shared__ double shared[4][128];
    __shared__ bool last;
    const int c = args.main.norm.c, k = blockIdx.x, planes = args.has_skip ? 4 : 3, tid = threadIdx.x;
    for (int s = 0; s < planes; s++) {
        const float *from = partial + ((int64_t)s * c + k) * args.b.blocks;
        double sum = 0;
        for (int64_t i = tid; i < args.b.blocks; i += 128) {
            sum += from[i];
        }
        shared[s][tid] = sum;
    }
    for (int half = 64; half > 0; half /= 2) {
        __syncthreads();
        if (tid < half) {
            for (int s = 0; s < planes; s++) {
                shared[s][tid] += shared[s][tid + half];
            }
        }
    }
    if (tid == 0) {
        for (int s = 0; s < planes; s++) {
            sums[s * c + k] = shared[s][0];
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
    float scale = 1.0f, skip_scale = 1.0f, dv_scale = 1.0f;
    if (args.scaled) {
        double square[3] = {0, 0, 0};
        for (int j = tid; j < channels; j += 128) {
            square[0] += dz_square(args.main, j, args.count, all[j], all[c + j], all[2 * c + j], args.frozen);
            square[1] += args.has_skip
                             ? dz_square(args.skip, j, args.count, all[j], all[3 * c + j], all[2 * c + j], args.frozen)
                             : 0.0;
            square[2] += all[2 * c + j] / args.count;
        }
        __syncthreads();
        for (int s = 0; s < 3; s++) {
            shared[s][tid] = square[s];
        }
        for (int half = 64; half > 0; half /= 2) {
            __syncthreads();
            if (tid < half) {
                for (int s = 0; s < 3; s++) {
                    shared[s][tid] += shared[s][tid + half];
                }
            }
        }
        __syncthreads();
        scale = scale_for(shared[0][0] / channels);
        skip_scale = scale_for(shared[1][0] / channels);
        dv_scale = scale_for(shared[2][0] / channels);
    }
    const double unscale = 1.0 / (double)*args.loss_scale;
    for (int j = tid; j < c; j += 128) {
        if (j >= channels) {
            args.main.out.a[j] = args.main.out.b[j] = args.main.out.d[j] = 0.0f;
            if (args.has_skip) {
                args.skip.out.a[j] = args.skip.out.b[j] = args.skip.out.d[j] = 0.0f;
            }
            continue;
        }
        finish_channel(args.main, j, args.count, all[j], all[c + j], scale, args.frozen, args.add, unscale);
        if (args.has_skip) {
            finish_channel(args.skip, j, args.count, all[j], all[3 * c + j], skip_scale, args.frozen, args.add, unscale);
        }
    }
    if (tid == 0) {
        *args.main.out.scale = scale;
        *args.main.out.unscale = (float)(unscale / scale);
        if (args.has_skip) {
            *args.skip.out.scale = skip_scale;
            *args.skip.out.unscale = (float)(unscale / skip_scale);
        }
        if (args.dv_scale) {
            *args.dv_scale = dv_scale;
        }
        *counter = 0;
    }
}

cudaError_t flim_k_grad_norm(const flim_launch *l, const float *partial, flim_blocks b, int64_t count,
                             const flim_grad_norm *main, const flim_grad_norm *skip, float *dv_scale, bool scaled, bool train,
                             bool add, const float *loss_scale, double *sums, int *counter)
{
    grad_norm_args args = {};
    args.b = b;
    args.count = (double)count;
    args.main = *main;
    if (skip) {
        args.skip = *skip;
    }
    args.has_skip = skip != NULL;
    args.scaled = scaled;
    args.frozen = !train || count == 1;
    args.add = add;
    args.dv_scale = dv_scale;
    args.loss_scale = loss_scale;
    grad_norm_kernel<<<(unsigned)main->norm.c, 128, 0, l->stream>>>(partial, args, sums, counter);
    return cudaGetLastError();
}

struct grad_affine8 {
    float8 a, b, d;
};

__device__ __forceinline__ grad_affine8 load_grad_affine(const flim_grad_affine &g, int channel)
{
    return {load8<float>(g.a + channel), load8<float>(g.b + channel), load8<float>(g.d + channel)};
}

__device__ __forceinline__ float grad_value(const grad_affine8 &g, float dv, float zc, int i)
{
    return fmaf(g.a.v[i], dv, fmaf(g.b.v[i], zc, g.d.v[i]));
}

template <typename T, int SKIP, int POOL>
__global__ void __launch_bounds__(512)
    grad_apply_kernel(flim_tail tail, flim_sources dy, flim_blocks b, int64_t y_pixels, flim_grad_affine main,
                      flim_grad_affine skip_grad, const float *dv_scale, T *dz, T *dz_skip, T *dv_out)
{
    const int c = tail.c, vectors = c / 8, lanes = blockDim.x / vectors, vector = threadIdx.x % vectors,
              lane = threadIdx.x / vectors;
    const int channel = vector * 8;
    const int64_t cell = blockIdx.x / b.chunks, begin = blockIdx.x % b.chunks * b.chunk;
    const int64_t end = begin + b.chunk < b.pixels ? begin + b.chunk : b.pixels;
    const int64_t base = cell * tail.t * tail.hw * c + channel;
    const T *z = (const T *)tail.z + base, *skip = (const T *)tail.skip_in + base;
    const affine8 a = load_affine(tail.affine, channel);
    const affine8 s = SKIP == FLIM_SKIP_NORMALISED ? load_affine(tail.skip_affine, channel) : a;
    const grad_affine8 ga = load_grad_affine(main, channel);
    const grad_affine8 gs = SKIP == FLIM_SKIP_NORMALISED ? load_grad_affine(skip_grad, channel) : ga;
    const multipliers m = source_multipliers(dy);
    const float dv_by = dv_scale ? *dv_scale : 1.0f, slope = tail.act ? SLOPE : 1.0f;
    float8 keep = {{1, 1, 1, 1, 1, 1, 1, 1}};
    if (tail.dropout) {
        keep = load8<float>(tail.dropout + cell * c + channel);
    }
#pragma unroll 2
    for (int64_t q = begin + lane; q < end; q += lanes) {
        /* Pixels past y_pixels are the last time bin of an odd T, which the pool leaves out: no dv, but the means apply. */
        const bool pooled = POOL == 1 || q < y_pixels;
        int64_t p = POOL == 1 ? q : pooled ? q + q / tail.hw * tail.hw : q + y_pixels;
        float8 g = {{0, 0, 0, 0, 0, 0, 0, 0}};
        if (pooled) {
            g = sum_sources<T>(dy, m, cell, y_pixels, q, c, channel);
        }
        float8 z0 = load_centred<T>(z + p * c, a.mean), s0 = load_skip<T, SKIP>(skip + p * c, s), z1, s1;
        if (POOL == 2 && pooled) {
            z1 = load_centred<T>(z + (p + tail.hw) * c, a.mean);
            s1 = load_skip<T, SKIP>(skip + (p + tail.hw) * c, s);
        }
        float8 out0, out1, skip0, skip1, dv0, dv1;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            float v = tail_value<SKIP>(z0.v[i], s0.v[i], a, s, i), first = g.v[i] * keep.v[i], second = 0.0f;
            if (POOL == 2 && pooled) {
                float v1 = tail_value<SKIP>(z1.v[i], s1.v[i], a, s, i);
                if (v1 > v || v1 != v1) {
                    second = first * (v1 > 0 ? 1.0f : slope);
                    first = 0.0f;
                }
                out1.v[i] = grad_value(ga, second, z1.v[i], i);
                skip1.v[i] = grad_value(gs, second, s1.v[i], i);
                dv1.v[i] = second * dv_by;
            }
            first *= v > 0 ? 1.0f : slope;
            out0.v[i] = grad_value(ga, first, z0.v[i], i);
            skip0.v[i] = grad_value(gs, first, s0.v[i], i);
            dv0.v[i] = first * dv_by;
        }
        store8<T>(dz + base + p * c, out0);
        if (SKIP == FLIM_SKIP_NORMALISED) {
            store8<T>(dz_skip + base + p * c, skip0);
        }
        if (dv_out) {
            store8<T>(dv_out + base + p * c, dv0);
        }
        if (POOL == 2 && pooled) {
            int64_t p1 = (p + tail.hw) * c;
            store8<T>(dz + base + p1, out1);
            if (SKIP == FLIM_SKIP_NORMALISED) {
                store8<T>(dz_skip + base + p1, skip1);
            }
            if (dv_out) {
                store8<T>(dv_out + base + p1, dv1);
            }
        }
    }
}

cudaError_t flim_k_grad_apply(const flim_launch *l, const flim_tail *tail, const flim_sources *dy,
                              const flim_grad_affine *main, const flim_grad_affine *skip, const float *dv_scale, void *dz,
                              void *dz_skip, void *dv)
{
    int64_t y_pixels = (int64_t)(tail->t / tail->pool) * tail->hw;
    int64_t walk = tail->pool == 2 && tail->t % 2 ? y_pixels + tail->hw : y_pixels;
    flim_blocks b = flim_blocks_for(tail->cells, walk, tail->c, l->processors);
    flim_grad_affine none = {};
    int threads = flim_threads_for(tail->c);
    FLIM_BY_TYPE(l->type, FLIM_BY_SHAPE(tail->skip, tail->pool,
                                        (grad_apply_kernel<T, SKIP, POOL><<<(unsigned)b.blocks, threads, 0, l->stream>>>(
                                            *tail, *dy, b, y_pixels, *main, skip ? *skip : none, dv_scale, (T *)dz,
                                            (T *)dz_skip, (T *)dv))));
    return cudaGetLastError();
}

template <typename T>
__global__ void __launch_bounds__(512) sources_kernel(flim_sources dy, flim_blocks b, int c, const float *scale, T *out)
{
    const int vectors = c / 8, lanes = blockDim.x / vectors, vector = threadIdx.x % vectors, lane = threadIdx.x / vectors;
    const int64_t cell = blockIdx.x / b.chunks, begin = blockIdx.x % b.chunks * b.chunk;
    const int64_t end = begin + b.chunk < b.pixels ? begin + b.chunk : b.pixels;
    const multipliers m = source_multipliers(dy);
    const float by = scale ? *scale : 1.0f;
    for (int64_t q = begin + lane; q < end; q += lanes) {
        float8 g = sum_sources<T>(dy, m, cell, b.pixels, q, c, vector * 8);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            g.v[i] *= by;
        }
        store8<T>(out + (cell * b.pixels + q) * c + vector * 8, g);
    }
}

cudaError_t flim_k_sources(const flim_launch *l, const flim_sources *dy, int64_t cells, int64_t pixels, int c,
                           const float *scale, void *out)
{
    flim_blocks b = flim_blocks_for(cells, pixels, c, l->processors);
    int threads = flim_threads_for(c);
    FLIM_BY_TYPE(l->type, (sources_kernel<T><<<(unsigned)b.blocks, threads, 0, l->stream>>>(*dy, b, c, scale, (T *)out)));
    return cudaGetLastError();
}
