#include "data/repack.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "core/alloc.h"
#include "core/output.h"
#include "core/parse.h"
#include "core/stop.h"
#include "core/try.h"
#include "data/dataset_internal.h"
#include "data/import_columns.h"
#include "flim/dataset_writer.h"

/* One cell read, and as it is written. */
typedef struct buffers {
    float *counts, *copy; /* (T,H,W): read, and read back */
    uint8_t *mask, *copy_mask; /* (H,W) */
    void *packed; /* (T,H,W) of the type written */
} buffers;

static void free_buffers(buffers *b)
{
    flim_free(b->counts);
    flim_free(b->copy);
    flim_free(b->mask);
    flim_free(b->copy_mask);
    flim_free(b->packed);
}

static flim_status make_buffers(buffers *b, const flim_dataset *d, flim_error *err)
{
    size_t voxels = (size_t)d->voxels, pixels = (size_t)d->pixels;
    return (b->counts = flim_alloc_aligned(voxels, sizeof *b->counts, err)) &&
                   (b->copy = flim_alloc_aligned(voxels, sizeof *b->copy, err)) &&
                   (b->mask = flim_alloc_aligned(pixels, 1, err)) && (b->copy_mask = flim_alloc_aligned(pixels, 1, err)) &&
                   (b->packed = flim_alloc_aligned(voxels, 4, err))
               ? FLIM_OK
               : FLIM_ERROR_MEMORY;
}

static flim_status interrupted(const flim_repack_options *options, const char *out, flim_error *err)
{
    return flim_stopped(options->stop) ? flim_fail(err, FLIM_INTERRUPTED, "interrupted; %s was not written", out) : FLIM_OK;
}

/* What is copied: cells of the data set, and their columns. */
typedef struct chosen {
    int64_t n;
    int64_t *cell; /* (n) ascending */
    int32_t *label; /* (n), NULL if the data set has none */
    int64_t *group; /* (n) of info.group_name, or NULL */
    const char **name; /* (n), or NULL */
    flim_import_columns import;
} chosen;

static void free_chosen(chosen *c)
{
    flim_free(c->cell);
    flim_free(c->label);
    flim_free(c->group);
    flim_free(c->name);
    flim_import_columns_free(&c->import);
}

static flim_status choose_cells(const flim_dataset_info *info, const flim_repack_options *options, chosen *c, flim_error *err)
{
    flim_status status = FLIM_OK;
    const size_t n = (size_t)info->n;
    bool *left_out = flim_alloc(n, sizeof *left_out, err); /* (n) */
    FLIM_TRY_DONE(left_out ? FLIM_OK : FLIM_ERROR_MEMORY);
    FLIM_TRY_DONE(options->choose ? options->choose(options->choose_context, info, left_out, err) : FLIM_OK);
    if (!(c->cell = flim_alloc(n, sizeof *c->cell, err)) ||
        (info->label && !(c->label = flim_alloc(n, sizeof *c->label, err))) ||
        (info->group && !(c->group = flim_alloc(n, sizeof *c->group, err))) ||
        (info->name && !(c->name = flim_alloc(n, sizeof *c->name, err)))) {
        FLIM_TRY_DONE(FLIM_ERROR_MEMORY);
    }
    for (int64_t i = 0; i < info->n; i++) {
        if (left_out[i]) {
            continue;
        }
        if (c->label) {
            c->label[c->n] = info->label[i];
        }
        if (c->group) {
            c->group[c->n] = info->group[i];
        }
        if (c->name) {
            c->name[c->n] = info->name[i];
        }
        c->cell[c->n++] = i;
    }
done:
    flim_free(left_out);
    return status;
}

/* Whole numbers in all cells?  A data set of integer types needs no look. */
static flim_status all_whole(flim_dataset *d, const chosen *c, flim_reader *reader, buffers *b,
                             const flim_repack_options *options, const char *out, bool *whole, flim_error *err)
{
    *whole = true;
    for (int64_t i = 0; i < c->n && *whole; i++) {
        const int64_t cell = c->cell[i];
        int64_t local;
        if (flim_dataset_locate(d, cell, &local)->source->info.number.kind != FLIM_FLOAT) {
            continue;
        }
        FLIM_TRY(interrupted(options, out, err));
        FLIM_TRY(flim_reader_counts(reader, cell, b->counts, NULL, err));
        for (int64_t v = 0; v < d->voxels && *whole; v++) {
            *whole = b->counts[v] == floorf(b->counts[v]);
        }
    }
    return FLIM_OK;
}

