/* A run: its settings, folder, log and identity.  Private to src/train/.
 *
 * For: what train_cv does around the trainer (trainer.h) and the study (study.h); a function takes those of the three that
 * it needs.
 * Owns: the folder's locks, train.log, the thread that writes checkpoints.
 */
#ifndef FLIM_TRAIN_RUN_H
#define FLIM_TRAIN_RUN_H

#include "core/lock.h"
#include "core/stop.h"
#include "cv/baseline.h"
#include "flim/provenance.h"
#include "flim/settings.h"
#include "flim/stages.h"
#include "flim/transform.h"
#include "plan/plan.h"
#include "results/baseline_results.h"
#include "results/fold_result.h"
#include "train/checkpoint_writer.h"
#include "train/device_load.h"
#include "train/evaluation.h"
#include "train/identity.h"
#include "train/study.h"
#include "train/train_log.h"
#include "train/trainer.h"

enum { FLIM_PATH_MAX = 4096 };

typedef struct flim_run {
    const flim_settings *settings; /* resolved; on --resume those of the run folder */
    flim_settings adjusted; /* what `settings` points to: the caller's (or the run folder's) with the batch that was found */
    bool found_batch; /* by --batch auto */
    flim_stage *stages; /* (n_stages) of settings->stages; while one trains, `adjusted` has its settings */
    int n_stages; /* 0 = one training with the run's own settings */
    flim_settings base; /* the run's own, beside stages */
    flim_settings compiled; /* those that the program was made for; texts and lists are the run's or a stage's */
    const flim_train_hooks *hooks;
    flim_ranks *ranks; /* of --parallel data, of which this one is rank 0; NULL = none.  The caller's */
    int config_ranks; /* that config.yaml's accumulate is meant for */
    flim_transform augment; /* of training cells, what settings->augment comes to */
    flim_train_log file_log; /* train.log */
    flim_log log; /* the caller's and train.log */

    char folder[FLIM_PATH_MAX];
    flim_lock folder_lock; /* held for moments: while files of the whole run are written */
    flim_lock working; /* shared by all processes at work in the folder, as long as they are */
    flim_lock fold_lock; /* of the fold at work */
    int locked_fold; /* which that is; -1 = none */
    char held
        [1024]; /* of workers: folds that others have, with their holders, as far as they fit; "fold 3 (process 12 on host), ..." */
    flim_lock start_lock; /* --resume-or-start: held until the folder holds a run */
    flim_checkpoint_writer *checkpoints;

    flim_identity identity; /* what the numbers depend on */
    char identity_text[FLIM_IDENTITY_TEXT];
    char checkpoint_text[FLIM_IDENTITY_TEXT + 520]; /* the same and, on a second line, versions */
    char made_by[512]; /* versions, and the CPU's threads: they change last bits, not the mathematics */
    char splits_sha256[65]; /* of splits.json */
    flim_provenance initial; /* of the weights to start from */
    char encoder[FLIM_PATH_MAX]; /* pretrained for the fold at work; "" = none yet */
    flim_study others; /* files that its pretrainings see beside the data, until the folds have been told */
    int pretrainings; /* begun by this process */
    bool pretraining_ended; /* what ended the run was one of its pretrainings */
    bool within; /* it is a pretraining within another run, which says what is to be said */
    int within_fold; /* before that fold of it, or FLIM_FINAL_FOLD */
    char pretraining_splits_sha256[65]; /* of the splits.json whose test cells a pretraining leaves out; "" = none */
    int pretraining_folds; /* in it */
    char counts_sha256[65]; /* of what the scan saw; "" without one */
    char begun_counts_sha256[65]; /* of what the run was begun with; "" = not known */
    flim_string_list unchecked; /* calls that resumed the run without comparing its counts */
    flim_string_list accepted; /* identity texts that checkpoints of this run may carry */
    flim_string_list overridden; /* keys that --resume-override took from the call */
    flim_string_list changes; /* the same with the values: "lr 1e-4 -> 1e-3" */

    int64_t asked_workers; /* as the settings say; `adjusted` has this process's share */
    bool found_ended; /* when this process began all wanted folds had ended */
    bool concluded; /* it has written the summary or the final model */
    int64_t epochs_trained; /* by this call; -1 = by worker processes, which are not counted */
    bool time_logged; /* how long the rest will take */
    bool time_estimated; /* the same, before the first epoch has ended */
    flim_load load; /* of the GPU, in whole epochs after the first of this call */
    bool load_told;
} flim_run;

