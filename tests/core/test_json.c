/* JSON: numbers that read back the same, NaN as null, order, escapes, bad UTF-8, files that are whole or absent, errors with
 * line and column. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/file.h"
#include "formats/json.h"

static void expect_text(const flim_json *json, const char *want)
{
    char *text = flim_json_text(json);
    assert_non_null(text);
    assert_string_equal(text, want);
    flim_json_text_free(text);
}

static flim_json *parse(const char *text)
{
    flim_json *json = NULL;
    flim_error err = {0};
    if (flim_json_parse(text, strlen(text), "text", &json, &err) != FLIM_OK) {
        fail_msg("%s: %s", text, err.text);
    }
    return json;
}

static void text_of_each_kind_of_value(void **state)
{
    (void)state;
    flim_json *o = flim_json_object();
    flim_json_set_number(o, "whole", 3.0);
    flim_json_set_number(o, "tenth", 0.1);
    flim_json_set_number(o, "nan", NAN);
    flim_json_set_number(o, "inf", -INFINITY);
    flim_json_set_integer(o, "seed", INT64_MIN);
    flim_json_set_string(o, "text", "a \"b\" \\ \n\t\x01 \xc2\xb1");
    flim_json_set_string(o, "none", NULL);
    flim_json_set_bool(o, "yes", true);
    flim_json_set_null(o, "null");
    flim_json *a = flim_json_array();
    flim_json_add_integer(a, 1);
    flim_json_add_number(a, 2.5);
    flim_json_add_string(a, "x");
    flim_json_set(o, "list", a);
    flim_json_set(o, "empty", flim_json_object());
    flim_json_set_integer(o, "whole", 4); /* keeps its place */
    expect_text(o, "{\"whole\": 4, \"tenth\": 0.1, \"nan\": null, \"inf\": null, \"seed\": -9223372036854775808, "
                   "\"text\": \"a \\\"b\\\" \\\\ \\n\\t\\u0001 \xc2\xb1\", \"none\": null, \"yes\": true, \"null\": null, "
                   "\"list\": [1, 2.5, \"x\"], \"empty\": {}}");
    flim_json_free(o);
}

static void numbers_read_back_the_same(void **state)
{
    (void)state;
    const double values[] = {0.1,     1.0 / 3,
                             -0.0,    5e-324,
                             DBL_MAX, DBL_MIN,
                             1e20,    9007199254740992.0,
                             1e15,    2e-7,
                             1e-100,  123456789.125,
                             -1.0,    0.30000000000000004,
                             9.5e18,  1e19};
    uint64_t bits = 1;
    for (int i = 0; i < 20000; i++) {
        double value = values[i % 16], back = NAN;
        if (i >= 16) { /* any bit pattern */
            bits = bits * 6364136223846793005u + 1442695040888963407u;
            memcpy(&value, &bits, sizeof value);
            if (!isfinite(value)) {
                continue;
            }
        }
        flim_json *a = flim_json_array();
        flim_json_add_number(a, value);
        char *text = flim_json_text(a);
        flim_json *b = parse(text);
        assert_true(flim_json_number(flim_json_at(b, 0), &back));
        if (back != value || signbit(back) != signbit(value)) {
            fail_msg("%a became %s and then %a", value, text, back);
        }
        flim_json_text_free(text);
        flim_json_free(a);
        flim_json_free(b);
    }
}

static void kinds_are_told_apart(void **state)
{
    (void)state;
    flim_json *json =
        parse("{\"i\": 7, \"w\": 8.0, \"f\": 1.5, \"s\": \"t\", \"b\": false, \"n\": null, \"a\": [1, 2], \"o\": {}}");
    int64_t integer = -1;
    double real = -1;
    bool flag = true;
    assert_true(flim_json_integer(flim_json_get(json, "i"), &integer) && integer == 7);
    assert_true(flim_json_integer(flim_json_get(json, "w"), &integer) && integer == 8);
    assert_false(flim_json_integer(flim_json_get(json, "f"), &integer));
    assert_false(flim_json_integer(flim_json_get(json, "s"), &integer));
    assert_true(flim_json_number(flim_json_get(json, "i"), &real) && real == 7.0);
    assert_false(flim_json_number(flim_json_get(json, "n"), &real));
    assert_string_equal(flim_json_string(flim_json_get(json, "s")), "t");
    assert_null(flim_json_string(flim_json_get(json, "i")));
    assert_true(flim_json_boolean(flim_json_get(json, "b"), &flag) && !flag);
    assert_false(flim_json_boolean(flim_json_get(json, "i"), &flag));
    assert_true(flim_json_is_null(flim_json_get(json, "n")) && !flim_json_is_null(flim_json_get(json, "missing")));
    assert_true(flim_json_is_array(flim_json_get(json, "a")) && flim_json_is_object(flim_json_get(json, "o")));
    assert_int_equal(flim_json_length(flim_json_get(json, "a")), 2);
    assert_int_equal(flim_json_length(flim_json_get(json, "s")), 0);
    assert_null(flim_json_at(flim_json_get(json, "a"), 2));
    assert_null(flim_json_get(flim_json_get(json, "missing"), "x"));
    void *at = NULL;
    const char *key;
    const flim_json *value;
    char order[16] = "";
    while (flim_json_next(json, &at, &key, &value)) {
        order[strlen(order)] = key[0];
    }
    assert_string_equal(order, "iwfsbnao");
    flim_json_free(json);
}

