/* The 3x3x3 convolution of 16 and 32 channels, and that from 64, on Hopper's tensor cores: conv3x3x3_kernel.cuh's walk with wgmma in the
 * place of mma.sync.
 *
 * Pixels, staging, epilogue and rows of A are those of that kernel: wgmma takes A from registers, 16 rows of each warp, in the
 * layout that ldmatrix gives.  A warpgroup's product is 64 pixels x 16 channels of one tap in y and x, by 3 C columns: the three dt
 * x the output channels, whose sums are those at t - 1, t and t + 1.
 *
 * Warpgroups take turns (or not: the search times both): one alone keeps the tensor cores busy for its 36 products of a slice, while the others store outputs,
 * load and activate.  A slice is passed on by an mbarrier: each thread arrives when it has copied its part of the next slice and
 * no longer reads this one, before it stores its outputs.
 *
 * Count for a slice of 384 pixels: 108 products of 64 x 96 x 16, 48 clocks each at the full rate, 5.2k clocks (mma.sync: 7.8k);
 * shared memory gives 3072 bytes of B and 2048 of A to a product, 40 of those 48 clocks.  With 16 channels it gives 28 for 24.
 *
 * Compiled for sm_90a.
 */
#include "cuda/conv/conv3x3x3_kernel.cuh"
#include "cuda/conv/conv_wgmma.cuh"

