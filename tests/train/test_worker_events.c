/* What workers say through their pipe, and lists of seeds: whole messages, pieces of them, and bytes that are none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <stdio.h>
#include <unistd.h>

#include "core/parse.h"
#include "train/worker_event.h"

static flim_worker_event example(flim_worker_event_kind kind, const char *text)
{
    flim_worker_event event;
    memset(&event, 0, sizeof event);
    event.kind = kind;
    event.number = 3;
    event.run = 2;
    event.progress =
        (flim_progress){.phase = FLIM_PHASE_TRAIN, .fold = 4, .folds = 5, .epoch = 7, .epochs = 75, .loss = 0.25};
    event.device.watts = 61;
    snprintf(event.text, sizeof event.text, "%.*s", (int)sizeof event.text - 1, text);
    return event;
}

static void expect_example(const flim_worker_event *got, const flim_worker_event *want)
{
    assert_int_equal(got->kind, want->kind);
    assert_int_equal(got->number, 3);
    assert_int_equal(got->run, 2);
    assert_int_equal(got->progress.epoch, 7);
    assert_true(got->progress.loss == 0.25 && got->progress.device == &got->device && got->device.watts == 61);
    assert_string_equal(got->text, want->text);
}

/* Messages one after the other, read in pieces of every size. */
static void test_pieces(void **state)
{
    static char bytes[4 * FLIM_WORKER_MESSAGE], longest[2 * FLIM_WORKER_TEXT];
    int ends[2];
    (void)state;
    memset(longest, 'x', sizeof longest - 1);
    const flim_worker_event event[] = {example(FLIM_WORKER_LINE, "fold 3 epoch 1/3"), example(FLIM_WORKER_PROGRESS, ""),
                                       example(FLIM_WORKER_ENDED, longest)};
    assert_int_equal(pipe(ends), 0);
    for (size_t i = 0; i < 3; i++) {
        flim_worker_event_write(ends[1], &event[i]);
    }
    const ssize_t all = read(ends[0], bytes, sizeof bytes);
    assert_true(all > 0);
    for (size_t piece = 1; piece < 3000; piece = piece < 8 ? piece + 1 : 2 * piece + 1) {
        size_t taken = 0, here = 0, found = 0;
        flim_worker_event got;
        while (here < (size_t)all) {
            here = here + piece < (size_t)all ? here + piece : (size_t)all;
            for (int took; (took = flim_worker_event_take(bytes + taken, here - taken, &got)) != 0; taken += (size_t)took) {
                assert_true(took > 0 && found < 3);
                expect_example(&got, &event[found++]);
            }
        }
        assert_int_equal(found, 3);
        assert_int_equal(taken, all);
    }
    assert_int_equal(strlen(event[2].text), FLIM_WORKER_TEXT - 1); /* a longer text is cut */
    close(ends[0]);
    close(ends[1]);
}

static void test_no_message(void **state)
{
    flim_worker_event got;
    char bytes[64];
    (void)state;
    memset(bytes, 0, sizeof bytes);
    assert_int_equal(flim_worker_event_take(bytes, sizeof bytes, &got), -1);
    memset(bytes, 0xff, sizeof bytes);
    assert_int_equal(flim_worker_event_take(bytes, sizeof bytes, &got), -1);
    assert_int_equal(flim_worker_event_take(bytes, 3, &got), 0);
}

static void test_seeds(void **state)
{
    uint64_t seed[8];
    int n;
    (void)state;
    assert_true(flim_parse_seeds("1-5", seed, 8, &n) && n == 5 && seed[0] == 1 && seed[4] == 5);
    assert_true(flim_parse_seeds("7", seed, 8, &n) && n == 1 && seed[0] == 7);
    assert_true(flim_parse_seeds("9,2-3,0", seed, 8, &n) && n == 4 && seed[0] == 9 && seed[1] == 2 && seed[2] == 3 &&
                seed[3] == 0);
    assert_true(flim_parse_seeds("18446744073709551614-18446744073709551615", seed, 8, &n) && n == 2 &&
                seed[1] == UINT64_MAX);
    static const char *const none[] = {"",    "-",    "1-", "-1",  "3-1", "1,1",   "1-3,2", "1,",  ",1",
                                       "1;2", "1 ,2", " 1", "1-9", "a",   "1-2-3", "+1",    "0x1", "18446744073709551616"};
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        if (flim_parse_seeds(none[i], seed, 8, &n)) {
            fail_msg("flim_parse_seeds takes '%s'", none[i]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_pieces), cmocka_unit_test(test_no_message),
                                       cmocka_unit_test(test_seeds)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
