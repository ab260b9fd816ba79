/* The run from settings to summary: each step either finishes or says why not, and what was opened is closed. */
#include <inttypes.h>
#include <string.h>

#include "core/alloc.h"
#include "core/clock.h"
#include "core/file.h"
#include "core/shell.h"
#include "core/try.h"
#include "results/fold_result.h"
#include "train/follow.h"
#include "train/pretraining.h"
#include "train/run.h"

/* ---- before the run folder of a new run is made: everything that can be refused ---- */

static flim_status open_device(const flim_run *run, flim_trainer *trainer, flim_error *err)
{
    const flim_settings *s = run->settings;
    flim_device_kind kind = FLIM_DEVICE_AUTO;
    int index = 0;
    if (flim_ranks_size(run->ranks) > 1 && flim_parse_device(s->device, &kind, &index) && strchr(s->device, ':')) {
        return flim_fail(err, FLIM_ERROR_USAGE,
                         "--device %s: with --parallel data each process takes the card of its own number on its host; leave "
                         "the number out",
                         s->device);
    }
    FLIM_TRY(flim_trainer_create(s->device, s->precision, &run->log, trainer, err));
    trainer->ranks = run->ranks;
    flim_startup_device(run, trainer);
    return flim_run_check_cache(run, trainer, err);
}

/* Processes of this host that keep decoded cells each: workers, or ranks. */
static int processes_here(const flim_run *run)
{
    return run->hooks->shared ? run->hooks->shared->processes : flim_ranks_local_size(run->ranks);
}

static flim_status open_study(flim_run *run, const flim_trainer *trainer, flim_study *study, flim_error *err)
{
    const flim_settings *s = run->settings;
    FLIM_TRY(flim_study_open(study, s, flim_run_cache_of_data(run, trainer), processes_here(run), run->hooks->stop, &run->log,
                             err));
    FLIM_TRY(flim_lead_begin(run, trainer, err));
    FLIM_TRY(flim_study_scan(study, s, run->hooks->stop, &run->log, err));
    flim_startup_data(run, study);
    return flim_run_read_augmentation(run, study, err);
}

static flim_status split(flim_run *run, flim_study *study, flim_error *err)
{
    FLIM_TRY(flim_study_split(study, run->settings, run->hooks, &run->log, err));
    FLIM_TRY(flim_study_check(study, run->settings, &run->log, err));
    return flim_run_check_recipe(run, study, err);
}

static flim_status split_pretraining(flim_run *run, flim_study *study, flim_error *err)
{
    FLIM_TRY(flim_pretraining_split(run, study, err));
    if (!run->within) { /* else the run around it has said what is odd */
        FLIM_TRY(flim_study_check(study, run->settings, &run->log, err));
    }
    return flim_pretraining_identify(run, study, err);
}

/* The fold table, which needs neither a device nor a run folder. */
static flim_status dry_run(flim_run *run, flim_study *study, flim_error *err)
{
    const flim_trainer none = {0};
    FLIM_TRY(open_study(run, &none, study, err));
    FLIM_TRY(flim_run_go_on(run, err));
    FLIM_TRY(flim_run_look_at_pretraining(run, study, err));
    FLIM_TRY(split(run, study, err));
    FLIM_TRY(flim_run_tell_pretraining(run, study, err));
    flim_run_event_start(run, study, &none);
    flim_run_event_split(run, study);
    return flim_run_go_on(run, err);
}

static flim_status prepare(flim_run *run, flim_study *study, flim_trainer *trainer, flim_error *err)
{
    const bool resume = run->settings->resume;
    FLIM_TRY(resume ? flim_run_folder_open(run, true, err) : flim_run_folder_check(run, err));
    FLIM_TRY(open_device(run, trainer, err));
    FLIM_TRY(open_study(run, trainer, study, err));
    FLIM_TRY(flim_resume_identify_data(run, study, err));
    FLIM_TRY(flim_run_look_at_pretraining(run, study, err));
    FLIM_TRY(resume ? flim_resume_check_data(run, err) : FLIM_OK);
    FLIM_TRY(flim_run_go_on(run, err));
    FLIM_TRY(run->settings->pretrains ? split_pretraining(run, study, err) : split(run, study, err));
    FLIM_TRY(flim_run_tell_pretraining(run, study, err));
    FLIM_TRY(flim_run_build_network(run, study, trainer, err));
    FLIM_TRY(resume && !run->settings->pretrains ? flim_run_check_done_folds(run, study, trainer, err) : FLIM_OK);
    FLIM_TRY(flim_run_go_on(run, err));
    FLIM_TRY(flim_run_make_program(run, study, trainer, false, err));
    run->base = run->adjusted;
    FLIM_TRY(flim_run_plan_stages(run, trainer, err));
    return flim_run_go_on(run, err);
}

