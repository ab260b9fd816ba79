/* The subcommands, one a file of this folder. */
#ifndef FLIM_BENCH_COMMANDS_H
#define FLIM_BENCH_COMMANDS_H

#include "bench/bench.h"

extern const flim_bench_command flim_bench_feed; /* feed.c: training from a file against a fixed batch */
extern const flim_bench_command flim_bench_layers; /* layers.c: each operation of a step alone */
extern const flim_bench_command flim_bench_limits; /* limits.c: the ceilings of a card */
extern const flim_bench_command flim_bench_loader; /* loader.c: cells from a file */
extern const flim_bench_command flim_bench_memory; /* memory.c: planned against measured memory */
extern const flim_bench_command flim_bench_step; /* step.c: training steps of the whole network */

#endif
