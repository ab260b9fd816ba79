/* 3x3x3 convolution, 32 -> 32 channels, stride 1: forward and data gradient.
 *
 * Both are   out(p) = sum over taps x(p + tap - 1) W[tap]   on 32-channel rows; for the data gradient W is flipped and transposed as it is
 * put into shared memory.  All 27 taps' weights (54 KB) stay there in the order of the products' B operand.
 *
 * The pixels of all cells are numbered one after the other and cut into units of 16 R pixels a warp; a block takes a unit and a range
 * of time and walks along t.  Only one slice of x is needed at a time: slice s is multiplied by the weights of all three dt and added to the
 * outputs at s+1, s and s-1, whose sums (3 x R x 16 registers a lane) stay in registers; then the output at s-1 is complete.  So an A
 * operand is loaded once for three products (9 loads instead of 27), and shared memory gives 43 + 128 bytes a product, less than the
 * products take.  The next slice arrives by cp.async meanwhile.  A unit may cross from one cell to the next: its rows are staged as
 * a column of planes, each with a row of zeros above and below.
 *
 * Output channels are dealt to the product's columns so that a lane holds 8 neighbouring channels (conv_stem.cu does the same).
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
    ROW = 2 * C, /* bytes of a place */
    TAPS = 27,
    WEIGHT_BYTES = TAPS * C * C * 2,
    MAX_BLOCKS = 264,
    CONSTANTS = 6 * C, /* floats: bias; prologue's scale, shift; epilogue's scale, shift, mean */
    SUMS_THREADS = 128
};

/* How the pixels are cut. */
struct k3_plan {
    int warps; /* of a block */
    int unit; /* pixels of a unit: warps * R * 16 */
    int units;
    int rows; /* most rows staged for a unit */
    int cells; /* most cells a unit touches */
    int pitch; /* places from a row to the next */
    int shared_bytes;
};

struct k3_arguments {
    const void *x;
    const float *weight;
    const float *bias; /* forward */
    flim_conv_prologue prologue;
    flim_k3_epilogue epilogue;
    void *out;
    float *partial; /* (gridDim.x, 2, 32) or NULL */
    int64_t pixels; /* n * H * W */
    int t, h, w;
    bool flip; /* data gradient */
    k3_plan p;
};

struct load_entry {
    int pixel; /* of the slice t = 0 of its cell: (cell * T * H + y) * W + x; -1: stays zero */
    int place; /* in the staged slice, the cell within the unit << 20 */
};

__device__ __forceinline__ uint32_t place_offset(int place, int chunk)
{
    return (uint32_t)(place * ROW + ((chunk ^ ((place >> 1) & 3)) << 4));
}

/* Halfword of weight (input channel k, output channel o, tap) in the order of the B operand:
 * [tap][k half, column tile pair][lane][column tile, k quarter][k parity]. */
__device__ __forceinline__ int weight_at(int k, int o, int tap)
{
    const int g = 2 * (o / 8) + o % 2, tile = o % 8 / 2, lane = 4 * g + k % 8 / 2;
    return ((((tap * 4 + k / 16 * 2 + tile / 2) * 32 + lane) * 4) + tile % 2 * 2 + k / 8 % 2) * 2 + k % 2;
}

