/* Copies of certain cells, wherever they are and whatever they are called.
 *
 * For: pretrainings, which must not see a cell that is tested, nor the same one from another file.
 * Owns: flim_copies owns its sets; flim_copies_free.  Errors: FLIM_ERROR_MEMORY.
 */
#ifndef FLIM_TRAIN_COPIES_H
#define FLIM_TRAIN_COPIES_H

#include "flim/provenance.h"
#include "train/study.h"

typedef struct flim_copies {
    flim_cell_set hash; /* equal inside their masks */
    flim_cell_set pattern; /* or but for flips, turns, a factor or a shift in time, whatever their masks */
} flim_copies;

/* Those of cell[0..n-1].  study: scanned, else there are none. */
flim_status flim_copies_of(const flim_study *study, const int64_t *cell, int64_t n, flim_copies *out, flim_error *err);
/* Whether a cell of this study, which may be another one, is a copy of them. */
bool flim_copies_hold(const flim_copies *copies, const flim_study *study, int64_t cell);
void flim_copies_free(flim_copies *copies); /* zeroed is allowed */

#endif
