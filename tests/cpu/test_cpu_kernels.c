/* The CPU backend's own kernels against plain loops in double: every vector width that this processor has, channel counts and
 * lengths that are no multiple of a vector, every flag; the convolutions on small integers, where every sum is exact. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#ifndef FLIM_HAVE_CPU
int main(void)
{
    puts("skipped: this build has no CPU backend");
    return 77;
}
#else

#include "cpu/layers/cpu_layer.h"
#include "cpu/conv/conv3x3x3_c8.h"
#include "cpu/conv/conv_wgrad.h"

static uint32_t noise_state = 1;

static int noise(int below)
{
    noise_state = noise_state * 1664525u + 1013904223u;
    return (int)((noise_state >> 8) % (uint32_t)below);
}

static float *array(size_t count)
{
    float *a = malloc((count > 0 ? count : 1) * sizeof *a);
    assert_non_null(a);
    for (size_t i = 0; i < count; i++) {
        a[i] = NAN;
    }
    return a;
}

/* Quarters from -2 to 2; `integers` -3..3. */
static float *random_array(size_t count, bool integers)
{
    float *a = array(count);
    for (size_t i = 0; i < count; i++) {
        a[i] = integers ? (float)(noise(7) - 3) : 0.25f * (float)(noise(17) - 8);
    }
    return a;
}

static void expect(const char *what, size_t i, double found, double expected)
{
    if (!(fabs(found - expected) <= 1e-5 * (1.0 + fabs(expected)))) {
        fail_msg("%s: element %zu is %.9g, expected %.9g", what, i, found, expected);
    }
}

/* ---- The passes, at each width --------------------------------------------------------------------------------------- */

static int tables(const flim_cpu_kernels *out[3])
{
    const flim_cpu_kernels *best = flim_cpu_kernels_choose();
    int n = 0;
    out[n++] = &flim_cpu_kernels_portable;
    if (best != &flim_cpu_kernels_portable) {
        out[n++] = &flim_cpu_kernels_avx2;
    }
    if (best == &flim_cpu_kernels_avx512) {
        out[n++] = best;
    }
    return n;
}

typedef struct pass_case {
    int channels, pool_t;
    bool act, skip, dropout, two, store;
} pass_case;

typedef struct pass_data {
    flim_cpu_layer layer;
    flim_cpu_team team;
    float *rows, *z, *skip, *y, *dy, *dy2, *dv, *dz, *dropout;
    double *partial;
} pass_data;

static double slope_of(const pass_case *c, double v)
{
    return c->act && !(v > 0) ? (double)FLIM_LEAKY_SLOPE : 1.0;
}

static double value(const pass_data *d, const pass_case *c, size_t i)
{
    const size_t j = i % (size_t)c->channels;
    double v = (double)d->layer.scale[j] * (double)d->z[i] + (double)d->layer.shift[j];
    return v + (c->skip ? (double)d->skip[i] : 0.0);
}

static double dropped(const pass_data *d, const pass_case *c, size_t i)
{
    return c->dropout ? (double)d->dropout[i % (size_t)c->channels] : 1.0;
}

static pass_data make_pass(const pass_case *c, const flim_cpu_kernels *kernels, int t, int h, int w)
{
    pass_data d = {.team = {kernels, 2}};
    const flim_unit unit = {.bn = "bn",
                            .input = -1,
                            .skip = c->skip ? 0 : -1,
                            .act = c->act,
                            .pool_t = c->pool_t,
                            .dropout = c->dropout,
                            .in_channels = 1,
                            .out_channels = c->channels,
                            .in = {t, h, w},
                            .conv_out = {t, h, w},
                            .out = {t / c->pool_t, h, w}};
    flim_cpu_layer_init(&d.layer, &unit);
    d.rows = array(flim_cpu_layer_row_floats(&d.layer));
    flim_cpu_layer_set_rows(&d.layer, d.rows);
    float *const row[] = {d.layer.scale, d.layer.shift, d.layer.center, d.layer.a, d.layer.b, d.layer.d};
    d.dropout = array(d.layer.period);
    for (int ch = 0; ch < c->channels; ch++) {
        for (int k = 0; k < 6; k++) {
            const float number = 0.25f * (float)(noise(17) - 8) + 0.03125f;
            for (size_t j = (size_t)ch; j < d.layer.period; j += (size_t)c->channels) {
                row[k][j] = number;
            }
        }
        const float kept = ch % 3 == 1 ? 0.0f : 1.25f;
        for (size_t j = (size_t)ch; j < d.layer.period; j += (size_t)c->channels) {
            d.dropout[j] = kept;
        }
    }
    d.z = random_array(d.layer.z_floats, false);
    d.skip = random_array(d.layer.z_floats, false);
    d.dy = random_array(d.layer.y_floats, false);
    d.dy2 = random_array(d.layer.y_floats, false);
    d.y = array(d.layer.y_floats);
    d.dv = array(d.layer.z_floats);
    d.dz = array(d.layer.z_floats);
    d.partial = malloc(flim_cpu_layer_partials(&d.layer) * sizeof *d.partial);
    assert_non_null(d.partial);
    return d;
}

