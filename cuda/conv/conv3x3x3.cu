/* 3x3x3 convolution, 32 -> 32 channels, stride 1: forward and data gradient.
 *
 * Both are   out(p) = sum over taps x(p + tap - 1) W[tap]   on 32-channel rows; for the data gradient W is flipped and
 * transposed as it is put into shared memory.  All 27 taps' weights (54 KB) stay there in the order of the products' B
 * operand.
 *
 * The pixels of all cells are numbered one after the other and cut into groups of 16 R pixels per warp; a block takes a group
 * and a range of time and walks along t.  Only one slice of x is needed at a time: slice s is multiplied by the weights of
 * all three dt and added to the outputs at s+1, s and s-1, whose sums (3 x R x 16 registers a lane) stay in registers; then
 * the output at s-1 is complete.  So an A operand is loaded once for three products (9 loads instead of 27), and shared
 * memory gives 43 + 128 bytes a product, less than the products take.  The next slice arrives by cp.async meanwhile.  A group
 * may cross from one cell to the next: its rows are staged as a column of planes, each with a row of zeros above and below.
 *
 * Output channels are dealt to the product's columns so that a lane holds 8 neighbouring channels (conv_stem.cu does the
 * same).
 *
 * Count at batch 64: 49 M products (mma.m16n8k16), 200 GFLOP = 0.27 ms at an H100's bf16 rate; 463 MB = 0.16 ms.
 */
#include "cuda/conv/conv3x3x3.h"
#include "cuda/conv/conv_mma.cuh"
#include "cuda/conv/conv_sums.cuh"

