/* Prior shift: thresholds with known values, Bayes' rule, the estimate against a search of the likelihood, its interval, and
 * the test that refutes a pure prior shift. */
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

#include "cv/metrics/prior_shift.h"
#include "cv/sampler.h"
#include "flim/random.h"
#include "results/fold_shift.h"

enum { MOST = 3000, CLASSES = 4 };

static flim_random seeded(uint64_t seed)
{
    return flim_random_begin(&(flim_cell_id){.seed = seed}, FLIM_RANDOM_SIMULATE);
}

/* The prior that the loss saw, the prior of new cells, and the threshold on uncorrected scores that then stands for 0.5. */
static void thresholds_are_the_known_ones(void **state)
{
    (void)state;
    static const double known[][3] = {{0.5, 0.674, 0.326}, {0.284, 0.674, 0.161}, {0.5, 0.2, 0.8},
                                      {0.5, 0.27, 0.730},  {0.284, 0.2, 0.613},   {0.3, 0.3, 0.5}};
    flim_random random = seeded(1);
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        const double tau = flim_prior_threshold(known[i][0], known[i][1], 0.5);
        if (!(fabs(tau - known[i][2]) < 5e-4)) {
            fail_msg("from %g to %g: %.6f, expected %.3f", known[i][0], known[i][1], tau, known[i][2]);
        }
    }
    for (int round = 0; round < 2000; round++) { /* it decides as the corrected score does */
        const double s = 0.01 + 0.98 * flim_random_uniform(&random), t = 0.01 + 0.98 * flim_random_uniform(&random);
        const double at = 0.01 + 0.98 * flim_random_uniform(&random), p = flim_random_uniform(&random);
        const double tau = flim_prior_threshold(s, t, at), up = p * t / s, down = (1 - p) * (1 - t) / (1 - s);
        const double corrected = up / (up + down); /* Bayes' rule */
        if (fabs(p - tau) > 1e-9 && (p > tau) != (corrected > at)) {
            fail_msg("round %d: %.12g at %.12g, corrected %.12g at %.12g", round, p, tau, corrected, at);
        }
    }
}

/* log likelihood of a prior, by its definition: the density of a cell's score is proportional to sum_k pi_k p_k / source_k. */
static double likelihood(int64_t n, int classes, const double *p, const double *source, const int64_t *weight,
                         const double *pi)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        double density = 0;
        for (int k = 0; k < classes; k++) {
            density += pi[k] * p[i * classes + k] / source[k];
        }
        sum += (weight ? (double)weight[i] : 1) * log(density);
    }
    return sum;
}

static void random_posteriors(flim_random *random, int64_t n, int classes, double *p, double *source)
{
    double all = 0;
    for (int k = 0; k < classes; k++) {
        all += source[k] = 0.1 + flim_random_uniform(random);
    }
    for (int k = 0; k < classes; k++) {
        source[k] /= all;
    }
    for (int64_t i = 0; i < n; i++) {
        double sum = 0;
        for (int k = 0; k < classes; k++) {
            sum += p[i * classes + k] = exp(2 * flim_random_normal(random));
        }
        for (int k = 0; k < classes; k++) {
            p[i * classes + k] /= sum;
        }
    }
}

static void the_estimate_is_the_likeliest_prior(void **state)
{
    (void)state;
    flim_random random = seeded(2);
    for (int round = 0; round < 200; round++) {
        const int classes = 2 + round % 3;
        const int64_t n = 1 + (int64_t)flim_random_below(&random, 60);
        double p[60 * CLASSES], source[CLASSES], target[CLASSES], scratch[CLASSES], sum = 0, step = 0.25;
        int64_t weight[60], *counted = round % 2 ? weight : NULL;
        random_posteriors(&random, n, classes, p, source);
        for (int64_t i = 0; i < n; i++) {
            weight[i] = (int64_t)flim_random_below(&random, 4) + (i == 0);
        }
        for (int k = 0; k < classes; k++) {
            target[k] = NAN;
        }
        flim_prior_estimate(n, classes, p, source, counted, target, scratch);
        for (int k = 0; k < classes; k++) {
            assert_true(target[k] >= 0 && target[k] <= 1);
            sum += target[k];
        }
        assert_true(fabs(sum - 1) < 1e-9);
        double best[CLASSES], value;
        for (int k = 0; k < classes; k++) {
            best[k] = 1.0 / classes;
        }
        value = likelihood(n, classes, p, source, counted, best);
        while (step > 1e-7) { /* moves share from one class to another while that is likelier: the likelihood is concave */
            bool better = false;
            for (int from = 0; from < classes; from++) {
                for (int to = 0; to < classes; to++) {
                    double there[CLASSES];
                    memcpy(there, best, sizeof there);
                    const double moved = fmin(step, best[from]);
                    there[from] -= moved;
                    there[to] += moved;
                    const double next = from != to ? likelihood(n, classes, p, source, counted, there) : -INFINITY;
                    if (next > value) {
                        value = next;
                        memcpy(best, there, sizeof best);
                        better = true;
                    }
                }
            }
            step = better ? step : step / 2;
        }
        const double found = likelihood(n, classes, p, source, counted, target);
        if (!(found >= value - 1e-10 * (double)n)) {
            fail_msg("round %d, K %d, n %" PRId64 ": log likelihood %.9g, a search finds %.9g", round, classes, n, found,
                     value);
        }
    }
}

