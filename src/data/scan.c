#include "data/scan.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/stop.h"
#include "data/dataset_internal.h"

/* Shared by the threads of one scan, under `lock` but for what is constant. */
typedef struct scan {
    flim_dataset *dataset;
    const volatile int *stop;
    flim_cell_summary *summary; /* (n) or NULL; each entry is written by one thread */
    double *masked_decay; /* (n,T) or NULL; likewise */
    int64_t most;
    pthread_mutex_t lock;
    int64_t next, bad, listed, capacity;
    flim_bad_cell *list;
    flim_error failure; /* of the scan itself */
} scan;

enum { STRIDE = 16 }; /* cells taken at a time */

static void summarise(const flim_dataset *d, const float *counts, const uint8_t *mask, double *decay, flim_cell_summary *out)
{
    *out = (flim_cell_summary){.peak_bin = -1};
    float most = 0.0f;
    for (int t = 0; t < d->info.t; t++) {
        const float *frame = counts + (int64_t)t * d->pixels;
        double sum = 0;
        int64_t zeros = 0;
        for (int64_t i = 0; i < d->pixels; i++) {
            sum += frame[i];
            zeros += frame[i] == 0.0f;
            most = frame[i] > most ? frame[i] : most;
        }
        decay[t] = sum;
        out->photons += sum;
        out->zero_voxels += zeros;
        if (sum > 0 && (out->peak_bin < 0 || sum > decay[out->peak_bin])) {
            out->peak_bin = t;
        }
    }
    out->max_count = most;
    out->count_bytes = flim_counts_bytes(counts, d->voxels);
    for (int64_t i = 0; i < d->pixels; i++) {
        out->mask_pixels += mask[i];
    }
}

/* decay (T): counts of each time bin summed over the mask. */
static void sum_over_mask(const flim_dataset *d, const float *counts, const uint8_t *mask, double *decay)
{
    for (int t = 0; t < d->info.t; t++) {
        const float *frame = counts + (int64_t)t * d->pixels;
        decay[t] = 0;
        for (int64_t i = 0; i < d->pixels; i++) {
            decay[t] += mask[i] ? (double)frame[i] : 0.0;
        }
    }
}

/* Under the lock: keeps the `most` bad cells with the lowest numbers. */
static void note_bad(scan *s, int64_t cell, const char *text)
{
    s->bad++;
    if (s->listed == s->most) {
        if (s->most == 0 || s->list[s->listed - 1].cell < cell) {
            return;
        }
        flim_free(s->list[--s->listed].text);
    }
    if (s->listed == s->capacity) {
        int64_t capacity = s->capacity ? 2 * s->capacity : 32;
        flim_bad_cell *list = flim_realloc(s->list, (size_t)capacity, sizeof *list, &s->failure);
        if (!list) {
            return;
        }
        s->list = list;
        s->capacity = capacity;
    }
    char *copy = flim_strdup(text, &s->failure);
    if (!copy) {
        return;
    }
    int64_t at = s->listed++;
    for (; at > 0 && s->list[at - 1].cell > cell; at--) {
        s->list[at] = s->list[at - 1];
    }
    s->list[at] = (flim_bad_cell){cell, copy};
}

