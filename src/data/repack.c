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

/* Whole numbers in all cells?  A data set of integer types needs no look. */
static flim_status all_whole(flim_dataset *d, flim_reader *reader, buffers *b, const flim_repack_options *options,
                             const char *out, bool *whole, flim_error *err)
{
    *whole = true;
    for (int64_t cell = 0; cell < d->info.n && *whole; cell++) {
        int64_t local;
        if (flim_dataset_locate(d, cell, &local)->source->info.number.kind != FLIM_FLOAT) {
            continue;
        }
        FLIM_TRY(interrupted(options, out, err));
        FLIM_TRY(flim_reader_counts(reader, cell, b->counts, NULL, err));
        for (int64_t i = 0; i < d->voxels && *whole; i++) {
            *whole = b->counts[i] == floorf(b->counts[i]);
        }
    }
    return FLIM_OK;
}

/* The smallest type that holds every count: bytes and whether it is a float. */
static flim_status choose_type(flim_dataset *d, flim_reader *reader, buffers *b, const flim_repack_options *options,
                               const char *out, int *bytes, bool *is_float, flim_error *err)
{
    double most = 0;
    bool whole = true;
    flim_status status = FLIM_OK;
    flim_cell_summary *summary = flim_alloc((size_t)d->info.n, sizeof *summary, err);
    if (!summary) {
        return FLIM_ERROR_MEMORY;
    }
    FLIM_TRY_DONE(flim_dataset_scan(d, options->workers, options->stop, NULL, summary, NULL, NULL, err));
    for (int64_t i = 0; i < d->info.n; i++) {
        most = summary[i].max_count > most ? summary[i].max_count : most;
    }
    FLIM_TRY_DONE(all_whole(d, reader, b, options, out, &whole, err));
    /* float32 carries whole numbers up to 2^24; the reader hands counts over as float32, so more cannot be told apart */
    *is_float = !whole;
    *bytes = !whole ? 4 : most <= 255 ? 1 : most <= 65535 ? 2 : 4;
    if (whole && most > 16777216.0) {
        status = flim_fail(err, FLIM_ERROR_DATA, "a count of %.0f: above 16777216 counts cannot be copied exactly", most);
    }
done:
    flim_free(summary);
    return status;
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

/* Groups that are numbers stay numbers, so that their order stays.  number: (n) or NULL if they are not. */
static flim_status group_numbers(const flim_dataset_info *info, int64_t **number, flim_error *err)
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
    if (!info->group || !(*number = flim_alloc((size_t)info->n, sizeof **number, err))) {
        return info->group ? FLIM_ERROR_MEMORY : FLIM_OK;
    }
    for (int64_t i = 0; i < info->n; i++) {
        flim_parse_i64("group", info->group_name[info->group[i]], INT64_MIN, INT64_MAX, &(*number)[i], NULL);
    }
    return FLIM_OK;
}

/* *out_writer is the caller's to finish or destroy; *unfinished is where the file can be read till then. */
static flim_status write_all(flim_dataset *d, flim_reader *reader, buffers *b, int bytes, bool is_float,
                             const flim_repack_options *options, const char *out, flim_dataset_writer **out_writer,
                             const char **unfinished, flim_error *err)
{
    const flim_dataset_info *info = &d->info;
    flim_dataset_writer *writer = NULL;
    const char **group = NULL;
    int64_t *number = NULL;
    flim_status status = FLIM_OK;
    FLIM_TRY(group_numbers(info, &number, err));
    if (info->group && !number && !(group = flim_alloc((size_t)info->n, sizeof *group, err))) {
        return FLIM_ERROR_MEMORY;
    }
    for (int64_t i = 0; group && i < info->n; i++) {
        group[i] = info->group_name[info->group[i]];
    }
    const flim_dataset_layout layout = {.n = info->n,
                                        .t = info->t,
                                        .h = info->h,
                                        .w = info->w,
                                        .count_bytes = bytes,
                                        .count_float = is_float,
                                        .mask = info->has_mask,
                                        .classes = real_class_names(info) ? info->classes : 0,
                                        .class_name = info->class_name,
                                        .label = info->label,
                                        .group = group,
                                        .group_number = number,
                                        .name = info->name,
                                        .time_range_ns = info->time_range_ns};
    FLIM_TRY_DONE(flim_dataset_writer_create(out, &layout, &writer, err));
    for (int64_t cell = 0; cell < info->n; cell++) {
        FLIM_TRY_DONE(interrupted(options, out, err));
        FLIM_TRY_DONE(flim_reader_counts(reader, cell, b->counts, b->mask, err));
        pack(b->counts, d->voxels, bytes, is_float, b->packed);
        FLIM_TRY_DONE(flim_dataset_writer_cell(writer, cell, b->packed, info->has_mask ? b->mask : NULL, err));
    }
    status = flim_dataset_writer_close(writer, unfinished, err);
done:
    *out_writer = writer;
    flim_free(group);
    flim_free(number);
    return status;
}

