/* Forward pass of the stem alone: the input read, its activation written, its convolution's output in registers only.
 *
 * A warp takes 16 pixels and 32 channels and walks along m, as conv_stem.cu tells: one A fragment of samples and mask gives the times
 * 2m-1 and 2m with two sets of weights, 16 registers of four 8s of channels.  Channels are dealt to the product's columns so that a lane
 * ends up with 8 neighbouring ones, which it stores at once: the four lanes of a pixel write 64 bytes, the block's four warps 256.
 * Blocks in y have the same pixels and further channels.
 *
 * Count at batch 64 and 128 channels: 7.2 M warp products, 925 M activations; bytes: 14.5 MB signal + 1.85 GB y = 0.41 ms on an H200
 * (4.5 TB/s).
 */
#include "cuda/conv/conv_stem_alone.cuh"

namespace
{

enum {
    TILES = ALONE_CHANNELS / 8,
    BLOCKS_A_SM = 5 /* what the registers allow */
};

/* y at one time: the products of the windows of 16 pixels with a set of weights, normalised and activated. */
template <typename T>
__device__ __forceinline__ void store_activation(const uint32_t (&window)[4], const uint32_t (&signal)[TILES],
                                                 const uint32_t (&mask)[TILES], const float2 (&scale)[TILES],
                                                 const float2 (&shift)[TILES], const bool (&writes)[2], T *y,
                                                 const int64_t (&to)[2])
{
    uint32_t word[2][TILES];
#pragma unroll
    for (int nt = 0; nt < TILES; nt++) {
        float u[4] = {};
        flim_mma<T>(u, window, signal[nt], mask[nt]);
        const float2 a = scale[nt], b = shift[nt];
#pragma unroll
        for (int r = 0; r < 2; r++)
            word[r][nt] = flim_pack<T>(flim_leaky(u[2 * r] * a.x + b.x), flim_leaky(u[2 * r + 1] * a.y + b.y));
    }
#pragma unroll
    for (int r = 0; r < 2; r++)
        if (writes[r])
            *reinterpret_cast<uint4 *>(y + to[r]) = make_uint4(word[r][0], word[r][1], word[r][2], word[r][3]);
}

/* y (n,T,HW,channels) */
template <typename T>
__global__ void __launch_bounds__(ALONE_THREADS, BLOCKS_A_SM)
    forward(stem_geometry p, int channels, const stem_state *__restrict__ state, const float *__restrict__ weight,
            const float *weight_scale, T *__restrict__ y)
{
    __shared__ uint32_t staged[ALONE_PIXELS][STEM_WORDS];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, q = lane % 4;
    const int c0 = ALONE_CHANNELS * (blockDim.x / 32 * blockIdx.y + warp),
              mine = c0 + 8 * q; /* this lane stores mine .. mine + 7 */
    const bool stores = mine < channels;
    const float by = stem_scale(weight_scale);

    uint32_t odd_s[TILES], odd_m[TILES], even_s[TILES], even_m[TILES];
    float2 scale[TILES], shift[TILES];
#pragma unroll
    for (int nt = 0; nt < TILES; nt++) {
        const int c = c0 + 8 * (g / 2) + 2 * nt + g % 2; /* the channel of column g: column 2q of lane q has mine + 2 nt */
        odd_s[nt] = odd_m[nt] = even_s[nt] = even_m[nt] = 0;
        if (c < channels) {
            stem_weight_fragment<T>(weight, by, c, q, true, odd_s[nt], odd_m[nt]);
            stem_weight_fragment<T>(weight, by, c, q, false, even_s[nt], even_m[nt]);
        }
        scale[nt] = stores ? reinterpret_cast<const float2 *>(state->scale + mine)[nt] : make_float2(0.0f, 0.0f);
        shift[nt] = stores ? reinterpret_cast<const float2 *>(state->shift + mine)[nt] : make_float2(0.0f, 0.0f);
    }

    const int64_t row = (int64_t)p.hw * channels; /* from a time to the next */
    stem_share share = stem_share_of_block(p);
    for (int tile, first, last; stem_next(p, share, tile, first, last);) {
        const int64_t pixel0 = (int64_t)tile * ALONE_PIXELS;
        __syncthreads();
        stem_stage<T, ALONE_PIXELS>(p, pixel0, first, last - first + 3, blockDim.x, staged);
        __syncthreads();
        if (c0 >= channels)
            continue;

        bool writes[2];
        uint32_t mask[2];
        int64_t to[2]; /* at 2m, later at 2m-1 of the next m */
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int64_t at = pixel0 + g + 8 * r;
            const bool inside = at < p.pixels;
            const int64_t cell = inside ? at / p.hw : 0;
            mask[r] = inside && p.mask[at] ? flim_pack<T>(1.0f, 1.0f) : 0u;
            writes[r] = inside && stores;
            to[r] = (cell * p.t + 2 * first - 1) * row + (inside ? at - cell * p.hw : 0) * channels + mine;
        }
        const uint32_t *low = staged[g] + q, *high = staged[g + 8] + q;

        for (int m = first; m < last; m++) {
            const uint32_t exists = stem_exists(2 * m - 4 + 2 * q, p.t);
            const uint32_t window[4] = {low[m - first], high[m - first], mask[0] & exists, mask[1] & exists};
            if (m > 0)
                store_activation<T>(window, odd_s, odd_m, scale, shift, writes, y, to);
            to[0] += row, to[1] += row;
            if (2 * m < p.t)
                store_activation<T>(window, even_s, even_m, scale, shift, writes, y, to);
            to[0] += row, to[1] += row;
        }
    }
}

} // namespace

cudaError_t stem_alone_forward(const flim_conv_problem *problem, const flim_conv_arguments *a, const flim_card *card,
                               cudaStream_t stream)
{
    const stem_geometry p = stem_make_geometry(problem, a, ALONE_PIXELS, problem->in[0] / 2 + 1);
    const int apart = alone_apart(problem->k), threads = 32 * alone_warps(problem->k);
    STEM_BY_TYPE(problem, (forward<T><<<dim3(alone_grid(p, problem->k, forward<T>, card), apart), threads, 0, stream>>>(
                              p, problem->k, static_cast<const stem_state *>(a->stem.state), a->stem.weight,
                              a->stem.weight_scale, static_cast<T *>(a->y))));
    return cudaGetLastError();
}
