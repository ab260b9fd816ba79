/* Forward and data gradient of 1x1x1 convolutions: y(p) = W x(p) for rows of IN channels.
 *
 * Nothing is staged: which channel an inner index of a product (mma.m16n8k16) means is free, as long as x and W agree, so a lane takes 16
 * bytes of a row in one load, which are its operands of two products; and which column means which output channel is free, too, so that
 * a lane holds 16 neighbouring bytes of its rows of y.  The weights lie in shared memory in the order of the products, 64 KB at most.
 *
 * BatchNorm's sums are gathered as y is stored: over a warp's rows by shuffles, over its tiles in shared memory of its own.
 *
 * Count for res2.skip of base at batch 64 (991,232 positions, 32 to 64 channels): 63 MB read, 127 MB written, 46 us on an H200;
 * 4 GFLOP.
 */
#include "cuda/conv/conv1x1x1.cuh"
#include "cuda/conv/conv_mma.cuh"
#include "cuda/conv/conv_sums.cuh"

namespace
{

enum { WARPS = 8, THREADS = 32 * WARPS, BLOCKS_A_SM = 2, MOST_BLOCKS = 320, SUMS_THREADS = 256 };

struct kernel_arguments {
    const void *x, *w;
    void *y;
    flim_positions positions;
    int out; /* channels of y */
    bool data; /* w (in,out), else (out,in) */
    const float *about, *weight_scale; /* flim_conv_arguments: sums_about, weight_scale */
    float *partial; /* (gridDim.x, 2, out): sums of y less `about`, and of its square */
};

/* 16-row tiles of a warp: as many as keep the memory busy and fit the registers. */
template <int IN, int TILES, bool SUMS> struct rows {
    enum {
        R = IN == 8 && TILES < 4               ? 8
            : IN == 32 && SUMS                 ? 3
            : IN <= 32                         ? 4
            : IN == 64 || (IN == 128 && !SUMS) ? 2
                                               : 1,
        STEPS = IN <= 16 ? 1 : IN / 16
    };
};

/* Halfword of weight (input channel c, output channel o): [group of 8 TILES outputs][step][tile][lane][k quarter][k parity]. */
template <int IN, int TILES> __device__ __forceinline__ int weight_at(int c, int o)
{
    constexpr int STEPS = rows<IN, TILES, false>::STEPS;
    const int group = o / (8 * TILES), rest = o % (8 * TILES), tile = rest % (2 * TILES) / 2,
              column = rest / (2 * TILES) * 2 + rest % 2;
    int step = 0, quarter, at; /* at: of the lane's four channels, two a register */
    if (IN >= 32) {
        step = c / 32 * 2 + c % 8 / 4;
        quarter = c % 32 / 8;
        at = c % 4;
    } else {
        quarter = c / (IN / 4);
        at = c % (IN / 4);
    }
    return (((group * STEPS + step) * TILES + tile) * 32 + 4 * column + quarter) * 4 + at;
}

/* Bytes of the weights in shared memory; of 8 input channels a product's inner indices 8 to 15 are there, too. */
__host__ __device__ inline int weight_bytes(int in, int out)
{
    return out * (in < 16 ? 16 : in) * 2;
}

/* A warp's rows of two sums over its channels, added to what its own (2,out) floats hold from the lane's first channel on.  Lanes that
 * hold the same channels give each other half of what they have, so that each ends with a part of the sums. */
template <int TILES> __device__ __forceinline__ void add_rows(float (&v)[4 * TILES], float *to, int out)
{
    constexpr int ALL = 4 * TILES;
    const int lane = threadIdx.x % 32;
    int first = 0; /* of the sums that this lane goes on with */
#pragma unroll
    for (int mask = 16, half = ALL / 2; mask >= 4; mask /= 2, half /= 2) {
        const bool upper = lane & mask;
#pragma unroll
        for (int i = 0; i < (half > 0 ? half : 1); i++) {
            const float low = v[i], high = half > 0 ? v[i + half] : low;
            const float gives = upper ? low : high, keeps = upper ? high : low;
            v[i] = keeps + __shfl_xor_sync(0xffffffffu, gives, mask);
        }
        first += half > 0 && upper ? half : 0;
    }
    if (ALL >= 8 || lane / 4 % 2 == 0) { /* of four sums two lanes end with the same */
#pragma unroll
        for (int i = 0; i < (ALL >= 8 ? ALL / 8 : 1); i++)
            to[(first + i) / (2 * TILES) * out + (first + i) % (2 * TILES)] += v[i];
    }
}

template <typename T, int IN, int TILES, bool SUMS>
__global__ void __launch_bounds__(THREADS, BLOCKS_A_SM) conv1x1x1(const kernel_arguments a)
{
    constexpr int R = rows<IN, TILES, SUMS>::R, STEPS = rows<IN, TILES, SUMS>::STEPS, LOADS = IN >= 32 ? IN / 32 : 1;
    extern __shared__ __align__(16) char memory[];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, q = lane % 4, out = a.out;
    T *weights = reinterpret_cast<T *>(memory);
    if (IN == 8) { /* inner indices 8 to 15 */
        for (int i = threadIdx.x; i < out * 8; i += THREADS)
            reinterpret_cast<uint32_t *>(memory)[i] = 0;
        __syncthreads();
    }
    for (int i = threadIdx.x; i < out * IN; i += THREADS) {
        const int o = a.data ? i % out : i / IN, c = a.data ? i / out : i % IN;
        weights[weight_at<IN, TILES>(c, o)] = static_cast<const T *>(a.w)[i];
    }
    float *about = reinterpret_cast<float *>(memory + weight_bytes(IN, out)), *sums = about + out; /* (out), (WARPS,2,out) */
    if (SUMS) {
        const float weight_scale = a.weight_scale ? *a.weight_scale : 1.0f;
        for (int i = threadIdx.x; i < out; i += THREADS)
            about[i] = a.about ? a.about[i] * weight_scale : 0.0f;
        for (int i = threadIdx.x; i < WARPS * 2 * out; i += THREADS)
            sums[i] = 0.0f;
    }
    __syncthreads();

    const int tiles = (a.positions.count + 16 * R - 1) / (16 * R);
    for (int tile = blockIdx.x * WARPS + warp; tile < tiles; tile += gridDim.x * WARPS) {
        const int first = tile * 16 * R + g; /* and 8 on, of each 16 */
        uint32_t x[R][2][LOADS * 4];
#pragma unroll
        for (int r = 0; r < R; r++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int position = min(first + 16 * r + 8 * half, a.positions.count - 1);
                const T *row = static_cast<const T *>(a.x) + (int64_t)a.positions.pixel(position) * IN;
                if (IN >= 32) {
#pragma unroll
                    for (int l = 0; l < LOADS; l++)
                        *reinterpret_cast<uint4 *>(x[r][half] + 4 * l) =
                            *reinterpret_cast<const uint4 *>(row + 32 * l + 8 * q);
                } else if (IN == 16) {
                    *reinterpret_cast<uint2 *>(x[r][half]) = *reinterpret_cast<const uint2 *>(row + 4 * q);
                } else {
                    x[r][half][0] = *reinterpret_cast<const uint32_t *>(row + 2 * q);
                    x[r][half][1] = 0;
                }
            }
        for (int group = 0; group < out / (8 * TILES); group++) {
            float sum[R][TILES][4] = {};
#pragma unroll
            for (int step = 0; step < STEPS; step++)
#pragma unroll
                for (int t = 0; t < TILES; t++) {
                    const uint2 b = reinterpret_cast<const uint2 *>(memory)[((group * STEPS + step) * TILES + t) * 32 + lane];
#pragma unroll
                    for (int r = 0; r < R; r++) {
                        const uint32_t rows16[4] = {x[r][0][2 * step], x[r][1][2 * step], x[r][0][2 * step + 1],
                                                    x[r][1][2 * step + 1]};
                        flim_mma<T>(sum[r][t], rows16, b.x, b.y);
                    }
                }
            float total[4 * TILES] = {}; /* of the lane's channels, then of their squares */
            const int channel = 8 * TILES * group + 2 * TILES * q; /* the lane's first one */
#pragma unroll
            for (int r = 0; r < R; r++)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    const int position = first + 16 * r + 8 * half;
                    if (position >= a.positions.count)
                        continue;
                    uint32_t packed[TILES];
#pragma unroll
                    for (int t = 0; t < TILES; t++)
                        packed[t] = flim_pack<T>(sum[r][t][2 * half], sum[r][t][2 * half + 1]);
                    if (SUMS) {
#pragma unroll
                        for (int t = 0; t < TILES; t++) {
                            const float2 v = flim_unpack<T>(packed[t]); /* as stored */
                            const float lo = v.x - about[channel + 2 * t], hi = v.y - about[channel + 2 * t + 1];
                            total[2 * t] += lo;
                            total[2 * t + 1] += hi;
                            total[2 * (TILES + t)] += lo * lo;
                            total[2 * (TILES + t) + 1] += hi * hi;
                        }
                    }
                    T *to = static_cast<T *>(a.y) + (int64_t)position * out + channel;
                    if constexpr (TILES == 4)
                        *reinterpret_cast<uint4 *>(to) = make_uint4(packed[0], packed[1], packed[2], packed[3]);
                    else if constexpr (TILES == 2)
                        *reinterpret_cast<uint2 *>(to) = make_uint2(packed[0], packed[1]);
                    else
                        *reinterpret_cast<uint32_t *>(to) = packed[0];
                }
            if (SUMS)
                add_rows<TILES>(total, sums + warp * 2 * out + channel, out);
        }
    }
    if (!SUMS)
        return;
    __syncthreads();
    for (int i = threadIdx.x; i < 2 * out; i += THREADS) {
        float sum = 0.0f;
        for (int w = 0; w < WARPS; w++)
            sum += sums[w * 2 * out + i];
        a.partial[(int64_t)blockIdx.x * 2 * out + i] = sum;
    }
}

