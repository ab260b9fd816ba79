/* fp32 convolutions: direct double-precision sums, exact on small integers, and the checks and timings of conv_fp32. */
#include <cstring>

#include "check_util.cuh"

#include "cuda/conv/conv_fp32.h"

bool check_fp32(bool small);
void time_fp32(bool quick);

namespace
{

const char *const op_name[3] = {"forward", "data gradient", "weight gradient"};

struct layer {
    const char *name;
    int64_t n, spare; /* cells, and cells of the problem that the run leaves out */
    int c, k, size[3], kernel[3], stride[3], pad[3];
};

flim_conv_problem problem_of(const layer &l, int op)
{
    flim_conv_problem p = {};
    p.op = (flim_conv_op)op;
    p.type = FLIM_STORAGE_FP32;
    p.n = l.n + l.spare;
    p.c = l.c;
    p.k = l.k;
    for (int d = 0; d < 3; d++) {
        p.in[d] = l.size[d];
        p.kernel[d] = l.kernel[d];
        p.stride[d] = l.stride[d];
        p.pad[d] = l.pad[d];
        p.out[d] = (l.size[d] + 2 * l.pad[d] - l.kernel[d]) / l.stride[d] + 1;
    }
    return p;
}

/* An output of the direct sum, a thread each; the problem's first n cells. */
__global__ void ref_fp32(flim_conv_problem p, int64_t n, int64_t count, const float *x, const float *w, const float *y,
                         double *out)
{
    const int64_t taps = (int64_t)p.kernel[0] * p.kernel[1] * p.kernel[2];
    const int64_t in = (int64_t)p.in[0] * p.in[1] * p.in[2], outs = (int64_t)p.out[0] * p.out[1] * p.out[2];
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < count; i += (int64_t)gridDim.x * blockDim.x) {
        double sum = 0.0;
        if (p.op == FLIM_CONV_WEIGHT) {
            const int c = (int)(i % p.c);
            const int64_t f = i / p.c % taps, k = i / p.c / taps;
            const int tap[3] = {(int)(f / p.kernel[2] / p.kernel[1]), (int)(f / p.kernel[2] % p.kernel[1]),
                                (int)(f % p.kernel[2])};
            for (int64_t o = 0; o < n * outs; o++) {
                const int64_t q = o % outs;
                const int t = (int)(q / p.out[2] / p.out[1]) * p.stride[0] - p.pad[0] + tap[0],
                          h = (int)(q / p.out[2] % p.out[1]) * p.stride[1] - p.pad[1] + tap[1],
                          v = (int)(q % p.out[2]) * p.stride[2] - p.pad[2] + tap[2];
                if (t >= 0 && t < p.in[0] && h >= 0 && h < p.in[1] && v >= 0 && v < p.in[2])
                    sum += (double)y[o * p.k + k] * x[(o / outs * in + ((int64_t)t * p.in[1] + h) * p.in[2] + v) * p.c + c];
            }
        } else {
            const bool data = p.op == FLIM_CONV_DATA;
            const int *size = data ? p.in : p.out, channels = data ? p.c : p.k, others = data ? p.k : p.c;
            const int *from = data ? p.out : p.in;
            const int64_t at = i / channels % (data ? in : outs), cell = i / channels / (data ? in : outs);
            const int place[3] = {(int)(at / size[2] / size[1]), (int)(at / size[2] % size[1]), (int)(at % size[2])};
            for (int64_t f = 0; f < taps; f++) {
                const int tap[3] = {(int)(f / p.kernel[2] / p.kernel[1]), (int)(f / p.kernel[2] % p.kernel[1]),
                                    (int)(f % p.kernel[2])};
                int64_t source = cell;
                bool inside = true;
                for (int d = 0; d < 3; d++) {
                    int q = data ? place[d] + p.pad[d] - tap[d] : place[d] * p.stride[d] - p.pad[d] + tap[d];
                    inside = inside && q >= 0 && (!data || q % p.stride[d] == 0);
                    q = data ? q / p.stride[d] : q;
                    inside = inside && q < from[d];
                    source = source * from[d] + q;
                }
                for (int j = 0; j < others && inside; j++)
                    sum += data ? (double)y[source * p.k + j] * w[(j * taps + f) * p.c + i % p.c]
                                : (double)x[source * p.c + j] * w[(i % p.k * taps + f) * p.c + j];
            }
        }
        out[i] = sum;
    }
}

__global__ void fill_integers(float *out, int64_t count, uint64_t seed)
{
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < count; i += (int64_t)gridDim.x * blockDim.x)
        out[i] = (float)(int)(hash32((uint64_t)i ^ (seed << 40)) % 7) - 3.0f;
}

struct fp32_case {
    flim_conv_problem p;
    int64_t n;
    int tile;
    flim_card card;
    device_array<float> x, w, y;
    device_array<char> workspace;

