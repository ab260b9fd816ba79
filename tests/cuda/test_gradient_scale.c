/* tf32 stores gradients in fp16, times a power of two each: of dz behind a convolution that has written du (flim_k_grad_norm_sums), it must
 * bring dz's root mean square near 2^-9 whatever the size at which du is stored, or units in a row leave fp16's range.  Coefficients and
 * parameter gradients against double precision. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#ifdef FLIM_HAVE_CUDA

#include <math.h>

#include "cuda/device/cuda_device.h"
#include "cuda/kernels/kernels.h"
#include "reference/formula.h"

enum { MOST_CHANNELS = 128, CELLS = 64 };

typedef struct example {
    const char *what;
    int channels;
    int64_t per_cell; /* positions */
    double size; /* of du as stored, at most */
    int one_in; /* of so many cells one has a gradient; 0: none */
} example;

static const example examples[] = {
    {"small values", 32, 4410, 0x1p-12, 1},    {"large values", 32, 4410, 0x1p10, 1},
    {"one cell of all", 32, 4410, 1.0, CELLS}, {"fewer values than are sampled", 32, 3, 0x1p6, 1},
    {"padding channels", 5, 441, 0x1p-6, 1},   {"channels that are no power of two", 72, 441, 0x1p6, 1},
    {"more channels", 128, 441, 0x1p-8, 1},    {"zeros", 32, 441, 1.0, 0},
};

static flim_cuda_device *device;

static void check_cuda(cudaError_t code, const char *what)
{
    if (code != cudaSuccess) {
        fail_msg("%s: %s", what, cudaGetErrorString(code));
    }
}

/* Memory that card and processor read. */
static void *take(size_t bytes)
{
    void *at = NULL;
    check_cuda(cudaMallocHost(&at, bytes), "cudaMallocHost");
    memset(at, 0xff, bytes);
    return at;
}

/* fp16 of a multiple of 2^-24 that it holds exactly, or the next towards 0. */
static uint16_t half_of(double value)
{
    int exponent;
    const double part = frexp(fabs(value), &exponent); /* [0.5, 1) */
    const int biased = exponent + 14;
    const uint32_t bits =
        biased > 0 ? (uint32_t)biased << 10 | ((uint32_t)(part * 2048.0) & 0x3ffu) : (uint32_t)(fabs(value) * 0x1p24);
    return (uint16_t)((value < 0.0 ? 0x8000u : 0u) | (value == 0.0 ? 0u : bits));
}

static double value_of(uint16_t half)
{
    const int exponent = half >> 10 & 0x1f, fraction = half & 0x3ff;
    const double size = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
    return half >> 15 ? -size : size;
}

static double gamma_of(int k)
{
    return 0.25 * (1 + k % 7);
}

static double invstd_of(int k)
{
    return k % 2 ? 0.5 : 4.0;
}

static double mean_of(int k)
{
    return 0.125 * (k % 5 - 2);
}

/* Sums of du, du (z - mean) and du^2 per channel; z is drawn here. */
static void draw(const example *e, int c, uint16_t *du, double (*sum)[MOST_CHANNELS])
{
    const int64_t count = CELLS * e->per_cell;
    memset(sum, 0, 3 * sizeof *sum);
    for (int64_t i = 0; i < count * c; i++) {
        const int k = (int)(i % c);
        const bool there = k < e->channels && e->one_in > 0 && i / c / e->per_cell % e->one_in == 0;
        du[i] = half_of(there ? (2.0 * ref_uniform(1, i) - 0.9) * e->size / 1.1 : 0.0);
        const double v = value_of(du[i]), z = (4.0 * ref_uniform(2, i) - 2.0) / invstd_of(k); /* less its mean */
        sum[0][k] += v;
        sum[1][k] += v * z;
        sum[2][k] += v * v;
    }
}

static void near(double got, double want, double size, const example *e, const char *what, int k)
{
    if (!(fabs(got - want) <= 1e-5 * size)) {
        fail_msg("%s: %s of channel %d is %g, should be %g", e->what, what, k, got, want);
    }
}

