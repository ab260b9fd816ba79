/* A closer look at a cell than its sums: what its numbers are, a pattern by which copies are known, how its mask fits.
 *
 * For: the scan; each thread has its own.
 * Cost: per cell about ten passes over its voxels, of which eight skip zeros; n log n to find copies among n cells.
 */
#ifndef FLIM_DATA_CELL_LOOK_H
#define FLIM_DATA_CELL_LOOK_H

#include "flim/dataset.h"

typedef struct flim_cell_look flim_cell_look;

flim_status flim_cell_look_create(const flim_dataset *dataset, flim_cell_look **out, flim_error *err);
void flim_cell_look_destroy(flim_cell_look *look); /* NULL is allowed */

/* counts (T,H,W) as they are stored: fills stored_photons, values, unit, pattern and inside of *out. */
void flim_cell_look_at(flim_cell_look *look, int64_t cell, const float *counts, flim_cell_summary *out);

#endif
