/* The one table of settings, shared by the files of this folder. */
#ifndef FLIM_CONFIG_SETTINGS_H
#define FLIM_CONFIG_SETTINGS_H

#include "config/flag_table.h"
#include "flim/settings.h"

/* What --resume does with a setting to which the call gives another value than the run has. */
typedef enum flim_on_resume {
    FLIM_ON_RESUME_UNSET, /* the row does not say, which no setting's may do */
    FLIM_ON_RESUME_REFUSED, /* it changes the run's numbers: refused, unless --resume-override */
    FLIM_ON_RESUME_MOVED, /* a file whose contents are compared: --resume-override takes its new path, no number changes */
    FLIM_ON_RESUME_FIXED, /* cells, folds or weights would mean something else: always refused */
    FLIM_ON_RESUME_TAKEN, /* how to run, not what to compute: the call's value is taken */
    FLIM_ON_RESUME_CALL /* of the call, not of the run */
} flim_on_resume;

/* The fields of a run's identity (train/identity.h), in the order of its text.  Checkpoints carry the text: a field is added
 * at the end, and none is renamed. */
typedef enum flim_identity_field {
    FLIM_IDENTITY_UNSET, /* the row does not say, which no setting's may do */
    FLIM_IDENTITY_NONE, /* no number depends on it, or other fields hold what it leads to */
    FLIM_IDENTITY_CELLS, /* from here on: of the data */
    FLIM_IDENTITY_SHAPE,
    FLIM_IDENTITY_CLASSES,
    FLIM_IDENTITY_LABELS,
    FLIM_IDENTITY_GROUPS,
    FLIM_IDENTITY_NAMES, /* up to here */
    FLIM_IDENTITY_SPLITS,
    FLIM_IDENTITY_WIDTH,
    FLIM_IDENTITY_INIT_WEIGHTS,
    FLIM_IDENTITY_SEED,
    FLIM_IDENTITY_AXES,
    FLIM_IDENTITY_MASK_COUNTS,
    FLIM_IDENTITY_MONITOR,
    FLIM_IDENTITY_THRESHOLD_FOR,
    FLIM_IDENTITY_DEVICE,
    FLIM_IDENTITY_PRECISION,
    FLIM_IDENTITY_DETERMINISTIC,
    FLIM_IDENTITY_BENCHMARK,
    FLIM_IDENTITY_EPOCHS,
    FLIM_IDENTITY_BATCH,
    FLIM_IDENTITY_ACCUMULATE,
    FLIM_IDENTITY_EVAL_BATCH,
    FLIM_IDENTITY_LR,
    FLIM_IDENTITY_WEIGHT_DECAY,
    FLIM_IDENTITY_CLIP,
    FLIM_IDENTITY_LABEL_SMOOTHING,
    FLIM_IDENTITY_DROPOUT,
    FLIM_IDENTITY_SAMPLER,
    FLIM_IDENTITY_PATIENCE,
    FLIM_IDENTITY_TTA,
    FLIM_IDENTITY_BLOCK_DROPOUT,
    FLIM_IDENTITY_AUGMENT,
    FLIM_IDENTITY_CLASS_NAMES, /* from here on: of the data, too */
    FLIM_IDENTITY_TIME_RANGE,
    FLIM_IDENTITY_MASK, /* up to here */
    FLIM_IDENTITY_REFIT,
    FLIM_IDENTITY_SCHEDULE,
    FLIM_IDENTITY_WARMUP_EPOCHS,
    FLIM_IDENTITY_RESTART_EPOCHS,
    FLIM_IDENTITY_RESTART_FACTOR,
    FLIM_IDENTITY_PLATEAU_FACTOR,
    FLIM_IDENTITY_PLATEAU_PATIENCE,
    FLIM_IDENTITY_CLASS_WEIGHTS,
    FLIM_IDENTITY_FOCAL_GAMMA,
    FLIM_IDENTITY_EMA,
    FLIM_IDENTITY_RECALIBRATE_BN,
    FLIM_IDENTITY_SAMPLER_REPEATS,
    FLIM_IDENTITY_MIXUP,
    FLIM_IDENTITY_MIXUP_ALPHA,
    FLIM_IDENTITY_MIXUP_PROBABILITY,
    FLIM_IDENTITY_MIXUP_SHARE,
    FLIM_IDENTITY_MIXUP_PARTNER,
    FLIM_IDENTITY_DEPTH,
    FLIM_IDENTITY_STAGES,
    FLIM_IDENTITY_ENCODER_LR_SCALE,
    FLIM_IDENTITY_FREEZE_ENCODER,
    FLIM_IDENTITY_UNFREEZE_AFTER,
    FLIM_IDENTITY_PRETRAINING, /* of pretrainings only: all of their own settings, and their cells */
    FLIM_IDENTITY_SYNC_BATCHNORM,
    FLIM_IDENTITY_FIELDS
} flim_identity_field;

/* Rows of train_cv's settings (offsets in flim_settings), in the order of --help. */
extern const flim_flag_table flim_settings_table;
/* The same and, behind them, those that only pretrain has. */
extern const flim_flag_table flim_all_settings_table;
/* Those that pretrain takes, in the order of its --help and with its defaults: rows (FLIM_MOST_SETTINGS); returns how many. */
int flim_pretrain_rows(flim_flag_row *rows);
/* The rows that settings are printed and compared by: (n), in *row. */
static inline int flim_settings_rows(const flim_settings *settings, const flim_flag_row **row)
{
    *row = flim_all_settings_table.row;
    return settings->pretrains ? flim_all_settings_table.n : flim_settings_table.n;
}

/* The row of a YAML key ("val_fraction"), or NULL. */
const flim_flag_row *flim_settings_find(const char *key);
/* FLIM_ERROR_USAGE: "WHERE: unknown key 'KEY' (did you mean ...)". */
flim_status flim_settings_unknown_key(const char *where, const char *key, flim_error *err);
/* resolve.c: FLIM_ERROR_USAGE for values that do not go together. */
flim_status flim_settings_check(const flim_settings *settings, flim_error *err);
/* Refuses values other than pretrain's defaults of settings that it has not: what a config holds out, say, it would train on. */
flim_status flim_pretraining_refuse_others(const flim_settings *settings, flim_error *err);
/* Refuses what a pretraining would not look at: how hidden voxels are scored where none is hidden, what a pair is where there are
 * none.  Each only if it was asked for: a config may hold it for another call. */
flim_status flim_pretraining_check_used(const flim_settings *settings, bool asked_for_loss, bool asked_for_pairs,
                                        flim_error *err);
/* Sets a key's row from text; a list gets one more item, or those of "[a, b]". */
flim_status flim_settings_set_row(flim_settings *settings, const flim_flag_row *row, const char *what, const char *text,
                                  flim_error *err);

enum { FLIM_MOST_SETTINGS = 128, FLIM_KEY_MAX = 64, FLIM_MOST_CLASS_WEIGHTS_TEXT = 150 };

#endif
