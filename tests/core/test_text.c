/* Texts from outside: as they are shown, as UTF-8, cut between characters, and as fields of CSV. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/alloc.h"
#include "core/text.h"
#include "formats/csv.h"

static const struct {
    const char *text, *shown;
} names[] = {{"donor 1", "donor 1"},
             {"\x1b]0;x\x07", "\\x1b]0;x\\x07"},
             {"a\nb\rc\td", "a\\nb\\rc\\td"},
             {"\xc2\x9b"
              "2J",
              "\\x9b2J"}, /* U+009B, the CSI of C1 */
             {"\xc2\x80\xc2\x9f\xc2\xa0", "\\x80\\x9f\xc2\xa0"},
             {"\x9b\xff", "\\x9b\\xff"}, /* no UTF-8 */
             {"\x7f", "\\x7f"},
             {"abc\xe2\x80\xae"
              "fdp.exe",
              "abc\\u202efdp.exe"}, /* right to left */
             {"\xe2\x81\xa6\xe2\x81\xa9\xef\xbb\xbf\xe2\x80\x8b", "\\u2066\\u2069\\ufeff\\u200b"},
             {"\xf3\xa0\x81\x81", "\\U000e0041"},
             {"ünïcødé 细胞 µ °C 🔬", "ünïcødé 细胞 µ °C 🔬"},
             {"\\x1b", "\\x1b"},
             {"", ""}};

static void controls_are_shown_and_utf8_stays_whole(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char shown[256], again[256], *put = NULL;
        size_t length = 0;
        flim_text_show(names[i].text, shown, sizeof shown);
        assert_string_equal(shown, names[i].shown);
        flim_text_show(shown, again, sizeof again);
        assert_string_equal(again, shown);
        FILE *stream = open_memstream(&put, &length);
        flim_text_put(stream, names[i].text);
        fclose(stream);
        assert_string_equal(put, names[i].shown);
        free(put);
        /* An error's text, however it comes in, is the same. */
        flim_error err = {0};
        flim_fail(&err, FLIM_ERROR_DATA, "%s", names[i].text);
        assert_string_equal(err.text, names[i].shown);
        flim_fail_prefix(&err, "%s: ", names[i].text);
        snprintf(again, sizeof again, "%.100s: %.100s", names[i].shown, names[i].shown);
        assert_string_equal(err.text, again);
    }
}

static void texts_end_between_characters(void **state)
{
    (void)state;
    static const char text[] = "aü细🔬z\x1b!";
    for (size_t size = 1; size < 24; size++) {
        char shown[24];
        memset(shown, 'X', sizeof shown);
        flim_text_show(text, shown, size);
        assert_true(strlen(shown) < size);
        assert_true(flim_utf8_is_valid(shown));
        const size_t cut = flim_utf8_cut(text, size);
        assert_true(cut <= size);
        char part[24];
        snprintf(part, sizeof part, "%.*s", (int)cut, text);
        assert_true(flim_utf8_is_valid(part));
    }
    assert_int_equal(flim_utf8_cut("üü", 3), 2);
    assert_int_equal(flim_utf8_cut("üü", 4), 4);
    assert_int_equal(flim_utf8_cut("🔬", 3), 0);
    /* As long as an error may be, of two bytes each. */
    char *much = malloc(3001);
    for (int i = 0; i < 3000; i++) {
        much[i] = "\xc3\xbc"[i % 2];
    }
    much[3000] = '\0';
    flim_error err = {0};
    for (int shift = 0; shift < 2; shift++) {
        flim_fail(&err, FLIM_ERROR_DATA, "%s%s", shift ? "x" : "", much);
        assert_true(flim_utf8_is_valid(err.text) && strlen(err.text) >= FLIM_ERROR_TEXT - 4);
        assert_null(strchr(err.text, '\\')); /* no half character shown as a byte */
        flim_fail_prefix(&err, "abc");
        assert_true(flim_utf8_is_valid(err.text));
    }
    free(much);
}

static void bytes_that_are_no_utf8_are_latin_1(void **state)
{
    (void)state;
    static const struct {
        const char *in, *out;
    } cases[] = {{"M\xfcller", "Müller"}, {"Müller", "Müller"}, {"\xb5m \xb0", "µm °"},
                 {"\xe9", "é"},           {"ü\xfc", "üü"},      {"", ""}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *out = flim_utf8_of(cases[i].in, NULL);
        assert_string_equal(out, cases[i].out);
        flim_free(out);
    }
}

static void fields_are_no_formulas_and_read_back(void **state)
{
    (void)state;
    static const struct {
        const char *text, *field;
    } cases[] = {{"=1+1", "'=1+1"},  {"+49 30", "'+49 30"},
                 {"-x", "'-x"},      {"@SUM(A1)", "'@SUM(A1)"},
                 {"\tx", "'\tx"},    {"'=1", "''=1"},
                 {"''=1", "'''=1"},  {"=HYPERLINK(\"http://x\",\"y\")", "\"'=HYPERLINK(\"\"http://x\"\",\"\"y\"\")\""},
                 {"-5", "-5"},       {"+1.5e3", "+1.5e3"},
                 {"'q'", "'q'"},     {"donor-1", "donor-1"},
                 {"--", "'--"},      {"-1-1", "'-1-1"},
                 {"a,b", "\"a,b\""}, {"", ""}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *field = NULL;
        size_t length = 0;
        FILE *stream = open_memstream(&field, &length);
        flim_csv_put(stream, cases[i].text);
        fclose(stream);
        assert_string_equal(field, cases[i].field);
        if (field[0] != '"') {
            assert_string_equal(flim_csv_text(field), cases[i].text);
        }
        free(field);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(controls_are_shown_and_utf8_stays_whole),
        cmocka_unit_test(texts_end_between_characters),
        cmocka_unit_test(bytes_that_are_no_utf8_are_latin_1),
        cmocka_unit_test(fields_are_no_formulas_and_read_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
