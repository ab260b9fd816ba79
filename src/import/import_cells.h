/* The list of cells of an import, before any count is read: which image of which row, and which of its cells.
 *
 * Owns: flim_import_cells_find fills it; flim_import_cells_free releases it.  It points into the rows.
 */
#ifndef FLIM_IMPORT_IMPORT_CELLS_H
#define FLIM_IMPORT_IMPORT_CELLS_H

#include "flim/log.h"
#include "import/import_rows.h"

/* An image whose counts are to be read, with the cells that it gives: none, if all are left out. */
typedef struct flim_import_source {
    int64_t row, first, n; /* cells first .. first + n - 1 of the list */
    int image;
} flim_import_source;

typedef struct flim_import_cells {
    int64_t n_sources, source_capacity;
    flim_import_source *source; /* (n_sources) */
    int64_t n, capacity;
    int32_t *number; /* (n) of flim_field_cells.cell */
    int32_t *label; /* (n); -1 = no classes */
    const char **group; /* (n) of the rows */
    char **name; /* (n) */
    int64_t file_t; /* time bins of the files; a cell has t of them */
    int t, h, w; /* of a cell */
    double range_ns; /* 0 = unknown */
    bool masked; /* some pixel of a window may be outside of its cell */
} flim_import_cells;

/* Opens a row's field as the request has it.  Where the axes of its array may be read in two ways, its mask's shape decides.
 * trusted: it was opened before. */
flim_status flim_import_open_field(const flim_import_request *request, const flim_import_row *row, bool trusted,
                                   flim_field_file **out, flim_error *err);

/* Opens every row's files.  result gets files, at_border and too_large.  The first cells left out are logged. */
flim_status flim_import_cells_find(const flim_import_request *request, const flim_import_rows *rows, const flim_log *log,
                                   flim_import_cells *out, flim_import_result *result, flim_error *err);
void flim_import_cells_free(flim_import_cells *cells); /* leaves it zeroed; zeroed is allowed */

/* The cells of an image of a row, in windows of cells->h x cells->w.  out is to be freed with flim_field_cells_free. */
flim_status flim_import_cells_of(const flim_import_request *request, const flim_import_row *row,
                                 const flim_field_image *image, const flim_import_cells *cells, flim_field_cells *out,
                                 flim_error *err);

#endif
