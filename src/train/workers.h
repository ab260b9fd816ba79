/* --jobs and --devices: a run's folds (or those of several runs) trained by worker processes.
 *
 * For: flim_train.  Owns: nothing that outlives the call; no worker does.
 * Errors: those of the workers; FLIM_ERROR_NONFINITE if a fold failed, or was given up since its workers died.
 */
#ifndef FLIM_TRAIN_WORKERS_H
#define FLIM_TRAIN_WORKERS_H

#include "flim/train.h"

/* argv: this program's.  From a process with one thread. */
flim_status flim_train_workers(const flim_settings *settings, const flim_train_hooks *hooks, char *const *argv,
                               flim_error *err);

#endif
