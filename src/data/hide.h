/* The hidden voxels of a cell (hide_math.h says which), on the host. */
#ifndef FLIM_DATA_HIDE_H
#define FLIM_DATA_HIDE_H

#include <stdint.h>

#include "flim/random.h"

/* share: of FLIM_HIDE_WHOLE, of the voxels inside the mask (H,W); hidden (T,H,W) gets 0 or 1.  Returns how many are hidden. */
int64_t flim_hide_cell(const flim_cell_id *id, uint32_t share, int t, int h, int w, const uint8_t *mask, uint8_t *hidden);

#endif
