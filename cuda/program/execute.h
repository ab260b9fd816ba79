/* Calls of a program: a training step, a prediction, and the wait for all of them.
 *
 * For: program_ops.c's table, whose interface (backend/backend.h) says what each does; state.c waits before it reads.
 * Errors: FLIM_ERROR_DEVICE with CUDA's reason, perhaps of an earlier call: nothing waits but finish.
 */
#ifndef FLIM_CUDA_EXECUTE_H
#define FLIM_CUDA_EXECUTE_H

#include "cuda/program/cuda_program.h"

flim_status flim_cuda_train(flim_program *program, const flim_batch *batch, const flim_step *step, flim_error *err);
flim_status flim_cuda_recalibrate(flim_program *program, const flim_batch *batch, double share, flim_error *err);
flim_status flim_cuda_exchange_average(flim_program *program, flim_error *err);
flim_status flim_cuda_predict(flim_program *program, const flim_batch *batch, float *logits, flim_error *err);
flim_status flim_cuda_evaluate(flim_program *program, const flim_batch *batch, const flim_step *step, flim_error *err);
/* Finishes all work and hands out pending logits. */
flim_status flim_cuda_finish(flim_cuda_program *program, flim_error *err);

#endif
