/* Chunks of a data file, shuffled and deflated by threads while their maker goes on: HDF5's own filters would do it one by one
 * in the calling thread.
 *
 * For: the writer of data files.  Chunks come out in the order in which they went in, whatever the threads do.
 * Owns: the room for the values of a chunk is the packer's, lent until they are put; what is taken is its own until the next
 *      call.  Its threads end with destroy.
 * Errors: FLIM_ERROR_MEMORY from create and room alone.  One thread calls; if no other can be started it does the work itself.
 */
#ifndef FLIM_DATA_CHUNK_PACKER_H
#define FLIM_DATA_CHUNK_PACKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "flim/status.h"

typedef struct flim_chunk_packer flim_chunk_packer;

/* Of `values` values of 1, 2 or 4 bytes per chunk, UINT32_MAX bytes at most. */
flim_status flim_chunk_packer_create(size_t values, int value_bytes, flim_chunk_packer **out, flim_error *err);
void flim_chunk_packer_destroy(flim_chunk_packer *packer); /* NULL is allowed; chunks in work are dropped */

/* Is one to be taken before the next can be put? */
bool flim_chunk_packer_full(const flim_chunk_packer *packer);
/* Where the values of the next chunk are to be written, unset, as long as the packer is not full: the same until put. */
flim_status flim_chunk_packer_room(flim_chunk_packer *packer, void **values, flim_error *err);
/* They are there.  Number is the caller's, and comes back with the chunk. */
void flim_chunk_packer_put(flim_chunk_packer *packer, int64_t number);
/* The oldest chunk as HDF5 stores it with the filters shuffle and deflate: waits for it if `wait`; false if there is none, or
 * none that is ready.  *bytes is 0 if there was no memory to pack it. */
bool flim_chunk_packer_take(flim_chunk_packer *packer, bool wait, int64_t *number, const void **packed, size_t *bytes);

#endif
