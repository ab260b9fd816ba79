/* --resume: the settings of the run folder, what they may be compared with, and what may be overridden.
 *
 * resume.json holds the identity that the run has now, every identity that its checkpoints may carry (more than one after an
 * override), and the overrides in words.  It is written before config.yaml: a kill between the two leaves the old settings,
 * which are still accepted.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/alloc.h"
#include "core/file.h"
#include "core/sha256.h"
#include "core/try.h"
#include "formats/json.h"
#include "train/run.h"

/* ---- settings ---- */

/* What --resume does with a setting that the call names. */
typedef enum use_of_flag {
    FREE, /* part of the mathematics: refused, unless --resume-override */
    PLACE, /* where a file lies whose contents are compared: may be overridden, and changes no number */
    FIXED, /* cells, folds or weights would mean something else: always refused */
    CONTROL, /* how to run, not what to compute: the call's value is taken where it is given */
    CALL /* of this call only */
} use_of_flag;

static use_of_flag use_of(const char *key)
{
    static const char *const fixed[] = {"axes",    "mask_counts", "folds",  "cv",   "holdout_group", "val_fraction",
                                        "monitor", "splits",      "preset", "seed", "threshold_for", NULL};
    static const char *const control[] = {"workers",
                                          "prefetch",
                                          "cache",
                                          "scan",
                                          "checkpoint_minutes",
                                          "device",
                                          "margin",
                                          "on_oom",
                                          "checkpoint_activations",
                                          "price_per_hour",
                                          NULL};
    static const char *const call[] = {"out",     "resume",   "resume_override", "fold", "quiet",
                                       "verbose", "log_json", "dry_run",         NULL};
    if (strcmp(key, "data") == 0 || strcmp(key, "init_weights") == 0) {
        return PLACE;
    }
    for (int i = 0; fixed[i]; i++) {
        if (strcmp(key, fixed[i]) == 0) {
            return FIXED;
        }
    }
    for (int i = 0; control[i]; i++) {
        if (strcmp(key, control[i]) == 0) {
            return CONTROL;
        }
    }
    for (int i = 0; call[i]; i++) {
        if (strcmp(key, call[i]) == 0) {
            return CALL;
        }
    }
    return FREE;
}

/* The difference between the run's settings and the call's, as it is worked through. */
typedef struct merge {
    const flim_train_hooks *hooks;
    bool override;
    flim_settings *out; /* the run's settings, which get the call's values */
    flim_run *run;
    char refused[1024]; /* "lr (the run has 1e-4, the call says 1e-3), ..." */
    size_t used;
    bool fixed; /* one of them cannot be overridden */
    flim_status status;
    flim_error *err;
} merge;

bool flim_run_is_explicit(const flim_train_hooks *hooks, const char *key)
{
    for (int i = 0; hooks->explicit_keys && i < hooks->explicit_keys->n; i++) {
        if (strcmp(hooks->explicit_keys->item[i], key) == 0) {
            return true;
        }
    }
    return false;
}

static void merge_key(void *context, const char *key, const char *stored, const char *given)
{
    merge *m = context;
    use_of_flag use = use_of(key);
    if (use == PLACE) { /* a file can have moved where there was one and is one */
        use = stored[0] && given[0] ? FREE : FIXED;
    }
    if (strcmp(key, "batch") == 0 && strcmp(given, "auto") == 0) {
        return; /* that was asked once, and the run's batch is the answer */
    }
    if (m->status != FLIM_OK || use == CALL || !flim_run_is_explicit(m->hooks, key)) {
        return;
    }
    if (use == CONTROL || (use == FREE && m->override)) {
        m->status = flim_settings_set(m->out, key, given, m->err);
        char *pair = m->status == FLIM_OK && use == FREE ? flim_strprintf(m->err, "%s=%s", key, given) : NULL;
        char *change = pair ? flim_strprintf(m->err, "%s %s -> %s", key, stored, given) : NULL;
        if (m->status == FLIM_OK && use == FREE) {
            m->status = change ? flim_string_list_add(&m->run->overridden, pair, m->err) : FLIM_ERROR_MEMORY;
        }
        if (m->status == FLIM_OK && use == FREE) {
            m->status = flim_string_list_add(&m->run->changes, change, m->err);
        }
        flim_free(pair);
        flim_free(change);
        return;
    }
    m->fixed = m->fixed || use == FIXED;
    if (m->used < sizeof m->refused) {
        int length = snprintf(m->refused + m->used, sizeof m->refused - m->used, "%s%s (the run has %s, the call says %s%s)",
                              m->used ? ", " : "", key, stored[0] ? stored : "none", given[0] ? given : "none",
                              m->override ? "; this cannot be overridden" : "");
        m->used += length > 0 ? (size_t)length : 0;
    }
}

