/* The test set chooses nothing: a network trained on random labels scores as chance, however many epochs there are to choose
 * from; and other test labels leave weights, epoch, threshold and every number of the validation set as they are. */
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
#include "formats/safetensors.h"
#include "flim/dataset_writer.h"
#include "flim/random.h"
#include "results/fold_result.h"
#include "train/small_run.h"

enum { MOST = 1200, DONORS = 6, T = 8, SIDE = 3, VOXELS = T * SIDE * SIDE };

/* ---- cells */

typedef struct world {
    int n, classes;
    int32_t label[MOST];
    uint8_t counts[MOST][VOXELS];
} world;

/* Cells whose decay and brightness differ from cell to cell, so that there is something to learn by heart; of class
 * c = i % classes, whose decay is longer by `signal`.  Labels are as many of each class in every donor. */
static void make_world(world *w, int n, int classes, double signal, uint64_t seed)
{
    flim_random random = flim_random_begin(&(flim_cell_id){.seed = seed}, FLIM_RANDOM_SIMULATE);
    w->n = n;
    w->classes = classes;
    for (int i = 0; i < n; i++) {
        w->label[i] = i % classes;
        double bright = 3 + 9 * flim_random_uniform(&random);
        double life = 1.5 + 2 * flim_random_uniform(&random) + signal * w->label[i];
        for (int v = 0; v < VOXELS; v++) {
            double mean = bright * exp(-(v / (SIDE * SIDE)) / life);
            w->counts[i][v] = (uint8_t)fmax(0, floor(mean + sqrt(mean) * flim_random_normal(&random) + 0.5));
        }
    }
}

/* As `name` below the test's folder. */
static void write_world(const world *w, const char *name)
{
    static const char *const donors[DONORS] = {"d1", "d2", "d3", "d4", "d5", "d6"}, *const classes[] = {"a", "b", "c"};
    static const char *group[MOST];
    char path[256];
    flim_error err = {0};
    snprintf(path, sizeof path, "%s/%s", folder, name);
    for (int i = 0; i < w->n; i++) {
        group[i] = donors[i / w->classes % DONORS]; /* each donor has all classes alike */
    }
    const flim_dataset_layout layout = {.n = w->n,
                                        .t = T,
                                        .h = SIDE,
                                        .w = SIDE,
                                        .count_bytes = 1,
                                        .classes = w->classes,
                                        .class_name = classes,
                                        .label = w->label,
                                        .group = group};
    flim_dataset_writer *writer;
    unlink(path); /* of an earlier run */
    ok(flim_dataset_writer_create(path, &layout, &writer, &err), &err);
    for (int i = 0; i < w->n; i++) {
        ok(flim_dataset_writer_cell(writer, i, w->counts[i], NULL, &err), &err);
    }
    ok(flim_dataset_writer_finish(writer, &err), &err);
    flim_dataset_writer_destroy(writer);
}

/* ---- runs */

static void read_splits(const char *run, flim_splits *out)
{
    char path[512];
    flim_error err = {0};
    snprintf(path, sizeof path, "%s/%s/splits.json", folder, run);
    ok(flim_splits_read(path, NULL, out, &err), &err);
}

static void read_result(const char *run, int k, const flim_splits *splits, flim_fold_result *out)
{
    char path[512];
    flim_error err = {0};
    snprintf(path, sizeof path, "%s/%s", folder, run);
    ok(flim_fold_result_read(path, k, &splits->fold[k], out, &err), &err);
}

/* Out-of-fold predictions that are right. */
static int64_t right_of(const char *run)
{
    flim_splits splits;
    int64_t right = 0;
    read_splits(run, &splits);
    for (int k = 0; k < splits.n_folds; k++) {
        flim_fold_result result;
        read_result(run, k, &splits, &result);
        for (int64_t i = 0; i < result.predictions.n; i++) {
            right += result.predictions.label[i] == result.predictions.predicted[i];
        }
        flim_fold_result_free(&result);
    }
    flim_splits_free(&splits);
    return right;
}

/* ---- random labels */

