/* What the page shows of the data itself: decays of all cells, and pictures of some.
 *
 * For: sections about decays and cells.  The data are those of the run's config.yaml, or files that the user has named; they are opened
 *      once per page, and scanned unless the error analysis has read every cell.
 * Owns: report_cells_close.  Errors: FLIM_ERROR_MEMORY; a file that is gone, another's or bad is no error but a reason.
 */
#ifndef FLIM_REPORT_CELLS_H
#define FLIM_REPORT_CELLS_H

#include "flim/dataset.h"
#include "report/report_internal.h"

typedef struct report_cells {
    flim_dataset *dataset;
    const flim_dataset_info *info;
    flim_reader *reader;
    const double *decay; /* (n,T) photons of each cell by time bin, summed over its mask */
    double *own_decay; /* the same; NULL if the run's error analysis has read them */
    double *class_decay; /* (K,T) share of a cell's photons in each bin, mean over the cells of each class; 0 without cells */
} report_cells;

/* *out = NULL, with the reason in `why`, where the data cannot be read or are another's. */
flim_status report_cells_open(const report_run *run, const flim_report_options *options, report_cells **out, flim_error *why,
                              flim_error *err);
void report_cells_close(report_cells *cells); /* NULL is allowed */

/* Photons of one cell by pixel, summed over time: (H,W), the caller's (flim_free); NULL after an error. */
flim_status report_cells_intensity(const report_cells *cells, int64_t cell, double **out, flim_error *err);

/* Phasor of a decay (t) at the frequency 1 / time range, which is the laser's where the record is one period (Digman et al.,
 * Biophys. J. 2008): g = sum I cos(w) / sum I, s = sum I sin(w) / sum I, w = 2 pi (bin + 1/2) / t.  NaN without photons. */
void report_phasor(const double *decay, int t, double *g, double *s);

#endif
