/* Files that are whole or absent: written beside the target, fsynced, renamed, the folder fsynced. */
#ifndef FLIM_CORE_FILE_H
#define FLIM_CORE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "flim/status.h"

/* An atomic write in progress.  begin, write through `stream`, then commit or abandon: exactly one of the two. */
typedef struct flim_file_writer {
    FILE *stream;
    char path[4096];
    char temporary[4096]; /* PATH.tmp: one fixed name, so that a killed writer leaves no litter that grows */
} flim_file_writer;

flim_status flim_file_begin(flim_file_writer *writer, const char *path, flim_error *err);
/* Flush, fsync, close, rename, fsync the folder; on failure the temporary file is removed and PATH is as it was. */
flim_status flim_file_commit(flim_file_writer *writer, flim_error *err);
void flim_file_abandon(flim_file_writer *writer); /* harmless after commit */
/* The second half of commit for a file that another library has written and closed: fsync, rename, fsync the folder. */
flim_status flim_file_replace(const char *temporary, const char *path, flim_error *err);

flim_status flim_file_write(const char *path, const void *bytes, size_t count, flim_error *err);
/* Reads a whole file; *bytes is the caller's (flim_free) and has a zero byte after its *count bytes.  A file longer than
 * `limit` bytes is FLIM_ERROR_DATA. */
flim_status flim_file_read(const char *path, size_t limit, char **bytes, size_t *count, flim_error *err);

/* fsync of a folder, so that renames in it last. */
flim_status flim_sync_folder(const char *path, flim_error *err);
/* mkdir -p; an existing folder is fine. */
flim_status flim_make_folder(const char *path, flim_error *err);
bool flim_file_exists(const char *path);

#endif
