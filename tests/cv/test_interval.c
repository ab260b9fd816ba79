/* Intervals and paired tests: DeLong against its definition, p values against scipy's, the bootstrap against what it must do. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/alloc.h"
#include "cv/metrics/interval.h"
#include "flim/random.h"

enum { CELLS = 400 };

/* The definition: placements by counting all pairs. */
static double slow_delong(int n, const uint8_t *positive, const double *score, double *auc)
{
    double placement[CELLS], sum[2] = {0, 0}, count[2] = {0, 0}, variance = 0;
    for (int i = 0; i < n; i++) {
        double right = 0, other = 0;
        for (int j = 0; j < n; j++) {
            if (positive[j] != positive[i]) {
                double sign = positive[i] ? score[i] - score[j] : score[j] - score[i];
                right += sign > 0 ? 1 : sign == 0 ? 0.5 : 0;
                other++;
            }
        }
        placement[i] = right / other;
        sum[positive[i]] += placement[i];
        count[positive[i]]++;
    }
    *auc = sum[1] / count[1];
    for (int i = 0; i < n; i++) {
        double off = placement[i] - *auc, m = count[positive[i]];
        variance += off * off / (m - 1) / m;
    }
    return sqrt(variance);
}

static void delong_follows_its_definition(void **state)
{
    (void)state;
    flim_random random = flim_random_begin(&(flim_cell_id){.seed = 2}, FLIM_RANDOM_SIMULATE);
    for (int round = 0; round < 500; round++) {
        int n = 4 + (int)flim_random_below(&random, 40);
        uint8_t positive[CELLS];
        double score[CELLS], auc, se, want;
        for (int i = 0; i < n; i++) {
            positive[i] = i < 2 ? 0 : i < 4 ? 1 : (uint8_t)flim_random_below(&random, 2);
            score[i] = floor(4 * (flim_random_normal(&random) + positive[i])) / (round % 2 ? 4 : 1);
        }
        flim_interval interval;
        assert_int_equal(flim_delong(n, positive, score, 0.95, &auc, &se, &interval, NULL), FLIM_OK);
        double want_se = slow_delong(n, positive, score, &want);
        assert_true(fabs(auc - want) < 1e-12 && fabs(se - want_se) < 1e-12);
        assert_true(fabs(interval.low - fmax(0, auc - 1.959963984540054 * se)) < 1e-12);
        assert_true(fabs(interval.high - fmin(1, auc + 1.959963984540054 * se)) < 1e-12);
    }
    double auc, se;
    flim_interval interval;
    assert_int_equal(flim_delong(3, (uint8_t[]){1, 1, 1}, (double[]){1, 2, 3}, 0.95, &auc, &se, &interval, NULL), FLIM_OK);
    assert_true(isnan(auc) && isnan(se) && isnan(interval.low));
    assert_int_equal(flim_delong(3, (uint8_t[]){0, 1, 1}, (double[]){1, 2, 3}, 0.95, &auc, &se, &interval, NULL), FLIM_OK);
    assert_true(auc == 1 && isnan(se) && isnan(interval.low));
}

