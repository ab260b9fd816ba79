/* The run from settings to summary: each step either finishes or says why not, and what was opened is closed. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/clock.h"
#include "core/file.h"
#include "core/shell.h"
#include "core/try.h"
#include "plan/plan.h"
#include "flim/weights.h"
#include "results/fold_result.h"
#include "train/run.h"

/* ---- settings, device and data ---- */

static flim_status open_device(flim_run *run, flim_error *err)
{
    FLIM_TRY(flim_device_open(run->settings->device, &run->log, &run->device, err));
    const flim_device_info *device = flim_device_get_info(run->device);
    const flim_precision asked = run->settings->precision;
    run->precision = asked == FLIM_PRECISION_AUTO ? device->auto_precision : asked;
    if (!(device->precisions & 1u << run->precision)) {
        return flim_fail(err, FLIM_ERROR_USAGE, "--precision %s: %s cannot compute in it",
                         flim_precision_name(run->precision), device->name);
    }
    flim_startup_device(run);
    return flim_run_check_cache(run, err);
}

static flim_status open_data(flim_run *run, flim_error *err)
{
    const flim_settings *s = run->settings;
    const flim_dataset_options options = {
        .axes = s->axes,
        .mask_counts = s->mask_counts,
        .need_labels = true,
        .need_groups = s->holdout_group.n > 0 || s->cv == FLIM_SPLIT_GROUP || s->cv == FLIM_SPLIT_STRATIFIED_GROUP ||
                       s->cv == FLIM_SPLIT_LEAVE_ONE_GROUP_OUT || s->sampler == FLIM_SAMPLER_GROUP_BALANCED,
        .cache = flim_run_cache_of_data(run),
        .hdf5_errors = s->verbose ? &run->log : NULL,
        .log = &run->log};
    FLIM_TRY(flim_dataset_open((const char *const *)s->data.item, s->data.n, &options, &run->dataset, err));
    run->info = flim_dataset_get_info(run->dataset);
    run->split_data = flim_split_data_of(run->info);
    flim_dataset_sha256(run->dataset, run->data_sha256);
    return FLIM_OK;
}

static flim_status scan(flim_run *run, flim_error *err)
{
    const size_t n = (size_t)run->info->n;
    if (!run->settings->scan) {
        flim_startup_data(run, NULL);
        return FLIM_OK;
    }
    int64_t bad = 0;
    run->summary = flim_alloc(n, sizeof *run->summary, err);
    run->decay = flim_alloc(n * (size_t)run->info->t, sizeof *run->decay, err);
    if (!run->summary || !run->decay) {
        return FLIM_ERROR_MEMORY;
    }
    FLIM_TRY(flim_dataset_scan(run->dataset, (int)run->settings->workers, run->hooks->stop, &run->log, run->summary,
                               run->decay, &bad, err));
    flim_startup_data(run, run->summary);
    return FLIM_OK;
}

/* ---- splits ---- */

/* The fold table is what --dry-run was asked for. */
static void as_result(void *context, flim_log_level level, const char *text)
{
    const flim_log *log = context;
    flim_log_line(log, level == FLIM_LOG_INFO ? FLIM_LOG_RESULT : level, "%s", text);
}

/* Folds of a file: what the call says of them must be so, else a run would not be what its flags say. */
static flim_status check_given_splits(const flim_run *run, flim_error *err)
{
    const flim_settings *s = run->settings;
    const flim_splits *splits = &run->splits;
    if (flim_run_is_explicit(run->hooks, "folds") && s->folds != splits->n_folds) {
        return flim_fail(err, FLIM_ERROR_USAGE, "--folds %" PRId64 ": %s has %d folds; leave the flag out, or the file",
                         s->folds, s->splits, splits->n_folds);
    }
    if (flim_run_is_explicit(run->hooks, "cv") && s->cv != FLIM_SPLIT_AUTO && s->cv != splits->mode) {
        return flim_fail(err, FLIM_ERROR_USAGE, "--cv %s: the folds of %s are %s; leave the flag out, or the file",
                         flim_split_mode_name(s->cv), s->splits, flim_split_mode_name(splits->mode));
    }
    const flim_split_request request = {.holdout_group = (const char *const *)s->holdout_group.item,
                                        .n_holdout = s->holdout_group.n};
    return s->holdout_group.n ? flim_splits_check_holdout(splits, &run->split_data, &request, err) : FLIM_OK;
}

