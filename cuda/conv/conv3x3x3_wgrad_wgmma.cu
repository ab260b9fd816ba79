/* Weight gradient of 3x3x3 convolutions on Hopper's tensor cores and its copy engine, channels in blocks of 32 or 64.
 *
 *     dW[k][c][dt][dy][dx] = sum over (cell, t, y, x) of dz[t][y][x][k] x[t+dt-1][s y+dy-1][s x+dx-1][c]
 *
 * Both operands of a product come from shared memory as the copy engine (TMA) has written them, position by position: its inner index is
 * 16 positions, its columns are dz at three times (before, of and after x's: the three dt) of a block of channels, its 64 rows are x at
 * a tap in y and x.  Which tap is only a matter of where in x's tile the rows begin.  With blocks of 32 channels two taps make 64 rows,
 * five products hold all 27 taps, and the ninth tap is there twice (10 % of all products); with blocks of 64 channels three products hold
 * the three dx of one dy, and dy is a part of the work as the blocks of channels are.
 *
 * A tile is some rows of one cell, or all rows of several.  dz's positions have x's rows and columns, so that a step in one is a step in
 * the other; what a tile has of neither is zeros, which the copy engine fills in.  Stride 1: one plane of x with a column more, which is
 * zero and serves as the last of its row and the first of the next; or three planes, one for each dx (`dense`), where that gives fewer
 * positions.  Stride 2: a plane for each parity of row and column.
 *
 * A block walks along t: each step brings x at one time and dz at one.  dz lies in a ring whose first two places are there twice: then
 * any three times that follow one another lie one after the other.  Three warpgroups multiply; of the fourth, one thread orders copies,
 * and if the previous unit's activation is to be applied to x on load, three warps do that, ahead of the products.
 *
 * Blocks share all steps of all blocks of channels evenly: a block begins where the one before it ends, in the midst of a pair of channel
 * blocks if need be, and stores its sums for each pair that it has a part of.
 *
 * Count for 16 positions and a time: 5 products of 64 x 96 x 16, 240 clocks, or 3 of 64 x 192 x 16, 288.  res1 of base at batch 64: 24,576
 * steps of 10 such on 132 multiprocessors, 0.26 ms at 1755 MHz.
 *
 * Compiled for sm_90a.
 */
#include "cuda/conv/conv3x3x3_wgrad_wgmma.h"
#include "cuda/conv/conv3x3x3_wgrad_tiles.cuh"
#include "cuda/conv/tensor_map.h"

#ifndef FLIM_WGMMA
#define FLIM_WGMMA 0
#endif

using namespace flim_wgrad_tiles;

