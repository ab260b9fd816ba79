/* What a worker process says to the process that started it, as messages in a pipe.
 *
 * For: --jobs and --devices.  A worker writes (worker.h), the crew reads (crew.h); both are the same program, so a message is
 *      the struct as it lies in memory, with a text behind it.
 * Owns: nothing.
 * Errors: a message that cannot be written is dropped: without its reader a worker is about to be stopped.
 */
#ifndef FLIM_TRAIN_WORKER_EVENT_H
#define FLIM_TRAIN_WORKER_EVENT_H

#include <stdbool.h>
#include <stddef.h>

#include "flim/train.h"

typedef enum flim_worker_event_kind {
    FLIM_WORKER_LINE, /* a line of the log: number is its level */
    FLIM_WORKER_JSON, /* of flim_train_hooks.event: text is its name, a line end, the object */
    FLIM_WORKER_PROGRESS, /* progress, device */
    FLIM_WORKER_FOLD, /* it works at fold `number` of `run` now; -1: at none */
    FLIM_WORKER_BEGUN, /* the folder of `run` holds a run, of which `number` folds are left */
    FLIM_WORKER_ENDED /* number: flim_status, text: that of the error */
} flim_worker_event_kind;

enum { FLIM_WORKER_TEXT = 2560, FLIM_WORKER_MESSAGE = 4096 /* most bytes: Linux writes so many to a pipe in one piece */ };

typedef struct flim_worker_event {
    flim_worker_event_kind kind;
    int number;
    int run; /* which of several runs (seeds.h), from 0 */
    flim_progress progress; /* its device is not sent: */
    flim_device_status device;
    char text[FLIM_WORKER_TEXT];
} flim_worker_event;

/* Writes one message in one piece; a longer text is cut. */
void flim_worker_event_write(int file, const flim_worker_event *event);
/* Takes the first message out of bytes[0..n); the bytes that it took, 0 if it is not complete, -1 if this is no message. */
int flim_worker_event_take(const char *bytes, size_t n, flim_worker_event *out);

#endif
