/* Weight gradient of narrow 3x3x3 convolutions: 8 or 16 channels to as many or twice as many, stride 1 or 2 in y and x.
 *
 *     dW[k][c][dt][dy][dx] = sum over (cell, t, y, x) of dz[t][y][x][k] x[t+dt-1][s y+dy-1][s x+dx-1][c]
 *
 * A warp has all 27 taps of 16 channels of dz and 8 of x: 27 products (mma.m16n8k16) of the same dz with x at 27 places, whose
 * 108 sums a lane stay in registers.  C / 8 times K / 16 warps share the channels, and the rest of the block's 12 warps share
 * the positions, whose sums are added through shared memory at the end.  (conv3x3x3_wgrad.cu deals the taps to its warps:
 * right for 32 channels and more; narrow ones would load dz nine times for a product or two each.)
 *
 * The positions of all cells are numbered one after the other and cut into groups; a block takes a group and a range of time
 * and walks along t, as conv3x3x3 does.  Slice s of x meets dz at s+1, s and s-1, which are in shared memory with the one on
 * its way: so x is staged once, in two copies, dz once, in four.  BatchNorm and activation are applied to x by the threads
 * that copied it.
 *
 * Count for 8 channels at batch 64: 6.2 M products, 38 us at what mma.sync allows an H100; 116 MB = 39 us.
 */
#include "cuda/conv/conv3x3x3_narrow.h"
#include "cuda/conv/conv_mma.cuh"
#include "cuda/conv/conv_wgrad.cuh"

