/* What the files of a run share: the run itself.  Private to src/train/. */
#ifndef FLIM_TRAIN_RUN_H
#define FLIM_TRAIN_RUN_H

#include <stdio.h>

#include "core/lock.h"
#include "core/stop.h"
#include "flim/dataset.h"
#include "flim/device.h"
#include "flim/loader.h"
#include "flim/metrics.h"
#include "flim/predictions.h"
#include "cv/sampler.h"
#include "flim/settings.h"
#include "flim/split.h"
#include "flim/train.h"
#include "train/checkpoint.h"
#include "train/evaluation.h"
#include "train/identity.h"
#include "train/train_log.h"

enum { FLIM_PATH_MAX = 4096 };

/* The device's figures during an epoch (meter.c). */
typedef struct flim_meter {
    double looked; /* when, in seconds; -1 = not yet */
    flim_device_status now;
    double busy, watts, most_bytes, most_celsius;
    int64_t n_busy, n_watts, n_looks;
} flim_meter;

typedef struct flim_run {
    const flim_settings *settings; /* resolved; on --resume those of the run folder */
    const flim_train_hooks *hooks;
    flim_train_log file_log; /* train.log */
    flim_log log; /* the caller's and train.log */
    char folder[FLIM_PATH_MAX];
    flim_lock folder_lock; /* held for moments: while files of the whole run are written */
    flim_lock fold_lock; /* of the fold at work */
    int locked_fold; /* which that is; -1 = none */

    flim_device *device;
    flim_precision precision;
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
    flim_identity identity; /* what the numbers depend on */
    char identity_text[FLIM_IDENTITY_TEXT];
    char checkpoint_text[FLIM_IDENTITY_TEXT + 520]; /* the same and, on a second line, versions */
    char made_by[512]; /* versions, and the CPU's threads: they change last bits, not the mathematics */
    char counts_sha256[65]; /* of what the scan saw; "" without one */
    flim_string_list accepted; /* identity texts that checkpoints of this run may carry */
    flim_string_list overridden; /* keys that --resume-override took from the call */
    flim_string_list changes; /* the same with the values: "lr 1e-4 -> 1e-3" */
    int64_t eval_batch;
    flim_settings adjusted; /* what `settings` points to: the caller's (or the run folder's) with the batch that was found */
    bool found_batch; /* by --batch auto */
    double lr; /* of the first epoch, scaled */
    int64_t planned_bytes, allocated_bytes, free_before; /* of the device: by plan, as it told, and before */
    int64_t epochs_trained; /* by this call */
    bool time_told; /* how long the rest will take */
    flim_meter meter;

    flim_cell_summary *summary; /* (n) of the scan; NULL with --no-scan */
    double *decay; /* (n,T) summed over the mask; likewise */
    uint8_t *cache_widths; /* (n) bytes of a voxel of each cell in the device cache; NULL if there is none */
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
                             .outputs = run->net.head[0].outputs,
                             .batch = run->eval_batch,
                             .hooks = run->hooks,
                             .at = {.phase = phase,
                                    .fold = k + 1,
                                    .folds = run->splits.n_folds,
                                    .epoch = epoch + 1,
                                    .epochs = run->settings->epochs}};
}

/* ---- run_folder.c ---- */
flim_status flim_run_folder_path(const flim_run *run, const char *name, char out[FLIM_PATH_MAX], flim_error *err);
/* Before the data is read: an --out that holds a run or cannot be written is refused at once. */
flim_status flim_run_folder_check(flim_run *run, flim_error *err);
/* Chooses and makes the folder; opens train.log.  A new run holds the folder's lock until flim_run_folder_begin ends; a resumed one
 * (it holds a run already) takes at once the lock of the one fold that is asked for, FLIM_ERROR_USAGE if another process has it. */
flim_status flim_run_folder_open(flim_run *run, bool resuming, flim_error *err);
/* Writes splits.json, environment.json, resume.json and, last, config.yaml: from then on the folder holds a run. */
flim_status flim_run_folder_begin(flim_run *run, flim_error *err);
/* Around files of the whole run (config.yaml, resume.json, summaries): waits while another process writes some. */
flim_status flim_run_folder_lock(flim_run *run, flim_error *err);
void flim_run_folder_unlock(flim_run *run);
/* Takes fold k for this process.  If another process works on it: *taken = false and a note, or FLIM_ERROR_USAGE under --fold k. */
flim_status flim_run_take_fold(flim_run *run, int k, bool *taken, flim_error *err);
void flim_run_release_fold(flim_run *run);
/* FLIM_ERROR_USAGE if another process works on a fold: what all folds share is not to be changed then. */
flim_status flim_run_check_alone(flim_run *run, const char *what, flim_error *err);
/* Closes train.log and unlocks; FLIM_ERROR_WRITE if train.log could not be written to its end. */
flim_status flim_run_folder_close(flim_run *run, flim_error *err);
flim_status flim_run_write_history(const char *folder, const flim_fold_state *state, flim_error *err);

