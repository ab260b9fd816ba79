/* Forward pass of stem + down without the stem's output.
 *
 * Every pixel is a series in time of its own: down's output m needs the stem's activation at t = 2m-1, 2m, 2m+1, each of
 * which needs 7 samples.  A warp takes 16 pixels and walks along m.  At each step one A fragment holds the samples and mask
 * of times 2m-4 ... 2m+3 (K = 8 + 8); with two sets of stem weights it gives the windows' products at 2m-1 (tap = slot) and
 * 2m (tap = slot - 1) in two products a channel tile.  BN and leaky ReLU happen on the accumulators; packed to 16 bits they
 * are the A operand of down's product (conv_mma.cuh), so activations never leave the registers:
 *     out(m-1) += act(2m-1) W_2;  store out(m-1);  out(m) = act(2m-1) W_0 + act(2m) W_1.
 * All weights (48 + 16 registers of 32 channels) stay in registers over the walk; of 64 channels down's are in shared memory.
 * Down's output channels are dealt to the product's columns so that a lane ends up with C / 4 neighbouring channels.  Sums
 * for down's BN come from the stored (rounded) values.
 *
 * Outside time the activation is zero (down's padding), not the activation of an empty window.
 *
 * Count at batch 64, base: 7.3 M warp products (mma.m16n8k16), 230 M activations; bytes: 29 MB signal + 231 MB z_down = 88 us
 * on an H100 (2.98 TB/s).
 */
#include "cuda/conv/conv_stem.cuh"
#include "cuda/conv/conv_sums.cuh"

namespace
{

enum { WARPS = 4, THREADS = 32 * WARPS, PIXELS = 16 * WARPS, SUMS_THREADS = 256 };

/* What follows from the number of channels. */
template <int C> struct width {
    enum {
        TILES = C / 8, /* 8s of channels */
        STEPS = C < 16 ? 1 : C / 16, /* 16s of the stem's channels; 8 channels fill one with two times */
        LANE = C / 4, /* output channels of a lane */
        SHARED = C == 64, /* down's weights and what belongs to a channel are in shared memory: registers would not do */
        BLOCKS_A_SM = C == 64   ? 2
                      : C == 32 ? 3
                      : C == 16 ? 5
                                : 8 /* what the registers allow */
    };
};

/* A lane's neighbouring channels in 16 bits. */
template <int C> struct lane_channels {
    uint32_t word[C / 8];
};

/* Of a block with down's weights in shared memory: fragments [tap][step][tile][lane], and for each lane's columns the stem's
 * scale and shift and down's bias and what its sums are about. */
template <int C> struct shared_constants {
    uint2 weight[width<C>::SHARED ? 3 : 1][width<C>::SHARED ? width<C>::STEPS : 1][width<C>::SHARED ? width<C>::TILES : 1]
                [32];
    float2 scale[width<C>::TILES * 4], shift[width<C>::TILES * 4], bias[width<C>::TILES * 4], about[width<C>::TILES * 4];
};

/* Adds f (16 x C, as A fragments) times w (C x C) to out. */
template <typename T, int TILES, int STEPS, typename Weights>
__device__ __forceinline__ void multiply(float (&out)[TILES][4], const uint32_t (&f)[STEPS][4], const Weights &w)
{
#pragma unroll
    for (int s = 0; s < STEPS; s++)
#pragma unroll
        for (int nt = 0; nt < TILES; nt++) {
            const uint2 b = w(s, nt);
            flim_mma<T>(out[nt], f[s], b.x, b.y);
        }
}

/* A lane's channels to memory, 16 bytes an access if it has so many. */
template <typename T, int C> __device__ __forceinline__ void store(T *at, const lane_channels<C> &v)
{
    if constexpr (C >= 32) {
#pragma unroll
        for (int i = 0; i < C / 32; i++)
            reinterpret_cast<uint4 *>(at)[i] =
                make_uint4(v.word[4 * i], v.word[4 * i + 1], v.word[4 * i + 2], v.word[4 * i + 3]);
    } else if constexpr (C == 16) {
        *reinterpret_cast<uint2 *>(at) = make_uint2(v.word[0], v.word[1]);
    } else {
        *reinterpret_cast<uint32_t *>(at) = v.word[0];
    }
}

/* One of two types. */
template <bool FIRST, typename A, typename B> struct choose {
    using type = A;
};
template <typename A, typename B> struct choose<false, A, B> {
    using type = B;
};

/* The stem's activation of 16 pixels at one time as A fragments; of 8 channels their lower half. */
template <typename T, int TILES, int STEPS, typename Fold>
__device__ __forceinline__ void activation(uint32_t (&f)[STEPS][4], const uint32_t (&window)[4], const uint32_t (&ws)[TILES],
                                           const uint32_t (&wm)[TILES], const Fold &scale, const Fold &shift)
{
    float u[TILES][4] = {};
#pragma unroll
    for (int nt = 0; nt < TILES; nt++)
        flim_mma<T>(u[nt], window, ws[nt], wm[nt]);
#pragma unroll
    for (int nt = 0; nt < TILES; nt++) {
        const float2 a = scale[nt], b = shift[nt];
        f[nt / 2][2 * (nt % 2)] = flim_pack<T>(flim_leaky(u[nt][0] * a.x + b.x), flim_leaky(u[nt][1] * a.y + b.y));
        f[nt / 2][2 * (nt % 2) + 1] = flim_pack<T>(flim_leaky(u[nt][2] * a.x + b.x), flim_leaky(u[nt][3] * a.y + b.y));
    }
}

/* A lane's values of its columns: in registers, or in shared memory. */
template <int TILES> struct in_registers {
    float2 value[TILES];

    __device__ __forceinline__ float2 &operator[](int nt)
    {
        return value[nt];
    }
    __device__ __forceinline__ const float2 &operator[](int nt) const
    {
        return value[nt];
    }
};
struct in_shared {
    float2 *first; /* of this lane */
    int apart;

