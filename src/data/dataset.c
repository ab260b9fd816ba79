#include "flim/dataset.h"

#include <math.h>
#include <string.h>
#include <sys/stat.h>

#include "core/alloc.h"
#include "core/bytes.h"
#include "core/sha256.h"
#include "data/dataset_internal.h"

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

void flim_dataset_log_cache(const flim_dataset *d, const flim_log *log)
{
    if (d->cache) {
        flim_log_line(log, FLIM_LOG_NOTE, "caching decoded cells in RAM (up to %.0f MiB; %.1f GiB free)",
                      flim_mib(d->info.cache_bytes), flim_gib(d->available_bytes));
    } else if (d->decoded_bytes) {
        flim_log_line(log, FLIM_LOG_NOTE,
                      "decoded cells are not cached, but read from the file each epoch: they need up to %.1f GiB, %.1f GiB "
                      "of RAM are free",
                      flim_gib(d->decoded_bytes), flim_gib(d->available_bytes));
    }
}

void flim_dataset_drop_cache(flim_dataset *d)
{
    flim_cell_cache_destroy(d->cache);
    d->cache = NULL;
    d->info.cache_bytes = 0;
}

void flim_dataset_close(flim_dataset *d)
{
    if (!d) {
        return;
    }
    for (int i = 0; d->file && i < d->info.n_files; i++) {
        if (d->file[i].source) {
            d->file[i].source->ops->close(d->file[i].source);
        }
    }
    flim_free(d->file);
    flim_cell_cache_destroy(d->cache);
    flim_free_list(d->path, d->info.n_files);
    flim_free_list(d->class_name, d->info.classes);
    flim_free_list(d->group_name, d->info.groups);
    flim_free_list(d->name, d->info.n);
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

bool flim_same_time_range(double a_ns, double b_ns)
{
    return a_ns <= 0 || b_ns <= 0 || fabs(a_ns - b_ns) <= 1e-5 * fmax(a_ns, b_ns);
}

const flim_dataset_info *flim_dataset_get_info(const flim_dataset *dataset)
{
    return &dataset->info;
}

const char *flim_dataset_path_of(const flim_dataset *dataset, int64_t cell, int64_t *local)
{
    return dataset->path[flim_dataset_locate(dataset, cell, local) - dataset->file];
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
