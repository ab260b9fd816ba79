/* Prediction: the contract of flim_program_predict. */
#ifndef FLIM_CPU_PREDICT_H
#define FLIM_CPU_PREDICT_H

#include "cpu/program/cpu_program.h"

flim_status flim_cpu_predict(flim_program *program, const flim_batch *batch, float *logits, flim_error *err);
/* A buffer of the prediction's arena for a cell: each worker has one, with `inspect` each cell. */
float *flim_cpu_eval_cell(const flim_cpu_program *program, const flim_cpu_worker *worker, int buffer, int64_t cell);

/* The contract of flim_program_evaluate. */
flim_status flim_cpu_evaluate(flim_program *program, const flim_batch *batch, const flim_step *step, flim_error *err);

#endif
