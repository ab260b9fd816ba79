/* The loader's pool.
 *
 * Design: one mutex guards everything but the contents of cells in work.  Cells are handed to threads one by one in the order
 * of the draws, so batches fill in order.  A batch takes a free buffer when its first cell is handed out; a thread that finds
 * no free buffer waits, which is what bounds how far ahead the pool reads.  The consumer takes batches by their number.
 * Guarantee: a batch is delivered once, whole, and in order; which thread filled which cell never matters, since all that
 * goes into a cell is a function of its draw.  When a cell fails no further ones are handed out; all cells before it in the
 * order have been, so the earlier batches still come whole, and the failure that is reported is the first in the order.
 */
#include "flim/loader.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/bytes.h"
#include "core/clock.h"
#include "core/try.h"
#include "data/dataset_internal.h"
#include "data/cell_filler.h"

typedef enum slot_state { SLOT_FREE, SLOT_FILLING, SLOT_READY, SLOT_OUT } slot_state;

typedef struct slot {
    flim_batch batch;
    slot_state state;
    int64_t number; /* of the batch in its phase */
    int64_t left; /* cells not finished */
    flim_mix *mix; /* (capacity), what batch.mix is in a phase that mixes; NULL if none does */
    float *target; /* (capacity,K) likewise */
} slot;

typedef struct worker {
    flim_loader *loader;
    flim_cell_filler filler;
    flim_error error;
    pthread_t thread;
} worker;

struct flim_loader {
    flim_dataset *dataset;
    flim_loader_options options;
    slot *slots;
    int n_slots;
    worker *workers;
    int n_workers; /* threads running */
    int64_t buffer_bytes;
    bool pinned;
    void *memory; /* of all buffers */

    pthread_mutex_t lock;
    pthread_cond_t work; /* for the threads: cells to do, or the end */
    pthread_cond_t ready; /* for the consumer: a batch is whole, or the pool is idle */
    bool stop;

    /* the phase */
    flim_phase phase;
    flim_transform_table transform; /* phase.transform in integers; n = 0: none */
    flim_draw *draws; /* copy, (capacity) */
    flim_mix *mix; /* copy, (mix_capacity) */
    int64_t mix_capacity;
    int64_t draws_capacity;
    bool active;
    int64_t next_draw; /* to be handed out */
    int64_t next_batch; /* to be delivered */
    int64_t in_work; /* cells handed out and not finished */
    int64_t failed; /* lowest draw that failed, or -1 */
    flim_error error; /* of that draw */
    double wait_seconds;
    int64_t delivered;
};

/* ---- filling */

static slot *find_slot(flim_loader *loader, slot_state state, int64_t number)
{
    for (int i = 0; i < loader->n_slots; i++) {
        slot *s = &loader->slots[i];
        if (s->state == state && (state == SLOT_FREE || s->number == number)) {
            return s;
        }
    }
    return NULL;
}

/* Under the lock: the buffer that the next cell goes into, or NULL if there is nothing to do now. */
static slot *next_slot(flim_loader *loader)
{
    if (!loader->active || loader->failed >= 0 || loader->next_draw == loader->phase.n_draws) {
        return NULL;
    }
    int64_t size = loader->phase.batch, number = loader->next_draw / size;
    if (loader->next_draw % size != 0) {
        return find_slot(loader, SLOT_FILLING, number);
    }
    slot *s = find_slot(loader, SLOT_FREE, 0);
    if (s) {
        int64_t left = loader->phase.n_draws - loader->next_draw;
        s->state = SLOT_FILLING;
        s->number = number;
        s->left = s->batch.n = left < size ? left : size;
        if (s->batch.device_cached) {
            s->batch.transform = loader->phase.transform;
        }
        s->batch.mix = loader->phase.mix ? s->mix : NULL;
        s->batch.target = loader->phase.mix ? s->target : NULL;
        s->batch.mix_of = loader->phase.mix_of;
    }
    return s;
}

