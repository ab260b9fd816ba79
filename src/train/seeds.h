/* Several runs of different seeds, one after the other: --seeds.
 *
 * For: flim_train_runs.  Each is a run like any other, in a subfolder of a folder whose config.yaml has the list.
 * Owns: nothing that outlives the call.
 * Errors: those of the runs; FLIM_ERROR_USAGE for another list than the folder's.
 */
#ifndef FLIM_TRAIN_SEEDS_H
#define FLIM_TRAIN_SEEDS_H

#include "flim/train.h"
#include "results/repeated.h"

/* --seeds of the call, or of the folder that is resumed; n = 0: one run. */
flim_status flim_find_seeds(const flim_settings *settings, flim_seeds *out, flim_error *err);
/* The runs, then the summary over them. */
flim_status flim_train_seeds(const flim_settings *settings, const flim_train_hooks *hooks, flim_error *err);

#endif