static flim_status make_splits(flim_run *run, flim_error *err)
{
    const flim_settings *s = run->settings;
    char path[FLIM_PATH_MAX];
    flim_status status;
    if (s->resume || s->splits[0]) {
        snprintf(path, sizeof path, "%s%s", s->resume ? s->out : s->splits, s->resume ? "/splits.json" : "");
        status = flim_splits_read(path, &run->split_data, &run->splits, err);
        if (status == FLIM_OK && run->splits.sha256[0] && strcmp(run->splits.sha256, run->data_sha256) != 0) {
            return flim_fail(
                err, FLIM_ERROR_DATA,
                "%s was made for other data: its sha256 is %.16s..., the data's is %.16s... (shape, labels, groups "
                "or names differ)",
                path, run->splits.sha256, run->data_sha256);
        }
        if (status == FLIM_OK && !s->resume) {
            status = check_given_splits(run, err);
        }
        const flim_split_request validation = {.val_fraction = s->val_fraction, .seed = s->seed, .log = &run->log};
        if (status == FLIM_OK && run->splits.needs_validation) {
            status = flim_splits_add_validation(&run->splits, &run->split_data, &validation, err);
        } else if (status == FLIM_OK && !s->resume) {
            status = flim_splits_warn(&run->splits, &run->split_data, s->val_fraction > 0, &run->log, err);
        }
        if (status == FLIM_OK) {
            status = flim_splits_check(&run->splits, &run->split_data, err);
        }
    } else {
        const flim_split_request request = {.mode = s->cv,
                                            .folds = (int)s->folds,
                                            .val_fraction = s->val_fraction,
                                            .seed = s->seed,
                                            .holdout_group = (const char *const *)s->holdout_group.item,
                                            .n_holdout = s->holdout_group.n,
                                            .log = &run->log};
        status = flim_splits_make(&run->split_data, &request, &run->splits, err);
    }
    if (status != FLIM_OK) {
        return status;
    }
    memcpy(run->splits.sha256, run->data_sha256, sizeof run->splits.sha256);
    if (s->fold >= run->splits.n_folds) {
        return flim_fail(err, FLIM_ERROR_USAGE, "--fold %" PRId64 ": there are %d folds, numbered from 0", s->fold,
                         run->splits.n_folds);
    }
    const flim_log result = {as_result, &run->log};
    flim_splits_table(&run->splits, &run->split_data, s->dry_run ? &result : &run->log);
    return FLIM_OK;
}

/* ---- network, program, loader ---- */

/* Read once and early, so that a file that does not fit leaves no run folder. */
static flim_status read_initial_weights(flim_run *run, flim_error *err)
{
    if (!run->settings->init_weights[0]) {
        return FLIM_OK;
    }
    run->initial_parameter = flim_alloc((size_t)run->net.parameters, sizeof(float), err);
    run->initial_statistic = flim_alloc((size_t)run->net.statistics, sizeof(float), err);
    if (!run->initial_parameter || !run->initial_statistic) {
        return FLIM_ERROR_MEMORY;
    }
    const char *path = run->settings->init_weights;
    flim_weights_info about;
    flim_status status = flim_weights_read(path, &run->net, run->initial_parameter, run->initial_statistic, err);
    if (status == FLIM_OK) {
        status = flim_weights_probe(path, &about, err);
    }
    if (status == FLIM_OK && about.preprocessing[0] && about.mask_counts != run->settings->mask_counts) {
        flim_log_line(&run->log, FLIM_LOG_WARNING, "%s was trained with mask_counts %s, this run has %s", path,
                      about.mask_counts ? "true" : "false", run->settings->mask_counts ? "true" : "false");
    }
    return status;
}

