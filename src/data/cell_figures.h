/* A table of cells, one row each: what people look at before they decide which cells to leave out.
 *
 * For: flim_info --cells, from which lists for train_cv --exclude are made; fold_metrics --errors.
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
    /* Photons per bin inside the mask: of the tenth of the window (one bin at least, in one piece) that has least. */
    double background;
    double snr; /* (photons inside the mask less background x T) / sqrt(photons inside) */
    /* Bins.  tau of exp(-t / tau), by least squares on the logarithm of the decay inside the mask less background, from its peak to
     * where it has fallen to a twentieth.  Neighbouring bins are summed, two, four, ..., until the first sum is 100 photons or
     * eight sums are left.  Each logarithm has the weight (S / sd of S) squared, S being the sum less background, which is the inverse of its variance
     * if counts are Poisson's.  NaN: fewer than three points, or no fall.  For comparing cells: it knows no instrument
     * response and takes two lifetimes for one. */
    double lifetime;
    double spread; /* pixels: root mean square distance of the photons inside the mask from their centre */
} flim_cell_figures;

/* counts (T,H,W), doubles because they hold every sum of whole counts; mask (H,W); decay (T) gets the counts
 * inside the mask. */
void flim_cell_figures_of(int t, int h, int w, const double *counts, const uint8_t *mask, double *decay,
                          flim_cell_figures *out);

/* The figures of all cells, read on `workers` threads.  row: (n).  Cells that cannot be read are NaN.  decay: (n,T) gets the counts
 * inside each mask by time bin, zeros of cells that cannot be read; NULL = not wanted. */
flim_status flim_cell_figures_read(flim_dataset *dataset, int workers, const volatile int *stop, flim_cell_figures *row,
                                   double *decay, flim_error *err);

/* The same as a CSV with one row per cell.  Numbers that are not defined are empty.  The columns mean_arrival_ns and lifetime_ns are
 * mean_arrival_bins and lifetime_bins if the data do not say how long a bin is. */
flim_status flim_cell_figures_write(flim_dataset *dataset, int workers, const volatile int *stop, const flim_output *output,
                                    flim_error *err);
/* How such a file begins: flim_output.begins. */
#define FLIM_CELL_FIGURES_HEAD                                                                                               \
    "index,name,group,label,class,photons,mask_pixels,inside_share,peak_bin,peak_entropy_bits,mean_arrival_"

#endif
