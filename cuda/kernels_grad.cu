/* Backward through a unit's tail: one pass that sums, a small kernel that turns the sums into coefficients, one pass that writes
 * dz.  With g = gamma / sd:  dz = g (dv - mean(dv) - zhat mean(dv zhat)). */
#include "tail.cuh"

#include <math.h>

/* Shapes of the sources that have kernels of their own; ANY asks for each pixel what the sources are. */
enum { DENSE, TWO_DENSE, DENSE_STRIDED, BROADCAST, ANY };

__device__ __forceinline__ float source_multiplier(const flim_source &s)
{
    return (1.0f / (s.scale_a ? *s.scale_a : 1.0f)) * (1.0f / (s.scale_b ? *s.scale_b : 1.0f)); /* powers of two: exact */
}

/* Where a strided source contributes to pixel q of y; -1 where it does not. */
__device__ __forceinline__ int64_t strided_at(const flim_source &s, const flim_sources &dy, int64_t cell, unsigned q)
{
    const unsigned w = (unsigned)dy.w, hw = (unsigned)dy.h * w, t = q / hw, r = q % hw, y = r / w, x = r % w;
    const unsigned st = (unsigned)s.stride[0], sh = (unsigned)s.stride[1], sw = (unsigned)s.stride[2];
    if (t % st != 0 || y % sh != 0 || x % sw != 0) {
        return -1;
    }
    return ((cell * s.size[0] + t / st) * s.size[1] + y / sh) * s.size[2] + x / sw;
}

/* The raw loads of dy at one pixel, and their sum.  `m` holds the sources' multipliers, `fixed` what is the same at all pixels. */
template <typename T, int SOURCE> struct gradient {
    raw8<T> one, two;
    bool there;

    __device__ __forceinline__ void load(const flim_sources &dy, int64_t cell, int64_t pixels, unsigned q, int c, int channel)
    {
        if (SOURCE == DENSE || SOURCE == TWO_DENSE || SOURCE == DENSE_STRIDED) {
            one = load_raw<T>((const T *)dy.item[0].data + (cell * pixels + q) * c + channel);
        }
        if (SOURCE == TWO_DENSE) {
            two = load_raw<T>((const T *)dy.item[1].data + (cell * pixels + q) * c + channel);
        }
        if (SOURCE == DENSE_STRIDED) {
            const int64_t at = strided_at(dy.item[1], dy, cell, q);
            there = at >= 0;
            if (there) {
                two = load_raw<T>((const T *)dy.item[1].data + at * c + channel);
            }
        }
    }

    __device__ __forceinline__ float8 value(const flim_sources &dy, const float (&m)[2], const float8 &fixed, int64_t cell,
                                            int64_t pixels, unsigned q, int c, int channel) const
    {
        float8 sum = fixed;
        if (SOURCE == ANY) {
            for (int k = 0; k < dy.n; k++) {
                const flim_source &s = dy.item[k];
                float8 x = {{0, 0, 0, 0, 0, 0, 0, 0}};
                if (s.kind == FLIM_SOURCE_DENSE) {
                    x = load8<T>((const T *)s.data + (cell * pixels + q) * c + channel);
                } else if (s.kind == FLIM_SOURCE_BROADCAST) {
                    x = load8<float>((const float *)s.data + cell * c + channel);
                } else {
                    const int64_t at = strided_at(s, dy, cell, q);
                    if (at >= 0) {
                        x = load8<T>((const T *)s.data + at * c + channel);
                    }
                }
                add(sum, x, source_multiplier(s));
            }
            return sum;
        }
        if (SOURCE != BROADCAST) {
            add(sum, unpack<T>(one), m[0]);
        }
        if (SOURCE == TWO_DENSE || (SOURCE == DENSE_STRIDED && there)) {
            add(sum, unpack<T>(two), m[1]);
        }
        return sum;
    }

    static __device__ __forceinline__ void add(float8 &sum, const float8 &x, float by)
    {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            sum.v[i] = fmaf(x.v[i], by, sum.v[i]);
        }
    }
};

