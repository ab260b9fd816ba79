/* Checkpoints: what is written is read back to the bit; damaged, foreign and half-renamed files are told apart. */
#include <math.h>
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

enum { MOST_EPOCHS = 64 };
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
    if (s->average_parameter) {
        fill(s->average_parameter, s->parameters, 7 + shift);
        fill(s->average_statistic, s->statistics, 8 + shift);
        s->averaged = true;
    }
    s->epoch = s->n_history = 3 + (int64_t)shift;
    s->calls = 7;
    s->batch = 16;
    s->accumulate = 2;
    s->skipped_before = 5;
    s->counters = (flim_counters){.adam_step = 99, .skipped = 6, .loss_scale = 1024};
    s->totals = (flim_totals){
        .loss = 0.1, .grad_norm_sum = 5.5, .grad_norm_least = 0.25, .grad_norm_most = 3.75, .nonfinite_call = -1};
    s->best_value = -0.25;
    s->best_epoch = 2;
    for (int64_t i = 0; i < s->n_history; i++) {
        s->history[i] = (flim_epoch_row){.epoch = i + 1,
                                         .train_loss = 0.5 / (double)(i + 1),
                                         .cells = 65,
                                         .grad_norm_mean = 1.5 + (double)i,
                                         .grad_norm_most = 2.5 + (double)i};
    }
}

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    snprintf(f->folder, sizeof f->folder, "/tmp/flim_checkpoint_XXXXXX");
    assert_non_null(mkdtemp(f->folder));
    assert_int_equal(flim_network_build(&f->net, 4, 2, 8, 3, 3, NULL), FLIM_OK);
    assert_int_equal(flim_fold_state_create(&f->net, MOST_EPOCHS, &f->state, NULL), FLIM_OK);
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

static flim_status read_back(fixture *f, const char *who, flim_fold_state *out, int *found, flim_error *err)
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
    assert_true(a->totals.grad_norm_sum == b->totals.grad_norm_sum && a->totals.grad_norm_most == b->totals.grad_norm_most &&
                a->totals.grad_norm_least == b->totals.grad_norm_least);
    assert_int_equal(a->best_epoch, b->best_epoch);
    assert_int_equal(a->n_history, b->n_history);
    for (int64_t i = 0; i < a->n_history; i++) {
        assert_true(a->history[i].train_loss == b->history[i].train_loss);
        assert_int_equal(a->history[i].cells, b->history[i].cells);
        assert_true(a->history[i].grad_norm_mean == b->history[i].grad_norm_mean &&
                    a->history[i].grad_norm_most == b->history[i].grad_norm_most);
    }
}

static void nothing_there_is_no_error(void **state)
{
    fixture *f = *state;
    flim_fold_state got;
    int found = -9;
    assert_int_equal(read_back(f, identity, &got, &found, NULL), FLIM_OK);
    assert_int_equal(found, -1);
    flim_fold_state_free(&got);
}

/* As a fold's thread writes it. */
static flim_status write_checkpoint(const flim_fold_state *state, const char *folder, const char *of, flim_error *err)
{
    char *bytes = NULL;
    size_t count = 0;
    flim_status status = flim_checkpoint_serialise(state, of, &bytes, &count, err);
    status = status == FLIM_OK ? flim_checkpoint_store(bytes, count, folder, err) : status;
    flim_free(bytes);
    return status;
}

static void reads_back_to_the_bit(void **state)
{
    fixture *f = *state;
    flim_fold_state got;
    int found = -9;
    assert_int_equal(write_checkpoint(&f->state, f->folder, identity, NULL), FLIM_OK);
    assert_int_equal(read_back(f, identity, &got, &found, NULL), FLIM_OK);
    assert_true(found >= 0);
    same_state(&f->state, &got);
    flim_fold_state_free(&got);
}

/* With averages in the file or not, and with room for them or not: what both have is read, and averages that are not there
 * begin as the weights. */
