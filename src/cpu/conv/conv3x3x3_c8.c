#include "cpu/conv/conv3x3x3_c8.h"

#include <stddef.h>
#include <string.h>

enum { C = 8, LANES = 16, BLOCK = 7, TAP_ROW = C * LANES, MOST_WIDTH = 4096 };

/* Packed weights: [kt][ky][ci] vectors (kx 0 | kx 1), then [kt][j][ci] vectors (kx 2 of ky = j | kx 2 of ky = j - 1), j = 0..3. */
static size_t pair_at(int kt, int ky)
{
    return (size_t)(kt * 3 + ky) * TAP_ROW;
}

static size_t third_at(int kt, int j)
{
    return (size_t)(9 + kt * 4 + j) * TAP_ROW;
}

static float tap(const float *plain, int co, int ci, int kt, int ky, int kx)
{
    return plain[(((co * C + ci) * 3 + kt) * 3 + ky) * 3 + kx];
}

void flim_cpu_c8_pack(const float *plain, float *packed)
{
    memset(packed, 0, FLIM_CPU_C8_PACKED * sizeof *packed);
    for (int i = 0; i < 27 * C * C; i++) {
        const int co = i % C, ci = i / C % C, kx = i / 64 % 3, ky = i / 192 % 3, kt = i / 576;
        const float w = tap(plain, co, ci, kt, ky, kx);
        const size_t lane = (size_t)ci * LANES + (size_t)co;
        if (kx < 2) {
            packed[pair_at(kt, ky) + lane + (size_t)(kx * C)] = w;
        } else {
            packed[third_at(kt, ky) + lane] = w;
            packed[third_at(kt, ky + 1) + lane + C] = w;
        }
    }
}

void flim_cpu_c8_unload(const float *from, float *plain)
{
    for (int i = 0; i < 27 * C * C; i++) {
        const int ci = i % C, kx = i / C % 3, co = i / (3 * C) % C, ky = i / (3 * C * C) % 3, kt = i / (9 * C * C);
        plain[(((co * C + ci) * 3 + kt) * 3 + ky) * 3 + kx] = from[i];
    }
}

/* clang does not know the pragma: it needs -mavx512f */
#if defined(__x86_64__) && (!defined(__clang__) || defined(__AVX512F__))
#pragma GCC target("avx512f,avx2,fma,prefer-vector-width=512")
#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

bool flim_cpu_c8_can(const flim_unit *u)
{
    bool fits = u->in_channels == C && u->out_channels == C && u->in[2] <= MOST_WIDTH;
    for (int d = 0; d < 3; d++) {
        fits = fits && u->kernel[d] == 3 && u->stride[d] == 1 && u->pad[d] == 1;
    }
    __builtin_cpu_init();
    return fits && __builtin_cpu_supports("avx512f");
}

/* One input row of N voxels into the sums of two output rows: `first` gets ky = j, `second` ky = j - 1, where they exist. */
INLINE void add_row(const float *x, const float *pair_first, const float *pair_second, const float *third, __m512 *first,
                    __m512 *second, __m512 *thirds, const int N, const bool has_first, const bool has_second)
{
    for (int ci = 0; ci < C; ci++) {
        const __m512 w0 = has_first ? _mm512_loadu_ps(pair_first + ci * LANES) : _mm512_setzero_ps();
        const __m512 w1 = has_second ? _mm512_loadu_ps(pair_second + ci * LANES) : _mm512_setzero_ps();
        const __m512 w2 = _mm512_loadu_ps(third + ci * LANES);
#pragma GCC unroll 8
        for (int i = 0; i < N; i++) {
            const __m512 a = _mm512_set1_ps(x[i * C + ci]);
            if (has_first) {
                first[i] = _mm512_fmadd_ps(a, w0, first[i]);
            }
            if (has_second) {
                second[i] = _mm512_fmadd_ps(a, w1, second[i]);
            }
            thirds[i] = _mm512_fmadd_ps(a, w2, thirds[i]);
        }
    }
}

INLINE void add_half(float *to, __m256 v)
{
    _mm256_storeu_ps(to, _mm256_add_ps(_mm256_loadu_ps(to), v));
}

INLINE __m256 low(__m512 v)
{
    return _mm512_castps512_ps256(v);
}

INLINE __m256 high(__m512 v)
{
    return _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(v), 1));
}

/* N input voxels from column x0 of all rows that output rows y and y + 1 of time bin t see; adds to two row buffers, whose
 * voxel x stands at place x + 1. */
