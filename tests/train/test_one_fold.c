/* One fold alone: the same bits as in the whole run, and the summary is rebuilt from the folds that are there.  And what
 * else must not change a fold's numbers: how many cells are evaluated at a time. */
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
#include "formats/json.h"
#include "flim/metrics.h"
#include "flim/simulate.h"
#include "train/small_run.h"

static const setting options[] = {{"folds", "4"}, {"epochs", "3"}};
enum { OPTIONS = sizeof options / sizeof options[0] };

/* The bytes of a file of a run; history.csv without its times (after the 13th column), weights without their header, which
 * names the recipe.  The caller frees them. */
static char *contents(const char *run, const char *name)
{
    char path[512], *bytes;
    size_t count;
    flim_error err = {0};
    snprintf(path, sizeof path, "%s/%s/%s", folder, run, name);
    ok(flim_file_read(path, 1 << 26, &bytes, &count, &err), &err);
    uint64_t header = 0;
    if (strstr(name, ".safetensors")) {
        memcpy(&header, bytes, sizeof header);
        header += sizeof header;
        assert_true(header < count);
    }
    char *to = bytes, *from = bytes + header;
    const bool history = strstr(name, "history.csv") != NULL;
    for (int field = 0; from < bytes + count; from++) {
        field = *from == '\n' ? 0 : field + (*from == ',');
        if (!history || field < 13) {
            *to++ = *from;
        }
    }
    char *copy = calloc(1, (size_t)(to - bytes) + sizeof(size_t));
    assert_non_null(copy);
    *(size_t *)(void *)copy = (size_t)(to - bytes);
    memcpy(copy + sizeof(size_t), bytes, (size_t)(to - bytes));
    flim_free(bytes);
    return copy;
}

static void same_contents(const char *a, const char *b, const char *name)
{
    char *x = contents(a, name), *y = contents(b, name);
    size_t n = *(size_t *)(void *)x;
    if (n != *(size_t *)(void *)y || memcmp(x, y, n + sizeof(size_t)) != 0) {
        fail_msg("%s is another in %s than in %s", name, a, b);
    }
    assert_true(n > 20);
    free(x);
    free(y);
}

static void same_fold(const char *a, const char *b, int k)
{
    static const char *const files[] = {"best.safetensors", "predictions.csv", "history.csv", "summary.json", "DONE"};
    for (size_t i = 0; i + 1 < sizeof files / sizeof files[0]; i++) {
        char name[64];
        snprintf(name, sizeof name, "fold_%d/%s", k, files[i]);
        same_contents(a, b, name);
    }
}

/* summary.json holds exactly the folds of `want`, with the mean of their accuracies. */
static void summary_covers(const char *run, const int *want, size_t n)
{
    char path[512];
    flim_json *json;
    flim_error err = {0};
    double sum = 0, value, mean;
    snprintf(path, sizeof path, "%s/%s/summary.json", folder, run);
    ok(flim_json_read(path, &json, &err), &err);
    const flim_json *folds = flim_json_get(json, "folds");
    assert_int_equal(flim_json_length(folds), n);
    for (size_t i = 0; i < n; i++) {
        int64_t k = -1;
        const flim_json *fold = flim_json_at(folds, i);
        assert_true(flim_json_integer(flim_json_get(fold, "fold"), &k) && k == want[i]);
        assert_true(flim_json_number(flim_json_get(flim_json_get(fold, "metrics"), "accuracy"), &value));
        sum += value;
    }
    assert_true(flim_json_number(flim_json_get(flim_json_get(json, "mean"), "accuracy"), &mean));
    assert_true(fabs(mean - sum / (double)n) < 1e-12);
    flim_json_free(json);
}

static void resume(const char *run, const char *fold)
{
    const setting again[] = {{"resume", "true"}, {"fold", fold}};
    train("cells.h5", run, again, 2);
}

