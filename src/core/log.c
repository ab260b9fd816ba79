#include "flim/log.h"

#include <stdarg.h>
#include <stdio.h>

/* One line is one line, and a terminal's own: names from data files may hold anything.  Line ends, escapes and the like
 * become \n, \t or \x1b; what lies beyond ASCII (UTF-8) stays. */
static void show_controls(const char *text, char *out, size_t size)
{
    size_t used = 0;
    for (; *text && used + 5 < size; text++) {
        const unsigned char c = (unsigned char)*text;
        if (c >= 0x20 && c != 0x7f) {
            out[used++] = *text;
        } else if (c == '\n' || c == '\r' || c == '\t') {
            out[used++] = '\\';
            out[used++] = c == '\n' ? 'n' : c == '\r' ? 'r' : 't';
        } else {
            used += (size_t)snprintf(out + used, size - used, "\\x%02x", c);
        }
    }
    out[used] = '\0';
}

void flim_log_line(const flim_log *log, flim_log_level level, const char *format, ...)
{
    if (!log || !log->line) {
        return;
    }
    char text[4096], line[4096 + 256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    show_controls(text, line, sizeof line);
    log->line(log->context, level, line);
}
