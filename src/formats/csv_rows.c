#include "formats/csv_rows.h"

#include <inttypes.h>
#include <string.h>

#include "core/text.h"

/* The field that begins at *at, without its quotes; *at then stands on the byte that ends it.  NULL: its quotes do not end. */
static char *take_field(flim_csv_rows *rows, char **at)
{
    char *field = *at;
    if (*field != '"') {
        *at += strcspn(field, ",\r\n");
        return field;
    }
    char *to = field, *from = field + 1;
    for (; *from && !(from[0] == '"' && from[1] != '"'); from++) {
        rows->lines += *from == '\n';
        from += from[0] == '"'; /* two stand for one */
        *to++ = *from;
    }
    if (!*from) {
        return NULL;
    }
    *at = from + 1;
    *to = '\0'; /* before the closing quote, so within the field */
    return field;
}

flim_status flim_csv_next_row(flim_csv_rows *rows, char **field, int most, int *n, flim_error *err)
{
    char *at = rows->at + (rows->lines == 0 ? flim_utf8_mark(rows->at, strlen(rows->at)) : 0);
    while (*at == '\n' || *at == '\r') {
        rows->lines += *at++ == '\n';
    }
    rows->line = rows->lines + 1;
    *n = 0;
    for (bool more = *at != '\0'; more;) {
        char *taken = *n < most ? take_field(rows, &at) : NULL;
        if (!taken || (*at && !strchr(",\r\n", *at))) {
            return flim_fail(err, FLIM_ERROR_DATA, "line %" PRId64 ": %s", rows->line,
                             *n == most ? "more fields than there are columns"
                             : !taken   ? "a quote that does not end"
                                        : "text behind a closing quote");
        }
        field[(*n)++] = taken;
        more = *at == ',';
        rows->lines += *at == '\n' || (at[0] == '\r' && at[1] == '\n');
        if (*at) {
            const int end = at[0] == '\r' && at[1] == '\n' ? 2 : 1;
            *at = '\0';
            at += end;
        }
    }
    rows->at = at;
    return FLIM_OK;
}
