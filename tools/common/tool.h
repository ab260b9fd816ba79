/* The main of a program whose command line is one table of flags. */
#ifndef FLIM_TOOLS_TOOL_H
#define FLIM_TOOLS_TOOL_H

#include "common/console.h"
#include "flim/flags.h"

/* What a tool does with the options that were read; operands are empty if the table has none.  Results go to stdout. */
typedef flim_status (*tool_run)(void *options, const flim_string_list *operands, console *screen, flim_error *err);

/* Reads the command line into options and runs, unless it asks for help or the version.  An error, which standard output that
 * did not take everything is, too, goes to stderr.  Returns the exit code. */
int tool_main(const flim_flag_table *table, void *options, tool_run run, int argc, char **argv);

/* "written: report.html, metrics.csv": the paths (n) that are neither NULL, empty nor standard output; no line if there are none. */
void tool_say_written(const flim_log *log, const char *const *path, int n);

#endif
