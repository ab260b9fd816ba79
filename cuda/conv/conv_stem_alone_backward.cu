/* Backward pass of the stem alone in one pass over da, the gradient of its output, with u recomputed from the input.
 *
 * dv = da leaky_relu'(u), and all that is wanted of it are its sums s and G (conv_stem_gradient.cu).
 *
 * A warp takes 16 pixels and 32 channels and walks along m; step m does the times 2m-1 and 2m.  Here the channels are the products' rows:
 * weights (A) times windows (B, which the words of the forward pass are as well) give u with a channel per row and pixels along the
 * columns; da comes through a ring of shared memory of each warp's own (cp.async, three steps ahead) and is read transposed by ldmatrix
 * into the same places, so that dv, packed, is the A operand of the product with the windows over the pixels.  Only the samples are
 * transposed in registers.  The mask slot that is not in the window carries ones and so gives s.  All sums stay in 32 registers over the
 * whole walk; each block stores its own and `reduce` adds them in fixed order.
 *
 * Count at batch 64 and 128 channels: 14.4 M warp products, 925 M values of dv; bytes: 14.5 MB signal + 1.85 GB da = 0.41 ms on an H200
 * (4.5 TB/s).
 */
#include "cuda/conv/conv_stem_alone.cuh"
#include "cuda/conv/conv_stem_gradient.cuh"

namespace
{

enum {
    GROUPS = ALONE_CHANNELS / 16, /* 16s of a warp's channels */
    RING = 4, /* steps of da in shared memory: this one and those on their way */
    AHEAD = RING - 1,
    TIME = ALONE_PIXELS * ALONE_CHANNELS * 2, /* bytes of a time */
    SLOT = 2 * TIME, /* of a step: its odd time, then its even one */
    SUMS = GROUPS * 2 * 2 * 4, /* accumulator registers of a lane: [16 of the channels][odd, even][samples, mask][4] */
    PARTIAL = SUMS * 32, /* floats that a warp stores: [register][lane] */
    BLOCKS_A_SM = 4 /* what the registers allow */
};

/* Byte offset of 16-byte chunk `chunk` of pixel `pixel` within a time of the ring: no bank conflicts for 8 pixels in a row. */
__device__ __forceinline__ uint32_t ring_offset(int pixel, int chunk)
{
    return (uint32_t)(pixel * 2 * ALONE_CHANNELS + ((chunk ^ (pixel / 2 & 3)) << 4));
}

/* Rows of the weights' A fragment (16 channels from c0 on, as flim_mma's a[0..3]); channels past the end are 0. */
template <typename T>
__device__ __forceinline__ void weight_rows(uint32_t (&a)[4], const float *weight, float by, int c0, int channels, int g,
                                            int q, bool odd)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        a[r] = a[2 + r] = 0;
        if (c0 + g + 8 * r < channels)
            stem_weight_fragment<T>(weight, by, c0 + g + 8 * r, q, odd, a[r], a[2 + r]);
    }
}

/* At one time and for 16 channels: dv from da (both with channels as rows, pixels along), then sums += dv^T x. */
template <typename T>
__device__ __forceinline__ void add_window_products(float (&sums)[2][4], const uint32_t (&da)[4], const uint32_t (&w)[4],
                                                    const uint32_t (&window)[4], const float (&scale)[2],
                                                    const float (&shift)[2], const uint32_t (&samples)[2],
                                                    const uint32_t (&slots)[2])
{
    uint32_t dv[4];
#pragma unroll
    for (int half = 0; half < 2; half++) { /* of the pixels */
        float u[4] = {};
        flim_mma<T>(u, w, window[half], window[2 + half]);
#pragma unroll
        for (int r = 0; r < 2; r++) { /* channels g, g + 8 */
            const float2 d = flim_unpack<T>(da[2 * half + r]);
            const float lo = u[2 * r] * scale[r] + shift[r], hi = u[2 * r + 1] * scale[r] + shift[r];
            dv[2 * half + r] = flim_pack<T>(lo > 0.0f ? d.x : FLIM_SLOPE * d.x, hi > 0.0f ? d.y : FLIM_SLOPE * d.y);
        }
    }
    flim_mma<T>(sums[0], dv, samples[0], samples[1]);
    flim_mma<T>(sums[1], dv, slots[0], slots[1]);
}

