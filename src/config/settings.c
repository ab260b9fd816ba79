#include "config/settings.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/parse.h"
#include "core/try.h"
#include "config/synonyms.h"
#include "flim/network.h"
#include "formats/yaml.h"

static bool is_device(const char *text)
{
    flim_device_kind kind;
    int index;
    return flim_parse_device(text, &kind, &index);
}

static bool is_seeds(const char *text)
{
    uint64_t seed[1000];
    int n;
    return !text[0] || flim_parse_seeds(text, seed, 1000, &n);
}

/* "all", "0", "0,1,1", also with the words of --device. */
static bool is_devices(const char *text)
{
    char item[32];
    const char *at = text;
    while (strcmp(text, "all") != 0) {
        const size_t length = strcspn(at, ",");
        flim_device_kind kind;
        int index;
        snprintf(item, sizeof item, "%s%.*s", isdigit((unsigned char)*at) ? "cuda:" : "", (int)(length < 20 ? length : 20),
                 at);
        if (length == 0 || !flim_parse_device(item, &kind, &index) || kind == FLIM_DEVICE_AUTO) {
            return false;
        }
        if (!at[length]) {
            break;
        }
        at += length + 1;
    }
    return true;
}

/* N, T, Y or H, X or W, each once, in any order and case. */
static bool is_axes(const char *text)
{
    static const char *const axes[] = {"Nn", "Tt", "YyHh", "XxWw"};
    size_t length = strlen(text), found = 0;
    for (size_t i = 0; i < sizeof axes / sizeof axes[0]; i++) {
        found += strpbrk(text, axes[i]) != NULL;
    }
    return length == 4 && found == 4;
}

/* none, balanced, or positive numbers with commas between. */
static bool is_class_weights(const char *text)
{
    double weight[FLIM_MAX_CLASS_WEIGHTS];
    int n;
    return strcmp(text, "none") == 0 || strcmp(text, "balanced") == 0 ||
           (strlen(text) < FLIM_MOST_CLASS_WEIGHTS_TEXT && flim_parse_weights(text, weight, FLIM_MAX_CLASS_WEIGHTS, &n));
}

#define SWITCH(name) FLIM_VALUE_SWITCH, offsetof(flim_settings, name)
#define INTEGER(name) FLIM_VALUE_INTEGER, offsetof(flim_settings, name)
#define UNSIGNED(name) FLIM_VALUE_UNSIGNED, offsetof(flim_settings, name)
#define REAL(name) FLIM_VALUE_REAL, offsetof(flim_settings, name)
#define TEXT(name) FLIM_VALUE_TEXT, offsetof(flim_settings, name)
#define CHOICE(name) FLIM_VALUE_CHOICE, FLIM_CHOICE_AT(flim_settings, name)
#define LIST(name) FLIM_VALUE_LIST, offsetof(flim_settings, name)

/* Columns: heading, flag, type and field, default, metavar, help, what --resume does, field of the identity; then what is
 * allowed.  A row without the two about runs does not compile. */
#define ROW(heading, flag, field, start, meta, text, resume, identity_of, ...)                                               \
    {                                                                                                                        \
        heading, flag, field, start, meta, text, .on_resume = FLIM_ON_RESUME_##resume,                                       \
                                                 .identity = FLIM_IDENTITY_##identity_of, __VA_ARGS__                        \
    }
