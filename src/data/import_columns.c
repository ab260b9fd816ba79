#include "data/import_columns.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/try.h"
#include "data/dataset_internal.h"

static const char *const text_name[FLIM_IMPORT_TEXTS] = {"import/path",        "import/mask",       "import/sha256",
                                                         "import/mask_sha256", "import/instrument", "import/date"};

/* One data file's own columns. */
typedef struct file_columns {
    int64_t *t0_shift, *file; /* (cells of the file); NULL = it has none */
    int64_t n_sources;
    char **text[FLIM_IMPORT_TEXTS]; /* (n_sources) */
    int64_t *number; /* (n_sources) of the source among those of all files; -1 = no cell of it came yet */
} file_columns;

static void free_file(file_columns *f)
{
    flim_free(f->t0_shift);
    flim_free(f->file);
    flim_free(f->number);
    for (int k = 0; k < FLIM_IMPORT_TEXTS; k++) {
        flim_free_list(f->text[k], f->n_sources);
    }
    *f = (file_columns){0};
}

void flim_import_columns_free(flim_import_columns *c)
{
    flim_free(c->t0_shift);
    flim_free(c->file);
    for (int k = 0; k < FLIM_IMPORT_TEXTS; k++) {
        flim_free_list(c->text[k], c->n_files);
    }
    *c = (flim_import_columns){0};
}

/* ---- one file */

/* *values (cells of the file), NULL if there are none. */
static flim_status read_numbers(flim_source *source, const char *name, int64_t **values, flim_error *err)
{
    if (!source->ops->has(source, name)) {
        return FLIM_OK;
    }
    *values = flim_alloc((size_t)source->info.n, sizeof **values, err);
    return *values ? source->ops->read_integers(source, name, *values, err) : FLIM_ERROR_MEMORY;
}

static flim_status read_sources(flim_source *source, file_columns *f, flim_error *err)
{
    FLIM_TRY(read_numbers(source, "import/file", &f->file, err));
    for (int k = 0; f->file && k < FLIM_IMPORT_TEXTS; k++) {
        int64_t count = 0;
        FLIM_TRY(source->ops->read_texts(source, text_name[k], &f->text[k], &count, err));
        if (k > 0 && count != f->n_sources) {
            flim_free_list(f->text[k], count);
            f->text[k] = NULL;
            return flim_fail(err, FLIM_ERROR_DATA, "/%s has %" PRId64 " texts, /%s %" PRId64, text_name[k], count,
                             text_name[0], f->n_sources);
        }
        f->n_sources = count;
    }
    for (int64_t i = 0; f->file && i < source->info.n; i++) {
        if (f->file[i] < -1 || f->file[i] >= f->n_sources) {
            return flim_fail(err, FLIM_ERROR_DATA, "/import/file of cell %" PRId64 " is %" PRId64 ", expected -1 to %" PRId64,
                             i, f->file[i], f->n_sources - 1);
        }
    }
    f->number = f->file ? flim_alloc((size_t)f->n_sources, sizeof *f->number, err) : NULL;
    for (int64_t i = 0; f->number && i < f->n_sources; i++) {
        f->number[i] = -1;
    }
    return f->number || !f->file ? FLIM_OK : FLIM_ERROR_MEMORY;
}

/* What the file has of them.  What cannot be understood is somebody else's: it is noted, and left. */
static flim_status read_file(const char *path, flim_source *source, const flim_log *log, file_columns *f, flim_error *err)
{
    flim_error why = {0};
    flim_status status = read_numbers(source, "t0_shift", &f->t0_shift, &why);
    if (status == FLIM_ERROR_DATA) {
        flim_log_line(log, FLIM_LOG_NOTE, "%s: not copied: t0_shift: %s", path, why.text);
        flim_free(f->t0_shift);
        f->t0_shift = NULL;
    } else if (status != FLIM_OK) {
        return flim_fail(err, status, "%s", why.text);
    }
    int64_t *shift = f->t0_shift;
    status = read_sources(source, f, &why);
    if (status == FLIM_ERROR_DATA || (status == FLIM_OK && !f->file && source->ops->has(source, "import"))) {
        flim_log_line(log, FLIM_LOG_NOTE, "%s: not copied: import%s%s", path, why.text[0] ? ": " : "", why.text);
        f->t0_shift = NULL;
        free_file(f);
        f->t0_shift = shift;
    } else if (status != FLIM_OK) {
        return flim_fail(err, status, "%s", why.text);
    }
    return FLIM_OK;
}

/* ---- all files */

static bool same_source(const flim_import_columns *a, int64_t i, char *const *const *text, int64_t j)
{
    bool same = true;
    for (int k = 0; k < FLIM_IMPORT_TEXTS; k++) {
        same = same && strcmp(a->text[k][i], text[k][j]) == 0;
    }
    return same;
}