static void check_example(const example *e, bool scaled)
{
    const int c = (e->channels + 7) / 8 * 8;
    const int64_t count = CELLS * e->per_cell;
    const double n = (double)count, s = 0x1p20 * 0x1p-3, ws = 0x1p-3, loss_scale = scaled ? 1.0 : 1024.0;
    double sum[3][MOST_CHANNELS];
    uint16_t *du = take((size_t)(count * c) * sizeof *du);
    double *sums = take(4 * (size_t)c * sizeof *sums);
    int *counter = take(sizeof *counter);
    float *f = take((10 * (size_t)c + 8) * sizeof *f), *scalar = f + 10 * c;
    draw(e, c, du, sum);
    *counter = 0;
    for (int k = 0; k < c; k++) {
        sums[k] = sum[0][k];
        sums[c + k] = sum[1][k];
        f[k] = (float)gamma_of(k);
        f[c + k] = (float)invstd_of(k);
        f[2 * c + k] = (float)mean_of(k);
    }
    scalar[0] = 0x1p20f;
    scalar[1] = scalar[2] = 0x1p-3f;
    scalar[3] = (float)loss_scale;
    const flim_grad_norm norm = {
        .norm = {.channels = e->channels,
                 .c = c,
                 .present = true,
                 .gamma = f,
                 .invstd = f + c,
                 .mean = f + 2 * c,
                 .weight_scale = scalar + 2},
        .out = {.a = f + 3 * c, .b = f + 4 * c, .d = f + 5 * c, .scale = scalar + 4, .unscale = scalar + 5},
        .dgamma = f + 6 * c,
        .dbeta = f + 7 * c};
    const flim_launch launch = {device->stream, FLIM_STORAGE_FP16, device->card.processors};
    const flim_written_gradient written = {du, scalar, scalar + 1, sums, counter};
    check_cuda(flim_k_grad_norm_sums(&launch, &written, count, &norm, scaled, false, scalar + 3), "grad_norm_sums");
    check_cuda(cudaStreamSynchronize(device->stream), "grad_norm_sums");

    assert_int_equal(*counter, 0);
    const double scale = (double)scalar[4];
    double square = 0.0;
    for (int k = 0; k < e->channels; k++) {
        const double g = gamma_of(k) * invstd_of(k) * ws, r = invstd_of(k), s0 = sum[0][k] / s, s1 = sum[1][k] / s;
        const double left = sum[2][k] / (s * s) - s0 * s0 / n - s1 * r * s1 * r / n, b = -g * s1 * r * r / n,
                     largest = sqrt(sum[2][k] * n) / s;
        square += g * g * left / n / e->channels;
        near((double)norm.out.a[k], scale * g, scale * g, e, "a", k);
        near((double)norm.out.b[k], scale * b, scale * g * largest * r / n, e, "b", k);
        near((double)norm.out.d[k], scale * (-g * s0 / n - b * mean_of(k)), scale * g * largest / n, e, "d", k);
        near((double)norm.dgamma[k], s1 * r / loss_scale, largest * r / loss_scale, e, "gamma's gradient", k);
        near((double)norm.dbeta[k], s0 / loss_scale, largest / loss_scale, e, "beta's gradient", k);
    }
    for (int k = e->channels; k < c; k++) {
        assert_true(norm.out.a[k] == 0.0f && norm.out.b[k] == 0.0f && norm.out.d[k] == 0.0f);
    }
    int exponent;
    assert_true(frexp(scale, &exponent) == 0.5); /* a power of two */
    assert_true((double)scalar[5] == 1.0 / (scale * loss_scale));
    const double size = scale * sqrt(square) * 0x1p9;
    print_message("%s: dz is stored at %.2f times 2^-9\n", e->what, size);
    if (!scaled) {
        assert_true(scale == 1.0);
    } else if (e->one_in == 0) {
        assert_true(scale == s);
    } else if (!(size > 0.5 && size < 2.0)) {
        fail_msg("%s: dz is stored at %g times the size it should have", e->what, size);
    }
    (void)cudaFreeHost(du);
    (void)cudaFreeHost(sums);
    (void)cudaFreeHost(counter);
    (void)cudaFreeHost(f);
}

static void dz_is_stored_near_its_size(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) {
        check_example(&examples[i], true);
        check_example(&examples[i], false);
    }
}

int main(void)
{
    flim_error err = {0};
    flim_device *opened = NULL;
    if (flim_device_open("cuda", NULL, &opened, &err) != FLIM_OK) {
        printf("skipped: %s\n", err.text);
        return 77;
    }
    device = flim_cuda_device_of(opened);
    const struct CMUnitTest tests[] = {cmocka_unit_test(dz_is_stored_near_its_size)};
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    flim_device_close(opened);
    return failed;
}

#else

int main(void)
{
    printf("skipped: this build has no CUDA backend\n");
    return 77;
}

#endif