static const flim_flag_row rows[] = {
    ROW("Data", "data", LIST(data), "data/flim.h5", "FILE", "HDF5 file with the cells; repeatable", MOVED, NONE),
    ROW(NULL, "axes", TEXT(axes), "NTYX", "AXES", "order of the axes of /counts: N cells, T time bins, Y, X pixels", FIXED,
        AXES, .allowed = "the letters N, T, Y (or H) and X (or W) in some order", .valid = is_axes),
    ROW(NULL, "allow-external", SWITCH(allow_external), "false", NULL,
        "read files outside of the data file's folder, too, where it leads to them (links, views, external storage)", TAKEN,
        NONE),
    ROW(NULL, "mask-counts", SWITCH(mask_counts), "false", NULL, "zero the counts outside the mask", FIXED, MASK_COUNTS),
    ROW(NULL, "scan", SWITCH(scan), "true", NULL, "read and check every cell before training", TAKEN, NONE),
    ROW(NULL, "workers", INTEGER(workers), "8", "N", "loader threads", TAKEN, NONE, .allowed = ">= 1, <= 256"),
    ROW(NULL, "prefetch", INTEGER(prefetch), "4", "N", "batches prepared ahead", TAKEN, NONE, .allowed = ">= 1, <= 64"),
    ROW(NULL, "cache", CHOICE(cache), "auto", "C",
        "where decoded cells are cached; auto: GPU memory, else host memory, if they fit", TAKEN, NONE,
        .choices = flim_cache_names),

    ROW("Cross-validation", "folds", INTEGER(folds), "5", "N", "number of folds, each with its own test set", FIXED, NONE,
        .allowed = ">= 2, <= 65535"),
    ROW(NULL, "cv", CHOICE(cv), "auto", "MODE",
        "how cells are split; auto: stratified-group if the file has enough groups, else stratified (with a warning)", FIXED,
        NONE, .choices = flim_split_mode_names),
    ROW(NULL, "holdout-group", LIST(holdout_group), "", "NAME",
        "group held out of every fold, scored at the end by the fold ensemble; repeatable", FIXED, NONE),
    ROW(NULL, "val-fraction", REAL(val_fraction), "0.15", "F",
        "share of the training cells for the validation set, which selects epoch and threshold; 0 = none", FIXED, NONE,
        .allowed = ">= 0, < 1"),
    ROW(NULL, "monitor", CHOICE(monitor), "val_loss", "M", "metric that selects the best epoch", FIXED, MONITOR,
        .choices = flim_monitor_names),
    ROW(NULL, "threshold-for", CHOICE(threshold_for), "balanced_accuracy", "M",
        "metric that the threshold maximises on the validation set; youden is the same as balanced_accuracy; kmeans: midway "
        "between the two centres of the scores",
        FIXED, THRESHOLD_FOR, .choices = flim_objective_names),
    ROW(NULL, "tta", SWITCH(tta), "false", NULL,
        "evaluate each cell in all 8 symmetries of its plane (4 if H and W differ) and average the logits: validation, "
        "threshold and test alike",
        REFUSED, TTA),
    ROW(NULL, "fold", INTEGER(fold), "all", "K", "only this fold, counted from 0", CALL, NONE, .allowed = ">= 0, <= 65534",
        .word = "all", .word_value = -1),
    ROW(NULL, "splits", TEXT(splits), "", "FILE",
        "use the folds of this file (a run's splits.json, nnU-Net's splits_final.json, or one train, val and test set)",
        FIXED, NONE),
    ROW(NULL, "splits-by", CHOICE(splits_by), "auto", "B",
        "what whole numbers in --splits FILE are: index (cells counted from 0) or name; auto: what they can be, an error if "
        "both",
        FIXED, NONE, .choices = flim_splits_by_names),
    ROW(NULL, "test-groups", LIST(test_groups), "", "A,B",
        "one split instead of folds: test these groups; repeatable, or with commas", FIXED, NONE),
    ROW(NULL, "train-groups", LIST(train_groups), "", "A,B",
        "with --test-groups: train on these, and use no group that is not named; default: all others", FIXED, NONE),
    ROW(NULL, "val-groups", LIST(val_groups), "", "A,B",
        "with --test-groups: the validation set; default: drawn from the training set by --val-fraction", FIXED, NONE),
    ROW(NULL, "fraction", REAL(fraction), "1", "F",
        "use this share of the cells of each class, drawn by --seed before the split", FIXED, NONE, .allowed = "> 0, <= 1"),
    ROW(NULL, "exclude", TEXT(exclude), "", "FILE",
        "leave out the cells that this file names, one per line by name or number (flim_info --cells lists them)", FIXED,
        NONE),

    ROW("Network", "preset", CHOICE(preset), "base", "P", "size of the network", FIXED, NONE, .choices = flim_preset_names),
    ROW(NULL, "width", INTEGER(width), "preset", "N",
        "channels of the first convolution, a multiple of 4, instead of the preset's; later ones have 2 and 4 times as many",
        FIXED, NONE, .allowed = ">= 4, <= 1024", .word = "preset", .word_value = 0),
    ROW(NULL, "depth", INTEGER(depth), "preset", "N",
        "residual blocks at each of the three resolutions, instead of the preset's", FIXED, NONE, .allowed = ">= 1, <= 3",
        .word = "preset", .word_value = 0),
    ROW(NULL, "dropout", REAL(dropout), "0.25", "P", "dropout probability in the head", REFUSED, DROPOUT,
        .allowed = ">= 0, < 1"),
    ROW(NULL, "block-dropout", REAL(block_dropout), "0", "P",
        "probability that a block drops a channel; before a BatchNorm this shifts its running variances, which are then "
        "wrong in evaluation (Li et al., CVPR 2019)",
        REFUSED, BLOCK_DROPOUT, .allowed = ">= 0, < 1"),
    ROW(NULL, "init-weights", TEXT(init_weights), "", "FILE", "start from the weights of this .safetensors file", MOVED,
        NONE),
    ROW("Fine-tuning", "pretrained", TEXT(pretrained), "", "FILE",
        "start from the encoder of this .safetensors file, of pretrain or of train_cv, with a new head: classes and size of "
        "the "
        "cells may be others",
        MOVED, NONE),
    ROW(NULL, "encoder-lr-scale", REAL(encoder_lr_scale), "1", "F",
        "with --pretrained or --pretrain-per-fold: learning rate of the encoder, as a share of the head's", REFUSED,
        ENCODER_LR_SCALE, .allowed = "> 0, <= 1"),
    ROW(NULL, "freeze-encoder", SWITCH(freeze_encoder), "false", NULL,
        "likewise: train the head alone, as a probe of what the encoder has learned", REFUSED, FREEZE_ENCODER),
    ROW(NULL, "unfreeze-after", INTEGER(unfreeze_after), "0", "N",
        "likewise: train the head alone for N epochs, then the encoder, too; 0 = both from the start", REFUSED,
        UNFREEZE_AFTER, .allowed = ">= 0, <= 1000000"),

    ROW(NULL, "pretrain-per-fold", SWITCH(pretrain_per_fold), "false", NULL,
        "pretrain an encoder for each fold, on its training set alone, and start from it as from --pretrained", FIXED, NONE),
    ROW(NULL, "pretraining", TEXT(pretraining), "", "FLAGS",
        "with --pretrain-per-fold: flags of pretrain, in quotes, as in '--epochs 200 --mask-ratio 0.4'", FIXED, NONE),
    ROW(NULL, "pretraining-data", LIST(pretraining_data), "", "FILE",
        "with --pretrain-per-fold: also pretrain on the cells of this file, whose labels are not read, but on none of a "
        "group "
        "that the fold does not train on; repeatable",
        MOVED, NONE),

    ROW("Training", "epochs", INTEGER(epochs), "75", "N", "maximum epochs per fold", REFUSED, EPOCHS,
        .allowed = ">= 1, <= 1000000"),
    ROW(NULL, "batch", INTEGER(batch), "64", "N", "batch size, in cells; auto: the largest that fits on the device", REFUSED,
        BATCH, .allowed = ">= 1, <= 1048576", .word = "auto", .word_value = 0),
    ROW(NULL, "eval-batch", INTEGER(eval_batch), "batch", "N", "cells per batch in validation and test", REFUSED, EVAL_BATCH,
        .allowed = ">= 1, <= 1048576", .word = "batch", .word_value = 0),
    ROW(NULL, "accumulate", INTEGER(accumulate), "1", "N", "gradient accumulation: batches per optimizer step", REFUSED,
        ACCUMULATE, .allowed = ">= 1, <= 1048576"),
    ROW(NULL, "lr", REAL(lr), "1e-3", "X", "initial learning rate; --schedule changes it", REFUSED, LR, .allowed = "> 0"),
    ROW(NULL, "lr-batch", INTEGER(lr_batch), "64", "N", "effective batch size that lr is meant for, used by --lr-scale",
        REFUSED, NONE, .allowed = ">= 1, <= 1048576"),
    ROW(NULL, "lr-scale", CHOICE(lr_scale), "none", "S",
        "how lr is scaled by effective batch size / lr-batch: no scaling, square-root, or linear", REFUSED, NONE,
        .choices = flim_lr_scale_names),
    ROW(NULL, "schedule", CHOICE(schedule), "constant", "S",
        "learning-rate schedule; cosine and restarts fall to 1e-6, plateau lowers it when --monitor stops improving", REFUSED,
        SCHEDULE, .choices = flim_lr_schedule_names),
    ROW(NULL, "warmup-epochs", INTEGER(warmup_epochs), "0", "N", "epochs of linear warm-up before the schedule", REFUSED,
        WARMUP_EPOCHS, .allowed = ">= 0, <= 1000000"),
    ROW(NULL, "restart-epochs", INTEGER(restart_epochs), "10", "N", "epochs of the first cycle of --schedule restarts",
        REFUSED, RESTART_EPOCHS, .allowed = ">= 1, <= 1000000"),
    ROW(NULL, "restart-factor", INTEGER(restart_factor), "2", "N", "each further cycle is this many times longer", REFUSED,
        RESTART_FACTOR, .allowed = ">= 1, <= 1000"),
    ROW(NULL, "plateau-factor", REAL(plateau_factor), "0.1", "X",
        "factor by which --schedule plateau multiplies the learning rate", REFUSED, PLATEAU_FACTOR, .allowed = "> 0, < 1"),
    ROW(NULL, "plateau-patience", INTEGER(plateau_patience), "5", "N", "epochs without improvement of --monitor before that",
        REFUSED, PLATEAU_PATIENCE, .allowed = ">= 0, <= 1000000"),
    ROW(NULL, "weight-decay", REAL(weight_decay), "1e-3", "X", "weight decay of AdamW", REFUSED, WEIGHT_DECAY,
        .allowed = ">= 0"),
    ROW(NULL, "clip", REAL(clip), "35", "X", "clip the gradient norm to X; 0 = no clipping", REFUSED, CLIP,
        .allowed = ">= 0"),
    ROW(NULL, "label-smoothing", REAL(label_smoothing), "0.05", "S", "label smoothing of the training loss", REFUSED,
        LABEL_SMOOTHING, .allowed = ">= 0, < 1"),
    ROW(NULL, "class-weights", TEXT(class_weights), "none", "W",
        "class weights of the training loss: none, balanced (inverse class frequency in the training set) or one number per "
        "class, as 1,2.5",
        REFUSED, CLASS_WEIGHTS, .allowed = "none, balanced or positive numbers with commas between",
        .valid = is_class_weights),
    ROW(NULL, "focal-gamma", REAL(focal_gamma), "0", "G",
        "focal loss: each class's term of the training loss times (1 - its probability)^G; 0 = cross entropy", REFUSED,
        FOCAL_GAMMA, .allowed = ">= 0"),
    ROW(NULL, "ema", REAL(ema), "0.98", "D",
        "evaluate and save an exponential moving average (EMA) of the weights: after update u it is d x average + (1 - d) x "
        "weights with d the smaller of D and u / (9 + u); 0 = none",
        REFUSED, EMA, .allowed = ">= 0, < 1"),
    ROW(NULL, "recalibrate-bn", SWITCH(recalibrate_bn), "true", NULL,
        "before each evaluation, re-estimate BatchNorm's running statistics from up to 512 training cells, without dropout",
        REFUSED, RECALIBRATE_BN),
    ROW(NULL, "patience", INTEGER(patience), "20", "N", "early stopping: epochs without improvement of --monitor; 0 = never",
        REFUSED, PATIENCE, .allowed = ">= 0, <= 1000000"),
    ROW(NULL, "refit", SWITCH(refit), "false", NULL,
        "once the epoch is selected, retrain on training and validation set for as many updates", FIXED, REFIT),
    ROW(NULL, "final", SWITCH(final_model), "false", NULL,
        "after the folds, train one model on all their cells, for new data; its expected score is that of the folds", TAKEN,
        NONE),
    ROW(NULL, "sampler", CHOICE(sampler), "balanced", "S",
        "how an epoch samples cells; balanced makes classes equally likely, class-group each class of each group", REFUSED,
        SAMPLER, .choices = flim_sampler_names),
    ROW(NULL, "sampler-repeats", INTEGER(sampler_repeats), "4", "N",
        "maximum draws of one cell per epoch with --sampler class-group", REFUSED, SAMPLER_REPEATS,
        .allowed = ">= 1, <= 1000000"),
    ROW(NULL, "augment", LIST(augment), "auto", "A",
        "augmentation of training cells, drawn anew each epoch: flim (symmetries, dimmer exposure), auto (flim, or "
        "symmetry alone where counts are not photons), none, paper (a published script's, not physical) or "
        "NAME:PROBABILITY:LOW:HIGH, as in thin:0.8:0.4:1; repeatable",
        REFUSED, AUGMENT),
    ROW(NULL, "mixup", CHOICE(mixup), "none", "M",
        "train on mixtures of two cells; counts: photons of both, thinned to their shares; input: network inputs, after "
        "log1p",
        REFUSED, MIXUP, .choices = flim_mixup_names),
    ROW(NULL, "mixup-alpha", REAL(mixup_alpha), "0.4", "A", "mixing shares are drawn from Beta(A, A)", REFUSED, MIXUP_ALPHA,
        .allowed = ">= 0.01, <= 4"),
    ROW(NULL, "mixup-probability", REAL(mixup_probability), "1", "P", "probability that a cell or batch is mixed", REFUSED,
        MIXUP_PROBABILITY, .allowed = ">= 0, <= 1"),
    ROW(NULL, "mixup-share", CHOICE(mixup_share), "cell", "S", "draw one share per cell or per batch", REFUSED, MIXUP_SHARE,
        .choices = flim_mixup_share_names),
    ROW(NULL, "mixup-partner", CHOICE(mixup_partner), "all", "P", "partners of a cell; group: of its own group", REFUSED,
        MIXUP_PARTNER, .choices = flim_mixup_partner_names),
    ROW(NULL, "stages", LIST(stages), "", "S",
        "train in stages within each fold, each from the best weights of the one before: a name and settings of its own, as "
        "in 'fine epochs=10 lr=1e-5'; repeatable; in a config a list",
        FIXED, NONE),
    ROW(NULL, "stage", TEXT(stage), "", "NAME", "train this one of the stages alone, from the initial weights", FIXED, NONE),
    ROW(NULL, "seed", UNSIGNED(seed), "42", "N", "random seed of folds, weights, order and dropout", FIXED, SEED),

    ROW(NULL, "seeds", TEXT(seeds), "", "LIST",
        "repeat the cross-validation with each of these seeds, as in 1-5 or 1,2,7: runs in DIR/seed_1, ..., and one summary",
        CALL, NONE, .allowed = "different seeds, as 1-5 or 1,2,7", .valid = is_seeds),

    ROW("Device", "device", TEXT(device), "auto", "D",
        FLIM_DEVICE_TEXTS "; auto prints its choice and why, cuda never falls back to cpu", TAKEN, DEVICE,
        .allowed = FLIM_DEVICE_TEXTS, .valid = is_device),
    ROW(NULL, "parallel", CHOICE(parallel), "none", "P",
        "data: the processes that mpirun or srun has started train one network together, each on its own card with --batch "
        "cells per batch",
        TAKEN, NONE, .choices = flim_parallel_names),
    ROW(NULL, "sync-batchnorm", SWITCH(sync_batchnorm), "false", NULL,
        "with --parallel data: BatchNorm uses the statistics of the batches of all processes together, as of one batch",
        REFUSED, SYNC_BATCHNORM),
    ROW(NULL, "precision", CHOICE(precision), "auto", "P",
        "numerical precision of the network; auto: tf32 from compute capability 8.0 on, fp16 on 7.5, else fp32; amp: bf16 if "
        "the device has it, else fp16",
        REFUSED, PRECISION, .choices = flim_precision_names, .also = "amp", .also_value = "amp"),
    ROW(NULL, "checkpoint-activations", CHOICE(checkpoint_activations), "none", "C",
        "recompute activations in the backward pass (gradient checkpointing); auto: just enough to fit", TAKEN, NONE,
        .choices = flim_recompute_names),
    ROW(NULL, "margin", REAL(margin), "0.85", "F", "share of device memory that auto choices may use", TAKEN, NONE,
        .allowed = "> 0, <= 1"),
    ROW(NULL, "on-oom", CHOICE(on_oom), "stop", "W",
        "if the device still runs out of memory: stop, or retry (half the batch, twice the accumulation)", TAKEN, NONE,
        .choices = flim_on_oom_names),
    ROW(NULL, "benchmark", SWITCH(benchmark), "true", NULL,
        "benchmark the algorithms for each convolution and use the fastest", REFUSED, BENCHMARK),
    ROW(NULL, "deterministic", SWITCH(deterministic), "false", NULL, "bit-for-bit reproducible, somewhat slower", REFUSED,
        DETERMINISTIC),

    ROW("Worker processes", "jobs", INTEGER(jobs), "1", "N",
        "train N folds at the same time, each in a process with its share of the processors and loader threads", CALL, NONE,
        .allowed = ">= 1, <= 1024"),
    ROW(NULL, "devices", LIST(devices), "", "LIST",
        "train a fold on each of these CUDA devices at the same time, as in 0,1,2,3; 0,0: two on one; all: on each there is",
        CALL, NONE, .allowed = "all, or numbers of CUDA devices with commas between", .valid = is_devices),
    ROW(NULL, "worker-retries", INTEGER(worker_retries), "3", "N",
        "if a worker dies, another continues its fold; give up a fold after N more deaths without an epoch in between", CALL,
        NONE, .allowed = ">= 0, <= 1000000"),

    ROW("Run", "out", TEXT(out), "", "DIR", "run folder (default runs/<date>-<time>); must be missing or empty for a new run",
        CALL, NONE),
    ROW(NULL, "checkpoint-minutes", REAL(checkpoint_minutes), "0", "N",
        "also write a checkpoint every N minutes within an epoch; 0 = only at its end", TAKEN, NONE, .allowed = ">= 0"),
    ROW(NULL, "tensorboard", SWITCH(tensorboard), "false", NULL,
        "also write TensorBoard event files, one per fold: tensorboard --logdir DIR", TAKEN, NONE),
    ROW(NULL, "diagnostics", SWITCH(diagnostics), "false", NULL,
        "also write into history.csv, per epoch: spread of the batches' losses, inactive activations, size of the update",
        FIXED, NONE),
    ROW(NULL, "price-per-hour", REAL(price_per_hour), "0", "X",
        "price of the machine per hour, to print the cost of the run; 0 = unknown", TAKEN, NONE, .allowed = ">= 0"),
    ROW(NULL, "resume", SWITCH(resume), "false", NULL, "continue the run in --out DIR, with its settings", CALL, NONE),
    ROW(NULL, "resume-or-start", SWITCH(resume_or_start), "false", NULL,
        "continue the run in --out DIR if there is one, else start it: one command for all of a job's starts, also for "
        "several "
        "processes at once",
        CALL, NONE),
    ROW(NULL, "resume-override", SWITCH(resume_override), "false", NULL,
        "with --resume: continue although flags, device or precision differ from the run's, and list them", CALL, NONE),
    ROW(NULL, "dry-run", SWITCH(dry_run), "false", NULL, "print the fold table and exit", CALL, NONE),
    ROW(NULL, "quiet", SWITCH(quiet), "false", NULL, "print warnings and the result only", CALL, NONE),
    ROW(NULL, "verbose", SWITCH(verbose), "false", NULL, "print HDF5's own error stacks", CALL, NONE),
    ROW(NULL, "log-json", SWITCH(log_json), "false", NULL, "print one JSON object per line", CALL, NONE),

    /* What follows has pretrain alone; the identity holds it as one field. */
    ROW("Pretraining", "mask-ratio", REAL(mask_ratio), "0.4", "F",
        "share of the voxels inside a cell's mask that are hidden from the network, which is to predict them; 0 = none",
        FIXED, NONE, .allowed = ">= 0, < 1"),
    ROW(NULL, "masked-loss", CHOICE(masked_loss), "poisson", "L",
        "loss at the hidden voxels: likelihood of their counts, or squared error to log1p(counts) / 10", FIXED, NONE,
        .choices = flim_masked_loss_names),
    ROW(NULL, "contrastive", REAL(contrastive), "0", "W",
        "weight of the contrastive loss, by which a network tells pairs from other cells; 0 = none", FIXED, NONE,
        .allowed = ">= 0"),
    ROW(NULL, "contrastive-pairs", CHOICE(contrastive_pairs), "view", "P",
        "what a pair is: two augmented views of one cell, or two cells of one class, from two groups where there are any",
        FIXED, NONE, .choices = flim_pairs_names),
    ROW(NULL, "batch-from", CHOICE(batch_from), "all", "B",
        "cells of one batch: of all groups, or of one donor (group), so that no donor is told from another", FIXED, NONE,
        .choices = flim_batch_from_names),
    ROW(NULL, "groups-out", LIST(groups_out), "", "A,B",
        "groups that pretraining never sees, as those of a later test; repeatable, or with commas", FIXED, NONE),
    ROW(NULL, "train-set-only", SWITCH(train_set_only), "false", NULL,
        "with --splits: of the cells of --data see those of the fold's training set alone, not its validation set; without "
        "--fold all that the run does not hold out",
        FIXED, NONE),
};
enum { N_ROWS = sizeof rows / sizeof rows[0], N_PRETRAINING_ROWS = 7 };
_Static_assert((int)N_ROWS + 8 <= (int)FLIM_MOST_SETTINGS, "an array with one flag per setting has room");

