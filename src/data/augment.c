#include "flim/augment.h"

#include <stdio.h>
#include <string.h>

#include "core/parse.h"
#include "core/try.h"
#include "data/transform.h"

/* A preset is a list of steps. */
static const struct {
    const char *name;
    flim_transform transform;
} presets[] = {
    {"none", {0}},
    /* What a measurement could have been: another orientation, a dimmer exposure.  docs/learning.md has what more of it costs
     * short runs, and what a delay of the laser's trigger (drift_fill) adds: nothing that was measured. */
    {"flim", {2, {{FLIM_TRANSFORM_DIHEDRAL, 1, 0, 7}, {FLIM_TRANSFORM_THIN, 0.25, 0.4, 1}}}},
    /* A published script's, for comparison with it: not physical.  Its flips and turns reach each exchange of rows and columns
     * with probability 1/3; its "Poisson noise" changes nothing that can be measured and is left out; zoom, field and blur move photons here, not
     * interpolate counts. */
    {"paper",
     {7,
      {{FLIM_TRANSFORM_SHIFT_ZERO, 0.8, -5, 5},
       {FLIM_TRANSFORM_SCALE, 0.8, 0.6, 1.4},
       {FLIM_TRANSFORM_DIHEDRAL, 1, 0, 3},
       {FLIM_TRANSFORM_DIHEDRAL, 2.0 / 3, 0, 7},
       {FLIM_TRANSFORM_ZOOM, 0.5, 0.85, 1.15},
       {FLIM_TRANSFORM_ELASTIC, 0.5, 1, 1},
       {FLIM_TRANSFORM_BLUR, 0.5, 0.3, 0.8}}}},
};
enum { N_PRESETS = sizeof presets / sizeof presets[0], MOST_PARTS = 4, ITEM_MAX = 128 };

static flim_status unknown(const char *item, const char *name, flim_error *err)
{
    const char *names[N_PRESETS + FLIM_TRANSFORM_OPS + 1] = {"auto"};
    for (int i = 0; i < N_PRESETS; i++) {
        names[1 + i] = presets[i].name;
    }
    for (int i = 0; i < FLIM_TRANSFORM_OPS; i++) {
        names[1 + N_PRESETS + i] = flim_transform_ops[i].name;
    }
    return flim_fail(err, FLIM_ERROR_USAGE,
                     "augment: '%.80s' is not known (did you mean '%s'?); expected auto, none, flim, paper or "
                     "NAME:PROBABILITY:LOW:HIGH as in thin:0.8:0.4:1",
                     item, flim_nearest(name, names, 1 + N_PRESETS + FLIM_TRANSFORM_OPS));
}

/* "thin:0.8:0.4:1" -> parts, which point into `text` (a copy of the item). */
static flim_status split(const char *item, char text[ITEM_MAX], char *part[MOST_PARTS], int *n, flim_error *err)
{
    if (strlen(item) >= ITEM_MAX) {
        return flim_fail(err, FLIM_ERROR_USAGE, "augment: '%.80s...' is too long, expected NAME:PROBABILITY:LOW:HIGH", item);
    }
    snprintf(text, ITEM_MAX, "%s", item);
    *n = 0;
    for (char *at = text; at;) {
        char *colon = strchr(at, ':');
        if (*n == MOST_PARTS) {
            return flim_fail(err, FLIM_ERROR_USAGE, "augment: '%.80s' has more than NAME:PROBABILITY:LOW:HIGH", item);
        }
        part[(*n)++] = at;
        if (colon) {
            *colon++ = '\0';
        }
        at = colon;
    }
    return FLIM_OK;
}

