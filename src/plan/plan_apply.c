/* Writing a plan into a config. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/file.h"
#include "core/try.h"
#include "plan/plan.h"
#include "formats/yaml.h"

enum { LARGEST_CONFIG = 1 << 20, MOST_BACKUPS = 100000, N_KEYS = 5 };

typedef struct value {
    const char *key;
    char text[32];
    bool same; /* as the config has it */
} value;

static void list_values(const flim_plan *plan, const flim_settings *now, value out[N_KEYS])
{
    const flim_plan_request *r = &plan->request;
    const int64_t eval = now->eval_batch ? now->eval_batch : now->batch;
    for (int i = 0; i < N_KEYS; i++) {
        out[i] = (value){0};
    }
    out[0].key = "batch";
    snprintf(out[0].text, sizeof out[0].text, "%" PRId64, r->batch);
    out[0].same = now->batch == r->batch;
    out[1].key = "accumulate";
    snprintf(out[1].text, sizeof out[1].text, "%" PRId64, r->accumulate);
    out[1].same = now->accumulate == r->accumulate;
    out[2].key = "eval_batch"; /* one that follows the batch goes on following it */
    snprintf(out[2].text, sizeof out[2].text, "%" PRId64, flim_plan_eval_batch(r));
    out[2].same = eval == flim_plan_eval_batch(r) || (now->eval_batch == 0 && flim_plan_eval_batch(r) == r->batch);
    out[3].key = "precision";
    snprintf(out[3].text, sizeof out[3].text, "%s", flim_precision_name(r->precision));
    const bool is_auto = now->precision == FLIM_PRECISION_AUTO; /* which may be what the plan's precision came from */
    out[3].same = now->precision == r->precision || (is_auto && r->precision == plan->auto_precision) ||
                  (now->precision == FLIM_PRECISION_AMP && r->precision == plan->amp_precision);
    out[4].key = "checkpoint_activations";
    snprintf(out[4].text, sizeof out[4].text, "%s", flim_recompute_name(plan->recompute));
    /* auto recomputes nothing if nothing must be */
    out[4].same = now->checkpoint_activations == plan->recompute ||
                  (plan->recompute == FLIM_RECOMPUTE_NONE && now->checkpoint_activations == FLIM_RECOMPUTE_AUTO);
}

flim_status flim_plan_put_into(const flim_plan *plan, flim_settings *settings, flim_error *err)
{
    value values[N_KEYS];
    list_values(plan, settings, values);
    for (int i = 0; i < N_KEYS; i++) {
        FLIM_TRY(values[i].same ? FLIM_OK : flim_settings_set(settings, values[i].key, values[i].text, err));
    }
    return FLIM_OK;
}

static bool names_key(const char *text, size_t length, const char *config, const char *key)
{
    flim_yaml parsed;
    bool found = false;
    if (flim_yaml_parse(text, length, config, &parsed, NULL) == FLIM_OK) {
        for (int i = 0; i < parsed.n; i++) {
            found = found || strcmp(parsed.entry[i].key, key) == 0;
        }
        flim_yaml_free(&parsed);
    }
    return found;
}

/* Makes CONFIG.backup.N with the config's bytes, never over a file that is there. */
static flim_status save_backup(const char *config, const char *text, size_t length, mode_t mode, char backup[4096],
                               flim_error *err)
{
    bool exists = true;
    flim_status status = FLIM_OK;
    for (int n = 1; n < MOST_BACKUPS && exists && status == FLIM_OK; n++) {
        snprintf(backup, 4096, "%.4000s.backup.%d", config, n);
        status = flim_file_write_new(backup, text, length, mode, &exists, err);
    }
    if (status != FLIM_OK) {
        flim_fail_prefix(err, "%s is unchanged, as its backup failed: ", config);
        return status;
    }
    return exists
               ? flim_fail(err, FLIM_ERROR_WRITE, "%s exists, as do all backups before it; %s is unchanged", backup, config)
               : FLIM_OK;
}

/* The new text, read as a config must be, has the plan's values. */
static flim_status check_text(const char *text, const char *config, const flim_yaml_change *change, int n, flim_error *err)
{
    flim_yaml parsed;
    flim_status status = FLIM_OK;
    FLIM_TRY(flim_yaml_parse(text, strlen(text), config, &parsed, err));
    for (int i = 0; i < n && status == FLIM_OK; i++) {
        bool found = false;
        for (int k = 0; k < parsed.n; k++) {
            const flim_yaml_entry *e = &parsed.entry[k];
            found = found ||
                    (strcmp(e->key, change[i].key) == 0 && e->value.n == 1 && strcmp(e->value.item[0], change[i].value) == 0);
        }
        if (!found) {
            status = flim_fail(err, FLIM_ERROR_USAGE,
                               "%s: '%s' is written in a form that cannot be changed in place; write '%s: %s'", config,
                               change[i].key, change[i].key, change[i].value);
        }
    }
    flim_yaml_free(&parsed);
    return status;
}

