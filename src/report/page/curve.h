/* ROC curves, and precision against recall, of one fold, of the pool, or averaged over the folds. */
#ifndef FLIM_REPORT_CURVE_H
#define FLIM_REPORT_CURVE_H

#include "report/report_internal.h"

typedef enum report_curve_kind {
    REPORT_ROC, /* true positive rate against false positive rate */
    REPORT_PRECISION_RECALL /* precision against recall */
} report_curve_kind;

/* One point for each distinct score, x ascending; the ROC curve begins at (0,0).  n = 0: undefined, a class is absent. */
typedef struct report_curve {
    int64_t n;
    double *x, *y; /* (n) */
} report_curve;

/* The curve of class c against the rest of the cells of fold `only` (-1: all), by logits (pool.n,K') of the network or a
 * baseline: the score is the logit (two classes) or the probability of class c.  *out is the caller's to free, after an error,
 * too. */
flim_status report_curve_make(const report_run *run, report_curve_kind kind, const float *logits, int only, int c,
                              report_curve *out, flim_error *err);
void report_curve_free(report_curve *curve); /* zeroed is allowed */

/* Curves averaged vertically over folds (Fawcett, Pattern Recognition Letters 2006): y at x = i / (REPORT_GRID - 1). */
enum { REPORT_GRID = 101 };
typedef struct report_mean_curve {
    int folds; /* in which the curve is defined; 0: nothing else is */
    double mean[REPORT_GRID], sd[REPORT_GRID]; /* sd: ddof 1, NaN with one fold */
} report_mean_curve;

/* The mean over the folds' curves of class 1; two classes. */
flim_status report_curve_average(const report_run *run, report_curve_kind kind, const float *logits, report_mean_curve *out,
                                 flim_error *err);

#endif
