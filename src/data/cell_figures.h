/* A table of cells, one row each: what people look at before they decide which cells to leave out.
 *
 * For: flim_info --cells; train_cv --exclude takes lists that are made from it.
 * Owns: nothing that outlives the call.  Errors: FLIM_ERROR_WRITE, FLIM_ERROR_MEMORY, FLIM_INTERRUPTED.
 */
#ifndef FLIM_DATA_CELL_FIGURES_H
#define FLIM_DATA_CELL_FIGURES_H

#include "core/output.h"
#include "flim/dataset.h"

typedef struct flim_cell_figures {
    double photons; /* counts of the whole volume; NaN (as all that follows) = the cell cannot be read */
    int64_t mask_pixels;
    double inside; /* share of the photons inside the mask */
    int peak_bin; /* of the decay summed over the whole plane, as flim_cell_summary has it; -1 = no photon */
    double peak_entropy; /* bits: - sum p log2 p over the pixels of the peak frame, p their shares of its photons */
    double arrival; /* mean bin, counted from the window's start to the bins' middles, of the photons inside the mask */
    double
        snr; /* (photons inside the mask less background) / sqrt(photons inside); the background is the mean of the tenth of the
                 * bins (one at least) that hold the least, times T */
} flim_cell_figures;

/* counts (T,H,W), doubles because they hold every sum of whole counts; mask (H,W); scratch: (T). */
void flim_cell_figures_of(int t, int64_t pixels, const double *counts, const uint8_t *mask, double *scratch,
                          flim_cell_figures *out);

/* Reads all cells on `workers` threads and writes a CSV with one row per cell.  Numbers that are not defined are empty.  The
 * column mean_arrival_ns is mean_arrival_bins if the data do not say how long a bin is. */
flim_status flim_cell_figures_write(flim_dataset *dataset, int workers, const volatile int *stop, const flim_output *output,
                                    flim_error *err);
/* How such a file begins: flim_output.begins. */
#define FLIM_CELL_FIGURES_HEAD                                                                                               \
    "index,name,group,label,class,photons,mask_pixels,inside_share,peak_bin,peak_entropy_bits,mean_arrival_"

#endif
