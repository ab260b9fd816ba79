/* Weight gradient of 3x3x3 convolutions, channels in blocks of 32.
 *
 *     dW[k][c][dt][dy][dx] = sum over (cell, t, y, x) of dz[t][y][x][k] x[t+dt-1][s y+dy-1][s x+dx-1][c]
 *
 * A block of 8 warps owns a 32 x 32 block of (K, C) and all 27 taps: 27,648 fp32 sums in registers (108 a lane), kept over
 * its whole share of the positions; then it stores them once and `add_partials` adds the blocks in fixed order.  The sum over
 * positions is the products' inner index, so both operands are read position-major with ldmatrix.trans straight from the
 * NDHWC tiles.
 *
 * The positions are walked in steps: SLICES time bins of a spatial tile of the output.  Shared memory holds a ring of x's
 * slices with their halo (the step's SLICES + 2, and the next step's on their way by cp.async) and two buffers of dz, so x
 * and dz are read from DRAM once (tiles overlap by a halo, which L2 serves).  Inside a step, 16 positions of the tile are
 * followed through all its slices: warp w does the taps (dy, dx) = (w / 3, w % 3) of all three dt for all 32 x 32, so that a
 * slice of x, once in registers, meets dz at t-1, t and t+1, which are in registers too: 2 SLICES + 2 loads for 3 SLICES
 * products of 16 x 32 x 32.  The ninth (dy, dx) is shared out, a 16 x 8 block (w % 2, w / 2) a warp.  That is 110 bytes of
 * shared memory a product with 4 slices.
 *
 * 16 positions may run over row ends: a table gives each position's slot in x, and ldmatrix takes one address a position.  So
 * only a tile's last 16 can be partly empty; find_tiling() picks tile and slices for that and for the card's shared memory,
 * and blocks get equal numbers of 16s.
 *
 * Fewer channels than 32, or a last block of fewer, are staged as zeros, and PARTIAL kernels leave out the loads and products
 * of the 16 x 8 tiles that hold none.
 *
 * A row of 32 channels is 64 bytes; its four 16-byte chunks are swizzled by the slot's number, so that 8 slots in a row meet
 * no bank conflict.  The pitch of x's rows is the tile's width modulo 8 if shared memory allows: then 8 positions that
 * cross a row's end do not conflict either.  With stride 2, x's slice is kept as four planes by the parity of row and column,
 * and neighbours in the output stay neighbours in a plane.
 *
 * Count for res1 at batch 64: 49.0 M products (mma.m16n8k16) = 200 GFLOP = 0.27 ms at the H100's bf16 rate; 463 MB = 0.16 ms.
 * Measured there: 0.47 ms, 0.58 with the prologue; mma.sync alone allows about 0.32.
 */
#include "cuda/conv/conv_mma.cuh"
#include "cuda/conv/conv_wgrad.cuh"
#include "cuda/conv/conv3x3x3_wgrad.h"

