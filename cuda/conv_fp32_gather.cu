/* fp32 forward convolutions and data gradients, and what conv_fp32.h offers for all directions.
 *
 * Count for res1 at batch 64 (256x32): 99.9 G multiply-adds = 3.12 G warp instructions, 3.0 ms on 132 multiprocessors at 1.98 GHz.
 * In a step of 8 channels a warp issues 512 of them, 32 loads of fragments, and for 4 + 1/2 float4 about 60 instructions to test,
 * load and store. */
#include "conv_fp32_gather.cuh"

namespace flim_fp32
{
namespace
{

template <class Tile, bool DATA> __global__ void __launch_bounds__(Tile::THREADS, Tile::BLOCKS) gather_kernel(const gather g)
{
    __shared__ __align__(16) gather_shared<Tile> s;
    const int tid = threadIdx.x;
    const gather_block b = gather_block_of<Tile>(g, blockIdx.x);
    if (b.row >= g.part[b.part].rows)
        return;
    gather_thread<Tile, DATA> me;
    me.describe(g, b, tid, s);
    __syncthreads();
    me.begin(g, b, tid, s);
    if (b.steps > 0) {
        me.load(g, b);
        me.store(tid, 0, s);
        __syncthreads();
    }
    for (int step = 0; step < b.steps; step++) {
        const bool more = step + 1 < b.steps;
        if (more)
            me.load(g, b);
        multiply<Tile>(s.step, step & 1, Tile::first_row(tid), Tile::first_column(tid), me.sum);
        if (more)
            me.store(tid, (step + 1) & 1, s);
        __syncthreads();
    }
    me.write(g, b, tid, s);
}

template <class Tile>
cudaError_t launch(const flim_conv_problem *p, int64_t n, const void *x, const void *w, const void *y, cudaStream_t stream)
{
    const gather g = make_gather(p, n, x, w, y, Tile::COLUMNS);
    const unsigned blocks = (unsigned)gather_blocks<Tile>(g);
    if (p->op == FLIM_CONV_DATA)
        gather_kernel<Tile, true><<<blocks, Tile::THREADS, 0, stream>>>(g);
    else
        gather_kernel<Tile, false><<<blocks, Tile::THREADS, 0, stream>>>(g);
    return cudaGetLastError();
}

struct cut {
    const char *name;
    int rows, columns;
};

/* By tile number. */
const cut gather_cuts[] = {{"", 0, 0}, {"256x8", 256, 8}, {"256x16", 256, 16}, {"256x32", 256, 32}, {"128x64", 128, 64},
                           {"128x128", 128, 128}};
const cut weight_cuts[] = {{"", 0, 0}, {"16x128", 16, 128}, {"32x128", 32, 128}, {"64x128", 64, 128}, {"128x128", 128, 128}};

const cut *cuts_of(flim_conv_op op, int *count)
{
    *count = op == FLIM_CONV_WEIGHT ? (int)(sizeof weight_cuts / sizeof weight_cuts[0])
                                    : (int)(sizeof gather_cuts / sizeof gather_cuts[0]);
    return op == FLIM_CONV_WEIGHT ? weight_cuts : gather_cuts;
}

int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

} // namespace
} // namespace flim_fp32

using namespace flim_fp32;

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

const char *flim_fp32_tile_name(flim_conv_op op, int tile)
{
    int count;
    const cut *cuts = cuts_of(op, &count);
    return tile > 0 && tile < count ? cuts[tile].name : nullptr;
}

/* Outputs that a tile computes in vain cost as much as the others; a wider tile reads less.  Few blocks leave processors idle. */
int flim_fp32_tiles(const flim_conv_problem *p, int processors, int tile[FLIM_FP32_TILES])
{
    int count, n = 0;
    const cut *cuts = cuts_of(p->op, &count);
    double cost[FLIM_FP32_TILES + 1], least = 0;
    if (!flim_fp32_supported(p))
        return 0;
    for (int i = 1; i < count; i++) {
        const int64_t taps = volume(p->kernel);
        double work;
        if (p->op == FLIM_CONV_WEIGHT) {
            work = (double)(ceil_div(p->k, cuts[i].rows) * cuts[i].rows) *
                   (double)(ceil_div(taps * p->c, cuts[i].columns) * cuts[i].columns);
        } else {
            const int columns = p->op == FLIM_CONV_DATA ? p->c : p->k;
            const int64_t rows = (p->op == FLIM_CONV_DATA ? flim_conv_x_elements(p) : flim_conv_y_elements(p)) / columns;
            const int64_t blocks = ceil_div(rows, cuts[i].rows) * ceil_div(columns, cuts[i].columns);
            const int64_t at_once = (int64_t)processors * tile_blocks(cuts[i].rows, cuts[i].columns);
            work = (double)(ceil_div(blocks, at_once) * at_once) * cuts[i].rows * cuts[i].columns;
        }
        const int narrow = cuts[i].columns < cuts[i].rows ? cuts[i].columns : cuts[i].rows;
        cost[i] = work * (1.1 + 3.2 / narrow);
        int at = n++;
        for (; at > 0 && cost[tile[at - 1]] > cost[i]; at--)
            tile[at] = tile[at - 1];
        tile[at] = i;
    }
    least = cost[tile[0]];
    while (n > 1 && cost[tile[n - 1]] > 1.5 * least)
        n--;
    return n;
}

int64_t flim_fp32_workspace(const flim_conv_problem *p, int tile, int processors)
{
    return p->op == FLIM_CONV_WEIGHT ? weight_workspace(p, tile, processors) : 0;
}

cudaError_t flim_fp32_run(const flim_conv_problem *p, int64_t n, int tile, int processors, const void *x, const void *w,
                          const void *y, void *workspace, cudaStream_t stream)
{
    if (!flim_fp32_supported(p) || n < 1 || n > p->n || !flim_fp32_tile_name(p->op, tile))
        return cudaErrorInvalidValue;
    if (p->op == FLIM_CONV_WEIGHT)
        return weight_run(p, n, tile, processors, x, const_cast<void *>(w), y, workspace, stream);
    switch (tile) {
    case 1: return launch<gather_tile_1>(p, n, x, w, y, stream);
    case 2: return launch<gather_tile_2>(p, n, x, w, y, stream);
    case 3: return launch<gather_tile_3>(p, n, x, w, y, stream);
    case 4: return launch<gather_tile_4>(p, n, x, w, y, stream);
    default: return launch<gather_tile_5>(p, n, x, w, y, stream);
    }
}
