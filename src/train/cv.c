/* The run from settings to summary: each step either finishes or says why not, and what was opened is closed. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/file.h"
#include "core/sha256.h"
#include "flim/weights.h"
#include "results/fold_result.h"
#include "train/run.h"

/* ---- log ---- */

static void tee_line(void *context, flim_log_level level, const char *text)
{
    flim_run *run = context;
    static const char *const marks[] = {"", "note: ", "warning: "};
    if (run->hooks->log.line) {
        run->hooks->log.line(run->hooks->log.context, level, text);
    }
    if (run->tee.file) {
        fprintf(run->tee.file, "%s%s\n", marks[level], text);
        return;
    }
    size_t more = strlen(marks[level]) + strlen(text) + 1;
    char *grown = flim_realloc(run->tee.early, run->tee.early_bytes + more + 1, 1, NULL);
    if (grown) { /* where memory lacks, train.log begins later: the run itself will find out */
        snprintf(grown + run->tee.early_bytes, more + 1, "%s%s\n", marks[level], text);
        run->tee.early = grown;
        run->tee.early_bytes += more;
    }
}

/* ---- settings ---- */

/* Keys that say how to run, not what to compute: they come from the present call on --resume. */
static bool is_run_control(const char *key)
{
    static const char *const keys[] = {"out",  "resume", "quiet",   "log_json", "dry_run", "verbose",
                                       "fold", "device", "workers", "prefetch", "scan",    "checkpoint_minutes"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        if (strcmp(key, keys[i]) == 0) {
            return true;
        }
    }
    return false;
}

typedef struct disagreement {
    const flim_string_list *explicit_keys;
    char text[1024];
    size_t used;
} disagreement;

static void note_difference(void *context, const char *key, const char *stored, const char *given)
{
    disagreement *d = context;
    for (int i = 0; d->explicit_keys && i < d->explicit_keys->n; i++) {
        if (strcmp(d->explicit_keys->item[i], key) == 0 && !is_run_control(key) && d->used < sizeof d->text) {
            int length = snprintf(d->text + d->used, sizeof d->text - d->used, "%s%s (the run has %s, the call says %s)",
                                  d->used ? ", " : "", key, stored, given);
            d->used += length > 0 ? (size_t)length : 0;
        }
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

/* On --resume: the settings of DIR/config.yaml with the call's run control; explicit flags that disagree are refused. */
static flim_status resumed_settings(const flim_settings *given, const flim_train_hooks *hooks, flim_settings *out,
                                    flim_error *err)
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
    disagreement d = {.explicit_keys = hooks->explicit_keys};
    flim_settings_compare(out, given, note_difference, &d);
    if (d.used) {
        return flim_fail(err, FLIM_ERROR_USAGE, "--resume takes its settings from %s, and these flags disagree: %s", path,
                         d.text);
    }
    status = copy_text(&out->out, given->out, err);
    if (status == FLIM_OK) {
        status = copy_text(&out->device, given->device, err);
    }
    if (status == FLIM_OK) {
        status = copy_text(&out->cache, given->cache, err);
    }
    out->resume = true;
    out->fold = given->fold;
    out->quiet = given->quiet;
    out->log_json = given->log_json;
    out->verbose = given->verbose;
    out->scan = given->scan;
    out->workers = given->workers;
    out->prefetch = given->prefetch;
    out->checkpoint_minutes = given->checkpoint_minutes;
    return status;
}

static flim_status parse_choices(flim_run *run, flim_error *err)
{
    static const char *const monitors[] = {"val_loss", "roc_auc", "balanced_accuracy", "f1"};
    for (int i = 0; i < 4; i++) {
        if (strcmp(run->settings->monitor, monitors[i]) == 0) {
            run->monitor = (flim_monitor)i;
        }
    }
    run->eval_batch = run->settings->eval_batch ? run->settings->eval_batch : run->settings->batch;
    flim_status status = flim_sampler_parse(run->settings->sampler, &run->sampler, err);
    return status == FLIM_OK ? flim_precision_parse(run->settings->precision, &run->precision, err) : status;
}

/* ---- device and data ---- */

static flim_status open_device(flim_run *run, flim_error *err)
{
    flim_status status = flim_device_open(run->settings->device, &run->log, &run->device, err);
    if (status != FLIM_OK) {
        return status;
    }
    const flim_device_info *device = flim_device_get_info(run->device);
    if (run->precision == FLIM_PRECISION_AUTO) {
        run->precision = device->auto_precision;
    }
    if (!(device->precisions & 1u << run->precision)) {
        return flim_fail(err, FLIM_ERROR_USAGE, "--precision %s: %s cannot compute in it",
                         flim_precision_name(run->precision), device->name);
    }
    flim_startup_device(run);
    return FLIM_OK;
}

static flim_cache cache_of(const char *text)
{
    return strcmp(text, "none") == 0 ? FLIM_CACHE_NONE : strcmp(text, "host") == 0 ? FLIM_CACHE_HOST : FLIM_CACHE_AUTO;
}

static flim_status open_data(flim_run *run, flim_error *err)
{
    const flim_settings *s = run->settings;
    flim_split_mode mode;
    flim_status status = flim_split_mode_parse(s->cv, &mode, err);
    if (status != FLIM_OK) {
        return status;
    }
    const flim_dataset_options options = {
        .axes = s->axes,
        .mask_counts = s->mask_counts,
        .need_labels = true,
        .need_groups = s->holdout_group.n > 0 || mode == FLIM_SPLIT_GROUP || mode == FLIM_SPLIT_STRATIFIED_GROUP ||
                       mode == FLIM_SPLIT_LEAVE_ONE_GROUP_OUT || run->sampler == FLIM_SAMPLER_GROUP_BALANCED,
        .cache = cache_of(s->cache),
        .log = &run->log};
    status = flim_dataset_open((const char *const *)s->data.item, s->data.n, &options, &run->dataset, err);
    if (status != FLIM_OK) {
        return status;
    }
    const flim_dataset_info *info = run->info = flim_dataset_get_info(run->dataset);
    run->split_data = (flim_split_data){.n = info->n,
                                        .classes = info->classes,
                                        .label = info->label,
                                        .class_name = info->class_name,
                                        .groups = info->groups,
                                        .group = info->group,
                                        .group_name = info->group_name,
                                        .name = info->name};
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
    flim_status status = flim_dataset_scan(run->dataset, (int)run->settings->workers, run->hooks->stop, &run->log,
                                           run->summary, run->decay, &bad, err);
    if (status == FLIM_OK) {
        flim_startup_data(run, run->summary);
    }
    return status;
}

/* ---- splits ---- */

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
        flim_split_mode mode;
        status = flim_split_mode_parse(s->cv, &mode, err);
        const flim_split_request request = {.mode = mode,
                                            .folds = (int)s->folds,
                                            .val_fraction = s->val_fraction,
                                            .seed = s->seed,
                                            .holdout_group = (const char *const *)s->holdout_group.item,
                                            .n_holdout = s->holdout_group.n,
                                            .log = &run->log};
        if (status == FLIM_OK) {
            status = flim_splits_make(&run->split_data, &request, &run->splits, err);
        }
    }
    if (status != FLIM_OK) {
        return status;
    }
    memcpy(run->splits.sha256, run->data_sha256, sizeof run->splits.sha256);
    if (s->fold >= run->splits.n_folds) {
        return flim_fail(err, FLIM_ERROR_USAGE, "--fold %" PRId64 ": there are %d folds, numbered from 0", s->fold,
                         run->splits.n_folds);
    }
    flim_splits_table(&run->splits, &run->split_data, &run->log);
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
    return flim_weights_read(run->settings->init_weights, &run->net, run->initial_parameter, run->initial_statistic, err);
}