namespace
{

enum {
    THREADS = 256,
    WARPS = 8,
    BLOCK = 32, /* channels of x and of z a block does */
    TAPS = 27,
    SUMS = 108, /* accumulators a lane: 3 taps x 2 x 4 tiles x 4, and 3 taps x 4 */
    PARTIAL = WARPS * SUMS * 32, /* floats a block stores: [warp][register][lane] = TAPS * 32 * 32 */
    ROW = BLOCK * 2, /* bytes of a slot */
    MAX_X = 4, /* most 16-byte chunks of a slice of x that a thread copies: 256 slots a tile */
    MAX_DZ = 3 /* the same of dz: 192 positions */
};

/* How a problem is tiled.  Slots are 64-byte rows of shared memory. */
struct tiling {
    int tile_h, tile_w; /* of the output; the last tiles may be smaller */
    int tiles_y, tiles_x;
    int slices; /* output time bins a step: 2 or 4 */
    int steps; /* steps to walk T */
    int inner; /* 16s of positions in a full tile */
    int x_h, x_w; /* x's tile with halo */
    int pitch; /* slots from a row to the next of its plane */
    int plane; /* slots of a plane (stride 2; 0 for stride 1) */
    int slice_slots; /* slots of a slice in the ring, a multiple of 8 */
    int ring; /* slices in the ring */
    int shared_bytes;
    int64_t cell_work; /* 16s of positions of a cell, over all tiles and steps */
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

/* 16s of positions of a tile. */
__host__ __device__ __forceinline__ int tile_inner(const tiling &p, int ho, int wo, int tile)
{
    const int h = ho - tile / p.tiles_x * p.tile_h, w = wo - tile % p.tiles_x * p.tile_w;
    return ((h < p.tile_h ? h : p.tile_h) * (w < p.tile_w ? w : p.tile_w) + 15) / 16;
}

/* The step, counted over (cell, tile, step), in which 16 number `work` of all lies. */
__device__ __forceinline__ int64_t step_of(const kernel_arguments &a, int64_t work)
{
    const int tiles = a.p.tiles_y * a.p.tiles_x;
    const int64_t cell = work / a.p.cell_work;
    int64_t rest = work % a.p.cell_work;
    int tile = 0;
    for (; tile < tiles - 1; tile++) {
        const int64_t here = (int64_t)tile_inner(a.p, a.ho, a.wo, tile) * a.p.steps;
        if (rest < here)
            break;
        rest -= here;
    }
    return (cell * tiles + tile) * a.p.steps + rest / tile_inner(a.p, a.ho, a.wo, tile);
}

/* Slot of (row, column) of x's tile within its slice. */
__host__ __device__ __forceinline__ int slot_of(const tiling &p, int stride, int row, int column)
{
    if (stride == 1)
        return row * p.pitch + column;
    return ((row & 1) * 2 + (column & 1)) * p.plane + (row >> 1) * p.pitch + (column >> 1);
}

__device__ __forceinline__ uint32_t slot_offset(int slot, int chunk)
{
    return (uint32_t)(slot * ROW + ((chunk ^ ((slot >> 1) & 3)) << 4));
}

/* The activation of the previous unit on 8 channels in shared memory. */
template <typename T> __device__ __forceinline__ void activate(char *at, const float *scale, const float *shift)
{
    uint4 *word = reinterpret_cast<uint4 *>(at);
    uint4 v = *word;
    uint32_t *r = &v.x;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float2 z = flim_unpack<T>(r[i]), a = reinterpret_cast<const float2 *>(scale)[i],
                     b = reinterpret_cast<const float2 *>(shift)[i];
        r[i] = flim_pack<T>(flim_leaky(z.x * a.x + b.x), flim_leaky(z.y * a.y + b.y));
    }
    *word = v;
}

/* Grid (share, blocks of K * blocks of C).  PARTIAL: some block has fewer than 32 channels. */
template <typename T, bool PROLOGUE, int SLICES, bool PARTIAL_BLOCKS>
__global__ void __launch_bounds__(THREADS, 1) wgrad(const kernel_arguments a)
{
    extern __shared__ __align__(1024) char memory[];
    const tiling &p = a.p;
    const int tid = threadIdx.x, lane = tid % 32, warp = tid / 32;
    const int c0 = (int)(blockIdx.y % a.blocks_c) * BLOCK, k0 = (int)(blockIdx.y / a.blocks_c) * BLOCK;
    const int channels_c = PARTIAL_BLOCKS ? min(BLOCK, a.c - c0) : BLOCK,
              channels_k = PARTIAL_BLOCKS ? min(BLOCK, a.k - k0) : BLOCK;
    const int dz_rows = p.inner * 16; /* of a slice of dz */
    const int dz_bytes = SLICES * dz_rows * ROW; /* of a buffer of dz */

    char *x_ring = memory;
    char *dz_buffer = x_ring + p.ring * p.slice_slots * ROW; /* two */
    int *table = reinterpret_cast<int *>(dz_buffer + 2 * dz_bytes); /* (dz_rows + 16): slots of the positions' x */
    float *fold = reinterpret_cast<float *>(table + dz_rows + 16); /* (2,32): scale, shift */
    const uint32_t x_shared = flim_shared(x_ring), dz_shared = flim_shared(dz_buffer);
    if (PROLOGUE && tid < BLOCK) {
        const bool there = tid < channels_c;
        fold[tid] = there ? a.scale[c0 + tid] : 0.0f;
        fold[BLOCK + tid] = there ? a.shift[c0 + tid] : 0.0f;
    }

    float sum[3][2][4][4] = {}, rest[3][4] = {}; /* [dt] */
    const int position = lane % 16, chunk = lane / 16, rest_n = warp / 2;
    const int main_slot = slot_of(p, a.stride, warp / 3, warp % 3), rest_slot = slot_of(p, a.stride, 2, 2);
    /* A's rows of this lane; the first half of K is the one that the shared taps need. */
    const uint32_t dz_lane = slot_offset(lane % 8 + 8 * (lane / 16), lane / 8 % 2 + 2 * (warp % 2));

    /* Which tiles hold channels: of the two of K in this warp's order, of the four of C, and its one of the ninth (dy, dx).
     * */
    const bool k_there[2] = {16 * (warp % 2) < channels_k, 16 * ((warp + 1) % 2) < channels_k};
    const bool c_there[4] = {true, 8 < channels_c, 16 < channels_c, 24 < channels_c};
    const bool rest_there = k_there[0] && 8 * rest_n < channels_c;

    const int tiles = p.tiles_y * p.tiles_x;
    const int64_t work = a.n * p.cell_work;
    const int64_t begin = step_of(a, work * blockIdx.x / a.share), end = step_of(a, work * (blockIdx.x + 1) / a.share);

    int positions = 0, inner = 0; /* of the tile in hand */
    const T *x_cell = nullptr, *dz_cell = nullptr;
    const int64_t x_slice = (int64_t)a.h * a.w * a.c, dz_slice = (int64_t)a.ho * a.wo * a.k;

    /* This thread's chunks of a slice: elements from the slice's start (OUTSIDE the image: zeros; NONE: no chunk), bytes in
     * the ring's slice. */
    enum { OUTSIDE = -1, NONE = -2 };
    const int mine = tid / 4, my_channel = 8 * (tid % 4);
    const bool x_there = my_channel < channels_c, dz_there = my_channel < channels_k;
    int x_from[MAX_X], x_to[MAX_X], dz_from[MAX_DZ];
    const uint32_t dz_to = slot_offset(mine, tid % 4); /* 64 positions on, it is 64 rows on */

    auto copy_x = [&](int t) { /* slice t -> its part of the ring, which starts with t = -1 */
                               const bool exists = (unsigned)t < (unsigned)a.t;
                               const T *slice = x_cell + (exists ? t * x_slice : 0) + c0 + my_channel;
                               const uint32_t to = x_shared + (uint32_t)((t + 1) % p.ring * p.slice_slots * ROW);
#pragma unroll
                               for (int i = 0; i < MAX_X; i++)
                                   if (x_from[i] != NONE) {
                                       const bool valid = exists && x_there && x_from[i] >= 0;
                                       flim_copy_async(to + x_to[i], slice + (valid ? x_from[i] : 0), valid);
                                   }
    };
    auto copy_dz = [&](int step) {
#pragma unroll
        for (int slice = 0; slice < SLICES; slice++) {
            const int t = step * SLICES + slice;
            const bool exists = t < a.t;
            const T *from = dz_cell + (exists ? t * dz_slice : 0) + k0 + my_channel;
            const uint32_t to = dz_shared + (uint32_t)((step & 1) * dz_bytes + slice * dz_rows * ROW) + dz_to;
#pragma unroll
            for (int i = 0; i < MAX_DZ; i++)
                if (dz_from[i] != NONE)
                    flim_copy_async(to + i * (THREADS / 4) * ROW, from + (dz_there ? dz_from[i] : 0), exists && dz_there);
        }
    };
    /* The activation on what this thread has copied of the slices t0 .. t1, once it has come. */
    auto activate_x = [&](int t0, int t1) {
        flim_copy_wait<0>();
        for (int t = max(t0, 0); t <= min(t1, a.t - 1); t++) {
            char *at = x_ring + (t + 1) % p.ring * p.slice_slots * ROW;
#pragma unroll
            for (int i = 0; i < MAX_X; i++)
                if (x_from[i] >= 0 && x_there)
                    activate<T>(at + x_to[i], fold + my_channel, fold + BLOCK + my_channel);
        }
    };

    for (int64_t u = begin; u < end; u++) {
        const int step = (int)(u % p.steps);
        if (u == begin || step == 0) { /* another tile or cell: nothing of it is on chip */
            const int tile = (int)(u / p.steps % tiles);
            const int64_t cell = u / p.steps / tiles;
            const int y0 = tile / p.tiles_x * p.tile_h, x0 = tile % p.tiles_x * p.tile_w;
            const int columns = min(p.tile_w, a.wo - x0);
            positions = min(p.tile_h, a.ho - y0) * columns;
            inner = (positions + 15) / 16;
            x_cell = static_cast<const T *>(a.x) + cell * a.t * x_slice;
            dz_cell = static_cast<const T *>(a.dz) + cell * a.t * dz_slice;
            __syncthreads();
#pragma unroll
            for (int i = 0; i < MAX_X; i++) {
                const int at = mine + i * (THREADS / 4), row = at / p.x_w, column = at % p.x_w;
                const int y = a.stride * y0 + row - 1, x = a.stride * x0 + column - 1;
                x_from[i] = (unsigned)y < (unsigned)a.h && (unsigned)x < (unsigned)a.w ? (y * a.w + x) * a.c : OUTSIDE;
                x_from[i] = at < p.x_h * p.x_w ? x_from[i] : NONE;
                x_to[i] = (int)slot_offset(slot_of(p, a.stride, row, column), tid % 4);
            }
#pragma unroll
            for (int i = 0; i < MAX_DZ; i++) {
                const int at = mine + i * (THREADS / 4);
                dz_from[i] = at < positions ? ((y0 + at / columns) * a.wo + x0 + at % columns) * a.k : NONE;
            }
            for (int i = tid; i < dz_rows + 16; i += THREADS)
                table[i] = i < positions ? slot_of(p, a.stride, a.stride * (i / columns), a.stride * (i % columns)) : 0;
            /* dz is zero in the positions that are missing to a multiple of 16. */
            for (int i = tid; i < 2 * SLICES * (16 * inner - positions) * 4; i += THREADS) {
                const int row = i / 4 % (16 * inner - positions), slice = i / 4 / (16 * inner - positions);
                *reinterpret_cast<uint4 *>(dz_buffer + slice * dz_rows * ROW + slot_offset(positions + row, i % 4)) =
                    make_uint4(0, 0, 0, 0);
            }
            __syncthreads();
            for (int t = step * SLICES - 1; t <= (step + 1) * SLICES; t++)
                copy_x(t);
            copy_dz(step);
            flim_copy_commit();
            if (PROLOGUE)
                activate_x(step * SLICES - 1, (step + 1) * SLICES);
        }
        flim_copy_wait<0>();
        __syncthreads();
        const bool more = step + 1 < p.steps && u + 1 < end;
        if (more) {
#pragma unroll
            for (int i = 1; i <= SLICES; i++)
                copy_x((step + 1) * SLICES + i);
            copy_dz(step + 1);
        }
        flim_copy_commit();

        uint32_t slice_at[SLICES + 2]; /* of the slices t - 1 ... t + SLICES, t the step's first */
#pragma unroll
        for (int i = 0; i < SLICES + 2; i++)
            slice_at[i] = x_shared + (uint32_t)((step * SLICES + i) % p.ring * p.slice_slots * ROW);
        uint32_t dz_at = dz_shared + (uint32_t)((step & 1) * dz_bytes) + dz_lane;
        const int *entry = table + position;

        /* Operands are loaded one slice ahead of their products: dz in four sets of registers by slice, x in two. */
        uint32_t m[4][2][4], x[2][2][4], x_rest[2][2], main_at, rest_at;
        auto locate = [&]() {
            main_at = slot_offset(*entry + main_slot, chunk);
            rest_at = slot_offset(*entry + rest_slot, rest_n);
        };
        auto load = [&](int i) {
            if (i < SLICES) {
                if (k_there[0])
                    flim_ldmatrix_trans(m[i % 4][0], dz_at + (uint32_t)(i * dz_rows * ROW));
                if (k_there[1])
                    flim_ldmatrix_trans(m[i % 4][1], (dz_at ^ 32u) + (uint32_t)(i * dz_rows * ROW));
            }
            flim_ldmatrix_trans(x[i % 2][0], slice_at[i] + main_at);
            if (c_there[2])
                flim_ldmatrix_trans(x[i % 2][1], slice_at[i] + (main_at ^ 32u));
            if (rest_there)
                flim_ldmatrix2_trans(x_rest[i % 2][0], x_rest[i % 2][1], slice_at[i] + rest_at);
        };
        locate();
        load(0);
#pragma unroll 1
        for (int s = 0; s < inner; s++) {
            if (PROLOGUE && more && s == inner / 2) /* the next slices have come by now; other warps' products go on */
                activate_x((step + 1) * SLICES + 1, (step + 2) * SLICES);
#pragma unroll
            for (int i = 0; i < SLICES + 2; i++) {
                if (i + 1 < SLICES + 2) {
                    load(i + 1);
                } else { /* after the last positions this reads what is never used */
                    entry += 16;
                    dz_at += 16 * ROW;
                    locate();
                    load(0);
                }
#pragma unroll
                for (int dt = 0; dt < 3; dt++) {
                    if (i - dt < 0 || i - dt >= SLICES)
                        continue;
                    const uint32_t(&z)[2][4] = m[(i - dt) & 3];
#pragma unroll
                    for (int half = 0; half < 2; half++)
#pragma unroll
                        for (int k = 0; k < 2; k++) {
                            if (k_there[k] && c_there[2 * half])
                                flim_mma<T>(sum[dt][k][2 * half], z[k], x[i % 2][half][0], x[i % 2][half][1]);
                            if (k_there[k] && c_there[2 * half + 1])
                                flim_mma<T>(sum[dt][k][2 * half + 1], z[k], x[i % 2][half][2], x[i % 2][half][3]);
                        }
                    if (rest_there)
                        flim_mma<T>(rest[dt], z[0], x_rest[i % 2][0], x_rest[i % 2][1]);
                }
            }
        }
    }

    float *out = a.partial + ((int64_t)blockIdx.y * a.share + blockIdx.x) * PARTIAL + warp * SUMS * 32 + lane;
    const float *sum_flat = &sum[0][0][0][0], *rest_flat = &rest[0][0];
#pragma unroll
    for (int r = 0; r < SUMS; r++)
        out[r * 32] = r < 96 ? sum_flat[r] : rest_flat[r - 96];
}

/* Grid (WARPS * SUMS, blocks of K * blocks of C), block (32, FLIM_WGRAD_ROWS). */
__global__ void __launch_bounds__(32 * FLIM_WGRAD_ROWS)
    add_partials(const float *partial, int share, int dw_c, int dw_k, int blocks_c, float *dw, const float *unscale,
                 bool accumulate)
{
    const int lane = threadIdx.x, warp = blockIdx.x / SUMS, r = blockIdx.x % SUMS;
    float s;
    if (!flim_wgrad_add(partial + (int64_t)blockIdx.y * share * PARTIAL + blockIdx.x * 32 + lane, PARTIAL, share, &s))
        return;
    const int g = lane / 4, q = lane % 4, i = r % 4;
    int tap, ko, ci;
    if (r < 96) {
        tap = 9 * (r / 32) + warp;
        ko = 16 * ((r / 16 + warp) % 2) + g + 8 * (i / 2);
        ci = 8 * (r / 4 % 4) + 2 * q + i % 2;
    } else {
        tap = 9 * ((r - 96) / 4) + 8;
        ko = 16 * (warp % 2) + g + 8 * (i / 2);
        ci = 8 * (warp / 2) + 2 * q + i % 2;
    }
    const int k = (int)(blockIdx.y / blocks_c) * BLOCK + ko, c = (int)(blockIdx.y % blocks_c) * BLOCK + ci;
    if (k >= dw_k || c >= dw_c)
        return;
    flim_wgrad_give(dw + ((int64_t)k * dw_c + c) * TAPS + tap, s, unscale, accumulate);
}

int sixteens(int positions)
{
    return flim_ceil_div(positions, 16);
}

/* Completes a tiling from tile and slices; false if it does not fit `limit` bytes of shared memory. */
bool complete(tiling &p, const flim_conv_problem *s, bool spread, int limit)
{
    const int stride = s->stride[2], ho = flim_ceil_div(s->in[1], stride), wo = flim_ceil_div(s->in[2], stride);
    p.tiles_y = flim_ceil_div(ho, p.tile_h);
    p.tiles_x = flim_ceil_div(wo, p.tile_w);
    p.steps = flim_ceil_div(s->in[0], p.slices);
    p.inner = flim_ceil_div(p.tile_h * p.tile_w, 16);
    p.x_h = (p.tile_h - 1) * stride + 3;
    p.x_w = (p.tile_w - 1) * stride + 3;
    const int least = stride == 1 ? p.tile_w + 2 : p.tile_w + 1;
    p.pitch = spread ? p.tile_w + 8 : least;
    p.plane = stride == 1 ? 0 : (p.tile_h + 1) * p.pitch;
    p.slice_slots = stride == 1 ? p.x_h * p.pitch : 4 * p.plane;
    p.slice_slots = (p.slice_slots + 7) / 8 * 8;
    p.ring = 2 * p.slices + 2;
    const int64_t bytes =
        ROW * ((int64_t)p.ring * p.slice_slots + 2 * p.slices * p.inner * 16) + (int64_t)sizeof(int) * (p.inner * 16 + 16) +
        3 * BLOCK * (int64_t)sizeof(float); /* one row in reserve: it decides on tilings, so on the order of sums */
    p.shared_bytes = (int)bytes;
    return bytes <= limit && p.x_h * p.x_w <= MAX_X * THREADS / 4 && p.tile_h * p.tile_w <= MAX_DZ * THREADS / 4;
}

/* The tiling with the least estimated time, in clocks: products (1.5 each and multiprocessor on an H100, shared memory's part
 * by the loads they need), the slots to stage, barrier and start of a step. */
bool find_tiling(const flim_conv_problem *s, int limit, tiling *best)
{
    const int stride = s->stride[2], ho = flim_ceil_div(s->in[1], stride), wo = flim_ceil_div(s->in[2], stride);
    double least = 0.0;
    bool found = false;
    for (int tile_w = 1; tile_w <= wo && tile_w <= MAX_X * THREADS / 4; tile_w++) {
        for (int tile_h = 1; tile_h <= ho && tile_h <= MAX_X * THREADS / 4; tile_h++) {
            /* Of the tiles that give the same number of tiles, the smallest. */
            if (flim_ceil_div(wo, flim_ceil_div(wo, tile_w)) != tile_w ||
                flim_ceil_div(ho, flim_ceil_div(ho, tile_h)) != tile_h)
                continue;
            for (int slices = 2; slices <= 4; slices += 2) {
                for (int spread = 0; spread < 2; spread++) {
                    tiling p = {};
                    p.tile_w = tile_w;
                    p.tile_h = tile_h;
                    p.slices = slices;
                    if (!complete(p, s, spread != 0, limit))
                        continue;
                    const int last_h = ho - (p.tiles_y - 1) * tile_h, last_w = wo - (p.tiles_x - 1) * tile_w;
                    p.cell_work = ((int64_t)(p.tiles_y - 1) *
                                       ((p.tiles_x - 1) * sixteens(tile_h * tile_w) + sixteens(tile_h * last_w)) +
                                   (int64_t)(p.tiles_x - 1) * sixteens(last_h * tile_w) + sixteens(last_h * last_w)) *
                                  p.steps;
                    const double loads =
                        8.0 * (18 * slices + 20) / slices; /* 128-byte accesses for 16 positions and a slice */
                    const double time = (double)p.cell_work * slices * (324.0 + 0.4 * loads * (spread ? 1.0 : 1.3)) +
                                        (double)p.steps * p.tiles_x * p.tiles_y * (1.2 * slices * p.x_h * p.x_w + 600.0);
                    if (!found || time <= least) { /* of equals the widest */
                        found = true;
                        least = time;
                        *best = p;
                    }
                }
            }
        }
    }
    return found;
}

int pairs_of(const flim_conv_problem *s)
{
    return flim_ceil_div(s->c, BLOCK) * flim_ceil_div(s->k, BLOCK);
}

template <typename T, bool PROLOGUE, int SLICES, bool PARTIAL_BLOCKS>
cudaError_t launch(const kernel_arguments &a, dim3 grid, cudaStream_t stream)
{
    const auto kernel = wgrad<T, PROLOGUE, SLICES, PARTIAL_BLOCKS>;
    const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, a.p.shared_bytes);
    if (error != cudaSuccess)
        return error;
    kernel<<<grid, THREADS, a.p.shared_bytes, stream>>>(a);
    return cudaGetLastError();
}