/* The run folder of a new run; or whether this is what the run was begun with. */
static flim_status begin(flim_run *run, const flim_study *study, const flim_trainer *trainer, flim_error *err)
{
    if (!run->settings->resume) {
        FLIM_TRY(flim_run_folder_open(run, false, err));
        FLIM_TRY(flim_run_folder_begin(run, study, trainer, err));
        flim_run_start_ended(run);
    } else {
        FLIM_TRY(flim_resume_identify_rest(run, trainer, err));
        FLIM_TRY(flim_run_folder_lock(run, err));
        FLIM_TRY(flim_resume_check(run, study->splits.n_folds, err));
        flim_run_folder_unlock(run);
    }
    return flim_checkpoint_writer_create(&run->checkpoints, err);
}

static void without_tables(void *context, flim_log_level level, const char *text)
{
    if (level != FLIM_LOG_INFO) {
        flim_log_line(context, level, "%s", text);
    }
}

flim_status flim_run_remake_program(flim_run *run, const flim_study *study, flim_trainer *trainer, flim_error *err)
{
    const int64_t batch = run->settings->batch;
    const flim_log all = run->log;
    run->log = (flim_log){without_tables, (void *)(uintptr_t)&all}; /* its plan has been shown */
    const flim_status status = flim_run_make_program(run, study, trainer, true, err);
    run->log = all;
    FLIM_TRY(status);
    if (run->settings->batch == batch) {
        return FLIM_OK;
    }
    FLIM_TRY(flim_run_folder_lock(run, err));
    FLIM_TRY(flim_resume_rebatch(run, trainer, err));
    flim_run_folder_unlock(run);
    return FLIM_OK;
}

/* ---- folds ---- */

/* A fold; with --on-oom retry again from its last checkpoint, in smaller batches. */
static flim_status run_fold(flim_run *run, const flim_study *study, flim_trainer *trainer, int k, flim_error *err)
{
    for (;;) {
        flim_error why = {0};
        const flim_status status = k == FLIM_FINAL_FOLD         ? flim_run_final_model(run, study, trainer, &why)
                                   : k == FLIM_PRETRAINING_FOLD ? flim_run_pretraining(run, study, trainer, &why)
                                                                : flim_run_fold(run, study, trainer, k, &why);
        if (status == FLIM_OK) {
            return FLIM_OK;
        }
        if (status != FLIM_ERROR_MEMORY || flim_run_stopped(run) || !flim_run_shrink_batch(run, study, &why)) {
            return flim_fail(err, status, "%s", why.text);
        }
        FLIM_TRY(flim_run_make_program(run, study, trainer, true, err));
        FLIM_TRY(flim_run_folder_lock(run, err));
        FLIM_TRY(flim_resume_rebatch(run, trainer, err));
        flim_run_folder_unlock(run);
    }
}

static bool is_done(flim_run *run, int k)
{
    const bool done = flim_fold_is_done(run->folder, k);
    if (done) {
        char name[32];
        if (!run->hooks->shared) { /* else it was one of the others that has done it */
            flim_log_line(&run->log, FLIM_LOG_INFO, "%s is already done", flim_fold_name(k, name));
        }
        flim_run_fold_clean(run, k); /* a kill may have come right after DONE */
    }
    return done;
}

