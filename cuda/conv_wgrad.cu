/* Weight gradient of 3x3x3 convolutions, channels in blocks of 32.
 *
 *     dW[k][c][dt][dy][dx] = sum over (cell, t, y, x) of dz[t][y][x][k] x[t+dt-1][s y+dy-1][s x+dx-1][c]
 *
 * A block of 8 warps owns a 32 x 32 block of (K, C) and all 27 taps: 27,648 fp32 sums in registers (108 a lane), kept over its whole
 * share of the positions; then it stores them once and `add_partials` adds the blocks in fixed order.  The sum over positions is
 * the products' inner index, so both operands are read position-major with ldmatrix.trans straight from the NDHWC tiles.
 *
 * The positions are walked in steps: `slices` time bins of a spatial tile of the output.  Shared memory holds a ring of x's slices
 * with their halo (the step's slices + 2, and the next step's on their way by cp.async) and two buffers of dz, so x and dz are read
 * from DRAM once (tiles overlap by a halo, which L2 serves).  An inner step of 16 positions may run over row and slice ends: a table gives
 * each position's place in x, and ldmatrix takes one address a position.  So only the step's last 16 can be partly empty; plan()
 * picks tile and slices for that and for the card's shared memory.
 *
 * Warp w does taps 3w, 3w+1, 3w+2 (one dt and dy, all dx) for all 32 x 32, and for the three taps left (24, 25, 26) the 16 x 8 block
 * (w % 2, w / 2): 27 products of 16 positions each, A (dz) loaded once, 180 bytes of shared memory a product.
 *
 * A row of 32 channels is 64 bytes; its four 16-byte chunks are swizzled by the place's number, so that 8 places in a row meet no
 * bank conflict.  The pitch of x's rows is the tile's width modulo 8 where shared memory allows: then 8 positions that cross a row's
 * end do not conflict either.  With stride 2, x's slice is kept as four planes by the parity of row and column, and neighbours in the
 * output stay neighbours in a plane.
 *
 * Count for res1 at batch 64: 49.0 M products (mma.m16n8k16) = 200 GFLOP; 463 MB = 0.16 ms on an H100 (0.27 at bf16's rate).
 */
#include "conv_mma.cuh"
#include "conv_wgrad.h"

namespace
{

enum {
    THREADS = 256,
    WARPS = 8,
    BLOCK = 32, /* channels of x and of z a block does */
    TAPS = 27,
    SUMS = 108, /* accumulators a lane: 3 taps x 2 x 4 tiles x 4, and 3 taps x 4 */
    PARTIAL = WARPS * SUMS * 32, /* floats a block stores: [warp][register][lane] = TAPS * 32 * 32 */
    ROW = BLOCK * 2, /* bytes of a place */
    MAX_BLOCKS = 160, /* aim for the grid, at least the number of 32 x 32 blocks */
    REDUCE_ROWS = 8
};

/* How a problem is cut.  Places are 64-byte rows of shared memory. */
struct wgrad_plan {
    int tile_h, tile_w; /* of the output */
    int tiles_y, tiles_x;
    int slices; /* output time bins a step */
    int steps; /* steps to walk T */
    int positions; /* slices * tile_h * tile_w */
    int inner; /* steps of 16 positions */
    int x_h, x_w; /* x's tile with halo */
    int pitch; /* places from a row to the next of its plane */
    int plane; /* places of a plane (stride 2; 0 for stride 1) */
    int slice_places; /* places of a slice in the ring, a multiple of 8 */
    int ring; /* slices in the ring */
    int shared_bytes;
};

struct wgrad_arguments {
    const void *x, *dz;
    const float *scale, *shift, *dropout;
    float *partial;
    int64_t n;
    int c, k, t, h, w, ho, wo, stride;
    int blocks_c; /* C / 32 */
    int share; /* blocks for each 32 x 32 block */
    wgrad_plan p;
};

/* Place of (row, column) of x's tile within its slice. */
__host__ __device__ __forceinline__ int place_of(const wgrad_plan &p, int stride, int row, int column)
{
    if (stride == 1)
        return row * p.pitch + column;
    return ((row & 1) * 2 + (column & 1)) * p.plane + (row >> 1) * p.pitch + (column >> 1);
}

__device__ __forceinline__ uint32_t place_offset(int place, int chunk)
{
    return (uint32_t)(place * ROW + ((chunk ^ ((place >> 1) & 3)) << 4));
}

/* A position of the step in the tables: what to load for it, and where its x is. */
struct load_entry {
    int offset; /* of the pixel in its slice, -1 outside */
    int place;
};

/* The activation of the previous unit on 8 channels in shared memory. */
template <typename T>
__device__ __forceinline__ void activate(char *at, const float *scale, const float *shift, const float *dropout)
{
    uint4 *word = reinterpret_cast<uint4 *>(at);
    uint4 v = *word;
    uint32_t *r = &v.x;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float2 z = flim_unpack<T>(r[i]), a = reinterpret_cast<const float2 *>(scale)[i],
                     b = reinterpret_cast<const float2 *>(shift)[i];
        r[i] = flim_pack<T>(flim_leaky(z.x * a.x + b.x), flim_leaky(z.y * a.y + b.y));
        if (dropout) {
            const float2 y = flim_unpack<T>(r[i]), d = reinterpret_cast<const float2 *>(dropout)[i];
            r[i] = flim_pack<T>(y.x * d.x, y.y * d.y);
        }
    }
    *word = v;
}

