/* 3x3x3 convolution, C -> C channels (8, 16 or 32), stride 1: forward and data gradient.
 *
 * Both are   out(p) = sum over taps x(p + tap - 1) W[tap]   on rows of C channels; for the data gradient W is flipped and
 * transposed as it is put into shared memory.  All 27 taps' weights (54 KB of 32 channels) stay there in the order of the
 * products' B operand.
 *
 * The pixels of all cells are numbered one after the other and cut into groups of 16 R pixels per warp (R = 2, or 1 if shared memory holds no more than 4 warps' groups); a block takes a group
 * and a range of time and walks along t.  Only one slice of x is needed at a time: slice s is multiplied by the weights of
 * all three dt and added to the outputs at s+1, s and s-1, whose sums (3 x R x 16 registers a lane) stay in registers; then
 * the output at s-1 is complete.  So an A operand is loaded once for three products (9 loads instead of 27), and shared
 * memory gives 43 + 128 bytes a product, less than the products take.  The next slice arrives by cp.async meanwhile.  A group
 * may cross from one cell to the next: its rows are staged as a column of planes, each with a row of zeros above and below.
 *
 * Output channels are dealt to the product's columns so that a lane holds C / 4 neighbouring channels (conv_stem.cu does the
 * same).
 *
 * With 8 channels a product's 16 inner elements are two neighbours in x: taps dx = 0 and 1, then 2 and one whose weights are
 * zero.
 *
 * Count at batch 64, 32 channels: 49 M products (mma.m16n8k16), 200 GFLOP = 0.27 ms at an H100's bf16 rate; 463 MB = 0.16 ms.
 */
#include "cuda/conv/conv3x3x3.h"
#include "cuda/conv/conv_mma.cuh"
#include "cuda/conv/conv_sums.cuh"

