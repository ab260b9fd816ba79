/* Choices: settings that are one word of a list.
 *
 * For: each enum has one list of names, by its values and ending in NULL: what flags, configs and files say, what --help,
 *      messages and reports print.  flim_flag_row.choices takes such a list.
 * Owns: nothing.
 * Errors: FLIM_ERROR_USAGE names what was found, all that is allowed, and the nearest name.
 */
#ifndef FLIM_CHOICES_H
#define FLIM_CHOICES_H

#include <stdbool.h>

#include "flim/status.h"

/* Where decoded cells stay after their first reading.  Batches are bit-identical in every mode. */
typedef enum flim_cache {
    FLIM_CACHE_NONE, /* nowhere: the file is read in each epoch */
    FLIM_CACHE_HOST, /* host memory, as uint8 or uint16; FLIM_ERROR_MEMORY if they do not fit */
    FLIM_CACHE_AUTO, /* a run: device memory, else host memory, if they fit; a data set: host memory, if they take at most
                      * half of what is available.  A note says which */
    FLIM_CACHE_DEVICE /* device memory; a data set keeps them as AUTO does, without the note, until they are uploaded */
} flim_cache;
extern const char *const flim_cache_names[];

/* How cells are split into folds. */
typedef enum flim_split_mode {
    FLIM_SPLIT_AUTO, /* stratified-group if the data have enough groups, else stratified */
    FLIM_SPLIT_STRATIFIED,
    FLIM_SPLIT_GROUP,
    FLIM_SPLIT_STRATIFIED_GROUP,
    FLIM_SPLIT_LEAVE_ONE_GROUP_OUT
} flim_split_mode;
extern const char *const flim_split_mode_names[];

/* What whole numbers in a splits file stand for. */
typedef enum flim_splits_by {
    FLIM_SPLITS_BY_AUTO, /* what can be; FLIM_ERROR_DATA if they can be both and differ */
    FLIM_SPLITS_BY_INDEX, /* cells counted from 0 */
    FLIM_SPLITS_BY_NAME /* cells' names */
} flim_splits_by;
extern const char *const flim_splits_by_names[];

/* What chooses the epoch, on the validation set. */
typedef enum flim_monitor {
    FLIM_MONITOR_VAL_LOSS,
    FLIM_MONITOR_ROC_AUC,
    FLIM_MONITOR_BALANCED_ACCURACY,
    FLIM_MONITOR_F1
} flim_monitor;
extern const char *const flim_monitor_names[];

/* How the threshold is chosen on the validation set: what it maximises, or where it lies. */
typedef enum flim_objective {
    FLIM_OBJECTIVE_BALANCED_ACCURACY,
    FLIM_OBJECTIVE_YOUDEN, /* the same threshold: Youden's J = 2 BA - 1 */
    FLIM_OBJECTIVE_F1,
    FLIM_OBJECTIVE_KMEANS /* no labels: midway between the two centres of the scores */
} flim_objective;
extern const char *const flim_objective_names[];

/* Size of the network. */
typedef enum flim_preset {
    FLIM_PRESET_NANO,
    FLIM_PRESET_TINY,
    FLIM_PRESET_SMALL,
    FLIM_PRESET_BASE,
    FLIM_PRESET_LARGE,
    FLIM_PRESET_XLARGE,
    FLIM_PRESET_GIANT
} flim_preset;
extern const char *const flim_preset_names[];

/* How the learning rate follows the cells per update. */
typedef enum flim_lr_scale { FLIM_LR_SCALE_NONE, FLIM_LR_SCALE_SQRT, FLIM_LR_SCALE_LINEAR } flim_lr_scale;
extern const char *const flim_lr_scale_names[];

/* How the learning rate goes from epoch to epoch (train/lr_schedule.h). */
typedef enum flim_lr_schedule_kind {
    FLIM_LR_SCHEDULE_COSINE,
    FLIM_LR_SCHEDULE_RESTARTS, /* cosines, each longer than the one before by a factor */
    FLIM_LR_SCHEDULE_PLATEAU, /* lowered when the monitored value no longer gets better */
    FLIM_LR_SCHEDULE_CONSTANT
} flim_lr_schedule_kind;
extern const char *const flim_lr_schedule_names[];

