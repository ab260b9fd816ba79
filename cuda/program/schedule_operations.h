/* The operations of a schedule in their order, each with what it reads and writes; the buffers live as these say.
 *
 * For: schedule_build.c, which has found the convolutions and added the buffers.
 * Owns: nothing.  Cannot fail.
 */
#ifndef FLIM_CUDA_SCHEDULE_OPERATIONS_H
#define FLIM_CUDA_SCHEDULE_OPERATIONS_H

#include "cuda/program/schedule.h"

void flim_schedule_list_operations(flim_schedule *schedule);

#endif
