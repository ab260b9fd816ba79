/* fp32 weight gradients: the sums of each part, then the parts in order.
 *
 * Count for res1 at batch 64 (32x128): 27 taps x 32 channels are 6.75 tiles of 128 columns, so 3.7 % of the products are in
 * vain; 99.9 G multiply-adds = 3.1 ms on 132 multiprocessors at 1.98 GHz; about 150 parts of 110 KB = 17 MB written and read,
 * 0.01 ms. */
#include "cuda/conv/conv_fp32_weight.cuh"

namespace flim_fp32
{
namespace
{

enum { ADD_THREADS = 128 };

template <class Tile> __global__ void __launch_bounds__(Tile::THREADS, Tile::BLOCKS) weight_kernel(const weight_sum w)
{
    __shared__ __align__(16) weight_shared<Tile> s;
    const int tid = threadIdx.x;
    const weight_block b = weight_block_of<Tile>(w, blockIdx.x);
    weight_thread<Tile> me;
    me.describe(w, b, 0, tid, s);
    me.begin(w, b, tid);
    __syncthreads();
    me.load(w, 0, tid, s);
    me.store(tid, 0, s);
    me.load(w, 1, tid, s);
    __syncthreads();
    for (int step = 0; step < b.steps; step++) {
        if (step * STEP % DESCRIBED == 0) /* the half of the ring that was last read three steps ago */
            me.describe(w, b, step * STEP + DESCRIBED, tid, s);
        multiply<Tile>(s.step, step & 1, 0, Tile::first_row(tid), Tile::first_column(tid), me.sum);
        me.store(tid, (step + 1) & 1, s);
        me.load(w, step + 2, tid, s); /* past the last: zeros */
        __syncthreads();
    }
    me.write(w, b, tid);
}

__global__ void __launch_bounds__(ADD_THREADS) add_kernel(const float4 *parts, int count, int64_t size, float4 *out)
{
    const int64_t i = blockIdx.x * (int64_t)ADD_THREADS + threadIdx.x;
    if (i >= size)
        return;
    float4 sum = parts[i];
    for (int p = 1; p < count; p++) {
        const float4 v = parts[p * size + i];
        sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
    }
    out[i] = sum;
}

template <class Tile>
cudaError_t run(const flim_conv_problem *p, int64_t n, int parts, const void *x, const void *w, const void *y,
                cudaStream_t stream)
{
    const weight_sum sum = make_weight_sum(p, n, parts, Tile::ROWS, Tile::COLUMNS, x, y, const_cast<void *>(w));
    weight_kernel<Tile><<<(unsigned)(sum.row_tiles * sum.column_tiles * parts), Tile::THREADS, 0, stream>>>(sum);
    return cudaGetLastError();
}

template <class Tile> constexpr tiling named(const char *name)
{
    return make_tiling<Tile, weight_shared<Tile>>(name, run<Tile>);
}

} // namespace

const tiling *weight_tilings(int *count)
{
    static const tiling tilings[] = {
        named<weight_tile_1>("16x128x8"),  named<weight_tile_2>("32x128x8"),    named<weight_tile_3>("64x128x8"),
        named<weight_tile_4>("128x128x8"), named<weight_tile_5>("64x256x8-16"), named<weight_tile_6>("128x256x8-16"),
        named<weight_tile_7>("32x64x8"),   named<weight_tile_8>("64x64x8"),     named<weight_tile_9>("32x128x8-16")};
    *count = (int)(sizeof tilings / sizeof tilings[0]);
    return tilings;
}

cudaError_t add_parts(const void *parts, int count, int64_t size, void *out, cudaStream_t stream)
{
    add_kernel<<<(unsigned)ceil_div(size / 4, ADD_THREADS), ADD_THREADS, 0, stream>>>(
        static_cast<const float4 *>(parts), count, size / 4, static_cast<float4 *>(out));
    return cudaGetLastError();
}

} // namespace flim_fp32
