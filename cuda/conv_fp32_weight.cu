/* fp32 weight gradients: the sums of each part, then the parts in order.
 *
 * Count for res1 at batch 64 (32x128): 27 taps x 32 channels are 6.75 tiles of 128 columns, so 3.7 % of the products are in vain; 99.9 G
 * multiply-adds = 3.1 ms on 132 multiprocessors at 1.98 GHz; about 150 parts of 110 KB = 17 MB written and read, 0.01 ms. */
#include "conv_fp32_weight.cuh"

namespace flim_fp32
{
namespace
{

enum { MAX_WORKSPACE = 64 << 20, ADD_THREADS = 128 };

template <class Tile> __global__ void __launch_bounds__(Tile::THREADS, Tile::BLOCKS) weight_kernel(const weight_sum w)
{
    __shared__ __align__(16) weight_shared<Tile> s;
    const int tid = threadIdx.x;
    const weight_block b = weight_block_of<Tile>(w, blockIdx.x);
    weight_thread<Tile> me;
    me.describe(w, b, 0, tid, s);
    me.begin(w, b, tid);
    __syncthreads();
    me.load(w, b, 0, tid, s);
    me.store(tid, 0, s);
    __syncthreads();
    for (int step = 0; step < b.steps; step++) {
        const bool more = step + 1 < b.steps;
        if (step * STEP % DESCRIBED == 0) /* the half of the ring that was last read two steps ago */
            me.describe(w, b, step * STEP + DESCRIBED, tid, s);
        if (more)
            me.load(w, b, step + 1, tid, s);
        multiply<Tile>(s.step, step & 1, Tile::first_row(tid), Tile::first_column(tid), me.sum);
        if (more)
            me.store(tid, (step + 1) & 1, s);
        __syncthreads();
    }
    me.write(w, b, tid);
}

__global__ void __launch_bounds__(ADD_THREADS) add_parts(const float4 *parts, int count, int64_t size, float4 *out)
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

int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* Parts with the least estimated clocks: whole rounds of blocks, each position 1/128 clock an output and 60 positions to start and end a
 * block; then the parts written and read at 11 bytes a clock and multiprocessor. */
template <class Tile> int parts_of(const flim_conv_problem *p, int processors)
{
    const int64_t rows = p->n * volume(p->out), size = flim_conv_w_elements(p) * (int64_t)sizeof(float);
    const int64_t tiles = ceil_div(p->k, Tile::ROWS) * ceil_div(volume(p->kernel) * p->c, Tile::COLUMNS);
    const int64_t at_once = (int64_t)processors * Tile::BLOCKS;
    int64_t most = rows / 32;
    most = most > MAX_WORKSPACE / size ? MAX_WORKSPACE / size : most;
    most = most > 4096 ? 4096 : most;
    most = most > INT32_MAX / tiles ? INT32_MAX / tiles : most;
    double least = 0;
    int best = 1;
    for (int parts = 1; parts <= most; parts++) {
        const double round = ((double)rows / parts + 60.0) * Tile::ROWS * Tile::COLUMNS * Tile::BLOCKS / 128.0;
        const double clocks =
            (double)ceil_div(tiles * parts, at_once) * round + (parts > 1 ? 2.0 * parts * (double)size / (11.0 * processors) : 0);
        if (parts == 1 || clocks < least) {
            least = clocks;
            best = parts;
        }
    }
    return best;
}

int parts_of(const flim_conv_problem *p, int tile, int processors)
{
    return tile == 1   ? parts_of<weight_tile_1>(p, processors)
           : tile == 2 ? parts_of<weight_tile_2>(p, processors)
           : tile == 3 ? parts_of<weight_tile_3>(p, processors)
                       : parts_of<weight_tile_4>(p, processors);
}

template <class Tile>
void launch(const flim_conv_problem *p, int64_t n, int parts, const void *x, const void *y, void *out, cudaStream_t stream)
{
    const weight_sum w = make_weight_sum(p, n, parts, Tile::ROWS, Tile::COLUMNS, x, y, out);
    weight_kernel<Tile><<<(unsigned)(w.row_tiles * w.column_tiles * parts), Tile::THREADS, 0, stream>>>(w);
}

} // namespace

int64_t weight_workspace(const flim_conv_problem *p, int tile, int processors)
{
    const int parts = parts_of(p, tile, processors);
    return parts > 1 ? parts * flim_conv_w_elements(p) * (int64_t)sizeof(float) : 0;
}

/* Always the full batch's number of parts, for which there is workspace. */
cudaError_t weight_run(const flim_conv_problem *p, int64_t n, int tile, int processors, const void *x, void *w, const void *y,
                       void *workspace, cudaStream_t stream)
{
    const int parts = parts_of(p, tile, processors);
    void *out = parts > 1 ? workspace : w;
    switch (tile) {
    case 1: launch<weight_tile_1>(p, n, parts, x, y, out, stream); break;
    case 2: launch<weight_tile_2>(p, n, parts, x, y, out, stream); break;
    case 3: launch<weight_tile_3>(p, n, parts, x, y, out, stream); break;
    default: launch<weight_tile_4>(p, n, parts, x, y, out, stream); break;
    }
    const cudaError_t error = cudaGetLastError();
    if (error != cudaSuccess || parts == 1)
        return error;
    const int64_t size = flim_conv_w_elements(p) / 4;
    add_parts<<<(unsigned)ceil_div(size, ADD_THREADS), ADD_THREADS, 0, stream>>>(static_cast<const float4 *>(workspace), parts,
                                                                                 size, static_cast<float4 *>(w));
    return cudaGetLastError();
}

} // namespace flim_fp32
