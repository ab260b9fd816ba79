/* Prediction with trained weights: one model, the ensemble of a run's folds, symmetries, and what must be refused. */
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
#include <unistd.h>

#include <cmocka.h>

#include "core/alloc.h"
#include "core/file.h"
#include "flim/dataset_writer.h"
#include "flim/predict.h"
#include "flim/random.h"
#include "flim/split.h"
#include "flim/weights.h"
#include "results/fold_result.h"
#include "train/small_run.h"

enum { CELLS = 48, DONORS = 6, MOST_SIDE = 6, MOST_T = 10 };

/* ---- cells */

/* How a file differs from the plain one. */
typedef struct variant {
    int t, h, w, classes, turn; /* 0 = 8, 5, 5, 2, as they are; turn: bit 0 flips x, bit 1 flips y, bit 2 exchanges them */
    bool no_labels, no_names, other_names;
    bool latin; /* class names that are no UTF-8 */
    bool long_names; /* of 5000 letters, of which the last differs */
    bool mixed; /* a third of the labels say another class than the cells do */
    int64_t from; /* cells from..n-1 only */
} variant;

static const char *const donors[DONORS] = {"d1", "d2", "d3", "d4", "d5", "d6"};

/* Lopsided cells: brighter to one side, so that a flip is no identity. */
static void write_cells(const char *name, const variant *v)
{
    static const char *const names[] = {"rest", "active", "third"}, *const others[] = {"up", "down", "charm"},
                             *const latin[] = {"gr\xfcn", "rot"};
    enum { LONG = 5000 };
    static char text[3][LONG + 1];
    const char *longer[3];
    for (int k = 0; k < 3; k++) {
        memset(text[k], 'a', LONG);
        text[k][LONG - 1] = (char)((v->other_names ? 'x' : 'b') + k);
        longer[k] = text[k];
    }
    const int t = v->t ? v->t : 8, h = v->h ? v->h : 5, w = v->w ? v->w : 5, classes = v->classes ? v->classes : 2;
    const int64_t n = CELLS - v->from;
    int32_t label[CELLS];
    const char *group[CELLS];
    uint8_t counts[MOST_T * MOST_SIDE * MOST_SIDE], turned[MOST_T * MOST_SIDE * MOST_SIDE];
    char path[256];
    flim_error err = {0};
    for (int64_t i = 0; i < n; i++) {
        int64_t cell = i + v->from;
        label[i] = (int32_t)((cell + (v->mixed && cell % 3 == 1)) % classes);
        group[i] = donors[cell / 8];
    }
    const flim_dataset_layout layout = {.n = n,
                                        .t = t,
                                        .h = v->turn & 4 ? w : h,
                                        .w = v->turn & 4 ? h : w,
                                        .count_bytes = 1,
                                        .classes = v->no_labels || v->no_names ? 0 : classes,
                                        .class_name = v->latin         ? latin
                                                      : v->long_names  ? longer
                                                      : v->other_names ? others
                                                                       : names,
                                        .label = v->no_labels ? NULL : label,
                                        .group = group};
    flim_dataset_writer *writer;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    unlink(path); /* of an earlier run */
    ok(flim_dataset_writer_create(path, &layout, &writer, &err), &err);
    for (int64_t i = 0; i < n; i++) {
        int64_t cell = i + v->from;
        flim_random random = flim_random_begin(&(flim_cell_id){.seed = 7, .cell = (uint32_t)cell}, FLIM_RANDOM_SIMULATE);
        for (int k = 0; k < t; k++) {
            for (int y = 0; y < h; y++) {
                for (int x = 0; x < w; x++) {
                    double mean = (4 + 2 * y + x) * exp(-k / (1.5 + 1.5 * (double)(cell % classes)));
                    double value = mean + sqrt(mean) * flim_random_normal(&random);
                    counts[(k * h + y) * w + x] = (uint8_t)fmax(0, floor(value + 0.5));
                }
            }
        }
        for (int k = 0; k < t; k++) {
            for (int y = 0; y < layout.h; y++) {
                for (int x = 0; x < layout.w; x++) {
                    int sy = v->turn & 4 ? x : y, sx = v->turn & 4 ? y : x;
                    sy = v->turn & 2 ? h - 1 - sy : sy;
                    sx = v->turn & 1 ? w - 1 - sx : sx;
                    turned[(k * layout.h + y) * layout.w + x] = counts[(k * h + sy) * w + sx];
                }
            }
        }
        ok(flim_dataset_writer_cell(writer, i, turned, NULL, &err), &err);
    }
    ok(flim_dataset_writer_finish(writer, &err), &err);
    flim_dataset_writer_destroy(writer);
}

