/* --resume: the run's identity now against the one that resume.json keeps, and what an override writes there.
 *
 * resume.json holds the identity that the run has now, every identity that its checkpoints may carry (more than one after an
 * override), and the overrides in words.  It is written before config.yaml: after a kill between the two the old settings
 * stand, which are still accepted.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/alloc.h"
#include "core/file.h"
#include "core/sha256.h"
#include "core/text.h"
#include "core/try.h"
#include "flim/augment.h"
#include "formats/json.h"
#include "train/run.h"

/* ---- identity ---- */

/* The first 16 hex digits: enough that no two differ unnoticed by accident. */
static void set_hash(flim_identity *identity, flim_identity_field field, const char *name, flim_sha256 *hash)
{
    char digest[65];
    flim_sha256_end(hash, digest);
    flim_identity_set(identity, field, name, true, "%.16s", digest);
}

/* What the scan saw of the counts.  No part of the identity: --no-scan does not know it. */
static flim_status hash_counts(flim_run *run, const flim_study *study, flim_error *err)
{
    flim_sha256 hash;
    FLIM_TRY(flim_sha256_begin(&hash, err));
    for (int64_t i = 0; i < study->info->n; i++) {
        const flim_cell_summary *cell = &study->summary[i];
        const double seen[] = {cell->photons, (double)cell->zero_voxels, (double)cell->mask_pixels, (double)cell->peak_bin,
                               cell->max_count};
        flim_sha256_add(&hash, seen, sizeof seen);
    }
    flim_sha256_end(&hash, run->counts_sha256);
    return FLIM_OK;
}

/* "quiet/active"; a hash of names that a text without commas cannot hold. */
static flim_status identify_class_names(flim_identity *identity, const flim_dataset_info *info, flim_error *err)
{
    char text[sizeof identity->value[0].text] = "";
    size_t used = 0;
    bool plain = true;
    flim_sha256 hash;
    FLIM_TRY(flim_sha256_begin(&hash, err));
    for (int k = 0; k < info->classes; k++) {
        const char *name = info->class_name[k];
        flim_sha256_add(&hash, name, strlen(name) + 1);
        plain = plain && flim_utf8_is_valid(name) && !strpbrk(name, ",/\n\r") && used + strlen(name) + 2 < sizeof text;
        used += plain ? (size_t)snprintf(text + used, sizeof text - used, "%s%s", k ? "/" : "", name) : 0;
    }
    set_hash(identity, FLIM_IDENTITY_CLASS_NAMES, "class_names", &hash);
    if (plain) {
        flim_identity_set(identity, FLIM_IDENTITY_CLASS_NAMES, "class_names", true, "%s", text);
    }
    return FLIM_OK;
}

flim_status flim_resume_identify_data(flim_run *run, const flim_study *study, flim_error *err)
{
    const flim_dataset_info *info = study->info;
    flim_identity *id = &run->identity;
    flim_sha256 hash;
    flim_identity_set(id, FLIM_IDENTITY_CELLS, "cells", true, "%" PRId64, info->n);
    flim_identity_set(id, FLIM_IDENTITY_SHAPE, "shape", true, "%dx%dx%d", info->t, info->h, info->w);
    flim_identity_set(id, FLIM_IDENTITY_CLASSES, "classes", true, "%d", info->classes);
    FLIM_TRY(flim_sha256_begin(&hash, err));
    if (info->label) {
        flim_sha256_add(&hash, info->label, (size_t)info->n * sizeof *info->label);
    }
    set_hash(id, FLIM_IDENTITY_LABELS, "labels", &hash);
    FLIM_TRY(flim_sha256_begin(&hash, err));
    for (int64_t i = 0; info->group && i < info->n; i++) {
        const char *text = info->group_name[info->group[i]];
        flim_sha256_add(&hash, text, strlen(text) + 1);
    }
    set_hash(id, FLIM_IDENTITY_GROUPS, "groups", &hash);
    FLIM_TRY(flim_sha256_begin(&hash, err));
    for (int64_t i = 0; info->name && i < info->n; i++) {
        flim_sha256_add(&hash, info->name[i], strlen(info->name[i]) + 1);
    }
    set_hash(id, FLIM_IDENTITY_NAMES, "names", &hash);
    FLIM_TRY(identify_class_names(id, info, err));
    if (info->time_range_ns > 0) { /* as a file's float32 rounds it */
        flim_identity_set(id, FLIM_IDENTITY_TIME_RANGE, "time_range_ns", true, "%.6g", info->time_range_ns);
    } else {
        flim_identity_set(id, FLIM_IDENTITY_TIME_RANGE, "time_range_ns", true, "unknown");
    }
    flim_identity_set(id, FLIM_IDENTITY_MASK, "mask", true, "%s", flim_mask_origin_name(flim_mask_origin_of(info->has_mask)));
    return study->summary ? hash_counts(run, study, err) : FLIM_OK;
}

