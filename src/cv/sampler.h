/* The sampler: which cells an epoch trains on, in which order.
 *
 * For: natural (each cell once, shuffled), balanced (as many draws as cells; classes equally likely, with replacement, as
 *      torch's WeightedRandomSampler), group-balanced (group, then cell within it), class-group (each class of each group
 *      equally often).  Weights come from the training set only.
 * Owns: the caller owns draws.  Errors: FLIM_ERROR_USAGE a sampler of groups without groups; FLIM_ERROR_MEMORY.
 */
#ifndef FLIM_SAMPLER_H
#define FLIM_SAMPLER_H

#include "flim/batch.h"
#include "flim/choices.h"
#include "flim/split.h"

/* Fills draws (n_part of them) for one epoch from the cells part[0..n_part-1]; a pure function of (seed, fold, epoch) and the
 * part.  data gives label and group.
 * class-group: every table cell (class x group with any cell of the part) is expected to give as many draws as every other,
 * but none more than `repeats` (>= 1) times its cells; what that leaves goes to the others in equal shares.  Expected numbers
 * are met to the next whole number in each epoch, and exactly over all random numbers; the cells of a table cell are drawn
 * equally often, to one draw. */
flim_status flim_sampler_draw(flim_sampler sampler, int64_t repeats, const flim_split_data *data, const int64_t *part,
                              int64_t n_part, uint64_t seed, uint32_t fold, uint32_t epoch, flim_draw *draws,
                              flim_error *err);

/* What class-group makes of a part. */
typedef struct flim_sampler_table {
    int64_t cells; /* of the table that are not empty */
    int64_t bounded; /* of them, those that `repeats` keeps below the others */
    double least, most; /* expected draws of one cell of the part */
    double effective; /* Kish's effective sample size: (sum w)^2 / sum w^2 of the expected draws w of each cell of the part */
} flim_sampler_table;

flim_status flim_sampler_describe(int64_t repeats, const flim_split_data *data, const int64_t *part, int64_t n_part,
                                  flim_sampler_table *out, flim_error *err);

/* The prior (K) that a training loss sees: shares of the classes among the draws of `epochs` epochs from number `first` on, each
 * counted by its weight times its class's (class_weight (K); NULL = 1).  What uncorrected scores then speak for. */
flim_status flim_sampler_prior(flim_sampler sampler, int64_t repeats, const flim_split_data *data, const int64_t *part,
                               int64_t n_part, uint64_t seed, uint32_t fold, int64_t first, int64_t epochs,
                               const double *class_weight, double *prior, flim_error *err);

/* Balanced class weights of a part: n / (K_present * n_class), as sklearn's compute_class_weight; 0 for absent classes. */
void flim_class_weights(const flim_split_data *data, const int64_t *part, int64_t n_part, double *weight);

#endif
