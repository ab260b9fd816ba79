/* What the fp32 convolution kernels share: tiles, fragments and the product of a step.
 *
 * Everything here and in conv_fp32_gather.cuh and conv_fp32_weight.cuh but the kernels themselves is __host__ __device__ and works for
 * one thread of a block between two barriers, so that bench/emulate_fp32.cu can run whole blocks on a CPU, thread after thread.
 *
 * A block computes ROWS x COLUMNS outputs, a thread 8 x 8 of them, in steps of STEP values of the sum.  Shared memory holds both
 * operands of a step sum-major ([STEP][ROWS], [STEP][COLUMNS]), twice: while one copy is multiplied, the next step's values are on their
 * way in registers.  A thread's 8 rows are two groups of four, half a warp's rows apart, so that a fragment is two 16-byte loads
 * in which a warp touches consecutive addresses.  Which lane gets which rows and columns (lane_row, lane_column) is chosen
 * for 16-byte loads: a half-warp's load takes one pass over the banks where lanes i and i^1, or i and i^2, want the same address, so
 * bit 0 of the lane counts columns and bit 1 rows.
 */
#ifndef FLIM_CUDA_CONV_FP32_CUH
#define FLIM_CUDA_CONV_FP32_CUH

#include <cuda_runtime.h>

#include "conv_fp32.h"

#define FLIM_HD __host__ __device__ __forceinline__

