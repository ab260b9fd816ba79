/* The out-of-fold predictions of several folds together, in the order of the folds.
 *
 * Owns: its arrays; free with flim_pool_free.  name and group_of are views into the folds' predictions.
 * Errors: FLIM_ERROR_MEMORY; FLIM_ERROR_DATA if the folds differ in their classes.
 */
#ifndef FLIM_RESULTS_POOL_H
#define FLIM_RESULTS_POOL_H

#include "results/fold_result.h"

typedef struct flim_pool {
    int64_t n;
    int classes, outputs; /* K, K' */
    int64_t *cell; /* (n) index into the data */
    int *fold; /* (n) number of the fold */
    int32_t *label, *predicted; /* (n); each fold has decided at its own threshold */
    int32_t *at_half; /* (n) decided at 0.5 */
    float *logits; /* (n,K') */
    const char **name, **group_of; /* (n) "" if there is none */
} flim_pool;

flim_status flim_pool_make(const flim_fold_result *results, int n_results, flim_pool *out, flim_error *err);
void flim_pool_free(flim_pool *pool); /* leaves it zeroed; zeroed is allowed */

/* Metrics of the pool, as predicted and decided at 0.5. */
flim_status flim_pool_metrics(const flim_pool *pool, flim_metrics *chosen, flim_metrics *at_half, flim_error *err);

/* The same of scores that each fold has calibrated, and of those that it has corrected to the prior of its test set.  *found =
 * false, and nothing else, if a fold has no calibration. */
flim_status flim_pool_shift_metrics(const flim_pool *pool, const flim_fold_result *results, int n_results, bool *found,
                                    flim_metrics *calibrated, flim_metrics *corrected, flim_error *err);

/* Mean and sd (ddof 1) over folds of each metric; used[m]: the folds in which it is defined.  at_half: of the metrics at
 * 0.5. */
flim_status flim_spread_over_folds(const flim_fold_result *results, int n_results, bool at_half, double mean[FLIM_N_METRICS],
                                   double sd[FLIM_N_METRICS], int used[FLIM_N_METRICS], flim_error *err);

#endif
