/* The kernel of 3x3x3 convolutions from CI to CO channels (8, 16 or 32): forward and data gradient.
 *
 * Both are   out(p) = sum over taps x(p + tap - 1) W[tap]   on rows of CI channels; for the data gradient W is flipped and
 * transposed as it is put into shared memory.  All 27 taps' weights (54 KB of 32 channels) stay there in the order of the
 * products' B operand.
 *
 * The pixels of all cells are numbered one after the other and cut into groups of 16 R pixels per warp; a block takes a group
 * and a range of time and walks along t.  R is 2; or 1, if shared memory holds no more than 4 warps' groups of 32 channels
 * (99 KB: an L4); or 4, as the search finds for 8 and 16 channels.  Only one slice of x is needed at a time: slice s is
 * multiplied by the weights of all three dt and added to the outputs at s+1, s and s-1, whose sums (3 x R x CO / 2 registers a
 * lane) stay in registers; then the output at s-1 is complete.  So an A operand is loaded once for three products (9 loads instead of 27), and shared
 * memory gives 43 + 128 bytes a product, less than the products take.  The next slice arrives by cp.async meanwhile.  A group
 * may cross from one cell to the next: its rows are staged as a column of planes, each with a row of zeros above and below.
 *
 * Stride 2 in y and x: forward a lane's rows of A lie two slots apart; the data gradient is a convolution of stride 1 over
 * the incoming gradient with zeros between its rows and columns, which are slots that stay zero (3/4 of its products are of
 * zeros: narrow tensors alone come this way, whose time is their bytes).
 *
 * Output channels are dealt to the product's columns so that a lane holds CO / 4 neighbouring channels (conv_stem.cu does the
 * same).
 *
 * With 8 channels a product's 16 inner elements are two neighbours in x: taps dx = 0 and 1, then 2 and one whose weights are
 * zero.
 *
 * Count at batch 64, 32 channels: 49 M products (mma.m16n8k16), 200 GFLOP = 0.27 ms at an H100's bf16 rate; 463 MB = 0.16 ms.
 */
#ifndef FLIM_CUDA_CONV3X3X3_KERNEL_CUH
#define FLIM_CUDA_CONV3X3X3_KERNEL_CUH

#include "cuda/conv/conv_arguments.h"
#include "cuda/conv/conv_mma.cuh"
#include "cuda/conv/conv_sums.cuh"
#include "flim/device.h"

