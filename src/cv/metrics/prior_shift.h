/* Prior shift: the classes of new cells are as common as they please, while cells of one class look as they did.
 *
 * For: a test set whose classes are mixed otherwise than those that the scores were made for.  If that is all that differs,
 *      Bayes' rule corrects the scores exactly: p_t(k | x) is proportional to p_s(k | x) pi_t(k) / pi_s(k).  pi_s is the
 *      prior that the scores speak for: of uncorrected scores the one that the loss saw (the sampler's, class weights
 *      included), of calibrated ones that of the cells which they were calibrated on; never the file's.
 * Owns: plain arrays of the caller's.  Errors: FLIM_ERROR_MEMORY only.  Deterministic in the seed.
 */
#ifndef FLIM_CV_PRIOR_SHIFT_H
#define FLIM_CV_PRIOR_SHIFT_H

#include <stdint.h>

#include "flim/status.h"

/* Two classes: the threshold on scores that speak for prior `source` of class 1 which decides as `threshold` does on scores
 * corrected to prior `target`: logit(threshold) + logit(source) - logit(target).  All between 0 and 1. */
double flim_prior_threshold(double source, double target, double threshold);

/* The prior (K) of unlabelled cells from their posteriors (n,K) for prior source (K): the maximum of the likelihood (Saerens et
 * al. 2002, who climb it by expectation and maximisation), which is concave.  mixture.h finds it to a gap of 1e-12 in the mean
 * log likelihood, by the bound of Lindsay (1983); source itself if that is as likely.
 * weight (n): how often each cell counts; NULL = once.  scratch: (K). */
void flim_prior_estimate(int64_t n, int classes, const double *posterior, const double *source, const int64_t *weight,
                         double *target, double *scratch);

/* Percentile interval low..high (K) of that estimate, found by the same rule, over `replicates` resamples of the cells
 * (which are taken as independent); NaN with fewer than two cells.  level: 0.95. */
flim_status flim_prior_interval(int64_t n, int classes, const double *posterior, const double *source, int replicates,
                                double level, uint64_t seed, double *low, double *high, flim_error *err);

/* Is a pure prior shift possible?  If so, scores of the test cells are a mixture of those of the validation cells of each
 * class, mixed by the estimated prior.  distance is the largest over the classes of Kolmogorov and Smirnov's distance between
 * the test cells' scores (log-odds of the class) and that mixture.  p is the share of `replicates` (and of it itself) in which
 * cells drawn anew from the validation cells (both parts, the test set by the estimated prior) lie as far apart, each with a
 * prior estimated anew.  NaN if a class has fewer than FLIM_LEAST_OF_CLASS validation cells, or without test cells. */
enum { FLIM_LEAST_OF_CLASS = 10 };
typedef struct flim_shift_test {
    double distance, p;
} flim_shift_test;

/* val: posteriors (n_val,K) with label (n_val); test: posteriors (n_test,K); both for prior source (K). */
flim_status flim_test_prior_shift(int classes, const double *source, int64_t n_val, const double *val, const int32_t *label,
                                  int64_t n_test, const double *test, int replicates, uint64_t seed, flim_shift_test *out,
                                  flim_error *err);

#endif
