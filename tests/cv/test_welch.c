/* Welch's t-test, Hedges' g and Holm's adjustment: values printed in textbooks, and Student's density integrated here. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "cv/metrics/interval.h"
#include "cv/metrics/welch.h"
#include "flim/random.h"

enum { MOST = 60 };

static void near(double got, double want, double tolerance, const char *what)
{
    if (!(fabs(got - want) <= tolerance) && !(isnan(got) && isnan(want))) {
        fail_msg("%s is %.15g, %.15g was expected", what, got, want);
    }
}

static flim_moments moments_of(const double *v, int n)
{
    flim_moments out = {0};
    for (int i = 0; i < n; i++) {
        flim_moments_add(&out, v[i]);
    }
    return out;
}

/* Two-sided p: one less twice Student's density from 0 to |t|, by Simpson's rule over 20000 pieces. */
static double integrated_p(double t, double df)
{
    enum { PIECES = 20000 };
    const double step = fabs(t) / PIECES;
    double sum = 0;
    for (int i = 0; i <= PIECES; i++) {
        const double x = i * step, density = exp(lgamma((df + 1) / 2) - lgamma(df / 2) - (df + 1) / 2 * log1p(x * x / df)) /
                                             sqrt(df * acos(-1.0));
        sum += density * (i == 0 || i == PIECES ? 1 : i % 2 ? 4 : 2);
    }
    return 1 - 2 * sum * step / 3;
}

/* Student 1908's hours of sleep, as every textbook and R's t.test has them; and two samples of unequal spread and size. */
static void known_examples(void **state)
{
    (void)state;
    static const double drug_1[] = {0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0},
                        drug_2[] = {1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4};
    static const double narrow[] = {19.8, 20.4, 19.6, 17.8, 18.5, 18.9, 18.3, 18.9, 19.5, 22.0},
                        wide[] = {28.2, 26.6, 20.1, 23.3, 25.2, 22.1, 17.7, 27.6, 20.6, 13.7,
                                  23.2, 17.5, 20.6, 18.0, 23.9, 21.6, 24.3, 20.4, 24.0, 13.2};
    flim_moments a = moments_of(drug_1, 10), b = moments_of(drug_2, 10);
    flim_welch sleep = flim_welch_test(&a, &b);
    near(sleep.difference, -1.58, 1e-12, "the difference");
    near(sleep.t, -1.8608, 5e-5, "t");
    near(sleep.df, 17.776, 5e-4, "df");
    near(sleep.p, 0.07939, 5e-6, "p");
    near(sleep.g, -0.8321811 * (1 - 3.0 / 71), 1e-6, "g");
    a = moments_of(narrow, 10);
    b = moments_of(wide, 20);
    const flim_welch other = flim_welch_test(&a, &b);
    near(other.t, -2.22, 5e-3, "t");
    near(other.df, 24.5, 0.05, "df");
    near(other.p, 0.036, 5e-4, "p");
    /* columns of the printed t tables, two-sided */
    static const double table[][3] = {{1, 12.7062, 0.05},  {2, 4.30265, 0.05},  {10, 2.22814, 0.05},
                                      {10, 3.16927, 0.01}, {30, 2.04227, 0.05}, {120, 2.61742, 0.01}};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        near(flim_student_p(table[i][1], table[i][0]), table[i][2], 2e-6, "p of a tabulated t");
    }
    near(flim_student_p(1, 1), 0.5, 1e-14, "p of Cauchy's quartile");
}

/* Random samples against sums in two passes and the integrated density. */
static void samples_follow_the_formulas(void **state)
{
    (void)state;
    flim_random random = flim_random_begin(&(flim_cell_id){.seed = 5}, FLIM_RANDOM_SIMULATE);
    for (int round = 0; round < 100; round++) {
        double v[2][MOST], mean[2] = {0}, squares[2] = {0};
        int n[2];
        flim_moments m[2];
        for (int s = 0; s < 2; s++) {
            n[s] = 2 + (int)flim_random_below(&random, MOST - 2);
            for (int i = 0; i < n[s]; i++) {
                v[s][i] = 1e4 * (round % 3) + (1 + s) * flim_random_uniform(&random) + 0.2 * s;
                mean[s] += v[s][i] / n[s];
            }
            for (int i = 0; i < n[s]; i++) {
                squares[s] += (v[s][i] - mean[s]) * (v[s][i] - mean[s]);
            }
            m[s] = moments_of(v[s], n[s]);
            near(flim_moments_sd(&m[s]), sqrt(squares[s] / (n[s] - 1)), 1e-9, "the sd");
        }
        const double e[2] = {squares[0] / (n[0] - 1) / n[0], squares[1] / (n[1] - 1) / n[1]}, sum = e[0] + e[1];
        const double t = (mean[0] - mean[1]) / sqrt(sum),
                     df = sum * sum / (e[0] * e[0] / (n[0] - 1) + e[1] * e[1] / (n[1] - 1)), all = n[0] + n[1] - 2;
        const flim_welch test = flim_welch_test(&m[0], &m[1]);
        near(test.t, t, 1e-7 * fmax(1, fabs(t)), "t");
        near(test.df, df, 1e-6 * df, "df");
        near(test.p, integrated_p(t, df), 1e-7, "p");
        near(test.g, (mean[0] - mean[1]) / sqrt((squares[0] + squares[1]) / all) * (1 - 3 / (4 * all - 1)), 1e-7, "g");
    }
}

static void what_is_undefined(void **state)
{
    (void)state;
    static const double one[] = {3}, same[] = {2, 2, 2}, two[] = {1, 2};
    const flim_moments none = {0}, single = moments_of(one, 1), flat = moments_of(same, 3), some = moments_of(two, 2);
    const flim_moments *const pairs[][2] = {
        {&none, &some}, {&some, &none}, {&single, &some}, {&some, &single}, {&flat, &flat}};
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        const flim_welch test = flim_welch_test(pairs[i][0], pairs[i][1]);
        assert_true(isnan(test.t) && isnan(test.p) && isnan(test.g) && isnan(test.df));
    }
    assert_true(isnan(flim_welch_test(&none, &some).difference) && isnan(flim_moments_sd(&single)));
    const flim_welch test = flim_welch_test(&flat, &some); /* one of them varies: defined */
    assert_true(test.t > 0 && test.p > 0 && test.p < 1 && test.df == 1);
}

static void holm(void **state)
{
    (void)state;
    static const double p[] = {0.01, 0.04, 0.03, 0.005}, want[] = {0.03, 0.06, 0.06, 0.02};
    static const double ties[] = {0.2, 0.01, 0.01, NAN, 0.9}, of_ties[] = {0.4, 0.04, 0.04, NAN, 0.9};
    double got[5];
    flim_holm(4, p, got);
    for (int i = 0; i < 4; i++) {
        near(got[i], want[i], 1e-15, "Holm's p");
    }
    flim_holm(5, ties, got);
    for (int i = 0; i < 5; i++) {
        near(got[i], of_ties[i], 1e-15, "Holm's p");
    }
    flim_holm(1, &ties[4], got);
    assert_true(got[0] == ties[4]);
    flim_holm(0, NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(known_examples), cmocka_unit_test(samples_follow_the_formulas),
                                       cmocka_unit_test(what_is_undefined), cmocka_unit_test(holm)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
