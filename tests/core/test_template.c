/* Templates: values and their formats, sections, lines that vanish or join, partials, and faults that are named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>

#include "core/alloc.h"
#include "formats/template.h"
#include "report/templates.h"

static void in_brackets(FILE *stream, const char *text)
{
    fprintf(stream, "[%s]", text);
}

/* What `text` makes of the JSON values, or of none; the caller frees it. */
static char *render(const char *text, const char *values, flim_status *status, flim_error *err)
{
    const flim_template file[] = {{"main", (const unsigned char *)text}, {"other", (const unsigned char *)"<{{x}}>\n"}};
    const flim_template_set set = {file, 2, in_brackets, "n/a"};
    char *out = NULL;
    size_t length = 0;
    flim_json *json = NULL;
    assert_int_equal(flim_json_parse(values, strlen(values), "values", &json, err), FLIM_OK);
    FILE *stream = open_memstream(&out, &length);
    assert_non_null(stream);
    *status = flim_template_write(&set, "main", json, stream, err);
    fclose(stream);
    flim_json_free(json);
    return out;
}

static void values_sections_and_lines(void **state)
{
    (void)state;
    static const struct {
        const char *text, *values, *want;
    } cases[] = {
        {"a {{x}} b", "{\"x\": \"<&>\"}", "a [<&>] b"},
        {"{{{x}}}{{x}}", "{\"x\": \"y\"}", "y[y]"},
        {"{{i}} {{i:.2}} {{r:.3}} {{r:+.1}} {{m:+.1}} {{r:3g}} {{n:.3}} {{n}}",
         "{\"i\": -7, \"r\": 1234.5678, \"m\": -0.25, \"n\": null}", "-7 -7.00 1234.568 +1234.6 -0.2 1.23e+03 n/a n/a"},
        {"{{#a}}{{^@first}}, {{/@first}}{{.}}{{/a}}", "{\"a\": [\"x\", \"y\", \"z\"]}", "[x], [y], [z]"},
        {"{{#a}}{{.:.1}} {{/a}}", "{\"a\": [1, null, 2.25]}", "1.0 n/a 2.2 "},
        {"{{#a}}{{k}}{{x}};{{/a}}", "{\"x\": 1, \"a\": [{\"k\": 2}, {\"k\": 3, \"x\": 4}]}", "21;34;"},
        {"{{#o}}{{k}}{{/o}}{{^o}}none{{/o}}", "{\"o\": {\"k\": 5}}", "5"},
        {"{{#v}}yes{{/v}}{{^v}}no{{/v}}", "{\"v\": false}", "no"},
        {"{{#v}}yes{{/v}}{{^v}}no{{/v}}", "{\"v\": null}", "no"},
        {"{{#v}}yes{{/v}}{{^v}}no{{/v}}", "{\"v\": \"\"}", "no"},
        {"{{#v}}yes{{/v}}{{^v}}no{{/v}}", "{\"v\": []}", "no"},
        {"{{#v}}yes{{/v}}{{^v}}no{{/v}}", "{\"v\": true}", "yes"},
        {"{{#v}}yes{{/v}}{{^v}}no{{/v}}", "{\"v\": 0}", "yes"}, /* a number is there, zero too */
        {"{{#v}}{{v}}{{/v}}", "{\"v\": \"t\"}", "[t]"},
        {"{{#a}}{{#a}}{{.}}{{/a}}|{{/a}}", "{\"a\": [\"1\", \"2\"]}", "[1][2]|[1][2]|"}, /* one name inside itself */
        {"1\n  {{#a}}\n{{.}}\n  {{/a}} \n2\n{{! nothing }}\n3\n", "{\"a\": [\"x\", \"y\"]}", "1\n[x]\n[y]\n2\n3\n"},
        {"1 {{! in a line }} 2\n", "{}", "1  2\n"},
        {"one \\\n    line\\\n, \\ kept\n", "{}", "one line, \\ kept\n"},
        {"p {{x}} \\\n   {{#x}}q{{/x}}\\\n  r\n", "{\"x\": \"1\"}", "p [1] qr\n"},
        {"a\n{{>other}}\nb {{>other}}", "{\"x\": 3}", "a\n<3>\nb <3>\n"},
        {"{{>*f}}", "{\"f\": \"other\", \"x\": 3}", "<3>\n"},
        {"{{#a}}\n{{>*f}}\n{{/a}}", "{\"x\": 3, \"a\": [{\"f\": \"other\"}, {\"f\": \"other\", \"x\": 4}]}", "<3>\n<4>\n"},
        {"no tags } {\n", "{}", "no tags } {\n"},
        {"", "{}", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        flim_error err = {0};
        flim_status status;
        char *got = render(cases[i].text, cases[i].values, &status, &err);
        if (status != FLIM_OK || strcmp(got, cases[i].want) != 0) {
            fail_msg("%s of %s: '%s', not '%s' %s", cases[i].text, cases[i].values, got, cases[i].want, err.text);
        }
        free(got);
    }
}

static void faults_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *text, *values, *said;
    } cases[] = {{"{{x}}", "{}", "main: no value 'x'"},
                 {"{{#x}}{{/x}}", "{\"y\": 1}", "main: no value 'x'"},
                 {"{{#x}}..", "{\"x\": 1}", "main: no end of section 'x'"},
                 {"{{#x}}{{#x}}{{/x}}", "{\"x\": 1}", "main: no end of section 'x'"},
                 {"..{{/x}}", "{\"x\": 1}", "main: no section begins for 'x'"},
                 {"{{x", "{\"x\": 1}", "main: not closed: 'x'"},
                 {"{{x}}", "{\"x\": 1.5}", "main: neither a text nor a whole number: 'x'"},
                 {"{{x}}", "{\"x\": true}", "main: neither a text nor a whole number: 'x'"},
                 {"{{>absent}}", "{}", "there is no template 'absent'"},
                 {"{{>*f}}", "{}", "main: no value 'f'"},
                 {"{{>*f}}", "{\"f\": 1}", "main: no name of a template: '*f'"},
                 {"{{>*f}}", "{\"f\": \"*f\"}", "main: no name of a template: '*f'"},
                 {"{{>*f}}", "{\"f\": \"absent\"}", "there is no template 'absent'"},
                 {"{{>other}}", "{}", "other: no value 'x'"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        flim_error err = {0};
        flim_status status;
        free(render(cases[i].text, cases[i].values, &status, &err));
        if (status != FLIM_ERROR || !strstr(err.text, cases[i].said)) {
            fail_msg("%s of %s: status %d '%s', not '%s'", cases[i].text, cases[i].values, status, err.text, cases[i].said);
        }
    }
}

