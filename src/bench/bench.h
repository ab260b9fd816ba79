/* Measurements: the subcommands of flim_bench.
 *
 * For: the subcommands of flim_bench: step, loader and their siblings.  One file of src/bench/ is one subcommand; the
 *      table in src/bench/bench.c is the list that flim_bench dispatches on and prints.
 * Owns: nothing; a command's struct is constant.
 * Errors: FLIM_ERROR_USAGE for a flag (the nearest known one is named), else what the measured modules return.
 */
#ifndef FLIM_BENCH_H
#define FLIM_BENCH_H

#include <stdio.h>

#include "flim/log.h"
#include "flim/status.h"

typedef struct flim_bench_command {
    const char *name; /* "step" */
    const char *summary; /* one line for flim_bench --help */
    /* argv[0] is the subcommand's name, flags follow (flim/flags.h).  Results, or the help that --help asks for, go to `out`;
     * notes to `log` (may be NULL). */
    flim_status (*run)(int argc, char *const *argv, FILE *out, const flim_log *log, flim_error *err);
} flim_bench_command;

/* All subcommands in the order of --help, then NULL. */
const flim_bench_command *const *flim_bench_commands(void);

/* The subcommand of that name; FLIM_ERROR_USAGE names the nearest one. */
flim_status flim_bench_find(const char *name, const flim_bench_command **out, flim_error *err);

#endif