namespace flim_conv3x3x3
{

namespace
{

enum {
    GROUP = 128, /* threads of a warpgroup */
    TURN = 1 /* named barriers TURN + warpgroup: its turn */
};

/* What follows from the numbers of input channels, and of output channels that a block does. */
template <int CI, int CO> struct form {
    enum {
        MASTER = CI == CO, /* fp32 parameters and a bias; else weights as stored */
        CM = CI > CO ? CI : CO,
        R = CO == 32 ? 2 : 3, /* 16-pixel tiles a warp: 96 and 72 sums a lane */
        BUFFERS = CO == 32 ? 3 : 2, /* of A: in use, waiting, on its way */
        HALVES = CI / 16, /* 16s of channels */
        STEPS = 9 * HALVES, /* taps in y and x, 16s of channels */
        STEP_BYTES = 3 * CO * 16 * 2, /* of B */
        WEIGHT_BYTES = STEPS * STEP_BYTES,
        BLOCK = CO / 2 /* sums a lane at one t */
    };
};

/* Halfword of weight (input channel k, output channel o, tap): [dy, dx][16s of k][columns / 8][k / 8][column % 8][k % 8]. */
template <int CI, int CO> __device__ __forceinline__ int weight_halfword(int k, int o, int tap)
{
    using F = form<CI, CO>;
    constexpr int LANE = CO / 4;
    const int column = (2 - tap / 9) * CO + o % LANE / 2 * 8 + o / LANE * 2 + o % 2;
    return (tap % 9 * F::HALVES + k / 16) * (F::STEP_BYTES / 2) + column / 8 * 128 + k % 16 / 8 * 64 + column % 8 * 8 + k % 8;
}

/* Grid (share, blocks of output channels).  SUMS: of the output, if a.partial wants them; with an epilogue always. */
template <typename T, int CI, int CO, bool PROLOGUE, bool EPILOGUE, bool SUMS>
__global__ void __launch_bounds__(32 * (CI == 64 ? WARPS_FROM_64 : MOST_WARPS), 1) conv3x3x3_wgmma(const kernel_arguments a)
{
#if FLIM_HOPPER
    using F = form<CI, CO>;
    constexpr int ROW = 2 * CI, CHUNKS = CI / 8, LANE = CO / 4, PAIRS = LANE / 2, R = F::R, BUFFERS = F::BUFFERS,
                  STEPS = F::STEPS, BLOCK = F::BLOCK, CM = F::CM;
    using lane_vector = typename lane_words<PAIRS>::type;
    extern __shared__ __align__(1024) char memory[];
    const tiling &p = a.p;
    const int tid = threadIdx.x, threads = blockDim.x, lane = tid % 32, warp = tid / 32, g = lane / 4, q = lane % 4;
    const int mine = warp / 4, last = p.warps / 4 - 1; /* warpgroups */
    const int hw = a.h * a.w, rows_a_cell = a.h + 2, slice_bytes = p.rows * p.pitch * ROW, entries = p.rows * a.w;

    char *slices = memory + F::WEIGHT_BYTES; /* two */
    load_entry *table = reinterpret_cast<load_entry *>(slices + 2 * slice_bytes);
    float *constants = reinterpret_cast<float *>(table + entries); /* as in conv3x3x3_kernel.cuh */
    const uint32_t slices_shared = flim_shared(slices), weights_shared = flim_shared(memory);
    const uint32_t ready = flim_shared(memory + p.shared_bytes - 16); /* the next slice is there, this one no longer read */

    const int first_out = F::MASTER ? 0 : (int)blockIdx.y * CO, out_channels = F::MASTER ? CO : a.out_channels;

    const float weight_scale = a.weight_scale ? *a.weight_scale : 1.0f;
#pragma unroll 8
    for (int i = tid; i < CI * CO * TAPS; i += threads) {
        if (F::MASTER) { /* (K,C,27) */
            const int o = i / (CI * TAPS), c = i / TAPS % CI, tap = i % TAPS;
            reinterpret_cast<T *>(
                memory)[a.flip ? weight_halfword<CI, CO>(o, c, TAPS - 1 - tap) : weight_halfword<CI, CO>(c, o, tap)] =
                (T)(a.weight[i] * weight_scale);
        } else if (a.flip) { /* (K,27,C) */
            const int o = i % CO, tap = i / CO % TAPS, k = i / (CO * TAPS);
            reinterpret_cast<T *>(memory)[weight_halfword<CI, CO>(k, o, TAPS - 1 - tap)] =
                static_cast<const T *>(a.plain_weight)[((int64_t)k * TAPS + tap) * out_channels + first_out + o];
        } else {
            const int c = i % CI, tap = i / CI % TAPS, o = i / (CI * TAPS);
            reinterpret_cast<T *>(memory)[weight_halfword<CI, CO>(c, o, tap)] =
                static_cast<const T *>(a.plain_weight)[((int64_t)(first_out + o) * TAPS + tap) * CI + c];
        }
    }
    flim_fence_proxy();
    fill_constants<CI, CO, CM, PROLOGUE, EPILOGUE>(a, weight_scale, first_out, constants);
    if (tid == 0)
        flim_barrier_init(ready, threads);
    if (p.turns && mine == last)
        flim_barrier_pass(TURN, 2 * GROUP);
    int parity = 0;

    const int64_t total = (int64_t)p.groups * a.t;
    const int64_t end = total * (blockIdx.x + 1) / gridDim.x;
    float sum[LANE] = {}, product[LANE] = {};
    const float add_by = EPILOGUE && a.epilogue.add_scale ? *a.epilogue.add_scale : 1.0f;
    for (int64_t u = total * blockIdx.x / gridDim.x; u < end;) {
        const int group = (int)(u / a.t), t0 = (int)(u % a.t), t1 = (int)min((int64_t)a.t, t0 + end - u);
        u += t1 - t0;

        /* The group's rows: conv3x3x3_kernel.cuh. */
        const int64_t pixel0 = (int64_t)group * p.group;
        const int first_cell = (int)(pixel0 / hw), y0 = (int)(pixel0 % hw) / a.w;
        const int64_t last_pixel = min(pixel0 + p.group, a.pixels) - 1;
        const int last_cell = (int)(last_pixel / hw);
        const int last_row = (last_cell - first_cell) * rows_a_cell + (int)(last_pixel % hw) / a.w + 2 - y0;
        __syncthreads();
        for (int i = tid; i < 2 * slice_bytes / 16; i += threads)
            reinterpret_cast<uint4 *>(slices)[i] = make_uint4(0, 0, 0, 0);
        for (int i = tid; i < entries; i += threads) {
            const int s = i / a.w, x = i % a.w, cell = (s + y0) / rows_a_cell, y = (s + y0) % rows_a_cell - 1;
            const bool there = s <= last_row && y >= 0 && y < a.h;
            table[i].pixel = there ? ((first_cell + cell) * a.t * a.h + y) * a.w + x : -1;
            table[i].slot = s * p.pitch + x + 1;
        }
        __syncthreads();

        /* This lane's rows of A (its tap 0,0), and of the output. */
        int slot[R], pixel[R][2];
#pragma unroll
        for (int r = 0; r < R; r++) {
            const int64_t tile = pixel0 + (warp * R + r) * 16;
            const int64_t at = min(tile + lane % 16, a.pixels - 1);
            const int cell = (int)(at / hw), rest = (int)(at % hw);
            slot[r] = ((cell - first_cell) * rows_a_cell + rest / a.w - y0) * p.pitch + rest % a.w;
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const int64_t to = tile + g + 8 * i;
                const int to_cell = (int)(to / hw);
                pixel[r][i] = to < a.pixels ? to_cell * a.t * hw + (int)(to % hw) : -1;
            }
        }

        const int a_round = threads / CHUNKS;
        auto load = [&](int t) {
            if ((unsigned)t < (unsigned)a.t && t <= t1) {
                const T *x = static_cast<const T *>(a.x) + (int64_t)t * hw * CI + 8 * (tid % CHUNKS);
                const uint32_t slice = slices_shared + (uint32_t)((t & 1) * slice_bytes);
                for (int i = tid / CHUNKS; i < entries; i += a_round) {
                    const load_entry e = table[i];
                    if (e.pixel >= 0)
                        flim_copy_async(slice + slot_offset<CI>(e.slot, tid % CHUNKS), x + (int64_t)e.pixel * CI, true);
                }
            }
            flim_copy_commit();
        };
        /* What this thread has loaded of slice t has come; with the previous unit's activation on it. */
        auto complete_slice = [&](int t) {
            flim_copy_wait<0>();
            if (!PROLOGUE || (unsigned)t >= (unsigned)a.t || t > t1)
                return;
            const int channel = 8 * (tid % CHUNKS);
            for (int i = tid / CHUNKS; i < entries; i += a_round) {
                const load_entry e = table[i];
                if (e.pixel < 0)
                    continue;
                flim_activate_chunk<T>(slices + (t & 1) * slice_bytes + slot_offset<CI>(e.slot, tid % CHUNKS),
                                       constants + CM + channel, constants + 2 * CM + channel);
            }
        };

        float out[R][3 * BLOCK] = {}; /* [BLOCK j + 4 tile + i]: at t - 1, t, t + 1 */
        load(t0 - 1);
        complete_slice(t0 - 1);
        flim_barrier_arrive(ready);
#pragma unroll 1
        for (int t = t0 - 1; t <= t1; t++) {
            const bool exists = (unsigned)t < (unsigned)a.t;
            flim_barrier_wait(ready, parity);
            parity ^= 1;
            load(t + 1);
            if (EPILOGUE && t > t0 && q == 0) {
                const int64_t offset = (int64_t)(t - 1) * hw;
#pragma unroll
                for (int r = 0; r < R; r++)
#pragma unroll
                    for (int i = 0; i < 2; i++)
                        if (pixel[r][i] >= 0)
                            prefetch_operands(a.epilogue, (pixel[r][i] + offset) * 2 * CO);
            }
            /* The first warpgroup's turn is now, the others have time before theirs. */
            const bool before = PROLOGUE && mine > 0;
            if (before)
                complete_slice(t + 1);
            if (exists) {
                const uint32_t slice = slices_shared + (uint32_t)((t & 1) * slice_bytes);
                const uint64_t b = flim_wgmma_descriptor(weights_shared, 128, 256);
                uint32_t x[BUFFERS][R][4];
                auto fetch = [&](int step) {
#pragma unroll
                    for (int r = 0; r < R; r++)
                        flim_ldmatrix(
                            x[step % BUFFERS][r],
                            (slice +
                             slot_offset<CI>(slot[r] + step / F::HALVES / 3 * p.pitch + step / F::HALVES % 3, lane / 16)) ^
                                (uint32_t)(step % F::HALVES * 32));
                };
#pragma unroll
                for (int step = 0; step < BUFFERS - 1; step++)
                    fetch(step);
                if (p.turns)
                    flim_barrier(TURN + mine, 2 * GROUP);
#pragma unroll
                for (int r = 0; r < R; r++)
                    flim_hold(out[r]); /* their moves stand before the fence */
#pragma unroll
                for (int step = 0; step < STEPS; step++) {
                    flim_wgmma_fence();
#pragma unroll
                    for (int r = 0; r < R; r++)
                        flim_wgmma<T>(out[r], x[step % BUFFERS][r], b + step * (F::STEP_BYTES / 16));
                    flim_wgmma_commit();
                    flim_wgmma_wait<1>(); /* the step before this has ended */
#pragma unroll
                    for (int r = 0; step > 0 && r < R; r++)
                        flim_hold(x[(step + BUFFERS - 1) % BUFFERS][r]);
                    if (step + BUFFERS - 1 < STEPS)
                        fetch(step + BUFFERS - 1);
                }
                if (p.turns)
                    flim_barrier_pass(TURN + (mine == last ? 0 : mine + 1), 2 * GROUP);
                flim_wgmma_wait<0>();
#pragma unroll
                for (int r = 0; r < R; r++) {
                    flim_hold(x[(STEPS - 1) % BUFFERS][r]);
                    flim_hold(out[r]);
                }
            }
            if (!before)
                complete_slice(t + 1);
            if (t < t1)
                flim_barrier_arrive(ready);

            if (t > t0) {
                const int64_t offset = (int64_t)(t - 1) * hw;
                lane_vector z4[2][2], d4[2][2]; /* for r and r + 1: loads stand before the stores, which might alias */
                auto fetch = [&](int r) {
#pragma unroll
                    for (int i = 0; i < 2; i++) {
                        const int64_t from = (pixel[r][i] + offset) * CO + LANE * q;
                        z4[r % 2][i] = d4[r % 2][i] = lane_vector{};
                        if (pixel[r][i] >= 0) {
                            z4[r % 2][i] =
                                *reinterpret_cast<const lane_vector *>(static_cast<const T *>(a.epilogue.z) + from);
                            if (a.epilogue.add)
                                d4[r % 2][i] =
                                    *reinterpret_cast<const lane_vector *>(static_cast<const T *>(a.epilogue.add) + from);
                        }
                    }
                };
                if (EPILOGUE)
                    fetch(0);
#pragma unroll
                for (int r = 0; r < R; r++) {
                    if (EPILOGUE && r + 1 < R)
                        fetch(r + 1);
#pragma unroll
                    for (int i = 0; i < 2; i++) {
                        if (pixel[r][i] < 0)
                            continue;
                        const int64_t at = (pixel[r][i] + offset) * out_channels + first_out + LANE * q;
                        lane_vector packed;
                        uint32_t *word = reinterpret_cast<uint32_t *>(&packed);
                        const uint32_t *zw = reinterpret_cast<const uint32_t *>(&z4[r % 2][i]),
                                       *dw = reinterpret_cast<const uint32_t *>(&d4[r % 2][i]);
#pragma unroll
                        for (int k = 0; k < PAIRS; k++) {
                            const float first = out[r][4 * k + 2 * i], second = out[r][4 * k + 2 * i + 1];
                            if (EPILOGUE)
                                word[k] = pair_of_gradient<T, CM>(constants, PAIRS * q + k, first, second, zw[k], dw[k],
                                                                  add_by, sum + 2 * k, product + 2 * k);
                            else if (SUMS)
                                word[k] = pair_of_output<T, CM>(constants, PAIRS * q + k, first, second, sum + 2 * k,
                                                                product + 2 * k);
                            else
                                word[k] = flim_pack<T>(first, second);
                        }
                        *reinterpret_cast<lane_vector *>(static_cast<T *>(a.out) + at) = packed;
                    }
                }
            }
#pragma unroll
            for (int r = 0; r < R; r++)
#pragma unroll
                for (int i = 0; i < 3 * BLOCK; i++)
                    out[r][i] = i < 2 * BLOCK ? out[r][i + BLOCK] : 0.0f;
        }
    }
    if (p.turns && mine == 0)
        flim_barrier(TURN, 2 * GROUP); /* the turn that nobody takes */

