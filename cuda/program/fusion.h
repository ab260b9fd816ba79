/* Which tensors of a pass exist at all: fills in what a flim_pass_unit says of itself, before there are buffers or operations.
 *
 * For: pass.c, in this order: find_structure, [plans], find_shortcuts, find_dropped.  pass.h tells of the ways in which a tensor
 *      need not be stored.
 * Owns: nothing.
 */
#ifndef FLIM_CUDA_STRUCTURE_H
#define FLIM_CUDA_STRUCTURE_H

#include "cuda/program/schedule.h"

/* Units, their readers and blocks, which have kernels of their own on a card of compute capability sm (90 = 9.0), folded skips. */
void flim_pass_find_structure(flim_pass *pass, int sm);
/* Which units need no y, and whose gradient sums come with a data gradient.  Needs the plans of the weight gradients. */
void flim_pass_find_shortcuts(flim_pass *pass);
/* What is made again rather than kept. */
void flim_pass_find_dropped(flim_pass *pass, const flim_pass_drop *drop);

/* Of a unit made again: its y (pass->unit[u].y is set) goes with its z, and something in the block still reads it. */
bool flim_pass_remakes_y(const flim_pass *pass, int u);
/* A strided 1x1x1 convolution without padding: its input gradient is computed on the strided grid. */
bool flim_is_strided_point(const flim_unit *unit);

#endif