static flim_status parse_step(const char *item, flim_transform_step *out, flim_error *err)
{
    char text[ITEM_MAX], *part[MOST_PARTS], what[ITEM_MAX + 32];
    const flim_transform_info *op = NULL;
    int n;
    FLIM_TRY(split(item, text, part, &n, err));
    for (int i = 0; i < FLIM_TRANSFORM_OPS && !op; i++) {
        op = strcmp(part[0], flim_transform_ops[i].name) == 0 ? &flim_transform_ops[i] : NULL;
    }
    if (!op) {
        return unknown(item, part[0], err);
    }
    const bool ranged = op->usual_low != op->usual_high || op->least != op->most;
    snprintf(what, sizeof what, "augment: '%s'", item);
    *out = (flim_transform_step){(flim_transform_op)(op - flim_transform_ops), 1, op->usual_low, op->usual_high};
    if (n == 3 || (n == 4 && !ranged)) {
        return flim_fail(err, FLIM_ERROR_USAGE, "%s: expected %s:PROBABILITY%s", what, op->name, ranged ? ":LOW:HIGH" : "");
    }
    if (n < 4 && op->usual_low > op->usual_high) {
        return flim_fail(err, FLIM_ERROR_USAGE, "%s: its range depends on the data; expected %s:PROBABILITY:LOW:HIGH (%s)",
                         what, op->name, op->unit);
    }
    if (n > 1) {
        FLIM_TRY(flim_parse_double(what, part[1], 0, 1, &out->probability, err));
    }
    if (n == 4) {
        FLIM_TRY(flim_parse_double(what, part[2], op->least, op->most, &out->low, err));
        FLIM_TRY(flim_parse_double(what, part[3], op->least, op->most, &out->high, err));
    }
    /* As for cells that allow all that any cells do. */
    const flim_transform one = {1, {*out}};
    return flim_transform_check(&one, 1 << 21, 1, 1, err) == FLIM_OK ? FLIM_OK : flim_fail_prefix(err, "%s: ", what);
}

static flim_status parse_item(const char *item, bool photons, flim_transform *out, flim_error *err)
{
    const char *name = strcmp(item, "auto") != 0 ? item : photons ? "flim" : "symmetry";
    for (int preset = 0; preset < N_PRESETS; preset++) {
        if (strcmp(name, presets[preset].name) == 0) {
            *out = presets[preset].transform;
            return FLIM_OK;
        }
    }
    *out = (flim_transform){1, {{0}}};
    return parse_step(name, &out->step[0], err);
}

flim_status flim_augment_parse(const flim_string_list *items, bool photons, flim_transform *out, flim_error *err)
{
    *out = (flim_transform){0};
    for (int i = 0; i < items->n; i++) {
        flim_transform one;
        FLIM_TRY(parse_item(items->item[i], photons, &one, err));
        if (one.n == 0 && items->n > 1) {
            return flim_fail(err, FLIM_ERROR_USAGE, "augment: none must be the only item, but there are %d items", items->n);
        }
        if (out->n + one.n > FLIM_MAX_TRANSFORM_STEPS) {
            return flim_fail(err, FLIM_ERROR_USAGE, "augment: '%.80s' is step %d, expected at most %d steps", items->item[i],
                             out->n + one.n, FLIM_MAX_TRANSFORM_STEPS);
        }
        memcpy(out->step + out->n, one.step, sizeof *one.step * (size_t)one.n);
        out->n += one.n;
    }
    return flim_transform_check(out, 1 << 21, 1, 1, err) == FLIM_OK ? FLIM_OK : flim_fail_prefix(err, "augment: ");
}

void flim_augment_text(const flim_transform *transform, char *out, size_t size)
{
    size_t used = (size_t)snprintf(out, size, "%s", transform->n == 0 ? "none" : "");
    for (int i = 0; i < transform->n && used < size; i++) {
        const flim_transform_step *s = &transform->step[i];
        used += (size_t)snprintf(out + used, size - used, "%s%s:%.9g:%.9g:%.9g", i ? " " : "", flim_transform_ops[s->op].name,
                                 s->probability, s->low, s->high);
    }
}

void flim_augment_not_physical(const flim_transform *transform, char *out, size_t size)
{
    size_t used = (size_t)snprintf(out, size, "%s", "");
    for (int i = 0; i < transform->n && used < size; i++) {
        const flim_transform_info *op = &flim_transform_ops[transform->step[i].op];
        if (op->not_physical) {
            used += (size_t)snprintf(out + used, size - used, "%s%s", used ? ", " : "", op->name);
        }
    }
}
