/* The choice of the probability threshold on validation cells. */
#include <math.h>

#include "core/alloc.h"
#include "core/try.h"
#include "cv/metrics/rank.h"
#include "flim/metrics.h"

/* A threshold t with not (low > t) and high > t: midway, even if low and high are neighbouring doubles. */
static double between(double low, double high)
{
    double middle = low + (high - low) / 2;
    return middle < high ? middle : low;
}

static double objective_of(flim_objective objective, int64_t hits, int64_t alarms, int64_t positives, int64_t negatives)
{
    if (objective == FLIM_OBJECTIVE_F1) {
        return 2.0 * (double)hits / (double)(hits + alarms + positives); /* positives > 0 */
    }
    /* Balanced accuracy as a whole number over 2 * positives * negatives: ties compare exactly. */
    return (double)(hits * negatives + (negatives - alarms) * positives);
}

/* Midway between the means of the two groups, split where the sum of squares between them is largest; 0.5 if all scores are
 * equal.  ranked (n >= 1), descending. */
static double between_centres(int64_t n, const flim_ranked *ranked)
{
    double all = 0, high = 0, most = 0, threshold = 0.5;
    for (int64_t i = 0; i < n; i++) {
        all += ranked[i].score;
    }
    for (int64_t i = 0; i + 1 < n; i++) {
        high += ranked[i].score;
        if (ranked[i].score == ranked[i + 1].score) {
            continue;
        }
        const double above = (double)(i + 1), below = (double)(n - i - 1), top = high / above, bottom = (all - high) / below;
        const double between_groups = above * below * (top - bottom) * (top - bottom);
        if (between_groups >= most) {
            most = between_groups;
            threshold = bottom + (top - bottom) / 2;
        }
    }
    return threshold;
}

flim_status flim_choose_threshold_for(flim_objective objective, int64_t n, const int32_t *label, const float *logits,
                                      double *threshold, flim_error *err)
{
    *threshold = 0.5;
    flim_status status = FLIM_OK;
    double *probability = flim_alloc((size_t)n, 2 * sizeof *probability, err);
    flim_ranked *ranked = flim_alloc((size_t)n, sizeof *ranked, err);
    FLIM_TRY_DONE(probability && ranked ? FLIM_OK : FLIM_ERROR_MEMORY);
    /* Scores are the probabilities that the threshold will be held against, not logits: if the sigmoid has saturated, no
     * threshold on the probability can tell two cells apart, and none must be promised. */
    flim_probabilities(n, 2, logits, probability);
    int64_t positives = 0, negatives = 0;
    for (int64_t i = 0; i < n; i++) {
        probability[i] = probability[2 * i + 1];
        positives += label[i] == 1;
        negatives += label[i] == 0;
        if (isnan(probability[i])) {
            goto done; /* a diverged network: nothing to choose */
        }
    }
    if (n == 0 || (objective != FLIM_OBJECTIVE_KMEANS && (positives == 0 || negatives == 0))) {
        goto done;
    }
    flim_rank_descending(n, probability, ranked);
    if (objective == FLIM_OBJECTIVE_KMEANS) {
        *threshold = between_centres(n, ranked);
        goto done;
    }
    double best = objective_of(objective, 0, 0, positives, negatives); /* above all scores: everything is class 0 */
    double chosen = between(ranked[0].score, 1.0);
    int64_t hits = 0, alarms = 0;
    for (int64_t i = 0; i < n; i++) {
        hits += label[ranked[i].item] == 1;
        alarms += label[ranked[i].item] == 0;
        double next = i + 1 < n ? ranked[i + 1].score : 0.0;
        if (ranked[i].score == next) {
            continue; /* inside a tie, or a probability of exactly 0, which no threshold can call class 1 */
        }
        double value = objective_of(objective, hits, alarms, positives, negatives);
        double candidate = between(next, ranked[i].score);
        if (value > best || (value == best && fabs(candidate - 0.5) < fabs(chosen - 0.5))) {
            best = value;
            chosen = candidate;
        }
    }
    *threshold = chosen;
done:
    flim_free(probability);
    flim_free(ranked);
    return status;
}