namespace flim_conv3x3x3
{

enum {
    MOST_C = 32,
    MOST_WARPS = 12,
    USUAL_R = 2, /* 16-pixel tiles a warp: 12 warps with 2 do better than 8 with 3 (32 channels) */
    MOST_R = 4, /* what 8 and 16 channels may have, too: fewer loads of weights, fewer warps */
    TAPS = 27,
    MAX_BLOCKS = 264,
    CONSTANTS = 6, /* floats a channel: bias; prologue's scale, shift; epilogue's scale, shift, mean; a seventh lies in the
                    * reserve that the tiling counts: about */
    SUMS_THREADS = 128
};

/* What follows from the numbers of channels. */
template <int CI, int CO> struct width {
    enum {
        ROW = 2 * CI, /* bytes of a slot */
        CHUNKS = CI / 8, /* of 16 bytes */
        STEPS_X = CI == 8 ? 2 : 3, /* products along dx: 8 channels take two taps at once */
        HALVES = CI == 32 ? 2 : 1, /* 16s of a tap's input channels */
        TILES = CO / 8, /* 8s of output channels */
        TOGETHER = TILES < 2 ? 1 : 2, /* tiles whose weights a load takes */
        LANE = CO / 4, /* output channels of a lane */
        CM = CI > CO ? CI : CO,
        WEIGHTS = 9 * STEPS_X * HALVES * TILES * 32 * 2 /* 32-bit words */
    };
};

/* Most warps of a block with R tiles a warp, and blocks at once: what the registers allow. */
template <int CO, int R> struct cut {
    enum {
        WARPS = (CO == 16 && R < 4) || (CO == 8 && R == 4) ? 8 : MOST_WARPS,
        BLOCKS_A_SM = CO == 32 || (CO == 16 && R == 4) ? 1 : 2
    };
};

/* A lane's neighbouring channels in 16 bits. */
template <int WORDS> struct lane_words;
template <> struct lane_words<4> {
    using type = uint4;
};
template <> struct lane_words<2> {
    using type = uint2;
};
template <> struct lane_words<1> {
    using type = uint32_t;
};

/* How the pixels are tiled. */
struct tiling {
    int warps; /* of a block */
    int r; /* 16-pixel tiles a warp */
    int group; /* pixels of a group: warps * R * 16 */
    int groups;
    int rows; /* most rows staged for a group */
    int cells; /* most cells a group touches */
    int pitch; /* slots from a row to the next */
    int shared_bytes;
};

struct kernel_arguments {
    const void *x;
    const float *weight;
    const float *bias; /* forward */
    const float *weight_scale, *about; /* flim_conv_arguments: weight_scale, sums_about */
    flim_conv_prologue prologue;
    flim_conv_epilogue epilogue;
    void *out;
    float *partial; /* (gridDim.x, 2, CO) or NULL */
    int64_t pixels; /* of the output: n * ho * wo */
    int t, h, w; /* of the input as it is staged, zeros between its rows and columns included */
    int ho, wo; /* of the output */
    int stride; /* in y and x: 1 or 2 */
    int apart; /* staged rows and columns from one of the input to the next: 1 or 2 */
    bool flip; /* data gradient */
    const void *plain_weight; /* conv3x3x3_wgmma.cu from 64 channels: (k,27,c) in storage type, in the place of `weight` */
    int out_channels; /* the same: of the tensor */
    tiling p;
};

struct load_entry {
    int pixel; /* of the slice t = 0 of its cell, in the input as it is stored; -1: stays zero */
    int slot; /* in the staged slice */
};

/* Byte offset of a slot's 16-byte chunk; swizzled so that 8 slots in a row meet no bank conflict. */
template <int CI> __device__ __forceinline__ uint32_t slot_offset(int slot, int chunk)
{
    constexpr int CHUNKS = CI / 8;
    return (uint32_t)(slot * 2 * CI + ((chunk ^ ((unsigned)slot / (8 / CHUNKS) & (CHUNKS - 1))) << 4));
}

/* Halfword of weight (input channel k, output channel o, tap) in the order of the B operand: [dt, dy][step in x][k half]
 * [column tiles loaded together][lane][column tile of these, k quarter][k parity]. */
template <int CI, int CO> __device__ __forceinline__ int weight_at(int k, int o, int tap)
{
    using W = width<CI, CO>;
    const int dx = tap % 3, step = CI == 8 ? dx / 2 : dx, inner = CI == 8 ? dx % 2 * 8 + k : k % 16,
              half = CI == 8 ? 0 : k / 16;
    const int g = 2 * (o / W::LANE) + o % 2, tile = o % W::LANE / 2, lane = 4 * g + inner % 8 / 2;
    const int load = ((tap / 3 * W::STEPS_X + step) * W::HALVES + half) * (W::TILES / W::TOGETHER) + tile / W::TOGETHER;
    return (((load * 32 + lane) * W::TOGETHER + tile % W::TOGETHER) * 2 + inner / 8) * 2 + inner % 2;
}

/* Bias, scales and shifts of what is fused, and what sums are taken about, each CM floats, into shared memory; of the output's channels
 * CO from `first` on. */
template <int CI, int CO, int CM, bool PROLOGUE, bool EPILOGUE>
__device__ __forceinline__ void fill_constants(const kernel_arguments &a, float weight_scale, int first, float *constants)
{
    const int tid = threadIdx.x, channel = first + tid;
    if (tid < CO) {
        constants[tid] = a.bias ? a.bias[channel] * weight_scale : 0.0f;
        constants[CONSTANTS * CM + tid] = a.about ? a.about[channel] * weight_scale : 0.0f;
        if (EPILOGUE) {
            constants[3 * CM + tid] = a.epilogue.scale[channel];
            constants[4 * CM + tid] = a.epilogue.shift[channel];
            constants[5 * CM + tid] = a.epilogue.mean[channel];
        }
    }
    if (PROLOGUE && tid < CI) {
        constants[CM + tid] = a.prologue.scale[tid];
        constants[2 * CM + tid] = a.prologue.shift[tid];
    }
}

/* Constants of a pair of an output's channels, or (float4) of two pairs: number k of array `which` in shared memory. */
template <int CM, typename V> __device__ __forceinline__ V constants_of(const float *constants, int which, int k)
{
    return reinterpret_cast<const V *>(constants + which * CM)[k];
}

/* What the epilogue needs of a pair. */
struct pair_epilogue {
    float2 scale, shift, mean;
};

/* A pair through the epilogue: z and the gradient to add as stored, its two sums from sum[0] and product[0] on. */
template <typename T, bool ADD>
__device__ __forceinline__ uint32_t pair_of_gradient(const pair_epilogue &c, float first, float second, uint32_t z_word,
                                                     uint32_t d_word, float add_by, float *sum, float *product)
{
    const float2 z = flim_unpack<T>(z_word), d = ADD ? flim_unpack<T>(d_word) : make_float2(0.0f, 0.0f);
    const float a = ADD ? fmaf(d.x, add_by, first) : first, b = ADD ? fmaf(d.y, add_by, second) : second;
    const float lo = a * (z.x * c.scale.x + c.shift.x > 0.0f ? 1.0f : FLIM_SLOPE);
    const float hi = b * (z.y * c.scale.y + c.shift.y > 0.0f ? 1.0f : FLIM_SLOPE);
    const uint32_t word = flim_pack<T>(lo, hi);
    const float2 du = flim_unpack<T>(word);
    sum[0] += du.x;
    sum[1] += du.y;
    product[0] += du.x * (z.x - c.mean.x);
    product[1] += du.y * (z.y - c.mean.y);
    return word;
}

/* The same forward: with its bias. */
template <typename T>
__device__ __forceinline__ uint32_t pair_of_output(float2 bias, float2 about, float first, float second, float *sum,
                                                   float *product)
{
    const uint32_t word = flim_pack<T>(first + bias.x, second + bias.y);
    const float2 v = flim_unpack<T>(word);
    const float lo = v.x - about.x, hi = v.y - about.y;
    sum[0] += lo;
    sum[1] += hi;
    product[0] += lo * lo;
    product[1] += hi * hi;
    return word;
}

/* The epilogue's operands for the outputs at `at` (bytes) are on their way to L2. */
__device__ __forceinline__ void prefetch_operands(const flim_conv_epilogue &epilogue, int64_t at)
{
    flim_prefetch(static_cast<const char *>(epilogue.z) + at);
    if (epilogue.add)
        flim_prefetch(static_cast<const char *>(epilogue.add) + at);
}

template <typename T, int CI, int CO, int R, bool PROLOGUE, bool EPILOGUE>
__global__ void __launch_bounds__(32 * cut<CO, R>::WARPS, cut<CO, R>::BLOCKS_A_SM) conv3x3x3(const kernel_arguments a)
{
    using W = width<CI, CO>;
    constexpr int CM = W::CM, ROW = W::ROW, CHUNKS = W::CHUNKS, TILES = W::TILES, TOGETHER = W::TOGETHER, LANE = W::LANE,
                  PAIRS = LANE / 2;
    using lane_vector = typename lane_words<PAIRS>::type;
    using weight_vector = typename lane_words<2 * TOGETHER>::type;
    extern __shared__ __align__(1024) char memory[];
    const tiling &p = a.p;
    const int tid = threadIdx.x, threads = blockDim.x, lane = tid % 32, warp = tid / 32, g = lane / 4, q = lane % 4;
    /* Layers of as many channels out as in have stride 1: constants, for which there would be no registers. */
    constexpr bool WIDENS = CI != CO;
    const int stride = WIDENS ? a.stride : 1, apart = WIDENS ? a.apart : 1, out_h = WIDENS ? a.ho : a.h,
              out_w = WIDENS ? a.wo : a.w;
    const int hw = out_h * out_w, rows_a_cell = stride * out_h + 3 - stride, slice_bytes = p.rows * p.pitch * ROW,
              entries = p.rows * a.w;

    const int in_h = WIDENS ? (a.h - 1) / apart + 1 : a.h, in_w = WIDENS ? (a.w - 1) / apart + 1 : a.w,
              in_hw = WIDENS ? in_h * in_w : hw; /* as stored */

    uint32_t *weights = reinterpret_cast<uint32_t *>(memory);
    char *slices = memory + W::WEIGHTS * 4; /* two */
    load_entry *table = reinterpret_cast<load_entry *>(slices + 2 * slice_bytes);
    float *constants = reinterpret_cast<float *>(table + entries);
    const uint32_t slices_shared = flim_shared(slices);

    const float weight_scale = a.weight_scale ? *a.weight_scale : 1.0f;
    if (CI == 8) { /* the taps that are none */
        for (int i = tid; i < W::WEIGHTS; i += threads)
            weights[i] = 0;
        __syncthreads();
    }
    const int inner = a.flip ? CO : CI; /* the weights' input channels */
#pragma unroll 8
    for (int i = tid; i < CI * CO * TAPS; i += threads) {
        const int o = i / (inner * TAPS), c = i / TAPS % inner, tap = i % TAPS;
        reinterpret_cast<T *>(weights)[a.flip ? weight_at<CI, CO>(o, c, TAPS - 1 - tap) : weight_at<CI, CO>(c, o, tap)] =
            (T)(a.weight[i] * weight_scale);
    }
    fill_constants<CI, CO, CM, PROLOGUE, EPILOGUE>(a, weight_scale, 0, constants);

    const int64_t total = (int64_t)p.groups * a.t;
    const int64_t end = total * (blockIdx.x + 1) / gridDim.x;
    float sum[LANE] = {}, product[LANE] = {};
    const float add_by = EPILOGUE && a.epilogue.add_scale ? *a.epilogue.add_scale : 1.0f;
    for (int64_t u = total * blockIdx.x / gridDim.x; u < end;) {
        const int group = (int)(u / a.t), t0 = (int)(u % a.t), t1 = (int)min((int64_t)a.t, t0 + end - u);
        u += t1 - t0;

        /* The group's rows: a cell has rows_a_cell, with a row of zeros at either side, of which y0 is the first that the group
 * needs of its first cell; the staged column goes on through the cells. */
        const int64_t pixel0 = (int64_t)group * p.group;
        const int first_cell = (int)(pixel0 / hw), y0 = (int)(pixel0 % hw) / out_w * stride;
        const int64_t last_pixel = min(pixel0 + p.group, a.pixels) - 1;
        const int last_cell = (int)(last_pixel / hw);
        const int last_row =
            (last_cell - first_cell) * rows_a_cell + (int)(last_pixel % hw) / out_w * stride + 2 - y0; /* the halo below */
        __syncthreads();
        for (int i = tid; i < 2 * slice_bytes / 16; i += threads)
            reinterpret_cast<uint4 *>(slices)[i] = make_uint4(0, 0, 0, 0);
        for (int i = tid; i < entries; i += threads) {
            const int s = i / a.w, x = i % a.w, cell = (s + y0) / rows_a_cell, y = (s + y0) % rows_a_cell - 1;
            const bool there = s <= last_row && y >= 0 && y < a.h && y % apart == 0 && x % apart == 0;
            table[i].pixel = there ? ((first_cell + cell) * a.t * in_h + y / apart) * in_w + x / apart : -1;
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
            slot[r] = ((cell - first_cell) * rows_a_cell + rest / out_w * stride - y0) * p.pitch + rest % out_w * stride;
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const int64_t to = tile + g + 8 * i;
                const int to_cell = (int)(to / hw);
                pixel[r][i] = to < a.pixels ? to_cell * a.t * hw + (int)(to % hw) : -1;
            }
        }

        /* Rounds `from` to `to` of a slice's copies: each thread does one 16-byte chunk a round. */
        const int a_round = threads / CHUNKS, rounds = (entries + a_round - 1) / a_round;
        auto load = [&](int t, int from, int to) {
            if ((unsigned)t >= (unsigned)a.t || t > t1)
                return;
            const T *x = static_cast<const T *>(a.x) + (int64_t)t * in_hw * CI + 8 * (tid % CHUNKS);
            const uint32_t slice = slices_shared + (uint32_t)((t & 1) * slice_bytes);
            for (int i = tid / CHUNKS + from * a_round; i < min(entries, to * a_round); i += a_round) {
                const load_entry e = table[i];
                if (e.pixel >= 0)
                    flim_copy_async(slice + slot_offset<CI>(e.slot, tid % CHUNKS), x + (int64_t)e.pixel * CI, true);
            }
        };
        auto activate = [&](int t) { /* what this thread has loaded, once it has come */
                                     flim_copy_commit();
                                     flim_copy_wait<0>();
                                     if ((unsigned)t >= (unsigned)a.t)
                                         return;
                                     const int channel = 8 * (tid % CHUNKS);
                                     for (int i = tid / CHUNKS; i < entries; i += a_round) {
                                         const load_entry e = table[i];
                                         if (e.pixel < 0)
                                             continue;
                                         flim_activate_chunk<T>(slices + (t & 1) * slice_bytes +
                                                                    slot_offset<CI>(e.slot, tid % CHUNKS),
                                                                constants + CM + channel, constants + 2 * CM + channel);
                                     }
        };

        float out[3][R][TILES][4] = {}; /* at t - 1, t, t + 1 */
        load(t0 - 1, 0, rounds);
        if (PROLOGUE)
            activate(t0 - 1);
        for (int t = t0 - 1; t <= t1; t++) {
            const bool exists = (unsigned)t < (unsigned)a.t;
            flim_copy_commit();
            flim_copy_wait<0>();
            __syncthreads();
            if (EPILOGUE && t > t0 && q == 0) {
                const int64_t offset = (int64_t)(t - 1) * hw;
#pragma unroll
                for (int r = 0; r < R; r++)
#pragma unroll
                    for (int i = 0; i < 2; i++)
                        if (pixel[r][i] >= 0)
                            prefetch_operands(a.epilogue, (pixel[r][i] + offset) * 2 * CO);
            }

            if (exists) {
                const uint32_t slice = slices_shared + (uint32_t)((t & 1) * slice_bytes);
                const weight_vector *b = reinterpret_cast<const weight_vector *>(weights) + lane;
                constexpr int LOADS = W::HALVES * (TILES / TOGETHER); /* of a step's weights */
#pragma unroll 1
                for (int dy = 0; dy < 3; dy++) {
                    /* The next slice's copies and activation, between products: other warps' products go on. */
                    if (!PROLOGUE)
                        load(t + 1, rounds * dy / 3, rounds * (dy + 1) / 3);
                    else if (dy == 0)
                        load(t + 1, 0, rounds);
#pragma unroll
                    for (int step = 0; step < W::STEPS_X; step++, b += LOADS * 32) {
                        uint32_t x[R][W::HALVES][4];
#pragma unroll
                        for (int r = 0; r < R; r++) {
                            const int dx = CI == 8 ? min(2 * step + lane / 16, 2) : step;
                            const uint32_t at = slice + slot_offset<CI>(slot[r] + dy * p.pitch + dx, CI == 8 ? 0 : lane / 16);
                            flim_ldmatrix(x[r][0], at);
                            if (W::HALVES == 2)
                                flim_ldmatrix(x[r][W::HALVES - 1], at ^ 32u);
                        }
#pragma unroll
                        for (int dt = 0; dt < 3; dt++)
#pragma unroll
                            for (int v = 0; v < LOADS; v++) {
                                const weight_vector w = b[(dt * 3 * W::STEPS_X * LOADS + v) * 32];
                                const uint32_t *words = reinterpret_cast<const uint32_t *>(&w);
#pragma unroll
                                for (int r = 0; r < R; r++)
#pragma unroll
                                    for (int i = 0; i < TOGETHER; i++)
                                        flim_mma<T>(out[2 - dt][r][v % (TILES / TOGETHER) * TOGETHER + i],
                                                    x[r][v / (TILES / TOGETHER)], words[2 * i], words[2 * i + 1]);
                            }
                    }
                    if (PROLOGUE && dy == 1 && t < t1) /* it has come by now */
                        activate(t + 1);
                }
            } else {
                load(t + 1, 0, rounds);
                if (PROLOGUE && t < t1)
                    activate(t + 1);
            }

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
                        const int64_t at = (pixel[r][i] + offset) * CO + LANE * q;
                        lane_vector packed;
                        uint32_t *word = reinterpret_cast<uint32_t *>(&packed);
                        if (EPILOGUE) {
                            const uint32_t *zw = reinterpret_cast<const uint32_t *>(&z4[r % 2][i]),
                                           *dw = reinterpret_cast<const uint32_t *>(&d4[r % 2][i]);
#pragma unroll
                            for (int k = 0; k < PAIRS; k++)
                                word[k] = pair_of_gradient<T, true>({constants_of<CM, float2>(constants, 3, PAIRS * q + k),
                                                                     constants_of<CM, float2>(constants, 4, PAIRS * q + k),
                                                                     constants_of<CM, float2>(constants, 5, PAIRS * q + k)},
                                                                    out[0][r][k][2 * i], out[0][r][k][2 * i + 1], zw[k],
                                                                    dw[k], add_by, sum + 2 * k, product + 2 * k);
                        } else {
#pragma unroll
                            for (int k = 0; k < PAIRS; k++)
                                word[k] = pair_of_output<T>(constants_of<CM, float2>(constants, 0, PAIRS * q + k),
                                                            constants_of<CM, float2>(constants, CONSTANTS, PAIRS * q + k),
                                                            out[0][r][k][2 * i], out[0][r][k][2 * i + 1], sum + 2 * k,
                                                            product + 2 * k);
                        }
                        *reinterpret_cast<lane_vector *>(static_cast<T *>(a.out) + at) = packed;
                    }
                }
            }
