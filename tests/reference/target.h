/* What a test runs on: a device and a precision, from the environment, and programs and comparisons on it.
 *
 * FLIM_TEST_DEVICE=cpu|cuda|cuda:N (default cpu) names the device, FLIM_TEST_PRECISION=fp32|... one precision instead of all
 * the device can do.  ctest runs the same programs for cpu and, under the label gpu, for cuda.
 */
#ifndef REFERENCE_TARGET_H
#define REFERENCE_TARGET_H

#include "flim/device.h"

typedef struct ref_target {
    const char *spec; /* as FLIM_TEST_DEVICE */
    flim_device *device;
    flim_precision precision;
} ref_target;

/* The group of tests that main runs once a precision. */
typedef int ref_target_main(const ref_target *target);

/* Opens the device and runs `group` for each precision; returns the sum of what it returned, or 77 (ctest: skipped) after
 * printing why where there is no such device. */
int ref_target_run(ref_target_main *group);

/* Largest ||out - reference|| / ||reference|| that one layer may show: rounding of inputs, sums in fp32. */
double ref_layer_tolerance(flim_precision precision);
/* The same for gradients of a whole small network, through all its layers. */
double ref_network_tolerance(flim_precision precision);

/* ||out - reference|| / ||reference||; NaN anywhere in out gives infinity.  A zero reference gives ||out||. */
double ref_distance(const float *out, const double *reference, int64_t count);

/* Compiles, allocates and sets a program: these parameters (P) and statistics (S), zero moments.  A failure prints the error
 * and returns NULL. */
flim_program *ref_program_create(const ref_target *target, const flim_network *net, int64_t train_batch, int64_t eval_batch,
                                 const float *parameters, const float *statistics);

/* The same with other options, whose precision is the target's. */
flim_program *ref_program_create_with(const ref_target *target, const flim_network *net, flim_program_options options,
                                      const float *parameters, const float *statistics);
/* The same with `inspect` (backend/inspect.h). */
flim_program *ref_program_create_inspected(const ref_target *target, const flim_network *net, int64_t train_batch,
                                           int64_t eval_batch, const float *parameters, const float *statistics);

#endif
