/* The 3x3x3 convolution of 16 and 32 channels, and that from 64, on Hopper's tensor cores and its copy engine: conv3x3x3_kernel.cuh's walk
 * along t with both operands of a product in shared memory.
 *
 * The rows of all cells lie one below the other with a row of zeros between two cells, and each row has a zero on its left, which is also
 * the right border of the row before it: so a tap in y and x is a constant number of slots away, for all positions alike, and the rows of
 * a product (64 slots that follow one another) begin so many slots further on.  A block takes as many whole rows as three warpgroups'
 * tiles have slots; what they compute for zeros is dropped (base: 11 % of all products).  Slices come by the copy engine, row by row, into
 * a ring; it writes the zeros.  The columns of a product are the three dt x the output channels, whose sums at t - 1, t and t + 1 stay in
 * registers.
 *
 * Three warpgroups multiply and store, by turns or not (the search times both); of the fourth, one thread orders copies and three
 * warps apply the previous unit's activation to a slice that has come.
 *
 * Count for a slice of 384 slots and 32 channels: 108 products of 64 x 96 x 16, 48 clocks each, 5.2k clocks; shared memory gives 3072
 * bytes of B and 2048 of A to a product, 40 of those 48 clocks.
 *
 * Compiled for sm_90a.
 */
#include "cuda/conv/conv3x3x3_plan.cuh"
#include "cuda/conv/tensor_map.h"

