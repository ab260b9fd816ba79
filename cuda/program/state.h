/* State of a program, read and written by the host: arrays of the network's layout, the optimizer's counters, totals of an
 * epoch.
 *
 * For: program_ops.c's table of functions (flim_program_ops in flim/backend.h, which says what each does).
 * Owns: nothing.  What is set before the allocation waits in program->host_state.
 * Errors: each waits for all work that was enqueued, whose errors appear here: FLIM_ERROR_DEVICE with CUDA's reason.
 */
#ifndef FLIM_CUDA_STATE_H
#define FLIM_CUDA_STATE_H

#include "cuda/program/cuda_program.h"

/* Of a new program; dynamic: fp16's loss scale. */
flim_device_state flim_state_initial(bool dynamic);

flim_state_arrays flim_state_arrays_of(const flim_program *program);
flim_status flim_state_read(flim_program *program, const float *from, size_t count, float *out, flim_error *err);
flim_status flim_state_write(flim_program *program, flim_state state, float *to, size_t count, const float *in,
                             flim_error *err);
flim_status flim_state_get_counters(flim_program *program, flim_counters *out, flim_error *err);
flim_status flim_state_set_counters(flim_program *program, const flim_counters *in, flim_error *err);
flim_status flim_state_totals(flim_program *program, bool reset, flim_totals *out, flim_error *err);
flim_status flim_state_set_totals(flim_program *program, const flim_totals *in, flim_error *err);

#endif
