#include "import/import.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/output.h"
#include "core/stop.h"
#include "core/text.h"
#include "core/try.h"
#include "flim/dataset_writer.h"
#include "flim/version.h"
#include "import/file_list.h"

const char *const flim_import_group_names[] = {"folder", "file", "none", NULL};

/* Cells as they are found, before any is read. */
typedef struct cell_list {
    int64_t n, capacity;
    int32_t *file, *image; /* (n) of files.item, and within it */
    int32_t *label; /* (n); -1 = the files have no classes */
    char **group, **name; /* (n) */
} cell_list;

typedef struct job {
    const flim_import_request *request;
    flim_import_result *result;
    flim_string_list files, classes;
    cell_list cell;
    int64_t file_t; /* time bins of the files; a cell has result->t */
    double range_ns; /* of all cells; 0 = unknown */
    int range_file; /* the file that said so */
    bool padded; /* some field is smaller than a cell */
    uint32_t *counts; /* (T,H,W) of one cell */
    uint16_t *narrow; /* the same */
    uint8_t *mask; /* (H,W) */
} job;

static void release(job *j)
{
    flim_string_list_free(&j->files);
    flim_string_list_free(&j->classes);
    flim_free(j->cell.file);
    flim_free(j->cell.image);
    flim_free(j->cell.label);
    if (j->cell.group) {
        flim_free_list(j->cell.group, (int)j->cell.n);
    }
    if (j->cell.name) {
        flim_free_list(j->cell.name, (int)j->cell.n);
    }
    flim_free(j->counts);
    flim_free(j->narrow);
    flim_free(j->mask);
}

/* ---- names ---- */

static const char *base_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* A copy of the first `length` bytes of text. */
static char *copy_part(const char *text, size_t length, flim_error *err)
{
    return flim_strprintf(err, "%.*s", (int)length, text);
}

/* The file's name without its ending. */
static char *stem_of(const char *path, flim_error *err)
{
    const char *base = base_of(path), *dot = strrchr(base, '.');
    return copy_part(base, dot && dot > base ? (size_t)(dot - base) : strlen(base), err);
}

static char *folder_of(const char *path, flim_error *err)
{
    const char *base = base_of(path);
    if (base == path) {
        return flim_strdup(".", err);
    }
    const char *end = base - 1, *begin = end;
    while (begin > path && begin[-1] != '/') {
        begin--;
    }
    return copy_part(begin, (size_t)(end - begin), err);
}

static char *group_of(const job *j, const char *path, flim_error *err)
{
    switch (j->request->group) {
    case FLIM_IMPORT_GROUP_FOLDER: return folder_of(path, err);
    case FLIM_IMPORT_GROUP_FILE: return stem_of(path, err);
    case FLIM_IMPORT_GROUP_NONE: break;
    }
    return flim_strdup("", err);
}

/* ---- classes ---- */

static int find_class(const flim_string_list *classes, const char *name)
{
    for (int k = 0; k < classes->n; k++) {
        if (strcmp(classes->item[k], name) == 0) {
            return k;
        }
    }
    return -1;
}

static flim_status list_classes(job *j, flim_error *err)
{
    for (int i = 0; i < j->request->n_classes; i++) {
        const char *rule = j->request->class_rule[i], *equals = strchr(rule, '=');
        if (!equals || equals == rule || !equals[1]) {
            return flim_fail(
                err, FLIM_ERROR_USAGE,
                "--class '%s': expected TEXT=NAME, for example --class _act=activated: files whose name holds _act", rule);
        }
        if (find_class(&j->classes, equals + 1) < 0) {
            FLIM_TRY(flim_string_list_add(&j->classes, equals + 1, err));
        }
    }
    return j->classes.n == 1 ? flim_fail(err, FLIM_ERROR_USAGE,
                                         "--class: only one class, '%s', is named; expected two or more, or none at all",
                                         j->classes.item[0])
                             : FLIM_OK;
}

/* The class of a file by its name, -1 for none. */
static flim_status class_of(const job *j, const char *path, int32_t *out, flim_error *err)
{
    const char *by = NULL;
    *out = -1;
    for (int i = 0; i < j->request->n_classes; i++) {
        const char *rule = j->request->class_rule[i], *equals = strchr(rule, '=');
        char *text = copy_part(rule, (size_t)(equals - rule), err);
        if (!text) {
            return FLIM_ERROR_MEMORY;
        }
        const bool found = strstr(base_of(path), text) != NULL;
        flim_free(text);
        const int k = find_class(&j->classes, equals + 1);
        if (found && *out >= 0 && *out != k) {
            return flim_fail(err, FLIM_ERROR_USAGE, "%s: its name fits two classes, by --class '%s' and by '%s'", path, by,
                             rule);
        }
        if (found) {
            *out = k;
            by = rule;
        }
    }
    return FLIM_OK;
}

