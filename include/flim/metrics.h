/* Classification metrics with scikit-learn's meanings, computed from logits in double precision.
 *
 * For: folds, pooled predictions and hold-out groups.  An undefined metric is NaN with a reason; it is null in JSON, empty in
 *      CSV, "n/a" in tables, and left out of means.
 * Owns: plain structs.  Errors: FLIM_ERROR_MEMORY only.
 */
#ifndef FLIM_METRICS_H
#define FLIM_METRICS_H

#include <stdint.h>

#include "flim/status.h"

typedef enum flim_metric {
    FLIM_ACCURACY,
    FLIM_BALANCED_ACCURACY, /* mean recall over the classes present in y_true */
    FLIM_PRECISION_SCORE,   /* of class 1 with two classes, else macro average over all K classes (zero_division=0) */
    FLIM_RECALL,
    FLIM_SPECIFICITY,       /* recall of class 0 with two classes, else macro average of the one-vs-rest specificities */
    FLIM_F1,
    FLIM_MACRO_F1,
    FLIM_MCC,
    FLIM_ROC_AUC,           /* two classes: ranks of the logit; else macro one-vs-rest of the softmax */
    FLIM_AVERAGE_PRECISION,
    FLIM_LOG_LOSS,
    FLIM_BRIER,
    FLIM_ECE,               /* 15 equal-width bins of the winning class's probability */
    FLIM_N_METRICS
} flim_metric;

/* Name as in SPEC.md section 5 ("balanced_accuracy", ...). */
const char *flim_metric_name(flim_metric metric);
/* Why that metric can be undefined ("one class in the labels", ...), for tables. */
const char *flim_metric_undefined_reason(flim_metric metric);

typedef struct flim_metrics {
    int64_t n;
    double value[FLIM_N_METRICS]; /* NaN = undefined */
} flim_metrics;

/* n cells, K classes, label (n), logits (n,K') with K' = 1 for two classes.  `threshold` is on the probability of class 1;
 * not used for K > 2 (argmax, ties to the lower class).  n = 0 gives all NaN. */
flim_status flim_metrics_compute(int64_t n, int classes, const int32_t *label, const float *logits, double threshold,
                                 flim_metrics *out, flim_error *err);

/* Probabilities (n,K) of logits (n,K') in double: sigmoid (both columns) or softmax. */
void flim_probabilities(int64_t n, int classes, const float *logits, double *probability);
/* The predicted class of one cell: logits (K'). */
int32_t flim_predicted_class(int classes, const float *logits, double threshold);

/* Mean cross entropy from logits, no smoothing, stable for any logit: the val_loss. */
double flim_mean_loss(int64_t n, int classes, const int32_t *label, const float *logits);

/* Two classes: the probability threshold that maximises balanced accuracy; among equal ones the one nearest 0.5, midway
 * between neighbouring scores.  0.5 where a class is absent or n = 0. */
flim_status flim_choose_threshold(int64_t n, const int32_t *label, const float *logits, double *threshold, flim_error *err);

/* Area under the ROC curve of scores, ties averaged; NaN where a class is absent.  positive: (n) 0/1. */
flim_status flim_roc_auc(int64_t n, const uint8_t *positive, const double *score, double *auc, flim_error *err);

/* Mean and sd (ddof 1) of the defined values among v[0..n-1]; *used of them.  NaN where none (sd: fewer than two). */
void flim_mean_sd(const double *v, int n, double *mean, double *sd, int *used);

#endif
