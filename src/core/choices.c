#include "flim/choices.h"

#include <stdio.h>
#include <string.h>

#include "core/parse.h"

/* A name for each value up to the last one, and the NULL. */
#define COMPLETE(names, last) _Static_assert(sizeof(names) / sizeof(names)[0] == (last) + 2, "one name per value, then NULL")

const char *const flim_cache_names[] = {"none", "host", "auto", "device", NULL};
COMPLETE(flim_cache_names, FLIM_CACHE_DEVICE);

const char *const flim_split_mode_names[] = {"auto", "stratified", "group", "stratified-group", "leave-one-group-out", NULL};
COMPLETE(flim_split_mode_names, FLIM_SPLIT_LEAVE_ONE_GROUP_OUT);

const char *const flim_splits_by_names[] = {"auto", "index", "name", NULL};
COMPLETE(flim_splits_by_names, FLIM_SPLITS_BY_NAME);

const char *const flim_monitor_names[] = {"val_loss", "roc_auc", "balanced_accuracy", "f1", NULL};
COMPLETE(flim_monitor_names, FLIM_MONITOR_F1);

const char *const flim_objective_names[] = {"balanced_accuracy", "youden", "f1", "kmeans", NULL};
COMPLETE(flim_objective_names, FLIM_OBJECTIVE_KMEANS);

const char *const flim_preset_names[] = {"nano", "tiny", "small", "base", "large", "xlarge", "giant", NULL};
COMPLETE(flim_preset_names, FLIM_PRESET_GIANT);

const char *const flim_lr_scale_names[] = {"none", "sqrt", "linear", NULL};
COMPLETE(flim_lr_scale_names, FLIM_LR_SCALE_LINEAR);

const char *const flim_lr_schedule_names[] = {"cosine", "restarts", "plateau", "constant", NULL};
COMPLETE(flim_lr_schedule_names, FLIM_LR_SCHEDULE_CONSTANT);

const char *const flim_sampler_names[] = {"natural", "balanced", "group-balanced", "class-group", NULL};
COMPLETE(flim_sampler_names, FLIM_SAMPLER_CLASS_GROUP);

const char *const flim_mixup_names[] = {"none", "counts", "input", NULL};
COMPLETE(flim_mixup_names, FLIM_MIXUP_INPUT);

const char *const flim_mixup_share_names[] = {"cell", "batch", NULL};
COMPLETE(flim_mixup_share_names, FLIM_MIXUP_SHARE_BATCH);

const char *const flim_mixup_partner_names[] = {"all", "group", NULL};
COMPLETE(flim_mixup_partner_names, FLIM_MIXUP_PARTNER_GROUP);

const char *const flim_masked_loss_names[] = {"poisson", "squared", NULL};
COMPLETE(flim_masked_loss_names, FLIM_MASKED_SQUARED);

const char *const flim_pairs_names[] = {"view", "class", NULL};
COMPLETE(flim_pairs_names, FLIM_PAIRS_CLASS);

const char *const flim_batch_from_names[] = {"all", "donor", NULL};
COMPLETE(flim_batch_from_names, FLIM_BATCH_FROM_DONOR);

const char *const flim_precision_names[] = {"auto", "fp32", "tf32", "bf16", "fp16", "amp", NULL};
COMPLETE(flim_precision_names, FLIM_PRECISION_AMP);

const char *const flim_recompute_names[] = {"none", "auto", "all", NULL};
COMPLETE(flim_recompute_names, FLIM_RECOMPUTE_ALL);

const char *const flim_on_oom_names[] = {"stop", "retry", NULL};
COMPLETE(flim_on_oom_names, FLIM_ON_OOM_RETRY);

const char *const flim_parallel_names[] = {"none", "data", NULL};
COMPLETE(flim_parallel_names, FLIM_PARALLEL_DATA);

bool flim_parse_device(const char *text, flim_device_kind *kind, int *index)
{
    static const char *const names[] = {[FLIM_DEVICE_AUTO] = "auto", [FLIM_DEVICE_CPU] = "cpu", [FLIM_DEVICE_CUDA] = "cuda"};
    int64_t number = 0;
    for (int i = 0; i <= FLIM_DEVICE_CUDA; i++) {
        const size_t length = strlen(names[i]);
        const char *rest = text + length;
        if (strncmp(text, names[i], length) != 0) {
            continue;
        }
        *kind = (flim_device_kind)i;
        const bool numbered = i == FLIM_DEVICE_CUDA && rest[0] == ':' && rest[1] >= '0' && rest[1] <= '9';
        const bool valid = numbered ? flim_parse_i64("", rest + 1, 0, 1023, &number, NULL) == FLIM_OK : !rest[0];
        *index = (int)number;
        return valid;
    }
    return false;
}

flim_status flim_parse_choice(const char *what, const char *text, const char *const *names, int *out, flim_error *err)
{
    char all[512] = "";
    int n = 0;
    for (size_t used = 0; names[n]; n++) {
        if (strcmp(names[n], text) == 0) {
            *out = n;
            return FLIM_OK;
        }
        if (used < sizeof all) {
            used += (size_t)snprintf(all + used, sizeof all - used, "%s%s", n ? ", " : "", names[n]);
        }
    }
    const char *near = flim_nearest(text, names, n);
    return flim_fail(err, FLIM_ERROR_USAGE, "%s: '%.200s' is not one of %s%s%s%s", what, text, all,
                     near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "");
}
