#include "cv/metrics/scores.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/try.h"
#include "core/alloc.h"
#include "core/median.h"
#include "cv/metrics/curves.h"
#include "flim/network.h"

/* Scratch of log_odds, (classes) each but the sums, (classes + 1). */
typedef struct odds_scratch {
    double *sorted, *below, *above;
} odds_scratch;

/* Sums of exp(x - most) over the first k of sorted (n), ascending, and over those from k on, descending. */
static void partial_sums(const double *sorted, int n, double most, double *below, double *above)
{
    below[0] = above[n] = 0;
    for (int k = 0; k < n; k++) {
        below[k + 1] = below[k] + exp(sorted[k] - most);
    }
    for (int k = n; k-- > 0;) {
        above[k] = above[k + 1] + exp(sorted[k] - most);
    }
}

/* odds (classes): log(p_c / (1 - p_c)) of the softmax: the same order as p_c, but it never saturates.  The other logits are
 * summed in order of size, less the first of those that equal the class's own, so that cells that differ only by a
 * permutation of them tie exactly. */
static void log_odds(int classes, const float *logits, const odds_scratch *s, double *odds)
{
    for (int c = 0; c < classes; c++) {
        s->sorted[c] = (double)logits[c];
    }
    qsort(s->sorted, (size_t)classes, sizeof *s->sorted, flim_compare_doubles);
    const double most = s->sorted[classes - 1], second = s->sorted[classes - 2];
    partial_sums(s->sorted, classes, most, s->below, s->above);
    double under = 0; /* sum of the others of the most probable class, against the second */
    for (int k = 0; k < classes - 1; k++) {
        under += exp(s->sorted[k] - second);
    }
    for (int c = 0; c < classes; c++) {
        const double own = (double)logits[c];
        if (own == most && second < most) {
            odds[c] = own - second - log(fmax(under, 1)); /* >= 1: the largest adds exp(0) */
            continue;
        }
        int first = 0, end = classes - 1; /* the first that is not below own */
        while (first < end) {
            const int middle = (first + end) / 2;
            first = s->sorted[middle] < own ? middle + 1 : first;
            end = s->sorted[middle] < own ? end : middle;
        }
        odds[c] = own - most - log(fmax(s->below[first] + s->above[first + 1], 1));
    }
}

void flim_scores_free(flim_scores *scores)
{
    flim_free(scores->ranked);
    flim_free(scores->loss);
    flim_free(scores->brier);
    flim_free(scores->confidence);
    flim_free(scores->bin);
    flim_free(scores->right);
    flim_free(scores->matrix);
    *scores = (flim_scores){0};
}

/* What the probabilities say of each cell.  p: (classes) scratch. */
static void score_cells(flim_scores *s, const float *logits, double *p)
{
    int outputs = flim_class_outputs(s->classes);
    for (int64_t i = 0; i < s->n; i++) {
        const float *x = logits + i * outputs;
        flim_probabilities(1, s->classes, x, p);
        int32_t winner = flim_predicted_class(s->classes, x, 0.5);
        for (int c = s->first; c < s->classes; c++) {
            double miss = p[c] - (s->label[i] == c);
            s->brier[i] += miss * miss;
        }
        int bin = (int)ceil(p[winner] * FLIM_ECE_BINS) - 1; /* bins (0, 1/15], (1/15, 2/15], ... */
        s->bin[i] = (uint8_t)(bin < 0 ? 0 : bin);
        s->confidence[i] = p[winner];
        s->right[i] = winner == s->label[i];
        s->loss[i] = flim_mean_loss(1, s->classes, s->label + i, x);
    }
}