/* How much likelier per cell another prior can be at most (Lindsay 1983). */
static double gap(int64_t n, int classes, const double *p, const double *source, const int64_t *weight, const double *pi)
{
    double largest = -INFINITY;
    for (int k = 0; k < classes; k++) {
        double sum = 0, cells = 0;
        for (int64_t i = 0; i < n; i++) {
            double density = 0;
            for (int j = 0; j < classes; j++) {
                density += pi[j] * p[i * classes + j] / source[j];
            }
            const double times = weight ? (double)weight[i] : 1;
            sum += times > 0 ? times * p[i * classes + k] / source[k] / density : 0;
            cells += times;
        }
        largest = fmax(largest, sum / cells - 1);
    }
    return largest;
}

/* The likeliest prior of a grid of `parts` steps per share, two or three classes. */
static double grid_maximum(int64_t n, int classes, const double *p, const double *source, int parts, double *best)
{
    double value = -INFINITY;
    for (int a = 0; a <= parts; a++) {
        for (int b = classes == 2 ? parts - a : 0; b <= parts - a; b++) {
            const double pi[3] = {(double)a / parts, (double)b / parts, (double)(parts - a - b) / parts};
            const double next = likelihood(n, classes, p, source, NULL, pi);
            if (next > value) {
                value = next;
                memcpy(best, pi, (size_t)classes * sizeof *best);
            }
        }
    }
    return value;
}

/* No prior of a fine grid is likelier, whatever the scores tell: much, hardly anything, or one class only. */
static void no_prior_of_a_grid_is_likelier(void **state)
{
    (void)state;
    enum { N = 80, ROUNDS = 120 };
    static const double spread[] = {3, 1, 0.3, 1e-2, 1e-4}, moved[] = {0, 0.5, -1, 6};
    flim_random random = seeded(8);
    int ends = 0;
    for (int round = 0; round < ROUNDS; round++) {
        const int classes = 2 + round % 2;
        const int64_t n = 1 + (int64_t)flim_random_below(&random, N);
        double p[3 * N], source[3], target[3], best[3], scratch[3], sum = 0;
        for (int k = 0; k < classes; k++) {
            sum += source[k] = 0.1 + flim_random_uniform(&random);
        }
        for (int k = 0; k < classes; k++) {
            source[k] /= sum;
        }
        for (int64_t i = 0; i < n; i++) {
            double all = 0;
            for (int k = 0; k < classes; k++) {
                const double z = flim_random_normal(&random) + (k == 0 ? moved[round / 10 % 4] : 0);
                all += p[i * classes + k] = source[k] * exp(spread[round / 2 % 5] * z);
            }
            for (int k = 0; k < classes; k++) {
                p[i * classes + k] /= all;
            }
        }
        flim_prior_estimate(n, classes, p, source, NULL, target, scratch);
        const double value = grid_maximum(n, classes, p, source, classes == 2 ? 2000 : 60, best);
        const double found = likelihood(n, classes, p, source, NULL, target), left = gap(n, classes, p, source, NULL, target);
        if (!(found >= value - 1e-11 * (double)n && left <= 1e-11)) {
            fail_msg("round %d, K %d: %.15g (first share %.9g, gap %g), on the grid %.15g at %.9g", round, classes, found,
                     target[0], left, value, best[0]);
        }
        if (classes == 2 && !(fabs(target[0] - best[0]) <= 1.0 / 2000)) {
            fail_msg("round %d: %.9g, on the grid %.9g", round, target[0], best[0]);
        }
        ends += target[0] == 0 || target[0] == 1;
    }
    assert_true(ends >= 20);
}