static void free_pass(pass_data *d)
{
    float *const block[] = {d->rows, d->z, d->skip, d->y, d->dy, d->dy2, d->dv, d->dz, d->dropout};
    for (size_t i = 0; i < sizeof block / sizeof block[0]; i++) {
        free(block[i]);
    }
    free(d->partial);
}

static flim_cpu_term skip_of(const pass_data *d, const pass_case *c)
{
    return c->skip ? flim_cpu_layer_term(&d->layer, NULL, d->skip) : (flim_cpu_term){0};
}

static void check_forward(pass_data *d, const pass_case *c)
{
    flim_cpu_layer_forward(&d->layer, &d->team, d->z, skip_of(d, c), c->dropout ? d->dropout : NULL, d->y);
    for (size_t i = 0; i < d->layer.y_floats; i++) {
        const size_t bin = i / d->layer.plane, at = i % d->layer.plane + (size_t)c->pool_t * bin * d->layer.plane;
        double v = value(d, c, at);
        if (c->pool_t == 2) {
            v = fmax(v, value(d, c, at + d->layer.plane));
        }
        expect("forward", i, (double)d->y[i], v * slope_of(c, v) * dropped(d, c, i));
    }
}

/* dv of element i of z, by the definition. */
static double expected_dv(const pass_data *d, const pass_case *c, size_t i)
{
    const size_t plane = d->layer.plane, bin = i / plane;
    size_t out = i;
    if (c->pool_t == 2) {
        if (bin >= 2 * (size_t)d->layer.unit.out[0]) {
            return 0.0;
        }
        out = bin / 2 * plane + i % plane;
        const size_t first = 2 * (bin / 2) * plane + i % plane;
        const bool second_wins = value(d, c, first + plane) > value(d, c, first);
        if (second_wins != (bin % 2 == 1)) {
            return 0.0;
        }
    }
    double dy = (double)d->dy[out] + (c->two ? (double)d->dy2[out] : 0.0);
    return dy * dropped(d, c, i) * slope_of(c, value(d, c, i));
}

static void check_backward(pass_data *d, const pass_case *c)
{
    const bool sign = (c->skip || c->dropout) && c->pool_t == 1;
    const bool store = c->store || sign || c->pool_t == 2 || c->two;
    const flim_cpu_layer_dv_run run = {.dy = d->dy,
                                       .dy2 = c->two ? d->dy2 : NULL,
                                       .z = d->z,
                                       .y = sign ? d->y : NULL,
                                       .dropout = c->dropout ? d->dropout : NULL,
                                       .skip = skip_of(d, c),
                                       .dv = store ? d->dv : NULL};
    flim_cpu_layer_dv(&d->layer, &d->team, &run, d->partial);
    flim_cpu_layer_apply(&d->layer, &d->team, store ? d->dv : d->dy, !store && c->act, d->z, d->dz);
    const size_t channels = (size_t)c->channels;
    double sums[2][64] = {{0}};
    for (size_t i = 0; i < d->layer.z_floats; i++) {
        const size_t j = i % channels;
        const double dv = expected_dv(d, c, i), centered = (double)d->z[i] - (double)d->layer.center[j];
        if (store) {
            expect("dv", i, (double)d->dv[i], dv);
        }
        sums[0][j] += dv;
        sums[1][j] += dv * centered;
        expect("dz", i, (double)d->dz[i],
               (double)d->layer.a[j] * dv + (double)d->layer.b[j] * centered + (double)d->layer.d[j]);
    }
    for (size_t j = 0; j < channels; j++) {
        double found[2] = {0.0, 0.0};
        for (size_t k = 0; k < flim_cpu_layer_partials(&d->layer); k++) {
            found[k / d->layer.period % 2] += k % d->layer.period % channels == j ? d->partial[k] : 0.0;
        }
        expect("sum of dv", j, found[0], sums[0][j]);
        expect("sum of dv (z - mean)", j, found[1], sums[1][j]);
    }
}

