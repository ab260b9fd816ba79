/* What the fp32 convolution kernels share: tiles, fragments and the product of a step.
 *
 * Everything here and in conv_fp32_gather.cuh and conv_fp32_weight.cuh but the kernels themselves is __host__ __device__ and
 * works for one thread of a block between two barriers, so that bench/emulate_fp32.cu can run whole blocks on a CPU, thread
 * after thread.
 *
 * A block computes ROWS x COLUMNS outputs, a thread 8 or 16 x 8 of them, in steps of STEP values of the sum.  Shared memory
 * holds both operands of a stage of one or more steps, sum-major ([STEP][ROWS], [STEP][COLUMNS] a step), twice: while a step
 * of one copy is multiplied, a like part of the next stage is on its way in registers to the other.  A thread's rows and
 * columns are groups of four, far apart, so that a fragment is two 16-byte loads in which a warp touches consecutive
 * addresses.  Which lane gets which rows and columns (lane_row, lane_column) is chosen for 16-byte loads: a half-warp's load
 * takes one pass over the banks where lanes i and i^1, or i and i^2, want the same address, so bit 0 of the lane counts
 * columns and bit 1 rows.
 */
#ifndef FLIM_CUDA_CONV_FP32_CUH
#define FLIM_CUDA_CONV_FP32_CUH

#include <cuda_runtime.h>

#include "cuda/kernels/divisor.cuh"
#include "cuda/conv/conv_fp32.h"

#define FLIM_HD __host__ __device__ __forceinline__

