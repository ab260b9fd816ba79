/* A cell's hash: equal for equal cells, whatever file, type or layout they are in. */
#ifndef FLIM_DATA_CELL_HASH_H
#define FLIM_DATA_CELL_HASH_H

#include <stdint.h>

/* Of the counts (T,H,W) inside the mask (H,W), pixels = H*W, and of the mask; so it does not depend on whether counts outside
 * are zeroed.  0 if there is no photon inside.  docs/file-format.md defines it. */
uint64_t flim_cell_hash(const float *counts, const uint8_t *mask, int t, int64_t pixels);

#endif
