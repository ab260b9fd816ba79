/* Layout of a program's allocation before the arena: parameters, optimizer, weight copies, incoming batches, sums, head.
 *
 * For: one walk hands out offsets in order; without memory it only counts, so that planned sizes and used offsets cannot
 * differ.
 * Owns: nothing; it fills the pointers of the program and its schedules, and their bytes_*.
 */
#ifndef FLIM_CUDA_LAYOUT_H
#define FLIM_CUDA_LAYOUT_H

#include "cuda/program/cuda_program.h"

/* Sets all pointers into memory at `base` (NULL: only sizes) and returns the bytes of the fixed part. */
int64_t flim_program_lay_out(flim_cuda_program *program, char *base);
/* Pointers of a call block at `base`; returns its bytes. */
int64_t flim_call_block_at(flim_call_block *block, char *base, const flim_network *net, int64_t batch);

#endif
