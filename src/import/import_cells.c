#include "import/import_cells.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/stop.h"
#include "core/text.h"
#include "core/try.h"

enum { USUAL_SIZE = 21, LEAST_BINS = 8 /* of the network */, MOST_LINES = 20 };

/* The search at work. */
typedef struct search {
    const flim_import_request *request;
    const flim_import_rows *rows;
    const flim_log *log;
    flim_import_cells *out;
    flim_import_result *result;
    int64_t first_row; /* the one that gave T, H and W */
    int64_t range_row; /* the one that gave the time range */
    bool range_warned; /* that a file has another range than the request */
} search;

/* ---- sizes ---- */

static int64_t size_of_cells(const search *s)
{
    const flim_import_request *r = s->request;
    const bool masks = s->rows->row[s->first_row].mask != NULL;
    return r->cells.size ? r->cells.size : masks ? USUAL_SIZE : 0;
}

static flim_status check_bins(const search *s, const char *path, const flim_field_image *b, flim_error *err)
{
    if (b->t != s->out->file_t) {
        char called[80];
        flim_field_image_called(b, called, sizeof called);
        return flim_fail(err, FLIM_ERROR_DATA, "%s: %s has %" PRId64 " time bins, %s has %" PRId64, path, called, b->t,
                         s->rows->row[s->first_row].path, s->out->file_t);
    }
    if (b->t % s->out->t != 0) {
        return flim_fail(err, FLIM_ERROR_USAGE,
                         "%s: %" PRId64 " time bins cannot be added up to %d: --bins must divide them evenly", path, b->t,
                         s->out->t);
    }
    return s->out->t >= LEAST_BINS
               ? FLIM_OK
               : flim_fail(err, FLIM_ERROR_DATA, "%s: %d time bins, expected %d or more", path, s->out->t, LEAST_BINS);
}

/* A cell's decay cannot begin behind its last bin. */
static flim_status check_t0(const search *s, flim_error *err)
{
    const flim_import_request *r = s->request;
    return r->align_t0 && r->t0_bin >= s->out->t
               ? flim_fail(err, FLIM_ERROR_USAGE,
                           "--t0-bin %" PRId64 ": the cells of %s have %d time bins, 0 to %d, expected one of these",
                           r->t0_bin, r->out, s->out->t, s->out->t - 1)
               : FLIM_OK;
}

static flim_status check_field_size(const search *s, const char *path, const flim_field_image *b, flim_error *err)
{
    const flim_import_cells *out = s->out;
    if (b->y > out->h || b->x > out->w || (!size_of_cells(s) && (b->y != out->h || b->x != out->w))) {
        return flim_fail(err, FLIM_ERROR_DATA,
                         "%s: a field of %" PRId64 " x %" PRId64
                         " pixels, the cells have %d x %d; --size N accepts cells of up to N x N pixels and pads the "
                         "smaller ones, outside their mask; --mask cuts cells out of fields",
                         path, b->y, b->x, out->h, out->w);
    }
    return FLIM_OK;
}

/* Ranges that differ by no more than a file's rounding. */
static bool same_range(double a, double b)
{
    return a == b || (a > 0 && b > 0 && a / b > 0.99999 && a / b < 1.00001);
}

/* A file's own range counts, not the request's.  One file is named: all have one range. */
static void warn_of_range(search *s, int64_t row, const flim_field_image *b)
{
    const double asked = s->request->range_ns;
    if (!s->range_warned && b->range_ns > 0 && asked > 0 && !same_range(b->range_ns, asked)) {
        s->range_warned = true;
        flim_log_line(s->log, FLIM_LOG_WARNING,
                      "%s: the file says that its %" PRId64 " time bins are %g ns in all: --time-range-ns %g, which is for "
                      "files that do not say, is not used",
                      s->rows->row[row].path, b->t, b->range_ns, asked);
    }
}

static flim_status check_range(search *s, int64_t row, const flim_field_image *b, flim_error *err)
{
    const double range = b->range_ns > 0 ? b->range_ns : s->request->range_ns, known = s->out->range_ns;
    warn_of_range(s, row, b);
    if (!same_range(range, known)) {
        return flim_fail(err, FLIM_ERROR_DATA,
                         "%s: its %" PRId64
                         " time bins are %g ns in all, those of %s %g ns (0 = not in the file: --time-range-ns)",
                         s->rows->row[row].path, b->t, range, s->rows->row[s->range_row].path, known);
    }
    return FLIM_OK;
}

