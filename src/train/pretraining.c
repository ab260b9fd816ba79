#include "train/pretraining.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/clock.h"
#include "core/sha256.h"
#include "core/try.h"
#include "flim/version.h"
#include "flim/weights.h"

/* ---- what is learnt ---- */

flim_status flim_pretraining_build(const flim_run *run, const flim_study *study, flim_network *net, flim_error *err)
{
    const flim_dataset_info *info = study->info;
    return flim_network_of(run->settings, info->classes > 2 ? info->classes : 2, info->t, info->h, info->w, net, err);
}

flim_status flim_pretraining_identify(flim_run *run, const flim_study *study, flim_error *err)
{
    const flim_settings *s = run->settings;
    const flim_fold *fold = &study->splits.fold[0];
    char digest[65];
    flim_sha256 hash;
    FLIM_TRY(flim_sha256_begin(&hash, err));
    flim_sha256_add(&hash, fold->train, (size_t)fold->n_train * sizeof *fold->train);
    flim_sha256_add(&hash, fold->val, (size_t)fold->n_val * sizeof *fold->val);
    flim_sha256_end(&hash, digest);
    flim_identity_set(&run->identity, FLIM_IDENTITY_PRETRAINING, "pretraining", true,
                      "mask_ratio %.17g %s contrastive %.17g %s batch_from %s cells %.16s", s->mask_ratio,
                      flim_masked_loss_names[s->masked_loss], s->contrastive, flim_pairs_names[s->contrastive_pairs],
                      flim_batch_from_names[s->batch_from], digest);
    return FLIM_OK;
}

/* ---- evaluation ---- */

typedef struct evaluation {
    flim_fold_work *f;
    flim_step step;
    int64_t batches;
    double begun;
} evaluation;

static flim_status evaluate_batch(void *context, const flim_batch *batch, flim_error *err)
{
    evaluation *e = context;
    e->batches++;
    return flim_program_evaluate(e->f->trainer->program, batch, &e->step, err);
}

static flim_status after_batch(void *context, flim_error *err)
{
    const evaluation *e = context;
    const flim_fold_work *f = e->f;
    const int64_t n = f->study->splits.fold[0].n_val, batch = f->trainer->eval_batch;
    if (f->run->hooks->progress) {
        const flim_progress at = {.phase = FLIM_PHASE_VALIDATE,
                                  .device = &f->trainer->telemetry.now,
                                  .fold = -1,
                                  .folds = 1,
                                  .epoch = f->state.epoch + 1,
                                  .epochs = f->epochs,
                                  .done = e->batches,
                                  .total = (n + batch - 1) / batch,
                                  .cells = e->batches * batch < n ? e->batches * batch : n,
                                  .seconds = flim_seconds() - e->begun,
                                  .loss = (double)NAN};
        f->run->hooks->progress(f->run->hooks->context, &at);
    }
    return flim_run_go_on(f->run, err);
}

static flim_status finish(void *context, flim_error *err)
{
    return flim_program_wait(((evaluation *)context)->f->trainer->program, err);
}

flim_status flim_pretraining_evaluate(flim_fold_work *f, flim_epoch_row *row, flim_error *err)
{
    static const flim_phase_work work = {evaluate_batch, after_batch, finish};
    const flim_settings *s = f->run->settings;
    const flim_fold *fold = &f->study->splits.fold[0];
    evaluation e = {.f = f, .step = {.divisor = 1, .hide_share = flim_pretraining_hide_share(s)}, .begun = flim_seconds()};
    flim_totals totals;
    if (fold->n_val == 0 || s->mask_ratio == 0) {
        return FLIM_OK;
    }
    flim_draw *draws = flim_alloc((size_t)fold->n_val, sizeof *draws, err); /* (n_val) */
    flim_status status = draws ? FLIM_OK : FLIM_ERROR_MEMORY;
    FLIM_TRY_DONE(status);
    for (int64_t i = 0; i < fold->n_val; i++) {
        draws[i] = (flim_draw){.cell = (uint32_t)fold->val[i], .weight = 1};
    }
    /* An epoch that is none of training's: the same voxels are hidden each time. */
    const flim_phase phase = {.draws = draws,
                              .n_draws = fold->n_val,
                              .batch = f->trainer->eval_batch,
                              .seed = s->seed,
                              .fold = (uint32_t)f->k,
                              .epoch = UINT32_MAX};
    FLIM_TRY_DONE(flim_program_totals(f->trainer->program, true, &totals, err)); /* those of the epoch are in its row */
    FLIM_TRY_DONE(flim_trainer_run_phase(f->trainer, &phase, &work, &e, err));
    FLIM_TRY_DONE(flim_program_totals(f->trainer->program, true, &totals, err));
    row->val_hidden_loss = totals.hidden.voxels > 0 ? totals.hidden.loss / totals.hidden.voxels : (double)NAN;
    row->val_hidden_bits = flim_pretraining_bits(s, &totals.hidden);
done:
    flim_free(draws);
    return status;
}

/* ---- its end ---- */

/* Names of the groups of the cells that it saw, in their order: *out (n), the caller's to free (flim_free). */
static flim_status seen_groups(const flim_study *study, const char ***out, int *n, flim_error *err)
{
    const flim_dataset_info *info = study->info;
    const flim_fold *fold = &study->splits.fold[0];
    bool *seen = flim_alloc((size_t)info->groups, sizeof *seen, err);
    *n = 0;
    *out = flim_alloc((size_t)info->groups, sizeof **out, err);
    const bool enough = seen && *out;
    for (int64_t i = 0; enough && info->group && i < fold->n_train; i++) {
        seen[info->group[fold->train[i]]] = true;
    }
    for (int64_t i = 0; enough && info->group && i < fold->n_val; i++) {
        seen[info->group[fold->val[i]]] = true;
    }
    for (int64_t g = 0; enough && g < info->groups; g++) {
        if (seen[g]) {
            (*out)[(*n)++] = info->group_name[g];
        }
    }
    flim_free(seen);
    return enough ? FLIM_OK : FLIM_ERROR_MEMORY;
}

