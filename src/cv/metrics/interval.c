#include "cv/metrics/interval.h"

#include <math.h>
#include <stdlib.h>

#include "core/try.h"
#include "core/alloc.h"
#include "core/median.h"
#include "cv/metrics/scores.h"
#include "flim/random.h"

double flim_quantile(const double *v, int n, double q)
{
    double at = q * (n - 1);
    int below = (int)floor(at);
    return below + 1 < n ? v[below] + (at - below) * (v[below + 1] - v[below]) : v[n - 1];
}

/* times (units): how often each group (or cell) is drawn in a replicate; then weight (n) of each cell. */
static void draw(const flim_scored *s, int64_t units, flim_random *random, int64_t *times, int64_t *weight)
{
    for (int64_t u = 0; u < units; u++) {
        times[u] = 0;
    }
    for (int64_t u = 0; u < units; u++) {
        times[flim_random_below(random, (uint64_t)units)]++;
    }
    for (int64_t i = 0; i < s->n; i++) {
        weight[i] = times[s->group ? s->group[i] : i];
    }
}

/* Groups numbered without gaps: a group number that no cell has must not be drawn. */
static flim_status number_groups(const flim_scored *s, int64_t *group, int64_t *groups, flim_error *err)
{
    int64_t *number = flim_alloc((size_t)s->groups, sizeof *number, err);
    if (!number) {
        return FLIM_ERROR_MEMORY;
    }
    *groups = 0;
    for (int64_t i = 0; i < s->n; i++) {
        int64_t *n = &number[s->group[i]];
        if (*n == 0) {
            *n = ++*groups;
        }
        group[i] = *n - 1;
    }
    flim_free(number);
    return FLIM_OK;
}

flim_status flim_bootstrap(const flim_scored *scored, int replicates, double level, uint64_t seed,
                           flim_interval interval[FLIM_N_METRICS], int used[FLIM_N_METRICS], flim_error *err)
{
    for (int m = 0; m < FLIM_N_METRICS; m++) {
        interval[m] = (flim_interval){NAN, NAN};
        used[m] = 0;
    }
    flim_scored s = *scored;
    flim_scores scores = {0};
    flim_status status = FLIM_OK;
    size_t n = (size_t)s.n;
    int64_t units = s.n;
    int64_t *group = NULL, *times = flim_alloc(n, sizeof *times, err), *weight = flim_alloc(n, sizeof *weight, err);
    double *value = flim_alloc((size_t)replicates * FLIM_N_METRICS, sizeof *value, err); /* (metrics, replicates) */
    FLIM_TRY_DONE(times && weight && value ? FLIM_OK : FLIM_ERROR_MEMORY);
    if (s.group) {
        group = flim_alloc(n, sizeof *group, err);
        FLIM_TRY_DONE(group ? number_groups(&s, group, &units, err) : FLIM_ERROR_MEMORY);
        s.group = group;
    }
    if (units < 2) {
        goto done;
    }
    FLIM_TRY_DONE(flim_scores_make(s.n, s.classes, s.label, s.logits, s.predicted, &scores, err));
    for (int r = 0; r < replicates; r++) {
        double metrics[FLIM_N_METRICS];
        flim_random random = flim_random_begin(&(flim_cell_id){.seed = seed, .epoch = (uint32_t)r}, FLIM_RANDOM_BOOTSTRAP);
        draw(&s, units, &random, times, weight);
        flim_scores_metrics(&scores, weight, metrics);
        for (int m = 0; m < FLIM_N_METRICS; m++) {
            if (!isnan(metrics[m])) {
                value[m * replicates + used[m]++] = metrics[m];
            }
        }
    }
    for (int m = 0; m < FLIM_N_METRICS; m++) {
        double *v = value + m * replicates;
        qsort(v, (size_t)used[m], sizeof *v, flim_compare_doubles);
        if (used[m] > 0 && used[m] >= replicates / 2) {
            interval[m] =
                (flim_interval){flim_quantile(v, used[m], (1 - level) / 2), flim_quantile(v, used[m], (1 + level) / 2)};
        }
    }
done:
    flim_scores_free(&scores);
    flim_free(group);
    flim_free(times);
    flim_free(weight);
    flim_free(value);
    return status;
}

