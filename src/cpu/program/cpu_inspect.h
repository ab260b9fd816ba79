/* Single tensors of a program's last call: the contract of flim_program_read_tensor (backend/inspect.h). */
#ifndef FLIM_CPU_INSPECT_H
#define FLIM_CPU_INSPECT_H

#include "cpu/program/cpu_program.h"

flim_status flim_cpu_read_tensor(flim_program *program, int unit, flim_inspected what, float *out, flim_error *err);

#endif
