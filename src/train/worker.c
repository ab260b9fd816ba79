#include "train/worker.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/clock.h"
#include "train/worker_event.h"

bool flim_worker_begin(flim_worker *worker)
{
    const char *place = getenv("FLIM_WORKER");
    int first;
    *worker = (flim_worker){.pipe = -1};
    if (!place ||
        sscanf(place, "%d:%d:%d:%d", &worker->pipe, &worker->shared.processes, &worker->shared.on_device, &first) != 4 ||
        worker->shared.processes < 1 || worker->shared.on_device < 1 || fcntl(worker->pipe, F_SETFD, FD_CLOEXEC) != 0) {
        return false;
    }
    worker->shared.first = first != 0;
    unsetenv("FLIM_WORKER"); /* not for what is started from here */
    return true;
}

static void say_line(void *context, flim_log_level level, const char *text)
{
    const flim_worker *worker = context;
    flim_worker_event event = {.kind = FLIM_WORKER_LINE, .number = (int)level};
    snprintf(event.text, sizeof event.text, "%s", text);
    flim_worker_event_write(worker->pipe, &event);
}

/* Half an object would be none: one that is too long is left out. */
static void say_json(void *context, const char *name, const char *json)
{
    const flim_worker *worker = context;
    flim_worker_event event = {.kind = FLIM_WORKER_JSON};
    if (snprintf(event.text, sizeof event.text, "%s\n%s", name, json) < (int)sizeof event.text) {
        flim_worker_event_write(worker->pipe, &event);
    }
}

/* Ten times a second, and at the end of a phase. */
static void say_progress(void *context, const flim_progress *progress)
{
    flim_worker *worker = context;
    const double now = flim_seconds();
    if (now - worker->said < 0.1 && progress->done < progress->total) {
        return;
    }
    worker->said = now;
    flim_worker_event event = {.kind = FLIM_WORKER_PROGRESS, .progress = *progress};
    event.device = progress->device ? *progress->device : (flim_device_status){NAN, NAN, NAN, NAN};
    flim_worker_event_write(worker->pipe, &event);
}

static void say_fold(void *context, int run, int fold)
{
    const flim_worker *worker = context;
    const flim_worker_event event = {.kind = FLIM_WORKER_FOLD, .run = run, .number = fold};
    flim_worker_event_write(worker->pipe, &event);
}

static void say_begun(void *context, int run, int left)
{
    const flim_worker *worker = context;
    const flim_worker_event event = {.kind = FLIM_WORKER_BEGUN, .run = run, .number = left};
    flim_worker_event_write(worker->pipe, &event);
}

void flim_worker_hooks(flim_worker *worker, flim_train_hooks *hooks)
{
    worker->shared.fold = say_fold;
    worker->shared.begun = say_begun;
    worker->shared.context = worker;
    hooks->log = (flim_log){say_line, worker};
    hooks->event = hooks->event ? say_json : NULL;
    hooks->progress = say_progress;
    hooks->context = worker;
    hooks->shared = &worker->shared;
}

int flim_worker_end(flim_worker *worker, flim_status status, const flim_error *err)
{
    flim_worker_event event = {.kind = FLIM_WORKER_ENDED, .number = (int)status};
    snprintf(event.text, sizeof event.text, "%s", status == FLIM_OK ? "" : err->text);
    flim_worker_event_write(worker->pipe, &event);
    return status == FLIM_OK ? 0 : 1;
}
