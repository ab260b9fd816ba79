#include "train/study.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/try.h"
#include "train/hooks.h"

/* The data's files and, behind them, what a pretraining sees beside: their cells follow those of the data. */
static flim_status open_files(const flim_settings *s, const flim_dataset_options *options, flim_dataset **out,
                              flim_error *err)
{
    const int more = s->pretrains ? s->pretraining_data.n : 0, n = s->data.n + more;
    const char **path = flim_alloc((size_t)n, sizeof *path, err); /* (n) */
    if (!path) {
        return FLIM_ERROR_MEMORY;
    }
    for (int i = 0; i < n; i++) {
        path[i] = i < s->data.n ? s->data.item[i] : s->pretraining_data.item[i - s->data.n];
    }
    const flim_status status = flim_dataset_open(path, n, options, out, err);
    flim_free(path);
    return status;
}

/* Whether something that is asked for goes by group. */
static bool asks_for_groups(const flim_settings *s)
{
    return s->groups_out.n > 0 || s->val_groups.n > 0 || s->batch_from == FLIM_BATCH_FROM_DONOR || s->holdout_group.n > 0 ||
           s->test_groups.n > 0 || s->cv == FLIM_SPLIT_GROUP || s->cv == FLIM_SPLIT_STRATIFIED_GROUP ||
           s->cv == FLIM_SPLIT_LEAVE_ONE_GROUP_OUT || s->sampler == FLIM_SAMPLER_GROUP_BALANCED ||
           s->sampler == FLIM_SAMPLER_CLASS_GROUP;
}

flim_status flim_study_open(flim_study *study, const flim_settings *s, flim_cache cache, int processes,
                            const volatile int *stop, const flim_log *log, flim_error *err)
{
    const bool by_class = s->contrastive > 0 && s->contrastive_pairs == FLIM_PAIRS_CLASS;
    const flim_dataset_options options = {.axes = s->axes,
                                          .mask_counts = s->mask_counts,
                                          .allow_external = s->allow_external,
                                          .need_labels = !s->pretrains || by_class,
                                          .ignore_labels = s->pretrains && !by_class,
                                          .need_groups = asks_for_groups(s),
                                          .cache = cache,
                                          .processes = processes,
                                          .stop = stop,
                                          .hdf5_errors = s->verbose ? log : NULL,
                                          .log = log};
    FLIM_TRY(open_files(s, &options, &study->dataset, err));
    study->info = flim_dataset_get_info(study->dataset);
    study->split_data = flim_split_data_of(study->info);
    flim_dataset_sha256(study->dataset, study->sha256);
    return FLIM_OK;
}

flim_status flim_study_scan(flim_study *study, const flim_settings *settings, const volatile int *stop, const flim_log *log,
                            flim_error *err)
{
    const size_t n = (size_t)study->info->n;
    int64_t bad = 0;
    if (!settings->scan) {
        return FLIM_OK;
    }
    study->summary = flim_alloc(n, sizeof *study->summary, err);
    study->decay = flim_alloc(n * (size_t)study->info->t, sizeof *study->decay, err);
    if (!study->summary || !study->decay) {
        return FLIM_ERROR_MEMORY;
    }
    FLIM_TRY(flim_dataset_scan(study->dataset, (int)settings->workers, stop, log, study->summary, study->decay, &bad, err));
    study->hash = flim_alloc(n, sizeof *study->hash, err);
    for (size_t i = 0; study->hash && i < n; i++) {
        study->hash[i] = study->summary[i].hash;
    }
    return study->hash ? FLIM_OK : FLIM_ERROR_MEMORY;
}

void flim_study_close(flim_study *study)
{
    flim_splits_free(&study->splits);
    flim_findings_free(&study->findings);
    flim_dataset_close(study->dataset);
    flim_free(study->summary);
    flim_free(study->hash);
    flim_free(study->decay);
    *study = (flim_study){0};
}

/* ---- folds ---- */

/* Folds of a file: what the call says of them must be so, else a run would not be what its flags say. */
static flim_status check_flags(const flim_study *study, const flim_settings *s, const flim_train_hooks *hooks,
                               flim_error *err)
{
    const flim_splits *splits = &study->splits;
    const flim_split_request request = flim_split_request_of(s, NULL);
    if (flim_is_explicit(hooks, "folds") && s->folds != splits->n_folds) {
        return flim_fail(err, FLIM_ERROR_USAGE, "--folds %" PRId64 ": %s has %d folds; leave the flag out, or the file",
                         s->folds, s->splits, splits->n_folds);
    }
    if (flim_is_explicit(hooks, "cv") && s->cv != FLIM_SPLIT_AUTO && s->cv != splits->mode) {
        return flim_fail(err, FLIM_ERROR_USAGE, "--cv %s: the folds of %s are %s; leave the flag out, or the file",
                         flim_split_mode_name(s->cv), s->splits, flim_split_mode_name(splits->mode));
    }
    return request.n_holdout ? flim_splits_check_holdout(splits, &study->split_data, &request, err) : FLIM_OK;
}

