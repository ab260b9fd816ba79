/* Two spellings of one name: which texts fold to the same, and what is said of their difference. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "core/alloc.h"
#include "core/spelling.h"

static void alike(const char *a, const char *b, const char *difference)
{
    flim_error err = {0};
    char said[256];
    char *x = flim_text_folded(a, FLIM_SPELLING_ALL, &err), *y = flim_text_folded(b, FLIM_SPELLING_ALL, &err);
    if (strcmp(x, y) != 0) {
        fail_msg("'%s' and '%s' fold to '%s' and '%s', expected the same", a, b, x, y);
    }
    assert_int_equal(flim_spelling_difference(a, b, said, &err), FLIM_OK);
    assert_string_equal(said, difference);
    assert_int_equal(flim_spelling_difference(b, a, said, &err), FLIM_OK);
    assert_string_equal(said, difference);
    flim_free(x);
    flim_free(y);
}

static void apart(const char *a, const char *b)
{
    flim_error err = {0};
    char *x = flim_text_folded(a, FLIM_SPELLING_ALL, &err), *y = flim_text_folded(b, FLIM_SPELLING_ALL, &err);
    if (strcmp(x, y) == 0) {
        fail_msg("'%s' and '%s' both fold to '%s', expected two names", a, b, x);
    }
    flim_free(x);
    flim_free(y);
}

static void spellings_of_one_name(void **state)
{
    (void)state;
    alike("D3", "d3", "case");
    alike("D3", " D3 ", "blanks");
    alike("D 3", "d3", "blanks and case");
    alike("D3",
          "\xc2\xa0"
          "D3",
          "blanks"); /* no-break space */
    alike("D3", "D3\xe3\x80\x80", "blanks"); /* ideographic space */
    alike("D3",
          "D\xe2\x80\xaf"
          "3\t",
          "blanks"); /* narrow no-break space, tab */
    alike("D3",
          "\xef\xbb\xbf"
          "D3",
          "invisible characters"); /* byte order mark */
    alike("D3",
          "D\xe2\x80\x8b"
          "3",
          "invisible characters"); /* zero-width space */
    alike("D3", "D3\xe2\x80\x8d", "invisible characters"); /* zero-width joiner */
    alike("D3",
          "\xe2\x80\x8f"
          "D3",
          "invisible characters"); /* right-to-left mark */
    alike("D3",
          "D\xc2\xad"
          "3",
          "invisible characters"); /* soft hyphen */
    alike("D3", "D3\x01", "invisible characters");
    alike("Zo\xc3\xab", "Zoe\xcc\x88", "how their letters are encoded"); /* NFC, NFD */
    alike("Zo\xc3\xab", "Zo\xeb", "how their letters are encoded"); /* UTF-8, Latin-1 */
    alike("ZO\xc3\x8b", "zo\xc3\xab", "case");
    alike("\xe1\xba\xad", "a\xcc\xa3\xcc\x82", "how their letters are encoded"); /* two marks */
    alike("\xea\xb0\x81", "\xe1\x84\x80\xe1\x85\xa1\xe1\x86\xa8", "how their letters are encoded"); /* Hangul */
    alike("\xe3\x81\x8c", "\xe3\x81\x8b\xe3\x82\x99", "how their letters are encoded"); /* ga */
    alike("Zo\xc3\xab", "Zoe", "accents");
    alike("D3", "D03", "leading zeros");
    alike("D10.05", "D010.05", "leading zeros");
    alike("3", "3.0", "leading zeros");
    alike("0003", "3", "leading zeros");
    alike("D-3", "D3", "hyphens or underscores");
    alike("D_3", "d-03", "case and leading zeros and hyphens or underscores");
    alike("P1-2", "P1_2", "hyphens or underscores");
    alike("P1-2",
          "P1\xe2\x80\x93"
          "2",
          "letters of another script that look the same"); /* en dash */
    alike("D3", "'D3'", "quotes");
    alike("D3", "b'D3'", "quotes");
    alike("D3",
          "\xe2\x80\x9c"
          "D3\xe2\x80\x9d",
          "quotes");
    alike("A3",
          "\xd0\x90"
          "3",
          "letters of another script that look the same"); /* Cyrillic */
    alike("D3", "\xef\xbc\xa4\xef\xbc\x93", "letters of another script that look the same"); /* full width */
    alike("\xc2\xb5M", "\xce\xbcM", "letters of another script that look the same"); /* micro sign, mu */
    alike("\xd0\x94\xd0\x96", "\xd0\xb4\xd0\xb6", "case"); /* Cyrillic */
}

static void two_names(void **state)
{
    (void)state;
    apart("D1", "D10");
    apart("D10", "D100");
    apart("P1-2", "P12");
    apart("1.05", "1.5");
    apart("1.50", "15");
    apart("-3", "3");
    apart("0", "00x");
    apart("D0", "D");
    apart("b3", "3");
    apart("b", "");
    apart("'", "\"x");
    apart("3.01", "3");
    apart("x.0", "x");
}

static void every_pair_of_bytes_folds(void **state)
{
    (void)state;
    for (int a = 1; a < 256; a++) {
        for (int b = 1; b < 256; b++) {
            flim_error err = {0};
            const char text[] = {(char)a, (char)b, 0};
            char shown[64], *once = flim_text_folded(text, FLIM_SPELLING_ALL, &err);
            assert_non_null(once);
            char *none = flim_text_folded(text, 0, &err);
            if (strcmp(none, text) != 0) {
                fail_msg("bytes %02x %02x change though no spelling is folded", (unsigned)a, (unsigned)b);
            }
            flim_text_escaped(text, shown, sizeof shown);
            for (const char *c = shown; *c; c++) {
                assert_in_range(*c, ' ', '~');
            }
            flim_free(once);
            flim_free(none);
        }
    }
}

static void escapes(void **state)
{
    (void)state;
    char text[64], small[6];
    flim_text_escaped("\xef\xbb\xbf"
                      "D3\n\xe9 \xc3\xa9\xf0\x9f\x98\x80",
                      text, sizeof text);
    assert_string_equal(text, "\\ufeffD3\\n\\xe9 \\u00e9\\U0001f600");
    flim_text_escaped("\xef\xbb\xbf"
                      "D3",
                      small, sizeof small); /* no escape is cut in its middle */
    assert_string_equal(small, "");
    flim_text_escaped("abcdefgh", small, sizeof small);
    assert_string_equal(small, "abcde");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(spellings_of_one_name), cmocka_unit_test(two_names),
                                       cmocka_unit_test(every_pair_of_bytes_folds), cmocka_unit_test(escapes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
