#include "import/import_write.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/clock.h"
#include "core/stop.h"
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
    uint32_t *counts; /* (T,H,W) of one cell */
    uint16_t *narrow; /* the same */
    uint8_t *mask; /* (H,W) */
    flim_import_file *file; /* (rows) */
    int64_t *shift; /* (cells) of align_t0; NULL without */
    uint64_t *decay; /* (2,T): of a cell, and scratch */
    uint32_t *rolled; /* (T,H,W) scratch */
    double began; /* seconds */
} writing;

/* One image that was read. */
typedef struct field {
    const char *path;
    int64_t y, x, t;
    uint32_t *counts; /* (Y,X,T) */
    flim_field_cells cells;
} field;

/* ---- one cell ---- */

/* A pixel's decay (T of the file) into column `pixel` of w->counts: neighbouring bins are added.  *sum gets its photons. */
static flim_status put_pixel(writing *w, const field *f, const uint32_t *decay, int64_t pixel, uint64_t *sum, flim_error *err)
{
    const flim_import_cells *c = w->cells;
    const int64_t factor = f->t / c->t, pixels = (int64_t)c->h * c->w;
    *sum = 0;
    for (int64_t t = 0; t < c->t; t++) {
        uint64_t bin = 0;
        for (int64_t k = 0; k < factor; k++) {
            bin += decay[t * factor + k];
        }
        if (bin > UINT32_MAX) {
            return flim_fail(err, FLIM_ERROR_DATA, "%s: more than %" PRIu32 " photons in one voxel", f->path, UINT32_MAX);
        }
        w->counts[t * pixels + pixel] = (uint32_t)bin;
        *sum += bin;
    }
    return FLIM_OK;
}

/* The window of cell `number` into w->counts and w->mask. */
static flim_status make_cell(writing *w, const field *f, int32_t number, flim_error *err)
{
    const flim_import_cells *c = w->cells;
    const flim_field_cell *cell = &f->cells.cell[number];
    const bool box_only = w->request->cells.crop == FLIM_CROP_BOX;
    memset(w->counts, 0, (size_t)c->t * (size_t)c->h * (size_t)c->w * sizeof *w->counts);
    memset(w->mask, 0, (size_t)c->h * (size_t)c->w);
    for (int64_t i = 0; i < (int64_t)c->h * c->w; i++) {
        const int64_t y = cell->top + i / c->w, x = cell->left + i % c->w;
        if (y < 0 || x < 0 || y >= f->y || x >= f->x) {
            continue;
        }
        const bool own = f->cells.of_pixel[y * f->x + x] == number;
        const bool in_box = y >= cell->y0 && y <= cell->y1 && x >= cell->x0 && x <= cell->x1;
        uint64_t photons;
        if (!own && (w->request->mask_counts || (box_only && !in_box))) {
            continue;
        }
        w->mask[i] = own;
        FLIM_TRY(put_pixel(w, f, f->counts + (y * f->x + x) * f->t, i, &photons, err));
        *(own ? &w->account->cells : &w->account->copies) += photons;
    }
    return FLIM_OK;
}

/* The decay of the cell's own pixels begins in bin t0_bin.  What a window shows around them goes along. */
static void align_cell(writing *w, int64_t cell)
{
    const flim_import_cells *c = w->cells;
    const int64_t pixels = (int64_t)c->h * c->w, wanted = w->request->t0_bin < 0 ? c->t / 8 : w->request->t0_bin;
    for (int64_t t = 0; t < c->t; t++) {
        w->decay[t] = 0;
        for (int64_t i = 0; i < pixels; i++) {
            w->decay[t] += w->mask[i] ? w->counts[t * pixels + i] : 0;
        }
    }
    const int64_t edge = flim_rising_edge(w->decay, c->t, w->decay + c->t);
    const int64_t shift = edge < 0 ? 0 : ((wanted - edge) % c->t + c->t) % c->t;
    flim_roll_bins(w->counts, c->t, pixels, shift, w->rolled);
    w->shift[cell] = shift > c->t / 2 ? shift - c->t : shift;
}

/* To two bytes per count; false if some are too large. */
static bool narrow(const uint32_t *from, uint16_t *to, size_t n)
{
    uint32_t high = 0;
    for (size_t i = 0; i < n; i++) {
        high |= from[i];
        to[i] = (uint16_t)from[i];
    }
    return high <= UINT16_MAX;
}