static void incomplete_values_are_refused(void **state)
{
    (void)state;
    const flim_template file = {"main", (const unsigned char *)"{{x}}"};
    const flim_template_set set = {&file, 1, in_brackets, ""};
    flim_error err = {0};
    flim_json *root = flim_json_object(), *inner = flim_json_object();
    flim_json_set_string(root, "x", "there");
    flim_alloc_fail_at(1);
    flim_json_set_string(inner, "y", "lost");
    flim_alloc_fail_at(0);
    flim_json_set(root, "inner", inner);
    assert_false(flim_json_is_whole(root));
    assert_int_equal(flim_template_write(&set, "main", root, stdout, &err), FLIM_ERROR_MEMORY);
    assert_non_null(strstr(err.text, "out of host memory"));
    flim_json_free(root);
    assert_int_equal(flim_template_write(&set, "main", NULL, stdout, &err), FLIM_ERROR_MEMORY);
}

/* Bytes of the files on disk, each ended by a zero, in the order of their names. */
static void the_library_holds_the_files(void **state)
{
    (void)state;
    assert_true(report_templates_n > 5);
    for (size_t i = 0; i < report_templates_n; i++) {
        char path[4096], *want = NULL;
        size_t n = 0;
        snprintf(path, sizeof path, "%s/src/report/templates/%s", FLIM_SOURCE_DIR, report_templates[i].name);
        FILE *file = fopen(path, "rb"), *copy = open_memstream(&want, &n);
        assert_non_null(file);
        for (int c; (c = fgetc(file)) != EOF;) {
            fputc(c, copy);
        }
        fclose(file);
        fclose(copy);
        assert_int_equal(strlen((const char *)report_templates[i].text), n);
        assert_memory_equal(report_templates[i].text, want, n);
        free(want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_sections_and_lines),
        cmocka_unit_test(faults_are_named),
        cmocka_unit_test(incomplete_values_are_refused),
        cmocka_unit_test(the_library_holds_the_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
