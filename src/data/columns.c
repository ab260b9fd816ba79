#include "data/columns.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/try.h"

static void free_list(char **list, int64_t n)
{
    for (int64_t i = 0; list && i < n; i++) {
        flim_free(list[i]);
    }
    flim_free(list);
}

static int64_t cells_of(const flim_dataset *d, int file)
{
    return flim_h5_cells_get_info(d->file[file].cells)->n;
}

/* Is /name in all files (or in none)?  *kind is the common kind; FLIM_H5_OTHER where numbers and strings mix. */
static flim_status common_kind(flim_dataset *d, const char *name, bool needed, flim_h5_kind *kind, flim_error *err)
{
    *kind = FLIM_H5_NONE;
    int with = 0, without = 0;
    for (int i = 0; i < d->info.n_files; i++) {
        flim_h5_kind found;
        FLIM_TRY(flim_h5_column_kind(d->file[i].h5, name, needed, &found, err));
        if (found == FLIM_H5_NONE) {
            without = i + 1;
        } else {
            *kind = with && found != *kind ? FLIM_H5_OTHER : found;
            with = i + 1;
        }
    }
    if (with && without) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s: there is no /%s, but %s has one; expected it in all files or in none",
                         d->path[without - 1], name, d->path[with - 1]);
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
                              end - i, end - i == 1 ? "" : "s");
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

/* The class names of the files, which must agree where several have them; *count = 0 where none has. */
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
        flim_status status = flim_h5_attribute_strings(d->file[i].h5, attribute, &list, &n, err);
        if (status != FLIM_OK) {
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
        bool same = n == *count;
        int64_t at = 0;
        for (; same && at < n; at++) {
            same = strcmp(list[at], (*names)[at]) == 0;
        }
        *agree = *agree && same;
        if (!same && must_agree) {
            status = flim_fail(err, FLIM_ERROR_DATA,
                               "%s: attribute %s differs from that of %s: %" PRId64 " and %" PRId64
                               " names, '%s' and '%s'; expected the same",
                               d->path[i], attribute, d->path[from], n, *count, n == *count ? list[at - 1] : list[0],
                               n == *count ? (*names)[at - 1] : (*names)[0]);
        }
        free_list(list, n);
        if (status != FLIM_OK) {
            return status;
        }
    }
    return FLIM_OK;
}

