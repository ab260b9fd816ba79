/* What trials and benchmarks run a program on: fresh weights and a batch of synthetic cells.  Contents change no size. */
#ifndef FLIM_PLAN_SYNTHETIC_RUN_H
#define FLIM_PLAN_SYNTHETIC_RUN_H

#include "flim/device.h"

/* Puts an allocated program at these weights, as if no step had been made: parameters (P), statistics (S). */
flim_status flim_fresh_state(flim_program *program, const float *parameters, const float *statistics, flim_error *err);
/* The same with the weights of a seed. */
flim_status flim_fresh_weights(flim_program *program, uint64_t seed, flim_error *err);

/* The arrays of a batch of n cells, weights 1, in memory that the device copies from fast. */
flim_status flim_batch_create(flim_device *device, const flim_network *net, int64_t n, flim_batch *out, flim_error *err);
void flim_batch_free(flim_device *device, flim_batch *batch); /* a zeroed batch is allowed */
/* Fills it with the cells 0..n-1 of a seed, the first `different` of them over and over. */
void flim_batch_fill(flim_batch *batch, int classes, uint64_t seed, int64_t different);

/* A training step of n cells as it is measured: settings near the defaults. */
flim_step flim_typical_step(int64_t n);

#endif