/* Multipliers of the first two sources, and the part of dy that is the same at every pixel. */
template <int SOURCE>
__device__ __forceinline__ float8 begin_sources(const flim_sources &dy, int64_t cell, int c, int channel, float (&m)[2])
{
    m[0] = SOURCE == ANY ? 0.0f : source_multiplier(dy.item[0]);
    m[1] = SOURCE == TWO_DENSE || SOURCE == DENSE_STRIDED ? source_multiplier(dy.item[1]) : 0.0f;
    if (SOURCE == BROADCAST) {
        float8 x = load8<float>((const float *)dy.item[0].data + cell * c + channel);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            x.v[i] *= m[0];
        }
        return x;
    }
    return {{0, 0, 0, 0, 0, 0, 0, 0}};
}

template <typename T, int SKIP, int POOL, int SOURCE>
__global__ void __launch_bounds__(256, POOL == 1 ? 2 : 1)
    grad_sums_kernel(flim_tail tail, flim_sources dy, flim_blocks b, float *partial, T *y)
{
    extern __shared__ float shared[];
    constexpr int SUMS = SKIP == FLIM_SKIP_NORMALISED ? 4 : 3;
    constexpr int AT_ONCE = SOURCE == ANY || SKIP == FLIM_SKIP_NORMALISED ? 1 : 2;
    const walk w(b, tail.c);
    const int c = tail.c;
    const unsigned hw = (unsigned)tail.hw;
    const int64_t in_base = w.cell * tail.t * tail.hw * c + w.channel;
    const T *z = (const T *)tail.z + in_base, *skip = (const T *)tail.skip_in + in_base;
    const uint8_t *gate = SKIP == FLIM_SKIP_GATED ? tail.gate + in_base / 8 : nullptr;
    const affine8 a = load_affine(tail.affine, w.channel);
    affine8 sa = a;
    if (SKIP >= FLIM_SKIP_NORMALISED) {
        sa = load_affine(tail.skip_affine, w.channel);
    }
    float m[2];
    const float8 fixed = begin_sources<SOURCE>(dy, w.cell, c, w.channel, m);
    const float8 keep = load_keep(tail.dropout, w.cell, c, w.channel);
    const float slope = tail.act ? SLOPE : 1.0f;
    float acc[SUMS][8] = {};
    for (unsigned q0 = w.begin + w.lane; q0 < w.end; q0 += AT_ONCE * w.lanes) {
        raw8<T> rz[AT_ONCE][POOL], rs[AT_ONCE][POOL];
        unsigned bits[AT_ONCE];
        gradient<T, SOURCE> g[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            const unsigned q = q0 + k * w.lanes < w.end ? q0 + k * w.lanes : q0, p = pooled_from<POOL>(q, hw);
            g[k].load(dy, w.cell, b.pixels, q, c, w.channel);
            bits[k] = SKIP == FLIM_SKIP_GATED ? gate[(int64_t)p * (c / 8)] : 0;
#pragma unroll
            for (int h = 0; h < POOL; h++) {
                rz[k][h] = load_raw<T>(z + (int64_t)(p + h * hw) * c);
                if (SKIP >= FLIM_SKIP_PLAIN) {
                    rs[k][h] = load_raw<T>(skip + (int64_t)(p + h * hw) * c);
                }
            }
        }
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            const unsigned q = q0 + k * w.lanes;
            if (q >= w.end) {
                break;
            }
            const float8 dyv = g[k].value(dy, m, fixed, w.cell, b.pixels, q, c, w.channel);
            float8 v, zc, sc = {};
#pragma unroll
            for (int h = 0; h < POOL; h++) {
                const float8 zv = unpack<T>(rz[k][h]);
                float8 sv = {};
                if (SKIP >= FLIM_SKIP_PLAIN) {
                    sv = unpack<T>(rs[k][h]);
                }
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    const float u =
                        SKIP == FLIM_SKIP_GATED ? gate_value(bits[k], i) : tail_value<SKIP>(zv.v[i], sv.v[i], a, sa, i);
                    const bool take = h == 0 || u > v.v[i] || u != u;
                    v.v[i] = take ? u : v.v[i];
                    zc.v[i] = take ? zv.v[i] : zc.v[i];
                    sc.v[i] = take ? sv.v[i] : sc.v[i];
                }
            }
#pragma unroll
            for (int i = 0; i < 8; i++) {
                const float dv = dyv.v[i] * keep.v[i] * (v.v[i] > 0 ? 1.0f : slope);
                acc[0][i] += dv;
                acc[1][i] = fmaf(dv, zc.v[i], acc[1][i]);
                acc[2][i] = fmaf(dv, dv, acc[2][i]);
                if (SKIP == FLIM_SKIP_NORMALISED) {
                    acc[SUMS - 1][i] = fmaf(dv, sc.v[i], acc[SUMS - 1][i]);
                }
            }
            if (y) {
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    v.v[i] = (v.v[i] > 0 ? v.v[i] : v.v[i] * slope) * keep.v[i];
                }
                store8<T>(y + (w.cell * b.pixels + q) * c + w.channel, v);
            }
        }
    }
    block_sums<SUMS>(acc, w, b.blocks, shared, partial);
}

