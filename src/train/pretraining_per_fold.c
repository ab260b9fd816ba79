/* --pretrain-per-fold: before a fold is trained, its encoder is, by a whole pretraining of its own.
 *
 * That is what `pretrain --splits RUN --fold K --train-set-only --out RUN/fold_K/pretraining` does, in this process and under the
 * fold's lock: with a run folder, checkpoints and history of its own, so that it resumes by itself, whoever has the fold next.
 * What it never sees is decided in pretraining_parts.c, from splits.json; the encoder's provenance says what it saw, and
 * is looked at before the fold starts from it (flim_run_read_encoder). */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/file.h"
#include "core/sha256.h"
#include "core/text.h"
#include "core/try.h"
#include "results/fold_result.h"
#include "train/copies.h"
#include "train/fold_cells.h"
#include "train/run.h"

static bool is_wanted(const flim_run *run)
{
    return flim_settings_per_fold(run->settings);
}

/* ---- before the folds ---- */

/* What each pretraining opens: what does not go together is to be known before the folder is made. */
static flim_status open_together(const flim_run *run, const flim_settings *pretraining, flim_error *err)
{
    const flim_log none = {0};
    flim_study both = {0};
    const flim_status status = run->settings->pretraining_data.n == 0
                                   ? FLIM_OK
                                   : flim_study_open(&both, pretraining, FLIM_CACHE_NONE, 1, run->hooks->stop, &none, err);
    flim_study_close(&both);
    return status;
}

/* The files' cells must be of the data's kind: an encoder sees both. */
static flim_status check_cells(const flim_study *study, const flim_study *others, flim_error *err)
{
    const flim_dataset_info *a = study->info, *b = others->info;
    if (a->t != b->t || a->h != b->h || a->w != b->w) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s: its cells are %d x %d x %d, those of the data %d x %d x %d", b->path[0],
                         b->t, b->h, b->w, a->t, a->h, a->w);
    }
    if ((a->group != NULL) != (b->group != NULL)) {
        return flim_fail(err, FLIM_ERROR_DATA,
                         "%s has %s /group and the data has %s: which of its cells are of a tested group cannot be told",
                         b->path[0], b->group ? "a" : "no", a->group ? "one" : "none");
    }
    return FLIM_OK;
}

static void tell_of_others(void *context, flim_log_level level, const char *text)
{
    flim_log_line(context, level, "--pretraining-data: %s", text);
}

static flim_status open_others(flim_run *run, const flim_study *study, flim_error *err)
{
    const flim_train_hooks *hooks = run->hooks;
    const flim_log of_others = {tell_of_others, &run->log};
    flim_settings s = *run->settings; /* texts and lists stay with their owner */
    if (s.pretraining_data.n == 0) {
        return FLIM_OK;
    }
    s.data = s.pretraining_data;
    s.pretraining_data = s.groups_out = s.val_groups = s.holdout_group = s.test_groups = (flim_string_list){0};
    s.pretrains = true; /* labels are not read */
    s.contrastive = 0;
    s.cv = FLIM_SPLIT_AUTO;
    s.sampler = FLIM_SAMPLER_NATURAL;
    FLIM_TRY(flim_study_open(&run->others, &s, FLIM_CACHE_NONE, 1, hooks->stop, &run->log, err));
    FLIM_TRY(check_cells(study, &run->others, err));
    FLIM_TRY(flim_study_scan(&run->others, &s, hooks->stop, &run->log, err));
    FLIM_TRY(flim_study_check(&run->others, &s, &of_others, err));
    return run->others.summary ? flim_resume_add_counts(run, &run->others, err) : FLIM_OK;
}

flim_status flim_run_look_at_pretraining(flim_run *run, const flim_study *study, flim_error *err)
{
    flim_settings pretraining;
    char *words = NULL, digest[65];
    flim_sha256 hash;
    flim_status status = FLIM_OK;
    if (!is_wanted(run)) {
        return FLIM_OK;
    }
    FLIM_TRY(flim_settings_of_pretraining(run->settings, &pretraining, err));
    FLIM_TRY_DONE(flim_settings_pretraining_words(run->settings, &pretraining, &words, err));
    FLIM_TRY_DONE(open_together(run, &pretraining, err));
    FLIM_TRY_DONE(open_others(run, study, err));
    FLIM_TRY_DONE(flim_sha256_begin(&hash, err));
    flim_sha256_add(&hash, words, strlen(words) + 1);
    flim_sha256_add(&hash, run->others.sha256, strlen(run->others.sha256));
    flim_sha256_end(&hash, digest);
    flim_identity_set(&run->identity, FLIM_IDENTITY_PRETRAINING, "pretraining", true, "per fold %.16s", digest);
    flim_log_line(&run->log, run->settings->dry_run ? FLIM_LOG_RESULT : FLIM_LOG_INFO, "Pretraining per fold: %s", words);
done:
    flim_free(words);
    flim_settings_free(&pretraining);
    return status;
}

