/* Flags of a subcommand: one table makes the parser and --help.
 *
 * Flags are never abbreviated; `--flag value` and `--flag=value` are the same; a flag given twice keeps the last value.
 */
#ifndef FLIM_BENCH_FLAGS_H
#define FLIM_BENCH_FLAGS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "flim/status.h"

typedef enum flim_flag_kind {
    FLIM_FLAG_I64, /* value: int64_t *, min..max */
    FLIM_FLAG_U64, /* value: uint64_t * */
    FLIM_FLAG_DOUBLE, /* value: double *, min..max */
    FLIM_FLAG_TEXT, /* value: const char **, set to point into argv; not empty */
    FLIM_FLAG_SWITCH /* value: bool *, set to true; takes no argument */
} flim_flag_kind;

typedef struct flim_flag {
    const char *name; /* "--steps" */
    flim_flag_kind kind;
    void *value; /* holds the default before parsing, which --help prints */
    double min, max; /* numbers */
    const char *argument; /* "N", "FILE"; NULL for a switch */
    const char *help; /* what it does, one line */
} flim_flag;

/* Sets values from argv[0..argc-1].  *help becomes true when --help or -h is among them (nothing is set then).
 * FLIM_ERROR_USAGE: unknown flag (the nearest is named), missing or malformed value, an argument that is no flag. */
flim_status flim_flags_parse(const flim_flag *flags, int n, int argc, char *const *argv, bool *help, flim_error *err);

/* One line a flag: name, argument, help, default. */
void flim_flags_print(const flim_flag *flags, int n, FILE *out);

#endif
