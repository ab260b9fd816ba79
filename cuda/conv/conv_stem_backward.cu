/* Backward pass of stem + down in one pass over dz_down, the stem's output recomputed.
 *
 * With u_c = gamma_c zhat_c + beta_c, a = leaky_relu(u), z_down = down(a) and dz = the gradient of z_down:
 *     down's weight gradient   dW_j[o][c] = sum dz(m)[o] a(2m-1+j)[c]
 *     dv(t)[c] = leaky_relu'(u) (sum over the (m, j) with 2m-1+j = t of dz(m) W_j)[c]          the gradient of u
 * What BatchNorm and the stem's convolution need follows from the sums of dv and of dv with the window x, G
 * (conv_stem_gradient.cu).
 *
 * A warp takes 16 pixels and 16 of the stem's channels (8 of 8 or of 64) and walks along m; step m does the times 2m-1 and 2m, so nothing is
 * computed twice (conv_stem.cu tells of the windows).  dz comes through a ring of shared memory (cp.async, two steps ahead),
 * 1 KB a step for the two warps of the same pixels, and is read as the A operand of dv's product and, transposed, of dW's.
 * Activations, dv and samples are transposed in registers (movmatrix) where pixels become the summed index.  G has a product
 * for each of the two times of a step, whose window slots differ by one; the mask slot that is not in the window carries ones
 * and so gives s. All sums stay in 64 registers over the whole walk; each block stores its own and `reduce` adds them in
 * fixed order.
 *
 * Count at batch 64, base: 64 warp products a step and 16 pixels = 14.6 M; bytes: 231 MB dz + 29 MB signal = 87 us on an
 * H100.
 */
#include "cuda/conv/conv_stem_gradient.cuh"