namespace flim_conv3x3x3
{

namespace
{

/* Registers of a thread that multiplies, and of the others: together a multiprocessor's 65,536. */
template <bool ACTIVATES> constexpr int registers = ACTIVATES ? 144 : 160;
template <bool ACTIVATES> constexpr int others = 65536 / GROUP - GROUPS *registers<ACTIVATES>;

/* Halfword of weight (input channel k, output channel o, tap): [dy, dx][16s of k][columns / 8][k / 8][column % 8][k % 8]. */
template <int CI, int CO> __device__ __forceinline__ int weight_halfword(int k, int o, int tap)
{
    using F = form<CI, CO>;
    constexpr int LANE = CO / 4;
    const int column = (2 - tap / 9) * CO + o % LANE / 2 * 8 + o / LANE * 2 + o % 2;
    return (tap % 9 * F::HALVES + k / 16) * (F::STEP_BYTES / 2) + column / 8 * 128 + k % 16 / 8 * 64 + column % 8 * 8 + k % 8;
}

/* The weights as operand B, by the threads that multiply, eight input channels at once; output channels from `first` on. */
template <typename T, int CI, int CO>
__device__ __forceinline__ void fill_weights(const kernel_arguments &a, float weight_scale, int first, T *weights)
{
    constexpr int EIGHTS = CI / 8;
    const T *const plain = static_cast<const T *>(a.plain_weight);
#pragma unroll 2
    for (int i = threadIdx.x; i < EIGHTS * CO * TAPS; i += GROUPS * GROUP) {
        int k8, o, tap;
        alignas(16) T value[8];
        if (form<CI, CO>::MASTER) { /* (K,C,27) */
            tap = i % TAPS, o = i / TAPS % CO, k8 = i / (TAPS * CO);
            const float *from =
                a.weight + (a.flip ? (k8 * 8 * CO + o) * TAPS + TAPS - 1 - tap : (o * CI + k8 * 8) * TAPS + tap);
#pragma unroll
            for (int j = 0; j < 8; j++)
                value[j] = (T)(from[j * (a.flip ? CO : 1) * TAPS] * weight_scale);
        } else if (a.flip) { /* (K,27,C) */
            o = i % CO, k8 = i / CO % EIGHTS, tap = i / (CO * EIGHTS);
#pragma unroll
            for (int j = 0; j < 8; j++)
                value[j] = plain[((int64_t)(k8 * 8 + j) * TAPS + TAPS - 1 - tap) * a.out_channels + first + o];
        } else {
            k8 = i % EIGHTS, tap = i / EIGHTS % TAPS, o = i / (EIGHTS * TAPS);
            *reinterpret_cast<uint4 *>(value) =
                *reinterpret_cast<const uint4 *>(plain + ((int64_t)(first + o) * TAPS + tap) * CI + k8 * 8);
        }
        *reinterpret_cast<uint4 *>(weights + weight_halfword<CI, CO>(k8 * 8, o, tap)) =
            *reinterpret_cast<const uint4 *>(value);
    }
}

/* Where all is in shared memory. */
struct layout {
    uint32_t weights, slices, slice_bytes;
    ring_barriers ring;
};

/* A walk along t on one piece of the column: outputs at t0 .. t1 - 1, slices from one before to one after, if there are such. */
struct segment {
    int unit, t0, t1;
    int first, last; /* slices */
};

__device__ __forceinline__ bool next_segment(const kernel_arguments &a, int64_t *at, int64_t end, segment *s)
{
    if (*at >= end)
        return false;
    s->unit = (int)(*at / a.t);
    s->t0 = (int)(*at % a.t);
    s->t1 = (int)min((int64_t)a.t, s->t0 + end - *at);
    s->first = max(s->t0 - 1, 0);
    s->last = min(s->t1, a.t - 1);
    *at += s->t1 - s->t0;
    return true;
}

template <int CI>
__device__ __forceinline__ void order_copies(const kernel_arguments &a, const plan &p, const layout &at,
                                             const CUtensorMap *map, int64_t from, int64_t end)
{
    const uint32_t row_bytes = (uint32_t)(p.pitch * 2 * CI);
    flim_turn x;
    segment s;
    while (next_segment(a, &from, end, &s)) {
        const place top = place_of(p, s.unit * p.rows - 1);
        for (int t = s.first; t <= s.last; t++) {
            flim_barrier_wait(at.ring.read(x.place), x.parity ^ 1);
            flim_barrier_expect(at.ring.there(x.place), (uint32_t)(p.rows + 2) * row_bytes);
            int corner[5] = {0, -1, top.y, t, top.cell};
            for (int row = 0; row < p.rows + 2; row++) {
                flim_copy_box(at.slices + x.place * at.slice_bytes + row * row_bytes, map, corner, at.ring.there(x.place));
                if (++corner[2] == a.h) {
                    corner[2] = -1;
                    corner[4]++;
                }
            }
            x.step(p.ring);
        }
    }
}

template <typename T, int CI>
__device__ __forceinline__ void activate(const kernel_arguments &a, const plan &p, const layout &at, char *slices,
                                         int64_t from, int64_t end, int thread)
{
    using S = flim_slot_share<CI, FLIM_TMA_ACTIVATING>;
    float scale[8], shift[8];
    S::constants(a.prologue.scale, thread, scale);
    S::constants(a.prologue.shift, thread, shift);
    flim_turn x;
    segment s;
    while (next_segment(a, &from, end, &s)) {
        uint64_t mine = 0;
        for (int i = 0, slot = S::first(thread); slot < (p.rows + 2) * p.pitch; i++, slot += S::STEP) {
            const place here = place_of(p, s.unit * p.rows - 1 + slot / p.pitch);
            const int column = slot % p.pitch - 1;
            if (here.y >= 0 && here.cell >= 0 && here.cell < p.n && column >= 0 && column < a.w)
                mine |= 1ull << i;
        }
        for (int t = s.first; t <= s.last; t++) {
            flim_barrier_wait(at.ring.there(x.place), x.parity);
            S::template activate<T, 6>(slices + x.place * at.slice_bytes, thread, mine, scale, shift);
            flim_fence_proxy();
            flim_barrier_arrive(at.ring.ready(x.place));
            x.step(p.ring);
        }
    }
}

/* Products and outputs of warpgroup `group`.  SUMS: of the output, if a.partial wants them; with an epilogue always. */
template <typename T, int CI, int CO, bool PROLOGUE, bool EPILOGUE, bool ADD, bool SUMS>
__device__ __forceinline__ void multiply(const kernel_arguments &a, const plan &p, const layout &at, const float *constants,
                                         float *free, int group, int64_t from, int64_t end)
{
    using F = form<CI, CO>;
    constexpr int LANE = CO / 4, PAIRS = LANE / 2, R = F::R, BLOCK = F::BLOCK, CM = F::CM, ROW = F::ROW;
    constexpr bool TWO = !PROLOGUE; /* one load brings two pairs' constants: with a prologue registers lack */
    using lane_vector = typename lane_words<PAIRS>::type;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, g = lane / 4, q = lane % 4, hw = a.h * a.w;
    const int first_out = F::MASTER ? 0 : (int)blockIdx.y * CO, out_channels = F::MASTER ? CO : a.out_channels;
    const float add_by = ADD && a.epilogue.add_scale ? *a.epilogue.add_scale : 1.0f;
    if (p.turns && group == GROUPS - 1)
        flim_barrier_pass(TURN, 2 * GROUP);
    float sum[LANE] = {}, product[LANE] = {};
    flim_turn x;
    segment s;
    while (next_segment(a, &from, end, &s)) {
        /* Pixels of this lane's outputs at t = 0. */
        int pixel[R][2];
#pragma unroll
        for (int r = 0; r < R; r++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const int slot = (group * R + r) * 64 + warp * 16 + g + 8 * i, row = slot / p.pitch, column = slot % p.pitch;
                const place to = place_of(p, s.unit * p.rows + row);
                const bool there = row < p.rows && column < a.w && to.y >= 0 && to.cell < p.n;
                pixel[r][i] = there ? (to.cell * a.t * a.h + to.y) * a.w + column : -1;
            }
        float out[R][3 * BLOCK] = {}; /* [BLOCK j + 4 tile + i]: at t - 1, t, t + 1 */
#pragma unroll 1
        for (int t = s.t0 - 1; t <= s.t1; t++) {
            if (t >= s.first && t <= s.last) {
                flim_barrier_wait(PROLOGUE ? at.ring.ready(x.place) : at.ring.there(x.place), x.parity);
                uint64_t rows[R], b = flim_wgmma_descriptor(at.weights, 128, 256);
#pragma unroll
                for (int r = 0; r < R; r++)
                    rows[r] = flim_wgmma_rows<ROW>(
                        at.slices + x.place * at.slice_bytes + (uint32_t)((group * R + r) * 64 * ROW), 16);
                if (p.turns)
                    flim_barrier(TURN + group, 2 * GROUP);
#pragma unroll
                for (int r = 0; r < R; r++)
                    flim_hold(out[r]); /* their moves stand before the fence */
                flim_wgmma_fence();
#pragma unroll 1
                for (int dy = 0; dy < 3; dy++) {
#pragma unroll
                    for (int step = 0; step < 3 * F::HALVES; step++)
#pragma unroll
                        for (int r = 0; r < R; r++)
                            flim_wgmma<T, 0>(out[r], rows[r] + (step / F::HALVES * ROW + step % F::HALVES * 32) / 16,
                                             b + step * (F::STEP_BYTES / 16));
                    b += 3 * F::HALVES * (F::STEP_BYTES / 16);
#pragma unroll
                    for (int r = 0; r < R; r++)
                        rows[r] += p.pitch * ROW / 16;
                }
                flim_wgmma_commit();
                if (p.turns)
                    flim_barrier_pass(TURN + (group == GROUPS - 1 ? 0 : group + 1), 2 * GROUP);
                if (EPILOGUE && t > s.t0 && q == 0) {
                    const int64_t offset = (int64_t)(t - 1) * hw;
#pragma unroll
                    for (int r = 0; r < R; r++)
#pragma unroll
                        for (int i = 0; i < 2; i++)
                            if (pixel[r][i] >= 0)
                                prefetch_operands(a.epilogue, ((pixel[r][i] + offset) * out_channels + first_out) * 2);
                }
                flim_wgmma_wait<0>();
#pragma unroll
                for (int r = 0; r < R; r++)
                    flim_hold(out[r]);
                if (lane == 0)
                    flim_barrier_arrive(at.ring.read(x.place));
                x.step(p.ring);
            }
            if (t > s.t0) {
                const int64_t offset = (int64_t)(t - 1) * hw;
                lane_vector z4[2][2], d4[2][2]; /* for r and r + 1: loads stand before the stores, which might alias */
                auto fetch = [&](int r) {
#pragma unroll
                    for (int i = 0; i < 2; i++) {
                        const int64_t source = (pixel[r][i] + offset) * out_channels + first_out + LANE * q;
                        if (ADD) /* without it, constants of the loop are spilled */
                            z4[r % 2][i] = d4[r % 2][i] = lane_vector{};
                        if (pixel[r][i] >= 0) {
                            z4[r % 2][i] =
                                *reinterpret_cast<const lane_vector *>(static_cast<const T *>(a.epilogue.z) + source);
                            if (ADD)
                                d4[r % 2][i] =
                                    *reinterpret_cast<const lane_vector *>(static_cast<const T *>(a.epilogue.add) + source);
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
                        const int64_t to = (pixel[r][i] + offset) * out_channels + first_out + LANE * q;
                        lane_vector packed;
                        uint32_t *word = reinterpret_cast<uint32_t *>(&packed);
                        const uint32_t *zw = reinterpret_cast<const uint32_t *>(&z4[r % 2][i]),
                                       *dw = reinterpret_cast<const uint32_t *>(&d4[r % 2][i]);
                        float4 two[3] = {};
#pragma unroll
                        for (int k = 0; k < PAIRS; k++) {
                            const int at_pair = PAIRS * q + k;
                            float2 c[3];
#pragma unroll
                            for (int j = 0; j < (EPILOGUE ? 3 : SUMS ? 2 : 0); j++) {
                                const int which = EPILOGUE ? 3 + j : j * CONSTANTS;
                                if (!TWO)
                                    c[j] = constants_of<CM, float2>(constants, which, at_pair);
                                else if (k % 2 == 0)
                                    two[j] = constants_of<CM, float4>(constants, which, at_pair / 2);
                                if (TWO)
                                    c[j] = k % 2 == 0 ? make_float2(two[j].x, two[j].y) : make_float2(two[j].z, two[j].w);
                            }
                            const float first = out[r][4 * k + 2 * i], second = out[r][4 * k + 2 * i + 1];
                            if (EPILOGUE)
                                word[k] = pair_of_gradient<T, ADD>({c[0], c[1], c[2]}, first, second, zw[k], dw[k], add_by,
                                                                   sum + 2 * k, product + 2 * k);
                            else if (SUMS)
                                word[k] = pair_of_output<T>(c[0], c[1], first, second, sum + 2 * k, product + 2 * k);
                            else
                                word[k] = flim_pack<T>(first, second);
                        }
                        *reinterpret_cast<lane_vector *>(static_cast<T *>(a.out) + to) = packed;
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
    if (p.turns && group == 0)
        flim_barrier(TURN, 2 * GROUP); /* the turn that nobody takes */
    if ((SUMS || EPILOGUE) && a.partial)
        give_sums<CO>(sum, product, GROUPS * 4, free, a.partial + (int64_t)blockIdx.y * gridDim.x * 2 * CO,
                      [] { flim_barrier(MULTIPLYING, GROUPS * GROUP); });
}

/* Grid (share, blocks of output channels). */
template <typename T, int CI, int CO, bool PROLOGUE, bool EPILOGUE, bool ADD, bool SUMS>
__global__ void __launch_bounds__(FLIM_TMA_THREADS, 1)
    conv3x3x3_wgmma(const __grid_constant__ CUtensorMap map, const kernel_arguments a, const plan p)
{
#if FLIM_HOPPER
    using F = form<CI, CO>;
    extern __shared__ char memory[];
    char *base = flim_tma_memory(memory);
    layout at;
    at.slice_bytes = (uint32_t)(p.slots * F::ROW);
    char *slices = base + F::WEIGHT_BYTES;
    float *constants = reinterpret_cast<float *>(slices + p.ring * at.slice_bytes);
    at.weights = flim_shared(base);
    at.slices = flim_shared(slices);
    at.ring.at = flim_shared(constants) + F::CONSTANT_BYTES;
    const int tid = threadIdx.x, group = __shfl_sync(0xffffffffu, tid / GROUP, 0);
    const int first_out = F::MASTER ? 0 : (int)blockIdx.y * CO;
    const float weight_scale = a.weight_scale ? *a.weight_scale : 1.0f;

    for (int i = tid; i < p.ring * (int)at.slice_bytes / 16; i += FLIM_TMA_THREADS) /* slots that no copy reaches stay zero */
        reinterpret_cast<uint4 *>(slices)[i] = make_uint4(0, 0, 0, 0);
    fill_constants<CI, CO, F::CM, false, EPILOGUE>(a, weight_scale, first_out, constants);
    if (tid == 0)
        at.ring.init();
    flim_fence_proxy();
    __syncthreads();

    const int64_t total = (int64_t)p.units * a.t;
    const int64_t from = total * blockIdx.x / gridDim.x, end = total * (blockIdx.x + 1) / gridDim.x;
    if (group == GROUPS) {
        flim_registers_down<others<PROLOGUE>>();
        const int thread = tid - GROUPS * GROUP;
        if (thread == 0)
            order_copies<CI>(a, p, at, &map, from, end);
        else if (PROLOGUE && thread >= GROUP - FLIM_TMA_ACTIVATING)
            activate<T, CI>(a, p, at, slices, from, end, thread - (GROUP - FLIM_TMA_ACTIVATING));
    } else {
        flim_registers_up<registers<PROLOGUE>>();
        fill_weights<T, CI, CO>(a, weight_scale, first_out, reinterpret_cast<T *>(base));
        flim_fence_proxy();
        flim_barrier(MULTIPLYING, GROUPS * GROUP);
        multiply<T, CI, CO, PROLOGUE, EPILOGUE, ADD, SUMS>(a, p, at, constants, reinterpret_cast<float *>(slices), group,
                                                           from, end);
    }
#else
    __trap();
#endif
}

template <typename T, int CI, int CO, bool PROLOGUE, bool EPILOGUE, bool ADD, bool SUMS>
cudaError_t start_kernel(const CUtensorMap &map, const kernel_arguments &a, const plan &p, dim3 grid, cudaStream_t stream)
{
    const auto kernel = conv3x3x3_wgmma<T, CI, CO, PROLOGUE, EPILOGUE, ADD, SUMS>;
    const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, p.shared_bytes);
    if (error != cudaSuccess)
        return error;
    kernel<<<grid, FLIM_TMA_THREADS, p.shared_bytes, stream>>>(map, a, p);
    return cudaGetLastError();
}

template <typename T, int CI, int CO>
cudaError_t start_form(const CUtensorMap &map, const kernel_arguments &a, const plan &p, const flim_conv_problem *s,
                       dim3 grid, double *sums, cudaStream_t stream)
{
    constexpr bool MASTER = form<CI, CO>::MASTER;
    cudaError_t error;
    if (s->epilogue && s->add)
        error = start_kernel<T, CI, CO, false, true, true, true>(map, a, p, grid, stream);
    else if (s->epilogue)
        error = start_kernel<T, CI, CO, false, true, false, true>(map, a, p, grid, stream);
    else if (s->x_form == FLIM_INPUT_NORM_ACT_ON_LOAD && (MASTER || s->sums))
        error = start_kernel<T, CI, CO, true, false, false, true>(map, a, p, grid, stream);
    else if (s->x_form == FLIM_INPUT_NORM_ACT_ON_LOAD)
        error = start_kernel<T, CI, CO, true, false, false, MASTER>(map, a, p, grid, stream);
    else if (MASTER || s->sums)
        error = start_kernel<T, CI, CO, false, false, false, true>(map, a, p, grid, stream);
    else
        error = start_kernel<T, CI, CO, false, false, false, MASTER>(map, a, p, grid, stream);
    if (error != cudaSuccess || !sums)
        return error;
    add_sums<SUMS_THREADS><<<dim3(2 * CO, grid.y), SUMS_THREADS, 0, stream>>>(a.partial, (int)grid.x, sums);
    return cudaGetLastError();
}

template <typename T>
cudaError_t start_type(const CUtensorMap &map, const kernel_arguments &a, const plan &p, const flim_conv_problem *s, int from,
                       dim3 grid, double *sums, cudaStream_t stream)
{
    return from == 64   ? start_form<T, 64, 32>(map, a, p, s, grid, sums, stream)
           : from == 32 ? start_form<T, 32, 32>(map, a, p, s, grid, sums, stream)
                        : start_form<T, 16, 16>(map, a, p, s, grid, sums, stream);
}

} // namespace

bool fits_wgmma(const flim_conv_problem *s, int from, const flim_card *card)
{
    plan p;
    return find_plan(s, from, card->shared_bytes, &p);
}

/* Blocks of each part of the output channels. */
static int share_of(const flim_conv_problem *s, int from, const flim_card *card)
{
    const int parts = from == 64 ? (s->op == FLIM_CONV_DATA ? s->c : s->k) / 32 : 1;
    const int share = card->processors / parts > 0 ? card->processors / parts : 1;
    return share < MAX_BLOCKS ? share : MAX_BLOCKS;
}

int64_t walk_of_wgmma(const flim_conv_problem *s, int from, const flim_card *card)
{
    plan p;
    return find_plan(s, from, card->shared_bytes, &p) ? (int64_t)p.units * s->in[0] / share_of(s, from, card) : 0;
}

cudaError_t start_wgmma(const kernel_arguments &a, const flim_conv_problem *s, int from, bool turns, const flim_card *card,
                        double *sums, cudaStream_t stream)
{
    plan p;
    CUtensorMap map;
    if (!find_plan(s, from, card->shared_bytes, &p))
        return cudaErrorInvalidValue;
    p.turns = turns;
    const int64_t sizes[5] = {from, a.w, a.h, a.t, s->n};
    const int box[5] = {from, p.pitch, 1, 1, 1}, every[5] = {1, 1, 1, 1, 1};
    const cudaError_t error = flim_tensor_map(&map, s->type, a.x, sizes, box, every);
    if (error != cudaSuccess)
        return error;
    const int64_t slices = (int64_t)p.units * a.t;
    const int share = share_of(s, from, card);
    const dim3 grid((unsigned)(slices < share ? slices : share), (unsigned)(from == 64 ? a.out_channels / 32 : 1));
    return s->type == FLIM_STORAGE_BF16 ? start_type<__nv_bfloat16>(map, a, p, s, from, grid, sums, stream)
                                        : start_type<__half>(map, a, p, s, from, grid, sums, stream);
}

} // namespace flim_conv3x3x3