/* Exactly 0 and 1 where one class is the likeliest for all; what tells nothing leaves the source. */
static void the_ends_and_flat_likelihoods_are_met(void **state)
{
    (void)state;
    enum { N = 50, MANY = 40 };
    double p[N * MANY], source[MANY], target[MANY], scratch[MANY];
    for (int classes = 2; classes <= MANY; classes = classes < 4 ? classes + 1 : 10 * classes) {
        for (int k = 0; k < classes; k++) {
            source[k] = (k + 1) / (classes * (classes + 1) / 2.0);
        }
        for (int favoured = -1; favoured < classes; favoured++) {
            for (int i = 0; i < N * classes; i++) {
                const int k = i % classes;
                p[i] = source[k] * (1 + (favoured < 0 ? 0 : 1e-7 * (k == favoured) - 1e-7 * source[favoured]));
            }
            flim_prior_estimate(N, classes, p, source, NULL, target, scratch);
            for (int k = 0; k < classes; k++) {
                if (!(fabs(target[k] - (favoured < 0 ? source[k] : k == favoured)) <= 1e-12)) {
                    fail_msg("K %d, class %d is favoured, share of %d: %.17g", classes, favoured, k, target[k]);
                }
            }
        }
        for (int i = 0; i < N * classes; i++) { /* cells that are surely of their class: the shares are counts */
            p[i] = i / classes % classes == i % classes;
        }
        flim_prior_estimate(N, classes, p, source, NULL, target, scratch);
        for (int k = 0; k < classes; k++) {
            assert_true(fabs(target[k] - (N / classes + (k < N % classes)) / (double)N) < 1e-12);
        }
    }
    double low[2], high[2];
    for (int i = 0; i < 2 * N; i++) { /* 3 of 4 cells speak for class 1, each hardly */
        p[i] = 0.5 + 1e-5 * (i % 2 ? 1 : -1) * (i / 2 % 4 ? 1 : -1);
    }
    flim_prior_estimate(N, 2, p, (double[]){0.5, 0.5}, NULL, target, scratch);
    assert_true(target[1] == 1);
    assert_int_equal(flim_prior_interval(N, 2, p, (double[]){0.5, 0.5}, 500, 0.95, 3, low, high, NULL), FLIM_OK);
    assert_true(high[1] == 1 && low[1] == 1);
    for (int i = 0; i < 2 * N; i++) { /* 26 of 50: a resample may say the other end */
        p[i] = 0.5 + 1e-5 * (i % 2 ? 1 : -1) * (i / 2 < 26 ? 1 : -1);
    }
    assert_int_equal(flim_prior_interval(N, 2, p, (double[]){0.5, 0.5}, 500, 0.95, 3, low, high, NULL), FLIM_OK);
    assert_true(high[1] == 1 && low[1] == 0);
}

/* Many classes, and counts as of a resample: the gap is the proof. */
static void the_gap_closes_for_any_number_of_classes(void **state)
{
    (void)state;
    enum { N = 400, MANY = 60 };
    flim_random random = seeded(9);
    double *p = malloc(N * MANY * sizeof *p), source[MANY], target[MANY], scratch[MANY];
    int64_t weight[N];
    assert_non_null(p);
    for (int round = 0; round < 60; round++) {
        const int classes = round % 6 == 5 ? MANY : 3 + round % 6 * 4;
        const double spread = (double[]){4, 2, 0.5, 0.05, 1e-3}[round / 6 % 5];
        for (int k = 0; k < classes; k++) {
            source[k] = 1.0 / classes;
        }
        for (int i = 0; i < N; i++) {
            double all = 0;
            for (int k = 0; k < classes; k++) {
                all += p[i * classes + k] = exp(spread * (flim_random_normal(&random) + 2 * (k == i % classes && i % 3)));
            }
            for (int k = 0; k < classes; k++) {
                p[i * classes + k] /= all;
            }
            weight[i] = (int64_t)flim_random_below(&random, 3);
        }
        for (int counted = 0; counted < 2; counted++) {
            flim_prior_estimate(N, classes, p, source, counted ? weight : NULL, target, scratch);
            const double left = gap(N, classes, p, source, counted ? weight : NULL, target);
            if (!(left <= 1e-11)) {
                fail_msg("round %d, K %d, spread %g: gap %g", round, classes, spread, left);
            }
        }
    }
    free(p);
}

