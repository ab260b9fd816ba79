/* Cells that stand in no part: left out by a list, not drawn by a fraction, or of groups that one split does not name. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/file.h"
#include "core/parse.h"
#include "core/try.h"
#include "cv/split/split_internal.h"
#include "formats/csv.h"

/* ---- the data without them ---- */

void flim_split_rest_free(flim_split_data *rest)
{
    flim_free((void *)(uintptr_t)rest->label);
    flim_free((void *)(uintptr_t)rest->group);
    flim_free((void *)(uintptr_t)rest->group_name);
    flim_free((void *)(uintptr_t)rest->name);
    *rest = (flim_split_data){0};
}

/* The groups that are left, numbered in the order that they had: number (data->groups) gets 1 + the new number, 0 = none left. */
static void number_groups(const flim_split_data *data, const bool *unused, int64_t *number, int64_t *groups)
{
    *groups = 0;
    for (int64_t i = 0; i < data->n; i++) {
        if (!unused[i]) {
            number[data->group[i]] = 1;
        }
    }
    for (int64_t g = 0; g < data->groups; g++) {
        number[g] = number[g] ? ++*groups : 0;
    }
}

static flim_status fill_groups(const flim_split_data *data, const bool *unused, flim_split_data *out, flim_error *err)
{
    flim_status status = FLIM_OK;
    const char **name = NULL; /* (out->groups) */
    int64_t *number = flim_alloc((size_t)data->groups, sizeof *number, err), at = 0;
    int64_t *group = flim_alloc((size_t)out->n, sizeof *group, err); /* (out->n) */
    out->group = group;
    FLIM_TRY_DONE(number && group ? FLIM_OK : FLIM_ERROR_MEMORY);
    number_groups(data, unused, number, &out->groups);
    for (int64_t i = 0; i < data->n; i++) {
        if (!unused[i]) {
            group[at++] = number[data->group[i]] - 1;
        }
    }
    if (data->group_name) {
        name = flim_alloc((size_t)out->groups, sizeof *name, err);
        out->group_name = name;
        FLIM_TRY_DONE(name ? FLIM_OK : FLIM_ERROR_MEMORY);
        for (int64_t g = 0; g < data->groups; g++) {
            if (number[g]) {
                name[number[g] - 1] = data->group_name[g];
            }
        }
    }
done:
    flim_free(number);
    return status;
}

flim_status flim_split_rest(const flim_split_data *data, const bool *unused, flim_split_data *out, int64_t **cell,
                            flim_error *err)
{
    flim_status status = FLIM_OK;
    *out = (flim_split_data){.classes = data->classes, .class_name = data->class_name};
    for (int64_t i = 0; i < data->n; i++) {
        out->n += !unused[i];
    }
    const size_t n = (size_t)out->n;
    int32_t *label = flim_alloc(n, sizeof *label, err);
    const char **name = data->name ? flim_alloc(n, sizeof *name, err) : NULL;
    out->label = label;
    out->name = name;
    *cell = flim_alloc(n, sizeof **cell, err);
    FLIM_TRY_DONE(label && *cell && (name || !data->name) ? FLIM_OK : FLIM_ERROR_MEMORY);
    for (int64_t i = 0, at = 0; i < data->n; i++) {
        if (!unused[i]) {
            label[at] = data->label[i];
            if (name) {
                name[at] = data->name[i];
            }
            (*cell)[at++] = i;
        }
    }
    status = data->group ? fill_groups(data, unused, out, err) : FLIM_OK;
done:
    if (status != FLIM_OK) {
        flim_split_rest_free(out);
    }
    return status;
}

static void to_all(int64_t *list, int64_t n, const int64_t *cell)
{
    for (int64_t i = 0; i < n; i++) {
        list[i] = cell[list[i]];
    }
}

