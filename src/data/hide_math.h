/* Which voxels of a cell are hidden from a network that is to predict them: for C and CUDA, integers only, so that both hide the
 * same ones.
 *
 * Boxes are drawn until the share is reached, and each hides the voxels inside the mask that it holds.  A box is, with these
 * chances of 16: a tube (6: 3 x 3 pixels, all time bins), a time block (3: all pixels, a run of bins) or a block (7: 5 x 5 pixels,
 * a run of bins).  A run has 16 to 32 bins, of decays with fewer than 256 bins a sixteenth to an eighth of them: a run of
 * 16 to 32 of 32 bins would hide the decay.  Its place is uniform over all places at which it meets the rectangle around the mask; what reaches beyond is
 * cut off.  The last box hides only its first voxels, in the order (T,H,W), so that the number is exact; after FLIM_MOST_BOXES
 * the first ones of the cell that are still seen follow.  Box i of a cell is block i of FLIM_RANDOM_HIDE.
 * Owns: nothing.  Cannot fail.
 */
#ifndef FLIM_DATA_HIDE_MATH_H
#define FLIM_DATA_HIDE_MATH_H

#include "core/random_block.h"

enum { FLIM_MOST_BOXES = 4096, FLIM_HIDE_WHOLE = 65536 };

/* What the boxes of a cell are drawn in: its bins, and the smallest rectangle of pixels that holds its mask; y1 and x1 are behind
 * the last ones. */
typedef struct flim_hide_bounds {
    int32_t t, y0, y1, x0, x1;
} flim_hide_bounds;

/* Bins t0..t1-1, pixels y0..y1-1, x0..x1-1. */
typedef struct flim_hide_box {
    int32_t t0, t1, y0, y1, x0, x1;
} flim_hide_box;

/* How many of `voxels` a share of FLIM_HIDE_WHOLE hides, to the nearest. */
FLIM_HOST_DEVICE static inline int64_t flim_hide_count(int64_t voxels, uint32_t share)
{
    return (voxels * (int64_t)share + FLIM_HIDE_WHOLE / 2) / FLIM_HIDE_WHOLE;
}

/* A word's place in 0..n-1. */
FLIM_HOST_DEVICE static inline int32_t flim_hide_below(uint32_t word, int32_t n)
{
    return (int32_t)(((uint64_t)word * (uint32_t)n) >> 32);
}

/* Where a run of `length` begins that meets from..to-1, cut off there: *begin, *end. */
FLIM_HOST_DEVICE static inline void flim_hide_run(uint32_t word, int32_t length, int32_t from, int32_t to, int32_t *begin,
                                                  int32_t *end)
{
    const int32_t at = from - length + 1 + flim_hide_below(word, to - from + length - 1);
    *begin = at > from ? at : from;
    *end = at + length < to ? at + length : to;
}

/* Most bins of a run among t; the fewest are half of them, rounded up. */
FLIM_HOST_DEVICE static inline int32_t flim_hide_longest_run(int32_t t)
{
    return t >= 256 ? 32 : t >= 8 ? t / 8 : 1;
}

FLIM_HOST_DEVICE static inline flim_hide_box flim_hide_box_at(const flim_cell_id *id, uint32_t index,
                                                              const flim_hide_bounds *b)
{
    flim_hide_box box = {0, b->t, b->y0, b->y1, b->x0, b->x1};
    uint32_t word[4];
    flim_random_block_of(id, FLIM_RANDOM_HIDE, index, word);
    const uint32_t kind = word[0] >> 28; /* and the bins of a run from the bits below */
    if (kind >= 6) {
        const int32_t longest = flim_hide_longest_run(b->t), shortest = (longest + 1) / 2;
        const int32_t bins = shortest + flim_hide_below(word[0] << 4, longest - shortest + 1);
        flim_hide_run(word[1], bins, 0, b->t, &box.t0, &box.t1);
    }
    if (kind < 6 || kind >= 9) {
        const int32_t side = kind < 6 ? 3 : 5;
        flim_hide_run(word[2], side, b->y0, b->y1, &box.y0, &box.y1);
        flim_hide_run(word[3], side, b->x0, b->x1, &box.x0, &box.x1);
    }
    return box;
}

#endif
