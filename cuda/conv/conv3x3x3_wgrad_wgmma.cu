/* Weight gradient of 3x3x3 convolutions on Hopper's tensor cores, channels in blocks of 32.
 *
 *     dW[k][c][dt][dy][dx] = sum over (cell, t, y, x) of dz[t][y][x][k] x[t+dt-1][s y+dy-1][s x+dx-1][c]
 *
 * A block owns a 32 x 32 block of (K, C) and all 27 taps.  It walks along t on a spatial tile: x at one time meets dz at the times
 * before, of and after it, which are the 96 columns of one product (three times of 32 channels); its rows are 16 channels of x at
 * one tap in y and x, 18 sets of rows in all, and its inner index is 16 positions of the tile.  A (x) comes from registers, read
 * position by position with ldmatrix.trans, so that each warp may have a tap of its own; B (dz) lies in shared memory as
 * [time][8 channels][position].  The first two warpgroups have 8 sets of rows each, the third the last two: four times the 16 rows
 * of a product, half of which are of no use (10 % of all products).
 *
 * Shared memory holds x at two times and dz at four, in a ring whose first two places are there twice: then any three times that
 * follow one another lie one after the other.  A time is passed on by an mbarrier: each thread arrives when its copies for the next
 * have come and its warp's products with this one have ended.
 *
 * Tables, tiles and the swizzle of x's slots are those of conv3x3x3_wgrad.cu.
 *
 * Count for 16 positions and a time: 5 products of 64 x 96 x 16, 240 clocks at the full rate (conv3x3x3_wgrad.cu: 497), of which
 * shared memory is busy for 200.  res1 of base at batch 64: 16,384 steps of 15 such on 132 multiprocessors, 0.26 ms at 1755 MHz.
 *
 * Compiled for sm_90a.
 */
#include "cuda/conv/conv3x3x3_wgrad_wgmma.h"
#include "cuda/conv/conv_wgmma.cuh"
#include "cuda/conv/conv_wgrad.cuh"

#ifndef FLIM_WGMMA
#define FLIM_WGMMA 0
#endif

