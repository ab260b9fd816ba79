/* The layers of settings: defaults, YAML files with their includes, --set, flags. */
#include "config/settings.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/alloc.h"
#include "core/file.h"
#include "core/try.h"
#include "flim/augment.h"
#include "config/synonyms.h"
#include "formats/yaml.h"

#define DEFAULT_CONFIG "flimcv.yaml"

enum { DEEPEST_INCLUDE = 32, MOST_FILES = 256 };

/* ---- YAML files */

/* A config file that is being read, and the one that includes it. */
typedef struct source {
    const char *path;
    struct stat about; /* device and inode tell a file whatever its name */
    const struct source *parent;
    int depth;
    int *files; /* read so far, all together: ten that include ten, eight deep, would be 10^8 */
} source;

static flim_status read_source(flim_settings *settings, const char *path, const source *parent, bool *seen, flim_error *err);

/* "a.yaml -> b.yaml -> a.yaml", oldest first. */
static void describe_chain(const source *at, char *text, size_t size)
{
    if (at->parent) {
        describe_chain(at->parent, text, size);
    }
    size_t used = strlen(text);
    snprintf(text + used, size - used, "%s%.200s", used ? " -> " : "", at->path);
}

static flim_status check_chain(const source *self, flim_error *err)
{
    for (const source *at = self->parent; at; at = at->parent) {
        if (at->about.st_dev == self->about.st_dev && at->about.st_ino == self->about.st_ino) {
            char chain[1024] = "";
            describe_chain(self, chain, sizeof chain);
            return flim_fail(err, FLIM_ERROR_USAGE, "%s: circular include: %s", self->parent->path, chain);
        }
    }
    if (self->depth > DEEPEST_INCLUDE) {
        return flim_fail(err, FLIM_ERROR_USAGE, "%s: more than %d configs include one another", self->path, DEEPEST_INCLUDE);
    }
    return FLIM_OK;
}

/* Reads one file that `include:` names, relative to the folder of the including file. */
static flim_status include(flim_settings *settings, const char *name, int line, const source *self, bool *seen,
                           flim_error *err)
{
    if (!name[0]) {
        return flim_fail(err, FLIM_ERROR_USAGE, "%s:%d: include: an empty name", self->path, line);
    }
    char where[512], *expanded, *path;
    snprintf(where, sizeof where, "%.480s:%d: include", self->path, line);
    FLIM_TRY(flim_path_expand(where, name, &expanded, err));
    const char *slash = expanded[0] == '/' ? NULL : strrchr(self->path, '/');
    int folder = slash ? (int)(slash - self->path) + 1 : 0;
    path = flim_strprintf(err, "%.*s%s", folder, self->path, expanded);
    flim_free(expanded);
    if (!path) {
        return FLIM_ERROR_MEMORY;
    }
    const flim_status status =
        flim_file_exists(path)
            ? read_source(settings, path, self, seen, err)
            : flim_fail(err, FLIM_ERROR_USAGE, "%s:%d: include: there is no file %s", self->path, line, path);
    flim_free(path);
    return status;
}

/* A key that holds a map: how it is to be written, by the first of its keys. */
static flim_status refuse_map(const flim_yaml_entry *entry, const char *path, flim_error *err)
{
    const char *inner = entry->value.n ? entry->value.item[0] : "";
    const flim_flag_row *row = inner[0] ? flim_flag_meant(&flim_settings_table, inner) : NULL;
    char key[FLIM_KEY_MAX] = "KEY";
    if (flim_settings_find(entry->key)) {
        return flim_fail(err, FLIM_ERROR_USAGE, "%s:%d: '%.80s' is a map; expected '%.80s: value' or a list", path,
                         entry->line, entry->key, entry->key);
    }
    if (row) {
        flim_flag_key(row, key, sizeof key);
    }
    return flim_fail(
        err, FLIM_ERROR_USAGE,
        "%s:%d: '%.80s' is a map, but a config is one flat list of keys: write '%s: ...' at the left margin%s%.80s%s", path,
        entry->line, entry->key, key, inner[0] ? " for its '" : "", inner, inner[0] ? "'" : "");
}

