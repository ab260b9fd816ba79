/* Two independent samples held against each other: Welch's t-test, its effect size, and p-values of many such tests.
 *
 * For: fold_metrics --errors, which asks in what wrong cells differ from right ones.
 * Owns: plain structs.  Errors: none; what is not defined is NaN.
 */
#ifndef FLIM_WELCH_H
#define FLIM_WELCH_H

#include <stdint.h>

/* Count, mean and sum of squares about it, value by value (Welford 1962). */
typedef struct flim_moments {
    int64_t n;
    double mean, squares;
} flim_moments;

void flim_moments_add(flim_moments *moments, double value);
double flim_moments_sd(const flim_moments *moments); /* ddof 1; NaN of fewer than two */

typedef struct flim_welch {
    double difference; /* mean of a - mean of b */
    double t, df, p; /* Welch's t, degrees of freedom by Welch and Satterthwaite, two-sided p */
    double g; /* Hedges' g: the difference in pooled standard deviations (Cohen's d) x (1 - 3 / (4 (n_a + n_b - 2) - 1)) */
} flim_welch;

/* With fewer than two values in a sample all but the difference is undefined; so are t, df, p and g where neither varies. */
flim_welch flim_welch_test(const flim_moments *a, const flim_moments *b);

/* Holm's adjusted p-values (Holm 1979) of n tests: below alpha with probability alpha at most if no test has anything to find,
 * whatever their dependence.  NaN counts as no test and stays.  p, adjusted: (n), two arrays.  Time: n squared. */
void flim_holm(int64_t n, const double *p, double *adjusted);

#endif