    fp32_case(const layer &l, int op, int tile_, const flim_card &card_, bool integers)
        : p(problem_of(l, op)), n(l.n), tile(tile_), card(card_), x(flim_conv_x_elements(&p)), w(flim_conv_w_elements(&p)),
          y(flim_conv_y_elements(&p)), workspace(flim_fp32_workspace(&p, tile, &card))
    {
        /* cells left out stay NaN */
        fill(op == FLIM_CONV_DATA, x, x.count / p.n * n, 41, integers);
        fill(op == FLIM_CONV_WEIGHT, w, w.count, 42, integers);
        fill(op == FLIM_CONV_FORWARD, y, y.count / p.n * n, 43, integers);
    }
    static void fill(bool output, float *to, int64_t count, uint64_t seed, bool integers)
    {
        if (output)
            return;
        if (integers)
            fill_integers<<<1024, 256>>>(to, count, seed);
        else
            fill_normal<float><<<1024, 256>>>(to, count, 1.0f, 0.1f, seed);
        CHECK(cudaGetLastError());
    }
    device_array<float> &output()
    {
        return p.op == FLIM_CONV_FORWARD ? y : p.op == FLIM_CONV_DATA ? x : w;
    }
    int64_t outputs() /* written */
    {
        return p.op == FLIM_CONV_WEIGHT ? w.count : output().count / p.n * n;
    }
    void run()
    {
        CHECK(flim_fp32_run(&p, n, tile, &card, x, w, y, workspace, 0));
    }
};

bool check_case(const layer &l, int op, int tile, const flim_card &card, bool integers)
{
    fp32_case f(l, op, tile, card, integers);
    device_array<double> expected(f.outputs());
    ref_fp32<<<4096, 256>>>(f.p, f.n, f.outputs(), f.x, f.w, f.y, expected);
    CHECK(cudaDeviceSynchronize());
    f.run();
    CHECK(cudaDeviceSynchronize());
    const std::vector<float> first = f.output().host();
    const std::vector<double> want = expected.host();
    double num = 0.0, den = 0.0, worst = 0.0, largest = 0.0;
    bool finite = true, exact = true, left = true;
    for (size_t i = 0; i < first.size(); i++) {
        if (i >= want.size()) { /* spare cells: as they were */
            uint32_t bits;
            memcpy(&bits, &first[i], sizeof bits);
            left = left && bits == 0xffffffffu;
            continue;
        }
        const double off = std::fabs((double)first[i] - want[i]);
        finite = finite && std::isfinite(first[i]);
        exact = exact && (double)first[i] == want[i];
        num += off * off;
        den += want[i] * want[i];
        worst = std::max(worst, off);
        largest = std::max(largest, std::fabs(want[i]));
    }
    f.output().poison();
    f.workspace.poison();
    f.run();
    const bool equal = same_bits(first, f.output().host());
    const double relative = den > 0 ? std::sqrt(num / den) : std::sqrt(num);
    const bool good = finite && left && equal && (integers ? exact : relative < 1e-5);
    if (!good || !integers)
        printf("fp32 %-9s %-15s %-10s n %lld + %lld: relative %.2e worst %.2e, %sequal bits %s, spare cells %s %s\n", l.name,
               op_name[op], flim_fp32_tile_name(f.p.op, tile), (long long)l.n, (long long)l.spare, relative,
               largest > 0 ? worst / largest : worst, integers ? (exact ? "exact, " : "NOT EXACT, ") : "",
               equal ? "yes" : "NO", left ? "left alone" : "TOUCHED", good ? "" : "FAILED");
    return good;
}

flim_card card_here()
{
    int device = 0;
    cudaDeviceProp prop;
    CHECK(cudaGetDevice(&device));
    CHECK(cudaGetDeviceProperties(&prop, device));
    flim_card card = {};
    card.processors = prop.multiProcessorCount;
    card.capability = 10 * prop.major + prop.minor;
    card.shared_bytes = (int)prop.sharedMemPerBlockOptin;
    return card;
}

} // namespace

