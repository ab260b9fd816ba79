#include "core/threads.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "core/alloc.h"

typedef struct pool {
    const flim_shared_work *work;
    atomic_llong next;
    atomic_bool failed; /* the thread that sets it writes `error` */
    flim_error error; /* read after all threads ended */
} pool;

static flim_status run_items(pool *p, void *own, flim_error *err)
{
    const flim_shared_work *w = p->work;
    for (;;) {
        const int64_t first = atomic_fetch_add(&p->next, w->stride);
        for (int64_t i = first; i < first + w->stride; i++) {
            if (i >= w->items || atomic_load(&p->failed)) {
                return FLIM_OK;
            }
            const flim_status status = w->item(w->context, own, i, err);
            if (status != FLIM_OK) {
                return status;
            }
        }
    }
}

static void *run_thread(void *argument)
{
    pool *p = argument;
    flim_error err = {0};
    void *own = flim_alloc(1, p->work->own_bytes, &err);
    flim_status status = own ? p->work->begin(p->work->context, own, &err) : FLIM_ERROR_MEMORY;
    if (status == FLIM_OK) {
        status = run_items(p, own, &err);
    }
    if (status != FLIM_OK && !atomic_exchange(&p->failed, true)) {
        p->error = err;
        p->error.status = status;
    }
    if (own) {
        p->work->end(own);
        flim_free(own);
    }
    return NULL;
}

flim_status flim_share_work(const flim_shared_work *work, int threads, flim_error *err)
{
    pool p = {.work = work};
    int started = 0;
    if (threads < 1) {
        return flim_fail(err, FLIM_ERROR_USAGE, "%d threads were requested; expected at least 1", threads);
    }
    pthread_t *thread = flim_alloc((size_t)threads, sizeof *thread, err);
    if (!thread) {
        return FLIM_ERROR_MEMORY;
    }
    while (started < threads && pthread_create(&thread[started], NULL, run_thread, &p) == 0) {
        started++;
    }
    if (started == 0) {
        run_thread(&p);
    }
    for (int i = 0; i < started; i++) {
        pthread_join(thread[i], NULL);
    }
    flim_free(thread);
    return p.failed ? flim_fail(err, p.error.status, "%s", p.error.text) : FLIM_OK;
}

int flim_processors(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    const int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1; /* more than 1024: it fails */
    return n > 0 ? n : 1;
}
