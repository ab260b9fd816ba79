#include "data/columns.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/text.h"
#include "core/try.h"

/* Is /name in all files (or in none)?  *kind is the common kind; FLIM_COLUMN_OTHER if numbers and strings mix. */
static flim_status common_kind(flim_dataset *d, const char *name, bool needed, flim_column_kind *kind, flim_error *err)
{
    *kind = FLIM_COLUMN_NONE;
    int with = 0, without = 0;
    for (int i = 0; i < d->info.n_files; i++) {
        flim_column_kind found;
        FLIM_TRY(d->file[i].source->ops->column_kind(d->file[i].source, name, needed, &found, err));
        if (found == FLIM_COLUMN_NONE) {
            without = i + 1;
        } else {
            *kind = with && found != *kind ? FLIM_COLUMN_OTHER : found;
            with = i + 1;
        }
    }
    if (with && without) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s: there is no /%s, but %s has one; expected it in all files or in none",
                         d->path[without - 1], name, d->path[with - 1]);
    }
    return FLIM_OK;
}

/* Everything inside is UTF-8, so that two files that spell a name in two encodings have one name. */
static flim_status to_utf8(char **text, int64_t n, flim_error *err)
{
    for (int64_t i = 0; i < n; i++) {
        if (!flim_utf8_is_valid(text[i])) {
            char *valid = flim_utf8_of(text[i], err);
            if (!valid) {
                return FLIM_ERROR_MEMORY;
            }
            flim_free(text[i]);
            text[i] = valid;
        }
    }
    return FLIM_OK;
}

/* A column of strings or numbers over all files.  values (n) gets a file's numbers, text (n) its strings; with as_text its
 * numbers as texts, too. */
static flim_status read_column(flim_dataset *d, const char *name, bool as_text, int64_t *values, char **text, flim_error *err)
{
    for (int i = 0; i < d->info.n_files; i++) {
        flim_source *source = d->file[i].source;
        const int64_t first = d->file[i].first, end = first + source->info.n;
        flim_column_kind kind;
        FLIM_TRY(source->ops->column_kind(source, name, true, &kind, err));
        if (kind == FLIM_COLUMN_STRINGS) {
            FLIM_TRY(source->ops->read_strings(source, name, text + first, err));
            FLIM_TRY(to_utf8(text + first, end - first, err));
            continue;
        }
        FLIM_TRY(source->ops->read_integers(source, name, values + first, err));
        for (int64_t j = first; as_text && j < end; j++) {
            if (!(text[j] = flim_strprintf(err, "%" PRId64, values[j]))) {
                return FLIM_ERROR_MEMORY;
            }
        }
    }
    return FLIM_OK;
}

/* ---- labels */

enum { MOST_CLASSES = 1000 };