namespace flim_fp32
{

enum {
    STEP = 8, /* values of the sum a step: 8 channels, or 8 positions */
    SIDE = 8, /* columns of a thread, and its rows or half of them */
    FIELD = 10, /* bits of a mask for the taps of one dimension: most taps a side */
    MAX_CLASSES = 8
};

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

/* Written out for the device: of a plain load the compiler makes one just before the value is stored, with nothing to hide
 * its latency. */
FLIM_HD float4 load_or_zero(const float4 *from, int64_t index, bool valid)
{
    float4 v = {0.0f, 0.0f, 0.0f, 0.0f};
#ifdef __CUDA_ARCH__
    asm volatile("{\n"
                 " .reg .pred p;\n"
                 " setp.ne.s32 p, %5, 0;\n"
                 " @p ld.global.nc.v4.f32 {%0, %1, %2, %3}, [%4];\n"
                 "}"
                 : "+f"(v.x), "+f"(v.y), "+f"(v.z), "+f"(v.w)
                 : "l"(from + index), "r"((int)valid));
#else
    if (valid)
        v = from[index];
#endif
    return v;
}

/* Blocks a multiprocessor, whose four quarters have 16,384 registers each: 4, 3 or 2 warps a quarter, 128, 168 or 255
 * registers a thread.  Narrow tiles load more a thread. */
constexpr int tile_blocks(int threads, int thread_rows, int narrow)
{
    return (thread_rows > SIDE || narrow <= 16 ? 256 : threads == 256 ? 512 : 384) / threads;
}

/* WARP_ROWS warps one below the other, LANE_ROWS x (32 / LANE_ROWS) lanes a warp, STEPS steps a stage, SIDE_ROWS x SIDE
 * outputs a thread. */
template <int ROWS_, int COLUMNS_, int WARP_ROWS, int LANE_ROWS, int STEPS_ = 1, int SIDE_ROWS_ = SIDE> struct tile {
    static constexpr int ROWS = ROWS_, COLUMNS = COLUMNS_, STEPS = STEPS_, SIDE_ROWS = SIDE_ROWS_;
    static constexpr int THREADS = ROWS * COLUMNS / (SIDE_ROWS * SIDE);
    static constexpr int BLOCKS = tile_blocks(THREADS, SIDE_ROWS, ROWS < COLUMNS ? ROWS : COLUMNS);
    static constexpr int LANE_COLUMNS = 32 / LANE_ROWS;
    /* Floats from one value of the sum to the next, and of a step: see store_transposed. */
    static constexpr int ROW_PITCH = ROWS + 4, COLUMN_PITCH = COLUMNS + 4, PAD = STEPS == 1 ? 0 : 16 / STEPS,
                         ROW_STEP = STEP * ROW_PITCH + PAD, COLUMN_STEP = STEP * COLUMN_PITCH + PAD;
    static_assert(WARP_ROWS * LANE_ROWS * SIDE_ROWS == ROWS, "warps cover the rows");
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
    /* First row and column of a thread's first group of four; the next group's rows follow LANE_ROWS * 4 on. */
    static FLIM_HD int first_row(int tid)
    {
        return tid / 32 % WARP_ROWS * LANE_ROWS * SIDE_ROWS + lane_row(tid % 32) * 4;
    }
    static FLIM_HD int first_column(int tid)
    {
        return tid / 32 / WARP_ROWS * LANE_COLUMNS * SIDE + lane_column(tid % 32) * 4;
    }
    /* Offset of row or column i of a thread from the first. */
    static FLIM_HD int row_step(int i)
    {
        return i / 4 * LANE_ROWS * 4 + i % 4;
    }
    static FLIM_HD int column_step(int i)
    {
        return i / 4 * LANE_COLUMNS * 4 + i % 4;
    }
};

/* The operands of a stage, twice. */
template <class Tile> struct operands {
    float row[2][Tile::STEPS][Tile::ROW_STEP], column[2][Tile::STEPS][Tile::COLUMN_STEP];
};

/* Four values of the sum, 4 * quad + 0 .. 3 of a stage, of one row or column.  2 STEPS lanes in a row hold the stage of one
 * row, so a warp has 16 / STEPS neighbours.  The pitch (4 modulo 8) puts the halves of a step 16 banks apart, the pad each
 * further step 16 / STEPS: no conflict. */
FLIM_HD void store_transposed(float *stage, int step, int pitch, int quad, int index, const float4 &v)
{
    float *to = stage + quad / 2 * step + quad % 2 * 4 * pitch + index;
    to[0] = v.x;
    to[pitch] = v.y;
    to[2 * pitch] = v.z;
    to[3 * pitch] = v.w;
}

template <int N> FLIM_HD void load_fragment(float (&to)[N], const float *from, int group)
{
#pragma unroll
    for (int i = 0; i < N; i += 4) {
        const float4 v = *reinterpret_cast<const float4 *>(from + i / 4 * group);
        to[i] = v.x, to[i + 1] = v.y, to[i + 2] = v.z, to[i + 3] = v.w;
    }
}

/* sum[i][j] += row values x column values of a step. */
template <class Tile>
FLIM_HD void multiply(const operands<Tile> &s, int copy, int step, int row, int column, float (&sum)[Tile::SIDE_ROWS][SIDE])
{
    const float *a = s.row[copy][step] + row, *b = s.column[copy][step] + column;
#pragma unroll
    for (int k = 0; k < STEP; k++) {
        float u[Tile::SIDE_ROWS], v[SIDE];
        load_fragment(u, a + k * Tile::ROW_PITCH, Tile::row_step(4));
        load_fragment(v, b + k * Tile::COLUMN_PITCH, Tile::column_step(4));
#pragma unroll
        for (int i = 0; i < Tile::SIDE_ROWS; i++)
#pragma unroll
            for (int j = 0; j < SIDE; j++)
                sum[i][j] += u[i] * v[j];
    }
}

inline int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* A tile for the host: what its kernel needs and how it is started. */
struct tiling {
    const char *name;
    int rows, columns, steps, side_rows; /* as in tile */
    int threads, blocks, shared_bytes;
    /* n cells; of the weight gradient `parts` parts, written to w one after the other. */
    cudaError_t (*run)(const flim_conv_problem *p, int64_t n, int parts, const void *x, const void *w, const void *y,
                       cudaStream_t stream);
};

template <class Tile, class Shared> constexpr tiling make_tiling(const char *name, decltype(tiling::run) run)
{
    return {name,          Tile::ROWS,   Tile::COLUMNS,       Tile::STEPS, Tile::SIDE_ROWS,
            Tile::THREADS, Tile::BLOCKS, (int)sizeof(Shared), run};
}

/* Tiles by number less one: gather's in conv_fp32_gather.cu, the weight gradient's in conv_fp32_weight.cu. */
const tiling *gather_tilings(int *count);
const tiling *weight_tilings(int *count);
/* out = sum of the parts in order, `size` floats each. */
cudaError_t add_parts(const void *parts, int count, int64_t size, void *out, cudaStream_t stream);

} // namespace flim_fp32

#endif
