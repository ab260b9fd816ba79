/* A fold at work: what fold.c, fold_epochs.c and fold_test.c share. */
#ifndef FLIM_TRAIN_FOLD_H
#define FLIM_TRAIN_FOLD_H

#include "train/run.h"

typedef struct flim_fold_work {
    flim_run *run;
    const flim_study *study;
    flim_trainer *trainer;
    int k; /* 0-based */
    const flim_fold *part;
    flim_fold_state state;
    flim_monitor monitor; /* val_loss if the validation part lacks a class */
    float *val_logits; /* (n_val,K') */
    char *identity; /* of its checkpoints */
    char folder[FLIM_PATH_MAX], checkpoint[FLIM_PATH_MAX];
} flim_fold_work;

/* fold.c: the program's state into f->state, and that to the thread that writes checkpoints. */
flim_status flim_fold_get_state(flim_fold_work *f, flim_error *err);
flim_status flim_fold_save(flim_fold_work *f, flim_error *err);

/* fold_epochs.c: epochs until the last one or until patience runs out; a checkpoint after each. */
flim_status flim_fold_train(flim_fold_work *f, flim_error *err);

/* fold_provenance.c: what the fold's weight file is to say; the caller's to free. */
flim_status flim_fold_provenance(const flim_fold_work *f, flim_provenance *out, flim_error *err);

/* fold_test.c: the weights of the chosen epoch, its threshold from the validation part, then the test part; their files. */
flim_status flim_fold_test(flim_fold_work *f, flim_error *err);
/* Logits and labels (n), the caller's, of the validation or the test part.  FLIM_ERROR_NONFINITE if a logit is not
 * finite and must be. */
flim_status flim_fold_evaluate(flim_fold_work *f, flim_phase_kind phase, int64_t epoch, bool must_be_finite, float *logits,
                               int32_t **label, flim_error *err);

#endif
