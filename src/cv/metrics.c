#include "flim/metrics.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "core/alloc.h"
#include "cv/curves.h"

enum { ECE_BINS = 15 };

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

static double ratio(double part, double whole)
{
    return whole > 0 ? part / whole : 0; /* sklearn's zero_division=0 */
}

/* The metrics of a confusion matrix, matrix[true * K + predicted]. */
static void from_matrix(int classes, const int64_t *matrix, int64_t n, double *value)
{
    double precision = 0, recall = 0, specificity = 0, f1 = 0, balanced = 0;
    double one_precision = 0, one_recall = 0, one_specificity = 0, one_f1 = 0; /* of class 1 */
    double agree = 0, true_predicted = 0, predicted_squares = 0, true_squares = 0;
    int present = 0;
    for (int c = 0; c < classes; c++) {
        int64_t row = 0, column = 0;
        for (int d = 0; d < classes; d++) {
            row += matrix[c * classes + d];
            column += matrix[d * classes + c];
        }
        double hits = (double)matrix[c * classes + c], truth = (double)row, said = (double)column;
        double p = ratio(hits, said), r = ratio(hits, truth);
        double s = ratio((double)(n - row - column) + hits, (double)(n - row)), f = ratio(2 * hits, truth + said);
        precision += p / classes;
        recall += r / classes;
        specificity += s / classes;
        f1 += f / classes;
        present += row > 0;
        balanced += r;
        if (c == 1) {
            one_precision = p;
            one_recall = r;
            one_specificity = s;
            one_f1 = f;
        }
        agree += hits;
        true_predicted += truth * said;
        predicted_squares += said * said;
        true_squares += truth * truth;
    }
    bool two = classes == 2;
    value[FLIM_ACCURACY] = agree / (double)n;
    value[FLIM_BALANCED_ACCURACY] = balanced / present;
    value[FLIM_PRECISION_SCORE] = two ? one_precision : precision;
    value[FLIM_RECALL] = two ? one_recall : recall;
    value[FLIM_SPECIFICITY] = two ? one_specificity : specificity;
    value[FLIM_F1] = two ? one_f1 : f1;
    value[FLIM_MACRO_F1] = f1;
    /* Gorodkin's R_K, as sklearn's matthews_corrcoef; 0 where labels or predictions are constant. */
    double total = (double)n;
    double spread = (total * total - predicted_squares) * (total * total - true_squares);
    value[FLIM_MCC] = spread > 0 ? (agree * total - true_predicted) / sqrt(spread) : 0;
}

/* log(p_c / (1 - p_c)) of the softmax: the same order as p_c, but it never saturates.  The other logits are summed in order
 * of size, so that cells that differ only by a permutation of them tie exactly. */
static double log_odds(int classes, const float *logits, int c, double *scratch)
{
    int m = 0;
    for (int d = 0; d < classes; d++) {
        if (d != c) {
            double x = (double)logits[d];
            int at = m++;
            for (; at > 0 && scratch[at - 1] > x; at--) {
                scratch[at] = scratch[at - 1];
            }
            scratch[at] = x;
        }
    }
    double sum = 0;
    for (int d = 0; d < m; d++) {
        sum += exp(scratch[d] - scratch[m - 1]);
    }
    return ((double)logits[c] - scratch[m - 1]) - log(sum);
}

/* ROC AUC and average precision: of class 1 with two classes, else the mean over the classes, each against the rest. */
static flim_status rank_metrics(int64_t n, int classes, const int32_t *label, const float *logits, double *value,
                                flim_error *err)
{
    flim_status status = FLIM_OK;
    double *score = flim_alloc((size_t)n, sizeof *score, err);
    double *scratch = flim_alloc((size_t)classes, sizeof *scratch, err);
    uint8_t *positive = flim_alloc((size_t)n, 1, err);
    flim_ranked *ranked = flim_alloc((size_t)n, sizeof *ranked, err);
    if (!score || !scratch || !positive || !ranked) {
        status = FLIM_ERROR_MEMORY;
        goto done;
    }
    double auc = 0, precision = 0; /* NaN in one class makes the mean NaN */
    int first = classes == 2 ? 1 : 0;
    for (int c = first; c < classes; c++) {
        for (int64_t i = 0; i < n; i++) {
            score[i] = classes == 2 ? (double)logits[i] : log_odds(classes, logits + i * classes, c, scratch);
            positive[i] = label[i] == c;
        }
        flim_rank_descending(n, score, ranked);
        auc += flim_ranked_auc(n, ranked, positive);
        precision += flim_ranked_average_precision(n, ranked, positive);
    }
    value[FLIM_ROC_AUC] = auc / (classes - first);
    value[FLIM_AVERAGE_PRECISION] = precision / (classes - first);
done:
    flim_free(score);
    flim_free(scratch);
    flim_free(positive);
    flim_free(ranked);
    return status;
}

/* Log loss, Brier score and expected calibration error. */
static flim_status probability_metrics(int64_t n, int classes, const int32_t *label, const float *logits, double *value,
                                       flim_error *err)
{
    double *p = flim_alloc((size_t)classes, sizeof *p, err);
    if (!p) {
        return FLIM_ERROR_MEMORY;
    }
    double brier = 0, confidence[ECE_BINS] = {0}, right[ECE_BINS] = {0};
    for (int64_t i = 0; i < n; i++) {
        const float *x = logits + i * logits_of(classes);
        probabilities_of(classes, x, p);
        int32_t winner = flim_predicted_class(classes, x, 0.5);
        for (int c = classes == 2 ? 1 : 0; c < classes; c++) {
            double miss = p[c] - (label[i] == c);
            brier += miss * miss;
        }
        int bin = (int)ceil(p[winner] * ECE_BINS) - 1; /* bins (0, 1/15], (1/15, 2/15], ... */
        bin = bin < 0 ? 0 : bin;
        confidence[bin] += p[winner];
        right[bin] += winner == label[i];
    }
    double ece = 0;
    for (int b = 0; b < ECE_BINS; b++) {
        ece += fabs(right[b] - confidence[b]);
    }
    value[FLIM_LOG_LOSS] = flim_mean_loss(n, classes, label, logits);
    value[FLIM_BRIER] = brier / (double)n;
    value[FLIM_ECE] = ece / (double)n;
    flim_free(p);
    return FLIM_OK;
}

flim_status flim_metrics_compute(int64_t n, int classes, const int32_t *label, const float *logits, double threshold,
                                 flim_metrics *out, flim_error *err)
{
    flim_status status = FLIM_OK;
    int64_t *matrix = NULL;
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
    matrix = flim_alloc((size_t)classes * (size_t)classes, sizeof *matrix, err);
    if (!matrix) {
        return FLIM_ERROR_MEMORY;
    }
    for (int64_t i = 0; i < n; i++) {
        int32_t predicted = flim_predicted_class(classes, logits + i * logits_of(classes), threshold);
        matrix[label[i] * classes + predicted]++;
    }
    from_matrix(classes, matrix, n, out->value);
    status = rank_metrics(n, classes, label, logits, out->value, err);
    if (status == FLIM_OK) {
        status = probability_metrics(n, classes, label, logits, out->value, err);
    }
    flim_free(matrix);
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