static flim_status apply_entry(flim_settings *settings, const flim_yaml_entry *entry, const char *path, bool *seen,
                               flim_error *err)
{
    char where[512], what[600];
    snprintf(where, sizeof where, "%.480s:%d", path, entry->line);
    const flim_flag_row *row = flim_settings_find(entry->key);
    if (!row) {
        return flim_settings_unknown_key(where, entry->key, err);
    }
    if (seen) {
        seen[row - flim_all_settings_table.row] = true;
    }
    snprintf(what, sizeof what, "%s: %s", where, entry->key);
    if (row->type == FLIM_VALUE_LIST) {
        flim_flag_clear(row, settings);
    } else if (entry->is_list) {
        return flim_fail(err, FLIM_ERROR_USAGE, "%s: one value is expected, found a list", what);
    } else if (entry->is_null && row->type != FLIM_VALUE_TEXT) {
        return flim_fail(err, FLIM_ERROR_USAGE, "%s: no value", what);
    }
    if (row->type == FLIM_VALUE_LIST && entry->is_null) {
        return FLIM_OK;
    }
    for (int i = 0; i < entry->value.n; i++) {
        FLIM_TRY(flim_flag_set(row, settings, what, entry->value.item[i], err));
    }
    return FLIM_OK;
}

/* Includes come first, at whatever line: a file overrides what it includes.  seen: one flag per setting, set for those that
 * are named; or NULL. */
static flim_status read_source(flim_settings *settings, const char *path, const source *parent, bool *seen, flim_error *err)
{
    int files = 0;
    source self = {
        .path = path, .parent = parent, .depth = parent ? parent->depth + 1 : 0, .files = parent ? parent->files : &files};
    flim_yaml yaml = {0};
    flim_status status = FLIM_OK;
    if (++*self.files > MOST_FILES) {
        return flim_fail(err, FLIM_ERROR_USAGE, "%s: more than %d files are included, one of them more than once perhaps",
                         path, MOST_FILES);
    }
    FLIM_TRY_DONE(stat(path, &self.about) == 0 ? check_chain(&self, err) : FLIM_OK);
    FLIM_TRY_DONE(flim_yaml_read(path, &yaml, err));
    for (int i = 0; i < yaml.n; i++) {
        FLIM_TRY_DONE(yaml.entry[i].is_map ? refuse_map(&yaml.entry[i], path, err) : FLIM_OK);
    }
    for (int i = 0; i < yaml.n; i++) {
        const flim_yaml_entry *entry = &yaml.entry[i];
        for (int k = 0; strcmp(entry->key, "include") == 0 && k < entry->value.n; k++) {
            FLIM_TRY_DONE(include(settings, entry->value.item[k], entry->line, &self, seen, err));
        }
    }
    for (int i = 0; i < yaml.n; i++) {
        const char *key = yaml.entry[i].key;
        if (strcmp(key, "include") != 0) {
            FLIM_TRY_DONE(apply_entry(settings, &yaml.entry[i], path, seen, err));
        }
    }
done:
    flim_yaml_free(&yaml);
    return status;
}

flim_status flim_settings_read(flim_settings *settings, const char *path, flim_error *err)
{
    return read_source(settings, path, NULL, NULL, err);
}

/* ---- the command line */

/* Flags that are no settings. */
typedef struct command {
    char *config;
    flim_string_list set;
    bool print_config;
} command;

static const flim_flag_row command_rows[] = {
    {"Configuration", "config", FLIM_VALUE_TEXT, offsetof(command, config), "", "FILE",
     .help = "YAML file with settings (default ./" DEFAULT_CONFIG ", if there is one)"},
    {NULL, "set", FLIM_VALUE_LIST, offsetof(command, set), "", "KEY=VALUE",
     .help = "set a key of the config, as in --set lr=1e-3; repeatable"},
    {NULL, "print-config", FLIM_VALUE_SWITCH, offsetof(command, print_config), "false",
     .help = "print the resolved settings as YAML and exit"},
};
enum { N_COMMAND_ROWS = sizeof command_rows / sizeof command_rows[0] }; /* FLIM_MOST_SETTINGS has room for them, too */
static const flim_flag_table command_table = {"train_cv", "", "", command_rows, N_COMMAND_ROWS, .operand = NULL};

