/* The run: cross-validated training of one data set into one run folder, what train_cv does; or, with the settings of
 * flim_settings_init_pretraining, the training of an encoder without labels, what pretrain does.
 *
 * For: flim_train_cv takes resolved settings and does everything: device, data, scan, folds, training, evaluation, summary.
 * Owns: the run folder's lock while it runs.  Settings and hooks are the caller's and must outlive the call.
 * Errors: any status of flim/status.h; FLIM_INTERRUPTED when hooks.stop became non-zero (the checkpoint is then written);
 *      FLIM_ERROR_NONFINITE when at least one fold failed and the others are done.
 */
#ifndef FLIM_TRAIN_H
#define FLIM_TRAIN_H

#include "flim/device.h"
#include "flim/log.h"
#include "flim/ranks.h"
#include "flim/settings.h"
#include "flim/status.h"

typedef enum flim_phase_kind {
    FLIM_PHASE_SCAN,
    FLIM_PHASE_TRAIN,
    FLIM_PHASE_VALIDATE,
    FLIM_PHASE_TEST,
    FLIM_PHASE_HOLDOUT,
    FLIM_PHASE_IMPORT, /* of flim_import: done and total count cells */
    FLIM_PHASE_PREDICT /* predict: fold and folds are the model and the models */
} flim_phase_kind;

/* Where the run stands, after every batch. */
typedef struct flim_progress {
    flim_phase_kind phase;
    int fold, folds; /* 0-based, as everywhere; fold -1: the final model; folds 0: outside folds.  predict: its models */
    int64_t epoch, epochs; /* 1-based */
    int64_t done, total; /* batches of this phase */
    int64_t cells; /* cells of this phase so far */
    double seconds; /* since the phase began */
    int64_t epochs_left; /* of the whole run after this one, at most, where seconds are an epoch's; 0 = none, or unknown */
    double loss; /* mean training loss of the epoch so far; NaN where unknown */
    bool pretraining; /* of the fold's encoder (--pretrain-per-fold) */
    const flim_device_status *device; /* how the device does; NULL or NaN where unknown */
} flim_progress;

/* What a process is told and says that trains folds of a run together with others (--jobs, --devices).  It takes its share of
 * the machine, leaves alone what another has or has failed at, and sums up only if it is the last one to end. */
typedef struct flim_shared_run {
    int processes, on_device; /* on this machine; of them on this one's device */
    bool first; /* it was the first one: it says how the run stands if there is nothing to train */
    int run; /* which of the caller's runs this is, from 0 */
    void (*begun)(void *context, int run, int left); /* the folder holds a run; folds that are left */
    void (*fold)(void *context, int run, int fold); /* it works at this fold now (the final model: 65535); -1: at none */
    void *context;
} flim_shared_run;

/* Where a worker process of --jobs or --devices stands. */
typedef struct flim_worker_view {
    const char *name; /* "cuda:0", "1" */
    bool at_work;
    flim_progress progress; /* folds = 0: of no fold yet */
} flim_worker_view;

typedef struct flim_train_hooks {
    flim_log log; /* every line that a user should read; also written to train.log */
    void (*progress)(void *context, const flim_progress *progress); /* may be NULL */
    void (*workers)(void *context, const flim_worker_view *worker, int n); /* instead, with worker processes; may be NULL */
    /* What happened, for programs: a JSON object in one line, whose field "event" is `name` (docs/train_cv.md lists them).  What
     * is a warning or a note comes through log only.  May be NULL. */
    void (*event)(void *context, const char *name, const char *json);
    void *context; /* of progress, workers and event */
    const volatile int *stop; /* non-zero: end after the current batch; may be NULL */
    const char *command_line; /* for environment.json; may be NULL */
    const flim_string_list *explicit_keys; /* keys given by flags or --set, compared on --resume; may be NULL */
    const flim_shared_run *shared; /* NULL: this process trains alone */
    /* Gets the group of processes of `parallel: data`, to be closed with flim_ranks_close once an error has been told; NULL: such
     * a run is refused.  In all but rank 0 the call only does what that one says, without a line in the log. */
    flim_ranks **ranks;
} flim_train_hooks;

/* run_folder (may be NULL) gets the folder's path as soon as it exists: 4096 bytes. */
flim_status flim_train_cv(const flim_settings *settings, const flim_train_hooks *hooks, char *run_folder, flim_error *err);

/* flim_train_cv for each of --seeds, one after the other, in this process. */
flim_status flim_train_runs(const flim_settings *settings, const flim_train_hooks *hooks, flim_error *err);

/* What train_cv does: flim_train_runs, here or, with --jobs or --devices, in worker processes, each of which is this program
 * started once more with the same argv and more flags.  For a process with one thread.  Its main asks flim_worker_begin
 * (train/worker.h) first whether it is such a worker. */
flim_status flim_train(const flim_settings *settings, const flim_train_hooks *hooks, char *const *argv, flim_error *err);

#endif
