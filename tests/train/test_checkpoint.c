/* Checkpoints: what is written is read back to the bit; damaged, foreign and half-renamed files are told apart. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/file.h"
#include "core/alloc.h"
#include "train/checkpoint.h"
#include "train/checkpoint_writer.h"

static const char identity[] = "data 0123, splits 4567, width 4";

typedef struct fixture {
    char folder[64];
    flim_network net;
    flim_fold_state state;
    char warning[2048];
} fixture;

static void keep_warning(void *context, flim_log_level level, const char *text)
{
    fixture *f = context;
    if (level == FLIM_LOG_WARNING) {
        snprintf(f->warning, sizeof f->warning, "%s", text);
    }
}

static void fill(float *at, int64_t n, float first)
{
    for (int64_t i = 0; i < n; i++) {
        at[i] = first + (float)i * 0.001f;
    }
}

static void fill_state(flim_fold_state *s, float shift)
{
    fill(s->parameter, s->parameters, 1 + shift);
    fill(s->moment1, s->parameters, 2 + shift);
    fill(s->moment2, s->parameters, 3 + shift);
    fill(s->statistic, s->statistics, 4 + shift);
    fill(s->best_parameter, s->parameters, 5 + shift);
    fill(s->best_statistic, s->statistics, 6 + shift);
    s->epoch = 3 + (int64_t)shift;
    s->calls = 7;
    s->batch = 16;
    s->accumulate = 2;
    s->skipped_before = 5;
    s->counters.adam_step = 99;
    s->counters.loss_scale = 1024;
    s->totals.loss = 0.1;
    s->totals.nonfinite_call = -1;
    s->best_value = -0.25;
    s->best_epoch = 2;
    s->n_history = 3;
    for (int i = 0; i < 3; i++) {
        s->history[i] = (flim_epoch_row){.epoch = i + 1, .train_loss = 0.5 / (i + 1), .cells = 65};
    }
}

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    snprintf(f->folder, sizeof f->folder, "/tmp/flim_checkpoint_XXXXXX");
    assert_non_null(mkdtemp(f->folder));
    assert_int_equal(flim_network_build(&f->net, 4, 2, 8, 3, 3, NULL), FLIM_OK);
    assert_int_equal(flim_fold_state_create(&f->net, 5, &f->state, NULL), FLIM_OK);
    fill_state(&f->state, 0);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    flim_fold_state_free(&f->state);
    flim_checkpoint_remove(f->folder);
    assert_int_equal(access(f->folder, F_OK), -1); /* nothing else was left in it */
    free(f);
    return 0;
}

static flim_status read_back(fixture *f, const char *who, flim_fold_state *out, bool *found, flim_error *err)
{
    const flim_log log = {keep_warning, f};
    assert_int_equal(flim_fold_state_create(&f->net, 5, out, NULL), FLIM_OK);
    return flim_checkpoint_read(out, f->folder, &who, 1, &log, found, err);
}

static void same_state(const flim_fold_state *a, const flim_fold_state *b)
{
    size_t p = (size_t)a->parameters * sizeof(float), s = (size_t)a->statistics * sizeof(float);
    assert_memory_equal(a->parameter, b->parameter, p);
    assert_memory_equal(a->moment1, b->moment1, p);
    assert_memory_equal(a->moment2, b->moment2, p);
    assert_memory_equal(a->statistic, b->statistic, s);
    assert_memory_equal(a->best_parameter, b->best_parameter, p);
    assert_memory_equal(a->best_statistic, b->best_statistic, s);
    assert_int_equal(a->epoch, b->epoch);
    assert_int_equal(a->calls, b->calls);
    assert_int_equal(a->batch, b->batch);
    assert_int_equal(a->accumulate, b->accumulate);
    assert_int_equal(a->skipped_before, b->skipped_before);
    assert_int_equal(a->counters.adam_step, b->counters.adam_step);
    assert_true(a->counters.loss_scale == b->counters.loss_scale);
    assert_true(a->totals.loss == b->totals.loss);
    assert_int_equal(a->totals.nonfinite_call, b->totals.nonfinite_call);
    assert_int_equal(a->best_epoch, b->best_epoch);
    assert_int_equal(a->n_history, b->n_history);
    for (int64_t i = 0; i < a->n_history; i++) {
        assert_true(a->history[i].train_loss == b->history[i].train_loss);
        assert_int_equal(a->history[i].cells, b->history[i].cells);
    }
}

static void nothing_there_is_no_error(void **state)
{
    fixture *f = *state;
    flim_fold_state got;
    bool found = true;
    assert_int_equal(read_back(f, identity, &got, &found, NULL), FLIM_OK);
    assert_false(found);
    flim_fold_state_free(&got);
}

static void reads_back_to_the_bit(void **state)
{
    fixture *f = *state;
    flim_fold_state got;
    bool found = false;
    assert_int_equal(flim_checkpoint_write(&f->state, f->folder, identity, NULL), FLIM_OK);
    assert_int_equal(read_back(f, identity, &got, &found, NULL), FLIM_OK);
    assert_true(found);
    same_state(&f->state, &got);
    flim_fold_state_free(&got);
}

