/* Running statistics of BatchNorm against the two formulas, with numbers that a person can check (CASES 19):
 * mean += momentum * (batch mean - mean), var += momentum * (unbiased batch variance - var), momentum 0.1, kept in fp32.
 * FLIM_TEST_DEVICE=cuda takes the card, in every precision that it has.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "flim/device.h"

enum { C = 8, T = 4 };

/* A convolution that copies (1x1x1, the identity) and BatchNorm, on one cell of C channels, T bins, one pixel. */
static const flim_unit copy_unit = {.conv = "unit.conv",
                                    .bn = "unit.bn",
                                    .input = -1,
                                    .skip = -1,
                                    .pool_t = 1,
                                    .in_channels = C,
                                    .out_channels = C,
                                    .kernel = {1, 1, 1},
                                    .stride = {1, 1, 1},
                                    .in = {T, 1, 1},
                                    .conv_out = {T, 1, 1},
                                    .out = {T, 1, 1}};

typedef struct moments {
    float mean[C], var[C];
} moments;

/* One training step on x (C,T). */
static void step(flim_device *device, flim_precision precision, const float *x, moments *m)
{
    float weight[C * C] = {0}, bias[C] = {0}, gamma[C], beta[C] = {0}, y[C * T];
    const flim_cell_id id[1] = {{.seed = 1, .cell = 1}};
    for (int c = 0; c < C; c++) {
        weight[c * C + c] = 1;
        gamma[c] = 1;
    }
    const flim_unit_run run = {.n = 1,
                               .id = id,
                               .training = true,
                               .x = x,
                               .weight = weight,
                               .bias = bias,
                               .gamma = gamma,
                               .beta = beta,
                               .running_mean = m->mean,
                               .running_var = m->var,
                               .y = y};
    flim_error err = {0};
    if (flim_device_run_unit(device, &copy_unit, precision, &run, &err) != FLIM_OK) {
        fail_msg("%s", err.text);
    }
}

static void expect(const char *what, flim_precision precision, double got, double expected, double tolerance)
{
    if (!(fabs(got - expected) <= tolerance)) {
        fail_msg("%s in %s: %.9g, expected %.9g within %g", what, flim_precision_name(precision), got, expected, tolerance);
    }
}

static void follow_the_formulas(void **state)
{
    flim_device *device = *state;
    const unsigned precisions = flim_device_get_info(device)->precisions;
    for (flim_precision p = FLIM_PRECISION_FP32; p <= FLIM_PRECISION_FP16; p++) {
        if (!(precisions & 1u << p)) {
            continue;
        }
        float x[C * T], ones[C * T];
        moments m, constant;
        for (int i = 0; i < C * T; i++) {
            x[i] = (float)(i % T); /* 0, 1, 2, 3: mean 1.5, biased variance 1.25, unbiased 5/3 */
            ones[i] = 1;
        }
        for (int c = 0; c < C; c++) {
            m.mean[c] = constant.mean[c] = 0;
            m.var[c] = constant.var[c] = 1;
        }
        step(device, p, x, &m);
        for (int c = 0; c < C; c++) {
            expect("running_var after a step", p, (double)m.var[c], 1.0666667, 1e-6); /* the biased one would give 1.025 */
            expect("running_mean after a step", p, (double)m.mean[c], 0.15, 1e-6);
        }
        step(device, p, x, &m);
        expect("running_var after two steps", p, (double)m.var[C - 1], 1.1266667, 1e-6);
        expect("running_mean after two steps", p, (double)m.mean[C - 1], 0.285, 1e-6);
        for (int i = 0; i < 200; i++) {
            step(device, p, ones, &constant);
        }
        /* Kept in bf16 the mean would stall at 0.984375. */
        expect("running_mean of ones after 200 steps", p, (double)constant.mean[0], 1 - pow(0.9, 200), 1e-5);
        expect("running_var of ones after 200 steps", p, (double)constant.var[0], pow(0.9, 200), 1e-5);
    }
}

int main(void)
{
    const char *spec = getenv("FLIM_TEST_DEVICE");
    flim_device *device = NULL;
    flim_error err = {0};
    if (flim_device_open(spec ? spec : "cpu", NULL, &device, &err) != FLIM_OK) {
        printf("skipped: %s\n", err.text);
        return 77;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test_prestate(follow_the_formulas, device)};
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    flim_device_close(device);
    return failed;
}
