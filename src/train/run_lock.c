/* Who works at what: the run folder's lock, held for moments, and one per fold. */
#include "core/file.h"
#include "core/try.h"
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

static flim_status try_fold(flim_run *run, int k, flim_lock *lock, char holder[FLIM_LOCK_HOLDER], flim_error *err)
{
    char path[FLIM_PATH_MAX], what[FLIM_PATH_MAX + 48];
    snprintf(what, sizeof what, "fold %d of %s", k, run->folder);
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
    return flim_fail(err, FLIM_ERROR_USAGE, "fold %d of %s is in use by another process (%s)%s", k, run->folder, holder,
                     what);
}

flim_status flim_run_take_fold(flim_run *run, int k, bool *taken, flim_error *err)
{
    char holder[FLIM_LOCK_HOLDER];
    *taken = true;
    if (run->locked_fold == k) {
        return FLIM_OK;
    }
    FLIM_TRY(try_fold(run, k, &run->fold_lock, holder, err));
    *taken = flim_lock_held(&run->fold_lock);
    if (*taken) {
        run->locked_fold = k;
        return FLIM_OK;
    }
    if (run->settings->fold == k) {
        return in_use(run, k, holder, "", err);
    }
    flim_log_line(&run->log, FLIM_LOG_NOTE, "fold %d is in use by another process (%s) and is left to it", k, holder);
    return FLIM_OK;
}

void flim_run_release_fold(flim_run *run)
{
    flim_lock_release(&run->fold_lock);
    run->locked_fold = -1;
}

/* --fold K, before the data is read.  A fold that nobody has begun has no folder yet, and its number may be wrong. */
flim_status flim_run_take_fold_asked_for(flim_run *run, flim_error *err)
{
    const int64_t k = run->settings->fold;
    bool taken;
    return k >= 0 && k <= INT32_MAX && fold_exists(run, (int)k) ? flim_run_take_fold(run, (int)k, &taken, err) : FLIM_OK;
}

flim_status flim_run_check_alone(flim_run *run, int n_folds, const char *what, flim_error *err)
{
    char holder[FLIM_LOCK_HOLDER];
    for (int k = 0; k < n_folds; k++) {
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