static const flim_example examples[] = {
    {"train_cv --data cells.h5 --folds 5 --batch 64", "five folds of the cells of one file, in a new folder of runs/"},
    {"train_cv --data cells.h5 --dry-run", "only the folds: how many cells of which groups are in each part"},
    {"train_cv --resume --out runs/NAME", "continue a run that was stopped"},
    {"train_cv --resume-or-start --out runs/NAME --fold $SLURM_ARRAY_TASK_ID", "one fold per task of a job array"},
    {NULL, NULL},
};

static const flim_example pretrain_examples[] = {
    {"pretrain --data unlabelled.h5 --out runs/pretrained",
     "all cells of a file; its labels, if there are any, are not read"},
    {"pretrain --data cells.h5 --groups-out D5,D6", "never see two donors, which a later training tests"},
    {"pretrain --data cells.h5 --splits runs/NAME --fold 2", "never see the test cells of a fold of a run"},
    {"pretrain --resume --out runs/pretrained", "continue a pretraining that was stopped"},
    {NULL, NULL},
};

/* Settings and command rows in one table, for scanning and --help; their offsets are in two structs. */
static flim_flag_table whole_table(flim_flag_row *rows, bool pretrains)
{
    if (pretrains) {
        const int n = flim_pretrain_rows(rows);
        memcpy(rows + n, command_rows, sizeof command_rows);
        return (flim_flag_table){
            .program = "pretrain",
            .usage = "pretrain [flag]...",
            .about = "Trains the encoder of a classifier without labels: it predicts hidden voxels and tells pairs of views\n"
                     "apart.  Example: pretrain --data unlabelled.h5 --groups-out D5 --out runs/pretrained",
            .row = rows,
            .n = n + N_COMMAND_ROWS,
            .epilogue = "Settings, weakest first: defaults, the YAML file of --config, --set, flags.  The run folder's\n"
                        "encoder.safetensors is what a training starts from.",
            .purpose = "pretraining of the network's encoder without labels",
            .examples = pretrain_examples,
            .see_also = "train_cv(1), flim_info(1), gpu_plan(1)"};
    }
    memcpy(rows, flim_settings_table.row, (size_t)flim_settings_table.n * sizeof *rows);
    memcpy(rows + flim_settings_table.n, command_rows, sizeof command_rows);
    return (flim_flag_table){
        .program = "train_cv",
        .usage = "train_cv [flag]...",
        .about = "Trains a 3D CNN on FLIM volumes with cross-validation.  Example: train_cv --folds 5 --batch 64\n"
                 "reads data/flim.h5 and makes a run folder in runs/.",
        .row = rows,
        .n = flim_settings_table.n + N_COMMAND_ROWS,
        .epilogue = "Settings, weakest first: defaults, the YAML file (which may include: others), --set, flags.  The\n"
                    "YAML's keys are the flags' names with underscores (val_fraction).  A switch --x has its --no-x.",
        .purpose = "cross-validated training of a 3D CNN on FLIM volumes",
        .examples = examples,
        .see_also = "predict(1), fold_metrics(1), flim_info(1), flim_import(1), gpu_plan(1)"};
}

/* --set KEY=VALUE; `seen` as for flim_flag_apply. */
static flim_status apply_set(flim_settings *settings, const char *text, bool *seen, flim_error *err)
{
    const char *equal = strchr(text, '=');
    char key[FLIM_KEY_MAX], what[FLIM_KEY_MAX + 16];
    if (!equal || equal == text || (size_t)(equal - text) >= sizeof key) {
        return flim_fail(err, FLIM_ERROR_USAGE, "--set: '%.200s' is not KEY=VALUE", text);
    }
    snprintf(key, sizeof key, "%.*s", (int)(equal - text), text);
    const flim_flag_row *row = flim_settings_find(key);
    if (!row) {
        return flim_settings_unknown_key("--set", key, err);
    }
    bool *first = &seen[row - flim_all_settings_table.row];
    if (!*first) {
        flim_flag_clear(row, settings);
        *first = true;
    }
    snprintf(what, sizeof what, "--set %s", key);
    return flim_settings_set_row(settings, row, what, equal + 1, err);
}