/* T, size and time range of an image against those of the images before; the first says what they are. */
static flim_status check_image(search *s, int64_t row, const flim_field_image *b, flim_error *err)
{
    flim_import_cells *out = s->out;
    const char *path = s->rows->row[row].path;
    if (out->n_sources == 0) {
        s->first_row = s->range_row = row;
        const int64_t size = size_of_cells(s);
        out->file_t = b->t;
        out->t = (int)(s->request->bins ? s->request->bins : b->t);
        out->h = (int)(size ? size : b->y);
        out->w = (int)(size ? size : b->x);
        out->range_ns = b->range_ns > 0 ? b->range_ns : s->request->range_ns;
        FLIM_TRY(check_t0(s, err));
    }
    FLIM_TRY(check_bins(s, path, b, err));
    FLIM_TRY(s->rows->row[row].mask ? FLIM_OK : check_field_size(s, path, b, err));
    FLIM_TRY(check_range(s, row, b, err));
    out->masked = out->masked || s->rows->row[row].mask || b->y != out->h || b->x != out->w;
    return FLIM_OK;
}

/* ---- the list ---- */

static flim_status grow_cells(flim_import_cells *c, flim_error *err)
{
    if (c->n < c->capacity) {
        return FLIM_OK;
    }
    const size_t capacity = c->capacity ? 2 * (size_t)c->capacity : 256;
    void **column[] = {(void **)&c->number, (void **)&c->label, (void **)&c->group, (void **)&c->name};
    const size_t size[] = {sizeof *c->number, sizeof *c->label, sizeof *c->group, sizeof *c->name};
    for (size_t i = 0; i < sizeof size / sizeof size[0]; i++) {
        void *grown = flim_realloc(*column[i], capacity, size[i], err);
        if (!grown) {
            return FLIM_ERROR_MEMORY;
        }
        *column[i] = grown;
    }
    c->capacity = (int64_t)capacity;
    return FLIM_OK;
}

static flim_status add_source(flim_import_cells *c, int64_t row, int image, flim_error *err)
{
    if (c->n_sources == c->source_capacity) {
        const size_t capacity = c->source_capacity ? 2 * (size_t)c->source_capacity : 256;
        flim_import_source *grown = flim_realloc(c->source, capacity, sizeof *grown, err);
        if (!grown) {
            return FLIM_ERROR_MEMORY;
        }
        c->source = grown;
        c->source_capacity = (int64_t)capacity;
    }
    c->source[c->n_sources++] = (flim_import_source){.row = row, .image = image, .first = c->n};
    return FLIM_OK;
}

/* "field", "field detector 1", "field cell 7": the row's name, and what tells its cells apart. */
static flim_status add_cell(search *s, const flim_import_row *row, const char *image, int32_t number, uint32_t label,
                            flim_error *err)
{
    flim_import_cells *c = s->out;
    char cell[32] = "";
    FLIM_TRY(grow_cells(c, err));
    if (row->mask) {
        snprintf(cell, sizeof cell, " cell %" PRIu32, label);
    }
    char *name = flim_strprintf(err, "%s%s%s%s", row->name, image[0] ? " " : "", image, cell);
    if (!name) {
        return FLIM_ERROR_MEMORY;
    }
    c->number[c->n] = number;
    c->label[c->n] = row->label;
    c->group[c->n] = row->group;
    c->name[c->n++] = name;
    c->source[c->n_sources - 1].n++;
    return FLIM_OK;
}

static void tell_left_out(const search *s, const flim_import_row *row, const flim_field_cell *cell)
{
    const int64_t before = s->result->at_border + s->result->too_large;
    const bool border = cell->fate == FLIM_CELL_AT_BORDER;
    if (before < MOST_LINES) {
        flim_log_line(s->log, FLIM_LOG_NOTE, "%s: cell %" PRIu32 " is left out: %" PRId64 " x %" PRId64 " pixels %s",
                      row->mask, cell->label, cell->y1 - cell->y0 + 1, cell->x1 - cell->x0 + 1,
                      border ? "at the field's border (--keep-border)" : "are larger than a cell (--size, --crop-large)");
    } else if (before == MOST_LINES) {
        flim_log_line(s->log, FLIM_LOG_NOTE, "and more: all are counted at the end");
    }
}

static flim_status add_image(search *s, int64_t number, const flim_field_file *file, int image, flim_error *err)
{
    const flim_import_row *row = &s->rows->row[number];
    const flim_field_image *b = &file->image[image];
    const char *name = s->request->channel || file->n_images == 1 ? "" : b->name;
    flim_field_cells found;
    flim_status status = FLIM_OK;
    FLIM_TRY(check_image(s, number, b, err));
    FLIM_TRY(add_source(s->out, number, image, err));
    FLIM_TRY(flim_import_cells_of(s->request, row, b, s->out, &found, err));
    for (int32_t i = 0; i < found.n; i++) {
        const flim_field_cell *cell = &found.cell[i];
        if (cell->fate == FLIM_CELL_KEPT) {
            FLIM_TRY_DONE(add_cell(s, row, name, i, cell->label, err));
            continue;
        }
        tell_left_out(s, row, cell);
        s->result->at_border += cell->fate == FLIM_CELL_AT_BORDER;
        s->result->too_large += cell->fate == FLIM_CELL_TOO_LARGE;
    }
done:
    flim_field_cells_free(&found);
    return status;
}

