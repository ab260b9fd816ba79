/* What reaches a user's terminal and train.log is one line per line, whatever names a data file brings along. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "flim/log.h"

static char seen[8192];
static int lines;

static void remember(void *context, flim_log_level level, const char *text)
{
    (void)context;
    (void)level;
    snprintf(seen, sizeof seen, "%s", text);
    lines++;
}

static const flim_log sink = {remember, NULL};

static void control_characters_are_shown(void **state)
{
    (void)state;
    static const struct {
        const char *name, *shown;
    } cases[] = {{"donor 1", "donor 1"},
                 {"a\nb", "a\\nb"},
                 {"a\r\n", "a\\r\\n"},
                 {"\ttab", "\\ttab"},
                 {"\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"},
                 {"\x7f\x01", "\\x7f\\x01"},
                 {"ünïcødé 细胞 °C", "ünïcødé 细胞 °C"},
                 {"100 % \\ \"quoted\"", "100 % \\ \"quoted\""}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char expected[64];
        flim_log_line(&sink, FLIM_LOG_INFO, "group '%s' (%d)", cases[i].name, 7);
        snprintf(expected, sizeof expected, "group '%s' (7)", cases[i].shown);
        assert_string_equal(seen, expected);
    }
    flim_log_line(NULL, FLIM_LOG_INFO, "nobody hears %s", "this");
    flim_log_line(&(flim_log){0}, FLIM_LOG_INFO, "nor %s", "this");
    assert_int_equal(lines, sizeof cases / sizeof cases[0]);
}

static void long_lines_are_cut_not_overrun(void **state)
{
    (void)state;
    static char text[10000];
    for (int fill = 0; fill < 3; fill++) {
        memset(text, "a\n\x1b"[fill], sizeof text - 1);
        flim_log_line(&sink, FLIM_LOG_INFO, "%s", text);
        assert_true(strlen(seen) > 4000 && strlen(seen) < 4400);
        assert_null(strchr(seen, '\n'));
    }
    memset(text, 'x', 300); /* "a 300-character id is printed whole" */
    text[300] = '\0';
    flim_log_line(&sink, FLIM_LOG_INFO, "%s", text);
    assert_string_equal(seen, text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(control_characters_are_shown),
                                       cmocka_unit_test(long_lines_are_cut_not_overrun)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