static void averages_are_read_where_there_is_room(void **state)
{
    fixture *f = *state;
    const char *const who = identity;
    for (int k = 0; k < 4; k++) {
        const bool written = k & 1, room = k & 2;
        flim_fold_state from, got;
        int which = -9;
        assert_int_equal(flim_fold_state_create(&f->net, 5, &from, NULL), FLIM_OK);
        assert_int_equal(flim_fold_state_create(&f->net, 5, &got, NULL), FLIM_OK);
        assert_int_equal(written ? flim_fold_state_add_average(&from, NULL) : FLIM_OK, FLIM_OK);
        assert_int_equal(room ? flim_fold_state_add_average(&got, NULL) : FLIM_OK, FLIM_OK);
        fill_state(&from, (float)(k & 1));
        assert_int_equal(write_checkpoint(&from, f->folder, identity, NULL), FLIM_OK);
        assert_int_equal(flim_checkpoint_read(&got, f->folder, &who, 1, NULL, &which, NULL), FLIM_OK);
        same_state(&from, &got);
        assert_int_equal(got.averaged, written && room);
        flim_fold_state_begin_average(&got);
        assert_int_equal(got.averaged, room);
        if (room) {
            const size_t p = (size_t)got.parameters * sizeof(float), s = (size_t)got.statistics * sizeof(float);
            assert_memory_equal(got.average_parameter, written ? from.average_parameter : from.parameter, p);
            assert_memory_equal(got.average_statistic, written ? from.average_statistic : from.statistic, s);
        }
        flim_fold_state_free(&from);
        flim_fold_state_free(&got);
    }
}

static void another_run_is_refused_with_what_differs(void **state)
{
    fixture *f = *state;
    flim_fold_state got;
    int found;
    flim_error err = {0};
    assert_int_equal(write_checkpoint(&f->state, f->folder, identity, NULL), FLIM_OK);
    assert_int_equal(read_back(f, "data 0123, splits 9999, width 4, more 1", &got, &found, &err), FLIM_ERROR_USAGE);
    assert_non_null(strstr(err.text, "another run: splits 4567 there, splits 9999 here;  there, more 1 here"));
    assert_null(strstr(err.text, "width"));
    flim_fold_state_free(&got);
}