#pragma unroll
            for (int r = 0; r < R; r++)
#pragma unroll
                for (int nt = 0; nt < TILES; nt++)
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        out[0][r][nt][i] = out[1][r][nt][i];
                        out[1][r][nt][i] = out[2][r][nt][i];
                        out[2][r][nt][i] = 0.0f;
                    }
        }
    }

    if (a.partial)
        give_sums<CO>(sum, product, p.warps, reinterpret_cast<float *>(slices), a.partial);
}

/* Starts the kernel that a.p, the problem and its type ask for; fp16 and bf16 are compiled apart. */
cudaError_t start_fp16(kernel_arguments &a, const flim_conv_problem *problem, int processors, double *sums,
                       cudaStream_t stream);
cudaError_t start_bf16(kernel_arguments &a, const flim_conv_problem *problem, int processors, double *sums,
                       cudaStream_t stream);
/* conv3x3x3_wgmma.cu, which is compiled apart, for compute capability 9.0: from 16 and 32 channels to as many, or from 64 to multiples
 * of 32 on weights as stored; stride 1.  False if rows are too wide. */
bool fits_wgmma(const flim_conv_problem *problem, int from, const flim_card *card);
/* Slices of x that each block walks over. */
int64_t walk_of_wgmma(const flim_conv_problem *problem, int from, const flim_card *card);
/* turns: warpgroups multiply one after the other. */
cudaError_t start_wgmma(const kernel_arguments &a, const flim_conv_problem *problem, int from, bool turns,
                        const flim_card *card, double *sums, cudaStream_t stream);

} // namespace flim_conv3x3x3
#endif
