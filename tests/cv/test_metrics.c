/* Metrics against scikit-learn's kept numbers, against slow formulas on random cases, and the cases reported from the field. */
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "core/alloc.h"
#include "flim/metrics.h"
#include "flim/random.h"

enum { MOST = 64, MOST_CLASSES = 6 };

static flim_metrics compute(int64_t n, int classes, const int32_t *label, const float *logits, double threshold)
{
    flim_metrics m;
    for (int i = 0; i < FLIM_N_METRICS; i++) {
        m.value[i] = 1e300;
    }
    assert_int_equal(flim_metrics_compute(n, classes, label, logits, threshold, &m, NULL), FLIM_OK);
    assert_int_equal(m.n, n);
    return m;
}

static void close_to(double value, double want, double tolerance, const char *what)
{
    bool same = isnan(want) ? isnan(value) : fabs(value - want) <= tolerance * fmax(1, fabs(want));
    if (!same) {
        fail_msg("%s: %.17g, expected %.17g", what, value, want);
    }
}

static int metric_of(const char *name)
{
    for (int m = 0; m < FLIM_N_METRICS; m++) {
        if (strcmp(flim_metric_name((flim_metric)m), name) == 0) {
            return m;
        }
    }
    fail_msg("no metric is named '%s'", name);
    return -1;
}

static void as_scikit_learn(void **state)
{
    (void)state;
    FILE *file = fopen(FLIM_SOURCE_DIR "/tests/cv/metrics_reference.txt", "r");
    assert_non_null(file);
    static char line[1 << 16];
    int cases = 0, values = 0, undefined = 0;
    int64_t n = 0;
    int classes = 0;
    double threshold = 0.5;
    int32_t label[MOST];
    float logits[MOST * MOST_CLASSES];
    flim_metrics m = {0};
    while (fgets(line, sizeof line, file)) {
        char *save = NULL, *word = strtok_r(line, " \n", &save);
        if (!word || word[0] == '#' || strcmp(word, "million") == 0) {
            continue;
        }
        if (strcmp(word, "case") == 0) {
            n = strtoll(strtok_r(NULL, " \n", &save), NULL, 10);
            classes = (int)strtol(strtok_r(NULL, " \n", &save), NULL, 10);
            threshold = strtod(strtok_r(NULL, " \n", &save), NULL);
            assert_true(n <= MOST && classes <= MOST_CLASSES);
            cases++;
        } else if (strcmp(word, "label") == 0) {
            for (int64_t i = 0; i < n; i++) {
                label[i] = (int32_t)strtol(strtok_r(NULL, " \n", &save), NULL, 10);
            }
        } else if (strcmp(word, "logit") == 0) {
            for (int64_t i = 0; i < n * (classes == 2 ? 1 : classes); i++) {
                logits[i] = strtof(strtok_r(NULL, " \n", &save), NULL);
            }
            m = compute(n, classes, label, logits, threshold);
        } else {
            char what[96];
            double want = strtod(strtok_r(NULL, " \n", &save), NULL);
            snprintf(what, sizeof what, "case %d (n %d, classes %d), %s", cases, (int)n, classes, word);
            close_to(m.value[metric_of(word)], want, 1e-12, what);
            values++;
            undefined += isnan(want);
        }
    }
    fclose(file);
    assert_true(cases >= 200 && values == cases * FLIM_N_METRICS && undefined > 50);
}

static double slow_auc(int64_t n, const uint8_t *positive, const double *score)
{
    double right = 0, pairs = 0;
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j < n; j++) {
            if (positive[i] && !positive[j]) {
                right += score[i] > score[j] ? 1 : score[i] == score[j] ? 0.5 : 0;
                pairs++;
            }
        }
    }
    return pairs > 0 ? right / pairs : NAN;
}

