/* Logistic regression against scikit-learn's, and the baselines in folds. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/alloc.h"
#include "cv/baseline.h"
#include "flim/metrics.h"
#include "flim/random.h"

enum { MOST = 64, MOST_FEATURES = 8, CELLS = 240 };

static double next_number(char **save)
{
    const char *word = strtok_r(NULL, " \n", save);
    assert_non_null(word);
    return strtod(word, NULL);
}

static void as_scikit_learn(void **state)
{
    (void)state;
    FILE *file = fopen(FLIM_SOURCE_DIR "/tests/cv/baseline_reference.txt", "r");
    assert_non_null(file);
    static char line[1 << 16];
    int32_t label[MOST];
    int64_t rows[MOST];
    double x[MOST * MOST_FEATURES];
    int features = 0, cases = 0;
    flim_split_data data = {.label = label};
    flim_logistic_options options = {0};
    for (int i = 0; i < MOST; i++) {
        rows[i] = i;
    }
    while (fgets(line, sizeof line, file)) {
        char *save = NULL, *word = strtok_r(line, " \n", &save);
        if (strcmp(word, "case") == 0) {
            data.n = (int64_t)next_number(&save);
            features = (int)next_number(&save);
            data.classes = (int)next_number(&save);
            options.ridge = next_number(&save);
            options.balanced = next_number(&save) > 0;
            assert_true(data.n <= MOST && features <= MOST_FEATURES);
            cases++;
        } else if (strcmp(word, "label") == 0) {
            for (int64_t i = 0; i < data.n; i++) {
                label[i] = (int32_t)next_number(&save);
            }
        } else if (strcmp(word, "x") == 0) {
            for (int64_t i = 0; i < data.n * features; i++) {
                x[i] = next_number(&save);
            }
        } else if (strcmp(word, "coefficient") == 0) {
            flim_logistic model;
            assert_int_equal(flim_logistic_fit(&data, x, features, rows, data.n, &options, &model, NULL), FLIM_OK);
            assert_true(model.converged);
            double mean = 0; /* of the intercepts: softmax leaves it free */
            for (int k = 0; k < model.outputs && model.outputs > 1; k++) {
                mean += model.coefficient[k * (features + 1) + features] / model.outputs;
            }
            for (int i = 0; i < model.outputs * (features + 1); i++) {
                double want = next_number(&save), value = model.coefficient[i] - (i % (features + 1) == features ? mean : 0);
                if (fabs(value - want) > 1e-6 * fmax(1, fabs(want))) {
                    fail_msg("case %d, coefficient %d: %.12g, scikit-learn %.12g (%d steps)", cases, i, value, want,
                             model.steps);
                }
            }
            flim_logistic_free(&model);
        }
    }
    fclose(file);
    assert_int_equal(cases, 12);
}

typedef struct world {
    flim_split_data data;
    int32_t label[CELLS];
    int64_t group[CELLS];
    double x[CELLS * 3];
} world;

/* Feature 0 follows the class by `signal` standard deviations, feature 1 is noise, feature 2 constant. */
static void make_world(world *w, int classes, double signal)
{
    flim_random random = flim_random_begin(&(flim_cell_id){.seed = 4}, FLIM_RANDOM_SIMULATE);
    for (int i = 0; i < CELLS; i++) {
        w->group[i] = i / 20;
        w->label[i] = (int32_t)flim_random_below(&random, (uint64_t)classes);
        w->x[3 * i] = 1000 + 10 * (signal * w->label[i] + flim_random_normal(&random));
        w->x[3 * i + 1] = flim_random_normal(&random);
        w->x[3 * i + 2] = 7;
    }
    w->data = (flim_split_data){.n = CELLS, .classes = classes, .label = w->label, .groups = 12, .group = w->group};
}