static void bad_utf8_is_taken_as_latin_1(void **state)
{
    (void)state;
    static const struct {
        const char *in, *out;
    } cases[] = {{"\xff", "\xc3\xbf"},
                 {"a\xc3", "a\xc3\x83"},
                 {"\xc0\xaf", "\xc3\x80\xc2\xaf"},
                 {"\xed\xa0\x80", "\xc3\xad\xc2\xa0\xc2\x80"},
                 {"\xf4\x90\x80\x80", "\xc3\xb4\xc2\x90\xc2\x80\xc2\x80"},
                 {"\xf0\x9f\x94\xac \xe2\x82\xac \xc2\xb5", "\xf0\x9f\x94\xac \xe2\x82\xac \xc2\xb5"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        flim_json *o = flim_json_object();
        flim_json_set_string(o, "v", cases[i].in);
        flim_json_set_integer(o, cases[i].in, 1); /* keys, too */
        assert_string_equal(flim_json_string(flim_json_get(o, "v")), cases[i].out);
        assert_non_null(flim_json_get(o, cases[i].out));
        flim_json_free(o);
    }
}

static void a_file_is_indented_and_whole(void **state)
{
    (void)state;
    char path[] = "json_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    flim_json *o = parse("{\"mode\": \"group\", \"folds\": [{\"train\": [0, 1], \"val\": []}], \"mean\": {}}");
    flim_error err = {0};
    assert_int_equal(flim_json_write(o, path, &err), FLIM_OK);
    char *bytes;
    size_t count;
    assert_int_equal(flim_file_read(path, 1000, &bytes, &count, &err), FLIM_OK);
    assert_string_equal(
        bytes, "{\n  \"mode\": \"group\",\n  \"folds\": [\n    {\n      \"train\": [0, 1],\n      \"val\": []\n    }\n"
               "  ],\n  \"mean\": {}\n}\n");
    flim_free(bytes);
    flim_json *again;
    assert_int_equal(flim_json_read(path, &again, &err), FLIM_OK);
    flim_json_free(again);
    assert_int_equal(flim_json_write(o, "/proc/no/such/folder/x.json", &err), FLIM_ERROR_WRITE);
    assert_int_equal(flim_json_read("no_such.json", &again, &err), FLIM_ERROR_DATA);
    flim_json_free(o);
    unlink(path);
}

static void a_failed_allocation_shows_when_written(void **state)
{
    (void)state;
    char path[] = "json_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "old", 3), 3);
    close(fd);
    flim_error err = {0};
    int failures = 0;
    for (long n = 1; n <= 4; n++) { /* two allocations of ours an entry: the key's copy and the string's */
        flim_json *root = flim_json_object(), *inner = flim_json_object();
        flim_alloc_fail_at(n);
        flim_json_set_string(inner, "a", "b");
        flim_json_set_string(inner, "c", "d");
        flim_alloc_fail_at(0);
        flim_json_set(root, "inner", inner);
        assert_int_equal(flim_json_write(root, path, &err), FLIM_ERROR_MEMORY);
        assert_null(flim_json_text(root));
        failures++;
        flim_json_free(root);
    }
    assert_int_equal(failures, 4);
    flim_json *lost = flim_json_object();
    flim_json_set(lost, "child", NULL);
    assert_int_equal(flim_json_write(lost, path, &err), FLIM_ERROR_MEMORY);
    flim_json_free(lost);
    assert_int_equal(flim_json_write(NULL, path, &err), FLIM_ERROR_MEMORY);
    flim_json_set_integer(NULL, "x", 1);
    flim_json_add(NULL, flim_json_object());
    flim_json_set(NULL, "x", flim_json_object());
    char *bytes;
    size_t count;
    assert_int_equal(flim_file_read(path, 100, &bytes, &count, &err), FLIM_OK);
    assert_string_equal(bytes, "old");
    flim_free(bytes);
    unlink(path);
}

static void errors_name_line_and_column(void **state)
{
    (void)state;
    static const struct {
        const char *text, *where;
    } cases[] = {{"{\"a\": 1,\n \"b\": }", "splits.json:2:"},
                 {"{\"a\": 1, \"a\": 2}", "splits.json:1:"},
                 {"", "splits.json:1:"},
                 {"{\"a\": NaN}", "splits.json:1:"},
                 {"[1] x", "splits.json:1:"},
                 {"[\"\xff\"]", "splits.json:1:"},
                 {"[123456789012345678901234]", "splits.json:1:"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        flim_json *json;
        flim_error err = {0};
        assert_int_equal(flim_json_parse(cases[i].text, strlen(cases[i].text), "splits.json", &json, &err), FLIM_ERROR_DATA);
        assert_null(json);
        if (strncmp(err.text, cases[i].where, strlen(cases[i].where)) != 0) {
            fail_msg("'%s': %s", cases[i].text, err.text);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_of_each_kind_of_value),   cmocka_unit_test(numbers_read_back_the_same),
        cmocka_unit_test(kinds_are_told_apart),         cmocka_unit_test(bad_utf8_is_taken_as_latin_1),
        cmocka_unit_test(a_file_is_indented_and_whole), cmocka_unit_test(a_failed_allocation_shows_when_written),
        cmocka_unit_test(errors_name_line_and_column),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
