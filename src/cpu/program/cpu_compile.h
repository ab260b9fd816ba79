/* The table of a CPU program's functions, and how one is made. */
#ifndef FLIM_CPU_COMPILE_H
#define FLIM_CPU_COMPILE_H

#include "backend/backend.h"

flim_status flim_cpu_compile(flim_device *device, const flim_network *net, const flim_program_options *options,
                             flim_program **out, flim_error *err);

#endif