/* Which cells an epoch draws. */
typedef enum flim_sampler {
    FLIM_SAMPLER_NATURAL, /* each cell once */
    FLIM_SAMPLER_BALANCED, /* classes equally likely, with replacement */
    FLIM_SAMPLER_GROUP_BALANCED, /* groups equally likely, with replacement */
    FLIM_SAMPLER_CLASS_GROUP /* every class of every group equally often, each cell a bounded number of times */
} flim_sampler;
extern const char *const flim_sampler_names[];

/* Whether training cells are mixed with others, and how. */
typedef enum flim_mixup {
    FLIM_MIXUP_NONE,
    FLIM_MIXUP_COUNTS, /* photons of both, thinned to their shares */
    FLIM_MIXUP_INPUT /* the network's inputs by their shares, after log1p */
} flim_mixup;
extern const char *const flim_mixup_names[];

/* What has one share of its own. */
typedef enum flim_mixup_share { FLIM_MIXUP_SHARE_CELL, FLIM_MIXUP_SHARE_BATCH } flim_mixup_share;
extern const char *const flim_mixup_share_names[];

/* Among which cells of the epoch a partner is drawn. */
typedef enum flim_mixup_partner { FLIM_MIXUP_PARTNER_ALL, FLIM_MIXUP_PARTNER_GROUP } flim_mixup_partner;
extern const char *const flim_mixup_partner_names[];

/* Pretraining: what a prediction of hidden voxels is held against. */
typedef enum flim_masked_loss {
    FLIM_MASKED_POISSON, /* likelihood of their counts */
    FLIM_MASKED_SQUARED /* squared error to log1p(counts) / 10 */
} flim_masked_loss;
extern const char *const flim_masked_loss_names[];

/* Pretraining: which two draws are a pair. */
typedef enum flim_pairs {
    FLIM_PAIRS_VIEW, /* two views of one cell */
    FLIM_PAIRS_CLASS /* a cell and another of its class, from another group where there is one */
} flim_pairs;
extern const char *const flim_pairs_names[];

/* Pretraining: what a batch is drawn from. */
typedef enum flim_batch_from { FLIM_BATCH_FROM_ALL, FLIM_BATCH_FROM_DONOR } flim_batch_from;
extern const char *const flim_batch_from_names[];

/* Arithmetic of the network. */
typedef enum flim_precision {
    FLIM_PRECISION_AUTO, /* what the table of src/backend/precision.c says for the device */
    FLIM_PRECISION_FP32,
    FLIM_PRECISION_TF32,
    FLIM_PRECISION_BF16,
    FLIM_PRECISION_FP16,
    FLIM_PRECISION_AMP /* bf16 if the device has it, else fp16 */
} flim_precision;
extern const char *const flim_precision_names[];

/* Activation checkpointing: what the backward pass recomputes to save memory. */
typedef enum flim_recompute {
    FLIM_RECOMPUTE_NONE,
    FLIM_RECOMPUTE_AUTO, /* just enough blocks to stay within the memory limit, in a fixed order */
    FLIM_RECOMPUTE_ALL
} flim_recompute;
extern const char *const flim_recompute_names[];

/* What a run does when the device is out of memory. */
typedef enum flim_on_oom { FLIM_ON_OOM_STOP, FLIM_ON_OOM_RETRY } flim_on_oom;
extern const char *const flim_on_oom_names[];

/* What several processes of one call of train_cv share. */
typedef enum flim_parallel {
    FLIM_PARALLEL_NONE,
    FLIM_PARALLEL_DATA /* the batches of each update (data parallelism) */
} flim_parallel;
extern const char *const flim_parallel_names[];

/* A device by its text: "auto" (the first CUDA device, else the CPU), "cpu", "cuda" (the first) or "cuda:N". */
typedef enum flim_device_kind { FLIM_DEVICE_AUTO, FLIM_DEVICE_CPU, FLIM_DEVICE_CUDA } flim_device_kind;
#define FLIM_DEVICE_TEXTS "auto, cpu, cuda or cuda:N"
/* False if the text is none of them; N is 0..1023. */
bool flim_parse_device(const char *text, flim_device_kind *kind, int *index);

/* The value of a name; `what` names the place in errors: "--cv", "a.yaml:3: cv". */
flim_status flim_parse_choice(const char *what, const char *text, const char *const *names, int *out, flim_error *err);

static inline const char *flim_split_mode_name(flim_split_mode mode)
{
    return flim_split_mode_names[mode];
}

static inline const char *flim_precision_name(flim_precision precision)
{
    return flim_precision_names[precision];
}

static inline const char *flim_recompute_name(flim_recompute recompute)
{
    return flim_recompute_names[recompute];
}

#endif