    if ((SUMS || EPILOGUE) && a.partial)
        give_sums<CO>(sum, product, p.warps, reinterpret_cast<float *>(slices),
                      a.partial + (int64_t)blockIdx.y * gridDim.x * 2 * CO);
#else
    __trap();
#endif
}

template <typename T, int CI, int CO, bool PROLOGUE, bool EPILOGUE, bool SUMS>
cudaError_t start_kernel(const kernel_arguments &a, dim3 grid, cudaStream_t stream)
{
    const auto kernel = conv3x3x3_wgmma<T, CI, CO, PROLOGUE, EPILOGUE, SUMS>;
    const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, a.p.shared_bytes);
    if (error != cudaSuccess)
        return error;
    kernel<<<grid, 32 * a.p.warps, a.p.shared_bytes, stream>>>(a);
    return cudaGetLastError();
}

template <typename T, int CI, int CO>
cudaError_t start_form(const kernel_arguments &a, const flim_conv_problem *s, dim3 grid, double *sums, cudaStream_t stream)
{
    constexpr bool MASTER = form<CI, CO>::MASTER;
    cudaError_t error;
    if (MASTER && s->epilogue)
        error = start_kernel<T, CI, CO, false, MASTER, true>(a, grid, stream);
    else if (MASTER && s->x_form == FLIM_INPUT_NORM_ACT_ON_LOAD)
        error = start_kernel<T, CI, CO, MASTER, false, true>(a, grid, stream);
    else if (MASTER || s->sums)
        error = start_kernel<T, CI, CO, false, false, true>(a, grid, stream);
    else
        error = start_kernel<T, CI, CO, false, false, MASTER>(a, grid, stream);
    if (error != cudaSuccess || !sums)
        return error;
    add_sums<SUMS_THREADS><<<dim3(2 * CO, grid.y), SUMS_THREADS, 0, stream>>>(a.partial, (int)grid.x, sums);
    return cudaGetLastError();
}