/* ---- the list of cells ---- */

static flim_status grow(cell_list *c, flim_error *err)
{
    if (c->n < c->capacity) {
        return FLIM_OK;
    }
    const size_t capacity = c->capacity ? 2 * (size_t)c->capacity : 256;
    void **column[] = {(void **)&c->file, (void **)&c->image, (void **)&c->label, (void **)&c->group, (void **)&c->name};
    const size_t size[] = {sizeof *c->file, sizeof *c->image, sizeof *c->label, sizeof *c->group, sizeof *c->name};
    for (int i = 0; i < 5; i++) {
        void *grown = flim_realloc(*column[i], capacity, size[i], err);
        if (!grown) {
            return FLIM_ERROR_MEMORY;
        }
        *column[i] = grown;
    }
    c->capacity = (int64_t)capacity;
    return FLIM_OK;
}

/* T, size and time range of a image against those of the images before. */
static flim_status check_image(job *j, int file, const flim_field_image *b, flim_error *err)
{
    const flim_import_request *r = j->request;
    flim_import_result *out = j->result;
    const char *path = j->files.item[file];
    const double range = b->range_ns > 0 ? b->range_ns : r->range_ns;
    if (j->cell.n == 0) {
        j->file_t = b->t;
        j->range_ns = range;
        j->range_file = file;
        out->t = (int)(r->bins ? r->bins : b->t);
        out->h = (int)(r->size ? r->size : b->y);
        out->w = (int)(r->size ? r->size : b->x);
    }
    if (b->t != j->file_t) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s: %s has %" PRId64 " time bins, %s has %" PRId64, path, b->name, b->t,
                         j->files.item[j->cell.file[0]], j->file_t);
    }
    if (b->t % out->t != 0) {
        return flim_fail(err, FLIM_ERROR_USAGE,
                         "%s: %" PRId64 " time bins cannot be added up to %d: --bins must divide them without a rest", path,
                         b->t, out->t);
    }
    if (b->y > out->h || b->x > out->w || (!r->size && (b->y != out->h || b->x != out->w))) {
        return flim_fail(err, FLIM_ERROR_DATA,
                         "%s: a field of %" PRId64 " x %" PRId64
                         " pixels, the cells have %d x %d; --size N takes cells of up to "
                         "N x N pixels and fills the smaller ones up, outside their mask",
                         path, b->y, b->x, out->h, out->w);
    }
    if (range != j->range_ns &&
        !(range > 0 && j->range_ns > 0 && range / j->range_ns > 0.99999 && range / j->range_ns < 1.00001)) {
        return flim_fail(err, FLIM_ERROR_DATA,
                         "%s: its %" PRId64 " time bins are %g ns in all, those of %s %g ns (0 = the file does not say: "
                         "--time-range-ns)",
                         path, b->t, range, j->files.item[j->range_file], j->range_ns);
    }
    j->padded = j->padded || b->y != out->h || b->x != out->w;
    return FLIM_OK;
}

static flim_status add_cell(job *j, int file, int image, const flim_field_image *b, int32_t label, flim_error *err)
{
    cell_list *c = &j->cell;
    const char *path = j->files.item[file];
    FLIM_TRY(check_image(j, file, b, err));
    FLIM_TRY(grow(c, err));
    char *group = group_of(j, path, err), *stem = group ? stem_of(path, err) : NULL, *name = NULL;
    if (stem) {
        name = j->request->channel || !b->name[0] || strcmp(b->name, "image 1") == 0
                   ? flim_strdup(stem, err)
                   : flim_strprintf(err, "%s %s", stem, b->name);
    }
    flim_free(stem);
    if (!name) {
        flim_free(group);
        return FLIM_ERROR_MEMORY;
    }
    c->file[c->n] = file;
    c->image[c->n] = image;
    c->label[c->n] = label;
    c->group[c->n] = group;
    c->name[c->n++] = name;
    return FLIM_OK;
}

