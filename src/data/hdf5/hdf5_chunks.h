/* What a chunk unpacks to, found out before HDF5 is let at it.
 *
 * Why: libhdf5 believes that the filters of a chunk give exactly the bytes of the chunk.  Where they give fewer (a filter left
 * out by the chunk's mask, a short stream) it hands out what lies behind them on the heap; where they give more it fills the
 * memory (225 bytes behind three deflates are a gigabyte).
 */
#ifndef FLIM_DATA_HDF5_CHUNKS_H
#define FLIM_DATA_HDF5_CHUNKS_H

#include "data/hdf5/hdf5_internal.h"

typedef struct flim_h5_chunks flim_h5_chunks;

/* ---- to be called under the lock */
/* For a dataset that is open; *out = NULL where it has no chunks or no filters.  The dataset has to stay open. */
flim_status flim_h5_chunks_create(const flim_h5 *h5, const char *name, hid_t dataset, flim_h5_chunks **out, flim_error *err);
void flim_h5_chunks_destroy(flim_h5_chunks *chunks); /* NULL is allowed */
/* The chunks that the box from `start`, `count` long (rank values each) touches, each once.  cell: for
 * the message, -1 = of no cell.  FLIM_INTERRUPTED. */
flim_status flim_h5_chunks_check(flim_h5_chunks *chunks, int64_t cell, const hsize_t *start, const hsize_t *count,
                                 flim_error *err);
/* The box itself, `size` bytes per element as they are stored, into values (count, the last axis fastest): chunks that are deflated or
 * shuffled are unpacked here, several times as fast as by HDF5.  *done = false, and values half-filled at most, if HDF5 has to do it
 * or to say what is wrong.  FLIM_ERROR_DATA as flim_h5_chunks_check; FLIM_INTERRUPTED. */
flim_status flim_h5_chunks_copy(flim_h5_chunks *chunks, const hsize_t *start, const hsize_t *count, size_t size, void *values,
                                bool *done, flim_error *err);
/* Every chunk of a dataset. */
flim_status flim_h5_check_chunks(const flim_h5 *h5, const char *name, hid_t dataset, flim_error *err);

/* Bytes that a stored chunk, or one filter's output, may take at most. */
static inline size_t flim_h5_chunk_room(size_t chunk_bytes)
{
    return chunk_bytes + chunk_bytes / 8 + 4096;
}

#endif