template <typename T, bool PROLOGUE> cudaError_t launch(const kernel_arguments &a, dim3 grid, cudaStream_t stream)
{
    const bool partial = a.c % BLOCK != 0 || a.k % BLOCK != 0;
    if (a.p.slices == 4)
        return partial ? launch<T, PROLOGUE, 4, true>(a, grid, stream) : launch<T, PROLOGUE, 4, false>(a, grid, stream);
    return partial ? launch<T, PROLOGUE, 2, true>(a, grid, stream) : launch<T, PROLOGUE, 2, false>(a, grid, stream);
}

template <typename T> cudaError_t launch(const kernel_arguments &a, bool prologue, dim3 grid, cudaStream_t stream)
{
    return prologue ? launch<T, true>(a, grid, stream) : launch<T, false>(a, grid, stream);
}

} // namespace

bool flim_wgrad3x3x3_supported(const flim_conv_problem *p, int sm)
{
    tiling t;
    return sm >= 80 && flim_wgrad_has_form(p) && p->in_channels > 0 && p->in_channels <= p->c && p->out_channels > 0 &&
           p->out_channels <= p->k && p->c % 8 == 0 && p->k % 8 == 0 && pairs_of(p) <= 65535 && find_tiling(p, 96 * 1024, &t);
}

size_t flim_wgrad3x3x3_scratch_bytes(const flim_conv_problem *p)
{
    const int pairs = pairs_of(p);
    return sizeof(float) * (size_t)PARTIAL *
           (size_t)(pairs > FLIM_WGRAD_MOST_BLOCKS ? pairs : FLIM_WGRAD_MOST_BLOCKS / pairs * pairs);
}

