/* Cells over threads, and weights in the layouts of the convolutions. */
#ifndef FLIM_CPU_CELL_LOOP_H
#define FLIM_CPU_CELL_LOOP_H

#include "cpu/program/cpu_program.h"

typedef flim_status flim_cpu_body(flim_cpu_program *program, flim_cpu_mode mode, flim_cpu_worker *worker, int64_t cell,
                                  void *context, flim_error *err);

/* Runs `body` for cells 0..n-1: in MODE_CELLS by all workers at once for as many as divide evenly among them, the rest in
 * MODE_SHARED.  The first error ends it. */
flim_status flim_cpu_for_cells(flim_cpu_program *program, int64_t n, flim_cpu_body *body, void *context, flim_error *err);

/* Lays out the weights for the modes that a batch of n cells uses. */
flim_status flim_cpu_refresh_weights(flim_cpu_program *program, int64_t n, bool backward, flim_error *err);

#endif