/* Takes the command rows' values out of the uses; *n is left with those of settings, their rows in the settings' table.  The
 * uses' rows come from `rows`, which whole_table made. */
static flim_status take_command(command *c, const flim_flag_table *whole, flim_flag_use *uses, int *n, flim_error *err)
{
    bool seen[N_COMMAND_ROWS] = {false};
    int kept = 0;
    for (int i = 0; i < *n; i++) {
        const ptrdiff_t own = uses[i].row - whole->row - (whole->n - N_COMMAND_ROWS);
        if (own < 0) {
            char key[FLIM_KEY_MAX];
            flim_flag_key(uses[i].row, key, sizeof key);
            uses[kept++] = (flim_flag_use){flim_settings_find(key), uses[i].value};
            continue;
        }
        if (command_rows[own].type == FLIM_VALUE_TEXT && seen[own]) {
            return flim_fail(err, FLIM_ERROR_USAGE, "--config is given twice: one file may include: the other");
        }
        const flim_flag_use use = {&command_rows[own], uses[i].value};
        FLIM_TRY(flim_flag_apply(&command_table, &use, c, seen, err));
    }
    *n = kept;
    return FLIM_OK;
}

/* Pretrain's. */
static flim_status check_splits_of_pretraining(const flim_settings *s, flim_error *err)
{
    if (s->train_set_only && !s->splits[0]) {
        return flim_fail(err, FLIM_ERROR_USAGE,
                         "--train-set-only needs --splits RUN: the training set is a fold's of that run");
    }
    if (!s->train_set_only && (s->fold >= 0) != (s->splits[0] != '\0')) {
        return flim_fail(err, FLIM_ERROR_USAGE,
                         "--splits RUN and --fold K go together: the fold whose test cells are not seen");
    }
    return FLIM_OK;
}

/* What is about pretrainings within a run. */
static flim_status check_per_fold(const flim_settings *s, flim_error *err)
{
    flim_settings pretraining;
    if (!flim_settings_per_fold(s)) {
        const char *beside = s->pretraining[0] ? "pretraining" : s->pretraining_data.n > 0 ? "pretraining_data" : NULL;
        return beside ? flim_fail(err, FLIM_ERROR_USAGE, "%s needs pretrain_per_fold, or a stage of kind pretraining", beside)
                      : FLIM_OK;
    }
    FLIM_TRY(flim_settings_of_pretraining(s, &pretraining, err));
    flim_settings_free(&pretraining);
    return FLIM_OK;
}