/* da (n,T,HW,channels); partial: (gridDim.y, gridDim.x, warps of a block, PARTIAL), of warps that have channels */
template <typename T>
__global__ void __launch_bounds__(ALONE_THREADS, BLOCKS_A_SM)
    backward(stem_geometry p, int channels, const stem_state *__restrict__ state, const float *__restrict__ weight,
             const float *weight_scale, const T *__restrict__ da, float *__restrict__ partial)
{
    __shared__ uint32_t staged[ALONE_PIXELS][STEM_WORDS];
    __shared__ alignas(128) char rings[ALONE_WARPS][RING][SLOT];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, q = lane % 4;
    const int warps = blockDim.x / 32, c0 = ALONE_CHANNELS * (warps * blockIdx.y + warp),
              mine = c0 + 8 * q; /* this lane copies mine .. mine + 7 */
    const float by = stem_scale(weight_scale);

    uint32_t odd[GROUPS][4], even[GROUPS][4], across[GROUPS];
    float scale[GROUPS][2], shift[GROUPS][2];
#pragma unroll
    for (int s = 0; s < GROUPS; s++) {
        weight_rows<T>(odd[s], weight, by, c0 + 16 * s, channels, g, q, true);
        weight_rows<T>(even[s], weight, by, c0 + 16 * s, channels, g, q, false);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int c = c0 + 16 * s + 8 * r + g;
            scale[s][r] = c < channels ? state->scale[c] : 0.0f;
            shift[s][r] = c < channels ? state->shift[c] : 0.0f;
        }
        /* ldmatrix's row of this lane: matrices 0, 1 are pixels 0 .. 7 of the two 8s of channels, 2, 3 pixels 8 .. 15 */
        across[s] = ring_offset(lane % 8 + 8 * (lane / 16), 2 * s + lane / 8 % 2);
    }

    float sums[GROUPS][2][2][4] = {};
    const uint32_t ring = flim_shared(rings[warp]), ones = flim_pack<T>(1.0f, 1.0f);
    const int64_t row = (int64_t)p.hw * channels; /* from a time to the next */
    stem_share share = stem_share_of_block(p);
    for (int tile, first, last; stem_next(p, share, tile, first, last);) {
        const int64_t pixel0 = (int64_t)tile * ALONE_PIXELS;
        __syncthreads();

        bool copies[2];
        int64_t from[2]; /* of pixels g, g + 8 at time 0 */
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int64_t at = pixel0 + g + 8 * r;
            copies[r] = at < p.pixels && mine < channels;
            const int64_t cell = copies[r] ? at / p.hw : 0;
            from[r] = copies[r] ? cell * p.t * row + (at - cell * p.hw) * channels + mine : 0;
        }
        auto fetch = [&](int m) {
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const int t = 2 * m - 1 + e;
                const bool there = m < last && (unsigned)t < (unsigned)p.t;
#pragma unroll
                for (int r = 0; r < 2; r++) {
                    const bool valid = there && copies[r];
                    flim_copy_async(ring + (uint32_t)(m & (RING - 1)) * SLOT + e * TIME + ring_offset(g + 8 * r, q),
                                    da + (valid ? from[r] + t * row : 0), valid);
                }
            }
            flim_copy_commit();
        };
        for (int m = first; m < first + AHEAD && c0 < channels; m++)
            fetch(m);
        stem_stage<T, ALONE_PIXELS>(p, pixel0, first, last - first + 3, blockDim.x, staged);

        uint32_t mask[2], mask_pair[2]; /* of pixels g, g + 8; of pixel pairs (2q, 2q+1) and 8 on */
        stem_masks<T>(p, pixel0, mask, mask_pair);
        __syncthreads();
        if (c0 >= channels)
            continue;
        const uint32_t *low = staged[g] + q, *high = staged[g + 8] + q;

        for (int m = first; m < last; m++) {
            flim_copy_wait<AHEAD - 1>();
            __syncwarp(); /* all lanes' chunks are there, and the step before has been read */
            fetch(m + AHEAD);

            const uint32_t exists = stem_exists(2 * m - 4 + 2 * q, p.t);
            const uint32_t window[4] = {low[m - first], high[m - first], mask[0] & exists, mask[1] & exists};
            const uint32_t samples[2] = {flim_transpose(window[0]), flim_transpose(window[1])};
            const bool slot_exists = (unsigned)(2 * m - 4 + g) < (unsigned)p.t;
            const uint32_t slot_mask[2] = {slot_exists ? mask_pair[0] : 0u, slot_exists ? mask_pair[1] : 0u};
            const uint32_t here = ring + (uint32_t)(m & (RING - 1)) * SLOT;
            uint32_t d[4];
            if (m > 0) {
                const uint32_t slots[2] = {g == 7 ? ones : slot_mask[0], g == 7 ? ones : slot_mask[1]};
#pragma unroll
                for (int s = 0; s < GROUPS; s++) {
                    flim_ldmatrix_trans(d, here + across[s]);
                    add_window_products<T>(sums[s][0], d, odd[s], window, scale[s], shift[s], samples, slots);
                }
            }
            if (2 * m < p.t) {
                const uint32_t slots[2] = {g == 0 ? ones : slot_mask[0], g == 0 ? ones : slot_mask[1]};
#pragma unroll
                for (int s = 0; s < GROUPS; s++) {
                    flim_ldmatrix_trans(d, here + TIME + across[s]);
                    add_window_products<T>(sums[s][1], d, even[s], window, scale[s], shift[s], samples, slots);
                }
            }
        }
        flim_copy_wait<0>();
    }

    if (c0 >= channels)
        return;
    const float *flat = &sums[0][0][0][0];
    float *out = partial + (((int64_t)blockIdx.y * gridDim.x + blockIdx.x) * warps + warp) * PARTIAL + lane;
