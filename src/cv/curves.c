#include "cv/curves.h"

#include <math.h>

#include "core/alloc.h"
#include "flim/metrics.h"

double flim_ranked_auc(int64_t n, const flim_ranked *ranked, const uint8_t *positive)
{
    /* Twice the number of (positive, negative) pairs in the right order, ties one each: whole numbers, so exact. */
    int64_t twice = 0, positives = 0, negatives = 0;
    for (int64_t i = 0; i < n;) {
        int64_t tied_positives = 0, tied_negatives = 0, j = i;
        for (; j < n && ranked[j].score == ranked[i].score; j++) {
            tied_positives += positive[ranked[j].item] != 0;
            tied_negatives += positive[ranked[j].item] == 0;
        }
        twice += tied_negatives * (2 * positives + tied_positives);
        positives += tied_positives;
        negatives += tied_negatives;
        i = j;
    }
    if (positives == 0 || negatives == 0) {
        return NAN;
    }
    return (double)twice / (2.0 * (double)positives * (double)negatives);
}

double flim_ranked_average_precision(int64_t n, const flim_ranked *ranked, const uint8_t *positive)
{
    double sum = 0;
    int64_t hits = 0;
    for (int64_t i = 0; i < n;) {
        int64_t before = hits, j = i;
        for (; j < n && ranked[j].score == ranked[i].score; j++) {
            hits += positive[ranked[j].item] != 0;
        }
        sum += (double)(hits - before) * ((double)hits / (double)j);
        i = j;
    }
    return hits ? sum / (double)hits : NAN;
}

flim_status flim_roc_auc(int64_t n, const uint8_t *positive, const double *score, double *auc, flim_error *err)
{
    *auc = NAN;
    for (int64_t i = 0; i < n; i++) {
        if (isnan(score[i])) {
            return FLIM_OK;
        }
    }
    flim_ranked *ranked = flim_alloc((size_t)n, sizeof *ranked, err);
    if (!ranked) {
        return FLIM_ERROR_MEMORY;
    }
    flim_rank_descending(n, score, ranked);
    *auc = flim_ranked_auc(n, ranked, positive);
    flim_free(ranked);
    return FLIM_OK;
}
