/* The backward pass of a training step. */
#ifndef FLIM_CPU_BACKWARD_H
#define FLIM_CPU_BACKWARD_H

#include "cpu/program/cpu_program.h"

flim_status flim_cpu_backward_pass(flim_cpu_program *program, const flim_batch *batch, flim_error *err);

#endif
