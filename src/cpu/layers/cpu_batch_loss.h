/* A loss over the batch: each cell's outputs beside those of all others (backend/similarity.h), in double precision.
 *
 * Shapes: x and dx (n,K').  Owns: nothing; `work` is flim_cpu_batch_loss_work doubles of the caller's.  Cannot fail.
 */
#ifndef FLIM_CPU_BATCH_LOSS_H
#define FLIM_CPU_BATCH_LOSS_H

#include <stddef.h>
#include <stdint.h>

#include "backend/loss.h"

/* Of any loss of cells, by labels or over the batch. */
typedef struct flim_cpu_loss {
    double loss; /* sum(weight * loss), not divided */
    double weight; /* sum of the cells' weights */
    int64_t correct; /* cells whose predicted class is the label */
} flim_cpu_loss;

typedef struct flim_cpu_targets {
    const int32_t *label; /* (n) */
    const float *weight; /* (n) */
    const float *target; /* (n,classes), or NULL */
    int classes;
    double smoothing, gamma; /* of the labels; of the focal loss */
} flim_cpu_targets;

size_t flim_cpu_batch_loss_work(const flim_head *shape, int64_t n);

/* Loss of n cells, and its gradient dx divided by `divisor`.  A cell is correct if its partner is the most similar one. */
flim_cpu_loss flim_cpu_batch_loss(const flim_head *shape, int64_t n, const float *x, const flim_cpu_targets *targets,
                                  double divisor, double *work, double *dx);

#endif
