/* Backward through a unit's tail, first of three: one pass that sums.  kernels_grad_norm.cu turns the sums into coefficients,
 * kernels_grad_apply.cu writes dz.  With g = gamma / sd:  dz = g (dv - mean(dv) - zhat mean(dv zhat)). */
#include "cuda/kernels/grad_inputs.cuh"

template <typename T, int SKIP, int POOL, int SOURCE>
__global__ void __launch_bounds__(256, POOL == 1 ? 2 : 1)
    grad_sums_kernel(flim_tail tail, flim_sources dy, flim_blocks b, float *partial, T *y)
{
    extern __shared__ float shared[];
    constexpr int SUMS = SKIP == FLIM_SKIP_NORMALISED ? 4 : 3;
    constexpr int AT_ONCE = SOURCE == ANY || SKIP == FLIM_SKIP_NORMALISED ? 1 : 2;
    const walk w(b, tail.c);
    const int c = tail.c;
    const unsigned hw = (unsigned)tail.hw;
    const int64_t in_base = w.cell * tail.t * tail.hw * c + w.channel;
    const T *z = (const T *)tail.z + in_base, *skip = (const T *)tail.skip_in + in_base;
    const uint8_t *gate = SKIP == FLIM_SKIP_GATED ? tail.gate + in_base / 8 : nullptr;
    const affine8 a = load_affine(tail.affine, w.channel);
    affine8 sa = a;
    if (SKIP >= FLIM_SKIP_NORMALISED) {
        sa = load_affine(tail.skip_affine, w.channel);
    }
    float m[2];
    const float8 fixed = begin_sources<SOURCE>(dy, w.cell, c, w.channel, m);
    const float8 keep = load_keep(tail.dropout, w.cell, c, w.channel);
    const float slope = tail.act ? SLOPE : 1.0f;
    float acc[SUMS][8] = {};
    for (unsigned q0 = w.begin + w.lane; q0 < w.end; q0 += AT_ONCE * w.lanes) {
        raw8<T> rz[AT_ONCE][POOL], rs[AT_ONCE][POOL];
        unsigned bits[AT_ONCE];
        gradient<T, SOURCE> g[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            const unsigned q = q0 + k * w.lanes < w.end ? q0 + k * w.lanes : q0, p = pooled_from<POOL>(q, hw);
            g[k].load(dy, w.cell, b.pixels, q, c, w.channel);
            bits[k] = SKIP == FLIM_SKIP_GATED ? gate[(int64_t)p * (c / 8)] : 0;
#pragma unroll
            for (int h = 0; h < POOL; h++) {
                rz[k][h] = load_raw<T>(z + (int64_t)(p + h * hw) * c);
                if (SKIP >= FLIM_SKIP_PLAIN) {
                    rs[k][h] = load_raw<T>(skip + (int64_t)(p + h * hw) * c);
                }
            }
        }
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            const unsigned q = q0 + k * w.lanes;
            if (q >= w.end) {
                break;
            }
            const float8 dyv = g[k].value(dy, m, fixed, w.cell, b.pixels, q, c, w.channel);
            float8 v, zc, sc = {};
#pragma unroll
            for (int h = 0; h < POOL; h++) {
                const float8 zv = unpack<T>(rz[k][h]);
                float8 sv = {};
                if (SKIP >= FLIM_SKIP_PLAIN) {
                    sv = unpack<T>(rs[k][h]);
                }
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    const float u = tail_value_again<SKIP>(bits[k], zv.v[i], sv.v[i], a, sa, i);
                    const bool take = h == 0 || u > v.v[i] || u != u;
                    v.v[i] = take ? u : v.v[i];
                    zc.v[i] = take ? zv.v[i] : zc.v[i];
                    sc.v[i] = take ? sv.v[i] : sc.v[i];
                }
            }
#pragma unroll
            for (int i = 0; i < 8; i++) {
                const float dv = dyv.v[i] * keep.v[i] * (v.v[i] > 0 ? 1.0f : slope);
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
                    v.v[i] = (v.v[i] > 0 ? v.v[i] : v.v[i] * slope) * keep.v[i];
                }
                store8<T>(y + (w.cell * b.pixels + q) * c + w.channel, v);
            }
        }
    }
    block_sums<SUMS>(acc, w, b.blocks, shared, partial);
}

cudaError_t flim_k_grad_sums(const flim_launch *l, const flim_tail *tail, const flim_sources *sources, flim_blocks b,
                             float *partial, void *y)
{
    const dim3 grid = walk_grid(b, tail->c);
    const int threads = walk_threads(tail->c);
    flim_sources dy = *sources;
    const int source = source_shape(l->type, &dy);
#define CALL_SUMS                                                                                                            \
    (grad_sums_kernel<T, SKIP, POOL, SOURCE><<<grid, threads, threads * 32, l->stream>>>(*tail, dy, b, partial, (T *)y))
    FLIM_BY_SOURCE(l->type, tail->skip, tail->pool, source, FLIM_BY_SHORT(l->type, CALL_SUMS), CALL_SUMS)
    return cudaGetLastError();
}
