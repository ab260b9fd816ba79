/* cuda/device/nvml.c against tests/cuda/nvml/fake_nvml.c, which stands in LD_LIBRARY_PATH as libnvidia-ml.so.1. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cuda/device/nvml.h"

static void figures_of_the_card(void **state)
{
    (void)state;
    flim_nvml nvml;
    flim_device_status s;
    assert_true(flim_nvml_open(&nvml, "0000:00:03.0"));
    flim_nvml_status(&nvml, &s);
    assert_true(s.busy == 0.87 && s.memory_bytes == 21e9 && s.celsius == 61);
    assert_true(isnan(s.watts)); /* the library lacks that call */
    flim_nvml_close(&nvml);
    flim_nvml_status(&nvml, &s);
    assert_true(isnan(s.busy) && isnan(s.memory_bytes) && isnan(s.celsius));
}

static void who_holds_memory(void **state)
{
    (void)state;
    flim_nvml nvml;
    char text[256], small[24];
    assert_true(flim_nvml_open(&nvml, "0000:00:03.0"));
    flim_nvml_others(&nvml, text, sizeof text);
    assert_string_equal(text, "python3 (pid 200) 40.00 GiB, a program (pid 100) 1.00 GiB"); /* not itself, not the unknown */
    flim_nvml_others(&nvml, small, sizeof small);
    assert_true(strlen(small) < sizeof small);
    flim_nvml_close(&nvml);
}

static void another_card_is_not_there(void **state)
{
    (void)state;
    flim_nvml nvml;
    char text[64] = "x";
    assert_false(flim_nvml_open(&nvml, "0000:00:04.0"));
    flim_nvml_others(&nvml, text, sizeof text);
    assert_string_equal(text, "");
    flim_nvml_close(&nvml);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(figures_of_the_card), cmocka_unit_test(who_holds_memory),
                                       cmocka_unit_test(another_card_is_not_there)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