static void auc_counts_pairs_in_any_order(void **state)
{
    (void)state;
    flim_random random = flim_random_begin(&(flim_cell_id){.seed = 3}, FLIM_RANDOM_SIMULATE);
    for (int round = 0; round < 20000; round++) {
        int64_t n = (int64_t)flim_random_below(&random, 25);
        uint64_t levels = 1 + flim_random_below(&random, 12);
        uint8_t positive[MOST], moved_positive[MOST];
        double score[MOST], moved_score[MOST], auc = -1, moved = -1;
        int64_t order[MOST];
        for (int64_t i = 0; i < n; i++) {
            positive[i] = (uint8_t)flim_random_below(&random, 2);
            score[i] = (double)flim_random_below(&random, levels) * 0.1;
            order[i] = i;
        }
        flim_random_shuffle(&random, order, (size_t)n);
        for (int64_t i = 0; i < n; i++) {
            moved_positive[i] = positive[order[i]];
            moved_score[i] = score[order[i]];
        }
        assert_int_equal(flim_roc_auc(n, positive, score, &auc, NULL), FLIM_OK);
        assert_int_equal(flim_roc_auc(n, moved_positive, moved_score, &moved, NULL), FLIM_OK);
        double want = slow_auc(n, positive, score);
        if (isnan(want)) {
            assert_true(isnan(auc) && isnan(moved));
        } else if (fabs(auc - want) > 1e-14 || auc != moved) {
            fail_msg("round %d: %.17g, reordered %.17g, expected %.17g", round, auc, moved, want);
        }
    }
}

/* ---- a million cells, with ties by the thousand */

enum { MILLION = 1000000 };

/* make_metrics_reference.py's million(): SplitMix64. */
static void make_million(uint64_t levels, int32_t *label, float *score, uint8_t *positive, double *exact)
{
    for (uint64_t i = 0; i < MILLION; i++) {
        uint64_t z = (i + 1) * UINT64_C(0x9E3779B97F4A7C15) + levels;
        z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
        z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
        z ^= z >> 31;
        uint64_t s = z % levels;
        label[i] = (z >> 40) % 1000 < 200 + 600 * s / levels;
        score[i] = (float)s; /* below 2^24: exact */
        positive[i] = (uint8_t)label[i];
        exact[i] = (double)s;
    }
}

/* Twice the number of ordered pairs, and the sum of the precisions at the hits, by counting how many cells stand at each level. */
static void count_levels(uint64_t levels, const int32_t *label, const float *score, double *auc, double *precision)
{
    int64_t *at = calloc(2 * levels, sizeof *at), twice = 0, seen[2] = {0, 0};
    assert_non_null(at);
    for (int i = 0; i < MILLION; i++) {
        at[2 * (uint64_t)score[i] + (label[i] == 1)]++;
    }
    long double sum = 0;
    for (uint64_t l = levels; l-- > 0;) { /* from above */
        int64_t n = at[2 * l], p = at[2 * l + 1];
        twice += n * (2 * seen[1] + p);
        seen[0] += n;
        seen[1] += p;
        sum += p ? (long double)p * seen[1] / (seen[0] + seen[1]) : 0;
    }
    *auc = (double)twice / (2.0 * (double)seen[0] * (double)seen[1]);
    *precision = (double)(sum / seen[1]);
    free(at);
}

static void a_million_cells_with_ties(void **state)
{
    (void)state;
    FILE *file = fopen(FLIM_SOURCE_DIR "/tests/cv/metrics_reference.txt", "r");
    int32_t *label = calloc(MILLION, sizeof *label);
    float *score = calloc(MILLION, sizeof *score);
    uint8_t *positive = calloc(MILLION, 1);
    double *exact = calloc(MILLION, sizeof *exact);
    static char line[1 << 16];
    int seen = 0;
    assert_true(file && label && score && positive && exact);
    while (fgets(line, sizeof line, file)) {
        char *save = NULL, *word = strtok_r(line, " \n", &save);
        if (!word || strcmp(word, "million") != 0) {
            continue;
        }
        uint64_t levels = strtoull(strtok_r(NULL, " \n", &save), NULL, 10);
        double auc = strtod(strtok_r(NULL, " \n", &save), NULL), precision = strtod(strtok_r(NULL, " \n", &save), NULL);
        double counted_auc, counted_precision, alone = NAN;
        make_million(levels, label, score, positive, exact);
        count_levels(levels, label, score, &counted_auc, &counted_precision);
        clock_t begun = clock();
        flim_metrics m = compute(MILLION, 2, label, score, 0.5);
        double seconds = (double)(clock() - begun) / CLOCKS_PER_SEC;
        assert_int_equal(flim_roc_auc(MILLION, positive, exact, &alone, NULL), FLIM_OK);
        close_to(m.value[FLIM_ROC_AUC], counted_auc, 0, "AUC against counting");
        close_to(alone, counted_auc, 0, "AUC alone against counting");
        close_to(m.value[FLIM_ROC_AUC], auc, 1e-12, "AUC against scikit-learn");
        close_to(m.value[FLIM_AVERAGE_PRECISION], counted_precision, 1e-12, "average precision against counting");
        close_to(m.value[FLIM_AVERAGE_PRECISION], precision, 1e-12, "average precision against scikit-learn");
        print_message("a million cells, %" PRIu64 " levels: AUC %.6f, all metrics in %.2f s of CPU time\n", levels,
                      counted_auc, seconds);
        assert_true(seconds < 30); /* n log n even under sanitizers; n^2 would take hours */
        seen++;
    }
    assert_int_equal(seen, 4);
    fclose(file);
    free(label);
    free(score);
    free(positive);
    free(exact);
}

