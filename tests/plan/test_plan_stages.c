/* gpu_plan --apply and stages: their items in a config are edited in place, whatever form they have. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/alloc.h"
#include "core/file.h"
#include "formats/yaml.h"
#include "plan/gpu_plan_internal.h"
#include "core/test_folder.h"

static char folder[] = "/tmp/flim_stages_XXXXXX";

static void ok(flim_status status, const flim_error *err)
{
    if (status != FLIM_OK) {
        fail_msg("%s: %s", flim_status_name(status), err->text);
    }
}

/* ---- the text alone: item 0 gets batch 32, item 1 gets accumulate 2 and precision bf16 */

static const flim_yaml_item_change changes[] = {{0, "batch", "32"}, {1, "accumulate", "2"}, {1, "precision", "bf16"}};

static void items_of_every_form_are_changed(void **state)
{
    (void)state;
    static const struct {
        const char *before, *after;
    } cases[] = {
        /* words */
        {"stages:\n  - a batch=8 lr=1 # first\n  - b accumulate=1\nepochs: 2\n",
         "stages:\n  - a batch=32 lr=1 # first\n  - b accumulate=2 precision=bf16\nepochs: 2\n"},
        {"stages: [a, 'b lr=1']\n", "stages: [a batch=32, 'b lr=1 accumulate=2 precision=bf16']\n"},
        {"stages:\n- \"a eval_batch=7 batch=8\"\n- b precision=tf32 accumulate=1\n",
         "stages:\n- \"a eval_batch=7 batch=32\"\n- b precision=bf16 accumulate=2\n"},
        /* maps in lines: keys that are missing go to the end of the item */
        {"stages:\n  - name: a # größer\n    batch: 8   # small\n    lr: 1\n\n  # the second\n  - name: b\n    accumulate: 1 "
         "# one\n"
         "epochs: 2\n",
         "stages:\n  - name: a # größer\n    batch: 32   # small\n    lr: 1\n\n  # the second\n  - name: b\n    accumulate: "
         "2 # one\n"
         "    precision: bf16\nepochs: 2\n"},
        {"batch: 1\nstages:\n  - name: a\n  - lr: 3",
         "batch: 1\nstages:\n  - name: a\n    batch: 32\n  - lr: 3\n    accumulate: 2\n    precision: bf16"},
        {"stages:\n- name: a\n  augment: thin:1 # both\n- b\n",
         "stages:\n- name: a\n  augment: thin:1 # both\n  batch: 32\n- b accumulate=2 precision=bf16\n"},
        {"stages:\n- name: a\n  augment: >-\n   thin:1\n- name: b\n  precision: auto\n  accumulate:\n",
         "stages:\n- name: a\n  augment: >-\n   thin:1\n  batch: 32\n- name: b\n  precision: bf16\n  accumulate: 2\n"},
        /* maps in braces, lines of Windows, a mark before the text */
        {"\xef\xbb\xbfstages: [{name: a, batch: 8}, {name: b}]\n",
         "\xef\xbb\xbfstages: [{name: a, batch: 32}, {name: b, accumulate: 2, precision: bf16}]\n"},
        {"stages:\r\n  - name: a # one\r\n  - {accumulate: 1}\r\n",
         "stages:\r\n  - name: a # one\r\n    batch: 32\r\n  - {accumulate: 2, precision: bf16}\r\n"},
        {"{epochs: 3, stages: [a, b]}", "{epochs: 3, stages: [a batch=32, b accumulate=2 precision=bf16]}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        flim_error err = {0};
        char *out = NULL;
        const char *text = cases[i].before;
        ok(flim_yaml_change_items(text, strlen(text), "c.yaml", "stages", changes, 3, &out, &err), &err);
        assert_string_equal(out, cases[i].after);
        char *again = NULL;
        ok(flim_yaml_change_items(out, strlen(out), "c.yaml", "stages", changes, 3, &again, &err), &err);
        assert_string_equal(again, out);
        flim_free(again);
        flim_free(out);
    }
}

static void what_cannot_be_changed_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {{"stages:\n  - >-\n    a batch=8\n  - b\n", "item 1 of the list is written in a form"},
                 {"stages:\n  - a\n  - name: b\n    accumulate: |\n      1\n", "item 2 of the list is written in a form"},
                 {"stages:\n  - a\n", "give it 'accumulate: 2'"}, /* there is no second one */
                 {"epochs: 2\n", "give it 'batch: 32'"},
                 {"stages: [a\n", "c.yaml"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        flim_error err = {0};
        char *out = NULL;
        const flim_status status =
            flim_yaml_change_items(cases[i].text, strlen(cases[i].text), "c.yaml", "stages", changes, 3, &out, &err);
        if (status != FLIM_ERROR_USAGE || out || !strstr(err.text, cases[i].says)) {
            fail_msg("case %zu: %s '%s', expected '%s'", i, flim_status_name(status), err.text, cases[i].says);
        }
    }
}

/* ---- --apply, planned for the CPU: the arithmetic is that of any device */

static const char *config_path(void)
{
    static char path[64];
    snprintf(path, sizeof path, "%s/c.yaml", folder);
    return path;
}

static void log_into(void *context, flim_log_level level, const char *text)
{
    char *all = context;
    (void)level;
    snprintf(all + strlen(all), 8192 - strlen(all), "%s\n", text);
}

/* Applies what fits into `bytes` to c.yaml; the lines of the log into told (8192). */
static void apply(const char *text, int64_t bytes, char *told)
{
    flim_error err = {0};
    flim_settings settings;
    const flim_log log = {log_into, told};
    flim_suggestions *all = flim_alloc(1, sizeof *all, &err);
    flim_plan_session s = {.cells = 500};
    flim_json *json = flim_json_object();
    told[0] = '\0';
    assert_non_null(all);
    ok(flim_file_write(config_path(), text, strlen(text), &err), &err);
    ok(flim_settings_init(&settings, &err), &err);
    ok(flim_settings_read(&settings, config_path(), &err), &err);
    const flim_gpu_plan_options options = {.settings = &settings, .config = config_path(), .apply = true, .log = &log};
    s.o = &options;
    ok(flim_device_open("cpu", NULL, &s.device, &err), &err);
    s.budget = flim_plan_budget_of(s.device, 0.85);
    s.budget.bytes = bytes;
    ok(flim_network_build_sized(&s.net, flim_model_size_of(settings.preset, settings.width, settings.depth), 2, 16, 9, 9,
                                &err),
       &err);
    s.request = flim_plan_request_of(&settings, &s.net, flim_device_get_info(s.device));
    ok(flim_plan_suggest(s.device, &s.request, &s.budget, 0, s.cells, all, &err), &err);
    ok(flim_plan_apply_all(&s, &all->plan[all->recommended], json, &err), &err);
    flim_json_free(json);
    flim_device_close(s.device);
    flim_settings_free(&settings);
    flim_free(all);
}

static void expect_settings(const char *stage, int64_t batch, int64_t accumulate)
{
    flim_error err = {0};
    flim_settings settings;
    flim_stage *stages = NULL;
    int n = 0;
    ok(flim_settings_init(&settings, &err), &err);
    ok(flim_settings_read(&settings, config_path(), &err), &err);
    ok(flim_stages_read(&settings, &stages, &n, &err), &err);
    for (int i = 0; i < n; i++) {
        const flim_settings *s = &stages[i].settings;
        if (strcmp(stages[i].name, stage) == 0 && (s->batch != batch || s->accumulate != accumulate)) {
            fail_msg("stage %s: batch %lld x %lld, expected %lld x %lld", stage, (long long)s->batch,
                     (long long)s->accumulate, (long long)batch, (long long)accumulate);
        }
    }
    flim_stages_free(stages, n);
    flim_settings_free(&settings);
}

static void stages_get_plans_of_their_own(void **state)
{
    (void)state;
    static const char text[] = "preset: nano\nprecision: fp32 # exact\nbatch: 64\nstages:\n"
                               "  - name: wide   # all at once\n    batch: 256\n"
                               "  - follows lr=1e-4\n"
                               "  - slips bacth=9\n"
                               "  - small batch=8 accumulate=2\n";
    char told[8192], *written = NULL, *again = NULL;
    size_t length;
    flim_error err = {0};
    flim_device *device = NULL;
    if (flim_device_open("cpu", NULL, &device, &err) != FLIM_OK) {
        print_message("skipped: %s\n", err.text);
        skip();
    }
    flim_device_close(device);
    apply(text, INT64_C(1) << 40, told); /* all of it fits: only micro-batches are joined */
    ok(flim_file_read(config_path(), 1 << 20, &written, &length, &err), &err);
    assert_non_null(strstr(written, "  - name: wide   # all at once\n    batch: 256\n  - follows lr=1e-4\n  - slips bacth=9\n"
                                    "  - small batch=16 accumulate=1\n"));
    assert_non_null(strstr(told, "stage small: batch 16 x 1"));
    assert_non_null(strstr(told, "did you mean 'batch'"));
    char backup[96];
    snprintf(backup, sizeof backup, "%s.backup.1", config_path());
    assert_true(flim_file_exists(backup));
    apply(written, INT64_C(1) << 40, told); /* nothing is left to do */
    ok(flim_file_read(config_path(), 1 << 20, &again, &length, &err), &err);
    assert_string_equal(again, written);
    flim_free(again);
    flim_free(written);

    static const char tight[] =
        "preset: nano\nprecision: fp32\nbatch: 4\nstages:\n  - name: wide\n    batch: 256\n    lr: 1e-3\n"
        "  - follows\n  - narrow batch=4\n";
    flim_network net;
    ok(flim_network_build_sized(&net, flim_preset_size(FLIM_PRESET_NANO), 2, 16, 9, 9, &err), &err);
    ok(flim_device_open("cpu", NULL, &device, &err), &err);
    const flim_plan_budget budget = flim_plan_budget_of(device, 0.85);
    const flim_plan_request request = {
        .net = &net, .precision = FLIM_PRECISION_FP32, .batch = 70, .accumulate = 1, .prefetch = 2};
    flim_plan plan;
    ok(flim_plan_make(device, &request, &budget, &plan, &err), &err);
    flim_device_close(device);
    apply(tight, plan.bounded_bytes, told);
    expect_settings("wide", 64, 4); /* of 256 cells per update as many at once as fit, recomputed or not */
    expect_settings("follows", 4, 1);
    expect_settings("narrow", 4, 1);
    ok(flim_file_read(config_path(), 1 << 20, &written, &length, &err), &err);
    assert_non_null(strstr(written, "    lr: 1e-3\n    accumulate: 4\n"));
    flim_free(written);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(items_of_every_form_are_changed),
        cmocka_unit_test(what_cannot_be_changed_is_refused),
        cmocka_unit_test(stages_get_plans_of_their_own),
    };
    return RUN_IN_FOLDER(folder, tests);
}