/* The largest count.  All cells are looked through by threads; a part of them one by one, so that what is wrong with the others does
 * not matter. */
static flim_status find_most(flim_dataset *d, const chosen *c, flim_reader *reader, buffers *b,
                             const flim_repack_options *options, const char *out, double *most, flim_error *err)
{
    flim_status status = FLIM_OK;
    *most = 0;
    if (c->n < d->info.n) {
        for (int64_t i = 0; i < c->n; i++) {
            FLIM_TRY(interrupted(options, out, err));
            FLIM_TRY(flim_reader_counts(reader, c->cell[i], b->counts, NULL, err));
            for (int64_t v = 0; v < d->voxels; v++) {
                *most = b->counts[v] > *most ? b->counts[v] : *most;
            }
        }
        return FLIM_OK;
    }
    flim_cell_summary *summary = flim_alloc((size_t)d->info.n, sizeof *summary, err);
    FLIM_TRY_DONE(summary ? FLIM_OK : FLIM_ERROR_MEMORY);
    FLIM_TRY_DONE(flim_dataset_scan(d, options->workers, options->stop, NULL, summary, NULL, NULL, err));
    for (int64_t i = 0; i < d->info.n; i++) {
        *most = summary[i].max_count > *most ? summary[i].max_count : *most;
    }
done:
    flim_free(summary);
    return status;
}

/* The smallest type that holds every count: bytes and whether it is a float. */
static flim_status choose_type(flim_dataset *d, const chosen *c, flim_reader *reader, buffers *b,
                               const flim_repack_options *options, const char *out, int *bytes, bool *is_float,
                               flim_error *err)
{
    double most;
    bool whole = true;
    FLIM_TRY(find_most(d, c, reader, b, options, out, &most, err));
    FLIM_TRY(all_whole(d, c, reader, b, options, out, &whole, err));
    /* float32 carries whole numbers up to 2^24; the reader hands counts over as float32, so more cannot be told apart */
    *is_float = !whole;
    *bytes = !whole ? 4 : most <= 255 ? 1 : most <= 65535 ? 2 : 4;
    return whole && most > 16777216.0
               ? flim_fail(err, FLIM_ERROR_DATA, "a count of %.0f: above 16777216 counts cannot be copied exactly", most)
               : FLIM_OK;
}

static void pack(const float *counts, int64_t voxels, int bytes, bool is_float, void *packed)
{
    if (is_float) {
        memcpy(packed, counts, (size_t)voxels * sizeof *counts);
        return;
    }
    for (int64_t i = 0; i < voxels; i++) {
        if (bytes == 1) {
            ((uint8_t *)packed)[i] = (uint8_t)counts[i];
        } else if (bytes == 2) {
            ((uint16_t *)packed)[i] = (uint16_t)counts[i];
        } else {
            ((uint32_t *)packed)[i] = (uint32_t)counts[i];
        }
    }
}

/* The names of classes where they say more than the number. */
static bool real_class_names(const flim_dataset_info *info)
{
    for (int k = 0; k < info->classes; k++) {
        char number[16];
        snprintf(number, sizeof number, "%d", k);
        if (strcmp(info->class_name[k], number) != 0) {
            return true;
        }
    }
    return false;
}

/* Groups that are numbers stay numbers, so that their order stays.  number: (c->n) or NULL if they are not. */
static flim_status group_numbers(const flim_dataset_info *info, const chosen *c, int64_t **number, flim_error *err)
{
    *number = NULL;
    for (int64_t g = 0; g < info->groups; g++) {
        int64_t value;
        char again[32];
        if (flim_parse_i64("group", info->group_name[g], INT64_MIN, INT64_MAX, &value, NULL) != FLIM_OK) {
            return FLIM_OK;
        }
        snprintf(again, sizeof again, "%" PRId64, value);
        if (strcmp(again, info->group_name[g]) != 0) {
            return FLIM_OK; /* "007" */
        }
    }
    if (!info->group || !(*number = flim_alloc((size_t)c->n, sizeof **number, err))) {
        return info->group ? FLIM_ERROR_MEMORY : FLIM_OK;
    }
    for (int64_t i = 0; i < c->n; i++) {
        flim_parse_i64("group", info->group_name[c->group[i]], INT64_MIN, INT64_MAX, &(*number)[i], NULL);
    }
    return FLIM_OK;
}

