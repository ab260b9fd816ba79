/* The table of losses, one row each: read by the CPU backend and, compiled as CUDA, by kernels.
 *
 * A row is the loss of one prediction against one target and its slope by each output, in double precision.  A pooled head
 * has one prediction of K' outputs per cell, a dense head one of one output per voxel; to a loss over the batch a prediction is
 * a cell's similarities to all of the batch's cells.  What surrounds a row is the head's
 * business: the cell's weight, the class's, the divisor, means over voxels.
 * To add a loss: its name in flim_loss (flim/network.h), two functions and a line of FLIM_LOSS_ROWS here.
 * Owns: nothing.  Cannot fail.
 */
#ifndef FLIM_BACKEND_LOSS_H
#define FLIM_BACKEND_LOSS_H

#include <math.h>

#include "flim/network.h"

#ifdef __CUDACC__
#define FLIM_LOSS_FUNCTION __host__ __device__ static inline
#else
#define FLIM_LOSS_FUNCTION static inline
#endif

enum { FLIM_LOSS_NORMS = 2 }; /* numbers that a loss hands to its slopes */

/* What a prediction is held against. */
typedef enum flim_target_kind {
    FLIM_TARGET_LABEL, /* flim_batch.label */
    FLIM_TARGET_DISTRIBUTION, /* flim_batch.target, over the classes */
    FLIM_TARGET_SIGNAL, /* the input's signal */
    FLIM_TARGET_SIGNAL_IN_MASK, /* the same, at voxels inside the mask */
    FLIM_TARGET_HIDDEN, /* counts or signal of the hidden voxels: backend/hidden.h */
    FLIM_TARGET_PARTNER /* which of the batch's other cells is the partner: backend/similarity.h */
} flim_target_kind;

typedef struct flim_target {
    int label;
    double smoothing;
    double gamma; /* of the focal loss; 0 = cross entropy */
    const float *distribution; /* (K), or NULL */
    double signal; /* of one voxel */
} flim_target;

/* The share of class k of K in a target. */
FLIM_LOSS_FUNCTION double flim_target_share(const flim_target *t, int k, int classes)
{
    return (k == t->label ? 1.0 - t->smoothing : 0.0) + t->smoothing / (double)classes;
}

/* log(sum(exp(x))) of the outputs (K). */
FLIM_LOSS_FUNCTION double flim_log_sum(const float *x, int outputs)
{
    double most = (double)x[0];
    for (int k = 1; k < outputs; k++) {
        most = (double)x[k] > most ? (double)x[k] : most;
    }
    double sum = exp((double)x[0] - most);
    for (int k = 1; k < outputs; k++) {
        sum += exp((double)x[k] - most);
    }
    return most + log(sum);
}

/* Cross entropy of a sigmoid with a target y in [0,1]: max(x,0) - x y + log(1 + exp(-|x|)). */
FLIM_LOSS_FUNCTION double flim_sigmoid_loss(double x, double y)
{
    return (x > 0.0 ? x : 0.0) - x * y + log1p(exp(-fabs(x)));
}

FLIM_LOSS_FUNCTION double flim_sigmoid_slope(double x, double y)
{
    return 1.0 / (1.0 + exp(-x)) - y;
}

/* ---- focal loss (Lin et al., ICCV 2017), of shares y of the classes: -sum y (1 - p)^gamma log p --------------------------- */

/* A probability p by its logarithm, and that of 1 - p, which for p near 1 has more digits than p. */
typedef struct flim_log_chance {
    double p, not_p;
} flim_log_chance;

/* Of a sigmoid: log p = -log(1 + exp(-x)). */
FLIM_LOSS_FUNCTION flim_log_chance flim_sigmoid_chance(double x)
{
    const double rest = log1p(exp(-fabs(x)));
    const flim_log_chance chance = {(x < 0.0 ? x : 0.0) - rest, (x > 0.0 ? -x : 0.0) - rest};
    return chance;
}

