/* A zlib stream in memory (RFC 1950), as MATLAB's compressed elements are. */
#ifndef FLIM_FORMATS_ZLIB_STREAM_H
#define FLIM_FORMATS_ZLIB_STREAM_H

#include <stddef.h>
#include <stdint.h>

#include "flim/status.h"

/* The first bytes of its contents, at most `most`: *got how many there are.  If it ends within them, its checksum is looked at.
 * FLIM_ERROR_DATA, without the file's name, if they do not unpack; a stream that is cut short has fewer bytes. */
flim_status flim_zlib_read(const uint8_t *packed, size_t bytes, uint8_t *out, size_t most, size_t *got, flim_error *err);
/* The same for contents that should be `size` bytes in all: by libdeflate, if it is there and they are. */
flim_status flim_zlib_read_all(const uint8_t *packed, size_t bytes, uint8_t *out, size_t size, size_t *got, flim_error *err);

#endif
