#include "flim/dataset.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "core/alloc.h"
#include "core/host_memory.h"
#include "core/sha256.h"
#include "core/try.h"
#include "data/columns.h"
#include "data/dataset_internal.h"
#include "data/probe.h"

const flim_dataset_file *flim_dataset_locate(const flim_dataset *dataset, int64_t cell, int64_t *local)
{
    int low = 0, high = dataset->info.n_files - 1;
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (dataset->file[middle].first <= cell) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    *local = cell - dataset->file[low].first;
    return &dataset->file[low];
}

/* "NTYX" in any order and case (H and W do for Y and X) -> out.  *use: NULL for the default, which lets the reader doubt a file
 * that looks otherwise; NTHW insists. */
static flim_status check_axes(const char *axes, char out[5], const char **use, flim_error *err)
{
    *use = NULL;
    if (!axes || !axes[0]) {
        return FLIM_OK;
    }
    size_t length = strlen(axes);
    for (size_t i = 0; i < 4 && i < length; i++) {
        char letter = (char)toupper((unsigned char)axes[i]);
        out[i] = letter == 'H' ? 'Y' : letter == 'W' ? 'X' : letter;
    }
    out[4] = '\0';
    if (length != 4 || !memchr(out, 'N', 4) || !memchr(out, 'T', 4) || !memchr(out, 'Y', 4) || !memchr(out, 'X', 4)) {
        return flim_fail(
            err, FLIM_ERROR_USAGE,
            "axes '%s': expected the letters N (cells), T (time), Y (rows), X (columns) in the file's order, as in "
            "NTYX or XYTN",
            axes);
    }
    *use = strcasecmp(axes, "NTYX") == 0 ? NULL : out;
    return FLIM_OK;
}

/* Two paths of one file: the same text, or (links, ../) the same place on the disk. */
static bool is_same_file(const char *a, const char *b)
{
    struct stat x, y;
    return strcmp(a, b) == 0 || (stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino);
}

/* Opens every file and lays its cells behind those of the one before. */
static flim_status open_files(flim_dataset *d, const char *const *paths, int n_paths, const char *axes,
                              const flim_dataset_options *options, flim_error *err)
{
    flim_dataset_info *info = &d->info;
    d->file = flim_alloc((size_t)n_paths, sizeof *d->file, err);
    d->path = flim_alloc((size_t)n_paths, sizeof *d->path, err);
    if (!d->file || !d->path) {
        return FLIM_ERROR_MEMORY;
    }
    info->path = (const char *const *)d->path;
    for (int i = 0; i < n_paths; i++) {
        flim_dataset_file *file = &d->file[i];
        info->n_files = i + 1;
        for (int j = 0; j < i; j++) {
            if (is_same_file(paths[i], paths[j])) {
                return flim_fail(err, FLIM_ERROR_USAGE,
                                 "%s is given twice%s%s: its cells would stand in several parts of a fold", paths[i],
                                 strcmp(paths[i], paths[j]) != 0 ? ", also as " : "",
                                 strcmp(paths[i], paths[j]) != 0 ? paths[j] : "");
            }
        }
        if (!(d->path[i] = flim_strdup(paths[i], err))) {
            return FLIM_ERROR_MEMORY;
        }
        struct stat about;
        if ((file->known = stat(paths[i], &about) == 0)) {
            file->device = about.st_dev;
            file->inode = about.st_ino;
            file->written = about.st_mtim;
        }
        flim_status status = flim_h5_open(paths[i], options->log, options->hdf5_errors, &file->h5, err);
        if (status == FLIM_OK) {
            status = flim_h5_cells_open(file->h5, axes, options->chunk_cache, options->log, &file->cells, err);
        }
        if (status != FLIM_OK) {
            return status;
        }
        const flim_h5_cells_info *cells = flim_h5_cells_get_info(file->cells);
        file->first = info->n;
        if (i == 0) {
            info->t = cells->t;
            info->h = cells->h;
            info->w = cells->w;
            info->counts_type = cells->type;
            info->layout = cells->layout;
        } else if (cells->t != info->t || cells->h != info->h || cells->w != info->w) {
            return flim_fail(err, FLIM_ERROR_DATA,
                             "%s: /counts has cells of (T,H,W) = (%d,%d,%d), those of %s are (%d,%d,%d); expected one shape",
                             paths[i], cells->t, cells->h, cells->w, paths[0], info->t, info->h, info->w);
        }
        info->n += cells->n;
        info->bytes_on_disk += cells->stored_bytes;
    }
    if (info->n > UINT32_MAX) {
        return flim_fail(err, FLIM_ERROR_DATA, "the data has %" PRId64 " cells, more than the %u that can be numbered",
                         info->n, UINT32_MAX);
    }
    d->pixels = (int64_t)info->h * info->w;
    d->voxels = d->pixels * info->t;
    return FLIM_OK;
}