/* Grid (share, K/32 * C/32). */
template <typename T, bool PROLOGUE> __global__ void __launch_bounds__(THREADS, 1) wgrad(const wgrad_arguments a)
{
    extern __shared__ __align__(1024) char memory[];
    const wgrad_plan &p = a.p;
    const int tid = threadIdx.x, lane = tid % 32, warp = tid / 32;
    const int c0 = (int)(blockIdx.y % a.blocks_c) * BLOCK, k0 = (int)(blockIdx.y / a.blocks_c) * BLOCK;
    const int dz_rows = p.inner * 16, x_pixels = p.x_h * p.x_w;

    char *x_ring = memory;
    char *dz_buffer = x_ring + p.ring * p.slice_places * ROW;
    load_entry *x_table = reinterpret_cast<load_entry *>(dz_buffer + 2 * dz_rows * ROW); /* (x_pixels) */
    load_entry *dz_table = x_table + x_pixels; /* (dz_rows + 16): offset of dz's pixel; place of x | slice << 20 */
    float *fold = reinterpret_cast<float *>(dz_table + dz_rows + 16); /* (3,32): scale, shift, dropout of the cell */
    const uint32_t x_shared = flim_shared(x_ring), dz_shared = flim_shared(dz_buffer);

    /* Places that do not depend on the tile; rows of dz past the positions stay zero for good. */
    for (int i = tid; i < dz_rows + 16; i += THREADS) {
        const int slice = i / (p.tile_h * p.tile_w), rest = i % (p.tile_h * p.tile_w);
        const int y = rest / p.tile_w, x = rest % p.tile_w;
        dz_table[i].place = i < p.positions ? place_of(p, a.stride, a.stride * y, a.stride * x) | slice << 20 : 0;
        dz_table[i].offset = -1;
    }
    for (int i = tid; i < 2 * dz_rows * 4; i += THREADS)
        reinterpret_cast<uint4 *>(dz_buffer)[i] = make_uint4(0, 0, 0, 0);
    if (PROLOGUE && tid < BLOCK) {
        fold[tid] = a.scale[c0 + tid];
        fold[BLOCK + tid] = a.shift[c0 + tid];
    }

    float own[3][2][4][4] = {}, rest[3][4] = {};
    const int dt = warp / 3, dy = warp % 3;
    int own_place[3], rest_place[3]; /* places from a position's table entry to its tap */
#pragma unroll
    for (int dx = 0; dx < 3; dx++) {
        own_place[dx] = place_of(p, a.stride, dy, dx);
        rest_place[dx] = place_of(p, a.stride, 2, dx);
    }
    const int position = lane % 16, chunk = lane / 16, rest_n = warp / 2;
    /* A's rows of this lane; m[0] is the half of K that the taps left over need, m[1] the other one. */
    const uint32_t dz_lane = place_offset(lane % 8 + 8 * (lane / 16), lane / 8 % 2 + 2 * (warp % 2));
    const int rest_place_01 = chunk ? rest_place[1] : rest_place[0];

    const int64_t tiles = (int64_t)p.tiles_y * p.tiles_x, total = a.n * tiles * p.steps;
    const int64_t begin = total * blockIdx.x / a.share, end = total * (blockIdx.x + 1) / a.share;

    int64_t cell = 0;
    const T *x_cell = nullptr, *dz_cell = nullptr;
    const int64_t x_slice = (int64_t)a.h * a.w * a.c, dz_slice = (int64_t)a.ho * a.wo * a.k;

    /* Slice t of x -> its slot of the ring, which starts with t = -1. */
    auto load_x = [&](int t) {
        const int slot = (t + 1) % p.ring;
        const bool exists = (unsigned)t < (unsigned)a.t;
        const T *from = x_cell + (exists ? t * x_slice : 0) + c0 + 8 * (tid % 4);
        for (int i = tid / 4; i < x_pixels; i += THREADS / 4) {
            const load_entry e = x_table[i];
            const bool valid = exists && e.offset >= 0;
            flim_copy_async(x_shared + place_offset(slot * p.slice_places + e.place, tid % 4),
                            valid ? from + (int64_t)e.offset * a.c : static_cast<const T *>(a.x), valid);
        }
    };
    auto activate_x = [&](int t) { /* what this thread has loaded */
                                   const int slot = (t + 1) % p.ring, channel = 8 * (tid % 4);
                                   if ((unsigned)t >= (unsigned)a.t)
                                       return;
                                   for (int i = tid / 4; i < x_pixels; i += THREADS / 4) {
                                       const load_entry e = x_table[i];
                                       if (e.offset >= 0)
                                           activate<T>(x_ring + place_offset(slot * p.slice_places + e.place, tid % 4),
                                                       fold + channel, fold + BLOCK + channel,
                                                       a.dropout ? fold + 2 * BLOCK + channel : nullptr);
                                   }
    };
    auto load_dz = [&](int step) {
        const uint32_t to = dz_shared + (uint32_t)((step & 1) * dz_rows * ROW);
        const T *from = dz_cell + (int64_t)step * p.slices * dz_slice + k0 + 8 * (tid % 4);
        for (int i = tid / 4; i < p.positions; i += THREADS / 4) {
            const load_entry e = dz_table[i];
            const int slice = e.place >> 20;
            const bool valid = e.offset >= 0 && step * p.slices + slice < a.t;
            flim_copy_async(to + place_offset(i, tid % 4),
                            valid ? from + slice * dz_slice + (int64_t)e.offset * a.k : static_cast<const T *>(a.dz), valid);
        }
    };

    for (int64_t u = begin; u < end; u++) {
        const int step = (int)(u % p.steps);
        const bool fresh = u == begin || step == 0; /* another tile or cell: nothing of it is on chip */
        if (fresh) {
            const int64_t tile = u / p.steps % tiles;
            cell = u / p.steps / tiles;
            const int y0 = (int)(tile / p.tiles_x) * p.tile_h, x0 = (int)(tile % p.tiles_x) * p.tile_w;
            x_cell = static_cast<const T *>(a.x) + cell * a.t * x_slice;
            dz_cell = static_cast<const T *>(a.dz) + cell * a.t * dz_slice;
            __syncthreads();
            for (int i = tid; i < x_pixels; i += THREADS) {
                const int row = i / p.x_w, column = i % p.x_w;
                const int y = a.stride * y0 + row - 1, x = a.stride * x0 + column - 1;
                x_table[i].offset = (unsigned)y < (unsigned)a.h && (unsigned)x < (unsigned)a.w ? y * a.w + x : -1;
                x_table[i].place = place_of(p, a.stride, row, column);
            }
            for (int i = tid; i < p.positions; i += THREADS) {
                const int within = i % (p.tile_h * p.tile_w), y = y0 + within / p.tile_w, x = x0 + within % p.tile_w;
                dz_table[i].offset = y < a.ho && x < a.wo ? y * a.wo + x : -1;
            }
            if (PROLOGUE && a.dropout && tid < BLOCK)
                fold[2 * BLOCK + tid] = a.dropout[cell * a.c + c0 + tid];
            __syncthreads();
            for (int t = step * p.slices - 1; t <= (step + 1) * p.slices; t++)
                load_x(t);
            load_dz(step);
            flim_copy_commit();
        }
        flim_copy_wait<0>();
        if (PROLOGUE)
            for (int t = fresh ? step * p.slices - 1 : step * p.slices + 1; t <= (step + 1) * p.slices; t++)
                activate_x(t);
        __syncthreads();
        if (step + 1 < p.steps && u + 1 < end) {
            for (int t = (step + 1) * p.slices + 1; t <= (step + 2) * p.slices; t++)
                load_x(t);
            load_dz(step + 1);
        }
        flim_copy_commit();

        const int first_slot = step * p.slices % p.ring; /* of slice t - 1 for the step's first t */
        const int place_own = dt * p.slice_places, place_rest = 2 * p.slice_places, wrap = p.ring * p.slice_places;
        const load_entry *entry = dz_table + position;
        uint32_t dz_at = dz_shared + (uint32_t)((step & 1) * dz_rows * ROW) + dz_lane;
        /* Operands are loaded ahead of their products: A and the first tap of the next 16 positions, the next tap of these. */
        uint32_t m[2][4], x0[2][4], x1[2][4];
        auto load_m = [&]() {
            flim_ldmatrix_trans(m[0], dz_at);
            flim_ldmatrix_trans(m[1], dz_at ^ 32u);
        };
        auto load_tap = [&](uint32_t(&r)[2][4], int place) {
            const uint32_t at = x_shared + place_offset(place, chunk);
            flim_ldmatrix_trans(r[0], at);
            flim_ldmatrix_trans(r[1], at ^ 32u);
        };
        auto multiply = [&](float(&sums)[2][4][4], const uint32_t(&r)[2][4]) {
#pragma unroll
            for (int half = 0; half < 2; half++)
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    flim_mma<T>(sums[i][2 * half], m[i], r[half][0], r[half][1]);
                    flim_mma<T>(sums[i][2 * half + 1], m[i], r[half][2], r[half][3]);
                }
        };
        int at_own, at_rest; /* places of this lane's position for the taps' slices */
        auto locate = [&]() {
            const int e = entry->place, start = (e & 0xfffff) + (first_slot + (e >> 20)) * p.slice_places;
            at_own = start + place_own;
            at_own -= at_own >= wrap ? wrap : 0;
            at_rest = start + place_rest;
            at_rest -= at_rest >= wrap ? wrap : 0;
        };
        locate();
        load_m();
        load_tap(x0, at_own + own_place[0]);
#pragma unroll 2
        for (int s = 0; s < p.inner; s++) {
            load_tap(x1, at_own + own_place[1]);
            multiply(own[0], x0);
            load_tap(x0, at_own + own_place[2]);
            multiply(own[1], x1);
            uint32_t r[4], r0, r1;
            flim_ldmatrix_trans(r, x_shared + place_offset(at_rest + rest_place_01, rest_n));
            flim_ldmatrix2_trans(r0, r1, x_shared + place_offset(at_rest + rest_place[2], rest_n));
            entry += 16; /* after the last positions this and the loads below read what is never used */
            locate();
            multiply(own[2], x0);
            load_tap(x0, at_own + own_place[0]);
            flim_mma<T>(rest[0], m[0], r[0], r[1]);
            flim_mma<T>(rest[1], m[0], r[2], r[3]);
            flim_mma<T>(rest[2], m[0], r0, r1);
            dz_at += 16 * ROW;
            load_m();
        }
    }

    float *out = a.partial + ((int64_t)blockIdx.y * a.share + blockIdx.x) * PARTIAL + warp * SUMS * 32 + lane;
    const float *own_flat = &own[0][0][0][0], *rest_flat = &rest[0][0];