const flim_flag_table flim_settings_table = {"train_cv", "", "", rows, N_ROWS - N_PRETRAINING_ROWS, .operand = NULL};
const flim_flag_table flim_all_settings_table = {"pretrain", "", "", rows, N_ROWS, .operand = NULL};

flim_status flim_settings_init(flim_settings *settings, flim_error *err)
{
    *settings = (flim_settings){0};
    return flim_flag_table_init(&flim_all_settings_table, settings, err);
}

void flim_settings_free(flim_settings *settings)
{
    flim_flag_table_free(&flim_all_settings_table, settings);
}

flim_status flim_settings_copy(const flim_settings *from, flim_settings *to, flim_error *err)
{
    for (int i = 0; i < N_ROWS; i++) {
        FLIM_TRY(flim_flag_copy(&rows[i], from, to, err));
    }
    to->pretrains = from->pretrains;
    return FLIM_OK;
}

const flim_flag_row *flim_settings_find(const char *key)
{
    for (int i = 0; i < N_ROWS; i++) {
        char name[FLIM_KEY_MAX];
        flim_flag_key(&rows[i], name, sizeof name);
        if (strcmp(name, key) == 0) {
            return &rows[i];
        }
    }
    return NULL;
}

flim_status flim_settings_unknown_key(const char *where, const char *key, flim_error *err)
{
    static const char *const include[] = {"include"};
    char near[FLIM_KEY_MAX] = "";
    const flim_flag_row *row = flim_flag_meant(&flim_settings_table, key);
    if (flim_nearest(key, include, 1)) {
        snprintf(near, sizeof near, "%s", include[0]);
    } else if (row) {
        flim_flag_key(row, near, sizeof near);
    }
    return near[0] ? flim_fail(err, FLIM_ERROR_USAGE, "%s: unknown key '%.80s' (did you mean '%s'?)", where, key, near)
                   : flim_fail(err, FLIM_ERROR_USAGE, "%s: unknown key '%.80s'; train_cv --print-config prints all keys",
                               where, key);
}

