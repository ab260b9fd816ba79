/* The text of the progress bar.
 *
 * For: the one line that a terminal shows of a phase: where it is, how fast, how long it takes.  What does not fit into the
 *      terminal's width is left out, the least important first.
 * Owns: nothing.  Cannot fail.
 */
#ifndef FLIM_TOOLS_PROGRESS_BAR_H
#define FLIM_TOOLS_PROGRESS_BAR_H

#include <stddef.h>

#include "flim/train.h"

enum { PROGRESS_BAR_BYTES = 512 };

/* The line for a terminal of so many columns (the last one stays free, where some terminals wrap), in UTF-8. */
void progress_bar_text(const flim_progress *progress, int columns, char out[PROGRESS_BAR_BYTES]);
/* Columns that a UTF-8 text takes; its characters must be one column wide. */
int progress_bar_columns(const char *text);

#endif
