/* --seeds.
 *
 * Runs of several seeds are subfolders, seed_1 and so on, of a folder whose config.yaml has the list; each is a run like any
 * other.  They are always resumed or started, whatever there is of them: the list's folder says whether this is a new one. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/file.h"
#include "core/try.h"
#include "results/repeated.h"
#include "train/hooks.h"
#include "train/run.h"
#include "train/seeds.h"

/* The folder of all seeds, as the calls for its runs share it. */
typedef struct repetition {
    flim_run run; /* its folder, locks and log; no run of its own */
    flim_settings stored; /* what the first call said, as far as this one allows */
    flim_seeds seeds;
    bool found_ended; /* before this call all seeds were done and summed up */
} repetition;

flim_status flim_find_seeds(const flim_settings *s, flim_seeds *out, flim_error *err)
{
    out->n = 0;
    return s->seeds[0]                       ? flim_seeds_of(s->seeds, out, err)
           : s->resume || s->resume_or_start ? flim_seeds_stored(s->out, out, err)
                                             : FLIM_OK;
}

static flim_status check_seeds(const repetition *r, const char *folder, flim_error *err)
{
    flim_seeds stored;
    FLIM_TRY(flim_seeds_stored(folder, &stored, err));
    if (stored.n == 0) {
        return flim_fail(err, FLIM_ERROR_USAGE, "%s has a run of one seed, and this call has --seeds; choose another --out",
                         folder);
    }
    return stored.n == r->seeds.n && memcmp(stored.seed, r->seeds.seed, (size_t)stored.n * sizeof *stored.seed) == 0
               ? FLIM_OK
               : flim_fail(err, FLIM_ERROR_USAGE,
                           "%s was started with other seeds; leave --seeds out, or choose another --out", folder);
}

/* The folder and its config.yaml: made, or read and compared with the call. */
static flim_status open_folder(repetition *r, const flim_settings *settings, flim_error *err)
{
    flim_run *run = &r->run;
    char path[FLIM_PATH_MAX];
    bool exists = settings->resume;
    FLIM_TRY(settings->resume_or_start && !settings->resume ? flim_run_wait_to_start(run, &exists, err) : FLIM_OK);
    if (exists) {
        FLIM_TRY(check_seeds(r, settings->out, err));
        snprintf(run->folder, sizeof run->folder, "%s", settings->out);
        return flim_resume_settings(run, settings, &r->stored, err);
    }
    FLIM_TRY(run->start_lock.file < 0 ? flim_run_folder_check(run, err) : FLIM_OK);
    FLIM_TRY(flim_make_folder(run->folder, err));
    FLIM_TRY(flim_run_folder_path(run, "config.yaml", path, err));
    FLIM_TRY(flim_settings_copy(settings, &r->stored, err));
    FLIM_TRY(flim_settings_write(settings, path, err));
    flim_run_start_ended(run);
    return FLIM_OK;
}

/* The run of one seed; a new one has the settings that the first call had. */
static flim_status train_seed(repetition *r, const flim_settings *settings, const flim_train_hooks *hooks, int i,
                              flim_error *err)
{
    char name[48], out[FLIM_PATH_MAX], path[FLIM_PATH_MAX + 16], none[1] = "";
    flim_shared_run shared;
    flim_train_hooks own = *hooks;
    flim_seed_folder(r->seeds.seed[i], name);
    snprintf(out, sizeof out, "%.3900s/%s", r->run.folder, name);
    snprintf(path, sizeof path, "%s/config.yaml", out);
    const bool resume = settings->resume && flim_file_exists(path);
    flim_settings s = resume ? *settings : r->stored; /* texts and lists stay with their owners */
    s.out = out;
    s.seeds = none;
    s.seed = r->seeds.seed[i];
    s.resume = resume;
    s.resume_override = resume && settings->resume_override;
    s.resume_or_start = !resume;
    if (hooks->shared) {
        shared = *hooks->shared;
        shared.run = i;
        own.shared = &shared;
    }
    flim_log_line(&hooks->log, FLIM_LOG_INFO, "Seed %" PRIu64 " (%d of %d): %s", s.seed, i + 1, r->seeds.n, out);
    return flim_train_cv(&s, &own, NULL, err);
}

