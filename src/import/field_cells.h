/* The cells of a field: which pixels are whose, and the window of pixels that becomes a cell of the data file.
 *
 * For: flim_import.  A label image gives one cell per value, or per connected piece; without one the field is one cell.
 * Owns: flim_field_cells_find and flim_field_cells_whole fill it; flim_field_cells_free releases it.
 * Errors: FLIM_ERROR_USAGE if the mask may be read in two ways; FLIM_ERROR_MEMORY.
 */
#ifndef FLIM_IMPORT_FIELD_CELLS_H
#define FLIM_IMPORT_FIELD_CELLS_H

#include <stdbool.h>

#include "import/label_image.h"

/* What a cell of a mask is. */
typedef enum flim_cells_by {
    FLIM_CELLS_AUTO, /* its values; a mask of one value in several pieces is FLIM_ERROR_USAGE */
    FLIM_CELLS_VALUE, /* the pixels of one value, connected or not */
    FLIM_CELLS_PIECE /* pixels other than 0 that touch, corners included */
} flim_cells_by;
extern const char *const flim_cells_by_names[]; /* auto, value, piece; ends in NULL */

/* Where a cell lies in its window. */
typedef enum flim_crop {
    FLIM_CROP_CENTROID, /* the window is centred on the centroid, moved no more than the bounding box needs to lie within */
    FLIM_CROP_BOX /* centred on the bounding box; what is outside of the box is empty */
} flim_crop;
extern const char *const flim_crop_names[]; /* centroid, box; ends in NULL */

typedef struct flim_cells_rule {
    flim_cells_by by;
    flim_crop crop;
    int64_t size; /* of the window, Y and X */
    bool keep_border; /* cells that touch the field's border, too */
    bool crop_large; /* cells larger than the window, too, without what is outside of it */
} flim_cells_rule;

typedef enum flim_cell_fate { FLIM_CELL_KEPT, FLIM_CELL_AT_BORDER, FLIM_CELL_TOO_LARGE } flim_cell_fate;

typedef struct flim_field_cell {
    uint32_t label; /* its value in the mask; of pieces, their number from 1, row by row */
    int64_t pixels;
    int64_t y0, y1, x0, x1; /* bounding box, the last row and column included */
    int64_t top, left; /* of the window; outside of the field there is nothing */
    flim_cell_fate fate;
} flim_field_cell;

typedef struct flim_field_cells {
    int64_t y, x;
    int32_t n;
    flim_field_cell *cell; /* (n), by ascending label */
    int32_t *of_pixel; /* (Y,X): number of the cell that a pixel belongs to; -1 = none */
} flim_field_cells;

/* path: the mask's, for messages. */
flim_status flim_field_cells_find(const char *path, const flim_label_image *image, const flim_cells_rule *rule,
                                  flim_field_cells *out, flim_error *err);
/* The field of y x x pixels as one cell, in the middle of a window of height x width. */
flim_status flim_field_cells_whole(int64_t y, int64_t x, int64_t height, int64_t width, flim_field_cells *out,
                                   flim_error *err);
void flim_field_cells_free(flim_field_cells *cells); /* leaves it zeroed; zeroed is allowed */

#endif
