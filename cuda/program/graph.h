/* Schedules as CUDA graphs: a step is one launch instead of a hundred.
 *
 * For: execute.c.  The first run of a schedule as the first, the last or another batch of an accumulation (only the last one
 *      updates) is plain, which loads all code; then one graph is captured per number of cells and such position.
 * Owns: program->graph; flim_graph_free destroys them.
 * Errors: those of launch.h.  If a capture fails, everything runs without graphs from then on.
 */
#ifndef FLIM_CUDA_GRAPH_H
#define FLIM_CUDA_GRAPH_H

#include "cuda/program/cuda_program.h"

/* Runs a schedule over n cells; first, last: of an accumulation. */
flim_status flim_graph_run(flim_cuda_program *program, flim_schedule *schedule, int64_t n, bool first, bool last,
                           flim_error *err);
void flim_graph_free(flim_cuda_program *program);

#endif