/* Of --splits, or of the run that is resumed. */
static flim_status read_splits(flim_study *study, const flim_settings *s, const flim_train_hooks *hooks, const flim_log *log,
                               flim_error *err)
{
    flim_splits *splits = &study->splits;
    flim_split_request request = flim_split_request_of(s, log);
    char path[4096];
    request.stop = hooks->stop;
    snprintf(path, sizeof path, "%s%s", s->resume ? s->out : s->splits, s->resume ? "/splits.json" : "");
    FLIM_TRY(flim_splits_read_by(s->resume ? FLIM_SPLITS_BY_AUTO : s->splits_by, path, &study->split_data, splits, err));
    if (splits->sha256[0] && strcmp(splits->sha256, study->sha256) != 0) {
        return flim_fail(err, FLIM_ERROR_DATA,
                         "%s was made for other data: its sha256 is %.16s..., the data's is %.16s... (shape, labels, groups "
                         "or names differ)",
                         path, splits->sha256, study->sha256);
    }
    FLIM_TRY(s->resume ? FLIM_OK : check_flags(study, s, hooks, err));
    if (splits->needs_validation) {
        FLIM_TRY(flim_splits_add_validation(splits, &study->split_data, &request, err));
    } else if (!s->resume) {
        FLIM_TRY(flim_splits_warn(splits, &study->split_data, s->val_fraction > 0, log, err));
    }
    return flim_splits_check(splits, &study->split_data, err);
}

/* The fold table is what --dry-run was asked for. */
static void as_result(void *context, flim_log_level level, const char *text)
{
    flim_log_line(context, level == FLIM_LOG_INFO ? FLIM_LOG_RESULT : level, "%s", text);
}

/* --test-groups and what goes with it beside flags that say something else. */
static flim_status check_single(const flim_settings *s, const flim_train_hooks *hooks, flim_error *err)
{
    const char *beside = flim_is_explicit(hooks, "folds") ? "--folds"
                         : flim_is_explicit(hooks, "cv")  ? "--cv"
                         : s->splits[0]                   ? "--splits"
                                                          : NULL;
    if (s->test_groups.n == 0 && (s->train_groups.n > 0 || s->val_groups.n > 0)) {
        return flim_fail(err, FLIM_ERROR_USAGE, "--%s-groups needs --test-groups: which groups are tested",
                         s->train_groups.n > 0 ? "train" : "val");
    }
    return s->test_groups.n > 0 && beside
               ? flim_fail(err, FLIM_ERROR_USAGE, "--test-groups makes one split; leave %s out", beside)
               : FLIM_OK;
}

/* New folds, or those of --splits, without the cells that are left out. */
static flim_status new_splits(flim_study *study, const flim_settings *s, const flim_train_hooks *hooks, const flim_log *log,
                              flim_error *err)
{
    flim_split_request request = flim_split_request_of(s, log);
    request.stop = hooks->stop;
    bool *unused = NULL; /* (n) */
    flim_status status = FLIM_OK;
    FLIM_TRY_DONE(check_single(s, hooks, err));
    FLIM_TRY_DONE(flim_split_find_unused(&study->split_data, s, log, &unused, err));
    if (s->splits[0]) {
        FLIM_TRY_DONE(read_splits(study, s, hooks, log, err));
        status = unused ? flim_splits_leave_out(&study->splits, &study->split_data, unused, err) : FLIM_OK;
    } else {
        request.unused = unused;
        status = flim_splits_make(&study->split_data, &request, &study->splits, err);
        if (status == FLIM_OK && flim_is_explicit(hooks, "folds") && s->folds != study->splits.n_folds) {
            flim_log_line(log, FLIM_LOG_WARNING, "--folds %" PRId64 " has no effect: --cv %s makes %d folds, one per group",
                          s->folds, flim_split_mode_name(study->splits.mode), study->splits.n_folds);
        }
    }
done:
    flim_free(unused);
    return status;
}

flim_status flim_study_split(flim_study *study, const flim_settings *s, const flim_train_hooks *hooks, const flim_log *log,
                             flim_error *err)
{
    const flim_log result = {as_result, (void *)(uintptr_t)log};
    FLIM_TRY(s->resume ? read_splits(study, s, hooks, log, err) : new_splits(study, s, hooks, log, err));
    memcpy(study->splits.sha256, study->sha256, sizeof study->splits.sha256);
    if (s->fold >= study->splits.n_folds) {
        return flim_fail(err, FLIM_ERROR_USAGE,
                         "--fold %" PRId64 ": there are %d folds, numbered from 0 (--folds sets how many)", s->fold,
                         study->splits.n_folds);
    }
    flim_splits_table(&study->splits, &study->split_data, s->dry_run ? &result : log);
    return FLIM_OK;
}

/* ---- findings ---- */

flim_status flim_study_check(flim_study *study, const flim_settings *s, const flim_log *log, flim_error *err)
{
    const bool by_group = study->splits.mode != FLIM_SPLIT_STRATIFIED || asks_for_groups(s);
    flim_table_row *rows = NULL;
    int64_t n_rows = 0;
    flim_status status = FLIM_OK;
    FLIM_TRY_DONE(study->summary ? flim_cell_table_make(study->dataset, study->summary, &rows, &n_rows, err) : FLIM_OK);
    FLIM_TRY_DONE(flim_find_in_data(study->dataset, study->summary, rows, n_rows, by_group, &study->findings, err));
    FLIM_TRY_DONE(flim_study_find_in_folds(study, err));
    flim_findings_log(&study->findings, 0, log);
    const flim_finding *refusal = flim_findings_refusal(&study->findings);
    status = refusal ? flim_fail(err, FLIM_ERROR_DATA, "%s: %s", study->info->path[0], refusal->text) : FLIM_OK;
done:
    flim_free(rows);
    return status;
}
