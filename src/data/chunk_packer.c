#include "data/chunk_packer.h"

#include <pthread.h>

#include "core/alloc.h"
#include "core/threads.h"
#include "core/try.h"
#include "data/deflate.h"

enum { MOST_THREADS = 16, MOST_BYTES = 256 << 20 /* of all slots, unless one chunk is more */ };

typedef enum slot_state { SLOT_EMPTY, SLOT_WAITS, SLOT_IN_WORK, SLOT_DONE } slot_state;

/* A chunk on its way. */
typedef struct slot {
    slot_state state;
    int64_t number;
    void *values; /* (values) */
    uint8_t *packed; /* (bound of their bytes); both are made when the slot is first used */
    size_t bytes; /* of packed */
} slot;

struct flim_chunk_packer {
    size_t values, chunk_bytes;
    int value_bytes;
    flim_deflater *own; /* the caller's */
    int n_slots, first, n; /* a ring: n of them are in use, from `first` on */
    slot *slot; /* (n_slots) */
    pthread_mutex_t lock; /* of the states, and of `ends` */
    pthread_cond_t work, done;
    bool ends;
    int n_threads, most_threads;
    struct worker {
        flim_chunk_packer *packer;
        flim_deflater *deflater;
        pthread_t thread;
    } worker[MOST_THREADS];
};

/* The next slot that waits, now in work; NULL if there is none.  Under the lock. */
static slot *claim(flim_chunk_packer *p)
{
    for (int i = 0; i < p->n; i++) {
        slot *s = &p->slot[(p->first + i) % p->n_slots];
        if (s->state == SLOT_WAITS) {
            s->state = SLOT_IN_WORK;
            return s;
        }
    }
    return NULL;
}

/* Without the lock; leaves with it. */
static void pack(flim_chunk_packer *p, slot *s, flim_deflater *deflater)
{
    s->bytes = flim_deflate_values(deflater, s->values, p->values, p->value_bytes, s->packed);
    pthread_mutex_lock(&p->lock);
    s->state = SLOT_DONE;
    pthread_cond_signal(&p->done);
}

static void *run_worker(void *argument)
{
    struct worker *w = argument;
    flim_chunk_packer *p = w->packer;
    pthread_mutex_lock(&p->lock);
    while (!p->ends) {
        slot *s = claim(p);
        if (!s) {
            pthread_cond_wait(&p->work, &p->lock);
            continue;
        }
        pthread_mutex_unlock(&p->lock);
        pack(p, s, w->deflater);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

flim_status flim_chunk_packer_create(size_t values, int value_bytes, flim_chunk_packer **out, flim_error *err)
{
    *out = NULL;
    flim_chunk_packer *p = flim_alloc(1, sizeof *p, err);
    if (!p) {
        return FLIM_ERROR_MEMORY;
    }
    flim_status status = FLIM_OK;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->work, NULL);
    pthread_cond_init(&p->done, NULL);
    p->values = values;
    p->value_bytes = value_bytes;
    p->chunk_bytes = values * (size_t)value_bytes;
    p->most_threads = flim_processors() - 1; /* the caller makes chunks, and packs what is left when it waits */
    p->most_threads = p->most_threads < MOST_THREADS ? p->most_threads : MOST_THREADS;
    const size_t slot_bytes = p->chunk_bytes + flim_deflate_bound(p->chunk_bytes);
    const size_t fit = MOST_BYTES / slot_bytes, wanted = 2 * (size_t)p->most_threads + 2;
    p->n_slots = (int)(fit < 2 ? 2 : fit < wanted ? fit : wanted);
    p->slot = flim_alloc((size_t)p->n_slots, sizeof *p->slot, err);
    FLIM_TRY_DONE(p->slot ? FLIM_OK : FLIM_ERROR_MEMORY);
    FLIM_TRY_DONE(flim_deflater_create(&p->own, err));
    *out = p;
    p = NULL;
done:
    flim_chunk_packer_destroy(p);
    return status;
}

void flim_chunk_packer_destroy(flim_chunk_packer *p)
{
    if (!p) {
        return;
    }
    pthread_mutex_lock(&p->lock);
    p->ends = true;
    pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->lock);
    for (int i = 0; i < p->n_threads; i++) {
        pthread_join(p->worker[i].thread, NULL);
        flim_deflater_destroy(p->worker[i].deflater);
    }
    for (int i = 0; p->slot && i < p->n_slots; i++) {
        flim_free(p->slot[i].values);
        flim_free(p->slot[i].packed);
    }
    flim_free(p->slot);
    flim_deflater_destroy(p->own);
    pthread_cond_destroy(&p->done);
    pthread_cond_destroy(&p->work);
    pthread_mutex_destroy(&p->lock);
    flim_free(p);
}

bool flim_chunk_packer_full(const flim_chunk_packer *p)
{
    return p->n == p->n_slots;
}

/* One thread more, if there may be one and it can be had: a file of one chunk needs none. */
static void start_worker(flim_chunk_packer *p)
{
    struct worker *w = &p->worker[p->n_threads];
    if (p->n_threads == p->most_threads || flim_deflater_create(&w->deflater, NULL) != FLIM_OK) {
        return;
    }
    w->packer = p;
    if (pthread_create(&w->thread, NULL, run_worker, w) == 0) {
        p->n_threads++;
    } else {
        flim_deflater_destroy(w->deflater);
        w->deflater = NULL;
    }
}

flim_status flim_chunk_packer_room(flim_chunk_packer *p, void **values, flim_error *err)
{
    slot *s = &p->slot[(p->first + p->n) % p->n_slots];
    if ((!s->values && !(s->values = flim_alloc_large(p->values, (size_t)p->value_bytes, err))) ||
        (!s->packed && !(s->packed = flim_alloc_large(flim_deflate_bound(p->chunk_bytes), 1, err)))) {
        return FLIM_ERROR_MEMORY;
    }
    *values = s->values;
    return FLIM_OK;
}

void flim_chunk_packer_put(flim_chunk_packer *p, int64_t number)
{
    slot *s = &p->slot[(p->first + p->n) % p->n_slots];
    s->number = number;
    if (p->n > p->n_threads) { /* a file of one chunk needs none */
        start_worker(p);
    }
    pthread_mutex_lock(&p->lock);
    s->state = SLOT_WAITS;
    p->n++;
    pthread_cond_signal(&p->work);
    pthread_mutex_unlock(&p->lock);
}

bool flim_chunk_packer_take(flim_chunk_packer *p, bool wait, int64_t *number, const void **packed, size_t *bytes)
{
    if (p->n == 0) {
        return false;
    }
    slot *s = &p->slot[p->first];
    pthread_mutex_lock(&p->lock);
    while (wait && s->state != SLOT_DONE) {
        slot *mine = claim(p);
        if (mine) {
            pthread_mutex_unlock(&p->lock);
            pack(p, mine, p->own);
        } else {
            pthread_cond_wait(&p->done, &p->lock);
        }
    }
    const bool ready = s->state == SLOT_DONE;
    if (ready) {
        s->state = SLOT_EMPTY;
        p->first = (p->first + 1) % p->n_slots;
        p->n--;
        *number = s->number;
        *packed = s->packed;
        *bytes = s->bytes;
    }
    pthread_mutex_unlock(&p->lock);
    return ready;
}
