/* Small runs for tests: a folder of their own, and flim_train_cv with a few settings on the CPU. */
#ifndef SMALL_RUN_H
#define SMALL_RUN_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core/test_folder.h"
#include "flim/train.h"

static char folder[] = "/tmp/flim_test_XXXXXX"; /* of this test program; made and removed by small_main */

typedef struct setting {
    const char *key, *value;
} setting;

static inline void ok(flim_status status, const flim_error *err)
{
    if (status != FLIM_OK) {
        fail_msg("%s", err->text);
    }
}

/* Trains `data` into `out`, both below the test's folder, with preset tiny unless `more` says otherwise.  Skips the test
 * where there is no CPU backend. */
static inline void train(const char *data, const char *out, const setting *more, size_t n_more)
{
    static const setting common[] = {{"preset", "tiny"}, {"device", "cpu"},           {"workers", "2"},
                                     {"batch", "16"},    {"checkpoint_minutes", "0"}, {"lr", "0.003"}};
    char path[2][256];
    flim_settings settings;
    flim_error err = {0};
    ok(flim_settings_init(&settings, &err), &err);
    for (size_t i = 0; i < sizeof common / sizeof common[0]; i++) {
        ok(flim_settings_set(&settings, common[i].key, common[i].value, &err), &err);
    }
    for (size_t i = 0; i < n_more; i++) {
        ok(flim_settings_set(&settings, more[i].key, more[i].value, &err), &err);
    }
    snprintf(path[0], sizeof path[0], "%s/%s", folder, data);
    snprintf(path[1], sizeof path[1], "%s/%s", folder, out);
    ok(flim_settings_set(&settings, "data", path[0], &err), &err);
    ok(flim_settings_set(&settings, "out", path[1], &err), &err);
    const flim_train_hooks hooks = {0};
    flim_status status = flim_train_cv(&settings, &hooks, NULL, &err);
    flim_settings_free(&settings);
    if (status == FLIM_ERROR_DEVICE) {
        print_message("skipped: %s\n", err.text);
        skip();
    }
    ok(status, &err);
}

/* Removes a file or folder below the test's. */
static inline void remove_below(const char *name)
{
    char command[600];
    snprintf(command, sizeof command, "rm -rf %s/%s", folder, name);
    assert_int_equal(system(command), 0);
}

/* The rest of main: runs the tests inside the folder. */
#define SMALL_MAIN(tests) RUN_IN_FOLDER(folder, tests)

#endif
