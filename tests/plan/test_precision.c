/* What auto and amp choose: on every card of configs/devices, on every capability, on the CPU.  No card is needed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <dirent.h>

#include "backend/precision.h"
#include "plan/plan.h"

static const char devices[] = FLIM_SOURCE_DIR "/configs/devices";

/* What people who train on these cards expect: a card without a row here fails. */
static const struct {
    const char *file, *automatic, *amp;
} expected[] = {
    {"a10", "tf32", "bf16"},     {"a30", "tf32", "bf16"},        {"a100-40", "tf32", "bf16"},  {"a100-80", "tf32", "bf16"},
    {"b200", "tf32", "bf16"},    {"h100", "tf32", "bf16"},       {"h200", "tf32", "bf16"},     {"l4", "tf32", "bf16"},
    {"l40s", "tf32", "bf16"},    {"rtx3090", "tf32", "bf16"},    {"rtx4080", "tf32", "bf16"},  {"rtx4090", "tf32", "bf16"},
    {"rtx5090", "tf32", "bf16"}, {"rtx6000ada", "tf32", "bf16"}, {"rtxa6000", "tf32", "bf16"}, {"rtx6000", "fp16", "fp16"},
    {"t4", "fp16", "fp16"},      {"v100", "fp32", "fp16"}, /* as the table has it; it is refused when it is opened */
};
enum { N_EXPECTED = sizeof expected / sizeof expected[0] };

static void every_listed_card(void **state)
{
    (void)state;
    DIR *folder = opendir(devices);
    int found = 0;
    assert_non_null(folder);
    for (const struct dirent *entry; (entry = readdir(folder));) {
        flim_error err = {0};
        flim_card card;
        char name[256], path[4096];
        snprintf(name, sizeof name, "%s", entry->d_name);
        char *dot = strstr(name, ".json");
        if (!dot) {
            continue;
        }
        *dot = '\0';
        snprintf(path, sizeof path, "%s/%s.json", devices, name);
        if (flim_card_read(path, &card, &err) != FLIM_OK) {
            fail_msg("%s", err.text);
        }
        const flim_precision_rule *rule = flim_precision_rule_of("cuda", card.capability);
        int i = 0;
        for (; i < N_EXPECTED && strcmp(expected[i].file, name) != 0; i++) {
        }
        if (i == N_EXPECTED) {
            fail_msg("%s is in %s, but no row of this test says what it computes in", name, devices);
        }
        assert_string_equal(flim_precision_name(rule->automatic), expected[i].automatic);
        assert_string_equal(flim_precision_name(rule->amp), expected[i].amp);
        found++;
    }
    closedir(folder);
    assert_int_equal(found, N_EXPECTED);
}

/* Capabilities as NVIDIA has them, and those between. */
static void every_capability(void **state)
{
    (void)state;
    for (int capability = 0; capability <= 200; capability++) {
        flim_device_info info = {0};
        flim_set_precisions(&info, "cuda", capability);
        const bool ampere = capability >= 80, turing = capability >= 75;
        const flim_precision automatic = ampere ? FLIM_PRECISION_TF32 : turing ? FLIM_PRECISION_FP16 : FLIM_PRECISION_FP32;
        const flim_precision amp = ampere ? FLIM_PRECISION_BF16 : FLIM_PRECISION_FP16;
        assert_int_equal(flim_device_precision(&info, FLIM_PRECISION_AUTO), automatic);
        assert_int_equal(flim_device_precision(&info, FLIM_PRECISION_AMP), amp);
        for (int p = FLIM_PRECISION_FP32; p <= FLIM_PRECISION_FP16; p++) {
            const bool wants_8 = p == FLIM_PRECISION_TF32 || p == FLIM_PRECISION_BF16;
            assert_int_equal((info.precisions >> p & 1u) != 0, ampere || !wants_8);
            assert_int_equal(flim_device_precision(&info, (flim_precision)p), p);
            const bool is_16 = p == FLIM_PRECISION_BF16 || p == FLIM_PRECISION_FP16;
            assert_int_equal(flim_precision_in_16_bits(&info, (flim_precision)p), is_16 ? p : (int)amp);
        }
        assert_true(info.precision_reason[0] != '\0');
    }
}

static void the_cpu(void **state)
{
    (void)state;
    flim_device_info info = {0};
    flim_set_precisions(&info, "cpu", 0);
    assert_int_equal(info.precisions, 1u << FLIM_PRECISION_FP32);
    assert_int_equal(flim_device_precision(&info, FLIM_PRECISION_AUTO), FLIM_PRECISION_FP32);
    assert_int_equal(flim_device_precision(&info, FLIM_PRECISION_AMP), FLIM_PRECISION_AMP);
    assert_int_equal(flim_precision_in_16_bits(&info, FLIM_PRECISION_FP32), FLIM_PRECISION_FP32);
}

static void lists_of_names(void **state)
{
    (void)state;
    char text[48];
    flim_precision_list(0, FLIM_PRECISION_AUTO, text);
    assert_string_equal(text, "");
    const unsigned all = flim_precision_rule_of("cuda", 90)->precisions;
    flim_precision_list(all, FLIM_PRECISION_AUTO, text);
    assert_string_equal(text, "fp32, tf32, bf16, fp16");
    flim_precision_list(all, FLIM_PRECISION_FP32, text);
    assert_string_equal(text, "tf32, bf16, fp16");
    flim_precision_list(all, FLIM_PRECISION_FP16, text);
    assert_string_equal(text, "fp32, tf32, bf16");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_listed_card),
        cmocka_unit_test(every_capability),
        cmocka_unit_test(the_cpu),
        cmocka_unit_test(lists_of_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
