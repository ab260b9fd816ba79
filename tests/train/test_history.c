/* history.csv: rows appended one by one are the file written as a whole, at a cost that does not grow with its length. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/file.h"
#include "train/run.h"

enum { ROWS = 30000 };

static flim_epoch_row rows[ROWS];
static char folder[64], path[96];

static int set_up(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/flim_history_XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/history.csv", folder);
    for (int i = 0; i < ROWS; i++) {
        rows[i] = (flim_epoch_row){
            .epoch = i + 1, .train_loss = 1.0 / (i + 3), .val_loss = i % 3 ? 0.25 : (double)NAN, .cells = 65};
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder);
}

static char *whole_file(void)
{
    char *bytes;
    size_t count;
    assert_int_equal(flim_file_read(path, (size_t)1 << 30, &bytes, &count, NULL), FLIM_OK);
    return bytes;
}

static void append(int64_t n)
{
    const flim_fold_state state = {.n_history = n, .history = rows};
    flim_error err = {0};
    if (flim_append_history(&(flim_history){.folder = folder, .state = &state}, &err) != FLIM_OK) {
        fail_msg("row %lld: %s", (long long)n, err.text);
    }
}

static void write_whole(int64_t n)
{
    const flim_fold_state state = {.n_history = n, .history = rows};
    assert_int_equal(flim_write_history(&(flim_history){.folder = folder, .state = &state}, NULL), FLIM_OK);
}

static void appended_rows_are_the_whole_file(void **state)
{
    (void)state;
    write_whole(1);
    for (int64_t n = 2; n <= 200; n++) {
        append(n);
    }
    char *appended = whole_file();
    write_whole(200);
    char *whole = whole_file();
    assert_string_equal(appended, whole);
    unlink(path); /* somebody tidies up while the fold trains */
    append(200);
    char *again = whole_file();
    assert_string_equal(again, whole);
    flim_free(appended);
    flim_free(whole);
    flim_free(again);
}

static void a_link_is_not_followed(void **state)
{
    (void)state;
    char target[128];
    flim_error err = {0};
    snprintf(target, sizeof target, "%s/target", folder);
    assert_int_equal(flim_file_write(target, "kept\n", 5, NULL), FLIM_OK);
    assert_int_equal(symlink(target, path), 0);
    const flim_fold_state fold = {.n_history = 2, .history = rows};
    assert_int_equal(flim_append_history(&(flim_history){.folder = folder, .state = &fold}, &err), FLIM_ERROR_WRITE);
    assert_non_null(strstr(err.text, "link"));
    unlink(path);
    char *bytes;
    size_t count;
    assert_int_equal(flim_file_read(target, 100, &bytes, &count, NULL), FLIM_OK);
    assert_string_equal(bytes, "kept\n");
    flim_free(bytes);
    unlink(target);
}

static double seconds_of(int64_t first, int64_t end)
{
    const clock_t begun = clock();
    for (int64_t n = first; n <= end; n++) {
        append(n);
    }
    return (double)(clock() - begun) / CLOCKS_PER_SEC;
}

static void a_row_costs_the_same_after_many(void **state)
{
    (void)state;
    enum { SOME = 1500 };
    write_whole(1);
    const double early = seconds_of(2, SOME + 1);
    write_whole(ROWS - SOME);
    const double late = seconds_of(ROWS - SOME + 1, ROWS);
    printf("%d rows: %.4f s after none, %.4f s after %d\n", SOME, early, late, ROWS - SOME);
    if (late > 5 * early + 0.05) {
        fail_msg("%d rows take %.4f s after none and %.4f s after %d", SOME, early, late, ROWS - SOME);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(appended_rows_are_the_whole_file, set_up, tear_down),
                                       cmocka_unit_test_setup_teardown(a_link_is_not_followed, set_up, tear_down),
                                       cmocka_unit_test_setup_teardown(a_row_costs_the_same_after_many, set_up, tear_down)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
