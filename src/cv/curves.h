/* Areas under the two curves that a ranking of scores traces, for one class against the rest. */
#ifndef FLIM_CV_CURVES_H
#define FLIM_CV_CURVES_H

#include "cv/rank.h"

/* Area under the ROC curve, equal scores counted half (sklearn's roc_auc_score).  ranked: (n) sorted descending; positive:
 * (n) 0/1 by item.  NaN where one of the two sides is empty. */
double flim_ranked_auc(int64_t n, const flim_ranked *ranked, const uint8_t *positive);

/* Sum over distinct scores of precision times the gain in recall (sklearn's average_precision_score).  NaN without
 * positives. */
double flim_ranked_average_precision(int64_t n, const flim_ranked *ranked, const uint8_t *positive);

#endif