/* The prior's accuracy on balanced random labels is one half (one in K); the network's must lie within four binomial
 * standard errors of it: small studies of 60 cells with 40 epochs to choose from, and large ones.  (Choosing the epoch on
 * the test cells lifts the small studies to 0.53 to 0.54 only: it is test_labels_choose_nothing that would find that out.) */
static void random_labels_score_as_chance(void **state)
{
    (void)state;
    static world w;
    enum { STUDIES = 8, SMALL = 60 };
    static const setting many_epochs[] = {{"folds", "5"}, {"epochs", "40"},     {"patience", "0"},
                                          {"lr", "0.03"}, {"cv", "stratified"}, {"monitor", "balanced_accuracy"}};
    static const setting large[] = {{"folds", "4"}, {"epochs", "8"}, {"batch", "32"}, {"lr", "0.01"}};
    int64_t right = 0;
    for (uint64_t study = 0; study < STUDIES; study++) {
        make_world(&w, SMALL, 2, 0, 100 + study);
        write_world(&w, "random.h5");
        train("random.h5", "random", many_epochs, sizeof many_epochs / sizeof many_epochs[0]);
        right += right_of("random");
        remove_below("random");
    }
    double accuracy = (double)right / (STUDIES * SMALL), error = 0.5 / sqrt(STUDIES * SMALL);
    print_message("%d studies of %d cells, 40 epochs: accuracy %.4f, expected 0.5 +- %.4f\n", STUDIES, SMALL, accuracy,
                  error);
    assert_true(fabs(accuracy - 0.5) < 4 * error);
    for (int classes = 2; classes <= 3; classes++) {
        make_world(&w, MOST, classes, 0, 200);
        write_world(&w, "random.h5");
        train("random.h5", "random", large, sizeof large / sizeof large[0]);
        double chance = 1.0 / classes;
        accuracy = (double)right_of("random") / MOST;
        error = sqrt(chance * (1 - chance) / MOST);
        print_message("%d cells of %d classes: accuracy %.4f, expected %.4f +- %.4f\n", MOST, classes, accuracy, chance,
                      error);
        assert_true(fabs(accuracy - chance) < 4 * error);
        remove_below("random");
    }
}

/* The same set-up with a difference between the classes: the test above would be empty if these runs could learn nothing. */
static void the_same_runs_learn_what_there_is(void **state)
{
    (void)state;
    static world w;
    static const setting large[] = {{"folds", "4"}, {"epochs", "8"}, {"batch", "32"}, {"lr", "0.01"}, {"fold", "0"}};
    make_world(&w, MOST, 2, 3, 200);
    write_world(&w, "signal.h5");
    train("signal.h5", "signal", large, sizeof large / sizeof large[0]);
    flim_splits splits;
    flim_fold_result result;
    read_splits("signal", &splits);
    read_result("signal", 0, &splits, &result);
    print_message("classes that differ: accuracy %.4f\n", result.metrics.value[FLIM_ACCURACY]);
    assert_true(result.metrics.value[FLIM_ACCURACY] > 0.75);
    flim_fold_result_free(&result);
    flim_splits_free(&splits);
    remove_below("signal");
}

/* ---- other test labels */

/* The weights of fold k, by the SHA-256 that the file keeps of its tensors; the rest of it names the labels. */
static void same_tensors(const char *a, const char *b, int k)
{
    char path[512], digest[2][65];
    flim_error err = {0};
    for (int i = 0; i < 2; i++) {
        flim_safetensors *file;
        snprintf(path, sizeof path, "%s/%s/fold_%d/best.safetensors", folder, i ? b : a, k);
        ok(flim_safetensors_open(path, &file, &err), &err);
        ok(flim_safetensors_verify(file, &err), &err);
        const char *sum = flim_safetensors_metadata(file, "sha256");
        assert_non_null(sum);
        snprintf(digest[i], sizeof digest[i], "%s", sum);
        flim_safetensors_close(file);
    }
    assert_string_equal(digest[0], digest[1]);
}

