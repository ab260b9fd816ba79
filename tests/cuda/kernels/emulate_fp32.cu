/* The fp32 convolution kernels on the CPU, without a card: every block, thread after thread from barrier to barrier, by the
 * same functions that the kernels call.  Data are small integers, so that sums are exact and every output must equal the
 * direct sum.  Inputs lie between NaN, outputs hold NaN and are followed by a guard: a read or a write beside a tensor shows.
 * */
#include <cmath>
#include <cstdio>
#include <cstring>
#include <vector>

#include "cuda/conv/conv_fp32_gather.cuh"
#include "cuda/conv/conv_fp32_weight.cuh"

using namespace flim_fp32;

namespace
{

/* A tensor between margins of NaN. */
struct tensor {
    int64_t count, margin;
    std::vector<float4> memory;
    explicit tensor(int64_t n) : count(n), margin(((n > 4096 ? n : 4096) + 3) / 4), memory((size_t)(n / 4 + 2 * margin))
    {
        memset(memory.data(), 0xff, memory.size() * sizeof(float4));
    }
    float *data()
    {
        return &memory[(size_t)margin].x;
    }
    void integers(uint32_t seed)
    {
        for (int64_t i = 0; i < count; i++) {
            seed = seed * 1664525u + 1013904223u;
            data()[i] = (float)((int)(seed >> 24) % 7 - 3);
        }
    }
    bool margins_hold()
    {
        const unsigned char *at = reinterpret_cast<const unsigned char *>(memory.data());
        const size_t before = (size_t)margin * sizeof(float4), after = before + (size_t)count * sizeof(float),
                     size = memory.size() * sizeof(float4);
        for (size_t i = 0; i < size; i++)
            if ((i < before || i >= after) && at[i] != 0xff)
                return false;
        return true;
    }
};

template <class Tile, bool DATA> void run_gather(const gather &g)
{
    const int64_t blocks = gather_blocks<Tile>(g);
    std::vector<gather_thread<Tile, DATA>> thread(Tile::THREADS);
    std::vector<gather_shared<Tile>> shared(1);
    gather_shared<Tile> &s = shared[0];
    for (int64_t number = 0; number < blocks; number++) {
        memset(static_cast<void *>(&s), 0xff, sizeof s);
        const gather_block b = gather_block_of<Tile>(g, (int)number);
        if (b.row >= g.part[b.part].rows)
            continue;
        for (int t = 0; t < Tile::THREADS; t++)
            gather_thread<Tile, DATA>::describe(g, b, t, s);
        for (int t = 0; t < Tile::THREADS; t++)
            thread[(size_t)t].begin(g, b, t);
        for (int t = 0; t < Tile::THREADS && b.stages > 0; t++) {
            gather_thread<Tile, DATA> &me = thread[(size_t)t];
            for (int part = 0; part < Tile::STEPS; part++) {
                me.load(g, part, t, s);
                me.store(part, t, 0, s);
            }
            me.advance(g, b);
            me.load(g, 0, t, s);
        }
        for (int stage = 0; stage < b.stages; stage++)
            for (int t = 0; t < Tile::THREADS; t++) {
                gather_thread<Tile, DATA> &me = thread[(size_t)t];
                for (int step = 0; step < Tile::STEPS; step++) {
                    multiply<Tile>(s.stage, stage & 1, step, Tile::first_row(t), Tile::first_column(t), me.sum);
                    me.store(step, t, (stage + 1) & 1, s);
                    const bool last = step + 1 == Tile::STEPS;
                    if (last)
                        me.advance(g, b);
                    me.load(g, last ? 0 : step + 1, t, s);
                }
            }
        for (int t = 0; t < Tile::THREADS; t++)
            thread[(size_t)t].write(g, b, t, s);
    }
}

template <class Tile> void gather_case(const flim_conv_problem *p, int64_t n, float *x, float *w, float *y)
{
    const gather g = make_gather(p, n, x, w, y, Tile::COLUMNS);
    if (p->op == FLIM_CONV_DATA)
        run_gather<Tile, true>(g);
    else
        run_gather<Tile, false>(g);
}

template <class Tile> void weight_case(const flim_conv_problem *p, int64_t n, int parts, float *x, float *w, float *y)
{
    tensor partial(parts * flim_conv_w_elements(p));
    const weight_sum a = make_weight_sum(p, n, parts, Tile::ROWS, Tile::COLUMNS, x, y, partial.data());
    std::vector<weight_thread<Tile>> thread(Tile::THREADS);
    std::vector<weight_shared<Tile>> shared(1);
    weight_shared<Tile> &s = shared[0];
    for (int number = 0; number < a.row_tiles * a.column_tiles * parts; number++) {
        memset(static_cast<void *>(&s), 0xff, sizeof s);
        const weight_block b = weight_block_of<Tile>(a, number);
        for (int t = 0; t < Tile::THREADS; t++) {
            weight_thread<Tile>::describe(a, b, 0, t, s);
            thread[(size_t)t].begin(a, b, t);
        }
        for (int t = 0; t < Tile::THREADS; t++) {
            thread[(size_t)t].load(a, 0, t, s);
            thread[(size_t)t].store(t, 0, s);
            thread[(size_t)t].load(a, 1, t, s);
        }
        for (int step = 0; step < b.steps; step++) {
            for (int t = 0; t < Tile::THREADS; t++) {
                weight_thread<Tile> &me = thread[(size_t)t];
                if (step * STEP % DESCRIBED == 0)
                    me.describe(a, b, step * STEP + DESCRIBED, t, s);
                multiply<Tile>(s.step, step & 1, 0, Tile::first_row(t), Tile::first_column(t), me.sum);
                me.store(t, (step + 1) & 1, s);
                me.load(a, step + 2, t, s);
            }
        }
        for (int t = 0; t < Tile::THREADS; t++)
            thread[(size_t)t].write(a, b, t);
    }
    const int64_t size = flim_conv_w_elements(p);
    for (int64_t i = 0; i < size; i++) {
        w[i] = partial.data()[i];
        for (int part = 1; part < parts; part++)
            w[i] += partial.data()[part * size + i];
    }
    if (!partial.margins_hold())
        w[0] = NAN;
}

/* Direct sums over n cells; what the operation writes is added to. */
void direct(const flim_conv_problem *p, int64_t n, const float *x, const float *w, const float *y, std::vector<double> &out)
{
    for (int64_t cell = 0; cell < n; cell++)
        for (int64_t o = 0; o < flim_volume(p->out); o++)
            for (int64_t f = 0; f < flim_volume(p->kernel); f++) {
                const int at[3] = {(int)(o / p->out[2] / p->out[1]), (int)(o / p->out[2] % p->out[1]), (int)(o % p->out[2])};
                const int tap[3] = {(int)(f / p->kernel[2] / p->kernel[1]), (int)(f / p->kernel[2] % p->kernel[1]),
                                    (int)(f % p->kernel[2])};
                int64_t i = cell;
                bool inside = true;
                for (int d = 0; d < 3; d++) {
                    const int q = at[d] * p->stride[d] - p->pad[d] + tap[d];
                    inside = inside && q >= 0 && q < p->in[d];
                    i = i * p->in[d] + q;
                }
                for (int k = 0; k < p->k && inside; k++)
                    for (int c = 0; c < p->c; c++) {
                        const int64_t iy = (cell * flim_volume(p->out) + o) * p->k + k,
                                      iw = (k * flim_volume(p->kernel) + f) * p->c + c, ix = i * p->c + c;
                        if (p->op == FLIM_CONV_FORWARD)
                            out[(size_t)iy] += (double)x[ix] * w[iw];
                        else if (p->op == FLIM_CONV_DATA)
                            out[(size_t)ix] += (double)y[iy] * w[iw];
                        else
                            out[(size_t)iw] += (double)x[ix] * y[iy];
                    }
            }
}

int cases; /* that were computed */

bool check(flim_conv_problem p, int64_t n, int tile, int parts)
{
    for (int d = 0; d < 3; d++)
        p.out[d] = (p.in[d] + 2 * p.pad[d] - p.kernel[d]) / p.stride[d] + 1;
    char text[320];
    flim_conv_text(&p, text, sizeof text);
    if (!flim_fp32_supported(&p)) {
        printf("FAILED, not supported: %s\n", text);
        return false;
    }
    if (!flim_fp32_tile_fits(&p, tile))
        return true;
    cases++;
    const int64_t x_cell = flim_conv_x_elements(&p) / p.n, y_cell = flim_conv_y_elements(&p) / p.n;
    tensor x(n * x_cell), w(flim_conv_w_elements(&p)), y(n * y_cell); /* spare cells lie in the margin: NaN */
    tensor *out = p.op == FLIM_CONV_FORWARD ? &y : p.op == FLIM_CONV_DATA ? &x : &w;
    tensor *all[3] = {&x, &w, &y};
    for (int i = 0; i < 3; i++)
        if (all[i] != out)
            all[i]->integers(17u + (uint32_t)i);
    std::vector<double> expected((size_t)out->count, 0.0);
    direct(&p, n, x.data(), w.data(), y.data(), expected);
    if (p.op == FLIM_CONV_WEIGHT) {
        switch (tile) {
        case 1: weight_case<weight_tile_1>(&p, n, parts, x.data(), w.data(), y.data()); break;
        case 2: weight_case<weight_tile_2>(&p, n, parts, x.data(), w.data(), y.data()); break;
        case 3: weight_case<weight_tile_3>(&p, n, parts, x.data(), w.data(), y.data()); break;
        case 4: weight_case<weight_tile_4>(&p, n, parts, x.data(), w.data(), y.data()); break;
        case 5: weight_case<weight_tile_5>(&p, n, parts, x.data(), w.data(), y.data()); break;
        case 6: weight_case<weight_tile_6>(&p, n, parts, x.data(), w.data(), y.data()); break;
        case 7: weight_case<weight_tile_7>(&p, n, parts, x.data(), w.data(), y.data()); break;
        case 8: weight_case<weight_tile_8>(&p, n, parts, x.data(), w.data(), y.data()); break;
        default: weight_case<weight_tile_9>(&p, n, parts, x.data(), w.data(), y.data()); break;
        }
    } else {
        switch (tile) {
        case 1: gather_case<gather_tile_1>(&p, n, x.data(), w.data(), y.data()); break;
        case 2: gather_case<gather_tile_2>(&p, n, x.data(), w.data(), y.data()); break;
        case 3: gather_case<gather_tile_3>(&p, n, x.data(), w.data(), y.data()); break;
        case 4: gather_case<gather_tile_4>(&p, n, x.data(), w.data(), y.data()); break;
        case 5: gather_case<gather_tile_5>(&p, n, x.data(), w.data(), y.data()); break;
        case 6: gather_case<gather_tile_6>(&p, n, x.data(), w.data(), y.data()); break;
        case 7: gather_case<gather_tile_7>(&p, n, x.data(), w.data(), y.data()); break;
        case 8: gather_case<gather_tile_8>(&p, n, x.data(), w.data(), y.data()); break;
        case 9: gather_case<gather_tile_9>(&p, n, x.data(), w.data(), y.data()); break;
        case 10: gather_case<gather_tile_10>(&p, n, x.data(), w.data(), y.data()); break;
        default: gather_case<gather_tile_11>(&p, n, x.data(), w.data(), y.data()); break;
        }
    }
    bool good = true;
    for (int64_t i = 0; i < out->count && good; i++)
        if (!((double)out->data()[i] == expected[(size_t)i])) {
            printf("FAILED: tile %s, %d parts, n %lld, output %lld is %g, expected %g: %s\n", flim_fp32_tile_name(p.op, tile),
                   parts, (long long)n, (long long)i, (double)out->data()[i], expected[(size_t)i], text);
            good = false;
        }
    if (good && !out->margins_hold()) {
        printf("FAILED: tile %s writes beside its tensor: %s\n", flim_fp32_tile_name(p.op, tile), text);
        good = false;
    }
    return good;
}

/* Quotients by multiplication against the processor's. */
bool check_division()
{
    for (int number = 1; number < 3000; number += number < 70 ? 1 : 37) {
        const divisor d = make_divisor(number);
        for (int64_t value = 0; value <= INT32_MAX; value += value < 5000 ? 1 : 999983) {
            const int64_t near[3] = {value, value / number * number, value / number * number - 1};
            for (int64_t v : near)
                if (v >= 0 && divide(d, (int)v) != v / number) {
                    printf("FAILED: %lld / %d\n", (long long)v, number);
                    return false;
                }
        }
    }
    return true;
}

flim_card card_of(int processors, int capability, int shared_bytes)
{
    flim_card card = {};
    card.processors = processors;
    card.capability = capability;
    card.shared_bytes = shared_bytes;
    return card;
}

/* Every convolution of every preset has a tile on every card, with workspace in whole copies of w and no more than 64 MiB of
 * it. */
bool check_plans()
{
    const flim_card cards[] = {card_of(40, 75, 65536), card_of(108, 80, 166912), card_of(58, 89, 101376),
                               card_of(132, 90, 232448), card_of(1, 75, 49152)};
    static const struct {
        int c, k; /* multiples of the width; c 0: the input */
        int in[3], kernel[3], stride[3], pad[3];
    } layers[] = {
        {0, 1, {256, 21, 21}, {7, 1, 1}, {1, 1, 1}, {3, 0, 0}}, {1, 1, {256, 21, 21}, {3, 1, 1}, {2, 1, 1}, {1, 0, 0}},
        {1, 1, {128, 21, 21}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}}, {1, 2, {128, 21, 21}, {1, 1, 1}, {1, 2, 2}, {0, 0, 0}},
        {1, 2, {128, 21, 21}, {3, 3, 3}, {1, 2, 2}, {1, 1, 1}}, {2, 2, {128, 11, 11}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}},
        {2, 4, {64, 11, 11}, {1, 1, 1}, {1, 2, 2}, {0, 0, 0}},  {2, 4, {64, 11, 11}, {3, 3, 3}, {1, 2, 2}, {1, 1, 1}},
        {4, 4, {64, 6, 6}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}}};
    for (const flim_card &card : cards)
        for (int width = 8; width <= 128; width *= 2)
            for (int64_t n = 1; n <= 256; n *= 16)
                for (const auto &l : layers)
                    for (int op = 0; op < 3; op++) {
                        flim_conv_problem p = {};
                        p.op = (flim_conv_op)op;
                        p.n = n;
                        p.c = l.c ? l.c * width : 8;
                        p.k = l.k * width;
                        for (int d = 0; d < 3; d++) {
                            p.in[d] = l.in[d];
                            p.kernel[d] = l.kernel[d];
                            p.stride[d] = l.stride[d];
                            p.pad[d] = l.pad[d];
                            p.out[d] = (l.in[d] + 2 * l.pad[d] - l.kernel[d]) / l.stride[d] + 1;
                        }
                        int tile[FLIM_FP32_TILES];
                        const int tiles = flim_fp32_tiles(&p, &card, tile);
                        const int64_t size = flim_conv_w_elements(&p) * 4;
                        bool good = tiles > 0;
                        for (int i = 0; i < tiles; i++) {
                            const int64_t workspace = flim_fp32_workspace(&p, tile[i], &card);
                            good = good && flim_fp32_tile_fits(&p, tile[i]) && workspace % size == 0 &&
                                   workspace <= 64 << 20 && workspace != size && (op == FLIM_CONV_WEIGHT || workspace == 0);
                        }
                        if (!good) {
                            char text[320];
                            flim_conv_text(&p, text, sizeof text);
                            printf("FAILED: %d tiles on %d multiprocessors of %d: %s\n", tiles, card.processors,
                                   card.capability, text);
                            return false;
                        }
                    }
    return true;
}

} // namespace

