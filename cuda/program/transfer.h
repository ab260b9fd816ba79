/* What goes between host and device around a schedule: batches and arguments in, logits out, beside the work of other calls.
 *
 * For: execute.c, per call and in this order: hand_out (predict), in, the schedule, out (predict), end_call.
 * Owns: the events and the pinned memory of program->stage, slot and logits, which calls use in turn.  A batch's arrays are
 * the
 *       caller's and in use until the next call has returned; logits arrive with flim_transfer_hand_out, at most FLIM_SLOTS
 *       calls later.
 * Errors: FLIM_ERROR_DEVICE with CUDA's reason; FLIM_ERROR_MEMORY if pinned memory is full.
 */
#ifndef FLIM_CUDA_TRANSFER_H
#define FLIM_CUDA_TRANSFER_H

#include "cuda/program/cuda_program.h"

/* Pinned host memory that make takes. */
int64_t flim_transfer_pinned_bytes(const flim_cuda_program *program);
/* After a failure, free gives back what was made. */
flim_status flim_transfer_make(flim_cuda_program *program, flim_error *err);
void flim_transfer_free(flim_cuda_program *program);

/* Starts the copies of a batch, or the gather of its cells from the device cache, and the kernel that prepares the
 * input from them. */
flim_status flim_transfer_in(flim_cuda_program *program, flim_schedule *schedule, const flim_batch *batch,
                             const flim_device_step *step, flim_error *err);
/* Starts the copy of what the heads predict for n cells, (n,outputs) of each in turn, which is handed out to `logits` later. */
flim_status flim_transfer_out(flim_cuda_program *program, int64_t n, float *logits, flim_error *err);
/* Waits for pending logits and gives them to their caller. */
flim_status flim_transfer_hand_out(flim_pending_logits *logits, flim_error *err);
/* The batch of the call before this one may change once this call returns: its copy must have ended.  That also keeps the
 * host from running more than two steps ahead of the device.  Then the call is counted. */
flim_status flim_transfer_end_call(flim_cuda_program *program, flim_error *err);

#endif
