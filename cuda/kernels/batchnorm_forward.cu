/* Forward: BatchNorm statistics, and normalise + skip + activation + pool + dropout in one pass. */
#include "cuda/kernels/epilogue.cuh"
#include "cuda/kernels/moments.cuh"
#include "cuda/kernels/ranks.h"
#include "cuda/kernels/reduce.cuh"

/* Blocks of a cell, at most `most`: of those that fill the card, what leaves the least of its last wave empty.  1, 2 or 4
 * blocks of a kernel run at once on a multiprocessor; a wave counts by what a block does, 1 / chunks of a cell. */
static int64_t whole_waves(int64_t cells, int64_t most, int64_t processors)
{
    int64_t best = 1;
    double least = 0.0;
    for (int64_t chunks = most > 1 ? (most + 1) / 2 : 1; chunks <= most || chunks == 1; chunks++) {
        double time = 0.0;
        for (int64_t at_once = processors; at_once <= 4 * processors; at_once *= 2) {
            time += (double)((cells * chunks + at_once - 1) / at_once * at_once) / (double)chunks;
        }
        if (least == 0.0 || time < least) {
            least = time;
            best = chunks;
        }
    }
    return best;
}

flim_blocks flim_blocks_for(int64_t cells, int64_t pixels, int c, int processors)
{
    const int64_t lanes = walk_threads(c) / (c / 8 < 256 ? c / 8 : 256);
    const int64_t want = ((int64_t)processors * 4 + cells - 1) / cells; /* blocks per cell that fill the card */
    const int64_t most = pixels / (lanes * 4); /* at least four pixels per thread */
    int64_t chunks = most > 1 ? most : 1;
    if (want < most) {
        chunks = whole_waves(cells, want, processors);
    }
    flim_blocks b;
    b.cells = cells;
    b.pixels = pixels;
    b.chunk = (pixels + chunks - 1) / chunks;
    b.chunks = (int)((pixels + b.chunk - 1) / b.chunk);
    b.blocks = cells * b.chunks;
    return b;
}

template <typename T>
__global__ void __launch_bounds__(256) stats_kernel(const T *__restrict__ z, flim_blocks b, int c, float *partial)
{
    extern __shared__ float shared[];
    const walk w(b, c, false);
    const T *at = z + w.cell * b.pixels * c + w.channel;
    const float8 origin = load8<T>(at + (int64_t)w.begin * c);
    float acc[2][8] = {};
    auto add = [&](const raw8<T> &raw) {
        const float8 x = unpack<T>(raw);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const float d = x.v[i] - origin.v[i];
            acc[0][i] += d;
            acc[1][i] = fmaf(d, d, acc[1][i]);
        }
    };
    unsigned p = w.begin + w.lane;
    for (; p + 3 * w.lanes < w.end; p += 4 * w.lanes) {
        raw8<T> x[4];
#pragma unroll
        for (int k = 0; k < 4; k++) {
            x[k] = load_raw<T>(at + (int64_t)(p + k * w.lanes) * c);
        }
#pragma unroll
        for (int k = 0; k < 4; k++) {
            add(x[k]);
        }
    }
    for (; p < w.end; p += w.lanes) {
        add(load_raw<T>(at + (int64_t)p * c));
    }
    if (w.lane == 0) {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            partial[((int64_t)2 * c + w.channel + i) * b.blocks + blockIdx.x] = origin.v[i];
        }
    }
    block_sums<2>(acc, w, b.blocks, shared, partial);
}

cudaError_t flim_k_stats(const flim_launch *l, const void *z, flim_blocks b, int c, float *partial)
{
    const int threads = walk_threads(c);
    FLIM_BY_TYPE(l->type,
                 (stats_kernel<T><<<walk_grid(b, c), threads, threads * 32, l->stream>>>((const T *)z, b, c, partial)));
    return cudaGetLastError();
}

__device__ static void write_affine(const flim_norm &m, int k, double mean, double invstd, double scale, double shift)
{
    m.mean[k] = (float)mean;
    m.invstd[k] = (float)invstd;
    m.affine.scale[k] = (float)scale;
    m.affine.shift[k] = (float)(shift - mean * scale);
}

