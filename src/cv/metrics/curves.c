#include "cv/metrics/curves.h"

#include <math.h>

#include "core/try.h"
#include "core/alloc.h"
#include "flim/metrics.h"

/* Counts the cells that share the score of place i; returns the place after them. */
static int64_t tied(const flim_ranking *r, int64_t i, int64_t *positives, int64_t *negatives)
{
    int64_t j = i;
    *positives = *negatives = 0;
    for (; j < r->n && r->ranked[j].score == r->ranked[i].score; j++) {
        int64_t item = r->ranked[j].item, weight = r->weight ? r->weight[item] : 1;
        *(r->label[item] == r->positive ? positives : negatives) += weight;
    }
    return j;
}

double flim_ranking_auc(const flim_ranking *r)
{
    /* Twice the number of (positive, negative) pairs in the right order, ties one each: whole numbers, so exact. */
    int64_t twice = 0, positives = 0, negatives = 0, p, n;
    for (int64_t i = 0; i < r->n;) {
        i = tied(r, i, &p, &n);
        twice += n * (2 * positives + p);
        positives += p;
        negatives += n;
    }
    if (positives == 0 || negatives == 0) {
        return NAN;
    }
    return (double)twice / (2.0 * (double)positives * (double)negatives);
}

double flim_ranking_average_precision(const flim_ranking *r)
{
    double sum = 0;
    int64_t hits = 0, seen = 0, p, n;
    for (int64_t i = 0; i < r->n;) {
        i = tied(r, i, &p, &n);
        hits += p;
        seen += p + n;
        sum += p ? (double)p * ((double)hits / (double)seen) : 0;
    }
    return hits && hits < seen ? sum / (double)hits : NAN; /* of positives alone any order has 1 */
}

flim_status flim_roc_auc(int64_t n, const uint8_t *positive, const double *score, double *auc, flim_error *err)
{
    *auc = NAN;
    for (int64_t i = 0; i < n; i++) {
        if (isnan(score[i])) {
            return FLIM_OK;
        }
    }
    flim_status status = FLIM_OK;
    flim_ranked *ranked = flim_alloc((size_t)n, sizeof *ranked, err);
    int32_t *label = flim_alloc((size_t)n, sizeof *label, err);
    FLIM_TRY_DONE(ranked && label ? FLIM_OK : FLIM_ERROR_MEMORY);
    for (int64_t i = 0; i < n; i++) {
        label[i] = positive[i] != 0;
    }
    flim_rank_descending(n, score, ranked);
    *auc = flim_ranking_auc(&(flim_ranking){.n = n, .ranked = ranked, .label = label, .positive = 1});
done:
    flim_free(ranked);
    flim_free(label);
    return status;
}
