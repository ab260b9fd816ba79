/* The terminal side of a program: lines, the progress bar, signals, exit codes. */
#ifndef FLIM_TOOLS_CONSOLE_H
#define FLIM_TOOLS_CONSOLE_H

#include <stdbool.h>
#include <stdio.h>

#include "flim/log.h"
#include "flim/train.h"

typedef struct console {
    bool quiet; /* warnings only */
    bool json; /* one JSON object per line: events, and of the log warnings and notes */
    bool error_told; /* on standard output: by an event, in a report */
    bool stdout_taken; /* lines go to stderr */
    bool bar; /* stderr is a terminal that can move its cursor: draw a progress bar */
    bool colour[2]; /* of stdout, stderr: a terminal that has colours, and NO_COLOR is not set */
    FILE *stream; /* of console_stream; NULL = none */
    int drawn; /* columns of the bar on the last line of the terminal; 0 = none */
    double last; /* when it was drawn, in seconds */
} console;

/* Settles where output goes, and raises the process's limit of open files to its hard limit. */
void console_open(console *c, bool quiet, bool json);
/* Removes the bar. */
void console_close(console *c);
/* Columns of the terminal that a descriptor is now; 0 = it is none, and its lines are not broken. */
int console_columns(int fd);
/* A log that prints to stdout (warnings to stderr), with the bar out of the way, in rows of the terminal's width. */
flim_log console_log(console *c);
/* Standard output (or error, after console_leave_stdout) for text that is no log: as the log, in rows of the terminal's width.  tool_main ends it. */
FILE *console_stream(console *c);
void console_close_stream(console *c);
/* flim_train_hooks.progress; context is the console. */
void console_progress(void *context, const flim_progress *progress);

/* flim_train_hooks.event: one line of standard output.  With quiet: how the run ended, and its metrics. */
void console_event(void *context, const char *name, const char *json);

/* flim_train_hooks.workers; context is the console. */
void console_workers(void *context, const flim_worker_view *worker, int n);

/* For what can be stopped: catches INT, TERM, HUP and USR1 into the flag that it returns (0, then the signal's number); a
 * second INT ends the program at once.  HUP stays ignored where it was, as under nohup. */
const volatile int *console_catch_signals(void);

/* First in main: standard streams that the caller has closed are opened on /dev/null (the wrong way round, so that what is
 * written there still is an error), lest a file of ours get their number; a closed pipe is a write that fails, and so is a file
 * over ulimit -f. */
void console_start(void);
/* --quiet, for a console that is open. */
void console_be_quiet(console *c, bool quiet);
/* The error has been printed to standard output: console_exit repeats it only if standard error leads elsewhere. */
void console_error_told(console *c);
/* Lines and console_stream go to standard error: standard output is for a file. */
void console_leave_stdout(console *c);

/* Prints the error of a failed call to stderr ("train_cv: error: ...") and returns the exit code: the status's own number,
 * 1 for what has none, 128 + the signal after an interruption. */
int console_exit(console *c, const char *program, flim_status status, const flim_error *err);

#endif