static void *worker_thread(void *argument)
{
    worker *w = argument;
    flim_loader *loader = w->loader;
    const flim_dataset *d = loader->dataset;
    pthread_mutex_lock(&loader->lock);
    for (;;) {
        slot *s = NULL;
        while (!loader->stop && !(s = next_slot(loader))) {
            pthread_cond_wait(&loader->work, &loader->lock);
        }
        if (loader->stop) {
            break;
        }
        const flim_phase phase = loader->phase;
        int64_t draw = loader->next_draw, at = draw % phase.batch;
        int64_t count = s->batch.device_cached ? s->batch.n - at : 1; /* a batch of numbers is one piece of work */
        const flim_draw *todo = loader->draws + draw; /* begin changes them when no work is out */
        const flim_mix *partner = phase.mix ? phase.mix + draw : NULL;
        loader->next_draw += count;
        loader->in_work += count;
        pthread_mutex_unlock(&loader->lock);

        for (int64_t i = 0; i < count; i++) {
            s->batch.id[at + i] = (flim_cell_id){phase.seed, phase.fold, phase.epoch, todo[i].cell, todo[i].repeat};
            s->batch.weight[at + i] = todo[i].weight;
            s->batch.label[at + i] = d->label ? d->label[todo[i].cell] : 0;
            if (partner) {
                s->batch.mix[at + i] = partner[i];
                flim_mix_target(d, phase.smoothing, &s->batch, at + i);
            }
        }
        flim_status status =
            s->batch.device_cached ? FLIM_OK : flim_cell_fill(&w->filler, &loader->transform, &s->batch, at, &w->error);

        pthread_mutex_lock(&loader->lock);
        loader->in_work -= count;
        s->left -= count;
        if (status != FLIM_OK && (loader->failed < 0 || draw < loader->failed)) {
            loader->failed = draw;
            loader->error = w->error;
            loader->error.status = status;
        }
        if (s->left == 0) {
            s->state = SLOT_READY;
        }
        if (s->left == 0 || loader->in_work == 0) {
            pthread_cond_broadcast(&loader->ready);
        }
    }
    pthread_mutex_unlock(&loader->lock);
    return NULL;
}

/* ---- life */

enum { ARRAYS = 7 }; /* of a batch */

