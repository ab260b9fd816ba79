/* Where a decay begins, and how far a cell is moved for it. */
#ifndef FLIM_IMPORT_T0_H
#define FLIM_IMPORT_T0_H

#include <stdint.h>

/* The bin of the rising edge of a decay (bins): going back from the peak, around the window's end if need be, the last bin that
 * still holds at least half of what the peak rises above the background, which is the median of the bins.  -1 without photons, or
 * if no bin is below that.  scratch: (bins). */
int64_t flim_rising_edge(const uint64_t *decay, int64_t bins, uint64_t *scratch);

/* Rolls planes (bins, pixels) by `shift` bins in 0 .. bins - 1: bin t goes to (t + shift) mod bins.  Every photon stays.
 * scratch: (bins, pixels). */
void flim_roll_bins(uint32_t *planes, int64_t bins, int64_t pixels, int64_t shift, uint32_t *scratch);

#endif