/* ---- prediction */

static char said[4096];

static void remember(void *context, flim_log_level level, const char *text)
{
    (void)context;
    size_t used = strlen(said);
    snprintf(said + used, sizeof said - used, "%s%s\n", level == FLIM_LOG_WARNING ? "warning: " : "", text);
}

static flim_status predict(const char *model, const char *data, bool tta, flim_predictions *out, flim_metrics *metrics,
                           flim_error *err)
{
    char path[2][256];
    const char *const files[] = {path[1]};
    snprintf(path[0], sizeof path[0], "%s/%s", folder, model);
    snprintf(path[1], sizeof path[1], "%s/%s", folder, data);
    const char *const models[] = {path[0]};
    const flim_predict_request request = {.model = models,
                                          .n_models = 1,
                                          .scan = true,
                                          .data = files,
                                          .n_data = 1,
                                          .axes = "NTYX",
                                          .device = "cpu",
                                          .precision = FLIM_PRECISION_AUTO,
                                          .batch = 7,
                                          .workers = 2,
                                          .prefetch = 2,
                                          .threshold = NAN,
                                          .tta = tta};
    const flim_train_hooks hooks = {.log = {remember, NULL}};
    said[0] = '\0';
    return flim_predict(&request, &hooks, out, metrics, err);
}

static flim_predictions predicted(const char *model, const char *data, bool tta)
{
    flim_predictions out;
    flim_metrics metrics;
    flim_error err = {0};
    ok(predict(model, data, tta, &out, &metrics, &err), &err);
    return out;
}