/* The steps themselves, not their names: what a preset comes to may change from one version to the next. */
static flim_status identify_augmentation(flim_run *run, flim_error *err)
{
    char steps[FLIM_MAX_TRANSFORM_STEPS * 96], sha256[65];
    if (run->augment.n == 0) {
        flim_identity_resolve(&run->identity, FLIM_IDENTITY_AUGMENT, "none");
        return FLIM_OK;
    }
    flim_augment_text(&run->augment, steps, sizeof steps);
    FLIM_TRY(flim_sha256_of(steps, strlen(steps), sha256, err));
    flim_identity_resolve(&run->identity, FLIM_IDENTITY_AUGMENT, "%d steps %.16s", run->augment.n, sha256);
    return FLIM_OK;
}

/* The list as it stands, and which of it is trained. */
static flim_status identify_stages(flim_run *run, flim_error *err)
{
    const flim_settings *s = run->settings;
    flim_sha256 hash;
    char sha256[65];
    if (run->n_stages == 0) { /* no field: the identity of a plain run stays what it was */
        return FLIM_OK;
    }
    FLIM_TRY(flim_sha256_begin(&hash, err));
    for (int i = 0; i < s->stages.n; i++) {
        flim_sha256_add(&hash, s->stages.item[i], strlen(s->stages.item[i]) + 1);
    }
    flim_sha256_add(&hash, s->stage, strlen(s->stage) + 1);
    flim_sha256_end(&hash, sha256);
    flim_identity_set(&run->identity, FLIM_IDENTITY_STAGES, "stages", true, "%d %.16s", run->n_stages, sha256);
    return FLIM_OK;
}

/* The settings' fields, eight of them as the run resolved them, and the texts of the whole. */
static flim_status identify_settings(flim_run *run, const flim_trainer *trainer, flim_error *err)
{
    const flim_device_info *device = flim_device_get_info(trainer->device);
    flim_identity *id = &run->identity;
    char threads[32] = "", ranks[32] = "";
    flim_identity_set_settings(id, run->settings);
    if (!run->settings->pretrained[0]) { /* no fields for runs without it, so that they stay what they were */
        static const flim_identity_field tuning[] = {FLIM_IDENTITY_ENCODER_LR_SCALE, FLIM_IDENTITY_FREEZE_ENCODER,
                                                     FLIM_IDENTITY_UNFREEZE_AFTER};
        for (size_t i = 0; i < sizeof tuning / sizeof tuning[0]; i++) {
            id->value[tuning[i]].name[0] = '\0';
        }
    }
    flim_identity_resolve(id, FLIM_IDENTITY_DEVICE, "%s", device->kind);
    flim_identity_resolve(id, FLIM_IDENTITY_PRECISION, "%s", flim_precision_name(trainer->precision));
    flim_identity_resolve(id, FLIM_IDENTITY_EVAL_BATCH, "%" PRId64, trainer->eval_batch);
    flim_identity_resolve(id, FLIM_IDENTITY_BATCH, "%" PRId64, flim_run_batch_cells(run));
    flim_identity_resolve(id, FLIM_IDENTITY_ACCUMULATE, "%" PRId64, flim_run_update_batches(run)); /* of all ranks */
    if (!run->settings->sync_batchnorm) { /* no field for runs without it, so that they stay what they were */
        id->value[FLIM_IDENTITY_SYNC_BATCHNORM].name[0] = '\0';
    }
    flim_identity_resolve(id, FLIM_IDENTITY_LR, "%.17g", trainer->learning_rate);
    FLIM_TRY(identify_augmentation(run, err));
    FLIM_TRY(identify_stages(run, err));
    flim_identity_text(id, run->identity_text);
    if (device->threads > 0) {
        snprintf(threads, sizeof threads, " · %d threads", device->threads);
    }
    if (flim_ranks_size(run->ranks) > 1) {
        snprintf(ranks, sizeof ranks, " · %d ranks", flim_ranks_size(run->ranks));
    }
    snprintf(run->made_by, sizeof run->made_by, "flimcv %s · %s · %s%s%s", FLIM_VERSION, device->libraries,
             device->architecture, threads, ranks);
    snprintf(run->checkpoint_text, sizeof run->checkpoint_text, "%s\n%s", run->identity_text, run->made_by);
    return FLIM_OK;
}

