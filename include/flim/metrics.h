/* Classification metrics with scikit-learn's meanings, computed from logits in double precision.
 *
 * For: folds, pooled predictions and hold-out groups.  An undefined metric is NaN with a reason; it is null in JSON, empty in
 *      CSV, "n/a" in tables, and left out of means.  A logit that is not finite makes every metric undefined: a network that
 *      has diverged must not be scored as if it said class 0.
 * Conventions: label sets are all K classes, so that a class without cells counts in macro averages (sklearn's
 *      labels=range(K), zero_division=0); balanced accuracy alone leaves absent classes out, as sklearn's does.
 * Owns: plain structs.  Errors: FLIM_ERROR_MEMORY only.
 */
#ifndef FLIM_METRICS_H
#define FLIM_METRICS_H

#include <stdint.h>

#include "flim/choices.h"
#include "flim/status.h"

typedef enum flim_metric {
    FLIM_ACCURACY,
    FLIM_BALANCED_ACCURACY, /* mean recall over the classes present in y_true */
    FLIM_PRECISION_SCORE, /* of class 1 with two classes, else macro average over all K classes (zero_division=0) */
    FLIM_RECALL, /* likewise */
    FLIM_SPECIFICITY, /* recall of class 0 with two classes, else macro average of the one-vs-rest specificities */
    FLIM_F1, /* of class 1 with two classes, else macro average over all K classes */
    FLIM_MACRO_F1, /* over all K classes, two as well */
    FLIM_MCC, /* 0 if labels or predictions are constant */
    FLIM_ROC_AUC, /* two classes: ranks of the logit; else macro one-vs-rest of the softmax, undefined if one of
                               the K classes is absent; ranked by log-odds, so that saturated probabilities make no ties */
    FLIM_AVERAGE_PRECISION, /* the same; undefined without cells of the class, or with cells of it only */
    FLIM_LOG_LOSS, /* exact for any logit: not clipped as sklearn's */
    FLIM_BRIER, /* two classes: brier_score_loss of class 1; else the mean over cells of the sum over classes of
                               squared differences, which is twice that scale */
    FLIM_ECE, /* 15 equal-width bins (i/15, (i+1)/15] of the winning class's probability (argmax, whatever the
                               threshold); sum over bins of n_bin/n |accuracy - mean probability| (Guo et al., ICML'17) */
    FLIM_N_METRICS
} flim_metric;

/* Name as in docs/metrics.md ("balanced_accuracy", ...). */
const char *flim_metric_name(flim_metric metric);
/* The same for people: "balanced accuracy", "ROC AUC"; and above a narrow column, 7 letters at most: "bal.acc", "AUC". */
const char *flim_metric_title(flim_metric metric);
const char *flim_metric_head(flim_metric metric);
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

/* The same with the predicted classes given, (n): for predictions made with different thresholds, such as pooled folds. */
flim_status flim_metrics_of_decisions(int64_t n, int classes, const int32_t *label, const float *logits,
                                      const int32_t *predicted, flim_metrics *out, flim_error *err);

/* Probabilities (n,K) of logits (n,K') in double: sigmoid (both columns) or softmax. */
void flim_probabilities(int64_t n, int classes, const float *logits, double *probability);
/* The predicted class of one cell: logits (K').  Two classes: 1 if the probability is above (not at) the threshold, so that
 * a tie goes to the lower class, as with argmax. */
int32_t flim_predicted_class(int classes, const float *logits, double threshold);

/* Mean cross entropy from logits, no smoothing, stable for any logit: the val_loss. */
double flim_mean_loss(int64_t n, int classes, const int32_t *label, const float *logits);

/* Two classes, label and logits (n): the probability threshold that maximises the objective; among equal ones the one nearest
 * 0.5, midway between neighbouring scores.  0.5 if a class is absent, a logit is NaN, or n = 0.  FLIM_OBJECTIVE_KMEANS looks at no label: the probabilities of class 1 in two groups with the
 * least sum of squares about their means (all splits are tried; among equal ones that with the lowest threshold), and the
 * threshold midway between the two means. */
flim_status flim_choose_threshold_for(flim_objective objective, int64_t n, const int32_t *label, const float *logits,
                                      double *threshold, flim_error *err);

/* Area under the ROC curve of scores, ties averaged; NaN if a class is absent or a score is
 * NaN.  positive: (n) 0/1. */
flim_status flim_roc_auc(int64_t n, const uint8_t *positive, const double *score, double *auc, flim_error *err);

/* Mean and sd (ddof 1) of the defined values among v[0..n-1]; *used of them.  NaN if none (sd: fewer than two). */
void flim_mean_sd(const double *v, int n, double *mean, double *sd, int *used);

#endif