/* CASES: y=[0,1,1], s=[.5,.9,.5] ... measured with scikit-learn 1.2.1. */
static void auc_of_reported_cases(void **state)
{
    (void)state;
    close_to(compute(3, 2, (int32_t[]){0, 1, 1}, (float[]){.5f, .9f, .5f}, 0.5).value[FLIM_ROC_AUC], 0.75, 0, "ties");
    close_to(compute(4, 2, (int32_t[]){0, 1, 0, 1}, (float[]){3, 3, 3, 3}, 0.5).value[FLIM_ROC_AUC], 0.5, 0, "constant");
    close_to(compute(4, 2, (int32_t[]){1, 0, 1, 0}, (float[]){9, 9, 5, 5}, 0.5).value[FLIM_ROC_AUC], 0.5, 0, "pairs of ties");
    /* github.com/brian-lau/MatlabAUC issue 1: a tie between the kinds at 13, one within a kind at 14 */
    close_to(compute(15, 2, (int32_t[]){0, 1, 0, 0, 1, 0, 1, 0, 1, 1, 1, 0, 1, 1, 1},
                     (float[]){1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 13, 14, 14}, 0.5)
                 .value[FLIM_ROC_AUC],
             0.75, 1e-15, "15 values");
    /* Logits whose float32 (and float64) sigmoid is exactly 1 still rank apart. */
    flim_metrics m = compute(3, 2, (int32_t[]){0, 1, 1}, (float[]){40, 50, 60}, 0.5);
    close_to(m.value[FLIM_ROC_AUC], 1, 0, "saturated");
    close_to(m.value[FLIM_AVERAGE_PRECISION], 1, 0, "saturated");
    m = compute(3, 3, (int32_t[]){0, 1, 2}, (float[]){90, 0, 0, 80, 40, 0, 70, 0, 30}, 0.5);
    close_to(m.value[FLIM_ROC_AUC], 1, 0, "saturated softmax");
}

static void absent_classes(void **state)
{
    (void)state;
    /* true [1,1], predicted [1,2]: balanced accuracy leaves absent classes out; of them there is no recall, nor a mean with it */
    flim_metrics m = compute(2, 4, (int32_t[]){1, 1}, (float[]){0, 9, 0, 0, 0, 0, 9, 0}, 0.5);
    close_to(m.value[FLIM_BALANCED_ACCURACY], 0.5, 0, "balanced accuracy");
    assert_true(isnan(m.value[FLIM_RECALL]));
    assert_true(isnan(m.value[FLIM_ROC_AUC]) && isnan(m.value[FLIM_AVERAGE_PRECISION]));
    /* all zeros */
    m = compute(3, 2, (int32_t[]){0, 0, 0}, (float[]){-1, -1, -1}, 0.5);
    close_to(m.value[FLIM_BALANCED_ACCURACY], 1, 0, "one class, all right");
    close_to(m.value[FLIM_MCC], 0, 0, "mcc of one class");
    close_to(m.value[FLIM_SPECIFICITY], 1, 0, "specificity of class 0 alone");
    assert_true(isnan(m.value[FLIM_ROC_AUC]) && isnan(m.value[FLIM_AVERAGE_PRECISION]) && isnan(m.value[FLIM_RECALL]));
    /* all ones: any order of positives alone has average precision 1 */
    m = compute(3, 2, (int32_t[]){1, 1, 1}, (float[]){1, -1, 1}, 0.5);
    close_to(m.value[FLIM_RECALL], 2.0 / 3, 1e-15, "recall of class 1 alone");
    assert_true(isnan(m.value[FLIM_ROC_AUC]) && isnan(m.value[FLIM_AVERAGE_PRECISION]) && isnan(m.value[FLIM_SPECIFICITY]));
    /* true [0,1], predicted [1,1] */
    m = compute(2, 2, (int32_t[]){0, 1}, (float[]){1, 1}, 0.5);
    close_to(m.value[FLIM_MACRO_F1], 1.0 / 3, 1e-15, "macro F1");
    /* two perfect classes of three declared */
    m = compute(2, 3, (int32_t[]){0, 1}, (float[]){9, 0, 0, 0, 9, 0}, 0.5);
    close_to(m.value[FLIM_MACRO_F1], 2.0 / 3, 1e-15, "macro F1 over declared classes");
    for (int i = 0; i < FLIM_N_METRICS; i++) {
        assert_true(strlen(flim_metric_undefined_reason((flim_metric)i)) > 5);
        assert_true(isnan(compute(0, 2, NULL, NULL, 0.5).value[i]));
        assert_true(isnan(compute(2, 2, (int32_t[]){0, 1}, (float[]){1, NAN}, 0.5).value[i]));
        assert_true(isnan(compute(2, 2, (int32_t[]){0, 1}, (float[]){-INFINITY, 1}, 0.5).value[i]));
    }
}

