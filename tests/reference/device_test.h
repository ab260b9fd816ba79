/* What tests of programs on a device share: cmocka's headers in the order that it wants, the target under test, and their
 * main. CMOCKA_TEST_FILTER names tests to run alone. */
#ifndef REFERENCE_DEVICE_TEST_H
#define REFERENCE_DEVICE_TEST_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "reference/target.h"

static const ref_target *target; /* a device and one of its precisions */

/* group(): these tests on a target. */
#define REF_DEVICE_GROUP(...)                                                                                                \
    static int group(const ref_target *on)                                                                                   \
    {                                                                                                                        \
        const struct CMUnitTest tests[] = {__VA_ARGS__};                                                                     \
        target = on;                                                                                                         \
        cmocka_set_test_filter(getenv("CMOCKA_TEST_FILTER"));                                                                \
        return cmocka_run_group_tests(tests, NULL, NULL);                                                                    \
    }

/* main(): tests that need no device, then group() once per precision. */
#define REF_DEVICE_MAIN(...)                                                                                                 \
    int main(void)                                                                                                           \
    {                                                                                                                        \
        const struct CMUnitTest once[] = {__VA_ARGS__};                                                                      \
        const int failed = cmocka_run_group_tests(once, NULL, NULL);                                                         \
        return failed ? failed : ref_target_run(group);                                                                      \
    }

/* Both, without tests that need no device. */
#define REF_DEVICE_TESTS(...)                                                                                                \
    REF_DEVICE_GROUP(__VA_ARGS__)                                                                                            \
    int main(void)                                                                                                           \
    {                                                                                                                        \
        return ref_target_run(group);                                                                                        \
    }

#endif
