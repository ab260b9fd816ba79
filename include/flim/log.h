/* Where the library's messages go.
 *
 * For: the library never prints; what it wants a user to read (notes, warnings, tables) it hands, line by line, to the
 *      flim_log of the caller.  A tool sends it to the terminal and train.log; a test collects it.
 * Owns: nothing; the caller keeps `context` alive as long as anything may log to it.  The function may be called from one
 *      thread at a time only; modules with threads gather messages and log from the calling thread.
 */
#ifndef FLIM_LOG_H
#define FLIM_LOG_H

#include "flim/status.h"

/* RESULT: what was asked for, which --quiet leaves in; else as INFO.  BEST: the line of an epoch that is the best so far. */
typedef enum flim_log_level { FLIM_LOG_INFO, FLIM_LOG_NOTE, FLIM_LOG_WARNING, FLIM_LOG_RESULT, FLIM_LOG_BEST } flim_log_level;

typedef struct flim_log {
    void (*line)(void *context, flim_log_level level, const char *text); /* text: one line, no newline */
    void *context;
} flim_log;

/* Formats and hands over one line, controls and bytes that are no UTF-8 shown as \n, \t, \x1b; a NULL log or a NULL log->line drops it. */
void flim_log_line(const flim_log *log, flim_log_level level, const char *format, ...) FLIM_PRINTF(3, 4);

#endif
