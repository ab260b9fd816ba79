#include "core/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/file.h"
#include "core/stop.h"
#include "core/try.h"

/* True if the text of a lock file names another process that lives, or may: one of another machine. */
static bool is_alive(const char *text, const char *host)
{
    long pid = 0;
    char there[256] = "";
    if (sscanf(text, "process %ld on %255s", &pid, there) != 2 || pid <= 0) {
        return false;
    }
    return strcmp(there, host) != 0 || (pid != (long)getpid() && kill((pid_t)pid, 0) == 0);
}

/* The open file is the one that has the name: somebody may have removed it, or another machine put a new one there. */
static bool is_in_place(int file, const char *path)
{
    struct stat own, there;
    return fstat(file, &own) == 0 && stat(path, &there) == 0 && own.st_dev == there.st_dev && own.st_ino == there.st_ino;
}

/* Opens the file and asks for its lock; *refused: 0, or errno. */
static flim_status open_locked(const char *path, int *file, int *refused, flim_error *err)
{
    enum { TRIES = 10 };
    for (int i = 0; i < TRIES; i++) {
        FLIM_TRY(flim_file_open_own(path, O_RDWR, file, err));
        *refused = flock(*file, LOCK_EX | LOCK_NB) != 0 ? errno : 0;
        if (*refused != ESTALE && is_in_place(*file, path)) {
            return FLIM_OK;
        }
        close(*file);
    }
    return flim_fail(err, FLIM_ERROR_WRITE, "cannot lock %s: it is removed or replaced each time that it is opened", path);
}

flim_status flim_lock_try(const char *path, const char *what, const flim_log *log, flim_lock *out,
                          char holder[FLIM_LOCK_HOLDER], flim_error *err)
{
    char text[FLIM_LOCK_HOLDER] = "", host[256] = "?";
    *out = FLIM_NO_LOCK;
    int file, refused;
    FLIM_TRY(open_locked(path, &file, &refused, err));
    gethostname(host, sizeof host - 1);
    const ssize_t got = pread(file, text, sizeof text - 1, 0);
    text[got > 0 ? got : 0] = '\0';
    if (refused == EWOULDBLOCK || (refused && is_alive(text, host))) {
        close(file); /* the text in it is another's */
        snprintf(holder, FLIM_LOCK_HOLDER, "%s", text[0] ? text : "unknown");
        return FLIM_OK;
    }
    if (refused) {
        flim_log_line(log, FLIM_LOG_WARNING, "%s cannot be locked (%s): make sure that no second train_cv writes there", what,
                      strerror(refused));
    }
    if (text[0]) {
        flim_log_line(log, FLIM_LOG_NOTE, "stale lock: %s ended without finishing %s", text, what);
    }
    const int length = snprintf(text, sizeof text, "process %ld on %s", (long)getpid(), host);
    if (ftruncate(file, 0) != 0 || pwrite(file, text, (size_t)length, 0) != length) {
        const int number = errno;
        close(file);
        return flim_fail(err, FLIM_ERROR_WRITE, "cannot write %s: %s", path, strerror(number));
    }
    out->file = file;
    return FLIM_OK;
}

flim_status flim_lock_wait(const char *path, const char *what, const volatile int *stop, const flim_log *log, flim_lock *out,
                           flim_error *err)
{
    const double patience = 60; /* seconds */
    const struct timespec pause = {.tv_nsec = 20000000};
    const double begun = flim_seconds();
    char holder[FLIM_LOCK_HOLDER];
    for (;;) {
        FLIM_TRY(flim_lock_try(path, what, log, out, holder, err));
        if (flim_lock_held(out)) {
            return FLIM_OK;
        }
        if (flim_stopped(stop)) {
            return flim_fail(err, FLIM_INTERRUPTED, "interrupted");
        }
        if (flim_seconds() - begun > patience) {
            return flim_fail(err, FLIM_ERROR_USAGE, "%s is in use by another process (%s)", what, holder);
        }
        nanosleep(&pause, NULL);
    }
}

flim_status flim_lock_share(const char *path, flim_lock *out, flim_error *err)
{
    int file, failed;
    *out = FLIM_NO_LOCK;
    FLIM_TRY(flim_file_open_own(path, O_RDWR, &file, err));
    do { /* one who looks holds it alone, for a moment */
        failed = flock(file, LOCK_SH) != 0;
    } while (failed && errno == EINTR);
    if (failed) {
        close(file);
        return FLIM_OK;
    }
    out->file = file;
    return FLIM_OK;
}

bool flim_lock_is_shared(const char *path)
{
    int file = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (file < 0 && errno == ENOENT) {
        return false;
    }
    file = file >= 0 ? file : open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW); /* of another user */
    const bool alone = file >= 0 && flock(file, LOCK_EX | LOCK_NB) == 0;
    if (file >= 0) {
        close(file);
    }
    return !alone;
}

void flim_lock_release(flim_lock *lock)
{
    if (flim_lock_held(lock)) {
        (void)!ftruncate(lock->file, 0); /* a clean end */
        close(lock->file);
    }
    *lock = FLIM_NO_LOCK;
}
