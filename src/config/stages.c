#include "flim/stages.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "config/settings.h"
#include "config/stage_words.h"
#include "core/alloc.h"
#include "core/parse.h"
#include "core/try.h"

enum { MOST_STAGES = 64 };

static bool is_word(const char *text, size_t length, const char *word)
{
    return length == strlen(word) && memcmp(text, word, length) == 0;
}

/* Whether the stage's words say kind=pretraining; a kind that there is not is FLIM_ERROR_USAGE. */
static flim_status read_kind(const char *text, bool *pretrains, flim_error *err)
{
    static const char key[] = "kind=";
    *pretrains = false;
    for (const char *at = text; (at = strstr(at, key)) != NULL; at += sizeof key - 1) {
        if (at != text && at[-1] != ' ') {
            continue;
        }
        const char *value = at + sizeof key - 1;
        const size_t length = strcspn(value, " ");
        if (is_word(value, length, "pretraining")) {
            *pretrains = true;
        } else if (!is_word(value, length, "training")) {
            return flim_fail(err, FLIM_ERROR_USAGE, "kind %.*s: a stage is of kind training (the default) or pretraining",
                             length < 40 ? (int)length : 40, value);
        }
    }
    return FLIM_OK;
}

int flim_stages_pretraining(const flim_string_list *stages)
{
    for (int i = 0; i < stages->n; i++) {
        bool pretrains = false;
        if (read_kind(stages->item[i], &pretrains, NULL) == FLIM_OK && pretrains) {
            return i;
        }
    }
    return -1;
}

static flim_status read_words(char *words, flim_stage *out, flim_error *err)
{
    char *rest = words, *word;
    while ((word = strsep(&rest, " ")) != NULL) {
        char *equal = strchr(word, '=');
        if (!equal) {
            snprintf(out->name, sizeof out->name, "%.60s", word[0] ? word : out->name);
            continue;
        }
        *equal = '\0';
        if (strcmp(word, "name") == 0) {
            snprintf(out->name, sizeof out->name, "%.60s", equal + 1);
        } else if (strcmp(word, "kind") != 0) {
            FLIM_TRY(out->settings.pretrains ? flim_pretraining_set(&out->settings, word, equal + 1, err)
                                             : flim_settings_set(&out->settings, word, equal + 1, err));
        }
    }
    return FLIM_OK;
}

flim_status flim_stage_read(const flim_settings *run, const char *text, int number, flim_stage *out, flim_error *err)
{
    char words[1024];
    bool pretrains = false;
    flim_status status = FLIM_OK;
    *out = (flim_stage){0};
    snprintf(out->name, sizeof out->name, "stage %d", number);
    if (read_kind(text, &pretrains, err) != FLIM_OK) {
        return flim_fail_prefix(err, "stages: %.60s: ", out->name);
    }
    FLIM_TRY(pretrains ? flim_pretraining_defaults(run, &out->settings, err) : flim_settings_init(&out->settings, err));
    if ((size_t)snprintf(words, sizeof words, "%s", text) >= sizeof words) {
        FLIM_TRY_DONE(flim_fail(err, FLIM_ERROR_USAGE, "more than %zu bytes", sizeof words - 1));
    }
    FLIM_TRY_DONE(pretrains ? FLIM_OK : flim_settings_copy(run, &out->settings, err));
    FLIM_TRY_DONE(read_words(words, out, err));
    FLIM_TRY_DONE(pretrains ? flim_settings_check(&out->settings, err) : FLIM_OK);
    status = pretrains ? flim_pretraining_check_used(&out->settings, true, true, err) : FLIM_OK;
done:
    if (status != FLIM_OK) {
        flim_settings_free(&out->settings);
        return flim_fail_prefix(err, "stages: %.60s: ", out->name);
    }
    return FLIM_OK;
}

void flim_stage_free(flim_stage *stage)
{
    flim_settings_free(&stage->settings);
}

void flim_stages_free(flim_stage *stages, int n)
{
    for (int i = 0; i < n; i++) {
        flim_stage_free(&stages[i]);
    }
    flim_free(stages);
}

/* ---- what a training may change from stage to stage */

typedef struct difference {
    const char *first; /* name of a setting that a stage may not change; NULL = none */
} difference;

static void note_difference(void *context, const flim_flag_row *row, const char *run, const char *stage)
{
    difference *d = context;
    (void)run, (void)stage;
    const bool memory = row->offset == offsetof(flim_settings, checkpoint_activations);
    const bool evaluation = row->offset == offsetof(flim_settings, tta); /* of all folds' scores alike */
    if ((row->on_resume != FLIM_ON_RESUME_REFUSED && !memory) || evaluation) {
        d->first = row->name;
    }
}