static void check_moments(pass_data *d, const pass_case *c)
{
    const size_t channels = (size_t)c->channels, voxels = d->layer.z_floats / channels;
    float one[64], zero[64], mean[64], var[64];
    double moments[1 + 2 * 64];
    for (size_t j = 0; j < channels; j++) {
        one[j] = 1.0f;
        zero[j] = mean[j] = var[j] = 0.0f;
    }
    const flim_cpu_norm norm = {.gamma = one, .beta = zero, .running_mean = mean, .running_var = var, .momentum = 0.1};
    flim_cpu_layer_moments(&d->layer, &d->team, d->z, d->partial);
    flim_cpu_layer_merge_moments(&d->layer, d->z, d->partial, 1, moments);
    flim_cpu_layer_finish_moments(&d->layer, moments, &norm);
    for (size_t j = 0; j < channels; j++) {
        double sum = 0.0, squares = 0.0;
        for (size_t v = 0; v < voxels; v++) {
            sum += (double)d->z[v * channels + j];
        }
        for (size_t v = 0; v < voxels; v++) {
            squares += pow((double)d->z[v * channels + j] - sum / (double)voxels, 2.0);
        }
        expect("running mean", j, (double)mean[j], 0.1 * sum / (double)voxels);
        expect("running variance", j, (double)var[j], 0.1 * squares / (double)(voxels - 1));
        expect("scale", j, (double)d->layer.scale[j], 1.0 / sqrt(squares / (double)voxels + 1e-5));
    }
}

static void passes(void **state)
{
    (void)state;
    static const int channels[] = {1, 3, 8, 12, 16, 20, 32};
    static const int size[][3] = {{5, 3, 3}, {9, 4, 5}, {70, 3, 7}};
    const flim_cpu_kernels *table[3];
    const int n = tables(table);
    for (int flags = 0; flags < 64; flags++) {
        pass_case c = {.channels = channels[flags % 7],
                       .pool_t = flags & 1 ? 2 : 1,
                       .act = flags & 2,
                       .skip = flags & 4,
                       .dropout = flags & 8,
                       .two = flags & 16,
                       .store = flags & 32};
        const int *s = size[flags % 3];
        for (int k = 0; k < n; k++) {
            pass_data d = make_pass(&c, table[k], s[0], s[1], s[2]);
            print_message("%s, %d channels, %d x %d x %d, flags %d\n", table[k]->name, c.channels, s[0], s[1], s[2], flags);
            check_forward(&d, &c);
            check_backward(&d, &c);
            check_moments(&d, &c);
            free_pass(&d);
        }
    }
}

/* ---- Convolutions ---------------------------------------------------------------------------------------------------- */

