/* Cells summed up by group and class: what flim_info's table shows and the checks for confounds compare. */
#ifndef FLIM_DATA_CELL_TABLE_H
#define FLIM_DATA_CELL_TABLE_H

#include <stdint.h>

#include "flim/dataset.h"

/* The cells of one group and class; -1 if the data have no groups or labels, and for sums over all of them. */
typedef struct flim_table_row {
    int64_t group;
    int32_t label;
    int64_t cells;
    double photons_mean, photons_median; /* of a cell */
    double zero_fraction; /* of all voxels */
    int64_t saturated; /* cells with a voxel at the most that the file's integers can hold */
    int64_t all_zero, empty_mask; /* cells */
    double peak_bin; /* median over the cells that hold photons; -1 if none does */
    double mask_area; /* mean, pixels */
} flim_table_row;

/* summary: (n) of a scan.  *rows (flim_free) by group, then class, and last the sum over all: *n_rows of them. */
flim_status flim_cell_table_make(const flim_dataset *dataset, const flim_cell_summary *summary, flim_table_row **rows,
                                 int64_t *n_rows, flim_error *err);

/* The largest count that the type of the cell's file holds; infinity for floats. */
double flim_largest_count(const flim_dataset *dataset, int64_t cell);

#endif
