/* The operations of a schedule, enqueued on the device's stream: operands resolved to pointers, and the kernel that takes
 * them.
 *
 * For: graph.c runs whole schedules, profile.c single operations.  Nothing waits, and nothing but the arguments decides what
 * is
 *      enqueued, so that a schedule can be captured.
 * Owns: nothing; the program has been allocated.
 * Errors: FLIM_ERROR_DEVICE with the unit and CUDA's or cuDNN's reason.
 */
#ifndef FLIM_CUDA_LAUNCH_H
#define FLIM_CUDA_LAUNCH_H

#include "cuda/program/cuda_program.h"

/* Runs one operation over n cells; first: of its accumulation. */
flim_status flim_cuda_run_operation(flim_cuda_program *program, flim_schedule *schedule, const flim_operation *operation,
                                    int64_t n, bool first, flim_error *err);
/* The storage copies of the weights, and those flipped, from the parameters.  state: as flim_k_weights. */
flim_status flim_cuda_store_weights(flim_cuda_program *program, const flim_device_state *state, flim_error *err);
/* What follows the last operation of a training step: gradients gathered, and the update. */
flim_status flim_cuda_run_update(flim_cuda_program *program, bool first, bool last, flim_error *err);
/* Training's forward pass alone: the running statistics move by the call's momentum, and nothing else does. */
flim_status flim_cuda_run_statistics(flim_cuda_program *program, int64_t n, flim_error *err);
/* Everything of a call that lies between its copies in and its copies out. */
flim_status flim_cuda_run_schedule(flim_cuda_program *program, flim_schedule *schedule, int64_t n, bool first, bool last,
                                   flim_error *err);

#endif