/* "0 (12 cells), 3 (4 cells), ..." */
static void label_table(const int64_t *sorted, int64_t n, char *text, size_t size)
{
    size_t used = 0;
    int shown = 0;
    text[0] = '\0';
    for (int64_t i = 0; i < n;) {
        int64_t end = i;
        while (end < n && sorted[end] == sorted[i]) {
            end++;
        }
        if (shown == 12) {
            snprintf(text + used, size - used, ", ...");
            return;
        }
        int length = snprintf(text + used, size - used, "%s%" PRId64 " (%" PRId64 " cell%s)", shown ? ", " : "", sorted[i],
                              end - i, flim_s(end - i));
        used += length > 0 ? (size_t)length : 0;
        if (used >= size) {
            return;
        }
        shown++;
        i = end;
    }
}

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* The class names of the files, which must agree if several have them; *count = 0 if none has. */
static flim_status common_names(flim_dataset *d, const char *attribute, bool must_agree, bool *agree, char ***names,
                                int64_t *count, flim_error *err)
{
    int from = -1;
    *names = NULL;
    *count = 0;
    *agree = true;
    for (int i = 0; i < d->info.n_files; i++) {
        char **list = NULL;
        int64_t n = 0;
        flim_status status = FLIM_OK;
        FLIM_TRY(d->file[i].source->ops->attribute_strings(d->file[i].source, attribute, &list, &n, err));
        if ((status = to_utf8(list, n, err)) != FLIM_OK) {
            flim_free_list(list, n);
            return status;
        }
        if (n == 0) {
            *agree = *agree && from < 0;
            continue;
        }
        if (from < 0) {
            *agree = i == 0;
            from = i;
            *names = list;
            *count = n;
            continue;
        }
        int64_t at = 0; /* the first name that differs, or that only one of them has */
        while (at < n && at < *count && strcmp(list[at], (*names)[at]) == 0) {
            at++;
        }
        const bool same = n == *count && at == n;
        *agree = *agree && same;
        if (!same && must_agree) {
            status = flim_fail(err, FLIM_ERROR_DATA,
                               "%s: attribute %s differs from that of %s: %" PRId64 " and %" PRId64 " names, class %" PRId64
                               " is '%s' and '%s'; expected the same",
                               d->path[i], attribute, d->path[from], n, *count, at, at < n ? list[at] : "(none)",
                               at < *count ? (*names)[at] : "(none)");
        }
        flim_free_list(list, n);
        FLIM_TRY(status);
    }
    return FLIM_OK;
}

/* Labels as they were read, and in order. */
typedef struct labels {
    int64_t *value, *sorted; /* (n) */
    int64_t distinct;
    char **name; /* (named) of the attribute class_names, or NULL */
    int64_t named;
    bool agree; /* all files have that attribute */
} labels;

static flim_status read_labels(flim_dataset *d, labels *l, flim_error *err)
{
    const int64_t n = d->info.n;
    if (!(l->value = flim_alloc((size_t)n, sizeof *l->value, err)) ||
        !(l->sorted = flim_alloc((size_t)n, sizeof *l->sorted, err)) ||
        !(d->label = flim_alloc((size_t)n, sizeof *d->label, err))) {
        return FLIM_ERROR_MEMORY;
    }
    for (int i = 0; i < d->info.n_files; i++) {
        flim_source *source = d->file[i].source;
        FLIM_TRY(source->ops->read_integers(source, "label", l->value + d->file[i].first, err));
    }
    FLIM_TRY(common_names(d, "class_names", true, &l->agree, &l->name, &l->named, err));
    memcpy(l->sorted, l->value, (size_t)n * sizeof *l->sorted);
    qsort(l->sorted, (size_t)n, sizeof *l->sorted, by_value);
    l->distinct = 1;
    for (int64_t i = 1; i < n; i++) {
        l->distinct += l->sorted[i] != l->sorted[i - 1];
    }
    return FLIM_OK;
}

/* Labels are 0..K-1; without names each of them occurs. */
static flim_status check_labels(const flim_dataset *d, const labels *l, bool need_two, flim_error *err)
{
    const int64_t n = d->info.n, named = l->named;
    const bool gaps = named == 0 && (l->sorted[0] != 0 || l->sorted[n - 1] != l->distinct - 1);
    const bool outside = named > 0 && (l->sorted[0] < 0 || l->sorted[n - 1] >= named);
    if (gaps || outside || (named == 0 && l->distinct > MOST_CLASSES) || named > MOST_CLASSES) {
        char table[600], expected[160];
        label_table(l->sorted, n, table, sizeof table);
        if (outside) {
            snprintf(expected, sizeof expected, "0..%" PRId64 ", as attribute class_names has %" PRId64 " names", named - 1,
                     named);
        } else if (gaps) {
            snprintf(expected, sizeof expected, "0..K-1, each at least once (or an attribute class_names with K names)");
        } else {
            snprintf(expected, sizeof expected, "at most %d classes", MOST_CLASSES);
        }
        int64_t cell = 0, local;
        while (cell < n - 1 && !(l->value[cell] < 0 || l->value[cell] >= (named ? named : l->distinct))) {
            cell++;
        }
        const flim_dataset_file *file = flim_dataset_locate(d, cell, &local);
        return flim_fail(err, FLIM_ERROR_DATA,
                         "%s: /label: cell %" PRId64 " has label %" PRId64 ", expected %s; the labels found are %s",
                         d->path[file - d->file], local, l->value[cell], expected, table);
    }
    if (need_two && l->distinct < 2) {
        return flim_fail(err, FLIM_ERROR_DATA,
                         "%s: /label: all %" PRId64 " cells have label %" PRId64 "; training needs two classes", d->path[0],
                         n, l->value[0]);
    }
    return FLIM_OK;
}