/* Cells of the other files that the pretraining of fold k sees: none of a group that is left out, and no copy of a cell that is. */
static flim_status count_others(const flim_run *run, const flim_study *study, int k, int64_t *seen, flim_error *err)
{
    const flim_dataset_info *info = study->info, *other = run->others.info;
    flim_fold_cells cells = {0};
    flim_copies never = {0};
    bool *out = NULL; /* (groups of the data) */
    int64_t *like = NULL; /* (groups of the other files) the data's that is left out; -1 = none */
    int64_t *list = NULL, n = 0; /* (cells of the data) those tested */
    flim_status status = FLIM_OK;
    *seen = 0;
    if (!other) {
        return FLIM_OK;
    }
    out = flim_alloc((size_t)info->groups + 1, sizeof *out, err);
    like = flim_alloc((size_t)other->groups + 1, sizeof *like, err);
    list = flim_alloc((size_t)info->n, sizeof *list, err);
    FLIM_TRY_DONE(out && like && list ? FLIM_OK : FLIM_ERROR_MEMORY);
    FLIM_TRY_DONE(flim_fold_cells_of(&study->splits, k, true, &cells, err));
    for (int64_t i = 0; i < cells.n; i++) {
        if (cells.use[i] == FLIM_CELL_TESTED) {
            list[n++] = i;
        }
    }
    FLIM_TRY_DONE(flim_copies_of(study, list, n, &never, err));
    if (info->group) {
        flim_fold_groups_out(&cells, info->group, info->groups, out);
        FLIM_TRY_DONE(flim_fold_groups_like((const char *const *)info->group_name, out, info->groups,
                                            (const char *const *)other->group_name, other->groups, like, err));
    }
    for (int64_t i = 0; i < other->n; i++) {
        *seen += !(info->group && like[other->group[i]] >= 0) && !flim_copies_hold(&never, &run->others, i);
    }
done:
    flim_copies_free(&never);
    flim_fold_cells_free(&cells);
    flim_free(out);
    flim_free(like);
    flim_free(list);
    return status;
}

flim_status flim_run_tell_pretraining(flim_run *run, const flim_study *study, flim_error *err)
{
    const flim_log_level level = run->settings->dry_run ? FLIM_LOG_RESULT : FLIM_LOG_INFO;
    if (!is_wanted(run)) {
        return FLIM_OK;
    }
    for (int k = 0; k < study->splits.n_folds; k++) {
        const flim_fold *fold = &study->splits.fold[k];
        char others[96] = "";
        int64_t seen = 0;
        if (!flim_run_wants_fold(run, k)) {
            continue;
        }
        FLIM_TRY(count_others(run, study, k, &seen, err));
        if (run->others.info) {
            snprintf(others, sizeof others, " and %" PRId64 " of the %" PRId64 " of --pretraining-data", seen,
                     run->others.info->n);
        }
        flim_log_line(&run->log, level, "  fold %d: pretraining on the %" PRId64 " cells of its training set%s", k,
                      fold->n_train, others);
    }
    flim_study_close(&run->others); /* each pretraining reads it for itself */
    return FLIM_OK;
}

/* ---- a pretraining within the run ---- */

typedef struct listener {
    const flim_run *run;
    int k, n_folds;
    char name[32]; /* "fold 2", "final model" */
    bool first; /* of this process */
} listener;

/* Its own train.log has every line; what its user is to read here is what is not about how it begins.  Notes are alike in all
 * folds: those of the first are enough. */
static void hear_line(void *context, flim_log_level level, const char *text)
{
    static const char *const heard[] = {"pretraining", "Cells: ", "Batch auto"};
    const listener *l = context;
    bool pass = level == FLIM_LOG_WARNING || (level == FLIM_LOG_NOTE && l->first);
    for (size_t i = 0; i < sizeof heard / sizeof heard[0]; i++) {
        pass = pass || strncmp(text, heard[i], strlen(heard[i])) == 0;
    }
    if (pass) {
        const bool named = strncmp(text, heard[0], strlen(heard[0])) == 0;
        flim_log_line(&l->run->log, level, "%s%s %s", l->name, named ? "" : " pretraining:", text);
    }
}

