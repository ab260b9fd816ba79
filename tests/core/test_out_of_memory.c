/* Every allocation of a small run fails once (curl's torture test): each time the run ends with a clean error, or without
 * harm where it can do without; nothing crashes, and under AddressSanitizer nothing leaks.
 *
 * By default a sample of the allocations, all of the first ones; FLIM_TORTURE=all takes every one, FLIM_TORTURE=N only the
 * N-th.
 */
#include <setjmp.h>
#include <stdarg.h>
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
#include "flim/train.h"

enum { CELLS = 16, T = 8, SIDE = 3 };

static char folder[] = "/tmp/flim_torture_XXXXXX";

static void make_data(const char *path)
{
    int32_t label[CELLS];
    const char *group[CELLS];
    static const char *const names[] = {"a", "b", "c", "d"}, *const classes[] = {"no", "yes"};
    for (int i = 0; i < CELLS; i++) {
        label[i] = i % 2;
        group[i] = names[i / 4];
    }
    const flim_dataset_layout layout = {.n = CELLS,
                                        .t = T,
                                        .h = SIDE,
                                        .w = SIDE,
                                        .count_bytes = 1,
                                        .classes = 2,
                                        .class_name = classes,
                                        .label = label,
                                        .group = group};
    flim_dataset_writer *writer;
    unlink(path); /* of an earlier run */
    assert_int_equal(flim_dataset_writer_create(path, &layout, &writer, NULL), FLIM_OK);
    for (int i = 0; i < CELLS; i++) {
        uint8_t counts[T * SIDE * SIDE];
        for (int v = 0; v < T * SIDE * SIDE; v++) {
            counts[v] = (uint8_t)((v * 7 + i * 13) % 5);
        }
        assert_int_equal(flim_dataset_writer_cell(writer, i, counts, NULL, NULL), FLIM_OK);
    }
    assert_int_equal(flim_dataset_writer_finish(writer, NULL), FLIM_OK);
    flim_dataset_writer_destroy(writer);
}

static long after_found; /* the allocation that fails after the batch was found; 0 = none is made to */

static void arm(void *context, flim_log_level level, const char *text)
{
    (void)context, (void)level;
    if (after_found > 0 && strncmp(text, "Batch auto: ", 12) == 0) {
        flim_alloc_fail_at(after_found);
    }
}

/* The run with its settings; those are made before the torture begins. */
static flim_status run(long fail_at, const char *batch, const char *on_oom, long *made, flim_error *err)
{
    char data[128], out[128], remove[160];
    snprintf(data, sizeof data, "data=%s/t.h5", folder);
    snprintf(out, sizeof out, "out=%s/run", folder);
    snprintf(remove, sizeof remove, "rm -rf %s/run", folder);
    assert_int_equal(system(remove), 0);
    static const char *const fixed[][2] = {
        {"preset", "tiny"}, {"folds", "2"}, {"epochs", "1"}, {"workers", "2"}, {"device", "cpu"}};
    flim_settings settings;
    assert_int_equal(flim_settings_init(&settings, NULL), FLIM_OK);
    for (size_t i = 0; i < sizeof fixed / sizeof fixed[0]; i++) {
        assert_int_equal(flim_settings_set(&settings, fixed[i][0], fixed[i][1], NULL), FLIM_OK);
    }
    assert_int_equal(flim_settings_set(&settings, "data", data + 5, NULL), FLIM_OK);
    assert_int_equal(flim_settings_set(&settings, "out", out + 4, NULL), FLIM_OK);
    assert_int_equal(flim_settings_set(&settings, "batch", batch, NULL), FLIM_OK);
    assert_int_equal(flim_settings_set(&settings, "on_oom", on_oom, NULL), FLIM_OK);
    const flim_train_hooks hooks = {.log = {arm, NULL}};
    flim_alloc_fail_at(fail_at);
    flim_status status = flim_train_cv(&settings, &hooks, NULL, err);
    *made = flim_alloc_fail_at(0);
    flim_settings_free(&settings);
    return status;
}

static void each_failed_allocation_ends_cleanly(void **state)
{
    (void)state;
    const char *wish = getenv("FLIM_TORTURE");
    long total, made, only = wish && strcmp(wish, "all") != 0 ? strtol(wish, NULL, 10) : 0;
    flim_error err = {0};
    if (run(0, "4", "stop", &total, &err) != FLIM_OK) {
        fail_msg("the undisturbed run failed: %s", err.text);
    }
    assert_true(total > 100);
    long step = wish && !only ? 1 : total / 60, tried = 0, survived = 0;
    for (long n = only ? only : 1; n <= total; n += n < 30 || step < 1 ? 1 : step) {
        err = (flim_error){0};
        flim_status status = run(n, "4", "stop", &made, &err);
        if (status != FLIM_OK && (status != FLIM_ERROR_MEMORY || !strstr(err.text, "memory"))) {
            fail_msg("FLIM_TORTURE=%ld: status %d (%s), an error of memory was expected", n, status, err.text);
        }
        tried++;
        survived += status == FLIM_OK;
        if (only) {
            break;
        }
    }
    print_message("%ld allocations in a run, %ld failed in turn, %ld of them were done without\n", total, tried, survived);
    assert_true(only || survived < tried / 2);
    if (run(0, "4", "stop", &made, &err) != FLIM_OK) { /* and nothing of it lasts */
        fail_msg("%s", err.text);
    }
}

