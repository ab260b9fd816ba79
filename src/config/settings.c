#include "config/settings.h"

#include <string.h>

#include "core/alloc.h"
#include "core/parse.h"
#include "formats/yaml.h"

static bool is_device(const char *text)
{
    if (strncmp(text, "cuda:", 5) == 0) {
        size_t digits = strspn(text + 5, "0123456789");
        return digits > 0 && digits <= 4 && text[5 + digits] == '\0';
    }
    return strcmp(text, "auto") == 0 || strcmp(text, "cpu") == 0 || strcmp(text, "cuda") == 0;
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

/* Columns: group, flag, type, field, default, metavar, help; then what is allowed. */
#define FIELD(name) offsetof(flim_settings, name)
#define CHOICE(name) FLIM_CHOICE_AT(flim_settings, name)
static const flim_flag_row rows[] = {
    {"Data", "data", FLIM_VALUE_LIST, FIELD(data), "data/flim.h5", "FILE",
     .help = "HDF5 file with the cells; give it again for more files"},
    {NULL, "axes", FLIM_VALUE_TEXT, FIELD(axes), "NTYX", "AXES",
     "order of the axes of /counts: N cells, T time bins, Y, X pixels",
     .allowed = "the letters N, T, Y (or H) and X (or W) in some order", .valid = is_axes},
    {NULL, "mask-counts", FLIM_VALUE_SWITCH, FIELD(mask_counts), "false", .help = "zero the counts outside the mask"},
    {NULL, "scan", FLIM_VALUE_SWITCH, FIELD(scan), "true", .help = "read and check every cell before the run begins"},
    {NULL, "workers", FLIM_VALUE_INTEGER, FIELD(workers), "8", "N", "loader threads", .allowed = ">= 1, <= 256"},
    {NULL, "prefetch", FLIM_VALUE_INTEGER, FIELD(prefetch), "4", "N", "batches kept ready ahead", .allowed = ">= 1, <= 64"},
    {NULL, "cache", FLIM_VALUE_CHOICE, CHOICE(cache), "auto", "C",
     "where decoded cells stay after their first reading; auto takes GPU memory, else host memory, where there is room",
     .choices = flim_cache_names},

    {"Cross-validation", "folds", FLIM_VALUE_INTEGER, FIELD(folds), "5", "N", "test parts", .allowed = ">= 2, <= 65535"},
    {NULL, "cv", FLIM_VALUE_CHOICE, CHOICE(cv), "auto", "MODE",
     "how cells are split; auto is stratified-group where the file has enough groups, else stratified with a warning",
     .choices = flim_split_mode_names},
    {NULL, "holdout-group", FLIM_VALUE_LIST, FIELD(holdout_group), "", "NAME",
     .help = "group kept out of every fold and scored at the end by the fold ensemble; repeatable"},
    {NULL, "val-fraction", FLIM_VALUE_REAL, FIELD(val_fraction), "0.15", "F",
     "share of the training cells for the inner validation, which chooses epoch and threshold; 0 = none",
     .allowed = ">= 0, < 1"},
    {NULL, "monitor", FLIM_VALUE_CHOICE, CHOICE(monitor), "val_loss", "M", "what chooses the epoch",
     .choices = flim_monitor_names},
    {NULL, "threshold-for", FLIM_VALUE_CHOICE, CHOICE(threshold_for), "balanced_accuracy", "M",
     "what the threshold maximises on the inner validation part; youden is the same as balanced_accuracy",
     .choices = flim_objective_names},
    {NULL, "fold", FLIM_VALUE_INTEGER, FIELD(fold), "all", "K", "only this fold, counted from 0", .allowed = ">= 0, <= 65534",
     .word = "all", .word_value = -1},
    {NULL, "splits", FLIM_VALUE_TEXT, FIELD(splits), "", "FILE",
     .help = "use the folds of this file (a run's splits.json or nnU-Net's splits_final.json)"},

    {"Network", "preset", FLIM_VALUE_CHOICE, CHOICE(preset), "base", "P", "size of the network",
     .choices = flim_preset_names},
    {NULL, "dropout", FLIM_VALUE_REAL, FIELD(dropout), "0.25", "P", "probability of dropout", .allowed = ">= 0, < 1"},
    {NULL, "init-weights", FLIM_VALUE_TEXT, FIELD(init_weights), "", "FILE",
     .help = "start from this .safetensors file, not from random weights"},

    {"Training", "epochs", FLIM_VALUE_INTEGER, FIELD(epochs), "75", "N", "epochs a fold at most",
     .allowed = ">= 1, <= 1000000"},
    {NULL, "batch", FLIM_VALUE_INTEGER, FIELD(batch), "64", "N", "cells a training step; auto: as many as the device takes",
     .allowed = ">= 1, <= 1048576", .word = "auto", .word_value = 0},
    {NULL, "eval-batch", FLIM_VALUE_INTEGER, FIELD(eval_batch), "batch", "N", "cells a step of validation and test",
     .allowed = ">= 1, <= 1048576", .word = "batch", .word_value = 0},
    {NULL, "accumulate", FLIM_VALUE_INTEGER, FIELD(accumulate), "1", "N", "batches whose gradients make one step",
     .allowed = ">= 1, <= 1048576"},
    {NULL, "lr", FLIM_VALUE_REAL, FIELD(lr), "1e-4", "X", "learning rate of the first epoch; it falls as a cosine to 1e-6",
     .allowed = "> 0"},
    {NULL, "lr-batch", FLIM_VALUE_INTEGER, FIELD(lr_batch), "64", "N", "cells an update that lr is meant for, for --lr-scale",
     .allowed = ">= 1, <= 1048576"},
    {NULL, "lr-scale", FLIM_VALUE_CHOICE, CHOICE(lr_scale), "none", "S",
     "scale lr with batch x accumulate over lr-batch: not, by its root, or in proportion", .choices = flim_lr_scale_names},
    {NULL, "weight-decay", FLIM_VALUE_REAL, FIELD(weight_decay), "1e-3", "X", "weight decay of AdamW", .allowed = ">= 0"},
    {NULL, "clip", FLIM_VALUE_REAL, FIELD(clip), "35", "X", "largest norm of the gradient; 0 = no clipping",
     .allowed = ">= 0"},
    {NULL, "label-smoothing", FLIM_VALUE_REAL, FIELD(label_smoothing), "0.05", "S", "label smoothing of the training loss",
     .allowed = ">= 0, < 1"},
    {NULL, "patience", FLIM_VALUE_INTEGER, FIELD(patience), "20", "N",
     "stop after so many epochs without a better inner validation; 0 = never", .allowed = ">= 0, <= 1000000"},
    {NULL, "sampler", FLIM_VALUE_CHOICE, CHOICE(sampler), "balanced", "S",
     "which cells an epoch draws; balanced makes classes equally likely", .choices = flim_sampler_names},
    {NULL, "seed", FLIM_VALUE_UNSIGNED, FIELD(seed), "42", "N", .help = "of folds, weights, order and dropout"},

    {"Device", "device", FLIM_VALUE_TEXT, FIELD(device), "auto", "D",
     "auto, cpu, cuda or cuda:N; auto says which it took and why, cuda never falls back to cpu",
     .allowed = "auto, cpu, cuda or cuda:N", .valid = is_device},
    {NULL, "precision", FLIM_VALUE_CHOICE, CHOICE(precision), "auto", "P",
     "arithmetic of the network; auto is tf32 where the device has it, else fp32", .choices = flim_precision_names},
    {NULL, "checkpoint-activations", FLIM_VALUE_CHOICE, CHOICE(checkpoint_activations), "none", "C",
     "make activations again in the backward pass to save memory; auto: just enough to fit", .choices = flim_recompute_names},
    {NULL, "margin", FLIM_VALUE_REAL, FIELD(margin), "0.85", "F", "share of the device's memory that auto choices may fill",
     .allowed = "> 0, <= 1"},
    {NULL, "on-oom", FLIM_VALUE_CHOICE, CHOICE(on_oom), "stop", "W",
     "out of device memory all the same: stop, or retry with half the batch and twice the accumulation",
     .choices = flim_on_oom_names},
    {NULL, "benchmark", FLIM_VALUE_SWITCH, FIELD(benchmark), "true",
     .help = "time the ways to compute each convolution, keep the fastest"},
    {NULL, "deterministic", FLIM_VALUE_SWITCH, FIELD(deterministic), "false",
     .help = "equal bits on every run, at some speed"},

    {"Run", "out", FLIM_VALUE_TEXT, FIELD(out), "", "DIR",
     .help = "run folder (default runs/<date>-<time>); one that holds a run is refused, unless --resume"},
    {NULL, "checkpoint-minutes", FLIM_VALUE_REAL, FIELD(checkpoint_minutes), "0", "N",
     "write a checkpoint inside an epoch every N minutes, too; 0 = only at its end", .allowed = ">= 0"},
    {NULL, "price-per-hour", FLIM_VALUE_REAL, FIELD(price_per_hour), "0", "X",
     "price of the machine an hour: the run says what it costs; 0 = not known", .allowed = ">= 0"},
    {NULL, "resume", FLIM_VALUE_SWITCH, FIELD(resume), "false", .help = "go on with the run in --out DIR, with its settings"},
    {NULL, "resume-override", FLIM_VALUE_SWITCH, FIELD(resume_override), "false",
     .help = "with --resume: go on although flags, device or precision differ from the run's; lists what that overrides"},
    {NULL, "dry-run", FLIM_VALUE_SWITCH, FIELD(dry_run), "false", .help = "print the fold table and end"},
    {NULL, "quiet", FLIM_VALUE_SWITCH, FIELD(quiet), "false", .help = "print warnings and the result only"},
    {NULL, "verbose", FLIM_VALUE_SWITCH, FIELD(verbose), "false", .help = "print HDF5's own error stacks"},
    {NULL, "log-json", FLIM_VALUE_SWITCH, FIELD(log_json), "false", .help = "print one JSON object a line"},
};
enum { N_ROWS = sizeof rows / sizeof rows[0] };
_Static_assert((int)N_ROWS + 8 <= (int)FLIM_MOST_SETTINGS, "arrays of a flag a setting have room");

const flim_flag_table flim_settings_table = {"train_cv", "", "", rows, N_ROWS, .operand = NULL};

flim_status flim_settings_init(flim_settings *settings, flim_error *err)
{
    *settings = (flim_settings){0};
    return flim_flag_table_init(&flim_settings_table, settings, err);
}

void flim_settings_free(flim_settings *settings)
{
    flim_flag_table_free(&flim_settings_table, settings);
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
    char keys[N_ROWS][FLIM_KEY_MAX];
    const char *names[N_ROWS + 1];
    for (int i = 0; i < N_ROWS; i++) {
        flim_flag_key(&rows[i], keys[i], sizeof keys[i]);
        names[i] = keys[i];
    }
    names[N_ROWS] = "include";
    return flim_fail(err, FLIM_ERROR_USAGE, "%s: unknown key '%.80s' (did you mean '%s'?)", where, key,
                     flim_nearest(key, names, N_ROWS + 1));
}

flim_status flim_settings_set_row(flim_settings *settings, const flim_flag_row *row, const char *what, const char *text,
                                  flim_error *err)
{
    if (row->type != FLIM_VALUE_LIST || text[0] != '[') {
        return flim_flag_set(row, settings, what, text, err);
    }
    flim_yaml list = {0};
    flim_status status = FLIM_ERROR_MEMORY;
    char *line = flim_strprintf(err, "list: %s", text);
    if (line) {
        status = flim_yaml_parse(line, strlen(line), what, &list, NULL);
        if (status == FLIM_ERROR_USAGE || (status == FLIM_OK && (list.n != 1 || !list.entry[0].is_list))) {
            status = flim_fail(err, FLIM_ERROR_USAGE, "%s: '%.200s' is no list as in [a, b]", what, text);
        } else if (status != FLIM_OK) {
            flim_fail(err, status, "out of host memory while reading %s", what);
        }
    }
    for (int i = 0; status == FLIM_OK && i < list.entry[0].value.n; i++) {
        status = flim_flag_set(row, settings, what, list.entry[0].value.item[i], err);
    }
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