#pragma unroll
    for (int r = 0; r < SUMS; r++)
        out[r * 32] = r < 96 ? own_flat[r] : rest_flat[r - 96];
}

/* Grid (WARPS * SUMS, K/32 * C/32), block (32, REDUCE_ROWS). */
__global__ void __launch_bounds__(32 * REDUCE_ROWS)
    add_partials(const float *partial, int share, int c, int blocks_c, float *dw, const float *unscale, bool accumulate)
{
    __shared__ float part[REDUCE_ROWS][32];
    const int lane = threadIdx.x, row = threadIdx.y, warp = blockIdx.x / SUMS, r = blockIdx.x % SUMS;
    const float *from = partial + (int64_t)blockIdx.y * share * PARTIAL + blockIdx.x * 32 + lane;
    float s = 0.0f;
    for (int b = row; b < share; b += REDUCE_ROWS)
        s += from[(int64_t)b * PARTIAL];
    part[row][lane] = s;
    __syncthreads();
    if (row > 0)
        return;
    for (int i = 1; i < REDUCE_ROWS; i++)
        s += part[i][lane];
    const int g = lane / 4, q = lane % 4, i = r % 4;
    int tap, ko, ci;
    if (r < 96) {
        tap = 3 * warp + r / 32;
        ko = 16 * ((r / 16 + warp) % 2) + g + 8 * (i / 2);
        ci = 8 * (r / 4 % 4) + 2 * q + i % 2;
    } else {
        tap = 24 + (r - 96) / 4;
        ko = 16 * (warp % 2) + g + 8 * (i / 2);
        ci = 8 * (warp / 2) + 2 * q + i % 2;
    }
    const int64_t k = (int64_t)(blockIdx.y / blocks_c) * BLOCK + ko;
    float *out = dw + (k * c + (blockIdx.y % blocks_c) * BLOCK + ci) * TAPS + tap;
    const float value = s * (unscale ? *unscale : 1.0f);
    *out = accumulate ? *out + value : value;
}

