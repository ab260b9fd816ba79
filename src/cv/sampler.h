/* The sampler: which cells an epoch trains on, in which order.
 *
 * For: natural (each cell once, shuffled), balanced (as many draws as cells; classes equally likely, with replacement, as
 *      torch's WeightedRandomSampler), group-balanced (group, then cell within it).  Weights come from the training part
 *      only.
 * Owns: the caller owns draws.  Errors: FLIM_ERROR_USAGE group-balanced without groups; FLIM_ERROR_MEMORY.
 */
#ifndef FLIM_SAMPLER_H
#define FLIM_SAMPLER_H

#include "flim/batch.h"
#include "flim/choices.h"
#include "flim/split.h"

/* Fills draws (n_part of them) for one epoch from the cells part[0..n_part-1]; a pure function of (seed, fold, epoch) and the
 * part.  data gives label and group.  group-balanced without groups is FLIM_ERROR_USAGE. */
flim_status flim_sampler_draw(flim_sampler sampler, const flim_split_data *data, const int64_t *part, int64_t n_part,
                              uint64_t seed, uint32_t fold, uint32_t epoch, flim_draw *draws, flim_error *err);

/* The prior (K) that a training loss sees: shares of the classes among the draws of the first `epochs` epochs, each counted by
 * its weight times its class's (class_weight (K); NULL = 1).  What uncorrected scores then speak for. */
flim_status flim_sampler_prior(flim_sampler sampler, const flim_split_data *data, const int64_t *part, int64_t n_part,
                               uint64_t seed, uint32_t fold, int64_t epochs, const float *class_weight, double *prior,
                               flim_error *err);

/* Balanced class weights of a part: n / (K_present * n_class), as sklearn's compute_class_weight; 0 for absent classes. */
void flim_class_weights(const flim_split_data *data, const int64_t *part, int64_t n_part, double *weight);

#endif