/* The program whose run it is, for the user to call again. */
static inline const char *flim_run_program(const flim_run *run)
{
    return run->settings->pretrains ? "pretrain" : "train_cv";
}

static inline bool flim_run_stopped(const flim_run *run)
{
    return flim_stopped(run->hooks->stop);
}

/* Cells of a batch: of each rank's, or with --sync-batchnorm of the one that they share. */
static inline int64_t flim_run_batch_cells(const flim_run *run)
{
    return run->settings->batch * (run->settings->sync_batchnorm ? flim_ranks_size(run->ranks) : 1);
}

/* Batches of an update, of all ranks. */
static inline int64_t flim_run_update_batches(const flim_run *run)
{
    return run->settings->accumulate * (run->settings->sync_batchnorm ? 1 : flim_ranks_size(run->ranks));
}

/* FLIM_INTERRUPTED once a signal asked for the end. */
static inline flim_status flim_run_go_on(const flim_run *run, flim_error *err)
{
    return flim_run_stopped(run) ? flim_fail(err, FLIM_INTERRUPTED, "interrupted") : FLIM_OK;
}

/* ---- run_folder.c, run_lock.c ---- */
flim_status flim_run_folder_path(const flim_run *run, const char *name, char out[FLIM_PATH_MAX], flim_error *err);
/* fold_K/NAME */
flim_status flim_run_fold_path(const flim_run *run, int k, const char *name, char out[FLIM_PATH_MAX], flim_error *err);
/* Before the data is read: an --out that holds a run or cannot be written is refused at once. */
flim_status flim_run_folder_check(flim_run *run, flim_error *err);
/* Chooses and makes the folder; opens train.log.  A new run holds the folder's lock until flim_run_folder_begin ends; a
 * resumed one (it holds a run already) takes at once the lock of the one fold that is asked for, FLIM_ERROR_USAGE if
 * another process has it. */
flim_status flim_run_folder_open(flim_run *run, bool resuming, flim_error *err);
/* Writes splits.json, environment.json, resume.json and, last, config.yaml: from then on the folder holds a run. */
flim_status flim_run_folder_begin(flim_run *run, const flim_study *study, const flim_trainer *trainer, flim_error *err);
/* Around files of the whole run (config.yaml, resume.json, summaries): waits while another process writes some. */
flim_status flim_run_folder_lock(flim_run *run, flim_error *err);
void flim_run_folder_unlock(flim_run *run);
/* --resume-or-start: *exists = the folder holds a run.  Else this process is the one to start it, and others wait here until
 * the folder holds a run or this process has ended: flim_run_start_ended. */
flim_status flim_run_wait_to_start(flim_run *run, bool *exists, flim_error *err);
void flim_run_start_ended(flim_run *run);
/* Takes fold k for this process.  If another process works on it: *taken = false and a note (of a worker: into run->held), or
 * FLIM_ERROR_USAGE under --fold k. */
flim_status flim_run_take_fold(flim_run *run, int k, bool *taken, flim_error *err);
void flim_run_release_fold(flim_run *run);
/* --fold K, before the data is read; nothing if the fold has not begun. */
flim_status flim_run_take_fold_asked_for(flim_run *run, flim_error *err);
/* FLIM_ERROR_USAGE if another process works on a fold: what all folds share is not to be changed then. */
flim_status flim_run_check_alone(flim_run *run, int n_folds, const char *what, flim_error *err);
/* Closes train.log and unlocks; FLIM_ERROR_WRITE if train.log could not be written to its end. */
flim_status flim_run_folder_close(flim_run *run, flim_error *err);
/* True if fold_K/FAILED stands; reason gets its text. */
bool flim_run_fold_has_failed(const flim_run *run, int k, char reason[1024]);

