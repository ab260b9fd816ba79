/* The functions of a CUDA program, as backend/backend.h wants them.
 *
 * For: compile.c, which hands them to each new program; programs in use are reached through the table only.
 */
#ifndef FLIM_CUDA_PROGRAM_OPS_H
#define FLIM_CUDA_PROGRAM_OPS_H

#include "backend/backend.h"

extern const flim_program_ops flim_cuda_program_ops;

#endif
