/* Mixup: the partner of each cell of an epoch, and its share.
 *
 * For: an epoch's phase (flim_phase.mix).  The share of the cell itself is l ~ Beta(a, a), per batch or per cell; its partner is
 *      one of the epoch's other draws, so that partners are as often of a class as cells are, or one of the same group, so that
 *      the group does not tell the mixture.  A partner is drawn anew: it goes through the augmentation by itself.
 * Owns: the caller owns the arrays.  Errors: FLIM_ERROR_USAGE partner group without groups; FLIM_ERROR_MEMORY.
 */
#ifndef FLIM_MIXUP_H
#define FLIM_MIXUP_H

#include "flim/batch.h"
#include "flim/choices.h"
#include "flim/split.h"

typedef struct flim_mixup_rule {
    double alpha; /* a of the Beta distribution, 0.01..4 */
    double probability; /* that a batch (a cell) is mixed at all */
    flim_mixup_share share;
    flim_mixup_partner partner;
} flim_mixup_rule;

/* mix (n) for draws (n) in batches of `batch`: a pure function of (seed, fold, epoch), the draws and, with one share per batch,
 * `batch`. */
flim_status flim_mixup_draw(const flim_mixup_rule *rule, const flim_split_data *data, uint64_t seed, uint32_t fold,
                            uint32_t epoch, const flim_draw *draws, int64_t n, int64_t batch, flim_mix *mix, flim_error *err);

/* Beta(a, a), by Joehnk's rejection (Metrika 8, 1964): the same bits on every machine. */
double flim_draw_beta(flim_random *random, double a);

#endif
