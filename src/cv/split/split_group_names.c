/* Groups by their names: which of the data's is meant, by an item that names several, or to be held out. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/parse.h"
#include "core/spelling.h"
#include "core/text.h"
#include "core/try.h"
#include "cv/split/split_internal.h"

/* ---- one group ---- */

static int64_t group_named(const flim_split_data *data, const char *name)
{
    char buffer[32];
    for (int64_t g = 0; g < data->groups; g++) {
        if (strcmp(name, flim_split_group(data, g, buffer)) == 0) {
            return g;
        }
    }
    return -1;
}

/* Fills alike (groups) with the groups whose names are `wanted` in another spelling; *first gets one of them, -1 = none. */
static flim_status find_alike(const flim_split_data *data, const char *wanted, bool *alike, int64_t *first, flim_error *err)
{
    flim_status status = FLIM_OK;
    char *key = flim_text_folded(wanted, FLIM_SPELLING_ALL, err);
    *first = -1;
    FLIM_TRY_DONE(key ? FLIM_OK : FLIM_ERROR_MEMORY);
    for (int64_t g = 0; g < data->groups; g++) {
        char buffer[32];
        const char *name = flim_split_group(data, g, buffer);
        char *folded = flim_text_folded(name, FLIM_SPELLING_ALL, err);
        FLIM_TRY_DONE(folded ? FLIM_OK : FLIM_ERROR_MEMORY);
        alike[g] = strcmp(folded, key) == 0 && strcmp(name, wanted) != 0;
        *first = *first < 0 && alike[g] ? g : *first;
        flim_free(folded);
    }
done:
    flim_free(key);
    return status;
}

static flim_status no_such_group(const flim_split_data *data, const char *what, const char *wanted, int64_t alike,
                                 flim_error *err)
{
    char buffer[32], name[256], difference[256] = "";
    const char *near = alike >= 0         ? flim_split_group(data, alike, buffer)
                       : data->group_name ? flim_nearest(wanted, data->group_name, (int)data->groups)
                                          : NULL;
    if (alike >= 0) {
        FLIM_TRY(flim_spelling_difference(wanted, near, difference, err));
    }
    flim_text_escaped(near ? near : "", name, sizeof name);
    return flim_fail(err, FLIM_ERROR_USAGE, "%s '%s': no such group among the %" PRId64 " of the data%s%s%s%s%s", what,
                     wanted, data->groups, near ? ", did you mean '" : "", name, near ? "'" : "",
                     alike >= 0 ? ", which differs only by "
                     : near     ? "?"
                                : "",
                     difference);
}

flim_status flim_split_find_group(const flim_split_data *data, const char *what, const char *wanted, int64_t *group,
                                  flim_error *err)
{
    int64_t near = -1;
    *group = group_named(data, wanted);
    if (*group >= 0) {
        return FLIM_OK;
    }
    bool *alike = flim_alloc((size_t)data->groups, sizeof *alike, err);
    const flim_status status = alike ? find_alike(data, wanted, alike, &near, err) : FLIM_ERROR_MEMORY;
    flim_free(alike);
    return status == FLIM_OK ? no_such_group(data, what, wanted, near, err) : status;
}

/* ---- items of lists ---- */

flim_status flim_split_each_group(const flim_split_data *data, const char *key, const char *item, flim_split_take *take,
                                  void *context, flim_error *err)
{
    flim_status status = FLIM_OK;
    int64_t group = group_named(data, item);
    if (group >= 0) {
        return take(context, group, item, err);
    }
    char *copy = flim_strdup(item, err), *next = NULL;
    FLIM_TRY(copy ? FLIM_OK : FLIM_ERROR_MEMORY);
    for (char *name = copy; name && status == FLIM_OK; name = next) {
        next = strchr(name, ',');
        if (next) {
            *next++ = '\0';
        }
        status = flim_split_find_group(data, key, name, &group, err);
        status = status == FLIM_OK ? take(context, group, name, err) : status;
    }
    flim_free(copy);
    return status;
}

