/* PKZIP archives in memory: NumPy's .npz, and the blocks of .sdt files, each of which is an archive of one file.
 *
 * For: reading only.  Stored and deflated entries, zip64 sizes; not encrypted, not split.
 * Owns: nothing; the archive is the caller's.
 * Errors: FLIM_ERROR_DATA says what is wrong with the archive, without the file's name, which the caller adds.
 */
#ifndef FLIM_FORMATS_ZIP_H
#define FLIM_FORMATS_ZIP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "flim/status.h"

typedef struct flim_zip_entry {
    char name[256];
    uint64_t offset; /* of its packed bytes within the archive */
    uint64_t packed, size; /* bytes; packed is 0 and has_sizes false if only the data themselves tell their end */
    bool has_sizes;
    uint32_t crc; /* CRC-32 of the contents, if has_sizes */
    int method; /* 0 stored, 8 deflated */
} flim_zip_entry;

bool flim_is_zip(const uint8_t *bytes, size_t count);

/* The entry whose local header is at the archive's first byte; the list at its end need not be there. */
flim_status flim_zip_first(const uint8_t *archive, size_t bytes, flim_zip_entry *out, flim_error *err);
/* The entries of the list at the archive's end, one per call.  Begin with *cursor = 0; *found = false after the last. */
flim_status flim_zip_next(const uint8_t *archive, size_t bytes, uint64_t *cursor, flim_zip_entry *out, bool *found,
                          flim_error *err);
/* Its contents, which must be exactly `size` bytes, into out. */
flim_status flim_zip_extract(const uint8_t *archive, size_t bytes, const flim_zip_entry *entry, void *out, size_t size,
                             flim_error *err);
/* The first bytes of its contents, at most `most`; *got how many there are.  Nothing is checked but that they unpack. */
flim_status flim_zip_peek(const uint8_t *archive, size_t bytes, const flim_zip_entry *entry, void *out, size_t most,
                          size_t *got, flim_error *err);

#endif