/* Is what was written what was read?  Every cell and column. */
static flim_status compare(flim_dataset *d, flim_reader *reader, buffers *b, const char *unfinished,
                           const flim_repack_options *options, const char *out, flim_error *err)
{
    flim_dataset *copy = NULL;
    flim_reader *copy_reader = NULL;
    char before[65], after[65];
    flim_status status = FLIM_OK;
    FLIM_TRY(flim_dataset_open(&unfinished, 1, &(flim_dataset_options){.trusted = true}, &copy, err));
    FLIM_TRY_DONE(flim_reader_create(copy, &copy_reader, err));
    flim_dataset_sha256(d, before);
    flim_dataset_sha256(copy, after);
    if (strcmp(before, after) != 0 || copy->info.has_mask != d->info.has_mask) {
        status = flim_fail(err, FLIM_ERROR_WRITE, "%s: sizes, labels, groups or names read back differ from those written",
                           unfinished);
        goto done;
    }
    for (int64_t cell = 0; cell < d->info.n; cell++) {
        FLIM_TRY_DONE(interrupted(options, out, err));
        FLIM_TRY_DONE(flim_reader_counts(reader, cell, b->counts, b->mask, err));
        FLIM_TRY_DONE(flim_reader_counts(copy_reader, cell, b->copy, b->copy_mask, err));
        if (memcmp(b->counts, b->copy, (size_t)d->voxels * sizeof *b->counts) != 0 ||
            memcmp(b->mask, b->copy_mask, (size_t)d->pixels) != 0) {
            status = flim_fail(err, FLIM_ERROR_WRITE, "%s: cell %" PRId64 " read back differs from what was written",
                               unfinished, cell);
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
    int bytes = 0;
    bool is_float = false;
    *result = (flim_repack_result){0};
    FLIM_TRY(flim_output_check(&(flim_output){.path = out, .kind = "a data file", .seeks = true}, err));
    const flim_dataset_options open = {
        .axes = options->axes, .allow_external = options->allow_external, .stop = options->stop, .log = options->log};
    flim_status status = FLIM_OK;
    FLIM_TRY_DONE(flim_dataset_open(paths, n_paths, &open, &d, err));
    FLIM_TRY_DONE(flim_reader_create(d, &reader, err));
    FLIM_TRY_DONE(make_buffers(&b, d, err));
    FLIM_TRY_DONE(choose_type(d, reader, &b, options, out, &bytes, &is_float, err));
    for (int i = 0; i < n_paths; i++) {
        char others[1024];
        d->file[i].source->ops->others(d->file[i].source, others, sizeof others);
        if (others[0]) {
            flim_log_line(options->log, FLIM_LOG_NOTE, "%s: not copied: %s", paths[i], others);
        }
    }
    FLIM_TRY_DONE(write_all(d, reader, &b, bytes, is_float, options, out, &writer, &unfinished, err));
    FLIM_TRY_DONE(compare(d, reader, &b, unfinished, options, out, err));
    result->bytes_after = file_size(unfinished);
    FLIM_TRY_DONE(flim_dataset_writer_finish(writer, err));
    result->cells = d->info.n;
    result->type = is_float ? "float32" : bytes == 1 ? "uint8" : bytes == 2 ? "uint16" : "uint32";
    for (int i = 0; i < n_paths; i++) {
        result->bytes_before += file_size(paths[i]);
    }
done:
    flim_dataset_writer_destroy(writer);
    free_buffers(&b);
    flim_reader_destroy(reader);
    flim_dataset_close(d);
    return status;
}
