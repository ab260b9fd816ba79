#include "import/import_rows.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/alloc.h"
#include "core/text.h"
#include "core/try.h"
#include "import/file_list.h"
#include "import/file_names.h"

const char *const flim_import_group_names[] = {"folder", "file", "none", NULL};

/* A TEXT=NAME of the request. */
typedef struct class_rule {
    char *text; /* and, behind its end, the name */
    const char *name;
    int class;
} class_rule;

typedef struct class_rules {
    int n;
    class_rule *rule; /* (n) */
} class_rules;

static void free_rules(class_rules *rules)
{
    for (int i = 0; i < rules->n; i++) {
        flim_free(rules->rule[i].text);
    }
    flim_free(rules->rule);
}

/* ---- classes ---- */

flim_status flim_import_class_number(flim_string_list *classes, const char *name, int *out, flim_error *err)
{
    *out = flim_string_list_find(classes, name);
    if (*out >= 0) {
        return FLIM_OK;
    }
    *out = classes->n;
    return flim_string_list_add(classes, name, err);
}

flim_status flim_import_check_classes(const flim_string_list *classes, const char *how, flim_error *err)
{
    return classes->n == 1
               ? flim_fail(err, FLIM_ERROR_USAGE, "%s: only one class, '%s', is named; expected two or more, or none at all",
                           how, classes->item[0])
               : FLIM_OK;
}

/* One "TEXT=NAME" of `length` bytes. */
static flim_status add_rule(class_rules *rules, const char *text, size_t length, flim_string_list *classes, flim_error *err)
{
    char *copy = flim_strprintf(err, "%.*s", (int)length, text);
    class_rule *grown = copy ? flim_realloc(rules->rule, (size_t)rules->n + 1, sizeof *grown, err) : NULL;
    if (!grown) {
        flim_free(copy);
        return FLIM_ERROR_MEMORY;
    }
    rules->rule = grown;
    rules->rule[rules->n] = (class_rule){.text = copy};
    class_rule *rule = &rules->rule[rules->n++];
    char *equals = strchr(copy, '=');
    if (!equals || equals == copy || !equals[1]) {
        return flim_fail(err, FLIM_ERROR_USAGE,
                         "--class '%s': expected TEXT=NAME, for example --class _in=inactive,_act=active: files whose name "
                         "contains _act are of class active",
                         copy);
    }
    *equals = '\0';
    rule->name = equals + 1;
    return flim_import_class_number(classes, rule->name, &rule->class, err);
}

static flim_status read_rules(const flim_import_request *r, class_rules *rules, flim_string_list *classes, flim_error *err)
{
    for (int i = 0; i < r->n_rules; i++) {
        for (const char *at = r->class_rule[i]; at;) {
            const size_t length = strcspn(at, ",");
            FLIM_TRY(add_rule(rules, at, length, classes, err));
            at = at[length] ? at + length + 1 : NULL;
        }
    }
    return flim_import_check_classes(classes, "--class", err);
}

/* The class of a file by its name, -1 for none. */
static flim_status class_of(const class_rules *rules, const char *path, int32_t *out, flim_error *err)
{
    const class_rule *by = NULL;
    *out = -1;
    for (int i = 0; i < rules->n; i++) {
        const class_rule *rule = &rules->rule[i];
        if (!strstr(flim_path_base(path), rule->text)) {
            continue;
        }
        if (by && by->class != rule->class) {
            return flim_fail(err, FLIM_ERROR_USAGE, "%s: its name matches two classes, by --class '%s=%s' and by '%s=%s'",
                             path, by->text, by->name, rule->text, rule->name);
        }
        by = rule;
        *out = rule->class;
    }
    return FLIM_OK;
}

/* ---- masks ---- */

/* Whether a path leads to one of the masks (n, sorted by text). */
static bool is_mask(char *const *mask, size_t n, const char *path)
{
    char real[PATH_MAX];
    const char *key = real;
    return realpath(path, real) && bsearch(&key, mask, n, sizeof *mask, flim_compare_texts);
}

/* The masks of the files that are there, with links followed and sorted by text: mask (files->n) gets *n of them. */
static flim_status list_masks(const flim_import_request *r, const flim_string_list *files, char **mask, size_t *n,
                              flim_error *err)
{
    for (int i = 0; i < files->n; i++) {
        char real[PATH_MAX];
        char *beside = flim_path_beside(files->item[i], r->mask, err);
        if (!beside) {
            return FLIM_ERROR_MEMORY;
        }
        const bool there = realpath(beside, real);
        flim_free(beside);
        if (there && !(mask[(*n)++] = flim_strdup(real, err))) {
            return FLIM_ERROR_MEMORY;
        }
    }
    qsort(mask, *n, sizeof *mask, flim_compare_texts);
    return FLIM_OK;
}