static void same_file(const char *a, const char *b, int k, const char *name)
{
    char path[512], *bytes[2];
    size_t count[2];
    flim_error err = {0};
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s/fold_%d/%s", folder, i ? b : a, k, name);
        ok(flim_file_read(path, 1 << 26, &bytes[i], &count[i], &err), &err);
    }
    if (strcmp(name, "history.csv") == 0) { /* without the columns of times: up to the 13th */
        for (int i = 0; i < 2; i++) {
            char *to = bytes[i], *from = bytes[i];
            for (int field = 0; *from; from++) {
                field = *from == '\n' ? 0 : field + (*from == ',');
                if (field < 13) {
                    *to++ = *from;
                }
            }
            *to = '\0';
            count[i] = (size_t)(to - bytes[i]);
        }
        assert_true(count[0] > 100);
    }
    if (count[0] != count[1] || memcmp(bytes[0], bytes[1], count[0]) != 0) {
        fail_msg("%s of fold %d is another with other test labels", name, k);
    }
    flim_free(bytes[0]);
    flim_free(bytes[1]);
}

static void same_number(const flim_json *a, const flim_json *b, const char *key)
{
    double x = NAN, y = NAN;
    bool number = flim_json_number(flim_json_get(a, key), &x);
    assert_true(flim_json_number(flim_json_get(b, key), &y) == number);
    if (number && x != y) {
        fail_msg("%s is %.17g, with other test labels %.17g", key, x, y);
    }
}

/* summary.json: epoch, threshold and the numbers of the validation set; the test set's must differ. */
static bool compare_summaries(const char *a, const char *b, int k)
{
    flim_json *json[2];
    char path[512];
    flim_error err = {0};
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s/fold_%d/summary.json", folder, i ? b : a, k);
        ok(flim_json_read(path, &json[i], &err), &err);
    }
    static const char *const keys[] = {"epochs", "best_epoch", "threshold", "n_val"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        same_number(json[0], json[1], keys[i]);
    }
    int64_t n_val = -1;
    assert_true(flim_json_integer(flim_json_get(json[0], "n_val"), &n_val));
    const char *chosen_on = flim_json_string(flim_json_get(json[0], "selection"));
    assert_string_equal(chosen_on, n_val ? "validation set" : "last epoch, no validation set");
    if (n_val == 0) { /* nothing to choose on: the last epoch, and 0.5 */
        double threshold = 0;
        int64_t best = -1, epochs = -2;
        assert_true(flim_json_number(flim_json_get(json[0], "threshold"), &threshold) && threshold == 0.5);
        assert_true(flim_json_integer(flim_json_get(json[0], "best_epoch"), &best));
        assert_true(flim_json_integer(flim_json_get(json[0], "epochs"), &epochs) && best == epochs);
    }
    double loss[2] = {NAN, NAN};
    for (int m = 0; m < FLIM_N_METRICS; m++) {
        same_number(flim_json_get(json[0], "val_metrics"), flim_json_get(json[1], "val_metrics"),
                    flim_metric_name((flim_metric)m));
    }
    for (int i = 0; i < 2; i++) {
        assert_true(flim_json_number(flim_json_get(flim_json_get(json[i], "metrics"), "log_loss"), &loss[i]));
        flim_json_free(json[i]);
    }
    return loss[0] != loss[1];
}

static bool same_predictions(const flim_predictions *a, int64_t at, const flim_predictions *b)
{
    for (int64_t i = 0; i < b->n; i++) {
        if (a->index[at + i] != b->index[i] || a->predicted[at + i] != b->predicted[i] ||
            memcmp(a->logits + (at + i) * a->outputs, b->logits + i * b->outputs, (size_t)b->outputs * sizeof(float)) != 0) {
            return false;
        }
    }
    return true;
}

static void read_predictions(const char *run, const char *name, flim_predictions *out)
{
    char path[512];
    flim_error err = {0};
    snprintf(path, sizeof path, "%s/%s/%s", folder, run, name);
    ok(flim_predictions_read(path, out, &err), &err);
}