static void another_run_is_refused_with_what_differs(void **state)
{
    fixture *f = *state;
    flim_fold_state got;
    bool found;
    flim_error err = {0};
    assert_int_equal(flim_checkpoint_write(&f->state, f->folder, identity, NULL), FLIM_OK);
    assert_int_equal(read_back(f, "data 0123, splits 9999, width 4, more 1", &got, &found, &err), FLIM_ERROR_USAGE);
    assert_non_null(strstr(err.text, "another run: splits 4567 there, splits 9999 here;  there, more 1 here"));
    assert_null(strstr(err.text, "width"));
    flim_fold_state_free(&got);
}

static void an_identity_of_the_list_will_do_and_versions_are_not_compared(void **state)
{
    fixture *f = *state;
    flim_fold_state got;
    bool found;
    const flim_log log = {keep_warning, f};
    const char *const both[] = {"data 0123, splits 4567, width 8\nversion 2", identity};
    assert_int_equal(flim_checkpoint_write(&f->state, f->folder, "data 0123, splits 4567, width 4\nversion 1", NULL),
                     FLIM_OK);
    assert_int_equal(flim_fold_state_create(&f->net, 5, &got, NULL), FLIM_OK);
    assert_int_equal(flim_checkpoint_read(&got, f->folder, both, 1, &log, &found, NULL), FLIM_ERROR_USAGE);
    assert_int_equal(flim_checkpoint_read(&got, f->folder, both, 2, &log, &found, NULL), FLIM_OK);
    assert_true(found);
    same_state(&f->state, &got);
    flim_fold_state_free(&got);
    flim_error err = {0};
    assert_int_equal(read_back(f, "data 0123, splits 4567\nversion 1", &got, &found, &err), FLIM_ERROR_USAGE);
    assert_null(strstr(err.text, "version"));
    flim_fold_state_free(&got);
}

/* --resume-override may have made the epochs fewer: the history and the epoch in progress have room all the same. */
static void a_longer_history_is_read(void **state)
{
    fixture *f = *state;
    flim_fold_state got;
    bool found = false;
    const char *const who = identity;
    assert_int_equal(flim_checkpoint_write(&f->state, f->folder, identity, NULL), FLIM_OK);
    for (int64_t epochs = 1; epochs <= 4; epochs++) {
        assert_int_equal(flim_fold_state_create(&f->net, epochs, &got, NULL), FLIM_OK);
        assert_int_equal(flim_checkpoint_read(&got, f->folder, &who, 1, NULL, &found, NULL), FLIM_OK);
        assert_true(found);
        assert_true(got.history_capacity > got.n_history);
        same_state(&f->state, &got);
        flim_fold_state_free(&got);
    }
}

/* Changes one file by `how`: 0 truncates it by a byte, 1 empties it, 2 + n flips a bit at n/16 of its length. */
static void damage(const char *path, int how)
{
    char *bytes;
    size_t count;
    assert_int_equal(flim_file_read(path, 1 << 24, &bytes, &count, NULL), FLIM_OK);
    size_t keep = how == 0 ? count - 1 : how == 1 ? 0 : count;
    if (how >= 2) {
        bytes[(count - 1) * (size_t)(how - 2) / 16] ^= 4;
    }
    assert_int_equal(flim_file_write(path, bytes, keep, NULL), FLIM_OK);
    flim_free(bytes);
}

static void a_damaged_newest_one_gives_way_to_the_previous(void **state)
{
    fixture *f = *state;
    char newest[128];
    snprintf(newest, sizeof newest, "%s/state.ckpt", f->folder);
    for (int how = 0; how < 19; how++) {
        flim_fold_state got;
        bool found = false;
        fill_state(&f->state, 0);
        assert_int_equal(flim_checkpoint_write(&f->state, f->folder, identity, NULL), FLIM_OK);
        fill_state(&f->state, 1);
        assert_int_equal(flim_checkpoint_write(&f->state, f->folder, identity, NULL), FLIM_OK);
        damage(newest, how);
        f->warning[0] = '\0';
        flim_error err = {0};
        if (read_back(f, identity, &got, &found, &err) != FLIM_OK) {
            fail_msg("damage %d: %s", how, err.text);
        }
        assert_true(found);
        assert_int_equal(got.epoch, 3);
        assert_non_null(strstr(f->warning, "state.ckpt"));
        flim_fold_state_free(&got);
    }
}