namespace
{

enum {
    WARPS = 12,
    THREADS = 32 * WARPS,
    TAPS = 27,
    SUMS = 4 * TAPS, /* accumulators a lane */
    DZ_RING = 4,
    MAX_BLOCKS = 160
};

/* What follows from the numbers of channels. */
template <int C, int K> struct width {
    enum {
        ROW = 2 * C, /* bytes of a slot of x */
        CHUNKS = C / 8, /* of 16 bytes */
        DZ_ROW = 2 * K,
        DZ_CHUNKS = K / 8,
        TILES = C / 8 * ((K + 15) / 16), /* blocks of 8 x 16 channels, each a warp's */
        SHARES = WARPS / TILES /* warps that share the positions */
    };
};

struct tiling {
    int r; /* 16s of positions a warp and slice */
    int group; /* positions of a group */
    int groups;
    int rows; /* most rows of x staged for a group */
    int pitch; /* slots from a row to the next */
    int shared_bytes;
};

struct kernel_arguments {
    const void *x, *dz;
    const float *scale, *shift;
    float *partial; /* (gridDim.x, TILES, SUMS, 32) */
    int64_t positions; /* n * ho * wo */
    int t, h, w, ho, wo, stride;
    tiling p;
};

struct load_entry {
    int pixel; /* of the slice t = 0 of its cell; -1: stays zero */
    int slot;
};

/* Byte offset of a 16-byte chunk in rows of CHUNKS chunks; swizzled so that 8 rows one after the other meet no bank conflict. */
template <int CHUNKS> __device__ __forceinline__ uint32_t chunk_offset(int row, int chunk)
{
    return (uint32_t)(row * 16 * CHUNKS + ((chunk ^ (row / (8 / CHUNKS) & (CHUNKS - 1))) << 4));
}

template <typename T, int C, int K, bool PROLOGUE>
__global__ void __launch_bounds__(THREADS, 1) narrow(const kernel_arguments a)
{
    using W = width<C, K>;
    constexpr int CHUNKS = W::CHUNKS, DZ_CHUNKS = W::DZ_CHUNKS, TILES = W::TILES, SHARES = W::SHARES;
    extern __shared__ __align__(1024) char memory[];
    const tiling &p = a.p;
    const int tid = threadIdx.x, lane = tid % 32, warp = tid / 32, tile = warp % TILES, share = warp / TILES;
    const int c_chunk = tile % (C / 8), k_tile = tile / (C / 8);
    const int hw = a.ho * a.wo, in_hw = a.h * a.w, rows_a_cell = a.stride * a.ho + 3 - a.stride, entries = p.rows * a.w;
    const int slice_bytes = p.rows * p.pitch * W::ROW, dz_bytes = p.group * W::DZ_ROW;

    char *slices = memory; /* two */
    char *dz_ring = slices + 2 * slice_bytes;
    load_entry *table = reinterpret_cast<load_entry *>(dz_ring + DZ_RING * dz_bytes);
    int *slots = reinterpret_cast<int *>(table + entries); /* (group): of the positions' x */
    int *dz_from = slots + p.group; /* (group): pixel of the slice t = 0 of its cell, -1 if there is none */
    float *fold = reinterpret_cast<float *>(dz_from + p.group); /* (2,C) */
    const uint32_t slices_shared = flim_shared(slices), dz_shared = flim_shared(dz_ring);
    if (PROLOGUE && tid < C) {
        fold[tid] = a.scale[tid];
        fold[C + tid] = a.shift[tid];
    }

    float sum[3][9][4] = {}; /* [dt][dy, dx] */
    const int64_t total = (int64_t)p.groups * a.t, end = total * (blockIdx.x + 1) / gridDim.x;
    for (int64_t u = total * blockIdx.x / gridDim.x; u < end;) {
        const int group = (int)(u / a.t), t0 = (int)(u % a.t), t1 = (int)min((int64_t)a.t, t0 + end - u); /* of dz */
        u += t1 - t0;

        /* The group's rows of x, as conv3x3x3 stages them. */
        const int64_t first = (int64_t)group * p.group;
        const int first_cell = (int)(first / hw), y0 = (int)(first % hw) / a.wo * a.stride;
        const int64_t last = min(first + p.group, a.positions) - 1;
        const int last_row = ((int)(last / hw) - first_cell) * rows_a_cell + (int)(last % hw) / a.wo * a.stride + 2 - y0;
        __syncthreads();
        for (int i = tid; i < 2 * slice_bytes / 16; i += THREADS)
            reinterpret_cast<uint4 *>(slices)[i] = make_uint4(0, 0, 0, 0);
        for (int i = tid; i < entries; i += THREADS) {
            const int s = i / a.w, x = i % a.w, cell = (s + y0) / rows_a_cell, y = (s + y0) % rows_a_cell - 1;
            const bool there = s <= last_row && y >= 0 && y < a.h;
            table[i].pixel = there ? ((first_cell + cell) * a.t * a.h + y) * a.w + x : -1;
            table[i].slot = s * p.pitch + x + 1;
        }
        for (int i = tid; i < p.group; i += THREADS) {
            const int64_t at = min(first + i, a.positions - 1);
            const int cell = (int)(at / hw), rest = (int)(at % hw);
            slots[i] = ((cell - first_cell) * rows_a_cell + rest / a.wo * a.stride - y0) * p.pitch + rest % a.wo * a.stride;
            dz_from[i] = first + i < a.positions ? cell * a.t * hw + rest : -1;
        }
        __syncthreads();

        auto load_x = [&](int t) { /* a thread's chunks of slice t */
                                   if ((unsigned)t >= (unsigned)a.t)
                                       return;
                                   const T *x = static_cast<const T *>(a.x) + (int64_t)t * in_hw * C + 8 * (tid % CHUNKS);
                                   const uint32_t to = slices_shared + (uint32_t)((t & 1) * slice_bytes);
                                   for (int i = tid / CHUNKS; i < entries; i += THREADS / CHUNKS) {
                                       const load_entry e = table[i];
                                       if (e.pixel >= 0)
                                           flim_copy_async(to + chunk_offset<CHUNKS>(e.slot, tid % CHUNKS),
                                                           x + (int64_t)e.pixel * C, true);
                                   }
        };
        auto load_dz = [&](int t) { /* zeros where there is no position */
                                    if (t < t0 || t >= t1)
                                        return;
                                    const T *dz = static_cast<const T *>(a.dz) + (int64_t)t * hw * K + 8 * (tid % DZ_CHUNKS);
                                    const uint32_t to = dz_shared + (uint32_t)((t & (DZ_RING - 1)) * dz_bytes);
                                    for (int i = tid / DZ_CHUNKS; i < p.group; i += THREADS / DZ_CHUNKS) {
                                        const int from = dz_from[i];
                                        flim_copy_async(to + chunk_offset<DZ_CHUNKS>(i, tid % DZ_CHUNKS),
                                                        dz + (int64_t)max(from, 0) * K, from >= 0);
                                    }
        };
        auto activate = [&](int t) { /* what this thread has copied of slice t, once it has come */
                                     if ((unsigned)t >= (unsigned)a.t)
                                         return;
                                     const float *scale = fold + 8 * (tid % CHUNKS), *shift = scale + C;
                                     for (int i = tid / CHUNKS; i < entries; i += THREADS / CHUNKS) {
                                         const load_entry e = table[i];
                                         if (e.pixel < 0)
                                             continue;
                                         flim_activate_chunk<T>(slices + (t & 1) * slice_bytes +
                                                                    chunk_offset<CHUNKS>(e.slot, tid % CHUNKS),
                                                                scale, shift);
                                     }
        };

        load_x(t0 - 1);
        load_dz(t0);
        flim_copy_commit();
        for (int s = t0 - 1; s <= t1; s++) {
            flim_copy_wait<0>();
            if (PROLOGUE)
                activate(s);
            __syncthreads(); /* slice s and dz at s+1 are there, all are done with slice s-1 and dz at s-2 */
            if (s < t1) {
                load_x(s + 1);
                load_dz(s + 2);
            }
            flim_copy_commit();
            if ((unsigned)s >= (unsigned)a.t)
                continue;

            const uint32_t slice = slices_shared + (uint32_t)((s & 1) * slice_bytes);
#pragma unroll 1
            for (int r = share; r < p.r * SHARES; r += SHARES) {
                uint32_t dz[3][4]; /* at s+1, s, s-1 */
                bool there[3];
#pragma unroll
                for (int dt = 0; dt < 3; dt++) {
                    const int t = s + 1 - dt;
                    there[dt] = t >= t0 && t < t1;
                    if (there[dt]) {
                        const uint32_t at = dz_shared + (uint32_t)((t & (DZ_RING - 1)) * dz_bytes);
                        flim_ldmatrix_trans(dz[dt], at + chunk_offset<DZ_CHUNKS>(16 * r + lane % 8 + 8 * (lane / 16),
                                                                                 K == 8 ? 0 : 2 * k_tile + lane / 8 % 2));
                        if (K == 8)
                            dz[dt][1] = dz[dt][3] = 0; /* channels 8 to 15 */
                    }
                }
                const int slot = slots[16 * r + lane % 16];
#pragma unroll
                for (int pair = 0; pair < 5; pair++) { /* of taps: the second one's addresses come from the upper lanes */
                    const int tap = min(2 * pair + lane / 16, 8);
                    uint32_t x[4];
                    flim_ldmatrix_trans(x, slice + chunk_offset<CHUNKS>(slot + tap / 3 * p.pitch + tap % 3, c_chunk));
#pragma unroll
                    for (int dt = 0; dt < 3; dt++)
                        if (there[dt]) {
                            flim_mma<T>(sum[dt][2 * pair], dz[dt], x[0], x[1]);
                            if (pair < 4)
                                flim_mma<T>(sum[dt][pair < 4 ? 2 * pair + 1 : 8], dz[dt], x[2], x[3]);
                        }
                }
            }
        }
    }

    /* The shares' sums in their order, then to memory. */
    float *joined = reinterpret_cast<float *>(memory) + tile * SUMS * 32 + lane; /* (TILES, SUMS, 32) */
    float *out = a.partial + ((int64_t)blockIdx.x * TILES + tile) * SUMS * 32 + lane;
    const float *flat = &sum[0][0][0];
    flim_copy_wait<0>();
    for (int turn = SHARES - 1; turn >= 0; turn--) {
        __syncthreads();
        if (share == turn) {
#pragma unroll
            for (int r = 0; r < SUMS; r++) {
                const float v = flat[r] + (turn < SHARES - 1 ? joined[r * 32] : 0.0f);
                if (turn > 0)
                    joined[r * 32] = v;
                else
                    out[r * 32] = v;
            }
        }
    }
}

/* Grid (SUMS, tiles), block (32, FLIM_WGRAD_ROWS): adds the blocks' sums in fixed order. */
__global__ void __launch_bounds__(32 * FLIM_WGRAD_ROWS) add_blocks(const float *partial, int blocks, int tiles_c, int dw_c,
                                                                   int dw_k, float *dw, const float *unscale, bool accumulate)
{
    const int lane = threadIdx.x, r = blockIdx.x, tile = blockIdx.y;
    float s;
    if (!flim_wgrad_add(partial + ((int64_t)tile * SUMS + r) * 32 + lane, (int64_t)gridDim.y * SUMS * 32, blocks, &s))
        return;
    const int g = lane / 4, q = lane % 4, i = r % 4;
    const int k = 16 * (tile / tiles_c) + g + 8 * (i / 2), c = 8 * (tile % tiles_c) + 2 * q + i % 2;
    if (k >= dw_k || c >= dw_c)
        return;
    flim_wgrad_give(dw + ((int64_t)k * dw_c + c) * TAPS + r / 4, s, unscale, accumulate); /* r / 4 = 9 dt + 3 dy + dx */
}

int tiles_of(const flim_conv_problem *s)
{
    return s->c / 8 * ((s->k + 15) / 16);
}

/* The largest group that fits `limit` bytes of shared memory; false if none does. */
bool find_tiling(const flim_conv_problem *s, int64_t limit, tiling *p)
{
    const int ho = s->out[1], wo = s->out[2], w = s->in[2], stride = s->stride[2], tiles = tiles_of(s);
    for (int r = 3 * tiles; r >= 1; r--) {
        p->r = r;
        p->group = WARPS / tiles * r * 16;
        const int span = (p->group - 1 + wo - 1) / wo + 1, cells = 1 + (span - 1 + ho - 1) / ho;
        p->groups = (int)((s->n * ho * wo + p->group - 1) / p->group);
        p->rows = stride * span + (3 - stride) * cells;
        p->pitch = stride == 1 ? w + 8 : w + 2; /* W modulo 8: positions that cross a row's end meet no bank conflict */
        int64_t bytes = 2 * (int64_t)p->rows * p->pitch * 2 * s->c + DZ_RING * (int64_t)p->group * 2 * s->k +
                        (int64_t)sizeof(load_entry) * p->rows * w + 2 * (int64_t)sizeof(int) * p->group +
                        2 * (int64_t)sizeof(float) * s->c;
        const int64_t joined = (int64_t)sizeof(float) * tiles * SUMS * 32;
        bytes = bytes > joined ? bytes : joined;
        p->shared_bytes = (int)bytes;
        if (bytes <= limit)
            return true;
    }
    return false;
}

template <typename T, int C, int K> cudaError_t start(const kernel_arguments &a, bool prologue, int grid, cudaStream_t stream)
{
    const auto kernel = prologue ? narrow<T, C, K, true> : narrow<T, C, K, false>;
    const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, a.p.shared_bytes);
    if (error != cudaSuccess)
        return error;
    kernel<<<grid, THREADS, a.p.shared_bytes, stream>>>(a);
    return cudaGetLastError();
}

