/* A transform of cells (augmentation, test-time flips) as data: a list of steps.
 *
 * For: flim_phase (loader.h) and flim_batch (batch.h).  The loader applies the steps on the host, or a program applies them
 *      while it gathers cells from its device cache: to raw photon counts, before log1p / 10, and to the mask.  Counts stay
 *      whole numbers.  Both give equal bits.
 * Order: symmetries and circular shifts of whole bins; then the shift that has an edge or fractions; then what changes
 *      counts, in the order of the list; then what moves photons in the plane, in the order of the list.  Counts change where
 *      they were detected: a step draws for a voxel by its place in the data, before the symmetries and shifts.
 * Draws: step s of a cell reads the random block (flim/random.h) of the cell's id, purpose FLIM_RANDOM_AUGMENT, index s, and
 *      nothing else.  Word 0 < (uint64_t)(probability * 2^32) decides whether the step acts; word 1 gives its drawn number:
 *      of whole numbers low + word 1 * (high - low + 1) / 2^32, rounded down, else from low to high as word 1 goes from 0 to
 *      2^32; words 2 and 3 are the key of all that it draws for voxels.  Threads, batches, devices and the other steps change
 *      no draw.
 * Owns: nothing; a plain value.
 */
#ifndef FLIM_TRANSFORM_H
#define FLIM_TRANSFORM_H

#include <stdbool.h>

#include "flim/status.h"

typedef enum flim_transform_op {
    /* One of the symmetries of a cell's plane, low..high of 0..7: bit 2 exchanges x and y, bit 1 then flips y, bit 0 flips x;
     * 0 is the identity.  If H and W differ only 0..3 keep the shape: a larger `high` counts as 3.  Output pixel (y,x) takes
     * input pixel (y',x'): (y',x') = (x,y) with bit 2, else (y,x); then y' = H-1-y' with bit 1; x' = W-1-x' with bit 0. */
    FLIM_TRANSFORM_DIHEDRAL,
    /* A circular shift in time by low..high whole bins: the counts of bin t go to bin t + shift mod T; the mask stays. */
    FLIM_TRANSFORM_TIME_SHIFT,
    /* Shifts of which a transform has one at most.  FILL: whole bins, and the bins that get free take counts of the last T/16
     * bins (one at least) of the same pixel, each a bin drawn for it.  ZERO: whole bins, zeros in the bins that get free.
     * DRIFT: bins and fractions, circular: of a shift by k + f bins each photon goes k bins, or k + 1 with probability f.
     * DRIFT_FILL: the same, filled as FILL. */
    FLIM_TRANSFORM_SHIFT_FILL,
    FLIM_TRANSFORM_SHIFT_ZERO,
    FLIM_TRANSFORM_DRIFT,
    FLIM_TRANSFORM_DRIFT_FILL,
    /* A dimmer exposure: each photon is kept with probability p, log-uniform in low..high within (0,1]. */
    FLIM_TRANSFORM_THIN,
    /* Photon matching: each photon is kept with probability min(1, target / photons of the cell); target log-uniform in
     * low..high. */
    FLIM_TRANSFORM_MATCH,
    /* Poisson(b) photons more in each voxel inside the mask, b uniform in low..high photons. */
    FLIM_TRANSFORM_BACKGROUND,
    /* n' ~ Poisson(n): noise that a measurement does not have (its variance is twice its mean), no exposure.  No range. */
    FLIM_TRANSFORM_BOOTSTRAP,
    /* n' = f n, f uniform in low..high, rounded up or down at random so that the mean is f n.  Not physical. */
    FLIM_TRANSFORM_SCALE,
    /* The mask is 0 everywhere.  No range. */
    FLIM_TRANSFORM_MASK_DROP,
    /* Photons move within their bin, each as a whole.  BLUR: by a Gaussian of low..high pixels (standard deviation, each pixel
     * by its own).  ZOOM: about the centre of the plane, by a factor log-uniform in low..high.  ELASTIC: along a smooth random
     * field, whose nodes (4 x 4, bilinear between) go up to low..high pixels in y and in x.  The mask moves by the same zoom
     * and field.  A photon from inside the mask that would come to lie outside goes where the centre of its pixel goes; if that
     * is outside, too, or outside the plane, it is lost: by a blur none is. */
    FLIM_TRANSFORM_BLUR,
    FLIM_TRANSFORM_ZOOM,
    FLIM_TRANSFORM_ELASTIC,
    FLIM_TRANSFORM_OPS
} flim_transform_op;

enum { FLIM_MAX_TRANSFORM_STEPS = 12, FLIM_MAX_COUNT_STEPS = 8, FLIM_MAX_MOVE_STEPS = 4 };

typedef struct flim_transform_step {
    flim_transform_op op;
    double probability; /* 0..1 that the step acts on a cell */
    double low, high; /* the range of the drawn number, both ends included; 0, 0 where the operation has none */
} flim_transform_step;

typedef struct flim_transform {
    int n; /* steps; 0 = none */
    flim_transform_step step[FLIM_MAX_TRANSFORM_STEPS];
} flim_transform;

/* FLIM_ERROR_USAGE names the step that cells of (t,h,w) cannot go through, what was found and what was expected. */
flim_status flim_transform_check(const flim_transform *transform, int t, int h, int w, flim_error *err);

/* The operation of the first step that needs photons, whole numbers of at most FLIM_MOST_PHOTONS per voxel; NULL = any counts
 * will do. */
const char *flim_transform_needs_photons(const flim_transform *transform);
enum { FLIM_MOST_PHOTONS = 65535 }; /* more than that in a voxel becomes this */

#endif
