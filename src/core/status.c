#include "flim/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#undef flim_fail /* what status.h tells the analyzer */
flim_status flim_fail(flim_error *err, flim_status status, const char *format, ...)
{
    if (err) {
        char text[sizeof err->text]; /* the arguments may point into err->text */
        va_list args;
        va_start(args, format);
        vsnprintf(text, sizeof text, format, args);
        va_end(args);
        memcpy(err->text, text, sizeof text);
        err->status = status;
    }
    return status;
}

flim_status flim_fail_prefix(flim_error *err, const char *format, ...)
{
    if (!err) {
        return FLIM_ERROR;
    }
    char text[2 * sizeof err->text];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(text, sizeof err->text, format, args);
    va_end(args);
    size_t used = length < 0 ? 0 : strlen(text);
    snprintf(text + used, sizeof text - used, "%s", err->text);
    text[sizeof err->text - 1] = '\0';
    memcpy(err->text, text, sizeof err->text);
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