static flim_status write_cell(writing *w, const field *f, int64_t cell, flim_error *err)
{
    const flim_import_cells *c = w->cells;
    const void *counts = w->counts;
    FLIM_TRY(make_cell(w, f, c->number[cell], err));
    if (w->shift) {
        align_cell(w, cell);
    }
    if (w->count_bytes == 2) {
        counts = w->narrow;
        if (!narrow(w->counts, w->narrow, (size_t)c->t * (size_t)c->h * (size_t)c->w)) {
            w->too_many = true;
            return FLIM_OK;
        }
    }
    return flim_dataset_writer_cell(w->writer, cell, counts, c->masked ? w->mask : NULL, err);
}

/* ---- one image ---- */

/* The photons that are in no cell of OUT, by why. */
static void account_for_the_rest(const writing *w, const field *f)
{
    const flim_import_cells *c = w->cells;
    for (int64_t i = 0; i < f->y * f->x; i++) {
        const int32_t number = f->cells.of_pixel[i];
        const flim_field_cell *cell = number >= 0 ? &f->cells.cell[number] : NULL;
        uint64_t *where = &w->account->background;
        if (cell && cell->fate != FLIM_CELL_KEPT) {
            where = &w->account->left_out;
        } else if (cell) {
            const int64_t y = i / f->x - cell->top, x = i % f->x - cell->left;
            if (y >= 0 && x >= 0 && y < c->h && x < c->w) {
                continue;
            }
            where = &w->account->beyond;
        }
        for (int64_t t = 0; t < f->t; t++) {
            *where += f->counts[i * f->t + t];
        }
    }
}

static flim_status write_source(writing *w, flim_field_file *file, const flim_import_source *source, flim_error *err)
{
    const flim_import_row *row = &w->rows->row[source->row];
    field f = {.path = row->path};
    uint64_t photons;
    flim_status status = FLIM_OK;
    if (source->image >= file->n_images) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s was modified while it was read", row->path);
    }
    const flim_field_image *image = &file->image[source->image];
    f.y = image->y;
    f.x = image->x;
    f.t = image->t;
    FLIM_TRY_DONE(flim_import_cells_of(w->request, row, image, w->cells, &f.cells, err));
    FLIM_TRY_DONE(flim_field_read(file, source->image, &f.counts, &photons, err));
    for (int64_t i = source->first; i < source->first + source->n && !w->too_many; i++) {
        if (flim_stopped(w->request->stop)) {
            FLIM_TRY_DONE(flim_fail(err, FLIM_INTERRUPTED, "interrupted; %s was not written", w->request->out));
        }
        if (f.t != w->cells->file_t || w->cells->number[i] >= f.cells.n) {
            FLIM_TRY_DONE(flim_fail(err, FLIM_ERROR_DATA, "%s or its mask was modified while it was read", row->path));
        }
        FLIM_TRY_DONE(write_cell(w, &f, i, err));
    }
    account_for_the_rest(w, &f);
    w->account->unplaced += file->unplaced;
    w->account->total += photons + file->unplaced;
done:
    flim_free(f.counts);
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
            FLIM_TRY_DONE(flim_field_open(row->path, &w->request->fields, &file, err));
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
    snprintf(note, sizeof note, "Imported by flim_import %s from %" PRId64 " files, the first of which is %.300s",
             flim_version(), result->files, flim_path_base(w->rows->row[0].path));
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
    return (w->counts = flim_alloc(voxels, sizeof *w->counts, err)) &&
                   (w->narrow = flim_alloc(voxels, sizeof *w->narrow, err)) && (w->mask = flim_alloc(pixels, 1, err)) &&
                   (w->file = flim_alloc((size_t)w->rows->n, sizeof *w->file, err)) &&
                   (!align || ((w->shift = flim_alloc((size_t)c->n, sizeof *w->shift, err)) &&
                               (w->decay = flim_alloc(2 * (size_t)c->t, sizeof *w->decay, err)) &&
                               (w->rolled = flim_alloc(voxels, sizeof *w->rolled, err))))
               ? FLIM_OK
               : FLIM_ERROR_MEMORY;
}

static void free_buffers(writing *w)
{
    flim_free(w->counts);
    flim_free(w->narrow);
    flim_free(w->mask);
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