static flim_status check_stage(const flim_settings *run, const flim_stage *stage, flim_error *err)
{
    difference d = {0};
    const flim_settings *s = &stage->settings;
    flim_settings_compare(run, s, note_difference, &d);
    if (d.first) {
        return flim_fail(
            err, FLIM_ERROR_USAGE,
            "stages: %s changes %s, which is the same for all stages of a run; a stage may set epochs, lr, batch, "
            "precision, augment and what else belongs to one training",
            stage->name, d.first);
    }
    if (s->batch == 0) {
        return flim_fail(err, FLIM_ERROR_USAGE,
                         "stages: %s: batch auto is found once per run; give each stage a number (gpu_plan says which fit)",
                         stage->name);
    }
    if (s->warmup_epochs >= s->epochs) {
        return flim_fail(err, FLIM_ERROR_USAGE, "stages: %s: warmup_epochs: %lld of %lld epochs; must be fewer than epochs",
                         stage->name, (long long)s->warmup_epochs, (long long)s->epochs);
    }
    return FLIM_OK;
}

static flim_status check_run(const flim_settings *run, flim_error *err)
{
    const char *what = run->refit                         ? "refit"
                       : run->final_model                 ? "final"
                       : run->on_oom == FLIM_ON_OOM_RETRY ? "on_oom retry"
                       : run->stages.n > MOST_STAGES      ? "a list of more than 64"
                                                          : NULL;
    return what ? flim_fail(err, FLIM_ERROR_USAGE,
                            "stages and %s: that works on one training of one length and batch; leave one of them out", what)
                : FLIM_OK;
}

/* A stage of kind pretraining is no training of a fold, but what its first one starts from: it comes first, and there is one. */
static flim_status check_pretraining(const flim_settings *run, flim_error *err)
{
    const int at = flim_stages_pretraining(&run->stages);
    bool another = false;
    for (int i = at + 1; at >= 0 && i < run->stages.n; i++) {
        FLIM_TRY(another ? FLIM_OK : read_kind(run->stages.item[i], &another, err));
    }
    if (at > 0 || another) {
        return flim_fail(err, FLIM_ERROR_USAGE, "stages: the pretraining is the first stage, and the only one of its kind");
    }
    return at == 0 && run->stage[0]
               ? flim_fail(err, FLIM_ERROR_USAGE,
                           "stage '%.60s': a training is alone without the stages before it, and one of them is of kind "
                           "pretraining; leave --stage out, or that stage",
                           run->stage)
               : FLIM_OK;
}

/* The stage that is asked for becomes the only one. */
static flim_status keep_one(const char *name, flim_stage *stages, int *n, flim_error *err)
{
    const char *names[MOST_STAGES];
    for (int i = 0; i < *n; i++) {
        names[i] = stages[i].name;
        if (strcmp(stages[i].name, name) == 0) {
            const flim_stage one = stages[i];
            stages[i] = stages[0];
            stages[0] = one;
            for (int k = 1; k < *n; k++) {
                flim_stage_free(&stages[k]);
            }
            *n = 1;
            return FLIM_OK;
        }
    }
    const char *near = *n ? flim_nearest(name, names, *n) : NULL;
    return flim_fail(err, FLIM_ERROR_USAGE, "stage '%.60s' is not one of stages%s%s%s", name, near ? " (did you mean '" : "",
                     near ? near : "", near ? "'?)" : "");
}

flim_status flim_stages_read(const flim_settings *run, flim_stage **out, int *n, flim_error *err)
{
    flim_stage *stages = NULL;
    flim_status status = FLIM_OK;
    *out = NULL;
    *n = 0;
    if (run->stages.n == 0 && !run->stage[0]) {
        return FLIM_OK;
    }
    FLIM_TRY(check_pretraining(run, err));
    const int first = flim_stages_pretraining(&run->stages) + 1; /* of the trainings */
    if (first > 0 && first == run->stages.n) { /* then one training with the run's own settings */
        return FLIM_OK;
    }
    FLIM_TRY(check_run(run, err));
    stages = flim_alloc((size_t)(run->stages.n > 0 ? run->stages.n : 1), sizeof *stages, err);
    FLIM_TRY_DONE(stages ? FLIM_OK : FLIM_ERROR_MEMORY);
    for (int i = 0; i < run->stages.n - first; i++) {
        FLIM_TRY_DONE(flim_stage_read(run, run->stages.item[first + i], first + i + 1, &stages[i], err));
        *n += 1;
        FLIM_TRY_DONE(check_stage(run, &stages[i], err));
        for (int k = 0; k < i; k++) {
            if (strcmp(stages[k].name, stages[i].name) == 0) {
                FLIM_TRY_DONE(flim_fail(err, FLIM_ERROR_USAGE, "stages: two have the name '%s'", stages[i].name));
            }
        }
    }
    status = run->stage[0] ? keep_one(run->stage, stages, n, err) : FLIM_OK;
done:
    if (status != FLIM_OK) {
        flim_stages_free(stages, *n);
        *n = 0;
        return status;
    }
    *out = stages;
    return FLIM_OK;
}
