/* The pretrainings within a cross-validation: what asks for them, and their settings. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/settings.h"
#include "config/stage_words.h"
#include "core/alloc.h"
#include "core/try.h"

enum { MOST_WORDS = 256 };

/* What a pretraining has of its run; the rest is its own. */
static const char *const inherited[] = {
    "data",   "pretraining_data", "axes",    "allow_external", "mask_counts", "scan",          "workers",
    "cache",  "prefetch",         "exclude", "preset",         "width",       "depth",         "seed",
    "device", "precision",        "margin",  "on_oom",         "benchmark",   "deterministic", "checkpoint_minutes"};
enum { N_INHERITED = sizeof inherited / sizeof inherited[0] };

/* Those that flags of a pretraining may set: what it learns and how, the device's arithmetic, and which cells it only evaluates.
 * eval_batch: pretrain has no such flag, but gpu_plan --apply writes it. */
static const char *const own[] = {"val_fraction",
                                  "mask_ratio",
                                  "masked_loss",
                                  "contrastive",
                                  "contrastive_pairs",
                                  "batch_from",
                                  "augment",
                                  "epochs",
                                  "batch",
                                  "accumulate",
                                  "lr",
                                  "schedule",
                                  "warmup_epochs",
                                  "weight_decay",
                                  "clip",
                                  "seed",
                                  "precision",
                                  "checkpoint_activations",
                                  "eval_batch"};
enum { N_OWN = sizeof own / sizeof own[0] };

static bool is_own(const char *key)
{
    for (int i = 0; i < N_OWN; i++) {
        if (strcmp(own[i], key) == 0) {
            return true;
        }
    }
    return false;
}

bool flim_settings_per_fold(const flim_settings *s)
{
    return !s->pretrains && (s->pretrain_per_fold || flim_stages_pretraining(&s->stages) >= 0);
}

/* The run's values over pretrain's defaults. */
static flim_status inherit(const flim_settings *run, flim_settings *out, flim_error *err)
{
    for (int i = 0; i < N_INHERITED; i++) {
        FLIM_TRY(flim_flag_copy(flim_settings_find(inherited[i]), run, out, err));
    }
    out->quiet = run->quiet;
    out->verbose = run->verbose;
    return FLIM_OK;
}

static flim_status check_own(const char *key, flim_error *err)
{
    return !flim_settings_find(key) || is_own(key)
               ? FLIM_OK
               : flim_fail(err, FLIM_ERROR_USAGE,
                           "%s is the run's, or not for a pretraining within a run; one may set epochs, lr, batch, "
                           "mask_ratio, contrastive, augment and what else is about its own training",
                           key);
}

flim_status flim_pretraining_set(flim_settings *settings, const char *key, const char *value, flim_error *err)
{
    FLIM_TRY(check_own(key, err));
    return flim_settings_set(settings, key, value, err);
}

/* The words as pretrain's command line. */
static flim_status apply_flags(const char *text, flim_settings *out, flim_error *err)
{
    flim_flag_row rows[FLIM_MOST_SETTINGS];
    const flim_flag_table table = {
        .program = "pretrain", .usage = "", .about = "", .row = rows, .n = flim_pretrain_rows(rows)};
    bool seen[FLIM_MOST_SETTINGS] = {false};
    char *argv[MOST_WORDS + 2] = {NULL};
    flim_flag_use uses[MOST_WORDS + 1];
    flim_flag_action action = FLIM_FLAGS_RUN;
    int argc = 0, n = 0;
    flim_status status = FLIM_OK;
    char *words = flim_strdup(text, err), *rest = words, *word;
    FLIM_TRY_DONE(words ? FLIM_OK : FLIM_ERROR_MEMORY);
    argv[argc++] = words; /* the program's place, which is not read */
    while ((word = strsep(&rest, " \t\n")) != NULL) {
        if (word[0] && argc > MOST_WORDS) {
            FLIM_TRY_DONE(flim_fail(err, FLIM_ERROR_USAGE, "more than %d words", (int)MOST_WORDS));
        }
        if (word[0]) {
            argv[argc++] = word;
        }
    }
    FLIM_TRY_DONE(flim_flag_table_scan(&table, argc, argv, uses, &n, NULL, &action, err));
    if (action != FLIM_FLAGS_RUN) {
        FLIM_TRY_DONE(flim_fail(err, FLIM_ERROR_USAGE, "--help and --version are for pretrain itself"));
    }
    for (int i = 0; i < n; i++) {
        char key[FLIM_KEY_MAX];
        flim_flag_key(uses[i].row, key, sizeof key);
        uses[i].row = flim_settings_find(key);
        FLIM_TRY_DONE(check_own(key, err));
        FLIM_TRY_DONE(flim_flag_apply(&flim_all_settings_table, &uses[i], out, seen, err));
    }
done:
    flim_free(words);
    return status;
}