INLINE void block(const int size[3], const float *x, const float *packed, int t, int y, int x0, float *row0, float *row1,
                  const int N)
{
    __m512 first[BLOCK], second[BLOCK], thirds[BLOCK];
#pragma GCC unroll 8
    for (int i = 0; i < N; i++) {
        first[i] = second[i] = thirds[i] = _mm512_setzero_ps();
    }
    for (int kt = 0; kt < 3; kt++) {
        const int bin = t + kt - 1;
        if (bin < 0 || bin >= size[0]) {
            continue;
        }
        const float *plane = x + (size_t)bin * (size_t)size[1] * (size_t)size[2] * C + (size_t)x0 * C;
        const size_t row = (size_t)size[2] * C;
        if (y > 0) {
            add_row(plane + (size_t)(y - 1) * row, packed + pair_at(kt, 0), packed, packed + third_at(kt, 0), first, second,
                    thirds, N, true, false);
        }
        for (int j = 1; j < 3 && y - 1 + j < size[1]; j++) {
            add_row(plane + (size_t)(y - 1 + j) * row, packed + pair_at(kt, j), packed + pair_at(kt, j - 1),
                    packed + third_at(kt, j), first, second, thirds, N, true, true);
        }
        if (y + 2 < size[1]) {
            add_row(plane + (size_t)(y + 2) * row, packed, packed + pair_at(kt, 2), packed + third_at(kt, 3), first, second,
                    thirds, N, false, true);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < N; i++) {
        float *at0 = row0 + (size_t)(x0 + i) * C, *at1 = row1 + (size_t)(x0 + i) * C;
        add_half(at0 + 2 * C, low(first[i]));
        add_half(at0 + C, high(first[i]));
        add_half(at0, low(thirds[i]));
        add_half(at1 + 2 * C, low(second[i]));
        add_half(at1 + C, high(second[i]));
        add_half(at1, high(thirds[i]));
    }
}

static void two_rows(const int size[3], const float *x, const float *packed, const float *bias, float *z, int t, int y)
{
    float rows[2][((size_t)size[2] + 2) * C];
    for (size_t i = 0; i < ((size_t)size[2] + 2) * C; i++) {
        rows[0][i] = rows[1][i] = bias ? bias[i % C] : 0.0f;
    }
    int x0 = 0;
    for (; x0 + BLOCK <= size[2]; x0 += BLOCK) {
        block(size, x, packed, t, y, x0, rows[0], rows[1], BLOCK);
    }
    for (; x0 + 3 <= size[2]; x0 += 3) {
        block(size, x, packed, t, y, x0, rows[0], rows[1], 3);
    }
    for (; x0 < size[2]; x0++) {
        block(size, x, packed, t, y, x0, rows[0], rows[1], 1);
    }
    const size_t row = (size_t)size[2] * C;
    float *to = z + ((size_t)t * (size_t)size[1] + (size_t)y) * row;
    memcpy(to, rows[0] + C, row * sizeof *to);
    if (y + 1 < size[1]) {
        memcpy(to + row, rows[1] + C, row * sizeof *to);
    }
}

void flim_cpu_c8_forward(const int size[3], const float *x, const float *packed, const float *bias, float *z, int threads)
{
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
    for (int t = 0; t < size[0]; t++) {
        for (int y = 0; y < size[1]; y += 2) {
            two_rows(size, x, packed, bias, z, t, y);
        }
    }
}

/* The taps kx = 0, 1 (pair) and 2 (third) of one row: sums over its voxels, a vector an output channel. */
INLINE void wgrad_row(const float *x, const float *dz, int width, __m512 *pair, __m512 *third)
{
    for (int i = 0; i < width; i++) {
        const __m512 left =
            i > 0 ? _mm512_loadu_ps(x + (size_t)(i - 1) * C)
                  : _mm512_castpd_ps(_mm512_insertf64x4(_mm512_setzero_pd(), _mm256_castps_pd(_mm256_loadu_ps(x)), 1));
        const __m512 right = i + 1 < width ? _mm512_insertf32x4(_mm512_zextps128_ps512(_mm_loadu_ps(x + (size_t)(i + 1) * C)),
                                                                _mm_loadu_ps(x + (size_t)(i + 1) * C + 4), 1)
                                           : _mm512_setzero_ps();
#pragma GCC unroll 8
        for (int co = 0; co < C; co++) {
            const __m512 d = _mm512_set1_ps(dz[(size_t)i * C + (size_t)co]);
            pair[co] = _mm512_fmadd_ps(left, d, pair[co]);
            third[co] = _mm512_fmadd_ps(right, d, third[co]);
        }
    }
}

/* One (kt,ky) over one time bin of dz, in registers, then added to memory: sums of sums. */
static void wgrad_plane(const int size[3], const float *x, const float *dz, int ky, float *dweight)
{
    __m512 pair[C], third[C];
    const size_t row = (size_t)size[2] * C;
    for (int co = 0; co < C; co++) {
        pair[co] = third[co] = _mm512_setzero_ps();
    }
    for (int y = ky == 0; y < size[1] - (ky == 2); y++) {
        wgrad_row(x + (size_t)(y + ky - 1) * row, dz + (size_t)y * row, size[2], pair, third);
    }
    for (int co = 0; co < C; co++) {
        float *at = dweight + (size_t)co * 3 * C;
        _mm512_storeu_ps(at, _mm512_add_ps(_mm512_loadu_ps(at), pair[co]));
        add_half(at + LANES, low(third[co]));
    }
}

void flim_cpu_c8_wgrad(const int size[3], const float *x, const float *dz, float *dweight, int threads)
{
    const size_t plane = (size_t)size[1] * (size_t)size[2] * C;
    /* Threads share out the taps: each adds up its own over the whole cell. */
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
    for (int part = 0; part < threads; part++) {
        const int begin = 9 * part / threads, end = 9 * (part + 1) / threads;
        for (int t = 0; t < size[0]; t++) {
            for (int k = begin; k < end; k++) {
                const int bin = t + k / 3 - 1;
                if (bin >= 0 && bin < size[0]) {
                    wgrad_plane(size, x + (size_t)bin * plane, dz + (size_t)t * plane, k % 3,
                                dweight + (size_t)k * 3 * C * C);
                }
            }
        }
    }
}
#else
bool flim_cpu_c8_can(const flim_unit *u)
{
    (void)u;
    return false;
}

void flim_cpu_c8_forward(const int size[3], const float *x, const float *packed, const float *bias, float *z, int threads)
{
    (void)size, (void)x, (void)packed, (void)bias, (void)z, (void)threads;
}

void flim_cpu_c8_wgrad(const int size[3], const float *x, const float *dz, float *dweight, int threads)
{
    (void)size, (void)x, (void)dz, (void)dweight, (void)threads;
}
#endif
