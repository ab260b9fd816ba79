/* The head and the loss: linear -> BatchNorm -> leaky ReLU -> dropout -> linear, from the mean over T,H,W; in double
 * precision throughout, because it is a ten-thousandth of the work and everything behind it depends on it.
 *
 * Shapes: mean (n,Cin), logits (n,K'), weights (O,I) as PyTorch's.  Parameters and gradients are fp32.
 * Owns: nothing; `work` is flim_cpu_head_work doubles of the caller's.  Cannot fail.
 */
#ifndef FLIM_CPU_HEAD_H
#define FLIM_CPU_HEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "flim/network.h"
#include "flim/random.h"

typedef struct flim_cpu_head {
    flim_head shape;
    uint32_t unit; /* the head's number for dropout */
    const float *fc1_weight, *fc1_bias, *gamma, *beta, *fc2_weight, *fc2_bias;
    float *running_mean, *running_var;
    /* gradients, added to; NULL where nothing is trained */
    float *dfc1_weight, *dfc1_bias, *dgamma, *dbeta, *dfc2_weight, *dfc2_bias;
    double *work;
    bool frozen; /* BatchNorm takes its running statistics as constants in training, too */
} flim_cpu_head;

size_t flim_cpu_head_work(const flim_head *shape, int64_t n);

/* Logits (n,K').  training: batch statistics (running ones moved; a batch of one cell uses the running ones) and dropout p,
 * and what backward needs is kept in work. */
void flim_cpu_head_forward(const flim_cpu_head *head, int64_t n, const float *mean, const flim_cell_id *id, bool training,
                           float dropout, float *logits);

typedef struct flim_cpu_loss {
    double loss; /* sum(weight * loss), not divided */
    double weight; /* sum of weights */
    int64_t correct; /* cells whose largest logit (two classes: sign) is the label */
} flim_cpu_loss;

/* Loss of n cells and its gradient dlogits (n,K') in work: BCE with logits for K' = 1, cross entropy else; divided by divisor. */
flim_cpu_loss flim_cpu_head_loss(const flim_cpu_head *head, int64_t n, const float *logits, const int32_t *label,
                                 const float *weight, float label_smoothing, double divisor);

/* After forward(training) and loss: parameter gradients, and dmean (n,Cin). */
void flim_cpu_head_backward(const flim_cpu_head *head, int64_t n, const float *mean, float *dmean);

#endif
