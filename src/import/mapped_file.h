/* A file mapped into memory for reading, and checked access to its numbers.
 *
 * For: the readers of instrument files.  Every access is checked against the file's size, so that a truncated or crafted file
 *      is an error that names the file and the offset.
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

/* Little-endian numbers at a place that was checked. */
static inline uint16_t flim_u16_at(const uint8_t *at)
{
    return (uint16_t)(at[0] | at[1] << 8);
}

static inline uint32_t flim_u32_at(const uint8_t *at)
{
    return (uint32_t)flim_u16_at(at) | (uint32_t)flim_u16_at(at + 2) << 16;
}

static inline uint64_t flim_u64_at(const uint8_t *at)
{
    return (uint64_t)flim_u32_at(at) | (uint64_t)flim_u32_at(at + 4) << 32;
}

float flim_f32_at(const uint8_t *at);
double flim_f64_at(const uint8_t *at);

#endif
