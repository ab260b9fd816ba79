#include "formats/csv.h"

#include <string.h>

void flim_csv_put(FILE *stream, const char *text)
{
    if (!text || !text[strcspn(text, ",\"\r\n")]) {
        fputs(text ? text : "", stream);
        return;
    }
    putc('"', stream);
    for (; *text; text++) {
        if (*text == '"') {
            putc('"', stream);
        }
        putc(*text, stream);
    }
    putc('"', stream);
}
