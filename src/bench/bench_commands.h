/* The subcommands, one file of this folder each. */
#ifndef FLIM_BENCH_COMMANDS_H
#define FLIM_BENCH_COMMANDS_H

#include "bench/bench.h"

extern const flim_bench_command flim_bench_augment; /* bench_augment.c: what augmentation makes of a cell */
extern const flim_bench_command flim_bench_feed; /* bench_feed.c: training from a file against a fixed batch */
extern const flim_bench_command flim_bench_layers; /* bench_layers.c: each operation of a step alone */
extern const flim_bench_command flim_bench_limits; /* bench_limits.c: the ceilings of a card */
extern const flim_bench_command flim_bench_loader; /* bench_loader.c: cells from a file */
extern const flim_bench_command flim_bench_memory; /* bench_memory.c: planned against measured memory */
extern const flim_bench_command flim_bench_predict; /* bench_predict.c: the forward pass of prediction */
extern const flim_bench_command flim_bench_step; /* bench_step.c: training steps of the whole network */

#endif
