/* Values described by table rows, for command lines and for settings. */
#ifndef FLIM_CONFIG_FLAG_TABLE_H
#define FLIM_CONFIG_FLAG_TABLE_H

#include "flim/flags.h"

/* Sets every value to its default.  On failure nothing needs to be freed. */
flim_status flim_flag_table_init(const flim_flag_table *table, void *options, flim_error *err);

/* Sets a value from text; a list gets one more item.  `what` names the place in errors: "--folds", "a.yaml:3: folds". */
flim_status flim_flag_set(const flim_flag_row *row, void *options, const char *what, const char *text, flim_error *err);
/* Gives `to` the value that `from` has; both are initialised. */
flim_status flim_flag_copy(const flim_flag_row *row, const void *from, void *to, flim_error *err);
/* What a value is, for those who offer values: told by how --help calls it (FILE, DIR, RUN, RUN|FILE, CONFIG). */
typedef enum flim_path_kind { FLIM_PATH_NONE, FLIM_PATH_FILE, FLIM_PATH_FOLDER } flim_path_kind;
flim_path_kind flim_flag_path_kind(const char *metavar);
/* A path with a leading ~/ as the home folder, as shells have it; *out is the caller's (flim_free).  FLIM_ERROR_USAGE for ~name.
 * flim_flag_set does so for every value of a path kind. */
flim_status flim_path_expand(const char *what, const char *text, char **out, flim_error *err);
/* Empties a list; other values stay. */
void flim_flag_clear(const flim_flag_row *row, void *options);
/* The value as text that flim_flag_set takes (not for lists: they have flim_flag_list).  Free with flim_free. */
char *flim_flag_text(const flim_flag_row *row, const void *options, flim_error *err);
const flim_string_list *flim_flag_list(const flim_flag_row *row, const void *options);
/* "val_fraction" for "val-fraction". */
void flim_flag_key(const flim_flag_row *row, char *key, size_t size);

typedef enum flim_flag_action {
    FLIM_FLAGS_RUN,
    FLIM_FLAGS_HELP,
    FLIM_FLAGS_VERSION,
    FLIM_FLAGS_MAN, /* --help=man, and so on */
    FLIM_FLAGS_BASH,
    FLIM_FLAGS_ZSH
} flim_flag_action;

/* What --help and --version ask for.  Help: usage, what it is about, the flags in groups with their defaults; at most 80
 * columns.  Version: "PROGRAM (flimcv) 0.1.0".  The others: config/program_pages.h. */
flim_status flim_flag_table_show(const flim_flag_table *table, flim_flag_action action, FILE *out, flim_error *err);

/* One flag as it stands on a command line: its text is not looked at yet. */
typedef struct flim_flag_use {
    const flim_flag_row *row;
    const char *value; /* in argv, or what its row has for a flag alone; "true" or "false" for switches */
} flim_flag_use;

/* Splits argv[1..argc-1] into uses (room for argc) and operands (may be NULL). */
flim_status flim_flag_table_scan(const flim_flag_table *table, int argc, char *const *argv, flim_flag_use *uses, int *n_uses,
                                 flim_string_list *operands, flim_flag_action *action, flim_error *err);
/* Sets one use's value.  seen: one flag per row, the caller's, zeroed; a list's first item replaces what it has. */
flim_status flim_flag_apply(const flim_flag_table *table, const flim_flag_use *use, void *options, bool *seen,
                            flim_error *err);

#endif
