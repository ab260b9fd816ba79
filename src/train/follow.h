/* The other ranks: what rank 0 does with its program and loader, they do, too, until it says that nothing more comes.
 *
 * For: flim_train_cv.  They know nothing of folds, folders and files, print nothing and write nothing: draws, decisions and
 *      checkpoints are rank 0's alone.
 * Errors: those of data and device; an error that rank 0 knows of, for it happened to all, is none here.
 */
#ifndef FLIM_TRAIN_FOLLOW_H
#define FLIM_TRAIN_FOLLOW_H

#include "train/run.h"

/* Rank 0: the others open device and data as these settings say; after the device and the data of its own. */
flim_status flim_lead_begin(const flim_run *run, const flim_trainer *trainer, flim_error *err);
/* Rank 0: nothing more comes. */
flim_status flim_lead_end(const flim_run *run, flim_error *err);
/* Ranks from 1 on. */
flim_status flim_follow(flim_ranks *ranks, flim_error *err);

#endif
