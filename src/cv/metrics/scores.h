/* Everything about scored cells that does not change when cells are weighted: rankings, losses, calibration bins.  Computed
 * once, then read by the plain metrics and by each replicate of a bootstrap. */
#ifndef FLIM_CV_SCORES_H
#define FLIM_CV_SCORES_H

#include "cv/metrics/rank.h"
#include "flim/metrics.h"

enum { FLIM_ECE_BINS = 15 };

typedef struct flim_scores {
    int64_t n;
    int classes, first; /* first class that is ranked: 1 with two classes, else 0 */
    const int32_t *label, *predicted; /* (n), the caller's */
    flim_ranked *ranked; /* (classes - first, n) descending by the class's score */
    double *loss, *brier, *confidence; /* (n) */
    uint8_t *bin, *right; /* (n) calibration bin; does the most probable class agree with the label? */
    int64_t *matrix; /* (classes, classes) scratch of flim_scores_metrics */
} flim_scores;

/* label and predicted must outlive it.  Logits must be finite. */
flim_status flim_scores_make(int64_t n, int classes, const int32_t *label, const float *logits, const int32_t *predicted,
                             flim_scores *out, flim_error *err);
void flim_scores_free(flim_scores *scores);

/* All metrics with cell i counted weight[i] times (NULL = once each). */
void flim_scores_metrics(flim_scores *scores, const int64_t *weight, double value[FLIM_N_METRICS]);

#endif