int blocks_for(int positions, int rows_a_block, const flim_card *card)
{
    const int needed = (positions + rows_a_block - 1) / rows_a_block, most = card->processors * BLOCKS_A_SM;
    return needed < most ? needed : most < MOST_BLOCKS ? most : MOST_BLOCKS;
}

template <typename T, int IN, int TILES>
cudaError_t start_tiles(const kernel_arguments &a, double *sums, const flim_card *card, cudaStream_t stream)
{
    const auto kernel = sums ? conv1x1x1<T, IN, TILES, true> : conv1x1x1<T, IN, TILES, false>;
    const int bytes = weight_bytes(IN, a.out) + (sums ? (int)sizeof(float) * a.out * (1 + 2 * WARPS) : 0);
    const int blocks = blocks_for(a.positions.count,
                                  16 * WARPS * (sums ? (int)rows<IN, TILES, true>::R : (int)rows<IN, TILES, false>::R), card);
    const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (error != cudaSuccess)
        return error;
    kernel<<<blocks, THREADS, bytes, stream>>>(a);
    if (sums)
        add_sums<SUMS_THREADS><<<2 * a.out, SUMS_THREADS, 0, stream>>>(a.partial, blocks, sums);
    return cudaGetLastError();
}

template <typename T, int IN>
cudaError_t start_in(const kernel_arguments &a, double *sums, const flim_card *card, cudaStream_t stream)
{
    return a.out >= 32   ? start_tiles<T, IN, 4>(a, sums, card, stream)
           : a.out == 16 ? start_tiles<T, IN, 2>(a, sums, card, stream)
                         : start_tiles<T, IN, 1>(a, sums, card, stream);
}