/* Calls visit for each product x[xi] * w * z[zi]; weight index in (kt,ky,kx,ci,co) order. */
static void plain_wgrad(const flim_unit *u, const float *x, const float *dz, double *dw)
{
    const int cin = u->in_channels, cout = u->out_channels, *k = u->kernel;
    for (int o = 0; o < u->conv_out[0] * u->conv_out[1] * u->conv_out[2]; o++) {
        const int to = o / (u->conv_out[1] * u->conv_out[2]), yo = o / u->conv_out[2] % u->conv_out[1],
                  xo = o % u->conv_out[2];
        for (int tap = 0; tap < k[0] * k[1] * k[2]; tap++) {
            const int t = to * u->stride[0] + tap / (k[1] * k[2]) - u->pad[0];
            const int y = yo * u->stride[1] + tap / k[2] % k[1] - u->pad[1], xx = xo * u->stride[2] + tap % k[2] - u->pad[2];
            if (t < 0 || y < 0 || xx < 0 || t >= u->in[0] || y >= u->in[1] || xx >= u->in[2]) {
                continue;
            }
            const float *at = x + ((size_t)(t * u->in[1] + y) * (size_t)u->in[2] + (size_t)xx) * (size_t)cin;
            for (int i = 0; i < cin * cout; i++) {
                dw[tap * cin * cout + i] += (double)at[i / cout] * (double)dz[(size_t)o * (size_t)cout + (size_t)(i % cout)];
            }
        }
    }
}

static flim_unit conv_unit(int cin, int cout, const int kernel[3], const int stride[3], const int pad[3], const int in[3])
{
    flim_unit u = {.in_channels = cin, .out_channels = cout, .pool_t = 1, .skip = -1};
    for (int d = 0; d < 3; d++) {
        u.kernel[d] = kernel[d];
        u.stride[d] = stride[d];
        u.pad[d] = pad[d];
        u.in[d] = in[d];
        u.conv_out[d] = (in[d] + 2 * pad[d] - kernel[d]) / stride[d] + 1;
    }
    return u;
}

static void weight_gradients(void **state)
{
    (void)state;
    static const struct {
        int cin, cout, kernel[3], stride[3], pad[3], in[3];
    } cases[] = {{2, 32, {7, 1, 1}, {1, 1, 1}, {3, 0, 0}, {9, 5, 5}},    {2, 16, {7, 1, 1}, {1, 1, 1}, {3, 0, 0}, {4, 3, 3}},
                 {32, 32, {3, 1, 1}, {2, 1, 1}, {1, 0, 0}, {9, 4, 3}},   {16, 16, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {4, 5, 6}},
                 {8, 16, {3, 3, 3}, {1, 2, 2}, {1, 1, 1}, {3, 5, 7}},    {32, 64, {1, 1, 1}, {1, 2, 2}, {0, 0, 0}, {5, 7, 7}},
                 {16, 96, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {2, 21, 21}}, {24, 48, {3, 3, 3}, {2, 1, 2}, {0, 2, 1}, {7, 3, 4}},
                 {64, 128, {3, 3, 3}, {1, 2, 2}, {1, 1, 1}, {3, 11, 11}}};
    int ran = 0;
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        const flim_unit u =
            conv_unit(cases[k].cin, cases[k].cout, cases[k].kernel, cases[k].stride, cases[k].pad, cases[k].in);
        if (!flim_cpu_wgrad_can(&u)) {
            continue;
        }
        ran++;
        const size_t xn = (size_t)(u.in[0] * u.in[1] * u.in[2] * u.in_channels);
        const size_t zn = (size_t)(u.conv_out[0] * u.conv_out[1] * u.conv_out[2] * u.out_channels);
        const size_t wn = (size_t)(u.kernel[0] * u.kernel[1] * u.kernel[2] * u.in_channels * u.out_channels);
        float *x = random_array(xn, true), *dz = random_array(zn, true), *dw = array(wn);
        double *expected = calloc(wn, sizeof *expected);
        assert_non_null(expected);
        plain_wgrad(&u, x, dz, expected);
        for (int threads = 1; threads <= 3; threads++) {
            for (size_t i = 0; i < wn; i++) {
                dw[i] = 5.0f; /* it is added to */
            }
            flim_cpu_wgrad(&u, x, dz, dw, threads);
            for (size_t i = 0; i < wn; i++) {
                if ((double)dw[i] != expected[i] + 5.0) {
                    fail_msg("case %zu, %d threads: weight %zu is %.9g, expected %.9g", k, threads, i, (double)dw[i],
                             expected[i] + 5.0);
                }
            }
        }
        free(x);
        free(dz);
        free(dw);
        free(expected);
    }
    if (ran == 0) {
        print_message("skipped: this processor has no AVX-512\n");
        skip();
    }
}