namespace
{

enum {
    GROUP = 128, /* threads of a warpgroup */
    THREADS = 3 * GROUP,
    BLOCK = 32, /* channels of x and of z a block does */
    TAPS = 27,
    SETS = 18, /* of 16 rows: 9 taps in y and x, 2 halves of the channels */
    R = 2, /* sets a warp, one for each product of its warpgroup; the third warpgroup has one */
    SUMS = 48, /* a lane and set: three dt of 32 channels */
    PARTIAL = SETS * SUMS * 32, /* floats a block stores: [set][sum][lane] */
    ROW = BLOCK * 2, /* bytes of a slot */
    A_ROUND = THREADS / 4, /* slots that all threads copy at once */
    MAX_X = 6, /* rounds of a slice of x */
    MAX_DZ = 3, /* the same of dz */
    RING = 4,
    PLACES = RING + 2 /* of dz's slices */
};

/* How a problem is tiled.  Slots are 64-byte rows of shared memory. */
struct tiling {
    int tile_h, tile_w; /* of the output; the last tiles may be smaller */
    int tiles_y, tiles_x;
    int inner; /* 16s of positions in a full tile, even */
    int x_h, x_w; /* x's tile with halo */
    int pitch; /* slots from a row to the next of its plane */
    int plane; /* slots of a plane (stride 2: by the parity of row and column; 0 for stride 1) */
    int slice_slots; /* slots of a slice of x, a multiple of 8 */
    int shared_bytes;
};

struct kernel_arguments {
    const void *x, *dz;
    const float *scale, *shift;
    float *partial;
    int64_t n;
    int c, k, t, h, w, ho, wo, stride;
    int blocks_c; /* blocks of 32 channels of x */
    int share; /* blocks for each 32 x 32 block */
    tiling p;
};

/* Slot of (row, column) of x's tile within its slice. */
[[maybe_unused]] __host__ __device__ __forceinline__ int slot_of(const tiling &p, int stride, int row, int column)
{
    if (stride == 1)
        return row * p.pitch + column;
    return ((row & 1) * 2 + (column & 1)) * p.plane + (row >> 1) * p.pitch + (column >> 1);
}

[[maybe_unused]] __device__ __forceinline__ uint32_t slot_offset(int slot, int chunk)
{
    return (uint32_t)(slot * ROW + ((chunk ^ ((slot >> 1) & 3)) << 4));
}

/* sum += products of a slice: `inner` 16s of positions, whose slots of x `entry` gives, with dz from descriptor b on; for the first
 * COUNT sets of rows. */
template <typename T, int COUNT>
__device__ __forceinline__ void multiply(float (&sum)[R][SUMS], uint64_t b, uint32_t slice, const int (&tap_slot)[R],
                                         int chunk, const int *entry, int inner)
{
    uint32_t x[2][COUNT][4] = {};
    auto fetch = [&](int buffer, int slot) {
#pragma unroll
        for (int r = 0; r < COUNT; r++)
            flim_ldmatrix_trans(x[buffer][r], slice + slot_offset(slot + tap_slot[r], chunk));
    };
    auto step = [&](int buffer) {
        flim_wgmma_fence();
#pragma unroll
        for (int r = 0; r < COUNT; r++)
            flim_wgmma<T, 1>(sum[r], x[buffer][r], b);
        flim_wgmma_commit();
        b += 16; /* 16 positions of 16 bytes on */
        flim_wgmma_wait<1>(); /* the products before these have ended */
#pragma unroll
        for (int r = 0; r < COUNT; r++)
            flim_hold(x[1 - buffer][r]);
    };
#pragma unroll
    for (int r = 0; r < COUNT; r++)
        flim_hold(sum[r]);
    fetch(0, entry[0]);
    int next = entry[16];
#pragma unroll 1
    for (int s = 0; s < inner; s += 2) {
        step(0);
        fetch(1, next);
        next = entry[32];
        step(1);
        fetch(0, next); /* after the last positions this reads what is never used */
        entry += 32;
        next = entry[16];
    }
    flim_wgmma_wait<0>();
#pragma unroll
    for (int r = 0; r < COUNT; r++) {
        flim_hold(x[1][r]);
        flim_hold(sum[r]);
    }
}

/* Grid (share, blocks of K * blocks of C). */
template <typename T, bool PROLOGUE> __global__ void __launch_bounds__(THREADS, 1) wgrad_wgmma(const kernel_arguments a)
{
#if FLIM_HOPPER
    extern __shared__ __align__(1024) char memory[];
    const tiling &p = a.p;
    const int tid = threadIdx.x, lane = tid % 32, warp = tid / 32;
    const int c0 = (int)(blockIdx.y % a.blocks_c) * BLOCK, k0 = (int)(blockIdx.y / a.blocks_c) * BLOCK;
    const int rows = p.inner * 16, chunk_bytes = rows * 16, place_bytes = 4 * chunk_bytes, slice_bytes = p.slice_slots * ROW;

    char *dz_ring = memory, *x_slices = dz_ring + PLACES * place_bytes; /* two */
    int *table = reinterpret_cast<int *>(x_slices + 2 * slice_bytes); /* (rows + 32): slots of the positions' x */
    float *fold = reinterpret_cast<float *>(table + rows + 32); /* (2,32): scale, shift */
    const uint32_t dz_shared = flim_shared(dz_ring), x_shared = flim_shared(x_slices),
                   ready = flim_shared(memory + p.shared_bytes - 16);
    if (PROLOGUE && tid < BLOCK) {
        fold[tid] = a.scale[c0 + tid];
        fold[BLOCK + tid] = a.shift[c0 + tid];
    }
    if (tid == 0)
        flim_barrier_init(ready, THREADS);
    int parity = 0;

    /* This warp's sets of rows, and where a lane's row of A lies: position lane % 8 + 8 (lane / 16), channels by lane / 8 % 2. */
    const int group = __shfl_sync(0xffffffffu, warp / 4, 0), first_set = 8 * group + warp % 4;
    int tap_slot[R];
#pragma unroll
    for (int r = 0; r < R; r++) {
        const int tap = min(first_set / 2 + 2 * r, 8); /* sets past the last do its products again, for nobody */
        tap_slot[r] = slot_of(p, a.stride, tap / 3, tap % 3);
    }
    const int position = lane % 8 + 8 * (lane / 16), chunk = lane / 8 % 2 + 2 * (first_set % 2);

    const int tiles = p.tiles_y * p.tiles_x;
    const int64_t total = a.n * tiles * a.t, end = total * (blockIdx.x + 1) / a.share;
    const int64_t x_slice = (int64_t)a.h * a.w * a.c, dz_slice = (int64_t)a.ho * a.wo * a.k;
    const int mine = tid / 4, my_channel = 8 * (tid % 4);

    float sum[R][SUMS] = {};
    for (int64_t u = total * blockIdx.x / a.share; u < end;) {
        const int t0 = (int)(u % a.t), t1 = (int)min((int64_t)a.t, t0 + end - u);
        const int tile = (int)(u / a.t % tiles);
        const int64_t cell = u / a.t / tiles;
        u += t1 - t0;
        const int y0 = tile / p.tiles_x * p.tile_h, x0 = tile % p.tiles_x * p.tile_w;
        const int columns = min(p.tile_w, a.wo - x0), positions = min(p.tile_h, a.ho - y0) * columns;
        const int inner = (positions + 31) / 32 * 2;
        const T *x_cell = static_cast<const T *>(a.x) + cell * a.t * x_slice + c0 + my_channel;
        const T *dz_cell = static_cast<const T *>(a.dz) + cell * a.t * dz_slice + k0 + my_channel;

        /* This thread's chunks of a slice: elements from its start (negative: none, what lies there stays zero), bytes in it. */
        int x_from[MAX_X], x_to[MAX_X], dz_from[MAX_DZ];
        const uint32_t dz_to = dz_shared + (uint32_t)(tid % 4 * chunk_bytes + mine * 16);
#pragma unroll
        for (int i = 0; i < MAX_X; i++) {
            const int at = mine + i * A_ROUND, row = at / p.x_w, column = at % p.x_w;
            const int y = a.stride * y0 + row - 1, x = a.stride * x0 + column - 1;
            const bool there = at < p.x_h * p.x_w && (unsigned)y < (unsigned)a.h && (unsigned)x < (unsigned)a.w;
            x_from[i] = there ? (y * a.w + x) * a.c : -1;
            x_to[i] = (int)slot_offset(slot_of(p, a.stride, row, column), tid % 4);
        }
#pragma unroll
        for (int i = 0; i < MAX_DZ; i++) {
            const int at = mine + i * A_ROUND;
            dz_from[i] = at < positions ? ((y0 + at / columns) * a.wo + x0 + at % columns) * a.k : -1;
        }
        __syncthreads();
        for (int i = tid; i < (PLACES * place_bytes + 2 * slice_bytes) / 16; i += THREADS)
            reinterpret_cast<uint4 *>(memory)[i] = make_uint4(0, 0, 0, 0);
        for (int i = tid; i < rows + 32; i += THREADS)
            table[i] = i < positions ? slot_of(p, a.stride, a.stride * (i / columns), a.stride * (i % columns)) : 0;
        __syncthreads();

        auto copy_x = [&](int t) {
            if ((unsigned)t >= (unsigned)a.t)
                return;
            const T *from = x_cell + t * x_slice;
            const uint32_t to = x_shared + (uint32_t)((t & 1) * slice_bytes);
#pragma unroll
            for (int i = 0; i < MAX_X; i++)
                if (x_from[i] >= 0)
                    flim_copy_async(to + x_to[i], from + x_from[i], true);
        };
        /* dz at t, zeros past the share; time t0 - 2 + i lies at place i % RING. */
        auto copy_dz = [&](int t) {
            const bool exists = t >= t0 && t < t1;
            const T *from = dz_cell + (exists ? t : 0) * dz_slice;
            const int place = (t - t0 + 2) % RING;
#pragma unroll
            for (int i = 0; i < MAX_DZ; i++)
                if (dz_from[i] >= 0) {
                    const uint32_t to = dz_to + (uint32_t)(place * place_bytes + i * A_ROUND * 16);
                    flim_copy_async(to, from + dz_from[i], exists);
                    if (place < PLACES - RING)
                        flim_copy_async(to + RING * place_bytes, from + dz_from[i], exists);
                }
        };
        /* The activation on what this thread has copied of x at t, once it has come. */
        auto activate_x = [&](int t) {
            flim_copy_wait<0>();
            if ((unsigned)t >= (unsigned)a.t)
                return;
            char *slice = x_slices + (t & 1) * slice_bytes;
#pragma unroll
            for (int i = 0; i < MAX_X; i++)
                if (x_from[i] >= 0)
                    flim_activate_chunk<T>(slice + x_to[i], fold + my_channel, fold + BLOCK + my_channel);
        };
        auto pass_on = [&]() { /* what this thread has written is there for wgmma, too */
                               flim_fence_proxy();
                               flim_barrier_arrive(ready);
        };

        copy_x(t0 - 1);
        copy_dz(t0);
        flim_copy_commit();
        flim_copy_wait<0>();
        if (PROLOGUE)
            activate_x(t0 - 1);
        pass_on();
#pragma unroll 1
        for (int t = t0 - 1; t <= t1; t++) {
            flim_barrier_wait(ready, parity);
            parity ^= 1;
            if (t < t1) {
                copy_x(t + 1);
                copy_dz(t + 2);
            }
            flim_copy_commit();
            if ((unsigned)t < (unsigned)a.t) {
                const uint32_t slice = x_shared + (uint32_t)((t & 1) * slice_bytes);
                const uint64_t b = flim_wgmma_descriptor(dz_shared + (uint32_t)((t - t0 + 1) % RING * place_bytes), 128,
                                                         (uint32_t)chunk_bytes);
                /* The third warpgroup has one set of rows a warp. */
                if (group < 2)
                    multiply<T, R>(sum, b, slice, tap_slot, chunk, table + position, inner);
                else
                    multiply<T, 1>(sum, b, slice, tap_slot, chunk, table + position, inner);
            }
            if (t < t1) {
                flim_copy_wait<0>();
                if (PROLOGUE)
                    activate_x(t + 1);
                pass_on();
            }
        }
    }

    float *out = a.partial + ((int64_t)blockIdx.y * a.share + blockIdx.x) * PARTIAL + lane;
#pragma unroll
    for (int r = 0; r < R; r++) {
        const int set = first_set + 4 * r;
        if (set < SETS)
#pragma unroll
            for (int i = 0; i < SUMS; i++)
                out[(set * SUMS + i) * 32] = sum[r][i];
    }
#else
    __trap();
#endif
}

/* Grid (SETS * SUMS, blocks of K * blocks of C), block (32, FLIM_WGRAD_ROWS). */
__global__ void __launch_bounds__(32 * FLIM_WGRAD_ROWS)
    add_partials(const float *partial, int share, int dw_c, int blocks_c, float *dw, const float *unscale, bool accumulate)
{
    const int lane = threadIdx.x, set = blockIdx.x / SUMS, i = blockIdx.x % SUMS;
    float s;
    if (!flim_wgrad_add(partial + (int64_t)blockIdx.y * share * PARTIAL + blockIdx.x * 32 + lane, PARTIAL, share, &s))
        return;
    /* Row lane / 4 (+ 8) of the set: a channel of x; column: dt 2, 1, 0, then the channel of z. */
    const int ci = set % 2 * 16 + lane / 4 + i % 4 / 2 * 8, ko = i / 4 % 4 * 8 + lane % 4 * 2 + i % 2;
    const int tap = (2 - i / 16) * 9 + set / 2;
    const int k = (int)(blockIdx.y / blocks_c) * BLOCK + ko, c = (int)(blockIdx.y % blocks_c) * BLOCK + ci;
    flim_wgrad_give(dw + ((int64_t)k * dw_c + c) * TAPS + tap, s, unscale, accumulate);
}

/* 16s of positions, an even number. */
int sixteens(int positions)
{
    return flim_ceil_div(positions, 32) * 2;
}

/* Completes a tiling; false if it does not fit `limit` bytes of shared memory. */
bool complete(tiling &p, const flim_conv_problem *s, bool spread, int limit)
{
    const int stride = s->stride[2], ho = flim_ceil_div(s->in[1], stride), wo = flim_ceil_div(s->in[2], stride);
    p.tiles_y = flim_ceil_div(ho, p.tile_h);
    p.tiles_x = flim_ceil_div(wo, p.tile_w);
    p.inner = sixteens(p.tile_h * p.tile_w);
    p.x_h = (p.tile_h - 1) * stride + 3;
    p.x_w = (p.tile_w - 1) * stride + 3;
    p.pitch = spread ? p.tile_w + 8 : stride == 1 ? p.tile_w + 2 : p.tile_w + 1;
    p.plane = stride == 1 ? 0 : (p.tile_h + 1) * p.pitch;
    p.slice_slots = ((stride == 1 ? p.x_h * p.pitch : 4 * p.plane) + 7) / 8 * 8;
    const int64_t bytes = ROW * ((int64_t)PLACES * p.inner * 16 + 2 * p.slice_slots) + 4 * (p.inner * 16 + 32 + 2 * BLOCK);
    p.shared_bytes = (int)((bytes + 15) / 16 * 16 + 16);
    return p.shared_bytes <= limit && p.x_h * p.x_w <= MAX_X * A_ROUND && p.tile_h * p.tile_w <= MAX_DZ * A_ROUND;
}

/* The tiling with the least estimated clocks of a cell's slice: products, slots to stage, a barrier. */
bool find_tiling(const flim_conv_problem *s, int limit, tiling *best)
{
    const int stride = s->stride[2], ho = flim_ceil_div(s->in[1], stride), wo = flim_ceil_div(s->in[2], stride);
    double least = 0.0;
    bool found = false;
    for (int tile_w = 1; tile_w <= wo && tile_w <= MAX_DZ * A_ROUND; tile_w++)
        for (int tile_h = 1; tile_h <= ho && tile_h <= MAX_DZ * A_ROUND; tile_h++) {
            /* Of the tiles that give the same number of tiles, the smallest. */
            if (flim_ceil_div(wo, flim_ceil_div(wo, tile_w)) != tile_w ||
                flim_ceil_div(ho, flim_ceil_div(ho, tile_h)) != tile_h)
                continue;
            for (int spread = 0; spread < 2; spread++) {
                tiling p = {};
                p.tile_w = tile_w;
                p.tile_h = tile_h;
                if (!complete(p, s, spread != 0, limit))
                    continue;
                const int last_h = ho - (p.tiles_y - 1) * tile_h, last_w = wo - (p.tiles_x - 1) * tile_w;
                const int work = (p.tiles_y - 1) * ((p.tiles_x - 1) * sixteens(tile_h * tile_w) + sixteens(tile_h * last_w)) +
                                 (p.tiles_x - 1) * sixteens(last_h * tile_w) + sixteens(last_h * last_w);
                const double time = work * (spread ? 240.0 : 260.0) + p.tiles_x * p.tiles_y * (1.2 * p.x_h * p.x_w + 400.0);
                if (!found || time <= least) { /* of equals the widest */
                    found = true;
                    least = time;
                    *best = p;
                }
            }
        }
    return found;
}

int pairs_of(const flim_conv_problem *s)
{
    return s->c / BLOCK * (s->k / BLOCK);
}

template <typename T, bool PROLOGUE> cudaError_t launch(const kernel_arguments &a, dim3 grid, cudaStream_t stream)
{
    const auto kernel = wgrad_wgmma<T, PROLOGUE>;
    const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, a.p.shared_bytes);
    if (error != cudaSuccess)
        return error;
    kernel<<<grid, THREADS, a.p.shared_bytes, stream>>>(a);
    return cudaGetLastError();
}