static void hear_progress(void *context, const flim_progress *progress)
{
    const listener *l = context;
    flim_progress at = *progress;
    at.pretraining = true;
    at.fold = l->k < l->n_folds ? l->k : -1;
    at.folds = l->n_folds;
    l->run->hooks->progress(l->run->hooks->context, &at);
}

/* Its beginning and its epochs are the run's events, too; its run is none of its own. */
static void hear_event(void *context, const char *name, const char *json)
{
    const listener *l = context;
    if (strcmp(name, "fold_start") == 0 || strcmp(name, "epoch") == 0) {
        l->run->hooks->event(l->run->hooks->context, name, json);
    }
}

/* What the run's settings say of a pretraining, and which fold's it is. */
static flim_status settings_of(const flim_run *run, const flim_study *study, int k, flim_settings *out, flim_error *err)
{
    const flim_shared_run *shared = run->hooks->shared;
    char path[FLIM_PATH_MAX], number[16];
    flim_status status = FLIM_OK;
    FLIM_TRY(flim_settings_of_pretraining(run->settings, out, err));
    FLIM_TRY_DONE(flim_run_folder_path(run, "splits.json", path, err));
    FLIM_TRY_DONE(flim_settings_set(out, "splits", path, err));
    FLIM_TRY_DONE(flim_run_fold_path(run, k, "pretraining", path, err));
    FLIM_TRY_DONE(flim_settings_set(out, "out", path, err));
    if (k < study->splits.n_folds) {
        snprintf(number, sizeof number, "%d", k);
        FLIM_TRY_DONE(flim_settings_set(out, "fold", number, err));
    }
    out->train_set_only = true;
    out->resume_override = run->settings->resume_override;
    if (shared && shared->on_device > 1) { /* others have the device, too */
        out->margin /= shared->on_device;
    }
done:
    if (status != FLIM_OK) {
        flim_settings_free(out);
    }
    return status;
}

static flim_status pretrain(flim_run *run, const flim_study *study, int k, flim_error *err)
{
    listener l = {
        .run = run, .k = k, .n_folds = study->splits.n_folds, .name = "final model", .first = run->pretrainings++ == 0};
    const flim_train_hooks hooks = {.log = {hear_line, &l},
                                    .progress = run->hooks->progress ? hear_progress : NULL,
                                    .event = run->hooks->event ? hear_event : NULL,
                                    .context = &l,
                                    .stop = run->hooks->stop,
                                    .command_line = run->hooks->command_line};
    flim_settings settings;
    if (k < study->splits.n_folds) {
        snprintf(l.name, sizeof l.name, "fold %d", k);
    }
    FLIM_TRY(settings_of(run, study, k, &settings, err));
    const flim_status status = flim_train_within(&settings, &hooks, k, err);
    flim_settings_free(&settings);
    return status == FLIM_OK ? FLIM_OK : flim_fail_prefix(err, "%s pretraining: ", l.name);
}

/* A pretraining whose numbers are not finite: the fold has failed, as by its own training. */
static flim_status mark_failed(const flim_run *run, int k, const char *reason, flim_error *err)
{
    char path[FLIM_PATH_MAX];
    FLIM_TRY(flim_run_fold_path(run, k, "FAILED", path, err));
    FLIM_TRY(flim_file_write(path, reason, strlen(reason), err));
    return flim_fail(err, FLIM_ERROR_NONFINITE, "%s", reason);
}

flim_status flim_run_pretrain_fold(flim_run *run, const flim_study *study, flim_trainer *trainer, int k, flim_error *err)
{
    char folder[FLIM_PATH_MAX], path[FLIM_PATH_MAX];
    if (!is_wanted(run)) {
        return FLIM_OK;
    }
    FLIM_TRY(flim_run_fold_path(run, k, "pretraining", folder, err));
    if (!flim_fold_is_done(folder, FLIM_PRETRAINING_FOLD)) {
        flim_error why = {0};
        flim_trainer_drop(trainer); /* its memory is the pretraining's meanwhile */
        const flim_status status = pretrain(run, study, k, &why);
        if (status != FLIM_OK && status != FLIM_ERROR_NONFINITE) {
            run->pretraining_ended = true;
            return flim_fail(err, status, "%s", why.text);
        }
        FLIM_TRY(flim_run_remake_program(run, study, trainer, err)); /* the folds after it go on */
        if (status == FLIM_ERROR_NONFINITE) {
            return mark_failed(run, k, why.text, err);
        }
    }
    FLIM_TRY(flim_run_fold_path(run, k, "pretraining/encoder.safetensors", path, err));
    return flim_run_read_encoder(run, study, trainer, k, path, err);
}