/* An interval holds the estimate that it is of, however little or much the scores tell. */
static void an_interval_holds_its_estimate(void **state)
{
    (void)state;
    enum { N = 300 };
    static const double apart[] = {0.02, 0.1, 0.4, 1, 4}, prior[] = {0, 0.02, 0.4, 0.9, 1}, moved[] = {0, 1.5};
    const double source[3] = {0.3, 0.7, 0};
    flim_random random = seeded(10);
    for (int round = 0; round < 100; round++) {
        const int classes = 2 + round % 2;
        const double even[3] = {1.0 / 3, 1.0 / 3, 1.0 / 3}, *from = classes == 2 ? source : even;
        double p[3 * N], target[3], low[3], high[3], scratch[3];
        for (int i = 0; i < N; i++) {
            const int label = flim_random_uniform(&random) < prior[round / 2 % 5];
            double all = 0;
            for (int k = 0; k < classes; k++) {
                all += p[i * classes + k] =
                    from[k] * exp((apart[round / 20] * (2 * flim_random_normal(&random) + apart[round / 20] * (label == k)) +
                                   moved[round / 10 % 2] * (k == 0)));
            }
            for (int k = 0; k < classes; k++) {
                p[i * classes + k] /= all;
            }
        }
        flim_prior_estimate(N, classes, p, from, NULL, target, scratch);
        assert_int_equal(flim_prior_interval(N, classes, p, from, 300, 0.95, 4, low, high, NULL), FLIM_OK);
        for (int k = 0; k < classes; k++) {
            if (!(low[k] <= target[k] && target[k] <= high[k])) {
                fail_msg("round %d, K %d, class %d: %.12g is not in %.12g to %.12g", round, classes, k, target[k], low[k],
                         high[k]);
            }
        }
    }
}

/* A cell of class 1 with probability `prior`: its score in calibrated posteriors for source 0.5. */
static void gaussian_cell(flim_random *random, double prior, double apart, int32_t *label, double *p)
{
    *label = flim_random_uniform(random) < prior;
    const double x = flim_random_normal(random) + (*label ? apart : -apart);
    p[1] = 1 / (1 + exp(-2 * apart * x));
    p[0] = 1 - p[1];
}

static void a_known_prior_is_found_and_covered(void **state)
{
    (void)state;
    const double source[2] = {0.5, 0.5}, truth = 0.674;
    flim_random random = seeded(3);
    int covered = 0, rounds = 40;
    for (int round = 0; round < rounds; round++) {
        enum { N = 400 };
        double p[2 * N], target[2], low[2] = {NAN, NAN}, high[2] = {NAN, NAN}, scratch[2], again[2];
        for (int i = 0; i < N; i++) {
            int32_t label;
            gaussian_cell(&random, truth, 1, &label, p + 2 * i);
        }
        flim_prior_estimate(N, 2, p, source, NULL, target, scratch);
        assert_true(fabs(target[1] - truth) < 0.13); /* 4 standard errors */
        assert_int_equal(flim_prior_interval(N, 2, p, source, 200, 0.95, (uint64_t)round, low, high, NULL), FLIM_OK);
        assert_int_equal(flim_prior_interval(N, 2, p, source, 200, 0.95, (uint64_t)round, again, scratch, NULL), FLIM_OK);
        assert_true(again[1] == low[1] && scratch[1] == high[1]);
        assert_true(low[1] < target[1] && target[1] < high[1] && high[1] - low[1] < 0.2);
        assert_true(fabs(low[0] - (1 - high[1])) < 1e-6);
        covered += low[1] <= truth && truth <= high[1];
    }
    print_message("the interval covers the truth in %d of %d\n", covered, rounds);
    assert_true(covered >= 33); /* binomial(40, 0.95): fewer has a probability of 0.003 */
    /* percentiles of resamples, each estimated to its end */
    enum { FEW = 60, TIMES = 41 };
    double p[2 * FEW], each[TIMES], target[2], scratch[2];
    for (int i = 0; i < FEW; i++) {
        int32_t label;
        gaussian_cell(&random, 0.2, 0.7, &label, p + 2 * i);
    }
    for (int r = 0; r < TIMES; r++) {
        int64_t weight[FEW] = {0};
        flim_random draw = flim_random_begin(&(flim_cell_id){.seed = 77, .epoch = (uint32_t)r}, FLIM_RANDOM_BOOTSTRAP);
        for (int i = 0; i < FEW; i++) {
            weight[flim_random_below(&draw, FEW)]++;
        }
        flim_prior_estimate(FEW, 2, p, source, weight, target, scratch);
        int at = r;
        for (; at > 0 && each[at - 1] > target[1]; at--) {
            each[at] = each[at - 1];
        }
        each[at] = target[1];
    }
    double low[2], high[2];
    assert_int_equal(flim_prior_interval(FEW, 2, p, source, TIMES, 0.95, 77, low, high, NULL), FLIM_OK);
    if (!(fabs(low[1] - each[1]) < 1e-9 && fabs(high[1] - each[TIMES - 2]) < 1e-9)) {
        fail_msg("%.6f to %.6f, by hand %.6f to %.6f", low[1], high[1], each[1], each[TIMES - 2]);
    }
    assert_int_equal(flim_prior_interval(1, 2, (double[]){0.2, 0.8}, source, 50, 0.95, 1, low, high, NULL), FLIM_OK);
    assert_true(isnan(low[0]) && isnan(high[1]));
}