namespace
{

struct kernel_arguments {
    const float *scale, *shift;
    float *partial;
    int64_t n;
    int t, h, w, stride, blocks_c;
    int64_t steps; /* for each pair of channel blocks and part of the taps */
    int64_t total; /* all */
    tiling p;
};

/* A walk along t on one tile. */
struct segment {
    int part; /* pair of channel blocks and part of the taps */
    int cell, row; /* of dz, where the tile begins */
    int t0, t1;
    bool last; /* of its part in this block */
};

/* The next walk of what this block has from *at to `end`; false if there is none. */
__device__ __forceinline__ bool next_segment(const kernel_arguments &a, int64_t *at, int64_t end, segment *s)
{
    if (*at >= end)
        return false;
    s->part = (int)(*at / a.steps);
    const int64_t here = *at - s->part * a.steps, part_end = min(end, (s->part + 1) * a.steps);
    const int tile = (int)(here / a.t % a.p.tiles);
    s->cell = (int)(here / a.t / a.p.tiles) * a.p.cells;
    s->row = tile * a.p.rows;
    s->t0 = (int)(here % a.t);
    s->t1 = (int)min((int64_t)a.t, s->t0 + part_end - *at);
    *at += s->t1 - s->t0;
    s->last = *at == part_end;
    return true;
}

/* Addresses in shared memory. */
struct layout {
    uint32_t z, x; /* slices */
    uint32_t z_bytes, x_bytes; /* of one */
    z_barriers z_ring;
    x_barriers x_ring;
};

/* One thread orders all copies of the block. */
template <int BLOCK>
__device__ __forceinline__ void order_copies(const kernel_arguments &a, const layout &at, const CUtensorMap *x_map,
                                             const CUtensorMap *z_map, int64_t from, int64_t end)
{
    using F = form<BLOCK>;
    const tiling &p = a.p;
    const uint32_t z_box = (uint32_t)(p.cells * p.z_rows * p.pitch * F::ROW),
                   x_box = (uint32_t)(p.cells * p.x_rows * p.pitch * F::ROW);
    const int planes = p.row_planes * p.column_planes;
    flim_turn z, x;
    segment s;
    while (next_segment(a, &from, end, &s)) {
        const int pair = s.part / F::PARTS, dy = s.part % F::PARTS;
        const int c0 = pair % a.blocks_c * BLOCK, k0 = pair / a.blocks_c * BLOCK;
        auto copy_z = [&](int t) {
            const bool twice = z.place < 2;
            flim_barrier_wait(at.z_ring.read(z.place), z.parity ^ 1);
            flim_barrier_expect(at.z_ring.there(z.place), twice ? 2 * z_box : z_box);
            const int corner[5] = {k0, 0, s.row, t, s.cell};
            flim_copy_box(at.z + z.place * at.z_bytes, z_map, corner, at.z_ring.there(z.place));
            if (twice)
                flim_copy_box(at.z + (p.z_ring + z.place) * at.z_bytes, z_map, corner, at.z_ring.there(z.place));
            z.step(p.z_ring);
        };
        copy_z(s.t0 - 1);
        copy_z(s.t0);
        for (int t = s.t0; t < s.t1; t++) {
            copy_z(t + 1);
            flim_barrier_wait(at.x_ring.read(x.place), x.parity ^ 1);
            flim_barrier_expect(at.x_ring.there(x.place), planes * x_box);
            for (int i = 0; i < planes; i++) {
                const int row = BLOCK == 64 ? dy : i / p.column_planes;
                const int corner[5] = {c0, i % p.column_planes - 1, a.stride * s.row + row - 1, t, s.cell};
                flim_copy_box(at.x + x.place * at.x_bytes + (uint32_t)(i * p.plane * F::ROW), x_map, corner,
                              at.x_ring.there(x.place));
            }
            x.step(p.x_ring);
        }
    }
}

/* The previous unit's activation on x as it comes, where it is x and not zeros past its edges. */
template <typename T, int BLOCK>
__device__ __forceinline__ void activate(const kernel_arguments &a, const layout &at, char *x_slices, int64_t from,
                                         int64_t end, int thread)
{
    using F = form<BLOCK>;
    using S = flim_slot_share<BLOCK, FLIM_TMA_ACTIVATING>;
    const tiling &p = a.p;
    const int slots = p.row_planes * p.column_planes * p.plane;
    float scale[8], shift[8];
    int folded = -1;
    flim_turn x;
    segment s;
    while (next_segment(a, &from, end, &s)) {
        const int c0 = s.part / F::PARTS % a.blocks_c * BLOCK, dy = BLOCK == 64 ? s.part % F::PARTS : 0;
        if (c0 != folded) {
            S::constants(a.scale + c0, thread, scale);
            S::constants(a.shift + c0, thread, shift);
            folded = c0;
        }
        uint64_t mine = 0;
        for (int i = 0, slot = S::first(thread); slot < slots; i++, slot += S::STEP) {
            const int plane = slot / p.plane, in_plane = slot % p.plane, column = in_plane % p.pitch;
            const int row = in_plane / p.pitch % p.x_rows, cell = in_plane / p.pitch / p.x_rows;
            const int x_at = a.stride * column + plane % p.column_planes - 1;
            const int y_at = a.stride * (s.row + row) + (BLOCK == 64 ? dy : plane / p.column_planes) - 1;
            if (cell < p.cells && s.cell + cell < a.n && (unsigned)x_at < (unsigned)a.w && (unsigned)y_at < (unsigned)a.h)
                mine |= 1ull << i;
        }
        for (int t = s.t0; t < s.t1; t++) {
            flim_barrier_wait(at.x_ring.there(x.place), x.parity);
            S::template activate<T, 10>(x_slices + x.place * at.x_bytes, thread, mine, scale, shift);
            flim_fence_proxy();
            flim_barrier_arrive(at.x_ring.ready(x.place));
            x.step(p.x_ring);
        }
    }
}

/* The products of COUNT sets of rows from `first` on, and their sums into `partial`.  Each step's products end before its slices are
 * given back. */
template <typename T, int BLOCK, bool PROLOGUE, int COUNT>
__device__ __forceinline__ void multiply(const kernel_arguments &a, const layout &at, int first, int64_t from, int64_t end)
{
    using F = form<BLOCK>;
    const tiling &p = a.p;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    uint32_t tap[COUNT], between[COUNT]; /* bytes to the rows' first slot, from one tap of theirs to the other */
#pragma unroll
    for (int r = 0; r < COUNT; r++) {
        const int one = tap_slot<BLOCK>(p, a.stride, BLOCK == 32 ? tap_of(first + r, 0) : first + r);
        const int two = BLOCK == 32 ? tap_slot<BLOCK>(p, a.stride, tap_of(first + r, 1)) : one;
        tap[r] = (uint32_t)(one * F::ROW);
        between[r] = (uint32_t)((two - one) * F::ROW);
    }
    flim_turn z, x;
    segment s;
    int64_t u = from;
    while (u < end) {
        float sum[COUNT][F::SUMS] = {};
        do {
            (void)next_segment(a, &u, end, &s);
            flim_turn ahead = z; /* the latest of the three times */
            flim_barrier_wait(at.z_ring.there(ahead.place), ahead.parity);
            ahead.step(p.z_ring);
            flim_barrier_wait(at.z_ring.there(ahead.place), ahead.parity);
            ahead.step(p.z_ring);
#pragma unroll 1
            for (int t = s.t0; t < s.t1; t++) {
                flim_barrier_wait(at.z_ring.there(ahead.place), ahead.parity);
                flim_barrier_wait(PROLOGUE ? at.x_ring.ready(x.place) : at.x_ring.there(x.place), x.parity);
                uint64_t rows[COUNT], columns = flim_wgmma_rows<F::ROW>(at.z + z.place * at.z_bytes, at.z_bytes);
#pragma unroll
                for (int r = 0; r < COUNT; r++) {
                    rows[r] = flim_wgmma_rows<F::ROW>(at.x + x.place * at.x_bytes + tap[r], between[r]);
                    flim_hold(sum[r]);
                }
                flim_wgmma_fence();
#pragma unroll 1
                for (int i = 0; i < p.inner; i++) {
#pragma unroll
                    for (int r = 0; r < COUNT; r++) {
                        flim_wgmma<T, 1>(sum[r], rows[r], columns);
                        rows[r] += F::ROW; /* 16 slots on, in 16s of bytes */
                    }
                    columns += F::ROW;
                }
                flim_wgmma_commit();
                flim_wgmma_wait<0>(); /* the other warpgroups' keep the tensor cores busy meanwhile */
#pragma unroll
                for (int r = 0; r < COUNT; r++)
                    flim_hold(sum[r]);
                if (lane == 0)
                    flim_barrier_arrive(at.x_ring.read(x.place));
                x.step(p.x_ring);
                for (int i = t + 1 == s.t1 ? 3 : 1; i > 0; i--) {
                    if (lane == 0)
                        flim_barrier_arrive(at.z_ring.read(z.place));
                    z.step(p.z_ring);
                }
                ahead.step(p.z_ring);
            }
        } while (!s.last);
        float *out = a.partial + ((int64_t)blockIdx.x + s.part) * F::PARTIAL + warp * F::SUMS * 32 + lane;
#pragma unroll
        for (int r = 0; r < COUNT; r++)
#pragma unroll
            for (int i = 0; i < F::SUMS; i++)
                out[((first + r) * 4 * F::SUMS + i) * 32] = sum[r][i];
    }
}

/* Steps before block `b`'s of `blocks`. */
__host__ __device__ __forceinline__ int64_t begin_of(int64_t total, int64_t b, int64_t blocks)
{
    return total * b / blocks;
}

template <typename T, int BLOCK, bool PROLOGUE>
__global__ void __launch_bounds__(FLIM_TMA_THREADS, 1)
    wgrad_wgmma(const __grid_constant__ CUtensorMap x_map, const __grid_constant__ CUtensorMap z_map,
                const kernel_arguments a)
{
#if FLIM_HOPPER
    using F = form<BLOCK>;
    extern __shared__ char memory[];
    char *base = flim_tma_memory(memory);
    const tiling &p = a.p;
    layout at;
    at.z_bytes = (uint32_t)(p.z_slots * F::ROW);
    at.x_bytes = (uint32_t)(p.x_slots * F::ROW);
    const int slices = (p.z_ring + 2) * at.z_bytes + p.x_ring * at.x_bytes;
    at.z = flim_shared(base);
    at.x = at.z + (p.z_ring + 2) * at.z_bytes;
    at.z_ring.at = at.z + slices;
    at.x_ring.at = at.z_ring.at + z_barriers::BYTES;
    const int tid = threadIdx.x, group = __shfl_sync(0xffffffffu, tid / GROUP, 0);

    for (int i = tid; i < slices / 16; i += FLIM_TMA_THREADS) /* slots that no copy reaches stay zero */
        reinterpret_cast<uint4 *>(base)[i] = make_uint4(0, 0, 0, 0);
    if (tid == 0) {
        at.z_ring.init();
        at.x_ring.init();
    }
    flim_fence_proxy();
    __syncthreads();

    const int64_t from = begin_of(a.total, blockIdx.x, gridDim.x), end = begin_of(a.total, blockIdx.x + 1, gridDim.x);
    if (group == GROUPS) {
        const int thread = tid - GROUPS * GROUP;
        if (thread == 0)
            order_copies<BLOCK>(a, at, &x_map, &z_map, from, end);
        else if (PROLOGUE && thread >= GROUP - FLIM_TMA_ACTIVATING)
            activate<T, BLOCK>(a, at, base + (at.x - at.z), from, end, thread - (GROUP - FLIM_TMA_ACTIVATING));
    } else if (group * F::R + F::R <= F::SETS) {
        multiply<T, BLOCK, PROLOGUE, F::R>(a, at, group * F::R, from, end);
    } else {
        multiply<T, BLOCK, PROLOGUE, 1>(a, at, group * F::R, from, end);
    }
#else
    __trap();
#endif
}

/* The block that has step `u`. */
__device__ __forceinline__ int block_of(int64_t total, int64_t u, int blocks)
{
    int b = (int)(u * blocks / total);
    while (begin_of(total, b + 1, blocks) <= u)
        b++;
    return b;
}

/* Grid (floats of a warp's lanes, parts), block (32, FLIM_WGRAD_ROWS). */
template <int BLOCK>
__global__ void __launch_bounds__(32 * FLIM_WGRAD_ROWS)
    add_partials(const float *partial, int64_t steps, int64_t total, int blocks, int dw_c, int blocks_c, float *dw,
                 const float *unscale, bool accumulate)
{
    using F = form<BLOCK>;
    const int lane = threadIdx.x, part = blockIdx.y, i = blockIdx.x % F::SUMS, warp = blockIdx.x / F::SUMS % 4;
    const int set = blockIdx.x / F::SUMS / 4, row = warp * 16 + lane / 4 + i % 4 / 2 * 8,
              column = i / 4 * 8 + lane % 4 * 2 + i % 2;
    const int first = block_of(total, part * steps, blocks), last = block_of(total, (part + 1) * steps - 1, blocks);
    float s;
    if (!flim_wgrad_add(partial + ((int64_t)first + part) * F::PARTIAL + (int64_t)blockIdx.x * 32 + lane, F::PARTIAL,
                        last - first + 1, &s))
        return;
    const int space = BLOCK == 32 ? tap_of(set, row / 32) : part % F::PARTS * 3 + set, dt = 2 - column / BLOCK;
    if (BLOCK == 32 && set == F::SETS - 1 && row >= 32)
        return;
    const int pair = part / F::PARTS, k = pair / blocks_c * BLOCK + column % BLOCK, c = pair % blocks_c * BLOCK + row % BLOCK;
    flim_wgrad_give(dw + ((int64_t)k * dw_c + c) * TAPS + dt * SPACE + space, s, unscale, accumulate);
}

cudaError_t map_of(CUtensorMap *map, flim_storage type, const void *at, int channels, const int size[3], int64_t n, int block,
                   const tiling &p, int rows, int stride)
{
    const int64_t sizes[5] = {channels, size[2], size[1], size[0], n};
    const int box[5] = {block, p.pitch, rows, 1, p.cells}, every[5] = {1, stride, stride, 1, 1};
    return flim_tensor_map(map, type, at, sizes, box, every);
}

template <typename T, int BLOCK, bool PROLOGUE>
cudaError_t launch(const CUtensorMap &x, const CUtensorMap &z, const kernel_arguments &a, int blocks, cudaStream_t stream)
{
    const auto kernel = wgrad_wgmma<T, BLOCK, PROLOGUE>;
    const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, a.p.shared_bytes);
    if (error != cudaSuccess)
        return error;
    kernel<<<blocks, FLIM_TMA_THREADS, a.p.shared_bytes, stream>>>(x, z, a);
    return cudaGetLastError();
}

