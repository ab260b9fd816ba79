/* Chunks as HDF5 stores them with its filters shuffle and deflate: ISA-L where it was found, else libdeflate, else zlib.  One object
 * per thread.
 *
 * Each is asked for about what zlib's level 4 gives.  On cells of 256 x 21 x 21 counts of two bytes of a T cell scan: zlib 4
 * 17.6 kB in 1.28 ms, libdeflate 2 16.9 kB in 0.57 ms, ISA-L 1 19.6 kB in 0.16 ms; all inflate equally fast.
 */
#ifndef FLIM_DATA_DEFLATE_H
#define FLIM_DATA_DEFLATE_H

#include <stddef.h>

#include "flim/status.h"

typedef struct flim_deflater flim_deflater;

flim_status flim_deflater_create(flim_deflater **out, flim_error *err);
void flim_deflater_destroy(flim_deflater *deflater); /* NULL is allowed */
/* Room that the stream of any `bytes` bytes fits into. */
size_t flim_deflate_bound(size_t bytes);
/* Bytes of the stream of n values of 1, 2 or 4 bytes, at most UINT32_MAX bytes in all, shuffled: the first bytes of all values,
 * then the second ones, as in a little-endian file.  out has flim_deflate_bound of them.  0 = there was no memory.  The same
 * values give the same stream on the same machine. */
size_t flim_deflate_values(flim_deflater *deflater, const void *values, size_t n, int value_bytes, void *out);

#endif