    __device__ __forceinline__ float2 &operator[](int nt) const
    {
        return first[nt * apart];
    }
};

/* partial: (gridDim.x, 2, C) sums and sums of squares, or NULL. */
template <typename T, int C>
__global__ void __launch_bounds__(THREADS, width<C>::BLOCKS_A_SM)
    forward(stem_geometry p, const stem_state *__restrict__ state, const float *__restrict__ stem_weight,
            const float *stem_weight_scale, const float *__restrict__ down_weight, const float *down_weight_scale,
            const float *__restrict__ down_bias, const float *sums_about, T *__restrict__ z, float *__restrict__ partial)
{
    constexpr int TILES = width<C>::TILES, STEPS = width<C>::STEPS, LANE = width<C>::LANE;
    constexpr bool SHARED = width<C>::SHARED;
    using folded = typename choose<SHARED, in_shared, in_registers<TILES>>::type;
    __shared__ uint32_t staged[PIXELS][STEM_WORDS];
    __shared__ shared_constants<SHARED ? C : 8> constants;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, q = lane % 4;

    const float stem_by = stem_scale(stem_weight_scale), down_by = stem_scale(down_weight_scale);
    uint32_t odd_s[TILES], odd_m[TILES], even_s[TILES], even_m[TILES];
    uint2 wd[SHARED ? 1 : 3][SHARED ? 1 : STEPS][SHARED ? 1 : TILES];
    folded scale, shift, bias, about;
    if constexpr (SHARED) { /* columns of tile nt: scale, shift [4 nt + q], bias, about [q TILES + nt] */
        scale = {constants.scale + q, 4}, shift = {constants.shift + q, 4};
        bias = {constants.bias + TILES * q, 1}, about = {constants.about + TILES * q, 1};
    }
#pragma unroll
    for (int nt = 0; nt < TILES; nt++) {
        stem_weight_fragment<T>(stem_weight, stem_by, 8 * nt + g, q, true, odd_s[nt], odd_m[nt]);
        stem_weight_fragment<T>(stem_weight, stem_by, 8 * nt + g, q, false, even_s[nt], even_m[nt]);
        if (!SHARED || threadIdx.x < 4) {
            const float2 b = reinterpret_cast<const float2 *>(down_bias)[LANE / 2 * q + nt];
            const float2 r =
                sums_about ? reinterpret_cast<const float2 *>(sums_about)[LANE / 2 * q + nt] : make_float2(0.0f, 0.0f);
            scale[nt] = reinterpret_cast<const float2 *>(state->scale)[4 * nt + q];
            shift[nt] = reinterpret_cast<const float2 *>(state->shift)[4 * nt + q];
            bias[nt] = make_float2(b.x * down_by, b.y * down_by);
            about[nt] = make_float2(r.x * down_by, r.y * down_by);
        }
        const int o = LANE * (g / 2) + 2 * nt + g % 2; /* the output channel of column g */
#pragma unroll
        for (int s = 0; s < STEPS; s++)
#pragma unroll
            for (int j = 0; j < 3; j++) {
                uint32_t half[2] = {};
#pragma unroll
                for (int h = 0; h < C / 8 / STEPS; h++) {
                    const float *w = down_weight + (o * C + 16 * s + 8 * h + 2 * q) * 3;
                    half[h] = flim_pack<T>(w[j] * down_by, w[3 + j] * down_by);
                }
                if constexpr (!SHARED)
                    wd[j][s][nt] = make_uint2(half[0], half[1]);
                else if (warp == (j * STEPS + s) % WARPS)
                    constants.weight[j][s][nt][lane] = make_uint2(half[0], half[1]);
            }
        if constexpr (C == 8) /* the upper half of the product with tap 0 is of the second time, with tap 1 */
            wd[0][0][nt].y = wd[1][0][nt].x;
    }
    auto weights = [&](int j) {
        return [&, j](int s, int nt) {
            if constexpr (SHARED)
                return constants.weight[j][s][nt][lane];
            else
                return wd[j][s][nt];
        };
    };

    float sum[LANE] = {}, square[LANE] = {};
    stem_share share = stem_share_of_block(p);
    for (int tile, first, last; stem_next(p, share, tile, first, last);) {
        const int64_t pixel0 = (int64_t)tile * PIXELS;
        __syncthreads();
        stem_stage<T, PIXELS>(p, pixel0, first, last - first + 4, THREADS, staged);
        __syncthreads();

        bool inside[2];
        uint32_t mask[2];
        T *row[2];
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int64_t at = pixel0 + 16 * warp + g + 8 * r;
            inside[r] = at < p.pixels;
            mask[r] = inside[r] && p.mask[at] ? flim_pack<T>(1.0f, 1.0f) : 0u;
            const int64_t cell = inside[r] ? at / p.hw : 0;
            row[r] = z + ((cell * p.to + first) * p.hw + (inside[r] ? at - cell * p.hw : 0)) * C + LANE * q;
        }
        const uint32_t *low = staged[16 * warp + g] + q, *high = staged[16 * warp + g + 8] + q;

        float out[TILES][4] = {};
        for (int m = first; m <= last; m++) {
            const uint32_t exists = stem_exists(2 * m - 4 + 2 * q, p.t);
            const uint32_t window[4] = {low[m - first], high[m - first], mask[0] & exists, mask[1] & exists};
            uint32_t f[STEPS][4] = {};
            if (m > 0 && 2 * m - 1 < p.t) {
                activation<T, TILES, STEPS>(f, window, odd_s, odd_m, scale, shift);
                if (m > first)
                    multiply<T, TILES, STEPS>(out, f, weights(2));
            }
            if (m > first) {
                lane_channels<C> packed[2];
#pragma unroll
                for (int nt = 0; nt < TILES; nt++)
#pragma unroll
                    for (int r = 0; r < 2; r++)
                        packed[r].word[nt] = flim_pack<T>(out[nt][2 * r] + bias[nt].x, out[nt][2 * r + 1] + bias[nt].y);
#pragma unroll
                for (int r = 0; r < 2; r++) {
                    if (inside[r]) {
                        store(row[r], packed[r]);
                        if (partial) {
#pragma unroll
                            for (int nt = 0; nt < TILES; nt++) {
                                const float2 v = flim_unpack<T>(packed[r].word[nt]);
                                const float lo = v.x - about[nt].x, hi = v.y - about[nt].y;
                                sum[2 * nt] += lo;
                                sum[2 * nt + 1] += hi;
                                square[2 * nt] += lo * lo;
                                square[2 * nt + 1] += hi * hi;
                            }
                        }
                    }
                    row[r] += (int64_t)p.hw * C;
                }
            }
            if (m < last) {
#pragma unroll
                for (int nt = 0; nt < TILES; nt++)
#pragma unroll
                    for (int i = 0; i < 4; i++)
                        out[nt][i] = 0.0f;
                if (C == 8) {
                    uint32_t even[STEPS][4] = {};
                    activation<T, TILES, STEPS>(even, window, even_s, even_m, scale, shift);
                    f[0][2] = even[0][0], f[0][3] = even[0][1];
                    multiply<T, TILES, STEPS>(out, f, weights(0));
                } else {
                    multiply<T, TILES, STEPS>(out, f, weights(0));
                    activation<T, TILES, STEPS>(f, window, even_s, even_m, scale, shift);
                    multiply<T, TILES, STEPS>(out, f, weights(1));
                }
            }
        }
    }