static flim_status load_labels(flim_dataset *d, const flim_dataset_options *options, flim_error *err)
{
    flim_status status;
    flim_h5_kind kind;
    int64_t n = d->info.n, named = 0, *values = NULL, *sorted = NULL;
    char **names = NULL;
    bool agree;
    if ((status = common_kind(d, "label", options->need_labels, &kind, err)) != FLIM_OK) {
        return status;
    }
    if (kind == FLIM_H5_NONE) {
        return FLIM_OK;
    }
    if (kind != FLIM_H5_NUMBERS) {
        return flim_fail(err, FLIM_ERROR_DATA,
                         "%s: /label: found strings, expected integers 0..K-1; put the names into the attribute class_names",
                         d->path[0]);
    }
    if (!(values = flim_alloc((size_t)n, sizeof *values, err)) || !(sorted = flim_alloc((size_t)n, sizeof *sorted, err)) ||
        !(d->label = flim_alloc((size_t)n, sizeof *d->label, err))) {
        status = FLIM_ERROR_MEMORY;
        goto done;
    }
    for (int i = 0; i < d->info.n_files; i++) {
        if ((status = flim_h5_read_integers(d->file[i].h5, "label", cells_of(d, i), values + d->file[i].first, err)) !=
            FLIM_OK) {
            goto done;
        }
    }
    if ((status = common_names(d, "class_names", true, &agree, &names, &named, err)) != FLIM_OK) {
        goto done;
    }
    memcpy(sorted, values, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, by_value);
    int64_t distinct = 1;
    for (int64_t i = 1; i < n; i++) {
        distinct += sorted[i] != sorted[i - 1];
    }
    bool gaps = named == 0 && (sorted[0] != 0 || sorted[n - 1] != distinct - 1);
    bool outside = named > 0 && (sorted[0] < 0 || sorted[n - 1] >= named);
    if (gaps || outside || (named == 0 && distinct > MOST_CLASSES) || named > MOST_CLASSES) {
        char table[600], expected[160];
        label_table(sorted, n, table, sizeof table);
        if (outside) {
            snprintf(expected, sizeof expected, "0..%" PRId64 ", as attribute class_names has %" PRId64 " names", named - 1,
                     named);
        } else if (gaps) {
            snprintf(expected, sizeof expected, "0..K-1, each at least once (or an attribute class_names with K names)");
        } else {
            snprintf(expected, sizeof expected, "at most %d classes", MOST_CLASSES);
        }
        int64_t cell = 0;
        while (cell < n - 1 && !(values[cell] < 0 || values[cell] >= (named ? named : distinct))) {
            cell++;
        }
        int64_t local;
        const flim_dataset_file *file = flim_dataset_locate(d, cell, &local);
        status = flim_fail(err, FLIM_ERROR_DATA,
                           "%s: /label: cell %" PRId64 " has label %" PRId64 ", expected %s; the labels found are %s",
                           d->path[file - d->file], local, values[cell], expected, table);
        goto done;
    }
    int64_t classes = named ? named : distinct;
    for (int64_t i = 0; i < n; i++) {
        d->label[i] = (int32_t)values[i];
    }
    if (options->need_labels && distinct < 2) {
        status = flim_fail(err, FLIM_ERROR_DATA,
                           "%s: /label: all %" PRId64 " cells have label %" PRId64 "; training needs two classes", d->path[0],
                           n, values[0]);
        goto done;
    }
    if (!names && !(names = flim_alloc((size_t)classes, sizeof *names, err))) {
        status = FLIM_ERROR_MEMORY;
        goto done;
    }
    d->class_name = names;
    d->info.classes = (int)classes;
    names = NULL;
    for (int64_t k = 0; k < classes; k++) {
        if (!d->class_name[k] && !(d->class_name[k] = flim_strprintf(err, "%" PRId64, k))) {
            status = FLIM_ERROR_MEMORY;
            goto done;
        }
    }
    for (int64_t k = 0, i = 0; k < classes; k++) {
        bool present = false;
        for (; i < n && sorted[i] == k; i++) {
            present = true;
        }
        if (!present) {
            flim_log_line(options->log, FLIM_LOG_WARNING, "%s: class %" PRId64 " (%s) has no cell", d->path[0], k,
                          d->class_name[k]);
        }
    }
    d->info.label = d->label;
    d->info.class_name = (const char *const *)d->class_name;
done:
    free_list(names, named);
    flim_free(values);
    flim_free(sorted);
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

/* The text less blanks and case: what a slip of the hand would differ by. */
static char *folded(const char *text, flim_error *err)
{
    char *copy = flim_strdup(text, err);
    size_t to = 0;
    for (size_t i = 0; copy && text[i]; i++) {
        if (!isspace((unsigned char)text[i])) {
            copy[to++] = (char)tolower((unsigned char)text[i]);
        }
    }
    if (copy) {
        copy[to] = '\0';
    }
    return copy;
}

static int by_text(const void *a, const void *b)
{
    const group_key *x = a, *y = b;
    int order = strcmp(x->text, y->text);
    return order ? order : (x->value > y->value) - (x->value < y->value);
}

static flim_status warn_alike(const flim_dataset *d, const flim_log *log, flim_error *err)
{
    int64_t groups = d->info.groups;
    flim_status status = FLIM_OK;
    group_key *key = flim_alloc((size_t)groups, sizeof *key, err);
    char **text = flim_alloc((size_t)groups, sizeof *text, err);
    for (int64_t i = 0; i < groups && key && text; i++) {
        if (!(text[i] = folded(d->group_name[i], err))) {
            break;
        }
        key[i] = (group_key){i, text[i], 0};
    }
    if (!key || !text || !text[groups - 1]) {
        status = FLIM_ERROR_MEMORY;
        goto done;
    }
    qsort(key, (size_t)groups, sizeof *key, by_text);
    for (int64_t i = 1; i < groups; i++) {
        if (strcmp(key[i].text, key[i - 1].text) == 0) {
            flim_log_line(log, FLIM_LOG_WARNING,
                          "groups '%s' and '%s' differ only by blanks or case: they are kept apart; are they one donor?",
                          d->group_name[key[i - 1].value], d->group_name[key[i].value]);
        }
    }
done:
    free_list(text, groups);
    flim_free(key);
    return status;
}

/* Numbers the groups in sorted order; key (n) has one entry a cell.  names: (named) display names of the values, or NULL. */
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

/* Attribute group_names names the values 0..G-1 of integer groups.  Used where it is the same in all files, names every value
 * and no two alike. */
static flim_status group_names(flim_dataset *d, const int64_t *values, const flim_log *log, char ***names, int64_t *named,
                               bool *usable, flim_error *err)
{
    bool agree;
    *usable = false;
    flim_status status = common_names(d, "group_names", false, &agree, names, named, err);
    if (status != FLIM_OK || *named == 0) {
        return status;
    }
    *usable = agree;
    for (int64_t i = 0; i < d->info.n && *usable; i++) {
        *usable = values[i] >= 0 && values[i] < *named;
    }
    for (int64_t i = 0; i < *named && *usable; i++) {
        for (int64_t j = 0; j < i && *usable; j++) {
            *usable = strcmp((*names)[i], (*names)[j]) != 0;
        }
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
    flim_status status;
    flim_h5_kind kind;
    int64_t n = d->info.n, named = 0, *values = NULL;
    char **text = NULL, **names = NULL;
    group_key *key = NULL;
    if ((status = common_kind(d, "group", options->need_groups, &kind, err)) != FLIM_OK) {
        return status;
    }
    if (kind == FLIM_H5_NONE) {
        return FLIM_OK;
    }
    if (!(d->group = flim_alloc((size_t)n, sizeof *d->group, err)) || !(key = flim_alloc((size_t)n, sizeof *key, err)) ||
        !(values = flim_alloc((size_t)n, sizeof *values, err)) || !(text = flim_alloc((size_t)n, sizeof *text, err))) {
        status = FLIM_ERROR_MEMORY;
        goto done;
    }
    for (int i = 0; i < d->info.n_files; i++) {
        int64_t first = d->file[i].first, count = cells_of(d, i);
        flim_h5_kind own;
        status = flim_h5_column_kind(d->file[i].h5, "group", true, &own, err);
        if (status == FLIM_OK && own == FLIM_H5_NUMBERS) {
            status = flim_h5_read_integers(d->file[i].h5, "group", count, values + first, err);
        } else if (status == FLIM_OK) {
            status = flim_h5_read_strings(d->file[i].h5, "group", count, text + first, err);
        }
        for (int64_t j = first; kind == FLIM_H5_OTHER && status == FLIM_OK && j < first + count; j++) {
            if (!text[j] && !(text[j] = flim_strprintf(err, "%" PRId64, values[j]))) {
                status = FLIM_ERROR_MEMORY;
            }
        }
        if (status != FLIM_OK) {
            goto done;
        }
    }
    bool usable = false;
    if (kind == FLIM_H5_NUMBERS && (status = group_names(d, values, options->log, &names, &named, &usable, err)) != FLIM_OK) {
        goto done;
    }
    for (int64_t i = 0; i < n; i++) {
        key[i] = (group_key){values[i], text[i], i};
    }
    if ((status = number_groups(d, key, usable ? names : NULL, err)) != FLIM_OK ||
        (kind != FLIM_H5_NUMBERS && (status = warn_alike(d, options->log, err)) != FLIM_OK)) {
        goto done;
    }
    if (d->info.n_files > 1 && kind == FLIM_H5_NUMBERS && !usable) {
        flim_log_line(options->log, FLIM_LOG_NOTE,
                      "groups are numbers: the same number in two files is taken as the same group");
    }
done:
    free_list(names, named);
    free_list(text, n);
    flim_free(values);
    flim_free(key);
    return status;
}

/* ---- names */

static flim_status load_names(flim_dataset *d, flim_error *err)
{
    flim_h5_kind kind;
    int64_t n = d->info.n;
    flim_status status = common_kind(d, "name", false, &kind, err);
    if (status != FLIM_OK || kind == FLIM_H5_NONE) {
        return status;
    }
    int64_t *values = NULL;
    if (!(d->name = flim_alloc((size_t)n, sizeof *d->name, err))) {
        return FLIM_ERROR_MEMORY;
    }
    for (int i = 0; i < d->info.n_files && status == FLIM_OK; i++) {
        int64_t first = d->file[i].first, count = cells_of(d, i);
        flim_h5_kind own;
        status = flim_h5_column_kind(d->file[i].h5, "name", true, &own, err);
        if (status == FLIM_OK && own == FLIM_H5_STRINGS) {
            status = flim_h5_read_strings(d->file[i].h5, "name", count, d->name + first, err);
            continue;
        }
        if (status != FLIM_OK || !(values = flim_alloc((size_t)count, sizeof *values, err))) {
            return status != FLIM_OK ? status : FLIM_ERROR_MEMORY;
        }
        status = flim_h5_read_integers(d->file[i].h5, "name", count, values, err); /* numbers do as names */
        for (int64_t j = 0; j < count && status == FLIM_OK; j++) {
            d->name[first + j] = flim_strprintf(err, "%" PRId64, values[j]);
            status = d->name[first + j] ? FLIM_OK : FLIM_ERROR_MEMORY;
        }
        flim_free(values);
    }
    d->info.name = status == FLIM_OK ? (const char *const *)d->name : NULL;
    return status;
}

flim_status flim_columns_load(flim_dataset *dataset, const flim_dataset_options *options, flim_error *err)
{
    FLIM_TRY(load_labels(dataset, options, err));
    FLIM_TRY(load_groups(dataset, options, err));
    return load_names(dataset, err);
}