flim_status flim_split_to_all(flim_splits *splits, const flim_split_data *data, const bool *unused, const int64_t *cell,
                              flim_error *err)
{
    flim_status status = FLIM_OK;
    bool *mark = flim_alloc((size_t)data->n, sizeof *mark, err); /* (n) */
    FLIM_TRY_DONE(mark ? FLIM_OK : FLIM_ERROR_MEMORY);
    for (int f = 0; f < splits->n_folds; f++) {
        flim_fold *fold = &splits->fold[f];
        to_all(fold->train, fold->n_train, cell);
        to_all(fold->val, fold->n_val, cell);
        to_all(fold->test, fold->n_test, cell);
    }
    to_all(splits->holdout, splits->n_holdout, cell);
    memcpy(mark, unused, (size_t)data->n * sizeof *mark);
    for (int64_t i = 0; i < splits->n_unused; i++) {
        mark[cell[splits->unused[i]]] = true;
    }
    flim_free(splits->unused);
    splits->unused = NULL;
    splits->n = data->n;
    status = flim_split_list(mark, data->n, &splits->unused, &splits->n_unused, err);
done:
    flim_free(mark);
    return status;
}

/* ---- out of parts that are there already ---- */

static void keep_used(int64_t *list, int64_t *n, const bool *unused)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < *n; i++) {
        if (!unused[list[i]]) {
            list[kept++] = list[i];
        }
    }
    *n = kept;
}

flim_status flim_splits_leave_out(flim_splits *splits, const flim_split_data *data, const bool *unused, flim_error *err)
{
    flim_status status = FLIM_OK;
    bool *mark = flim_alloc((size_t)data->n, sizeof *mark, err); /* (n) */
    FLIM_TRY_DONE(mark ? FLIM_OK : FLIM_ERROR_MEMORY);
    memcpy(mark, unused, (size_t)data->n * sizeof *mark);
    for (int64_t i = 0; i < splits->n_unused; i++) {
        mark[splits->unused[i]] = true;
    }
    for (int f = 0; f < splits->n_folds; f++) {
        flim_fold *fold = &splits->fold[f];
        keep_used(fold->train, &fold->n_train, mark);
        keep_used(fold->val, &fold->n_val, mark);
        keep_used(fold->test, &fold->n_test, mark);
    }
    keep_used(splits->holdout, &splits->n_holdout, mark);
    flim_free(splits->unused);
    splits->unused = NULL;
    FLIM_TRY_DONE(flim_split_list(mark, data->n, &splits->unused, &splits->n_unused, err));
    FLIM_TRY_DONE(flim_split_set_complete(splits, data, err));
    status = flim_splits_check(splits, data, err);
done:
    flim_free(mark);
    return status;
}

/* ---- which they are ---- */

flim_status flim_split_draw_fraction(const flim_split_data *data, double fraction, uint64_t seed, bool *unused,
                                     flim_error *err)
{
    flim_split_table table = {0};
    flim_status status = FLIM_OK;
    int64_t *cells = flim_alloc((size_t)data->n, sizeof *cells, err);
    FLIM_TRY_DONE(cells ? FLIM_OK : FLIM_ERROR_MEMORY);
    FLIM_TRY_DONE(flim_split_table_make(data, NULL, &table, err)); /* in an order that is not the file's */
    for (int c = 0; c < data->classes; c++) {
        flim_random random = flim_split_random(seed, FLIM_SPLIT_STAGE_FRACTION, c);
        int64_t n = 0;
        for (int64_t i = 0; i < table.n; i++) {
            const int64_t cell = table.cell[i];
            if (data->label[cell] == c && !unused[cell]) {
                cells[n++] = cell;
            }
        }
        flim_random_shuffle(&random, cells, (size_t)n);
        const int64_t kept = (int64_t)fmax(1, floor(fraction * (double)n + 0.5));
        for (int64_t i = kept; i < n; i++) {
            unused[cells[i]] = true;
        }
    }
done:
    flim_split_table_free(&table);
    flim_free(cells);
    return status;
}

/* The name in a row of flim_info's table, which begins at `at`; unpacked where it is. */
static const char *name_field(char *at)
{
    if (*at != '"') {
        at[strcspn(at, ",")] = '\0';
        return flim_csv_text(at);
    }
    char *name = ++at, *to = name;
    while (*at && !(at[0] == '"' && at[1] != '"')) {
        at += at[0] == '"';
        *to++ = *at++;
    }
    *to = '\0';
    return flim_csv_text(name);
}

/* A line of the file. */
typedef struct list_line {
    const char *path;
    int64_t number;
    char *text;
    bool quoted; /* it stood in quotes */
    bool of_table; /* the file begins with the head of flim_info's table: a row goes on with the cell's name */
} list_line;