static flim_status list_cells_of(job *j, int number, flim_error *err)
{
    const char *path = j->files.item[number];
    const int64_t channel = j->request->channel;
    int32_t label;
    flim_field_file *file = NULL;
    flim_status status = FLIM_OK;
    FLIM_TRY(class_of(j, path, &label, err));
    if (j->request->n_classes > 0 && label < 0) {
        j->result->skipped++;
        return FLIM_OK;
    }
    FLIM_TRY(flim_field_open(path, j->request->axes, &file, err));
    const bool array = file->format == &flim_format_npy || file->format == &flim_format_npz;
    if (channel > file->n_images) {
        FLIM_TRY_DONE(flim_fail(err, FLIM_ERROR_USAGE, "%s: --channel %" PRId64 ", but it has %d: %s%s", path, channel,
                                file->n_images, file->image[0].name, file->n_images > 1 ? " ..." : ""));
    }
    if (!channel && !array && file->n_images > 1) {
        FLIM_TRY_DONE(flim_fail(err, FLIM_ERROR_USAGE,
                                "%s: it has %d channels, '%s' to '%s'; choose one with --channel 1 to %d", path,
                                file->n_images, file->image[0].name, file->image[file->n_images - 1].name, file->n_images));
    }
    for (int b = channel ? (int)channel - 1 : 0; b < (channel ? channel : file->n_images); b++) {
        FLIM_TRY_DONE(add_cell(j, number, b, &file->image[b], label, err));
    }
    j->result->files++;
done:
    flim_field_close(file);
    return status;
}

static flim_status list_cells(job *j, flim_error *err)
{
    const flim_import_request *r = j->request;
    FLIM_TRY(list_classes(j, err));
    FLIM_TRY(flim_list_files(r->input, r->n_inputs, &j->files, err));
    for (int i = 0; i < j->files.n; i++) {
        if (flim_stopped(r->stop)) {
            return flim_fail(err, FLIM_INTERRUPTED, "interrupted; %s was not made", r->out);
        }
        FLIM_TRY(list_cells_of(j, i, err));
    }
    if (j->cell.n == 0) {
        return flim_fail(err, FLIM_ERROR_DATA,
                         "no cell: %d files were found, of which %" PRId64 " have a name that fits no --class", j->files.n,
                         j->result->skipped);
    }
    j->result->cells = j->cell.n;
    j->result->classes = j->classes.n;
    return FLIM_OK;
}

/* ---- writing ---- */

/* One field (Y,X,T) as a cell (T,H,W): bins added up, centred, the rest outside the mask.  *most: the largest count. */
static flim_status make_cell(job *j, const flim_field_image *b, const char *path, const uint32_t *field, uint32_t *most,
                             flim_error *err)
{
    const flim_import_result *out = j->result;
    const int64_t pixels = (int64_t)out->h * out->w, factor = b->t / out->t;
    const int64_t top = (out->h - b->y) / 2, left = (out->w - b->x) / 2;
    memset(j->counts, 0, (size_t)(out->t * pixels) * sizeof *j->counts);
    memset(j->mask, 0, (size_t)pixels);
    for (int64_t y = 0; y < b->y; y++) {
        for (int64_t x = 0; x < b->x; x++) {
            const uint32_t *decay = field + (y * b->x + x) * b->t; /* (T) */
            const int64_t pixel = (top + y) * out->w + left + x;
            j->mask[pixel] = 1;
            for (int64_t t = 0; t < out->t; t++) {
                uint64_t sum = 0;
                for (int64_t k = 0; k < factor; k++) {
                    sum += decay[t * factor + k];
                }
                if (sum > UINT32_MAX) {
                    return flim_fail(err, FLIM_ERROR_DATA, "%s: more than %" PRIu32 " photons in one voxel", path,
                                     UINT32_MAX);
                }
                j->counts[t * pixels + pixel] = (uint32_t)sum;
                *most = sum > *most ? (uint32_t)sum : *most;
            }
        }
    }
    return FLIM_OK;
}

/* All cells into a file of count_bytes 2 or 4; *fits = false if 2 are too few, and nothing is written then. */
static flim_status write_cells(job *j, flim_dataset_writer *writer, int count_bytes, bool *fits, flim_error *err)
{
    const flim_import_request *r = j->request;
    flim_import_result *out = j->result;
    const size_t voxels = (size_t)out->t * (size_t)out->h * (size_t)out->w;
    flim_field_file *file = NULL;
    uint32_t *field = NULL;
    int open = -1;
    flim_status status = FLIM_OK;
    out->photons = out->unplaced = 0;
    for (int64_t i = 0; i < j->cell.n; i++) {
        uint64_t photons;
        uint32_t most = 0;
        if (flim_stopped(r->stop)) {
            FLIM_TRY_DONE(flim_fail(err, FLIM_INTERRUPTED, "interrupted; %s was not made", r->out));
        }
        if (!file || j->cell.file[i] != open) {
            flim_field_close(file);
            file = NULL;
            open = j->cell.file[i];
            FLIM_TRY_DONE(flim_field_open(j->files.item[open], r->axes, &file, err));
        }
        if (j->cell.image[i] >= file->n_images) {
            FLIM_TRY_DONE(flim_fail(err, FLIM_ERROR_DATA, "%s was written to while it was read", j->files.item[open]));
        }
        FLIM_TRY_DONE(flim_field_read(file, j->cell.image[i], &field, &photons, err));
        FLIM_TRY_DONE(make_cell(j, &file->image[j->cell.image[i]], j->files.item[open], field, &most, err));
        flim_free(field);
        field = NULL;
        if (count_bytes == 2 && most > UINT16_MAX) {
            *fits = false;
            goto done;
        }
        for (size_t v = 0; count_bytes == 2 && v < voxels; v++) {
            j->narrow[v] = (uint16_t)j->counts[v];
        }
        FLIM_TRY_DONE(flim_dataset_writer_cell(writer, i, count_bytes == 2 ? (void *)j->narrow : (void *)j->counts,
                                               j->padded ? j->mask : NULL, err));
        out->photons += photons;
        out->unplaced += file->unplaced;
    }
done:
    flim_free(field);
    flim_field_close(file);
    return status;
}

