#include "common/wrap.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

enum { INDENT = 4, LONGEST_LABEL = 14, BELOW_LABEL = 6, LEAST_COLUMNS = 20 };

/* Where the rows after the first begin: below the text that follows "label: ", also in further lines that stand there, else a
 * little to the right of the line. */
static int indent_of(const char *line)
{
    const size_t begin = strspn(line, " "), label = strcspn(line + begin, " ");
    const bool has_label = label > 1 && label <= LONGEST_LABEL && line[begin + label - 1] == ':' && line[begin + label];
    return (int)begin + (has_label ? (int)label + 1 : begin >= BELOW_LABEL ? 0 : INDENT);
}

/* The word is a unit, and belongs to the number before it. */
static bool is_unit(const char *word)
{
    static const char *const units[] = {"%", "GiB", "MiB", "KiB", "GB", "MB", "s", "ms", "min", "h", "W", "it/s", "cells/s"};
    const size_t length = strcspn(word, " ,;.)");
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (strlen(units[i]) == length && strncmp(word, units[i], length) == 0) {
            return true;
        }
    }
    return false;
}

/* A row may end before the blank at text[i]: it parts two words, and no number from its unit. */
static bool may_break(const char *text, size_t i)
{
    const char *next = text + i + strspn(text + i, " ");
    return text[i] == ' ' && text[i - 1] != ' ' && *next && !(isdigit((unsigned char)text[i - 1]) && is_unit(next));
}

/* Bytes of the text that the next row takes: all, or up to a blank.  A first word that is too long is a row of its own. */
static size_t row_of(const char *text, int room)
{
    const size_t begin = strspn(text, " ");
    size_t i = begin, blank = 0, part = 0; /* the last places to break at */
    int column = (int)begin; /* of text[i] */
    for (; text[i] && (column <= room || !blank); i++) {
        if (i > begin && may_break(text, i)) {
            blank = i;
            part = column <= room && strncmp(text + i, " | ", 3) == 0 ? i : part;
        }
        column += ((unsigned char)text[i] & 0xc0) != 0x80;
    }
    return !text[i] && (column <= room || !blank) ? i : part ? part : blank;
}

static void put_row(FILE *out, int left, const char *text, size_t bytes, const char *colour)
{
    fprintf(out, "%*s%s%.*s%s\n", left, "", colour ? colour : "", (int)bytes, text, colour ? "\033[0m" : "");
}

void wrap_line(FILE *out, const char *line, int columns, const char *colour)
{
    const int indent = indent_of(line) < columns - LEAST_COLUMNS ? indent_of(line) : 0;
    const char *at = line;
    for (int row = 0; *at && columns > 0; row++) {
        const int left = row > 0 ? indent : 0;
        const size_t bytes = row_of(at, columns - left);
        put_row(out, left, at, bytes, colour);
        at += bytes + strspn(at + bytes, " ");
    }
    if (columns <= 0 || !*line) {
        put_row(out, 0, line, strlen(line), colour);
    }
}

/* ---- a stream of such lines */

typedef struct wrapped {
    FILE *out;
    int columns;
    char line[8192]; /* what has come of the line so far; a longer one is broken here, too */
    size_t used;
} wrapped;

static void end_line(wrapped *w)
{
    w->line[w->used] = '\0';
    wrap_line(w->out, w->line, w->columns, NULL);
    w->used = 0;
}

static ssize_t take(void *cookie, const char *bytes, size_t count)
{
    wrapped *w = cookie;
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] != '\n') {
            w->line[w->used++] = bytes[i];
        }
        if (bytes[i] == '\n' || w->used + 1 == sizeof w->line) {
            end_line(w);
        }
    }
    return ferror(w->out) ? 0 : (ssize_t)count;
}

static int end(void *cookie)
{
    wrapped *w = cookie;
    if (w->used > 0) {
        end_line(w);
    }
    const int lost = fflush(w->out) != 0 || ferror(w->out);
    free(w);
    return lost ? -1 : 0;
}

FILE *wrap_stream(FILE *out, int columns)
{
    wrapped *w = malloc(sizeof *w);
    FILE *stream = w ? fopencookie(w, "w", (cookie_io_functions_t){.write = take, .close = end}) : NULL;
    if (!stream) {
        free(w);
        return NULL;
    }
    *w = (wrapped){.out = out, .columns = columns};
    setvbuf(stream, NULL, _IOLBF, 0);
    return stream;
}
