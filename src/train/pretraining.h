/* A pretraining: a run whose settings are pretrain's.  What differs from a training of folds.
 *
 * For: train_cv.c, which runs both; the epochs of fold_epochs.c.
 * Owns: nothing beside the run's.
 */
#ifndef FLIM_TRAIN_PRETRAINING_H
#define FLIM_TRAIN_PRETRAINING_H

#include "train/fold.h"
#include "train/pretraining_recipe.h"

/* pretraining_parts.c: study->splits gets one fold: cells to train on, and those that are only evaluated. */
flim_status flim_pretraining_split(flim_run *run, flim_study *study, flim_error *err);

/* pretraining.c: the network; the identity's own field; the epoch's evaluation into its row. */
flim_status flim_pretraining_build(const flim_run *run, const flim_study *study, flim_network *net, flim_error *err);
flim_status flim_pretraining_identify(flim_run *run, const flim_study *study, flim_error *err);
flim_status flim_pretraining_evaluate(flim_fold_work *f, flim_epoch_row *row, flim_error *err);
/* Everything from the first epoch, or the checkpoint, to encoder.safetensors and DONE. */
flim_status flim_run_pretraining(flim_run *run, const flim_study *study, flim_trainer *trainer, flim_error *err);

#endif
