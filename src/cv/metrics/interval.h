/* How sure a metric is: bootstrap and DeLong intervals, and paired comparisons of two runs.
 *
 * For: the pooled out-of-fold predictions of a run.  Cells of one group (donor, dish) are not independent, so if there are
 *      groups whole groups are resampled; DeLong's interval knows no groups and is given beside it.
 * Owns: plain structs.  Errors: FLIM_ERROR_MEMORY only.  Deterministic in the seed.
 */
#ifndef FLIM_INTERVAL_H
#define FLIM_INTERVAL_H

#include <stdint.h>

#include "flim/metrics.h"

typedef struct flim_interval {
    double low, high; /* NaN = undefined */
} flim_interval;

/* Scored cells, as in a predictions file. */
typedef struct flim_scored {
    int64_t n;
    int classes;
    const int32_t *label; /* (n) */
    const float *logits; /* (n,K') finite */
    const int32_t *predicted; /* (n) */
    const int64_t *group; /* (n) 0..groups-1, or NULL: cells are resampled */
    int64_t groups;
} flim_scored;

/* Percentile interval of each metric over `replicates` resamples with replacement of the groups (or cells), ends interpolated
 * as numpy.percentile does.  Replicates in which a metric is undefined (a class absent) are left out of it; used[m] says how
 * many counted, and fewer than half make the interval undefined.  level: 0.95.  With one group all intervals are
 * undefined. */
flim_status flim_bootstrap(const flim_scored *scored, int replicates, double level, uint64_t seed,
                           flim_interval interval[FLIM_N_METRICS], int used[FLIM_N_METRICS], flim_error *err);

/* DeLong's interval of the area under the ROC curve (DeLong et al., Biometrics 1988; by midranks, Sun & Xu 2014): normal,
 * clipped to 0..1.  Ties count half.  positive: (n) 0/1.  *se gets the standard error.  Undefined with fewer than two cells
 * of either kind. */
flim_status flim_delong(int64_t n, const uint8_t *positive, const double *score, double level, double *auc, double *se,
                        flim_interval *interval, flim_error *err);

/* Quantile q of sorted v (n >= 1), linear between neighbours as numpy's default. */
double flim_quantile(const double *v, int n, double q);

/* Two-sided p of Student's t with df > 0 degrees of freedom, whole or not. */
double flim_student_p(double t, double df);

typedef struct flim_paired_test {
    double difference; /* mean of b - a */
    double statistic, p; /* NaN = undefined */
    flim_interval interval; /* 95 %, of the difference; of the t-test only */
} flim_paired_test;

/* Corrected resampled t-test over folds (Nadeau & Bengio 2003): the variance of the mean difference is inflated by
 * 1/k + test/train, because training sets overlap.  a, b: (k) a metric of the same folds, pairs with NaN left out;
 * test_share = cells in test / cells in train.  Two-sided p, and the interval, of Student's t with k - 1 degrees of freedom. */
flim_paired_test flim_corrected_t_test(const double *a, const double *b, int k, double test_share);

/* McNemar's exact test over cells: of those that only one of the two got right.  only_a, only_b: their numbers.  Two-sided
 * binomial p; difference = only_b - only_a. */
flim_paired_test flim_mcnemar(int64_t only_a, int64_t only_b);

#endif
