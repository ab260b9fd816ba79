/* The worker's side of --jobs and --devices: a train_cv that was started by another (crew.h).
 *
 * For: train_cv's main.  A worker runs flim_train_runs with hooks that write into its pipe; nothing of it goes to the terminal.
 * Owns: nothing to be freed.
 * Errors: those of the run, which flim_worker_end hands to the process that started it.
 */
#ifndef FLIM_TRAIN_WORKER_H
#define FLIM_TRAIN_WORKER_H

#include "flim/train.h"

typedef struct flim_worker {
    int pipe;
    double said; /* when progress was told last */
    flim_shared_run shared;
} flim_worker;

/* True if this process was started as a worker.  `worker` must stay where it is. */
bool flim_worker_begin(flim_worker *worker);
/* log, event (if there is one), progress and shared of a worker; the rest of `hooks` stays. */
void flim_worker_hooks(flim_worker *worker, flim_train_hooks *hooks);
/* Says how it ended; the exit code. */
int flim_worker_end(flim_worker *worker, flim_status status, const flim_error *err);

#endif