/* The shape of the sources, for 16-bit types; the strided one goes second. */
static int source_shape(flim_storage type, flim_sources *dy)
{
    if (dy->n == 2 && dy->item[0].kind == FLIM_SOURCE_STRIDED && dy->item[1].kind == FLIM_SOURCE_DENSE) {
        const flim_source first = dy->item[0];
        dy->item[0] = dy->item[1];
        dy->item[1] = first;
    }
    if (type == FLIM_STORAGE_FP32 || dy->n < 1 || dy->n > 2) {
        return ANY;
    }
    if (dy->n == 1) {
        return dy->item[0].kind == FLIM_SOURCE_DENSE ? DENSE : dy->item[0].kind == FLIM_SOURCE_BROADCAST ? BROADCAST : ANY;
    }
    if (dy->item[0].kind != FLIM_SOURCE_DENSE) {
        return ANY;
    }
    return dy->item[1].kind == FLIM_SOURCE_DENSE ? TWO_DENSE : dy->item[1].kind == FLIM_SOURCE_STRIDED ? DENSE_STRIDED : ANY;
}

/* Runs CALL with constants SKIP, POOL, SOURCE: the combinations that the network has are compiled, all others take ANY. */
#define FLIM_WITH(s, p, g, CALL)                                                                                             \
    {                                                                                                                        \
        constexpr int SKIP = s, POOL = p, SOURCE = g;                                                                        \
        CALL;                                                                                                                \
    }
#define FLIM_BY_SOURCE(type, skip, pool, source, CALL16, CALL)                                                               \
    if ((skip) == FLIM_SKIP_NONE && (pool) == 1 && (source) == DENSE)                                                        \
        FLIM_WITH(FLIM_SKIP_NONE, 1, DENSE, CALL16)                                                                          \
    else if ((skip) == FLIM_SKIP_NONE && (pool) == 1 && (source) == TWO_DENSE)                                               \
        FLIM_WITH(FLIM_SKIP_NONE, 1, TWO_DENSE, CALL16)                                                                      \
    else if ((skip) == FLIM_SKIP_GATED && (pool) == 1 && (source) == DENSE_STRIDED)                                          \
        FLIM_WITH(FLIM_SKIP_GATED, 1, DENSE_STRIDED, CALL16)                                                                 \
    else if ((skip) == FLIM_SKIP_NORMALISED && (pool) == 2 && (source) == DENSE_STRIDED)                                     \
        FLIM_WITH(FLIM_SKIP_NORMALISED, 2, DENSE_STRIDED, CALL16)                                                            \
    else if ((skip) == FLIM_SKIP_NORMALISED && (pool) == 2 && (source) == BROADCAST)                                         \
        FLIM_WITH(FLIM_SKIP_NORMALISED, 2, BROADCAST, CALL16)                                                                \
    else if ((skip) == FLIM_SKIP_GATED)                                                                                      \
        FLIM_WITH(FLIM_SKIP_GATED, 1, ANY, FLIM_BY_TYPE(type, CALL))                                                         \
    else {                                                                                                                   \
        constexpr int SOURCE = ANY;                                                                                          \
        FLIM_BY_TYPE(type, FLIM_BY_SHAPE(skip, pool, CALL))                                                                  \
    }