static flim_status write_file(job *j, int count_bytes, bool *fits, flim_error *err)
{
    const flim_import_request *r = j->request;
    const flim_import_result *out = j->result;
    char note[512];
    flim_dataset_writer *writer = NULL;
    flim_status status = FLIM_OK;
    snprintf(note, sizeof note, "Imported by flim_import %s from %" PRId64 " files, the first of which is %.300s",
             flim_version(), out->files, base_of(j->files.item[j->cell.file[0]]));
    const flim_dataset_layout layout = {.n = j->cell.n,
                                        .t = out->t,
                                        .h = out->h,
                                        .w = out->w,
                                        .count_bytes = count_bytes,
                                        .mask = j->padded,
                                        .classes = j->classes.n,
                                        .class_name = (const char *const *)j->classes.item,
                                        .label = j->classes.n ? j->cell.label : NULL,
                                        .group =
                                            r->group == FLIM_IMPORT_GROUP_NONE ? NULL : (const char *const *)j->cell.group,
                                        .name = (const char *const *)j->cell.name,
                                        .time_range_ns = j->range_ns,
                                        .note = note};
    *fits = true;
    FLIM_TRY(flim_dataset_writer_create(r->out, &layout, &writer, err));
    FLIM_TRY_DONE(write_cells(j, writer, count_bytes, fits, err));
    status = *fits ? flim_dataset_writer_finish(writer, err) : FLIM_OK;
done:
    flim_dataset_writer_destroy(writer);
    return status;
}

static flim_status count_groups(job *j, flim_error *err)
{
    if (j->request->group == FLIM_IMPORT_GROUP_NONE) {
        return FLIM_OK;
    }
    const size_t n = (size_t)j->cell.n;
    char **sorted = flim_alloc(n, sizeof *sorted, err); /* (n) */
    if (!sorted) {
        return FLIM_ERROR_MEMORY;
    }
    memcpy(sorted, j->cell.group, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, flim_compare_texts);
    for (size_t i = 0; i < n; i++) {
        j->result->groups += i == 0 || strcmp(sorted[i - 1], sorted[i]) != 0;
    }
    flim_free(sorted);
    return FLIM_OK;
}

flim_status flim_import(const flim_import_request *request, const flim_log *log, flim_import_result *result, flim_error *err)
{
    *result = (flim_import_result){0};
    job j = {.request = request, .result = result};
    bool fits;
    flim_status status = FLIM_OK;
    FLIM_TRY_DONE(list_cells(&j, err));
    FLIM_TRY_DONE(flim_output_check(&(flim_output){.path = request->out,
                                                   .kind = "a data file",
                                                   .input = (const char *const *)j.files.item,
                                                   .n_inputs = j.files.n,
                                                   .seeks = true},
                                    err));
    const size_t pixels = (size_t)result->h * (size_t)result->w, voxels = (size_t)result->t * pixels;
    if (!(j.counts = flim_alloc(voxels, sizeof *j.counts, err)) || !(j.narrow = flim_alloc(voxels, sizeof *j.narrow, err)) ||
        !(j.mask = flim_alloc(pixels, 1, err))) {
        FLIM_TRY_DONE(FLIM_ERROR_MEMORY);
    }
    FLIM_TRY_DONE(write_file(&j, 2, &fits, err));
    if (!fits) { /* rare: a voxel of more than 65535 photons */
        FLIM_TRY_DONE(write_file(&j, 4, &fits, err));
    }
    FLIM_TRY_DONE(count_groups(&j, err));
    if (j.range_ns == 0) {
        flim_log_line(log, FLIM_LOG_NOTE, "no file says how long its %d time bins are; --time-range-ns X writes it",
                      result->t);
    }
done:
    release(&j);
    return status;
}