template <typename T> cudaError_t launch(const kernel_arguments &a, bool prologue, dim3 grid, cudaStream_t stream)
{
    return prologue ? launch<T, true>(a, grid, stream) : launch<T, false>(a, grid, stream);
}

} // namespace

bool flim_wgrad_wgmma_supported(const flim_conv_problem *p, const flim_card *card)
{
    tiling t;
    return FLIM_WGMMA && card->capability == 90 && flim_wgrad_has_form(p) && p->c % BLOCK == 0 && p->k % BLOCK == 0 &&
           p->in_channels == p->c && p->out_channels == p->k && pairs_of(p) <= 65535 &&
           find_tiling(p, card->shared_bytes, &t);
}

size_t flim_wgrad_wgmma_scratch_bytes(const flim_conv_problem *p)
{
    return flim_wgrad_scratch(pairs_of(p), PARTIAL);
}

cudaError_t flim_wgrad_wgmma_run(const flim_conv_problem *problem, const flim_conv_arguments *arguments,
                                 const flim_card *card, cudaStream_t stream)
{
    kernel_arguments a = {};
    flim_conv_problem here = *problem;
    here.n = arguments->n;
    if (!flim_wgrad_wgmma_supported(&here, card) || !find_tiling(&here, card->shared_bytes, &a.p))
        return cudaErrorInvalidValue;
    const int pairs = pairs_of(&here);
    const dim3 grid = flim_wgrad_arguments(a, here, arguments, BLOCK, here.in[0], pairs, card->processors);
    const bool prologue = here.x_form == FLIM_INPUT_NORM_ACT_ON_LOAD;
    const cudaError_t error = here.type == FLIM_STORAGE_BF16 ? launch<__nv_bfloat16>(a, prologue, grid, stream)
                                                             : launch<__half>(a, prologue, grid, stream);
    if (error != cudaSuccess)
        return error;
    add_partials<<<dim3(SETS * SUMS, (unsigned)pairs), dim3(32, FLIM_WGRAD_ROWS), 0, stream>>>(
        a.partial, a.share, here.in_channels, a.blocks_c, arguments->master, arguments->unscale, arguments->accumulate);
    return cudaGetLastError();
}
