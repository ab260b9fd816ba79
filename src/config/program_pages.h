/* What a program says of itself, all of it from its table of flags: --help, the manual page, completion in bash and zsh.  They
 * cannot differ from each other, nor from what the parser takes.
 *
 * Owns: nothing.  Errors: none here; flim_flag_table_show looks at the stream once all is written. */
#ifndef FLIM_CONFIG_PROGRAM_PAGES_H
#define FLIM_CONFIG_PROGRAM_PAGES_H

#include "config/flag_table.h"

enum { FLIM_DESCRIPTION = 1024, FLIM_KEEP_BLANK = '\1' };

/* One flag's text: "what: choice, choice; more about it (default X; 1..256)".  Blanks within the parenthesis are
 * FLIM_KEEP_BLANK: no line ends there. */
void flim_flag_describe(const flim_flag_row *row, char text[FLIM_DESCRIPTION]);

/* The text of the switch that stands for one of its values. */
void flim_flag_describe_also(const flim_flag_row *row, char text[FLIM_DESCRIPTION]);

/* Codes that a program ends with; the last row's code is NULL. */
typedef struct flim_exit_code {
    const char *code, *meaning;
} flim_exit_code;
extern const flim_exit_code flim_exit_codes[];

/* The manual page in section 1: macros of man(7), as groff and mandoc know them. */
void flim_write_man_page(const flim_flag_table *table, FILE *out);
/* A script for `source`, or for the folder completions/ of bash-completion under the program's name. */
void flim_write_bash_completion(const flim_flag_table *table, FILE *out);
/* A script for `source` after compinit, or for a folder of $fpath under the name _PROGRAM. */
void flim_write_zsh_completion(const flim_flag_table *table, FILE *out);

#endif