/* True where fold_K/FAILED stands; reason gets its text. */
bool flim_run_fold_has_failed(const flim_run *run, int k, char reason[1024]);

/* ---- memory.c ---- */
/* Finds the batch of --batch auto and scales the learning rate.  Needs device, network and splits. */
flim_status flim_run_settle_batch(flim_run *run, flim_error *err);
/* --batch auto, before the run has begun: there is less memory than when the batch was tried; an eighth less, and the learning rate
 * that goes with it.  False where the batch was given or is one cell. */
bool flim_run_lower_found_batch(flim_run *run, const flim_error *why);
/* About half the batch, and the accumulation that keeps the cells an update; false where the batch is one cell. */
bool flim_run_smaller_batch(const flim_run *run, int64_t *batch, int64_t *accumulate);
/* --on-oom retry: half the batch, or less, with the cells an update kept.  False where there is no smaller batch or retrying was
 * not asked for. */
bool flim_run_shrink_batch(flim_run *run, const flim_error *why);
/* After an epoch of fold k: the first of a call says what memory it takes, the first whole one what time and money the rest will. */
void flim_run_note_epoch(flim_run *run, int k, int64_t epoch, bool whole, double seconds);
void flim_run_note_cost(const flim_run *run, double seconds);

/* ---- meter.c ---- */
void flim_run_meter_begin(flim_run *run); /* of an epoch */
void flim_run_meter_look(flim_run *run); /* after a batch; most calls do nothing */
void flim_run_meter_end(const flim_run *run, flim_epoch_row *row);

/* ---- cache.c ---- */
/* Refuses --cache device on a device without memory of its own. */
flim_status flim_run_check_cache(const flim_run *run, flim_error *err);
flim_cache flim_run_cache_of_data(const flim_run *run); /* what the data set is opened with */
/* Device bytes that --cache device is to take; 0 with the other modes. */
int64_t flim_run_device_cache_bytes(const flim_run *run);
/* After compiling: cells go to the device where they were asked to, or (auto) where they fit beside the program. */
flim_status flim_run_plan_cache(flim_run *run, flim_error *err);
flim_status flim_run_unplan_cache(flim_run *run, flim_error *err); /* not to the device after all */
/* After allocating: sends them there. */
flim_status flim_run_fill_cache(flim_run *run, flim_error *err);

/* ---- resume_settings.c ---- */
/* A flag or --set of the call gave it. */
bool flim_run_is_explicit(const flim_train_hooks *hooks, const char *key);
/* The settings of given->out's config.yaml with the call's where that is allowed; out is initialised. */
flim_status flim_resume_settings(flim_run *run, const flim_settings *given, flim_settings *out, flim_error *err);
/* Writes config.yaml anew with what was overridden. */
flim_status flim_resume_write_config(flim_run *run, flim_error *err);

/* ---- resume.c ---- */
/* Fills run->identity: first from the data, after the scan; then from splits.json, network, device and settings. */
flim_status flim_resume_identify_data(flim_run *run, flim_error *err);
flim_status flim_resume_identify_rest(flim_run *run, flim_error *err);
/* A new run's resume.json. */
flim_status flim_resume_begin(flim_run *run, flim_error *err);
/* Compares with resume.json what is known so far; nothing of the data can be overridden. */
flim_status flim_resume_check_data(flim_run *run, flim_error *err);
/* Compares the whole identity, takes what --resume-override allows, and fills run->accepted. */
flim_status flim_resume_check(flim_run *run, flim_error *err);

/* After --on-oom retry changed batch and accumulate: the run folder and its checkpoints go on with them. */
flim_status flim_resume_rebatch(flim_run *run, flim_error *err);

/* ---- copies.c ---- */
/* Warns where cells that are copies of each other are tested in different folds.  Needs scan and splits; nothing without a scan. */
flim_status flim_run_warn_of_copies(const flim_run *run, flim_error *err);

/* ---- startup.c ---- */
void flim_startup_device(flim_run *run); /* the four start-up lines */
void flim_startup_data(flim_run *run, const flim_cell_summary *summary); /* the data table; summary (n) or NULL */
flim_status flim_startup_plan(flim_run *run, flim_error *err); /* network and memory */

/* ---- fold.c ---- */
/* Trains, evaluates and writes fold k (0-based), from its checkpoint where there is one. */
flim_status flim_run_fold(flim_run *run, int k, flim_error *err);
/* Removes what a kill after DONE may have left of fold k: its checkpoint. */
void flim_run_fold_clean(flim_run *run, int k);

/* ---- baselines.c ---- */
/* Fits them in the run's folds and writes baseline_*.csv, whose rows are the test cells of the folds that are done. */
flim_status flim_run_baselines(flim_run *run, flim_error *err);

/* ---- summary.c ---- */
/* Metrics of all folds that are done, pooled and hold-out: summary.json, summary.csv, and the table. */
flim_status flim_run_summary(flim_run *run, flim_error *err);
flim_status flim_run_holdout(flim_run *run, flim_error *err);

#endif
