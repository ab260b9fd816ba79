/* Scores put in order once, for everything that walks along a ranking: ROC, precision-recall, thresholds. */
#ifndef FLIM_CV_RANK_H
#define FLIM_CV_RANK_H

#include <stdint.h>

#include "flim/status.h"

typedef struct flim_ranked {
    double score;
    int64_t item; /* index of the cell */
} flim_ranked;

/* Fills ranked (n) with score[0..n-1] and sorts it by descending score; equal scores stand in the order of their index, so
 * that the result does not depend on the sort.  Scores must not be NaN. */
void flim_rank_descending(int64_t n, const double *score, flim_ranked *ranked);
/* The same of what stands in ranked (n), items in any order. */
void flim_rank_sort(int64_t n, flim_ranked *ranked);

#endif
