/* Why a GPU is not busy: the rule, and what a run makes of the figures that it has. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "backend/backend.h"
#include "train/run.h"

static void every_bound_has_its_rule(void **state)
{
    (void)state;
    static const struct {
        flim_load load;
        flim_load_bound bound;
    } cases[] = {
        /* epochs, seconds, of training, waited, sum of readings, readings, bytes */
        {{0}, FLIM_LOAD_UNKNOWN},
        {{1, 9.9, 9, 5, 5, 40, 0}, FLIM_LOAD_UNKNOWN}, /* too short */
        {{1, 60, 50, 30, 3.8, 19, 0}, FLIM_LOAD_UNKNOWN}, /* too few readings */
        {{3, 60, 50, 30, 28, 40, 0}, FLIM_LOAD_BUSY}, /* 70 % is enough, whatever it waited */
        {{3, 60, 50, 6, 27.9, 40, 9e11}, FLIM_LOAD_LOADER}, /* before everything else */
        {{3, 60, 50, 5.9, 27.9, 40, 9e11}, FLIM_LOAD_COPIES},
        {{3, 60, 42, 5.9, 27.9, 40, 9e11}, FLIM_LOAD_EVALUATION},
        {{3, 60, 42.1, 5.9, 27.9, 40, 2.1e11}, FLIM_LOAD_LAUNCHES},
        {{3, 60, 50, 5.9, 0, 40, 0}, FLIM_LOAD_LAUNCHES},
        /* nothing is read: what the waiting leaves is the most that it can be */
        {{3, 60, 50, 17.9, 0, 0, 9e11}, FLIM_LOAD_BUSY},
        {{3, 60, 50, 18.1, 0, 0, 9e11}, FLIM_LOAD_LOADER},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const flim_load_verdict v = flim_load_judge(&cases[i].load);
        char text[512];
        flim_load_text(&v, 8, 16, false, text, sizeof text);
        if (v.bound != cases[i].bound || (text[0] != '\0') != (v.bound > FLIM_LOAD_BUSY)) {
            fail_msg("case %zu: %d '%s', expected %d", i, (int)v.bound, text, (int)cases[i].bound);
        }
    }
}

static void sentences_say_what_to_do(void **state)
{
    (void)state;
    static const struct {
        flim_load_verdict verdict;
        bool cached;
        const char *says;
    } cases[] = {
        {{FLIM_LOAD_LOADER, false, .busy = 0.433, .wait = 0.31},
         false,
         "the GPU is 43 % busy: 31 % of the time training waits for cells to be read and unpacked; use more --workers (now "
         "8), or "
         "--cache device or host, or a file that flim_repack has written"},
        {{FLIM_LOAD_LOADER, true, .busy = 0.6, .wait = 0.4},
         true,
         "the GPU is at most 60 % busy: 40 % of the time training waits for cells to be read and unpacked; use more "
         "--workers "
         "(now 8)"},
        {{FLIM_LOAD_EVALUATION, false, .busy = 0.5, .outside = 0.45},
         false,
         "the GPU is 50 % busy: 45 % of the time goes into validation and checkpoints between the epochs; use a larger "
         "--eval-batch, or a smaller --val-fraction"},
        {{FLIM_LOAD_COPIES, false, .busy = 0.5, .copied = 6.12e9},
         false,
         "the GPU is 50 % busy: cells are copied to it at 6.1 GB/s; --cache device copies each of them once"},
        {{FLIM_LOAD_LAUNCHES, false, .busy = 0.2},
         false,
         "the GPU is 20 % busy: batches of 16 cells are too little work at once; use a larger --batch (gpu_plan says which "
         "fit), "
         "and --lr-scale sqrt with it"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[512], tiny[8];
        flim_load_text(&cases[i].verdict, 8, 16, cases[i].cached, text, sizeof text);
        assert_string_equal(text, cases[i].says);
        flim_load_text(&cases[i].verdict, 8, 16, cases[i].cached, tiny, sizeof tiny);
        assert_true(memchr(tiny, '\0', sizeof tiny) != NULL);
    }
}

/* ---- a run with a device that says how busy it is */

static char told[2048];

static void hear(void *context, flim_log_level level, const char *text)
{
    (void)context;
    snprintf(told + strlen(told), sizeof told - strlen(told), "%s%s\n", level == FLIM_LOG_WARNING ? "warning: " : "", text);
}

/* Epochs of 5 s with ten readings of `busy` each, in which training waited for so many seconds. */
static void run_epochs(int n, double busy, double waited, bool own_memory, bool cached)
{
    static const flim_device_ops ops = {0};
    static uint8_t widths[1];
    flim_device device = {.ops = &ops, .info = {.own_memory = own_memory}};
    const flim_settings settings = {.workers = 3};
    flim_trainer trainer = {.device = &device, .batch = 64, .cache_widths = cached ? widths : NULL};
    static flim_run run;
    run = (flim_run){.settings = &settings, .log = {hear, NULL}};
    trainer.net.in[0] = 256;
    trainer.net.in[1] = trainer.net.in[2] = 21;
    told[0] = '\0';
    for (int i = 0; i < n; i++) {
        const flim_epoch_row row = {.cells = 64000, .seconds = 4.5, .wait_share = waited / 4.5};
        trainer.telemetry = (flim_telemetry){.busy = 10 * (i ? busy : 0), .n_busy = 10};
        run.epochs_trained++;
        flim_run_watch_load(&run, &trainer, &row, 5);
    }
}

static void a_run_is_told_once(void **state)
{
    (void)state;
    run_epochs(2, 0.3, 1, true, false); /* one epoch beside the first is too short */
    assert_string_equal(told, "");
    run_epochs(9, 0.3, 1, true, false);
    assert_string_equal(
        told, "warning: the GPU is 30 % busy: 20 % of the time training waits for cells to be read and unpacked; use "
              "more --workers (now 3), or --cache device or host, or a file that flim_repack has written "
              "(docs/troubleshooting.md, \"GPU below 70 % busy\")\n");
    run_epochs(9, 0.3, 0, true, false); /* 64,000 cells of 452 KB in 4.5 s */
    assert_non_null(strstr(told, "cells are copied to it at 6.4 GB/s"));
    run_epochs(9, 0.3, 0, true, true); /* cached: none is copied */
    assert_non_null(strstr(told, "batches of 64 cells"));
    run_epochs(9, 0.75, 1, true, false); /* the first epoch, in which it was idle, does not count */
    assert_string_equal(told, "");
    run_epochs(9, 0.3, 1, false, false); /* no GPU */
    assert_string_equal(told, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_bound_has_its_rule), cmocka_unit_test(sentences_say_what_to_do),
                                       cmocka_unit_test(a_run_is_told_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