/* Trains fold k unless it is done, or in another process's hands: *left = true. */
static flim_status run_free_fold(flim_run *run, const flim_study *study, flim_trainer *trainer, int k, bool *left,
                                 flim_error *err)
{
    bool taken = false;
    *left = false;
    if (is_done(run, k) || flim_run_is_failed_by_another(run, k)) {
        return FLIM_OK;
    }
    FLIM_TRY(flim_run_go_on(run, err));
    FLIM_TRY(flim_run_take_fold(run, k, &taken, err));
    *left = !taken;
    flim_status status = FLIM_OK;
    if (taken && !is_done(run, k) && !flim_run_is_failed_by_another(run, k)) { /* not done meanwhile by another */
        flim_run_at_fold(run, k);
        status = flim_run_pretrain_fold(run, study, trainer, k, err);
        status = status == FLIM_OK ? run_fold(run, study, trainer, k, err) : status;
        flim_run_at_fold(run, -1);
    }
    flim_run_release_fold(run);
    return status;
}

/* All wanted folds; a fold that is not finite is logged and the others go on.  *left: folds that other processes have. */
static flim_status run_folds(flim_run *run, const flim_study *study, flim_trainer *trainer, int *left, flim_error *err)
{
    const int n_folds = study->splits.n_folds;
    int failed = 0;
    char list[256] = ""; /* "1, 4" */
    run->held[0] = '\0';
    for (int k = 0; k < n_folds; k++) {
        bool others = false;
        flim_error reason = {0};
        if (!flim_run_wants_fold(run, k)) {
            continue;
        }
        const flim_status status = run_free_fold(run, study, trainer, k, &others, &reason);
        if (status != FLIM_OK && status != FLIM_ERROR_NONFINITE) {
            return flim_fail(err, status, "%s", reason.text);
        }
        *left += others;
        if (status == FLIM_ERROR_NONFINITE) {
            flim_log_line(&run->log, FLIM_LOG_WARNING, "%s; the fold has failed, the others continue", reason.text);
            flim_run_event_fold_end(run, k, NULL, reason.text);
            const size_t used = strlen(list);
            snprintf(list + used, sizeof list - used, "%s%d", failed++ ? ", " : "", k);
        }
    }
    if (run->held[0]) {
        flim_log_line(&run->log, FLIM_LOG_INFO, "no fold is free; in use: %s", run->held);
    }
    /* Why has been said above. */
    return failed
               ? flim_fail(err, FLIM_ERROR_NONFINITE,
                           "%d of %d folds failed: %s; the reason is in the file FAILED of its folder", failed, n_folds, list)
               : FLIM_OK;
}

/* --final, once all folds are done; whichever process ends last trains it. */
static flim_status run_final(flim_run *run, const flim_study *study, flim_trainer *trainer, flim_error *err)
{
    bool left;
    if (!run->settings->final_model) {
        return FLIM_OK;
    }
    for (int k = 0; k < study->splits.n_folds; k++) {
        if (!flim_fold_is_done(run->folder, k)) {
            flim_log_line(&run->log, FLIM_LOG_NOTE, "the final model is trained once all folds are done; fold %d is not", k);
            return FLIM_OK;
        }
    }
    return run_free_fold(run, study, trainer, FLIM_FINAL_FOLD, &left, err);
}

/* ---- the end ---- */

/* Folds that were left to other processes, and that these have not ended meanwhile. */
static void log_left(const flim_run *run, int n_folds)
{
    char reason[1024];
    for (int k = 0; k < n_folds; k++) {
        if (!flim_fold_is_done(run->folder, k) && !flim_run_fold_has_failed(run, k, reason)) {
            flim_log_line(&run->log, FLIM_LOG_NOTE,
                          "the run is not complete: fold %d is still running in another process; the last process to finish "
                          "writes the summary of all folds",
                          k);
        }
    }
}

/* What is computed from the folds that are done: from the disk, so that whichever process ends last sums up all of them. */
static flim_status conclude(flim_run *run, const flim_study *study, flim_trainer *trainer, bool complete, flim_error *err)
{
    flim_run_baselines baselines = {0};
    flim_status status = FLIM_OK;
    FLIM_TRY_DONE(complete ? flim_run_holdout(run, study, trainer, err) : FLIM_OK);
    FLIM_TRY_DONE(flim_run_go_on(run, err));
    FLIM_TRY_DONE(flim_run_fit_baselines(run, study, &baselines, err));
    FLIM_TRY_DONE(flim_run_folder_lock(run, err));
    FLIM_TRY_DONE(flim_run_write_baselines(run, study, &baselines, err));
    status = flim_run_summary(run, study, err);
done:
    flim_run_folder_unlock(run);
    flim_run_free_baselines(&baselines);
    return status;
}

