/* BatchNorm's running statistics made again, from batches of training cells, without training (flim_program_recalibrate).
 *
 * For: folds and pretrainings, before an evaluation.
 * Owns: nothing.
 * Errors: those of reading and of the device; FLIM_INTERRUPTED if a signal came.  Of several ranks rank 0 does it alone; with
 *      sync_batchnorm all do, each with its part of every batch, and all then have the same statistics.
 */
#ifndef FLIM_TRAIN_RECALIBRATION_H
#define FLIM_TRAIN_RECALIBRATION_H

#include "train/order.h"
#include "train/trainer.h"

typedef struct flim_recalibration {
    const flim_train_hooks *hooks;
    flim_progress at; /* phase, device, fold, folds, epoch, epochs of the progress to report */
    const flim_draw *draws; /* (n) the cells, in order */
    int64_t n;
    uint64_t seed; /* of the cells' ids */
    uint32_t fold;
} flim_recalibration;

/* The program's statistics become the mean over the batches of each batch's. */
flim_status flim_trainer_recalibrate(flim_trainer *trainer, const flim_recalibration *recalibration, flim_error *err);

/* The part of this rank in one that rank 0 has told it of. */
flim_status flim_trainer_follow_recalibration(flim_trainer *trainer, flim_order *order, flim_error *err);

#endif
