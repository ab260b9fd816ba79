/* train.log: every line that a user reads, as a file of the run folder.
 *
 * For: the run, whose lines go to the caller's log and into the file; lines from before the folder exists are held for it.
 *      Processes that work at folds of one run share the file: a line is one write at its end, so lines never mix.
 * Owns: the file and the held lines; flim_train_log_close.
 * Errors: FLIM_ERROR_WRITE.  A line that cannot be written is remembered; check and close return it.
 */
#ifndef FLIM_TRAIN_LOG_H
#define FLIM_TRAIN_LOG_H

#include <stdbool.h>
#include <stddef.h>

#include "flim/log.h"
#include "flim/status.h"

typedef struct flim_train_log {
    const flim_log *user; /* may be NULL */
    int file; /* descriptor; -1 before the folder exists */
    int fold_file; /* of the fold at work, which gets the same lines; -1 = none */
    char path[4096];
    char *early; /* lines held until then */
    size_t early_bytes;
    int error; /* errno of the first line that could not be written; 0 = none */
} flim_train_log;

/* The log that writes into both; `log` must stay where it is. */
flim_log flim_train_log_begin(flim_train_log *log, const flim_log *user);
/* append: the run has a log already.  Writes the lines that were held. */
flim_status flim_train_log_open(flim_train_log *log, const char *path, bool append, flim_error *err);
/* Lines go to this file, too, at its end, until it is closed. */
flim_status flim_train_log_open_fold(flim_train_log *log, const char *path, flim_error *err);
void flim_train_log_close_fold(flim_train_log *log);
/* A line for the files only; nothing before it is open. */
void flim_train_log_only(flim_train_log *log, const char *mark, const char *text);
flim_status flim_train_log_check(const flim_train_log *log, flim_error *err);
flim_status flim_train_log_close(flim_train_log *log, flim_error *err);

#endif
