/* A transform of cells (augmentation, test-time flips) as data: a list of steps.
 *
 * For: flim_phase (loader.h) and flim_batch (batch.h).  The loader applies the steps on the host, or a program applies them
 *      while it gathers cells from its device cache: to raw photon counts, before log1p / 10, and to the mask.  Both give
 *      equal bits.
 * Draws: step s of a cell reads the random block (flim/random.h) of the cell's id, purpose FLIM_RANDOM_AUGMENT, index s, and
 *      nothing else.  Word 0 < (uint64_t)(probability * 2^32) decides whether the step acts; low + word 1 * (high - low + 1)
 *      / 2^32, rounded down, is its drawn number.  Threads, batches, devices and the other steps change no draw.
 * Owns: nothing; a plain value.
 */
#ifndef FLIM_TRANSFORM_H
#define FLIM_TRANSFORM_H

#include "flim/status.h"

typedef enum flim_transform_op {
    /* One of the symmetries of a cell's plane, low..high of 0..7: bit 2 exchanges x and y, bit 1 then flips y, bit 0 flips x;
     * 0 is the identity.  If H and W differ only 0..3 keep the shape: a larger `high` counts as 3.  Output pixel (y,x) takes
     * input pixel (y',x'): (y',x') = (x,y) with bit 2, else (y,x); then y' = H-1-y' with bit 1; x' = W-1-x' with bit 0. */
    FLIM_TRANSFORM_DIHEDRAL,
    /* A circular shift in time by low..high bins: the counts of bin t go to bin t + shift mod T; the mask stays. */
    FLIM_TRANSFORM_TIME_SHIFT,
    FLIM_TRANSFORM_OPS
} flim_transform_op;

enum { FLIM_MAX_TRANSFORM_STEPS = 8 };

typedef struct flim_transform_step {
    flim_transform_op op;
    double probability; /* 0..1 that the step acts on a cell */
    double low, high; /* whole numbers: the range of the drawn number, both ends included */
} flim_transform_step;

typedef struct flim_transform {
    int n; /* steps, applied in order; 0 = none */
    flim_transform_step step[FLIM_MAX_TRANSFORM_STEPS];
} flim_transform;

/* FLIM_ERROR_USAGE names the step that cells of (t,h,w) cannot go through, what was found and what was expected. */
flim_status flim_transform_check(const flim_transform *transform, int t, int h, int w, flim_error *err);

#endif