static flim_status copy_text(char **to, const char *from, flim_error *err)
{
    char *copy = flim_strdup(from, err);
    if (!copy) {
        return FLIM_ERROR_MEMORY;
    }
    flim_free(*to);
    *to = copy;
    return FLIM_OK;
}

flim_status flim_resume_settings(flim_run *run, const flim_settings *given, flim_settings *out, flim_error *err)
{
    char path[FLIM_PATH_MAX];
    if (!given->out[0]) {
        return flim_fail(err, FLIM_ERROR_USAGE, "--resume needs --out DIR, the folder of the run to go on with");
    }
    snprintf(path, sizeof path, "%s/config.yaml", given->out);
    if (!flim_file_exists(path)) {
        return flim_fail(err, FLIM_ERROR_USAGE, "%s holds no run to resume: there is no %s", given->out, path);
    }
    flim_status status = flim_settings_read(out, path, err);
    if (status != FLIM_OK) {
        return status;
    }
    merge m = {.hooks = run->hooks, .override = given->resume_override, .out = out, .run = run, .err = err};
    flim_settings_compare(out, given, merge_key, &m);
    if (m.status != FLIM_OK) {
        return m.status;
    }
    if (m.used) {
        return flim_fail(err, FLIM_ERROR_USAGE,
                         "--resume takes its settings from %s, and these flags disagree: %s. Leave them out%s", path,
                         m.refused, m.fixed ? ", or begin a new run" : ", or add --resume-override to go on with them");
    }
    status = copy_text(&out->out, given->out, err);
    out->resume = true;
    out->resume_override = given->resume_override;
    out->fold = given->fold;
    out->quiet = given->quiet;
    out->verbose = given->verbose;
    out->log_json = given->log_json;
    out->dry_run = given->dry_run;
    return status;
}

/* config.yaml as it was, with what was overridden. */
static flim_status rewrite_config(flim_run *run, flim_error *err)
{
    char path[FLIM_PATH_MAX], key[64];
    flim_settings stored;
    flim_status status = flim_run_folder_path(run, "config.yaml", path, err);
    if (status == FLIM_OK) {
        status = flim_settings_init(&stored, err);
    }
    if (status != FLIM_OK) {
        return status;
    }
    status = flim_settings_read(&stored, path, err);
    for (int i = 0; i < run->overridden.n && status == FLIM_OK; i++) {
        const char *pair = run->overridden.item[i], *equal = strchr(pair, '=');
        snprintf(key, sizeof key, "%.*s", (int)(equal - pair), pair);
        status = flim_settings_set(&stored, key, equal + 1, err);
    }
    if (status == FLIM_OK) {
        status = flim_settings_write(&stored, path, err);
    }
    flim_settings_free(&stored);
    return status;
}

/* ---- identity ---- */

/* The first 16 hex digits are enough to tell two from each other by accident. */
static flim_status add_hash(flim_identity *identity, const char *name, flim_sha256 *hash)
{
    char digest[65];
    flim_sha256_end(hash, digest);
    flim_identity_add(identity, name, true, "%.16s", digest);
    return FLIM_OK;
}

