/* Heads and losses.  A pooled head is linear -> BatchNorm -> leaky ReLU -> dropout -> linear, from the mean over T,H,W; in
 * double precision throughout, because it is a ten-thousandth of the work and everything behind it depends on it.  A dense
 * head compares each voxel of y with the input.
 *
 * Shapes: mean (n,Cin), logits (n,K'), weights (O,I) as PyTorch's.  Parameters and gradients are fp32.
 * Owns: nothing; `work` is flim_cpu_head_work doubles of the caller's.  Cannot fail.
 */
#ifndef FLIM_CPU_HEAD_H
#define FLIM_CPU_HEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cpu/layers/cpu_batch_loss.h"
#include "cpu/layers/moments.h"
#include "cpu/layers/running.h"
#include "flim/network.h"
#include "flim/random.h"

typedef struct flim_cpu_head {
    flim_head shape;
    uint32_t unit; /* the head's number for dropout */
    const float *fc1_weight, *fc1_bias, *gamma, *beta, *fc2_weight, *fc2_bias;
    float *running_mean, *running_var;
    flim_cpu_move *move_mean, *move_var; /* (hidden): as flim_cpu_norm's */
    /* gradients, added to; NULL without training */
    float *dfc1_weight, *dfc1_bias, *dgamma, *dbeta, *dfc2_weight, *dfc2_bias;
    double *work;
    bool frozen; /* BatchNorm takes its running statistics as constants in training, too */
    double momentum; /* of the running statistics in training */
} flim_cpu_head;

size_t flim_cpu_head_work(const flim_head *shape, int64_t n);

/* Training goes hidden -> forward -> loss -> sum_gradients -> backward, prediction hidden -> forward; n = 0 is allowed.  What
 * hidden and sum_gradients give may be joined with that of other batches in between (program/cpu_sync.h).
 *
 * The hidden layer's output before BatchNorm, in work, and its moments (moments.h) unless they are NULL. */
void flim_cpu_head_hidden(const flim_cpu_head *head, int64_t n, const float *mean, double *moments);
/* Logits (n,K').  training: with the statistics that moments has (running ones moved; those of one cell are the running ones)
 * and dropout p, and what backward needs is kept in work.  Else moments is NULL. */
void flim_cpu_head_forward(const flim_cpu_head *head, int64_t n, const double *moments, const flim_cell_id *id, float dropout,
                           float *logits);

/* Loss of n cells and its gradient dlogits (n,K') in work, by the head's row of the table of losses; divided by divisor. */
flim_cpu_loss flim_cpu_head_loss(const flim_cpu_head *head, int64_t n, const float *logits, const flim_cpu_targets *targets,
                                 double divisor);

/* Gradients of the last layer, gamma and beta, and sums (2,hidden) over the cells: of the gradient of BatchNorm's output, and of
 * that times its normalised input. */
void flim_cpu_head_sum_gradients(const flim_cpu_head *head, int64_t n, double *sums);
/* The other parameter gradients, and dmean (n,Cin).  sums: of the whole batch. */
void flim_cpu_head_backward(const flim_cpu_head *head, int64_t n, const double *sums, const float *mean, float *dmean);

/* One cell of a dense head. */
typedef struct flim_cpu_dense {
    const flim_head *head;
    size_t bins, plane; /* T, H * W */
    const float *y, *signal; /* (T,H,W) */
    const unsigned char *mask; /* (H,W) */
    const unsigned char *hidden; /* (T,H,W), or NULL */
    double share; /* backward: of the cell's loss in the batch's */
} flim_cpu_dense;

/* The cell's loss: mean over the voxels that count. */
double flim_cpu_dense_loss(const flim_cpu_dense *cell);
/* dy (T,H,W): written, or added to unless `first`. */
void flim_cpu_dense_backward(const flim_cpu_dense *cell, bool first, float *dy);

#endif
