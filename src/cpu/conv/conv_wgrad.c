#include "cpu/conv/conv_wgrad.h"

#include <stddef.h>

/* clang does not know the pragma: it needs -mavx512f */
#if defined(__x86_64__) && (!defined(__clang__) || defined(__AVX512F__))
#pragma GCC target("avx512f,avx2,fma,prefer-vector-width=512")
#include <immintrin.h>

enum { LANES = 16, TILE_VOXELS = 128 };

bool flim_cpu_wgrad_can(const flim_unit *unit)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") && unit->out_channels % LANES == 0 &&
           (unit->in_channels % 8 == 0 || unit->in_channels == 2);
}

/* Output vectors and input channels of one outer product. */
typedef struct blocking {
    int vecs, ci;
} blocking;

static blocking choose_blocking(const flim_unit *u)
{
    blocking b = {.vecs = u->out_channels % (2 * LANES) == 0 ? 2 : 1, .ci = 8};
    if (u->in_channels == 2) {
        b.ci = 2;
    } else if (b.vecs == 1 && u->in_channels % 16 == 0) {
        b.ci = 16;
    }
    return b;
}

/* Output voxels that all see the input at one tap: t, y and x in [begin,end). */
typedef struct box {
    int begin[3], end[3];
} box;

/* Where a tap's box lies in x and dz. */
typedef struct view {
    const float *x, *dz;
    ptrdiff_t x_origin; /* floats from x to where output voxel 0 reads, which may lie before x */
    ptrdiff_t x_step[3], dz_step[3]; /* floats from one output voxel to the next along t, y, x */
} view;

/* Adds the outer products of CI input channels and VECS vectors of output channels over a box.  dw: row of `stride` floats an
 * input channel. */
static inline __attribute__((always_inline)) void outer(const view *v, const box *b, float *dw, size_t stride, const int CI,
                                                        const int VECS)
{
    __m512 sum[16];
#pragma GCC unroll 16
    for (int k = 0; k < CI * VECS; k++) {
        sum[k] = _mm512_setzero_ps();
    }
    const ptrdiff_t x_step = v->x_step[2], dz_step = v->dz_step[2];
    for (int t = b->begin[0]; t < b->end[0]; t++) {
        for (int y = b->begin[1]; y < b->end[1]; y++) {
            const float *x = v->x + (v->x_origin + t * v->x_step[0] + y * v->x_step[1] + b->begin[2] * x_step);
            const float *dz = v->dz + t * v->dz_step[0] + y * v->dz_step[1] + b->begin[2] * dz_step;
            for (int i = b->begin[2]; i < b->end[2]; i++, x += x_step, dz += dz_step) {
                const __m512 d0 = _mm512_loadu_ps(dz);
                const __m512 d1 = VECS > 1 ? _mm512_loadu_ps(dz + LANES) : d0;
#pragma GCC unroll 16
                for (int c = 0; c < CI; c++) {
                    const __m512 a = _mm512_set1_ps(x[c]);
                    sum[c * VECS] = _mm512_fmadd_ps(a, d0, sum[c * VECS]);
                    if (VECS > 1) {
                        sum[c * VECS + 1] = _mm512_fmadd_ps(a, d1, sum[c * VECS + 1]);
                    }
                }
            }
        }
    }
#pragma GCC unroll 16
    for (int c = 0; c < CI; c++) {
        for (int k = 0; k < VECS; k++) {
            float *at = dw + (size_t)c * stride + (size_t)k * LANES;
            _mm512_storeu_ps(at, _mm512_add_ps(_mm512_loadu_ps(at), sum[c * VECS + k]));
        }
    }
}

/* The part of `tile` whose input at the tap lies inside x. */
static box clip_box(const flim_unit *u, const box *tile, const int tap[3])
{
    box b = *tile;
    for (int d = 0; d < 3; d++) {
        const int shift = u->pad[d] - tap[d], s = u->stride[d]; /* input = output * stride - shift */
        const int first = shift > 0 ? (shift + s - 1) / s : 0;
        const int end = u->in[d] + shift > 0 ? (u->in[d] + shift - 1) / s + 1 : 0;
        b.begin[d] = b.begin[d] > first ? b.begin[d] : first;
        b.end[d] = b.end[d] < end ? b.end[d] : end;
    }
    return b;
}

