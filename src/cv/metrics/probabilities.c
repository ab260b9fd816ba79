/* What logits say of a cell: probabilities, the predicted class, the loss. */
#include <math.h>

#include "flim/metrics.h"
#include "flim/network.h"

/* 1 / (1 + exp(-x)), without overflow and with full relative precision on both sides. */
static double sigmoid(double x)
{
    double e = exp(-fabs(x));
    return x >= 0 ? 1 / (1 + e) : e / (1 + e);
}

/* probability (K) of one cell's logits (K'). */
static void probabilities_of(int classes, const float *logits, double *probability)
{
    if (classes == 2) {
        probability[0] = sigmoid(-(double)logits[0]);
        probability[1] = sigmoid((double)logits[0]);
        return;
    }
    double top = -INFINITY, sum = 0;
    for (int c = 0; c < classes; c++) {
        top = fmax(top, (double)logits[c]);
    }
    for (int c = 0; c < classes; c++) {
        probability[c] = exp((double)logits[c] - top);
        sum += probability[c];
    }
    for (int c = 0; c < classes; c++) {
        probability[c] /= sum;
    }
}

void flim_probabilities(int64_t n, int classes, const float *logits, double *probability)
{
    for (int64_t i = 0; i < n; i++) {
        probabilities_of(classes, logits + i * flim_class_outputs(classes), probability + i * classes);
    }
}

int32_t flim_predicted_class(int classes, const float *logits, double threshold)
{
    if (classes == 2) {
        return sigmoid((double)logits[0]) > threshold;
    }
    int32_t best = 0;
    for (int32_t c = 1; c < classes; c++) {
        if (logits[c] > logits[best]) {
            best = c;
        }
    }
    return best;
}

/* -log p(label), from the logits: log1p(exp) of differences, never the log of a rounded probability. */
static double loss_of(int classes, int32_t label, const float *logits)
{
    if (classes == 2) {
        double x = label == 1 ? -(double)logits[0] : (double)logits[0];
        return fmax(x, 0) + log1p(exp(-fabs(x)));
    }
    int top = 0;
    for (int c = 1; c < classes; c++) {
        top = logits[c] > logits[top] ? c : top;
    }
    double others = 0; /* sum of exp over all but the largest */
    for (int c = 0; c < classes; c++) {
        if (c != top) {
            others += exp((double)logits[c] - (double)logits[top]);
        }
    }
    return ((double)logits[top] - (double)logits[label]) + log1p(others);
}

double flim_mean_loss(int64_t n, int classes, const int32_t *label, const float *logits)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += loss_of(classes, label[i], logits + i * flim_class_outputs(classes));
    }
    return n ? sum / (double)n : NAN;
}
