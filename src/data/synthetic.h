/* Synthetic cells for measurements without a data file: sparse Poisson decays in a disc. */
#ifndef FLIM_DATA_SYNTHETIC_H
#define FLIM_DATA_SYNTHETIC_H

#include <stdint.h>

/* Fills counts (T,H,W) and mask (H,W) of one cell, a pure function of (seed, cell); returns its label, cell mod classes.  The
 * decay's lifetime grows with the label; about 97 % of the voxels are zero.  flim_simulate makes physically sound data; this
 * only has its sparsity. */
int32_t flim_synthetic_cell(uint64_t seed, int64_t cell, int classes, int t, int h, int w, float *counts, uint8_t *mask);

#endif