static flim_status set_sources(const flim_study *study, flim_provenance *out, flim_error *err)
{
    const flim_dataset_info *info = study->info;
    const char **group = NULL, **file = flim_alloc((size_t)info->n_files, sizeof *file, err);
    int groups = 0;
    flim_status status = file ? FLIM_OK : FLIM_ERROR_MEMORY;
    FLIM_TRY_DONE(status);
    for (int i = 0; i < info->n_files; i++) {
        const char *slash = strrchr(info->path[i], '/');
        file[i] = slash ? slash + 1 : info->path[i];
    }
    FLIM_TRY_DONE(seen_groups(study, &group, &groups, err));
    FLIM_TRY_DONE(flim_provenance_copy_names(&out->donor, &out->donors, groups, group, err));
    status = flim_provenance_copy_names(&out->file, &out->files, info->n_files, file, err);
done:
    flim_free(file);
    flim_free(group);
    return status;
}

static flim_status provenance_of(const flim_fold_work *f, flim_provenance *out, flim_error *err)
{
    const flim_settings *s = f->run->settings;
    const flim_fold *fold = &f->study->splits.fold[0];
    const uint64_t *hash = f->study->hash;
    FLIM_TRY(flim_fold_provenance(f, out, err));
    flim_free_list(out->class_name, out->classes); /* an encoder has none */
    out->class_name = NULL;
    out->classes = 0;
    out->pretraining = true;
    out->fold = s->splits[0] ? (int)s->fold : -1;
    out->folds = s->splits[0] ? f->run->pretraining_folds : 0;
    memcpy(out->splits_sha256, f->run->pretraining_splits_sha256, sizeof out->splits_sha256);
    if (hash) {
        flim_cell_set_free(&out->val); /* the work's part has none */
        FLIM_TRY(flim_cell_set_make(hash, fold->val, fold->n_val, &out->val, err));
    }
    return set_sources(f->study, out, err);
}

/* BatchNorm's statistics are made again on cells of which nothing is hidden: what a classifier will see. */
static flim_status write_encoder(flim_fold_work *f, flim_error *err)
{
    const flim_network *net = &f->trainer->net;
    char path[FLIM_PATH_MAX];
    flim_network classifier;
    flim_provenance about = {0};
    flim_status status = FLIM_OK;
    float *statistic = flim_alloc((size_t)net->statistics, sizeof *statistic, err); /* (S) */
    FLIM_TRY_DONE(statistic ? FLIM_OK : FLIM_ERROR_MEMORY);
    FLIM_TRY_DONE(flim_trainer_load(f->trainer, f->state.best_parameter, f->state.best_statistic, err));
    FLIM_TRY_DONE(flim_fold_recalibrate(f, err));
    FLIM_TRY_DONE(flim_program_read(f->trainer->program, FLIM_STATE_STATISTICS, statistic, err));
    FLIM_TRY_DONE(flim_network_build_sized(&classifier, (flim_model_size){net->width, net->depth}, net->classes, net->in[0],
                                           net->in[1], net->in[2], err));
    FLIM_TRY_DONE(provenance_of(f, &about, err));
    FLIM_TRY_DONE(flim_run_folder_path(f->run, "encoder.safetensors", path, err));
    status = flim_weights_write_encoder(path, &classifier, net, &about, f->state.best_parameter, statistic, err);
done:
    flim_provenance_free(&about);
    flim_free(statistic);
    return status;
}

static void log_last(const flim_fold_work *f)
{
    const flim_epoch_row *row = &f->state.history[f->state.n_history - 1];
    char bits[128] = "";
    if (isfinite(row->val_hidden_bits)) {
        snprintf(bits, sizeof bits,
                 "; hidden voxels of the %" PRId64 " cells evaluated: %+.4f bits per photon above the baseline",
                 f->study->splits.fold[0].n_val, row->val_hidden_bits);
    }
    flim_log_line(&f->run->log, FLIM_LOG_INFO, "pretraining done: %" PRId64 " cells, %" PRId64 " epochs%s", f->part->n_train,
                  f->epochs, bits);
}

flim_status flim_run_pretraining(flim_run *run, const flim_study *study, flim_trainer *trainer, flim_error *err)
{
    const flim_fold *fold = &study->splits.fold[0];
    const flim_fold part = {.train = fold->train,
                            .n_train = fold->n_train}; /* no validation set: all epochs, the last one's weights */
    flim_fold_work f = {.run = run,
                        .study = study,
                        .trainer = trainer,
                        .k = FLIM_PRETRAINING_FOLD,
                        .name = "pretraining",
                        .part = &part,
                        .epochs = run->settings->epochs};
    flim_status status = FLIM_OK;
    FLIM_TRY_DONE(flim_run_fold_path(run, f.k, "", f.folder, err));
    FLIM_TRY_DONE(flim_fold_work_through(&f, err));
    FLIM_TRY_DONE(flim_fold_check_weights(&f, err));
    FLIM_TRY_DONE(write_encoder(&f, err));
    log_last(&f);
done:
    status = flim_fold_end(&f, status, err);
    flim_fold_work_free(&f);
    return status;
}
