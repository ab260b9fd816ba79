/* The settings that the program pretrain takes: which rows of the table, in which order, and with which defaults. */
#include <stdio.h>
#include <string.h>

#include "config/settings.h"
#include "core/try.h"

/* initial NULL: as the table has it. */
static const struct {
    const char *group, *key, *initial, *help;
} taken[] = {
    {"Data", "data", NULL, "HDF5 file with the cells, whose labels are not read; repeatable"},
    {NULL, "pretraining_data", NULL,
     "one more file, which --splits is not about; of groups that its fold tests, validates or holds out and does not train "
     "on "
     "no cell is seen; repeatable"},
    {NULL, "axes", NULL, NULL},
    {NULL, "allow_external", NULL, NULL},
    {NULL, "mask_counts", NULL, NULL},
    {NULL, "scan", NULL, NULL},
    {NULL, "workers", NULL, NULL},
    {NULL, "prefetch", NULL, NULL},
    {NULL, "cache", NULL, NULL},
    {"Which cells", "groups_out", NULL, NULL},
    {NULL, "splits", NULL,
     "never see the test cells of --fold K of this run (its folder, or its splits.json), on the same data"},
    {NULL, "fold", NULL, "the fold of --splits, counted from 0"},
    {NULL, "train_set_only", NULL, NULL},
    {NULL, "val_groups", NULL, "groups that are only evaluated, after each epoch; default: cells drawn by --val-fraction"},
    {NULL, "val_fraction", "0.05", "share of the cells that is only evaluated, after each epoch; 0 = none"},
    {NULL, "exclude", NULL, NULL},
    {"Network", "preset", NULL, NULL},
    {NULL, "width", NULL, NULL},
    {NULL, "depth", NULL, NULL},
    {"Pretraining", "mask_ratio", NULL, NULL},
    {NULL, "masked_loss", NULL, NULL},
    {NULL, "contrastive", NULL, NULL},
    {NULL, "contrastive_pairs", NULL, NULL},
    {NULL, "batch_from", NULL, NULL},
    {NULL, "augment", NULL, NULL},
    {"Training", "epochs", "100", "epochs"},
    {NULL, "batch", NULL, "batch size, in views (two a cell with --contrastive); auto: the largest that fits on the device"},
    {NULL, "accumulate", "8", NULL},
    {NULL, "lr", NULL, "learning rate after the warm-up; --schedule changes it"},
    {NULL, "schedule", "cosine", NULL},
    {NULL, "warmup_epochs", "5", "epochs of linear warm-up, from a hundredth of lr"},
    {NULL, "weight_decay", "1e-2", NULL},
    {NULL, "clip", "1", NULL},
    {NULL, "ema", NULL,
     "encoder.safetensors has an exponential moving average (EMA) of the weights: after update u it is d x average + (1 - d) "
     "x "
     "weights with d the smaller of D and u / (9 + u); 0 = the last weights. What is reported is the last weights'"},
    {NULL, "seed", NULL, "random seed of weights, order, views and hidden voxels"},
    {"Device", "device", NULL, NULL},
    {NULL, "precision", NULL, NULL},
    {NULL, "checkpoint_activations", NULL, NULL},
    {NULL, "margin", NULL, NULL},
    {NULL, "on_oom", NULL, NULL},
    {NULL, "benchmark", NULL, NULL},
    {NULL, "deterministic", NULL, NULL},
    {"Run", "out", NULL, NULL},
    {NULL, "checkpoint_minutes", NULL, NULL},
    {NULL, "price_per_hour", NULL, NULL},
    {NULL, "resume", NULL, NULL},
    {NULL, "resume_override", NULL, NULL},
    {NULL, "quiet", NULL, NULL},
    {NULL, "verbose", NULL, NULL},
    {NULL, "log_json", NULL, NULL},
};
enum { N_TAKEN = sizeof taken / sizeof taken[0] };