/* ---- run_share.c: with others at work (hooks->shared); nothing alone ---- */
/* This process's loader threads. */
void flim_run_take_share(flim_run *run);
/* What programs of this process may take of the device: a margin's share where others have it, too. */
flim_plan_budget flim_run_budget(const flim_run *run, const flim_trainer *trainer);
void flim_run_say_begun(flim_run *run, int n_folds);
void flim_run_at_fold(const flim_run *run, int k);
/* Fold k (or FLIM_FINAL_FOLD) failed in the hands of another of them: it would fail again. */
bool flim_run_is_failed_by_another(const flim_run *run, int k);
/* No wanted fold is left: each is done or has failed.  *all_done: every fold of the run is done. */
bool flim_run_has_ended(const flim_run *run, int n_folds, bool *all_done);
/* summary.json is younger than the end of each fold. */
bool flim_run_is_summed_up(const flim_run *run, int n_folds);

/* ---- history.c ---- */
/* What history.csv of a folder shows: the epochs of one training, behind those of the stages before it. */
typedef struct flim_history {
    const char *folder;
    const char *stage; /* name, for a column of its own; NULL = the training is no stage */
    const struct flim_history *before; /* the stage before; NULL = none */
    const flim_fold_state *state;
} flim_history;
/* Epochs of the stages before. */
int64_t flim_history_epochs_before(const flim_history *history);
/* All rows, into a new file that takes the place of the old one. */
flim_status flim_write_history(const flim_history *history, flim_error *err);
/* The last row, at the end of the file that flim_write_history has left. */
flim_status flim_append_history(const flim_history *history, flim_error *err);

/* ---- stages.c ---- */
/* Reads settings->stages, and refuses what no training can do. */
flim_status flim_run_read_stages(flim_run *run, flim_error *err);
void flim_run_free_stages(flim_run *run);
/* Epochs of all stages before this one, and of all, at most: what keys random numbers, and the time of the run. */
int64_t flim_run_epochs_before(const flim_run *run, int stage);
int64_t flim_run_epochs(const flim_run *run);
/* Logs what each stage's program will need. */
flim_status flim_run_plan_stages(const flim_run *run, const flim_trainer *trainer, flim_error *err);
/* The stage's settings become the run's, with the program for them; nothing in a run without stages. */
flim_status flim_run_enter_stage(flim_run *run, const flim_study *study, flim_trainer *trainer, int stage, flim_error *err);
/* The run's own settings again; the program stays. */
void flim_run_leave_stages(flim_run *run);

/* ---- events.c ---- */
/* The same as an event file of TensorBoard. */
flim_status flim_write_events(const flim_history *history, flim_error *err);
flim_status flim_append_events(const flim_history *history, flim_error *err);
/* epoch_records.c: FLIM_ERROR_USAGE if this build cannot write what the settings ask for. */
flim_status flim_check_records(const flim_settings *settings, flim_error *err);

/* ---- run_program.c ---- */
/* The network, weights to start from, the batch of --batch auto, and the learning rate.  Needs device, data and folds. */
flim_status flim_run_build_network(flim_run *run, const flim_study *study, flim_trainer *trainer, flim_error *err);
/* Program, loader and cells in device memory; with --on-oom retry, or (if the run has not begun) after --batch auto, in
 * smaller batches until they fit. */
flim_status flim_run_make_program(flim_run *run, const flim_study *study, flim_trainer *trainer, bool begun, flim_error *err);

/* Whether this call trains fold k. */
static inline bool flim_run_wants_fold(const flim_run *run, int k)
{
    return run->settings->fold < 0 || run->settings->fold == k;
}

