#include "core/spelling.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/decompositions.h"
#include "core/text.h"
#include "core/try.h"

enum { NO_UTF8 = 0x110000 }; /* + the byte: above every code point */

/* A text as code points, in order of their folding. */
typedef struct letters {
    uint32_t *at; /* (n) */
    size_t n;
} letters;

static uint32_t decode(const char **text)
{
    uint32_t code = 0;
    const size_t length = flim_utf8_length(*text, &code);
    if (!length) {
        code = NO_UTF8 + *(const unsigned char *)*text;
    }
    *text += length ? length : 1;
    return code;
}

static char *encode(const letters *l, flim_error *err)
{
    char *text = flim_alloc(4 * l->n + 1, 1, err);
    unsigned char *to = (unsigned char *)text;
    for (size_t i = 0; text && i < l->n; i++) {
        const uint32_t c = l->at[i];
        if (c < 0x80) {
            *to++ = (unsigned char)c;
        } else if (c < 0x800) {
            *to++ = (unsigned char)(0xc0 | c >> 6);
            *to++ = (unsigned char)(0x80 | (c & 63));
        } else if (c < 0x10000) {
            *to++ = (unsigned char)(0xe0 | c >> 12);
            *to++ = (unsigned char)(0x80 | (c >> 6 & 63));
            *to++ = (unsigned char)(0x80 | (c & 63));
        } else if (c < NO_UTF8) {
            *to++ = (unsigned char)(0xf0 | c >> 18);
            *to++ = (unsigned char)(0x80 | (c >> 12 & 63));
            *to++ = (unsigned char)(0x80 | (c >> 6 & 63));
            *to++ = (unsigned char)(0x80 | (c & 63));
        } else {
            *to++ = (unsigned char)(c - NO_UTF8);
        }
    }
    return text;
}

static bool is_in(uint32_t c, uint32_t first, uint32_t last)
{
    return c >= first && c <= last;
}