int ceil_div(int a, int b)
{
    return (a + b - 1) / b;
}

/* Completes a plan from tile and slices; false where it does not fit `limit` bytes of shared memory. */
bool complete(wgrad_plan &p, const flim_wgrad_shape *s, bool spread, int limit)
{
    const int ho = ceil_div(s->h, s->stride), wo = ceil_div(s->w, s->stride);
    p.tiles_y = ceil_div(ho, p.tile_h);
    p.tiles_x = ceil_div(wo, p.tile_w);
    p.steps = ceil_div(s->t, p.slices);
    p.positions = p.slices * p.tile_h * p.tile_w;
    p.inner = ceil_div(p.positions, 16);
    p.x_h = (p.tile_h - 1) * s->stride + 3;
    p.x_w = (p.tile_w - 1) * s->stride + 3;
    const int least = s->stride == 1 ? p.tile_w + 2 : p.tile_w + 1;
    p.pitch = spread ? p.tile_w + 8 : least;
    p.plane = s->stride == 1 ? 0 : (p.tile_h + 1) * p.pitch;
    p.slice_places = s->stride == 1 ? p.x_h * p.pitch : 4 * p.plane;
    p.slice_places = (p.slice_places + 7) / 8 * 8;
    p.ring = 2 * p.slices + 2;
    const int64_t bytes = (int64_t)p.ring * p.slice_places * ROW + 2 * p.inner * 16 * ROW +
                          (int64_t)sizeof(load_entry) * (p.x_h * p.x_w + p.inner * 16 + 16) +
                          3 * BLOCK * (int64_t)sizeof(float) + 16 * ROW; /* room for reading ahead of dz */
    p.shared_bytes = (int)bytes;
    return bytes <= limit && p.slice_places < (1 << 20) && p.slices < (1 << 10);
}