flim_status flim_settings_set_row(flim_settings *settings, const flim_flag_row *row, const char *what, const char *text,
                                  flim_error *err)
{
    if (row->type != FLIM_VALUE_LIST || text[0] != '[') {
        return flim_flag_set(row, settings, what, text, err);
    }
    flim_yaml list = {0};
    flim_status status = FLIM_OK;
    char *line = flim_strprintf(err, "list: %s", text);
    FLIM_TRY_DONE(line ? FLIM_OK : FLIM_ERROR_MEMORY);
    status = flim_yaml_parse(line, strlen(line), what, &list, NULL);
    if (status == FLIM_ERROR_USAGE || (status == FLIM_OK && (list.n != 1 || !list.entry[0].is_list))) {
        FLIM_TRY_DONE(flim_fail(err, FLIM_ERROR_USAGE, "%s: '%.200s' is not a list as in [a, b]", what, text));
    } else if (status != FLIM_OK) {
        FLIM_TRY_DONE(flim_fail(err, status, "out of host memory while reading %s", what));
    }
    for (int i = 0; i < list.entry[0].value.n; i++) {
        FLIM_TRY_DONE(flim_flag_set(row, settings, what, list.entry[0].value.item[i], err));
    }
done:
    flim_yaml_free(&list);
    flim_free(line);
    return status;
}

flim_status flim_settings_set(flim_settings *settings, const char *key, const char *value, flim_error *err)
{
    const flim_flag_row *row = flim_settings_find(key);
    if (!row) {
        return flim_settings_unknown_key("settings", key, err);
    }
    flim_flag_clear(row, settings);
    return flim_settings_set_row(settings, row, key, value, err);
}