template <typename T>
cudaError_t start(const kernel_arguments &a, int in, double *sums, const flim_card *card, cudaStream_t stream)
{
    switch (in) {
    case 8: return start_in<T, 8>(a, sums, card, stream);
    case 16: return start_in<T, 16>(a, sums, card, stream);
    case 32: return start_in<T, 32>(a, sums, card, stream);
    case 64: return start_in<T, 64>(a, sums, card, stream);
    case 128: return start_in<T, 128>(a, sums, card, stream);
    default: return start_in<T, 256>(a, sums, card, stream);
    }
}

} // namespace

bool flim_conv1x1x1_supported(const flim_conv_problem *p, const flim_card *card)
{
    const bool data = p->op == FLIM_CONV_DATA;
    return p->op != FLIM_CONV_WEIGHT && flim_has_form_1x1x1(p, card) && p->x_form == FLIM_INPUT_PLAIN &&
           (!data || (p->stride[2] == 1 && !p->sums)) && (!p->sums || p->out_channels == p->k) &&
           (int64_t)p->c * p->k <= 32768;
}

/* From 128 to 256 channels it took 0.12 ms, where cuDNN and a pass over y take 0.09 (large on an H200). */
bool flim_conv1x1x1_gathers(const flim_conv_problem *p, const flim_card *card)
{
    (void)card;
    return p->c <= 64;
}

size_t flim_conv1x1x1_scratch_bytes(const flim_conv_problem *p)
{
    return p->sums ? sizeof(float) * MOST_BLOCKS * 2 * (size_t)p->k : 0;
}

cudaError_t flim_conv1x1x1_run(const flim_conv_problem *problem, const flim_conv_arguments *arguments, const flim_card *card,
                               cudaStream_t stream)
{
    const bool data = problem->op == FLIM_CONV_DATA;
    kernel_arguments a = {};
    if (!flim_conv1x1x1_supported(problem, card))
        return cudaErrorInvalidValue;
    a.x = data ? arguments->y : arguments->x;
    a.y = data ? arguments->x : arguments->y;
    a.w = arguments->w;
    a.positions = flim_positions_of(problem, arguments->n);
    a.out = data ? problem->c : problem->k;
    a.data = data;
    a.about = arguments->sums_about;
    a.weight_scale = arguments->weight_scale;
    double *sums = problem->sums ? arguments->sums : nullptr;
    a.partial = sums ? static_cast<float *>(arguments->scratch) : nullptr;
    const int in = data ? problem->k : problem->c;
    return problem->type == FLIM_STORAGE_BF16 ? start<__nv_bfloat16>(a, in, sums, card, stream)
                                              : start<__half>(a, in, sums, card, stream);
}
