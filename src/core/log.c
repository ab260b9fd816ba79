#include "flim/log.h"

#include <stdarg.h>
#include <stdio.h>

#include "core/text.h"

void flim_log_line(const flim_log *log, flim_log_level level, const char *format, ...)
{
    if (!log || !log->line) {
        return;
    }
    char text[4096], line[4096 + 256];
    va_list args;
    va_start(args, format);
    const int length = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (length >= (int)sizeof text) {
        text[flim_utf8_cut(text, sizeof text - 2)] = '\0';
    }
    flim_text_show(text, line, sizeof line); /* one line is one line, and a terminal's own: names may hold anything */
    log->line(log->context, level, line);
}
