/* What a run's settings make of its data before training: weights of the classes, the sampler's table, and what cannot be. */
#include <inttypes.h>
#include <string.h>

#include "core/alloc.h"
#include "core/parse.h"
#include "core/try.h"
#include "cv/sampler.h"
#include "train/fold.h"
#include "train/hooks.h"

static flim_status check_class_weights(const flim_run *run, int classes, flim_error *err)
{
    const char *text = run->settings->class_weights;
    double weight[FLIM_MAX_CLASS_WEIGHTS];
    int n = 0;
    if (strcmp(text, "none") == 0 || strcmp(text, "balanced") == 0) {
        return FLIM_OK;
    }
    if (!flim_parse_weights(text, weight, FLIM_MAX_CLASS_WEIGHTS, &n) || n != classes) {
        return flim_fail(err, FLIM_ERROR_USAGE,
                         "class_weights: %s is %d numbers, the data has %d classes: give one number for each", text, n,
                         classes);
    }
    return FLIM_OK;
}

static flim_status needs_encoder(const char *flag, flim_error *err)
{
    return flim_fail(err, FLIM_ERROR_USAGE, "%s needs --pretrained FILE, whose encoder it is about, or --pretrain-per-fold",
                     flag);
}

static flim_status never_trains(flim_error *err)
{
    return flim_fail(err, FLIM_ERROR_USAGE,
                     "--encoder-lr-scale is about an encoder that is trained, and --freeze-encoder trains none: leave one of "
                     "them out, or give --unfreeze-after N in place of --freeze-encoder");
}

/* Of one training: the run's, or a stage's. */
static flim_status check_fine_tuning(const flim_settings *s, flim_error *err)
{
    if (s->pretrained[0] && s->init_weights[0]) {
        return flim_fail(err, FLIM_ERROR_USAGE,
                         "pretrained and init_weights both name weights to start from: give one, pretrained for a new head");
    }
    if (!flim_settings_fine_tunes(s) && (s->freeze_encoder || s->unfreeze_after > 0)) {
        return needs_encoder(s->freeze_encoder ? "--freeze-encoder" : "--unfreeze-after", err);
    }
    if (s->freeze_encoder && s->unfreeze_after > 0) {
        return flim_fail(err, FLIM_ERROR_USAGE,
                         "--freeze-encoder is for the whole training, --unfreeze-after for its first epochs: give one");
    }
    if (s->unfreeze_after >= s->epochs) {
        return flim_fail(err, FLIM_ERROR_USAGE,
                         "--unfreeze-after %" PRId64 ": of %" PRId64
                         " epochs none would train the encoder; give fewer than --epochs, or --freeze-encoder",
                         s->unfreeze_after, s->epochs);
    }
    return FLIM_OK;
}

/* Of all trainings of a fold, before the first: a stage may set what another inherits. */
static flim_status check_all_fine_tuning(const flim_run *run, flim_error *err)
{
    const double scale = run->base.encoder_lr_scale;
    bool any = false; /* trains an encoder at some time */
    for (int i = 0; i < run->n_stages; i++) {
        const flim_settings *s = &run->stages[i].settings;
        flim_status status = check_fine_tuning(s, err);
        if (status == FLIM_OK && s->encoder_lr_scale != scale) { /* it sets that itself */
            status = !flim_settings_fine_tunes(s) ? needs_encoder("--encoder-lr-scale", err)
                     : s->freeze_encoder          ? never_trains(err)
                                                  : FLIM_OK;
        }
        FLIM_TRY(status == FLIM_OK ? FLIM_OK : flim_fail_prefix(err, "stages: %s: ", run->stages[i].name));
        any = any || !s->freeze_encoder;
    }
    if (run->n_stages == 0) {
        FLIM_TRY(check_fine_tuning(run->settings, err));
        any = !run->settings->freeze_encoder;
    }
    if (!flim_is_explicit(run->hooks, "encoder_lr_scale")) {
        return FLIM_OK;
    }
    return !flim_settings_fine_tunes(run->settings) ? needs_encoder("--encoder-lr-scale", err)
           : any                                    ? FLIM_OK
                                                    : never_trains(err);
}

flim_status flim_run_check_recipe(const flim_run *run, const flim_study *study, flim_error *err)
{
    FLIM_TRY(check_all_fine_tuning(run, err));
    FLIM_TRY(check_class_weights(run, study->info->classes, err));
    if (run->settings->final_model && run->settings->schedule == FLIM_LR_SCHEDULE_PLATEAU) {
        return flim_fail(err, FLIM_ERROR_USAGE,
                         "schedule plateau follows the validation set, and the final model has none: use another schedule");
    }
    for (int k = 0; k < study->splits.n_folds && run->settings->schedule == FLIM_LR_SCHEDULE_PLATEAU; k++) {
        if (study->splits.fold[k].n_val == 0) {
            return flim_fail(err, FLIM_ERROR_USAGE,
                             "schedule plateau follows the validation set, and fold %d has none: use another schedule", k);
        }
    }
    return FLIM_OK;
}

static flim_status find_class_weights(flim_fold_work *f, flim_error *err)
{
    const char *text = f->run->settings->class_weights;
    const flim_study *study = f->study;
    int n = 0;
    if (strcmp(text, "none") == 0) {
        return FLIM_OK;
    }
    const size_t most = study->info->classes > FLIM_MAX_CLASS_WEIGHTS ? (size_t)study->info->classes : FLIM_MAX_CLASS_WEIGHTS;
    f->class_weight = flim_alloc(most, sizeof *f->class_weight, err);
    FLIM_TRY(f->class_weight ? FLIM_OK : FLIM_ERROR_MEMORY);
    if (strcmp(text, "balanced") == 0) {
        flim_class_weights(&study->split_data, f->part->train, f->part->n_train, f->class_weight);
    } else {
        (void)flim_parse_weights(text, f->class_weight, FLIM_MAX_CLASS_WEIGHTS, &n);
    }
    char list[400] = "";
    for (int c = 0; c < study->info->classes; c++) {
        const size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s %.4g", c ? ", " : "", study->info->class_name[c], f->class_weight[c]);
    }
    flim_log_line(&f->run->log, FLIM_LOG_INFO, "%s: class weights %s%s", f->name, list,
                  f->run->settings->sampler == FLIM_SAMPLER_NATURAL ? "" : ", beside what the sampler does");
    return FLIM_OK;
}

static flim_status describe_sampler(const flim_fold_work *f, flim_error *err)
{
    const int64_t repeats = f->run->settings->sampler_repeats;
    flim_sampler_table table;
    if (f->run->settings->sampler != FLIM_SAMPLER_CLASS_GROUP) {
        return FLIM_OK;
    }
    FLIM_TRY(flim_sampler_describe(repeats, &f->study->split_data, f->part->train, f->part->n_train, &table, err));
    flim_log_line(&f->run->log, FLIM_LOG_INFO,
                  "%s: sampler class-group: %" PRId64 " class-group pairs, %" PRId64 " of them limited to %" PRId64
                  " draws per cell; a cell is drawn %.2f to %.2f times per epoch; effective sample size %.1f of %" PRId64
                  " cells",
                  f->name, table.cells, table.bounded, repeats, table.least, table.most, table.effective, f->part->n_train);
    return FLIM_OK;
}

flim_status flim_fold_begin_recipe(flim_fold_work *f, flim_error *err)
{
    FLIM_TRY(find_class_weights(f, err));
    return describe_sampler(f, err);
}