namespace
{

enum {
    MOST_C = 32,
    MOST_R = 2, /* 16-pixel tiles a warp: 12 warps with 2 do better than 8 with 3 (32 channels) */
    TAPS = 27,
    MAX_BLOCKS = 264,
    CONSTANTS =
        6, /* floats a channel, and one of the reserve: bias; prologue's scale, shift; epilogue's scale, shift, mean; about */
    SUMS_THREADS = 128
};

/* What follows from the number of channels. */
template <int C> struct width {
    enum {
        ROW = 2 * C, /* bytes of a slot */
        CHUNKS = C / 8, /* of 16 bytes */
        STEPS_X = C == 8 ? 2 : 3, /* products along dx: 8 channels take two taps at once */
        HALVES = C == 32 ? 2 : 1, /* 16s of a tap's input channels */
        TILES = C / 8, /* 8s of output channels */
        TOGETHER = TILES < 2 ? 1 : 2, /* tiles whose weights a load takes */
        LANE = C / 4, /* output channels of a lane */
        WEIGHTS = 9 * STEPS_X * HALVES * TILES * 32 * 2, /* 32-bit words */
        WARPS = C == 16 ? 8 : 12, /* most of a block, and blocks at once: what the registers allow */
        BLOCKS_A_SM = C == 32 ? 1 : 2
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
    float *partial; /* (gridDim.x, 2, C) or NULL */
    int64_t pixels; /* n * H * W */
    int t, h, w;
    bool flip; /* data gradient */
    tiling p;
};

struct load_entry {
    int pixel; /* of the slice t = 0 of its cell: (cell * T * H + y) * W + x; -1: stays zero */
    int slot; /* in the staged slice */
};

/* Byte offset of a slot's 16-byte chunk; swizzled so that 8 slots in a row meet no bank conflict. */
template <int C> __device__ __forceinline__ uint32_t slot_offset(int slot, int chunk)
{
    constexpr int CHUNKS = width<C>::CHUNKS;
    return (uint32_t)(slot * width<C>::ROW + ((chunk ^ (slot / (8 / CHUNKS) & (CHUNKS - 1))) << 4));
}

/* Halfword of weight (input channel k, output channel o, tap) in the order of the B operand: [dt, dy][step in x][k half]
 * [column tiles loaded together][lane][column tile of these, k quarter][k parity]. */
template <int C> __device__ __forceinline__ int weight_at(int k, int o, int tap)
{
    using W = width<C>;
    const int dx = tap % 3, step = C == 8 ? dx / 2 : dx, inner = C == 8 ? dx % 2 * 8 + k : k % 16, half = C == 8 ? 0 : k / 16;
    const int g = 2 * (o / W::LANE) + o % 2, tile = o % W::LANE / 2, lane = 4 * g + inner % 8 / 2;
    const int load = ((tap / 3 * W::STEPS_X + step) * W::HALVES + half) * (W::TILES / W::TOGETHER) + tile / W::TOGETHER;
    return (((load * 32 + lane) * W::TOGETHER + tile % W::TOGETHER) * 2 + inner / 8) * 2 + inner % 2;
}

template <typename T, int C, int R, bool PROLOGUE, bool EPILOGUE>
__global__ void __launch_bounds__(32 * width<C>::WARPS, width<C>::BLOCKS_A_SM) conv3x3x3(const kernel_arguments a)
{
    using W = width<C>;
    constexpr int ROW = W::ROW, CHUNKS = W::CHUNKS, TILES = W::TILES, TOGETHER = W::TOGETHER, LANE = W::LANE,
                  PAIRS = LANE / 2;
    using lane_vector = typename lane_words<PAIRS>::type;
    using weight_vector = typename lane_words<2 * TOGETHER>::type;
    extern __shared__ __align__(1024) char memory[];
    const tiling &p = a.p;
    const int tid = threadIdx.x, threads = blockDim.x, lane = tid % 32, warp = tid / 32, g = lane / 4, q = lane % 4;
    const int hw = a.h * a.w, slice_bytes = p.rows * p.pitch * ROW, entries = p.rows * a.w;

    uint32_t *weights = reinterpret_cast<uint32_t *>(memory);
    char *slices = memory + W::WEIGHTS * 4; /* two */
    load_entry *table = reinterpret_cast<load_entry *>(slices + 2 * slice_bytes);
    float *constants = reinterpret_cast<float *>(table + entries);
    const uint32_t slices_shared = flim_shared(slices);

    const float weight_scale = a.weight_scale ? *a.weight_scale : 1.0f;
    if (C == 8) { /* the taps that are none */
        for (int i = tid; i < W::WEIGHTS; i += threads)
            weights[i] = 0;
        __syncthreads();
    }
#pragma unroll 8
    for (int i = tid; i < C * C * TAPS; i += threads) {
        const int o = i / (C * TAPS), c = i / TAPS % C, tap = i % TAPS;
        reinterpret_cast<T *>(weights)[a.flip ? weight_at<C>(o, c, TAPS - 1 - tap) : weight_at<C>(c, o, tap)] =
            (T)(a.weight[i] * weight_scale);
    }
    if (tid < C) {
        constants[tid] = a.bias ? a.bias[tid] * weight_scale : 0.0f;
        constants[CONSTANTS * C + tid] = a.about ? a.about[tid] * weight_scale : 0.0f;
        if (PROLOGUE) {
            constants[C + tid] = a.prologue.scale[tid];
            constants[2 * C + tid] = a.prologue.shift[tid];
        }
        if (EPILOGUE) {
            constants[3 * C + tid] = a.epilogue.scale[tid];
            constants[4 * C + tid] = a.epilogue.shift[tid];
            constants[5 * C + tid] = a.epilogue.mean[tid];
        }
    }

    const int64_t total = (int64_t)p.groups * a.t;
    const int64_t end = total * (blockIdx.x + 1) / gridDim.x;
    float sum[LANE] = {}, product[LANE] = {};
    const float add_by = EPILOGUE && a.epilogue.add_scale ? *a.epilogue.add_scale : 1.0f;
    for (int64_t u = total * blockIdx.x / gridDim.x; u < end;) {
        const int group = (int)(u / a.t), t0 = (int)(u % a.t), t1 = (int)min((int64_t)a.t, t0 + end - u);
        u += t1 - t0;

        /* The group's rows: row s of the staged column is row (s + y0) % (H+2) - 1 of cell first_cell + (s + y0) / (H+2). */
        const int64_t pixel0 = (int64_t)group * p.group;
        const int first_cell = (int)(pixel0 / hw), y0 = (int)(pixel0 % hw) / a.w;
        const int64_t last_pixel = min(pixel0 + p.group, a.pixels) - 1;
        const int last_cell = (int)(last_pixel / hw);
        const int last_row =
            (last_cell - first_cell) * (a.h + 2) + (int)(last_pixel % hw) / a.w + 2 - y0; /* the halo below */
        __syncthreads();
        for (int i = tid; i < 2 * slice_bytes / 16; i += threads)
            reinterpret_cast<uint4 *>(slices)[i] = make_uint4(0, 0, 0, 0);
        for (int i = tid; i < entries; i += threads) {
            const int s = i / a.w, x = i % a.w, cell = (s + y0) / (a.h + 2), y = (s + y0) % (a.h + 2) - 1;
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
            slot[r] = ((cell - first_cell) * (a.h + 2) + rest / a.w - y0) * p.pitch + rest % a.w;
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
            const T *x = static_cast<const T *>(a.x) + (int64_t)t * hw * C + 8 * (tid % CHUNKS);
            const uint32_t slice = slices_shared + (uint32_t)((t & 1) * slice_bytes);
            for (int i = tid / CHUNKS + from * a_round; i < min(entries, to * a_round); i += a_round) {
                const load_entry e = table[i];
                if (e.pixel >= 0)
                    flim_copy_async(slice + slot_offset<C>(e.slot, tid % CHUNKS), x + (int64_t)e.pixel * C, true);
            }
        };
        auto activate =
            [&](int t) { /* what this thread has loaded, once it has come */
                         flim_copy_commit();
                         flim_copy_wait<0>();
                         if ((unsigned)t >= (unsigned)a.t)
                             return;
                         const int channel = 8 * (tid % CHUNKS);
                         for (int i = tid / CHUNKS; i < entries; i += a_round) {
                             const load_entry e = table[i];
                             if (e.pixel < 0)
                                 continue;
                             uint4 *at = reinterpret_cast<uint4 *>(slices + (t & 1) * slice_bytes +
                                                                   slot_offset<C>(e.slot, tid % CHUNKS));
                             uint4 v = *at;
                             uint32_t *word = &v.x;
#pragma unroll
                             for (int k = 0; k < 4; k++) {
                                 const float2 z = flim_unpack<T>(word[k]);
                                 const float2 scale = reinterpret_cast<const float2 *>(constants + C + channel)[k];
                                 const float2 shift = reinterpret_cast<const float2 *>(constants + 2 * C + channel)[k];
                                 word[k] =
                                     flim_pack<T>(flim_leaky(z.x * scale.x + shift.x), flim_leaky(z.y * scale.y + shift.y));
                             }
                             *at = v;
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
                        if (pixel[r][i] >= 0) {
                            const int64_t at = (pixel[r][i] + offset) * ROW;
                            asm volatile("prefetch.global.L2 [%0];" ::"l"(static_cast<const char *>(a.epilogue.z) + at));
                            if (a.epilogue.add)
                                asm volatile(
                                    "prefetch.global.L2 [%0];" ::"l"(static_cast<const char *>(a.epilogue.add) + at));
                        }
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
                            const int dx = C == 8 ? min(2 * step + lane / 16, 2) : step;
                            const uint32_t at = slice + slot_offset<C>(slot[r] + dy * p.pitch + dx, C == 8 ? 0 : lane / 16);
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
                        const int64_t from = (pixel[r][i] + offset) * C + LANE * q;
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
                        const int64_t at = (pixel[r][i] + offset) * C + LANE * q;
                        lane_vector packed;
                        uint32_t *word = reinterpret_cast<uint32_t *>(&packed);
                        if (EPILOGUE) {
                            const uint32_t *zw = reinterpret_cast<const uint32_t *>(&z4[r % 2][i]),
                                           *dw = reinterpret_cast<const uint32_t *>(&d4[r % 2][i]);
#pragma unroll
                            for (int k = 0; k < PAIRS; k++) {
                                const float2 z = flim_unpack<T>(zw[k]), d = flim_unpack<T>(dw[k]);
                                const float2 scale = reinterpret_cast<const float2 *>(constants + 3 * C)[PAIRS * q + k];
                                const float2 shift = reinterpret_cast<const float2 *>(constants + 4 * C)[PAIRS * q + k];
                                const float2 mean = reinterpret_cast<const float2 *>(constants + 5 * C)[PAIRS * q + k];
                                const float lo = fmaf(d.x, add_by, out[0][r][k][2 * i]) *
                                                 (z.x * scale.x + shift.x > 0.0f ? 1.0f : FLIM_SLOPE);
                                const float hi = fmaf(d.y, add_by, out[0][r][k][2 * i + 1]) *
                                                 (z.y * scale.y + shift.y > 0.0f ? 1.0f : FLIM_SLOPE);
                                word[k] = flim_pack<T>(lo, hi);
                                const float2 du = flim_unpack<T>(word[k]);
                                sum[2 * k] += du.x;
                                sum[2 * k + 1] += du.y;
                                product[2 * k] += du.x * (z.x - mean.x);
                                product[2 * k + 1] += du.y * (z.y - mean.y);
                            }
                        } else {
#pragma unroll
                            for (int k = 0; k < PAIRS; k++) {
                                const float2 bias = reinterpret_cast<const float2 *>(constants)[PAIRS * q + k];
                                word[k] = flim_pack<T>(out[0][r][k][2 * i] + bias.x, out[0][r][k][2 * i + 1] + bias.y);
                                const float2 about =
                                    reinterpret_cast<const float2 *>(constants + CONSTANTS * C)[PAIRS * q + k];
                                const float2 v = flim_unpack<T>(word[k]);
                                const float lo = v.x - about.x, hi = v.y - about.y;
                                sum[2 * k] += lo;
                                sum[2 * k + 1] += hi;
                                product[2 * k] += lo * lo;
                                product[2 * k + 1] += hi * hi;
                            }
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
        give_sums<C>(sum, product, p.warps, reinterpret_cast<float *>(slices), a.partial);
}

/* Completes a tiling from warps and tiles; false if it does not fit `limit` bytes of shared memory. */
bool complete(tiling &p, const flim_conv_problem *s, bool spread, int64_t limit)
{
    const int h = s->in[1], w = s->in[2], c = s->c;
    const int64_t pixels = s->n * h * w, weight_bytes = c == 32   ? 4 * width<32>::WEIGHTS
                                                        : c == 16 ? 4 * width<16>::WEIGHTS
                                                                  : 4 * width<8>::WEIGHTS;
    p.group = p.warps * p.r * 16;
    p.groups = (int)((pixels + p.group - 1) / p.group);
    const int span = (p.group - 1 + w - 1) / w + 1; /* most rows of pixels a group touches */
    p.cells = 1 + (span - 1 + h - 1) / h;
    p.rows = span + 2 * p.cells;
    p.pitch = spread ? w + 8 : w + 1; /* a row's right border is the next one's left: W + 1 slots would do */
    if (p.pitch < w + 2)
        p.pitch = w + 2;
    const int64_t bytes = weight_bytes + 2 * (int64_t)p.rows * p.pitch * 2 * c + (int64_t)sizeof(load_entry) * p.rows * w +
                          (int64_t)sizeof(float) *
                              (CONSTANTS * c + p.cells * c); /* a reserve: it decides on tilings, so on the order of sums */
    p.shared_bytes = (int)bytes;
    return bytes <= limit;
}

/* The tiling with the most products under way in the four parts of a multiprocessor, less for what is staged twice and for
 * bank conflicts; false if not even one warp's group fits. */
bool find_tiling(const flim_conv_problem *s, int64_t limit, tiling *best)
{
    const int w = s->in[2];
    double most = 0.0;
    for (int r = MOST_R; r >= (s->c == 32 ? 1 : MOST_R); r--) /* narrower ones always hold 8 warps */
        for (int warps = s->c == 16 ? width<16>::WARPS : width<32>::WARPS; warps >= 1; warps--)
            for (int spread = 1; spread >= 0; spread--) {
                tiling p = {};
                p.warps = warps;
                p.r = r;
                if (!complete(p, s, spread != 0, limit))
                    continue;
                const int rounds = (warps + 3) / 4; /* warps of the fullest part */
                const double halo = (double)p.rows * w / p.group;
                const double rate = (double)warps / rounds / (1.0 + 0.1 * halo + 0.05 * (spread == 0) + 0.2 / rounds) *
                                    (r == 1 ? 0.95 : 1.0); /* which loads each weight twice as often */
                if (rate > most) {
                    most = rate;
                    *best = p;
                }
            }
    return most > 0.0;
}

template <typename T, int C, int R, bool PROLOGUE, bool EPILOGUE>
cudaError_t start(const kernel_arguments &a, int grid, cudaStream_t stream)
{
    const auto kernel = conv3x3x3<T, C, R, PROLOGUE, EPILOGUE>;
    const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, a.p.shared_bytes);
    if (error != cudaSuccess)
        return error;
    kernel<<<grid, 32 * a.p.warps, a.p.shared_bytes, stream>>>(a);
    return cudaGetLastError();
}

template <typename T, int C, int R>
cudaError_t start(const kernel_arguments &a, bool prologue, bool epilogue, int grid, cudaStream_t stream)
{
    if (epilogue)
        return start<T, C, R, false, true>(a, grid, stream);
    return prologue ? start<T, C, R, true, false>(a, grid, stream) : start<T, C, R, false, false>(a, grid, stream);
}

template <typename T, int C>
cudaError_t start(const kernel_arguments &a, bool prologue, bool epilogue, int grid, cudaStream_t stream)
{
    if constexpr (C == 32) {
        if (a.p.r == 1)
            return start<T, C, 1>(a, prologue, epilogue, grid, stream);
    }
    return start<T, C, 2>(a, prologue, epilogue, grid, stream);
}

template <int C>
cudaError_t start(kernel_arguments &a, const flim_conv_problem *s, int sms, double *sums, cudaStream_t stream)
{
    const bool prologue = s->x_form == FLIM_INPUT_NORM_ACT_ON_LOAD;
    const int64_t slices = (int64_t)a.p.groups * a.t;
    int grid = sms * width<C>::BLOCKS_A_SM < MAX_BLOCKS ? sms * width<C>::BLOCKS_A_SM : MAX_BLOCKS;
    grid = slices < grid ? (int)slices : grid;
    const cudaError_t error = s->type == FLIM_STORAGE_BF16 ? start<__nv_bfloat16, C>(a, prologue, s->epilogue, grid, stream)
                                                           : start<__half, C>(a, prologue, s->epilogue, grid, stream);
    if (error != cudaSuccess || !sums)
        return error;
    add_sums<C, SUMS_THREADS><<<2 * C, SUMS_THREADS, 0, stream>>>(a.partial, grid, sums);
    return cudaGetLastError();
}

cudaError_t launch(const flim_conv_problem *problem, int64_t n, kernel_arguments &a, double *sums, void *scratch,
                   const flim_card *card, cudaStream_t stream)
{
    flim_conv_problem here = *problem;
    here.n = n;
    if (!flim_conv3x3x3_supported(&here, 80) || !find_tiling(&here, card->shared_bytes, &a.p))
        return cudaErrorInvalidValue;
    a.t = here.in[0], a.h = here.in[1], a.w = here.in[2];
    a.pixels = n * a.h * a.w;
    a.partial = sums ? static_cast<float *>(scratch) : nullptr;
    return here.c == 32   ? start<32>(a, &here, card->processors, sums, stream)
           : here.c == 16 ? start<16>(a, &here, card->processors, sums, stream)
                          : start<8>(a, &here, card->processors, sums, stream);
}

} // namespace

bool flim_conv3x3x3_supported(const flim_conv_problem *s, int sm)
{
    static const int three[3] = {3, 3, 3}, one[3] = {1, 1, 1};
    tiling p;
    const bool forward = s->op == FLIM_CONV_FORWARD && !s->epilogue && !s->add && s->x_form != FLIM_INPUT_NORM_ON_LOAD;
    const bool data = s->op == FLIM_CONV_DATA && s->x_form == FLIM_INPUT_PLAIN && (s->epilogue || !(s->add || s->sums));
    return sm >= 80 && s->master && (forward || data) && !s->stem && s->type != FLIM_STORAGE_FP32 &&
           (s->in_channels == 8 || s->in_channels == 16 || s->in_channels == 32) && s->out_channels == s->in_channels &&
           flim_conv_has_shape(s, three, one, one) && s->n > 0 && s->in[0] > 0 && s->in[1] > 0 && s->in[2] > 0 &&
           (double)s->n * (double)flim_volume(s->in) < 2147483647.0 && find_tiling(s, 96 * 1024, &p);
}

size_t flim_conv3x3x3_scratch_bytes(void)
{
    return sizeof(float) * MAX_BLOCKS * 2 * MOST_C;
}

cudaError_t flim_conv3x3x3_run(const flim_conv_problem *problem, const flim_conv_arguments *arguments, const flim_card *card,
                               cudaStream_t stream)
{
    kernel_arguments a = {};
    a.weight = arguments->master;
    a.weight_scale = arguments->weight_scale;
    if (problem->op == FLIM_CONV_DATA) {
        a.x = arguments->y;
        a.out = arguments->x;
        a.flip = true;
        a.epilogue = arguments->epilogue;
        if (!problem->add)
            a.epilogue.add = nullptr;
    } else {
        a.x = arguments->x;
        a.out = arguments->y;
        a.bias = arguments->bias;
        a.about = arguments->sums_about;
        a.prologue = arguments->prologue;
    }
    return launch(problem, arguments->n, a, problem->sums ? arguments->sums : nullptr, arguments->scratch, card, stream);
}
