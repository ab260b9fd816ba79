/* Opening: files, columns, masks and the cache of a data set, in this process. */
#include "data/dataset_open.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "core/alloc.h"
#include "core/bytes.h"
#include "core/host_memory.h"
#include "core/try.h"
#include "data/columns.h"
#include "data/dataset_internal.h"
#include "data/format.h"

/* "NTYX" in any order and case (H and W do for Y and X) -> out.  *use: NULL for the default, which lets the reader doubt a
 * file that looks otherwise; NTHW insists. */
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

/* Is file i one of those before it: the same text, or (links, ../) the same file on the disk? */
static flim_status check_twice(const flim_dataset_file *file, const char *const *paths, int i, flim_error *err)
{
    for (int j = 0; j < i; j++) {
        const bool one = file[i].known && file[j].known && file[i].device == file[j].device && file[i].inode == file[j].inode;
        if (one || strcmp(paths[i], paths[j]) == 0) {
            const bool differ = strcmp(paths[i], paths[j]) != 0;
            return flim_fail(err, FLIM_ERROR_USAGE, "%s is given twice%s%s: its cells would be in several sets of a fold",
                             paths[i], differ ? ", also as " : "", differ ? paths[j] : "");
        }
    }
    return FLIM_OK;
}

/* Opens every file; its cells follow those of the file before. */
static flim_status open_files(flim_dataset *d, const char *const *paths, int n_paths, const flim_source_options *options,
                              flim_error *err)
{
    flim_dataset_info *info = &d->info;
    if (!(d->file = flim_alloc((size_t)n_paths, sizeof *d->file, err)) ||
        !(d->path = flim_alloc((size_t)n_paths, sizeof *d->path, err))) {
        return FLIM_ERROR_MEMORY;
    }
    info->path = (const char *const *)d->path;
    for (int i = 0; i < n_paths; i++) {
        flim_dataset_file *file = &d->file[i];
        struct stat about;
        info->n_files = i + 1;
        if (!(d->path[i] = flim_strdup(paths[i], err))) {
            return FLIM_ERROR_MEMORY;
        }
        if ((file->known = stat(paths[i], &about) == 0)) {
            file->device = about.st_dev;
            file->inode = about.st_ino;
            file->written = about.st_mtim;
        }
        FLIM_TRY(check_twice(d->file, paths, i, err));
        FLIM_TRY(flim_format_of(paths[i])->open(paths[i], options, &file->source, err));
        const flim_source_info *cells = &file->source->info;
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
    int64_t limit = 0;
    const int64_t bytes =
        d->pixels > INT64_MAX / d->info.n ? INT64_MAX : d->info.n * d->pixels; /* a sparse file can say so */
    for (int i = 0; i < d->info.n_files; i++) {
        const flim_source *source = d->file[i].source;
        with += source->ops->has(d->file[i].source, "mask");
        int64_t more = source->ops->limit(source);
        limit = limit > INT64_MAX - more ? INT64_MAX : limit + more;
    }
    if (with == 0) {
        return FLIM_OK;
    }
    for (int i = 0; i < d->info.n_files; i++) {
        if (!d->file[i].source->ops->has(d->file[i].source, "mask")) {
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
        bool found = false;
        flim_source *source = d->file[i].source;
        flim_mask_values *seen = &d->file[i].mask_values;
        FLIM_TRY(
            source->ops->read_mask(source, axes ? axes : "NTYX", d->mask + d->file[i].first * d->pixels, &found, seen, err));
        if (seen->other > seen->soft && !seen->mixed) { /* the rest is a finding */
            flim_log_line(log, FLIM_LOG_NOTE,
                          "%s: /mask has %" PRId64
                          " values that are neither 0 nor 1 (255, numbers of cells ...): each counts "
                          "as inside, 1",
                          d->path[i], seen->other);
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
            flim_source *source = d->file[i].source;
            char other[64], attribute[64];
            if (source->ops->has(source, names[j])) {
                continue;
            }
            source->ops->similar(source, names[j], other, attribute, sizeof other);
            if (other[0]) {
                flim_log_line(log, FLIM_LOG_WARNING, "%s: there is /%s but no /%s: it is not used; rename it if it is meant",
                              d->path[i], other, names[j]);
            } else if (attribute[0] && j < 2) { /* many a file has an attribute "name" of its own */
                flim_log_line(log, FLIM_LOG_WARNING,
                              "%s: there is an attribute %s but no /%s: it is not used; write it as a dataset, one value per "
                              "cell, if it is meant",
                              d->path[i], attribute, names[j]);
            }
        }
    }
}

/* The files' bins must be as wide: the same decay would look like another lifetime. */
static flim_status load_time_range(flim_dataset *d, const flim_log *log, flim_error *err)
{
    int first = -1, silent = -1; /* the first file that says it, and one that does not */
    for (int i = 0; i < d->info.n_files; i++) {
        double range = 0;
        FLIM_TRY(d->file[i].source->ops->attribute_number(d->file[i].source, "time_range_ns", &range, err));
        if (range != 0 && !(range > 0 && range < 1e9)) {
            return flim_fail(err, FLIM_ERROR_DATA, "%s: attribute time_range_ns: found %g, expected nanoseconds above 0",
                             d->path[i], range);
        }
        if (range == 0) {
            silent = i;
        } else if (first < 0) {
            first = i;
            d->info.time_range_ns = range;
        } else if (!flim_same_time_range(range, d->info.time_range_ns)) {
            return flim_fail(
                err, FLIM_ERROR_DATA,
                "%s: time_range_ns is %.9g (bins of %.4g ns), that of %s is %.9g (bins of %.4g ns): the same decay "
                "would look like another lifetime. Leave one of them out, or correct the attribute",
                d->path[i], range, range / d->info.t, d->path[first], d->info.time_range_ns,
                d->info.time_range_ns / d->info.t);
        }
    }
    if (first >= 0 && silent >= 0) {
        flim_log_line(log, FLIM_LOG_WARNING, "%s has no time_range_ns; using that of %s, %.9g ns", d->path[silent],
                      d->path[first], d->info.time_range_ns);
    }
    return FLIM_OK;
}

/* Memory for decoded counts, if the options ask for it and it is there. */
static flim_status make_cache(flim_dataset *d, const flim_dataset_options *options, flim_error *err)
{
    if (options->cache == FLIM_CACHE_NONE) {
        return FLIM_OK;
    }
    size_t size = 1;
    for (int i = 0; i < d->info.n_files; i++) {
        flim_number number = d->file[i].source->info.number;
        size = number.kind == FLIM_UNSIGNED && number.size == 1 ? size : 2;
    }
    int64_t available = flim_host_memory_now().available / (options->processes > 1 ? options->processes : 1);
    int64_t voxel_bytes = d->voxels * (int64_t)size;
    int64_t bytes = voxel_bytes > INT64_MAX / d->info.n ? INT64_MAX : voxel_bytes * d->info.n;
    int64_t most = options->cache == FLIM_CACHE_HOST ? available : available / 2;
    d->decoded_bytes = bytes;
    d->available_bytes = available;
    if (bytes > most && options->cache == FLIM_CACHE_HOST) {
        return flim_fail(err, FLIM_ERROR_MEMORY,
                         "the decoded counts take up to %.1f GiB and %.1f GiB of memory are available; without the cache "
                         "they are read from the file each epoch",
                         flim_gib(bytes), flim_gib(available));
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

flim_status flim_dataset_open_here(const char *const *paths, int n_paths, const flim_dataset_options *options,
                                   bool first_look, flim_dataset **out, flim_error *err)
{
    flim_status status = FLIM_OK;
    char axes_text[5];
    flim_source_options source = {.chunk_cache = options->chunk_cache,
                                  .allow_external = options->allow_external,
                                  .first_look = first_look,
                                  .stop = options->stop,
                                  .log = options->log,
                                  .errors = options->hdf5_errors};
    *out = NULL;
    FLIM_TRY(check_axes(options->axes, axes_text, &source.axes, err));
    flim_dataset *d = flim_alloc(1, sizeof *d, err);
    if (!d) {
        return FLIM_ERROR_MEMORY;
    }
    d->mask_counts = options->mask_counts;
    FLIM_TRY_DONE(open_files(d, paths, n_paths, &source, err));
    FLIM_TRY_DONE(flim_columns_load(d, options, err));
    FLIM_TRY_DONE(load_masks(d, source.axes, options->log, err));
    FLIM_TRY_DONE(load_time_range(d, options->log, err));
    note_misspelt(d, options->log);
    if (!(d->table = flim_alloc_aligned(FLIM_TABLE_SIZE, sizeof *d->table, err))) {
        status = FLIM_ERROR_MEMORY;
        goto done;
    }
    flim_signal_table(d->table);
    FLIM_TRY_DONE(make_cache(d, options, err));
    d->info.thread_safe_library = flim_format_of(paths[0])->thread_safe();
done:
    if (status == FLIM_OK) {
        *out = d;
    } else {
        flim_dataset_close(d);
    }
    return status;
}
