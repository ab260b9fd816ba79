/* Settings of a run: one table gives the YAML keys, the flags, --help and --print-config.
 *
 * For: train_cv and the tools.  Layers, weakest first: built-in defaults, a YAML file (with include:), --set key=value, named
 *      flags.
 * Owns: flim_settings owns its strings; flim_settings_free.  Errors: FLIM_ERROR_USAGE names the key or flag, file and line,
 *      what was found, what is allowed and the nearest known name; a config file that cannot be read is one, too.  Calls that
 *      set or read leave earlier values in place for what they did not reach.
 */
#ifndef FLIM_SETTINGS_H
#define FLIM_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "flim/choices.h"
#include "flim/flags.h"
#include "flim/status.h"

/* Fields in the order of --help.  Strings are never NULL once defaults are set. */
typedef struct flim_settings {
    /* data */
    flim_string_list data; /* default data/flim.h5 */
    char *axes; /* "NTYX" */
    bool allow_external; /* data files may lead to files outside of their folders */
    bool mask_counts;
    bool scan; /* --no-scan */
    int64_t workers, prefetch;
    flim_cache cache;
    /* cross-validation */
    int64_t folds;
    flim_split_mode cv;
    flim_string_list holdout_group;
    double val_fraction;
    flim_monitor monitor;
    flim_objective threshold_for;
    bool tta;
    int64_t fold; /* -1 = all */
    char *splits; /* a splits file to use; "" = make them */
    flim_splits_by splits_by; /* how its whole numbers are read */
    flim_string_list train_groups, val_groups, test_groups; /* one split; none = folds */
    double fraction; /* of the cells, 1 = all */
    char *exclude; /* a list of cells to leave out; "" = none */
    /* network */
    flim_preset preset;
    int64_t width, depth; /* 0 = the preset's */
    double dropout, block_dropout; /* of the head; of the blocks */
    char *init_weights; /* "" = Kaiming */
    char *pretrained; /* a file whose encoder to start from; "" = none */
    double encoder_lr_scale; /* of lr, for the encoder of `pretrained` */
    bool freeze_encoder;
    int64_t unfreeze_after; /* epochs; 0 = as freeze_encoder says */
    /* training */
    int64_t epochs, batch, eval_batch, accumulate; /* batch 0 = auto; eval_batch 0 = batch */
    double lr;
    int64_t lr_batch; /* cells per update that lr is meant for */
    flim_lr_scale lr_scale;
    flim_lr_schedule_kind schedule;
    int64_t warmup_epochs, restart_epochs, restart_factor, plateau_patience;
    double plateau_factor;
    double weight_decay, clip, label_smoothing, focal_gamma;
    char *class_weights; /* "none", "balanced" or numbers with commas between */
    double ema; /* decay per update; 0 = none */
    bool recalibrate_bn;
    int64_t patience;
    bool refit, final_model; /* --final */
    flim_sampler sampler;
    flim_string_list augment; /* items of flim/augment.h; default none */
    flim_string_list stages; /* flim/stages.h */
    char *stage; /* the only one of them to train; "" = all */
    int64_t sampler_repeats;
    flim_mixup mixup;
    double mixup_alpha, mixup_probability;
    flim_mixup_share mixup_share;
    flim_mixup_partner mixup_partner;
    uint64_t seed;
    char *seeds; /* of several runs; "" = one run of `seed` */
    /* device */
    char *device; /* as flim_device_open takes it */
    flim_parallel parallel;
    bool sync_batchnorm; /* with `parallel` */
    flim_precision precision;
    flim_recompute checkpoint_activations;
    double margin; /* share of the device's memory that auto choices may fill */
    flim_on_oom on_oom;
    bool benchmark, deterministic;
    /* run */
    char *out; /* "" = runs/<date>-<time> */
    double checkpoint_minutes; /* 0 = at the end of each epoch only */
    bool tensorboard; /* event files beside history.csv */
    bool diagnostics; /* further columns in history.csv: losses of the batches, activations, size of updates */
    double price_per_hour; /* 0 = not known */
    int64_t jobs; /* worker processes; 1 = none */
    flim_string_list devices; /* a worker process for each; none = device */
    int64_t worker_retries;
    bool resume_or_start; /* resume if there is a run in `out`, else start one */
    /* pretraining: rows of the program pretrain alone */
    double mask_ratio;
    flim_masked_loss masked_loss;
    double contrastive; /* weight of the loss; 0 = none */
    flim_pairs contrastive_pairs;
    flim_batch_from batch_from;
    flim_string_list groups_out; /* never seen */
    bool pretrains; /* the settings are pretrain's: no row, flim_settings_init_pretraining sets it */
    bool resume, resume_override, quiet, log_json, dry_run, verbose;
    bool default_config; /* no setting itself: ./flimcv.yaml was read, as no --config named a file */
} flim_settings;

/* Built-in defaults; free with flim_settings_free. */
flim_status flim_settings_init(flim_settings *settings, flim_error *err);
/* The same with pretrain's defaults; they are parsed, printed and read as pretrain's from then on. */
flim_status flim_settings_init_pretraining(flim_settings *settings, flim_error *err);
void flim_settings_free(flim_settings *settings);
/* Gives `to`, which is initialised, all values of `from`. */
flim_status flim_settings_copy(const flim_settings *from, flim_settings *to, flim_error *err);

/* Resolves a command line (argv[1..]) over --config FILE or ./flimcv.yaml over the defaults.  settings must be initialised.
 * With --resume ./flimcv.yaml is not read: the caller takes the run's own config.yaml and compares.
 * explicit_keys (may be NULL) gets the keys that flags or --set gave, with --resume also those of --config, for --resume's
 * comparison; free its items.
 * *go: a run is asked for; else what --help, --version or --print-config ask for was written to `out`. */
flim_status flim_settings_parse(flim_settings *settings, int argc, char *const *argv, flim_string_list *explicit_keys,
                                FILE *out, bool *go, flim_error *err);

/* The config that is read if none is named: "flimcv.yaml" if the working folder has one, else "". */
const char *flim_settings_default_config(void);
/* Reads a YAML file over what settings holds. */
flim_status flim_settings_read(flim_settings *settings, const char *path, flim_error *err);
/* Sets one key from text, as --set does. */
flim_status flim_settings_set(flim_settings *settings, const char *key, const char *value, flim_error *err);

/* The resolved YAML, which gives the same settings when read back. */
flim_status flim_settings_write(const flim_settings *settings, const char *path, flim_error *err);
flim_status flim_settings_print(const flim_settings *settings, FILE *out, flim_error *err);

/* Compares; calls `differs` for each row whose values differ, with both as text. */
void flim_settings_compare(const flim_settings *a, const flim_settings *b,
                           void (*differs)(void *context, const flim_flag_row *row, const char *value_a, const char *value_b),
                           void *context);

#endif