flim_status flim_import_open_field(const flim_import_request *request, const flim_import_row *row, bool trusted,
                                   flim_field_file **out, flim_error *err)
{
    flim_field_options fields = request->fields;
    flim_label_image mask;
    fields.trusted = trusted;
    fields.stop = request->stop;
    const flim_status status = flim_field_open(row->path, &fields, out, err);
    if (status != FLIM_ERROR_USAGE || !row->mask || fields.axes != FLIM_ARRAY_AUTO) {
        return status;
    }
    FLIM_TRY(flim_label_image_read(row->mask, &mask, err)); /* only now: most arrays need no look at it */
    fields.mask_y = mask.y;
    fields.mask_x = mask.x;
    flim_label_image_free(&mask);
    return flim_field_open(row->path, &fields, out, err);
}

static flim_status add_row(search *s, int64_t number, flim_error *err)
{
    const char *path = s->rows->row[number].path;
    const int64_t channel = s->request->channel;
    flim_field_file *file = NULL;
    flim_status status = FLIM_OK;
    FLIM_TRY(flim_import_open_field(s->request, &s->rows->row[number], false, &file, err));
    if (channel > file->n_images) {
        FLIM_TRY_DONE(flim_fail(err, FLIM_ERROR_USAGE, "%s: --channel %" PRId64 ", but it has %d%s%s%s", path, channel,
                                file->n_images, file->image[0].name[0] ? ": " : "", file->image[0].name,
                                file->n_images > 1 ? " ..." : ""));
    }
    if (!channel && !file->format->stack && file->n_images > 1) {
        FLIM_TRY_DONE(flim_fail(err, FLIM_ERROR_USAGE,
                                "%s: it has %d channels, '%s' to '%s'; choose one with --channel 1 to %d", path,
                                file->n_images, file->image[0].name, file->image[file->n_images - 1].name, file->n_images));
    }
    for (int b = channel ? (int)channel - 1 : 0; b < (channel ? channel : file->n_images); b++) {
        FLIM_TRY_DONE(add_image(s, number, file, b, err));
    }
    s->result->files++;
done:
    flim_field_close(file);
    return status;
}

flim_status flim_import_cells_find(const flim_import_request *request, const flim_import_rows *rows, const flim_log *log,
                                   flim_import_cells *out, flim_import_result *result, flim_error *err)
{
    search s = {.request = request, .rows = rows, .log = log, .out = out, .result = result};
    *out = (flim_import_cells){0};
    for (int64_t i = 0; i < rows->n; i++) {
        if (flim_stopped(request->stop)) {
            return flim_fail(err, FLIM_INTERRUPTED, "interrupted; %s was not written", request->out);
        }
        FLIM_TRY(add_row(&s, i, err));
    }
    if (out->n == 0) {
        return flim_fail(err, FLIM_ERROR_DATA,
                         "no cell is left: %" PRId64 " are at a field's border (--keep-border), %" PRId64
                         " larger than %d x %d pixels (--size, --crop-large), in %" PRId64 " file%s",
                         result->at_border, result->too_large, out->h, out->w, result->files, flim_s(result->files));
    }
    return FLIM_OK;
}

void flim_import_cells_free(flim_import_cells *c)
{
    flim_free(c->source);
    flim_free(c->number);
    flim_free(c->label);
    flim_free(c->group);
    flim_free_list(c->name, c->n);
    *c = (flim_import_cells){0};
}

flim_status flim_import_cells_of(const flim_import_request *request, const flim_import_row *row,
                                 const flim_field_image *image, const flim_import_cells *cells, flim_field_cells *out,
                                 flim_error *err)
{
    flim_label_image mask;
    flim_cells_rule rule = request->cells;
    rule.size = cells->h;
    *out = (flim_field_cells){0};
    if (!row->mask) {
        return flim_field_cells_whole(image->y, image->x, cells->h, cells->w, out, err);
    }
    FLIM_TRY(flim_label_image_read(row->mask, &mask, err));
    const flim_status status =
        mask.y == image->y && mask.x == image->x
            ? flim_field_cells_find(row->mask, &mask, &rule, out, err)
            : flim_fail(err, FLIM_ERROR_DATA,
                        "%s: a mask of %" PRId64 " x %" PRId64 " pixels, but %s has %" PRId64 " x %" PRId64, row->mask,
                        mask.y, mask.x, row->path, image->y, image->x);
    flim_label_image_free(&mask);
    return status;
}
