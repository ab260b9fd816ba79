/* What a fold's validation set says of its scores: their calibration, and how common the classes of the test set
 * seem to be.
 *
 * For: train_cv, which makes it and writes it into the fold's summary.json; its summary and fold_metrics, which read it back.
 * Owns: the calibration's biases and the priors; flim_fold_shift_free.
 * Errors: FLIM_ERROR_DATA names the file and what is missing in it.
 */
#ifndef FLIM_RESULTS_FOLD_SHIFT_H
#define FLIM_RESULTS_FOLD_SHIFT_H

#include "cv/metrics/calibration.h"
#include "cv/metrics/prior_shift.h"
#include "flim/metrics.h"
#include "flim/predictions.h"
#include "formats/json.h"

enum { FLIM_FEW_CELLS_FOR_PRIOR = 100 };
#define FLIM_SHIFT_REFUTED_BELOW 0.01 /* p of flim_test_prior_shift */

typedef enum flim_fold_prior {
    FLIM_PRIOR_SEEN, /* by the training loss: what uncorrected scores speak for */
    FLIM_PRIOR_SOURCE, /* of the validation set: what calibrated scores speak for, their mean there */
    FLIM_PRIOR_TARGET, /* of the test set, estimated without its labels */
    FLIM_PRIOR_LOW, /* 95 % interval of that */
    FLIM_PRIOR_HIGH,
    FLIM_N_FOLD_PRIORS
} flim_fold_prior;

typedef struct flim_fold_shift {
    int classes; /* K; 0 = none: the validation set lacks a class, or there is none */
    flim_calibration calibration;
    double *prior[FLIM_N_FOLD_PRIORS]; /* (K) each, one allocation at prior[0] */
    int64_t cells; /* of the test set */
    flim_shift_test test;
} flim_fold_shift;

/* From label (n_val) and logits (n_val,K') of the validation set, logits (n_test,K') of the test set, and the prior (K)
 * that the loss saw. */
flim_status flim_fold_shift_make(int classes, int64_t n_val, const int32_t *label, const float *val_logits, int64_t n_test,
                                 const float *test_logits, const double *seen, uint64_t seed, flim_fold_shift *out,
                                 flim_error *err);
void flim_fold_shift_free(flim_fold_shift *shift); /* leaves it zeroed; zeroed is allowed */

static inline bool flim_shift_is_refuted(const flim_fold_shift *shift)
{
    return shift->classes > 0 && shift->test.p < FLIM_SHIFT_REFUTED_BELOW; /* false for NaN */
}

/* Logits (n,K') of one fold, calibrated; and those then corrected to the estimated prior. */
void flim_shift_calibrate(const flim_fold_shift *shift, int64_t n, const float *logits, float *calibrated);
void flim_shift_correct(const flim_fold_shift *shift, int64_t n, const float *logits, float *corrected);

/* Metrics of labelled predictions with either; two classes keep the predicted class of calibrated cells (calibration moves no
 * cell over the threshold, but the threshold), otherwise the most probable class is predicted. */
flim_status flim_shift_metrics(const flim_fold_shift *shift, const flim_predictions *predictions, flim_metrics *calibrated,
                               flim_metrics *corrected, flim_error *err);

/* Sets "calibration" and "prior_shift" of a fold's object: the latter is marked as using the unlabelled test cells. */
void flim_fold_shift_set_json(flim_json *object, const flim_fold_shift *shift, const flim_metrics *plain,
                              const flim_metrics *calibrated, const flim_metrics *corrected);
/* Reads it back; out->classes = 0 if the object has none.  path: for errors. */
flim_status flim_fold_shift_read(const flim_json *object, int classes, const char *path, flim_fold_shift *out,
                                 flim_error *err);

#endif