static flim_status mark(void *context, int64_t group, const char *name, flim_error *err)
{
    (void)name;
    (void)err;
    ((bool *)context)[group] = true;
    return FLIM_OK;
}

flim_status flim_split_mark_groups(const flim_split_data *data, const char *key, const char *const *item, int n, bool *in,
                                   flim_error *err)
{
    for (int i = 0; i < n; i++) {
        FLIM_TRY(flim_split_each_group(data, key, item[i], mark, in, err));
    }
    return FLIM_OK;
}

/* ---- held out ---- */

/* A group that is held out leaves no other spelling of its name behind unsaid. */
static flim_status warn_of_alike(const flim_split_data *data, const flim_split_request *request, const bool *held_out,
                                 flim_error *err)
{
    flim_status status = FLIM_OK;
    int64_t first;
    bool *alike = flim_alloc((size_t)data->groups, sizeof *alike, err); /* (groups) */
    FLIM_TRY_DONE(alike ? FLIM_OK : FLIM_ERROR_MEMORY);
    for (int i = 0; i < request->n_holdout; i++) {
        const char *wanted = request->holdout_group[i];
        FLIM_TRY_DONE(find_alike(data, wanted, alike, &first, err));
        for (int64_t g = 0; first >= 0 && g < data->groups; g++) {
            char buffer[32], name[256], difference[256];
            if (alike[g] && !held_out[g]) {
                FLIM_TRY_DONE(flim_spelling_difference(wanted, flim_split_group(data, g, buffer), difference, err));
                flim_text_escaped(flim_split_group(data, g, buffer), name, sizeof name);
                flim_log_line(request->log, FLIM_LOG_WARNING,
                              "holdout_group '%s': group '%s' differs only by %s and is not held out: if it is the same "
                              "donor, the folds train on held-out cells",
                              wanted, name, difference);
            }
        }
    }
done:
    flim_free(alike);
    return status;
}

flim_status flim_split_find_holdout(const flim_split_data *data, const flim_split_request *request, bool *held_out,
                                    flim_error *err)
{
    if (request->n_holdout > 0 && !data->group) {
        return flim_fail(err, FLIM_ERROR_USAGE, "holdout_group '%s': the data has no /group", request->holdout_group[0]);
    }
    for (int i = 0; i < request->n_holdout; i++) {
        int64_t group;
        FLIM_TRY(flim_split_find_group(data, "holdout_group", request->holdout_group[i], &group, err));
        held_out[group] = true;
    }
    return request->n_holdout ? warn_of_alike(data, request, held_out, err) : FLIM_OK;
}

flim_status flim_splits_check_holdout(const flim_splits *splits, const flim_split_data *data,
                                      const flim_split_request *request, flim_error *err)
{
    char buffer[32];
    bool *wanted = flim_alloc((size_t)data->groups, sizeof *wanted, err); /* (groups) */
    flim_status status = FLIM_OK;
    FLIM_TRY_DONE(wanted ? flim_split_find_holdout(data, request, wanted, err) : FLIM_ERROR_MEMORY);
    for (int64_t i = 0, h = 0, u = 0; i < data->n; i++) {
        const bool held = h < splits->n_holdout && splits->holdout[h] == i, named = data->group && wanted[data->group[i]];
        const bool unused = u < splits->n_unused && splits->unused[u] == i;
        h += held;
        u += unused;
        if (held != named && !unused) {
            status = flim_fail(err, FLIM_ERROR_USAGE,
                               "holdout_group: the splits file says what is held out, and there cell %" PRId64
                               " of group '%s' is %s; leave --holdout-group out, or use another file",
                               i, data->group ? flim_split_group(data, data->group[i], buffer) : "",
                               held ? "held out" : "not held out");
            goto done;
        }
    }
done:
    flim_free(wanted);
    return status;
}
