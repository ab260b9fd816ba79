/* How the data gradient of stride 2 by wgmma is tiled: what lies where in its slices of dz, and which tap meets it there.
 *
 * For: conv_strided_wgmma.cu, whose head says what a slice and a class are; tests/cuda/kernels/emulate_tiles.cu, which walks through every
 * slot of them.
 */
#ifndef FLIM_CUDA_CONV_STRIDED_PLAN_CUH
#define FLIM_CUDA_CONV_STRIDED_PLAN_CUH

#include "cuda/conv/conv_problem.h"
#include "cuda/conv/conv_tma.cuh"

namespace flim_conv_strided
{

enum {
    CI = 64, /* channels of dz */
    CO = 32, /* of dx that a block does */
    ROW = 2 * CI, /* bytes of a slot */
    TAPS = 27,
    GROUP = FLIM_TMA_GROUP,
    GROUPS = FLIM_TMA_GROUPS,
    SLOTS = GROUPS * 64, /* of dz whose pixels of dx a block computes at once */
    LEAST_RING = 3, /* slices: three of a product, and the next if there is room */
    MOST_RING = 4,
    STEPS = CI / 16, /* products over the channels of dz */
    CLASSES = 4,
    COLUMN_GROUPS = 10, /* of 32 columns of weights each */
    SLICE_WEIGHTS = COLUMN_GROUPS * CO * CI * 2, /* bytes for a slice, that is for one dt */
    WEIGHT_BYTES = 3 * SLICE_WEIGHTS,
    CONSTANT_BYTES = CO * 4
};
using ring_barriers = flim_ring_barriers<MOST_RING, false>;

/* Classes of pixels (2 m + a, 2 n + b) of dx, a and b being 0 or 1. */
enum { EVEN, RIGHT, BELOW, BOTH };
__host__ __device__ constexpr int class_y(int c)
{
    return c / 2;
}
__host__ __device__ constexpr int class_x(int c)
{
    return c % 2;
}

/* What 32 columns of weights are of: for a class, from dz at (m + y, n + x). */
struct column_group {
    int of, y, x; /* of < 0: zeros */
};
__host__ __device__ constexpr column_group group_of(int i)
{
    constexpr column_group all[COLUMN_GROUPS] = {{EVEN, 0, 0},  {RIGHT, 0, 0}, {BOTH, 0, 0},  {RIGHT, 0, 1}, {BOTH, 0, 1},
                                                 {BELOW, 1, 0}, {BOTH, 1, 0},  {BELOW, 0, 0}, {-1, 0, 0},    {BOTH, 1, 1}};
    return all[i];
}
/* The tap in y and x by which dz there reaches the class. */
__host__ __device__ constexpr int tap_of(const column_group &g)
{
    return 3 * (class_y(g.of) ? 2 - 2 * g.y : 1) + (class_x(g.of) ? 2 - 2 * g.x : 1);
}

/* A product's columns: `count` groups from `first` on, added to the sums `sums`: those of EVEN; of RIGHT and BOTH; of BELOW and BOTH.
 * Two of them share the zeros. */
enum { SUMS_EVEN, SUMS_RIGHT, SUMS_BELOW, PRODUCTS = 6 };
struct product_columns {
    int sums, first, count;
};
__host__ __device__ constexpr product_columns product_of(int i)
{
    constexpr product_columns all[PRODUCTS] = {{SUMS_EVEN, 0, 1},  {SUMS_RIGHT, 1, 2}, {SUMS_RIGHT, 3, 2},
                                               {SUMS_BELOW, 5, 2}, {SUMS_BELOW, 7, 2}, {SUMS_RIGHT, 8, 2}};
    return all[i];
}
/* The class of column group i of a product's sums. */
__host__ __device__ constexpr int class_of(int sums, int i)
{
    return sums == SUMS_EVEN ? EVEN : i == 1 ? BOTH : sums == SUMS_RIGHT ? RIGHT : BELOW;
}
/* Where the product's operand begins: that of a group that is no zeros. */
__host__ __device__ constexpr column_group place_of_product(int i)
{
    return group_of(product_of(i).first).of >= 0 ? group_of(product_of(i).first) : group_of(product_of(i).first + 1);
}
/* Groups that lie together, 16 k of all of them after 16 k: the first of these, and bytes from 16 k of group i to the next, and from a slice's
 * weights to the group's first. */
__host__ __device__ constexpr int block_first(int i)
{
    return i < 1 ? 0 : i < 3 ? 1 : i < 5 ? 3 : i < 7 ? 5 : 7;
}
__host__ __device__ constexpr int step_bytes(int i)
{
    return 32 * CO * (i < 1 ? 1 : i < 7 ? 2 : 3);
}
__host__ __device__ constexpr int group_at(int i)
{
    return block_first(i) * CO * ROW + (i - block_first(i)) * 32 * CO;
}

/* How a problem is tiled. */
struct plan {
    int rows; /* of the column of all cells' rows of dz, that a block takes at once */
    int pitch; /* slots of a row: dz's, and a zero */
    int slots; /* of a slice */
    int ring; /* slices */
    int n, column; /* cells, and rows of one in the column: dz's, and one of zeros */
    int units; /* such pieces of the column */
    int shared_bytes;
};

/* Cell and row in it of a row of the column. */
struct place {
    int cell, y;
};

__host__ __device__ __forceinline__ place place_of(const plan &p, int row)
{
    return {row / p.column, row % p.column};
}

/* False if rows do not fit. */
inline bool find_plan(const flim_conv_problem *s, int limit, plan *p)
{
    *p = {};
    p->n = (int)s->n;
    p->column = s->out[1] + 1;
    p->pitch = s->out[2] + 1;
    p->rows = SLOTS / p->pitch;
    if (p->rows < 1 || (double)s->n * p->column > 2e9)
        return false;
    const int rows_all = p->n * p->column;
    p->rows = p->rows < rows_all ? p->rows : rows_all;
    p->units = (rows_all + p->rows - 1) / p->rows;
    const int reach = SLOTS + p->pitch + 1, line = FLIM_TMA_LINE / ROW; /* more than the rows + 1 rows that are copied */
    p->slots = (reach + line - 1) / line * line;
    const int rest = limit - FLIM_TMA_LINE - WEIGHT_BYTES - CONSTANT_BYTES - ring_barriers::BYTES;
    p->ring = rest / (p->slots * ROW);
    p->ring = p->ring < MOST_RING ? p->ring : MOST_RING;
    p->shared_bytes = limit - rest + p->ring * p->slots * ROW;
    return p->ring >= LEAST_RING;
}

} // namespace flim_conv_strided
#endif