static void run(const world *w, int features, flim_metrics *pooled)
{
    flim_split_request request = {.mode = FLIM_SPLIT_STRATIFIED_GROUP, .folds = 4, .val_fraction = 0.15, .seed = 1};
    flim_logistic_options options = {.ridge = 1, .balanced = false};
    flim_splits splits;
    assert_int_equal(flim_splits_make(&w->data, &request, &splits, NULL), FLIM_OK);
    float logits[CELLS * 4];
    int32_t predicted[CELLS];
    double threshold[4] = {NAN, NAN, NAN, NAN};
    for (int i = 0; i < CELLS * 4; i++) {
        logits[i] = NAN;
    }
    assert_int_equal(flim_baseline_run(&splits, &w->data, w->x, features, &options, logits, predicted, threshold, NULL),
                     FLIM_OK);
    assert_int_equal(flim_metrics_of_decisions(CELLS, w->data.classes, w->label, logits, predicted, pooled, NULL), FLIM_OK);
    for (int f = 0; f < 4; f++) {
        assert_true(threshold[f] >= 0 && threshold[f] <= 1);
    }
    /* The test labels must not reach the fit: with those of fold 0 turned, its predictions stay the same. */
    static world turned;
    static float again[CELLS * 4];
    turned = *w;
    turned.data.label = turned.label;
    for (int64_t i = 0; i < splits.fold[0].n_test; i++) {
        turned.label[splits.fold[0].test[i]] = (w->label[splits.fold[0].test[i]] + 1) % w->data.classes;
    }
    int32_t predicted_again[CELLS];
    assert_int_equal(
        flim_baseline_run(&splits, &turned.data, turned.x, features, &options, again, predicted_again, threshold, NULL),
        FLIM_OK);
    for (int64_t i = 0; i < splits.fold[0].n_test; i++) {
        assert_int_equal(predicted[splits.fold[0].test[i]], predicted_again[splits.fold[0].test[i]]);
    }
    flim_splits_free(&splits);
}

static void folds_show_signal_and_its_absence(void **state)
{
    (void)state;
    static world w;
    flim_metrics m;
    make_world(&w, 2, 2);
    run(&w, 3, &m);
    assert_true(m.value[FLIM_ROC_AUC] > 0.88 && m.value[FLIM_ROC_AUC] < 0.96); /* Phi(2 / sqrt 2) = 0.921 */
    run(&w, 0, &m);
    assert_true(m.value[FLIM_BALANCED_ACCURACY] < 0.6);
    assert_true(fabs(m.value[FLIM_LOG_LOSS] - log(2)) < 0.05);
    make_world(&w, 2, 0);
    run(&w, 3, &m);
    assert_true(m.value[FLIM_ROC_AUC] > 0.35 && m.value[FLIM_ROC_AUC] < 0.65);
    make_world(&w, 4, 4);
    run(&w, 3, &m);
    assert_true(m.value[FLIM_ACCURACY] > 0.85);
}

static void bad_features_are_refused(void **state)
{
    (void)state;
    static world w;
    make_world(&w, 2, 1);
    int64_t rows[3] = {0, 1, 2};
    flim_logistic model;
    flim_error err = {0};
    flim_logistic_options options = {.ridge = 1};
    w.x[4] = NAN;
    assert_int_equal(flim_logistic_fit(&w.data, w.x, 3, rows, 3, &options, &model, &err), FLIM_ERROR_USAGE);
    assert_non_null(strstr(err.text, "feature 1 of cell 1"));
    assert_int_equal(flim_logistic_fit(&w.data, w.x, 3, rows, 0, &options, &model, &err), FLIM_ERROR_USAGE);
    w.x[4] = 0;
    flim_status status = FLIM_ERROR_MEMORY;
    for (int n = 1; n < 30 && status != FLIM_OK; n++) {
        flim_alloc_fail_at(n);
        status = flim_logistic_fit(&w.data, w.x, 3, rows, 3, &options, &model, &err);
        flim_alloc_fail_at(0);
        assert_true(status == FLIM_ERROR_MEMORY || (status == FLIM_OK && n > 5));
    }
    assert_int_equal(status, FLIM_OK);
    flim_logistic_free(&model);
}

/* One class in the training set: the fit ends, and says that class. */
static void one_class_is_learnt_as_that_class(void **state)
{
    (void)state;
    static world w;
    make_world(&w, 2, 1);
    int64_t rows[50];
    for (int i = 0; i < 50; i++) {
        rows[i] = i;
        w.label[i] = 1;
    }
    flim_logistic model;
    float logit = NAN;
    assert_int_equal(flim_logistic_fit(&w.data, w.x, 3, rows, 50, &(flim_logistic_options){.ridge = 1}, &model, NULL),
                     FLIM_OK);
    flim_logistic_logits(&model, w.x, &logit);
    assert_true(isfinite(logit) && logit > 3);
    flim_logistic_free(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_scikit_learn),
        cmocka_unit_test(folds_show_signal_and_its_absence),
        cmocka_unit_test(bad_features_are_refused),
        cmocka_unit_test(one_class_is_learnt_as_that_class),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