#pragma unroll
    for (int r = 0; r < SUMS; r++)
        out[r * 32] = flat[r];
}

/* Block (warp's part of the channels, register): adds the 32 lanes' sums over the blocks of `backward`. */
__global__ void __launch_bounds__(STEM_REDUCE_THREADS)
    reduce(const float *partial, int blocks, int warps, int channels, double *g_sums)
{
    const int part = blockIdx.x / SUMS, r = blockIdx.x % SUMS;
    const int64_t first = ((int64_t)(part / warps) * blocks * warps + part % warps) * PARTIAL + r * 32;
    double s;
    if (!stem_reduce(partial + first, warps * PARTIAL, blocks, s))
        return;
    const int g = threadIdx.x / 4, q = threadIdx.x % 4, i = r % 4;
    const int c = ALONE_CHANNELS * part + 16 * (r / 16) + g + 8 * (i / 2);
    if (c < channels)
        g_sums[stem_g_at(c, r / 8 % 2, r / 4 % 2, 2 * q + i % 2)] = s;
}

template <typename T>
cudaError_t run(const flim_conv_problem *problem, const flim_conv_arguments *a, const flim_card *card, cudaStream_t stream)
{
    const stem_geometry p = stem_make_geometry(problem, a, ALONE_PIXELS, problem->in[0] / 2 + 1);
    const int apart = alone_apart(problem->k), warps = alone_warps(problem->k),
              grid = alone_grid(p, problem->k, backward<T>, card);
    const flim_conv_stem *stem = &a->stem;
    double *g_sums = static_cast<double *>(a->scratch);
    float *partial = reinterpret_cast<float *>(g_sums + problem->k * STEM_G);
    const stem_gradients target = {a->master, stem->dbias, stem->dgamma, stem->dbeta, a->unscale, a->accumulate};
    backward<T><<<dim3(grid, apart), 32 * warps, 0, stream>>>(p, problem->k, static_cast<const stem_state *>(stem->state),
                                                              stem->weight, stem->weight_scale, static_cast<const T *>(a->y),
                                                              partial);
    reduce<<<alone_parts(problem->k) * SUMS, STEM_REDUCE_THREADS, 0, stream>>>(partial, grid, warps, problem->k, g_sums);
    return stem_finish(problem, a, g_sums, target, stream);
}

} // namespace

size_t stem_alone_backward_scratch(int channels)
{
    return sizeof(double) * (size_t)channels * STEM_G + sizeof(float) * (size_t)ALONE_BLOCKS * ALONE_WARPS * PARTIAL;
}

cudaError_t stem_alone_backward(const flim_conv_problem *problem, const flim_conv_arguments *a, const flim_card *card,
                                cudaStream_t stream)
{
    cudaError_t error = cudaSuccess;
    STEM_BY_TYPE(problem, (error = run<T>(problem, a, card, stream)));
    return error;
}
