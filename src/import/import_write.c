#include "import/import_write.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/clock.h"
#include "core/stop.h"
#include "core/text.h"
#include "core/try.h"
#include "flim/dataset_writer.h"
#include "flim/version.h"
#include "import/file_names.h"
#include "import/provenance.h"
#include "import/t0.h"

typedef struct writing {
    const flim_import_request *request;
    const flim_import_rows *rows;
    const flim_import_cells *cells;
    flim_photon_account *account;
    flim_dataset_writer *writer;
    int count_bytes; /* 2 or 4 */
    bool too_many; /* a voxel has more photons than count_bytes can hold: nothing more is written */
    void *counts; /* (T,H,W) of one cell, of count_bytes: the writer's room */
    uint8_t *mask; /* (H,W) */
    flim_pixel_run *run; /* (H,W) of its pixels */
    uint64_t *of_plane; /* (T) */
    flim_import_file *file; /* (rows) */
    int64_t *shift; /* (cells) of align_t0; NULL without */
    uint64_t *decay; /* (2,T): of a cell, and scratch */
    void *rolled; /* (T,H,W) scratch */
    double began; /* seconds */
} writing;

/* One image that was read. */
typedef struct field {
    const char *path;
    flim_counts counts;
    uint64_t *of_pixel; /* (Y,X): photons */
    flim_field_cells cells;
} field;

/* ---- one cell ---- */

/* Which pixels of the field go into the window of cell `number`: runs of w->run, *n of them, of *chosen pixels; fills w->mask.
 * *shown gets their photons. */
static void choose_pixels(writing *w, const field *f, int32_t number, int64_t *n, int64_t *chosen, uint64_t *shown)
{
    const flim_import_cells *c = w->cells;
    const flim_counts *k = &f->counts;
    const flim_field_cell *cell = &f->cells.cell[number];
    const bool box_only = w->request->cells.crop == FLIM_CROP_BOX;
    uint64_t copies = 0;
    *n = 0;
    *chosen = 0;
    *shown = 0;
    memset(w->mask, 0, (size_t)c->h * (size_t)c->w);
    for (int64_t i = 0; i < (int64_t)c->h * c->w; i++) {
        const int64_t y = cell->top + i / c->w, x = cell->left + i % c->w;
        if (y < 0 || x < 0 || y >= k->y || x >= k->x) {
            continue;
        }
        const int64_t pixel = y * k->x + x, at = y * k->y_step + x * k->x_step;
        const bool own = f->cells.of_pixel[pixel] == number;
        const bool in_box = y >= cell->y0 && y <= cell->y1 && x >= cell->x0 && x <= cell->x1;
        if (!own && (w->request->mask_counts || (box_only && !in_box))) {
            continue;
        }
        flim_pixel_run *last = *n > 0 ? &w->run[*n - 1] : NULL;
        if (last && last->to + last->n == i && last->from + last->n * k->x_step == at) {
            last->n++;
        } else {
            w->run[(*n)++] = (flim_pixel_run){at, i, 1};
        }
        w->mask[i] = own;
        (*chosen)++;
        *shown += f->of_pixel[pixel];
        copies += own ? 0 : f->of_pixel[pixel];
    }
    w->account->copies += copies;
    w->account->cells += *shown - copies;
}

/* The photons of a cell as it is written. */
static uint64_t photons_of(const writing *w)
{
    const flim_import_cells *c = w->cells;
    const int64_t pixels = (int64_t)c->h * c->w;
    uint64_t sum = 0;
    const flim_counts cell = {w->counts,     w->count_bytes, 1, c->t, pixels,
                              c->t * pixels, pixels,         1, NULL}; /* planes as decays */
    flim_counts_sum(&cell, w->of_plane);
    for (int64_t t = 0; t < c->t; t++) {
        sum += w->of_plane[t];
    }
    return sum;
}