static flim_status build_network(flim_run *run, flim_error *err)
{
    const flim_settings *s = run->settings;
    const flim_dataset_info *info = run->info;
    FLIM_TRY(flim_network_build(&run->net, flim_preset_width(s->preset), info->classes, info->t, info->h, info->w, err));
    FLIM_TRY(read_initial_weights(run, err));
    return flim_run_settle_batch(run, err);
}

static flim_status compile(flim_run *run, flim_error *err)
{
    const flim_settings *s = run->settings;
    const flim_plan_room room = flim_plan_room_of(run->device, s->margin);
    const flim_plan_request request = {.net = &run->net,
                                       .batch = s->batch,
                                       .eval_batch = run->eval_batch,
                                       .prefetch = (int)s->prefetch,
                                       .cache_bytes = run->info->cache_bytes};
    const flim_program_options options = {.precision = run->precision,
                                          .train_batch = s->batch,
                                          .eval_batch = run->eval_batch,
                                          .benchmark = s->benchmark,
                                          .deterministic = s->deterministic,
                                          .recompute = s->checkpoint_activations,
                                          .memory_limit = flim_plan_limit(run->device, &request, &room) -
                                                          flim_run_device_cache_bytes(run),
                                          .log = &run->log,
                                          .stop = run->hooks->stop};
    FLIM_TRY(flim_program_compile(run->device, &run->net, &options, &run->program, err));
    return flim_run_plan_cache(run, err);
}

static void drop_program(flim_run *run)
{
    flim_loader_destroy(run->loader);
    flim_program_destroy(run->program);
    flim_free(run->cache_widths);
    run->loader = NULL;
    run->program = NULL;
    run->cache_widths = NULL;
}

static flim_status allocate(flim_run *run, flim_error *err)
{
    const flim_settings *s = run->settings;
    const flim_loader_options loader = {.workers = (int)s->workers,
                                        .prefetch = (int)s->prefetch,
                                        .batch = s->batch > run->eval_batch ? s->batch : run->eval_batch,
                                        .device = run->device,
                                        .device_cached = run->cache_widths != NULL,
                                        .log = &run->log};
    flim_status status = flim_startup_plan(run, err);
    if (status == FLIM_OK) {
        status = flim_loader_create(run->dataset, &loader, &run->loader, err);
    }
    if (status == FLIM_OK) {
        status = flim_device_memory_free(run->device, &run->free_before, err);
    }
    if (status == FLIM_OK) {
        status = flim_program_allocate(run->program, err);
    }
    int64_t now = 0;
    if (status == FLIM_OK) {
        status = flim_device_memory_free(run->device, &now, err);
        run->allocated_bytes = run->free_before - now;
    }
    if (status == FLIM_ERROR_MEMORY && run->cache_widths && s->cache == FLIM_CACHE_AUTO) {
        flim_log_line(&run->log, FLIM_LOG_NOTE, "there is less device memory than planned; the cells stay outside it");
        flim_loader_destroy(run->loader);
        run->loader = NULL;
        status = flim_run_unplan_cache(run, err);
        return status == FLIM_OK ? allocate(run, err) : status; /* once: nothing is kept now */
    }
    return status == FLIM_OK ? flim_run_fill_cache(run, err) : status;
}

/* Program, cells in device memory, loader; with --on-oom retry, or with a batch of --batch auto that nothing has been trained with,
 * with smaller batches until they fit. */
static flim_status make_program(flim_run *run, bool begun, flim_error *err)
{
    for (;;) {
        flim_error why = {0};
        flim_status status = compile(run, &why);
        if (status == FLIM_OK) {
            status = allocate(run, &why);
        }
        if (status == FLIM_OK) {
            return FLIM_OK;
        }
        const bool lower = status == FLIM_ERROR_MEMORY &&
                           ((!begun && flim_run_lower_found_batch(run, &why)) || flim_run_shrink_batch(run, &why));
        if (!lower) {
            return flim_fail(err, status, "%s", why.text);
        }
        drop_program(run);
    }
}

