/* fp32 weight gradient as a matrix product over positions, for one thread of a block.
 *
 *     dw[k][tap][c] = sum over positions of dz[position][k] * x[place of (position, tap)][c]
 *
 * Rows are output channels k, columns (tap, c): both operands lie in memory as the product wants them, channels innermost.  A
 * column keeps its tap, so a thread's tap is fixed, and it is the positions that move on.  Their offsets in x and masks of
 * taps inside the image are computed by all threads together, DESCRIBED positions at a time and ahead of use, into a ring in
 * shared memory.
 *
 * The positions are shared out to `parts` blocks a tile.  Each stores its sums, which a second kernel adds in order.
 */
#ifndef FLIM_CUDA_CONV_FP32_WEIGHT_CUH
#define FLIM_CUDA_CONV_FP32_WEIGHT_CUH

#include "cuda/conv/conv_fp32.cuh"

namespace flim_fp32
{

using weight_tile_1 = tile<16, 128, 1, 2>;
using weight_tile_2 = tile<32, 128, 1, 4>;
using weight_tile_3 = tile<64, 128, 1, 8>;
using weight_tile_4 = tile<128, 128, 2, 8>;
using weight_tile_5 = tile<64, 256, 1, 4, 1, 16>;
using weight_tile_6 = tile<128, 256, 2, 4, 1, 16>;
using weight_tile_7 = tile<32, 64, 1, 4>;
using weight_tile_8 = tile<64, 64, 2, 4>;
using weight_tile_9 = tile<32, 128, 1, 2, 1, 16>;

enum { DESCRIBED = 64 };

struct weight_sum {
    const float4 *x, *dz;
    float4 *out; /* (parts, k, columns) */
    grid positions; /* of dz */
    int rows; /* positions of all cells */
    int size[3], step[3], pad[3], kernel[3]; /* size of x */
    int x_quads, dz_quads; /* channels / 4 */
    int column_quads; /* taps * channels of x / 4 */
    int row_tiles, column_tiles, parts;
};

inline weight_sum make_weight_sum(const flim_conv_problem *p, int64_t n, int parts, int rows, int columns, const void *x,
                                  const void *y, void *out)
{
    weight_sum s = {};
    s.x = static_cast<const float4 *>(x);
    s.dz = static_cast<const float4 *>(y);
    s.out = static_cast<float4 *>(out);
    s.positions = make_grid(p->out);
    s.rows = (int)(n * flim_volume(p->out));
    for (int d = 0; d < 3; d++) {
        s.size[d] = p->in[d];
        s.step[d] = p->stride[d];
        s.pad[d] = p->pad[d];
        s.kernel[d] = p->kernel[d];
    }
    s.x_quads = p->c / 4;
    s.dz_quads = p->k / 4;
    s.column_quads = (int)flim_volume(p->kernel) * s.x_quads;
    s.row_tiles = (p->k + rows - 1) / rows;
    s.column_tiles = (4 * s.column_quads + columns - 1) / columns;
    s.parts = parts;
    return s;
}

/* Blocks run over tiles first, then parts: neighbours read the same positions. */
struct weight_block {
    int part, row, column; /* first row and column */
    int begin, end; /* positions */
    int steps;
};

template <class Tile> FLIM_HD weight_block weight_block_of(const weight_sum &w, int number)
{
    weight_block b;
    const int tiles = w.row_tiles * w.column_tiles, steps = w.rows / STEP + (w.rows % STEP != 0);
    b.part = number / tiles;
    b.row = number % tiles % w.row_tiles * Tile::ROWS;
    b.column = number % tiles / w.row_tiles * Tile::COLUMNS;
    const int first = (int)((int64_t)steps * b.part / w.parts), last = (int)((int64_t)steps * (b.part + 1) / w.parts);
    b.steps = last - first;
    b.begin = first * STEP;
    b.end = last == steps ? w.rows : last * STEP;
    return b;
}

template <class Tile> struct weight_shared {
    operands<Tile> step;
    int2 place[2 * DESCRIBED]; /* offset of tap 0 in x in float4, mask of taps inside the image; 0 past the block's end */
};

template <class Tile> struct weight_thread {
    static constexpr int QUADS = Tile::COLUMNS / 4, DZ_QUADS = Tile::ROWS / 4; /* float4 of a position's columns and rows */
    static constexpr int LOADS = 2 * Tile::COLUMNS / Tile::THREADS, DZ_LOADS = 2 * Tile::ROWS / Tile::THREADS; /* a step */
    static_assert(Tile::THREADS % QUADS == 0 && Tile::THREADS % DZ_QUADS == 0 && DZ_LOADS > 0, "a thread keeps its column");

    float4 from_x[LOADS], from_dz[DZ_LOADS];
    int column_offset; /* of this thread's column in x */
    uint32_t bits; /* of its tap */
    int dz_offset, dz_position; /* of this thread's first float4 of dz at the step to load */
    int dz_end; /* positions from which on it is not there */
    float sum[Tile::SIDE_ROWS][SIDE];

    /* Describes positions first + 0 .. DESCRIBED - 1 of the block. */
    static FLIM_HD void describe(const weight_sum &w, const weight_block &b, int first, int tid, weight_shared<Tile> &s)
    {
        for (int i = first + tid; i < first + DESCRIBED; i += Tile::THREADS) {
            int2 described = {0, 0};
            if (b.begin + i < b.end) {
                const place p = place_of(w.positions, b.begin + i);
                uint32_t mask = 0;
                int offset = p.cell;
#pragma unroll
                for (int d = 0; d < 3; d++) {
                    const int at = p.at[d] * w.step[d] - w.pad[d];
                    mask = mask << FIELD | tap_mask(at, 1, w.kernel[d], w.size[d]);
                    offset = offset * w.size[d] + at;
                }
                described.x = offset * w.x_quads;
                described.y = (int)mask;
            }
            s.place[i % (2 * DESCRIBED)] = described;
        }
    }

    FLIM_HD void begin(const weight_sum &w, const weight_block &b, int tid)
    {
        const int column = b.column / 4 + tid % QUADS;
        column_offset = 0;
        bits = ~0u; /* no mask has bit 31 */
        if (column < w.column_quads) {
            const int tap = column / w.x_quads, x = tap % w.kernel[2], y = tap / w.kernel[2] % w.kernel[1],
                      t = tap / w.kernel[2] / w.kernel[1];
            column_offset = ((t * w.size[1] + y) * w.size[2] + x) * w.x_quads + column % w.x_quads;
            bits = tap_bits(t, y, x);
        }
        const int row = b.row / 4 + tid % DZ_QUADS;
        dz_end = row < w.dz_quads ? b.end : 0;
        dz_position = b.begin + tid / DZ_QUADS;
        dz_offset = dz_position * w.dz_quads + row;
#pragma unroll
        for (int i = 0; i < Tile::SIDE_ROWS; i++)
#pragma unroll
            for (int j = 0; j < SIDE; j++)
                sum[i][j] = 0.0f;
    }

    FLIM_HD void load(const weight_sum &w, int step, int tid, const weight_shared<Tile> &s)
    {
#pragma unroll
        for (int i = 0; i < LOADS; i++) {
            const int2 described = s.place[(step * STEP + tid / QUADS + Tile::THREADS / QUADS * i) % (2 * DESCRIBED)];
            from_x[i] = load_or_zero(w.x, described.x + column_offset, ((uint32_t)described.y & bits) == bits);
        }
#pragma unroll
        for (int i = 0; i < DZ_LOADS; i++) {
            const int further = Tile::THREADS / DZ_QUADS * i;
            from_dz[i] = load_or_zero(w.dz, dz_offset + further * w.dz_quads, dz_position + further < dz_end);
        }
        dz_position += STEP;
        dz_offset += STEP * w.dz_quads;
    }

    FLIM_HD void store(int tid, int copy, weight_shared<Tile> &s) const
    {
#pragma unroll
        for (int i = 0; i < LOADS; i++)
            *reinterpret_cast<float4 *>(s.step.column[copy][0] +
                                        (tid / QUADS + Tile::THREADS / QUADS * i) * Tile::COLUMN_PITCH + tid % QUADS * 4) =
                from_x[i];
#pragma unroll
        for (int i = 0; i < DZ_LOADS; i++)
            *reinterpret_cast<float4 *>(s.step.row[copy][0] +
                                        (tid / DZ_QUADS + Tile::THREADS / DZ_QUADS * i) * Tile::ROW_PITCH +
                                        tid % DZ_QUADS * 4) = from_dz[i];
    }

    FLIM_HD void write(const weight_sum &w, const weight_block &b, int tid) const
    {
#pragma unroll
        for (int i = 0; i < Tile::SIDE_ROWS; i++) {
            const int row = b.row + Tile::first_row(tid) + Tile::row_step(i);
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int column = (b.column + Tile::first_column(tid) + Tile::column_step(4 * half)) / 4;
                if (row < 4 * w.dz_quads && column < w.column_quads)
                    w.out[((int64_t)b.part * 4 * w.dz_quads + row) * w.column_quads + column] =
                        make_float4(sum[i][4 * half], sum[i][4 * half + 1], sum[i][4 * half + 2], sum[i][4 * half + 3]);
            }
        }
    }
};

} // namespace flim_fp32

#endif
