/* Command lines of the small tools: a table of flags makes parsing, defaults and --help.
 *
 * For: flim_simulate and its kind; train_cv has flim/settings.h.  Both "--flag value" and "--flag=value" are read; a flag is
 *      never abbreviated; --help and --version are always known; anything that is no flag is an error.
 * Owns: nothing; the table and what its `out` members point to are the caller's, text values point into argv.
 * Errors: FLIM_ERROR_USAGE names the flag, what was found, what is allowed, and the nearest known flag.
 */
#ifndef FLIM_ARGS_H
#define FLIM_ARGS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "flim/status.h"

typedef enum flim_arg_kind {
    FLIM_ARG_SWITCH, /* bool: given = true; takes no value */
    FLIM_ARG_INT, /* int64_t */
    FLIM_ARG_SEED, /* uint64_t */
    FLIM_ARG_NUMBER, /* double */
    FLIM_ARG_TEXT, /* const char * */
    FLIM_ARG_CHOICE /* int: index into `choice` */
} flim_arg_kind;

typedef struct flim_arg {
    const char *name; /* "--cells" */
    const char *value; /* what --help calls the value: "N"; NULL for switches and choices */
    flim_arg_kind kind;
    void *out; /* holds the default before parsing, the value after */
    double min, max; /* of INT and NUMBER, both included; whole numbers up to 2^53 */
    const char *const *choice; /* (n_choice), CHOICE only */
    int n_choice;
    const char *help;
} flim_arg;

typedef enum flim_args_action { FLIM_ARGS_RUN, FLIM_ARGS_HELP, FLIM_ARGS_VERSION } flim_args_action;

/* Reads argv[1..argc-1].  --help and --version win over everything that comes after them. */
flim_status flim_args_parse(const flim_arg *table, int n, int argc, char *const *argv, flim_args_action *action,
                            flim_error *err);

/* One line a flag with its default, as `out` holds it now: call it before or after parsing. */
void flim_args_help(FILE *out, const flim_arg *table, int n);

#endif
