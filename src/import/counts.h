/* The photon counts of an image where they lie: in the file's mapping if they stand there as the machine has them, else in memory.
 *
 * For: the readers, which make them, and those who sum them or cut cells out of them.  The axes may lie in any order, so that no
 *      reader turns what its consumer would turn again.
 * Owns: `memory`; flim_counts_free.  Without it the counts are valid until their file is closed or its next image is read.
 */
#ifndef FLIM_IMPORT_COUNTS_H
#define FLIM_IMPORT_COUNTS_H

#include "flim/status.h"
#include "import/element.h"

typedef struct flim_counts {
    const void *data; /* unsigned integers of the machine's byte order; the first is (y,x,t) = (0,0,0) */
    int bytes; /* of each: 1, 2 or 4 */
    int64_t y, x, t; /* sizes */
    int64_t y_step, x_step, t_step; /* from one to the next, in counts */
    void *memory; /* NULL = the file's */
} flim_counts;

void flim_counts_free(flim_counts *counts); /* leaves it zeroed; zeroed is allowed */

/* n elements that follow one another at `bytes` as counts: *data points to them if they are counts as they are, else to *memory
 * (flim_free), where they were copied; *size their bytes.  *good < n: element *good is no whole number from 0 to 4294967295, and
 * nothing was made. */
flim_status flim_counts_from_elements(const flim_element *element, const uint8_t *bytes, size_t n, const void **data,
                                      int *size, void **memory, size_t *good, flim_error *err);

/* of_pixel: (Y,X), the photons of each pixel. */
void flim_counts_sum(const flim_counts *counts, uint64_t *of_pixel);

/* Pixels beside one another in a row: of the field from `from` counts behind the first, x_step apart; of the planes from `to`. */
typedef struct flim_pixel_run {
    int64_t from, to, n;
} flim_pixel_run;

/* The decays of the pixels of n runs into planes (bins,pixels) of out_bytes 2 or 4 per count; neighbouring T / bins time bins are
 * added.  False if a count is too large for out_bytes. */
bool flim_counts_gather(const flim_counts *counts, int64_t bins, const flim_pixel_run *run, int64_t n, int64_t pixels,
                        int out_bytes, void *out);

#endif