/* Of the output of a softmax whose logarithm is log_p <= 0. */
FLIM_LOSS_FUNCTION flim_log_chance flim_softmax_chance(double log_p)
{
    /* cppcheck-suppress invalidFunctionArg ; log_p = 0 gives -inf, as it should */
    const flim_log_chance chance = {log_p, log(-expm1(log_p < 0.0 ? log_p : 0.0))};
    return chance;
}

FLIM_LOSS_FUNCTION double flim_focal_loss(double y, flim_log_chance chance, double gamma)
{
    return y > 0.0 ? -y * exp(gamma * chance.not_p) * chance.p : 0.0;
}

/* p times the derivative by p: y (1 - p)^gamma (gamma p log p / (1 - p) - 1), where log p / (1 - p) goes to -1 with p to 1. */
FLIM_LOSS_FUNCTION double flim_focal_slope(double y, flim_log_chance chance, double gamma)
{
    const double not_p = exp(chance.not_p), ratio = not_p > 0.0 ? chance.p / not_p : -1.0;
    return y > 0.0 ? y * exp(gamma * chance.not_p) * (gamma * exp(chance.p) * ratio - 1.0) : 0.0;
}

/* ---- cross entropy and focal loss with the shares of the target ----------------------------------------------------------- */

/* Class 1 has the share y, class 0 the rest. */
FLIM_LOSS_FUNCTION double flim_sigmoid_loss_of(double x, double y, double gamma)
{
    if (gamma == 0.0) {
        return flim_sigmoid_loss(x, y);
    }
    const flim_log_chance one = flim_sigmoid_chance(x), none = {one.not_p, one.p};
    return flim_focal_loss(y, one, gamma) + flim_focal_loss(1.0 - y, none, gamma);
}

FLIM_LOSS_FUNCTION double flim_sigmoid_slope_of(double x, double y, double gamma)
{
    if (gamma == 0.0) {
        return flim_sigmoid_slope(x, y);
    }
    const flim_log_chance one = flim_sigmoid_chance(x), none = {one.not_p, one.p};
    return flim_focal_slope(y, one, gamma) * exp(one.not_p) - flim_focal_slope(1.0 - y, none, gamma) * exp(one.p);
}

/* The share of class k of a target that is a label (soft: a distribution). */
FLIM_LOSS_FUNCTION double flim_share_of(const flim_target *t, bool soft, int k, int classes)
{
    return soft ? (double)t->distribution[k] : flim_target_share(t, k, classes);
}

/* Of K outputs; norm: the logarithm of the softmax's divisor, and the sum of the classes' focal slopes. */
FLIM_LOSS_FUNCTION double flim_softmax_loss_of(const float *x, int outputs, const flim_target *t, bool soft,
                                               double norm[FLIM_LOSS_NORMS])
{
    double loss = 0.0;
    norm[0] = flim_log_sum(x, outputs);
    norm[1] = 0.0;
    for (int k = 0; k < outputs; k++) {
        const double share = flim_share_of(t, soft, k, outputs), log_p = (double)x[k] - norm[0];
        if (t->gamma == 0.0) {
            loss -= share * log_p;
        } else {
            const flim_log_chance chance = flim_softmax_chance(log_p);
            loss += flim_focal_loss(share, chance, t->gamma);
            norm[1] += flim_focal_slope(share, chance, t->gamma);
        }
    }
    return loss;
}

/* The shares sum to 1. */
FLIM_LOSS_FUNCTION double flim_softmax_slope_of(const float *x, int k, int outputs, const flim_target *t, bool soft,
                                                const double norm[FLIM_LOSS_NORMS])
{
    const double share = flim_share_of(t, soft, k, outputs), log_p = (double)x[k] - norm[0];
    return t->gamma == 0.0 ? exp(log_p) - share
                           : flim_focal_slope(share, flim_softmax_chance(log_p), t->gamma) - exp(log_p) * norm[1];
}

/* ---- rows: NAME_loss gives the loss, and in norm what NAME_slope needs of all outputs to give d loss / d x[k] --------------- */