cudaError_t flim_wgrad3x3x3_run(const flim_conv_problem *problem, const flim_conv_arguments *arguments, const flim_card *card,
                                cudaStream_t stream)
{
    kernel_arguments a = {};
    flim_conv_problem here = *problem;
    here.n = arguments->n;
    if (!flim_wgrad3x3x3_supported(&here, 80) || !find_tiling(&here, card->shared_bytes, &a.p))
        return cudaErrorInvalidValue;
    const int pairs = pairs_of(&here);
    a.x = arguments->x;
    a.dz = arguments->y;
    a.partial = static_cast<float *>(arguments->scratch);
    a.n = here.n;
    a.c = here.c, a.k = here.k, a.t = here.in[0], a.h = here.in[1], a.w = here.in[2], a.stride = here.stride[2];
    a.ho = flim_ceil_div(a.h, a.stride), a.wo = flim_ceil_div(a.w, a.stride);
    a.blocks_c = flim_ceil_div(a.c, BLOCK);
    if (here.x_form == FLIM_INPUT_NORM_ACT_ON_LOAD) {
        a.scale = arguments->prologue.scale;
        a.shift = arguments->prologue.shift;
    }
    const int64_t steps = a.n * a.p.tiles_y * a.p.tiles_x * (int64_t)a.p.steps;
    a.share = (card->processors < FLIM_WGRAD_MOST_BLOCKS ? card->processors : FLIM_WGRAD_MOST_BLOCKS) / pairs;
    a.share = a.share < 1 ? 1 : a.share;
    a.share = steps < a.share ? (int)steps : a.share;
    const dim3 grid((unsigned)a.share, (unsigned)pairs);
    const bool prologue = here.x_form == FLIM_INPUT_NORM_ACT_ON_LOAD;
    const cudaError_t error = here.type == FLIM_STORAGE_BF16 ? launch<__nv_bfloat16>(a, prologue, grid, stream)
                                                             : launch<__half>(a, prologue, grid, stream);
    if (error != cudaSuccess)
        return error;
    add_partials<<<dim3(WARPS * SUMS, (unsigned)pairs), dim3(32, FLIM_WGRAD_ROWS), 0, stream>>>(
        a.partial, a.share, here.in_channels, here.out_channels, a.blocks_c, arguments->master, arguments->unscale,
        arguments->accumulate);
    return cudaGetLastError();
}