/* True where a file of the run folder holds a text. */
static bool run_says(const char *file, const char *text)
{
    char path[128], *bytes = NULL;
    size_t count;
    snprintf(path, sizeof path, "%s/run/%s", folder, file);
    bool found = flim_file_read(path, 1 << 20, &bytes, &count, NULL) == FLIM_OK && strstr(bytes, text);
    flim_free(bytes);
    return found;
}

/* --on-oom retry: where memory fails within a fold, the run ends all the same, with half the batch and twice the
 * accumulation, and says so in config.yaml and resume.json. */
static void retrying_halves_the_batch(void **state)
{
    (void)state;
    long total, made, halved = 0, in_fold = 0;
    flim_error err = {0};
    assert_int_equal(run(0, "4", "retry", &total, &err), FLIM_OK);
    assert_true(run_says("config.yaml", "\nbatch: 4\n") && run_says("config.yaml", "\naccumulate: 1\n"));
    for (long n = total / 4; n <= total; n += 1 + total / 12) {
        err = (flim_error){0};
        flim_status status = run(n, "4", "retry", &made, &err);
        if (status != FLIM_OK && status != FLIM_ERROR_MEMORY) {
            fail_msg("allocation %ld: status %d (%s)", n, status, err.text);
        }
        if (status == FLIM_OK && run_says("config.yaml", "\nbatch: 2\n")) {
            halved++;
            assert_true(run_says("config.yaml", "\naccumulate: 2\n"));
            assert_true(run_says("train.log", "on-oom retry: batch 2 x 2 instead of 4 x 1"));
            assert_true(run_says("fold_1/DONE", "done"));
            in_fold += run_says("resume.json", "out of memory: batch 2 x accumulate 2 from here on");
        }
    }
    print_message("%ld runs went on with half the batch, %ld of them from within a fold\n", halved, in_fold);
    assert_true(in_fold > 0);
}

/* A batch of all four cells of a training set and more, which nothing divides: the part is cut in two, and not into single cells. */
static void a_whole_part_is_cut_in_two(void **state)
{
    (void)state;
    long total, made, cut = 0;
    flim_error err = {0};
    assert_int_equal(run(0, "5", "stop", &total, &err), FLIM_OK);
    for (long n = total / 2; n <= total && cut == 0; n += 1 + total / 12) {
        err = (flim_error){0};
        flim_status status = run(n, "5", "retry", &made, &err);
        cut += status == FLIM_OK && run_says("train.log", "on-oom retry: batch 3 x 2 instead of 5 x 1");
        assert_true(cut == 0 || (run_says("config.yaml", "\nbatch: 3\n") && run_says("fold_1/DONE", "done")));
        if (run(n, "5", "stop", &made, &err) == FLIM_ERROR_MEMORY && run_says("config.yaml", "batch: 5")) {
            assert_true(run_says("train.log", "train_cv --resume --resume-override --batch 3 --accumulate 2 --out "));
        }
    }
    assert_true(cut > 0);
}

/* --batch auto: where memory fails between the step that confirmed the batch and the first fold, fewer cells are taken; later
 * a run ends, as it would with a batch that was given. */
static void a_found_batch_is_lowered_before_the_run(void **state)
{
    (void)state;
    long made, lowered = 0, stopped = 0;
    flim_error err = {0};
    assert_int_equal(run(0, "auto", "stop", &made, &err), FLIM_OK);
    assert_true(run_says("train.log", "Batch auto: ") && !run_says("train.log", "cells do not fit") &&
                !run_says("train.log", "after all"));
    for (after_found = 1; after_found < 400 && (lowered < 3 || stopped < 3); after_found += after_found < 12 ? 3 : 29) {
        err = (flim_error){0};
        flim_status status = run(0, "auto", "stop", &made, &err);
        if (status != FLIM_OK && status != FLIM_ERROR_MEMORY) {
            fail_msg("allocation %ld after the batch was found: status %d (%s)", after_found, status, err.text);
        }
        stopped += status != FLIM_OK;
        if (status == FLIM_OK && run_says("train.log", "cells do not fit after all")) {
            lowered++;
            assert_true(run_says("config.yaml", "\naccumulate: 1\n") && run_says("fold_1/DONE", "done"));
            assert_false(run_says("train.log", "on-oom"));
        }
    }
    after_found = 0;
    print_message("%ld runs took fewer cells, %ld ended\n", lowered, stopped);
    assert_true(lowered > 0 && stopped > 0);
}

int main(void)
{
    char path[64], remove[64];
    if (!mkdtemp(folder)) {
        return 1;
    }
    snprintf(path, sizeof path, "%s/t.h5", folder);
    make_data(path);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_failed_allocation_ends_cleanly), cmocka_unit_test(retrying_halves_the_batch),
        cmocka_unit_test(a_whole_part_is_cut_in_two), cmocka_unit_test(a_found_batch_is_lowered_before_the_run)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    snprintf(remove, sizeof remove, "rm -rf %s", folder);
    return system(remove) == 0 ? failed : 1;
}