flim_status flim_resume_identify_data(flim_run *run, flim_error *err)
{
    const flim_dataset_info *info = run->info;
    flim_identity *id = &run->identity;
    flim_sha256 hash;
    flim_identity_add(id, "cells", true, "%" PRId64, info->n);
    flim_identity_add(id, "shape", true, "%dx%dx%d", info->t, info->h, info->w);
    flim_identity_add(id, "classes", true, "%d", info->classes);
    flim_status status = flim_sha256_begin(&hash, err);
    if (status == FLIM_OK) {
        flim_sha256_add(&hash, info->label, (size_t)info->n * sizeof *info->label);
        status = add_hash(id, "labels", &hash);
    }
    if (status == FLIM_OK) {
        status = flim_sha256_begin(&hash, err);
    }
    for (int64_t i = 0; status == FLIM_OK && info->group && i < info->n; i++) {
        const char *text = info->group_name[info->group[i]];
        flim_sha256_add(&hash, text, strlen(text) + 1);
    }
    if (status == FLIM_OK) {
        status = add_hash(id, "groups", &hash);
    }
    if (status == FLIM_OK) {
        status = flim_sha256_begin(&hash, err);
    }
    for (int64_t i = 0; status == FLIM_OK && info->name && i < info->n; i++) {
        flim_sha256_add(&hash, info->name[i], strlen(info->name[i]) + 1);
    }
    if (status == FLIM_OK) {
        status = add_hash(id, "names", &hash);
    }
    if (status != FLIM_OK || !run->summary) {
        return status;
    }
    /* What the scan saw of the counts.  No part of the identity: --no-scan does not know it. */
    status = flim_sha256_begin(&hash, err);
    if (status == FLIM_OK) {
        for (int64_t i = 0; i < info->n; i++) {
            const flim_cell_summary *cell = &run->summary[i];
            const double seen[] = {cell->photons, (double)cell->zero_voxels, (double)cell->mask_pixels,
                                   (double)cell->peak_bin, cell->max_count};
            flim_sha256_add(&hash, seen, sizeof seen);
        }
        flim_sha256_end(&hash, run->counts_sha256);
    }
    return status;
}

static void write_texts(flim_run *run)
{
    const flim_device_info *device = flim_device_get_info(run->device);
    char threads[32] = "";
    flim_identity_text(&run->identity, run->identity_text);
    if (device->threads > 0) {
        snprintf(threads, sizeof threads, " · %d threads", device->threads);
    }
    snprintf(run->made_by, sizeof run->made_by, "flimcv %s · %s · %s%s", FLIM_VERSION, device->libraries,
             device->architecture, threads);
    snprintf(run->checkpoint_text, sizeof run->checkpoint_text, "%s\n%s", run->identity_text, run->made_by);
}

flim_status flim_resume_identify_rest(flim_run *run, flim_error *err)
{
    const flim_settings *s = run->settings;
    const flim_device_info *device = flim_device_get_info(run->device);
    flim_identity *id = &run->identity;
    char path[FLIM_PATH_MAX], digest[65] = "", *bytes = NULL;
    size_t count = 0;
    flim_status status = flim_run_folder_path(run, "splits.json", path, err);
    if (status == FLIM_OK) {
        status = flim_file_read(path, (size_t)1 << 32, &bytes, &count, err);
    }
    if (status == FLIM_OK) {
        status = flim_sha256_of(bytes, count, digest, err);
    }
    flim_free(bytes);
    flim_identity_add(id, "splits", true, "%.16s", digest);
    flim_identity_add(id, "width", true, "%d", run->net.width);
    if (status == FLIM_OK && run->initial_parameter) {
        status = flim_sha256_of(run->initial_parameter, (size_t)run->net.parameters * sizeof(float), digest, err);
    }
    flim_identity_add(id, "init_weights", true, "%.16s", run->initial_parameter ? digest : "none");
    flim_identity_add(id, "seed", true, "%" PRIu64, s->seed);
    flim_identity_add(id, "axes", true, "%s", s->axes);
    flim_identity_add(id, "mask_counts", true, "%d", s->mask_counts);
    flim_identity_add(id, "monitor", true, "%s", flim_monitor_names[s->monitor]);
    flim_identity_add(id, "threshold_for", true, "%s", flim_objective_names[s->threshold_for]);
    flim_identity_add(id, "device", false, "%s", device->kind);
    flim_identity_add(id, "precision", false, "%s", flim_precision_name(run->precision));
    flim_identity_add(id, "deterministic", false, "%d", s->deterministic);
    flim_identity_add(id, "benchmark", false, "%d", s->benchmark);
    flim_identity_add(id, "epochs", false, "%" PRId64, s->epochs);
    flim_identity_add(id, "batch", false, "%" PRId64, s->batch);
    flim_identity_add(id, "accumulate", false, "%" PRId64, s->accumulate);
    flim_identity_add(id, "eval_batch", false, "%" PRId64, run->eval_batch);
    flim_identity_add(id, "lr", false, "%.17g", run->lr);
    flim_identity_add(id, "weight_decay", false, "%.17g", s->weight_decay);
    flim_identity_add(id, "clip", false, "%.17g", s->clip);
    flim_identity_add(id, "label_smoothing", false, "%.17g", s->label_smoothing);
    flim_identity_add(id, "dropout", false, "%.17g", s->dropout);
    flim_identity_add(id, "sampler", false, "%s", flim_sampler_names[s->sampler]);
    flim_identity_add(id, "patience", false, "%" PRId64, s->patience);
    write_texts(run);
    return status;
}