    if (partial)
        give_sums<C>(sum, square, WARPS, reinterpret_cast<float *>(&staged[0][0]), partial);
}

template <typename T, int C>
cudaError_t run_forward(const flim_conv_problem *problem, const flim_conv_arguments *a, const flim_card *card,
                        cudaStream_t stream)
{
    const stem_geometry p = stem_make_geometry(problem, a, PIXELS, (problem->in[0] + 1) / 2);
    const int grid = stem_grid(p, STEM_BLOCKS / C, 1, forward<T, C>, THREADS, card);
    double *sums = problem->sums ? a->sums : nullptr;
    float *partial = sums ? static_cast<float *>(a->scratch) : nullptr;
    forward<T, C><<<grid, THREADS, 0, stream>>>(p, static_cast<const stem_state *>(a->stem.state), a->stem.weight,
                                                a->stem.weight_scale, a->master, a->weight_scale, a->bias, a->sums_about,
                                                static_cast<T *>(a->y), partial);
    if (sums)
        add_sums<SUMS_THREADS><<<2 * C, SUMS_THREADS, 0, stream>>>(partial, grid, sums);
    return cudaGetLastError();
}

cudaError_t run_forward(const flim_conv_problem *problem, const flim_conv_arguments *a, const flim_card *card,
                        cudaStream_t stream)
{
    cudaError_t error = a->stem.keeps_state ? cudaSuccess
                        : problem->sums     ? stem_statistics(problem, a, stream)
                                            : stem_running(problem, a, stream);
    if (error == cudaSuccess && flim_stem_is_alone(problem))
        return stem_alone_forward(problem, a, card, stream);
    if (error == cudaSuccess)
        STEM_DISPATCH(problem, (error = run_forward<T, C>(problem, a, card, stream)));
    return error;
}