/* *out_writer is the caller's to finish or destroy; *unfinished is where the file can be read till then. */
static flim_status write_all(flim_dataset *d, const chosen *c, flim_reader *reader, buffers *b, int bytes, bool is_float,
                             const flim_repack_options *options, const char *out, flim_dataset_writer **out_writer,
                             const char **unfinished, flim_error *err)
{
    const flim_dataset_info *info = &d->info;
    flim_dataset_writer *writer = NULL;
    const char **group = NULL;
    int64_t *number = NULL;
    flim_status status = FLIM_OK;
    FLIM_TRY(group_numbers(info, c, &number, err));
    if (info->group && !number && !(group = flim_alloc((size_t)c->n, sizeof *group, err))) {
        return FLIM_ERROR_MEMORY;
    }
    for (int64_t i = 0; group && i < c->n; i++) {
        group[i] = info->group_name[c->group[i]];
    }
    const flim_dataset_layout layout = {.n = c->n,
                                        .t = info->t,
                                        .h = info->h,
                                        .w = info->w,
                                        .count_bytes = bytes,
                                        .count_float = is_float,
                                        .mask = info->has_mask,
                                        .classes = real_class_names(info) ? info->classes : 0,
                                        .class_name = info->class_name,
                                        .label = c->label,
                                        .group = group,
                                        .group_number = number,
                                        .name = c->name,
                                        .time_range_ns = info->time_range_ns};
    FLIM_TRY_DONE(flim_dataset_writer_create(out, &layout, &writer, err));
    for (int64_t i = 0; i < c->n; i++) {
        FLIM_TRY_DONE(interrupted(options, out, err));
        FLIM_TRY_DONE(flim_reader_counts(reader, c->cell[i], b->counts, b->mask, err));
        pack(b->counts, d->voxels, bytes, is_float, b->packed);
        FLIM_TRY_DONE(flim_dataset_writer_cell(writer, i, b->packed, info->has_mask ? b->mask : NULL, err));
    }
    FLIM_TRY_DONE(flim_import_columns_write(&c->import, writer, err));
    status = flim_dataset_writer_close(writer, unfinished, err);
done:
    *out_writer = writer;
    flim_free(group);
    flim_free(number);
    return status;
}

static bool same_text(const char *const *a, int64_t i, const char *const *b, int64_t j)
{
    return a && b ? strcmp(a[i], b[j]) == 0 : !a && !b;
}

/* Are the columns of the copy those of the cells that were chosen? */
static bool same_columns(const flim_dataset_info *from, const chosen *c, const flim_dataset_info *to)
{
    bool same = to->n == c->n && to->t == from->t && to->h == from->h && to->w == from->w && to->has_mask == from->has_mask &&
                (to->label != NULL) == (c->label != NULL) && (to->group != NULL) == (c->group != NULL);
    for (int64_t i = 0; same && i < c->n; i++) {
        same = (!c->label ||
                (to->label[i] == c->label[i] && same_text(to->class_name, to->label[i], from->class_name, c->label[i]))) &&
               (!c->group || same_text(to->group_name, to->group[i], from->group_name, c->group[i])) &&
               same_text(to->name, i, c->name, i);
    }
    return same;
}

/* Are its import columns those of the cells that were chosen? */
static flim_status same_import(const flim_dataset *copy, const chosen *c, bool *same, flim_error *err)
{
    flim_import_columns written;
    int64_t *all = flim_alloc((size_t)c->n, sizeof *all, err); /* (c->n) */
    if (!all) {
        return FLIM_ERROR_MEMORY;
    }
    for (int64_t i = 0; i < c->n; i++) {
        all[i] = i;
    }
    const flim_status status = flim_import_columns_read(copy, all, c->n, &(flim_log){0}, &written, err);
    flim_free(all);
    FLIM_TRY(status);
    *same = flim_import_columns_equal(&c->import, &written);
    flim_import_columns_free(&written);
    return FLIM_OK;
}