/* ---- the run ---- */

static flim_status interrupted_if_asked(const flim_run *run, flim_error *err)
{
    return flim_run_stopped(run) ? flim_fail(err, FLIM_INTERRUPTED, "interrupted") : FLIM_OK;
}

/* Reads and writes files that all folds share. */
static flim_status under_lock(flim_run *run, flim_status (*change)(flim_run *run, flim_error *err), flim_error *err)
{
    FLIM_TRY(flim_run_folder_lock(run, err));
    const flim_status status = change(run, err);
    flim_run_folder_unlock(run);
    return status;
}

/* A fold; with --on-oom retry again from its last checkpoint, in smaller batches. */
static flim_status run_fold(flim_run *run, int k, flim_error *err)
{
    for (;;) {
        flim_error why = {0};
        flim_status status = flim_run_fold(run, k, &why);
        if (status == FLIM_OK) {
            return FLIM_OK;
        }
        if (status != FLIM_ERROR_MEMORY || flim_run_stopped(run) || !flim_run_shrink_batch(run, &why)) {
            return flim_fail(err, status, "%s", why.text);
        }
        drop_program(run);
        status = make_program(run, true, err);
        if (status == FLIM_OK) {
            status = under_lock(run, flim_resume_rebatch, err);
        }
        if (status != FLIM_OK) {
            return status;
        }
    }
}

static bool is_done(flim_run *run, int k)
{
    const bool done = flim_fold_is_done(run->folder, k);
    if (done) {
        flim_log_line(&run->log, FLIM_LOG_INFO, "fold %d is done already", k);
        flim_run_fold_clean(run, k); /* a kill may have come right after DONE */
    }
    return done;
}

/* Trains fold k unless it is done, or in another process's hands: *left = true. */
static flim_status run_free_fold(flim_run *run, int k, bool *left, flim_error *err)
{
    bool taken = false;
    *left = false;
    if (is_done(run, k)) {
        return FLIM_OK;
    }
    FLIM_TRY(interrupted_if_asked(run, err));
    FLIM_TRY(flim_run_take_fold(run, k, &taken, err));
    *left = !taken;
    const flim_status status = taken && !is_done(run, k) ? run_fold(run, k, err) : FLIM_OK; /* done meanwhile by another */
    flim_run_release_fold(run);
    return status;
}

/* All wanted folds; a fold that is not finite is noted and the others go on.  *left: folds that other processes have. */
static flim_status run_folds(flim_run *run, int *left, flim_error *err)
{
    int failed = 0;
    flim_error first = {0};
    for (int k = 0; k < run->splits.n_folds; k++) {
        if (run->settings->fold >= 0 && run->settings->fold != k) {
            continue;
        }
        bool others;
        flim_status status = run_free_fold(run, k, &others, err);
        *left += status == FLIM_OK && others;
        if (status == FLIM_ERROR_NONFINITE) {
            flim_error reason = {0};
            flim_fail(&reason, status, "%s", err ? err->text : "not finite");
            flim_log_line(&run->log, FLIM_LOG_WARNING, "%s; the fold has failed, the others go on", reason.text);
            first = failed++ ? first : reason;
        } else if (status != FLIM_OK) {
            return status;
        }
    }
    return failed ? flim_fail(err, FLIM_ERROR_NONFINITE, "%d of %d folds failed: %s", failed, run->splits.n_folds, first.text)
                  : FLIM_OK;
}