int share_of(const kernel_arguments &a, int blocks)
{
    const int64_t slices = (int64_t)a.p.groups * a.t;
    const int grid = blocks < MAX_BLOCKS ? blocks : MAX_BLOCKS;
    return slices < grid ? (int)slices : grid;
}

} // namespace

cudaError_t start_wgmma(const kernel_arguments &a, const flim_conv_problem *s, int processors, double *sums,
                        cudaStream_t stream)
{
    const dim3 grid((unsigned)share_of(a, processors));
    if (s->type == FLIM_STORAGE_BF16)
        return s->c == 16 ? start_form<__nv_bfloat16, 16, 16>(a, s, grid, sums, stream)
                          : start_form<__nv_bfloat16, 32, 32>(a, s, grid, sums, stream);
    return s->c == 16 ? start_form<__half, 16, 16>(a, s, grid, sums, stream)
                      : start_form<__half, 32, 32>(a, s, grid, sums, stream);
}

cudaError_t start_wgmma_from_64(const kernel_arguments &a, const flim_conv_problem *s, int processors, double *sums,
                                cudaStream_t stream)
{
    const int parts = a.out_channels / 32;
    const dim3 grid((unsigned)share_of(a, processors / parts > 0 ? processors / parts : 1), (unsigned)parts);
    return s->type == FLIM_STORAGE_BF16 ? start_form<__nv_bfloat16, 64, 32>(a, s, grid, sums, stream)
                                        : start_form<__half, 64, 32>(a, s, grid, sums, stream);
}

} // namespace flim_conv3x3x3
