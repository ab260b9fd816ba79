/* An LZ4 frame in memory, as blocks of .sdt files may be packed (type 0x4000). */
#ifndef FLIM_IMPORT_LZ4_FRAME_H
#define FLIM_IMPORT_LZ4_FRAME_H

#include <stddef.h>
#include <stdint.h>

#include "flim/status.h"

/* Its contents, which must be exactly `size` bytes, into out; what follows the frame is no matter.  FLIM_ERROR_DATA without the
 * file's name, which the caller adds; FLIM_ERROR_USAGE if flimcv was built without liblz4. */
flim_status flim_lz4_read(const uint8_t *packed, size_t bytes, uint8_t *out, size_t size, flim_error *err);

#endif