/* An enumerated /label names its values itself: like class_names, or, without that attribute, in its place. */
static flim_status take_enum_names(flim_dataset *d, labels *l, flim_error *err)
{
    for (int i = 0; i < d->info.n_files; i++) {
        char **list;
        int64_t n;
        flim_status status = FLIM_OK;
        FLIM_TRY(d->file[i].source->ops->column_names(d->file[i].source, "label", &list, &n, err));
        if (n > 0 && !l->name) {
            l->name = list;
            l->named = n;
            continue;
        }
        for (int64_t k = 0; k < n && k < l->named && status == FLIM_OK; k++) {
            if (l->name[k] && strcmp(list[k], l->name[k]) != 0) {
                status = flim_fail(err, FLIM_ERROR_DATA,
                                   "%s: /label is an enumeration that calls class %" PRId64
                                   " '%s', and class_names calls it '%s': which one is meant? Correct one of them",
                                   d->path[i], k, list[k], l->name[k]);
            }
        }
        flim_free_list(list, n);
        FLIM_TRY(status);
    }
    return FLIM_OK;
}

/* Two classes of one name could not be told apart in any table. */
static flim_status check_names_differ(const flim_dataset *d, const labels *l, flim_error *err)
{
    for (int64_t k = 0; l->name && k < l->named; k++) {
        for (int64_t j = 0; j < k; j++) {
            if (l->name[k] && l->name[j] && strcmp(l->name[k], l->name[j]) == 0) {
                return flim_fail(err, FLIM_ERROR_DATA,
                                 "%s: attribute class_names: classes %" PRId64 " and %" PRId64
                                 " are both '%s'; expected a name of its own for each class",
                                 d->path[0], j, k, l->name[k]);
            }
        }
    }
    return FLIM_OK;
}

/* Names every class, and warns of those without a cell. */
static flim_status name_classes(flim_dataset *d, labels *l, const flim_log *log, flim_error *err)
{
    const int64_t n = d->info.n, classes = l->named ? l->named : l->distinct;
    if (!l->name && !(l->name = flim_alloc((size_t)classes, sizeof *l->name, err))) {
        return FLIM_ERROR_MEMORY;
    }
    if (l->named > 0 && !l->agree) {
        flim_log_line(
            log, FLIM_LOG_WARNING,
            "of %d files some have no attribute class_names: label 0 is taken there for '%s', and so on, as the others "
            "name them",
            d->info.n_files, l->name[0]);
    }
    d->class_name = l->name;
    d->info.classes = (int)classes;
    l->name = NULL;
    for (int64_t k = 0, i = 0; k < classes; k++) {
        if (!d->class_name[k] && !(d->class_name[k] = flim_strprintf(err, "%" PRId64, k))) {
            return FLIM_ERROR_MEMORY;
        }
        if (i == n || l->sorted[i] != k) {
            flim_log_line(log, FLIM_LOG_WARNING, "%s: class %" PRId64 " (%s) has no cell", d->path[0], k, d->class_name[k]);
        }
        while (i < n && l->sorted[i] == k) {
            i++;
        }
    }
    for (int64_t i = 0; i < n; i++) {
        d->label[i] = (int32_t)l->value[i];
    }
    d->info.label = d->label;
    d->info.class_name = (const char *const *)d->class_name;
    return FLIM_OK;
}

