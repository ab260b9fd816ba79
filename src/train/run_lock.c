/* Who works at what: the run folder's lock, held for moments, and one per fold. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "core/file.h"
#include "core/try.h"
#include "results/fold_result.h"
#include "train/run.h"

flim_status flim_run_folder_lock(flim_run *run, flim_error *err)
{
    char path[FLIM_PATH_MAX], what[FLIM_PATH_MAX + 32];
    snprintf(what, sizeof what, "the run folder %s", run->folder);
    FLIM_TRY(flim_run_folder_path(run, ".lock", path, err));
    return flim_lock_wait(path, what, run->hooks->stop, &run->log, &run->folder_lock, err);
}

void flim_run_folder_unlock(flim_run *run)
{
    flim_lock_release(&run->folder_lock);
}

flim_status flim_run_wait_to_start(flim_run *run, bool *exists, flim_error *err)
{
    const struct timespec pause = {.tv_nsec = 50000000};
    const char *out = run->settings->out;
    char config[FLIM_PATH_MAX], path[FLIM_PATH_MAX], what[FLIM_PATH_MAX + 32], holder[FLIM_LOCK_HOLDER];
    bool told = false;
    snprintf(run->folder, sizeof run->folder, "%s", out);
    FLIM_TRY(flim_run_folder_path(run, "config.yaml", config, err));
    FLIM_TRY(flim_run_folder_path(run, ".start", path, err));
    *exists = flim_file_exists(config);
    if (*exists || run->settings->dry_run) {
        return FLIM_OK;
    }
    flim_error why = {0};
    const flim_status status = flim_run_folder_check(run, &why); /* before a lock is put into somebody's own folder */
    if ((*exists = flim_file_exists(config))) { /* another one was quicker */
        return FLIM_OK;
    }
    if (status != FLIM_OK) {
        return flim_fail(err, status, "%s", why.text);
    }
    snprintf(what, sizeof what, "the start of %s", out);
    FLIM_TRY(flim_make_folder(out, err));
    while (!flim_lock_held(&run->start_lock)) {
        FLIM_TRY(flim_lock_try(path, what, &run->log, &run->start_lock, holder, err));
        if ((*exists = flim_file_exists(config))) {
            flim_run_start_ended(run);
            return FLIM_OK;
        }
        FLIM_TRY(flim_run_go_on(run, err));
        if (!flim_lock_held(&run->start_lock)) {
            if (!told) {
                flim_log_line(&run->log, FLIM_LOG_NOTE, "waiting for %s to start %s", holder, out);
                told = true;
            }
            nanosleep(&pause, NULL);
        }
    }
    return FLIM_OK;
}

void flim_run_start_ended(flim_run *run)
{
    flim_lock_release(&run->start_lock);
}

/* "fold 3", "the final model" */
static const char *name_of(int k, char out[32])
{
    if (k == FLIM_FINAL_FOLD) {
        return "the final model";
    }
    if (k == FLIM_PRETRAINING_FOLD) {
        return "the pretraining";
    }
    snprintf(out, 32, "fold %d", k);
    return out;
}

static flim_status try_fold(flim_run *run, int k, flim_lock *lock, char holder[FLIM_LOCK_HOLDER], flim_error *err)
{
    char path[FLIM_PATH_MAX], what[FLIM_PATH_MAX + 48], name[32];
    snprintf(what, sizeof what, "%s of %s", name_of(k, name), run->folder);
    FLIM_TRY(flim_run_fold_path(run, k, "", path, err));
    FLIM_TRY(flim_make_folder(path, err));
    FLIM_TRY(flim_run_fold_path(run, k, ".lock", path, err));
    return flim_lock_try(path, what, &run->log, lock, holder, err);
}

static bool fold_exists(const flim_run *run, int k)
{
    char path[FLIM_PATH_MAX];
    return flim_run_fold_path(run, k, "", path, NULL) == FLIM_OK && flim_file_exists(path);
}

static flim_status in_use(const flim_run *run, int k, const char *holder, const char *what, flim_error *err)
{
    char name[32];
    return flim_fail(err, FLIM_ERROR_USAGE, "%s of %s is in use by another process (%s)%s", name_of(k, name), run->folder,
                     holder, what);
}

flim_status flim_run_take_fold(flim_run *run, int k, bool *taken, flim_error *err)
{
    char holder[FLIM_LOCK_HOLDER], name[32];
    *taken = true;
    if (run->locked_fold == k) {
        return FLIM_OK;
    }
    FLIM_TRY(try_fold(run, k, &run->fold_lock, holder, err));
    *taken = flim_lock_held(&run->fold_lock);
    if (*taken) {
        char path[FLIM_PATH_MAX];
        run->locked_fold = k;
        FLIM_TRY(flim_run_fold_path(run, k, "train.log", path, err));
        return flim_train_log_open_fold(&run->file_log, path, err);
    }
    if (run->hooks->shared) {
        const size_t used = strlen(run->held);
        snprintf(run->held + used, sizeof run->held - used, "%s%s (%s)", used ? ", " : "", name_of(k, name), holder);
        return FLIM_OK;
    }
    if (run->settings->fold == k) {
        return in_use(run, k, holder, "", err);
    }
    flim_log_line(&run->log, FLIM_LOG_NOTE, "%s is in use by another process (%s) and is skipped", name_of(k, name), holder);
    return FLIM_OK;
}

void flim_run_release_fold(flim_run *run)
{
    flim_train_log_close_fold(&run->file_log);
    flim_lock_release(&run->fold_lock);
    run->locked_fold = -1;
}

/* --fold K, before the data is read.  A fold that nobody has begun has no folder yet, and its number may be wrong. */
flim_status flim_run_take_fold_asked_for(flim_run *run, flim_error *err)
{
    const int64_t k = run->settings->fold;
    bool taken;
    return k >= 0 && k <= INT32_MAX && !run->hooks->shared && fold_exists(run, (int)k)
               ? flim_run_take_fold(run, (int)k, &taken, err)
               : FLIM_OK;
}

flim_status flim_run_check_alone(flim_run *run, int n_folds, const char *what, flim_error *err)
{
    char holder[FLIM_LOCK_HOLDER];
    for (int i = 0; i <= n_folds; i++) {
        const int k = run->settings->pretrains ? FLIM_PRETRAINING_FOLD : i < n_folds ? i : FLIM_FINAL_FOLD;
        flim_lock lock = FLIM_NO_LOCK;
        if (k == run->locked_fold || !fold_exists(run, k)) {
            continue;
        }
        FLIM_TRY(try_fold(run, k, &lock, holder, err));
        if (!flim_lock_held(&lock)) {
            return in_use(run, k, holder, what, err);
        }
        flim_lock_release(&lock);
    }
    return FLIM_OK;
}