bool check_fp32(bool small)
{
    static const layer cases[] = {
        {"stem", 3, 1, 8, 32, {19, 5, 7}, {7, 1, 1}, {1, 1, 1}, {3, 0, 0}},
        {"down", 2, 1, 32, 32, {17, 7, 5}, {3, 1, 1}, {2, 1, 1}, {1, 0, 0}},
        {"res1", 2, 1, 32, 32, {5, 11, 9}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}},
        {"one", 1, 0, 32, 32, {1, 1, 1}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}},
        {"skip", 3, 2, 32, 64, {5, 9, 7}, {1, 1, 1}, {1, 2, 2}, {0, 0, 0}},
        {"compact", 3, 0, 32, 64, {5, 5, 4}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}},
        {"res2.1", 2, 1, 32, 64, {5, 9, 7}, {3, 3, 3}, {1, 2, 2}, {1, 1, 1}},
        {"even", 2, 0, 64, 64, {4, 8, 6}, {3, 3, 3}, {1, 2, 2}, {1, 1, 1}},
        {"res3.2", 2, 1, 128, 128, {5, 3, 3}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}},
        {"tiny", 4, 1, 8, 8, {9, 7, 7}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}},
        {"odd", 2, 1, 24, 40, {9, 10, 8}, {5, 2, 4}, {2, 2, 2}, {2, 0, 3}},
        {"wide", 1, 0, 256, 200, {3, 4, 5}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}},
        {"res1", 8, 1, 32, 32, {64, 21, 21}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}},
        {"res2.2", 8, 1, 64, 64, {64, 11, 11}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}},
        {"res3.1", 8, 1, 64, 128, {32, 11, 11}, {3, 3, 3}, {1, 2, 2}, {1, 1, 1}},
    };
    const flim_card card = card_here();
    flim_card one = card;
    one.processors = 1;
    bool good = true;
    for (const layer &l : cases) {
        const bool large = l.n * l.size[0] * l.size[1] * l.size[2] > 20000;
        if (small && large)
            continue;
        for (int op = 0; op < 3; op++) {
            const flim_conv_problem p = problem_of(l, op);
            int tiles[FLIM_FP32_TILES];
            if (flim_fp32_tiles(&p, &card, tiles) < 1) {
                printf("fp32 %s %s: not supported, FAILED\n", l.name, op_name[op]);
                good = false;
                continue;
            }
            /* few processors: few parts of the weight gradient, and many positions a part */
            for (int tile = 1; flim_fp32_tile_name(p.op, tile) && !large; tile++)
                if (flim_fp32_tile_fits(&p, tile))
                    good = check_case(l, op, tile, tile % 2 ? card : one, true) && good;
            good = check_case(l, op, tiles[0], card, false) && good;
        }
    }
    return good;
}

/* quick: the tile taken without timing; else all that would be timed. */
void time_fp32(bool quick)
{
    static const struct {
        layer l;
        int times; /* in the network */
    } layers[] = {
        {{"stem", 64, 0, 8, 32, {256, 21, 21}, {7, 1, 1}, {1, 1, 1}, {3, 0, 0}}, 1},
        {{"down", 64, 0, 32, 32, {256, 21, 21}, {3, 1, 1}, {2, 1, 1}, {1, 0, 0}}, 1},
        {{"res1", 64, 0, 32, 32, {128, 21, 21}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}}, 2},
        {{"res2.skip", 64, 0, 32, 64, {128, 21, 21}, {1, 1, 1}, {1, 2, 2}, {0, 0, 0}}, 1},
        {{"res2.1", 64, 0, 32, 64, {128, 21, 21}, {3, 3, 3}, {1, 2, 2}, {1, 1, 1}}, 1},
        {{"res2.2", 64, 0, 64, 64, {128, 11, 11}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}}, 1},
        {{"res3.skip", 64, 0, 64, 128, {64, 11, 11}, {1, 1, 1}, {1, 2, 2}, {0, 0, 0}}, 1},
        {{"res3.1", 64, 0, 64, 128, {64, 11, 11}, {3, 3, 3}, {1, 2, 2}, {1, 1, 1}}, 1},
        {{"res3.2", 64, 0, 128, 128, {64, 6, 6}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}}, 1},
    };
    const flim_card card = card_here();
    double total[3] = {}, flops = 0.0;
    for (const auto &one : layers)
        for (int op = 0; op < 3; op++) {
            const flim_conv_problem p = problem_of(one.l, op);
            int tiles[FLIM_FP32_TILES];
            const int n = flim_fp32_tiles(&p, &card, tiles);
            const double flop = 2.0 * (double)flim_conv_macs(&p),
                         bytes = 4.0 * (double)(flim_conv_x_elements(&p) + flim_conv_y_elements(&p));
            float best = 0.0f;
            printf("time fp32 %-9s %-15s", one.l.name, op_name[op]);
            for (int i = 0; i < (quick ? 1 : n); i++) {
                fp32_case f(one.l, op, tiles[i], card, false);
                const float ms = median_ms([&] { f.run(); });
                printf("  %s %.3f ms %.1f TFLOP/s", flim_fp32_tile_name(p.op, tiles[i]), ms, flop / ms * 1e-9);
                best = i == 0 || ms < best ? ms : best;
            }
            printf(";  bytes at 2975 GB/s %.3f\n", bytes / 2975e6);
            total[op] += one.times * best;
            flops += one.times * flop;
        }
    printf(
        "time fp32 all: forward %.2f, data gradient %.2f (the stem's is not needed), weight gradient %.2f ms; %.1f TFLOP/s\n",
        total[0], total[1], total[2], flops / (total[0] + total[1] + total[2]) * 1e-9);
}
