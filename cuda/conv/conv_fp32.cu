/* What conv_fp32.h offers: which tiles there are for a problem, which is likely best, and how a problem is run. */
#include <cmath>

#include "cuda/conv/conv_fp32.cuh"

using namespace flim_fp32;

namespace
{

enum { MAX_WORKSPACE = 64 << 20, MAX_PARTS = 4096 };

const tiling *tilings_of(flim_conv_op op, int *count)
{
    return op == FLIM_CONV_WEIGHT ? weight_tilings(count) : gather_tilings(count);
}

/* Blocks of a tile on a multiprocessor at once: by registers, and by shared memory, of which each takes 1 KiB more. */
int blocks_of(const tiling &c, const flim_card *card)
{
    const int fit = (card->shared_bytes + 1024) / (c.shared_bytes + 1024);
    return fit < 1 ? 1 : fit < c.blocks ? fit : c.blocks;
}

/* Clocks that a quarter of a multiprocessor needs a product (32 multiply-adds) with all its warps at work.  In a step a warp
 * issues the products, loads of fragments and, for each float4 that it brings in, 13 more (9 for the weight gradient, where a
 * column keeps its tap); all quarters share the passes over shared memory and L1: two a fragment, four to store a float4 a
 * lane, and to load it as many as the rows' 128-byte lines. */
double clocks_of(const tiling &c, flim_conv_op op, const flim_card *card)
{
    const bool weight = op == FLIM_CONV_WEIGHT;
    const double half_rate = card->capability < 86 ? 2.0 : 1.0; /* 16 multipliers a quarter; since 8.6 it is 32 */
    const double products = 64.0 * c.side_rows, fragments = 8.0 * (c.side_rows / 4.0 + 2.0);
    const double loads = 16.0 * c.side_rows / (weight ? c.rows : c.columns), dz_loads = 16.0 * c.side_rows / c.columns;
    const double issued =
        products * half_rate + fragments + loads * (weight ? 9.0 : 13.0) + (weight ? 44.0 + 6.0 * dz_loads : 22.0);
    const double passes = 2.0 * fragments + (weight ? 8.0 * (loads + dz_loads) : loads * (4.0 + 16.0 / c.steps) + 12.0);
    const double few_warps = blocks_of(c, card) * c.threads < 256 ? 1.2 : 1.0;
    return few_warps * std::pow(std::pow(issued, 4.0) + std::pow(4.0 * passes, 4.0), 0.25) / products;
}

/* Parts of the weight gradient with the least estimated clocks: whole rounds of blocks, 60 positions' time to start and end a
 * block, and the parts written and read at 11 bytes a clock and multiprocessor. */
int parts_of(const tiling &c, const flim_conv_problem *p, const flim_card *card, double *clocks)
{
    const int64_t rows = p->n * flim_volume(p->out), size = flim_conv_w_elements(p) * (int64_t)sizeof(float);
    const int64_t tiles = ceil_div(p->k, c.rows) * ceil_div(flim_volume(p->kernel) * p->c, c.columns);
    const int64_t at_once = (int64_t)card->processors * blocks_of(c, card);
    const double position = (double)c.rows * c.columns / 32.0 / 4.0 * blocks_of(c, card) * clocks_of(c, p->op, card);
    int64_t most = rows / 32;
    most = most > MAX_WORKSPACE / size ? MAX_WORKSPACE / size : most;
    most = most > MAX_PARTS ? MAX_PARTS : most;
    most = most > INT32_MAX / tiles ? INT32_MAX / tiles : most;
    int best = 1;
    for (int parts = 1; parts == 1 || parts <= most; parts++) {
        const double rounds = (double)ceil_div(tiles * parts, at_once);
        const double now = rounds * ((double)rows / parts + 60.0) * position +
                           (parts > 1 ? 2.0 * parts * (double)size / (11.0 * card->processors) : 0.0);
        if (parts == 1 || now < *clocks) {
            *clocks = now;
            best = parts;
        }
    }
    return best;
}

/* Whole rounds of blocks; outputs that a tile computes in vain cost as much as the others. */
double gather_clocks(const tiling &c, const flim_conv_problem *p, const flim_card *card)
{
    const bool data = p->op == FLIM_CONV_DATA;
    const int columns = data ? p->c : p->k;
    const int64_t rows = (data ? flim_conv_x_elements(p) : flim_conv_y_elements(p)) / columns;
    const int64_t at_once = (int64_t)card->processors * blocks_of(c, card);
    const int64_t blocks = ceil_div(rows, c.rows) * ceil_div(columns, c.columns);
    const double block = (double)c.rows * c.columns / 32.0 / 4.0 * blocks_of(c, card) * clocks_of(c, p->op, card);
    const double sums = (double)(data ? p->k : p->c) * (double)flim_volume(p->kernel);
    return (double)ceil_div(blocks, at_once) * block * (sums + 16.0);
}

} // namespace