/* z with a standard normal probability of `level` between -z and z, by bisection of erfc. */
static double normal_width(double level)
{
    double low = 0, high = 40;
    for (int i = 0; i < 200; i++) {
        double middle = (low + high) / 2;
        if (erfc(middle / sqrt(2)) > 1 - level) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

flim_status flim_delong(int64_t n, const uint8_t *positive, const double *score, double level, double *auc, double *se,
                        flim_interval *interval, flim_error *err)
{
    *auc = *se = NAN;
    *interval = (flim_interval){NAN, NAN};
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
    double all_positives = 0, all_negatives = 0;
    for (int64_t i = 0; i < n; i++) {
        all_positives += positive[i] != 0;
        all_negatives += positive[i] == 0;
    }
    /* The placement of a positive is the share of negatives below it (ties half), that of a negative the share of positives
     * above it.  AUC is the mean of either; its variance is the sum of both variances over their counts. */
    double sums[2] = {0, 0}, squares[2] = {0, 0}, positives = 0, negatives = 0;
    for (int64_t i = 0; i < n;) {
        double p = 0, q = 0;
        int64_t j = i;
        for (; j < n && ranked[j].score == ranked[i].score; j++) {
            p += positive[ranked[j].item] != 0;
            q += positive[ranked[j].item] == 0;
        }
        double of_positive = (all_negatives - negatives - q / 2) / all_negatives;
        double of_negative = (positives + p / 2) / all_positives;
        sums[0] += p * of_positive;
        squares[0] += p > 0 ? p * of_positive * of_positive : 0;
        sums[1] += q > 0 ? q * of_negative : 0;
        squares[1] += q > 0 ? q * of_negative * of_negative : 0;
        positives += p;
        negatives += q;
        i = j;
    }
    flim_free(ranked);
    if (all_positives == 0 || all_negatives == 0) {
        return FLIM_OK;
    }
    *auc = sums[0] / all_positives;
    if (all_positives < 2 || all_negatives < 2) {
        return FLIM_OK;
    }
    double of_positives = (squares[0] - all_positives * *auc * *auc) / (all_positives - 1);
    double of_negatives = (squares[1] - all_negatives * *auc * *auc) / (all_negatives - 1);
    *se = sqrt(fmax(of_positives, 0) / all_positives + fmax(of_negatives, 0) / all_negatives);
    double half = normal_width(level) * *se;
    *interval = (flim_interval){fmax(*auc - half, 0), fmin(*auc + half, 1)};
    return FLIM_OK;
}

/* The regularised incomplete beta function I_x(a, b) by Lentz's continued fraction (Abramowitz & Stegun 26.5.8). */
static double incomplete_beta(double a, double b, double x)
{
    if (x <= 0 || x >= 1) {
        return x <= 0 ? 0 : 1;
    }
    if (x > (a + 1) / (a + b + 2)) {
        return 1 - incomplete_beta(b, a, 1 - x);
    }
    const double tiny = 1e-300;
    double front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x)) / a;
    double c = 1, d = 1 - (a + b) * x / (a + 1);
    d = 1 / (fabs(d) < tiny ? tiny : d);
    double fraction = d;
    for (int m = 1; m < 1000; m++) {
        double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
        double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
        double term[2] = {even, odd}, change = 1;
        for (int i = 0; i < 2; i++) {
            d = 1 + term[i] * d;
            c = 1 + term[i] / c;
            d = 1 / (fabs(d) < tiny ? tiny : d);
            c = fabs(c) < tiny ? tiny : c;
            change = c * d;
            fraction *= change;
        }
        if (fabs(change - 1) < 1e-15) {
            break;
        }
    }
    return front * fraction;
}

double flim_student_p(double t, double df)
{
    return incomplete_beta(df / 2, 0.5, df / (df + t * t));
}

/* The t that is exceeded on both sides with probability p, by bisection: it is asked for once per table row. */
static double student_width(double p, double df)
{
    double low = 0, high = 1;
    while (flim_student_p(high, df) > p) {
        high *= 2;
    }
    for (int i = 0; i < 100; i++) {
        const double middle = (low + high) / 2;
        *(flim_student_p(middle, df) > p ? &low : &high) = middle;
    }
    return (low + high) / 2;
}

flim_paired_test flim_corrected_t_test(const double *a, const double *b, int k, double test_share)
{
    flim_paired_test out = {NAN, NAN, NAN, {NAN, NAN}};
    double sum = 0, squares = 0;
    int used = 0;
    for (int i = 0; i < k; i++) {
        if (!isnan(a[i]) && !isnan(b[i])) {
            sum += b[i] - a[i];
            used++;
        }
    }
    if (used == 0) {
        return out;
    }
    out.difference = sum / used;
    for (int i = 0; i < k; i++) {
        if (!isnan(a[i]) && !isnan(b[i])) {
            double off = b[i] - a[i] - out.difference;
            squares += off * off;
        }
    }
    if (used < 2 || squares <= 0) {
        return out; /* no spread to hold the difference against */
    }
    const double df = used - 1, error = sqrt((1.0 / used + test_share) * squares / df),
                 half = student_width(0.05, df) * error;
    out.statistic = out.difference / error;
    out.p = flim_student_p(out.statistic, df);
    out.interval = (flim_interval){out.difference - half, out.difference + half};
    return out;
}

flim_paired_test flim_mcnemar(int64_t only_a, int64_t only_b)
{
    double n = (double)(only_a + only_b), sum = 0;
    flim_paired_test out = {.difference = (double)(only_b - only_a), .statistic = NAN, .p = 1, .interval = {NAN, NAN}};
    int64_t fewer = only_a < only_b ? only_a : only_b;
    if (n == 0) {
        return out;
    }
    out.statistic = (double)fewer;
    for (int64_t i = 0; i <= fewer; i++) {
        double x = (double)i;
        sum += exp(lgamma(n + 1) - lgamma(x + 1) - lgamma(n - x + 1) - n * log(2));
    }
    out.p = fmin(1, 2 * sum);
    return out;
}