static flim_status load_labels(flim_dataset *d, const flim_dataset_options *options, flim_error *err)
{
    flim_status status = FLIM_OK;
    flim_column_kind kind;
    labels l = {0};
    if (options->ignore_labels) {
        return FLIM_OK;
    }
    FLIM_TRY(common_kind(d, "label", options->need_labels, &kind, err));
    if (kind == FLIM_COLUMN_NONE) {
        return FLIM_OK;
    }
    if (kind != FLIM_COLUMN_NUMBERS) {
        return flim_fail(err, FLIM_ERROR_DATA,
                         "%s: /label: found strings, expected integers 0..K-1; put the names into the attribute class_names",
                         d->path[0]);
    }
    FLIM_TRY_DONE(read_labels(d, &l, err));
    FLIM_TRY_DONE(take_enum_names(d, &l, err));
    FLIM_TRY_DONE(check_names_differ(d, &l, err));
    FLIM_TRY_DONE(check_labels(d, &l, options->need_labels, err));
    FLIM_TRY_DONE(name_classes(d, &l, options->log, err));
done:
    flim_free_list(l.name, l.named);
    flim_free(l.value);
    flim_free(l.sorted);
    return status;
}

/* ---- groups */

typedef struct group_key {
    int64_t value;
    const char *text; /* NULL: compare values */
    int64_t cell;
} group_key;

static int by_key(const void *a, const void *b)
{
    const group_key *x = a, *y = b;
    int order = x->text ? strcmp(x->text, y->text) : (x->value > y->value) - (x->value < y->value);
    return order ? order : (x->cell > y->cell) - (x->cell < y->cell);
}

/* Numbers the groups in sorted order; key (n) has one entry per cell.  names: (named) display names of the
 * values, or NULL. */
static flim_status number_groups(flim_dataset *d, group_key *key, char **names, flim_error *err)
{
    int64_t n = d->info.n, groups = 0;
    qsort(key, (size_t)n, sizeof *key, by_key);
    for (int64_t i = 0; i < n; i++) {
        const group_key *before = i ? &key[i - 1] : NULL;
        bool same =
            before && (key[i].text && before->text ? strcmp(key[i].text, before->text) == 0 : key[i].value == before->value);
        groups += !same;
        d->group[key[i].cell] = groups - 1;
    }
    if (!(d->group_name = flim_alloc((size_t)groups, sizeof *d->group_name, err))) {
        return FLIM_ERROR_MEMORY;
    }
    d->info.groups = groups;
    for (int64_t i = 0; i < n; i++) {
        char **name = &d->group_name[d->group[key[i].cell]];
        if (!*name) {
            *name = key[i].text ? flim_strdup(key[i].text, err)
                    : names     ? flim_strdup(names[key[i].value], err)
                                : flim_strprintf(err, "%" PRId64, key[i].value);
            if (!*name) {
                return FLIM_ERROR_MEMORY;
            }
        }
    }
    d->info.group = d->group;
    d->info.group_name = (const char *const *)d->group_name;
    return FLIM_OK;
}

/* Are no two of names (n) alike? */
static flim_status all_differ(char **names, int64_t n, bool *differ, flim_error *err)
{
    char **sorted = flim_alloc((size_t)n, sizeof *sorted, err);
    if (!sorted) {
        return FLIM_ERROR_MEMORY;
    }
    memcpy(sorted, names, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, flim_compare_texts);
    *differ = true;
    for (int64_t i = 1; i < n && *differ; i++) {
        *differ = strcmp(sorted[i - 1], sorted[i]) != 0;
    }
    flim_free(sorted);
    return FLIM_OK;
}

