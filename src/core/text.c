#include "core/text.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"

int flim_compare_texts(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

size_t flim_utf8_length(const char *at, uint32_t *code)
{
    /* First byte, bounds of the second, number of bytes: table 3-7 of the Unicode standard. */
    static const struct {
        unsigned char first, last, low, high, length;
    } forms[] = {{0x00, 0x7f, 0, 0, 1},       {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
                 {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3},
                 {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4}};
    const unsigned char *byte = (const unsigned char *)at;
    for (size_t f = 0; f < sizeof forms / sizeof forms[0]; f++) {
        if (byte[0] < forms[f].first || byte[0] > forms[f].last) {
            continue;
        }
        size_t length = forms[f].length;
        uint32_t value = length == 1 ? byte[0] : byte[0] & (0x7fu >> length);
        for (size_t i = 1; i < length; i++) {
            unsigned char low = i == 1 ? forms[f].low : 0x80, high = i == 1 ? forms[f].high : 0xbf;
            if (byte[i] < low || byte[i] > high) {
                return 0;
            }
            value = value << 6 | (byte[i] & 0x3fu);
        }
        if (code) {
            *code = value;
        }
        return length;
    }
    return 0;
}

bool flim_utf8_is_valid(const char *text)
{
    while (*text) {
        size_t length = flim_utf8_length(text, NULL);
        if (!length) {
            return false;
        }
        text += length;
    }
    return true;
}

char *flim_utf8_of(const char *text, flim_error *err)
{
    char *out = flim_alloc(2 * strlen(text) + 1, 1, err), *to = out; /* Latin-1 becomes two bytes */
    while (out && *text) {
        const size_t length = flim_utf8_length(text, NULL);
        if (length) {
            memcpy(to, text, length);
            to += length;
            text += length;
        } else {
            const unsigned char byte = (unsigned char)*text++;
            *to++ = (char)(0xc0 | byte >> 6);
            *to++ = (char)(0x80 | (byte & 0x3f));
        }
    }
    return out;
}

size_t flim_utf8_cut(const char *text, size_t most)
{
    size_t length = strnlen(text, most + 1);
    if (length <= most) {
        return length;
    }
    length = most;
    while (length && ((unsigned char)text[length] & 0xc0) == 0x80 && most - length < 4) { /* within a character */
        length--;
    }
    return length;
}

bool flim_text_is_hidden(uint32_t code)
{
    return code < 0x20 || (code >= 0x7f && code <= 0x9f) || code == 0x061c || (code >= 0x200b && code <= 0x200f) ||
           (code >= 0x2028 && code <= 0x202e) || (code >= 0x2060 && code <= 0x206f) || code == 0xfeff ||
           (code >= 0xfff9 && code <= 0xfffb) || (code >= 0xe0000 && code <= 0xe007f);
}

/* The next character of a text as it is shown; returns the bytes read, *wrote those of out. */
static size_t show_next(const char *text, char out[12], size_t *wrote)
{
    uint32_t code = 0;
    const size_t length = flim_utf8_length(text, &code);
    if (length && !flim_text_is_hidden(code)) {
        memcpy(out, text, length);
        *wrote = length;
        return length;
    }
    const char *format = !length || code < 0x100 ? "\\x%02x" : code > 0xffff ? "\\U%08x" : "\\u%04x";
    const unsigned value = length ? code : (unsigned char)*text;
    *wrote = (size_t)(value == '\n'   ? snprintf(out, 12, "\\n")
                      : value == '\r' ? snprintf(out, 12, "\\r")
                      : value == '\t' ? snprintf(out, 12, "\\t")
                                      : snprintf(out, 12, format, value));
    return length ? length : 1;
}

void flim_text_show(const char *text, char *out, size_t size)
{
    size_t used = 0;
    while (*text) {
        char shown[12];
        size_t wrote;
        text += show_next(text, shown, &wrote);
        if (used + wrote >= size) {
            break;
        }
        memcpy(out + used, shown, wrote);
        used += wrote;
    }
    out[used] = '\0';
}

void flim_text_put(FILE *stream, const char *text)
{
    while (*text) {
        char shown[12];
        size_t wrote;
        text += show_next(text, shown, &wrote);
        fwrite(shown, 1, wrote, stream);
    }
}

void flim_double_text(double value, char text[32])
{
    for (int digits = DBL_DIG; digits <= DBL_DECIMAL_DIG; digits++) {
        snprintf(text, 32, "%.*g", digits, value);
        if (strtod(text, NULL) == value) {
            break;
        }
    }
    char *comma = strchr(text, ','); /* in a host program with another locale */
    if (comma) {
        *comma = '.';
    }
}

size_t flim_utf8_mark(const char *text, size_t length)
{
    return length >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}

char *flim_base64(const void *bytes, size_t count, flim_error *err)
{
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *from = bytes;
    char *text = flim_alloc(count / 3 * 4 + 5, 1, err), *to = text;
    for (size_t i = 0; text && i < count; i += 3) {
        size_t left = count - i;
        unsigned word = (unsigned)from[i] << 16 | (left > 1 ? (unsigned)from[i + 1] << 8 : 0) | (left > 2 ? from[i + 2] : 0);
        *to++ = digit[word >> 18 & 63];
        *to++ = digit[word >> 12 & 63];
        *to++ = left > 1 ? digit[word >> 6 & 63] : '=';
        *to++ = left > 2 ? digit[word & 63] : '=';
    }
    return text; /* flim_alloc has zeroed what follows */
}

/* 0..63, or 64 for what is no digit. */
static unsigned base64_value(char c)
{
    if (c >= 'A' && c <= 'Z') {
        return (unsigned)(c - 'A');
    }
    if (c >= 'a' && c <= 'z') {
        return (unsigned)(c - 'a') + 26;
    }
    if (c >= '0' && c <= '9') {
        return (unsigned)(c - '0') + 52;
    }
    return c == '+' ? 62 : c == '/' ? 63 : 64;
}

flim_status flim_base64_decode(const char *text, unsigned char **bytes, size_t *count, flim_error *err)
{
    const size_t length = strlen(text);
    const size_t padding = length < 2 || text[length - 1] != '=' ? 0 : text[length - 2] != '=' ? 1 : 2;
    bool whole = length % 4 == 0;
    *count = whole ? length / 4 * 3 - padding : 0;
    *bytes = flim_alloc(*count, 1, err);
    if (!*bytes) {
        return FLIM_ERROR_MEMORY;
    }
    for (size_t i = 0, at = 0; whole && i < length; i += 4) {
        unsigned word = 0;
        for (size_t k = 0; k < 4; k++) {
            const unsigned value = i + k >= length - padding ? 0 : base64_value(text[i + k]);
            whole = whole && value < 64;
            word = word << 6 | (value & 63);
        }
        for (int shift = 16; shift >= 0 && at < *count; shift -= 8) {
            (*bytes)[at++] = (unsigned char)(word >> shift);
        }
    }
    if (!whole) {
        flim_free(*bytes);
        *bytes = NULL;
        return flim_fail(err, FLIM_ERROR_DATA, "not base64 text");
    }
    return FLIM_OK;
}

void flim_describe_difference(const char *there, size_t length, const char *here, char *out, size_t size)
{
    const char *end = there + length;
    size_t used = 0;
    out[0] = '\0';
    while ((there < end || (*here && *here != '\n')) && used < size) {
        const char *comma = memchr(there, ',', (size_t)(end - there));
        size_t a = comma ? (size_t)(comma - there) : (size_t)(end - there), b = strcspn(here, ",\n");
        if (a != b || memcmp(there, here, a) != 0) {
            int wrote = snprintf(out + used, size - used, "%s%.*s there, %.*s here", used ? "; " : "",
                                 (int)(a < 200 ? a : 200), there, (int)(b < 200 ? b : 200), here);
            used += wrote > 0 ? (size_t)wrote : 0;
        }
        for (there = comma ? comma + 1 : end; there < end && *there == ' '; there++) {
        }
        here += b;
        here += strspn(here, ", ");
    }
}
