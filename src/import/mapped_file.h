/* A file mapped into memory for reading.
 *
 * For: the readers of instrument files, which check every place before they look there, so that a truncated or crafted file is an
 *      error that names the file and the offset.
 * Owns: the mapping; flim_mapped_close.  A file that shrinks while it is mapped is not guarded against.
 */
#ifndef FLIM_IMPORT_MAPPED_FILE_H
#define FLIM_IMPORT_MAPPED_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "flim/status.h"

typedef struct flim_mapped_file {
    const char *path; /* the caller's, outlives the mapping */
    const uint8_t *data; /* (size) */
    size_t size;
} flim_mapped_file;

/* FLIM_ERROR_DATA for what is missing, empty, or no plain file. */
flim_status flim_mapped_open(const char *path, flim_mapped_file *out, flim_error *err);
void flim_mapped_close(flim_mapped_file *file); /* zeroed is allowed */

/* FLIM_ERROR_DATA unless [offset, offset + bytes) lies within the file: "PATH: WHAT at offset ... reaches past the end". */
flim_status flim_mapped_check(const flim_mapped_file *file, uint64_t offset, uint64_t bytes, const char *what,
                              flim_error *err);

#endif
