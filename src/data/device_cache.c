#include "data/device_cache.h"

#include <pthread.h>

#include "core/alloc.h"
#include "core/stop.h"
#include "core/threads.h"
#include "core/try.h"
#include "data/dataset_internal.h"

void flim_device_cache_widths(const flim_dataset *dataset, const flim_cell_summary *summary, uint8_t *bytes)
{
    for (int64_t i = 0; i < dataset->info.n; i++) {
        int64_t local;
        flim_number number = flim_dataset_locate(dataset, i, &local)->source->info.number;
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

/* Shared by the threads of one upload. */
typedef struct upload {
    flim_program *program;
    flim_dataset *dataset;
    const uint8_t *bytes; /* (n) */
    const volatile int *stop;
    pthread_mutex_t lock; /* a program takes one cell at a time */
} upload;

/* A thread's own. */
typedef struct scratch {
    flim_reader *reader;
    float *counts; /* (T,H,W) */
    void *voxels; /* (T,H,W) of up to 4 bytes, as the program wants them */
    uint8_t *mask; /* (H,W) */
} scratch;

static flim_status begin_thread(void *context, void *own, flim_error *err)
{
    const upload *u = context;
    scratch *my = own;
    if (!(my->counts = flim_alloc_aligned((size_t)u->dataset->voxels, sizeof(float), err)) ||
        !(my->voxels = flim_alloc_aligned((size_t)u->dataset->voxels, sizeof(float), err)) ||
        !(my->mask = flim_alloc_aligned((size_t)u->dataset->pixels, 1, err))) {
        return FLIM_ERROR_MEMORY;
    }
    return flim_reader_create(u->dataset, &my->reader, err);
}

static void end_thread(void *own)
{
    scratch *my = own;
    flim_reader_destroy(my->reader);
    flim_free(my->counts);
    flim_free(my->voxels);
    flim_free(my->mask);
}

static flim_status upload_cell(void *context, void *own, int64_t cell, flim_error *err)
{
    upload *u = context;
    scratch *my = own;
    const int64_t count = u->dataset->voxels;
    if (flim_stopped(u->stop)) {
        return flim_fail(err, FLIM_INTERRUPTED, "interrupted while cells went to the device");
    }
    FLIM_TRY(flim_reader_counts(my->reader, cell, my->counts, my->mask, err));
    if (u->bytes[cell] == 4) {
        flim_signal_from_counts(my->counts, my->voxels, count);
    } else if (flim_counts_bytes(my->counts, count) > u->bytes[cell]) {
        return flim_fail(err, FLIM_ERROR_DATA, "/counts: cell %lld has other counts than when it was scanned",
                         (long long)cell);
    } else {
        flim_counts_narrow(my->counts, count, u->bytes[cell], my->voxels);
    }
    pthread_mutex_lock(&u->lock);
    const flim_status status = flim_program_store_cell(u->program, cell, my->voxels, my->mask, err);
    pthread_mutex_unlock(&u->lock);
    return status;
}

flim_status flim_device_cache_fill(flim_program *program, flim_dataset *dataset, const uint8_t *bytes, int workers,
                                   const volatile int *stop, flim_error *err)
{
    upload u = {.program = program, .dataset = dataset, .bytes = bytes, .stop = stop, .lock = PTHREAD_MUTEX_INITIALIZER};
    const flim_shared_work work = {.items = dataset->info.n,
                                   .stride = 1,
                                   .context = &u,
                                   .begin = begin_thread,
                                   .item = upload_cell,
                                   .end = end_thread,
                                   .own_bytes = sizeof(scratch)};
    return flim_share_work(&work, workers, err);
}
