/* Builds the schedule of a forward pass or of a training step.
 *
 * For: compile.c, once for training and once for prediction.  Nothing here calls CUDA but the search for convolutions.
 * Owns: nothing; the network outlives the schedule.
 * Errors: FLIM_ERROR_USAGE for networks that the kernels cannot do; those of the search.
 */
#ifndef FLIM_CUDA_SCHEDULE_BUILD_H
#define FLIM_CUDA_SCHEDULE_BUILD_H

#include "cuda/program/schedule.h"

/* Lists the operations, finds convolutions and lays out the arena. */
flim_status flim_schedule_build(flim_schedule *schedule, flim_cuda_device *device, const flim_network *net, flim_storage type,
                                bool train, int64_t batch, bool deterministic, const flim_recompute_set *recompute,
                                const flim_conv_search_options *options, flim_error *err);
/* Outputs that could be recomputed. */
int flim_schedule_recomputable(const flim_schedule *schedule);
/* Bytes of what a unit keeps for the backward pass, at the operation that needs most. */
int64_t flim_schedule_saved_at_peak(const flim_schedule *schedule, int u);

#endif