/* p values computed with scipy 1.10: stats.t.sf, stats.binomtest. */
static void paired_tests_have_scipys_p(void **state)
{
    (void)state;
    const double a[] = {.8, .75, NAN, .9, .6, .7}, b[] = {.85, .8, .5, .88, .7, .78};
    flim_paired_test t = flim_corrected_t_test(a, b, 6, 0.25);
    assert_true(fabs(t.difference - 0.052) < 1e-15);
    assert_true(fabs(t.statistic - 1.7037737155677) < 1e-12);
    assert_true(fabs(t.p - 0.163629801561322) < 1e-12);
    const double half = 2.7764451051977987 * t.difference / t.statistic; /* stats.t.ppf(0.975, 4) */
    assert_true(fabs(t.interval.low - (t.difference - half)) < 1e-12);
    assert_true(fabs(t.interval.high - (t.difference + half)) < 1e-12);
    flim_paired_test two = flim_corrected_t_test((double[]){0, 1}, (double[]){1, 2}, 2, 0.25);
    assert_true(isnan(two.interval.low)); /* no spread */
    two = flim_corrected_t_test((double[]){0, 0}, (double[]){1, 3}, 2, 0.25);
    assert_true(fabs(two.interval.high - 2 - 12.706204736174694 * 2 / two.statistic) < 1e-9); /* ppf(0.975, 1) */
    assert_true(isnan(flim_corrected_t_test(a, a, 6, 0.25).p)); /* no spread */
    assert_true(isnan(flim_corrected_t_test(a, b, 1, 0.25).p));
    assert_true(isnan(flim_corrected_t_test(a + 2, b + 2, 1, 0.25).difference));
    static const struct {
        int64_t only_a, only_b;
        double p;
    } cases[] = {
        {3, 12, 0.03515625}, {12, 3, 0.03515625}, {0, 5, 0.0625}, {7, 7, 1}, {100, 140, 0.01166409231767769}, {0, 0, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        flim_paired_test m = flim_mcnemar(cases[i].only_a, cases[i].only_b);
        assert_true(fabs(m.p - cases[i].p) < 1e-12);
        assert_true(m.difference == (double)(cases[i].only_b - cases[i].only_a));
    }
    /* Large t with many degrees of freedom: 29 df, t = 7.5 */
    double zero[30] = {0}, d[30];
    for (int i = 0; i < 30; i++) {
        d[i] = i % 2 ? 1 : -1;
    }
    double sd = sqrt(30.0 / 29); /* of d; shift so that t = shift / sqrt(var / 30) = 7.5 */
    for (int i = 0; i < 30; i++) {
        d[i] += 7.5 * sd / sqrt(30);
    }
    assert_true(fabs(flim_corrected_t_test(zero, d, 30, 0).p / 2.8841891530650537e-08 - 1) < 1e-9);
}

typedef struct world {
    int32_t label[CELLS], predicted[CELLS];
    float logits[CELLS];
    int64_t group[CELLS];
    flim_scored scored;
} world;

/* Cells are right with probability `right`; where groups, all cells of a group are right or wrong together. */
static void make(world *w, flim_random *random, int n, int group_size, double right)
{
    bool hit = true;
    for (int i = 0; i < n; i++) {
        w->group[i] = i / group_size;
        w->label[i] = i % 2;
        hit = i % group_size == 0 ? flim_random_uniform(random) < right : hit;
        w->predicted[i] = hit ? w->label[i] : 1 - w->label[i];
        w->logits[i] = (w->predicted[i] ? 1.0f : -1.0f) * (float)(0.1 + flim_random_uniform(random));
    }
    w->scored = (flim_scored){.n = n,
                              .classes = 2,
                              .label = w->label,
                              .logits = w->logits,
                              .predicted = w->predicted,
                              .group = w->group,
                              .groups = n / group_size};
}

static void bootstrap_has_the_width_of_its_units(void **state)
{
    (void)state;
    static world w;
    flim_random random = flim_random_begin(&(flim_cell_id){.seed = 3}, FLIM_RANDOM_SIMULATE);
    flim_interval by_group[FLIM_N_METRICS], by_cell[FLIM_N_METRICS], again[FLIM_N_METRICS];
    int used[FLIM_N_METRICS];
    make(&w, &random, 400, 10, 0.8);
    assert_int_equal(flim_bootstrap(&w.scored, 2000, 0.95, 7, by_group, used, NULL), FLIM_OK);
    assert_int_equal(used[FLIM_ACCURACY], 2000);
    assert_int_equal(flim_bootstrap(&w.scored, 2000, 0.95, 7, again, used, NULL), FLIM_OK);
    assert_memory_equal(by_group, again, sizeof again);
    w.scored.group = NULL;
    assert_int_equal(flim_bootstrap(&w.scored, 2000, 0.95, 7, by_cell, used, NULL), FLIM_OK);
    double p = 0;
    for (int i = 0; i < 400; i++) {
        p += w.predicted[i] == w.label[i] ? 1.0 / 400 : 0;
    }
    double cells = 2 * 1.96 * sqrt(p * (1 - p) / 400), groups = 2 * 1.96 * sqrt(p * (1 - p) / 40);
    double width_cells = by_cell[FLIM_ACCURACY].high - by_cell[FLIM_ACCURACY].low;
    double width_groups = by_group[FLIM_ACCURACY].high - by_group[FLIM_ACCURACY].low;
    assert_true(fabs(width_cells / cells - 1) < 0.1);
    assert_true(fabs(width_groups / groups - 1) < 0.1); /* cells that stand and fall together count once a group */
    for (int m = 0; m < FLIM_N_METRICS; m++) {
        assert_true(by_cell[m].low <= by_cell[m].high);
    }
}

/* 95 % intervals hold the truth about 95 % of the time: 200 data sets of 60 groups of 4. */
static void bootstrap_covers(void **state)
{
    (void)state;
    static world w;
    flim_random random = flim_random_begin(&(flim_cell_id){.seed = 5}, FLIM_RANDOM_SIMULATE);
    int covered = 0, rounds = 200;
    for (int r = 0; r < rounds; r++) {
        flim_interval interval[FLIM_N_METRICS];
        int used[FLIM_N_METRICS];
        make(&w, &random, 240, 4, 0.7);
        assert_int_equal(flim_bootstrap(&w.scored, 200, 0.95, (uint64_t)r, interval, used, NULL), FLIM_OK);
        covered += interval[FLIM_ACCURACY].low <= 0.7 && 0.7 <= interval[FLIM_ACCURACY].high;
    }
    assert_true(covered >= 0.89 * rounds && covered <= 0.99 * rounds);
}

static void bootstrap_leaves_out_what_is_undefined(void **state)
{
    (void)state;
    static world w;
    flim_random random = flim_random_begin(&(flim_cell_id){.seed = 6}, FLIM_RANDOM_SIMULATE);
    flim_interval interval[FLIM_N_METRICS];
    int used[FLIM_N_METRICS];
    make(&w, &random, 40, 10, 0.8);
    for (int i = 0; i < 40; i++) { /* class 1 in one group of four: absent from (3/4)^4 = 0.32 of the replicates */
        w.label[i] = w.group[i] == 2;
    }
    assert_int_equal(flim_bootstrap(&w.scored, 1000, 0.95, 1, interval, used, NULL), FLIM_OK);
    assert_true(used[FLIM_ACCURACY] == 1000 && used[FLIM_ROC_AUC] > 600 && used[FLIM_ROC_AUC] < 720);
    assert_true(!isnan(interval[FLIM_ROC_AUC].low));
    w.scored.groups = 9; /* numbers without cells are no groups */
    for (int i = 0; i < 40; i++) {
        w.group[i] = 2 * w.group[i];
    }
    assert_int_equal(flim_bootstrap(&w.scored, 1000, 0.95, 1, interval, used, NULL), FLIM_OK);
    assert_int_equal(used[FLIM_ACCURACY], 1000);
    for (int i = 0; i < 40; i++) { /* one group: nothing to resample */
        w.group[i] = 8;
    }
    assert_int_equal(flim_bootstrap(&w.scored, 100, 0.95, 1, interval, used, NULL), FLIM_OK);
    assert_true(isnan(interval[FLIM_ACCURACY].low) && used[FLIM_ACCURACY] == 0);
    flim_status status = FLIM_ERROR_MEMORY;
    w.scored.group = NULL;
    for (int n = 1; n < 40 && status != FLIM_OK; n++) {
        flim_alloc_fail_at(n);
        status = flim_bootstrap(&w.scored, 10, 0.95, 1, interval, used, NULL);
        flim_alloc_fail_at(0);
        assert_true(status == FLIM_OK || status == FLIM_ERROR_MEMORY);
    }
    assert_int_equal(status, FLIM_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(delong_follows_its_definition),          cmocka_unit_test(paired_tests_have_scipys_p),
        cmocka_unit_test(bootstrap_has_the_width_of_its_units),   cmocka_unit_test(bootstrap_covers),
        cmocka_unit_test(bootstrap_leaves_out_what_is_undefined),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