/* ---- initial_weights.c ---- */
/* The file of --pretrained or --init-weights, or the encoder of the fold at work; "" without. */
const char *flim_run_start_file(const flim_run *run);
/* --init-weights or the encoder of --pretrained into the trainer, and what they say of themselves into run->initial; refuses those of
 * another bin width, and tells of what they have seen. */
flim_status flim_run_read_initial_weights(flim_run *run, const flim_study *study, flim_trainer *trainer, flim_error *err);
/* How many test cells of fold k the weights to start from had seen; -1 = not known.  0 without such weights. */
int64_t flim_run_seen_test_cells(const flim_run *run, const flim_study *study, int k);
int64_t flim_run_seen_holdout_cells(const flim_run *run, const flim_study *study);
/* A fold's own encoder, from `path`, in place of the fold's before.  FLIM_ERROR_DATA if it is not that of fold k (or
 * FLIM_FINAL_FOLD), or has seen a cell of its validation or test set or one that is held out. */
flim_status flim_run_read_encoder(flim_run *run, const flim_study *study, flim_trainer *trainer, int k, const char *path,
                                  flim_error *err);

/* ---- pretraining_per_fold.c: nothing in a run that does not ask for it ---- */
/* After the data's identity is known: --pretraining-data is opened and scanned, and becomes part of the identity with the settings
 * of the pretrainings; refuses files whose cells are others. */
flim_status flim_run_look_at_pretraining(flim_run *run, const flim_study *study, flim_error *err);
/* After the folds are known: what each pretraining will see, into the log. */
flim_status flim_run_tell_pretraining(flim_run *run, const flim_study *study, flim_error *err);
/* The encoder of fold k (or FLIM_FINAL_FOLD) into the trainer, pretrained first, from its checkpoint if there is one, unless it is
 * there.  The trainer's program is dropped meanwhile, and made anew.  FLIM_ERROR_NONFINITE marks the fold as failed. */
flim_status flim_run_pretrain_fold(flim_run *run, const flim_study *study, flim_trainer *trainer, int k, flim_error *err);

/* train_cv.c: one whole pretraining in settings->out, before fold k of a run (or FLIM_FINAL_FOLD), from where it stands if it has been
 * begun.  hooks: without `shared` and `ranks`. */
flim_status flim_train_within(const flim_settings *settings, const flim_train_hooks *hooks, int k, flim_error *err);
/* The program anew, and what the run folder says of its batch if memory made it smaller. */
flim_status flim_run_remake_program(flim_run *run, const flim_study *study, flim_trainer *trainer, flim_error *err);
/* ---- recipe.c ---- */
/* FLIM_ERROR_USAGE if the folds or classes do not allow what the settings ask for. */
flim_status flim_run_check_recipe(const flim_run *run, const flim_study *study, flim_error *err);

/* ---- run_events.c: hooks->event, if the caller wants it; those of a fold are in fold.h ---- */
/* Without a device in a dry run. */
void flim_run_event_start(const flim_run *run, const flim_study *study, const flim_trainer *trainer);
void flim_run_event_split(const flim_run *run, const flim_study *study); /* one per fold */
/* Fold k is done with result (NULL: the final model, which has none), or has failed. */
void flim_run_event_fold_end(const flim_run *run, int k, const flim_fold_result *result, const char *failed);
/* mean, sd, pooled: (FLIM_N_METRICS) */
void flim_run_event_summary(const flim_run *run, int done, int n_folds, const double mean[], const double sd[],
                            const double pooled[]);
void flim_run_event_end(const flim_run *run, double seconds, flim_status status, const flim_error *err);

/* ---- learning_rate.c ---- */
/* Scales the learning rate for the cells per update (trainer->learning_rate), and says what a user must know of it. */
void flim_run_scale_learning_rate(const flim_run *run, const flim_study *study, flim_trainer *trainer);