namespace flim_fp32
{

enum {
    STEP = 8, /* values of the sum a step: 8 channels, or 8 positions */
    SIDE = 8, /* rows and columns of a thread */
    FIELD = 10, /* bits of a mask for the taps of one dimension: most taps a side */
    MAX_CLASSES = 8
};

/* Division of numbers below 2^31 by a fixed positive number: one multiplication (Granlund and Montgomery, 1994). */
struct divisor {
    uint32_t number, factor, shift;
};

inline divisor make_divisor(int number)
{
    int log = 0;
    while ((int64_t)1 << log < number)
        log++;
    const int power = 31 + log;
    return {(uint32_t)number, number == 1 ? 0u : (uint32_t)((((uint64_t)1 << power) + (uint32_t)number - 1) / (uint32_t)number),
            number == 1 ? 0u : (uint32_t)(power - 32)};
}

FLIM_HD int divide(const divisor &d, int value)
{
    if (d.number == 1)
        return value;
#ifdef __CUDA_ARCH__
    return (int)(__umulhi((uint32_t)value, d.factor) >> d.shift);
#else
    return (int)((uint32_t)((uint64_t)(uint32_t)value * d.factor >> 32) >> d.shift);
#endif
}

/* A position in row-major order of (cell, t, y, x). */
struct place {
    int cell, at[3];
};

struct grid {
    int size[3];
    divisor by[3];
};

inline grid make_grid(const int size[3])
{
    grid g = {};
    for (int d = 0; d < 3; d++) {
        g.size[d] = size[d];
        g.by[d] = make_divisor(size[d] > 0 ? size[d] : 1);
    }
    return g;
}

FLIM_HD place place_of(const grid &g, int index)
{
    place p;
    const int rows = divide(g.by[2], index);
    p.at[2] = index - rows * g.size[2];
    const int planes = divide(g.by[1], rows);
    p.at[1] = rows - planes * g.size[1];
    p.cell = divide(g.by[0], planes);
    p.at[0] = planes - p.cell * g.size[0];
    return p;
}

/* Bits j of 0 .. taps - 1 for which 0 <= first + direction * j < size. */
FLIM_HD uint32_t tap_mask(int first, int direction, int taps, int size)
{
    uint32_t mask = 0;
    for (int j = 0; j < taps; j++)
        mask |= (uint32_t)((unsigned)(first + direction * j) < (unsigned)size) << j;
    return mask;
}

/* The bits that a row's mask must have for tap (t, y, x). */
FLIM_HD uint32_t tap_bits(int t, int y, int x)
{
    return 1u << (2 * FIELD + t) | 1u << (FIELD + y) | 1u << x;
}

FLIM_HD float4 load_or_zero(const float4 *from, int64_t index, bool valid)
{
    float4 v = {0.0f, 0.0f, 0.0f, 0.0f};
    if (valid)
        v = from[index];
    return v;
}

/* Blocks a multiprocessor, whose four quarters have 16,384 registers each: 4, 2 or 3 warps a quarter, 128, 255 or 168 registers a
 * thread.  Tiles with few columns load more a thread. */
constexpr int tile_blocks(int rows, int columns)
{
    const int warps = rows * columns / (SIDE * SIDE * 32);
    return (warps == 8 ? 16 : columns <= 16 ? 8 : 12) / warps;
}

/* WARP_ROWS warps one below the other, LANE_ROWS x (32 / LANE_ROWS) lanes a warp. */
template <int ROWS_, int COLUMNS_, int WARP_ROWS, int LANE_ROWS> struct tile {
    static constexpr int ROWS = ROWS_, COLUMNS = COLUMNS_;
    static constexpr int THREADS = ROWS * COLUMNS / (SIDE * SIDE);
    static constexpr int BLOCKS = tile_blocks(ROWS, COLUMNS);
    static constexpr int LANE_COLUMNS = 32 / LANE_ROWS;
    static constexpr int ROW_PITCH = ROWS + 4, COLUMN_PITCH = COLUMNS + 4; /* floats: see store_turned */
    static_assert(WARP_ROWS * LANE_ROWS * SIDE == ROWS, "warps cover the rows");
    static_assert(THREADS / 32 / WARP_ROWS * LANE_COLUMNS * SIDE == COLUMNS, "warps cover the columns");

    static FLIM_HD int lane_row(int lane)
    {
        return LANE_ROWS == 32   ? lane
               : LANE_ROWS == 16 ? lane >> 1
               : LANE_ROWS == 8  ? (lane >> 1 & 1) | (lane >> 2 & 6)
               : LANE_ROWS == 4  ? (lane >> 1 & 1) | (lane >> 2 & 2)
                                 : lane >> 1 & 1;
    }
    static FLIM_HD int lane_column(int lane)
    {
        return LANE_ROWS == 32   ? 0
               : LANE_ROWS == 16 ? lane & 1
               : LANE_ROWS == 8  ? (lane & 1) | (lane >> 1 & 2)
               : LANE_ROWS == 4  ? (lane & 1) | (lane >> 1 & 2) | (lane >> 2 & 4)
                                 : (lane & 1) | (lane >> 1 & 14);
    }
    /* First row and column of a thread's first group of four; the second group's follow LANE_ROWS * 4 on. */
    static FLIM_HD int first_row(int tid)
    {
        return tid / 32 % WARP_ROWS * LANE_ROWS * SIDE + lane_row(tid % 32) * 4;
    }
    static FLIM_HD int first_column(int tid)
    {
        return tid / 32 / WARP_ROWS * LANE_COLUMNS * SIDE + lane_column(tid % 32) * 4;
    }
    /* Offset of output i of 0 .. 7 from the first. */
    static FLIM_HD int row_step(int i)
    {
        return i / 4 * LANE_ROWS * 4 + i % 4;
    }
    static FLIM_HD int column_step(int i)
    {
        return i / 4 * LANE_COLUMNS * 4 + i % 4;
    }
};

/* The operands of a step, twice. */
template <class Tile> struct operands {
    float row[2][STEP * Tile::ROW_PITCH], column[2][STEP * Tile::COLUMN_PITCH];
};

/* Four values of the sum, first + 0 .. 3, of one row or column.  Where even lanes hold the first and odd lanes the second half of a
 * step for 16 neighbours, the pitch (4 modulo 8) puts the halves 16 banks apart: no conflict. */
FLIM_HD void store_turned(float *to, int pitch, int first, int index, const float4 &v)
{
    to[(first + 0) * pitch + index] = v.x;
    to[(first + 1) * pitch + index] = v.y;
    to[(first + 2) * pitch + index] = v.z;
    to[(first + 3) * pitch + index] = v.w;
}

/* sum[i][j] += row values x column values of a step. */
template <class Tile>
FLIM_HD void multiply(const operands<Tile> &s, int copy, int row, int column, float (&sum)[SIDE][SIDE])
{
    const float *a = s.row[copy] + row, *b = s.column[copy] + column;
#pragma unroll
    for (int k = 0; k < STEP; k++) {
        float u[SIDE], v[SIDE];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const float4 p = *reinterpret_cast<const float4 *>(a + k * Tile::ROW_PITCH + Tile::row_step(4 * half));
            const float4 q = *reinterpret_cast<const float4 *>(b + k * Tile::COLUMN_PITCH + Tile::column_step(4 * half));
            u[4 * half] = p.x, u[4 * half + 1] = p.y, u[4 * half + 2] = p.z, u[4 * half + 3] = p.w;
            v[4 * half] = q.x, v[4 * half + 1] = q.y, v[4 * half + 2] = q.z, v[4 * half + 3] = q.w;
        }
#pragma unroll
        for (int i = 0; i < SIDE; i++)
#pragma unroll
            for (int j = 0; j < SIDE; j++)
                sum[i][j] += u[i] * v[j];
    }
}

inline int64_t volume(const int size[3])
{
    return (int64_t)size[0] * size[1] * size[2];
}

/* In conv_fp32_weight.cu, called by flim_fp32_run. */
int64_t weight_workspace(const flim_conv_problem *problem, int tile, int processors);
cudaError_t weight_run(const flim_conv_problem *problem, int64_t n, int tile, int processors, const void *x, void *w,
                       const void *y, void *workspace, cudaStream_t stream);

} // namespace flim_fp32

#endif
