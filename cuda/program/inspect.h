/* Single tensors of a program's last call: the contract of flim_program_read_tensor (backend/inspect.h). */
#ifndef FLIM_CUDA_INSPECT_H
#define FLIM_CUDA_INSPECT_H

#include "cuda/program/cuda_program.h"

flim_status flim_cuda_read_tensor(flim_program *program, int unit, flim_inspected what, float *out, flim_error *err);

#endif