/* White_Space of the Unicode Character Database. */
static bool is_blank(uint32_t c)
{
    return is_in(c, 9, 13) || c == ' ' || c == 0x85 || c == 0xa0 || c == 0x1680 || is_in(c, 0x2000, 0x200a) || c == 0x2028 ||
           c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

/* Controls and what Default_Ignorable_Code_Point lists: marks of direction, joiners, variation selectors, tags. */
static bool is_invisible(uint32_t c)
{
    return (c < 32 && !is_blank(c)) || is_in(c, 0x7f, 0x84) || is_in(c, 0x86, 0x9f) || c == 0xad || c == 0x34f ||
           c == 0x61c || is_in(c, 0x115f, 0x1160) || is_in(c, 0x17b4, 0x17b5) || is_in(c, 0x180b, 0x180f) ||
           is_in(c, 0x200b, 0x200f) || is_in(c, 0x202a, 0x202e) || is_in(c, 0x2060, 0x206f) || c == 0x3164 ||
           is_in(c, 0xfe00, 0xfe0f) || c == 0xfeff || c == 0xffa0 || is_in(c, 0xfff0, 0xfffb) || c == 0xfffe ||
           is_in(c, 0xe0000, 0xe0fff);
}

static bool is_mark(uint32_t c)
{
    return is_in(c, 0x300, 0x36f) || is_in(c, 0x1ab0, 0x1aff) || is_in(c, 0x1dc0, 0x1dff) || is_in(c, 0x20d0, 0x20ff) ||
           c == 0x3099 || c == 0x309a;
}

static bool is_digit(uint32_t c)
{
    return is_in(c, '0', '9');
}

/* What an ASCII reader would take the character for. */
static uint32_t latin_like(uint32_t c)
{
    static const struct {
        uint16_t code;
        char latin;
    } alike[] = {{0x391, 'A'}, {0x392, 'B'}, {0x395, 'E'}, {0x396, 'Z'}, {0x397, 'H'}, {0x399, 'I'}, {0x39a, 'K'},
                 {0x39c, 'M'}, {0x39d, 'N'}, {0x39f, 'O'}, {0x3a1, 'P'}, {0x3a4, 'T'}, {0x3a5, 'Y'}, {0x3a7, 'X'},
                 {0x3bd, 'v'}, {0x3bf, 'o'}, {0x3c1, 'p'}, {0x405, 'S'}, {0x406, 'I'}, {0x408, 'J'}, {0x410, 'A'},
                 {0x412, 'B'}, {0x415, 'E'}, {0x417, '3'}, {0x41a, 'K'}, {0x41c, 'M'}, {0x41d, 'H'}, {0x41e, 'O'},
                 {0x420, 'P'}, {0x421, 'C'}, {0x422, 'T'}, {0x423, 'Y'}, {0x425, 'X'}, {0x430, 'a'}, {0x435, 'e'},
                 {0x43e, 'o'}, {0x440, 'p'}, {0x441, 'c'}, {0x443, 'y'}, {0x445, 'x'}, {0x455, 's'}, {0x456, 'i'},
                 {0x458, 'j'}, {0x501, 'd'}, {0x51b, 'q'}, {0x51d, 'w'}, {0x212a, 'K'}};
    for (size_t i = 0; i < sizeof alike / sizeof alike[0]; i++) {
        if (alike[i].code == c) {
            return (uint32_t)alike[i].latin;
        }
    }
    if (is_in(c, 0xff01, 0xff5e)) { /* full width */
        return c - 0xfee0;
    }
    if (is_in(c, 0x660, 0x669) || is_in(c, 0x6f0, 0x6f9)) { /* Arabic-Indic digits */
        return '0' + (c & 15);
    }
    if (is_in(c, 0x2010, 0x2015) || c == 0x2212 || c == 0xfe58 || c == 0xfe63) {
        return '-';
    }
    return c == 0xb5     ? 0x3bc /* the micro sign is a mu */
           : c == 0x2126 ? 0x3a9 /* the ohm sign an omega */
           : c == 0x212b ? 0xc5 /* the angstrom sign */
                         : c;
}

static uint32_t lower(uint32_t c)
{
    if (is_in(c, 'A', 'Z') || (is_in(c, 0xc0, 0xde) && c != 0xd7) || (is_in(c, 0x391, 0x3a9) && c != 0x3a2) ||
        is_in(c, 0x410, 0x42f)) {
        return c + 32;
    }
    if (is_in(c, 0x400, 0x40f)) {
        return c + 80;
    }
    const bool even_first = (is_in(c, 0x100, 0x137) && c != 0x130 && c != 0x131) || is_in(c, 0x14a, 0x177) ||
                            is_in(c, 0x1de, 0x1ef) || is_in(c, 0x460, 0x481) || is_in(c, 0x48a, 0x4bf) ||
                            is_in(c, 0x4d0, 0x52f) || is_in(c, 0x1e00, 0x1e95) || is_in(c, 0x1ea0, 0x1eff);
    const bool odd_first = is_in(c, 0x139, 0x148) || is_in(c, 0x179, 0x17e) || is_in(c, 0x1cd, 0x1dc);
    return even_first ? c | 1 : odd_first ? c + (c & 1) : c == 0x3c2 ? 0x3c3 : c; /* a final sigma is a sigma */
}

static int by_letter(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = **(const uint16_t(*)[3])b;
    return (x > y) - (x < y);
}

/* The letter and its marks, one after the other, into to (at most 4); returns how many. */
static size_t decompose(uint32_t c, uint32_t *to)
{
    if (is_in(c, 0xac00, 0xd7a3)) { /* Hangul: section 3.12 of the Unicode standard */
        const uint32_t s = c - 0xac00;
        to[0] = 0x1100 + s / 588;
        to[1] = 0x1161 + s % 588 / 28;
        to[2] = 0x11a7 + s % 28;
        return s % 28 ? 3 : 2;
    }
    const uint16_t(*found)[3] =
        bsearch(&c, flim_decomposition, flim_n_decompositions, sizeof flim_decomposition[0], by_letter);
    if (!found) {
        to[0] = c;
        return 1;
    }
    const size_t n = decompose((*found)[1], to);
    to[n] = (*found)[2];
    return n + 1;
}

/* Letter by letter: all that needs no neighbour.  Returns the letters of c, at most 4, in to. */
static size_t fold_letter(uint32_t c, unsigned how, uint32_t *to)
{
    const bool split = how & (FLIM_SPELLING_ENCODING | FLIM_SPELLING_ACCENTS);
    uint32_t part[4];
    size_t kept = 0;
    c = split && c >= NO_UTF8 ? c - NO_UTF8 : c;
    c = how & FLIM_SPELLING_LETTERS ? latin_like(c) : c;
    if (((how & FLIM_SPELLING_BLANKS) && is_blank(c)) || ((how & FLIM_SPELLING_INVISIBLE) && is_invisible(c))) {
        return 0;
    }
    part[0] = c;
    const size_t n = split ? decompose(c, part) : 1;
    for (size_t i = 0; i < n; i++) {
        if (!((how & FLIM_SPELLING_ACCENTS) && is_mark(part[i]))) {
            to[kept++] = how & FLIM_SPELLING_CASE ? lower(part[i]) : part[i];
        }
    }
    return kept;
}

static void cut(letters *l, size_t from, size_t count)
{
    memmove(l->at + from, l->at + from + count, (l->n - from - count) * sizeof *l->at);
    l->n -= count;
}

static void drop_quotes(letters *l)
{
    const size_t first = l->n > 2 && (l->at[0] == 'b' || l->at[0] == 'B') && (l->at[1] == '\'' || l->at[1] == '"');
    if (l->n < first + 2) {
        return;
    }
    const uint32_t begins = l->at[first], ends = l->at[l->n - 1];
    if ((begins == ends && (begins == '\'' || begins == '"')) ||
        ((begins == 0x2018 || begins == 0x201c) && (ends == 0x2019 || ends == 0x201d))) {
        l->n--;
        cut(l, 0, first + 1);
    }
}

static void drop_separators(letters *l)
{
    size_t kept = 0;
    for (size_t i = 0; i < l->n; i++) {
        const bool separates = l->at[i] == '-' || l->at[i] == '_';
        const bool number = i + 1 < l->n && is_digit(l->at[i + 1]); /* follows */
        const bool between = kept > 0 && number && is_digit(l->at[kept - 1]), minus = kept == 0 && number && l->at[i] == '-';
        if (!separates || between || minus) {
            l->at[kept++] = separates ? '-' : l->at[i];
        }
    }
    l->n = kept;
}

/* Leading zeros of every number; of one number alone ("3.0") also the fraction. */
static void drop_zeros(letters *l)
{
    size_t kept = 0, digits = 0, point = 0;
    for (size_t i = 0; i < l->n; i++) {
        const bool begins = kept == 0 || !is_digit(l->at[kept - 1]);
        const bool fraction = kept > 1 && (l->at[kept - 1] == '.' || l->at[kept - 1] == ',') && is_digit(l->at[kept - 2]);
        if (!(begins && !fraction && l->at[i] == '0' && i + 1 < l->n && is_digit(l->at[i + 1]))) {
            l->at[kept++] = l->at[i];
        }
    }
    l->n = kept;
    for (; digits < l->n && is_digit(l->at[digits]); digits++) {
    }
    for (point = digits; point < l->n && (l->at[point] == '0' || (point == digits && l->at[point] == '.')); point++) {
    }
    l->n = digits && point == l->n && l->n > digits + 1 && l->at[digits] == '.' ? digits : l->n;
}

char *flim_text_folded(const char *text, unsigned spellings, flim_error *err)
{
    letters l = {flim_alloc(4 * strlen(text) + 4, sizeof *l.at, err), 0};
    if (!l.at) {
        return NULL;
    }
    while (*text) {
        l.n += fold_letter(decode(&text), spellings, l.at + l.n);
    }
    if (spellings & FLIM_SPELLING_QUOTES) {
        drop_quotes(&l);
    }
    if (spellings & FLIM_SPELLING_SEPARATORS) {
        drop_separators(&l);
    }
    if (spellings & FLIM_SPELLING_ZEROS) {
        drop_zeros(&l);
    }
    char *folded = encode(&l, err);
    flim_free(l.at);
    return folded;
}

static flim_status fold_to_same(const char *a, const char *b, unsigned spellings, bool *same, flim_error *err)
{
    char *x = flim_text_folded(a, spellings, err), *y = flim_text_folded(b, spellings, err);
    *same = x && y && strcmp(x, y) == 0;
    const flim_status status = x && y ? FLIM_OK : FLIM_ERROR_MEMORY;
    flim_free(x);
    flim_free(y);
    return status;
}

flim_status flim_spelling_difference(const char *a, const char *b, char out[256], flim_error *err)
{
    /* In the order in which an explanation is given up if the others suffice. */
    static const struct {
        unsigned spelling;
        const char *words;
    } kinds[] = {{FLIM_SPELLING_ACCENTS, "accents"},
                 {FLIM_SPELLING_LETTERS, "letters of another script that look the same"},
                 {FLIM_SPELLING_SEPARATORS, "hyphens or underscores"},
                 {FLIM_SPELLING_QUOTES, "quotes"},
                 {FLIM_SPELLING_ZEROS, "leading zeros"},
                 {FLIM_SPELLING_INVISIBLE, "invisible characters"},
                 {FLIM_SPELLING_ENCODING, "how their letters are encoded"},
                 {FLIM_SPELLING_CASE, "case"},
                 {FLIM_SPELLING_BLANKS, "blanks"}};
    unsigned needed = FLIM_SPELLING_ALL;
    size_t used = 0;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        bool same = false;
        FLIM_TRY(fold_to_same(a, b, needed & ~kinds[i].spelling, &same, err));
        needed = same ? needed & ~kinds[i].spelling : needed;
    }
    out[0] = '\0';
    for (size_t i = sizeof kinds / sizeof kinds[0]; i-- > 0;) {
        if (needed & kinds[i].spelling) {
            used += (size_t)snprintf(out + used, 256 - used, "%s%s", used ? " and " : "", kinds[i].words);
        }
    }
    return FLIM_OK;
}

void flim_text_escaped(const char *text, char *out, size_t size)
{
    size_t used = 0;
    out[0] = '\0';
    while (*text) {
        char one[16];
        const uint32_t c = decode(&text);
        const int length = c >= NO_UTF8             ? snprintf(one, sizeof one, "\\x%02x", c - NO_UTF8)
                           : c >= 0x10000           ? snprintf(one, sizeof one, "\\U%08x", c)
                           : is_in(c, ' ', '~')     ? snprintf(one, sizeof one, "%c", (int)c)
                           : c == '\n' || c == '\t' ? snprintf(one, sizeof one, "\\%c", c == '\n' ? 'n' : 't')
                                                    : snprintf(one, sizeof one, "\\u%04x", c);
        if (used + (size_t)length + 1 > size) {
            return;
        }
        memcpy(out + used, one, (size_t)length + 1);
        used += (size_t)length;
    }
}