template <typename T> cudaError_t start(const kernel_arguments &a, const flim_conv_problem *s, int grid, cudaStream_t stream)
{
    const bool prologue = s->x_form == FLIM_INPUT_NORM_ACT_ON_LOAD;
    return s->c == 8    ? s->k == 8 ? start<T, 8, 8>(a, prologue, grid, stream) : start<T, 8, 16>(a, prologue, grid, stream)
              : s->k == 16 ? start<T, 16, 16>(a, prologue, grid, stream)
                        : start<T, 16, 32>(a, prologue, grid, stream);
}

} // namespace

bool flim_narrow3x3x3_supported(const flim_conv_problem *p, int sm)
{
    static const int three[3] = {3, 3, 3}, one[3] = {1, 1, 1};
    const int stride[3] = {1, p->stride[2], p->stride[2]};
    tiling t;
    return sm >= 80 && p->op == FLIM_CONV_WEIGHT && p->type != FLIM_STORAGE_FP32 && !p->stem && !p->sums &&
           p->x_form != FLIM_INPUT_NORM_ON_LOAD && p->dz_form == FLIM_INPUT_PLAIN &&
           flim_conv_has_shape(p, three, stride, one) && (p->stride[2] == 1 || p->stride[2] == 2) &&
           (p->c == 8 || p->c == 16) && (p->k == p->c || p->k == 2 * p->c) && p->in_channels > 0 && p->in_channels <= p->c &&
           p->out_channels > 0 && p->out_channels <= p->k && p->n > 0 && p->in[0] > 0 && p->in[1] > 0 && p->in[2] > 0 &&
           p->out[1] > 0 && p->out[2] > 0 && (double)p->n * (double)flim_volume(p->in) < 2147483647.0 &&
           find_tiling(p, 96 * 1024, &t);
}

