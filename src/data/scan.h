/* Every cell read and checked once, on several threads. */
#ifndef FLIM_DATA_SCAN_H
#define FLIM_DATA_SCAN_H

#include "flim/dataset.h"

typedef struct flim_bad_cell {
    int64_t cell;
    char *text; /* why */
} flim_bad_cell;

void flim_bad_cells_free(flim_bad_cell *list, int64_t n); /* NULL with n = 0 is allowed */

/* As flim_dataset_scan, but hands the first `most` bad cells in order of their number to the caller: *list
 * (flim_bad_cells_free) and *listed.  Bad cells are no failure here; FLIM_ERROR_MEMORY and FLIM_INTERRUPTED are. */
flim_status flim_scan_cells(flim_dataset *dataset, int workers, const volatile int *stop, int64_t most,
                            flim_cell_summary *summary, double *decay, int64_t *bad, flim_bad_cell **list, int64_t *listed,
                            flim_error *err);

#endif