/* The two 16-bit types. */
#define FLIM_BY_SHORT(type, CALL)                                                                                            \
    if ((type) == FLIM_STORAGE_FP16) {                                                                                       \
        using T = __half;                                                                                                    \
        CALL;                                                                                                                \
    } else {                                                                                                                 \
        using T = __nv_bfloat16;                                                                                             \
        CALL;                                                                                                                \
    }

cudaError_t flim_k_grad_sums(const flim_launch *l, const flim_tail *tail, const flim_sources *sources, flim_blocks b,
                             float *partial, void *y)
{
    const dim3 grid = walk_grid(b, tail->c);
    const int threads = walk_threads(tail->c);
    flim_sources dy = *sources;
    const int source = source_shape(l->type, &dy);
#define CALL_SUMS                                                                                                            \
    (grad_sums_kernel<T, SKIP, POOL, SOURCE><<<grid, threads, threads * 32, l->stream>>>(*tail, dy, b, partial, (T *)y))
    FLIM_BY_SOURCE(l->type, tail->skip, tail->pool, source, FLIM_BY_SHORT(l->type, CALL_SUMS), CALL_SUMS)
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

__global__ void __launch_bounds__(256)
    grad_norm_sums_kernel(const double *__restrict__ du, const float *du_scale, grad_norm_args args)
{
    __shared__ double shared[256];
    const int c = args.main.norm.c, channels = args.main.norm.channels, tid = threadIdx.x;
    const double s = *du_scale, unscale = 1.0 / (double)*args.loss_scale;
    float scale = 1.0f;
    if (args.scaled) { /* dz is about g du: keep the size of du as stored */
        double square = 0;
        for (int k = tid; k < channels; k += 256) {
            const double ws = args.main.norm.weight_scale ? *args.main.norm.weight_scale : 1.0;
            const double g = args.main.norm.gamma[k] * (double)args.main.norm.invstd[k] * ws;
            square += g * g;
        }
        shared[tid] = square;
        for (int half = 128; half > 0; half /= 2) {
            __syncthreads();
            if (tid < half) {
                shared[tid] += shared[tid + half];
            }
        }
        __syncthreads();
        square = shared[0] / channels;
        const int exponent = square > 0 && !isinf(square) ? -(int)lrint(0.5 * log2(square)) : 0;
        scale = *du_scale * exp2f((float)(exponent > 60 ? 60 : exponent < -60 ? -60 : exponent));
    }
    for (int k = tid; k < c; k += 256) {
        if (k >= channels) {
            args.main.out.a[k] = args.main.out.b[k] = args.main.out.d[k] = 0.0f;
            continue;
        }
        const double s0 = du[k] / s, s1 = du[c + k] / s + args.main.norm.mean[k] * s0;
        finish_channel(args.main, k, args.count, s0, s1, scale, args.frozen, args.add, unscale);
    }
    if (tid == 0) {
        *args.main.out.scale = scale;
        *args.main.out.unscale = (float)(unscale / scale);
    }
}

cudaError_t flim_k_grad_norm_sums(const flim_launch *l, const double *du, const float *du_scale, int64_t count,
                                  const flim_grad_norm *main, bool scaled, bool add, const float *loss_scale)
{
    grad_norm_args args = {};
    args.count = (double)count;
    args.main = *main;
    args.scaled = scaled;
    args.frozen = count == 1;
    args.add = add;
    args.loss_scale = loss_scale;
    grad_norm_sums_kernel<<<1, 256, 0, l->stream>>>(du, du_scale, args);
    return cudaGetLastError();
}

__global__ void ratio_kernel(const float *a, const float *b, float *out)
{
    *out = *a / *b;
}

cudaError_t flim_k_ratio(const flim_launch *l, const float *a, const float *b, float *out)
{
    ratio_kernel<<<1, 1, 0, l->stream>>>(a, b, out);
    return cudaGetLastError();
}

struct grad_affine8 {
    float8 a, b, d;
};

__device__ __forceinline__ grad_affine8 load_grad_affine(const flim_grad_affine &g, int channel)
{
    return {load8<float>(g.a + channel), load8<float>(g.b + channel), load8<float>(g.d + channel)};
}

__device__ __forceinline__ float grad_value(const grad_affine8 &g, float dv, float z, int i)
{
    return fmaf(g.a.v[i], dv, fmaf(g.b.v[i], z, g.d.v[i]));
}

template <typename T, int SKIP, int POOL, int SOURCE>
__global__ void __launch_bounds__(256)
    grad_apply_kernel(flim_tail tail, flim_sources dy, flim_blocks b, int64_t y_pixels, flim_grad_affine main,
                      flim_grad_affine skip_grad, const float *dv_scale, T *dz, T *dz_skip, T *dv_out)
{
    constexpr int AT_ONCE = SOURCE == ANY || SKIP == FLIM_SKIP_NORMALISED || POOL == 2 ? 1 : 2;
    const walk w(b, tail.c);
    const int c = tail.c;
    const unsigned hw = (unsigned)tail.hw, pooled = (unsigned)y_pixels;
    const int64_t base = w.cell * tail.t * tail.hw * c + w.channel;
    const T *z = (const T *)tail.z + base, *skip = (const T *)tail.skip_in + base;
    const uint8_t *gate = SKIP == FLIM_SKIP_GATED ? tail.gate + base / 8 : nullptr;
    const affine8 a = load_affine(tail.affine, w.channel);
    const grad_affine8 ga = load_grad_affine(main, w.channel);
    affine8 sa = a;
    grad_affine8 gs = ga;
    if (SKIP >= FLIM_SKIP_NORMALISED) {
        sa = load_affine(tail.skip_affine, w.channel);
    }
    if (SKIP == FLIM_SKIP_NORMALISED) {
        gs = load_grad_affine(skip_grad, w.channel);
    }
    float m[2];
    const float8 fixed = begin_sources<SOURCE>(dy, w.cell, c, w.channel, m);
    const float8 keep = load_keep(tail.dropout, w.cell, c, w.channel);
    const float dv_by = dv_scale ? *dv_scale : 1.0f, slope = tail.act ? SLOPE : 1.0f;
    for (unsigned q0 = w.begin + w.lane; q0 < w.end; q0 += AT_ONCE * w.lanes) {
        raw8<T> rz[AT_ONCE][POOL], rs[AT_ONCE][POOL];
        unsigned bits[AT_ONCE];
        gradient<T, SOURCE> g[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            const unsigned q = q0 + k * w.lanes < w.end ? q0 + k * w.lanes : q0;
            /* Pixels past `pooled` are the last time bin of an odd T, which the pool leaves out. */
            const bool out = POOL == 2 && q >= pooled;
            const unsigned p = out ? q + pooled : pooled_from<POOL>(q, hw);
            g[k].load(dy, w.cell, y_pixels, out ? 0 : q, c, w.channel);
            bits[k] = SKIP == FLIM_SKIP_GATED ? gate[(int64_t)p * (c / 8)] : 0;
#pragma unroll
            for (int h = 0; h < POOL; h++) {
                const int64_t at = (int64_t)(p + (out ? 0 : h * hw)) * c;
                rz[k][h] = load_raw<T>(z + at);
                if (SKIP >= FLIM_SKIP_PLAIN) {
                    rs[k][h] = load_raw<T>(skip + at);
                }
            }
        }
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            const unsigned q = q0 + k * w.lanes;
            if (q >= w.end) {
                break;
            }
            const bool out = POOL == 2 && q >= pooled;
            const unsigned p = out ? q + pooled : pooled_from<POOL>(q, hw);
            float8 dv[POOL], v;
            dv[0] = g[k].value(dy, m, fixed, w.cell, y_pixels, out ? 0 : q, c, w.channel);
#pragma unroll
            for (int h = 0; h < POOL; h++) {
                const float8 zv = unpack<T>(rz[k][h]);
                float8 sv = {};
                if (SKIP >= FLIM_SKIP_PLAIN) {
                    sv = unpack<T>(rs[k][h]);
                }
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    const float u =
                        SKIP == FLIM_SKIP_GATED ? gate_value(bits[k], i) : tail_value<SKIP>(zv.v[i], sv.v[i], a, sa, i);
                    if (h == 0) {
                        v.v[i] = u;
                        dv[0].v[i] = out ? 0.0f : dv[0].v[i] * keep.v[i]; /* no dv there, but the means apply */
                    } else {
                        const bool second = u > v.v[i] || u != u;
                        v.v[i] = second ? u : v.v[i];
                        dv[POOL - 1].v[i] = second ? dv[0].v[i] : 0.0f;
                        dv[0].v[i] = second ? 0.0f : dv[0].v[i];
                    }
                }
            }
#pragma unroll
            for (int h = 0; h < POOL; h++) {
                if (h > 0 && out) {
                    break;
                }
                const int64_t at = base + (int64_t)(p + h * hw) * c;
                const float8 zv = unpack<T>(rz[k][h]);
                float8 r;
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    dv[h].v[i] *= v.v[i] > 0 ? 1.0f : slope; /* v: of the position that was chosen */
                    r.v[i] = grad_value(ga, dv[h].v[i], zv.v[i], i);
                }
                store8<T>(dz + at, r);
                if (SKIP == FLIM_SKIP_NORMALISED) {
                    const float8 sv = unpack<T>(rs[k][h]);
#pragma unroll
                    for (int i = 0; i < 8; i++) {
                        r.v[i] = grad_value(gs, dv[h].v[i], sv.v[i], i);
                    }
                    store8<T>(dz_skip + at, r);
                }
                if (dv_out) {
#pragma unroll
                    for (int i = 0; i < 8; i++) {
                        r.v[i] = dv[h].v[i] * dv_by;
                    }
                    store8<T>(dv_out + at, r);
                }
            }
        }
    }
}

