/* Calibration: the fit is the minimum of its objective, written down here once more; what it promises of probabilities; and
 * cells that it cannot learn from. */
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cv/metrics/calibration.h"
#include "flim/metrics.h"
#include "flim/network.h"
#include "flim/random.h"

enum { MOST = 4000, CLASSES = 5 };

static int32_t label[MOST];
static float logits[MOST * CLASSES];

/* The summed log loss with slope x[0] = 1 / temperature and biases x[1..K], and the two penalties. */
static double objective(int64_t n, int classes, const double *x)
{
    double sum = (x[0] - 1) * (x[0] - 1) / 2;
    for (int k = 0; k < classes; k++) {
        sum += 1e-3 * x[1 + k] * x[1 + k] / 2;
    }
    for (int64_t i = 0; i < n; i++) {
        double z[CLASSES], total = 0, top = -INFINITY;
        for (int k = 0; k < classes; k++) {
            z[k] = classes == 2 ? (k == 1 ? (double)logits[i] : 0) : (double)logits[i * classes + k];
            z[k] = x[0] * z[k] + x[1 + k];
            top = fmax(top, z[k]);
        }
        for (int k = 0; k < classes; k++) {
            total += exp(z[k] - top);
        }
        sum += top + log(total) - z[label[i]];
    }
    return sum;
}

static void unknowns(const flim_calibration *c, double *x)
{
    x[0] = 1 / c->temperature;
    for (int k = 0; k < c->classes; k++) {
        x[1 + k] = c->bias[k];
    }
}

/* n cells whose logits know something of the label, with a slope and biases that are not right. */
static void make(flim_random *random, int64_t n, int classes, double slope, double offset)
{
    const int outputs = flim_class_outputs(classes);
    for (int64_t i = 0; i < n; i++) {
        label[i] = i < classes ? (int32_t)i : (int32_t)flim_random_below(random, (uint64_t)classes);
        for (int k = 0; k < outputs; k++) {
            const double right = outputs == 1 ? (label[i] ? 1 : -1) : label[i] == k;
            logits[i * outputs + k] = (float)(slope * (right + flim_random_normal(random)) + offset * k + offset);
        }
    }
}

static flim_calibration fit(int64_t n, int classes)
{
    flim_calibration c;
    assert_int_equal(flim_calibration_fit(n, classes, label, logits, &c, NULL), FLIM_OK);
    return c;
}

/* The objective is convex: a point from which no direction leads down is its one minimum. */
static void the_fit_is_the_minimum(void **state)
{
    (void)state;
    flim_random random = flim_random_begin(&(flim_cell_id){.seed = 11}, FLIM_RANDOM_SIMULATE);
    for (int round = 0; round < 300; round++) {
        const int classes = 2 + round % 4;
        const int64_t n = classes + (int64_t)flim_random_below(&random, 60);
        const double slope = exp(3 * flim_random_normal(&random)), offset = 2 * flim_random_normal(&random);
        make(&random, n, classes, slope, offset);
        flim_calibration c = fit(n, classes);
        double x[1 + CLASSES], sum = 0;
        unknowns(&c, x);
        const double least = objective(n, classes, x);
        for (int k = 0; k < 1 + classes; k++) {
            sum += k ? x[k] : 0;
            for (int sign = -1; sign <= 1; sign += 2) {
                const double at = x[k], step = sign * 1e-4 * fmax(1, fabs(at));
                x[k] = at + step;
                const double there = objective(n, classes, x);
                x[k] = at;
                if ((k > 0 || x[0] > 1.001e-3) && there < least - 1e-8) {
                    fail_msg("round %d, K %d, n %" PRId64 ": unknown %d by %g leads from %.12g to %.12g", round, classes, n,
                             k, step, least, there);
                }
            }
        }
        for (int tries = 0; tries < 50; tries++) {
            double y[1 + CLASSES];
            for (int k = 0; k < 1 + classes; k++) {
                y[k] = x[k] + flim_random_normal(&random) * (tries % 2 ? 1 : 0.01) * fmax(0.1, fabs(x[k]));
            }
            y[0] = fmax(y[0], 1e-3);
            if (objective(n, classes, y) < least - 1e-8) {
                fail_msg("round %d: %.12g is below %.12g", round, objective(n, classes, y), least);
            }
        }
        assert_true(fabs(sum) < 1e-6);
        flim_calibration_free(&c);
    }
}

