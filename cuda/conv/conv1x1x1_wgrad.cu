/* Weight gradient of 1x1x1 convolutions: dW[k][c] = sum over positions p of dz[p][k] x[p'][c].
 *
 * A product (mma.m16n8k16) has 16 channels of dz, 8 of x and 16 positions.  Positions come to shared memory in stages of about 24 KB,
 * three of them under way, and ldmatrix turns both operands.  A warp has MT x 16 channels of dz and NT x 8 of x; if that is not
 * all of them, warps share the channels, and what warps are left share the positions: their sums are added through shared memory at the
 * end, in fixed order, and those of the blocks by a second kernel.
 *
 * Count for res2.skip of base at batch 64: 63 MB of x, 127 MB of dz, 46 us on an H200.
 */
#include "cuda/conv/conv1x1x1.cuh"
#include "cuda/conv/conv_mma.cuh"
#include "cuda/conv/conv_wgrad.cuh"

namespace
{

enum { WARPS = 8, THREADS = 32 * WARPS, STAGES = 3, STAGE_BYTES = 24 * 1024, MOST_POSITIONS = 256 };

/* Rows of 16-byte chunks, a power of two of them; swizzled so that 8 rows one after the other meet no bank conflict. */
struct chunk_rows {
    int log_chunks;
    __device__ __forceinline__ uint32_t offset(int row, int chunk) const
    {
        const int fold = log_chunks < 3 ? row >> (3 - log_chunks) & ((1 << log_chunks) - 1) : row & 7;
        return (uint32_t)((row << log_chunks) + (chunk ^ fold)) << 4;
    }
};

struct kernel_arguments {
    const void *x, *dz;
    const float *scale, *shift;
    float *partial; /* (gridDim.x, K, C) */
    flim_positions positions;
    int c, k, stage; /* stage: positions */
    int parts_k, parts_c; /* of channels, a warp's each */
    int parts; /* of a block: all, or WARPS of them */
    chunk_rows x_rows, dz_rows;
};

/* Grid (blocks, blocks of parts). */
template <typename T, int MT, int NT, bool PROLOGUE>
__global__ void __launch_bounds__(THREADS, 1) wgrad1x1x1(const kernel_arguments a)
{
    constexpr int SUMS = MT * NT * 4;
    extern __shared__ __align__(1024) char memory[];
    const int tid = threadIdx.x, lane = tid % 32, warp = tid / 32, g = lane / 4, q = lane % 4;
    const int here = warp % a.parts, part = (int)blockIdx.y * a.parts + here, share = warp / a.parts,
              shares = WARPS / a.parts;
    const int k0 = part % a.parts_k * 16 * MT, c0 = part / a.parts_k * 8 * NT;
    const int x_chunks = a.c / 8, dz_chunks = a.k / 8, x_bytes = a.stage * a.c * 2, dz_bytes = a.stage * a.k * 2;
    const uint32_t shared = flim_shared(memory);
    const int stages = (a.positions.count + a.stage - 1) / a.stage, step = gridDim.x;

    auto x_slice = [&](int ring) { return (uint32_t)(ring * (x_bytes + dz_bytes)); };
    auto load = [&](int stage, int ring) {
        if (stage < stages) {
            const int first = stage * a.stage;
            for (int i = tid; i < a.stage * x_chunks; i += THREADS) {
                const int row = i >> a.x_rows.log_chunks, chunk = i & (x_chunks - 1), position = first + row;
                const bool there = position < a.positions.count;
                flim_copy_async(
                    shared + x_slice(ring) + a.x_rows.offset(row, chunk),
                    static_cast<const T *>(a.x) + (int64_t)a.positions.pixel(there ? position : 0) * a.c + 8 * chunk, there);
            }
            for (int i = tid; i < a.stage * dz_chunks; i += THREADS) {
                const int row = i >> a.dz_rows.log_chunks, chunk = i & (dz_chunks - 1), position = first + row;
                const bool there = position < a.positions.count;
                flim_copy_async(shared + x_slice(ring) + x_bytes + a.dz_rows.offset(row, chunk),
                                static_cast<const T *>(a.dz) + (int64_t)(there ? position : 0) * a.k + 8 * chunk, there);
            }
        }
        flim_copy_commit();
    };
    /* The previous unit's activation on what this thread has copied of x. */
    auto activate = [&](int stage, int ring) {
        for (int i = tid; i < a.stage * x_chunks; i += THREADS) {
            const int row = i >> a.x_rows.log_chunks, chunk = i & (x_chunks - 1);
            if (stage * a.stage + row < a.positions.count)
                flim_activate_chunk<T>(memory + x_slice(ring) + a.x_rows.offset(row, chunk), a.scale + 8 * chunk,
                                       a.shift + 8 * chunk);
        }
    };

    float sum[MT][NT][4] = {};
    for (int s = 0; s < STAGES - 1; s++)
        load((int)blockIdx.x + s * step, s);
    int ring = 0;
    for (int stage = blockIdx.x; stage < stages; stage += step) {
        flim_copy_wait<STAGES - 2>();
        if (PROLOGUE)
            activate(stage, ring);
        __syncthreads(); /* the stage is there, and all are done with the one before */
        load(stage + (STAGES - 1) * step, (ring + STAGES - 1) % STAGES);
        const uint32_t x = shared + x_slice(ring), dz = x + x_bytes;
        for (int r = share; r < a.stage / 16; r += shares) {
            uint32_t rows[MT][4], columns[NT][2];
#pragma unroll
            for (int m = 0; m < MT; m++)
                flim_ldmatrix_trans(rows[m], dz + a.dz_rows.offset(16 * r + lane % 8 + 8 * (lane / 16),
                                                                   k0 / 8 + 2 * m + (a.k == 8 ? 0 : lane / 8 % 2)));
#pragma unroll
            for (int n = 0; n < NT; n += 2) {
                const int row = 16 * r + lane % 8 + 8 * (lane / 8 % 2);
                if constexpr (NT == 1) {
                    flim_ldmatrix2_trans(columns[n][0], columns[n][1], x + a.x_rows.offset(row, c0 / 8 + n));
                } else {
                    uint32_t both[4];
                    flim_ldmatrix_trans(both, x + a.x_rows.offset(row, c0 / 8 + n + lane / 16));
                    columns[n][0] = both[0], columns[n][1] = both[1];
                    columns[n + 1][0] = both[2], columns[n + 1][1] = both[3];
                }
            }
#pragma unroll
            for (int m = 0; m < MT; m++)
#pragma unroll
                for (int n = 0; n < NT; n++)
                    flim_mma<T>(sum[m][n], rows[m], columns[n][0], columns[n][1]);
        }
        ring = (ring + 1) % STAGES;
    }

    /* The shares' sums in their order, then to memory. */
    float *joined = reinterpret_cast<float *>(memory) + here * SUMS * 32 + lane; /* (parts, SUMS, 32) */
    const float *flat = &sum[0][0][0];
    flim_copy_wait<0>();
    for (int turn = shares - 1; turn >= 0; turn--) {
        __syncthreads();
        if (share != turn)
            continue;
#pragma unroll
        for (int i = 0; i < SUMS; i++) {
            const float v = flat[i] + (turn < shares - 1 ? joined[i * 32] : 0.0f);
            if (turn > 0) {
                joined[i * 32] = v;
                continue;
            }
            const int k = k0 + 16 * (i / (4 * NT)) + g + 8 * (i % 4 / 2), c = c0 + 8 * (i / 4 % NT) + 2 * q + i % 2;
            if (k < a.k) /* of 8 there are 16 rows */
                a.partial[((int64_t)blockIdx.x * a.k + k) * a.c + c] = v;
        }
    }
}

/* Grid (K C / 32), block (32, FLIM_WGRAD_ROWS): adds the blocks' sums in fixed order. */
__global__ void __launch_bounds__(32 * FLIM_WGRAD_ROWS)
    add_blocks(const float *partial, int blocks, int c, int k, int in_channels, int out_channels, float *dw,
               const float *unscale, bool accumulate)
{
    const int at = (int)blockIdx.x * 32 + threadIdx.x;
    float sum;
    if (flim_wgrad_add(partial + at, (int64_t)c * k, blocks, &sum) && at / c < out_channels && at % c < in_channels)
        flim_wgrad_give(dw + (int64_t)(at / c) * in_channels + at % c, sum, unscale, accumulate);
}

int log2_of(int power)
{
    int log = 0;
    while (1 << log < power)
        log++;
    return log;
}

/* How the channels are dealt, and positions to a stage. */
void cut(const flim_conv_problem *p, kernel_arguments &a)
{
    const int mt = p->k >= 64 ? 4 : p->k >= 32 ? 2 : 1, nt = p->c >= 32 ? 4 : p->c >= 16 ? 2 : 1;
    a.c = p->c, a.k = p->k;
    a.parts_k = flim_ceil_div(p->k, 16 * mt);
    a.parts_c = flim_ceil_div(p->c, 8 * nt);
    const int parts = a.parts_k * a.parts_c;
    a.parts = parts < WARPS ? parts : WARPS;
    const int unit = 16 * (WARPS / a.parts), fit = STAGE_BYTES / (2 * (p->c + p->k)) / unit * unit;
    a.stage = fit < unit ? unit : fit > MOST_POSITIONS ? MOST_POSITIONS : fit;
    a.x_rows.log_chunks = log2_of(p->c / 8);
    a.dz_rows.log_chunks = log2_of(p->k / 8);
}

int shared_bytes(const kernel_arguments &a, int sums)
{
    const int stages = STAGES * a.stage * (a.c + a.k) * 2, joined = a.parts * sums * 32 * (int)sizeof(float);
    return stages > joined ? stages : joined;
}

int most_blocks(const flim_conv_problem *p)
{
    const int stages_a_block = 8; /* at least, or the blocks' sums are more to add than there was to sum */
    kernel_arguments a = {};
    cut(p, a);
    const int64_t positions = p->n * p->out[0] * p->out[1] * p->out[2];
    const int64_t blocks = (positions + (int64_t)a.stage * stages_a_block - 1) / ((int64_t)a.stage * stages_a_block);
    return blocks < FLIM_WGRAD_MOST_BLOCKS ? (int)blocks : FLIM_WGRAD_MOST_BLOCKS;
}

template <typename T, int MT, int NT> cudaError_t start_cut(const kernel_arguments &a, dim3 grid, cudaStream_t stream)
{
    const auto kernel = a.scale ? wgrad1x1x1<T, MT, NT, true> : wgrad1x1x1<T, MT, NT, false>;
    const int bytes = shared_bytes(a, MT * NT * 4);
    const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (error != cudaSuccess)
        return error;
    kernel<<<grid, THREADS, bytes, stream>>>(a);
    return cudaGetLastError();
}

template <typename T, int MT> cudaError_t start_rows(const kernel_arguments &a, dim3 grid, cudaStream_t stream)
{
    return a.c >= 32   ? start_cut<T, MT, 4>(a, grid, stream)
           : a.c == 16 ? start_cut<T, MT, 2>(a, grid, stream)
                       : start_cut<T, MT, 1>(a, grid, stream);
}

template <typename T> cudaError_t start(const kernel_arguments &a, dim3 grid, cudaStream_t stream)
{
    return a.k >= 64   ? start_rows<T, 4>(a, grid, stream)
           : a.k == 32 ? start_rows<T, 2>(a, grid, stream)
                       : start_rows<T, 1>(a, grid, stream);
}

} // namespace

