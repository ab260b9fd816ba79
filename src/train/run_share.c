/* A run that several processes train together: this one's share of the machine, and what the others have done. */
#include <string.h>
#include <sys/stat.h>

#include "core/file.h"
#include "results/fold_result.h"
#include "train/run.h"

void flim_run_take_share(flim_run *run)
{
    const flim_shared_run *shared = run->hooks->shared;
    run->asked_workers = run->settings->workers;
    if (shared) {
        const int64_t own = run->asked_workers / shared->processes;
        run->adjusted.workers = own > 1 ? own : 1;
    }
}

flim_plan_budget flim_run_budget(const flim_run *run, const flim_trainer *trainer)
{
    const flim_shared_run *shared = run->hooks->shared;
    flim_plan_budget budget = flim_plan_budget_of(trainer->device, run->settings->margin);
    if (shared && shared->on_device > 1) { /* what is held now may be the others' or nobody's yet */
        const int64_t own = (int64_t)(budget.margin * (double)budget.total) / shared->on_device;
        budget.bytes = budget.bytes < own ? budget.bytes : own;
    }
    return budget;
}

void flim_run_say_begun(flim_run *run, int n_folds)
{
    const flim_shared_run *shared = run->hooks->shared;
    bool all_done;
    int left = 0;
    char reason[1024];
    for (int k = 0; k < n_folds; k++) {
        left +=
            flim_run_wants_fold(run, k) && !flim_fold_is_done(run->folder, k) && !flim_run_fold_has_failed(run, k, reason);
    }
    run->found_ended = flim_run_has_ended(run, n_folds, &all_done);
    if (shared && shared->begun) {
        shared->begun(shared->context, shared->run, left);
    }
}

void flim_run_at_fold(const flim_run *run, int k)
{
    const flim_shared_run *shared = run->hooks->shared;
    if (shared && shared->fold) {
        shared->fold(shared->context, shared->run, k);
    }
}

bool flim_run_is_failed_by_another(const flim_run *run, int k)
{
    char reason[1024];
    return run->hooks->shared && flim_run_fold_has_failed(run, k, reason);
}

bool flim_run_has_ended(const flim_run *run, int n_folds, bool *all_done)
{
    char reason[1024];
    bool ended = true;
    *all_done = true;
    for (int k = 0; k < n_folds; k++) {
        const bool done = flim_fold_is_done(run->folder, k);
        *all_done = *all_done && done;
        ended = ended && (done || !flim_run_wants_fold(run, k) || flim_run_fold_has_failed(run, k, reason));
    }
    return ended;
}

/* False if there is no such file. */
static bool time_of(const flim_run *run, int k, const char *name, struct timespec *out)
{
    char path[FLIM_PATH_MAX];
    struct stat about;
    const flim_status status =
        k < 0 ? flim_run_folder_path(run, name, path, NULL) : flim_run_fold_path(run, k, name, path, NULL);
    if (status != FLIM_OK || stat(path, &about) != 0) {
        return false;
    }
    *out = about.st_mtim;
    return true;
}

static bool is_later(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec != b->tv_sec ? a->tv_sec > b->tv_sec : a->tv_nsec > b->tv_nsec;
}

bool flim_run_is_summed_up(const flim_run *run, int n_folds)
{
    static const char *const ends[] = {"DONE", "FAILED"};
    struct timespec written, ended;
    if (!time_of(run, -1, "summary.json", &written)) {
        return false;
    }
    for (int k = 0; k < n_folds; k++) {
        for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
            if (time_of(run, k, ends[i], &ended) && is_later(&ended, &written)) {
                return false;
            }
        }
    }
    return true;
}
