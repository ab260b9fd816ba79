#include "flim/log.h"

#include <stdarg.h>
#include <stdio.h>

void flim_log_line(const flim_log *log, flim_log_level level, const char *format, ...)
{
    if (!log || !log->line) {
        return;
    }
    char text[4096];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    log->line(log->context, level, text);
}
