#include "import/manifest.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/file.h"
#include "core/parse.h"
#include "core/try.h"
#include "formats/csv.h"
#include "formats/csv_rows.h"
#include "import/file_names.h"

enum { PATH, MASK, GROUP, LABEL, NAME, N_COLUMNS, MOST_FIELDS = 64 };
static const char *const column_name[N_COLUMNS] = {"path", "mask", "group", "label", "name"};

typedef struct manifest {
    const flim_import_request *request;
    const char *path;
    flim_csv_rows rows;
    int column[N_COLUMNS]; /* where each stands; -1 = nowhere */
    int n; /* columns */
} manifest;

static flim_status next_row(manifest *m, char *field[MOST_FIELDS], int *n, flim_error *err)
{
    flim_error why = {0};
    const flim_status status = flim_csv_next_row(&m->rows, field, MOST_FIELDS, n, &why);
    return status == FLIM_OK ? FLIM_OK : flim_fail(err, status, "%s: %s", m->path, why.text);
}

static flim_status read_heading(manifest *m, flim_error *err)
{
    char *field[MOST_FIELDS];
    memset(m->column, -1, sizeof m->column);
    FLIM_TRY(next_row(m, field, &m->n, err));
    for (int i = 0; i < m->n; i++) {
        int k = 0;
        while (k < N_COLUMNS && strcmp(field[i], column_name[k]) != 0) {
            k++;
        }
        if (k == N_COLUMNS || m->column[k] >= 0) {
            return flim_fail(err, FLIM_ERROR_DATA,
                             "%s: line %" PRId64 ": column '%s' %s; expected path, mask, group, label and name", m->path,
                             m->rows.line, field[i], k == N_COLUMNS ? "is not known" : "is there twice");
        }
        m->column[k] = i;
    }
    return m->column[PATH] >= 0
               ? FLIM_OK
               : flim_fail(err, FLIM_ERROR_DATA,
                           "%s: its first row names no column 'path'; expected path, and of mask, group, label "
                           "and name those that are needed",
                           m->path);
}

/* A path of the manifest as the program has to open it. */
static char *from_folder(const manifest *m, const char *path, flim_error *err)
{
    const int folder = path[0] == '/' ? 0 : (int)(flim_path_base(m->path) - m->path);
    return flim_strprintf(err, "%.*s%s", folder, m->path, path);
}

/* The text of a column; NULL if the manifest has no such column, or nothing stands there. */
static const char *text_of(const manifest *m, char *const *field, int column)
{
    const char *text = m->column[column] < 0 ? "" : flim_csv_text(field[m->column[column]]);
    return text[0] ? text : NULL;
}

static flim_status fill_mask(const manifest *m, char *const *field, flim_import_row *row, flim_error *err)
{
    const char *mask = text_of(m, field, MASK), *pattern = m->request->mask;
    if (m->column[MASK] < 0 && pattern && pattern[0]) {
        row->mask = flim_path_beside(row->path, pattern, err);
    } else if (mask) {
        row->mask = from_folder(m, mask, err);
    } else {
        return FLIM_OK;
    }
    return row->mask ? flim_import_check_mask(row->path, row->mask, err) : FLIM_ERROR_MEMORY;
}

static flim_status add_row(const manifest *m, char *const *field, flim_import_rows *out, flim_error *err)
{
    const char *path = text_of(m, field, PATH), *group = text_of(m, field, GROUP), *name = text_of(m, field, NAME);
    const char *label = text_of(m, field, LABEL);
    flim_import_row *row;
    int class = -1;
    if (!path || (m->column[GROUP] >= 0 && !group)) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s: line %" PRId64 ": no %s", m->path, m->rows.line, path ? "group" : "path");
    }
    FLIM_TRY(label ? flim_import_class_number(&out->classes, label, &class, err) : FLIM_OK);
    FLIM_TRY(flim_import_rows_add(out, &row, err));
    row->label = class;
    if (!(row->path = from_folder(m, path, err)) ||
        !(row->name = name ? flim_strdup(name, err) : flim_path_stem(path, err)) ||
        !(row->group = group ? flim_strdup(group, err) : flim_import_group_of(m->request, row->path, err))) {
        return FLIM_ERROR_MEMORY;
    }
    return fill_mask(m, field, row, err);
}

/* ---- classes ---- */

static int by_number(const void *a, const void *b)
{
    const int64_t x = strtoll(*(const char *const *)a, NULL, 10), y = strtoll(*(const char *const *)b, NULL, 10);
    return (x > y) - (x < y);
}

/* Numbers are classes by their value, whatever row names them first. */
static flim_status sort_classes(flim_import_rows *out, flim_error *err)
{
    flim_string_list before = {0};
    flim_status status = FLIM_OK;
    for (int i = 0; i < out->classes.n; i++) {
        int64_t value;
        if (flim_parse_i64("label", out->classes.item[i], INT64_MIN, INT64_MAX, &value, NULL) != FLIM_OK) {
            return FLIM_OK;
        }
    }
    for (int i = 0; i < out->classes.n; i++) {
        FLIM_TRY_DONE(flim_string_list_add(&before, out->classes.item[i], err));
    }
    if (before.item) {
        qsort(out->classes.item, (size_t)before.n, sizeof *out->classes.item, by_number);
    }
    for (int64_t i = 0; i < out->n; i++) {
        int now = -1;
        if (before.item && out->row[i].label >= 0) {
            FLIM_TRY_DONE(flim_import_class_number(&out->classes, before.item[out->row[i].label], &now, err));
        }
        out->row[i].label = now;
    }
done:
    flim_string_list_free(&before);
    return status;
}

/* Takes out the rows without a class, if others have one. */
static void skip_rows(flim_import_rows *out)
{
    int64_t kept = 0;
    if (out->classes.n == 0) {
        return;
    }
    for (int64_t i = 0; i < out->n; i++) {
        if (out->row[i].label >= 0) {
            out->row[kept++] = out->row[i];
        } else {
            flim_import_row_free(&out->row[i]);
            out->skipped++;
        }
    }
    out->n = kept;
}

flim_status flim_manifest_rows(const flim_import_request *request, flim_import_rows *out, flim_error *err)
{
    manifest m = {.request = request, .path = request->manifest};
    char *text = NULL, *field[MOST_FIELDS];
    size_t bytes;
    int n;
    flim_status status = FLIM_OK;
    FLIM_TRY_DONE(flim_file_read(m.path, (size_t)1 << 30, &text, &bytes, err));
    m.rows.at = text;
    FLIM_TRY_DONE(read_heading(&m, err));
    out->groups = m.column[GROUP] >= 0 || request->group != FLIM_IMPORT_GROUP_NONE;
    for (;;) {
        FLIM_TRY_DONE(next_row(&m, field, &n, err));
        if (n == 0) {
            break;
        }
        if (n != m.n) {
            FLIM_TRY_DONE(flim_fail(err, FLIM_ERROR_DATA, "%s: line %" PRId64 ": %d fields, expected %d as in the first row",
                                    m.path, m.rows.line, n, m.n));
        }
        FLIM_TRY_DONE(add_row(&m, field, out, err));
    }
    FLIM_TRY_DONE(out->n > 0 ? FLIM_OK : flim_fail(err, FLIM_ERROR_DATA, "%s: it names no file", m.path));
    FLIM_TRY_DONE(flim_import_check_classes(&out->classes, m.path, err));
    FLIM_TRY_DONE(sort_classes(out, err));
    skip_rows(out);
done:
    flim_free(text);
    return status;
}