flim_status flim_scores_make(int64_t n, int classes, const int32_t *label, const float *logits, const int32_t *predicted,
                             flim_scores *out, flim_error *err)
{
    int first = classes == 2 ? 1 : 0;
    *out = (flim_scores){.n = n, .classes = classes, .first = first, .label = label, .predicted = predicted};
    flim_status status = FLIM_OK;
    size_t cells = (size_t)n;
    double *scratch = flim_alloc((size_t)classes, 5 * sizeof *scratch, err);
    out->ranked = flim_alloc(cells * (size_t)(classes - first), sizeof *out->ranked, err);
    out->loss = flim_alloc(cells, sizeof *out->loss, err);
    out->brier = flim_alloc(cells, sizeof *out->brier, err);
    out->confidence = flim_alloc(cells, sizeof *out->confidence, err);
    out->bin = flim_alloc(cells, sizeof *out->bin, err);
    out->right = flim_alloc(cells, sizeof *out->right, err);
    out->matrix = flim_alloc((size_t)classes * (size_t)classes, sizeof *out->matrix, err);
    FLIM_TRY_DONE(scratch && out->ranked && out->loss && out->brier && out->confidence && out->bin && out->right &&
                          out->matrix
                      ? FLIM_OK
                      : FLIM_ERROR_MEMORY);
    for (int64_t i = 0; i < n; i++) {
        const odds_scratch odds = {scratch + classes, scratch + 2 * classes, scratch + 3 * classes + 1};
        if (classes == 2) {
            scratch[1] = (double)logits[i];
        } else {
            log_odds(classes, logits + i * classes, &odds, scratch);
        }
        for (int c = first; c < classes; c++) {
            out->ranked[(c - first) * n + i] = (flim_ranked){.score = scratch[c], .item = i};
        }
    }
    for (int c = first; c < classes; c++) {
        flim_rank_sort(n, out->ranked + (c - first) * n);
    }
    score_cells(out, logits, scratch);
done:
    flim_free(scratch);
    if (status != FLIM_OK) {
        flim_scores_free(out);
    }
    return status;
}

static double ratio(double part, double whole)
{
    return whole > 0 ? part / whole : 0; /* sklearn's zero_division=0 */
}

/* The metrics of a confusion matrix, matrix[true * K + predicted]. */
static void from_matrix(int classes, const int64_t *matrix, double *value)
{
    double precision = 0, recall = 0, specificity = 0, f1 = 0, balanced = 0;
    double one_precision = 0, one_recall = 0, one_specificity = 0, one_f1 = 0; /* of class 1 */
    double agree = 0, true_predicted = 0, predicted_squares = 0, true_squares = 0;
    int present = 0;
    int64_t n = 0;
    for (int i = 0; i < classes * classes; i++) {
        n += matrix[i];
    }
    for (int c = 0; c < classes; c++) {
        int64_t row = 0, column = 0;
        for (int d = 0; d < classes; d++) {
            row += matrix[c * classes + d];
            column += matrix[d * classes + c];
        }
        double hits = (double)matrix[c * classes + c], truth = (double)row, said = (double)column;
        double p = ratio(hits, said), f = ratio(2 * hits, truth + said);
        /* Of no cells there is no share, and a mean over classes with one that is undefined is undefined, too. */
        double r = row ? hits / truth : NAN;
        double s = n > row ? ((double)(n - row - column) + hits) / (double)(n - row) : NAN;
        precision += p / classes;
        recall += r / classes;
        specificity += s / classes;
        f1 += f / classes;
        present += row > 0;
        balanced += row ? r : 0;
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
    /* Gorodkin's R_K, as sklearn's matthews_corrcoef; 0 if labels or predictions are constant. */
    double total = (double)n;
    double spread = (total * total - predicted_squares) * (total * total - true_squares);
    value[FLIM_MCC] = spread > 0 ? (agree * total - true_predicted) / sqrt(spread) : 0;
}

void flim_scores_metrics(flim_scores *s, const int64_t *weight, double value[FLIM_N_METRICS])
{
    double total = 0, loss = 0, brier = 0, off[FLIM_ECE_BINS] = {0}, ece = 0;
    memset(s->matrix, 0, (size_t)s->classes * (size_t)s->classes * sizeof *s->matrix);
    for (int64_t i = 0; i < s->n; i++) {
        int64_t times = weight ? weight[i] : 1;
        double w = (double)times;
        s->matrix[s->label[i] * s->classes + s->predicted[i]] += times;
        total += w;
        loss += w * s->loss[i];
        brier += w * s->brier[i];
        off[s->bin[i]] += w * (s->right[i] - s->confidence[i]);
    }
    from_matrix(s->classes, s->matrix, value);
    double auc = 0, precision = 0; /* NaN in one class makes the mean NaN */
    for (int c = s->first; c < s->classes; c++) {
        const flim_ranking ranking = {.n = s->n,
                                      .ranked = s->ranked + (int64_t)(c - s->first) * s->n,
                                      .label = s->label,
                                      .positive = c,
                                      .weight = weight};
        auc += flim_ranking_auc(&ranking);
        precision += flim_ranking_average_precision(&ranking);
    }
    value[FLIM_ROC_AUC] = auc / (s->classes - s->first);
    value[FLIM_AVERAGE_PRECISION] = precision / (s->classes - s->first);
    for (int b = 0; b < FLIM_ECE_BINS; b++) {
        ece += fabs(off[b]);
    }
    value[FLIM_LOG_LOSS] = loss / total;
    value[FLIM_BRIER] = brier / total;
    value[FLIM_ECE] = ece / total;
}