/* ---- batch_size.c ---- */
/* --batch auto: finds it.  Needs device, network and splits. */
flim_status flim_run_find_batch(flim_run *run, const flim_study *study, flim_trainer *trainer, flim_error *err);
/* --batch auto, before the run has begun: there is less memory than when the batch was tried; an eighth less.  False if
 * the batch was given or is one cell. */
bool flim_run_lower_found_batch(flim_run *run, const flim_error *why);
/* About half the batch, and the accumulation that keeps the cells per update; false if the batch is one cell. */
bool flim_run_smaller_batch(const flim_run *run, const flim_study *study, int64_t *batch, int64_t *accumulate);
/* --on-oom retry: half the batch, or less, with the cells per update unchanged.  False if there is no smaller batch or
 * retrying was not asked for. */
bool flim_run_shrink_batch(flim_run *run, const flim_study *study, const flim_error *why);

/* ---- memory_notes.c, cost.c, watch_load.c ---- */
/* Before the program is allocated: the memory plan. */
flim_status flim_log_memory_plan(const flim_run *run, const flim_study *study, flim_trainer *trainer, flim_error *err);
/* After the first epoch: planned against used. */
void flim_log_memory_use(const flim_run *run, const flim_trainer *trainer);
/* After the first whole epoch: the time and price of the rest. */
/* Epochs of the run after this one (0-based) of fold k, at most: refits and the final model count. */
int64_t flim_run_epochs_left(const flim_run *run, int n_folds, int k, int64_t epoch);
void flim_log_time_left(const flim_run *run, int n_folds, int k, int64_t epoch, double seconds);
/* Before the first epoch has ended: the time of the whole run, of so many epochs, with a hint if it is long. */
void flim_log_estimate(const flim_run *run, const flim_trainer *trainer, double seconds, double per_batch, int64_t epochs);
void flim_log_cost(const flim_run *run, double seconds);
/* After a whole epoch that took so many seconds in all: a warning, once, if the GPU is not busy. */
void flim_run_watch_load(flim_run *run, const flim_trainer *trainer, const flim_epoch_row *row, double seconds);

/* ---- device_cache_plan.c ---- */
/* Refuses --cache device on a device without memory of its own. */
flim_status flim_run_check_cache(const flim_run *run, const flim_trainer *trainer, flim_error *err);
/* What the data set is opened with. */
flim_cache flim_run_cache_of_data(const flim_run *run, const flim_trainer *trainer);
/* Device bytes that --cache device is to take; 0 with the other modes. */
int64_t flim_run_device_cache_bytes(const flim_run *run, const flim_study *study);
/* After compiling: cells go to the device if asked to, or (auto) if they fit beside the program. */
flim_status flim_run_plan_device_cache(const flim_run *run, const flim_study *study, flim_trainer *trainer, flim_error *err);
/* Not to the device after all. */
flim_status flim_run_drop_device_cache(const flim_run *run, const flim_study *study, flim_trainer *trainer, flim_error *err);
/* After allocating: sends them there. */
flim_status flim_run_fill_device_cache(const flim_run *run, const flim_study *study, flim_trainer *trainer, flim_error *err);

/* ---- augmentation.c ---- */
/* Fills run->augment, notes what it is, and refuses what the cells cannot go through.  After the scan. */
flim_status flim_run_read_augmentation(flim_run *run, const flim_study *study, flim_error *err);
/* Whether cells of these widths (n, bytes per voxel in device memory) can go through it there. */
bool flim_run_augments_widths(const flim_run *run, const uint8_t *widths, int64_t n);

/* ---- resume_settings.c ---- */
/* The settings of given->out's config.yaml with the call's if that is allowed; out is initialised. */
flim_status flim_resume_settings(flim_run *run, const flim_settings *given, flim_settings *out, flim_error *err);
/* Of a pretraining within another run: the settings that it is given, with the batch that it was begun with. */
flim_status flim_resume_settings_within(const flim_settings *given, flim_settings *out, flim_error *err);
/* Writes config.yaml anew with what was overridden. */
flim_status flim_resume_write_config(flim_run *run, flim_error *err);