/* Running statistics as constants: z is weight_scale times the convolution without its bias. */
__device__ static void fixed_channel(const flim_norm &m, int k)
{
    double ws = m.weight_scale ? *m.weight_scale : 1.0, bias = m.bias ? m.bias[k] : 0.0;
    if (!m.present) {
        write_affine(m, k, 0.0, 0.0, 1.0 / ws, bias);
        return;
    }
    double invstd = 1.0 / (sqrt((double)m.running_var[k] + FLIM_BN_EPS_EXACT) * ws);
    write_affine(m, k, (m.running_mean[k] - bias) * ws, invstd, m.gamma[k] * invstd, m.beta[k]);
}

__global__ void norm_fixed_kernel(flim_norm m)
{
    int k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k < m.channels) {
        fixed_channel(m, k);
    } else if (k < m.c) {
        write_affine(m, k, 0, 0, 0, 0);
    }
}

cudaError_t flim_k_norm_fixed(const flim_launch *l, const flim_norm *norm)
{
    norm_fixed_kernel<<<(unsigned)(norm->c + 127) / 128, 128, 0, l->stream>>>(*norm);
    return cudaGetLastError();
}

/* Statistics of one channel -> affine, invstd, running statistics. */
__device__ static void train_channel(const flim_norm &m, int k, const moments &all)
{
    if (all.n < 1.5) { /* one value has no variance */
        fixed_channel(m, k);
        return;
    }
    double ws = m.weight_scale ? *m.weight_scale : 1.0, bias = m.bias ? m.bias[k] : 0.0;
    double invstd = 1.0 / sqrt(all.m2 / all.n + FLIM_BN_EPS_EXACT * ws * ws);
    write_affine(m, k, all.mean, invstd, m.gamma[k] * invstd, m.beta[k]);
    const double momentum = *m.momentum;
    m.running_mean[k] = (float)((1 - momentum) * m.running_mean[k] + momentum * (all.mean / ws + bias));
    m.running_var[k] = (float)((1 - momentum) * m.running_var[k] + momentum * (all.m2 / (all.n - 1) / (ws * ws)));
}

/* Moments of channel k over all blocks, on every thread of a block of 128.  Each block of pixels has its sums about a value of its own;
 * here they are taken about the first one's mean, whose distance to the mean of all is at most that of a few thousand such blocks times
 * the deviation, so that doubles lose a few of their last digits by it. */
__device__ static moments channel_moments(const float *partial, const flim_blocks &b, int c, int k)
{
    const float *sum = partial + (int64_t)k * b.blocks, *square = sum + (int64_t)c * b.blocks,
                *origin = square + (int64_t)c * b.blocks;
    const int64_t last = b.pixels - (b.chunks - 1) * b.chunk; /* pixels of a cell's last block */
    const double whole_by = 1.0 / (double)b.chunk, last_by = 1.0 / (double)last;
    const double about = origin[0] + sum[0] * (b.chunks > 1 ? whole_by : last_by);
    double n = 0, first = 0, second = 0;
#pragma unroll 4
    for (int64_t i = threadIdx.x; i < b.blocks; i += 128) {
        const bool is_last = (int)i % b.chunks == b.chunks - 1;
        const double here = (double)(is_last ? last : b.chunk), by = is_last ? last_by : whole_by, s = sum[i];
        const double d = origin[i] + s * by - about;
        n += here;
        first = fma(here, d, first);
        second += fmax(square[i] - s * s * by, 0.0) + here * d * d;
    }
    block_sum_all<128>(n, first, second);
    const double d = first / n;
    return {n, about + d, fmax(second - first * d, 0.0)};
}

/* One block per channel. */
__global__ void __launch_bounds__(128) norm_train_kernel(const float *__restrict__ partial, flim_blocks b, flim_norm m)
{
    const int k = blockIdx.x;
    if (k >= m.channels) {
        if (threadIdx.x == 0) {
            write_affine(m, k, 0, 0, 0, 0);
        }
        return;
    }
    const moments all = channel_moments(partial, b, m.c, k);
    if (threadIdx.x > 0) {
        return;
    }
    train_channel(m, k, all);
}

cudaError_t flim_k_norm_train(const flim_launch *l, const float *partial, flim_blocks b, const flim_norm *norm)
{
    norm_train_kernel<<<(unsigned)norm->c, 128, 0, l->stream>>>(partial, b, *norm);
    return cudaGetLastError();
}

