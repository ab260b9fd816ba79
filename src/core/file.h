/* The one place that writes files, and reads small ones whole.
 *
 * For: every writer of the library.  A file is whole or absent: it is written under a name of its own beside its target
 *      (".NAME.<16 random digits>.tmp", made with O_EXCL, so that two writers of one path never share bytes: one whole file
 *      wins), synced, renamed, and its folder synced.  A file that is replaced hands on its mode and group.
 *      A writer of one of three kinds: a run's own file (whatever has the name is replaced, a link too), a file whose path a
 *      user gave (links are followed; devices, pipes and standard output are written into), or such a one that must be new.
 *      What may be overwritten is the matter of core/output.h.
 * Owns: a writer its stream and its temporary file: exactly one of commit and abandon ends it.  A killed process leaves the
 *      temporary file; the next writer of that path removes it.
 * Errors: FLIM_ERROR_WRITE with path and reason; the target is then as it was.  FLIM_INTERRUPTED from a pipe nobody reads.
 */
#ifndef FLIM_CORE_FILE_H
#define FLIM_CORE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/types.h>

#include "core/temporary_file.h"
#include "flim/status.h"

typedef enum flim_file_kind {
    FLIM_FILE_OWN, /* in a folder that this program made */
    FLIM_FILE_NAMED, /* the user gave the path; "-" is standard output */
    FLIM_FILE_NEW /* likewise, and what is there already stays: commit fails if a file of that name has come */
} flim_file_kind;

typedef struct flim_file_writer {
    FILE *stream; /* write here; fileno(stream) may be written to instead, by one that needs to seek */
    flim_file_kind kind;
    bool direct; /* the stream is the target itself: a device, a pipe, standard output */
    bool copied; /* the target is one of these, but the writer seeks: commit copies the temporary file into it */
    const volatile int *stop; /* ends the wait for a pipe's reader; may be NULL */
    char path[FLIM_FILE_PATH]; /* as it was given, for messages */
    char target[FLIM_FILE_PATH]; /* with links followed */
    char temporary[FLIM_FILE_PATH]; /* "" if direct */
} flim_file_writer;

/* A writer of kind OWN. */
flim_status flim_file_begin(flim_file_writer *writer, const char *path, flim_error *err);
/* seeks: the writer goes back in the file, which a pipe does not allow. */
flim_status flim_file_begin_kind(flim_file_writer *writer, const char *path, flim_file_kind kind, bool seeks,
                                 const volatile int *stop, flim_error *err);
flim_status flim_file_commit(flim_file_writer *writer, flim_error *err);
void flim_file_abandon(flim_file_writer *writer); /* harmless after commit */

flim_status flim_file_write(const char *path, const void *bytes, size_t count, flim_error *err);
/* A file that must be new, of the given mode; *exists tells that it is not, which is no error. */
flim_status flim_file_write_new(const char *path, const void *bytes, size_t count, mode_t mode, bool *exists,
                                flim_error *err);
/* path becomes previous, next becomes path.  A kill between the two leaves previous and next, both whole. */
flim_status flim_file_rotate(const char *next, const char *path, const char *previous, flim_error *err);
/* A run's own file that stays open (a lock, a log), made if it is not there: neither a link nor anything but a regular file is
 * opened.  flags: O_RDWR or O_WRONLY, with O_APPEND or O_TRUNC.  *out is the descriptor, the caller's to close. */
flim_status flim_file_open_own(const char *path, int flags, int *out, flim_error *err);

/* Adds to such a file in one write; *was_lost: it was not there, or empty, and nothing was written. */
flim_status flim_file_append_own(const char *path, const void *bytes, size_t count, bool *was_lost, flim_error *err);

/* Opens a regular file for reading; FLIM_ERROR_DATA if it is none: a pipe is not waited for.  *out is the caller's (fclose). */
flim_status flim_file_open(const char *path, FILE **out, flim_error *err);
/* Reads a whole file; *bytes is the caller's (flim_free) and has a zero byte after its *count bytes.  FLIM_ERROR_DATA if it
 * is longer than `limit` bytes or no regular file. */
flim_status flim_file_read(const char *path, size_t limit, char **bytes, size_t *count, flim_error *err);

/* FOLDER/NAME; FLIM_ERROR_DATA if that is too long. */
flim_status flim_path_in(const char *folder, const char *name, char out[FLIM_FILE_PATH], flim_error *err);
/* The path with the links of its last part followed: what a writer writes.  A link that leads nowhere gives where it leads. */
flim_status flim_file_target(const char *path, char out[FLIM_FILE_PATH], flim_error *err);
/* True if the path names what standard output is: "-", /dev/stdout, or the file that the shell has opened for it. */
bool flim_file_is_standard_output(const char *path);
/* mkdir -p; an existing folder is fine. */
flim_status flim_make_folder(const char *path, flim_error *err);
bool flim_file_exists(const char *path);

#endif
