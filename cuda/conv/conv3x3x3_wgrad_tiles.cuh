/* How the weight gradient of 3x3x3 convolutions by wgmma is tiled: what lies where in its slices of x and dz, and the choice of a tiling.
 *
 * For: conv3x3x3_wgrad_wgmma.cu, whose head says what a tile is; tests/cuda/kernels/emulate_tiles.cu, which walks through every slot of them.
 */
#ifndef FLIM_CUDA_CONV3X3X3_WGRAD_TILES_CUH
#define FLIM_CUDA_CONV3X3X3_WGRAD_TILES_CUH

#include "cuda/conv/conv_problem.h"
#include "cuda/conv/conv_tma.cuh"
#include "cuda/conv/conv_wgrad.cuh"

namespace flim_wgrad_tiles
{

enum {
    GROUP = FLIM_TMA_GROUP,
    GROUPS = FLIM_TMA_GROUPS,
    TAPS = 27,
    SPACE = 9, /* taps in y and x */
    MOST_RING = 12
};
using z_barriers = flim_ring_barriers<MOST_RING, false>;
using x_barriers = flim_ring_barriers<MOST_RING, true>;

/* What depends on the channels of a block. */
template <int BLOCK> struct form {
    static constexpr int ROW = 2 * BLOCK; /* bytes of a slot: a position's channels */
    static constexpr int N = 3 * BLOCK; /* columns of a product */
    static constexpr int SUMS = N / 2; /* a thread and set of rows */
    static constexpr int SETS = BLOCK == 32 ? 5 : 3; /* of 64 rows */
    static constexpr int R = BLOCK == 32 ? 2 : 1; /* sets of a warpgroup; of the third with 32 channels one */
    static constexpr int PARTS = BLOCK == 32 ? 1 : 3; /* of the taps in y, each a work of its own */
    static constexpr int PARTIAL = SETS * 4 * SUMS * 32; /* floats of the sums: [set][warp][sum][lane] */
};

/* How a problem is tiled. */
struct tiling {
    int rows, cells; /* of dz that a tile has: rows of one cell, or all rows of some */
    int tiles; /* of a cell, or of `cells` cells */
    int dense;
    int pitch; /* slots from a row to the next of its plane */
    int x_rows, z_rows; /* of a cell in a plane of x, in a slice of dz */
    int row_planes, column_planes; /* of x */
    int plane; /* slots of a plane of x */
    int inner; /* 16s of positions */
    int x_slots, z_slots; /* of a slice */
    int x_ring, z_ring; /* slices there is room for */
    int shared_bytes;
};

/* Slots from a position's own in dz to the tap's in x. */
template <int BLOCK> __host__ __device__ __forceinline__ int tap_slot(const tiling &p, int stride, int tap)
{
    const int dy = tap / 3, dx = tap % 3;
    const int column_plane = p.dense ? dx : stride == 1 ? 0 : dx % 2, column = p.dense ? 0 : stride == 1 ? dx : dx / 2;
    const bool one_row = BLOCK == 64 || stride == 1;
    const int row_plane = one_row ? 0 : dy % 2, row = BLOCK == 64 ? 0 : stride == 1 ? dy : dy / 2;
    return (row_plane * p.column_planes + column_plane) * p.plane + row * p.pitch + column;
}

/* The tap in y and x of a half of the rows of a set, of 32 channels: the second half's slots come after the first's. */
__host__ __device__ __forceinline__ int tap_of(int set, int half)
{
    return set < 3 ? 3 * set + half : set == 3 ? 2 + 3 * half : SPACE - 1;
}

inline int round_up(int value, int step)
{
    return flim_ceil_div(value, step) * step;
}

/* Completes a tiling; false if it does not fit. */
template <int BLOCK> bool complete(tiling &p, const flim_conv_problem *s, int limit)
{
    using F = form<BLOCK>;
    const int stride = s->stride[2], ho = flim_ceil_div(s->in[1], stride), wo = flim_ceil_div(s->in[2], stride);
    p.tiles = flim_ceil_div(ho, p.rows);
    p.pitch = wo + !p.dense;
    p.row_planes = BLOCK == 64 ? 1 : stride;
    p.column_planes = p.dense ? 3 : stride;
    p.x_rows = p.rows + (BLOCK == 64 ? 0 : 3 - stride);
    p.z_rows = p.cells > 1 ? p.x_rows : p.rows;
    p.plane = round_up(p.cells * p.x_rows * p.pitch, FLIM_TMA_LINE / F::ROW);
    p.inner = flim_ceil_div(((p.cells - 1) * p.z_rows + p.rows) * p.pitch, 16);
    p.z_slots = round_up(p.cells * p.z_rows * p.pitch > 16 * p.inner ? p.cells * p.z_rows * p.pitch : 16 * p.inner, 16);
    p.x_slots = p.row_planes * p.column_planes * p.plane;
    for (int tap = 0; tap < SPACE; tap++) {
        const int most = tap_slot<BLOCK>(p, stride, tap) + 16 * p.inner;
        p.x_slots = most > p.x_slots ? most : p.x_slots;
    }
    p.x_slots = round_up(p.x_slots, 16);
    if (p.x_slots > flim_slot_share<BLOCK, FLIM_TMA_ACTIVATING>::MOST || stride * (p.pitch - 1) + 1 > 256 ||
        stride * (p.x_rows - 1) + 1 > 256 || p.z_rows > 256)
        return false; /* a box's sides are at most 256 */
    const int64_t rest = limit - FLIM_TMA_LINE - z_barriers::BYTES - x_barriers::BYTES, z = p.z_slots * F::ROW,
                  x = p.x_slots * F::ROW;
    p.z_ring = 4;
    p.x_ring = 2;
    if ((p.z_ring + 2) * z + p.x_ring * x > rest)
        return false;
    for (bool more = true; more;) { /* dz's ring is two places ahead of x's */
        const bool z_next = p.z_ring < p.x_ring + 3;
        more = (p.z_ring + 2 + z_next) * z + (p.x_ring + !z_next) * x <= rest && p.z_ring + z_next <= MOST_RING;
        p.z_ring += more && z_next;
        p.x_ring += more && !z_next;
    }
    p.shared_bytes = (int)(limit - rest + (p.z_ring + 2) * z + p.x_ring * x);
    return true;
}

/* The tiling with the least estimated clocks for a cell's positions. */
template <int BLOCK> bool find_tiling(const flim_conv_problem *s, int limit, tiling *best)
{
    const int stride = s->stride[2], ho = flim_ceil_div(s->in[1], stride);
    double least = 0.0;
    for (int dense = 0; dense < 2; dense++)
        for (int rows = 1; rows <= ho; rows++)
            for (int cells = 1; cells <= (rows == ho ? 8 : 1) && cells <= s->n; cells++) {
                tiling p = {};
                p.rows = rows;
                p.cells = cells;
                p.dense = dense;
                if (flim_ceil_div(ho, flim_ceil_div(ho, rows)) != rows || !complete<BLOCK>(p, s, limit))
                    continue;
                const double products = p.inner * (BLOCK == 32 ? 240.0 : 288.0) + 200.0 + 0.2 * p.x_slots;
                const double activation = s->x_form == FLIM_INPUT_PLAIN ? 0.0 : 300.0 + 0.13 * BLOCK * p.x_slots;
                const double time = p.tiles * (products > activation ? products : activation) / cells;
                if (least == 0.0 || time < least) {
                    least = time;
                    *best = p;
                }
            }
    return least > 0.0;
}

/* Blocks of 64 channels if there are such. */
inline int channel_block(const flim_conv_problem *p)
{
    return p->c % 64 == 0 && p->k % 64 == 0 ? 64 : 32;
}

inline bool find_tiling(const flim_conv_problem *p, int limit, tiling *best)
{
    return channel_block(p) == 64 ? find_tiling<64>(p, limit, best) : find_tiling<32>(p, limit, best);
}

inline int parts_of(const flim_conv_problem *p)
{
    const int block = channel_block(p);
    return p->c / block * (p->k / block) * (block == 64 ? 3 : 1);
}

} // namespace flim_wgrad_tiles
#endif