static void loss_is_finite_for_huge_logits_and_needs_no_batches(void **state)
{
    (void)state;
    close_to(flim_mean_loss(2, 2, (int32_t[]){0, 1}, (float[]){1e30f, -1e30f}), (double)1e30f, 1e-15, "wrong and sure");
    close_to(flim_mean_loss(1, 2, (int32_t[]){1}, (float[]){50}), exp(-50), 1e-30, "right and sure");
    assert_true(flim_mean_loss(1, 2, (int32_t[]){1}, (float[]){50}) > 0);
    close_to(flim_mean_loss(1, 3, (int32_t[]){2}, (float[]){FLT_MAX, 0, -FLT_MAX}), 2 * (double)FLT_MAX, 1e-15, "softmax");
    close_to(flim_mean_loss(1, 3, (int32_t[]){0}, (float[]){60, 0, 0}) / (2 * exp(-60)), 1, 1e-12, "softmax, sure");
    flim_metrics m = compute(2, 2, (int32_t[]){0, 1}, (float[]){-300, 200}, 0.5);
    close_to(m.value[FLIM_LOG_LOSS] / ((exp(-300) + exp(-200)) / 2), 1, 1e-12, "log loss");
    close_to(m.value[FLIM_ECE], 0, 1e-30, "ece");
    /* 4, 4 and 1 cells with mean losses .2, .4 and 2: the mean is 4.4 / 9, not that of three batch means */
    float logits[9];
    int32_t label[9];
    for (int i = 0; i < 9; i++) {
        double loss = i < 4 ? 0.2 : i < 8 ? 0.4 : 2.0;
        label[i] = 1;
        logits[i] = (float)-log(expm1(loss));
    }
    close_to(flim_mean_loss(9, 2, label, logits), 4.4 / 9, 1e-6, "mean over cells");
    assert_true(isnan(flim_mean_loss(0, 2, NULL, NULL)));
}

static void probabilities_and_predictions(void **state)
{
    (void)state;
    double p[6];
    flim_probabilities(2, 2, (float[]){0, -800}, p);
    close_to(p[0], 0.5, 0, "p0");
    close_to(p[3], 0, 0, "p1 of -800");
    close_to(p[2], 1, 0, "p0 of -800");
    flim_probabilities(2, 3, (float[]){1e30f, 0, 0, -1e30f, -1e30f, -1e30f}, p);
    close_to(p[0], 1, 0, "softmax of a huge logit");
    close_to(p[4], 1.0 / 3, 1e-15, "softmax of equal logits");
    assert_int_equal(flim_predicted_class(2, (float[]){0}, 0.5), 0); /* a tie goes to the lower class */
    assert_int_equal(flim_predicted_class(2, (float[]){1e-6f}, 0.5), 1);
    assert_int_equal(flim_predicted_class(3, (float[]){1, 2, 2}, 0.9), 1);
}

static double score_of(flim_metric objective, int64_t n, const int32_t *label, const float *logits, double threshold)
{
    return compute(n, 2, label, logits, threshold).value[objective];
}