/* The process that sums up is the one that finds all folds ended and nobody at it; one that trained none of them was started for
 * that.  Exactly one does: of two that end at the same time the second finds the first at it, or its summary. */
static flim_status conclude_shared(flim_run *run, const flim_study *study, flim_trainer *trainer, flim_error *err)
{
    const int n_folds = study->splits.n_folds;
    char path[FLIM_PATH_MAX], what[FLIM_PATH_MAX + 32], holder[FLIM_LOCK_HOLDER];
    bool all_done;
    flim_lock lock = FLIM_NO_LOCK;
    flim_status status = FLIM_OK;
    if (!flim_run_has_ended(run, n_folds, &all_done)) {
        return FLIM_OK;
    }
    snprintf(what, sizeof what, "the summary of %s", run->folder);
    FLIM_TRY(flim_run_folder_path(run, ".summary", path, err));
    FLIM_TRY(flim_lock_try(path, what, &run->log, &lock, holder, err));
    if (!flim_lock_held(&lock)) {
        return FLIM_OK;
    }
    const bool is_summed_up = flim_run_is_summed_up(run, n_folds);
    const bool has_final = !run->settings->final_model || flim_fold_is_done(run->folder, FLIM_FINAL_FOLD);
    if (!is_summed_up || (run->found_ended && run->hooks->shared->first && has_final)) {
        flim_run_at_fold(run, -1);
        FLIM_TRY_DONE(conclude(run, study, trainer, all_done, err));
        run->concluded = true;
    }
    FLIM_TRY_DONE(has_final || !all_done ? FLIM_OK : run_final(run, study, trainer, err));
    run->concluded = run->concluded || !has_final;
done:
    flim_lock_release(&lock);
    return status;
}

static flim_status run_all(flim_run *run, flim_study *study, flim_trainer *trainer, char *folder_out, flim_error *err)
{
    int left = 0;
    flim_error more = {0};
    if (run->settings->dry_run) {
        return dry_run(run, study, err);
    }
    FLIM_TRY(prepare(run, study, trainer, err));
    FLIM_TRY(begin(run, study, trainer, err));
    if (folder_out) {
        snprintf(folder_out, FLIM_PATH_MAX, "%s", run->folder);
    }
    flim_log_line(&run->log, FLIM_LOG_INFO, "Run folder: %s", run->folder);
    flim_run_event_start(run, study, trainer);
    flim_run_event_split(run, study);
    if (run->settings->pretrains) {
        bool in_use;
        FLIM_TRY(run_free_fold(run, study, trainer, FLIM_PRETRAINING_FOLD, &in_use, err));
        run->concluded = true;
        return FLIM_OK;
    }
    flim_run_say_begun(run, study->splits.n_folds);
    const flim_status status = run_folds(run, study, trainer, &left, err);
    if (status != FLIM_OK && status != FLIM_ERROR_NONFINITE) {
        return status;
    }
    flim_status ended;
    if (run->hooks->shared) {
        ended = conclude_shared(run, study, trainer, &more);
    } else {
        ended = conclude(run, study, trainer, status == FLIM_OK, &more);
        run->concluded = true;
        if (left > 0) {
            log_left(run, study->splits.n_folds);
        }
        ended = ended == FLIM_OK && status == FLIM_OK ? run_final(run, study, trainer, &more) : ended;
    }
    return ended == FLIM_OK ? status : flim_fail(err, ended, "%s", more.text);
}

/* Where the run is, and what can be done with it. */
static void log_results(const flim_run *run)
{
    char out[FLIM_PATH_MAX];
    flim_shell_quote(run->folder, out, sizeof out);
    flim_log_line(&run->log, FLIM_LOG_RESULT, "Results: %s", run->folder);
    if (run->settings->pretrains) {
        flim_log_line(&run->log, FLIM_LOG_INFO, "Next: train_cv --pretrained %s/encoder.safetensors --data LABELLED.h5", out);
        return;
    }
    flim_log_line(&run->log, FLIM_LOG_INFO, "Next: fold_metrics %s --html report.html", out);
    flim_log_line(&run->log, FLIM_LOG_INFO, "      predict --model %s --data NEW.h5 --out predictions.csv", out);
}

