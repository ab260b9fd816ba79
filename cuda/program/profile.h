/* The card's ceilings, and the time of each operation of a training step alone.
 *
 * For: `flim_bench limits`, `flim_bench layers`.
 * Errors: FLIM_ERROR_USAGE for a program that does not train; FLIM_ERROR_DEVICE with CUDA's reason.
 */
#ifndef FLIM_CUDA_PROFILE_H
#define FLIM_CUDA_PROFILE_H

#include "cuda/program/cuda_program.h"

flim_status flim_cuda_measure_limits(flim_device *device, flim_device_limits *out, flim_error *err);
/* Appends to out (room) at *n; the parameters are garbage afterwards. */
flim_status flim_cuda_profile(flim_program *program, flim_operation_time *out, int room, int *n, flim_error *err);

#endif
