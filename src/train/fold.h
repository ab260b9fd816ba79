/* A training at work: what fold.c, fold_epochs.c, fold_test.c, fold_refit.c and final_model.c share.
 *
 * What is trained is a value: a part (its validation set may be empty), a length, and a folder.  A fold's own training chooses
 * the epoch on its validation set; its refit and the final model are of the same kind, without a validation set and with
 * a given length.
 */
#ifndef FLIM_TRAIN_FOLD_H
#define FLIM_TRAIN_FOLD_H

#include "results/fold_result.h"
#include "train/run.h"

typedef struct flim_fold_work {
    flim_run *run;
    const flim_study *study;
    flim_trainer *trainer;
    int k; /* 0-based, FLIM_FINAL_FOLD or FLIM_PRETRAINING_FOLD: the fold of the random numbers */
    char name[32]; /* "fold 2", "fold 2 refit", "final model": in lines of the log */
    const flim_fold *part;
    int stage; /* of the run's stages; 0 without any */
    const struct flim_fold_work *before; /* the stage whose best weights it starts from; NULL = the run's initial ones */
    flim_history history; /* of fold.c's folds: begun there; of others by flim_fold_work_through */
    int64_t first_epoch; /* epochs of the stages before, at most: its random numbers begin behind theirs */
    int64_t epochs; /* at most; without a validation set exactly */
    int64_t last_draws; /* cells of the last epoch; 0 = as many as of the others */
    const flim_fold_state *pace; /* a training whose learning rates are taken, update by update; NULL = the schedule's */
    int64_t pace_updates; /* its updates per epoch */
    flim_fold_state state;
    flim_monitor monitor; /* val_loss if the validation set lacks a class */
    float *val_logits; /* (n_val,K') */
    char *identity; /* of its checkpoints */
    double *class_weight; /* (K) of the training loss, or NULL */
    float *recalibrated, *kept_statistic; /* (S): those made again; training's meanwhile; NULL without --recalibrate-bn */
    struct flim_activations *activations; /* --diagnostics: while it trains */
    bool exchanged, replaced; /* the program has the averages, statistics that are not training's */
    bool records_begun; /* this process has written its records of epochs, and appends to them now */
    char folder[FLIM_PATH_MAX], checkpoint[FLIM_PATH_MAX];
} flim_fold_work;

/* fold.c: the program's state into f->state, and that to the thread that writes checkpoints. */
flim_status flim_fold_get_state(flim_fold_work *f, flim_error *err);
flim_status flim_fold_save(flim_fold_work *f, flim_error *err);

/* fold.c: trains f to its last epoch, from its checkpoint if there is one; run, study, trainer, k, name, part, epochs and folder
 * are set, and what else is not zero.  Then flim_fold_work_free, after an error, too. */
flim_status flim_fold_work_through(flim_fold_work *f, flim_error *err);
void flim_fold_work_free(flim_fold_work *f);
/* DONE if status is FLIM_OK, FAILED if a number was not finite; the status to go on with. */
flim_status flim_fold_end(flim_fold_work *f, flim_status status, flim_error *err);
/* Cells that the epoch in state draws. */
int64_t flim_fold_draws(const flim_fold_work *f);
/* Updates of an epoch of n cells. */
int64_t flim_fold_updates(const flim_fold_work *f, int64_t n);

/* fold_refit.c: the training of f's whole part, training and validation cells together, for as many updates as f's chosen
 * epoch had had.  whole: its cells, the caller's to free (train).  A checkpoint of it that f has trained past is removed. */
flim_status flim_fold_begin_refit(const flim_fold_work *f, bool f_has_trained, flim_fold *whole, flim_fold_work *out,
                                  flim_error *err);

/* epoch_records.c: after each epoch, and after the last one, what is written of them. */
flim_status flim_fold_record_epoch(flim_fold_work *f, flim_error *err);
flim_status flim_fold_record_end(flim_fold_work *f, flim_error *err);

/* After the test: what is written of it beside the fold's result. */
flim_status flim_fold_record_test(const flim_fold_work *f, const flim_fold_result *result, flim_error *err);
/* events.c, --tensorboard: the test at the end of the fold's event file. */
flim_status flim_append_test_events(const flim_fold_work *f, const flim_fold_result *result, flim_error *err);

/* fold_epochs.c: epochs until the last one or until patience runs out; a checkpoint after each. */
flim_status flim_fold_train(flim_fold_work *f, flim_error *err);

/* run_events.c */
void flim_run_event_fold_start(const flim_fold_work *f, bool resumed);
void flim_run_event_estimate(const flim_fold_work *f, double seconds, double per_batch, int64_t epochs);
void flim_run_event_epoch(const flim_fold_work *f, const flim_epoch_row *row, bool best);

/* fold_provenance.c: what the fold's weight file is to say; the caller's to free. */
flim_status flim_fold_provenance(const flim_fold_work *f, flim_provenance *out, flim_error *err);

/* recipe.c: class weights and what the sampler does, both told in the log. */
flim_status flim_fold_begin_recipe(flim_fold_work *f, flim_error *err);

/* fold_weights.c: what is evaluated, chosen and saved. */
flim_status flim_fold_weights_create(flim_fold_work *f, flim_error *err);
void flim_fold_weights_free(flim_fold_work *f);
/* Before an evaluation within training: the program gets the averages, and statistics made again; after it, and after an
 * error, training's again, to the bit. */
flim_status flim_fold_weights_in(flim_fold_work *f, flim_error *err);
flim_status flim_fold_weights_out(flim_fold_work *f, flim_error *err);
/* BatchNorm's running statistics in the program are made again from training cells. */
flim_status flim_fold_recalibrate(flim_fold_work *f, flim_error *err);
/* What was evaluated becomes the best weights; f->state is the program's. */
void flim_fold_weights_keep(flim_fold_work *f);

/* What was evaluated last: (P), (S); f->state is the program's. */
void flim_fold_weights_evaluated(const flim_fold_work *f, const float **parameter, const float **statistic);

/* fold_diagnostics.c, --diagnostics; all of them do nothing without.  Room in the state, before a checkpoint is read; the probe of
 * activations, before training; an epoch's figures into its row, once it has been evaluated and f->state is the program's. */
flim_status flim_fold_diagnostics_create(flim_fold_work *f, flim_error *err);
flim_status flim_fold_diagnostics_begin(flim_fold_work *f, flim_error *err);
flim_status flim_fold_diagnose(const flim_fold_work *f, flim_epoch_row *row, flim_error *err);
void flim_fold_diagnostics_end(flim_fold_work *f);

/* fold_test.c: the threshold from the validation set, by the chosen epoch's weights; then the test set, by those of
 * `trained` (f or its refit); their files. */
flim_status flim_fold_test(flim_fold_work *f, const flim_fold_work *trained, flim_error *err);
/* FLIM_ERROR_NONFINITE if a parameter or statistic of the chosen epoch is not finite. */
flim_status flim_fold_check_weights(const flim_fold_work *f, flim_error *err);
/* Logits and labels (n), the caller's, of the validation or the test set.  FLIM_ERROR_NONFINITE if a logit is not
 * finite and must be. */
flim_status flim_fold_evaluate(flim_fold_work *f, flim_phase_kind phase, int64_t epoch, bool must_be_finite, float *logits,
                               int32_t **label, flim_error *err);

#endif