/* Takes those files off the list that are masks of others: with a mask beside each field, a folder holds both. */
static flim_status drop_masks(const flim_import_request *r, flim_string_list *files, flim_error *err)
{
    flim_status status = FLIM_OK;
    size_t n = 0;
    int kept = 0;
    char **mask = flim_alloc((size_t)files->n, sizeof *mask, err); /* (n) */
    FLIM_TRY_DONE(mask ? FLIM_OK : FLIM_ERROR_MEMORY);
    FLIM_TRY_DONE(list_masks(r, files, mask, &n, err));
    for (int i = 0; i < files->n; i++) {
        if (is_mask(mask, n, files->item[i])) {
            flim_free(files->item[i]);
        } else {
            files->item[kept++] = files->item[i];
        }
    }
    files->n = kept;
done:
    flim_free_list(mask, (int64_t)n);
    return status;
}

flim_status flim_import_check_mask(const char *path, const char *mask, flim_error *err)
{
    struct stat about;
    return stat(mask, &about) == 0 ? FLIM_OK
                                   : flim_fail(err, FLIM_ERROR_DATA,
                                               "%s: its mask, %s, is not there; --mask says how masks are named", path, mask);
}

/* ---- rows ---- */

char *flim_import_group_of(const flim_import_request *request, const char *path, flim_error *err)
{
    char *group = NULL;
    switch (request->group) {
    case FLIM_IMPORT_GROUP_FOLDER: group = flim_path_folder(path, err); break;
    case FLIM_IMPORT_GROUP_FILE: group = flim_path_stem(path, err); break;
    case FLIM_IMPORT_GROUP_NONE: group = flim_strdup("", err); break;
    }
    const size_t prefix = request->group_prefix ? strlen(request->group_prefix) : 0;
    if (group && prefix > 0 && strncmp(group, request->group_prefix, prefix) == 0 && group[prefix]) {
        memmove(group, group + prefix, strlen(group + prefix) + 1);
    }
    return group;
}

flim_status flim_import_rows_add(flim_import_rows *rows, flim_import_row **out, flim_error *err)
{
    if (rows->n == rows->capacity) {
        const size_t capacity = rows->capacity ? 2 * (size_t)rows->capacity : 256;
        flim_import_row *grown = flim_realloc(rows->row, capacity, sizeof *grown, err);
        if (!grown) {
            return FLIM_ERROR_MEMORY;
        }
        rows->row = grown;
        rows->capacity = (int64_t)capacity;
    }
    *out = &rows->row[rows->n++];
    **out = (flim_import_row){.label = -1};
    return FLIM_OK;
}

static flim_status add_file(const flim_import_request *r, const class_rules *rules, const char *path, flim_import_rows *out,
                            flim_error *err)
{
    flim_import_row *row;
    int32_t label;
    FLIM_TRY(class_of(rules, path, &label, err));
    if (rules->n > 0 && label < 0) {
        out->skipped++;
        return FLIM_OK;
    }
    FLIM_TRY(flim_import_rows_add(out, &row, err));
    row->label = label;
    if (!(row->path = flim_strdup(path, err)) || !(row->name = flim_path_stem(path, err)) ||
        !(row->group = flim_import_group_of(r, path, err))) {
        return FLIM_ERROR_MEMORY;
    }
    if (r->mask && r->mask[0]) {
        row->mask = flim_path_beside(path, r->mask, err);
        return row->mask ? flim_import_check_mask(path, row->mask, err) : FLIM_ERROR_MEMORY;
    }
    return FLIM_OK;
}

flim_status flim_import_rows_make(const flim_import_request *r, flim_import_rows *out, flim_error *err)
{
    class_rules rules = {0};
    flim_string_list files = {0};
    const bool masks = r->mask && r->mask[0];
    flim_status status = FLIM_OK;
    out->groups = r->group != FLIM_IMPORT_GROUP_NONE;
    FLIM_TRY_DONE(read_rules(r, &rules, &out->classes, err));
    FLIM_TRY_DONE(flim_list_files(r->input, r->n_inputs, &files, err));
    FLIM_TRY_DONE(masks ? drop_masks(r, &files, err) : FLIM_OK);
    if (masks && !strchr(r->mask, '*') && files.n > 1) {
        FLIM_TRY_DONE(
            flim_fail(err, FLIM_ERROR_USAGE,
                      "--mask %s is one file, but there are %d fields; a * in it stands for the field's name, as in "
                      "--mask '*_cp_masks.png'",
                      r->mask, files.n));
    }
    for (int i = 0; i < files.n; i++) {
        FLIM_TRY_DONE(add_file(r, &rules, files.item[i], out, err));
    }
    if (out->n == 0) {
        status = flim_fail(err, FLIM_ERROR_DATA,
                           "no cell: %d files were found, of which %" PRId64 " have a name that matches no --class", files.n,
                           out->skipped);
    }
done:
    flim_string_list_free(&files);
    free_rules(&rules);
    return status;
}

void flim_import_row_free(flim_import_row *row)
{
    flim_free(row->path);
    flim_free(row->name);
    flim_free(row->mask);
    flim_free(row->group);
    *row = (flim_import_row){0};
}

void flim_import_rows_free(flim_import_rows *rows)
{
    for (int64_t i = 0; i < rows->n; i++) {
        flim_import_row_free(&rows->row[i]);
    }
    flim_free(rows->row);
    flim_string_list_free(&rows->classes);
    *rows = (flim_import_rows){0};
}