/* The run that all tests use: three folds, one donor held out. */
static void need_run(void)
{
    static const setting options[] = {{"folds", "3"}, {"epochs", "6"}, {"lr", "0.02"}, {"holdout_group", "d6"}};
    static bool made;
    if (!made) {
        write_cells("plain.h5", &(variant){0});
        train("plain.h5", "run", options, sizeof options / sizeof options[0]);
        made = true;
    }
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static void a_fold_says_again_what_it_said_of_its_test_part(void **state)
{
    (void)state;
    char name[64], path[256];
    flim_error err = {0};
    need_run();
    for (int k = 0; k < 3; k++) {
        flim_predictions test, all;
        snprintf(path, sizeof path, "%s/run/fold_%d/predictions.csv", folder, k);
        ok(flim_predictions_read(path, &test, &err), &err);
        snprintf(name, sizeof name, "run/fold_%d/best.safetensors", k);
        all = predicted(name, "plain.h5", false);
        assert_int_equal(all.n, CELLS);
        for (int64_t i = 0; i < test.n; i++) {
            assert_true(all.index[test.index[i]] == test.index[i] && all.label[test.index[i]] == test.label[i]);
            assert_true(memcmp(&all.logits[test.index[i]], &test.logits[i], sizeof(float)) == 0);
        }
        flim_predictions_free(&test);
        flim_predictions_free(&all);
    }
}

static void a_run_is_the_mean_of_its_folds(void **state)
{
    (void)state;
    char name[64], path[256];
    flim_error err = {0};
    double mean[CELLS] = {0}, threshold = 0;
    need_run();
    for (int k = 0; k < 3; k++) {
        double of_fold;
        snprintf(name, sizeof name, "run/fold_%d/best.safetensors", k);
        flim_predictions one = predicted(name, "plain.h5", false);
        for (int64_t i = 0; i < CELLS; i++) {
            mean[i] += sigmoid((double)one.logits[i]) / 3;
        }
        flim_predictions_free(&one);
        snprintf(path, sizeof path, "%s/run", folder);
        ok(flim_fold_threshold(path, k, &of_fold, &err), &err);
        threshold += of_fold / 3;
    }
    flim_predictions all = predicted("run", "plain.h5", false), held;
    assert_non_null(strstr(said, "warning: "));
    /* the donor that was held out has eight cells; the run's folds have seen all others, and a renamed copy is the same */
    assert_non_null(strstr(said, "40 of 48 cells were seen by at least one of the models in training or "
                                 "validation (cells 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, ...)"));
    for (int64_t i = 0; i < CELLS; i++) {
        assert_true(fabs(sigmoid((double)all.logits[i]) - mean[i]) < 1e-6);
        assert_true(all.predicted[i] == (mean[i] > threshold) || fabs(mean[i] - threshold) < 1e-6);
    }
    /* and what the run itself said of the donor that it held out */
    snprintf(path, sizeof path, "%s/run/holdout_predictions.csv", folder);
    ok(flim_predictions_read(path, &held, &err), &err);
    assert_int_equal(held.n, 8);
    for (int64_t i = 0; i < held.n; i++) {
        assert_string_equal(held.group[i], "d6");
        assert_true(memcmp(&held.logits[i], &all.logits[held.index[i]], sizeof(float)) == 0);
        assert_true(held.predicted[i] == all.predicted[held.index[i]]);
    }
    flim_predictions_free(&held);
    flim_predictions_free(&all);
    /* other cells, so no warning; a fold that is not done is said */
    write_cells("new.h5", &(variant){.from = 40});
    all = predicted("run", "new.h5", false);
    assert_true(all.n == 8 && !strstr(said, "warning"));
    flim_predictions_free(&all);
    snprintf(path, sizeof path, "%s/run/fold_1/DONE", folder);
    assert_int_equal(unlink(path), 0);
    all = predicted("run", "new.h5", false);
    assert_non_null(strstr(said, "2 of its 3 folds are done"));
    flim_predictions_free(&all);
    ok(flim_file_write(path, "done\n", 5, &err), &err);
}

/* The mean logit of the eight ways to lay a square down, four if H and W differ, in double; so how the file lays its cells down
 * does not matter.  Views are summed in another order then, which is all that may differ. */
static void tta_averages_over_all_ways_to_lay_a_cell_down(void **state)
{
    (void)state;
    need_run();
    write_cells("oblong.h5", &(variant){.w = 4});
    static const char *const model = "run/fold_0/best.safetensors";
    for (int oblong = 0; oblong < 2; oblong++) {
        const int ways = oblong ? 4 : 8;
        double mean[CELLS] = {0}, apart = 0;
        const char *weights = model;
        if (oblong) { /* the same weights without the size that they were trained for */
            static const setting options[] = {{"folds", "2"}, {"epochs", "2"}, {"fold", "0"}, {"lr", "0.02"}};
            train("oblong.h5", "oblong", options, sizeof options / sizeof options[0]);
            weights = "oblong/fold_0/best.safetensors";
        }
        flim_predictions tta = predicted(weights, oblong ? "oblong.h5" : "plain.h5", true);
        for (int turn = 0; turn < ways; turn++) {
            write_cells("turned.h5", &(variant){.w = oblong ? 4 : 0, .turn = turn});
            flim_predictions one = predicted(weights, "turned.h5", false), again = predicted(weights, "turned.h5", true);
            for (int64_t i = 0; i < CELLS; i++) {
                const double z = (double)one.logits[i];
                mean[i] += z / ways;
                apart = fmax(apart, fabs(sigmoid(z) - sigmoid((double)tta.logits[i])));
                if (!(fabs((double)again.logits[i] - (double)tta.logits[i]) <= 1e-6)) {
                    fail_msg("symmetry %d of cell %" PRId64 ": %.9g, as it lies %.9g", turn, i, (double)again.logits[i],
                             (double)tta.logits[i]);
                }
            }
            flim_predictions_free(&one);
            flim_predictions_free(&again);
        }
        assert_true(apart > 1e-4); /* turning matters to the network: the average is not an empty one */
        for (int64_t i = 0; i < CELLS; i++) {
            assert_true(fabs(mean[i] - (double)tta.logits[i]) <= 1e-6 * fmax(1, fabs(mean[i])));
        }
        flim_predictions_free(&tta);
    }
}

/* --tta of a run: its test scores, its validation figures and its hold-out's are of averaged logits, as predict --tta says
 * again; and predict of the run's folder averages without being asked, because the thresholds are of such scores. */
static void a_run_with_tta_averages_in_every_part(void **state)
{
    (void)state;
    static const setting options[] = {
        {"folds", "2"}, {"epochs", "2"}, {"lr", "0.02"}, {"holdout_group", "d6"}, {"tta", "true"}};
    char name[64], path[256], line[1024];
    flim_error err = {0};
    need_run();
    train("plain.h5", "tta", options, sizeof options / sizeof options[0]);
    for (int k = 0; k < 2; k++) {
        flim_predictions test, all;
        double best = 0;
        snprintf(path, sizeof path, "%s/tta/fold_%d/predictions.csv", folder, k);
        ok(flim_predictions_read(path, &test, &err), &err);
        snprintf(name, sizeof name, "tta/fold_%d/best.safetensors", k);
        all = predicted(name, "plain.h5", true);
        for (int64_t i = 0; i < test.n; i++) {
            assert_true(memcmp(&all.logits[test.index[i]], &test.logits[i], sizeof(float)) == 0);
        }
        flim_splits splits = {0};
        snprintf(path, sizeof path, "%s/tta/splits.json", folder);
        ok(flim_splits_read(path, NULL, &splits, &err), &err);
        const flim_fold *part = &splits.fold[k];
        double loss = 0;
        for (int64_t i = 0; i < part->n_val; i++) {
            const double z = (double)all.logits[part->val[i]];
            loss += log1p(exp(all.label[part->val[i]] ? -z : z)) / (double)part->n_val;
        }
        snprintf(path, sizeof path, "%s/tta/fold_%d/history.csv", folder, k);
        FILE *history = fopen(path, "r");
        assert_non_null(history);
        double least = INFINITY;
        while (fgets(line, sizeof line, history)) {
            double of_epoch = NAN;
            if (sscanf(line, "%*d,%*[^,],%*[^,],%*[^,],%lf", &of_epoch) == 1 && of_epoch < least) {
                least = best = of_epoch;
            }
        }
        fclose(history);
        if (!(fabs(loss - best) < 1e-6)) {
            fail_msg("fold %d: val_loss %.9g in history.csv, %.9g of averaged logits", k, best, loss);
        }
        flim_splits_free(&splits);
        flim_predictions_free(&test);
        flim_predictions_free(&all);
    }
    flim_predictions one = predicted("tta/fold_0/best.safetensors", "plain.h5", false),
                     views = predicted("tta/fold_0/best.safetensors", "plain.h5", true);
    assert_memory_equal(one.logits, views.logits, CELLS * sizeof(float)); /* one file of the run, likewise */
    flim_predictions_free(&one);
    flim_predictions_free(&views);
    flim_predictions unasked = predicted("tta", "plain.h5", false), asked = predicted("tta", "plain.h5", true), held;
    snprintf(path, sizeof path, "%s/tta/holdout_predictions.csv", folder);
    ok(flim_predictions_read(path, &held, &err), &err);
    assert_memory_equal(unasked.logits, asked.logits, CELLS * sizeof(float));
    for (int64_t i = 0; i < held.n; i++) {
        assert_memory_equal(&held.logits[i], &asked.logits[held.index[i]], sizeof(float));
    }
    flim_predictions_free(&unasked);
    flim_predictions_free(&asked);
    flim_predictions_free(&held);
}

/* The threshold of a fold is the best one of its validation set, by the objective that was asked for. */
static void thresholds_come_from_the_validation_part(void **state)
{
    (void)state;
    static const char *const objectives[] = {"balanced_accuracy", "f1"};
    flim_error err = {0};
    int differ = 0; /* folds in which the objectives want different thresholds */
    write_cells("mixed.h5", &(variant){.mixed = true});
    for (int o = 0; o < 2; o++) {
        const setting options[] = {{"folds", "3"},  {"epochs", "4"},         {"lr", "0.01"},
                                   {"cv", "group"}, {"val_fraction", "0.4"}, {"threshold_for", objectives[o]}};
        char path[256], name[64];
        flim_splits splits;
        train("mixed.h5", objectives[o], options, sizeof options / sizeof options[0]);
        snprintf(path, sizeof path, "%s/%s/splits.json", folder, objectives[o]);
        ok(flim_splits_read(path, NULL, &splits, &err), &err);
        for (int k = 0; k < 3; k++) {
            const flim_fold *part = &splits.fold[k];
            double want[2], threshold;
            int32_t label[CELLS];
            float logits[CELLS];
            snprintf(name, sizeof name, "%s/fold_%d/best.safetensors", objectives[o], k);
            flim_predictions all = predicted(name, "mixed.h5", false);
            assert_true(part->n_val > 4);
            for (int64_t i = 0; i < part->n_val; i++) {
                label[i] = all.label[part->val[i]];
                logits[i] = all.logits[part->val[i]];
            }
            ok(flim_choose_threshold_for(FLIM_OBJECTIVE_BALANCED_ACCURACY, part->n_val, label, logits, &want[0], &err), &err);
            ok(flim_choose_threshold_for(FLIM_OBJECTIVE_F1, part->n_val, label, logits, &want[1], &err), &err);
            snprintf(path, sizeof path, "%s/%s", folder, objectives[o]);
            ok(flim_fold_threshold(path, k, &threshold, &err), &err);
            assert_true(threshold == want[o]);
            differ += want[0] != want[1];
            flim_predictions_free(&all);
        }
        flim_splits_free(&splits);
    }
    print_message("the objectives differ in %d of 6 folds\n", differ);
    assert_true(differ > 0);
}

static void labels_are_optional(void **state)
{
    (void)state;
    flim_predictions with, without;
    flim_metrics metrics;
    flim_error err = {0};
    need_run();
    write_cells("unlabelled.h5", &(variant){.no_labels = true});
    ok(predict("run", "unlabelled.h5", false, &without, &metrics, &err), &err);
    assert_int_equal(metrics.n, 0);
    with = predicted("run", "plain.h5", false);
    for (int64_t i = 0; i < CELLS; i++) {
        assert_true(without.label[i] == -1 && without.predicted[i] == with.predicted[i]);
        assert_true(memcmp(&with.logits[i], &without.logits[i], sizeof(float)) == 0);
    }
    flim_predictions_free(&with);
    flim_predictions_free(&without);
}

/* Labels count for what the model's do: data may lack classes or their names, but not name them otherwise. */
static void classes_that_are_there_have_the_models_names(void **state)
{
    (void)state;
    static const setting options[] = {{"folds", "2"}, {"epochs", "1"}};
    static const struct {
        variant data;
        bool fits, warned;
    } cases[] = {{{.classes = 2}, true, false},
                 {{.classes = 2, .no_names = true}, true, true},
                 {{.classes = 3, .no_names = true}, true, true},
                 {{.classes = 2, .other_names = true}, false, false},
                 {{.classes = 3, .other_names = true}, false, false}};
    write_cells("three.h5", &(variant){.classes = 3});
    train("three.h5", "three", options, 2);
    for (size_t i = 0; i < 2 * sizeof cases / sizeof cases[0]; i++) {
        flim_predictions out;
        flim_metrics metrics;
        flim_error err = {0};
        said[0] = '\0';
        write_cells("odd.h5", &cases[i / 2].data);
        flim_status status =
            predict(i % 2 ? "three" : "three/fold_1/best.safetensors", "odd.h5", false, &out, &metrics, &err);
        if (status != (cases[i / 2].fits ? FLIM_OK : FLIM_ERROR_DATA)) {
            fail_msg("case %zu: %s", i / 2, status == FLIM_OK ? "taken" : err.text);
        }
        if (!cases[i / 2].fits) {
            assert_non_null(strstr(err.text, "class 0 is 'up' in"));
        } else if ((strstr(said, "odd.h5 names no classes") != NULL) != cases[i / 2].warned) {
            fail_msg("case %zu: it says %s", i / 2, said);
        }
        flim_predictions_free(&out);
    }
    write_cells("latin.h5", &(variant){.latin = true});
    train("latin.h5", "latin", options, 2);
    flim_predictions own = predicted("latin", "latin.h5", false);
    flim_predictions_free(&own);
    /* however long the names are */
    write_cells("long.h5", &(variant){.long_names = true});
    train("long.h5", "long", options, 2);
    own = predicted("long", "long.h5", false);
    flim_predictions_free(&own);
    write_cells("odd.h5", &(variant){.long_names = true, .other_names = true});
    for (int i = 0; i < 2; i++) {
        flim_predictions out;
        flim_metrics metrics;
        flim_error err = {0};
        const char *model = i ? "long" : "long/fold_1/best.safetensors";
        assert_int_equal(predict(model, "odd.h5", false, &out, &metrics, &err), FLIM_ERROR_DATA);
        assert_non_null(strstr(err.text, "class 0 is 'aaa"));
    }
    /* and the other way round: the model has none */
    write_cells("unnamed.h5", &(variant){.no_names = true});
    train("unnamed.h5", "unnamed", options, 2);
    said[0] = '\0';
    flim_predictions named = predicted("unnamed", "plain.h5", false);
    assert_non_null(strstr(said, "best.safetensors names no classes"));
    flim_predictions_free(&named);
}

static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
    static const struct {
        variant data;
        const char *says[3];
    } cases[] = {{{.t = 10}, {"10 x 5 x 5", "8 x 5 x 5", "best.safetensors"}},
                 {{.h = 6}, {"8 x 6 x 5", "8 x 5 x 5", "odd.h5"}},
                 {{.w = 4}, {"8 x 5 x 4", "8 x 5 x 5", "odd.h5"}},
                 {{.classes = 3}, {"3 classes", "knows 2", "odd.h5"}},
                 {{.other_names = true}, {"'up'", "'rest'", "odd.h5"}}};
    need_run();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (int whole = 0; whole < 2; whole++) {
            flim_predictions out;
            flim_metrics metrics;
            flim_error err = {0};
            write_cells("odd.h5", &cases[i].data);
            assert_int_equal(predict(whole ? "run" : "run/fold_0/best.safetensors", "odd.h5", false, &out, &metrics, &err),
                             FLIM_ERROR_DATA);
            assert_null(out.logits);
            for (int j = 0; j < 3; j++) {
                if (!strstr(err.text, cases[i].says[j])) {
                    fail_msg("'%s' is not in: %s", cases[i].says[j], err.text);
                }
            }
        }
    }
    flim_predictions out;
    flim_metrics metrics;
    flim_error err = {0};
    assert_int_equal(predict("no_such_model", "plain.h5", false, &out, &metrics, &err), FLIM_ERROR_DATA);
    assert_non_null(strstr(err.text, "no_such_model"));
    assert_int_equal(predict("plain.h5", "plain.h5", false, &out, &metrics, &err), FLIM_ERROR_DATA);
    assert_non_null(strstr(err.text, "plain.h5"));
}

