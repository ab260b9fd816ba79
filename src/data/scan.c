#include "data/scan.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/stop.h"
#include "core/threads.h"
#include "core/try.h"
#include "core/text.h"
#include "data/cell_hash.h"
#include "data/cell_look.h"
#include "data/dataset_internal.h"

/* Shared by the threads of one scan; bad cells are listed under `lock`. */
typedef struct scan {
    flim_dataset *dataset;
    const volatile int *stop;
    flim_cell_summary *summary; /* (n) or NULL; each entry is written by one thread */
    double *masked_decay; /* (n,T) or NULL; likewise */
    int64_t most;
    pthread_mutex_t lock;
    int64_t bad, listed, capacity;
    flim_bad_cell *list;
} scan;

enum { STRIDE = 16 }; /* cells taken at a time */

/* Adds to out, which was begun. */
static void summarise(const flim_dataset *d, const float *counts, const uint8_t *mask, double *decay, flim_cell_summary *out)
{
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
    out->hash = flim_cell_hash(counts, mask, d->info.t, d->pixels);
    for (int64_t i = 0; i < d->pixels; i++) {
        out->mask_pixels += mask[i];
    }
}

/* counts (T,H,W) that floats do not hold.  Replaces what summarise found. */
static void sum_exactly(const flim_dataset *d, const double *counts, double *decay, flim_cell_summary *out)
{
    out->photons = out->max_count = 0;
    out->peak_bin = -1;
    for (int t = 0; t < d->info.t; t++) {
        const double *frame = counts + (int64_t)t * d->pixels;
        decay[t] = 0;
        for (int64_t i = 0; i < d->pixels; i++) {
            decay[t] += frame[i];
            out->max_count = frame[i] > out->max_count ? frame[i] : out->max_count;
        }
        out->photons += decay[t];
        if (decay[t] > 0 && (out->peak_bin < 0 || decay[t] > decay[out->peak_bin])) {
            out->peak_bin = t;
        }
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

/* Under the lock: lists the `most` bad cells with the lowest numbers. */
static flim_status note_bad(scan *s, int64_t cell, const char *text, flim_error *err)
{
    s->bad++;
    if (s->listed == s->most) {
        if (s->most == 0 || s->list[s->listed - 1].cell < cell) {
            return FLIM_OK;
        }
        flim_free(s->list[--s->listed].text);
    }
    if (s->listed == s->capacity) {
        int64_t capacity = s->capacity ? 2 * s->capacity : 32;
        flim_bad_cell *list = flim_realloc(s->list, (size_t)capacity, sizeof *list, err);
        if (!list) {
            return FLIM_ERROR_MEMORY;
        }
        s->list = list;
        s->capacity = capacity;
    }
    char *copy = flim_strdup(text, err);
    if (!copy) {
        return FLIM_ERROR_MEMORY;
    }
    int64_t at = s->listed++;
    for (; at > 0 && s->list[at - 1].cell > cell; at--) {
        s->list[at] = s->list[at - 1];
    }
    s->list[at] = (flim_bad_cell){cell, copy};
    return FLIM_OK;
}

/* A thread's own. */
typedef struct scratch {
    flim_reader *reader;
    float *counts; /* (T,H,W) */
    double *exact; /* (T,H,W), NULL if floats hold every count */
    uint8_t *mask; /* (H,W) */
    double *decay; /* (T) */
    flim_cell_look *look;
} scratch;

static flim_status begin_thread(void *context, void *own, flim_error *err)
{
    const scan *s = context;
    const flim_dataset *d = s->dataset;
    scratch *my = own;
    if (!(my->counts = flim_alloc_aligned((size_t)d->voxels, sizeof *my->counts, err)) ||
        !(my->mask = flim_alloc_aligned((size_t)d->pixels, 1, err)) ||
        !(my->decay = flim_alloc((size_t)d->info.t, sizeof *my->decay, err))) {
        return FLIM_ERROR_MEMORY;
    }
    if (flim_dataset_has_wide_counts(d) && !(my->exact = flim_alloc_aligned((size_t)d->voxels, sizeof *my->exact, err))) {
        return FLIM_ERROR_MEMORY;
    }
    FLIM_TRY(flim_cell_look_create(s->dataset, &my->look, err));
    return flim_reader_create(s->dataset, &my->reader, err);
}

static void end_thread(void *own)
{
    scratch *my = own;
    flim_reader_destroy(my->reader);
    flim_cell_look_destroy(my->look);
    flim_free(my->counts);
    flim_free(my->exact);
    flim_free(my->mask);
    flim_free(my->decay);
}

static flim_status scan_cell(void *context, void *own, int64_t cell, flim_error *err)
{
    scan *s = context;
    scratch *my = own;
    flim_cell_summary unused, *summary = s->summary ? &s->summary[cell] : &unused;
    flim_error why = {0};
    if (flim_stopped(s->stop)) {
        return flim_fail(err, FLIM_INTERRUPTED, "interrupted while the data was scanned");
    }
    if (flim_reader_stored_counts(my->reader, cell, my->counts, my->mask, &why) != FLIM_OK) {
        *summary = (flim_cell_summary){.peak_bin = -1, .stored_photons = NAN};
        pthread_mutex_lock(&s->lock);
        const flim_status status = note_bad(s, cell, why.text, err);
        pthread_mutex_unlock(&s->lock);
        return status;
    }
    *summary = (flim_cell_summary){.peak_bin = -1};
    flim_cell_look_at(my->look, cell, my->counts, summary);
    flim_reader_drop_outside(s->dataset, cell, my->counts);
    summarise(s->dataset, my->counts, my->mask, my->decay, summary);
    if (my->exact && flim_reader_exact_counts(my->reader, cell, my->exact)) {
        sum_exactly(s->dataset, my->exact, my->decay, summary);
    }
    if (s->masked_decay) {
        sum_over_mask(s->dataset, my->counts, my->mask, s->masked_decay + cell * s->dataset->info.t);
    }
    return FLIM_OK;
}

void flim_bad_cells_free(flim_bad_cell *list, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        flim_free(list[i].text);
    }
    flim_free(list);
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
    const flim_shared_work work = {.items = dataset->info.n,
                                   .stride = STRIDE,
                                   .context = &s,
                                   .begin = begin_thread,
                                   .item = scan_cell,
                                   .end = end_thread,
                                   .own_bytes = sizeof(scratch)};
    *bad = *listed = 0;
    *list = NULL;
    const flim_status status = flim_share_work(&work, workers, err);
    if (status != FLIM_OK) {
        flim_bad_cells_free(s.list, s.listed);
        return status;
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
    if (bad) {
        *bad = 0;
    }
    FLIM_TRY(flim_scan_cells(dataset, workers, stop, MOST_LOGGED, summary, decay, &found, &list, &listed, err));
    if (bad) {
        *bad = found;
    }
    for (int64_t i = 1; i < listed; i++) { /* the first one is in the error */
        flim_log_line(log, FLIM_LOG_WARNING, "%s", list[i].text);
    }
    if (found > listed) {
        flim_log_line(log, FLIM_LOG_WARNING, "and %lld more bad cell%s", (long long)(found - listed), flim_s(found - listed));
    }
    const flim_status status =
        !found ? FLIM_OK
               : flim_fail(err, FLIM_ERROR_DATA, "%lld of %lld cells %s bad; the first: %s", (long long)found,
                           (long long)dataset->info.n, flim_verb(found, "is", "are"), list[0].text);
    flim_bad_cells_free(list, listed);
    return status;
}
