#include "formats/csv.h"

#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/text.h"

static bool is_number(const char *text)
{
    char *end;
    return text[strspn(text, "+-.0123456789eE")] == '\0' && (strtod(text, &end), *end == '\0');
}

/* What a spreadsheet takes for a formula, or for one that is marked as a text already. */
static bool is_formula(const char *text)
{
    const char *first = text + strspn(text, "'");
    return *first && strchr("=+-@\t\r", *first) && !is_number(text);
}

void flim_csv_put(FILE *stream, const char *text)
{
    char *valid = text && !flim_utf8_is_valid(text) ? flim_utf8_of(text, NULL) : NULL;
    const char *at = valid ? valid : text ? text : "";
    const char *mark = is_formula(at) ? "'" : "";
    if (!at[strcspn(at, ",\"\r\n")]) {
        fprintf(stream, "%s%s", mark, at);
    } else {
        fprintf(stream, "\"%s", mark);
        for (; *at; at++) {
            if (*at == '"') {
                putc('"', stream);
            }
            putc(*at, stream);
        }
        putc('"', stream);
    }
    flim_free(valid);
}

const char *flim_csv_text(const char *field)
{
    return field[0] == '\'' && is_formula(field) ? field + 1 : field;
}
