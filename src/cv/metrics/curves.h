/* Areas under the two curves that a ranking of scores traces, for one class against the rest. */
#ifndef FLIM_CV_CURVES_H
#define FLIM_CV_CURVES_H

#include "cv/metrics/rank.h"

/* A ranking with its truth: cell i counts as positive if label[i] == positive, and weight[i] times (NULL = once). */
typedef struct flim_ranking {
    int64_t n;
    const flim_ranked *ranked; /* (n) sorted descending */
    const int32_t *label; /* (n) */
    int32_t positive;
    const int64_t *weight; /* (n) or NULL */
} flim_ranking;

/* Area under the ROC curve, equal scores counted half (sklearn's roc_auc_score).  NaN if one of the two sides is empty. */
double flim_ranking_auc(const flim_ranking *r);

/* Sum over distinct scores of precision times the gain in recall (sklearn's average_precision_score).  NaN without positives,
 * and of positives alone, whose every order has 1. */
double flim_ranking_average_precision(const flim_ranking *r);

#endif