/* A threshold that is no probability is refused, however the model is named: 0.5, or all of one class, would not be the run's. */
static void a_threshold_is_a_probability(void **state)
{
    (void)state;
    static const char *const bad[] = {"\"0.4\"", "null", "true", "[0.4]", "1.5", "-0.1", "1e400"};
    char path[256], *kept = NULL;
    size_t bytes = 0;
    flim_error err = {0};
    need_run();
    snprintf(path, sizeof path, "%s/run/fold_0/summary.json", folder);
    ok(flim_file_read(path, 1 << 20, &kept, &bytes, &err), &err);
    const char *at = strstr(kept, "\"threshold\": ") + strlen("\"threshold\": ");
    for (size_t i = 0; i < 2 * sizeof bad / sizeof bad[0]; i++) {
        char text[1 << 14];
        flim_predictions out;
        flim_metrics metrics;
        snprintf(text, sizeof text, "%.*s%s%s", (int)(at - kept), kept, bad[i / 2], at + strcspn(at, ",\n"));
        ok(flim_file_write(path, text, strlen(text), &err), &err);
        err.text[0] = '\0';
        const flim_status status =
            predict(i % 2 ? "run" : "run/fold_0/best.safetensors", "plain.h5", false, &out, &metrics, &err);
        if (status != FLIM_ERROR_DATA || !strstr(err.text, "summary.json")) {
            fail_msg("threshold %s, %s: status %d, '%s'", bad[i / 2], i % 2 ? "run" : "weights", status, err.text);
        }
    }
    ok(flim_file_write(path, kept, bytes, &err), &err);
    flim_free(kept);
    flim_predictions again = predicted("run/fold_0/best.safetensors", "plain.h5", false);
    flim_predictions_free(&again);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fold_says_again_what_it_said_of_its_test_part),
        cmocka_unit_test(a_run_is_the_mean_of_its_folds),
        cmocka_unit_test(tta_averages_over_all_ways_to_lay_a_cell_down),
        cmocka_unit_test(a_run_with_tta_averages_in_every_part),
        cmocka_unit_test(thresholds_come_from_the_validation_part),
        cmocka_unit_test(labels_are_optional),
        cmocka_unit_test(classes_that_are_there_have_the_models_names),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(a_threshold_is_a_probability),
    };
    return SMALL_MAIN(tests);
}
