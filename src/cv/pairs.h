/* What an epoch of pretraining draws: each cell once, alone or as the first of a pair.
 *
 * For: losses over the batch, whose partners are draws 2i and 2i+1.  VIEW: a cell twice, as two repeats, which augmentation and
 *      hidden voxels make two views.  CLASS: a cell and another of its class, from another group if the part has one there, else
 *      of the same group, else itself.
 * Owns: the caller owns draws.  Errors: FLIM_ERROR_USAGE without the labels or groups that a rule needs; FLIM_ERROR_MEMORY.
 */
#ifndef FLIM_CV_PAIRS_H
#define FLIM_CV_PAIRS_H

#include "flim/batch.h"
#include "flim/choices.h"
#include "flim/split.h"

typedef struct flim_pairs_rule {
    bool paired; /* false: each cell alone */
    flim_pairs pairs;
    /* DONOR: a batch's (first) cells are of one group; what a group leaves, less than a batch, forms mixed batches at the end of
     * the epoch. */
    flim_batch_from from;
    int64_t batch; /* draws of a batch; even if paired */
} flim_pairs_rule;

/* Fills draws (n_part, or 2 n_part if paired) from the cells part[0..n_part-1]; a pure function of rule, seed, fold and epoch. */
flim_status flim_pairs_draw(const flim_pairs_rule *rule, const flim_split_data *data, const int64_t *part, int64_t n_part,
                            uint64_t seed, uint32_t fold, uint32_t epoch, flim_draw *draws, flim_error *err);

#endif