static int64_t rounded(int64_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

/* Bytes of one batch's arrays: signal, mask, label, weight, id, and for mixing, of `classes` > 0, mix and target, at offset[];
 * -1 where that overflows. */
static int64_t lay_out_batch(int64_t batch, int64_t voxels, int64_t pixels, int classes, int64_t offset[ARRAYS])
{
    const int64_t per_cell[ARRAYS] = {voxels * (int64_t)sizeof(float),
                                      pixels,
                                      sizeof(int32_t),
                                      sizeof(float),
                                      sizeof(flim_cell_id),
                                      classes > 0 ? (int64_t)sizeof(flim_mix) : 0,
                                      classes * (int64_t)sizeof(float)};
    int64_t bytes = 0;
    for (int i = 0; i < ARRAYS; i++) {
        if (per_cell[i] > INT64_MAX / 32768 / batch) { /* 16 for the sum, 1025 buffers at most */
            return -1;
        }
        offset[i] = bytes;
        bytes += rounded(per_cell[i] * batch);
    }
    return bytes;
}

int64_t flim_loader_buffer_bytes(int prefetch, int64_t batch, int t, int h, int w)
{
    int64_t offset[ARRAYS];
    const int64_t pixels = (int64_t)h * w, one = lay_out_batch(batch, pixels * t, pixels, 0, offset);
    return one < 0 ? -1 : one * (prefetch + 1);
}

static flim_status make_buffers(flim_loader *loader, flim_error *err)
{
    const flim_dataset *d = loader->dataset;
    int64_t batch = loader->options.batch;
    loader->n_slots = loader->options.prefetch + 1;
    if (!(loader->slots = flim_alloc((size_t)loader->n_slots, sizeof *loader->slots, err))) {
        return FLIM_ERROR_MEMORY;
    }
    const bool device_cached = loader->options.device_cached;
    const int classes = loader->options.mixes ? d->info.classes : 0;
    int64_t offset[ARRAYS];
    const int64_t one = lay_out_batch(batch, device_cached ? 0 : d->voxels, device_cached ? 0 : d->pixels, classes, offset);
    if (one < 0) {
        return flim_fail(err, FLIM_ERROR_MEMORY, "a batch of %lld cells of %lld voxels does not fit into memory",
                         (long long)batch, (long long)d->voxels);
    }
    loader->buffer_bytes = one * loader->n_slots;
    if (loader->options.device) {
        FLIM_TRY(flim_device_host_alloc(loader->options.device, (size_t)loader->buffer_bytes, &loader->memory,
                                        &loader->pinned, err));
        if (!loader->pinned && flim_device_get_info(loader->options.device)->own_memory) {
            flim_log_line(loader->options.log, FLIM_LOG_NOTE,
                          "%.1f MiB of batch buffers could not be pinned (ulimit -l?): copies to the device are slower",
                          flim_mib(loader->buffer_bytes));
        }
    } else if (!(loader->memory = flim_alloc_aligned((size_t)loader->buffer_bytes, 1, err))) {
        return FLIM_ERROR_MEMORY;
    }
    for (int i = 0; i < loader->n_slots; i++) {
        char *at = (char *)loader->memory + i * one;
        loader->slots[i].batch = (flim_batch){.capacity = batch,
                                              .t = d->info.t,
                                              .h = d->info.h,
                                              .w = d->info.w,
                                              .signal = device_cached ? NULL : (void *)(at + offset[0]),
                                              .mask = device_cached ? NULL : (void *)(at + offset[1]),
                                              .device_cached = device_cached,
                                              .label = (void *)(at + offset[2]),
                                              .weight = (void *)(at + offset[3]),
                                              .id = (void *)(at + offset[4])};
        loader->slots[i].mix = classes ? (void *)(at + offset[5]) : NULL;
        loader->slots[i].target = classes ? (void *)(at + offset[6]) : NULL;
    }
    return FLIM_OK;
}

static flim_status start_workers(flim_loader *loader, flim_error *err)
{
    int count = loader->options.workers;
    if (!(loader->workers = flim_alloc((size_t)count, sizeof *loader->workers, err))) {
        return FLIM_ERROR_MEMORY;
    }
    for (int i = 0; i < count; i++) {
        worker *w = &loader->workers[i];
        w->loader = loader;
        FLIM_TRY(flim_cell_filler_create(loader->dataset, &w->filler, err));
    }
    for (int i = 0; i < count; i++) {
        int number = pthread_create(&loader->workers[i].thread, NULL, worker_thread, &loader->workers[i]);
        if (number != 0) {
            return flim_fail(err, FLIM_ERROR_MEMORY, "only %d of %d loader threads could be started: %s", i, count,
                             strerror(number));
        }
        loader->n_workers = i + 1;
    }
    return FLIM_OK;
}

flim_status flim_loader_create(flim_dataset *dataset, const flim_loader_options *options, flim_loader **out, flim_error *err)
{
    *out = NULL;
    if (options->workers < 1 || options->workers > 1024 || options->prefetch < 1 || options->prefetch > 1024 ||
        options->batch < 1) {
        return flim_fail(
            err, FLIM_ERROR_USAGE,
            "a loader needs 1 to 1024 threads, 1 to 1024 batches ahead and a batch of at least 1, not %d, %d and %lld",
            options->workers, options->prefetch, (long long)options->batch);
    }
    flim_loader *loader = flim_alloc(1, sizeof *loader, err);
    if (!loader) {
        return FLIM_ERROR_MEMORY;
    }
    loader->dataset = dataset;
    loader->options = *options;
    loader->failed = -1;
    pthread_mutex_init(&loader->lock, NULL);
    pthread_cond_init(&loader->work, NULL);
    pthread_cond_init(&loader->ready, NULL);
    flim_status status = FLIM_OK;
    FLIM_TRY_DONE(make_buffers(loader, err));
    FLIM_TRY_DONE(start_workers(loader, err));
    *out = loader;
done:
    if (status != FLIM_OK) {
        flim_loader_destroy(loader);
    }
    return status;
}

void flim_loader_destroy(flim_loader *loader)
{
    if (!loader) {
        return;
    }
    pthread_mutex_lock(&loader->lock);
    loader->stop = true;
    pthread_cond_broadcast(&loader->work);
    pthread_mutex_unlock(&loader->lock);
    for (int i = 0; i < loader->n_workers; i++) {
        pthread_join(loader->workers[i].thread, NULL);
    }
    for (int i = 0; loader->workers && i < loader->options.workers; i++) {
        flim_cell_filler_free(&loader->workers[i].filler);
    }
    flim_free(loader->workers);
    if (loader->options.device) {
        if (loader->memory) {
            flim_device_host_free(loader->options.device, loader->memory);
        }
    } else {
        flim_free(loader->memory);
    }
    flim_free(loader->slots);
    flim_free(loader->draws);
    flim_free(loader->mix);
    pthread_cond_destroy(&loader->ready);
    pthread_cond_destroy(&loader->work);
    pthread_mutex_destroy(&loader->lock);
    flim_free(loader);
}

/* ---- a phase */

/* Under the lock: no more cells are handed out; waits for those in work; batches that were not delivered are dropped. */
static void end_phase(flim_loader *loader)
{
    loader->active = false;
    while (loader->in_work > 0) {
        pthread_cond_wait(&loader->ready, &loader->lock);
    }
    for (int i = 0; i < loader->n_slots; i++) {
        if (loader->slots[i].state != SLOT_OUT) {
            loader->slots[i].state = SLOT_FREE;
        }
    }
}

/* Under the lock, with no cell in work: copies what the phase points to, and makes what a transform needs. */
static flim_status take_phase(flim_loader *loader, const flim_phase *phase, const flim_transform_table *transform,
                              flim_error *err)
{
    if (phase->n_draws > loader->draws_capacity) {
        flim_draw *draws = flim_realloc(loader->draws, (size_t)phase->n_draws, sizeof *draws, err);
        if (!draws) {
            return FLIM_ERROR_MEMORY;
        }
        loader->draws = draws;
        loader->draws_capacity = phase->n_draws;
    }
    if (phase->mix && phase->n_draws > loader->mix_capacity) {
        flim_mix *mix = flim_realloc(loader->mix, (size_t)phase->n_draws, sizeof *mix, err);
        if (!mix) {
            return FLIM_ERROR_MEMORY;
        }
        loader->mix = mix;
        loader->mix_capacity = phase->n_draws;
    }
    for (int i = 0; !loader->options.device_cached && i < loader->options.workers; i++) {
        FLIM_TRY(flim_cell_filler_prepare(&loader->workers[i].filler, transform->n > 0, phase->mix != NULL, err));
    }
    if (phase->n_draws) {
        memcpy(loader->draws, phase->draws, (size_t)phase->n_draws * sizeof *phase->draws);
    }
    if (phase->mix && phase->n_draws) {
        memcpy(loader->mix, phase->mix, (size_t)phase->n_draws * sizeof *phase->mix);
    }
    loader->phase = *phase;
    loader->phase.draws = NULL; /* the caller's; never used again */
    loader->phase.mix = phase->mix ? loader->mix : NULL;
    loader->transform = *transform;
    loader->next_draw = loader->next_batch = loader->delivered = 0;
    loader->failed = -1;
    loader->wait_seconds = 0;
    loader->active = true;
    return FLIM_OK;
}

flim_status flim_loader_begin(flim_loader *loader, const flim_phase *phase, flim_error *err)
{
    const flim_dataset_info *info = &loader->dataset->info;
    flim_transform_table transform;
    if (phase->n_draws < 0 || phase->batch < 1 || phase->batch > loader->options.batch) {
        return flim_fail(err, FLIM_ERROR_USAGE,
                         "a phase of %lld cells in batches of %lld; the loader was made for batches of 1 to %lld",
                         (long long)phase->n_draws, (long long)phase->batch, (long long)loader->options.batch);
    }
    for (int64_t i = 0; i < phase->n_draws; i++) {
        if (phase->draws[i].cell >= info->n) {
            return flim_fail(err, FLIM_ERROR_USAGE, "draw %lld requests cell %u; the data has cells 0 to %lld", (long long)i,
                             phase->draws[i].cell, (long long)(info->n - 1));
        }
    }
    for (int64_t i = 0; phase->mix && i < phase->n_draws; i++) {
        const float share = phase->mix[i].share;
        if (!loader->options.mixes || !loader->dataset->label || !(share >= 0 && share <= 1) ||
            phase->mix[i].cell >= info->n) {
            return flim_fail(
                err, FLIM_ERROR_USAGE,
                "draw %lld is mixed with cell %u by %g; expected a loader for mixing, labels, cells 0 to %lld and "
                "a share of 0 to 1",
                (long long)i, phase->mix[i].cell, (double)share, (long long)(info->n - 1));
        }
    }
    FLIM_TRY(flim_transform_compile(&phase->transform, info->t, info->h, info->w, &transform, err));
    pthread_mutex_lock(&loader->lock);
    end_phase(loader);
    const flim_status status = take_phase(loader, phase, &transform, err);
    if (status == FLIM_OK) {
        pthread_cond_broadcast(&loader->work);
    }
    pthread_mutex_unlock(&loader->lock);
    return status;
}

/* Under the lock: every buffer is out, so that waiting for another batch would never end. */
static bool all_out(const flim_loader *loader)
{
    for (int i = 0; i < loader->n_slots; i++) {
        if (loader->slots[i].state != SLOT_OUT) {
            return false;
        }
    }
    return true;
}

flim_status flim_loader_next(flim_loader *loader, const flim_batch **batch, flim_error *err)
{
    flim_status status = FLIM_OK;
    *batch = NULL;
    pthread_mutex_lock(&loader->lock);
    int64_t size = loader->phase.batch;
    if (!loader->active) {
        goto done;
    }
    if (loader->next_batch * size >= loader->phase.n_draws) {
        end_phase(loader);
        goto done;
    }
    slot *s = NULL;
    double start = 0;
    for (;;) {
        bool failed = loader->failed >= 0 && loader->failed / size == loader->next_batch;
        if (failed && loader->in_work == 0) {
            /* All cells before it in the order are done: the failure is the first one. */
            status = flim_fail(err, loader->error.status, "%s", loader->error.text);
            end_phase(loader);
            break;
        }
        if (!failed && (s = find_slot(loader, SLOT_READY, loader->next_batch))) {
            s->state = SLOT_OUT;
            loader->next_batch++;
            loader->delivered += s->batch.n;
            *batch = &s->batch;
            break;
        }
        if (all_out(loader)) {
            status = flim_fail(err, FLIM_ERROR_USAGE, "all %d batch buffers are in use; release one first", loader->n_slots);
            break;
        }
        start = start > 0 ? start : flim_seconds();
        pthread_cond_wait(&loader->ready, &loader->lock);
    }
    if (start > 0) {
        loader->wait_seconds += flim_seconds() - start;
    }
done:
    pthread_mutex_unlock(&loader->lock);
    return status;
}

void flim_loader_release(flim_loader *loader, const flim_batch *batch)
{
    pthread_mutex_lock(&loader->lock);
    for (int i = 0; i < loader->n_slots; i++) {
        if (&loader->slots[i].batch == batch && loader->slots[i].state == SLOT_OUT) {
            loader->slots[i].state = SLOT_FREE;
            pthread_cond_broadcast(&loader->work);
        }
    }
    pthread_mutex_unlock(&loader->lock);
}

void flim_loader_cancel(flim_loader *loader)
{
    pthread_mutex_lock(&loader->lock);
    end_phase(loader);
    pthread_mutex_unlock(&loader->lock);
}

void flim_loader_get_stats(const flim_loader *loader, flim_loader_stats *out)
{
    flim_loader *self = (flim_loader *)(uintptr_t)loader; /* the lock is no part of what const promises */
    pthread_mutex_lock(&self->lock);
    *out = (flim_loader_stats){loader->wait_seconds, loader->delivered, loader->buffer_bytes, loader->pinned};
    pthread_mutex_unlock(&self->lock);
}