template <typename T, int BLOCK>
cudaError_t run(const flim_conv_problem &here, const flim_conv_arguments *arguments, kernel_arguments &a, int blocks,
                int parts, cudaStream_t stream)
{
    CUtensorMap x, z;
    cudaError_t error = map_of(&x, here.type, arguments->x, here.c, here.in, here.n, BLOCK, a.p, a.p.x_rows, a.stride);
    if (error == cudaSuccess)
        error = map_of(&z, here.type, arguments->y, here.k, here.out, here.n, BLOCK, a.p, a.p.z_rows, 1);
    if (error == cudaSuccess)
        error = a.scale ? launch<T, BLOCK, true>(x, z, a, blocks, stream) : launch<T, BLOCK, false>(x, z, a, blocks, stream);
    if (error != cudaSuccess)
        return error;
    using F = form<BLOCK>;
    add_partials<BLOCK><<<dim3(F::SETS * 4 * F::SUMS, (unsigned)parts), dim3(32, FLIM_WGRAD_ROWS), 0, stream>>>(
        a.partial, a.steps, a.total, blocks, here.in_channels, a.blocks_c, arguments->master, arguments->unscale,
        arguments->accumulate);
    return cudaGetLastError();
}

template <typename T>
cudaError_t run(const flim_conv_problem &here, const flim_conv_arguments *arguments, kernel_arguments &a, int blocks,
                int parts, cudaStream_t stream)
{
    return channel_block(&here) == 64 ? run<T, 64>(here, arguments, a, blocks, parts, stream)
                                      : run<T, 32>(here, arguments, a, blocks, parts, stream);
}

} // namespace