/* Attribute group_names names the values 0..G-1 of integer groups.  Used if it is the same in all files, names every value
 * and no two alike. */
static flim_status group_names(flim_dataset *d, const int64_t *values, const flim_log *log, char ***names, int64_t *named,
                               bool *usable, flim_error *err)
{
    bool agree, differ = false;
    *usable = false;
    FLIM_TRY(common_names(d, "group_names", false, &agree, names, named, err));
    if (*named == 0) {
        return FLIM_OK;
    }
    FLIM_TRY(all_differ(*names, *named, &differ, err));
    *usable = agree && differ;
    for (int64_t i = 0; i < d->info.n && *usable; i++) {
        *usable = values[i] >= 0 && values[i] < *named;
    }
    if (!*usable) {
        flim_log_line(
            log, FLIM_LOG_NOTE,
            "%s: attribute group_names is not used: it must give each value 0..G-1 of /group its own name, the same in "
            "all files; groups are shown by number",
            d->path[0]);
    }
    return FLIM_OK;
}

static flim_status load_groups(flim_dataset *d, const flim_dataset_options *options, flim_error *err)
{
    flim_status status = FLIM_OK;
    flim_column_kind kind;
    bool usable = false;
    int64_t n = d->info.n, named = 0, *values = NULL;
    char **text = NULL, **names = NULL;
    group_key *key = NULL;
    FLIM_TRY(common_kind(d, "group", options->need_groups, &kind, err));
    if (kind == FLIM_COLUMN_NONE) {
        return FLIM_OK;
    }
    if (!(d->group = flim_alloc((size_t)n, sizeof *d->group, err)) || !(key = flim_alloc((size_t)n, sizeof *key, err)) ||
        !(values = flim_alloc((size_t)n, sizeof *values, err)) || !(text = flim_alloc((size_t)n, sizeof *text, err))) {
        status = FLIM_ERROR_MEMORY;
        goto done;
    }
    FLIM_TRY_DONE(read_column(d, "group", kind == FLIM_COLUMN_OTHER, values, text, err));
    if (kind == FLIM_COLUMN_NUMBERS) {
        FLIM_TRY_DONE(group_names(d, values, options->log, &names, &named, &usable, err));
    }
    for (int64_t i = 0; i < n; i++) {
        key[i] = (group_key){values[i], text[i], i};
    }
    FLIM_TRY_DONE(number_groups(d, key, usable ? names : NULL, err));
    if (d->info.n_files > 1 && kind == FLIM_COLUMN_NUMBERS && !usable) {
        flim_log_line(options->log, FLIM_LOG_NOTE,
                      "groups are numbers: the same number in two files is taken as the same group");
    }
done:
    flim_free_list(names, named);
    flim_free_list(text, n);
    flim_free(values);
    flim_free(key);
    return status;
}

/* ---- names */

static flim_status load_names(flim_dataset *d, flim_error *err)
{
    flim_column_kind kind;
    const size_t n = (size_t)d->info.n;
    FLIM_TRY(common_kind(d, "name", false, &kind, err));
    if (kind == FLIM_COLUMN_NONE) {
        return FLIM_OK;
    }
    int64_t *values = flim_alloc(n, sizeof *values, err);
    if (!values) {
        return FLIM_ERROR_MEMORY;
    }
    d->name = flim_alloc(n, sizeof *d->name, err);
    const flim_status status = d->name ? read_column(d, "name", true, values, d->name, err) : FLIM_ERROR_MEMORY;
    d->info.name = status == FLIM_OK ? (const char *const *)d->name : NULL;
    flim_free(values);
    return status;
}

flim_status flim_columns_load(flim_dataset *dataset, const flim_dataset_options *options, flim_error *err)
{
    FLIM_TRY(load_labels(dataset, options, err));
    FLIM_TRY(load_groups(dataset, options, err));
    return load_names(dataset, err);
}