static flim_status compile(flim_run *run, flim_error *err)
{
    const flim_settings *s = run->settings;
    const flim_dataset_info *info = run->info;
    int width;
    flim_status status = flim_network_preset_width(s->preset, &width, err);
    if (status == FLIM_OK) {
        status = flim_network_build(&run->net, width, info->classes, info->t, info->h, info->w, err);
    }
    if (status == FLIM_OK) {
        status = read_initial_weights(run, err);
    }
    if (status != FLIM_OK) {
        return status;
    }
    const flim_program_options options = {.precision = run->precision,
                                          .train_batch = s->batch,
                                          .eval_batch = run->eval_batch,
                                          .benchmark = s->benchmark,
                                          .deterministic = s->deterministic,
                                          .log = &run->log};
    status = flim_program_compile(run->device, &run->net, &options, &run->program, err);
    if (status != FLIM_OK) {
        return status;
    }
    const flim_loader_options loader = {.workers = (int)s->workers,
                                        .prefetch = (int)s->prefetch,
                                        .batch = s->batch > run->eval_batch ? s->batch : run->eval_batch,
                                        .device = run->device,
                                        .log = &run->log};
    status = flim_loader_create(run->dataset, &loader, &run->loader, err);
    if (status == FLIM_OK) {
        status = flim_startup_plan(run, err);
    }
    return status == FLIM_OK ? flim_program_allocate(run->program, err) : status;
}

