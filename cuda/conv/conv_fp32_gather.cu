/* fp32 forward convolutions and data gradients.
 *
 * Count for res1 at batch 64: 99.9 G multiply-adds = 3.12 G warp instructions, 3.0 ms on 132 multiprocessors at 1.98 GHz.  In
 * a step of 8 channels a warp of 256x32x16-16 issues 1024 of them, 48 loads of fragments, and for 8 + 1 float4 about 150
 * instructions to test, load and store: 84 %.  With 64 columns a row's values serve twice as many products: 87 %. */
#include "cuda/conv/conv_fp32_gather.cuh"

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
    me.begin(g, b, tid);
    if (b.stages > 0) {
        for (int part = 0; part < Tile::STEPS; part++) {
            me.load(g, part, tid, s);
            me.store(part, tid, 0, s);
        }
        me.advance(g, b);
        me.load(g, 0, tid, s);
    }
    __syncthreads();
    /* Loads come last: the compiler would move them towards their use, but not past the end of the loop. */
    for (int stage = 0; stage < b.stages; stage++) {
#pragma unroll 1
        for (int step = 0; step < Tile::STEPS; step++) {
            multiply<Tile>(s.stage, stage & 1, step, Tile::first_row(tid), Tile::first_column(tid), me.sum);
            me.store(step, tid, (stage + 1) & 1, s);
            const bool last = step + 1 == Tile::STEPS;
            if (last)
                me.advance(g, b);
            me.load(g, last ? 0 : step + 1, tid, s);
        }
        __syncthreads();
    }
    me.write(g, b, tid, s);
}

template <class Tile>
cudaError_t run(const flim_conv_problem *p, int64_t n, int, const void *x, const void *w, const void *y, cudaStream_t stream)
{
    const gather g = make_gather(p, n, x, w, y, Tile::COLUMNS);
    const unsigned blocks = (unsigned)gather_blocks<Tile>(g);
    if (p->op == FLIM_CONV_DATA)
        gather_kernel<Tile, true><<<blocks, Tile::THREADS, 0, stream>>>(g);
    else
        gather_kernel<Tile, false><<<blocks, Tile::THREADS, 0, stream>>>(g);
    return cudaGetLastError();
}

template <class Tile> constexpr tiling named(const char *name)
{
    return make_tiling<Tile, gather_shared<Tile>>(name, run<Tile>);
}

} // namespace

const tiling *gather_tilings(int *count)
{
    static const tiling tilings[] = {
        named<gather_tile_1>("256x8x8"),       named<gather_tile_2>("256x16x8"),     named<gather_tile_3>("256x32x8"),
        named<gather_tile_4>("128x64x8"),      named<gather_tile_5>("128x128x8"),    named<gather_tile_6>("256x32x16"),
        named<gather_tile_7>("128x64x16"),     named<gather_tile_8>("128x128x16"),   named<gather_tile_9>("256x32x16-16"),
        named<gather_tile_10>("256x64x16-16"), named<gather_tile_11>("256x128x8-16")};
    *count = (int)(sizeof tilings / sizeof tilings[0]);
    return tilings;
}

} // namespace flim_fp32
