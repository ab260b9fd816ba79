/* The data gradient of 3x3x3 convolutions with stride 2 in y and x on Hopper's tensor cores and its copy engine.
 *
 * A pixel (2 m + a, 2 n + b) of dx takes, for each dt, one tap if a = b = 0, two if one of them is 1, four if both are: its class.  What
 * the taps of all classes take from dz lies at (m, n) or one further in y, in x, or in both: each a number of slots by which the rows of one
 * operand begin later in shared memory, as in conv3x3x3_wgmma.cu.  So no product is of zeros between rows and columns; a product's columns are
 * the output channels of one class or two.  ptxas wants sums that are always the same registers: the classes' are three sets, that of two
 * odd classes is split over two of them (conv_strided_plan.cuh), and two of a slice's six products have a half of zeros, which they share.
 *
 * The rows of dz of all cells lie one below the other with a row of zeros between two cells, and each row has a zero on its right.  A
 * block takes as many whole rows as 192 slots hold (64 per warpgroup) and walks along t, with the slices before and after in a ring, so
 * that the sums of one t, 80 per lane, are complete at once.  Slices before the first and after the last t come as zeros.
 *
 * The epilogue's operands are loaded while the tensor cores work, half of them to L2 only: registers lack.
 *
 * Count for a slice of 192 slots: 216 products of 24 to 32 clocks, which shared memory takes for their operands, 6.6k; base (11 x 11 of dz, 47
 * slices per block): 0.17 ms, and 0.16 for its bytes with the epilogue.
 *
 * Compiled for sm_90a.
 */
#include "cuda/conv/conv_strided.h"

#include "cuda/conv/conv_strided_plan.cuh"
#include "cuda/conv/conv_sums.cuh"
#include "cuda/conv/tensor_map.h"

#ifndef FLIM_WGMMA
#define FLIM_WGMMA 0 /* 1: this file is compiled for compute capability 9.0 */
#endif

using namespace flim_conv_strided;