flim_status flim_settings_check(const flim_settings *s, flim_error *err)
{
    if (s->resume_override && !s->resume) {
        return flim_fail(err, FLIM_ERROR_USAGE, "--resume-override needs --resume: it lists the changes to accept");
    }
    if (s->resume_or_start && !s->out[0]) {
        return flim_fail(err, FLIM_ERROR_USAGE,
                         "--resume-or-start needs --out DIR, the folder of the run to resume or start");
    }
    if (s->jobs > 1 && s->devices.n > 0) {
        return flim_fail(err, FLIM_ERROR_USAGE,
                         "--jobs and --devices both say how many worker processes there are; leave one out");
    }
    if (s->parallel != FLIM_PARALLEL_NONE && (s->jobs > 1 || s->devices.n > 0 || s->seeds[0])) {
        return flim_fail(
            err, FLIM_ERROR_USAGE,
            "--parallel data is one training of all processes; leave --jobs, --devices and --seeds out, or --parallel");
    }
    if (s->resume) { /* all settings come from the run's own config.yaml */
        return s->out[0] ? FLIM_OK
                         : flim_fail(err, FLIM_ERROR_USAGE, "--resume needs --out DIR, the folder of the run to resume");
    }
    if (s->sync_batchnorm && s->parallel == FLIM_PARALLEL_NONE) {
        return flim_fail(
            err, FLIM_ERROR_USAGE,
            "--sync-batchnorm is about the batches of several processes: add --parallel data (and start them with mpirun "
            "or srun), or leave it out");
    }
    const bool counted = !s->splits[0] && s->cv != FLIM_SPLIT_LEAVE_ONE_GROUP_OUT; /* folds says how many there are */
    if (counted && s->fold >= s->folds) {
        return flim_fail(
            err, FLIM_ERROR_USAGE,
            "fold %lld does not exist: folds = %lld, so they are 0..%lld (for the number of folds use --folds %lld)",
            (long long)s->fold, (long long)s->folds, (long long)s->folds - 1, (long long)(s->fold > 1 ? s->fold : 2));
    }
    if (s->val_fraction == 0 && s->monitor != FLIM_MONITOR_VAL_LOSS) {
        return flim_fail(err, FLIM_ERROR_USAGE,
                         "monitor %s needs a validation set, but val_fraction is 0: leave one of them out",
                         flim_monitor_names[s->monitor]);
    }
    if (s->val_fraction == 0 && !s->splits[0] && s->schedule == FLIM_LR_SCHEDULE_PLATEAU) {
        return flim_fail(err, FLIM_ERROR_USAGE,
                         "schedule plateau needs a validation set, but val_fraction is 0: leave one of them out");
    }
    FLIM_TRY(s->pretrains ? check_splits_of_pretraining(s, err) : check_per_fold(s, err));
    if (s->pretrains && s->contrastive > 0 && s->batch % 2 != 0) {
        return flim_fail(err, FLIM_ERROR_USAGE,
                         "batch %lld: with contrastive a batch consists of pairs, so that it must be even",
                         (long long)s->batch);
    }
    if (s->pretrains && s->contrastive == 0 && s->mask_ratio == 0) {
        return flim_fail(err, FLIM_ERROR_USAGE, "mask_ratio and contrastive are both 0: there is nothing to learn");
    }
    if (s->pretrains && s->schedule == FLIM_LR_SCHEDULE_PLATEAU) {
        return flim_fail(err, FLIM_ERROR_USAGE, "schedule plateau follows scores of a classifier; use another schedule");
    }
    if (s->splits_by != FLIM_SPLITS_BY_AUTO && !s->splits[0]) {
        return flim_fail(err, FLIM_ERROR_USAGE,
                         "splits_by %s says how a splits file is read, and none is given: splits is empty",
                         flim_splits_by_names[s->splits_by]);
    }
    if (s->warmup_epochs >= s->epochs) {
        return flim_fail(err, FLIM_ERROR_USAGE,
                         "warmup_epochs: %lld of %lld epochs; must be fewer than epochs (--warmup-epochs 0: none)",
                         (long long)s->warmup_epochs, (long long)s->epochs);
    }
    if (s->width % 4 != 0) {
        return flim_fail(err, FLIM_ERROR_USAGE, "width %lld is no multiple of 4; the next ones are %lld and %lld",
                         (long long)s->width, (long long)(s->width / 4 * 4), (long long)(s->width / 4 * 4 + 4));
    }
    if (s->data.n == 0) {
        return flim_fail(err, FLIM_ERROR_USAGE, "data: the list of files is empty");
    }
    flim_transform ignored;
    return flim_augment_parse(&s->augment, true, &ignored, err);
}

static flim_status list_explicit(const bool *seen, flim_string_list *keys, flim_error *err)
{
    for (int i = 0; keys && i < flim_all_settings_table.n; i++) {
        if (seen[i]) {
            char key[FLIM_KEY_MAX];
            flim_flag_key(&flim_all_settings_table.row[i], key, sizeof key);
            FLIM_TRY(flim_string_list_add(keys, key, err));
        }
    }
    return FLIM_OK;
}

