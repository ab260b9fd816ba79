/* The units of a forward pass in training, and the tensors of one cell that later passes read. */
#ifndef FLIM_CPU_FORWARD_H
#define FLIM_CPU_FORWARD_H

#include "cpu/program/cpu_program.h"

/* A loop over the cells of a batch at one unit. */
typedef struct flim_cpu_unit_loop {
    const flim_batch *batch;
    int unit;
} flim_cpu_unit_loop;

flim_status flim_cpu_forward_pass(flim_cpu_program *program, const flim_batch *batch, flim_error *err);
/* Recomputes the dropped z of a block. */
flim_status flim_cpu_recompute_block(flim_cpu_program *program, const flim_batch *batch, int block, flim_error *err);

/* x of unit u for a cell: the batch itself, a saved y, or computed in worker->x. */
const float *flim_cpu_unit_input(const flim_cpu_program *program, flim_cpu_mode mode, flim_cpu_worker *worker,
                                 const flim_batch *batch, int u, int64_t cell);
/* Computes y of unit u for a cell from z and the skip. */
void flim_cpu_make_y(const flim_cpu_program *program, flim_cpu_mode mode, int u, int64_t cell, float *y);
/* The skip term of unit u for a cell in training. */
flim_cpu_term flim_cpu_unit_skip(const flim_cpu_program *program, int u, int64_t cell);
/* The dropout row of unit u for a cell, or NULL. */
const float *flim_cpu_unit_dropout(const flim_cpu_program *program, int u, int64_t cell);

/* Before a pass: which voxels it hides from the network; nothing without a third input channel. */
flim_status flim_cpu_hide(flim_cpu_program *program, const flim_batch *batch, flim_error *err);

#endif
