/* Where a decay begins, and how far a cell is moved for it. */
#ifndef FLIM_IMPORT_T0_H
#define FLIM_IMPORT_T0_H

#include <stddef.h>
#include <stdint.h>

/* The bin of the rising edge of a decay (bins): going back from the peak, around the window's end if need be, the last bin that
 * still holds at least half of what the peak rises above the background, which is the median of the bins.  -1 without photons, or
 * if no bin is below that.  scratch: (bins). */
int64_t flim_rising_edge(const uint64_t *decay, int64_t bins, uint64_t *scratch);

/* Rolls planes (bins, plane_bytes) by `shift` bins in 0 .. bins - 1: bin t goes to (t + shift) mod bins.  Every photon stays.
 * scratch: as large. */
void flim_roll_bins(void *planes, int64_t bins, size_t plane_bytes, int64_t shift, void *scratch);

#endif