/* How to go on, if there is something to go on with. */
static void log_how_to_go_on(const flim_run *run, const flim_study *study, flim_status status)
{
    char path[FLIM_PATH_MAX + 16], out[FLIM_PATH_MAX];
    int64_t batch, accumulate;
    flim_shell_quote(run->folder, out, sizeof out);
    snprintf(path, sizeof path, "%s/config.yaml", run->folder);
    const bool holds_a_run = run->file_log.file >= 0 && flim_file_exists(path);
    if (status == FLIM_INTERRUPTED && !run->hooks->shared) { /* else it is said once, for all of them */
        if (holds_a_run) {
            flim_log_line(&run->log, FLIM_LOG_NOTE, "interrupted; resume with: %s --resume --out %s", flim_run_program(run),
                          out);
        } else {
            flim_log_line(&run->log, FLIM_LOG_NOTE, "interrupted, before there was anything to keep");
        }
    } else if (status == FLIM_ERROR_WRITE && holds_a_run) {
        flim_log_line(&run->log, FLIM_LOG_NOTE,
                      "what was saved before is whole; once this can be written, resume with: %s --resume --out %s",
                      flim_run_program(run), out);
    } else if (status == FLIM_ERROR_MEMORY && run->pretraining_ended) {
        flim_log_line(&run->log, FLIM_LOG_NOTE,
                      "a new run with smaller batches in --pretraining, or --on-oom retry with --resume, needs less memory");
    } else if (status == FLIM_ERROR_MEMORY && holds_a_run && flim_run_smaller_batch(run, study, &batch, &accumulate)) {
        flim_log_line(&run->log, FLIM_LOG_NOTE,
                      "resume with smaller batches and the same effective batch size: %s --resume --resume-override "
                      "--batch %" PRId64 " --accumulate %" PRId64 " --out %s (--on-oom retry does so by itself)",
                      flim_run_program(run), batch, accumulate, out);
    }
}

/* What is to be said at the end, however it came. */
static void log_end(flim_run *run, const flim_study *study, double seconds, flim_status status, const flim_error *err)
{
    const char *changed = study->dataset ? flim_dataset_changed_file(study->dataset) : NULL;
    if (run->epochs_trained > 0 && !run->hooks->shared && !run->within) {
        flim_log_cost(run, seconds);
    }
    if (changed) {
        flim_log_line(&run->log, FLIM_LOG_WARNING,
                      "%s was modified during the run: what was read from it may be inconsistent", changed);
    }
    if (status != FLIM_OK && status != FLIM_INTERRUPTED && err) {
        flim_train_log_only(&run->file_log, "error: ", err->text);
    }
    if (!run->within) {
        log_how_to_go_on(run, study, status);
    }
    if (status == FLIM_OK && run->concluded && !run->within) {
        log_results(run);
    }
    flim_run_event_end(run, seconds, status, err);
}

/* Whoever else was started for this run, as the call says or, later, the run that it resumes. */
static flim_status open_ranks(flim_run *run, flim_error *err)
{
    const flim_settings *s = run->settings;
    if (run->ranks || s->parallel == FLIM_PARALLEL_NONE || s->dry_run) {
        return FLIM_OK;
    }
    if (!run->hooks->ranks) {
        return flim_fail(err, FLIM_ERROR_USAGE, "parallel: data is for train_cv");
    }
    FLIM_TRY(flim_ranks_open(run->hooks->ranks, err));
    run->ranks = *run->hooks->ranks;
    run->config_ranks = flim_ranks_size(run->ranks);
    return FLIM_OK;
}

/* The whole run, of a process alone or of rank 0. */
static flim_status lead(flim_run *run, flim_study *study, flim_trainer *trainer, char *run_folder, flim_error *err)
{
    FLIM_TRY(run->settings->resume ? flim_resume_ranks(run, err) : FLIM_OK);
    FLIM_TRY(flim_check_records(run->settings, err));
    run->found_batch = run->adjusted.batch == 0;
    flim_run_take_share(run);
    FLIM_TRY(flim_run_read_stages(run, err));
    return run_all(run, study, trainer, run_folder, err);
}