/* Everything that can be refused, before the run folder of a new run is made. */
static flim_status prepare(flim_run *run, flim_error *err)
{
    const flim_settings *s = run->settings;
    flim_status status = FLIM_OK;
    run->eval_batch = run->settings->eval_batch ? run->settings->eval_batch : run->settings->batch;
    if (status == FLIM_OK && !s->dry_run) {
        status = s->resume ? flim_run_folder_open(run, true, err) : flim_run_folder_check(run, err);
    }
    if (status == FLIM_OK && !s->dry_run) { /* a fold table needs no device */
        status = open_device(run, err);
    }
    if (status == FLIM_OK) {
        status = open_data(run, err);
    }
    if (status == FLIM_OK) {
        status = scan(run, err);
    }
    if (status == FLIM_OK && !s->dry_run) {
        status = flim_resume_identify_data(run, err);
    }
    if (status == FLIM_OK && s->resume && !s->dry_run) {
        status = flim_resume_check_data(run, err);
    }
    if (status == FLIM_OK) {
        status = interrupted_if_asked(run, err);
    }
    if (status == FLIM_OK) {
        status = make_splits(run, err);
    }
    if (status == FLIM_OK) {
        status = flim_run_warn_of_copies(run, err);
    }
    if (status == FLIM_OK && !s->dry_run) {
        status = build_network(run, err);
    }
    if (status == FLIM_OK) {
        status = interrupted_if_asked(run, err);
    }
    if (status == FLIM_OK && !s->dry_run) {
        status = make_program(run, false, err);
    }
    return status == FLIM_OK ? interrupted_if_asked(run, err) : status;
}

/* What is computed from the folds that are done: from the disk, so that whichever process ends last sums up all of them. */
static flim_status conclude(flim_run *run, bool complete, flim_error *err)
{
    FLIM_TRY(complete ? flim_run_holdout(run, err) : FLIM_OK);
    FLIM_TRY(interrupted_if_asked(run, err));
    FLIM_TRY(flim_run_folder_lock(run, err));
    FLIM_TRY(flim_run_baselines(run, err));
    FLIM_TRY(flim_run_summary(run, err));
    flim_run_folder_unlock(run);
    return FLIM_OK;
}

/* Folds that were left to other processes, and that these have not ended meanwhile. */
static void tell_left(const flim_run *run)
{
    char reason[1024];
    for (int k = 0; k < run->splits.n_folds; k++) {
        if (!flim_fold_is_done(run->folder, k) && !flim_run_fold_has_failed(run, k, reason)) {
            flim_log_line(
                &run->log, FLIM_LOG_NOTE,
                "the run is not complete: fold %d is in another process's hands; whichever process ends last sums up "
                "all folds",
                k);
        }
    }
}

static flim_status run_all(flim_run *run, char *folder_out, flim_error *err)
{
    flim_status status = prepare(run, err);
    if (status != FLIM_OK || run->settings->dry_run) {
        return status;
    }
    if (!run->settings->resume) {
        status = flim_run_folder_open(run, false, err);
        status = status == FLIM_OK ? flim_run_folder_begin(run, err) : status;
    } else {
        status = flim_resume_identify_rest(run, err);
        status = status == FLIM_OK ? under_lock(run, flim_resume_check, err) : status;
    }
    if (status == FLIM_OK) {
        status = flim_checkpoint_writer_create(&run->checkpoints, err);
    }
    if (status != FLIM_OK) {
        return status;
    }
    if (folder_out) {
        snprintf(folder_out, FLIM_PATH_MAX, "%s", run->folder);
    }
    flim_log_line(&run->log, FLIM_LOG_INFO, "Run folder: %s", run->folder);
    int left = 0;
    status = run_folds(run, &left, err);
    if (status != FLIM_OK && status != FLIM_ERROR_NONFINITE) {
        return status;
    }
    flim_error more = {0};
    flim_status ended = conclude(run, status == FLIM_OK, &more);
    if (left > 0) {
        tell_left(run);
    }
    return ended == FLIM_OK ? status : flim_fail(err, ended, "%s", more.text);
}

