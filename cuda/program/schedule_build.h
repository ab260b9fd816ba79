/* Builds the schedule of a forward pass or of a training step.
 *
 * For: compile.c, once for training and once for prediction; backend.c for the largest tensor.  Nothing here calls CUDA but the search for convolutions.
 * Owns: nothing; the network outlives the schedule.
 * Errors: FLIM_ERROR_USAGE for networks that the kernels cannot do; those of the search.
 */
#ifndef FLIM_CUDA_SCHEDULE_BUILD_H
#define FLIM_CUDA_SCHEDULE_BUILD_H

#include "cuda/program/schedule.h"

/* Lists the operations, finds convolutions and lays out the arena. */
flim_status flim_schedule_build(flim_schedule *schedule, flim_cuda_device *device, const flim_network *net,
                                flim_precision precision, bool train, int64_t batch, bool deterministic,
                                const flim_recompute_set *recompute, const flim_conv_search_options *options,
                                flim_error *err);
/* Elements per cell of the largest tensor that a schedule stores, padding channels included. */
int64_t flim_schedule_largest_tensor(const flim_schedule *schedule);
/* The same before anything is searched, of training and prediction: what is fused is decided as flim_schedule_build does, without
 * the stem's kernel if that has failed its check on this device. */
flim_status flim_schedule_predict_largest(const flim_cuda_device *device, const flim_network *net, flim_precision precision,
                                          int64_t *elements, flim_error *err);
/* Outputs that could be recomputed. */
int flim_schedule_recomputable(const flim_schedule *schedule);
/* Bytes of what a unit keeps for the backward pass, at the operation that needs most. */
int64_t flim_schedule_saved_at_peak(const flim_schedule *schedule, int u);

#endif