__global__ void norm_train_sums_kernel(const double *__restrict__ sums, double count, flim_norm m)
{
    int k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k < m.channels) {
        const float about = m.running_mean[k] * (m.weight_scale ? *m.weight_scale : 1.0f); /* as the convolution took it */
        const double mean = sums[k] / count;
        train_channel(m, k, {count, about + mean, fmax(sums[m.c + k] - count * mean * mean, 0.0)});
    } else if (k < m.c) {
        write_affine(m, k, 0, 0, 0, 0);
    }
}

cudaError_t flim_k_norm_train_sums(const flim_launch *l, const double *sums, int64_t count, const flim_norm *norm)
{
    norm_train_sums_kernel<<<(unsigned)(norm->c + 127) / 128, 128, 0, l->stream>>>(sums, (double)count, *norm);
    return cudaGetLastError();
}

/* ---- statistics over the batches of several ranks ---- */

/* One block per channel; own: count, means (c), sums of squared deviations (c). */
__global__ void __launch_bounds__(128)
    own_moments_kernel(const float *__restrict__ partial, flim_blocks b, int c, double *own)
{
    const int k = blockIdx.x;
    const moments all = channel_moments(partial, b, c, k);
    if (threadIdx.x == 0) {
        own[0] = (double)(b.cells * b.pixels); /* the same from every block */
        own[1 + k] = all.mean;
        own[1 + c + k] = all.m2;
    }
}

cudaError_t flim_k_sync_moments(const flim_launch *l, const float *partial, flim_blocks b, int c, double *own)
{
    own_moments_kernel<<<(unsigned)c, 128, 0, l->stream>>>(partial, b, c, own);
    return cudaGetLastError();
}

__global__ void own_moments_sums_kernel(const double *__restrict__ sums, double count, flim_norm m, double *own)
{
    const int k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k == 0) {
        own[0] = count;
    }
    if (k < m.c) {
        const bool real = k < m.channels;
        const float about = real ? m.running_mean[k] * (m.weight_scale ? *m.weight_scale : 1.0f) : 0.0f;
        const double mean = sums[k] / count;
        own[1 + k] = real ? about + mean : 0.0;
        own[1 + m.c + k] = real ? fmax(sums[m.c + k] - count * mean * mean, 0.0) : 0.0;
    }
}

cudaError_t flim_k_sync_moments_sums(const flim_launch *l, const double *sums, int64_t count, const flim_norm *norm,
                                     double *own)
{
    own_moments_sums_kernel<<<(unsigned)(norm->c + 127) / 128, 128, 0, l->stream>>>(sums, (double)count, *norm, own);
    return cudaGetLastError();
}

__global__ void norm_train_ranks_kernel(const double *__restrict__ all, int64_t stride, int ranks, flim_norm m)
{
    const int k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k < m.channels) {
        train_channel(m, k, join_ranks(all, stride, ranks, m.c, k));
    } else if (k < m.c) {
        write_affine(m, k, 0, 0, 0, 0);
    }
}

cudaError_t flim_k_norm_train_ranks(const flim_launch *l, const double *all, int64_t stride, int ranks, const flim_norm *norm)
{
    norm_train_ranks_kernel<<<(unsigned)(norm->c + 127) / 128, 128, 0, l->stream>>>(all, stride, ranks, *norm);
    return cudaGetLastError();
}