/* The distance by its definition: at each score the share of cells up to it. */
static double slow_distance(int classes, int64_t n_val, const double *val, const int32_t *label, int64_t n_test,
                            const double *test, const double *target)
{
    double largest = 0, cells[CLASSES] = {0};
    for (int64_t i = 0; i < n_val; i++) {
        cells[label[i]]++;
    }
    for (int k = classes == 2; k < classes; k++) {
        for (int64_t a = 0; a < n_val + n_test; a++) {
            const double at = a < n_val ? val[a * classes + k] : test[(a - n_val) * classes + k];
            double mixed = 0, tested = 0;
            for (int64_t i = 0; i < n_val; i++) {
                mixed += val[i * classes + k] <= at ? target[label[i]] / cells[label[i]] : 0;
            }
            for (int64_t i = 0; i < n_test; i++) {
                tested += test[i * classes + k] <= at ? 1 / (double)n_test : 0;
            }
            largest = fmax(largest, fabs(mixed - tested));
        }
    }
    return largest;
}

static void the_distance_follows_its_definition(void **state)
{
    (void)state;
    flim_random random = seeded(4);
    for (int round = 0; round < 40; round++) {
        const int classes = 2 + round % 3;
        const int64_t n_val = 60, n_test = 1 + (int64_t)flim_random_below(&random, 50);
        double val[60 * CLASSES], test[60 * CLASSES], source[CLASSES], target[CLASSES], scratch[CLASSES];
        int32_t label[60];
        random_posteriors(&random, n_val, classes, val, source);
        random_posteriors(&random, n_test, classes, test, source);
        for (int64_t i = 0; i < n_val; i++) {
            label[i] = (int32_t)(i % classes);
            val[i * classes] = round % 5 ? val[i * classes] : floor(4 * val[i * classes]) / 4; /* ties */
        }
        flim_shift_test found = {NAN, NAN};
        assert_int_equal(flim_test_prior_shift(classes, source, n_val, val, label, n_test, test, 3, 9, &found, NULL),
                         FLIM_OK);
        flim_prior_estimate(n_test, classes, test, source, NULL, target, scratch);
        const double want = slow_distance(classes, n_val, val, label, n_test, test, target);
        if (!(fabs(found.distance - want) < 1e-9)) {
            fail_msg("round %d: %.12g, by definition %.12g", round, found.distance, want);
        }
    }
}

