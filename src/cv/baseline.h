/* Baselines: what simple models reach in the same folds.
 *
 * For: showing whether a network has learned more than the class frequencies, the confounds (brightness, cell size, peak
 *      bin), or the decay summed over the mask.
 * Owns: feature arrays are the caller's; a model owns its arrays, free with flim_logistic_free.
 * Errors: FLIM_ERROR_MEMORY; FLIM_ERROR_USAGE for no cells or a feature that is not finite.
 * No randomness.  Features are standardised by the training cells alone.
 */
#ifndef FLIM_BASELINE_H
#define FLIM_BASELINE_H

#include <stdbool.h>

#include "flim/split.h"

/* Ridge-penalised logistic regression (K' = 1 outputs for two classes, else K, softmax). */
typedef struct flim_logistic {
    int classes, features, outputs;
    double *mean, *scale; /* (F) of the training cells; scale 1 for a constant feature */
    double *coefficient; /* (K',F+1) on standardised features, the intercept last */
    int steps; /* Newton steps taken */
    bool converged; /* gradient below 1e-9 of its first size */
} flim_logistic;

typedef struct flim_logistic_options {
    double ridge; /* lambda in  sum_i w_i loss_i + lambda/2 |coefficients without intercepts|^2 : 1 / sklearn's C; 1 */
    flim_objective threshold_for; /* flim_baseline_run: how thresholds are chosen */
    bool balanced; /* cells weighted by flim_class_weights, as class_weight="balanced" does */
    const volatile int *stop; /* polled at each Newton step; non-zero: FLIM_INTERRUPTED.  May be NULL */
} flim_logistic_options;

/* Fits on the cells rows[0..n_rows-1] of x (n,F), labels in data, by Newton's method; each step is solved by conjugate
 * gradients, so that no (F x F) matrix is needed. */
flim_status flim_logistic_fit(const flim_split_data *data, const double *x, int features, const int64_t *rows, int64_t n_rows,
                              const flim_logistic_options *options, flim_logistic *out, flim_error *err);
void flim_logistic_free(flim_logistic *model); /* leaves it zeroed; zeroed is allowed */
/* Logits (K') of one cell's features (F). */
void flim_logistic_logits(const flim_logistic *model, const double *x, float *logits);

/* Out-of-fold predictions of a baseline, in every fold: fitted on train, the threshold chosen on val (0.5 where val is not
 * complete or K > 2), scored on test.  features = 0 is the class prior of each training set (a class that it lacks gets
 * probability 1e-6).
 * x: (n,F); logits: (n,K') and predicted: (n) are filled for the test cells of all folds; threshold: (n_folds). */
flim_status flim_baseline_run(const flim_splits *splits, const flim_split_data *data, const double *x, int features,
                              const flim_logistic_options *options, float *logits, int32_t *predicted, double *threshold,
                              flim_error *err);

#endif