FLIM_LOSS_FUNCTION double flim_binary_loss(const float *x, int outputs, const flim_target *t, double norm[FLIM_LOSS_NORMS])
{
    (void)outputs;
    norm[0] = (double)t->label * (1.0 - t->smoothing) + 0.5 * t->smoothing;
    return flim_sigmoid_loss_of((double)x[0], norm[0], t->gamma);
}

FLIM_LOSS_FUNCTION double flim_binary_slope(const float *x, int k, int outputs, const flim_target *t,
                                            const double norm[FLIM_LOSS_NORMS])
{
    (void)k, (void)outputs;
    return flim_sigmoid_slope_of((double)x[0], norm[0], t->gamma);
}

FLIM_LOSS_FUNCTION double flim_softmax_loss(const float *x, int outputs, const flim_target *t, double norm[FLIM_LOSS_NORMS])
{
    return flim_softmax_loss_of(x, outputs, t, false, norm);
}

FLIM_LOSS_FUNCTION double flim_softmax_slope(const float *x, int k, int outputs, const flim_target *t,
                                             const double norm[FLIM_LOSS_NORMS])
{
    return flim_softmax_slope_of(x, k, outputs, t, false, norm);
}

FLIM_LOSS_FUNCTION double flim_soft_targets_loss(const float *x, int outputs, const flim_target *t,
                                                 double norm[FLIM_LOSS_NORMS])
{
    /* A batch without a distribution is refused before (src/backend/program.c). NOLINTNEXTLINE(*-core.NullDereference) */
    return outputs == 1 ? flim_sigmoid_loss_of((double)x[0], (double)t->distribution[1], t->gamma)
                        : flim_softmax_loss_of(x, outputs, t, true, norm);
}

FLIM_LOSS_FUNCTION double flim_soft_targets_slope(const float *x, int k, int outputs, const flim_target *t,
                                                  const double norm[FLIM_LOSS_NORMS])
{
    return outputs == 1 ? flim_sigmoid_slope_of((double)x[0], (double)t->distribution[1], t->gamma)
                        : flim_softmax_slope_of(x, k, outputs, t, true, norm);
}

FLIM_LOSS_FUNCTION double flim_squared_loss(const float *x, int outputs, const flim_target *t, double norm[FLIM_LOSS_NORMS])
{
    (void)outputs;
    norm[0] = (double)x[0] - t->signal;
    return norm[0] * norm[0];
}

FLIM_LOSS_FUNCTION double flim_squared_slope(const float *x, int k, int outputs, const flim_target *t,
                                             const double norm[FLIM_LOSS_NORMS])
{
    (void)x, (void)k, (void)outputs, (void)t;
    return 2.0 * norm[0];
}

/* y is the logarithm of the rate.  Above the largest one, 162,754 photons, the rate goes on along its tangent, so that an odd weight
 * gives no infinity.  Of more photons than that the loss would have no least value: they are refused. */
#define FLIM_LARGEST_LOG_RATE 12.0

FLIM_LOSS_FUNCTION double flim_hidden_poisson_loss(const float *x, int outputs, const flim_target *t,
                                                   double norm[FLIM_LOSS_NORMS])
{
    (void)outputs;
    const double y = (double)x[0], above = y > FLIM_LARGEST_LOG_RATE ? y - FLIM_LARGEST_LOG_RATE : 0.0;
    norm[0] = exp(y - above);
    return norm[0] * (1.0 + above) - t->signal * y;
}

FLIM_LOSS_FUNCTION double flim_hidden_poisson_slope(const float *x, int k, int outputs, const flim_target *t,
                                                    const double norm[FLIM_LOSS_NORMS])
{
    (void)x, (void)k, (void)outputs;
    return norm[0] - t->signal;
}

/* The softmax over a cell's similarities; t->smoothing and t->gamma are 0. */
FLIM_LOSS_FUNCTION double flim_partner_loss(const float *x, int outputs, const flim_target *t, double norm[FLIM_LOSS_NORMS])
{
    return flim_softmax_loss_of(x, outputs, t, false, norm);
}