/* The window of cell `number` into w->counts and w->mask; w->too_many if a count does not fit. */
static flim_status make_cell(writing *w, const field *f, int32_t number, flim_error *err)
{
    const flim_import_cells *c = w->cells;
    const int64_t pixels = (int64_t)c->h * c->w;
    int64_t n, chosen;
    uint64_t shown;
    FLIM_TRY(flim_dataset_writer_room(w->writer, &w->counts, err));
    choose_pixels(w, f, number, &n, &chosen, &shown);
    if (chosen < pixels) {
        memset(w->counts, 0, (size_t)c->t * (size_t)pixels * (size_t)w->count_bytes);
    }
    if (!flim_counts_gather(&f->counts, c->t, w->run, n, pixels, w->count_bytes, w->counts)) {
        w->too_many = w->count_bytes == 2;
        return w->too_many
                   ? FLIM_OK
                   : flim_fail(err, FLIM_ERROR_DATA, "%s: more than %" PRIu32 " photons in one voxel", f->path, UINT32_MAX);
    }
    const uint64_t written = photons_of(w);
    return written == shown ? FLIM_OK
                            : flim_fail(err, FLIM_ERROR,
                                        "%s was not written: a cell of %s has %" PRIu64 " photons there and %" PRIu64
                                        " here; the file was modified while it was read, or flim_import is at fault",
                                        w->request->out, f->path, shown, written);
}

static uint32_t count_at(const writing *w, int64_t at)
{
    return w->count_bytes == 2 ? ((const uint16_t *)w->counts)[at] : ((const uint32_t *)w->counts)[at];
}

/* The decay of the cell's own pixels begins in bin t0_bin.  What a window shows around them goes along. */
static void align_cell(writing *w, int64_t cell)
{
    const flim_import_cells *c = w->cells;
    const int64_t pixels = (int64_t)c->h * c->w, wanted = w->request->t0_bin < 0 ? c->t / 8 : w->request->t0_bin;
    for (int64_t t = 0; t < c->t; t++) {
        w->decay[t] = 0;
        for (int64_t i = 0; i < pixels; i++) {
            w->decay[t] += w->mask[i] ? count_at(w, t * pixels + i) : 0;
        }
    }
    const int64_t edge = flim_rising_edge(w->decay, c->t, w->decay + c->t);
    const int64_t shift = edge < 0 ? 0 : ((wanted - edge) % c->t + c->t) % c->t;
    flim_roll_bins(w->counts, c->t, (size_t)pixels * (size_t)w->count_bytes, shift, w->rolled);
    w->shift[cell] = shift > c->t / 2 ? shift - c->t : shift;
}

static flim_status write_cell(writing *w, const field *f, int64_t cell, flim_error *err)
{
    FLIM_TRY(make_cell(w, f, w->cells->number[cell], err));
    if (w->too_many) {
        return FLIM_OK;
    }
    if (w->shift) {
        align_cell(w, cell);
    }
    return flim_dataset_writer_cell(w->writer, cell, w->counts, w->cells->masked ? w->mask : NULL, err);
}

/* ---- one image ---- */

/* The photons that are in no cell of OUT, by why. */
static void account_for_the_rest(const writing *w, const field *f)
{
    const flim_import_cells *c = w->cells;
    for (int64_t i = 0; i < f->counts.y * f->counts.x; i++) {
        const int32_t number = f->cells.of_pixel[i];
        const flim_field_cell *cell = number >= 0 ? &f->cells.cell[number] : NULL;
        uint64_t *where = &w->account->background;
        if (cell && cell->fate != FLIM_CELL_KEPT) {
            where = &w->account->left_out;
        } else if (cell) {
            const int64_t y = i / f->counts.x - cell->top, x = i % f->counts.x - cell->left;
            if (y >= 0 && x >= 0 && y < c->h && x < c->w) {
                continue;
            }
            where = &w->account->beyond;
        }
        *where += f->of_pixel[i];
    }
}

