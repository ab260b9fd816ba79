/* A number by which copies of a cell are known, whatever was done to the copy: counts times a factor, the decay rolled in time,
 * rows or columns flipped, the plane turned, and all of these at once. */
#ifndef FLIM_DATA_CELL_PATTERN_H
#define FLIM_DATA_CELL_PATTERN_H

#include <stdint.h>

#include "flim/status.h"

typedef struct flim_cell_pattern flim_cell_pattern; /* scratch memory of one thread, for cells of one shape */

flim_status flim_cell_pattern_create(int t, int h, int w, flim_cell_pattern **out, flim_error *err);
void flim_cell_pattern_destroy(flim_cell_pattern *pattern); /* NULL is allowed */

/* The voxels of a cell that hold photons, frame by frame: frame t's are number begin[t] to begin[t + 1] - 1. */
typedef struct flim_lit_voxels {
    const int64_t *begin; /* (T+1) */
    const int32_t *pixel; /* (begin[T]) y * W + x */
    const uint32_t *count; /* (begin[T]) above 0 */
} flim_lit_voxels;

/* 0 if fewer than eight voxels hold photons: too few to tell cells apart. */
uint64_t flim_cell_pattern_of(flim_cell_pattern *pattern, const flim_lit_voxels *lit);

#endif