cudaError_t flim_k_grad_apply(const flim_launch *l, const flim_tail *tail, const flim_sources *sources,
                              const flim_grad_affine *main, const flim_grad_affine *skip, const float *dv_scale, void *dz,
                              void *dz_skip, void *dv)
{
    const int64_t y_pixels = (int64_t)(tail->t / tail->pool) * tail->hw;
    const int64_t all = tail->pool == 2 && tail->t % 2 ? y_pixels + tail->hw : y_pixels;
    const flim_blocks b = flim_blocks_for(tail->cells, all, tail->c, l->processors);
    const flim_grad_affine none = {};
    const flim_grad_affine second = skip ? *skip : none;
    const dim3 grid = walk_grid(b, tail->c);
    const int threads = walk_threads(tail->c);
    flim_sources dy = *sources;
    const int source = source_shape(l->type, &dy);
#define CALL_APPLY                                                                                                           \
    (grad_apply_kernel<T, SKIP, POOL, SOURCE>                                                                                \
     <<<grid, threads, 0, l->stream>>>(*tail, dy, b, y_pixels, *main, second, dv_scale, (T *)dz, (T *)dz_skip, (T *)dv))
    FLIM_BY_SOURCE(l->type, tail->skip, tail->pool, source, FLIM_BY_SHORT(l->type, CALL_APPLY), CALL_APPLY)
    return cudaGetLastError();
}

template <typename T>
__global__ void __launch_bounds__(256) sources_kernel(flim_sources dy, flim_blocks b, int c, const float *scale, T *out)
{
    const walk w(b, c);
    const float by = scale ? *scale : 1.0f;
    float m[2];
    const float8 fixed = begin_sources<ANY>(dy, w.cell, c, w.channel, m);
    for (unsigned q = w.begin + w.lane; q < w.end; q += w.lanes) {
        gradient<T, ANY> none;
        float8 g = none.value(dy, m, fixed, w.cell, b.pixels, q, c, w.channel);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            g.v[i] *= by;
        }
        store8<T>(out + (w.cell * b.pixels + q) * c + w.channel, g);
    }
}

cudaError_t flim_k_sources(const flim_launch *l, const flim_sources *dy, int64_t cells, int64_t pixels, int c,
                           const float *scale, void *out)
{
    const flim_blocks b = flim_blocks_for(cells, pixels, c, l->processors);
    FLIM_BY_TYPE(l->type,
                 (sources_kernel<T><<<walk_grid(b, c), walk_threads(c), 0, l->stream>>>(*dy, b, c, scale, (T *)out)));
    return cudaGetLastError();
}