/* Shares of classes that differ refute nothing; cells that look otherwise do. */
static void only_more_than_a_prior_shift_is_refuted(void **state)
{
    (void)state;
    enum { N = 200, ROUNDS = 40 };
    const double source[2] = {0.5, 0.5};
    static const struct {
        double prior, factor, moved;
    } cases[] = {{0.5, 1, 0}, {0.8, 1, 0}, {0.5, 1, 3}, {0.8, 0.25, 0}};
    flim_random random = seeded(5);
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        int refuted = 0, below_half = 0;
        for (int round = 0; round < ROUNDS; round++) {
            double val[2 * N], test[2 * N];
            int32_t label[N], hidden;
            flim_shift_test found, again;
            for (int i = 0; i < N; i++) {
                gaussian_cell(&random, 0.5, 1, &label[i], val + 2 * i);
                gaussian_cell(&random, cases[c].prior, 1, &hidden, test + 2 * i);
                const double z = cases[c].factor * log(test[2 * i + 1] / test[2 * i]) + cases[c].moved;
                test[2 * i + 1] = 1 / (1 + exp(-z));
                test[2 * i] = 1 - test[2 * i + 1];
            }
            assert_int_equal(flim_test_prior_shift(2, source, N, val, label, N, test, 99, 1, &found, NULL), FLIM_OK);
            if (round == 0) {
                assert_int_equal(flim_test_prior_shift(2, source, N, val, label, N, test, 99, 1, &again, NULL), FLIM_OK);
                assert_true(found.p == again.p && found.distance == again.distance);
            }
            refuted += found.p <= 0.05;
            below_half += found.p < 0.5;
        }
        print_message("prior %g, scores times %g, moved by %g: p <= 0.05 in %d of %d, p < 0.5 in %d\n", cases[c].prior,
                      cases[c].factor, cases[c].moved, refuted, ROUNDS, below_half);
        assert_true(c >= 2 ? refuted >= ROUNDS - 4 : refuted <= 7); /* binomial(40, 0.05) > 7: 0.001 */
    }
    flim_shift_test none;
    double few[2 * FLIM_LEAST_OF_CLASS];
    int32_t label[FLIM_LEAST_OF_CLASS];
    for (int i = 0; i < FLIM_LEAST_OF_CLASS; i++) {
        label[i] = i % 2;
        few[2 * i] = few[2 * i + 1] = 0.5;
    }
    assert_int_equal(flim_test_prior_shift(2, source, FLIM_LEAST_OF_CLASS, few, label, 1, few, 9, 1, &none, NULL), FLIM_OK);
    assert_true(isnan(none.p) && isnan(none.distance));
}

/* The prior that the loss saw is the sampler's, whatever the file's is. */
static void the_loss_sees_the_samplers_prior(void **state)
{
    (void)state;
    enum { N = 500 };
    int32_t label[N];
    int64_t part[N];
    for (int i = 0; i < N; i++) {
        label[i] = i % 10 < 3;
        part[i] = i;
    }
    const flim_split_data data = {.n = N, .classes = 2, .label = label};
    const double weight[2] = {1, 2};
    double prior[2] = {NAN, NAN};
    assert_int_equal(flim_sampler_prior(FLIM_SAMPLER_NATURAL, 4, &data, part, N, 42, 0, 0, 3, NULL, prior, NULL), FLIM_OK);
    assert_true(fabs(prior[1] - 0.3) < 1e-12 && fabs(prior[0] - 0.7) < 1e-12);
    assert_int_equal(flim_sampler_prior(FLIM_SAMPLER_NATURAL, 4, &data, part, N, 42, 0, 0, 3, weight, prior, NULL), FLIM_OK);
    assert_true(fabs(prior[1] - 0.6 / 1.3) < 1e-12);
    assert_int_equal(flim_sampler_prior(FLIM_SAMPLER_BALANCED, 4, &data, part, N, 42, 0, 0, 20, NULL, prior, NULL), FLIM_OK);
    assert_true(fabs(prior[1] - 0.5) < 0.02); /* 4 standard errors of 10,000 draws */
    for (int first = 0; first < 40; first += 7) { /* a later stage's epochs have numbers of their own */
        enum { EPOCHS = 2 };
        flim_draw draws[N];
        int64_t ones = 0;
        for (uint32_t e = 0; e < EPOCHS; e++) {
            assert_int_equal(
                flim_sampler_draw(FLIM_SAMPLER_BALANCED, 4, &data, part, N, 42, 3, (uint32_t)first + e, draws, NULL),
                FLIM_OK);
            for (int i = 0; i < N; i++) {
                ones += label[draws[i].cell];
            }
        }
        assert_int_equal(
            flim_sampler_prior(FLIM_SAMPLER_BALANCED, 4, &data, part, N, 42, 3, first, EPOCHS, NULL, prior, NULL), FLIM_OK);
        if (fabs(prior[1] - (double)ones / (EPOCHS * N)) > 1e-12) {
            fail_msg("epochs %d and %d: %" PRId64 " of %d draws, the prior says %.9g", first, first + 1, ones, EPOCHS * N,
                     prior[1]);
        }
    }
}