static void simulate_cells(void)
{
    flim_simulate_options simulate = flim_simulate_defaults();
    flim_simulation *simulation;
    flim_error err = {0};
    char path[512];
    simulate.cells = 72;
    simulate.bins = 8;
    simulate.height = simulate.width = 5;
    simulate.photons = 200;
    ok(flim_simulation_create(&simulate, &simulation, &err), &err);
    snprintf(path, sizeof path, "%s/cells.h5", folder);
    unlink(path); /* of an earlier run */
    ok(flim_simulation_write(simulation, path, NULL, NULL, &err), &err);
    flim_simulation_destroy(simulation);
}

static void one_fold_has_the_bits_of_the_whole_run(void **state)
{
    (void)state;
    simulate_cells();
    train("cells.h5", "whole", options, OPTIONS);
    summary_covers("whole", (int[]){0, 1, 2, 3}, 4);

    /* in a folder of its own; then another; then the rest */
    setting alone[OPTIONS + 1] = {{"fold", "3"}};
    memcpy(alone + 1, options, sizeof options);
    train("cells.h5", "alone", alone, OPTIONS + 1);
    same_fold("whole", "alone", 3);
    summary_covers("alone", (int[]){3}, 1);
    resume("alone", "1");
    same_fold("whole", "alone", 1);
    summary_covers("alone", (int[]){1, 3}, 2);
    resume("alone", "all");
    static const char *const files[] = {"summary.json", "summary.csv", "splits.json", "baseline_confounds.csv"};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        same_contents("whole", "alone", files[i]);
    }

    /* lost from a finished run and trained again */
    remove_below("alone/fold_3");
    remove_below("alone/summary.json");
    resume("alone", "3");
    same_fold("whole", "alone", 3);
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        same_contents("whole", "alone", files[i]);
    }
}

/* Cells of 8 x 3 x 3 whose decay falls faster in class 1; label, group: (n). */
static void write_cells(const char *name, int64_t n, const int32_t *label, const int64_t *group)
{
    enum { T = 8, PIXELS = 9 };
    char path[512];
    uint8_t counts[T * PIXELS];
    flim_error err = {0};
    const flim_dataset_layout layout = {
        .n = n, .t = T, .h = 3, .w = 3, .count_bytes = 1, .label = label, .group_number = group};
    flim_dataset_writer *writer;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    unlink(path); /* of an earlier run */
    ok(flim_dataset_writer_create(path, &layout, &writer, &err), &err);
    for (int64_t i = 0; i < n; i++) {
        for (int j = 0; j < T * PIXELS; j++) {
            counts[j] = (uint8_t)(20 / (1 + j / PIXELS * (1 + label[i])) + (i * 7 + j * 3) % 5);
        }
        ok(flim_dataset_writer_cell(writer, i, counts, NULL, &err), &err);
    }
    ok(flim_dataset_writer_finish(writer, &err), &err);
    flim_dataset_writer_destroy(writer);
}

/* Donors of very different sizes, so that training sets are, too: batch and learning rate are the whole run's all the
 * same. */
static void a_fold_alone_has_the_batch_and_rate_of_the_whole_run(void **state)
{
    (void)state;
    enum { CELLS = 40 };
    static const int of_donor[] = {16, 6, 8, 4, 6};
    static const setting ways[][3] = {{{"batch", "auto"}, {"lr_scale", "none"}, {"lr_batch", "64"}},
                                      {{"batch", "64"}, {"lr_scale", "linear"}, {"lr_batch", "64"}},
                                      {{"batch", "auto"}, {"lr_scale", "sqrt"}, {"lr_batch", "7"}}};
    int32_t label[CELLS];
    int64_t group[CELLS], n = 0;
    for (int donor = 0; donor < 5; donor++) {
        for (int i = 0; i < of_donor[donor]; i++, n++) {
            label[n] = i % 2;
            group[n] = donor;
        }
    }
    assert_int_equal(n, CELLS);
    write_cells("uneven.h5", CELLS, label, group);
    for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++) {
        char whole[16], alone[16];
        snprintf(whole, sizeof whole, "whole%zu", w);
        snprintf(alone, sizeof alone, "alone%zu", w);
        setting all[6] = {ways[w][0], ways[w][1], ways[w][2], {"epochs", "2"}, {"cv", "leave-one-group-out"}, {"fold", "0"}};
        train("uneven.h5", whole, all, 5);
        train("uneven.h5", alone, all, 6); /* fold 0 trains on 24 cells, the others on up to 36 */
        same_fold(whole, alone, 0);
        resume(alone, "3");
        resume(alone, "all");
        for (int k = 0; k < 5; k++) {
            same_fold(whole, alone, k);
        }
        same_contents(whole, alone, "summary.json");
    }
}