bool flim_fp32_supported(const flim_conv_problem *p)
{
    const int64_t most = (int64_t)INT32_MAX / 2 * 4; /* elements: float4 offsets with room for what a tap adds */
    if (p->type != FLIM_STORAGE_FP32 || p->n < 1 || p->c < 8 || p->k < 8 || p->c % 8 != 0 || p->k % 8 != 0)
        return false;
    int64_t classes = 1;
    for (int d = 0; d < 3; d++) {
        if (p->kernel[d] < 1 || p->kernel[d] > FIELD || p->stride[d] < 1 || p->stride[d] > MAX_CLASSES || p->pad[d] < 0 ||
            p->pad[d] > 1024 || p->in[d] < 1 || p->out[d] < 1)
            return false;
        classes *= p->stride[d];
    }
    return classes <= MAX_CLASSES && flim_conv_x_elements(p) < most && flim_conv_y_elements(p) < most &&
           flim_conv_w_elements(p) < most;
}

bool flim_fp32_tile_fits(const flim_conv_problem *p, int tile)
{
    int count;
    const tiling *tilings = tilings_of(p->op, &count);
    const int summed = p->op == FLIM_CONV_FORWARD ? p->c : p->k;
    return flim_fp32_supported(p) && tile > 0 && tile <= count &&
           (p->op == FLIM_CONV_WEIGHT || summed % (STEP * tilings[tile - 1].steps) == 0);
}

const char *flim_fp32_tile_name(flim_conv_op op, int tile)
{
    int count;
    const tiling *tilings = tilings_of(op, &count);
    return tile > 0 && tile <= count ? tilings[tile - 1].name : nullptr;
}

int flim_fp32_tiles(const flim_conv_problem *p, const flim_card *card, int tile[FLIM_FP32_TILES])
{
    int count, n = 0;
    const tiling *tilings = tilings_of(p->op, &count);
    double cost[FLIM_FP32_TILES + 1];
    for (int i = 1; i <= count && i <= FLIM_FP32_TILES; i++) {
        if (!flim_fp32_tile_fits(p, i))
            continue;
        if (p->op == FLIM_CONV_WEIGHT)
            (void)parts_of(tilings[i - 1], p, card, &cost[i]);
        else
            cost[i] = gather_clocks(tilings[i - 1], p, card);
        int at = n++;
        for (; at > 0 && cost[tile[at - 1]] > cost[i]; at--)
            tile[at] = tile[at - 1];
        tile[at] = i;
    }
    while (n > 1 && cost[tile[n - 1]] > 1.5 * cost[tile[0]])
        n--;
    return n;
}

int64_t flim_fp32_workspace(const flim_conv_problem *p, int tile, const flim_card *card)
{
    if (p->op != FLIM_CONV_WEIGHT)
        return 0;
    int count;
    double clocks;
    const int parts = parts_of(weight_tilings(&count)[tile - 1], p, card, &clocks);
    return parts > 1 ? parts * flim_conv_w_elements(p) * (int64_t)sizeof(float) : 0;
}

cudaError_t flim_fp32_run(const flim_conv_problem *p, int64_t n, int tile, const flim_card *card, const void *x,
                          const void *w, const void *y, void *workspace, cudaStream_t stream)
{
    if (!flim_fp32_tile_fits(p, tile) || n < 1 || n > p->n)
        return cudaErrorInvalidValue;
    int count, parts = 1;
    const tiling &c = tilings_of(p->op, &count)[tile - 1];
    if (p->op == FLIM_CONV_WEIGHT) { /* always the full batch's parts, for which there is workspace */
        double clocks;
        parts = parts_of(c, p, card, &clocks);
    }
    const cudaError_t error = c.run(p, n, parts, x, parts > 1 ? workspace : w, y, stream);
    return error != cudaSuccess || parts == 1
               ? error
               : add_parts(workspace, parts, flim_conv_w_elements(p), const_cast<void *>(w), stream);
}
