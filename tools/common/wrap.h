/* Lines broken to the width of a terminal.
 *
 * For: what programs print on a terminal; a file or a pipe gets each line whole, so that it can be searched.
 * Owns: nothing but what wrap_stream returns, which is the caller's (fclose).  Errors stay with the streams.
 */
#ifndef FLIM_TOOLS_WRAP_H
#define FLIM_TOOLS_WRAP_H

#include <stdio.h>

/* Prints one line of UTF-8 and a line end in rows of at most `columns` (0 = one row).  Rows begin at " | " if the line has
 * such parts, else at a blank that does not part a number from its unit; those after the first are indented, below what follows
 * a short label ("note: ").  A word longer than a row, a path say, stays whole.
 * colour: the control that begins one; NULL = none. */
void wrap_line(FILE *out, const char *line, int columns, const char *colour);
/* A stream whose lines are printed so; fclose ends the last one.  NULL if there is no memory. */
FILE *wrap_stream(FILE *out, int columns);

#endif
