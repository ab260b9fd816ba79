/* Small text helpers. */
#ifndef FLIM_CORE_TEXT_H
#define FLIM_CORE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "flim/status.h"

/* Bytes of the UTF-8 character at `at` (of a zero-terminated text), 0 if it is none: overlong forms, surrogates and values
 * above U+10FFFF are none.  code (may be NULL) gets the code point. */
size_t flim_utf8_length(const char *at, uint32_t *code);
bool flim_utf8_is_valid(const char *text);
/* The text as valid UTF-8, with bytes that are none taken as Latin-1, as older programs wrote them; the caller's
 * (flim_free).  NULL when out of memory. */
char *flim_utf8_of(const char *text, flim_error *err);
/* Bytes of the text's longest beginning of at most `most` bytes that ends between two characters. */
size_t flim_utf8_cut(const char *text, size_t most);

/* Controls, and marks that a terminal, an editor or a browser acts on without that they are seen. */
bool flim_text_is_hidden(uint32_t code);
/* A text as a person is to see it, from data files, configs and the command line: line ends, tabs, escapes and other controls,
 * those of C1 too, marks that turn the direction of writing, and bytes that are no UTF-8 become \n, \t, \x1b, \u202e; all
 * else stays.  What was shown once is shown the same again.  A text that is too long ends between two characters. */
void flim_text_show(const char *text, char *out, size_t size);
void flim_text_put(FILE *stream, const char *text); /* the same, of any length */

/* The end of a counted noun: "" for one, else "s".  printf("%d cell%s", n, flim_s(n)) */
static inline const char *flim_s(int64_t n)
{
    return n == 1 ? "" : "s";
}

/* Its verb: flim_verb(n, "has", "have") */
static inline const char *flim_verb(int64_t n, const char *of_one, const char *of_many)
{
    return n == 1 ? of_one : of_many;
}

int flim_compare_texts(const void *a, const void *b); /* for qsort of char *, by bytes */

/* The shortest decimal text that reads back as the same finite double: "0.1", "3", "1e-05". */
void flim_double_text(double value, char text[32]);

/* Bytes of the mark that Windows programs put before UTF-8: 3 if there is one, else 0. */
size_t flim_utf8_mark(const char *text, size_t length);

/* The bytes in base64; the caller frees it with flim_free.  NULL when out of memory. */
char *flim_base64(const void *bytes, size_t count, flim_error *err);
/* And back: *bytes is the caller's (flim_free).  FLIM_ERROR_DATA if the text is no base64 (RFC 4648, padded). */
flim_status flim_base64_decode(const char *text, unsigned char **bytes, size_t *count, flim_error *err);

/* The fields ("batch 16", separated by ", ") in which two texts differ, as "batch 16 there, batch 64 here", into out.  there:
 * `length` bytes; here: up to its first newline. */
void flim_describe_difference(const char *there, size_t length, const char *here, char *out, size_t size);

#endif
