/* The subcommands, one a file of this folder. */
#ifndef FLIM_BENCH_COMMANDS_H
#define FLIM_BENCH_COMMANDS_H

#include <stdbool.h>
#include <stdio.h>

#include "flim/bench.h"
#include "flim/flags.h"

extern const flim_bench_command flim_bench_feed; /* feed.c: training from a file against a fixed batch */
extern const flim_bench_command flim_bench_layers; /* layers.c: each operation of a step alone */
extern const flim_bench_command flim_bench_limits; /* limits.c: the ceilings of a card */
extern const flim_bench_command flim_bench_loader; /* loader.c: cells from a file */
extern const flim_bench_command flim_bench_memory; /* memory.c: planned against measured memory */
extern const flim_bench_command flim_bench_step; /* step.c: training steps of the whole network */

/* How each of them begins: options from defaults and argv, or what --help and --version ask for, written to `out`.  *go: the command is
 * to run, and the caller frees the options with flim_flag_table_free; else, and on errors, there is nothing to free. */
flim_status flim_bench_start(const flim_flag_table *table, void *options, int argc, char *const *argv, FILE *out, bool *go,
                             flim_error *err);

#endif