size_t flim_narrow3x3x3_scratch_bytes(const flim_conv_problem *p)
{
    return sizeof(float) * MAX_BLOCKS * (size_t)tiles_of(p) * SUMS * 32;
}

cudaError_t flim_narrow3x3x3_run(const flim_conv_problem *problem, const flim_conv_arguments *arguments,
                                 const flim_card *card, cudaStream_t stream)
{
    kernel_arguments a = {};
    flim_conv_problem here = *problem;
    here.n = arguments->n;
    if (!flim_narrow3x3x3_supported(&here, 80) || !find_tiling(&here, card->shared_bytes, &a.p))
        return cudaErrorInvalidValue;
    a.x = arguments->x;
    a.dz = arguments->y;
    a.scale = arguments->prologue.scale;
    a.shift = arguments->prologue.shift;
    a.partial = static_cast<float *>(arguments->scratch);
    a.positions = here.n * here.out[1] * here.out[2];
    a.t = here.in[0], a.h = here.in[1], a.w = here.in[2], a.ho = here.out[1], a.wo = here.out[2], a.stride = here.stride[2];
    const int64_t slices = (int64_t)a.p.groups * a.t;
    int grid = card->processors < MAX_BLOCKS ? card->processors : MAX_BLOCKS;
    grid = slices < grid ? (int)slices : grid;
    const cudaError_t error =
        here.type == FLIM_STORAGE_BF16 ? start<__nv_bfloat16>(a, &here, grid, stream) : start<__half>(a, &here, grid, stream);
    if (error != cudaSuccess)
        return error;
    add_blocks<<<dim3(SUMS, (unsigned)tiles_of(&here)), dim3(32, FLIM_WGRAD_ROWS), 0, stream>>>(
        a.partial, grid, here.c / 8, here.in_channels, here.out_channels, arguments->master, arguments->unscale,
        arguments->accumulate);
    return cudaGetLastError();
}