namespace
{

enum {
    RING = 4, /* steps of dz in shared memory: the last, this one and those on their way */
    AHEAD = RING - 2
};

/* What follows from the number of channels. */
template <int C> struct width {
    enum {
        CHUNKS = C / 8, /* 16-byte chunks of a pixel's channels */
        TILES = C == 16 || C == 32 ? 2 : 1, /* 8s of the stem's channels in a warp */
        PARTS = C / (8 * TILES), /* warps of a group, which have the same 16 pixels */
        WARPS = C == 64 ? 8 : 4,
        THREADS = 32 * WARPS,
        GROUPS = WARPS / PARTS, /* each with 16 pixels */
        PIXELS = 16 * GROUPS,
        STEPS = C < 16 ? 1 : C / 16, /* 16s of down's channels; of 8 the upper half is zero */
        SLOT = 16 * C * 2, /* bytes of a step of dz for 16 pixels */
        DW = 3 * STEPS * TILES * 4, /* accumulator registers a lane of dW */
        SUMS = DW + 16, /* and of G */
        PARTIAL = PARTS * SUMS * 32, /* floats a block stores: [part of the channels][register][lane] */
        BLOCKS_A_SM = C == 64   ? 1
                      : C == 32 ? 3
                      : C == 16 ? 4
                                : 5 /* what the registers allow */
    };
};

/* Byte offset of 16-byte chunk `chunk` of pixel `pixel` in a slot of the ring: no bank conflicts for 8 pixels in a row. */
template <int C> __device__ __forceinline__ uint32_t ring_offset(int pixel, int chunk)
{
    constexpr int CHUNKS = width<C>::CHUNKS;
    return (uint32_t)(pixel * 2 * C + ((chunk ^ (pixel / (8 / CHUNKS) & (CHUNKS - 1))) << 4));
}

/* u of 16 pixels x 16 channels at one time. */
template <typename T, int TILES>
__device__ __forceinline__ void preactivation(float (&u)[TILES][4], const uint32_t (&window)[4], const uint32_t (&ws)[TILES],
                                              const uint32_t (&wm)[TILES], const float2 (&scale)[TILES],
                                              const float2 (&shift)[TILES])
{
#pragma unroll
    for (int nt = 0; nt < TILES; nt++) {
        u[nt][0] = u[nt][1] = u[nt][2] = u[nt][3] = 0.0f;
        flim_mma<T>(u[nt], window, ws[nt], wm[nt]);
        u[nt][0] = u[nt][0] * scale[nt].x + shift[nt].x;
        u[nt][1] = u[nt][1] * scale[nt].y + shift[nt].y;
        u[nt][2] = u[nt][2] * scale[nt].x + shift[nt].x;
        u[nt][3] = u[nt][3] * scale[nt].y + shift[nt].y;
    }
}

/* The activation, pixels as the B operand's summed index: b[nt][half] for channels 8 nt .. 8 nt + 7. */
template <typename T, int TILES>
__device__ __forceinline__ void transposed_activation(uint32_t (&b)[TILES][2], const float (&u)[TILES][4])
{
#pragma unroll
    for (int nt = 0; nt < TILES; nt++)
#pragma unroll
        for (int half = 0; half < 2; half++)
            b[nt][half] = flim_transpose(flim_pack<T>(flim_leaky(u[nt][2 * half]), flim_leaky(u[nt][2 * half + 1])));
}

/* dw (C x 16) += dz^T (C x 16 pixels) a (16 pixels x 16) */
template <typename T, int STEPS, int TILES>
__device__ __forceinline__ void add_weight_gradient(float (&dw)[STEPS][TILES][4], const uint32_t (&dz)[STEPS][4],
                                                    const uint32_t (&b)[TILES][2])
{
#pragma unroll
    for (int mt = 0; mt < STEPS; mt++)
#pragma unroll
        for (int nt = 0; nt < TILES; nt++)
            flim_mma<T>(dw[mt][nt], dz[mt], b[nt][0], b[nt][1]);
}

/* d (16 pixels x 16 channels) += dz (16 x C) w (C x 16) */
template <typename T, int STEPS, int TILES>
__device__ __forceinline__ void add_data_gradient(float (&d)[TILES][4], const uint32_t (&dz)[STEPS][4],
                                                  const uint32_t (&w)[STEPS][TILES][2])
{
#pragma unroll
    for (int s = 0; s < STEPS; s++)
#pragma unroll
        for (int nt = 0; nt < TILES; nt++)
            flim_mma<T>(d[nt], dz[s], w[s][nt][0], w[s][nt][1]);
}

/* d times the leaky ReLU's slope at u, rounded, channels as rows and pixels as the summed index; then sums += dv^T x. */
template <typename T, int TILES>
__device__ __forceinline__ void add_window_products(float (&sums)[2][4], const float (&d)[TILES][4],
                                                    const float (&u)[TILES][4], const uint32_t (&samples)[2],
                                                    const uint32_t (&mask)[2])
{
    uint32_t a[4] = {};
#pragma unroll
    for (int nt = 0; nt < TILES; nt++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const float lo = u[nt][2 * half] > 0.0f ? d[nt][2 * half] : FLIM_SLOPE * d[nt][2 * half];
            const float hi = u[nt][2 * half + 1] > 0.0f ? d[nt][2 * half + 1] : FLIM_SLOPE * d[nt][2 * half + 1];
            a[nt + 2 * half] = flim_transpose(flim_pack<T>(lo, hi));
        }
    flim_mma<T>(sums[0], a, samples[0], samples[1]);
    flim_mma<T>(sums[1], a, mask[0], mask[1]);
}

/* partial: (gridDim.x, PARTIAL) */
template <typename T, int C, bool NORM>
__global__ void __launch_bounds__(width<C>::THREADS, width<C>::BLOCKS_A_SM)
    backward(stem_geometry p, const stem_state *__restrict__ state, const float *__restrict__ stem_weight,
             const float *stem_weight_scale, const float *__restrict__ down_weight, const float *down_weight_scale,
             const T *__restrict__ dz, flim_conv_dz_norm norm, float *__restrict__ partial)
{
    using W = width<C>;
    constexpr int CHUNKS = W::CHUNKS, PARTS = W::PARTS, GROUPS = W::GROUPS, PIXELS = W::PIXELS, TILES = W::TILES,
                  STEPS = W::STEPS, SLOT = W::SLOT, SUMS = W::SUMS, DW = W::DW;
    __shared__ union {
        struct {
            uint32_t staged[PIXELS][STEM_WORDS];
            alignas(128) char ring[GROUPS][RING][SLOT];
            alignas(16) char z_ring[NORM ? GROUPS : 1][NORM ? RING : 1][NORM ? SLOT : 16]; /* beside du in ring */
            float norm[3][NORM ? C : 2];
        } walk;
        float sums[PARTS][GROUPS > 1 ? SUMS : 1][32]; /* of all groups */
    } shared;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, q = lane % 4;
    const int group = warp / PARTS, part_c = warp % PARTS, in_group = threadIdx.x % (32 * PARTS);
    const int c0 = 8 * TILES * part_c;

    const float stem_by = stem_scale(stem_weight_scale), down_by = stem_scale(down_weight_scale);
    uint32_t odd_s[TILES], odd_m[TILES], even_s[TILES], even_m[TILES], wd[3][STEPS][TILES][2];
    float2 scale[TILES], shift[TILES];
#pragma unroll
    for (int nt = 0; nt < TILES; nt++) {
        const int c = c0 + 8 * nt + g;
        stem_weight_fragment<T>(stem_weight, stem_by, c, q, true, odd_s[nt], odd_m[nt]);
        stem_weight_fragment<T>(stem_weight, stem_by, c, q, false, even_s[nt], even_m[nt]);
        scale[nt] = reinterpret_cast<const float2 *>(state->scale)[c0 / 2 + 4 * nt + q];
        shift[nt] = reinterpret_cast<const float2 *>(state->shift)[c0 / 2 + 4 * nt + q];
#pragma unroll
        for (int s = 0; s < STEPS; s++)
#pragma unroll
            for (int half = 0; half < 2; half++)
#pragma unroll
                for (int j = 0; j < 3; j++) {
                    const int o = 16 * s + 8 * half + 2 * q;
                    wd[j][s][nt][half] = o < C ? flim_pack<T>(down_weight[(o * C + c) * 3 + j] * down_by,
                                                              down_weight[((o + 1) * C + c) * 3 + j] * down_by)
                                               : 0u;
                }
    }

    float dw[3][STEPS][TILES][4] = {}, gs[2][2][4] = {};
    const uint32_t ring = flim_shared(shared.walk.ring[group]);
    /* ldmatrix rows of this lane: pixels as rows (A of dv), and transposed (A of dW; the matrices' order makes a[1], a[2]
     * right) */
    const int row = lane % 8, matrix = lane / 8;
    uint32_t straight[STEPS], across[STEPS];
#pragma unroll
    for (int s = 0; s < STEPS; s++) {
        straight[s] = ring_offset<C>(row + 8 * (matrix % 2), C == 8 ? 0 : 2 * s + matrix / 2);
        across[s] = ring_offset<C>(row + 8 * (matrix / 2), C == 8 ? 0 : 2 * s + matrix % 2);
    }
    const bool copies = in_group < 16 * CHUNKS; /* this thread has a chunk of dz: one pixel, 8 channels */
    const int my_pixel = in_group / CHUNKS % 16, my_chunk = in_group % CHUNKS;
    const uint32_t store = ring_offset<C>(my_pixel, my_chunk);
    auto load_rows = [&](uint32_t(&rows)[STEPS][4], uint32_t(&columns)[STEPS][4], uint32_t at) {
#pragma unroll
        for (int s = 0; s < STEPS; s++) {
            flim_ldmatrix(rows[s], at + straight[s]);
            flim_ldmatrix_trans(columns[s], at + across[s]);
        }
        if (C == 8) { /* down's channels 8 to 15 */
            rows[0][2] = rows[0][3] = 0;
            columns[0][1] = columns[0][3] = 0;
        }
    };
    const uint32_t ones = flim_pack<T>(1.0f, 1.0f);
    const uint32_t z_ring = NORM ? flim_shared(shared.walk.z_ring[NORM ? group : 0]) : 0;
    if (NORM && threadIdx.x < C) {
        shared.walk.norm[0][threadIdx.x] =
            norm.a[threadIdx.x] / stem_scale(norm.du_scale) / stem_scale(norm.du_scale_b); /* powers of two */
        shared.walk.norm[1][threadIdx.x] = norm.b[threadIdx.x];
        shared.walk.norm[2][threadIdx.x] = norm.d[threadIdx.x];
    }

    stem_share share = stem_share_of_block(p);
    for (int tile, first, last; stem_next(p, share, tile, first, last);) {
        const int64_t pixel0 = (int64_t)tile * PIXELS;
        __syncthreads();

        const int64_t mine = pixel0 + 16 * group + my_pixel;
        const bool mine_inside = copies && mine < p.pixels;
        const int64_t mine_cell = mine_inside ? mine / p.hw : 0;
        const int64_t mine_at = (mine_cell * p.to * p.hw + (mine_inside ? mine - mine_cell * p.hw : 0)) * C + 8 * my_chunk;
        auto there = [&](int m) { return mine_inside && m >= 0 && m < p.to && m < last; };
        auto fetch = [&](int m) {
            const bool valid = there(m);
            const uint32_t to = (uint32_t)(m & (RING - 1)) * SLOT + store;
            const int64_t at = valid ? mine_at + (int64_t)m * p.hw * C : 0;
            if (copies)
                flim_copy_async(ring + to, dz + at, valid);
            if (NORM && copies)
                flim_copy_async(z_ring + to, static_cast<const T *>(norm.z) + at, valid);
            flim_copy_commit();
        };
        auto normalise =
            [&](int m) { /* this thread's own chunk: du, z -> dz */
                         if (!NORM || !there(m))
                             return;
                         const uint32_t at = (uint32_t)(m & (RING - 1)) * SLOT + store;
                         uint4 *word = reinterpret_cast<uint4 *>(shared.walk.ring[group][0] + at);
                         uint4 v = *word;
                         const uint4 z4 = *reinterpret_cast<const uint4 *>(shared.walk.z_ring[NORM ? group : 0][0] + at);
                         uint32_t *du = &v.x;
                         const uint32_t *zw = &z4.x;
#pragma unroll
                         for (int i = 0; i < 4; i++) {
                             const float2 g2 = flim_unpack<T>(du[i]), z2 = flim_unpack<T>(zw[i]);
                             const float2 a = reinterpret_cast<const float2 *>(shared.walk.norm[0])[4 * my_chunk + i];
                             const float2 b = reinterpret_cast<const float2 *>(shared.walk.norm[1])[4 * my_chunk + i];
                             const float2 d = reinterpret_cast<const float2 *>(shared.walk.norm[2])[4 * my_chunk + i];
                             du[i] =
                                 flim_pack<T>(fmaf(a.x, g2.x, fmaf(b.x, z2.x, d.x)), fmaf(a.y, g2.y, fmaf(b.y, z2.y, d.y)));
                         }
                         *word = v;
            };
        for (int m = first - 1; m < first + AHEAD; m++)
            fetch(m);
        stem_stage<T, PIXELS>(p, pixel0, first, last - first + 3, W::THREADS, shared.walk.staged);

        uint32_t mask_a[2], mask_b[2]; /* of rows g, g + 8; of pixel pairs (2q, 2q+1) and 8 on */
        stem_masks<T>(p, pixel0 + 16 * group, mask_a, mask_b);
        __syncthreads();
        const uint32_t *low = shared.walk.staged[16 * group + g] + q, *high = shared.walk.staged[16 * group + g + 8] + q;

        for (int m = first; m < last; m++) {
            flim_copy_wait<AHEAD - 1>();
            if (NORM) {
                if (m == first)
                    normalise(m - 1);
                normalise(m);
            }
            flim_barrier(1 + group, 32 * PARTS);
            fetch(m + AHEAD);

            const uint32_t exists = stem_exists(2 * m - 4 + 2 * q, p.t);
            const uint32_t window[4] = {low[m - first], high[m - first], mask_a[0] & exists, mask_a[1] & exists};
            const uint32_t samples[2] = {flim_transpose(window[0]), flim_transpose(window[1])};
            const bool slot_exists = (unsigned)(2 * m - 4 + g) < (unsigned)p.t;
            const uint32_t slot_mask[2] = {slot_exists ? mask_b[0] : 0u, slot_exists ? mask_b[1] : 0u};
            const uint32_t here = ring + (uint32_t)(m & (RING - 1)) * SLOT;
            uint32_t dz_rows[STEPS][4], dz_across[STEPS][4];
            load_rows(dz_rows, dz_across, here);

            float u[TILES][4], d[TILES][4] = {};
            uint32_t b[TILES][2];
            if (m < p.to) { /* t = 2m: tap 1 of dz(m) */
                preactivation<T, TILES>(u, window, even_s, even_m, scale, shift);
                add_data_gradient<T, STEPS, TILES>(d, dz_rows, wd[1]);
                transposed_activation<T, TILES>(b, u);
                add_weight_gradient<T, STEPS, TILES>(dw[1], dz_across, b);
                const uint32_t slots[2] = {g == 0 ? ones : slot_mask[0], g == 0 ? ones : slot_mask[1]};
                add_window_products<T, TILES>(gs[1], d, u, samples, slots);
            }
            if (m > 0 && 2 * m - 1 < p.t) { /* t = 2m - 1: tap 0 of dz(m), tap 2 of dz(m - 1) */
                const uint32_t before = ring + (uint32_t)((m - 1) & (RING - 1)) * SLOT;
                preactivation<T, TILES>(u, window, odd_s, odd_m, scale, shift);
#pragma unroll
                for (int nt = 0; nt < TILES; nt++)
#pragma unroll
                    for (int i = 0; i < 4; i++)
                        d[nt][i] = 0.0f;
                add_data_gradient<T, STEPS, TILES>(d, dz_rows, wd[0]);
                transposed_activation<T, TILES>(b, u);
                add_weight_gradient<T, STEPS, TILES>(dw[0], dz_across, b);
                load_rows(dz_rows, dz_across, before);
                add_data_gradient<T, STEPS, TILES>(d, dz_rows, wd[2]);
                add_weight_gradient<T, STEPS, TILES>(dw[2], dz_across, b);
                const uint32_t slots[2] = {g == 7 ? ones : slot_mask[0], g == 7 ? ones : slot_mask[1]};
                add_window_products<T, TILES>(gs[0], d, u, samples, slots);
            }
        }
        flim_copy_wait<0>();
    }

    /* The groups' sums in the order of the groups, then to memory. */
    const float *dw_flat = &dw[0][0][0][0], *gs_flat = &gs[0][0][0];
    for (int turn = GROUPS - 1; turn >= 0; turn--) {
        __syncthreads();
        if (group == turn) {
#pragma unroll
            for (int r = 0; r < SUMS; r++) {
                float v = r < DW ? dw_flat[r] : gs_flat[r - DW];
                if (turn < GROUPS - 1)
                    v += shared.sums[part_c][GROUPS > 1 ? r : 0][lane];
                if (turn > 0)
                    shared.sums[part_c][GROUPS > 1 ? r : 0][lane] = v;
                else
                    partial[(int64_t)blockIdx.x * W::PARTIAL + (part_c * SUMS + r) * 32 + lane] = v;
            }
        }
    }
}

/* Block (part, register): adds the 32 lanes' sums over the blocks of `backward`, writes down's gradient or G. */
template <int C>
__global__ void __launch_bounds__(STEM_REDUCE_THREADS)
    reduce(const float *partial, int blocks, double *g_sums, float *down_weight, stem_gradients target)
{
    using W = width<C>;
    const int part_c = blockIdx.x / W::SUMS, r = blockIdx.x % W::SUMS;
    double s;
    if (!stem_reduce(partial + blockIdx.x * 32, W::PARTIAL, blocks, s))
        return;
    const int g = threadIdx.x / 4, q = threadIdx.x % 4, i = r % 4, c0 = 8 * W::TILES * part_c;
    if (r < W::DW) {
        const int j = r / (W::DW / 3), o = 16 * (r / (4 * W::TILES) % W::STEPS) + g + 8 * (i / 2),
                  c = c0 + 8 * (r / 4 % W::TILES) + 2 * q + i % 2;
        if (o < C)
            stem_put(down_weight ? down_weight + (o * C + c) * 3 + j : nullptr, s, target);
    } else {
        const int even = (r - W::DW) / 8, mask = (r - W::DW) / 4 % 2, c = c0 + g + 8 * (i / 2);
        if (i / 2 < W::TILES)
            g_sums[stem_g_at(c, even, mask, 2 * q + i % 2)] = s;
    }
}

template <typename T, int C>
cudaError_t run(const flim_conv_problem *problem, const flim_conv_arguments *a, const flim_card *card, cudaStream_t stream)
{
    using W = width<C>;
    const bool norm = problem->dz_form == FLIM_INPUT_NORM_ON_LOAD;
    const auto kernel = norm ? backward<T, C, true> : backward<T, C, false>;
    const stem_geometry p = stem_make_geometry(problem, a, W::PIXELS, problem->in[0] / 2 + 1);
    const int grid = stem_grid(p, STEM_BLOCKS / C, 1, kernel, W::THREADS, card);
    const flim_conv_stem *stem = &a->stem;
    const stem_state *state = static_cast<const stem_state *>(stem->state);
    double *g_sums = static_cast<double *>(a->scratch);
    float *partial = reinterpret_cast<float *>(g_sums + C * STEM_G);
    const stem_gradients target = {stem->dweight, stem->dbias, stem->dgamma, stem->dbeta, a->unscale, a->accumulate};
    kernel<<<grid, W::THREADS, 0, stream>>>(p, state, stem->weight, stem->weight_scale, stem->down_weight, a->weight_scale,
                                            static_cast<const T *>(a->y), norm ? a->dz_norm : flim_conv_dz_norm{}, partial);
    reduce<C><<<W::PARTS * W::SUMS, STEM_REDUCE_THREADS, 0, stream>>>(partial, grid, g_sums, a->master, target);
    return stem_finish(problem, a, g_sums, target, stream);
}

template <int C> size_t scratch_bytes()
{
    return sizeof(double) * C * STEM_G + sizeof(float) * width<C>::PARTIAL * (size_t)(STEM_BLOCKS / C);
}

} // namespace

size_t stem_backward_scratch(int channels)
{
    return channels == 64   ? scratch_bytes<64>()
           : channels == 32 ? scratch_bytes<32>()
           : channels == 16 ? scratch_bytes<16>()
                            : scratch_bytes<8>();
}

cudaError_t stem_backward(const flim_conv_problem *problem, const flim_conv_arguments *a, const flim_card *card,
                          cudaStream_t stream)
{
    cudaError_t error = cudaSuccess;
    STEM_DISPATCH(problem, (error = run<T, C>(problem, a, card, stream)));
    return error;
}