/* What asks for it twice, and what cannot go with it. */
static flim_status check_run(const flim_settings *run, int stage, flim_error *err)
{
    const char *beside = run->pretrained[0]                     ? "pretrained"
                         : run->init_weights[0]                 ? "init_weights"
                         : run->parallel != FLIM_PARALLEL_NONE  ? "parallel data"
                         : stage >= 0 && run->pretrain_per_fold ? "a stage of kind pretraining"
                         : stage >= 0 && run->pretraining[0]    ? "a stage of kind pretraining (its words are its flags)"
                                                                : NULL;
    if (beside) {
        return flim_fail(err, FLIM_ERROR_USAGE, "%s and %s: give one of them",
                         stage >= 0 && !strstr(beside, "stage") ? "a stage of kind pretraining"
                         : stage >= 0 && run->pretraining[0]    ? "pretraining"
                                                                : "pretrain_per_fold",
                         beside);
    }
    if (run->scan) {
        return FLIM_OK;
    }
    return flim_fail(
        err, FLIM_ERROR_USAGE,
        "no scan, and pretraining per fold: only the scan can tell that no cell of a test set, and no copy of one, "
        "is pretrained on; leave --no-scan out");
}

flim_status flim_settings_of_pretraining(const flim_settings *run, flim_settings *out, flim_error *err)
{
    const int stage = flim_stages_pretraining(&run->stages);
    flim_status status = FLIM_OK;
    FLIM_TRY(check_run(run, stage, err));
    if (stage >= 0) {
        flim_stage one;
        FLIM_TRY(flim_stage_read(run, run->stages.item[stage], stage + 1, &one, err));
        *out = one.settings; /* its strings with it */
        return FLIM_OK;
    }
    FLIM_TRY(flim_pretraining_defaults(run, out, err));
    FLIM_TRY_DONE(apply_flags(run->pretraining, out, err));
    FLIM_TRY_DONE(flim_settings_check(out, err));
    status = flim_pretraining_check_used(out, true, true, err);
done:
    if (status != FLIM_OK) {
        flim_settings_free(out);
        return flim_fail_prefix(err, "pretraining: ");
    }
    return FLIM_OK;
}

flim_status flim_pretraining_defaults(const flim_settings *run, flim_settings *out, flim_error *err)
{
    FLIM_TRY(flim_settings_init_pretraining(out, err));
    const flim_status status = inherit(run, out, err);
    if (status != FLIM_OK) {
        flim_settings_free(out);
    }
    return status;
}

/* "key=value " of a row; a list's items with commas between. */
static flim_status put_row(const flim_flag_row *row, const char *key, const flim_settings *s, FILE *out, flim_error *err)
{
    if (row->type == FLIM_VALUE_LIST) {
        const flim_string_list *list = flim_flag_list(row, s);
        fprintf(out, "%s=", key);
        for (int i = 0; i < list->n; i++) {
            fprintf(out, "%s%s", i ? "," : "", list->item[i]);
        }
        fputc(' ', out);
        return FLIM_OK;
    }
    char *text = flim_flag_text(row, s, err);
    if (!text) {
        return FLIM_ERROR_MEMORY;
    }
    fprintf(out, "%s=%s ", key, text);
    flim_free(text);
    return FLIM_OK;
}

static bool is_inherited(const char *key)
{
    for (int i = 0; i < N_INHERITED; i++) {
        if (strcmp(inherited[i], key) == 0) {
            return true;
        }
    }
    return false;
}

/* Whether a value that the run has, too, is another here. */
static bool differs(const flim_flag_row *row, const flim_settings *run, const flim_settings *pretraining)
{
    char *a = flim_flag_text(row, run, NULL), *b = flim_flag_text(row, pretraining, NULL);
    const bool other = !a || !b || strcmp(a, b) != 0;
    flim_free(a);
    flim_free(b);
    return other;
}

flim_status flim_settings_pretraining_words(const flim_settings *run, const flim_settings *pretraining, char **out,
                                            flim_error *err)
{
    char *text = NULL;
    size_t size = 0;
    flim_status status = FLIM_OK;
    *out = NULL;
    FILE *stream = open_memstream(&text, &size);
    if (!stream) {
        return flim_fail(err, FLIM_ERROR_MEMORY, "out of host memory");
    }
    for (int i = 0; i < N_OWN && status == FLIM_OK; i++) {
        const flim_flag_row *row = flim_settings_find(own[i]);
        if (!is_inherited(own[i]) || differs(row, run, pretraining)) {
            status = put_row(row, own[i], pretraining, stream, err);
        }
    }
    const bool whole = fclose(stream) == 0;
    if (status == FLIM_OK && whole && size > 0) {
        text[size - 1] = '\0'; /* the last blank */
        *out = flim_strdup(text, err);
    }
    free(text);
    return status != FLIM_OK ? status : *out ? FLIM_OK : FLIM_ERROR_MEMORY;
}