/* The number that source j of a file has in out; it is added if it is new.  known: of out's sources, those of files before. */
static flim_status add_source(flim_import_columns *out, int64_t known, file_columns *f, int64_t j, flim_error *err)
{
    for (int64_t i = 0; i < known && f->number[j] < 0; i++) {
        f->number[j] = same_source(out, i, (char *const *const *)f->text, j) ? i : -1;
    }
    if (f->number[j] >= 0) {
        return FLIM_OK;
    }
    const size_t n = (size_t)out->n_files;
    for (int k = 0; k < FLIM_IMPORT_TEXTS; k++) {
        if ((n & (n - 1)) == 0) { /* at powers of two: room for as many again */
            char **grown = flim_realloc(out->text[k], n ? 2 * n : 1, sizeof *grown, err);
            if (!grown) {
                return FLIM_ERROR_MEMORY;
            }
            out->text[k] = grown;
        }
    }
    for (int k = 0; k < FLIM_IMPORT_TEXTS; k++) { /* the texts move over */
        out->text[k][n] = f->text[k][j];
        f->text[k][j] = NULL;
    }
    f->number[j] = out->n_files++;
    return FLIM_OK;
}

/* Cells first .. end - 1 of out, which are all of one file. */
static flim_status take_cells(flim_import_columns *out, const int64_t *cell, int64_t first, int64_t end, int64_t file_first,
                              file_columns *f, flim_error *err)
{
    const int64_t known = out->n_files;
    for (int64_t i = first; i < end; i++) {
        const int64_t local = cell[i] - file_first;
        out->t0_shift[i] = f->t0_shift ? f->t0_shift[local] : 0;
        out->file[i] = -1;
        if (f->file && f->file[local] >= 0) {
            FLIM_TRY(add_source(out, known, f, f->file[local], err));
            out->file[i] = f->number[f->file[local]];
        }
    }
    return FLIM_OK;
}

flim_status flim_import_columns_read(const flim_dataset *d, const int64_t *cell, int64_t n, const flim_log *log,
                                     flim_import_columns *out, flim_error *err)
{
    file_columns f = {0};
    bool shifts = false, sources = false;
    flim_status status = FLIM_OK;
    *out = (flim_import_columns){.n = n};
    if (!(out->t0_shift = flim_alloc((size_t)n, sizeof *out->t0_shift, err)) ||
        !(out->file = flim_alloc((size_t)n, sizeof *out->file, err))) {
        FLIM_TRY_DONE(FLIM_ERROR_MEMORY);
    }
    for (int64_t first = 0, end = 0; first < n; first = end) {
        int64_t local;
        const flim_dataset_file *file = flim_dataset_locate(d, cell[first], &local);
        while (end < n && cell[end] < file->first + file->source->info.n) {
            end++;
        }
        FLIM_TRY_DONE(read_file(d->path[file - d->file], file->source, log, &f, err));
        shifts = shifts || f.t0_shift;
        sources = sources || f.file;
        FLIM_TRY_DONE(take_cells(out, cell, first, end, file->first, &f, err));
        free_file(&f);
    }
    if (!shifts) {
        flim_free(out->t0_shift);
        out->t0_shift = NULL;
    }
    if (!sources) {
        flim_free(out->file);
        out->file = NULL;
    }
done:
    free_file(&f);
    if (status != FLIM_OK) {
        flim_import_columns_free(out);
    }
    return status;
}

flim_status flim_import_columns_write(const flim_import_columns *c, flim_dataset_writer *writer, flim_error *err)
{
    for (int k = 0; c->file && c->n_files > 0 && k < FLIM_IMPORT_TEXTS; k++) {
        FLIM_TRY(flim_dataset_writer_add_texts(writer, text_name[k], (const char *const *)c->text[k], c->n_files, err));
    }
    if (c->file && c->n_files > 0) {
        FLIM_TRY(flim_dataset_writer_add_numbers(writer, "import/file", c->file, c->n, err));
    }
    return c->t0_shift ? flim_dataset_writer_add_numbers(writer, "t0_shift", c->t0_shift, c->n, err) : FLIM_OK;
}

static bool same_numbers(const int64_t *a, const int64_t *b, int64_t n)
{
    return a && b ? memcmp(a, b, (size_t)n * sizeof *a) == 0 : !a && !b;
}

bool flim_import_columns_equal(const flim_import_columns *a, const flim_import_columns *b)
{
    const int64_t *from = a->n_files > 0 ? a->file : NULL, *to = b->n_files > 0 ? b->file : NULL; /* as they are written */
    bool same = a->n == b->n && a->n_files == b->n_files && same_numbers(a->t0_shift, b->t0_shift, a->n) &&
                same_numbers(from, to, a->n);
    for (int64_t i = 0; same && i < a->n_files; i++) {
        same = same_source(a, i, (char *const *const *)b->text, i);
    }
    return same;
}