namespace
{

enum {
    LANE = CO / 4, /* neighbouring output channels of a lane, 16 bytes */
    MULTIPLYING = 1, /* named barrier of all that multiply */
    REGISTERS = 160, /* of a thread that multiplies, and of the others: together a multiprocessor's 65,536 */
    OTHERS = 65536 / GROUP - GROUPS * REGISTERS,
    MOST_BLOCKS = 264,
    SUMS_THREADS = 128
};

struct kernel_arguments {
    const void *weight; /* (64,27,c) in storage type */
    flim_conv_epilogue epilogue;
    void *out; /* (n,t,h,w,c) */
    float *partial; /* (parts of c, gridDim.x, 2, CO) or NULL */
    int t, h, w, c; /* of dx */
    int ho, wo; /* of dz */
};

/* Where all is in shared memory. */
struct layout {
    uint32_t weights, slices, slice_bytes;
    ring_barriers ring;
};

/* A walk along t on one piece of the column: outputs at t0 .. t1 - 1, slices t0 - 1 .. t1. */
struct segment {
    int unit, t0, t1;
};

__device__ __forceinline__ bool next_segment(const kernel_arguments &a, int64_t *at, int64_t end, segment *s)
{
    if (*at >= end)
        return false;
    s->unit = (int)(*at / a.t);
    s->t0 = (int)(*at % a.t);
    s->t1 = (int)min((int64_t)a.t, s->t0 + end - *at);
    *at += s->t1 - s->t0;
    return true;
}

/* The weights of 32 channels of dx from `first` on as operand B: [slice][groups that lie together][16s of k][columns / 8][k / 8][column %
 * 8][k % 8]; a lane's eight neighbouring channels stand in its pairs of four tiles of columns.  By the threads that multiply, eight k at
 * once. */
template <typename T> __device__ __forceinline__ void fill_weights(const kernel_arguments &a, int first, char *weights)
{
    const T *from = static_cast<const T *>(a.weight);
#pragma unroll 1
    for (int slice = 0; slice < 3; slice++)
#pragma unroll
        for (int i = 0; i < COLUMN_GROUPS; i++) {
            constexpr int EIGHTS = CI / 8;
            for (int at = threadIdx.x; at < EIGHTS * CO; at += GROUPS * GROUP) {
                const int o = at % CO, k8 = at / CO, column = o % LANE / 2 * 8 + o / LANE * 2 + o % 2;
                alignas(16) T value[8] = {};
#pragma unroll
                for (int j = 0; j < 8 && group_of(i).of >= 0; j++)
                    value[j] = from[((int64_t)(k8 * 8 + j) * TAPS + (2 - slice) * 9 + tap_of(group_of(i))) * a.c + first + o];
                char *to = weights + slice * SLICE_WEIGHTS + group_at(i) + k8 / 2 * step_bytes(i) + column / 8 * 256 +
                           k8 % 2 * 128 + column % 8 * 16;
                *reinterpret_cast<uint4 *>(to) = *reinterpret_cast<const uint4 *>(value);
            }
        }
}

__device__ __forceinline__ void order_copies(const kernel_arguments &a, const plan &p, const layout &at,
                                             const CUtensorMap *map, int64_t from, int64_t end)
{
    const uint32_t row_bytes = (uint32_t)(p.pitch * ROW);
    flim_turn x;
    segment s;
    while (next_segment(a, &from, end, &s)) {
        const place top = place_of(p, s.unit * p.rows);
        for (int t = s.t0 - 1; t <= s.t1; t++) {
            flim_barrier_wait(at.ring.read(x.place), x.parity ^ 1);
            flim_barrier_expect(at.ring.there(x.place), (uint32_t)(p.rows + 1) * row_bytes);
            int corner[5] = {0, 0, top.y, t, top.cell};
            for (int row = 0; row <= p.rows; row++) {
                flim_copy_box(at.slices + x.place * at.slice_bytes + row * row_bytes, map, corner, at.ring.there(x.place));
                if (++corner[2] == p.column) {
                    corner[2] = 0;
                    corner[4]++;
                }
            }
            x.step(p.ring);
        }
    }
}

/* Product I over all channels of a slice, into the sums WHICH. */
template <typename T, int I, int WHICH, int N>
__device__ __forceinline__ void multiply_product(float (&sums)[N], uint64_t rows, uint64_t b, int pitch)
{
    constexpr int FIRST = product_of(I).first;
    static_assert(WHICH == product_of(I).sums && N == product_of(I).count * CO / 2, "its sums");
    constexpr column_group from = place_of_product(I);
    rows += (from.y * pitch + from.x) * (ROW / 16);
#pragma unroll
    for (int step = 0; step < STEPS; step++)
        flim_wgmma<T, 0>(sums, rows + step * 2, b + (group_at(FIRST) + step * step_bytes(FIRST)) / 16);
}

/* A pair through the epilogue.  positive, kept: two bits, the sides of the activation, and that the channels are not dropped; by: what
 * those that are not are multiplied by. */
template <typename T>
__device__ __forceinline__ uint32_t pair_of_gradient(const float *mean, float first, float second, uint32_t z_word,
                                                     unsigned positive, unsigned kept, float by, float *sum, float *product)
{
    const float2 z = flim_unpack<T>(z_word);
    const float a = first * (positive & 1 ? by : FLIM_SLOPE * by), b = second * (positive & 2 ? by : FLIM_SLOPE * by);
    const uint32_t word = flim_pack<T>(kept & 1 ? a : 0.0f, kept & 2 ? b : 0.0f);
    const float2 du = flim_unpack<T>(word);
    sum[0] += du.x;
    sum[1] += du.y;
    product[0] += du.x * (z.x - mean[0]);
    product[1] += du.y * (z.y - mean[1]);
    return word;
}

/* Products and outputs of warpgroup `group`. */
template <typename T, bool EPILOGUE, bool ADD>
__device__ __forceinline__ void multiply(const kernel_arguments &a, const plan &p, const layout &at, const float *mean,
                                         float *free, int group, int64_t from, int64_t end)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, g = lane / 4, q = lane % 4;
    const int channel = (int)blockIdx.y * CO + LANE * q;
    const unsigned eights = (unsigned)a.c / 8, to_right = eights, to_below = (unsigned)a.w * eights;
    const uint4 *const z = static_cast<const uint4 *>(a.epilogue.z), *const add = static_cast<const uint4 *>(a.epilogue.add);
    const float add_by = ADD && a.epilogue.add_scale ? *a.epilogue.add_scale : 1.0f;
    const uint32_t mine = (uint32_t)(group * 64 * ROW);
    float sum[LANE] = {}, product[LANE] = {}, kept_by = 1.0f;
    flim_turn x;
    segment s;
    auto take_next = [&]() {
        const int place = x.place;
        flim_barrier_wait(at.ring.there(place), x.parity);
        x.step(p.ring);
        return place;
    };
    auto give_back = [&](int place) {
        if (lane == 0)
            flim_barrier_arrive(at.ring.read(place));
    };
    while (next_segment(a, &from, end, &s)) {
        /* This lane's outputs of class EVEN, and where a skip's gradient lies, in eights of channels; a bit for each class that is in the
         * image, and one for each of the lane's channels that is not dropped. */
        unsigned pixel[2], compact[2], there[2];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int slot = group * 64 + warp * 16 + g + 8 * i, row = slot / p.pitch, column = slot % p.pitch;
            const place to = place_of(p, s.unit * p.rows + row);
            const bool inside = row < p.rows && column < a.wo && to.y < a.ho && to.cell < p.n;
            const unsigned right = 2 * column + 1 < a.w, below = 2 * to.y + 1 < a.h, t = to.cell * a.t + s.t0;
            pixel[i] = inside ? ((t * a.h + 2 * to.y) * a.w + 2 * column) * eights + channel / 8 : 0;
            compact[i] = inside ? ((t * a.ho + to.y) * a.wo + column) * eights + channel / 8 : 0;
            there[i] = inside ? 1 | right << RIGHT | below << BELOW | (right & below) << BOTH : 0;
            for (int k = 0; k < LANE && EPILOGUE && inside; k++) {
                const float keep = a.epilogue.keep[(int64_t)to.cell * a.c + channel + k];
                there[i] |= (unsigned)(keep != 0.0f) << (CLASSES + k);
                kept_by = keep != 0.0f ? keep : kept_by;
            }
        }
        int before, here = take_next(), after = take_next();
#pragma unroll 1
        for (int t = s.t0; t < s.t1; t++) {
            before = here, here = after, after = take_next();
            float even[CO / 2] = {}, right[CO] = {}, below[CO] = {};
            flim_hold(even);
            flim_hold(right);
            flim_hold(below);
            flim_wgmma_fence();
#pragma unroll
            for (int j = 0; j < 3; j++) {
                const int place = j == 0 ? before : j == 1 ? here : after;
                const uint64_t rows = flim_wgmma_rows<ROW>(at.slices + place * at.slice_bytes + mine, 16),
                               b = flim_wgmma_descriptor(at.weights + j * SLICE_WEIGHTS, 128, 256);
                multiply_product<T, 0, SUMS_EVEN>(even, rows, b, p.pitch);
                multiply_product<T, 1, SUMS_RIGHT>(right, rows, b, p.pitch);
                multiply_product<T, 4, SUMS_BELOW>(below, rows, b, p.pitch);
                multiply_product<T, 2, SUMS_RIGHT>(right, rows, b, p.pitch);
                multiply_product<T, 3, SUMS_BELOW>(below, rows, b, p.pitch);
                multiply_product<T, 5, SUMS_RIGHT>(right, rows, b, p.pitch);
            }
            flim_wgmma_commit();

            uint4 z4[CLASSES][2], d4[2] = {};
            unsigned bits[CLASSES][2];
            auto place_of_class = [&](int c, int i) {
                return pixel[i] + (class_y(c) ? to_below : 0) + (class_x(c) ? to_right : 0);
            };
            auto fetch = [&](int c) {
#pragma unroll
                for (int i = 0; i < 2; i++)
                    if (there[i] >> c & 1) {
                        z4[c][i] = z[place_of_class(c, i)];
                        bits[c][i] = a.epilogue.sign_mask[place_of_class(c, i)];
                        if (ADD && c == EVEN)
                            d4[i] = add[compact[i]];
                    }
            };
            if (EPILOGUE) {
                fetch(RIGHT);
                fetch(BELOW);
                if (q == 0) { /* the others' are on their way to L2 */
#pragma unroll
                    for (int i = 0; i < 2; i++) {
                        if (there[i] >> BOTH & 1)
                            flim_prefetch(z + place_of_class(BOTH, i));
                        if (there[i] & 1) {
                            flim_prefetch(z + place_of_class(EVEN, i));
                            if (ADD)
                                flim_prefetch(add + compact[i]);
                        }
                    }
                }
            }
            flim_wgmma_wait<0>();
            flim_hold(even);
            flim_hold(right);
            flim_hold(below);
            give_back(before);
            float means[LANE] = {};
            if (EPILOGUE) {
                *reinterpret_cast<float4 *>(means) = reinterpret_cast<const float4 *>(mean)[2 * q];
                *reinterpret_cast<float4 *>(means + 4) = reinterpret_cast<const float4 *>(mean)[2 * q + 1];
            }
#pragma unroll
            for (int k = 0; k < CLASSES; k++) {
                const int c = (k + 1) % CLASSES;
                if (EPILOGUE && c >= BELOW) /* in the registers of the class before, which is done */
                    fetch((c + 1) % CLASSES);
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    if (!(there[i] >> c & 1))
                        continue;
                    uint4 packed;
                    uint32_t *word = &packed.x;
                    const uint32_t *zw = &z4[c][i].x, *dw = &d4[i].x;
#pragma unroll
                    for (int j = 0; j < LANE / 2; j++) {
                        const int here_at = 4 * j + 2 * i, both_at = CO / 2 + here_at;
                        float first = c == EVEN    ? even[here_at]
                                      : c == RIGHT ? right[here_at]
                                      : c == BELOW ? below[here_at]
                                                   : right[both_at] + below[both_at];
                        float second = c == EVEN    ? even[here_at + 1]
                                       : c == RIGHT ? right[here_at + 1]
                                       : c == BELOW ? below[here_at + 1]
                                                    : right[both_at + 1] + below[both_at + 1];
                        if (ADD && c == EVEN) {
                            const float2 d = flim_unpack<T>(dw[j]);
                            first = fmaf(d.x, add_by, first);
                            second = fmaf(d.y, add_by, second);
                        }
                        word[j] = EPILOGUE ? pair_of_gradient<T>(means + 2 * j, first, second, zw[j], bits[c][i] >> 2 * j,
                                                                 there[i] >> (CLASSES + 2 * j), kept_by, sum + 2 * j,
                                                                 product + 2 * j)
                                           : flim_pack<T>(first, second);
                    }
                    static_cast<uint4 *>(a.out)[place_of_class(c, i)] = packed;
                }
            }
#pragma unroll
            for (int i = 0; i < 2; i++) {
                pixel[i] += (unsigned)(a.h * a.w) * eights;
                compact[i] += (unsigned)(a.ho * a.wo) * eights;
            }
        }
        give_back(here);
        give_back(after);
    }
    if (EPILOGUE && a.partial)
        give_sums<CO>(sum, product, GROUPS * 4, free, a.partial + (int64_t)blockIdx.y * gridDim.x * 2 * CO,
                      [] { flim_barrier(MULTIPLYING, GROUPS * GROUP); });
}

