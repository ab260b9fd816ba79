/* Whether a file is one of HDF5, by its bytes alone: for those who must not open it, and for those who are about to. */
#ifndef FLIM_CORE_HDF5_SIGNATURE_H
#define FLIM_CORE_HDF5_SIGNATURE_H

#include <stdint.h>
#include <string.h>
#include <unistd.h>

/* Where HDF5's signature stands in the open file: at 0 or, behind a user block, at 512, 1024, 2048, ... (HDF5 File Format
 * Specification, II.A); -1 if nowhere. */
static inline int64_t flim_hdf5_signature(int fd)
{
    uint8_t start[8];
    for (int64_t at = 0; pread(fd, start, sizeof start, (off_t)at) == (ssize_t)sizeof start; at = at ? 2 * at : 512) {
        if (memcmp(start, "\211HDF\r\n\032\n", sizeof start) == 0) {
            return at;
        }
    }
    return -1;
}

#endif