static flim_status load_masks(flim_dataset *d, const char *axes, const flim_log *log, flim_error *err)
{
    int with = 0;
    int64_t bytes = d->info.n * d->pixels, limit = 0;
    for (int i = 0; i < d->info.n_files; i++) {
        with += flim_h5_has(d->file[i].h5, "mask");
        int64_t more = flim_h5_limit(d->file[i].h5);
        limit = limit > INT64_MAX - more ? INT64_MAX : limit + more;
    }
    if (with == 0) {
        return FLIM_OK;
    }
    for (int i = 0; i < d->info.n_files; i++) {
        if (!flim_h5_has(d->file[i].h5, "mask")) {
            return flim_fail(err, FLIM_ERROR_DATA,
                             "%s: there is no /mask, but %d of the other files %s; expected it in all or none", d->path[i],
                             with, with == 1 ? "has one" : "have one");
        }
    }
    if (bytes > limit) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s: /mask: %" PRId64 " bytes of masks are more than the file can hold",
                         d->path[0], bytes);
    }
    if (!(d->mask = flim_alloc((size_t)bytes, 1, err))) {
        return FLIM_ERROR_MEMORY;
    }
    for (int i = 0; i < d->info.n_files; i++) {
        int64_t other = 0;
        bool found = false;
        const flim_h5_cells_info *cells = flim_h5_cells_get_info(d->file[i].cells);
        FLIM_TRY(flim_h5_read_mask(d->file[i].h5, axes ? axes : "NTYX", cells->n, cells->h, cells->w,
                                   d->mask + d->file[i].first * d->pixels, &found, &other, err));
        if (other) {
            flim_log_line(log, FLIM_LOG_NOTE,
                          "%s: /mask holds %" PRId64
                          " values that are neither 0 nor 1 (255, numbers of cells ...): each counts "
                          "as inside, 1",
                          d->path[i], other);
        }
    }
    d->info.has_mask = true;
    return FLIM_OK;
}

static void note_misspelt(const flim_dataset *d, const flim_log *log)
{
    static const char *const names[] = {"label", "group", "mask", "name"};
    for (int i = 0; i < d->info.n_files; i++) {
        for (size_t j = 0; j < sizeof names / sizeof names[0]; j++) {
            char other[64], attribute[64];
            if (flim_h5_has(d->file[i].h5, names[j])) {
                continue;
            }
            flim_h5_similar(d->file[i].h5, names[j], other, attribute, sizeof other);
            if (other[0]) {
                flim_log_line(log, FLIM_LOG_WARNING, "%s: there is /%s but no /%s: it is not used; rename it if it is meant",
                              d->path[i], other, names[j]);
            } else if (attribute[0] && j < 2) { /* many a file has an attribute "name" of its own */
                flim_log_line(log, FLIM_LOG_WARNING,
                              "%s: there is an attribute %s but no /%s: it is not used; write it as a dataset, one value a "
                              "cell, if it is meant",
                              d->path[i], attribute, names[j]);
            }
        }
    }
}