/* Grid (share, blocks of 32 channels of dx). */
template <typename T, bool EPILOGUE, bool ADD>
__global__ void __launch_bounds__(FLIM_TMA_THREADS, 1)
    conv_strided_wgmma(const __grid_constant__ CUtensorMap map, const kernel_arguments a, const plan p)
{
#if FLIM_HOPPER
    extern __shared__ char memory[];
    char *base = flim_tma_memory(memory), *slices = base + WEIGHT_BYTES;
    layout at;
    at.slice_bytes = (uint32_t)(p.slots * ROW);
    float *mean = reinterpret_cast<float *>(slices + p.ring * at.slice_bytes);
    at.weights = flim_shared(base);
    at.slices = flim_shared(slices);
    at.ring.at = flim_shared(mean) + CONSTANT_BYTES;
    const int tid = threadIdx.x, group = __shfl_sync(0xffffffffu, tid / GROUP, 0), first = (int)blockIdx.y * CO;

    for (int i = tid; i < p.ring * (int)at.slice_bytes / 16; i += FLIM_TMA_THREADS) /* slots that no copy reaches stay zero */
        reinterpret_cast<uint4 *>(slices)[i] = make_uint4(0, 0, 0, 0);
    if (EPILOGUE && tid < CO)
        mean[tid] = a.epilogue.mean[first + tid];
    if (tid == 0)
        at.ring.init();
    flim_fence_proxy();
    __syncthreads();

    const int64_t total = (int64_t)p.units * a.t;
    const int64_t from = total * blockIdx.x / gridDim.x, end = total * (blockIdx.x + 1) / gridDim.x;
    if (group == GROUPS) {
        flim_registers_down<OTHERS>();
        if (tid == GROUPS * GROUP)
            order_copies(a, p, at, &map, from, end);
    } else {
        flim_registers_up<REGISTERS>();
        fill_weights<T>(a, first, base);
        flim_fence_proxy();
        flim_barrier(MULTIPLYING, GROUPS * GROUP);
        multiply<T, EPILOGUE, ADD>(a, p, at, mean, reinterpret_cast<float *>(slices), group, from, end);
    }
#else
    __trap();
#endif
}

