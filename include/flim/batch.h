/* A batch of cells: what the loader hands to a backend.
 *
 * For: the seam between host data and the device.  Logically a batch is (n,2,T,H,W): channel 0 the signal, channel 1 the
 *      mask at every time bin.  The mask is the same at all T, so it travels as (n,H,W) bytes and the backend spreads it.
 * Owns: the loader (or the test) owns the arrays; they are allocated once for `capacity` cells and stay valid and unchanged
 *      until the batch is released.  Entries n..capacity-1 are unspecified.
 */
#ifndef FLIM_BATCH_H
#define FLIM_BATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "flim/random.h"
#include "flim/transform.h"

/* One cell to be delivered. */
typedef struct flim_draw {
    uint32_t cell, repeat; /* see flim_cell_id */
    float weight; /* in the loss */
} flim_draw;

/* The cell that a cell is mixed with (mixup): a batch's cell i is the share 1 - share of id[i] and the share `share` of this. */
typedef struct flim_mix {
    uint32_t cell, repeat; /* see flim_cell_id */
    float share; /* 0..1; 0 = the cell stays alone */
} flim_mix;

/* How two cells are mixed.  COUNTS: each photon of a cell is kept with its share, and the counts are added.  INPUT: log1p(counts)
 * / 10 of both by their shares.  The mask is inside where either is. */
typedef enum flim_mix_of { FLIM_MIX_COUNTS, FLIM_MIX_INPUT } flim_mix_of;

typedef struct flim_batch {
    int64_t n; /* cells in the batch, 1..capacity */
    int64_t capacity;
    int t, h, w;
    float *signal; /* (capacity,T,H,W): float32(log1p(counts)) / 10 */
    uint8_t *mask; /* (capacity,H,W): 0 or 1 */
    int32_t *label; /* (capacity): 0..K-1; 0 if the data has none */
    /* (capacity,K): shares of the classes, which sum to 1 per cell; NULL = none: only heads with soft targets need it. */
    float *target;
    float *weight; /* (capacity): weight of the cell in the loss, 1 unless classes are weighted */
    flim_cell_id *id; /* (capacity) */
    flim_mix *mix; /* (capacity), or NULL: no cell is mixed; of batches that bring their voxels it is done */
    flim_mix_of mix_of;
    /* signal and mask are not filled and may be NULL: the program gathers the cells id[].cell from its device cache
     * (flim_program_plan_cache). */
    bool device_cached;
    /* device_cached: the program applies it to the cells that it gathers; other batches come transformed. */
    flim_transform transform;
} flim_batch;

#endif
