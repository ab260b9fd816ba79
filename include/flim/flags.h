/* Command lines from a table: one row per flag gives the parser, the defaults, the checks and --help.
 *
 * For: the programs; train_cv's settings (flim/settings.h) are such a table with YAML beside it.  Use:
 *
 *     typedef struct options { char *out; int64_t cells; bool json; } options;
 *     static const flim_flag_row rows[] = {
 *         {"Output", "out", FLIM_VALUE_TEXT, offsetof(options, out), "", "FILE", .help = "file to write"},
 *         {NULL, "cells", FLIM_VALUE_INTEGER, offsetof(options, cells), "100", "N", .help = "cells", .allowed = ">= 1"},
 *         {NULL, "json", FLIM_VALUE_SWITCH, offsetof(options, json), "false", .help = "print JSON"},
 *     };
 *     static const flim_flag_table table = {"tool", "tool --out FILE [flag]...", "Does this.", rows, 3, .operand = NULL};
 *     options o;
 *     bool go;
 *     flim_status status = flim_flag_table_read(&table, &o, argc, argv, NULL, stdout, &go, err);
 *     if (go) {
 *         ...
 *         flim_flag_table_free(&table, &o);
 *     }
 *
 * Rules: `--flag value` and `--flag=value`; a switch --x has its --no-x and takes no value; flags are never abbreviated.
 *      Of a repeated flag the last value counts, except that a list collects them (the first replaces its default); `--` ends
 *      the flags.  A flag whose row has `alone` may stand without a value, as in `--json`; an argument that follows and does
 *      not begin with `--` is its value.  A flag whose metavar is FLAGS takes any argument.  Every table knows -h, --help,
 *      --version, and --help=man, --help=bash and --help=zsh, which print the manual page and completion.
 * Owns: texts and lists in the options are their own copies, freed by flim_flag_table_free.
 * Errors: FLIM_ERROR_USAGE names the flag, what was found, what is allowed, and the nearest known name.
 */
#ifndef FLIM_FLAGS_H
#define FLIM_FLAGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "flim/choices.h"
#include "flim/string_list.h"

typedef enum flim_value_type {
    FLIM_VALUE_SWITCH, /* bool */
    FLIM_VALUE_INTEGER, /* int64_t */
    FLIM_VALUE_UNSIGNED, /* uint64_t: seeds */
    FLIM_VALUE_REAL, /* double, finite */
    FLIM_VALUE_TEXT, /* char *, never NULL once initialised */
    FLIM_VALUE_CHOICE, /* an enum: the place in `choices`; -1 = none, if `initial` is "".  FLIM_CHOICE_AT gives its offset */
    FLIM_VALUE_LIST /* flim_string_list: a repeatable text */
} flim_value_type;

typedef struct flim_flag_row {
    const char *group; /* heading in --help; NULL = that of the row before */
    const char *name; /* "val-fraction": the flag is --val-fraction, the key in a config val_fraction */
    flim_value_type type;
    size_t offset; /* of the value in the options struct */
    const char *initial; /* default as text; "" for an empty text or list; of a list with one item: the item */
    const char *metavar; /* "N", "FILE"; NULL for switches */
    const char *help;
    const char *allowed; /* numbers: bounds as ">= 0, < 1", which the parser checks; texts with `valid`: what it accepts */
    const char *const *choices; /* the names of a choice, or what items of a list may be; ends in NULL (flim/choices.h) */
    bool (*valid)(const char *text); /* further check of a text or an item */
    const char *word; /* of an integer: a word that stands for word_value, outside `allowed` ("all" for -1) */
    int64_t word_value;
    int on_resume, identity; /* of train_cv's settings: flim_on_resume and flim_identity_field of config/settings.h; else 0 */
    const char *alone; /* the value of the flag without one: at the end or before another flag; NULL = it needs one */
    /* Another flag, which takes no value and means this one with also_value; without an also_value another name for it.  NULL:
     * there is none. */
    const char *also, *also_value;
    bool writes; /* of a text: the name of a file that is written; "-" is standard output, which --help says */
} flim_flag_row;

/* The offset of a choice's field, which must have the size of an int. */
#define FLIM_CHOICE_AT(type, field)                                                                                          \
    (offsetof(type, field) + 0 * sizeof(struct {                                                                             \
                                 _Static_assert(sizeof(((type *)0)->field) == sizeof(int),                                   \
                                                "a choice has the size of an int");                                          \
                                 int unused;                                                                                 \
                             }))

/* A call worth showing. */
typedef struct flim_example {
    const char *call, *purpose;
} flim_example;

/* `PROGRAM NAME [flag]...`, with flags of its own. */
typedef struct flim_subcommand {
    const char *name, *purpose; /* purpose: one line */
    const struct flim_flag_table *flags;
} flim_subcommand;

/* A program as it describes itself: --help, its manual page and its completion all come from here. */
typedef struct flim_flag_table {
    const char *program; /* "flim_simulate" */
    const char *usage; /* one line after "Usage: " */
    const char *about; /* a paragraph, broken into lines where it is shown; "" = none */
    const flim_flag_row *row;
    int n;
    const char *operand; /* what an argument without dashes is ("FILE"); NULL = there may be none */
    const char *epilogue; /* after the flags; NULL = none */
    const char *purpose; /* a few words beside the name in lists of manual pages; NULL = what `about` says */
    const flim_example *examples; /* the last one's call is NULL; NULL = none */
    const char *see_also; /* other manual pages, "predict(1), fold_metrics(1)"; NULL = none */
    const flim_subcommand *subcommand; /* the first argument, if there are any */
    int n_subcommands;
} flim_flag_table;

/* A program's first call: options get the defaults, then what argv[1..argc-1] says (fields without a row keep their value);
 * operands (zeroed; NULL if the table has none) get the arguments without dashes.  --help and --version count before any
 * mistake beside them; their text goes to `out` (FLIM_ERROR_WRITE if that fails).  *go: the program is to run, and the caller
 * frees options and operands; otherwise, and on errors, there is nothing to free. */
flim_status flim_flag_table_read(const flim_flag_table *table, void *options, int argc, char *const *argv,
                                 flim_string_list *operands, FILE *out, bool *go, flim_error *err);
/* The flag that leads a file to standard output; NULL = none.  flim_flag_table_read refuses a second one. */
const flim_flag_row *flim_flag_table_stdout(const flim_flag_table *table, const void *options);
void flim_flag_table_free(const flim_flag_table *table, void *options);

#endif
