/* Prediction: the contract of flim_program_predict. */
#ifndef FLIM_CPU_PREDICT_H
#define FLIM_CPU_PREDICT_H

#include "cpu/program/cpu_program.h"

flim_status flim_cpu_predict(flim_program *program, const flim_batch *batch, float *logits, flim_error *err);

#endif