/* One donor has all of class 1: tested, it leaves none to train and validate on, and every F1 and AUC is the first one's. */
static void where_validation_lacks_a_class_the_loss_chooses(void **state)
{
    (void)state;
    enum { CELLS = 40 };
    static const char *const monitors[] = {"val_loss", "roc_auc", "f1", "balanced_accuracy"};
    int32_t label[CELLS];
    int64_t group[CELLS], best = 0;
    for (int i = 0; i < CELLS; i++) {
        group[i] = i / 8;
        label[i] = i < 8;
    }
    write_cells("one_donor.h5", CELLS, label, group);
    for (size_t m = 0; m < sizeof monitors / sizeof monitors[0]; m++) {
        const setting all[] = {{"monitor", monitors[m]}, {"epochs", "4"}, {"cv", "leave-one-group-out"}};
        train("one_donor.h5", monitors[m], all, 3);
        for (int k = 0; m > 0 && k < 5; k++) {
            same_fold("val_loss", monitors[m], k);
        }
    }
    char path[512];
    flim_json *json;
    flim_error err = {0};
    snprintf(path, sizeof path, "%s/val_loss/fold_0/summary.json", folder);
    ok(flim_json_read(path, &json, &err), &err);
    assert_true(flim_json_integer(flim_json_get(json, "best_epoch"), &best) && best > 1);
    flim_json_free(json);
}

/* The numbers of a CSV file without its header, texts as 0; of history.csv without its times.  Returns how many. */
static size_t numbers_of(const char *run, const char *name, double *out, size_t most)
{
    char *copy = contents(run, name), *text = copy + sizeof(size_t), *save = NULL;
    size_t length = *(size_t *)(void *)copy, n = 0;
    char *ended = calloc(1, length + 1);
    assert_non_null(ended);
    memcpy(ended, text, length);
    char *at = strtok_r(ended, "\n", &save);
    while (at && (at = strtok_r(NULL, ",\n", &save)) && n < most) {
        out[n++] = strtod(at, NULL);
    }
    free(ended);
    free(copy);
    return n;
}

/* Losses and metrics are sums over cells, not means of means over batches: 9 validation cells in batches of 1, 7 and 64. */
static void the_evaluation_batch_changes_no_number(void **state)
{
    (void)state;
    enum { MOST = 2000 };
    static const char *const batches[] = {"1", "7", "64"}, *const files[] = {"fold_0/history.csv", "fold_0/predictions.csv"};
    static double first[2][MOST], again[MOST];
    size_t n[2] = {0, 0};
    simulate_cells();
    for (int b = 0; b < 3; b++) {
        const setting all[] = {{"folds", "4"}, {"epochs", "3"}, {"fold", "0"}, {"eval_batch", batches[b]}};
        train("cells.h5", batches[b], all, sizeof all / sizeof all[0]);
        for (int f = 0; f < 2; f++) {
            size_t count = numbers_of(batches[b], files[f], b ? again : first[f], MOST);
            n[f] = b ? n[f] : count;
            assert_true(count == n[f] && count >= 36 && count < MOST);
            for (size_t i = 0; b && i < count; i++) {
                if (fabs(again[i] - first[f][i]) > 1e-6 * fmax(1, fabs(first[f][i]))) {
                    fail_msg("%s, number %zu: %.9g with evaluation batches of %s, %.9g with 1", files[f], i, again[i],
                             batches[b], first[f][i]);
                }
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_fold_has_the_bits_of_the_whole_run),
                                       cmocka_unit_test(a_fold_alone_has_the_batch_and_rate_of_the_whole_run),
                                       cmocka_unit_test(where_validation_lacks_a_class_the_loss_chooses),
                                       cmocka_unit_test(the_evaluation_batch_changes_no_number)};
    return SMALL_MAIN(tests);
}