/* What a checkpoint belongs to: everything that changes the mathematics. */
static flim_status make_identity(flim_run *run, flim_error *err)
{
    const flim_settings *s = run->settings;
    char path[FLIM_PATH_MAX], splits[65], *bytes = NULL;
    size_t count = 0;
    flim_status status = flim_run_folder_path(run, "splits.json", path, err);
    if (status == FLIM_OK) {
        status = flim_file_read(path, (size_t)1 << 32, &bytes, &count, err);
    }
    if (status == FLIM_OK) {
        status = flim_sha256_of(bytes, count, splits, err);
    }
    flim_free(bytes);
    if (status != FLIM_OK) {
        return status;
    }
    snprintf(run->identity, sizeof run->identity,
             "data %.16s, splits %.16s, width %d, classes %d, input %dx%dx%d, device %s, precision %s, epochs %" PRId64
             ", batch %" PRId64 ", accumulate %" PRId64
             ", lr %.9g, weight decay %.9g, clip %.9g, label smoothing %.9g, dropout "
             "%.9g, sampler %s, monitor %s, patience %" PRId64 ", seed %" PRIu64,
             run->data_sha256, splits, run->net.width, run->net.classes, run->net.in[0], run->net.in[1], run->net.in[2],
             flim_device_get_info(run->device)->kind, flim_precision_name(run->precision), s->epochs, s->batch, s->accumulate,
             s->lr, s->weight_decay, s->clip, s->label_smoothing, s->dropout, s->sampler, s->monitor, s->patience, s->seed);
    return FLIM_OK;
}

/* ---- the run ---- */

/* All wanted folds; a fold that is not finite is noted and the others go on. */
static flim_status run_folds(flim_run *run, flim_error *err)
{
    int failed = 0;
    flim_error first = {0};
    for (int k = 0; k < run->splits.n_folds; k++) {
        if (run->settings->fold >= 0 && run->settings->fold != k) {
            continue;
        }
        if (flim_fold_is_done(run->folder, k)) {
            flim_log_line(&run->log, FLIM_LOG_INFO, "fold %d is done already", k);
            continue;
        }
        flim_status status =
            flim_run_stopped(run) ? flim_fail(err, FLIM_INTERRUPTED, "interrupted") : flim_run_fold(run, k, err);
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

static flim_status run_all(flim_run *run, char *folder_out, flim_error *err)
{
    flim_status status = parse_choices(run, err);
    if (status == FLIM_OK && !run->settings->dry_run) { /* a fold table needs no device */
        status = open_device(run, err);
    }
    if (status == FLIM_OK) {
        status = open_data(run, err);
    }
    if (status == FLIM_OK) {
        status = scan(run, err);
    }
    if (status == FLIM_OK) {
        status = make_splits(run, err);
    }
    if (status != FLIM_OK || run->settings->dry_run) {
        return status;
    }
    status = compile(run, err);
    if (status == FLIM_OK) {
        status = flim_run_folder_open(run, run->settings->resume, err);
    }
    if (status == FLIM_OK && !run->settings->resume) {
        status = flim_run_folder_begin(run, err);
    }
    if (status == FLIM_OK) {
        status = make_identity(run, err);
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
    status = run_folds(run, err);
    if (status != FLIM_OK && status != FLIM_ERROR_NONFINITE) {
        return status;
    }
    flim_error more = {0};
    flim_status ended = status == FLIM_OK ? flim_run_holdout(run, &more) : FLIM_OK;
    if (ended == FLIM_OK) {
        ended = flim_run_baselines(run, &more);
    }
    if (ended == FLIM_OK) {
        ended = flim_run_summary(run, &more);
    }
    return ended == FLIM_OK ? status : flim_fail(err, ended, "%s", more.text);
}

flim_status flim_train_cv(const flim_settings *settings, const flim_train_hooks *hooks, char *run_folder, flim_error *err)
{
    flim_settings resumed;
    flim_run run = {.settings = settings, .hooks = hooks, .lock = -1};
    run.log = (flim_log){tee_line, &run};
    bool own_settings = false;
    flim_status status = FLIM_OK;
    if (run_folder) {
        run_folder[0] = '\0';
    }
    if (settings->resume) {
        status = flim_settings_init(&resumed, err);
        own_settings = status == FLIM_OK;
        if (own_settings) {
            status = resumed_settings(settings, hooks, &resumed, err);
        }
        run.settings = &resumed;
    }
    if (status == FLIM_OK) {
        status = run_all(&run, run_folder, err);
    }
    if (status == FLIM_INTERRUPTED) {
        flim_log_line(&run.log, FLIM_LOG_NOTE, "interrupted%s%s",
                      run.folder[0] && run.tee.file ? "; go on with: train_cv --resume --out " : "",
                      run.tee.file ? run.folder : "");
    }
    if (status != FLIM_OK && status != FLIM_INTERRUPTED && run.tee.file && err) {
        fprintf(run.tee.file, "error: %s\n", err->text);
    }
    flim_checkpoint_writer_destroy(run.checkpoints);
    flim_loader_destroy(run.loader);
    flim_program_destroy(run.program);
    flim_splits_free(&run.splits);
    flim_dataset_close(run.dataset);
    flim_device_close(run.device);
    flim_run_folder_close(&run);
    flim_free(run.tee.early);
    flim_free(run.initial_parameter);
    flim_free(run.initial_statistic);
    flim_free(run.summary);
    flim_free(run.decay);
    if (own_settings) {
        flim_settings_free(&resumed);
    }
    return status;
}