static void two_damaged_ones_are_an_error_that_names_the_first(void **state)
{
    fixture *f = *state;
    char path[128];
    flim_fold_state got;
    bool found;
    flim_error err = {0};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(flim_checkpoint_write(&f->state, f->folder, identity, NULL), FLIM_OK);
    }
    snprintf(path, sizeof path, "%s/state.ckpt", f->folder);
    damage(path, 0);
    snprintf(path, sizeof path, "%s/state.previous.ckpt", f->folder);
    damage(path, 1);
    assert_int_equal(read_back(f, identity, &got, &found, &err), FLIM_ERROR_DATA);
    assert_non_null(strstr(err.text, "state.ckpt"));
    assert_non_null(strstr(err.text, "truncated"));
    flim_fold_state_free(&got);
}

static void a_kill_between_the_renames_loses_nothing(void **state)
{
    fixture *f = *state;
    char newest[128], fresh[128];
    flim_fold_state got;
    bool found = false;
    assert_int_equal(flim_checkpoint_write(&f->state, f->folder, identity, NULL), FLIM_OK);
    fill_state(&f->state, 1);
    assert_int_equal(flim_checkpoint_write(&f->state, f->folder, identity, NULL), FLIM_OK);
    snprintf(newest, sizeof newest, "%s/state.ckpt", f->folder);
    snprintf(fresh, sizeof fresh, "%s/state.new.ckpt", f->folder);
    assert_int_equal(rename(newest, fresh), 0); /* as it stands after the first rename */
    assert_int_equal(read_back(f, identity, &got, &found, NULL), FLIM_OK);
    assert_true(found);
    assert_int_equal(got.epoch, 4);
    assert_int_equal(flim_checkpoint_write(&f->state, f->folder, identity, NULL), FLIM_OK);
    flim_fold_state_free(&got);
}

static void another_format_version_is_named(void **state)
{
    fixture *f = *state;
    char path[128], *bytes;
    size_t count;
    flim_fold_state got;
    bool found;
    flim_error err = {0};
    assert_int_equal(flim_checkpoint_write(&f->state, f->folder, identity, NULL), FLIM_OK);
    snprintf(path, sizeof path, "%s/state.ckpt", f->folder);
    assert_int_equal(flim_file_read(path, 1 << 24, &bytes, &count, NULL), FLIM_OK);
    bytes[8] = 77;
    assert_int_equal(flim_file_write(path, bytes, count, NULL), FLIM_OK);
    flim_free(bytes);
    assert_int_equal(read_back(f, identity, &got, &found, &err), FLIM_ERROR_DATA);
    assert_non_null(strstr(err.text, "format 77"));
    flim_fold_state_free(&got);
}

static void a_folder_that_is_gone_is_a_write_error(void **state)
{
    fixture *f = *state;
    flim_error err = {0};
    assert_int_equal(flim_checkpoint_write(&f->state, "/nonexistent/checkpoint", identity, &err), FLIM_ERROR_WRITE);
    assert_non_null(strstr(err.text, "/nonexistent/checkpoint"));
}

static void the_thread_writes_what_was_submitted_and_hands_errors_over(void **state)
{
    fixture *f = *state;
    flim_checkpoint_writer *writer;
    flim_fold_state got;
    bool found = false;
    flim_error err = {0};
    assert_int_equal(flim_checkpoint_writer_create(&writer, NULL), FLIM_OK);
    for (int i = 0; i < 4; i++) {
        fill_state(&f->state, (float)i);
        assert_int_equal(flim_checkpoint_submit(writer, &f->state, f->folder, identity, NULL), FLIM_OK);
    }
    flim_fold_state kept;
    assert_int_equal(flim_fold_state_create(&f->net, 5, &kept, NULL), FLIM_OK);
    fill_state(&kept, 3);
    fill_state(&f->state, 50); /* changes after submit must not reach the file */
    assert_int_equal(flim_checkpoint_flush(writer, NULL), FLIM_OK);
    assert_int_equal(read_back(f, identity, &got, &found, NULL), FLIM_OK);
    assert_true(found);
    same_state(&kept, &got);
    assert_int_equal(flim_checkpoint_submit(writer, &f->state, "/nonexistent", identity, NULL), FLIM_OK);
    assert_int_equal(flim_checkpoint_flush(writer, &err), FLIM_ERROR_WRITE);
    assert_non_null(strstr(err.text, "/nonexistent"));
    assert_int_equal(flim_checkpoint_flush(writer, &err), FLIM_OK); /* told once */
    flim_checkpoint_writer_destroy(writer);
    flim_fold_state_free(&got);
    flim_fold_state_free(&kept);
}

int main(void)
{
#define CASE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(nothing_there_is_no_error),
        CASE(reads_back_to_the_bit),
        CASE(another_run_is_refused_with_what_differs),
        CASE(an_identity_of_the_list_will_do_and_versions_are_not_compared),
        CASE(a_longer_history_is_read),
        CASE(a_damaged_newest_one_gives_way_to_the_previous),
        CASE(two_damaged_ones_are_an_error_that_names_the_first),
        CASE(a_kill_between_the_renames_loses_nothing),
        CASE(another_format_version_is_named),
        CASE(a_folder_that_is_gone_is_a_write_error),
        CASE(the_thread_writes_what_was_submitted_and_hands_errors_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