/* What makes a calibrated score speak for a prior: its mean is the class's share of the cells. */
static void the_mean_probability_is_the_share(void **state)
{
    (void)state;
    flim_random random = flim_random_begin(&(flim_cell_id){.seed = 12}, FLIM_RANDOM_SIMULATE);
    for (int round = 0; round < 100; round++) {
        const int classes = 2 + round % 4;
        const int64_t n = 20 + (int64_t)flim_random_below(&random, 200);
        static float calibrated[MOST * CLASSES];
        static double p[MOST * CLASSES];
        make(&random, n, classes, 0.3 + 2 * flim_random_uniform(&random), flim_random_normal(&random));
        flim_calibration c = fit(n, classes);
        flim_calibrate(&c, n, logits, calibrated);
        flim_probabilities(n, classes, calibrated, p);
        for (int k = 0; k < classes; k++) {
            double mean = 0, share = 0;
            for (int64_t i = 0; i < n; i++) {
                mean += p[i * classes + k];
                share += label[i] == k;
            }
            if (!(fabs(mean - share) < 0.02)) {
                fail_msg("round %d: class %d of %g cells has a summed probability of %g", round, k, share, mean);
            }
        }
        flim_calibration_free(&c);
    }
}

/* Labels drawn from probabilities that were then distorted: the distortion is found and undone. */
static void a_known_distortion_is_undone(void **state)
{
    (void)state;
    const double temperature = 3, bias = 0.7;
    flim_random random = flim_random_begin(&(flim_cell_id){.seed = 13}, FLIM_RANDOM_SIMULATE);
    static float calibrated[MOST];
    for (int64_t i = 0; i < MOST; i++) {
        const double z = 1.5 * flim_random_normal(&random);
        label[i] = flim_random_uniform(&random) < 1 / (1 + exp(-z));
        logits[i] = (float)((z - bias) * temperature);
    }
    flim_calibration c = fit(MOST, 2);
    assert_true(fabs(c.temperature - temperature) < 0.3 && fabs(c.bias[1] - c.bias[0] - bias) < 0.12);
    flim_calibrate(&c, MOST, logits, calibrated);
    flim_metrics before, after;
    assert_int_equal(flim_metrics_compute(MOST, 2, label, logits, 0.5, &before, NULL), FLIM_OK);
    assert_int_equal(flim_metrics_compute(MOST, 2, label, calibrated, 0.5, &after, NULL), FLIM_OK);
    assert_true(after.value[FLIM_ECE] < 0.03 && before.value[FLIM_ECE] > 0.1);
    assert_true(after.value[FLIM_LOG_LOSS] < before.value[FLIM_LOG_LOSS] - 0.1);
    assert_true(after.value[FLIM_ROC_AUC] == before.value[FLIM_ROC_AUC]);
    flim_calibration_free(&c);
}

/* Cells that one threshold separates have no finite temperature of their own; scores that fall with the class none above 0;
 * huge and equal scores lead nowhere. */
static void the_edges_are_finite(void **state)
{
    (void)state;
    static const float cases[][6] = {{-3, -2, -1, 1, 2, 3},
                                     {3, 2, 1, -1, -2, -3},
                                     {0, 0, 0, 0, 0, 0},
                                     {1, 1, 1, 1, 1, 1},
                                     {-1e4f, -1e4f, -1e4f, 1e4f, 1e4f, 1e4f},
                                     {1e4f, 1e4f, 1e4f, -1e4f, -1e4f, -1e4f},
                                     {-1e-6f, 1e-6f, -1e-6f, 1e-6f, -1e-6f, 1e-6f},
                                     {1e6f, 0, -1e6f, 1e6f, 0, -1e6f}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        float calibrated[6];
        memcpy(logits, cases[i], sizeof cases[i]);
        for (int k = 0; k < 6; k++) {
            label[k] = k >= 3;
        }
        flim_calibration c = fit(6, 2), again = fit(6, 2);
        flim_calibrate(&c, 6, logits, calibrated);
        assert_true(c.temperature > 0.05 && c.temperature <= FLIM_MOST_TEMPERATURE);
        assert_memory_equal(c.bias, again.bias, 2 * sizeof *c.bias);
        assert_true(c.temperature == again.temperature);
        for (int k = 0; k < 6; k++) {
            assert_true(isfinite(calibrated[k]));
        }
        if (cases[i][0] > cases[i][5]) {
            assert_true(c.temperature == FLIM_MOST_TEMPERATURE);
        }
        flim_calibration_free(&c);
        flim_calibration_free(&again);
    }
}

static void what_cannot_be_learned_from_fits_nothing(void **state)
{
    (void)state;
    flim_random random = flim_random_begin(&(flim_cell_id){.seed = 14}, FLIM_RANDOM_SIMULATE);
    make(&random, 30, 3, 1, 0);
    const float kept = logits[7];
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 3; i++) {
        logits[7] = bad[i];
        flim_calibration c = fit(30, 3);
        assert_true(c.classes == 0 && !c.bias);
    }
    logits[7] = kept;
    for (int i = 0; i < 30; i++) {
        label[i] = label[i] == 1 ? 2 : label[i];
    }
    flim_calibration c = fit(30, 3), none = fit(0, 2);
    assert_true(c.classes == 0 && none.classes == 0);
    flim_calibration_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_fit_is_the_minimum),
        cmocka_unit_test(the_mean_probability_is_the_share),
        cmocka_unit_test(a_known_distortion_is_undone),
        cmocka_unit_test(the_edges_are_finite),
        cmocka_unit_test(what_cannot_be_learned_from_fits_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
