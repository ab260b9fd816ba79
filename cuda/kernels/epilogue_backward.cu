/* Backward through a unit's epilogue, last of three: one pass that writes dz = a dv + b z + d, and what the skip takes. */
#include "cuda/kernels/epilogue_backward.cuh"

struct grad_affine8 {
    float8 a, b, d;
};

__device__ __forceinline__ grad_affine8 load_grad_affine(const flim_grad_affine &g, int channel)
{
    return {load8<float>(g.a + channel), load8<float>(g.b + channel), load8<float>(g.d + channel)};
}

__device__ __forceinline__ float grad_value(const grad_affine8 &g, float dv, float z, int i)
{
    return fmaf(g.a.v[i], dv, fmaf(g.b.v[i], z, g.d.v[i]));
}

/* Cells last to first: what the sums have read last is still in the L2 cache. */
template <typename T, int SKIP, int POOL, int INPUTS>
__global__ void __launch_bounds__(256, backward_pixel<T, SKIP, POOL, INPUTS>::QUEUED ? 2 : 1)
    grad_apply_kernel(flim_epilogue epilogue, grad_inputs_view dy, divisor by_hw, flim_blocks b, int64_t y_pixels,
                      flim_grad_affine main, flim_grad_affine skip_grad, const float *dv_scale, T *dz, T *dz_skip, T *dv_out)
{
    extern __shared__ __align__(16) float shared[];
    using pixel = backward_pixel<T, SKIP, POOL, INPUTS>;
    const backward_walk<T, SKIP, INPUTS> t(epilogue, dy, b, true);
    const walk &w = t.w;
    /* Of a unit with a skip and a pool the registers hold no such constants: they are loaded where they are used, from the L1 cache. */
    constexpr bool HELD = SKIP != FLIM_SKIP_NORMALISED || POOL == 1;
    grad_affine8 held = {};
    if (HELD) {
        held = load_grad_affine(main, w.channel);
    }
    const float dv_by = dv_scale ? *dv_scale : 1.0f;
    pixel::walk_over(t, dy, by_hw, (unsigned)y_pixels, shared, [&](const pixel &x, unsigned q, unsigned p, bool out) {
        float8 dv[POOL], v;
        dv[0] = x.gradient(t, dy, y_pixels, out ? 0 : q);
#pragma unroll
        for (int h = 0; h < POOL; h++) {
            const float8 zv = unpack<T>(x.z(h)), sv = x.skip(h);
#pragma unroll
            for (int i = 0; i < 8; i++) {
                const float u = epilogue_value_backward<SKIP>(x.bits, zv.v[i], sv.v[i], t.a, t.sa, i);
                if (h == 0) {
                    v.v[i] = u;
                    dv[0].v[i] = out ? 0.0f : dv[0].v[i] * t.keep.v[i]; /* no dv there, but the means apply */
                } else {
                    const bool second = u > v.v[i] || u != u;
                    v.v[i] = second ? u : v.v[i];
                    dv[POOL - 1].v[i] = second ? dv[0].v[i] : 0.0f;
                    dv[0].v[i] = second ? 0.0f : dv[0].v[i];
                }
            }
        }
#pragma unroll
        for (int h = 0; h < POOL; h++) {
            if (h > 0 && out) {
                break;
            }
            const int64_t at = t.base + (int64_t)(p + h * t.hw) * t.c;
            const grad_affine8 ga = HELD ? held : load_grad_affine(main, w.channel);
            const float8 zv = unpack<T>(x.z(h));
            float8 r;
#pragma unroll
            for (int i = 0; i < 8; i++) {
                dv[h].v[i] *= v.v[i] > 0 ? 1.0f : t.slope; /* v: of the position that was chosen */
                r.v[i] = grad_value(ga, dv[h].v[i], zv.v[i], i);
            }
            store8<T>(dz + at, r);
            if (SKIP == FLIM_SKIP_NORMALISED) {
                const float8 sv = x.skip(h);
                const grad_affine8 gs = load_grad_affine(skip_grad, w.channel);
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    r.v[i] = grad_value(gs, dv[h].v[i], sv.v[i], i);
                }
                store8<T>(dz_skip + at, r);
            }
            if (dv_out) {
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    r.v[i] = dv[h].v[i] * dv_by;
                }
                store8<T>(dv_out + at, r);
            }
        }
    });
}

cudaError_t flim_k_grad_apply(const flim_launch *l, const flim_epilogue *epilogue, const flim_grad_inputs *inputs,
                              const flim_grad_affine *main, const flim_grad_affine *skip, const float *dv_scale, void *dz,
                              void *dz_skip, void *dv)
{
    const int64_t y_pixels = (int64_t)(epilogue->t / epilogue->pool) * epilogue->hw;
    const int64_t all = epilogue->pool == 2 && epilogue->t % 2 ? y_pixels + epilogue->hw : y_pixels;
    const flim_blocks b = flim_blocks_for(epilogue->cells, all, epilogue->c, l->processors);
    const flim_grad_affine none = {};
    const flim_grad_affine second = skip ? *skip : none;
    const dim3 grid = walk_grid(b, epilogue->c);
    const int threads = walk_threads(epilogue->c);
    flim_grad_inputs dy = *inputs;
    const int shape = grad_inputs_shape(l->type, &dy);
    const grad_inputs_view view = view_of(dy);
#define CALL_APPLY                                                                                                           \
    (grad_apply_kernel<T, SKIP, POOL, INPUTS>                                                                                \
     <<<grid, threads, backward_pixel<T, SKIP, POOL, INPUTS>::shared_bytes(threads), l->stream>>>(                           \
         *epilogue, view, make_divisor(epilogue->hw), b, y_pixels, *main, second, dv_scale, (T *)dz, (T *)dz_skip, (T *)dv))
    FLIM_BY_GRAD_INPUTS(l->type, epilogue->skip, epilogue->pool, shape, FLIM_BY_SHORT(l->type, CALL_APPLY), CALL_APPLY)
    return cudaGetLastError();
}
