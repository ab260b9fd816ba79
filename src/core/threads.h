/* One pool for work that comes in numbered items: cells that are scanned, uploaded or read for a measurement.
 *
 * For: passes over all items on several threads, each with memory of its own.  The caller waits for the end.  (The loader,
 *      which runs beside its consumer, has threads that stay.)
 * Owns: nothing; threads live as long as the call.  If none can be started the work is done on the caller's.
 * Errors: the first failure ends the hand-out of items and is returned; items in work are finished.
 */
#ifndef FLIM_CORE_THREADS_H
#define FLIM_CORE_THREADS_H

#include <stdint.h>

#include "flim/status.h"

typedef struct flim_shared_work {
    int64_t items, stride; /* numbers 0..items-1, handed out in order, `stride` at a time */
    void *context; /* shared by all threads */
    flim_status (*begin)(void *context, void *own, flim_error *err); /* fills a thread's own memory, zeros before */
    flim_status (*item)(void *context, void *own, int64_t number, flim_error *err);
    void (*end)(void *own); /* gives it back, also after a begin that failed */
    size_t own_bytes; /* of a thread's own memory */
} flim_shared_work;

flim_status flim_share_work(const flim_shared_work *work, int threads, flim_error *err);

/* Processors that this process may use, at least 1. */
int flim_processors(void);

#endif