/* Is what was written what was read?  Every cell and column. */
static flim_status compare(flim_dataset *d, const chosen *c, flim_reader *reader, buffers *b, const char *unfinished,
                           const flim_repack_options *options, const char *out, flim_error *err)
{
    flim_dataset *copy = NULL;
    flim_reader *copy_reader = NULL;
    bool same = false;
    flim_status status = FLIM_OK;
    FLIM_TRY(flim_dataset_open(&unfinished, 1, &(flim_dataset_options){.trusted = true}, &copy, err));
    FLIM_TRY_DONE(flim_reader_create(copy, &copy_reader, err));
    FLIM_TRY_DONE(same_import(copy, c, &same, err));
    if (!same || !same_columns(&d->info, c, &copy->info)) {
        FLIM_TRY_DONE(flim_fail(
            err, FLIM_ERROR_WRITE,
            "%s: sizes, labels, groups, names or what flim_import noted read back differ from those written", unfinished));
    }
    for (int64_t i = 0; i < c->n; i++) {
        FLIM_TRY_DONE(interrupted(options, out, err));
        FLIM_TRY_DONE(flim_reader_counts(reader, c->cell[i], b->counts, b->mask, err));
        FLIM_TRY_DONE(flim_reader_counts(copy_reader, i, b->copy, b->copy_mask, err));
        if (memcmp(b->counts, b->copy, (size_t)d->voxels * sizeof *b->counts) != 0 ||
            memcmp(b->mask, b->copy_mask, (size_t)d->pixels) != 0) {
            status = flim_fail(err, FLIM_ERROR_WRITE, "%s: cell %" PRId64 " read back differs from what was written",
                               unfinished, i);
            goto done;
        }
    }
done:
    flim_reader_destroy(copy_reader);
    flim_dataset_close(copy);
    return status;
}

static int64_t file_size(const char *path)
{
    struct stat about;
    return stat(path, &about) == 0 ? (int64_t)about.st_size : 0;
}

flim_status flim_repack(const char *const *paths, int n_paths, const char *out, const flim_repack_options *options,
                        flim_repack_result *result, flim_error *err)
{
    flim_dataset *d = NULL;
    flim_reader *reader = NULL;
    flim_dataset_writer *writer = NULL;
    const char *unfinished = NULL;
    buffers b = {0};
    chosen c = {0};
    int bytes = 0;
    bool is_float = false;
    *result = (flim_repack_result){0};
    FLIM_TRY(flim_output_check(&(flim_output){.path = out, .kind = "a data file", .seeks = true}, err));
    const flim_dataset_options open = {.cache = FLIM_CACHE_AUTO, /* cells are looked at up to four times */
                                       .axes = options->axes,
                                       .allow_external = options->allow_external,
                                       .stop = options->stop,
                                       .log = options->log};
    flim_status status = FLIM_OK;
    FLIM_TRY_DONE(flim_dataset_open(paths, n_paths, &open, &d, err));
    FLIM_TRY_DONE(flim_reader_create(d, &reader, err));
    FLIM_TRY_DONE(make_buffers(&b, d, err));
    FLIM_TRY_DONE(choose_cells(&d->info, options, &c, err));
    FLIM_TRY_DONE(flim_import_columns_read(d, c.cell, c.n, options->log, &c.import, err));
    FLIM_TRY_DONE(choose_type(d, &c, reader, &b, options, out, &bytes, &is_float, err));
    for (int i = 0; i < n_paths; i++) {
        char others[1024];
        d->file[i].source->ops->others(d->file[i].source, others, sizeof others);
        if (others[0]) {
            flim_log_line(options->log, FLIM_LOG_NOTE, "%s: not copied: %s", paths[i], others);
        }
    }
    FLIM_TRY_DONE(write_all(d, &c, reader, &b, bytes, is_float, options, out, &writer, &unfinished, err));
    FLIM_TRY_DONE(compare(d, &c, reader, &b, unfinished, options, out, err));
    result->bytes_after = file_size(unfinished);
    FLIM_TRY_DONE(flim_dataset_writer_finish(writer, err));
    result->cells = c.n;
    result->cells_before = d->info.n;
    result->type = is_float ? "float32" : bytes == 1 ? "uint8" : bytes == 2 ? "uint16" : "uint32";
    for (int i = 0; i < n_paths; i++) {
        result->bytes_before += file_size(paths[i]);
    }
done:
    flim_dataset_writer_destroy(writer);
    free_buffers(&b);
    free_chosen(&c);
    flim_reader_destroy(reader);
    flim_dataset_close(d);
    return status;
}