namespace
{

enum {
    C = 32,
    R = 2, /* 16-pixel tiles a warp: 12 warps with 2 do better than 8 with 3 */
    MAX_WARPS = 12, /* what the registers allow */
    ROW = 2 * C, /* bytes of a slot */
    TAPS = 27,
    WEIGHT_BYTES = TAPS * C * C * 2,
    MAX_BLOCKS = 264,
    CONSTANTS = 6 * C, /* floats: bias; prologue's scale, shift; epilogue's scale, shift, mean */
    SUMS_THREADS = 128
};

/* How the pixels are tiled. */
struct tiling {
    int warps; /* of a block */
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
    flim_conv_prologue prologue;
    flim_conv_epilogue epilogue;
    void *out;
    float *partial; /* (gridDim.x, 2, 32) or NULL */
    int64_t pixels; /* n * H * W */
    int t, h, w;
    bool flip; /* data gradient */
    tiling p;
};

struct load_entry {
    int pixel; /* of the slice t = 0 of its cell: (cell * T * H + y) * W + x; -1: stays zero */
    int slot; /* in the staged slice */
};

__device__ __forceinline__ uint32_t slot_offset(int slot, int chunk)
{
    return (uint32_t)(slot * ROW + ((chunk ^ ((slot >> 1) & 3)) << 4));
}

/* Halfword of weight (input channel k, output channel o, tap) in the order of the B operand:
 * [tap][k half, column tile pair][lane][column tile, k quarter][k parity]. */
__device__ __forceinline__ int weight_at(int k, int o, int tap)
{
    const int g = 2 * (o / 8) + o % 2, tile = o % 8 / 2, lane = 4 * g + k % 8 / 2;
    return ((((tap * 4 + k / 16 * 2 + tile / 2) * 32 + lane) * 4) + tile % 2 * 2 + k / 8 % 2) * 2 + k % 2;
}

template <typename T, bool PROLOGUE, bool EPILOGUE>
__global__ void __launch_bounds__(32 * MAX_WARPS, 1) conv3x3x3(const kernel_arguments a)
{
    extern __shared__ __align__(1024) char memory[];
    const tiling &p = a.p;
    const int tid = threadIdx.x, threads = blockDim.x, lane = tid % 32, warp = tid / 32, g = lane / 4, q = lane % 4;
    const int hw = a.h * a.w, slice_bytes = p.rows * p.pitch * ROW, entries = p.rows * a.w;

    uint4 *weights = reinterpret_cast<uint4 *>(memory);
    char *slices = memory + WEIGHT_BYTES; /* two */
    load_entry *table = reinterpret_cast<load_entry *>(slices + 2 * slice_bytes);
    float *constants = reinterpret_cast<float *>(table + entries);
    const uint32_t slices_shared = flim_shared(slices);

#pragma unroll 8
    for (int i = tid; i < C * C * TAPS; i += threads) {
        const int o = i / (C * TAPS), c = i / TAPS % C, tap = i % TAPS;
        reinterpret_cast<T *>(weights)[a.flip ? weight_at(o, c, TAPS - 1 - tap) : weight_at(c, o, tap)] = (T)a.weight[i];
    }
    if (tid < C) {
        constants[tid] = a.bias ? a.bias[tid] : 0.0f;
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
    float sum[8] = {}, product[8] = {};
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
        const int rounds = (entries + threads / 4 - 1) / (threads / 4);
        auto load = [&](int t, int from, int to) {
            if ((unsigned)t >= (unsigned)a.t || t > t1)
                return;
            const T *x = static_cast<const T *>(a.x) + (int64_t)t * hw * C + 8 * (tid % 4);
            const uint32_t slice = slices_shared + (uint32_t)((t & 1) * slice_bytes);
            for (int i = tid / 4 + from * (threads / 4); i < min(entries, to * (threads / 4)); i += threads / 4) {
                const load_entry e = table[i];
                if (e.pixel >= 0)
                    flim_copy_async(slice + slot_offset(e.slot, tid % 4), x + (int64_t)e.pixel * C, true);
            }
        };
        auto activate =
            [&](int t) { /* what this thread has loaded, once it has come */
                         flim_copy_commit();
                         flim_copy_wait<0>();
                         if ((unsigned)t >= (unsigned)a.t)
                             return;
                         const int channel = 8 * (tid % 4);
                         for (int i = tid / 4; i < entries; i += threads / 4) {
                             const load_entry e = table[i];
                             if (e.pixel < 0)
                                 continue;
                             uint4 *at =
                                 reinterpret_cast<uint4 *>(slices + (t & 1) * slice_bytes + slot_offset(e.slot, tid % 4));
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

        float out[3][R][4][4] = {}; /* at t - 1, t, t + 1 */
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
                const uint4 *b = weights + lane;
#pragma unroll 1
                for (int dy = 0; dy < 3; dy++) {
                    /* The next slice's copies and activation, between products: other warps' products go on. */
                    if (!PROLOGUE)
                        load(t + 1, rounds * dy / 3, rounds * (dy + 1) / 3);
                    else if (dy == 0)
                        load(t + 1, 0, rounds);
#pragma unroll
                    for (int dx = 0; dx < 3; dx++, b += 4 * 32) {
                        uint32_t x[R][2][4];
#pragma unroll
                        for (int r = 0; r < R; r++) {
                            const uint32_t at = slice + slot_offset(slot[r] + dy * p.pitch + dx, lane / 16);
                            flim_ldmatrix(x[r][0], at);
                            flim_ldmatrix(x[r][1], at ^ 32u);
                        }
#pragma unroll
                        for (int dt = 0; dt < 3; dt++)
#pragma unroll
                            for (int v = 0; v < 4; v++) { /* half of k, pair of column tiles */
                                const uint4 w = b[dt * 9 * 4 * 32 + v * 32];
#pragma unroll
                                for (int r = 0; r < R; r++) {
                                    flim_mma<T>(out[2 - dt][r][2 * (v % 2)], x[r][v / 2], w.x, w.y);
                                    flim_mma<T>(out[2 - dt][r][2 * (v % 2) + 1], x[r][v / 2], w.z, w.w);
                                }
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
                uint4 z4[2][2], d4[2][2]; /* for r and r + 1: loads stand before the stores, which might alias */
                auto fetch = [&](int r) {
#pragma unroll
                    for (int i = 0; i < 2; i++) {
                        const int64_t from = (pixel[r][i] + offset) * C + 8 * q;
                        z4[r % 2][i] = d4[r % 2][i] = make_uint4(0, 0, 0, 0);
                        if (pixel[r][i] >= 0) {
                            z4[r % 2][i] = *reinterpret_cast<const uint4 *>(static_cast<const T *>(a.epilogue.z) + from);
                            if (a.epilogue.add)
                                d4[r % 2][i] =
                                    *reinterpret_cast<const uint4 *>(static_cast<const T *>(a.epilogue.add) + from);
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
                        const int64_t at = (pixel[r][i] + offset) * C + 8 * q;
                        uint32_t word[4];
                        if (EPILOGUE) {
                            const uint32_t *zw = &z4[r % 2][i].x, *dw = &d4[r % 2][i].x;
#pragma unroll
                            for (int k = 0; k < 4; k++) {
                                const float2 z = flim_unpack<T>(zw[k]), d = flim_unpack<T>(dw[k]);
                                const float2 scale = reinterpret_cast<const float2 *>(constants + 3 * C)[4 * q + k];
                                const float2 shift = reinterpret_cast<const float2 *>(constants + 4 * C)[4 * q + k];
                                const float2 mean = reinterpret_cast<const float2 *>(constants + 5 * C)[4 * q + k];
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
                            for (int k = 0; k < 4; k++) {
                                const float2 bias = reinterpret_cast<const float2 *>(constants)[4 * q + k];
                                word[k] = flim_pack<T>(out[0][r][k][2 * i] + bias.x, out[0][r][k][2 * i + 1] + bias.y);
                                const float2 v = flim_unpack<T>(word[k]);
                                sum[2 * k] += v.x;
                                sum[2 * k + 1] += v.y;
                                product[2 * k] += v.x * v.x;
                                product[2 * k + 1] += v.y * v.y;
                            }
                        }
                        *reinterpret_cast<uint4 *>(static_cast<T *>(a.out) + at) =
                            make_uint4(word[0], word[1], word[2], word[3]);
                    }
                }
            }
#pragma unroll
            for (int r = 0; r < R; r++)
#pragma unroll
                for (int nt = 0; nt < 4; nt++)
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        out[0][r][nt][i] = out[1][r][nt][i];
                        out[1][r][nt][i] = out[2][r][nt][i];
                        out[2][r][nt][i] = 0.0f;
                    }
        }
    }

    if (a.partial)
        give_sums(sum, product, p.warps, reinterpret_cast<float *>(slices), a.partial);
}

/* Completes a tiling from warps and tiles; false if it does not fit `limit` bytes of shared memory. */
bool complete(tiling &p, const flim_conv_problem *s, bool spread, int64_t limit)
{
    const int h = s->in[1], w = s->in[2];
    const int64_t pixels = s->n * h * w;
    p.group = p.warps * R * 16;
    p.groups = (int)((pixels + p.group - 1) / p.group);
    const int span = (p.group - 1 + w - 1) / w + 1; /* most rows of pixels a group touches */
    p.cells = 1 + (span - 1 + h - 1) / h;
    p.rows = span + 2 * p.cells;
    p.pitch = spread ? w + 8 : w + 1; /* a row's right border is the next one's left: W + 1 slots would do */
    if (p.pitch < w + 2)
        p.pitch = w + 2;
    const int64_t bytes =
        WEIGHT_BYTES + 2 * (int64_t)p.rows * p.pitch * ROW + (int64_t)sizeof(load_entry) * p.rows * w +
        (int64_t)sizeof(float) * (CONSTANTS + p.cells * C); /* a reserve: it decides on tilings, so on the order of sums */
    p.shared_bytes = (int)bytes;
    return bytes <= limit;
}

/* The tiling with the most products under way in the four parts of a multiprocessor, less for what is staged twice and for
 * bank conflicts; false if not even one warp's group fits. */
bool find_tiling(const flim_conv_problem *s, int64_t limit, tiling *best)
{
    const int w = s->in[2];
    double most = 0.0;
    for (int warps = MAX_WARPS; warps >= 1; warps--)
        for (int spread = 1; spread >= 0; spread--) {
            tiling p = {};
            p.warps = warps;
            if (!complete(p, s, spread != 0, limit))
                continue;
            const int rounds = (warps + 3) / 4; /* warps of the fullest part */
            const double halo = (double)p.rows * w / p.group;
            const double rate = (double)warps / rounds / (1.0 + 0.1 * halo + 0.05 * (spread == 0) + 0.2 / rounds);
            if (rate > most) {
                most = rate;
                *best = p;
            }
        }
    return most > 0.0;
}

cudaError_t card(int *sms, int *shared)
{
    int device = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess)
        error = cudaDeviceGetAttribute(sms, cudaDevAttrMultiProcessorCount, device);
    if (error == cudaSuccess)
        error = cudaDeviceGetAttribute(shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    return error;
}

template <typename T, bool PROLOGUE, bool EPILOGUE>
cudaError_t start(const kernel_arguments &a, int grid, cudaStream_t stream)
{
    const cudaError_t error =
        cudaFuncSetAttribute(conv3x3x3<T, PROLOGUE, EPILOGUE>, cudaFuncAttributeMaxDynamicSharedMemorySize, a.p.shared_bytes);
    if (error != cudaSuccess)
        return error;
    conv3x3x3<T, PROLOGUE, EPILOGUE><<<grid, 32 * a.p.warps, a.p.shared_bytes, stream>>>(a);
    return cudaGetLastError();
}

template <typename T>
cudaError_t start(const kernel_arguments &a, bool prologue, bool epilogue, int grid, cudaStream_t stream)
{
    if (epilogue)
        return start<T, false, true>(a, grid, stream);
    return prologue ? start<T, true, false>(a, grid, stream) : start<T, false, false>(a, grid, stream);
}

cudaError_t launch(const flim_conv_problem *problem, int64_t n, kernel_arguments &a, double *sums, void *scratch,
                   cudaStream_t stream)
{
    int sms = 0, shared = 0;
    cudaError_t error = card(&sms, &shared);
    if (error != cudaSuccess)
        return error;
    flim_conv_problem here = *problem;
    here.n = n;
    if (!flim_conv3x3x3_supported(&here, 80) || !find_tiling(&here, shared, &a.p))
        return cudaErrorInvalidValue;
    const bool prologue = problem->x_form == FLIM_INPUT_NORM_ACT_ON_LOAD;
    a.t = here.in[0], a.h = here.in[1], a.w = here.in[2];
    a.pixels = n * a.h * a.w;
    a.partial = sums ? static_cast<float *>(scratch) : nullptr;
    const int64_t slices = (int64_t)a.p.groups * a.t;
    int grid = sms < MAX_BLOCKS ? sms : MAX_BLOCKS;
    grid = slices < grid ? (int)slices : grid;
    error = problem->type == FLIM_STORAGE_BF16 ? start<__nv_bfloat16>(a, prologue, problem->epilogue, grid, stream)
                                               : start<__half>(a, prologue, problem->epilogue, grid, stream);
    if (error != cudaSuccess || !sums)
        return error;
    add_sums<SUMS_THREADS><<<2 * C, SUMS_THREADS, 0, stream>>>(a.partial, grid, sums);
    return cudaGetLastError();
}

} // namespace

bool flim_conv3x3x3_supported(const flim_conv_problem *s, int sm)
{
    static const int three[3] = {3, 3, 3}, one[3] = {1, 1, 1};
    tiling p;
    const bool forward = s->op == FLIM_CONV_FORWARD && !s->epilogue && !s->add && s->x_form != FLIM_INPUT_NORM_ON_LOAD;
    const bool data = s->op == FLIM_CONV_DATA && s->x_form == FLIM_INPUT_PLAIN && (s->epilogue || !(s->add || s->sums));
    return sm >= 80 && s->master && (forward || data) && !s->stem && s->type != FLIM_STORAGE_FP32 && s->in_channels == C &&
           s->out_channels == C && flim_conv_has_shape(s, three, one, one) && s->n > 0 && s->in[0] > 0 && s->in[1] > 0 &&
           s->in[2] > 0 && (double)s->n * (double)flim_volume(s->in) < 2147483647.0 && find_tiling(s, 96 * 1024, &p);
}

size_t flim_conv3x3x3_scratch_bytes(void)
{
    return sizeof(float) * MAX_BLOCKS * 2 * C;
}

cudaError_t flim_conv3x3x3_run(const flim_conv_problem *problem, const flim_conv_arguments *arguments, cudaStream_t stream)
{
    kernel_arguments a = {};
    a.weight = arguments->master;
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
        a.prologue = arguments->prologue;
    }
    return launch(problem, arguments->n, a, problem->sums ? arguments->sums : nullptr, arguments->scratch, stream);
}