static void *scan_thread(void *argument)
{
    scan *s = argument;
    const flim_dataset *d = s->dataset;
    flim_error failure = {0}, why = {0};
    flim_reader *reader = NULL;
    float *counts = flim_alloc_aligned((size_t)d->voxels, sizeof *counts, &failure);
    uint8_t *mask = flim_alloc_aligned((size_t)d->pixels, 1, &failure);
    double *decay = flim_alloc((size_t)d->info.t, sizeof *decay, &failure);
    bool good = counts && mask && decay && flim_reader_create(s->dataset, &reader, &failure) == FLIM_OK;
    while (good) {
        pthread_mutex_lock(&s->lock);
        int64_t first = s->next, end = first + STRIDE < d->info.n ? first + STRIDE : d->info.n;
        s->next = end;
        bool over = first >= d->info.n || s->failure.status != FLIM_OK;
        pthread_mutex_unlock(&s->lock);
        if (over) {
            break;
        }
        for (int64_t cell = first; cell < end; cell++) {
            if (flim_stopped(s->stop)) {
                flim_fail(&failure, FLIM_INTERRUPTED, "interrupted while the data was scanned");
                good = false;
                break;
            }
            flim_cell_summary unused, *summary = s->summary ? &s->summary[cell] : &unused;
            if (flim_reader_counts(reader, cell, counts, mask, &why) == FLIM_OK) {
                summarise(d, counts, mask, decay, summary);
                if (s->masked_decay) {
                    sum_over_mask(d, counts, mask, s->masked_decay + cell * d->info.t);
                }
            } else {
                *summary = (flim_cell_summary){.peak_bin = -1};
                pthread_mutex_lock(&s->lock);
                note_bad(s, cell, why.text);
                pthread_mutex_unlock(&s->lock);
            }
        }
    }
    if (failure.status != FLIM_OK) {
        pthread_mutex_lock(&s->lock);
        s->failure = failure;
        pthread_mutex_unlock(&s->lock);
    }
    flim_reader_destroy(reader);
    flim_free(counts);
    flim_free(mask);
    flim_free(decay);
    return NULL;
}

flim_status flim_scan_cells(flim_dataset *dataset, int workers, const volatile int *stop, int64_t most,
                            flim_cell_summary *summary, double *decay, int64_t *bad, flim_bad_cell **list, int64_t *listed,
                            flim_error *err)
{
    scan s = {.dataset = dataset,
              .stop = stop,
              .summary = summary,
              .masked_decay = decay,
              .most = most,
              .lock = PTHREAD_MUTEX_INITIALIZER};
    pthread_t *thread = NULL;
    int started = 0;
    *bad = *listed = 0;
    *list = NULL;
    if (workers < 1) {
        return flim_fail(err, FLIM_ERROR_USAGE, "a scan needs at least one thread, not %d", workers);
    }
    if (!(thread = flim_alloc((size_t)workers, sizeof *thread, err))) {
        return FLIM_ERROR_MEMORY;
    }
    while (started < workers && pthread_create(&thread[started], NULL, scan_thread, &s) == 0) {
        started++;
    }
    if (started == 0) {
        scan_thread(&s); /* no thread to be had: here then */
    }
    for (int i = 0; i < started; i++) {
        pthread_join(thread[i], NULL);
    }
    flim_free(thread);
    if (s.failure.status != FLIM_OK) {
        for (int64_t i = 0; i < s.listed; i++) {
            flim_free(s.list[i].text);
        }
        flim_free(s.list);
        return flim_fail(err, s.failure.status, "%s", s.failure.text);
    }
    *bad = s.bad;
    *list = s.list;
    *listed = s.listed;
    return FLIM_OK;
}

flim_status flim_dataset_scan(flim_dataset *dataset, int workers, const volatile int *stop, const flim_log *log,
                              flim_cell_summary *summary, double *decay, int64_t *bad, flim_error *err)
{
    enum { MOST_LOGGED = 20 };
    flim_bad_cell *list = NULL;
    int64_t listed = 0, found = 0;
    flim_status status = flim_scan_cells(dataset, workers, stop, MOST_LOGGED, summary, decay, &found, &list, &listed, err);
    if (bad) {
        *bad = found;
    }
    if (status != FLIM_OK) {
        return status;
    }
    for (int64_t i = 0; i < listed; i++) {
        flim_log_line(log, FLIM_LOG_WARNING, "%s", list[i].text);
    }
    if (found > listed) {
        flim_log_line(log, FLIM_LOG_WARNING, "and %lld more bad cells", (long long)(found - listed));
    }
    if (found) {
        status = flim_fail(err, FLIM_ERROR_DATA, "%lld of %lld cells are bad; the first: %s", (long long)found,
                           (long long)dataset->info.n, list[0].text);
    }
    for (int64_t i = 0; i < listed; i++) {
        flim_free(list[i].text);
    }
    flim_free(list);
    return status;
}
