#include "flim/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/text.h"

/* Formats into a text that is shown as lines of the log are: what came from a file or a command line may hold anything. */
FLIM_PRINTF(2, 0) static void show(char text[FLIM_ERROR_TEXT], const char *format, va_list args)
{
    char raw[FLIM_ERROR_TEXT]; /* the arguments may point into the text */
    const int length = vsnprintf(raw, sizeof raw, format, args);
    if (length >= (int)sizeof raw) {
        raw[flim_utf8_cut(raw, sizeof raw - 2)] = '\0';
    }
    flim_text_show(length < 0 ? "" : raw, text, FLIM_ERROR_TEXT);
}

#undef flim_fail /* what status.h tells the analyzer */
flim_status flim_fail(flim_error *err, flim_status status, const char *format, ...)
{
    if (err) {
        va_list args;
        va_start(args, format);
        show(err->text, format, args);
        va_end(args);
        err->status = status;
    }
    return status;
}

flim_status flim_fail_prefix(flim_error *err, const char *format, ...)
{
    if (!err) {
        return FLIM_ERROR;
    }
    char text[2 * FLIM_ERROR_TEXT];
    va_list args;
    va_start(args, format);
    show(text, format, args);
    va_end(args);
    const size_t used = strlen(text);
    snprintf(text + used, sizeof text - used, "%s", err->text);
    text[flim_utf8_cut(text, FLIM_ERROR_TEXT - 1)] = '\0';
    snprintf(err->text, sizeof err->text, "%s", text);
    return err->status;
}

const char *flim_status_name(flim_status status)
{
    switch (status) {
    case FLIM_OK: return "ok";
    case FLIM_ERROR: return "error";
    case FLIM_ERROR_USAGE: return "usage";
    case FLIM_ERROR_DATA: return "data";
    case FLIM_ERROR_DEVICE: return "device";
    case FLIM_ERROR_MEMORY: return "memory";
    case FLIM_ERROR_WRITE: return "write";
    case FLIM_INTERRUPTED: return "interrupted";
    case FLIM_ERROR_NONFINITE: return "nonfinite";
    }
    return "unknown";
}