const char *flim_settings_default_config(void)
{
    return flim_file_exists(DEFAULT_CONFIG) ? DEFAULT_CONFIG : "";
}

/* Whether --resume is given: ./flimcv.yaml is for new runs and is not read then. */
static bool is_resumed(const flim_flag_use *uses, int n)
{
    bool resumed = false;
    for (int i = 0; i < n; i++) {
        if (strcmp(uses[i].row->name, "resume") == 0) {
            resumed = strcmp(uses[i].value, "true") == 0;
        }
    }
    return resumed;
}

static bool is_given(const bool *seen, const char *key)
{
    return seen[flim_settings_find(key) - flim_all_settings_table.row];
}

/* Configs, --set and flags over what settings holds. */
static flim_status apply_layers(flim_settings *settings, const command *c, const flim_flag_use *uses, int n,
                                flim_string_list *explicit_keys, flim_error *err)
{
    bool config_seen[FLIM_MOST_SETTINGS] = {false}, set_seen[FLIM_MOST_SETTINGS] = {false},
         flag_seen[FLIM_MOST_SETTINGS] = {false};
    if (c->config[0]) {
        FLIM_TRY(read_source(settings, c->config, NULL, config_seen, err));
    } else if (!settings->pretrains && !is_resumed(uses, n) && flim_settings_default_config()[0]) {
        FLIM_TRY(flim_settings_read(settings, flim_settings_default_config(), err));
        settings->default_config = true;
    }
    for (int i = 0; i < c->set.n; i++) {
        FLIM_TRY(apply_set(settings, c->set.item[i], set_seen, err));
    }
    for (int i = 0; i < n; i++) {
        FLIM_TRY(flim_flag_apply(&flim_all_settings_table, &uses[i], settings, flag_seen, err));
    }
    for (int i = 0; i < FLIM_MOST_SETTINGS; i++) {
        /* With --resume the keys of --config are compared with the run's, as flags are. */
        flag_seen[i] = flag_seen[i] || set_seen[i] || (settings->resume && config_seen[i]);
    }
    if (settings->pretrains && !settings->resume) {
        FLIM_TRY(flim_pretraining_refuse_others(settings, err));
    }
    FLIM_TRY(flim_settings_check(settings, err));
    if (settings->pretrains && !settings->resume) {
        FLIM_TRY(flim_pretraining_check_used(settings, is_given(flag_seen, "masked_loss"),
                                             is_given(flag_seen, "contrastive_pairs"), err));
    }
    return list_explicit(flag_seen, explicit_keys, err);
}

flim_status flim_settings_parse(flim_settings *settings, int argc, char *const *argv, flim_string_list *explicit_keys,
                                FILE *out, bool *go, flim_error *err)
{
    flim_flag_row rows[FLIM_MOST_SETTINGS];
    const flim_flag_table table = whole_table(rows, settings->pretrains);
    command c = {0};
    flim_flag_action action = FLIM_FLAGS_RUN;
    int n = 0;
    *go = false;
    flim_flag_use *uses = flim_alloc((size_t)(argc > 0 ? argc : 1), sizeof *uses, err);
    flim_status status = FLIM_OK;
    FLIM_TRY_DONE(uses ? flim_flag_table_init(&command_table, &c, err) : FLIM_ERROR_MEMORY);
    FLIM_TRY_DONE(flim_flag_table_scan(&table, argc, argv, uses, &n, NULL, &action, err));
    if (action != FLIM_FLAGS_RUN) {
        FLIM_TRY_DONE(flim_flag_table_show(&table, action, out, err));
        goto done;
    }
    FLIM_TRY_DONE(take_command(&c, &table, uses, &n, err));
    FLIM_TRY_DONE(apply_layers(settings, &c, uses, n, explicit_keys, err));
    if (c.print_config) {
        FLIM_TRY_DONE(flim_settings_print(settings, out, err));
    }
    *go = !c.print_config;
done:
    flim_flag_table_free(&command_table, &c);
    flim_free(uses);
    return status;
}