/* The cut with the least estimated time, in clocks of a step: products, loads, barrier. */
bool plan(const flim_wgrad_shape *s, int limit, wgrad_plan *best)
{
    const int ho = ceil_div(s->h, s->stride), wo = ceil_div(s->w, s->stride);
    double least = 0.0;
    bool found = false;
    for (int across = 1; across <= wo; across++) {
        for (int down = 1; down <= ho; down++) {
            const int tile_w = ceil_div(wo, across), tile_h = ceil_div(ho, down);
            if ((across > 1 && tile_w == ceil_div(wo, across - 1)) || (down > 1 && tile_h == ceil_div(ho, down - 1)) ||
                tile_w * tile_h > 1024)
                continue;
            for (int slices = 1; slices <= 8 && slices <= s->t; slices++) {
                for (int spread = 0; spread < 2; spread++) {
                    wgrad_plan p = {};
                    p.tile_w = tile_w;
                    p.tile_h = tile_h;
                    p.slices = slices;
                    if (!complete(p, s, spread != 0, limit))
                        continue;
                    const double step = p.inner * 400.0 * (spread ? 1.0 : 1.15) + 1.2 * slices * p.x_h * p.x_w + 400.0;
                    const double time = step * p.steps * p.tiles_x * p.tiles_y;
                    if (!found || time < least) {
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

int pairs_of(const flim_wgrad_shape *s)
{
    return (s->c / BLOCK) * (s->k / BLOCK);
}

template <typename T, bool PROLOGUE> cudaError_t launch(const wgrad_arguments &a, dim3 grid, cudaStream_t stream)
{
    const cudaError_t error =
        cudaFuncSetAttribute(wgrad<T, PROLOGUE>, cudaFuncAttributeMaxDynamicSharedMemorySize, a.p.shared_bytes);
    if (error != cudaSuccess)
        return error;
    wgrad<T, PROLOGUE><<<grid, THREADS, a.p.shared_bytes, stream>>>(a);
    return cudaGetLastError();
}

} // namespace

bool flim_wgrad_supported(const flim_wgrad_shape *s, int sm)
{
    wgrad_plan p;
    return sm >= 80 && (s->type == FLIM_CONV_BF16 || s->type == FLIM_CONV_FP16) && s->n > 0 && s->t > 0 && s->h > 0 &&
           s->w > 0 && s->c > 0 && s->k > 0 && s->c % BLOCK == 0 && s->k % BLOCK == 0 && (s->stride == 1 || s->stride == 2) &&
           pairs_of(s) <= 65535 && (int64_t)s->h * s->w < (1 << 30) && plan(s, 96 * 1024, &p);
}

size_t flim_wgrad_scratch_bytes(const flim_wgrad_shape *s)
{
    const int pairs = pairs_of(s);
    return sizeof(float) * PARTIAL * (size_t)(pairs > MAX_BLOCKS ? pairs : MAX_BLOCKS / pairs * pairs);
}

cudaError_t flim_wgrad(const flim_wgrad_shape *s, const void *x, const flim_conv_prologue *prologue, const void *dz,
                       float *dw, const float *unscale, bool accumulate, void *scratch, cudaStream_t stream)
{
    int device = 0, sms = 0, limit = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess)
        error = cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
    if (error == cudaSuccess)
        error = cudaDeviceGetAttribute(&limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    if (error != cudaSuccess)
        return error;

    wgrad_arguments a = {};
    if (!flim_wgrad_supported(s, 80) || !plan(s, limit, &a.p))
        return cudaErrorInvalidValue;
    const int pairs = pairs_of(s);
    a.x = x;
    a.dz = dz;
    a.partial = static_cast<float *>(scratch);
    a.n = s->n;
    a.c = s->c, a.k = s->k, a.t = s->t, a.h = s->h, a.w = s->w, a.stride = s->stride;
    a.ho = ceil_div(s->h, s->stride), a.wo = ceil_div(s->w, s->stride);
    a.blocks_c = s->c / BLOCK;
    const int64_t steps = s->n * a.p.tiles_y * a.p.tiles_x * (int64_t)a.p.steps;
    a.share = (sms < MAX_BLOCKS ? sms : MAX_BLOCKS) / pairs;
    a.share = a.share < 1 ? 1 : a.share;
    a.share = steps < a.share ? (int)steps : a.share;
    const dim3 grid((unsigned)a.share, (unsigned)pairs);
    if (prologue) {
        a.scale = prologue->scale;
        a.shift = prologue->shift;
        a.dropout = prologue->dropout;
        error =
            s->type == FLIM_CONV_BF16 ? launch<__nv_bfloat16, true>(a, grid, stream) : launch<__half, true>(a, grid, stream);
    } else {
        error = s->type == FLIM_CONV_BF16 ? launch<__nv_bfloat16, false>(a, grid, stream)
                                          : launch<__half, false>(a, grid, stream);
    }
    if (error != cudaSuccess)
        return error;
    add_partials<<<dim3(WARPS * SUMS, (unsigned)pairs), dim3(32, REDUCE_ROWS), 0, stream>>>(
        a.partial, a.share, s->c, a.blocks_c, dw, unscale, accumulate);
    return cudaGetLastError();
}
