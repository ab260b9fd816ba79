#include "train/checkpoint_writer.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/try.h"
#include "train/checkpoint.h"

struct flim_checkpoint_writer {
    pthread_t thread;
    pthread_mutex_t mutex; /* guards all below */
    pthread_cond_t changed;
    bool quit;
    char *bytes; /* handed over; NULL = nothing to write */
    size_t count;
    char folder[4096];
    flim_error error; /* of the last write; status FLIM_OK = none */
};

static void *write_checkpoints(void *argument)
{
    flim_checkpoint_writer *w = argument;
    pthread_mutex_lock(&w->mutex);
    while (true) {
        while (!w->bytes && !w->quit) {
            pthread_cond_wait(&w->changed, &w->mutex);
        }
        if (!w->bytes) {
            break;
        }
        pthread_mutex_unlock(&w->mutex); /* bytes, count and folder do not change while bytes is set */
        flim_error error = {0};
        flim_checkpoint_store(w->bytes, w->count, w->folder, &error);
        pthread_mutex_lock(&w->mutex);
        flim_free(w->bytes);
        w->bytes = NULL;
        w->error = error;
        pthread_cond_broadcast(&w->changed);
    }
    pthread_mutex_unlock(&w->mutex);
    return NULL;
}

flim_status flim_checkpoint_writer_create(flim_checkpoint_writer **out, flim_error *err)
{
    flim_checkpoint_writer *w = *out = flim_alloc(1, sizeof *w, err);
    if (!w) {
        return FLIM_ERROR_MEMORY;
    }
    pthread_mutex_init(&w->mutex, NULL);
    pthread_cond_init(&w->changed, NULL);
    int number = pthread_create(&w->thread, NULL, write_checkpoints, w);
    if (number != 0) {
        pthread_cond_destroy(&w->changed);
        pthread_mutex_destroy(&w->mutex);
        flim_free(w);
        *out = NULL;
        return flim_fail(err, FLIM_ERROR, "cannot start the thread that writes checkpoints: %s", strerror(number));
    }
    return FLIM_OK;
}

void flim_checkpoint_writer_destroy(flim_checkpoint_writer *w)
{
    if (!w) {
        return;
    }
    pthread_mutex_lock(&w->mutex);
    w->quit = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->mutex);
    pthread_join(w->thread, NULL);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->mutex);
    flim_free(w);
}

/* With the mutex held: until nothing is being written; the last write's error is handed over and forgotten. */
static flim_status wait_for_write(flim_checkpoint_writer *w, flim_error *err)
{
    while (w->bytes) {
        pthread_cond_wait(&w->changed, &w->mutex);
    }
    flim_status status = w->error.status;
    if (status != FLIM_OK) {
        flim_fail(err, status, "%s", w->error.text);
        w->error.status = FLIM_OK;
    }
    return status;
}

flim_status flim_checkpoint_flush(flim_checkpoint_writer *w, flim_error *err)
{
    pthread_mutex_lock(&w->mutex);
    flim_status status = wait_for_write(w, err);
    pthread_mutex_unlock(&w->mutex);
    return status;
}

flim_status flim_checkpoint_submit(flim_checkpoint_writer *w, const flim_fold_state *state, const char *folder,
                                   const char *identity, flim_error *err)
{
    char *bytes = NULL;
    size_t count = 0;
    FLIM_TRY(flim_checkpoint_serialise(state, identity, &bytes, &count, err));
    pthread_mutex_lock(&w->mutex);
    const flim_status status = wait_for_write(w, err);
    if (status == FLIM_OK) {
        w->bytes = bytes;
        w->count = count;
        snprintf(w->folder, sizeof w->folder, "%s", folder);
        bytes = NULL;
        pthread_cond_broadcast(&w->changed);
    }
    pthread_mutex_unlock(&w->mutex);
    flim_free(bytes);
    return status;
}