bool flim_wgrad1x1x1_supported(const flim_conv_problem *p, const flim_card *card)
{
    return p->op == FLIM_CONV_WEIGHT && flim_has_form_1x1x1(p, card) && !p->sums && p->x_form != FLIM_INPUT_NORM_ON_LOAD &&
           (int64_t)p->c * p->k <= 32768;
}

size_t flim_wgrad1x1x1_scratch_bytes(const flim_conv_problem *p)
{
    return sizeof(float) * (size_t)most_blocks(p) * (size_t)p->c * (size_t)p->k;
}

cudaError_t flim_wgrad1x1x1_run(const flim_conv_problem *problem, const flim_conv_arguments *arguments, const flim_card *card,
                                cudaStream_t stream)
{
    kernel_arguments a = {};
    if (!flim_wgrad1x1x1_supported(problem, card))
        return cudaErrorInvalidValue;
    flim_conv_problem here = *problem;
    here.n = arguments->n;
    cut(&here, a);
    a.x = arguments->x;
    a.dz = arguments->y;
    if (problem->x_form == FLIM_INPUT_NORM_ACT_ON_LOAD) {
        a.scale = arguments->prologue.scale;
        a.shift = arguments->prologue.shift;
    }
    a.partial = static_cast<float *>(arguments->scratch);
    a.positions = flim_positions_of(problem, arguments->n);
    const int most = most_blocks(&here), blocks = most < card->processors ? most : card->processors;
    const dim3 grid((unsigned)blocks, (unsigned)(a.parts_k * a.parts_c / a.parts));
    const cudaError_t error =
        problem->type == FLIM_STORAGE_BF16 ? start<__nv_bfloat16>(a, grid, stream) : start<__half>(a, grid, stream);
    if (error != cudaSuccess)
        return error;
    add_blocks<<<(unsigned)(a.c * a.k / 32), dim3(32, FLIM_WGRAD_ROWS), 0, stream>>>(
        a.partial, blocks, a.c, a.k, problem->in_channels, problem->out_channels, arguments->master, arguments->unscale,
        arguments->accumulate);
    return cudaGetLastError();
}