/* No threshold between two neighbouring scores, below all or above all, does better; the one taken is the nearest to 0.5
 * (either of two that are equally near). */
static void threshold_is_the_best_there_is(void **state)
{
    (void)state;
    flim_random random = flim_random_begin(&(flim_cell_id){.seed = 5}, FLIM_RANDOM_SIMULATE);
    for (int round = 0; round < 3000; round++) {
        int64_t n = 1 + (int64_t)flim_random_below(&random, 20);
        int32_t label[MOST];
        float logits[MOST];
        double p[2 * MOST], candidates[MOST + 2], best = -1, chosen = NAN;
        bool coarse = flim_random_below(&random, 2) == 0, both[2] = {false, false};
        for (int64_t i = 0; i < n; i++) {
            label[i] = (int32_t)flim_random_below(&random, 2);
            both[label[i]] = true;
            logits[i] = (float)(flim_random_normal(&random) * 3 + label[i]);
            logits[i] = coarse ? roundf(logits[i]) : logits[i];
        }
        const flim_metric objective = round % 2 ? FLIM_F1 : FLIM_BALANCED_ACCURACY;
        const flim_objective asked = round % 2 ? FLIM_OBJECTIVE_F1 : FLIM_OBJECTIVE_BALANCED_ACCURACY;
        double threshold = -1;
        assert_int_equal(flim_choose_threshold_for(asked, n, label, logits, &threshold, NULL), FLIM_OK);
        if (!both[0] || !both[1]) {
            assert_true(threshold == 0.5);
            continue;
        }
        flim_probabilities(n, 2, logits, p);
        candidates[n] = 0;
        candidates[n + 1] = 1;
        for (int64_t i = 0; i < n; i++) {
            candidates[i] = p[2 * i + 1];
        }
        for (int64_t a = 0; a < n + 2; a++) { /* midway between each pair of neighbours */
            double above = INFINITY;
            for (int64_t b = 0; b < n + 2; b++) {
                above = candidates[b] > candidates[a] && candidates[b] < above ? candidates[b] : above;
            }
            if (isinf(above)) {
                continue;
            }
            double t = candidates[a] + (above - candidates[a]) / 2, value = score_of(objective, n, label, logits, t);
            if (value > best + 1e-12 || (value > best - 1e-12 && fabs(t - 0.5) < fabs(chosen - 0.5))) {
                best = fmax(value, best);
                chosen = t;
            }
        }
        if (fabs(fabs(threshold - 0.5) - fabs(chosen - 0.5)) > 1e-12 ||
            fabs(score_of(objective, n, label, logits, threshold) - best) > 1e-12) {
            fail_msg("round %d: threshold %.17g, expected %.17g (%s %.6f)", round, threshold, chosen,
                     flim_metric_name(objective), best);
        }
    }
}

/* Two groups of the scores, no label looked at: no split into two leaves a smaller sum of squares about the groups' means, and
 * the threshold lies midway between those. */
static void kmeans_threshold_is_midway_between_the_best_two_groups(void **state)
{
    (void)state;
    flim_random random = flim_random_begin(&(flim_cell_id){.seed = 6}, FLIM_RANDOM_SIMULATE);
    for (int round = 0; round < 1000; round++) {
        const int64_t n = 1 + (int64_t)flim_random_below(&random, 20);
        int32_t label[MOST] = {0};
        float logits[MOST];
        double p[2 * MOST], threshold = -1, best = INFINITY;
        bool found = false, distinct = false;
        for (int64_t i = 0; i < n; i++) {
            logits[i] = (float)(flim_random_normal(&random) * 3);
            logits[i] = round % 2 ? roundf(logits[i]) : logits[i];
            distinct = distinct || logits[i] != logits[0];
        }
        assert_int_equal(flim_choose_threshold_for(FLIM_OBJECTIVE_KMEANS, n, label, logits, &threshold, NULL), FLIM_OK);
        flim_probabilities(n, 2, logits, p);
        if (!distinct) {
            assert_true(threshold == 0.5);
            continue;
        }
        for (int pass = 0; pass < 2; pass++) { /* the least sum of squares, then whether the threshold is of such a split */
            for (int64_t a = 0; a < n; a++) {
                double sum[2] = {0, 0}, cells[2] = {0, 0}, squares = 0;
                for (int64_t i = 0; i < n; i++) {
                    const int high = p[2 * i + 1] >= p[2 * a + 1];
                    sum[high] += p[2 * i + 1];
                    cells[high]++;
                }
                for (int64_t i = 0; i < n && cells[0] > 0; i++) {
                    const int high = p[2 * i + 1] >= p[2 * a + 1];
                    const double off = p[2 * i + 1] - sum[high] / cells[high];
                    squares += off * off;
                }
                if (cells[0] == 0) {
                    continue;
                }
                best = pass == 0 ? fmin(best, squares) : best;
                found = found || (pass == 1 && squares <= best + 1e-12 &&
                                  fabs((sum[0] / cells[0] + sum[1] / cells[1]) / 2 - threshold) < 1e-12);
            }
        }
        if (!found) {
            fail_msg("round %d: %.17g is between the means of no best split", round, threshold);
        }
    }
}