/* The text with the plans of its stages; a stage whose words in the config are others than those that were planned is left out. */
static flim_status change_stages(const flim_planned_stage *stage, int n_stages, const flim_settings *now, const char *config,
                                 char **text, int *changed, flim_error *err)
{
    flim_status status = FLIM_OK;
    char *result = NULL;
    int n = 0;
    value *values = flim_alloc((size_t)n_stages * N_KEYS, sizeof *values, err); /* (n_stages, N_KEYS) */
    flim_yaml_item_change *change = flim_alloc((size_t)n_stages * N_KEYS, sizeof *change, err);
    FLIM_TRY_DONE(values && change ? FLIM_OK : FLIM_ERROR_MEMORY);
    for (int s = 0; s < n_stages; s++) {
        value *own = values + (ptrdiff_t)s * N_KEYS;
        const int item = stage[s].item, before = n;
        if (item >= now->stages.n || strcmp(now->stages.item[item], stage[s].words) != 0) {
            continue;
        }
        list_values(&stage[s].plan, &stage[s].settings, own);
        for (int i = 0; i < N_KEYS; i++) {
            if (!own[i].same) {
                change[n++] = (flim_yaml_item_change){item, own[i].key, own[i].text};
            }
        }
        *changed += n > before;
    }
    if (n > 0) {
        FLIM_TRY_DONE(flim_yaml_change_items(*text, strlen(*text), config, "stages", change, n, &result, err));
        flim_free(*text);
        *text = result;
    }
done:
    flim_free(values);
    flim_free(change);
    return status;
}

/* Everything that is to be written, and what of it. */
typedef struct request {
    const flim_plan *plan;
    const flim_planned_stage *stage; /* (n_stages) */
    int n_stages;
} request;

static flim_status change_config(const request *r, const flim_settings *now, const char *config, const struct stat *about,
                                 char backup[4096], int *stages_changed, flim_error *err)
{
    value values[N_KEYS];
    flim_yaml_change change[N_KEYS];
    char *text = NULL, *changed = NULL;
    size_t length = 0;
    int n = 0;
    list_values(r->plan, now, values);
    flim_status status = FLIM_OK;
    FLIM_TRY(flim_file_read(config, LARGEST_CONFIG, &text, &length, err));
    for (int i = 0; i < N_KEYS; i++) {
        const bool says_auto =
            i == 3 && now->precision == FLIM_PRECISION_AUTO && names_key(text, length, config, "precision");
        if (!values[i].same || says_auto) {
            change[n++] = (flim_yaml_change){values[i].key, values[i].text};
        }
    }
    FLIM_TRY_DONE(flim_yaml_change_values(text, length, config, change, n, &changed, err));
    FLIM_TRY_DONE(check_text(changed, config, change, n, err));
    if (names_key(text, length, config, "stages")) { /* those of an included file stay as they are */
        FLIM_TRY_DONE(change_stages(r->stage, r->n_stages, now, config, &changed, stages_changed, err));
    }
    FLIM_TRY_DONE(save_backup(config, text, length, about->st_mode & 0777, backup, err));
    status = flim_file_write(config, changed, strlen(changed), err);
done:
    flim_free(changed);
    flim_free(text);
    return status;
}

flim_status flim_plan_apply(const flim_plan *plan, const flim_planned_stage *stage, int n_stages, const char *config,
                            char backup[4096], int *stages_changed, flim_error *err)
{
    const request all = {plan, stage, n_stages};
    struct stat about;
    flim_settings now;
    backup[0] = '\0';
    *stages_changed = 0;
    char target[PATH_MAX]; /* a link stays a link */
    if (!realpath(config, target) || stat(target, &about) != 0) {
        return flim_fail(err, FLIM_ERROR_USAGE, "%s: cannot be read: %s", config, strerror(errno));
    }
    const char *preset = plan->request.net->preset;
    flim_status status = FLIM_OK;
    FLIM_TRY(flim_settings_init(&now, err));
    FLIM_TRY_DONE(flim_settings_read(&now, target, err));
    const flim_model_size size = flim_model_size_of(now.preset, now.width, now.depth);
    /* A rename would replace a read-only file, too; root's access() says yes to everything. */
    if (!(about.st_mode & 0222) || access(target, W_OK) != 0) {
        status = flim_fail(err, FLIM_ERROR_WRITE, "%s is read-only; it is unchanged (chmod u+w lets it be written)", config);
    } else if (preset[0] && (plan->request.net->width != size.width || plan->request.net->depth != size.depth)) {
        status =
            flim_fail(err, FLIM_ERROR_USAGE,
                      "%s has preset %s (width %d, depth %d), and the plan is for %s (width %d, depth %d): change the size "
                      "there, or plan for the config's",
                      config, flim_preset_names[now.preset], size.width, size.depth, preset, plan->request.net->width,
                      plan->request.net->depth);
    } else {
        status = change_config(&all, &now, target, &about, backup, stages_changed, err);
    }
done:
    flim_settings_free(&now);
    return status;
}
