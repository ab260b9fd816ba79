/* Backward through a unit's epilogue, first of three: one pass that sums.  batchnorm_backward.cu turns the sums into
 * coefficients, epilogue_backward.cu writes dz.  With g = gamma / sd:  dz = g (dv - mean(dv) - zhat mean(dv zhat)). */
#include "cuda/kernels/epilogue_backward.cuh"

template <typename T, int SKIP, int POOL, int INPUTS>
__global__ void __launch_bounds__(256, backward_pixel<T, SKIP, POOL, INPUTS>::QUEUED || POOL == 1 ? 2 : 1)
    grad_sums_kernel(flim_epilogue epilogue, grad_inputs_view dy, divisor by_hw, flim_blocks b, float *partial, T *y)
{
    extern __shared__ __align__(16) float shared[];
    using pixel = backward_pixel<T, SKIP, POOL, INPUTS>;
    constexpr int SUMS = SKIP == FLIM_SKIP_NORMALISED ? 4 : 3;
    const backward_walk<T, SKIP, INPUTS> t(epilogue, dy, b, false);
    const walk &w = t.w;
    float acc[SUMS][8] = {};
    pixel::walk_over(t, dy, by_hw, (unsigned)b.pixels, shared, [&](const pixel &x, unsigned q, unsigned, bool) {
        const float8 dyv = x.gradient(t, dy, b.pixels, q);
        float8 v, zc, sc = {};
#pragma unroll
        for (int h = 0; h < POOL; h++) {
            const float8 zv = unpack<T>(x.z(h)), sv = x.skip(h);
#pragma unroll
            for (int i = 0; i < 8; i++) {
                const float u = epilogue_value_backward<SKIP>(x.bits, zv.v[i], sv.v[i], t.a, t.sa, i);
                const bool take = h == 0 || u > v.v[i] || u != u;
                v.v[i] = take ? u : v.v[i];
                zc.v[i] = take ? zv.v[i] : zc.v[i];
                sc.v[i] = take ? sv.v[i] : sc.v[i];
            }
        }
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const float dv = dyv.v[i] * t.keep.v[i] * (v.v[i] > 0 ? 1.0f : t.slope);
            acc[0][i] += dv;
            acc[1][i] = fmaf(dv, zc.v[i], acc[1][i]);
            acc[2][i] = fmaf(dv, dv, acc[2][i]);
            if (SKIP == FLIM_SKIP_NORMALISED) {
                acc[SUMS - 1][i] = fmaf(dv, sc.v[i], acc[SUMS - 1][i]);
            }
        }
        if (y) {
#pragma unroll
            for (int i = 0; i < 8; i++) {
                v.v[i] = (v.v[i] > 0 ? v.v[i] : v.v[i] * t.slope) * t.keep.v[i];
            }
            store8<T>(y + (w.cell * b.pixels + q) * t.c + w.channel, v);
        }
    });
    block_sums<SUMS>(acc, w, b.blocks, shared, partial);
}

cudaError_t flim_k_grad_sums(const flim_launch *l, const flim_epilogue *epilogue, const flim_grad_inputs *inputs,
                             flim_blocks b, float *partial, void *y)
{
    const dim3 grid = walk_grid(b, epilogue->c);
    const int threads = walk_threads(epilogue->c);
    flim_grad_inputs dy = *inputs;
    const int shape = grad_inputs_shape(l->type, &dy);
    const grad_inputs_view view = view_of(dy);
#define CALL_SUMS                                                                                                            \
    (grad_sums_kernel<T, SKIP, POOL, INPUTS>                                                                                 \
     <<<grid, threads, backward_pixel<T, SKIP, POOL, INPUTS>::shared_bytes(threads), l->stream>>>(                           \
         *epilogue, view, make_divisor(epilogue->hw), b, partial, (T *)y))
    FLIM_BY_GRAD_INPUTS(l->type, epilogue->skip, epilogue->pool, shape, FLIM_BY_SHORT(l->type, CALL_SUMS), CALL_SUMS)
    return cudaGetLastError();
}
