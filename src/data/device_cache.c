#include "data/device_cache.h"

#include <pthread.h>

#include "core/alloc.h"
#include "core/stop.h"
#include "core/try.h"
#include "data/dataset_internal.h"

void flim_device_cache_widths(const flim_dataset *dataset, const flim_cell_summary *summary, uint8_t *bytes)
{
    for (int64_t i = 0; i < dataset->info.n; i++) {
        int64_t local;
        flim_number number = flim_h5_cells_get_info(flim_dataset_locate(dataset, i, &local)->cells)->number;
        size_t widest = number.kind == FLIM_UNSIGNED && number.size <= 2 ? number.size : 4;
        bytes[i] = (uint8_t)(summary ? (size_t)summary[i].count_bytes : widest);
    }
}

int64_t flim_device_cache_bytes(const flim_dataset *dataset, const uint8_t *bytes)
{
    int64_t sum = dataset->info.n * (dataset->pixels + (int64_t)sizeof(uint64_t)) + FLIM_TABLE_SIZE * (int64_t)sizeof(float);
    for (int64_t i = 0; i < dataset->info.n; i++) {
        sum += (dataset->voxels * bytes[i] + 15) / 16 * 16;
    }
    return sum;
}

flim_status flim_device_cache_plan(flim_program *program, const flim_dataset *dataset, const uint8_t *bytes, flim_error *err)
{
    const flim_device_cache cells = {.n = dataset->info.n, .bytes = bytes, .value = dataset->table};
    return flim_program_plan_cache(program, &cells, err);
}

/* Shared by the threads of one store, under `lock` but for what is constant. */
typedef struct store {
    flim_program *program;
    flim_dataset *dataset;
    const uint8_t *bytes; /* (n) */
    const volatile int *stop;
    pthread_mutex_t lock; /* also: a program takes one cell at a time */
    int64_t next;
    flim_error failure;
} store;

/* One cell as the program wants it.  voxels: room for (T,H,W) floats. */
static flim_status read_cell(store *s, flim_reader *reader, int64_t cell, float *counts, void *voxels, uint8_t *mask,
                             flim_error *err)
{
    const int64_t count = s->dataset->voxels;
    FLIM_TRY(flim_reader_counts(reader, cell, counts, mask, err));
    if (s->bytes[cell] == 4) {
        flim_signal_from_counts(counts, voxels, count);
    } else if (flim_counts_bytes(counts, count) > s->bytes[cell]) {
        return flim_fail(err, FLIM_ERROR_DATA, "/counts: cell %lld has other counts than when it was scanned",
                         (long long)cell);
    } else {
        flim_counts_narrow(counts, count, s->bytes[cell], voxels);
    }
    return FLIM_OK;
}

static void *store_thread(void *argument)
{
    store *s = argument;
    const flim_dataset *d = s->dataset;
    flim_error err = {0};
    flim_reader *reader = NULL;
    float *counts = flim_alloc_aligned((size_t)d->voxels, sizeof *counts, &err); /* (T,H,W) */
    float *voxels = flim_alloc_aligned((size_t)d->voxels, sizeof *voxels, &err); /* (T,H,W) of up to 4 bytes */
    uint8_t *mask = flim_alloc_aligned((size_t)d->pixels, 1, &err); /* (H,W) */
    flim_status status = counts && voxels && mask ? flim_reader_create(s->dataset, &reader, &err) : FLIM_ERROR_MEMORY;
    pthread_mutex_lock(&s->lock);
    while (status == FLIM_OK && s->failure.status == FLIM_OK && s->next < d->info.n) {
        int64_t cell = s->next++;
        pthread_mutex_unlock(&s->lock);
        status = flim_stopped(s->stop) ? flim_fail(&err, FLIM_INTERRUPTED, "interrupted while cells went to the device")
                                       : read_cell(s, reader, cell, counts, voxels, mask, &err);
        pthread_mutex_lock(&s->lock);
        if (status == FLIM_OK) {
            status = flim_program_store_cell(s->program, cell, voxels, mask, &err);
        }
    }
    if (status != FLIM_OK && s->failure.status == FLIM_OK) {
        s->failure = err;
    }
    pthread_mutex_unlock(&s->lock);
    flim_reader_destroy(reader);
    flim_free(counts);
    flim_free(voxels);
    flim_free(mask);
    return NULL;
}

flim_status flim_device_cache_fill(flim_program *program, flim_dataset *dataset, const uint8_t *bytes, int workers,
                                   const volatile int *stop, flim_error *err)
{
    store s = {.program = program, .dataset = dataset, .bytes = bytes, .stop = stop, .lock = PTHREAD_MUTEX_INITIALIZER};
    int started = 0;
    pthread_t *thread = flim_alloc((size_t)workers, sizeof *thread, err);
    if (!thread) {
        return FLIM_ERROR_MEMORY;
    }
    while (started < workers && pthread_create(&thread[started], NULL, store_thread, &s) == 0) {
        started++;
    }
    if (started == 0) {
        store_thread(&s); /* no thread to be had: here then */
    }
    for (int i = 0; i < started; i++) {
        pthread_join(thread[i], NULL);
    }
    flim_free(thread);
    return s.failure.status == FLIM_OK ? FLIM_OK : flim_fail(err, s.failure.status, "%s", s.failure.text);
}