static flim_status load_time_range(flim_dataset *d, flim_error *err)
{
    for (int i = 0; i < d->info.n_files; i++) {
        double range = 0;
        FLIM_TRY(flim_h5_attribute_number(d->file[i].h5, "time_range_ns", &range, err));
        if (range != 0 && !(range > 0 && range < 1e9)) {
            return flim_fail(err, FLIM_ERROR_DATA, "%s: attribute time_range_ns: found %g, expected nanoseconds above 0",
                             d->path[i], range);
        }
        if (d->info.time_range_ns == 0) {
            d->info.time_range_ns = range;
        }
    }
    return FLIM_OK;
}

/* Room for decoded counts, where the options ask for it and memory allows. */
static flim_status make_cache(flim_dataset *d, const flim_dataset_options *options, flim_error *err)
{
    if (options->cache == FLIM_CACHE_NONE) {
        return FLIM_OK;
    }
    size_t size = 1;
    for (int i = 0; i < d->info.n_files; i++) {
        flim_number number = flim_h5_cells_get_info(d->file[i].cells)->number;
        size = number.kind == FLIM_UNSIGNED && number.size == 1 ? size : 2;
    }
    int64_t available = flim_host_memory_now().available, voxel_bytes = d->voxels * (int64_t)size;
    int64_t bytes = voxel_bytes > INT64_MAX / d->info.n ? INT64_MAX : voxel_bytes * d->info.n;
    int64_t most = options->cache == FLIM_CACHE_HOST ? available : available / 2;
    d->decoded_bytes = bytes;
    d->available_bytes = available;
    if (bytes > most && options->cache == FLIM_CACHE_HOST) {
        return flim_fail(
            err, FLIM_ERROR_MEMORY,
            "the decoded counts take up to %.1f GiB and %.1f GiB of memory are available; without the cache they are "
            "read from the file each time",
            (double)bytes / 0x1p30, (double)available / 0x1p30);
    }
    if (bytes <= most) {
        FLIM_TRY(flim_cell_cache_create(d->info.n, d->voxels, size, &d->cache, err));
        d->info.cache_bytes = bytes;
    }
    if (options->cache != FLIM_CACHE_DEVICE) {
        flim_dataset_log_cache(d, options->log);
    }
    return FLIM_OK;
}

void flim_dataset_log_cache(const flim_dataset *d, const flim_log *log)
{
    if (d->cache) {
        flim_log_line(log, FLIM_LOG_NOTE,
                      "cells stay in host memory once they are read: at most %.0f MiB of %.1f GiB available",
                      (double)d->info.cache_bytes / 0x1p20, (double)d->available_bytes / 0x1p30);
    } else if (d->decoded_bytes) {
        flim_log_line(
            log, FLIM_LOG_NOTE,
            "cells are read from the file each time: decoded they take up to %.1f GiB, %.1f GiB of memory are available",
            (double)d->decoded_bytes / 0x1p30, (double)d->available_bytes / 0x1p30);
    }
}

void flim_dataset_drop_cache(flim_dataset *d)
{
    flim_cell_cache_destroy(d->cache);
    d->cache = NULL;
    d->info.cache_bytes = 0;
}

flim_status flim_dataset_open(const char *const *paths, int n_paths, const flim_dataset_options *options, flim_dataset **out,
                              flim_error *err)
{
    static const flim_dataset_options none = {0};
    *out = NULL;
    options = options ? options : &none;
    if (n_paths < 1) {
        return flim_fail(err, FLIM_ERROR_USAGE, "no data file was given");
    }
    bool ended = true;
    flim_status status = options->trusted ? FLIM_OK : flim_dataset_probe(paths, n_paths, options, &ended, err);
    if (status != FLIM_OK && !(options->hdf5_errors && ended)) { /* the child's stacks went with it */
        return status;
    }
    return flim_dataset_open_here(paths, n_paths, options, out, err);
}