/* Items are (tap, ci block, co block), in that order, so that a tap's tile of x is used up before the next one's. */
static void wgrad_items(const flim_unit *u, const float *x, const float *dz, float *dweight, const box *tile, int begin,
                        int end)
{
    const int cin = u->in_channels, cout = u->out_channels;
    const blocking block = choose_blocking(u);
    const int ci_blocks = cin / block.ci, co_blocks = cout / (block.vecs * LANES);
    const ptrdiff_t xs[3] = {(ptrdiff_t)u->in[1] * u->in[2] * cin, (ptrdiff_t)u->in[2] * cin, cin};
    const ptrdiff_t zs[3] = {(ptrdiff_t)u->conv_out[1] * u->conv_out[2] * cout, (ptrdiff_t)u->conv_out[2] * cout, cout};
    for (int item = begin; item < end; item++) {
        const int tap = item / (ci_blocks * co_blocks), ci = item / co_blocks % ci_blocks * block.ci;
        const int co = item % co_blocks * block.vecs * LANES;
        const int taps[3] = {tap / (u->kernel[1] * u->kernel[2]), tap / u->kernel[2] % u->kernel[1], tap % u->kernel[2]};
        const box b = clip_box(u, tile, taps);
        view v = {.x = x + ci, .dz = dz + co};
        for (int d = 0; d < 3; d++) {
            v.x_origin += (taps[d] - u->pad[d]) * xs[d];
            v.x_step[d] = u->stride[d] * xs[d];
            v.dz_step[d] = zs[d];
        }
        float *dw = dweight + ((size_t)tap * (size_t)cin + (size_t)ci) * (size_t)cout + (size_t)co;
        if (block.ci == 2) {
            block.vecs == 2 ? outer(&v, &b, dw, (size_t)cout, 2, 2) : outer(&v, &b, dw, (size_t)cout, 2, 1);
        } else if (block.vecs == 2) {
            outer(&v, &b, dw, (size_t)cout, 8, 2);
        } else if (block.ci == 16) {
            outer(&v, &b, dw, (size_t)cout, 16, 1);
        } else {
            outer(&v, &b, dw, (size_t)cout, 8, 1);
        }
    }
}

static int count_items(const flim_unit *u)
{
    const blocking b = choose_blocking(u);
    return u->kernel[0] * u->kernel[1] * u->kernel[2] * (u->in_channels / b.ci) * (u->out_channels / (b.vecs * LANES));
}

void flim_cpu_wgrad(const flim_unit *u, const float *x, const float *dz, float *dweight, int threads)
{
    const int *out = u->conv_out, items = count_items(u);
    int rows = (TILE_VOXELS + out[2] - 1) / out[2];
    rows = rows < out[1] ? rows : out[1];
    int planes = rows == out[1] ? TILE_VOXELS / (out[1] * out[2]) : 1;
    planes = planes > 1 ? planes : 1;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
    for (int part = 0; part < threads; part++) {
        const int begin = (int)((long)items * part / threads), end = (int)((long)items * (part + 1) / threads);
        for (int t = 0; t < out[0]; t += planes) {
            for (int y = 0; y < out[1]; y += rows) {
                const box tile = {{t, y, 0},
                                  {t + planes < out[0] ? t + planes : out[0], y + rows < out[1] ? y + rows : out[1], out[2]}};
                wgrad_items(u, x, dz, dweight, &tile, begin, end);
            }
        }
    }
}
#else
bool flim_cpu_wgrad_can(const flim_unit *unit)
{
    (void)unit;
    return false;
}

void flim_cpu_wgrad(const flim_unit *unit, const float *x, const float *dz, float *dweight, int threads)
{
    (void)unit, (void)x, (void)dz, (void)dweight, (void)threads;
}
#endif
