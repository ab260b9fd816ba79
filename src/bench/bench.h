/* Measurements: the subcommands of flim_bench.
 *
 * For: flim_bench.  One file of src/bench/ is one subcommand; the table in bench_commands.c lists them.
 * Owns: nothing; a command's struct is constant.
 * Errors: FLIM_ERROR_USAGE for a flag (the nearest known one is named), else what the measured modules return.
 */
#ifndef FLIM_BENCH_H
#define FLIM_BENCH_H

#include <stdio.h>

#include "flim/flags.h"
#include "flim/log.h"

typedef struct flim_bench_command {
    const char *name; /* "step" */
    const char *summary; /* one line for flim_bench --help */
    const flim_flag_table *flags;
    size_t options_bytes; /* of the struct that the flags fill */
    /* Results go to `out`, notes to `log` (may be NULL). */
    flim_status (*measure)(void *options, FILE *out, const flim_log *log, flim_error *err);
} flim_bench_command;

/* The flag of a subcommand that reads a data file; at: offset of its bool. */
#define FLIM_BENCH_ALLOW_EXTERNAL_ROW(at)                                                                                    \
    {                                                                                                                        \
        NULL, "allow-external", FLIM_VALUE_SWITCH, at, "false", NULL,                                                        \
            .help = "read files that the data file leads to outside of its folder, too"                                      \
    }

/* All subcommands in the order of --help, then NULL. */
const flim_bench_command *const *flim_bench_commands(void);

/* The subcommand of that name; FLIM_ERROR_USAGE names the nearest one. */
flim_status flim_bench_find(const char *name, const flim_bench_command **out, flim_error *err);

/* argv[0] is the command's name, its flags follow.  Figures and --help go to `out`, which is standard output, figures to
 * `instead` if a flag leads a file there. */
flim_status flim_bench_run(const flim_bench_command *command, int argc, char *const *argv, FILE *out, FILE *instead,
                           const flim_log *log, flim_error *err);

/* --width and --depth: fields of int64_t; 0 = the preset's. */
#define FLIM_BENCH_SIZE_ROWS(width, depth)                                                                                   \
    {NULL,                                                                                                                   \
     "width",                                                                                                                \
     FLIM_VALUE_INTEGER,                                                                                                     \
     width,                                                                                                                  \
     "preset",                                                                                                               \
     "N",                                                                                                                    \
     "width of the network, a multiple of 4",                                                                                \
     .allowed = ">= 4, <= 1024",                                                                                             \
     .word = "preset"},                                                                                                      \
    {                                                                                                                        \
        NULL, "depth", FLIM_VALUE_INTEGER, depth, "preset", "N", "residual blocks at each resolution",                       \
            .allowed = ">= 1, <= 3", .word = "preset"                                                                        \
    }

#endif