flim_status flim_dataset_open_here(const char *const *paths, int n_paths, const flim_dataset_options *options,
                                   flim_dataset **out, flim_error *err)
{
    flim_status status;
    char axes_text[5];
    const char *axes;
    *out = NULL;
    if ((status = check_axes(options->axes, axes_text, &axes, err)) != FLIM_OK) {
        return status;
    }
    flim_dataset *d = flim_alloc(1, sizeof *d, err);
    if (!d) {
        return FLIM_ERROR_MEMORY;
    }
    d->mask_counts = options->mask_counts;
    if ((status = open_files(d, paths, n_paths, axes, options, err)) != FLIM_OK ||
        (status = flim_columns_load(d, options, err)) != FLIM_OK ||
        (status = load_masks(d, axes, options->log, err)) != FLIM_OK || (status = load_time_range(d, err)) != FLIM_OK) {
        goto done;
    }
    note_misspelt(d, options->log);
    if (!(d->table = flim_alloc_aligned(FLIM_TABLE_SIZE, sizeof *d->table, err))) {
        status = FLIM_ERROR_MEMORY;
        goto done;
    }
    flim_signal_table(d->table);
    if ((status = make_cache(d, options, err)) != FLIM_OK) {
        goto done;
    }
    d->info.thread_safe_library = flim_h5_thread_safe();
done:
    if (status == FLIM_OK) {
        *out = d;
    } else {
        flim_dataset_close(d);
    }
    return status;
}

static void free_strings(char **list, int64_t n)
{
    for (int64_t i = 0; list && i < n; i++) {
        flim_free(list[i]);
    }
    flim_free(list);
}

void flim_dataset_close(flim_dataset *d)
{
    if (!d) {
        return;
    }
    for (int i = 0; d->file && i < d->info.n_files; i++) {
        flim_h5_cells_close(d->file[i].cells);
        flim_h5_close(d->file[i].h5);
    }
    flim_free(d->file);
    flim_cell_cache_destroy(d->cache);
    free_strings(d->path, d->info.n_files);
    free_strings(d->class_name, d->info.classes);
    free_strings(d->group_name, d->info.groups);
    free_strings(d->name, d->info.n);
    flim_free(d->label);
    flim_free(d->group);
    flim_free(d->mask);
    flim_free(d->table);
    flim_free(d);
}

const char *flim_dataset_changed_file(const flim_dataset *dataset)
{
    for (int i = 0; i < dataset->info.n_files; i++) {
        const flim_dataset_file *file = &dataset->file[i];
        struct stat about;
        /* Another file under the same name is none of ours: the one that was opened stays open. */
        if (file->known && stat(dataset->path[i], &about) == 0 && about.st_dev == file->device &&
            about.st_ino == file->inode &&
            (about.st_mtim.tv_sec != file->written.tv_sec || about.st_mtim.tv_nsec != file->written.tv_nsec)) {
            return dataset->path[i];
        }
    }
    return NULL;
}

const flim_dataset_info *flim_dataset_get_info(const flim_dataset *dataset)
{
    return &dataset->info;
}

static void digest_i64(flim_sha256 *hash, int64_t value)
{
    unsigned char bytes[8];
    for (int i = 0; i < 8; i++) {
        bytes[i] = (unsigned char)((uint64_t)value >> (8 * i));
    }
    flim_sha256_add(hash, bytes, sizeof bytes);
}

void flim_dataset_sha256(const flim_dataset *dataset, char out[65])
{
    const flim_dataset_info *info = &dataset->info;
    flim_sha256 hash;
    out[0] = '\0';
    if (flim_sha256_begin(&hash, NULL) != FLIM_OK) {
        return;
    }
    digest_i64(&hash, info->n);
    digest_i64(&hash, info->t);
    digest_i64(&hash, info->h);
    digest_i64(&hash, info->w);
    for (int64_t i = 0; info->label && i < info->n; i++) {
        digest_i64(&hash, info->label[i]);
    }
    for (int64_t i = 0; info->group && i < info->n; i++) {
        const char *text = info->group_name[info->group[i]];
        flim_sha256_add(&hash, text, strlen(text) + 1);
    }
    for (int64_t i = 0; info->name && i < info->n; i++) {
        flim_sha256_add(&hash, info->name[i], strlen(info->name[i]) + 1);
    }
    flim_sha256_end(&hash, out);
}