/* ---- resume.c ---- */
/* The run was begun by as many processes as resume.json says: the accumulation of this call's, so that an update has as many
 * batches as before, or with --sync-batchnorm their batch, so that theirs together has as many cells; FLIM_ERROR_USAGE if they
 * cannot share them equally.  After the settings of the run. */
flim_status flim_resume_ranks(flim_run *run, flim_error *err);
/* Fills run->identity: first from the data, after the scan; then from splits.json, network, device and settings. */
flim_status flim_resume_identify_data(flim_run *run, const flim_study *study, flim_error *err);
/* Counts of other files into what the scan saw. */
flim_status flim_resume_add_counts(flim_run *run, const flim_study *study, flim_error *err);
flim_status flim_resume_identify_rest(flim_run *run, const flim_trainer *trainer, flim_error *err);
/* A new run's resume.json. */
flim_status flim_resume_begin(flim_run *run, flim_error *err);
/* Compares with resume.json what is known so far; nothing of the data can be overridden. */
flim_status flim_resume_check_data(flim_run *run, flim_error *err);
/* Compares the whole identity, takes what --resume-override allows, and fills run->accepted.  With the folder's lock held. */
flim_status flim_resume_check(flim_run *run, int n_folds, flim_error *err);
/* After --on-oom retry changed batch and accumulate: run folder and checkpoints go on with them.  With the folder's lock
 * held. */
flim_status flim_resume_rebatch(flim_run *run, const flim_trainer *trainer, flim_error *err);

/* ---- startup.c ---- */
void flim_startup_device(const flim_run *run, const flim_trainer *trainer); /* the four start-up lines */
void flim_startup_data(const flim_run *run, const flim_study *study); /* the data table */
void flim_startup_network(const flim_run *run, const flim_trainer *trainer);

/* ---- fold.c ---- */
/* Trains, evaluates and writes fold k (0-based), from its checkpoint if there is one. */
flim_status flim_run_fold(flim_run *run, const flim_study *study, flim_trainer *trainer, int k, flim_error *err);
/* Removes what a kill after DONE may have left of fold k (or FLIM_FINAL_FOLD): its checkpoints. */
void flim_run_fold_clean(flim_run *run, int k);

/* ---- done_folds.c ---- */
/* --resume, before anything is trained: the weights and predictions of the folds that are done can be read and are theirs;
 * FLIM_ERROR_DATA says what to do about one that is not. */
flim_status flim_run_check_done_folds(const flim_run *run, const flim_study *study, const flim_trainer *trainer,
                                      flim_error *err);

/* ---- final_model.c ---- */
/* --final: one model of all cells that stand in a fold, into final/.  All folds are done. */
flim_status flim_run_final_model(flim_run *run, const flim_study *study, flim_trainer *trainer, flim_error *err);

/* ---- run_baselines.c ---- */
typedef struct flim_run_baselines {
    float *logits[FLIM_N_BASELINES]; /* (n,K') */
    int32_t *predicted[FLIM_N_BASELINES]; /* (n) */
} flim_run_baselines;
/* Fits them in the run's folds; nothing without a scan. */
flim_status flim_run_fit_baselines(const flim_run *run, const flim_study *study, flim_run_baselines *out, flim_error *err);
/* Writes baseline_*.csv, whose rows are the test cells of the folds that are done. */
flim_status flim_run_write_baselines(const flim_run *run, const flim_study *study, const flim_run_baselines *baselines,
                                     flim_error *err);
void flim_run_free_baselines(flim_run_baselines *baselines);

/* ---- summary.c, holdout.c ---- */
/* Metrics of all folds that are done, pooled and hold-out: summary.json, summary.csv, and the table. */
flim_status flim_run_summary(const flim_run *run, const flim_study *study, flim_error *err);
/* holdout_predictions.csv, once all folds are done. */
flim_status flim_run_holdout(flim_run *run, const flim_study *study, flim_trainer *trainer, flim_error *err);

#endif
