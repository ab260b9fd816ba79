/* The memory plan of a CPU program: which buffers there are, from when to when they live, and where they lie.
 *
 * Owns: what allocate gets, until free.  Errors: FLIM_ERROR_MEMORY with what was needed, what is free and the batch that
 * would fit.
 */
#ifndef FLIM_CPU_LAYOUT_H
#define FLIM_CPU_LAYOUT_H

#include "cpu/program/cpu_program.h"

/* Sizes of everything that allocate will allocate. */
void flim_cpu_plan(flim_cpu_program *program);
flim_status flim_cpu_plan_memory(const flim_cpu_program *program, flim_memory_plan *plan, flim_error *err);
flim_status flim_cpu_plan_allocate(flim_cpu_program *program, flim_error *err);
void flim_cpu_plan_free(flim_cpu_program *program);

#endif