/* ---- resume.json ---- */

static flim_json *list_json(const flim_string_list *list)
{
    flim_json *array = flim_json_array();
    for (int i = 0; i < list->n; i++) {
        flim_json_add_string(array, list->item[i]);
    }
    return array;
}

static flim_status write_record(flim_run *run, const flim_string_list *overrides, flim_error *err)
{
    char path[FLIM_PATH_MAX];
    flim_status status = flim_run_folder_path(run, "resume.json", path, err);
    if (status != FLIM_OK) {
        return status;
    }
    flim_json *json = flim_json_object(), *fields = flim_json_object();
    for (int i = 0; i < run->identity.n; i++) {
        flim_json_set_string(fields, run->identity.field[i].name, run->identity.field[i].value);
    }
    flim_json_set(json, "identity", fields);
    flim_json_set_string(json, "made_by", run->made_by);
    flim_json_set_string(json, "counts_sha256", run->counts_sha256[0] ? run->counts_sha256 : NULL);
    flim_json_set(json, "accepted", list_json(&run->accepted));
    flim_json_set(json, "overrides", list_json(overrides));
    status = flim_json_write(json, path, err);
    flim_json_free(json);
    return status;
}

flim_status flim_resume_begin(flim_run *run, flim_error *err)
{
    const flim_string_list none = {0};
    FLIM_TRY(flim_string_list_add(&run->accepted, run->identity_text, err));
    return write_record(run, &none, err);
}

static flim_status read_list(const flim_json *array, flim_string_list *out, flim_error *err)
{
    flim_status status = FLIM_OK;
    for (size_t i = 0; i < flim_json_length(array) && status == FLIM_OK; i++) {
        const char *text = flim_json_string(flim_json_at(array, i));
        status = text ? flim_string_list_add(out, text, err) : FLIM_OK;
    }
    return status;
}

/* The fields of the present identity that the stored one has otherwise. */
typedef struct differences {
    char text[1024]; /* "batch was 16 and is 8, ..." */
    char beside[1024]; /* of it, what no flag of the call has asked for */
    bool any, data, fixed;
    char fixed_names[256];
} differences;

static void append(char *text, size_t size, const char *name, const char *was, const char *is)
{
    size_t used = strlen(text);
    snprintf(text + used, size - used, "%s%s was %s and is %s", used ? ", " : "", name, was, is);
}

static bool is_overridden(const flim_run *run, const char *name)
{
    for (int i = 0; i < run->overridden.n; i++) {
        const char *pair = run->overridden.item[i];
        if (strncmp(pair, name, strlen(name)) == 0 && pair[strlen(name)] == '=') {
            return true;
        }
    }
    return false;
}

static void note(const flim_run *run, differences *d, const char *name, const char *was, const char *is, bool fixed)
{
    d->any = true;
    d->fixed = d->fixed || fixed;
    append(d->text, sizeof d->text, name, was, is);
    if (!is_overridden(run, name)) {
        append(d->beside, sizeof d->beside, name, was, is);
    }
    size_t used = strlen(d->fixed_names);
    if (fixed) {
        snprintf(d->fixed_names + used, sizeof d->fixed_names - used, "%s%s", used ? ", " : "", name);
    }
}