/* All seeds' runs have ended (and, if asked, been summed up). */
static flim_status look_at_end(const repetition *r, bool summed_up, bool *yes, flim_error *err)
{
    flim_repeated result = {0};
    const flim_status status = flim_repeated_read(r->run.folder, &r->seeds, &result, err);
    *yes = status == FLIM_OK && flim_repeated_has_ended(&result) && (!summed_up || flim_repeated_is_summed_up(&result));
    flim_repeated_free(&result);
    return status;
}

/* Of worker processes the one sums up that finds all runs ended and nobody at it: whoever is at it has found that, too.  The
 * first one tells it again if all was done before the call. */
static flim_status sum_up(repetition *r, const flim_train_hooks *hooks, flim_error *err)
{
    char path[FLIM_PATH_MAX], holder[FLIM_LOCK_HOLDER];
    flim_lock lock = FLIM_NO_LOCK;
    flim_repeated result = {0};
    flim_status status = FLIM_OK;
    if (hooks->shared) {
        bool ended = false;
        FLIM_TRY(look_at_end(r, false, &ended, err));
        if (!ended) {
            return FLIM_OK;
        }
    }
    FLIM_TRY(flim_run_folder_path(&r->run, ".summary", path, err));
    FLIM_TRY(flim_lock_try(path, "the summary of all seeds", &hooks->log, &lock, holder, err));
    if (!flim_lock_held(&lock)) {
        return FLIM_OK;
    }
    FLIM_TRY_DONE(flim_repeated_read(r->run.folder, &r->seeds, &result, err));
    const bool wanted = !hooks->shared || (r->found_ended && hooks->shared->first) || !flim_repeated_is_summed_up(&result);
    if (wanted && result.n > 0) {
        FLIM_TRY_DONE(flim_repeated_write(&result, err));
        flim_repeated_print(&result, &hooks->log);
        flim_log_line(&hooks->log, FLIM_LOG_RESULT, "Results of all seeds: %s", r->run.folder);
    }
done:
    flim_repeated_free(&result);
    flim_lock_release(&lock);
    return status;
}

static flim_status train_seeds(repetition *r, const flim_settings *settings, const flim_train_hooks *hooks, flim_error *err)
{
    flim_error first = {0};
    int failed = 0;
    if (hooks->shared && !settings->dry_run) { /* what cannot be read is an error of the run that it belongs to */
        flim_error why = {0};
        (void)look_at_end(r, true, &r->found_ended, &why);
    }
    for (int i = 0; i < r->seeds.n; i++) {
        flim_error why = {0};
        const flim_status status = train_seed(r, settings, hooks, i, &why);
        if (status != FLIM_OK && status != FLIM_ERROR_NONFINITE) {
            return flim_fail(err, status, "%s", why.text);
        }
        if (status == FLIM_ERROR_NONFINITE) {
            first = failed++ ? first : why;
        }
    }
    FLIM_TRY(settings->dry_run ? FLIM_OK : sum_up(r, hooks, err));
    return failed ? flim_fail(err, FLIM_ERROR_NONFINITE, "in %d of %d seeds: %s", failed, r->seeds.n, first.text) : FLIM_OK;
}

flim_status flim_train_seeds(const flim_settings *settings, const flim_train_hooks *hooks, flim_error *err)
{
    flim_status status = FLIM_OK;
    repetition *r = flim_alloc(1, sizeof *r, err);
    if (!r) {
        return FLIM_ERROR_MEMORY;
    }
    r->run = (flim_run){.settings = settings,
                        .hooks = hooks,
                        .log = hooks->log,
                        .folder_lock = FLIM_NO_LOCK,
                        .fold_lock = FLIM_NO_LOCK,
                        .start_lock = FLIM_NO_LOCK,
                        .locked_fold = -1};
    if (flim_is_explicit(hooks, "seed")) {
        FLIM_TRY_DONE(flim_fail(err, FLIM_ERROR_USAGE, "--seed and --seeds both say what the seed is; leave one out"));
    }
    FLIM_TRY_DONE(flim_find_seeds(settings, &r->seeds, err));
    FLIM_TRY_DONE(flim_settings_init(&r->stored, err));
    FLIM_TRY_DONE(settings->dry_run ? flim_settings_copy(settings, &r->stored, err) : open_folder(r, settings, err));
    status = train_seeds(r, settings, hooks, err);
done:
    flim_run_start_ended(&r->run);
    flim_string_list_free(&r->run.overridden);
    flim_string_list_free(&r->run.changes);
    flim_settings_free(&r->stored);
    flim_free(r);
    return status;
}
