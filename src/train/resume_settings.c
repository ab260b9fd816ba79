/* --resume: the settings of the run folder, those of the call that are taken beside them, config.yaml after an override.
 * What may be done with a setting stands in its row (flim_on_resume). */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "config/settings.h"
#include "core/alloc.h"
#include "core/file.h"
#include "core/try.h"
#include "train/hooks.h"
#include "train/run.h"

/* The difference between the run's settings and the call's, as it is worked through. */
typedef struct merge {
    const flim_settings *given;
    flim_settings *out; /* the run's settings, which get the call's values */
    flim_run *run;
    char refused[1024]; /* "lr (the run has 1e-4, the call says 1e-3), ..." */
    size_t used;
    bool fixed; /* one of them cannot be overridden */
    flim_status status;
    flim_error *err;
} merge;

/* Takes the call's value, and notes which. */
static flim_status override(merge *m, const flim_flag_row *row, const char *key, const char *stored, const char *given)
{
    FLIM_TRY(flim_flag_copy(row, m->given, m->out, m->err));
    FLIM_TRY(flim_string_list_add(&m->run->overridden, key, m->err));
    char *change = flim_strprintf(m->err, "%s %s -> %s", key, stored, given);
    const flim_status status = change ? flim_string_list_add(&m->run->changes, change, m->err) : FLIM_ERROR_MEMORY;
    flim_free(change);
    return status;
}

/* --on-oom retry has made the run's batches smaller and left the cells per update: the call that began it still says the
 * first sizes. */
static bool is_batch_of_a_retry(const merge *m, const flim_flag_row *row)
{
    const flim_settings *run = m->out, *call = m->given;
    return (row->offset == offsetof(flim_settings, batch) || row->offset == offsetof(flim_settings, accumulate)) &&
           call->resume_or_start && call->on_oom == FLIM_ON_OOM_RETRY && run->batch < call->batch &&
           run->batch * run->accumulate == call->batch * call->accumulate;
}

static void merge_row(void *context, const flim_flag_row *row, const char *stored, const char *given)
{
    merge *m = context;
    flim_on_resume on_resume = (flim_on_resume)row->on_resume;
    char key[FLIM_KEY_MAX];
    flim_flag_key(row, key, sizeof key);
    /* --resume-or-start is the call that began the run: all that it says must be the run's. */
    const bool asked = m->given->resume_or_start || flim_is_explicit(m->run->hooks, key);
    if (m->status != FLIM_OK || on_resume == FLIM_ON_RESUME_CALL || !asked) {
        return;
    }
    if (row->offset == offsetof(flim_settings, batch) && m->given->batch == 0) {
        return; /* --batch auto was asked once, and the run's batch is the answer */
    }
    if (is_batch_of_a_retry(m, row)) {
        return;
    }
    if (on_resume == FLIM_ON_RESUME_TAKEN) {
        m->status = flim_flag_copy(row, m->given, m->out, m->err);
        return;
    }
    if (on_resume == FLIM_ON_RESUME_MOVED && (!stored[0] || !given[0])) {
        on_resume = FLIM_ON_RESUME_FIXED; /* a file can have moved only if there was one and is one */
    }
    if (on_resume != FLIM_ON_RESUME_FIXED && m->given->resume_override) {
        m->status = override(m, row, key, stored, given);
        return;
    }
    m->fixed = m->fixed || on_resume == FLIM_ON_RESUME_FIXED;
    if (m->used < sizeof m->refused) {
        int length = snprintf(m->refused + m->used, sizeof m->refused - m->used, "%s%s (run: %s, this call: %s%s)",
                              m->used ? ", " : "", key, stored[0] ? stored : "none", given[0] ? given : "none",
                              m->given->resume_override ? "; this cannot be overridden" : "");
        m->used += length > 0 ? (size_t)length : 0;
    }
}

/* Copies the rows for which --resume does this. */
static flim_status copy_rows(flim_on_resume on_resume, const flim_settings *from, flim_settings *to, flim_error *err)
{
    for (int i = 0; i < flim_all_settings_table.n; i++) {
        if (flim_all_settings_table.row[i].on_resume == (int)on_resume) {
            FLIM_TRY(flim_flag_copy(&flim_all_settings_table.row[i], from, to, err));
        }
    }
    return FLIM_OK;
}

flim_status flim_resume_settings(flim_run *run, const flim_settings *given, flim_settings *out, flim_error *err)
{
    char path[FLIM_PATH_MAX];
    if (!given->out[0]) {
        return flim_fail(err, FLIM_ERROR_USAGE, "--resume needs --out DIR, the folder of the run to resume");
    }
    snprintf(path, sizeof path, "%s/config.yaml", given->out);
    if (!flim_file_exists(path)) {
        return flim_fail(err, FLIM_ERROR_USAGE, "%s has no run to resume: there is no %s", given->out, path);
    }
    FLIM_TRY(flim_settings_read(out, path, err));
    merge m = {.given = given, .out = out, .run = run, .err = err};
    flim_settings_compare(out, given, merge_row, &m);
    FLIM_TRY(m.status);
    if (m.used) {
        return flim_fail(err, FLIM_ERROR_USAGE,
                         "--resume uses the settings of %s, and these flags disagree: %s. Leave them out%s", path, m.refused,
                         m.fixed ? ", or start a new run" : ", or add --resume-override to resume with them");
    }
    return copy_rows(FLIM_ON_RESUME_CALL, given, out, err);
}

flim_status flim_resume_settings_within(const flim_settings *given, flim_settings *out, flim_error *err)
{
    char path[FLIM_PATH_MAX];
    snprintf(path, sizeof path, "%.4000s/config.yaml", given->out);
    FLIM_TRY(flim_settings_read(out, path, err));
    const int64_t batch = out->batch, accumulate = out->accumulate, eval_batch = out->eval_batch;
    const bool retried = given->on_oom == FLIM_ON_OOM_RETRY && batch < given->batch;
    FLIM_TRY(flim_settings_copy(given, out, err));
    if (given->batch == 0 || retried) { /* found, or made smaller */
        out->batch = batch;
        out->accumulate = accumulate;
        out->eval_batch = eval_batch;
    }
    return FLIM_OK;
}

flim_status flim_resume_write_config(flim_run *run, flim_error *err)
{
    char path[FLIM_PATH_MAX];
    flim_settings stored;
    FLIM_TRY(flim_run_folder_path(run, "config.yaml", path, err));
    FLIM_TRY(flim_settings_init(&stored, err));
    stored.pretrains = run->settings->pretrains;
    flim_status status = FLIM_OK;
    FLIM_TRY_DONE(flim_settings_read(&stored, path, err));
    FLIM_TRY_DONE(copy_rows(FLIM_ON_RESUME_REFUSED, run->settings, &stored, err));
    FLIM_TRY_DONE(copy_rows(FLIM_ON_RESUME_MOVED, run->settings, &stored, err));
    FLIM_TRY_DONE(flim_settings_write(&stored, path, err));
done:
    flim_settings_free(&stored);
    return status;
}