static void compare(const flim_run *run, const flim_json *record, differences *d)
{
    static const char *const of_data[] = {"cells", "shape", "classes", "labels", "groups", "names", NULL};
    const flim_json *stored = flim_json_get(record, "identity");
    for (int i = 0; i < run->identity.n; i++) {
        const flim_identity_field *field = &run->identity.field[i];
        const char *was = flim_json_string(flim_json_get(stored, field->name));
        if (!was || strcmp(was, field->value) == 0) {
            continue; /* a field that an older version did not write: its checkpoints tell */
        }
        note(run, d, field->name, was, field->value, field->fixed);
        for (int j = 0; of_data[j]; j++) {
            d->data = d->data || strcmp(of_data[j], field->name) == 0;
        }
    }
    const char *counts = flim_json_string(flim_json_get(record, "counts_sha256"));
    if (counts && run->counts_sha256[0] && strcmp(counts, run->counts_sha256) != 0) {
        char was[20], is[20];
        snprintf(was, sizeof was, "%.16s", counts);
        snprintf(is, sizeof is, "%.16s", run->counts_sha256);
        note(run, d, "counts", was, is, true);
        d->data = true;
    }
}

static bool is_accepted(const flim_run *run)
{
    for (int i = 0; i < run->accepted.n; i++) {
        if (strcmp(run->accepted.item[i], run->identity_text) == 0) {
            return true;
        }
    }
    return false;
}

static flim_status refuse(const flim_run *run, const differences *d, flim_error *err)
{
    const flim_status status = d->data ? FLIM_ERROR_DATA : FLIM_ERROR_USAGE;
    if (d->fixed) {
        return flim_fail(
            err, status,
            "--resume: this is not what %s was begun with: %s. Of these, %s cannot be overridden: begin a new run",
            run->folder, d->text, d->fixed_names);
    }
    return flim_fail(
        err, status,
        "--resume: this is not what %s was begun with: %s. Restore it, or add --resume-override to go on all the "
        "same",
        run->folder, d->text);
}

static flim_status read_record(flim_run *run, flim_json **out, flim_error *err)
{
    char path[FLIM_PATH_MAX];
    *out = NULL;
    flim_status status = flim_run_folder_path(run, "resume.json", path, err);
    return status == FLIM_OK && flim_file_exists(path) ? flim_json_read(path, out, err) : status;
}

flim_status flim_resume_check_data(flim_run *run, flim_error *err)
{
    flim_json *record;
    differences d = {0};
    flim_status status = read_record(run, &record, err);
    if (status == FLIM_OK) {
        compare(run, record, &d);
        status = d.any ? refuse(run, &d, err) : FLIM_OK;
    }
    flim_json_free(record);
    return status;
}

/* Takes the present identity beside the earlier ones, and says what that overrides. */
static flim_status override(flim_run *run, const flim_json *record, const differences *d, flim_error *err)
{
    char when[32];
    time_t now = time(NULL);
    struct tm utc;
    flim_string_list overrides = {0};
    gmtime_r(&now, &utc);
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &utc);
    flim_status status = read_list(flim_json_get(record, "overrides"), &overrides, err);
    for (int i = 0; i < run->changes.n && status == FLIM_OK; i++) {
        flim_log_line(&run->log, FLIM_LOG_WARNING, "--resume-override: %s", run->changes.item[i]);
    }
    if (d->beside[0]) {
        flim_log_line(&run->log, FLIM_LOG_WARNING, "--resume-override: %s", d->beside);
    }
    if (d->any) { /* a file that has moved changes no number */
        flim_log_line(
            &run->log, FLIM_LOG_WARNING,
            "from here on the run is another one: no undisturbed run ends in its numbers; %s/resume.json keeps this",
            run->folder);
    }
    if (status == FLIM_OK && !is_accepted(run)) {
        status = flim_string_list_add(&run->accepted, run->identity_text, err);
    }
    char *line = flim_strprintf(err, "%s: %s", when, d->any ? d->text : run->changes.item[0]);
    if (status == FLIM_OK) {
        status = line ? flim_string_list_add(&overrides, line, err) : FLIM_ERROR_MEMORY;
    }
    flim_free(line);
    if (status == FLIM_OK) {
        status = write_record(run, &overrides, err);
    }
    flim_string_list_free(&overrides);
    return status == FLIM_OK ? rewrite_config(run, err) : status;
}