/* The settings of the run that is resumed, in `resumed`, which is the caller's; what the call says in run->adjusted. */
static flim_status take_resumed(flim_run *run, flim_settings *resumed, flim_error *err)
{
    const flim_settings given = run->adjusted;
    FLIM_TRY(given.pretrains ? flim_settings_init_pretraining(resumed, err) : flim_settings_init(resumed, err));
    const flim_status status =
        run->within ? flim_resume_settings_within(&given, resumed, err) : flim_resume_settings(run, &given, resumed, err);
    run->adjusted = *resumed;
    return status;
}

/* within_fold: -1 = the run is a whole one. */
static flim_status train(const flim_settings *settings, const flim_train_hooks *hooks, int within_fold, char *run_folder,
                         flim_error *err)
{
    const double begun = flim_seconds();
    flim_settings resumed = {0};
    flim_error unwritten = {0};
    flim_study study = {0};
    flim_trainer trainer = {0};
    flim_run run = {.hooks = hooks,
                    .folder_lock = FLIM_NO_LOCK,
                    .fold_lock = FLIM_NO_LOCK,
                    .start_lock = FLIM_NO_LOCK,
                    .working = FLIM_NO_LOCK,
                    .within = within_fold >= 0,
                    .within_fold = within_fold,
                    .config_ranks = 1,
                    .locked_fold = -1};
    run.log = flim_train_log_begin(&run.file_log, &hooks->log);
    flim_status status = FLIM_OK;
    bool follows = false;
    if (run_folder) {
        run_folder[0] = '\0';
    }
    run.adjusted = *settings; /* texts and lists stay with their owner */
    run.settings = &run.adjusted;
    FLIM_TRY_DONE(open_ranks(&run, err));
    follows = flim_ranks_rank(run.ranks) > 0;
    run.adjusted.resume_or_start = settings->resume_or_start && !settings->resume && !follows;
    if (run.adjusted.resume_or_start) {
        FLIM_TRY_DONE(flim_run_wait_to_start(&run, &run.adjusted.resume, err));
    }
    FLIM_TRY_DONE(run.adjusted.resume && !follows ? take_resumed(&run, &resumed, err) : FLIM_OK);
    FLIM_TRY_DONE(open_ranks(&run, err));
    follows = flim_ranks_rank(run.ranks) > 0;
    status = follows ? flim_follow(run.ranks, err) : lead(&run, &study, &trainer, run_folder, err);
done:
    flim_checkpoint_writer_destroy(run.checkpoints);
    if (!follows) {
        log_end(&run, &study, flim_seconds() - begun, status, err);
        (void)flim_lead_end(&run, &unwritten);
    }
    flim_trainer_destroy(&trainer);
    flim_study_close(&study);
    flim_study_close(&run.others);
    if (flim_run_folder_close(&run, &unwritten) != FLIM_OK && status == FLIM_OK) {
        status = flim_fail(err, unwritten.status, "%s", unwritten.text);
    }
    flim_run_start_ended(&run);
    flim_run_free_stages(&run);
    flim_provenance_free(&run.initial);
    flim_string_list_free(&run.unchecked);
    flim_string_list_free(&run.accepted);
    flim_string_list_free(&run.overridden);
    flim_string_list_free(&run.changes);
    flim_settings_free(&resumed);
    return status;
}

flim_status flim_train_cv(const flim_settings *settings, const flim_train_hooks *hooks, char *run_folder, flim_error *err)
{
    return train(settings, hooks, -1, run_folder, err);
}

flim_status flim_train_within(const flim_settings *settings, const flim_train_hooks *hooks, int k, flim_error *err)
{
    char path[FLIM_PATH_MAX];
    flim_settings own = *settings; /* texts and lists stay with their owner */
    snprintf(path, sizeof path, "%.4000s/config.yaml", settings->out);
    own.resume = flim_file_exists(path);
    own.resume_override = own.resume && settings->resume_override;
    return train(&own, hooks, k, NULL, err);
}
