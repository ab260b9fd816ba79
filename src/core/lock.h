/* Locks between processes: a file that one process at a time holds.
 *
 * For: a run folder, while it is made and its own files are written, and each of its folds, while it is worked on.
 *      flock ends with its process, so a lock that a killed process leaves is no lock.  The file's text names the holder; a
 *      clean end empties it.  On file systems without flock the text alone decides: it holds while it names a living
 *      process of this machine, or any of another.
 * NFS: Linux sends flock to the server as a lock of the whole file (NFSv4 itself, NFSv3 by lockd; flock(2), nfs(5)), so that it
 *      holds between machines; the file is open for writing, which an exclusive one needs there.  Unlike fcntl's locks it belongs to
 *      the open file and not to the process: that the same process opens and closes the file once more does not end it.  A lock
 *      counts only on the file that has the name: one that was removed or replaced meanwhile (or is stale, ESTALE) is opened again.
 * Owns: a held lock owns its file descriptor; flim_lock_release.
 * Errors: FLIM_ERROR_WRITE if the file cannot be written.
 */
#ifndef FLIM_CORE_LOCK_H
#define FLIM_CORE_LOCK_H

#include <stdbool.h>

#include "flim/log.h"
#include "flim/status.h"

enum { FLIM_LOCK_HOLDER = 320 };

typedef struct flim_lock {
    int file; /* descriptor; -1 = not held */
} flim_lock;

#define FLIM_NO_LOCK ((flim_lock){.file = -1})

static inline bool flim_lock_held(const flim_lock *lock)
{
    return lock->file >= 0;
}

/* Takes the lock if it is free.  Else *out is not held, which is no error, and holder names who has it ("process 12 on
 * host").  what: the thing locked, for messages; `log` gets a note of a stale lock and a warning if the file system has no
 * flock. */
flim_status flim_lock_try(const char *path, const char *what, const flim_log *log, flim_lock *out,
                          char holder[FLIM_LOCK_HOLDER], flim_error *err);
/* Waits for a lock that is only ever held for moments; FLIM_ERROR_USAGE if it is not free after a minute, FLIM_INTERRUPTED if
 * `stop` (may be NULL) asks for the end. */
flim_status flim_lock_wait(const char *path, const char *what, const volatile int *stop, const flim_log *log, flim_lock *out,
                           flim_error *err);
/* Takes the lock beside others who share it: while one is held, its file says that somebody is at work.  *out is not held if the
 * file system has no flock, which is no error. */
flim_status flim_lock_share(const char *path, flim_lock *out, flim_error *err);
/* Whether somebody shares it; true if that cannot be told, false without the file. */
bool flim_lock_is_shared(const char *path);
void flim_lock_release(flim_lock *lock); /* not held is allowed */

#endif
