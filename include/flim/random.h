/* Counter-based random numbers: Philox4x32-10 (Salmon et al., SC'11; Random123's philox.h).
 *
 * For: every random decision is a pure function of (seed, fold, epoch, cell, repeat, purpose, index), so that thread count,
 *      resume, batch size and device never change it.  Kernels draw from
 *      the same code (src/core/random_block.h).
 * Owns: nothing; no global state.  Cannot fail.
 *
 * Layout, fixed for all backends:
 *   key     = { low 32 bits of seed, high 32 bits of seed }
 *   counter = { index, cell, epoch, purpose << 24 | (repeat & 255) << 16 | (fold & 65535) }
 */
#ifndef FLIM_RANDOM_H
#define FLIM_RANDOM_H

#include <stddef.h>
#include <stdint.h>

typedef enum flim_random_purpose {
    FLIM_RANDOM_INIT = 1, /* initial weights: cell = tensor number, index = element block */
    FLIM_RANDOM_SPLIT = 2, /* folds and inner validation */
    FLIM_RANDOM_SAMPLER = 3, /* order and choice of the cells of an epoch */
    FLIM_RANDOM_DROPOUT = 4, /* index = unit << 16 | channel / 4, word = channel % 4; the head counts as unit n_units */
    FLIM_RANDOM_AUGMENT = 5, /* transforms of a cell: index = step (flim/transform.h); its voxels draw from words 2, 3 */
    FLIM_RANDOM_SIMULATE = 6, /* flim_simulate */
    FLIM_RANDOM_BOOTSTRAP = 7, /* confidence intervals */
    FLIM_RANDOM_MIXUP = 8, /* partners and shares of an epoch; of a cell: index = 0, 1, photons kept by words 0, 1 */
    FLIM_RANDOM_HIDE = 9, /* hidden voxels of a cell: index = box */
    FLIM_RANDOM_PAIRS = 10 /* pretraining: partners, and the donors' order */
} flim_random_purpose;

/* What a cell in a batch is: its number in the data and which draw of it this is.  Everything random that happens to it
 * (transform, dropout) is keyed by this and nothing else. */
typedef struct flim_cell_id {
    uint64_t seed;
    uint32_t fold;
    uint32_t epoch;
    uint32_t cell; /* 0-based index into the data set */
    uint32_t repeat; /* 0 for the first time the sampler draws the cell in this epoch, 1 for the second, ... */
} flim_cell_id;

/* One block of four 32-bit words. */
void flim_random_block(const flim_cell_id *id, flim_random_purpose purpose, uint32_t index, uint32_t out[4]);

/* A sequential reader of blocks index = 0, 1, 2, ...: for shuffles and simulation.  Plain value: copy it to fork it. */
typedef struct flim_random {
    flim_cell_id id;
    flim_random_purpose purpose;
    uint32_t next_index;
    uint32_t word[4];
    int used; /* words of `word` already handed out; 4 = none left */
} flim_random;

flim_random flim_random_begin(const flim_cell_id *id, flim_random_purpose purpose);
uint32_t flim_random_u32(flim_random *random);
double flim_random_uniform(flim_random *random); /* [0, 1), 53 bits */
double flim_random_normal(flim_random *random); /* Box-Muller, mean 0, sd 1; uses four words */
uint64_t flim_random_below(flim_random *random, uint64_t bound); /* 0..bound-1, unbiased; bound >= 1 */
void flim_random_shuffle(flim_random *random, int64_t *items, size_t count); /* Fisher-Yates */

/* True when the channel is kept by dropout of probability p: the word of FLIM_RANDOM_DROPOUT for (unit, channel) is at
 * least (uint32_t)(p * 2^32), compared as integers so that every device agrees.  Kept values are scaled by 1 / (1 - p). */
int flim_random_keep(const flim_cell_id *id, uint32_t unit, uint32_t channel, float p);

#endif