static void threshold_never_promises_what_saturation_hides(void **state)
{
    (void)state;
    double threshold = -1;
    float logits[] = {38, 50, 60, -2}; /* the first three have probability 1 exactly */
    int32_t label[] = {0, 1, 1, 0};
    assert_int_equal(flim_choose_threshold_for(FLIM_OBJECTIVE_BALANCED_ACCURACY, 4, label, logits, &threshold, NULL),
                     FLIM_OK);
    close_to(score_of(FLIM_BALANCED_ACCURACY, 4, label, logits, threshold), 0.75, 1e-15, "what can be had");
    assert_int_equal(flim_choose_threshold_for(FLIM_OBJECTIVE_BALANCED_ACCURACY, 2, (int32_t[]){0, 1}, (float[]){-900, -800},
                                               &threshold, NULL),
                     FLIM_OK);
    assert_true(threshold >= 0 && threshold <= 1);
    assert_int_equal(flim_choose_threshold_for(FLIM_OBJECTIVE_BALANCED_ACCURACY, 2, (int32_t[]){0, 1}, (float[]){NAN, 1},
                                               &threshold, NULL),
                     FLIM_OK);
    assert_true(threshold == 0.5);
    assert_int_equal(flim_choose_threshold_for(FLIM_OBJECTIVE_BALANCED_ACCURACY, 0, NULL, NULL, &threshold, NULL), FLIM_OK);
    assert_true(threshold == 0.5);
}

static void means_leave_out_what_is_undefined(void **state)
{
    (void)state;
    double mean, sd;
    int used;
    flim_mean_sd((double[]){1, NAN, 2, 4}, 4, &mean, &sd, &used);
    assert_int_equal(used, 3);
    close_to(mean, 7.0 / 3, 1e-15, "mean");
    close_to(sd, sqrt(7.0 / 3), 1e-15, "sd"); /* squares 16/9 + 1/9 + 25/9 over 2 */
    flim_mean_sd((double[]){3, NAN}, 2, &mean, &sd, &used);
    assert_true(used == 1 && mean == 3 && isnan(sd));
    flim_mean_sd((double[]){NAN}, 1, &mean, &sd, &used);
    assert_true(used == 0 && isnan(mean) && isnan(sd));
}

static void running_out_of_memory(void **state)
{
    (void)state;
    for (int n = 1; n < 20; n++) {
        flim_metrics m;
        flim_error err = {0};
        flim_alloc_fail_at(n);
        flim_status status = flim_metrics_compute(2, 3, (int32_t[]){0, 1}, (float[]){1, 2, 3, 3, 2, 1}, 0.5, &m, &err);
        flim_alloc_fail_at(0);
        if (status == FLIM_OK) {
            assert_true(n > 4);
            return;
        }
        assert_int_equal(status, FLIM_ERROR_MEMORY);
    }
    fail();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_scikit_learn),
        cmocka_unit_test(auc_counts_pairs_in_any_order),
        cmocka_unit_test(a_million_cells_with_ties),
        cmocka_unit_test(auc_of_reported_cases),
        cmocka_unit_test(absent_classes),
        cmocka_unit_test(loss_is_finite_for_huge_logits_and_needs_no_batches),
        cmocka_unit_test(probabilities_and_predictions),
        cmocka_unit_test(threshold_is_the_best_there_is),
        cmocka_unit_test(kmeans_threshold_is_midway_between_the_best_two_groups),
        cmocka_unit_test(threshold_never_promises_what_saturation_hides),
        cmocka_unit_test(means_leave_out_what_is_undefined),
        cmocka_unit_test(running_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
