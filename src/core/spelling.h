/* Two spellings of one name: texts that a person takes for the same and a program does not.
 *
 * For: names of groups, which people type and programs export: "D3", "d3 ", "D03", a "D3" that begins with a byte order mark.
 * A fold writes a text in one way; which differences it forgets is a set of flim_spelling.  Bytes that are no UTF-8 are read
 * as Latin-1.
 */
#ifndef FLIM_CORE_SPELLING_H
#define FLIM_CORE_SPELLING_H

#include <stddef.h>

#include "flim/status.h"

typedef enum flim_spelling {
    FLIM_SPELLING_BLANKS = 1, /* of every kind and width */
    FLIM_SPELLING_CASE = 2,
    FLIM_SPELLING_INVISIBLE = 4, /* byte order mark, zero-width characters, control characters */
    FLIM_SPELLING_ENCODING = 8, /* a letter with its accent in one or after it (NFC, NFD); UTF-8 or Latin-1 */
    FLIM_SPELLING_ZEROS = 16, /* leading zeros of a number; 3 and 3.0 */
    FLIM_SPELLING_SEPARATORS = 32, /* hyphens and underscores, unless between two digits */
    FLIM_SPELLING_QUOTES = 64, /* 'D3', "D3", b'D3' */
    FLIM_SPELLING_LETTERS = 128, /* of another script or width that look the same */
    FLIM_SPELLING_ACCENTS = 256, /* Zoe, Zoë */
    FLIM_SPELLING_ALL = 511
} flim_spelling;

/* The text without the differences named by `spellings` (a set of flim_spelling); the caller's, NULL when out of memory. */
char *flim_text_folded(const char *text, unsigned spellings, flim_error *err);

/* By what two texts that fold to the same differ, in words: "case", "blanks and leading zeros". */
flim_status flim_spelling_difference(const char *a, const char *b, char out[256], flim_error *err);

/* The text with everything that is no visible ASCII as an escape: \ufeff, \u00e9, \xe9 (a byte that is no UTF-8); cut to
 * `size` with its zero. */
void flim_text_escaped(const char *text, char *out, size_t size);

#endif
