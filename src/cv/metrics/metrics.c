#include "flim/metrics.h"

#include <math.h>

#include "core/alloc.h"
#include "core/try.h"
#include "cv/metrics/scores.h"

static const struct {
    const char *name, *undefined;
} about[FLIM_N_METRICS] = {
    [FLIM_ACCURACY] = {"accuracy", "no cells, or a logit that is not finite"},
    [FLIM_BALANCED_ACCURACY] = {"balanced_accuracy", "no cells, or a logit that is not finite"},
    [FLIM_PRECISION_SCORE] = {"precision", "no cells, or a logit that is not finite"},
    [FLIM_RECALL] = {"recall", "no cells, or a logit that is not finite"},
    [FLIM_SPECIFICITY] = {"specificity", "no cells, or a logit that is not finite"},
    [FLIM_F1] = {"f1", "no cells, or a logit that is not finite"},
    [FLIM_MACRO_F1] = {"macro_f1", "no cells, or a logit that is not finite"},
    [FLIM_MCC] = {"mcc", "no cells, or a logit that is not finite"},
    [FLIM_ROC_AUC] = {"roc_auc", "a class is absent from the labels"},
    [FLIM_AVERAGE_PRECISION] = {"average_precision", "a class is absent from the labels"},
    [FLIM_LOG_LOSS] = {"log_loss", "no cells, or a logit that is not finite"},
    [FLIM_BRIER] = {"brier", "no cells, or a logit that is not finite"},
    [FLIM_ECE] = {"ece", "no cells, or a logit that is not finite"},
};

const char *flim_metric_name(flim_metric metric)
{
    return about[metric].name;
}

const char *flim_metric_undefined_reason(flim_metric metric)
{
    return about[metric].undefined;
}

static int logits_of(int classes)
{
    return classes == 2 ? 1 : classes;
}

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
        probabilities_of(classes, logits + i * logits_of(classes), probability + i * classes);
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
        sum += loss_of(classes, label[i], logits + i * logits_of(classes));
    }
    return n ? sum / (double)n : NAN;
}

flim_status flim_metrics_of_decisions(int64_t n, int classes, const int32_t *label, const float *logits,
                                      const int32_t *predicted, flim_metrics *out, flim_error *err)
{
    out->n = n;
    for (int m = 0; m < FLIM_N_METRICS; m++) {
        out->value[m] = NAN;
    }
    for (int64_t i = 0; i < n * logits_of(classes); i++) {
        if (!isfinite(logits[i])) {
            return FLIM_OK; /* a diverged network has no metrics; class 0 everywhere would look like a result */
        }
    }
    if (n == 0) {
        return FLIM_OK;
    }
    flim_scores scores;
    FLIM_TRY(flim_scores_make(n, classes, label, logits, predicted, &scores, err));
    flim_scores_metrics(&scores, NULL, out->value);
    flim_scores_free(&scores);
    return FLIM_OK;
}

flim_status flim_metrics_compute(int64_t n, int classes, const int32_t *label, const float *logits, double threshold,
                                 flim_metrics *out, flim_error *err)
{
    int32_t *predicted = flim_alloc((size_t)n, sizeof *predicted, err);
    if (!predicted) {
        return FLIM_ERROR_MEMORY;
    }
    for (int64_t i = 0; i < n; i++) {
        predicted[i] = flim_predicted_class(classes, logits + i * logits_of(classes), threshold);
    }
    flim_status status = flim_metrics_of_decisions(n, classes, label, logits, predicted, out, err);
    flim_free(predicted);
    return status;
}

void flim_mean_sd(const double *v, int n, double *mean, double *sd, int *used)
{
    double sum = 0, squares = 0;
    *used = 0;
    for (int i = 0; i < n; i++) {
        if (!isnan(v[i])) {
            sum += v[i];
            ++*used;
        }
    }
    *mean = *used ? sum / *used : NAN;
    for (int i = 0; i < n; i++) {
        if (!isnan(v[i])) {
            squares += (v[i] - *mean) * (v[i] - *mean);
        }
    }
    *sd = *used > 1 ? sqrt(squares / (*used - 1)) : NAN;
}