template <typename T, int SKIP, int POOL>
__global__ void __launch_bounds__(256)
    epilogue_forward_kernel(flim_epilogue epilogue, flim_blocks b, divisor by_hw, T *__restrict__ y)
{
    constexpr int AT_ONCE = SKIP == FLIM_SKIP_NORMALISED || POOL == 2 || sizeof(T) == 4 ? 2 : 4;
    const walk w(b, epilogue.c, true); /* what the statistics have read last is still in the L2 cache */
    const int c = epilogue.c;
    const unsigned hw = (unsigned)epilogue.hw;
    const int64_t in_base = w.cell * epilogue.t * epilogue.hw * c + w.channel;
    const T *z = (const T *)epilogue.z + in_base, *skip = (const T *)epilogue.skip_in + in_base;
    T *out = y + w.cell * b.pixels * c + w.channel;
    uint8_t *sign_mask = epilogue.sign_mask && POOL == 1 ? epilogue.sign_mask + in_base / 8 : nullptr;
    const affine8 a = load_affine(epilogue.affine, w.channel);
    affine8 sa = a;
    if (SKIP >= FLIM_SKIP_NORMALISED) {
        sa = load_affine(epilogue.skip_affine, w.channel);
    }
    const float8 keep = load_keep(epilogue.dropout, w.cell, c, w.channel);
    const float slope = epilogue.act ? FLIM_LEAKY_SLOPE : 1.0f;
    for (unsigned q0 = w.begin + w.lane; q0 < w.end; q0 += AT_ONCE * w.lanes) {
        raw8<T> rz[AT_ONCE][POOL], rs[AT_ONCE][POOL];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            const unsigned q = q0 + k * w.lanes, p = pooled_from<POOL>(q < w.end ? q : q0, by_hw);
#pragma unroll
            for (int h = 0; h < POOL; h++) {
                rz[k][h] = load_raw<T>(z + (int64_t)(p + h * hw) * c);
                if (SKIP != FLIM_SKIP_NONE) {
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
            float8 r, zv, sv = {};
#pragma unroll
            for (int h = 0; h < POOL; h++) {
                zv = unpack<T>(rz[k][h]);
                if (SKIP != FLIM_SKIP_NONE) {
                    sv = unpack<T>(rs[k][h]);
                }
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    const float v = epilogue_value<SKIP>(zv.v[i], sv.v[i], a, sa, i);
                    r.v[i] = h == 0 || v > r.v[i] || v != v ? v : r.v[i];
                }
            }
            if (SKIP != FLIM_SKIP_NONE && POOL == 1 && sign_mask) {
                unsigned bits = 0;
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    bits |= (r.v[i] > 0 ? 1u : 0u) << i;
                }
                sign_mask[(int64_t)q * (c / 8)] = (uint8_t)bits;
            }
#pragma unroll
            for (int i = 0; i < 8; i++) {
                r.v[i] = (r.v[i] > 0 ? r.v[i] : r.v[i] * slope) * keep.v[i];
            }
            store8<T>(out + (int64_t)q * c, r);
        }
    }
}

cudaError_t flim_k_epilogue_forward(const flim_launch *l, const flim_epilogue *epilogue, void *y)
{
    const flim_blocks b =
        flim_blocks_for(epilogue->cells, (int64_t)(epilogue->t / epilogue->pool) * epilogue->hw, epilogue->c, l->processors);
    if (b.pixels == 0) {
        return cudaSuccess;
    }
    const dim3 grid = walk_grid(b, epilogue->c);
    const int threads = walk_threads(epilogue->c);
    FLIM_BY_TYPE(l->type, FLIM_BY_SHAPE(epilogue->skip, epilogue->pool,
                                        (epilogue_forward_kernel<T, SKIP, POOL><<<grid, threads, 0, l->stream>>>(
                                            *epilogue, b, make_divisor(epilogue->hw), (T *)y))));
    return cudaGetLastError();
}

/* A block sums 4 vectors (32 channels) of one cell. */
template <typename T>
__global__ void __launch_bounds__(256) mean_kernel(const T *__restrict__ y, int64_t pixels, int c, float *out)
{
    __shared__ float shared[256][9];
    const int vectors = c / 8, vector = blockIdx.y * 4 + threadIdx.x % 4, lane = threadIdx.x / 4;
    float acc[8] = {};
    if (vector < vectors) {
        const T *at = y + (int64_t)blockIdx.x * pixels * c + vector * 8;
#pragma unroll 4
        for (int64_t p = lane; p < pixels; p += 64) {
            float8 x = load8<T>(at + p * c);
#pragma unroll
            for (int i = 0; i < 8; i++) {
                acc[i] += x.v[i];
            }
        }
    }
#pragma unroll
    for (int i = 0; i < 8; i++) {
        shared[threadIdx.x][i] = acc[i];
    }
    __syncthreads();
    int channel = blockIdx.y * 32 + threadIdx.x;
    if (threadIdx.x < 32 && channel < c) {
        double sum = 0;
        for (int k = 0; k < 64; k++) {
            sum += shared[k * 4 + threadIdx.x / 8][threadIdx.x % 8];
        }
        out[(int64_t)blockIdx.x * c + channel] = (float)(sum / (double)pixels);
    }
}

cudaError_t flim_k_mean(const flim_launch *l, const void *y, int64_t cells, int64_t pixels, int c, float *out)
{
    dim3 grid((unsigned)cells, (unsigned)(c + 31) / 32);
    FLIM_BY_TYPE(l->type, (mean_kernel<T><<<grid, 256, 0, l->stream>>>((const T *)y, pixels, c, out)));
    return cudaGetLastError();
}
