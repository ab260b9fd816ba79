/* Boxes of whole numbers: do they cover an array?  No HDF5 calls. */
#ifndef FLIM_DATA_HDF5_BOXES_H
#define FLIM_DATA_HDF5_BOXES_H

#include <hdf5.h>
#include <stdbool.h>
#include <stdint.h>

#include "flim/status.h"

enum { FLIM_BOX_RANK = 8 };

typedef struct flim_box {
    hsize_t first[FLIM_BOX_RANK], end[FLIM_BOX_RANK]; /* end: one past the last */
} flim_box;

typedef struct flim_boxes {
    int rank;
    int64_t n, room;
    flim_box *box; /* (n) */
} flim_boxes;

/* first and last: (rank), both inside the box. */
flim_status flim_boxes_add(flim_boxes *boxes, const hsize_t *first, const hsize_t *last, flim_error *err);
void flim_boxes_free(flim_boxes *boxes);
/* *found: an element of the array of `extent` (rank) is in none of the boxes; hole gets the first such that was met.  *settled =
 * false: too many of them overlap to tell. */
flim_status flim_boxes_hole(const flim_boxes *boxes, const hsize_t *extent, hsize_t hole[FLIM_BOX_RANK], bool *found,
                            bool *settled, flim_error *err);

#endif
