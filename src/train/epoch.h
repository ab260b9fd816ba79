/* One epoch of training.
 *
 * For: a fold's epochs.  Begins where the state stands, so that an interrupted epoch goes on bit-identically.
 * Owns: nothing.
 * Errors: FLIM_ERROR_NONFINITE names the cells whose loss or gradient is not finite; FLIM_INTERRUPTED if a signal came:
 *      the state is then at the batch it came to, or epoch->lost is set.
 */
#ifndef FLIM_TRAIN_EPOCH_H
#define FLIM_TRAIN_EPOCH_H

#include "train/fold_state.h"
#include "train/order.h"
#include "train/trainer.h"

typedef struct flim_epoch {
    const flim_train_hooks *hooks;
    int fold, folds; /* fold: 0-based; from `folds` on it is none of them */
    int64_t epochs; /* of the fold */
    int64_t epochs_left; /* of the whole run after this one, at most */
    const flim_draw *draws; /* (n) its cells, in order */
    int64_t n;
    uint64_t seed; /* of the cells' ids */
    flim_transform augment; /* of its cells; n = 0: none */
    const flim_mix *mix; /* (n) their partners; NULL = none */
    flim_mix_of mix_of;
    double learning_rate;
    flim_step step; /* of its updates; first, last, divisor and learning rate are set here */
    int64_t first_epoch; /* of the random numbers: those of the stages before */
    flim_fold_state *state; /* epoch, calls, totals and skipped_before; calls and totals move */
    /* Once, after a few batches: seconds per batch.  May be NULL. */
    void (*measured)(void *context, double seconds_per_batch);
    bool notes; /* the mean loss of each batch goes into state->losses */
    double checkpoint_seconds; /* between two checkpoints inside the epoch; 0 = none */
    flim_status (*save)(void *context, flim_error *err); /* writes one */
    void *context;
    bool lost; /* interrupted inside an accumulation: its gradients are in no checkpoint, and nothing is to be saved */
} flim_epoch;

/* row: of history.csv, without its validation figures, and of its diagnostics with those of the losses alone. */
flim_status flim_trainer_epoch(flim_trainer *trainer, flim_epoch *epoch, flim_epoch_row *row, flim_error *err);
/* The epoch that rank 0 has told this one of. */
flim_status flim_trainer_follow_epoch(flim_trainer *trainer, flim_order *order, flim_error *err);

#endif
