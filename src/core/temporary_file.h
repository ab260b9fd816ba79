/* Names of files that are being written: ".NAME.<16 random digits>.tmp", NAME cut at 200 bytes.
 *
 * For: core/file.h.
 * Owns: nothing; the descriptor is the caller's, and so is the file.  While it is open it holds a lock on the file, which says
 *      that the file's writer lives.
 */
#ifndef FLIM_CORE_TEMPORARY_FILE_H
#define FLIM_CORE_TEMPORARY_FILE_H

#include <stdbool.h>

enum { FLIM_FILE_PATH = 4096 };

/* A new file in `folder` for the target `name`, under a name that nobody can foresee, for reading and writing; -1 with errno
 * set.  out gets its path. */
int flim_temporary_file(const char *folder, const char *name, char out[FLIM_FILE_PATH]);
/* Removes those of the target `name` (NULL: of any) whose writer is gone.  younger: those of the last minute, too, which their
 * writer may be about to lock. */
void flim_sweep_temporary_files(const char *folder, const char *name, bool younger);

#endif
