/* Passes as CUDA graphs: a step is one launch instead of a hundred.
 *
 * For: execute.c.  The first run of a pass at a place in the window (only the last one updates) is plain, which loads all code; then one graph
 * is captured for each number of cells and place in the window that comes up.
 * Owns: program->graph; flim_graph_free destroys them.
 * Errors: those of operations.h.  A capture that fails is none: from then on everything runs without graphs.
 */
#ifndef FLIM_CUDA_GRAPH_H
#define FLIM_CUDA_GRAPH_H

#include "cuda/program/cuda_program.h"

/* Runs a pass over n cells; first, last: of its window of accumulated batches. */
flim_status flim_graph_run(flim_cuda_program *program, flim_schedule *schedule, int64_t n, bool first, bool last,
                           flim_error *err);
void flim_graph_free(flim_cuda_program *program);

#endif
