/* Decoded counts in RAM after their first reading: uint8 if a cell fits, else uint16, in (T,H,W) order.
 *
 * Several threads may find and offer at once; a cell is stored by the first that offers it and never changes after.  A cell
 * with other numbers (above 65535, fractions) is not cached: it is read from the file each time.
 */
#ifndef FLIM_DATA_CACHE_H
#define FLIM_DATA_CACHE_H

#include "data/number.h"
#include "flim/status.h"

typedef struct flim_cell_cache flim_cell_cache;

/* Address space for n cells of `voxels` voxels of at most `bytes` (1, 2) each; memory is used as cells come. */
flim_status flim_cell_cache_create(int64_t n, int64_t voxels, size_t bytes, flim_cell_cache **out, flim_error *err);
void flim_cell_cache_destroy(flim_cell_cache *cache); /* NULL is allowed */

/* The cell's values and their type, or NULL if it is not cached (yet). */
const void *flim_cell_cache_find(flim_cell_cache *cache, int64_t cell, flim_number *number);
/* From unsigned integers of 1 or 2 bytes. */
void flim_cell_cache_offer(flim_cell_cache *cache, int64_t cell, flim_number number, const void *values);
/* From counts as floats. */
void flim_cell_cache_offer_counts(flim_cell_cache *cache, int64_t cell, const float *counts);

#endif