/* z by the definition: weights (co,ci,kt,ky,kx). */
static double plain_conv(const flim_unit *u, const float *x, const float *w, int t, int y, int xx, int co)
{
    double sum = 0.0;
    for (int tap = 0; tap < 27; tap++) {
        const int ti = t + tap / 9 - 1, yi = y + tap / 3 % 3 - 1, xi = xx + tap % 3 - 1;
        if (ti < 0 || yi < 0 || xi < 0 || ti >= u->in[0] || yi >= u->in[1] || xi >= u->in[2]) {
            continue;
        }
        for (int ci = 0; ci < 8; ci++) {
            sum += (double)x[((size_t)(ti * u->in[1] + yi) * (size_t)u->in[2] + (size_t)xi) * 8 + (size_t)ci] *
                   (double)w[(co * 8 + ci) * 27 + tap];
        }
    }
    return sum;
}

static void convolutions_of_8_channels(void **state)
{
    (void)state;
    static const int three[3] = {3, 3, 3}, one[3] = {1, 1, 1};
    static const int size[][3] = {{1, 1, 1}, {2, 1, 2},  {3, 2, 3},   {1, 3, 7}, {5, 5, 5},
                                  {4, 4, 8}, {3, 7, 10}, {2, 21, 21}, {4, 6, 23}};
    for (size_t k = 0; k < sizeof size / sizeof size[0]; k++) {
        const flim_unit u = conv_unit(8, 8, three, one, one, size[k]);
        if (!flim_cpu_c8_can(&u)) {
            print_message("skipped: this processor has no AVX-512\n");
            skip();
        }
        const size_t n = (size_t)(u.in[0] * u.in[1] * u.in[2]) * 8;
        float *x = random_array(n, true), *dz = random_array(n, true), *z = array(n), *bias = random_array(8, true);
        float *w = random_array(27 * 64, true), *packed = array(FLIM_CPU_C8_PACKED), *plain = array(27 * 64);
        float *dw = array(FLIM_CPU_C8_GRADIENT);
        double *expected = calloc(27 * 64, sizeof *expected);
        assert_non_null(expected);
        plain_wgrad(&u, x, dz, expected);
        flim_cpu_c8_pack(w, packed);
        for (int threads = 1; threads <= 3; threads++) {
            flim_cpu_c8_forward(u.in, x, packed, threads == 2 ? NULL : bias, z, threads);
            for (size_t i = 0; i < n; i++) {
                const int co = (int)(i % 8), v = (int)(i / 8), plane = u.in[1] * u.in[2];
                const double sum = plain_conv(&u, x, w, v / plane, v / u.in[2] % u.in[1], v % u.in[2], co);
                if ((double)z[i] != sum + (threads == 2 ? 0.0 : (double)bias[co])) {
                    fail_msg("%d x %d x %d: z %zu is %.9g, expected %.9g", u.in[0], u.in[1], u.in[2], i, (double)z[i], sum);
                }
            }
            memset(dw, 0, FLIM_CPU_C8_GRADIENT * sizeof *dw);
            flim_cpu_c8_wgrad(u.in, x, dz, dw, threads);
            flim_cpu_c8_unload(dw, plain);
            for (int i = 0; i < 27 * 64; i++) { /* expected is (tap,ci,co) */
                const int tap = i / 64, ci = i / 8 % 8, co = i % 8;
                if ((double)plain[(co * 8 + ci) * 27 + tap] != expected[i]) {
                    fail_msg("%d x %d x %d, %d threads: dw of tap %d, %d -> %d is %.9g, expected %.9g", u.in[0], u.in[1],
                             u.in[2], threads, tap, ci, co, (double)plain[(co * 8 + ci) * 27 + tap], expected[i]);
                }
            }
        }
        float *const block[] = {x, dz, z, bias, w, packed, plain, dw};
        for (size_t i = 0; i < sizeof block / sizeof block[0]; i++) {
            free(block[i]);
        }
        free(expected);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(passes), cmocka_unit_test(weight_gradients),
                                       cmocka_unit_test(convolutions_of_8_channels)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#endif