/* ---- of a fold, to its summary and back ---- */

static void a_folds_shift_reads_back(void **state)
{
    (void)state;
    enum { N = 600 };
    flim_random random = seeded(6);
    for (int classes = 2; classes <= 3; classes++) {
        const int outputs = classes == 2 ? 1 : 3;
        const double seen[3] = {0.25, classes == 2 ? 0.75 : 0.5, 0.25};
        int32_t label[N];
        float val[3 * N], test[3 * N];
        flim_error err = {0};
        flim_fold_shift made, read;
        flim_predictions p;
        flim_metrics plain, calibrated, corrected;
        for (int i = 0; i < N; i++) {
            label[i] = i % classes;
            for (int k = 0; k < outputs; k++) {
                const double right = outputs == 1 ? 2 * label[i] - 1 : 2 * (label[i] == k);
                val[i * outputs + k] = (float)(2 * right + 2 * flim_random_normal(&random));
                test[i * outputs + k] = (float)(2 * right + 2 * flim_random_normal(&random));
            }
        }
        assert_int_equal(flim_fold_shift_make(classes, N, label, val, N, test, seen, 42, &made, &err), FLIM_OK);
        assert_int_equal(made.classes, classes);
        assert_int_equal(flim_predictions_create(N, classes, &p, &err), FLIM_OK);
        memcpy(p.label, label, sizeof label);
        memcpy(p.logits, test, (size_t)(N * outputs) * sizeof *test);
        for (int i = 0; i < N; i++) {
            p.predicted[i] = flim_predicted_class(classes, p.logits + i * outputs, 0.5);
        }
        assert_int_equal(flim_metrics_compute(N, classes, label, test, 0.5, &plain, &err), FLIM_OK);
        assert_int_equal(flim_shift_metrics(&made, &p, &calibrated, &corrected, &err), FLIM_OK);
        assert_true(calibrated.value[FLIM_LOG_LOSS] < plain.value[FLIM_LOG_LOSS] + 0.02);
        flim_json *object = flim_json_object(), *copy;
        flim_fold_shift_set_json(object, &made, &plain, &calibrated, &corrected);
        char *text = flim_json_text(object);
        assert_int_equal(flim_json_parse(text, strlen(text), "text", &copy, &err), FLIM_OK);
        assert_int_equal(flim_fold_shift_read(copy, classes, "text", &read, &err), FLIM_OK);
        assert_true(read.calibration.temperature == made.calibration.temperature && read.cells == N);
        assert_memory_equal(read.calibration.bias, made.calibration.bias, (size_t)classes * sizeof(double));
        assert_memory_equal(read.prior[0], made.prior[0], (size_t)(classes * FLIM_N_FOLD_PRIORS) * sizeof(double));
        assert_true(read.test.p == made.test.p && read.test.distance == made.test.distance);
        flim_fold_shift_free(&read);
        assert_int_equal(flim_fold_shift_read(copy, classes + 1, "other.json", &read, &err), FLIM_ERROR_DATA);
        assert_non_null(strstr(err.text, "other.json"));
        flim_json_free(copy);
        flim_json_text_free(text);
        flim_json_free(object);
        flim_predictions_free(&p);
        flim_fold_shift_free(&made);
        label[0] = 0;
        for (int i = 0; i < N; i++) {
            label[i] = 0;
        }
        assert_int_equal(flim_fold_shift_make(classes, N, label, val, N, test, seen, 42, &made, &err), FLIM_OK);
        assert_true(made.classes == 0 && !flim_shift_is_refuted(&made));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(thresholds_are_the_known_ones),
        cmocka_unit_test(the_estimate_is_the_likeliest_prior),
        cmocka_unit_test(no_prior_of_a_grid_is_likelier),
        cmocka_unit_test(the_ends_and_flat_likelihoods_are_met),
        cmocka_unit_test(the_gap_closes_for_any_number_of_classes),
        cmocka_unit_test(an_interval_holds_its_estimate),
        cmocka_unit_test(a_known_prior_is_found_and_covered),
        cmocka_unit_test(the_distance_follows_its_definition),
        cmocka_unit_test(only_more_than_a_prior_shift_is_refuted),
        cmocka_unit_test(the_loss_sees_the_samplers_prior),
        cmocka_unit_test(a_folds_shift_reads_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