template <typename T, bool PROLOGUE, bool EPILOGUE>
__global__ void __launch_bounds__(32 * MAX_WARPS, 1) k3(const k3_arguments a)
{
    extern __shared__ __align__(1024) char memory[];
    const k3_plan &p = a.p;
    const int tid = threadIdx.x, threads = blockDim.x, lane = tid % 32, warp = tid / 32, g = lane / 4, q = lane % 4;
    const int hw = a.h * a.w, slice_bytes = p.rows * p.pitch * ROW, entries = p.rows * a.w;

    uint4 *weights = reinterpret_cast<uint4 *>(memory);
    char *slices = memory + WEIGHT_BYTES; /* two */
    load_entry *table = reinterpret_cast<load_entry *>(slices + 2 * slice_bytes);
    float *constants = reinterpret_cast<float *>(table + entries); /* CONSTANTS, then the cells' dropout (cells, 32) */
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

    const int64_t total = (int64_t)p.units * a.t;
    const int64_t end = total * (blockIdx.x + 1) / gridDim.x;
    float sum[8] = {}, product[8] = {};
    const float add_by = EPILOGUE && a.epilogue.add_scale ? *a.epilogue.add_scale : 1.0f;
    for (int64_t u = total * blockIdx.x / gridDim.x; u < end;) {
        const int unit = (int)(u / a.t), t0 = (int)(u % a.t), t1 = (int)min((int64_t)a.t, t0 + end - u);
        u += t1 - t0;

        /* The unit's rows: row s of the staged column is row (s + y0) % (H+2) - 1 of cell first_cell + (s + y0) / (H+2). */
        const int64_t pixel0 = (int64_t)unit * p.unit;
        const int first_cell = (int)(pixel0 / hw), y0 = (int)(pixel0 % hw) / a.w;
        const int64_t last_pixel = min(pixel0 + p.unit, a.pixels) - 1;
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
            table[i].place = (s * p.pitch + x + 1) | cell << 20;
        }
        if (PROLOGUE && a.prologue.dropout)
            for (int i = tid; i < (last_cell - first_cell + 1) * C; i += threads)
                constants[CONSTANTS + i] = a.prologue.dropout[first_cell * C + i];
        __syncthreads();

        /* This lane's rows of A (its tap 0,0), and of the output. */
        int place[R], pixel[R][2];
#pragma unroll
        for (int r = 0; r < R; r++) {
            const int64_t tile = pixel0 + (warp * R + r) * 16;
            const int64_t at = min(tile + lane % 16, a.pixels - 1);
            const int cell = (int)(at / hw), rest = (int)(at % hw);
            place[r] = ((cell - first_cell) * (a.h + 2) + rest / a.w - y0) * p.pitch + rest % a.w;
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
                    flim_copy_async(slice + place_offset(e.place & 0xfffff, tid % 4), x + (int64_t)e.pixel * C, true);
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
                             uint4 *at = reinterpret_cast<uint4 *>(slices + (t & 1) * slice_bytes +
                                                                   place_offset(e.place & 0xfffff, tid % 4));
                             uint4 v = *at;
                             uint32_t *word = &v.x;
#pragma unroll
                             for (int k = 0; k < 4; k++) {
                                 const float2 z = flim_unpack<T>(word[k]);
                                 const float2 scale = reinterpret_cast<const float2 *>(constants + C + channel)[k];
                                 const float2 shift = reinterpret_cast<const float2 *>(constants + 2 * C + channel)[k];
                                 word[k] =
                                     flim_pack<T>(flim_leaky(z.x * scale.x + shift.x), flim_leaky(z.y * scale.y + shift.y));
                                 if (a.prologue.dropout) {
                                     const float2 y = flim_unpack<T>(word[k]);
                                     const float2 d = reinterpret_cast<const float2 *>(constants + CONSTANTS +
                                                                                       (e.place >> 20) * C + channel)[k];
                                     word[k] = flim_pack<T>(y.x * d.x, y.y * d.y);
                                 }
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
                            const uint32_t at = slice + place_offset(place[r] + dy * p.pitch + dx, lane / 16);
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

/* Completes a plan from warps and tiles; false where it does not fit `limit` bytes of shared memory. */
bool complete(k3_plan &p, const flim_k3_shape *s, bool spread, int64_t limit)
{
    const int64_t pixels = s->n * s->h * s->w;
    p.unit = p.warps * R * 16;
    p.units = (int)((pixels + p.unit - 1) / p.unit);
    const int span = (p.unit - 1 + s->w - 1) / s->w + 1; /* most rows of pixels a unit touches */
    p.cells = 1 + (span - 1 + s->h - 1) / s->h;
    p.rows = span + 2 * p.cells;
    p.pitch = spread ? s->w + 8 : s->w + 1; /* a row's right border is the next one's left: W + 1 places would do */
    if (p.pitch < s->w + 2)
        p.pitch = s->w + 2;
    const int64_t places = ((int64_t)p.rows * p.pitch + 7) / 8 * 8;
    const int64_t bytes = WEIGHT_BYTES + 2 * (int64_t)p.rows * p.pitch * ROW + (int64_t)sizeof(load_entry) * p.rows * s->w +
                          (int64_t)sizeof(float) * (CONSTANTS + p.cells * C);
    p.shared_bytes = (int)bytes;
    return bytes <= limit && places < (1 << 20) && p.cells < (1 << 10);
}

/* The cut with the most products under way in the four parts of a multiprocessor, less for what is staged twice and for bank
 * conflicts; false where not even one warp's unit fits. */
bool plan(const flim_k3_shape *s, int64_t limit, k3_plan *best)
{
    double most = 0.0;
    for (int warps = MAX_WARPS; warps >= 1; warps--)
        for (int spread = 1; spread >= 0; spread--) {
            k3_plan p = {};
            p.warps = warps;
            if (!complete(p, s, spread != 0, limit))
                continue;
            const int rounds = (warps + 3) / 4; /* warps of the fullest part */
            const double halo = (double)p.rows * s->w / p.unit;
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

template <typename T, bool PROLOGUE, bool EPILOGUE> cudaError_t start(const k3_arguments &a, int grid, cudaStream_t stream)
{
    const cudaError_t error =
        cudaFuncSetAttribute(k3<T, PROLOGUE, EPILOGUE>, cudaFuncAttributeMaxDynamicSharedMemorySize, a.p.shared_bytes);
    if (error != cudaSuccess)
        return error;
    k3<T, PROLOGUE, EPILOGUE><<<grid, 32 * a.p.warps, a.p.shared_bytes, stream>>>(a);
    return cudaGetLastError();
}

template <typename T> cudaError_t start(const k3_arguments &a, bool prologue, bool epilogue, int grid, cudaStream_t stream)
{
    if (epilogue)
        return start<T, false, true>(a, grid, stream);
    return prologue ? start<T, true, false>(a, grid, stream) : start<T, false, false>(a, grid, stream);
}

cudaError_t run(const flim_k3_shape *s, k3_arguments &a, bool prologue, bool epilogue, double *sums, void *scratch,
                cudaStream_t stream)
{
    int sms = 0, shared = 0;
    cudaError_t error = card(&sms, &shared);
    if (error != cudaSuccess)
        return error;
    if (!flim_k3_supported(s, 80) || !plan(s, shared, &a.p))
        return cudaErrorInvalidValue;
    a.t = s->t, a.h = s->h, a.w = s->w;
    a.pixels = s->n * s->h * s->w;
    a.partial = sums ? static_cast<float *>(scratch) : nullptr;
    const int64_t slices = (int64_t)a.p.units * s->t;
    int grid = sms < MAX_BLOCKS ? sms : MAX_BLOCKS;
    grid = slices < grid ? (int)slices : grid;
    error = s->type == FLIM_CONV_BF16 ? start<__nv_bfloat16>(a, prologue, epilogue, grid, stream)
                                      : start<__half>(a, prologue, epilogue, grid, stream);
    if (error != cudaSuccess || !sums)
        return error;
    add_sums<SUMS_THREADS><<<2 * C, SUMS_THREADS, 0, stream>>>(a.partial, grid, sums);
    return cudaGetLastError();
}

} // namespace

bool flim_k3_supported(const flim_k3_shape *s, int sm)
{
    k3_plan p;
    return sm >= 80 && (s->type == FLIM_CONV_BF16 || s->type == FLIM_CONV_FP16) && s->n > 0 && s->t > 0 && s->h > 0 &&
           s->w > 0 && (double)s->n * s->t * s->h * s->w < 2147483647.0 && plan(s, 96 * 1024, &p);
}

size_t flim_k3_scratch_bytes(void)
{
    return sizeof(float) * MAX_BLOCKS * 2 * C;
}

cudaError_t flim_k3_forward(const flim_k3_shape *shape, const void *x, const flim_conv_prologue *prologue,
                            const float *weight, const float *bias, void *z, double *sums, void *scratch, cudaStream_t stream)
{
    k3_arguments a = {};
    a.x = x;
    a.weight = weight;
    a.bias = bias;
    a.out = z;
    if (prologue)
        a.prologue = *prologue;
    return run(shape, a, prologue != nullptr, false, sums, scratch, stream);
}

cudaError_t flim_k3_backward_data(const flim_k3_shape *shape, const void *dz, const float *weight,
                                  const flim_k3_epilogue *epilogue, void *dx, double *sums, void *scratch,
                                  cudaStream_t stream)
{
    k3_arguments a = {};
    a.x = dz;
    a.weight = weight;
    a.out = dx;
    a.flip = true;
    if (epilogue)
        a.epilogue = *epilogue;
    return run(shape, a, false, epilogue != nullptr, sums, scratch, stream);
}