FLIM_LOSS_FUNCTION double flim_partner_slope(const float *x, int k, int outputs, const flim_target *t,
                                             const double norm[FLIM_LOSS_NORMS])
{
    return flim_softmax_slope_of(x, k, outputs, t, false, norm);
}

/* ROW(loss, name, target, functions) */
#define FLIM_LOSS_ROWS(ROW)                                                                                                  \
    ROW(FLIM_LOSS_BINARY, "binary cross entropy", FLIM_TARGET_LABEL, flim_binary)                                            \
    ROW(FLIM_LOSS_SOFTMAX, "cross entropy", FLIM_TARGET_LABEL, flim_softmax)                                                 \
    ROW(FLIM_LOSS_SOFT_TARGETS, "cross entropy with soft targets", FLIM_TARGET_DISTRIBUTION, flim_soft_targets)              \
    ROW(FLIM_LOSS_SQUARED, "squared error", FLIM_TARGET_SIGNAL, flim_squared)                                                \
    ROW(FLIM_LOSS_SQUARED_MASKED, "squared error inside the mask", FLIM_TARGET_SIGNAL_IN_MASK, flim_squared)                 \
    ROW(FLIM_LOSS_HIDDEN_POISSON, "Poisson likelihood of hidden counts", FLIM_TARGET_HIDDEN, flim_hidden_poisson)            \
    ROW(FLIM_LOSS_HIDDEN_SQUARED, "squared error at hidden voxels", FLIM_TARGET_HIDDEN, flim_squared)                        \
    ROW(FLIM_LOSS_CONTRASTIVE, "contrastive loss", FLIM_TARGET_PARTNER, flim_partner)                                        \
    ROW(FLIM_LOSS_CONTRASTIVE_CLASS, "contrastive loss by class", FLIM_TARGET_PARTNER, flim_partner)

/* ---- the table --------------------------------------------------------------------------------------------------------- */

#define FLIM_LOSS_VALUE(id, name, target, functions) loss == id ? functions##_loss(x, outputs, t, norm):
#define FLIM_LOSS_SLOPE(id, name, target, functions) loss == id ? functions##_slope(x, k, outputs, t, norm):

/* Loss of one prediction x (K'); norm is for the slopes. */
FLIM_LOSS_FUNCTION double flim_loss_of(flim_loss loss, const float *x, int outputs, const flim_target *t,
                                       double norm[FLIM_LOSS_NORMS])
{
    return FLIM_LOSS_ROWS(FLIM_LOSS_VALUE) 0.0;
}

FLIM_LOSS_FUNCTION double flim_loss_slope(flim_loss loss, const float *x, int k, int outputs, const flim_target *t,
                                          const double norm[FLIM_LOSS_NORMS])
{
    return FLIM_LOSS_ROWS(FLIM_LOSS_SLOPE) 0.0;
}

#define FLIM_LOSS_TARGET(id, name, target, functions) loss == id ? target:
#define FLIM_LOSS_NAME(id, name, target, functions) loss == id ? name:

FLIM_LOSS_FUNCTION flim_target_kind flim_loss_target(flim_loss loss)
{
    return FLIM_LOSS_ROWS(FLIM_LOSS_TARGET) FLIM_TARGET_LABEL;
}

FLIM_LOSS_FUNCTION const char *flim_loss_name(flim_loss loss)
{
    return FLIM_LOSS_ROWS(FLIM_LOSS_NAME) "unknown";
}

/* The class that logits (K') predict: the sign of one, the first largest of several. */
FLIM_LOSS_FUNCTION int flim_predicted_by(const float *x, int outputs)
{
    int best = outputs == 1 ? x[0] > 0.0f : 0;
    for (int k = 1; k < outputs; k++) {
        best = x[k] > x[best] ? k : best;
    }
    return best;
}

/* The weight of a cell in a head's loss. */
FLIM_LOSS_FUNCTION double flim_cell_weight(const flim_head *head, float weight, int label)
{
    return head->n_class_weights > 0 ? (double)weight * (double)head->class_weight[label] : (double)weight;
}

#endif