bool flim_wgrad_wgmma_supported(const flim_conv_problem *p, const flim_card *card)
{
    tiling t;
    return FLIM_WGMMA && card->capability == 90 && flim_wgrad_has_form(p) && p->c % 32 == 0 && p->k % 32 == 0 &&
           p->in_channels == p->c && p->out_channels == p->k && parts_of(p) <= 65535 &&
           find_tiling(p, card->shared_bytes, &t);
}

size_t flim_wgrad_wgmma_scratch_bytes(const flim_conv_problem *p)
{
    const int partial = channel_block(p) == 64 ? form<64>::PARTIAL : form<32>::PARTIAL;
    return sizeof(float) * (size_t)partial * (size_t)(FLIM_WGRAD_MOST_BLOCKS + parts_of(p));
}

cudaError_t flim_wgrad_wgmma_run(const flim_conv_problem *problem, const flim_conv_arguments *arguments,
                                 const flim_card *card, cudaStream_t stream)
{
    kernel_arguments a = {};
    flim_conv_problem here = *problem;
    here.n = arguments->n;
    if (!flim_wgrad_wgmma_supported(&here, card) || !find_tiling(&here, card->shared_bytes, &a.p))
        return cudaErrorInvalidValue;
    const int parts = parts_of(&here);
    a.partial = static_cast<float *>(arguments->scratch);
    a.n = here.n;
    a.t = here.in[0], a.h = here.in[1], a.w = here.in[2], a.stride = here.stride[2];
    a.blocks_c = here.c / channel_block(&here);
    if (here.x_form == FLIM_INPUT_NORM_ACT_ON_LOAD) {
        a.scale = arguments->prologue.scale;
        a.shift = arguments->prologue.shift;
    }
    a.steps = (here.n + a.p.cells - 1) / a.p.cells * a.p.tiles * a.t;
    a.total = a.steps * parts;
    const int processors = card->processors < FLIM_WGRAD_MOST_BLOCKS ? card->processors : FLIM_WGRAD_MOST_BLOCKS;
    const int blocks = a.total < processors ? (int)a.total : processors;
    return here.type == FLIM_STORAGE_BF16 ? run<__nv_bfloat16>(here, arguments, a, blocks, parts, stream)
                                          : run<__half>(here, arguments, a, blocks, parts, stream);
}
