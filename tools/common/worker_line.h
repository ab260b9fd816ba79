/* The one line that a terminal shows of worker processes.
 *
 * For: train_cv --jobs and --devices.  Each worker has a part of its own, the same for all: fold, epoch, share of the phase, loss.
 *      What does not fit into the terminal's width is left out in all of them, the least important first; at last workers are.
 * Owns: nothing.  Cannot fail.
 */
#ifndef FLIM_TOOLS_WORKER_LINE_H
#define FLIM_TOOLS_WORKER_LINE_H

#include "common/progress_bar.h"

/* The line for a terminal of so many columns, the last of which stays free. */
void worker_line_text(const flim_worker_view *worker, int n, int columns, char out[PROGRESS_BAR_BYTES]);

#endif