/* How to go on, where there is something to go on with. */
static void say_how_to_go_on(const flim_run *run, flim_status status)
{
    char path[FLIM_PATH_MAX + 16], out[FLIM_PATH_MAX];
    int64_t batch, accumulate;
    flim_shell_quote(run->folder, out, sizeof out);
    snprintf(path, sizeof path, "%s/config.yaml", run->folder);
    const bool holds_a_run = run->file_log.file >= 0 && flim_file_exists(path);
    if (status == FLIM_INTERRUPTED) {
        flim_log_line(&run->log, FLIM_LOG_NOTE, "interrupted%s%s",
                      holds_a_run ? "; go on with: train_cv --resume --out " : ", before there was anything to keep",
                      holds_a_run ? out : "");
    } else if (status == FLIM_ERROR_WRITE && holds_a_run) {
        flim_log_line(&run->log, FLIM_LOG_NOTE,
                      "what was saved before is whole; once this can be written, go on with: train_cv --resume --out %s",
                      out);
    } else if (status == FLIM_ERROR_MEMORY && holds_a_run && flim_run_smaller_batch(run, &batch, &accumulate)) {
        flim_log_line(
            &run->log, FLIM_LOG_NOTE,
            "go on in smaller batches with as many cells an update: train_cv --resume --resume-override --batch %" PRId64
            " --accumulate %" PRId64 " --out %s (--on-oom retry does so by itself)",
            batch, accumulate, out);
    }
}

flim_status flim_train_cv(const flim_settings *settings, const flim_train_hooks *hooks, char *run_folder, flim_error *err)
{
    flim_settings resumed = {0};
    const double begun = flim_seconds();
    flim_run run = {
        .settings = settings, .hooks = hooks, .folder_lock = FLIM_NO_LOCK, .fold_lock = FLIM_NO_LOCK, .locked_fold = -1};
    run.log = flim_train_log_begin(&run.file_log, &hooks->log);
    bool own_settings = false;
    flim_status status = FLIM_OK;
    if (run_folder) {
        run_folder[0] = '\0';
    }
    if (settings->resume) {
        status = flim_settings_init(&resumed, err);
        own_settings = status == FLIM_OK;
        if (own_settings) {
            status = flim_resume_settings(&run, settings, &resumed, err);
            run.settings = &resumed;
        }
    }
    run.adjusted = *run.settings; /* texts and lists stay with their owner */
    run.settings = &run.adjusted;
    run.found_batch = run.adjusted.batch == 0;
    if (status == FLIM_OK) {
        status = run_all(&run, run_folder, err);
    }
    if (run.epochs_trained > 0) {
        flim_run_note_cost(&run, flim_seconds() - begun);
    }
    const char *changed = run.dataset ? flim_dataset_changed_file(run.dataset) : NULL;
    if (changed) {
        flim_log_line(&run.log, FLIM_LOG_WARNING,
                      "%s was written to while the run was going on: what was read of it may be a mixture", changed);
    }
    flim_checkpoint_writer_destroy(run.checkpoints);
    if (status != FLIM_OK && status != FLIM_INTERRUPTED && err) {
        flim_train_log_only(&run.file_log, "error: ", err->text);
    }
    say_how_to_go_on(&run, status);
    flim_loader_destroy(run.loader);
    flim_program_destroy(run.program);
    flim_splits_free(&run.splits);
    flim_dataset_close(run.dataset);
    flim_device_close(run.device);
    flim_error unwritten = {0};
    flim_status closed = flim_run_folder_close(&run, &unwritten);
    if (status == FLIM_OK && closed != FLIM_OK) {
        status = flim_fail(err, closed, "%s", unwritten.text);
    }
    flim_string_list_free(&run.accepted);
    flim_string_list_free(&run.overridden);
    flim_string_list_free(&run.changes);
    flim_free(run.initial_parameter);
    flim_free(run.initial_statistic);
    flim_free(run.summary);
    flim_free(run.decay);
    flim_free(run.cache_widths);
    if (own_settings) {
        flim_settings_free(&resumed);
    }
    return status;
}