static flim_status write_source(writing *w, flim_field_file *file, const flim_import_source *source, flim_error *err)
{
    const flim_import_row *row = &w->rows->row[source->row];
    field f = {.path = row->path};
    int64_t pixels;
    flim_status status = FLIM_OK;
    if (source->image >= file->n_images) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s was modified while it was read", row->path);
    }
    const flim_field_image *image = &file->image[source->image];
    FLIM_TRY_DONE(flim_import_cells_of(w->request, row, image, w->cells, &f.cells, err));
    FLIM_TRY_DONE(flim_field_read(file, source->image, &f.counts, err));
    pixels = f.counts.y * f.counts.x;
    f.of_pixel = flim_alloc((size_t)pixels, sizeof *f.of_pixel, err);
    FLIM_TRY_DONE(f.of_pixel ? FLIM_OK : FLIM_ERROR_MEMORY);
    flim_counts_sum(&f.counts, f.of_pixel);
    for (int64_t i = source->first; i < source->first + source->n && !w->too_many; i++) {
        if (flim_stopped(w->request->stop)) {
            FLIM_TRY_DONE(flim_fail(err, FLIM_INTERRUPTED, "interrupted; %s was not written", w->request->out));
        }
        if (f.counts.t != w->cells->file_t || w->cells->number[i] >= f.cells.n) {
            FLIM_TRY_DONE(flim_fail(err, FLIM_ERROR_DATA, "%s or its mask was modified while it was read", row->path));
        }
        FLIM_TRY_DONE(write_cell(w, &f, i, err));
    }
    account_for_the_rest(w, &f);
    w->account->unplaced += file->unplaced;
    w->account->total += file->unplaced;
    for (int64_t i = 0; i < pixels; i++) {
        w->account->total += f.of_pixel[i];
    }
done:
    flim_counts_free(&f.counts);
    flim_free(f.of_pixel);
    flim_field_cells_free(&f.cells);
    return status;
}

static void tell_progress(const writing *w, int64_t cells)
{
    const flim_progress at = {.phase = FLIM_PHASE_IMPORT,
                              .done = cells,
                              .total = w->cells->n,
                              .cells = cells,
                              .seconds = flim_seconds() - w->began,
                              .loss = NAN};
    if (w->request->progress) {
        w->request->progress(w->request->progress_context, &at);
    }
}

static flim_status write_sources(writing *w, flim_error *err)
{
    const flim_import_cells *c = w->cells;
    flim_field_file *file = NULL;
    flim_status status = FLIM_OK;
    *w->account = (flim_photon_account){0};
    for (int64_t i = 0; i < c->n_sources && !w->too_many; i++) {
        const flim_import_row *row = &w->rows->row[c->source[i].row];
        if (flim_stopped(w->request->stop)) {
            FLIM_TRY_DONE(flim_fail(err, FLIM_INTERRUPTED, "interrupted; %s was not written", w->request->out));
        }
        if (i == 0 || c->source[i].row != c->source[i - 1].row) {
            flim_field_close(file);
            file = NULL;
            FLIM_TRY_DONE(flim_import_open_field(w->request, row, true, &file, err)); /* its cells were found */
            FLIM_TRY_DONE(flim_import_file_describe(row, file, &w->file[c->source[i].row], err));
        }
        FLIM_TRY_DONE(write_source(w, file, &c->source[i], err));
        tell_progress(w, c->source[i].first + c->source[i].n);
    }
done:
    flim_field_close(file);
    return status;
}

/* ---- the file ---- */

static flim_status check_account(const flim_photon_account *a, const char *out, flim_error *err)
{
    const uint64_t sum = a->cells + a->beyond + a->left_out + a->background + a->unplaced;
    return sum == a->total ? FLIM_OK
                           : flim_fail(err, FLIM_ERROR,
                                       "%s was not written: %" PRIu64 " photons were read and %" PRIu64
                                       " accounted for, which is a fault of flim_import",
                                       out, a->total, sum);
}