/* Fold k of `base`, trained again on the same cells with its test labels permuted; true where its test loss changed. */
static bool permute_and_compare(const world *w, const flim_splits *base, int k, const setting *options, size_t n_options)
{
    static world other;
    char path[512], number[16], name[64];
    flim_error err = {0};
    const flim_fold *part = &base->fold[k];
    flim_random random = flim_random_begin(&(flim_cell_id){.seed = 300 + (uint64_t)k}, FLIM_RANDOM_SIMULATE);
    int64_t order[MOST];
    other = *w;
    for (int64_t i = 0; i < part->n_test; i++) {
        order[i] = part->test[i];
    }
    flim_random_shuffle(&random, order, (size_t)part->n_test);
    for (int64_t i = 0; i < part->n_test; i++) {
        other.label[part->test[i]] = w->label[order[i]];
    }
    write_world(&other, "other.h5");
    flim_splits kept = *base; /* without the sum over the data, whose labels are others now */
    kept.sha256[0] = '\0';
    snprintf(path, sizeof path, "%s/splits.json", folder);
    ok(flim_splits_write(&kept, path, &err), &err);
    snprintf(number, sizeof number, "%d", k);
    setting all[16] = {{"splits", path}, {"fold", number}};
    memcpy(all + 2, options, n_options * sizeof *options);
    train("other.h5", "other", all, n_options + 2);
    same_tensors("base", "other", k);
    same_file("base", "other", k, "history.csv");
    bool changed = compare_summaries("base", "other", k);
    for (int b = -1; b < 3; b++) { /* the network, and the baselines, which choose thresholds as well */
        static const char *const baselines[] = {"class_prior", "confounds", "decay"};
        flim_predictions one, two;
        int64_t at = 0;
        if (b < 0) {
            snprintf(name, sizeof name, "fold_%d/predictions.csv", k);
        } else {
            snprintf(name, sizeof name, "baseline_%s.csv", baselines[b]);
        }
        read_predictions("base", name, &one);
        read_predictions("other", name, &two);
        assert_int_equal(two.n, part->n_test);
        for (int j = 0; b >= 0 && j < k; j++) {
            at += base->fold[j].n_test;
        }
        if (!same_predictions(&one, at, &two)) {
            fail_msg("%s of fold %d says other classes with other test labels", name, k);
        }
        flim_predictions_free(&one);
        flim_predictions_free(&two);
    }
    remove_below("other");
    return changed;
}

static void test_labels_choose_nothing(void **state)
{
    (void)state;
    static world w;
    static const char *const modes[] = {"stratified", "stratified-group"}, *const fractions[] = {"0.15", "0"},
                             *const monitors[] = {"val_loss", "roc_auc"};
    for (int round = 0; round < 4; round++) {
        const int classes = 2 + round / 2;
        const setting options[] = {{"cv", modes[round % 2]},
                                   {"val_fraction", fractions[(round + round / 2) % 2]},
                                   {"monitor", monitors[round / 2]},
                                   {"folds", "3"},
                                   {"epochs", "5"},
                                   {"sampler", round == 3 ? "natural" : "balanced"}};
        const size_t n_options = sizeof options / sizeof options[0];
        make_world(&w, 120, classes, 1, 400 + (uint64_t)round);
        write_world(&w, "base.h5");
        train("base.h5", "base", options, n_options);
        flim_splits base;
        int changed = 0;
        read_splits("base", &base);
        for (int k = 0; k < base.n_folds; k++) {
            changed += permute_and_compare(&w, &base, k, options, n_options);
        }
        print_message("%d classes, %s, validation %s: %d of %d folds score otherwise, nothing else has changed\n", classes,
                      options[0].value, options[1].value, changed, base.n_folds);
        assert_true(changed > 0); /* the labels were read at all */
        flim_splits_free(&base);
        remove_below("base");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_labels_choose_nothing),
        cmocka_unit_test(the_same_runs_learn_what_there_is),
        cmocka_unit_test(random_labels_score_as_chance),
    };
    return SMALL_MAIN(tests);
}
