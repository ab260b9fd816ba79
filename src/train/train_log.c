#include "train/train_log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/file.h"
#include "core/try.h"

/* Without memory for them train.log begins later; the run itself will fail for the same reason. */
static void hold(flim_train_log *log, const char *mark, const char *text)
{
    const size_t more = strlen(mark) + strlen(text) + 1;
    char *grown = flim_realloc(log->early, log->early_bytes + more + 1, 1, NULL);
    if (grown) {
        snprintf(grown + log->early_bytes, more + 1, "%s%s\n", mark, text);
        log->early = grown;
        log->early_bytes += more;
    }
}

/* All in one write at the file's end.  Only a full disk takes less, and a second write tells why. */
static void put(flim_train_log *log, int file, const char *const text[], int n)
{
    struct iovec part[3];
    size_t bytes = 0;
    for (int i = 0; i < n; i++) {
        part[i] = (struct iovec){(void *)(uintptr_t)text[i], strlen(text[i])};
        bytes += part[i].iov_len;
    }
    ssize_t wrote = writev(file, part, n);
    if (wrote >= 0 && (size_t)wrote < bytes) {
        wrote = write(file, "\n", 1);
        errno = wrote < 0 ? errno : EIO;
        wrote = -1;
    }
    if (wrote < 0 && !log->error) {
        log->error = errno;
    }
}

void flim_train_log_only(flim_train_log *log, const char *mark, const char *text)
{
    for (int i = 0; i < 2; i++) {
        const int file = i ? log->fold_file : log->file;
        if (file >= 0) {
            put(log, file, (const char *const[]){mark, text, "\n"}, 3);
        }
    }
}

static void write_line(void *context, flim_log_level level, const char *text)
{
    static const char *const marks[] = {"", "note: ", "warning: ", "", ""};
    flim_train_log *log = context;
    if (log->user && log->user->line) {
        log->user->line(log->user->context, level, text);
    }
    if (log->file < 0) {
        hold(log, marks[level], text);
    } else {
        flim_train_log_only(log, marks[level], text);
    }
}

flim_log flim_train_log_begin(flim_train_log *log, const flim_log *user)
{
    *log = (flim_train_log){.user = user, .file = -1, .fold_file = -1};
    return (flim_log){write_line, log};
}

flim_status flim_train_log_open(flim_train_log *log, const char *path, bool append, flim_error *err)
{
    snprintf(log->path, sizeof log->path, "%s", path);
    FLIM_TRY(flim_file_open_own(path, O_WRONLY | O_APPEND | (append ? 0 : O_TRUNC), &log->file, err));
    if (log->early) {
        put(log, log->file, (const char *const[]){log->early}, 1);
    }
    flim_free(log->early);
    log->early = NULL;
    return flim_train_log_check(log, err);
}

flim_status flim_train_log_open_fold(flim_train_log *log, const char *path, flim_error *err)
{
    flim_train_log_close_fold(log);
    return flim_file_open_own(path, O_WRONLY | O_APPEND, &log->fold_file, err);
}

void flim_train_log_close_fold(flim_train_log *log)
{
    if (log->fold_file >= 0 && close(log->fold_file) != 0 && !log->error) {
        log->error = errno;
    }
    log->fold_file = -1;
}

flim_status flim_train_log_check(const flim_train_log *log, flim_error *err)
{
    return log->error ? flim_fail(err, FLIM_ERROR_WRITE, "cannot write %s: %s", log->path, strerror(log->error)) : FLIM_OK;
}

flim_status flim_train_log_close(flim_train_log *log, flim_error *err)
{
    flim_train_log_close_fold(log);
    /* Network file systems tell of a full disk or quota as late as here. */
    if (log->file >= 0 && fsync(log->file) != 0 && !log->error) {
        log->error = errno;
    }
    if (log->file >= 0 && close(log->file) != 0 && !log->error) {
        log->error = errno;
    }
    log->file = -1;
    flim_free(log->early);
    log->early = NULL;
    return flim_train_log_check(log, err);
}
