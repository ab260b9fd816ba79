/* fp32 forward convolution and data gradient as one gathering matrix product, for one thread of a block.
 *
 *     out[position][column] = sum over taps and channels of source[place of (position, tap)][channel] *
 *     weight[tap][channel][column]
 *
 * FORWARD: source x, out y; the place of tap j is o * stride - pad + j.  DATA: source dy, out dx.  With a stride, an input
 * position q meets only the taps f with f = q + pad modulo stride, so positions fall into `stride` classes a dimension: in
 * class r, q = stride * i + r meets f0, f0 + stride, ..., f0 = (r + pad) % stride, at the place i + (r + pad - f0) / stride -
 * j.  Each class is a product of its own with its own taps; no product with zero is computed.
 *
 * Rows are positions of a class, columns channels of out.  A row's offset in source and a mask of the taps that stay inside
 * the image are computed once per block; after that a tap is one number to add and one test a row.
 */
#ifndef FLIM_CUDA_CONV_FP32_GATHER_CUH
#define FLIM_CUDA_CONV_FP32_GATHER_CUH

#include "cuda/conv/conv_fp32.cuh"

namespace flim_fp32
{

using gather_tile_1 = tile<256, 8, 1, 32>;
using gather_tile_2 = tile<256, 16, 2, 16>;
using gather_tile_3 = tile<256, 32, 4, 8>;
using gather_tile_4 = tile<128, 64, 2, 8>;
using gather_tile_5 = tile<128, 128, 2, 8>;
using gather_tile_6 = tile<256, 32, 4, 8, 2>;
using gather_tile_7 = tile<128, 64, 2, 8, 2>;
using gather_tile_8 = tile<128, 128, 2, 8, 2>;
using gather_tile_9 = tile<256, 32, 2, 8, 2, 16>;
using gather_tile_10 = tile<256, 64, 2, 8, 2, 16>;
using gather_tile_11 = tile<256, 128, 2, 8, 1, 16>;

struct gather_class {
    grid positions;
    int rows; /* all cells' */
    int taps[3];
    int origin[3]; /* place of position 0 at tap 0 */
    int first[3]; /* position 0 in out */
    int tap_first; /* its tap 0, as an index of weight's taps */
};

struct gather {
    const float4 *source, *weight;
    float4 *out;
    int source_size[3], source_step[3]; /* places: from one position to the next */
    int direction; /* places: from one tap to the next, 1 or -1 */
    int source_quads, chunks; /* channels of source / 4 and / STEP */
    int out_size[3], out_step[3], out_quads; /* columns / 4 */
    int taps, tap_step[3]; /* of weight: all, and from one tap of a class to the next */
    int classes, column_tiles;
    gather_class part[MAX_CLASSES];
};

/* The product for a FORWARD or DATA problem of n cells. */
inline gather make_gather(const flim_conv_problem *p, int64_t n, const void *x, const void *w, const void *y, int columns)
{
    const bool data = p->op == FLIM_CONV_DATA;
    gather g = {};
    g.source = static_cast<const float4 *>(data ? y : x);
    g.weight = static_cast<const float4 *>(w);
    g.out = static_cast<float4 *>(const_cast<void *>(data ? x : y));
    g.direction = data ? -1 : 1;
    g.source_quads = (data ? p->k : p->c) / 4;
    g.chunks = (data ? p->k : p->c) / STEP;
    g.out_quads = (data ? p->c : p->k) / 4;
    g.taps = (int)flim_volume(p->kernel);
    g.classes = 1;
    g.column_tiles = ((data ? p->c : p->k) + columns - 1) / columns;
    for (int d = 0; d < 3; d++) {
        const int flat = d == 0 ? p->kernel[1] * p->kernel[2] : d == 1 ? p->kernel[2] : 1;
        g.source_size[d] = data ? p->out[d] : p->in[d];
        g.source_step[d] = data ? 1 : p->stride[d];
        g.out_size[d] = data ? p->in[d] : p->out[d];
        g.out_step[d] = data ? p->stride[d] : 1;
        g.tap_step[d] = data ? p->stride[d] * flat : flat;
        g.classes *= g.out_step[d];
    }
    for (int c = 0; c < g.classes; c++) {
        gather_class *part = &g.part[c];
        const int residue[3] = {c / (g.out_step[1] * g.out_step[2]), c / g.out_step[2] % g.out_step[1], c % g.out_step[2]};
        int size[3];
        for (int d = 0; d < 3; d++) {
            const int r = residue[d], f0 = data ? (r + p->pad[d]) % p->stride[d] : 0;
            const int flat = d == 0 ? p->kernel[1] * p->kernel[2] : d == 1 ? p->kernel[2] : 1;
            size[d] = (g.out_size[d] - r + g.out_step[d] - 1) / g.out_step[d];
            part->first[d] = r;
            part->origin[d] = data ? (r + p->pad[d] - f0) / p->stride[d] : -p->pad[d];
            part->taps[d] = !data               ? p->kernel[d]
                            : f0 < p->kernel[d] ? (p->kernel[d] - f0 + p->stride[d] - 1) / p->stride[d]
                                                : 0;
            part->tap_first += f0 * flat;
        }
        part->positions = make_grid(size);
        part->rows = (int)(n * flim_volume(size));
    }
    return g;
}

/* What a block does; its number runs over columns first, then classes, so that blocks that read the same places are
 * neighbours. */
struct gather_block {
    int part, row, column; /* first row and column */
    int stages;
};

template <class Tile> FLIM_HD gather_block gather_block_of(const gather &g, int number)
{
    gather_block b;
    const int rest = number / g.column_tiles;
    b.column = number % g.column_tiles * Tile::COLUMNS;
    b.part = rest % g.classes;
    b.row = rest / g.classes * Tile::ROWS;
    const int *taps = g.part[b.part].taps;
    b.stages = taps[0] * taps[1] * taps[2] * (g.chunks / Tile::STEPS);
    return b;
}

/* Blocks of a launch: all classes get as many as the largest, class 0. */
template <class Tile> inline int64_t gather_blocks(const gather &g)
{
    return ((int64_t)g.part[0].rows + Tile::ROWS - 1) / Tile::ROWS * g.classes * g.column_tiles;
}

struct gather_row {
    int offset; /* of the place of tap 0 in source, in float4 */
    uint32_t mask; /* taps inside the image, three fields; 0 = no such row */
    int out; /* of the row in out, in float4; -1 = no such row */
};

FLIM_HD gather_row gather_row_of(const gather &g, const gather_class &part, int row)
{
    if (row >= part.rows)
        return {0, 0u, -1};
    const place p = place_of(part.positions, row);
    gather_row r = {p.cell, 0u, p.cell};
#pragma unroll
    for (int d = 0; d < 3; d++) {
        const int at = p.at[d] * g.source_step[d] + part.origin[d];
        r.mask = r.mask << FIELD | tap_mask(at, g.direction, part.taps[d], g.source_size[d]);
        r.offset = r.offset * g.source_size[d] + at;
        r.out = r.out * g.out_size[d] + p.at[d] * g.out_step[d] + part.first[d];
    }
    r.offset *= g.source_quads;
    r.out *= g.out_quads;
    return r;
}

template <class Tile> struct gather_shared {
    operands<Tile> stage;
    int2 row[Tile::ROWS]; /* offset and mask */
    int out[Tile::ROWS];
};

/* A stage is loaded in as many parts as it has steps: ROWS / STEPS rows with all their values, and of weight for FORWARD
 * COLUMNS / STEPS columns with all their values, for DATA all columns of a step. */
template <class Tile, bool DATA> struct gather_thread {
    static constexpr int LOADS = 2 * Tile::ROWS / Tile::THREADS; /* float4 of source a part */
    static constexpr int QUADS = 2 * Tile::STEPS; /* float4 of a row's stage */

    float4 from_source[LOADS], from_weight;
    int weight_offset; /* of this thread's float4 of weight in part 0 at tap 0, channel 0 */
    int weight_column; /* its column */
    int chunk, tap[3]; /* of the stage to load */
    int source_at, weight_at; /* what they add to offsets */
    uint32_t bits;
    float sum[Tile::SIDE_ROWS][SIDE];

    /* Before the barrier: describes the block's rows to all threads. */
    static FLIM_HD void describe(const gather &g, const gather_block &b, int tid, gather_shared<Tile> &s)
    {
        for (int i = tid; i < Tile::ROWS; i += Tile::THREADS) {
            const gather_row r = gather_row_of(g, g.part[b.part], b.row + i);
            s.row[i].x = r.offset;
            s.row[i].y = (int)r.mask;
            s.out[i] = r.out;
        }
    }

    FLIM_HD void begin(const gather &g, const gather_block &b, int tid)
    {
        if (DATA) {
            weight_column = b.column + tid % (Tile::COLUMNS / 4) * 4;
            weight_offset = tid / (Tile::COLUMNS / 4) * g.taps * g.out_quads + weight_column / 4;
        } else {
            weight_column = b.column + tid / QUADS;
            weight_offset = weight_column * g.taps * g.source_quads + tid % QUADS;
        }
        chunk = tap[0] = tap[1] = tap[2] = 0;
        place_stage(g, b);
#pragma unroll
        for (int i = 0; i < Tile::SIDE_ROWS; i++)
#pragma unroll
            for (int j = 0; j < SIDE; j++)
                sum[i][j] = 0.0f;
    }

    FLIM_HD void place_stage(const gather &g, const gather_block &b)
    {
        const int index = g.part[b.part].tap_first + tap[0] * g.tap_step[0] + tap[1] * g.tap_step[1] + tap[2] * g.tap_step[2];
        source_at = g.direction * ((tap[0] * g.source_size[1] + tap[1]) * g.source_size[2] + tap[2]) * g.source_quads;
        weight_at = index * (DATA ? g.out_quads : g.source_quads);
        bits = tap_bits(tap[0], tap[1], tap[2]);
    }

    /* The next stage is to be loaded: channels first, then taps along x, y, t.  After the last comes one whose loads are all
     * zeros: no row's mask has its tap. */
    FLIM_HD void advance(const gather &g, const gather_block &b)
    {
        chunk += Tile::STEPS;
        if (chunk < g.chunks) {
            source_at += QUADS;
            weight_at += DATA ? Tile::STEPS * STEP * g.taps * g.out_quads : QUADS;
            return;
        }
        chunk = 0;
        if (++tap[2] == g.part[b.part].taps[2]) {
            tap[2] = 0;
            if (++tap[1] == g.part[b.part].taps[1]) {
                tap[1] = 0;
                if (++tap[0] == g.part[b.part].taps[0])
                    weight_column = 4 * g.out_quads;
            }
        }
        place_stage(g, b);
    }

    static FLIM_HD int row_of(int tid, int part, int i)
    {
        return tid / QUADS + Tile::THREADS / QUADS * i + Tile::ROWS / Tile::STEPS * part;
    }

    /* A part of the stage from global memory to registers. */
    FLIM_HD void load(const gather &g, int part, int tid, const gather_shared<Tile> &s)
    {
#pragma unroll
        for (int i = 0; i < LOADS; i++) {
            const int2 row = s.row[row_of(tid, part, i)];
            from_source[i] = load_or_zero(g.source, row.x + tid % QUADS + source_at, ((uint32_t)row.y & bits) == bits);
        }
        const int columns = DATA ? 0 : Tile::COLUMNS / Tile::STEPS * part;
        const int further =
            part * (DATA ? STEP * g.taps * g.out_quads : Tile::COLUMNS / Tile::STEPS * g.taps * g.source_quads);
        from_weight = load_or_zero(g.weight, weight_offset + weight_at + further,
                                   tid < 2 * Tile::COLUMNS && weight_column + columns < 4 * g.out_quads);
    }

    FLIM_HD void store(int part, int tid, int copy, gather_shared<Tile> &s) const
    {
#pragma unroll
        for (int i = 0; i < LOADS; i++)
            store_transposed(s.stage.row[copy][0], Tile::ROW_STEP, Tile::ROW_PITCH, tid % QUADS, row_of(tid, part, i),
                             from_source[i]);
        if (tid < 2 * Tile::COLUMNS) {
            if (DATA)
                *reinterpret_cast<float4 *>(s.stage.column[copy][part] + tid / (Tile::COLUMNS / 4) * Tile::COLUMN_PITCH +
                                            tid % (Tile::COLUMNS / 4) * 4) = from_weight;
            else
                store_transposed(s.stage.column[copy][0], Tile::COLUMN_STEP, Tile::COLUMN_PITCH, tid % QUADS,
                                 tid / QUADS + Tile::COLUMNS / Tile::STEPS * part, from_weight);
        }
    }

    FLIM_HD void write(const gather &g, const gather_block &b, int tid, const gather_shared<Tile> &s) const
    {
#pragma unroll
        for (int i = 0; i < Tile::SIDE_ROWS; i++) {
            const int out = s.out[Tile::first_row(tid) + Tile::row_step(i)];
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int column = (b.column + Tile::first_column(tid) + Tile::column_step(4 * half)) / 4;
                if (out >= 0 && column < g.out_quads)
                    g.out[(int64_t)out + column] =
                        make_float4(sum[i][4 * half], sum[i][4 * half + 1], sum[i][4 * half + 2], sum[i][4 * half + 3]);
            }
        }
    }
};

} // namespace flim_fp32

#endif