bool is_with_down(const flim_conv_problem *p)
{
    static const int kernel[3] = {3, 1, 1}, stride[3] = {2, 1, 1}, pad[3] = {1, 0, 0};
    return (p->in_channels == 8 || p->in_channels == 16 || p->in_channels == 32 || p->in_channels == 64) &&
           p->out_channels == p->in_channels && flim_conv_has_shape(p, kernel, stride, pad) &&
           p->dz_form != FLIM_INPUT_NORM_ACT_ON_LOAD;
}

bool is_alone(const flim_conv_problem *p)
{
    static const int kernel[3] = {STEM_TAPS, 1, 1}, stride[3] = {1, 1, 1}, pad[3] = {STEM_TAPS / 2, 0, 0};
    return p->in_channels == 2 && p->out_channels > 64 && p->out_channels <= FLIM_STEM_MOST_CHANNELS &&
           p->out_channels % 8 == 0 && flim_conv_has_shape(p, kernel, stride, pad) && p->dz_form == FLIM_INPUT_PLAIN;
}

} // namespace

bool flim_stem_supported(const flim_conv_problem *p, int sm)
{
    return sm >= 80 && p->stem && p->type != FLIM_STORAGE_FP32 && (is_with_down(p) || is_alone(p)) && p->n > 0 &&
           p->in[0] >= 6 && p->in[0] <= STEM_MAX_T && p->in[1] > 0 && p->in[2] > 0 &&
           p->n * (int64_t)p->in[1] * p->in[2] < (1 << 30) && p->x_form == FLIM_INPUT_PLAIN &&
           ((p->op == FLIM_CONV_FORWARD && p->master && p->dz_form == FLIM_INPUT_PLAIN) || p->op == FLIM_CONV_WEIGHT);
}

size_t flim_stem_scratch_bytes(const flim_conv_problem *problem)
{
    const bool alone = flim_stem_is_alone(problem);
    size_t bytes = alone ? 0 : sizeof(float) * 2 * STEM_BLOCKS;
    const size_t statistics = stem_statistics_scratch(problem),
                 backward = alone ? stem_alone_backward_scratch(problem->k) : stem_backward_scratch(problem->c);
    if (statistics > bytes)
        bytes = statistics;
    return backward > bytes ? backward : bytes;
}

cudaError_t flim_stem_run(const flim_conv_problem *problem, const flim_conv_arguments *arguments, const flim_card *card,
                          cudaStream_t stream)
{
    if (!flim_stem_supported(problem, 80) || arguments->n < 1 || arguments->n > problem->n)
        return cudaErrorInvalidValue;
    return problem->op == FLIM_CONV_FORWARD ? run_forward(problem, arguments, card, stream)
           : flim_stem_is_alone(problem)    ? stem_alone_backward(problem, arguments, card, stream)
                                            : stem_backward(problem, arguments, card, stream);
}
