/* Calibration: one temperature and one bias per class, so that a network's probabilities mean what they say.
 *
 * For: a fold, whose validation set it is fitted on, and whoever reads calibrated scores afterwards.
 *      Bias-corrected temperature scaling (Alexandari et al. 2020): the calibrated logits are z_k / temperature + bias_k.  Two
 *      classes have one logit z per cell, which is that of class 1 against 0 for class 0.
 * The fit minimises the summed log loss plus (1/temperature - 1)^2 / 2 plus 0.0005 sum_k bias_k^2: convex in 1/temperature and
 *      the biases, so that the minimum is one and no start matters.  The first term keeps the temperature of separable cells,
 *      which fit ever better as it falls, finite: a standard normal prior about 1.  The second only makes the biases' sum 0 and
 *      keeps them finite, so the mean calibrated probability of a class is its share of the cells (to 1e-3 cells).
 * Owns: the biases; flim_calibration_free.  Errors: FLIM_ERROR_MEMORY only.
 */
#ifndef FLIM_CV_CALIBRATION_H
#define FLIM_CV_CALIBRATION_H

#include <stdint.h>

#include "flim/status.h"

typedef struct flim_calibration {
    int classes; /* K; 0 = none was fitted */
    double temperature; /* > 0, at most FLIM_MOST_TEMPERATURE */
    double *bias; /* (K), sum 0 */
} flim_calibration;

#define FLIM_MOST_TEMPERATURE 1000.0 /* reached if the scores do not rise with the class */
#define FLIM_CALIBRATION_BIAS_RIDGE 1e-3

/* From n cells, label (n), logits (n,K').  out->classes = 0 if a class has no cell or a logit is not finite: nothing can be
 * learned then. */
flim_status flim_calibration_fit(int64_t n, int classes, const int32_t *label, const float *logits, flim_calibration *out,
                                 flim_error *err);
void flim_calibration_free(flim_calibration *calibration); /* leaves it zeroed; zeroed is allowed */

/* Calibrated logits (n,K') of logits (n,K'); both may be the same array. */
void flim_calibrate(const flim_calibration *calibration, int64_t n, const float *logits, float *calibrated);

#endif