static flim_status write_file(writing *w, const flim_import_result *result, flim_error *err)
{
    const flim_import_request *r = w->request;
    const flim_import_cells *c = w->cells;
    const bool classes = w->rows->classes.n > 0;
    char note[512];
    flim_status status = FLIM_OK;
    snprintf(note, sizeof note, "Imported by flim_import %s from %" PRId64 " file%s, the first of which is %.300s",
             flim_version(), result->files, flim_s(result->files), flim_path_base(w->rows->row[0].path));
    const flim_dataset_layout layout = {.n = c->n,
                                        .t = c->t,
                                        .h = c->h,
                                        .w = c->w,
                                        .count_bytes = w->count_bytes,
                                        .mask = c->masked,
                                        .classes = w->rows->classes.n,
                                        .class_name = (const char *const *)w->rows->classes.item,
                                        .label = classes ? c->label : NULL,
                                        .group = w->rows->groups ? c->group : NULL,
                                        .name = (const char *const *)c->name,
                                        .time_range_ns = c->range_ns,
                                        .note = note};
    w->too_many = false;
    FLIM_TRY(flim_dataset_writer_create(r->out, &layout, &w->writer, err));
    FLIM_TRY_DONE(write_sources(w, err));
    if (!w->too_many) {
        FLIM_TRY_DONE(check_account(w->account, r->out, err));
        FLIM_TRY_DONE(flim_import_files_write(w->rows, w->file, c, w->writer, err));
        FLIM_TRY_DONE(w->shift ? flim_dataset_writer_add_numbers(w->writer, "t0_shift", w->shift, c->n, err) : FLIM_OK);
        status = flim_dataset_writer_finish(w->writer, err);
    }
done:
    flim_dataset_writer_destroy(w->writer);
    w->writer = NULL;
    return status;
}

static flim_status make_buffers(writing *w, flim_error *err)
{
    const flim_import_cells *c = w->cells;
    const size_t pixels = (size_t)c->h * (size_t)c->w, voxels = (size_t)c->t * pixels;
    const bool align = w->request->align_t0;
    return (w->mask = flim_alloc(pixels, 1, err)) && (w->run = flim_alloc(pixels, sizeof *w->run, err)) &&
                   (w->of_plane = flim_alloc((size_t)c->t, sizeof *w->of_plane, err)) &&
                   (w->file = flim_alloc((size_t)w->rows->n, sizeof *w->file, err)) &&
                   (!align || ((w->shift = flim_alloc((size_t)c->n, sizeof *w->shift, err)) &&
                               (w->decay = flim_alloc(2 * (size_t)c->t, sizeof *w->decay, err)) &&
                               (w->rolled = flim_alloc_large(voxels, sizeof(uint32_t), err))))
               ? FLIM_OK
               : FLIM_ERROR_MEMORY;
}

static void free_buffers(writing *w)
{
    flim_free(w->mask);
    flim_free(w->run);
    flim_free(w->of_plane);
    flim_free(w->file);
    flim_free(w->shift);
    flim_free(w->decay);
    flim_free(w->rolled);
}

flim_status flim_import_write(const flim_import_request *request, const flim_import_rows *rows,
                              const flim_import_cells *cells, flim_import_result *result, flim_error *err)
{
    writing w = {.request = request,
                 .rows = rows,
                 .cells = cells,
                 .account = &result->photons,
                 .count_bytes = 2,
                 .began = flim_seconds()};
    flim_status status = FLIM_OK;
    FLIM_TRY_DONE(make_buffers(&w, err));
    FLIM_TRY_DONE(write_file(&w, result, err));
    if (w.too_many) { /* rare: a voxel of more than 65535 photons */
        w.count_bytes = 4;
        FLIM_TRY_DONE(write_file(&w, result, err));
    }
    for (int64_t i = 0; w.shift && i < cells->n; i++) {
        result->least_shift = i == 0 || w.shift[i] < result->least_shift ? w.shift[i] : result->least_shift;
        result->most_shift = i == 0 || w.shift[i] > result->most_shift ? w.shift[i] : result->most_shift;
    }
done:
    free_buffers(&w);
    return status;
}