/* A row's number is the cell that its name says: the table of other data leaves out other cells. */
static flim_status check_row(const flim_split_data *data, const list_line *line, int64_t cell, char *rest, flim_error *err)
{
    const char *name = name_field(rest);
    return !data->name || !name[0] || strcmp(name, data->name[cell]) == 0
               ? FLIM_OK
               : flim_fail(err, FLIM_ERROR_USAGE,
                           "%s:%" PRId64 ": cell %" PRId64
                           " is '%.100s' in this row and '%.100s' in the data: is it a table of "
                           "other data?",
                           line->path, line->number, cell, name, data->name[cell]);
}

/* The cell that a line means: a name, a number, or what begins with either and a comma. */
static flim_status find_cell(flim_split_names *names, const list_line *line, int64_t *cell, flim_error *err)
{
    const flim_split_data *data = names->data;
    char *text = line->text, *comma = strchr(text, ',');
    int64_t index = 0;
    int found = 0;
    FLIM_TRY(data->name ? flim_split_find_name(names, text, cell, &found, err) : FLIM_OK);
    if (found == 0 && comma) {
        *comma = '\0';
    }
    const bool counted = !line->quoted && flim_parse_i64("", text, 0, data->n - 1, &index, NULL) == FLIM_OK;
    if (found == 0 && counted) {
        *cell = index;
        return comma && line->of_table ? check_row(data, line, index, comma + 1, err) : FLIM_OK;
    }
    if (found == 0 && comma && data->name) {
        FLIM_TRY(flim_split_find_name(names, text, cell, &found, err));
    }
    if (found > 1) {
        return flim_fail(err, FLIM_ERROR_USAGE,
                         "%s:%" PRId64 ": several cells of the data are named '%s'; use their numbers%s", line->path,
                         line->number, text, counted ? ", with a comma after each" : "");
    }
    if (found == 1 && counted && index != *cell) {
        return flim_fail(err, FLIM_ERROR_USAGE,
                         "%s:%" PRId64
                         ": %s is cell %s counted from 0, which is named '%.100s', or the cell named '%s', which is "
                         "cell %" PRId64 "; write \"%s\" for the name, or %s, (with a comma) for the number",
                         line->path, line->number, text, text, data->name[index], text, *cell, text, text);
    }
    return found == 1 ? FLIM_OK
                      : flim_fail(err, FLIM_ERROR_USAGE,
                                  "%s:%" PRId64 ": '%.100s' is neither the name of a cell of the data nor a number from 0 to "
                                  "%" PRId64,
                                  line->path, line->number, text, data->n - 1);
}

/* Without blanks around it, quotes around it or a comment after it. */
static char *trimmed(char *line, bool *quoted)
{
    char *hash = strchr(line, '#');
    if (hash && (hash == line || hash[-1] == ' ' || hash[-1] == '\t')) {
        *hash = '\0';
    }
    line += strspn(line, " \t");
    size_t length = strlen(line);
    while (length > 0 && strchr(" \t\r", line[length - 1])) {
        line[--length] = '\0';
    }
    *quoted = length >= 2 && line[0] == '"' && line[length - 1] == '"' && !strchr(line, ',');
    if (*quoted) {
        line[length - 1] = '\0';
        line++;
    }
    return line;
}

flim_status flim_split_read_excluded(const flim_split_data *data, const char *path, bool *unused, int64_t *count,
                                     flim_error *err)
{
    flim_split_names names = {.data = data};
    char *text = NULL, *next = NULL;
    size_t bytes = 0;
    list_line line = {.path = path};
    flim_status status = FLIM_OK;
    *count = 0;
    FLIM_TRY_DONE(flim_file_read(path, (size_t)1 << 30, &text, &bytes, err));
    for (char *at = text; at; at = next) {
        int64_t cell = 0;
        next = strchr(at, '\n');
        if (next) {
            *next++ = '\0';
        }
        line.number++;
        line.text = trimmed(at, &line.quoted);
        line.of_table = line.of_table || (line.number == 1 && strncmp(line.text, "index,", 6) == 0);
        if (!line.text[0] || (line.of_table && line.number == 1)) {
            continue;
        }
        FLIM_TRY_DONE(find_cell(&names, &line, &cell, err));
        *count += !unused[cell];
        unused[cell] = true;
    }
done:
    flim_split_names_free(&names);
    flim_free(text);
    return status;
}