flim_status flim_resume_identify_rest(flim_run *run, const flim_trainer *trainer, flim_error *err)
{
    flim_identity *id = &run->identity;
    char path[FLIM_PATH_MAX], weights[65] = "none", *bytes = NULL;
    size_t count = 0;
    flim_status status = FLIM_OK;
    FLIM_TRY_DONE(flim_run_folder_path(run, "splits.json", path, err));
    FLIM_TRY_DONE(flim_file_read(path, (size_t)1 << 32, &bytes, &count, err));
    FLIM_TRY_DONE(flim_sha256_of(bytes, count, run->splits_sha256, err));
    if (trainer->initial_parameter) {
        FLIM_TRY_DONE(
            flim_sha256_of(trainer->initial_parameter, (size_t)trainer->net.parameters * sizeof(float), weights, err));
    }
    flim_identity_set(id, FLIM_IDENTITY_SPLITS, "splits", true, "%.16s", run->splits_sha256);
    flim_identity_set(id, FLIM_IDENTITY_WIDTH, "width", true, "%d", trainer->net.width);
    if (trainer->net.depth > 1) { /* no field for the published network's, so that its runs stay what they were */
        flim_identity_set(id, FLIM_IDENTITY_DEPTH, "depth", true, "%d", trainer->net.depth);
    }
    flim_identity_set(id, FLIM_IDENTITY_INIT_WEIGHTS, "init_weights", true, "%.16s", weights);
    FLIM_TRY_DONE(identify_settings(run, trainer, err));
done:
    flim_free(bytes);
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
    FLIM_TRY(flim_run_folder_path(run, "resume.json", path, err));
    flim_json *json = flim_json_object(), *fields = flim_json_object();
    for (int i = 0; i < FLIM_IDENTITY_FIELDS; i++) {
        if (run->identity.value[i].name[0]) {
            flim_json_set_string(fields, run->identity.value[i].name, run->identity.value[i].text);
        }
    }
    flim_json_set(json, "identity", fields);
    flim_json_set_string(json, "made_by", run->made_by);
    const char *counts = run->begun_counts_sha256[0] ? run->begun_counts_sha256 : run->counts_sha256;
    flim_json_set_string(json, "counts_sha256", counts[0] ? counts : NULL);
    if (run->unchecked.n > 0) {
        flim_json_set(json, "unchecked", list_json(&run->unchecked));
    }
    if (run->config_ranks > 1) {
        flim_json_set_integer(json, "ranks", run->config_ranks);
    }
    flim_json_set(json, "accepted", list_json(&run->accepted));
    flim_json_set(json, "overrides", list_json(overrides));
    const flim_status status = flim_json_write(json, path, err);
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
    for (size_t i = 0; i < flim_json_length(array); i++) {
        const char *text = flim_json_string(flim_json_at(array, i));
        if (text) {
            FLIM_TRY(flim_string_list_add(out, text, err));
        }
    }
    return FLIM_OK;
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

static void note(const flim_run *run, differences *d, const char *name, const char *was, const char *is, bool fixed)
{
    d->any = true;
    d->fixed = d->fixed || fixed;
    append(d->text, sizeof d->text, name, was, is);
    if (flim_string_list_find(&run->overridden, name) < 0) {
        append(d->beside, sizeof d->beside, name, was, is);
    }
    size_t used = strlen(d->fixed_names);
    if (fixed) {
        snprintf(d->fixed_names + used, sizeof d->fixed_names - used, "%s%s", used ? ", " : "", name);
    }
}

static void compare(const flim_run *run, const flim_json *record, differences *d)
{
    const flim_json *stored = flim_json_get(record, "identity");
    for (int i = 0; i < FLIM_IDENTITY_FIELDS; i++) {
        const flim_identity_value *now = &run->identity.value[i];
        const char *was = now->name[0] ? flim_json_string(flim_json_get(stored, now->name)) : NULL;
        if (was && strcmp(was, now->text) != 0) { /* one that an older version did not write: its checkpoints tell */
            note(run, d, now->name, was, now->text, now->fixed);
            d->data = d->data || flim_identity_is_of_data((flim_identity_field)i);
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
    return flim_string_list_find(&run->accepted, run->identity_text) >= 0;
}

static flim_status refuse(const flim_run *run, const differences *d, flim_error *err)
{
    const flim_status status = d->data ? FLIM_ERROR_DATA : FLIM_ERROR_USAGE;
    if (d->fixed) {
        return flim_fail(
            err, status,
            "--resume: this differs from how %s was started: %s. Of these, %s cannot be overridden: start a new run",
            run->folder, d->text, d->fixed_names);
    }
    return flim_fail(
        err, status,
        "--resume: this differs from how %s was started: %s. Restore it, or add --resume-override to resume anyway",
        run->folder, d->text);
}

static flim_status read_record(flim_run *run, flim_json **out, flim_error *err)
{
    char path[FLIM_PATH_MAX];
    *out = NULL;
    FLIM_TRY(flim_run_folder_path(run, "resume.json", path, err));
    return flim_file_exists(path) ? flim_json_read(path, out, err) : FLIM_OK;
}

/* Whether the call says itself how many cells an update has. */
static bool sets_update(const flim_run *run)
{
    return flim_string_list_find(&run->overridden, "batch") >= 0 ||
           flim_string_list_find(&run->overridden, "accumulate") >= 0;
}

/* --sync-batchnorm: the batch of all processes together is what it was, and so is the mathematics. */
static flim_status share_batch(flim_run *run, int64_t before, flim_error *err)
{
    flim_settings *s = &run->adjusted;
    const int64_t ranks = flim_ranks_size(run->ranks), cells = s->batch * before;
    if (cells % ranks != 0) {
        return flim_fail(err, FLIM_ERROR_USAGE,
                         "--resume: %s has %" PRId64 " x %" PRId64 " = %" PRId64
                         " cells per batch (--sync-batchnorm), which %" PRId64
                         " processes cannot share equally; use a number of processes that divides %" PRId64
                         ", or say --resume-override with --batch",
                         run->folder, before, s->batch, cells, ranks, cells);
    }
    s->eval_batch = s->eval_batch > 0 ? s->eval_batch : s->batch;
    s->batch = cells / ranks;
    return FLIM_OK;
}

flim_status flim_resume_ranks(flim_run *run, flim_error *err)
{
    flim_json *record;
    flim_settings *s = &run->adjusted;
    snprintf(run->folder, sizeof run->folder, "%s", s->out);
    FLIM_TRY(read_record(run, &record, err));
    int64_t before = 1;
    (void)flim_json_integer(flim_json_get(record, "ranks"), &before);
    flim_json_free(record);
    before = before >= 1 && before <= INT32_MAX ? before : 1;
    const int64_t ranks = flim_ranks_size(run->ranks), batches = s->accumulate * before;
    run->config_ranks = (int)before;
    if (ranks == before || sets_update(run)) {
        return FLIM_OK;
    }
    if (s->stages.n > 0) {
        return flim_fail(err, FLIM_ERROR_USAGE,
                         "--resume: %s was begun by %" PRId64 " processes, and this call has %" PRId64
                         ": stages have an accumulation of their own each; go on with %" PRId64,
                         run->folder, before, ranks, before);
    }
    if (s->sync_batchnorm) {
        return share_batch(run, before, err);
    }
    if (batches % ranks != 0) {
        return flim_fail(err, FLIM_ERROR_USAGE,
                         "--resume: %s has %" PRId64 " x %" PRId64 " = %" PRId64 " cells per update, which %" PRId64
                         " processes of batch %" PRId64
                         " cannot share equally; use a number of processes that divides %" PRId64
                         ", or say --resume-override with --batch and --accumulate",
                         run->folder, s->batch, batches, s->batch * batches, ranks, s->batch, batches);
    }
    s->accumulate = batches / ranks;
    return FLIM_OK;
}

flim_status flim_resume_check_data(flim_run *run, flim_error *err)
{
    flim_json *record;
    differences d = {0};
    FLIM_TRY(read_record(run, &record, err));
    compare(run, record, &d);
    flim_json_free(record);
    return d.any ? refuse(run, &d, err) : FLIM_OK;
}

/* What another process may have added to, too. */
static flim_status read_shared(flim_run *run, const flim_json *record, flim_error *err)
{
    const char *counts = flim_json_string(flim_json_get(record, "counts_sha256"));
    snprintf(run->begun_counts_sha256, sizeof run->begun_counts_sha256, "%s", counts ? counts : "");
    flim_string_list_free(&run->accepted);
    flim_string_list_free(&run->unchecked);
    FLIM_TRY(read_list(flim_json_get(record, "unchecked"), &run->unchecked, err));
    return read_list(flim_json_get(record, "accepted"), &run->accepted, err);
}

static void now_text(char when[32])
{
    const time_t now = time(NULL);
    struct tm utc;
    gmtime_r(&now, &utc);
    strftime(when, 32, "%Y-%m-%dT%H:%M:%SZ", &utc);
}

/* Nobody has read the counts: they may be others than those that the run was begun with.  Said, and kept for the summary. */
static flim_status note_unchecked(flim_run *run, flim_error *err)
{
    char when[32];
    now_text(when);
    char *line = flim_strprintf(
        err, "%s: resumed with --no-scan, the counts were not compared with those that the run was started with", when);
    if (!line) {
        return FLIM_ERROR_MEMORY;
    }
    flim_log_line(&run->log, FLIM_LOG_WARNING,
                  "--no-scan: the counts are not compared with those that the run was started with; summary.json keeps this");
    const flim_status status = flim_string_list_add(&run->unchecked, line, err);
    flim_free(line);
    return status;
}

/* The same record with what the run has noted meanwhile. */
static flim_status write_again(flim_run *run, const flim_json *record, flim_error *err)
{
    flim_string_list overrides = {0};
    flim_status status = read_list(flim_json_get(record, "overrides"), &overrides, err);
    status = status == FLIM_OK ? write_record(run, &overrides, err) : status;
    flim_string_list_free(&overrides);
    return status;
}

/* Writes resume.json with one more override in words, then config.yaml; the present identity is accepted from now on. */
static flim_status keep_override(flim_run *run, const flim_json *record, const char *prefix, const char *words,
                                 flim_error *err)
{
    flim_string_list overrides = {0};
    flim_status status = FLIM_OK;
    char *line = flim_strprintf(err, "%s: %s", prefix, words);
    FLIM_TRY_DONE(line ? FLIM_OK : FLIM_ERROR_MEMORY);
    FLIM_TRY_DONE(read_list(flim_json_get(record, "overrides"), &overrides, err));
    FLIM_TRY_DONE(flim_string_list_add(&overrides, line, err));
    if (!is_accepted(run)) {
        FLIM_TRY_DONE(flim_string_list_add(&run->accepted, run->identity_text, err));
    }
    run->config_ranks = flim_ranks_size(run->ranks); /* whose accumulate config.yaml gets */
    FLIM_TRY_DONE(write_record(run, &overrides, err));
    FLIM_TRY_DONE(flim_resume_write_config(run, err));
done:
    flim_free(line);
    flim_string_list_free(&overrides);
    return status;
}

/* Logs what --resume-override overrides, and writes it down. */
static flim_status override(flim_run *run, const flim_json *record, const differences *d, flim_error *err)
{
    char when[32];
    now_text(when);
    for (int i = 0; i < run->changes.n; i++) {
        flim_log_line(&run->log, FLIM_LOG_WARNING, "--resume-override: %s", run->changes.item[i]);
    }
    if (d->beside[0]) {
        flim_log_line(&run->log, FLIM_LOG_WARNING, "--resume-override: %s", d->beside);
    }
    if (d->any) { /* a file that has moved changes no number */
        flim_log_line(&run->log, FLIM_LOG_WARNING,
                      "from here on the run differs from an undisturbed one in its numbers; %s/resume.json keeps this",
                      run->folder);
    }
    return keep_override(run, record, when, d->any ? d->text : run->changes.item[0], err);
}

/* The same mathematics, but sums may be taken in another order. */
static void note_versions(const flim_run *run, const flim_json *record)
{
    const char *was = flim_json_string(flim_json_get(record, "made_by"));
    if (was && strcmp(was, run->made_by) != 0) {
        flim_log_line(&run->log, FLIM_LOG_WARNING,
                      "the run was started by %s; this is %s: what is computed from here on may differ in its last bits from "
                      "an undisturbed run (OMP_NUM_THREADS sets the threads)",
                      was, run->made_by);
    }
}

flim_status flim_resume_rebatch(flim_run *run, const flim_trainer *trainer, flim_error *err)
{
    flim_json *record;
    char words[96];
    FLIM_TRY(identify_settings(run, trainer, err));
    FLIM_TRY(read_record(run, &record, err));
    snprintf(words, sizeof words, "batch %" PRId64 " x accumulate %" PRId64 " from here on", run->settings->batch,
             run->settings->accumulate);
    flim_status status = FLIM_OK;
    FLIM_TRY_DONE(read_shared(run, record, err));
    status = keep_override(run, record, "out of memory", words, err);
done:
    flim_json_free(record);
    return status;
}

flim_status flim_resume_check(flim_run *run, int n_folds, flim_error *err)
{
    flim_json *record;
    differences d = {0};
    FLIM_TRY(read_record(run, &record, err));
    if (!record) {
        flim_log_line(&run->log, FLIM_LOG_NOTE,
                      "%s has no resume.json: only the checkpoints tell what the run was started with", run->folder);
        return flim_resume_begin(run, err);
    }
    flim_status status = FLIM_OK;
    note_versions(run, record);
    FLIM_TRY_DONE(read_shared(run, record, err));
    compare(run, record, &d);
    const bool overriding = run->settings->resume_override && (d.any || run->changes.n > 0) && !d.fixed;
    /* Of worker processes the first one says it for all of them. */
    const bool unchecked = !run->counts_sha256[0] && !(run->hooks->shared && !run->hooks->shared->first);
    if (!overriding && d.any && (d.data || !is_accepted(run))) {
        FLIM_TRY_DONE(refuse(run, &d, err));
    }
    FLIM_TRY_DONE(unchecked ? note_unchecked(run, err) : FLIM_OK);
    if (overriding) {
        FLIM_TRY_DONE(
            flim_run_check_alone(run, n_folds, "; --resume-override changes what all folds share: wait for its end", err));
        FLIM_TRY_DONE(override(run, record, &d, err));
    } else if (unchecked || !is_accepted(run)) { /* begun by a version whose identities had fewer fields */
        FLIM_TRY_DONE(is_accepted(run) ? FLIM_OK : flim_string_list_add(&run->accepted, run->identity_text, err));
        FLIM_TRY_DONE(write_again(run, record, err));
    }
done:
    flim_json_free(record);
    return status;
}