static void an_identity_of_the_list_will_do_and_versions_are_not_compared(void **state)
{
    fixture *f = *state;
    flim_fold_state got;
    int found;
    const flim_log log = {keep_warning, f};
    const char *const both[] = {"data 0123, splits 4567, width 8\nversion 2", identity};
    assert_int_equal(write_checkpoint(&f->state, f->folder, "data 0123, splits 4567, width 4\nversion 1", NULL), FLIM_OK);
    assert_int_equal(flim_fold_state_create(&f->net, 5, &got, NULL), FLIM_OK);
    assert_int_equal(flim_checkpoint_read(&got, f->folder, both, 1, &log, &found, NULL), FLIM_ERROR_USAGE);
    assert_int_equal(flim_checkpoint_read(&got, f->folder, both, 2, &log, &found, NULL), FLIM_OK);
    assert_true(found >= 0);
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
    int found = -9;
    const char *const who = identity;
    assert_int_equal(write_checkpoint(&f->state, f->folder, identity, NULL), FLIM_OK);
    for (int64_t epochs = 1; epochs <= 4; epochs++) {
        assert_int_equal(flim_fold_state_create(&f->net, epochs, &got, NULL), FLIM_OK);
        assert_int_equal(flim_checkpoint_read(&got, f->folder, &who, 1, NULL, &found, NULL), FLIM_OK);
        assert_true(found >= 0);
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
        int found = -9;
        fill_state(&f->state, 0);
        assert_int_equal(write_checkpoint(&f->state, f->folder, identity, NULL), FLIM_OK);
        fill_state(&f->state, 1);
        assert_int_equal(write_checkpoint(&f->state, f->folder, identity, NULL), FLIM_OK);
        damage(newest, how);
        f->warning[0] = '\0';
        flim_error err = {0};
        if (read_back(f, identity, &got, &found, &err) != FLIM_OK) {
            fail_msg("damage %d: %s", how, err.text);
        }
        assert_true(found >= 0);
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
    int found;
    flim_error err = {0};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(write_checkpoint(&f->state, f->folder, identity, NULL), FLIM_OK);
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
    int found = -9;
    assert_int_equal(write_checkpoint(&f->state, f->folder, identity, NULL), FLIM_OK);
    fill_state(&f->state, 1);
    assert_int_equal(write_checkpoint(&f->state, f->folder, identity, NULL), FLIM_OK);
    snprintf(newest, sizeof newest, "%s/state.ckpt", f->folder);
    snprintf(fresh, sizeof fresh, "%s/state.new.ckpt", f->folder);
    assert_int_equal(rename(newest, fresh), 0); /* as it stands after the first rename */
    assert_int_equal(read_back(f, identity, &got, &found, NULL), FLIM_OK);
    assert_true(found >= 0);
    assert_int_equal(got.epoch, 4);
    assert_int_equal(write_checkpoint(&f->state, f->folder, identity, NULL), FLIM_OK);
    flim_fold_state_free(&got);
}

static void another_format_version_is_named(void **state)
{
    fixture *f = *state;
    char path[128], *bytes;
    size_t count;
    flim_fold_state got;
    int found;
    flim_error err = {0};
    assert_int_equal(write_checkpoint(&f->state, f->folder, identity, NULL), FLIM_OK);
    snprintf(path, sizeof path, "%s/state.ckpt", f->folder);
    assert_int_equal(flim_file_read(path, 1 << 24, &bytes, &count, NULL), FLIM_OK);
    bytes[8] = 77;
    assert_int_equal(flim_file_write(path, bytes, count, NULL), FLIM_OK);
    flim_free(bytes);
    assert_int_equal(read_back(f, identity, &got, &found, &err), FLIM_ERROR_DATA);
    assert_non_null(strstr(err.text, "format 77"));
    flim_fold_state_free(&got);
}

/* ---- crafted ones: their checksum is right */

/* A change of one number, and a word of what is said of it. */
typedef struct craft {
    const char *what;
    size_t offset; /* of the number in flim_fold_state; REAL: of a double */
    int64_t value;
    const char *says;
    bool real;
    double real_value;
} craft;

static void numbers_out_of_range_are_refused_before_use(void **state)
{
    fixture *f = *state;
#define WHOLE(member, value, says)                                                                                           \
    {                                                                                                                        \
#member " = " #value, offsetof(flim_fold_state, member), value, says, false, 0                                       \
    }
#define REAL(member, value, says)                                                                                            \
    {                                                                                                                        \
#member " = " #value, offsetof(flim_fold_state, member), 0, says, true, value                                        \
    }
    static const craft crafts[] = {
        WHOLE(epoch, -400, "epoch is -400"),
        WHOLE(epoch, INT64_MIN, "epoch is"),
        WHOLE(epoch, INT64_MAX, "epoch is"),
        WHOLE(epoch, 2, "history is 3, expected 2 to 2"),
        WHOLE(epoch, 4, "history is 3, expected 4 to 4"),
        WHOLE(calls, -1, "batches done is -1"),
        WHOLE(calls, (int64_t)1 << 62, "batches done is"),
        WHOLE(batch, 0, "batch is 0"),
        WHOLE(batch, -16, "batch is -16"),
        WHOLE(batch, INT64_MAX, "batch is"),
        WHOLE(accumulate, 0, "accumulate is 0"),
        WHOLE(accumulate, (int64_t)1 << 40, "accumulate is"),
        WHOLE(best_epoch, 3, "best_epoch is 3"),
        WHOLE(best_epoch, -1, "best_epoch is -1"),
        WHOLE(best_epoch, -2, "best_epoch is -2"),
        WHOLE(skipped_before, -1, "skipped_before is -1"),
        WHOLE(skipped_before, 7, "skipped_before is 7"),
        WHOLE(counters.adam_step, -1, "adam_step is -1"),
        WHOLE(counters.adam_step, INT64_MAX, "adam_step is"),
        WHOLE(counters.skipped, -1, "skipped is -1"),
        WHOLE(counters.skipped_in_row, 7, "skipped_in_row is 7"),
        WHOLE(counters.scale_growth, -1, "scale_growth is -1"),
        WHOLE(totals.calls, -1, "totals.calls is -1"),
        WHOLE(totals.calls, 8, "totals.calls is 8"),
        WHOLE(totals.cells, -5, "totals.cells is -5"),
        WHOLE(totals.correct, 1, "totals.correct is 1"),
        WHOLE(totals.updates, -1, "totals.updates is -1"),
        WHOLE(totals.nonfinite_call, -2, "nonfinite_call is -2"),
        WHOLE(totals.nonfinite_call, 0, "nonfinite_call is 0"),
        WHOLE(totals.nonfinite_call, (int64_t)1 << 62, "nonfinite_call is"),
        REAL(counters.loss_scale, 0.0, "loss_scale is 0"),
        REAL(counters.loss_scale, (double)NAN, "loss_scale is"),
        REAL(counters.loss_scale, (double)INFINITY, "loss_scale is"),
        REAL(totals.weight, -1.0, "totals.weight is -1"),
        REAL(totals.weight, (double)NAN, "totals.weight is"),
        REAL(best_value, (double)NAN, "best_value is"),
    };
    for (size_t i = 0; i < sizeof crafts / sizeof crafts[0]; i++) {
        flim_fold_state got;
        int found = -9;
        flim_error err = {0};
        fill_state(&f->state, 0);
        char *at = (char *)&f->state + crafts[i].offset;
        memcpy(at, crafts[i].real ? (const void *)&crafts[i].real_value : &crafts[i].value, 8);
        flim_checkpoint_remove(f->folder);
        assert_int_equal(flim_make_folder(f->folder, NULL), FLIM_OK);
        assert_int_equal(write_checkpoint(&f->state, f->folder, identity, NULL), FLIM_OK);
        if (read_back(f, identity, &got, &found, &err) != FLIM_ERROR_DATA || !strstr(err.text, crafts[i].says) ||
            !strstr(err.text, "state.ckpt")) {
            fail_msg("%s: %s", crafts[i].what, err.text);
        }
        flim_fold_state_free(&got);
    }
    for (int row = 0; row < 3; row++) { /* rows of the history that no training has left */
        flim_fold_state got;
        int found = -9;
        flim_error err = {0};
        fill_state(&f->state, 0);
        f->state.history[row].epoch += row + 1;
        flim_checkpoint_remove(f->folder);
        assert_int_equal(flim_make_folder(f->folder, NULL), FLIM_OK);
        assert_int_equal(write_checkpoint(&f->state, f->folder, identity, NULL), FLIM_OK);
        assert_int_equal(read_back(f, identity, &got, &found, &err), FLIM_ERROR_DATA);
        assert_non_null(strstr(err.text, "of the history: epoch is"));
        flim_fold_state_free(&got);
    }
    fill_state(&f->state, 0);
}

static void another_fold_is_refused_with_both(void **state)
{
    fixture *f = *state;
    flim_fold_state got;
    int found;
    flim_error err = {0};
    assert_int_equal(write_checkpoint(&f->state, f->folder, "fold 0, data 0123, width 4", NULL), FLIM_OK);
    assert_int_equal(read_back(f, "fold 1, data 0123, width 4", &got, &found, &err), FLIM_ERROR_USAGE);
    assert_non_null(strstr(err.text, "belongs to another fold: fold 0 there, fold 1 here"));
    flim_fold_state_free(&got);
    assert_int_equal(read_back(f, "fold 1, data 0124, width 4", &got, &found, &err), FLIM_ERROR_USAGE);
    assert_non_null(strstr(err.text, "belongs to another run: fold 0 there, fold 1 here; data 0123 there, data 0124 here"));
    flim_fold_state_free(&got);
}

static void a_folder_that_is_gone_is_a_write_error(void **state)
{
    fixture *f = *state;
    flim_error err = {0};
    assert_int_equal(write_checkpoint(&f->state, "/nonexistent/checkpoint", identity, &err), FLIM_ERROR_WRITE);
    assert_non_null(strstr(err.text, "/nonexistent/checkpoint"));
}

static void the_thread_writes_what_was_submitted_and_hands_errors_over(void **state)
{
    fixture *f = *state;
    flim_checkpoint_writer *writer;
    flim_fold_state got;
    int found = -9;
    flim_error err = {0};
    assert_int_equal(flim_checkpoint_writer_create(&writer, NULL), FLIM_OK);
    for (int i = 0; i < 4; i++) {
        fill_state(&f->state, (float)i);
        assert_int_equal(flim_checkpoint_submit(writer, &f->state, f->folder, identity, NULL), FLIM_OK);
    }
    flim_fold_state kept;
    assert_int_equal(flim_fold_state_create(&f->net, MOST_EPOCHS, &kept, NULL), FLIM_OK);
    fill_state(&kept, 3);
    fill_state(&f->state, 50); /* changes after submit must not reach the file */
    assert_int_equal(flim_checkpoint_flush(writer, NULL), FLIM_OK);
    assert_int_equal(read_back(f, identity, &got, &found, NULL), FLIM_OK);
    assert_true(found >= 0);
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
        CASE(averages_are_read_where_there_is_room),
        CASE(another_run_is_refused_with_what_differs),
        CASE(an_identity_of_the_list_will_do_and_versions_are_not_compared),
        CASE(a_longer_history_is_read),
        CASE(a_damaged_newest_one_gives_way_to_the_previous),
        CASE(two_damaged_ones_are_an_error_that_names_the_first),
        CASE(a_kill_between_the_renames_loses_nothing),
        CASE(another_format_version_is_named),
        CASE(numbers_out_of_range_are_refused_before_use),
        CASE(another_fold_is_refused_with_both),
        CASE(a_folder_that_is_gone_is_a_write_error),
        CASE(the_thread_writes_what_was_submitted_and_hands_errors_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