int flim_pretrain_rows(flim_flag_row *rows)
{
    for (int i = 0; i < N_TAKEN; i++) {
        rows[i] = *flim_settings_find(taken[i].key);
        rows[i].group = taken[i].group;
        rows[i].initial = taken[i].initial ? taken[i].initial : rows[i].initial;
        rows[i].help = taken[i].help ? taken[i].help : rows[i].help;
    }
    return N_TAKEN;
}

/* Those that are no flags of pretrain, but what its training does. */
static const char *const fixed[][2] = {
    {"sampler", "natural"}, {"dropout", "0"}, {"label_smoothing", "0"}, {"patience", "0"}, {"recalibrate_bn", "false"}};

flim_status flim_settings_init_pretraining(flim_settings *settings, flim_error *err)
{
    FLIM_TRY(flim_settings_init(settings, err));
    flim_status status = FLIM_OK;
    for (int i = 0; i < N_TAKEN && status == FLIM_OK; i++) {
        status = taken[i].initial ? flim_settings_set(settings, taken[i].key, taken[i].initial, err) : FLIM_OK;
    }
    for (size_t i = 0; i < sizeof fixed / sizeof fixed[0] && status == FLIM_OK; i++) {
        status = flim_settings_set(settings, fixed[i][0], fixed[i][1], err);
    }
    settings->pretrains = true;
    if (status != FLIM_OK) {
        flim_settings_free(settings);
    }
    return status;
}

static bool is_taken(const char *key)
{
    for (int i = 0; i < N_TAKEN; i++) {
        if (strcmp(taken[i].key, key) == 0) {
            return true;
        }
    }
    return strcmp(key, "eval_batch") == 0; /* no flag, but a plan's (gpu_plan --apply) */
}

typedef struct other {
    char key[FLIM_KEY_MAX], value[128]; /* the first setting that is another program's; "" */
} other;

static void note_other(void *context, const flim_flag_row *row, const char *initial, const char *value)
{
    other *found = context;
    char key[FLIM_KEY_MAX];
    (void)initial;
    flim_flag_key(row, key, sizeof key);
    if (!found->key[0] && !is_taken(key)) {
        snprintf(found->key, sizeof found->key, "%s", key);
        snprintf(found->value, sizeof found->value, "%.100s", value);
    }
}

flim_status flim_pretraining_refuse_others(const flim_settings *s, flim_error *err)
{
    flim_settings initial;
    other found = {0};
    FLIM_TRY(flim_settings_init_pretraining(&initial, err));
    flim_settings_compare(&initial, s, note_other, &found);
    flim_settings_free(&initial);
    return !found.key[0]
               ? FLIM_OK
               : flim_fail(err, FLIM_ERROR_USAGE,
                           "%s: %s is a setting of train_cv, which a pretraining does not look at; leave it out of its "
                           "config (pretrain --help lists what it has, --groups-out what it is not to see)",
                           found.key, found.value);
}

flim_status flim_pretraining_check_used(const flim_settings *s, bool asked_for_loss, bool asked_for_pairs, flim_error *err)
{
    if (asked_for_loss && s->masked_loss != FLIM_MASKED_POISSON && s->mask_ratio == 0) {
        return flim_fail(err, FLIM_ERROR_USAGE,
                         "--masked-loss %s is about hidden voxels, and --mask-ratio is 0: give a ratio above 0, or leave "
                         "--masked-loss out",
                         flim_masked_loss_names[s->masked_loss]);
    }
    if (asked_for_pairs && s->contrastive_pairs != FLIM_PAIRS_VIEW && s->contrastive == 0) {
        return flim_fail(err, FLIM_ERROR_USAGE,
                         "--contrastive-pairs %s says what a pair is, and without --contrastive there are none: give "
                         "--contrastive W above 0, or leave --contrastive-pairs out",
                         flim_pairs_names[s->contrastive_pairs]);
    }
    return FLIM_OK;
}