/* The same mathematics, but sums may be taken in another order. */
static void note_versions(const flim_run *run, const flim_json *record)
{
    const char *was = flim_json_string(flim_json_get(record, "made_by"));
    if (was && strcmp(was, run->made_by) != 0) {
        flim_log_line(
            &run->log, FLIM_LOG_WARNING,
            "the run was begun by %s; this is %s: what is computed from here on may differ in its last bits from an "
            "undisturbed run (OMP_NUM_THREADS sets the threads)",
            was, run->made_by);
    }
}

/* Replaces a field's value in the identity. */
static void set_field(flim_run *run, const char *name, int64_t value)
{
    for (int i = 0; i < run->identity.n; i++) {
        flim_identity_field *field = &run->identity.field[i];
        if (strcmp(field->name, name) == 0) {
            snprintf(field->value, sizeof field->value, "%" PRId64, value);
        }
    }
}

flim_status flim_resume_rebatch(flim_run *run, flim_error *err)
{
    const flim_settings *s = run->settings;
    flim_json *record;
    flim_string_list overrides = {0};
    const struct {
        const char *key;
        int64_t value;
    } changed[] = {{"batch", s->batch}, {"accumulate", s->accumulate}, {"eval_batch", s->eval_batch}};
    flim_status status = read_record(run, &record, err);
    if (status == FLIM_OK) {
        status = read_list(flim_json_get(record, "overrides"), &overrides, err);
    }
    flim_json_free(record);
    char *line = flim_strprintf(err, "out of memory: batch %" PRId64 " x accumulate %" PRId64 " from here on", s->batch,
                                s->accumulate);
    if (status == FLIM_OK) {
        status = line ? flim_string_list_add(&overrides, line, err) : FLIM_ERROR_MEMORY;
    }
    flim_free(line);
    for (size_t i = 0; i < sizeof changed / sizeof changed[0] && status == FLIM_OK; i++) {
        if (i == 2 && changed[i].value == 0) {
            continue; /* it follows the batch */
        }
        char *pair = flim_strprintf(err, "%s=%" PRId64, changed[i].key, changed[i].value);
        status = pair ? flim_string_list_add(&run->overridden, pair, err) : FLIM_ERROR_MEMORY;
        flim_free(pair);
    }
    set_field(run, "batch", s->batch);
    set_field(run, "accumulate", s->accumulate);
    set_field(run, "eval_batch", run->eval_batch);
    write_texts(run);
    if (status == FLIM_OK && !is_accepted(run)) {
        status = flim_string_list_add(&run->accepted, run->identity_text, err);
    }
    if (status == FLIM_OK) {
        status = write_record(run, &overrides, err);
    }
    flim_string_list_free(&overrides);
    return status == FLIM_OK ? rewrite_config(run, err) : status;
}

flim_status flim_resume_check(flim_run *run, flim_error *err)
{
    flim_json *record;
    differences d = {0};
    flim_status status = read_record(run, &record, err);
    if (status != FLIM_OK) {
        return status;
    }
    if (!record) {
        flim_log_line(&run->log, FLIM_LOG_NOTE,
                      "%s has no resume.json: only the checkpoints tell what the run was begun with", run->folder);
        return flim_resume_begin(run, err);
    }
    note_versions(run, record);
    status = read_list(flim_json_get(record, "accepted"), &run->accepted, err);
    if (status == FLIM_OK) {
        compare(run, record, &d);
        bool same = !d.any || (!d.data && is_accepted(run));
        if (run->settings->resume_override && (d.any || run->changes.n > 0) && !d.fixed) {
            status = flim_run_check_alone(run, "; --resume-override changes what all folds share: wait for its end", err);
            status = status == FLIM_OK ? override(run, record, &d, err) : status;
        } else if (!same) {
            status = refuse(run, &d, err);
        }
    }
    flim_json_free(record);
    return status;
}