template <typename T, bool EPILOGUE, bool ADD>
cudaError_t launch(const CUtensorMap &map, const kernel_arguments &a, const plan &p, dim3 grid, double *sums,
                   cudaStream_t stream)
{
    const auto kernel = conv_strided_wgmma<T, EPILOGUE, ADD>;
    const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, p.shared_bytes);
    if (error != cudaSuccess)
        return error;
    kernel<<<grid, FLIM_TMA_THREADS, p.shared_bytes, stream>>>(map, a, p);
    if (sums)
        add_sums<SUMS_THREADS><<<dim3(2 * CO, grid.y), SUMS_THREADS, 0, stream>>>(a.partial, (int)grid.x, sums);
    return cudaGetLastError();
}

template <typename T>
cudaError_t launch(const CUtensorMap &map, const kernel_arguments &a, const plan &p, const flim_conv_problem &s, dim3 grid,
                   double *sums, cudaStream_t stream)
{
    return !s.epilogue ? launch<T, false, false>(map, a, p, grid, nullptr, stream)
           : s.add     ? launch<T, true, true>(map, a, p, grid, sums, stream)
                       : launch<T, true, false>(map, a, p, grid, sums, stream);
}

/* Blocks of each 32 channels of dx. */
int share_of(const flim_conv_problem *s, const flim_card *card)
{
    const int parts = s->c / CO, share = card->processors / parts > 0 ? card->processors / parts : 1;
    return share < MOST_BLOCKS ? share : MOST_BLOCKS;
}

} // namespace

