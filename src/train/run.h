/* What the files of a run share: the run itself.  Private to src/train/. */
#ifndef FLIM_TRAIN_RUN_H
#define FLIM_TRAIN_RUN_H

#include <stdio.h>

#include "core/stop.h"
#include "flim/dataset.h"
#include "flim/device.h"
#include "flim/loader.h"
#include "flim/metrics.h"
#include "flim/predictions.h"
#include "flim/sampler.h"
#include "flim/settings.h"
#include "flim/split.h"
#include "flim/train.h"
#include "train/checkpoint.h"
#include "train/evaluate.h"

enum { FLIM_PATH_MAX = 4096 };

/* What chooses the epoch. */
typedef enum flim_monitor {
    FLIM_MONITOR_VAL_LOSS,
    FLIM_MONITOR_ROC_AUC,
    FLIM_MONITOR_BALANCED_ACCURACY,
    FLIM_MONITOR_F1
} flim_monitor;

/* Lines for the user go to the caller's log and into train.log; those from before the folder exists are kept for it. */
typedef struct flim_run_log {
    const flim_log *user;
    FILE *file; /* train.log, NULL before the folder exists */
    char *early; /* text kept until then */
    size_t early_bytes;
} flim_run_log;

typedef struct flim_run {
    const flim_settings *settings; /* resolved; on --resume those of the run folder */
    const flim_train_hooks *hooks;
    flim_run_log tee;
    flim_log log; /* writes through tee */
    char folder[FLIM_PATH_MAX];
    int lock; /* file descriptor, -1 = none */

    flim_device *device;
    flim_precision precision;
    flim_sampler sampler;
    flim_monitor monitor;
    flim_dataset *dataset;
    const flim_dataset_info *info;
    flim_split_data split_data; /* views into info */
    char data_sha256[65];
    flim_splits splits;
    flim_network net;
    float *initial_parameter, *initial_statistic; /* (P), (S) of --init-weights; NULL without */
    flim_program *program;
    flim_loader *loader;
    flim_checkpoint_writer *checkpoints;
    char identity[2048]; /* of checkpoints: data, splits, network, precision, training settings */
    int64_t eval_batch;

    flim_cell_summary *summary; /* (n) of the scan; NULL with --no-scan */
    double *decay; /* (n,T) summed over the mask; likewise */
} flim_run;

/* True once a signal asked for the end. */
static inline bool flim_run_stopped(const flim_run *run)
{
    return flim_stopped(run->hooks->stop);
}

/* The run's program over a part of the data, for fold k (0-based) and epoch (0-based). */
static inline flim_evaluation flim_run_evaluation(const flim_run *run, flim_phase_kind phase, int k, int64_t epoch)
{
    return (flim_evaluation){.program = run->program,
                             .loader = run->loader,
                             .outputs = run->net.head.outputs,
                             .batch = run->eval_batch,
                             .hooks = run->hooks,
                             .at = {.phase = phase,
                                    .fold = k + 1,
                                    .folds = run->splits.n_folds,
                                    .epoch = epoch + 1,
                                    .epochs = run->settings->epochs}};
}

/* ---- run_folder.c ---- */
flim_status flim_run_folder_path(flim_run *run, const char *name, char out[FLIM_PATH_MAX], flim_error *err);
/* Chooses, makes, locks and marks the folder; opens train.log.  resuming: it must hold a run already. */
flim_status flim_run_folder_open(flim_run *run, bool resuming, flim_error *err);
/* Writes splits.json, environment.json and, last, config.yaml: from then on the folder holds a run. */
flim_status flim_run_folder_begin(flim_run *run, flim_error *err);
void flim_run_folder_close(flim_run *run);
flim_status flim_run_write_history(const char *folder, const flim_fold_state *state, flim_error *err);

/* ---- startup.c ---- */
void flim_startup_device(flim_run *run); /* the four start-up lines */
void flim_startup_data(flim_run *run, const flim_cell_summary *summary); /* the data table; summary (n) or NULL */
flim_status flim_startup_plan(flim_run *run, flim_error *err); /* network and memory */

/* ---- fold.c ---- */
/* Trains, evaluates and writes fold k (0-based), from its checkpoint where there is one. */
flim_status flim_run_fold(flim_run *run, int k, flim_error *err);

/* ---- baselines.c ---- */
/* Fits them in the run's folds and writes baseline_*.csv, whose rows are the test cells of the folds that are done. */
flim_status flim_run_baselines(flim_run *run, flim_error *err);

/* ---- summary.c ---- */
/* Metrics of all folds that are done, pooled and hold-out: summary.json, summary.csv, and the table. */
flim_status flim_run_summary(flim_run *run, flim_error *err);
flim_status flim_run_holdout(flim_run *run, flim_error *err);

#endif