int main()
{
    static const flim_conv_problem problems[] = {
        {FLIM_CONV_FORWARD, FLIM_STORAGE_FP32, false, 3, 8, 32, 8, 32, {11, 3, 5}, {}, {7, 1, 1}, {1, 1, 1}, {3, 0, 0}},
        {FLIM_CONV_FORWARD, FLIM_STORAGE_FP32, false, 2, 32, 32, 32, 32, {9, 3, 3}, {}, {3, 1, 1}, {2, 1, 1}, {1, 0, 0}},
        {FLIM_CONV_FORWARD, FLIM_STORAGE_FP32, false, 2, 32, 32, 32, 32, {4, 7, 5}, {}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}},
        {FLIM_CONV_FORWARD, FLIM_STORAGE_FP32, false, 2, 24, 40, 24, 40, {3, 6, 5}, {}, {3, 3, 3}, {1, 2, 2}, {1, 1, 1}},
        {FLIM_CONV_FORWARD, FLIM_STORAGE_FP32, false, 2, 16, 72, 16, 72, {2, 5, 7}, {}, {1, 1, 1}, {1, 2, 2}, {0, 0, 0}},
        {FLIM_CONV_FORWARD, FLIM_STORAGE_FP32, false, 3, 40, 136, 40, 136, {5, 3, 4}, {}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}},
        {FLIM_CONV_FORWARD, FLIM_STORAGE_FP32, false, 1, 8, 8, 8, 8, {1, 1, 1}, {}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}},
        {FLIM_CONV_FORWARD, FLIM_STORAGE_FP32, false, 1, 8, 16, 8, 16, {9, 10, 8}, {}, {5, 2, 4}, {2, 2, 2}, {2, 0, 3}},
    };
    int failed = !check_division() + !check_plans();
    for (const flim_conv_problem &one : problems)
        for (int op = 0; op < 3; op++) {
            flim_conv_problem p = one;
            p.op = (flim_conv_op)op;
            for (int tile = 1; flim_fp32_tile_name(p.op, tile); tile++) {
                failed += !check(p, p.n, tile, 1);
                failed += !check(p, p.n > 1 ? p.n - 1 : 1, tile, 3);
            }
        }
    printf("%d cases, %d failed\n", cases, failed);
    return failed != 0;
}
