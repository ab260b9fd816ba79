/* The loader: persistent threads that turn cells of a data set into finished batches, in the sampler's exact order.
 *
 * For: feeding a program.  The threads live from create to destroy, over all folds and epochs.  A phase (one epoch of
 *      training, one pass over a part) is begun with a list of draws; batches then come out in that order, whatever the
 *      number of threads or their timing.
 * Owns: batch buffers are allocated once at create (prefetch + 1 of them, of `batch` cells) and lent out by
 *      flim_loader_next until flim_loader_release.  The draws array is copied at begin.
 * Errors: an error in a worker is returned by the flim_loader_next that would have delivered its batch; the phase is then
 *      over and a new one may begin.  FLIM_ERROR_MEMORY at create, and at begin of a first phase with a transform;
 *      FLIM_ERROR_USAGE at begin if a draw or the transform does not fit the data.
 */
#ifndef FLIM_LOADER_H
#define FLIM_LOADER_H

#include "flim/batch.h"
#include "flim/dataset.h"
#include "flim/device.h"

typedef struct flim_loader flim_loader;

typedef struct flim_loader_options {
    int workers; /* threads, default 8 */
    int prefetch; /* batches ready ahead, default 4 */
    int64_t batch; /* capacity of a batch buffer: the largest batch of any phase */
    flim_device *device; /* for pinned buffers; NULL = plain memory */
    /* The program has all cells in device memory (flim_program_plan_cache): batches come without signal and mask, which are
     * NULL, and with the phase's transform, which the program applies. */
    bool device_cached;
    bool mixes; /* phases may mix cells: batches have room for targets and partners */
    const flim_log *log; /* a note if pinning fails; may be NULL */
} flim_loader_options;

typedef struct flim_phase {
    const flim_draw *draws;
    int64_t n_draws; /* 0 is allowed: no batch comes */
    int64_t batch; /* cells per batch, <= capacity; the last one may be smaller */
    uint64_t seed; /* of the cells' ids */
    uint32_t fold, epoch;
    flim_transform transform; /* of every cell, training or not; n = 0: none */
    /* Mixup: the partner of each draw, (n_draws), or NULL = none.  A cell and its partner go through the transform before, each
     * as its own draw.  Batches then have targets: the shares of the classes, smoothed, and the label is that of the larger
     * share. */
    const flim_mix *mix;
    flim_mix_of mix_of;
    float smoothing; /* of the targets: each class gets smoothing / K, the rest goes by the shares */
} flim_phase;

/* Bytes of all batch buffers of a loader, before it is there: prefetch + 1 batches of cells of (t,h,w); -1 where that
 * overflows. */
int64_t flim_loader_buffer_bytes(int prefetch, int64_t batch, int t, int h, int w);

flim_status flim_loader_create(flim_dataset *dataset, const flim_loader_options *options, flim_loader **out, flim_error *err);
/* Joins the threads; safe in the middle of a phase.  NULL is allowed. */
void flim_loader_destroy(flim_loader *loader);

flim_status flim_loader_begin(flim_loader *loader, const flim_phase *phase, flim_error *err);
/* The next batch, or *batch = NULL after the last.  At most prefetch + 1 batches are out at a time; release each. */
flim_status flim_loader_next(flim_loader *loader, const flim_batch **batch, flim_error *err);
void flim_loader_release(flim_loader *loader, const flim_batch *batch);
/* Ends a phase early: waits for cells in work, drops the rest.  No effect when none is running. */
void flim_loader_cancel(flim_loader *loader);

typedef struct flim_loader_stats {
    double wait_seconds; /* spent in flim_loader_next waiting, since the phase began */
    int64_t cells; /* delivered in this phase */
    int64_t buffer_bytes; /* of all batch buffers, constant */
    bool pinned;
} flim_loader_stats;

void flim_loader_get_stats(const flim_loader *loader, flim_loader_stats *out);

#endif
