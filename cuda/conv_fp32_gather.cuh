/* fp32 forward convolution and data gradient as one gathering matrix product, for one thread of a block.
 *
 *     out[position][column] = sum over taps and channels of source[place of (position, tap)][channel] * weight[tap][channel][column]
 *
 * FORWARD: source x, out y; the place of tap j is o * stride - pad + j.  DATA: source dy, out dx.  With a stride, an input position q
 * meets only the taps f with f = q + pad modulo stride, so positions fall into `stride` classes a dimension: in class r,
 * q = stride * i + r meets f0, f0 + stride, ..., f0 = (r + pad) % stride, at the place i + (r + pad - f0) / stride - j.  Each class
 * is a product of its own with its own taps; no product with zero is computed.
 *
 * Rows are positions of a class, columns channels of out.  A row's offset in source and a mask of the taps that stay inside the image are
 * computed once a block; after that a tap is one number to add and one test a row.
 */
#ifndef FLIM_CUDA_CONV_FP32_GATHER_CUH
#define FLIM_CUDA_CONV_FP32_GATHER_CUH

#include "conv_fp32.cuh"

namespace flim_fp32
{

using gather_tile_1 = tile<256, 8, 1, 32>;
using gather_tile_2 = tile<256, 16, 2, 16>;
using gather_tile_3 = tile<256, 32, 4, 8>;
using gather_tile_4 = tile<128, 64, 2, 8>;
using gather_tile_5 = tile<128, 128, 2, 8>;

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
    g.taps = (int)volume(p->kernel);
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
            part->taps[d] = !data ? p->kernel[d] : f0 < p->kernel[d] ? (p->kernel[d] - f0 + p->stride[d] - 1) / p->stride[d] : 0;
            part->tap_first += f0 * flat;
        }
        part->positions = make_grid(size);
        part->rows = (int)(n * volume(size));
    }
    return g;
}

/* What a block does; its number runs over columns first, then classes, so that blocks that read the same places are neighbours. */
struct gather_block {
    int part, row, column; /* first row and column */
    int steps;
};

template <class Tile> FLIM_HD gather_block gather_block_of(const gather &g, int number)
{
    gather_block b;
    const int rest = number / g.column_tiles;
    b.column = number % g.column_tiles * Tile::COLUMNS;
    b.part = rest % g.classes;
    b.row = rest / g.classes * Tile::ROWS;
    const int *taps = g.part[b.part].taps;
    b.steps = taps[0] * taps[1] * taps[2] * g.chunks;
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
    operands<Tile> step;
    int offset[Tile::ROWS], out[Tile::ROWS];
    uint32_t mask[Tile::ROWS];
};

template <class Tile, bool DATA> struct gather_thread {
    static constexpr int LOADS = 2 * Tile::ROWS / Tile::THREADS; /* float4 of source a step */

    int offset[LOADS]; /* of this thread's rows, in source */
    uint32_t mask[LOADS];
    float4 from_source[LOADS], from_weight;
    int weight_offset; /* of this thread's part of weight at tap 0, channel 0; -1 = none */
    int chunk, tap[3], tap_offset, tap_index; /* of the step to load */
    uint32_t bits;
    float sum[SIDE][SIDE];

    /* Before the barrier: describes the block's rows to all threads. */
    static FLIM_HD void describe(const gather &g, const gather_block &b, int tid, gather_shared<Tile> &s)
    {
        for (int i = tid; i < Tile::ROWS; i += Tile::THREADS) {
            const gather_row r = gather_row_of(g, g.part[b.part], b.row + i);
            s.offset[i] = r.offset;
            s.mask[i] = r.mask;
            s.out[i] = r.out;
        }
    }

    FLIM_HD void begin(const gather &g, const gather_block &b, int tid, const gather_shared<Tile> &s)
    {
#pragma unroll
        for (int i = 0; i < LOADS; i++) {
            const int row = tid / 2 + Tile::THREADS / 2 * i;
            offset[i] = s.offset[row] + tid % 2;
            mask[i] = s.mask[row];
        }
        weight_offset = -1;
        if (tid < 2 * Tile::COLUMNS) {
            if (DATA) {
                const int column = b.column / 4 + tid % (Tile::COLUMNS / 4), channel = tid / (Tile::COLUMNS / 4);
                if (column < g.out_quads)
                    weight_offset = channel * g.taps * g.out_quads + column;
            } else {
                const int column = b.column + tid / 2;
                if (column < 4 * g.out_quads)
                    weight_offset = column * g.taps * g.source_quads + tid % 2;
            }
        }
        chunk = tap[0] = tap[1] = tap[2] = tap_offset = 0;
        tap_index = g.part[b.part].tap_first;
        bits = tap_bits(0, 0, 0);
#pragma unroll
        for (int i = 0; i < SIDE; i++)
#pragma unroll
            for (int j = 0; j < SIDE; j++)
                sum[i][j] = 0.0f;
    }

    /* From global memory to registers; then the next step is next: channels first, then taps along x, y, t. */
    FLIM_HD void load(const gather &g, const gather_block &b)
    {
#pragma unroll
        for (int i = 0; i < LOADS; i++)
            from_source[i] = load_or_zero(g.source, offset[i] + tap_offset + 2 * chunk, (mask[i] & bits) == bits);
        const int at = DATA ? (chunk * STEP * g.taps + tap_index) * g.out_quads : tap_index * g.source_quads + 2 * chunk;
        from_weight = load_or_zero(g.weight, weight_offset + at, weight_offset >= 0);
        if (++chunk < g.chunks)
            return;
        const gather_class &part = g.part[b.part];
        chunk = 0;
        if (++tap[2] == part.taps[2]) {
            tap[2] = 0;
            if (++tap[1] == part.taps[1]) {
                tap[1] = 0;
                tap[0]++;
            }
        }
        tap_offset =
            g.direction * ((tap[0] * g.source_size[1] + tap[1]) * g.source_size[2] + tap[2]) * g.source_quads;
        tap_index = part.tap_first + tap[0] * g.tap_step[0] + tap[1] * g.tap_step[1] + tap[2] * g.tap_step[2];
        bits = tap_bits(tap[0], tap[1], tap[2]);
    }

    FLIM_HD void store(int tid, int copy, gather_shared<Tile> &s) const
    {
#pragma unroll
        for (int i = 0; i < LOADS; i++)
            store_turned(s.step.row[copy], Tile::ROW_PITCH, 4 * (tid % 2), tid / 2 + Tile::THREADS / 2 * i, from_source[i]);
        if (tid < 2 * Tile::COLUMNS) {
            if (DATA) {
                const int column = 4 * (tid % (Tile::COLUMNS / 4)), channel = tid / (Tile::COLUMNS / 4);
                *reinterpret_cast<float4 *>(s.step.column[copy] + channel * Tile::COLUMN_PITCH + column) = from_weight;
            } else {
                store_turned(s.step.column[copy], Tile::COLUMN_PITCH, 4 * (tid % 2), tid / 2, from_weight);
            }
        }
    }

    FLIM_HD void write(const gather &g, const gather_block &b, int tid, const gather_shared<Tile> &s) const
    {
#pragma unroll
        for (int i = 0; i < SIDE; i++) {
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