bool flim_conv_strided_supported(const flim_conv_problem *s, const flim_card *card)
{
    static const int three[3] = {3, 3, 3}, one[3] = {1, 1, 1}, stride[3] = {1, 2, 2};
    plan p;
    const bool plain = !s->epilogue && !s->sums && !s->sign_mask && s->add == FLIM_ADD_NONE;
    const bool through = s->epilogue && s->sums && s->sign_mask && s->add != FLIM_ADD_DENSE;
    return FLIM_WGMMA && card->capability == 90 && s->op == FLIM_CONV_DATA && (plain || through) && !s->master && !s->stem &&
           s->x_form == FLIM_INPUT_PLAIN && s->dz_form == FLIM_INPUT_PLAIN && s->type != FLIM_STORAGE_FP32 && s->k == CI &&
           s->out_channels == s->k && s->c % CO == 0 && s->c <= 1024 && s->in_channels == s->c &&
           flim_conv_has_shape(s, three, stride, one) && s->n > 0 && s->in[0] > 0 && s->in[1] > 0 && s->in[2] > 0 &&
           (double)flim_conv_x_elements(s) < 8 * 4294967295.0 && (double)s->n < 1 << 28 &&
           find_plan(s, card->shared_bytes, &p);
}

bool flim_conv_strided_walks_far(const flim_conv_problem *s, const flim_card *card)
{
    const int64_t long_walk = 8; /* the weights' way into shared memory takes about as long as two slices */
    plan p;
    return flim_conv_strided_supported(s, card) && find_plan(s, card->shared_bytes, &p) &&
           (int64_t)p.units * s->in[0] / share_of(s, card) >= long_walk;
}

size_t flim_conv_strided_scratch_bytes(const flim_conv_problem *s)
{
    return s->sums ? sizeof(float) * MOST_BLOCKS * 2 * (size_t)s->c : 0;
}

cudaError_t flim_conv_strided_run(const flim_conv_problem *problem, const flim_conv_arguments *arguments,
                                  const flim_card *card, cudaStream_t stream)
{
    flim_conv_problem here = *problem;
    plan p;
    CUtensorMap map;
    here.n = arguments->n;
    if (!flim_conv_strided_supported(&here, card) || !find_plan(&here, card->shared_bytes, &p))
        return cudaErrorInvalidValue;
    double *sums = here.sums ? arguments->sums : nullptr;
    kernel_arguments a = {};
    a.weight = arguments->w;
    a.epilogue = arguments->epilogue;
    a.out = arguments->x;
    a.partial = sums ? static_cast<float *>(arguments->scratch) : nullptr;
    a.t = here.in[0], a.h = here.in[1], a.w = here.in[2], a.c = here.c;
    a.ho = here.out[1], a.wo = here.out[2];
    const int64_t sizes[5] = {CI, a.wo, a.ho, a.t, here.n};
    const int box[5] = {CI, p.pitch, 1, 1, 1}, every[5] = {1, 1, 1, 1, 1};
    const cudaError_t error = flim_tensor_map(&map, here.type, arguments->y, sizes, box, every);
    if (error != cudaSuccess)
        return error;
    const int64_t slices = (int64_t)p.units * a.t;
    const int share = share_of(&here, card);
    const dim3 grid((unsigned)(slices < share ? slices : share), (unsigned)(here.c / CO));
    return here.type == FLIM_STORAGE_BF16 ? launch<__nv_bfloat16>(map, a, p, here, grid, sums, stream)
                                          : launch<__half>(map, a, p, here, grid, sums, stream);
}
