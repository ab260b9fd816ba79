#include "train/device_load.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#define LEAST_SECONDS 10.0
#define WAITING 0.10
#define OUTSIDE 0.30
#define COPYING 5e9 /* bytes a second */
enum { LEAST_READINGS = 20 };

void flim_load_add(flim_load *load, const flim_epoch_row *row, double seconds, const flim_telemetry *telemetry,
                   int64_t cell_bytes)
{
    load->epochs++;
    load->seconds += seconds;
    load->train_seconds += row->seconds;
    load->wait_seconds += row->wait_share * row->seconds;
    load->busy += telemetry->busy;
    load->readings += telemetry->n_busy;
    load->uploaded += (double)row->cells * (double)cell_bytes;
}

flim_load_verdict flim_load_judge(const flim_load *l)
{
    flim_load_verdict v = {.bound = FLIM_LOAD_UNKNOWN, .at_most = l->readings == 0};
    if (l->epochs == 0 || l->seconds < LEAST_SECONDS || (!v.at_most && l->readings < LEAST_READINGS)) {
        return v;
    }
    v.wait = l->wait_seconds / l->seconds;
    v.outside = fmax(0, 1 - l->train_seconds / l->seconds);
    v.busy = v.at_most ? 1 - v.wait : l->busy / (double)l->readings;
    v.copied = l->train_seconds > 0 ? l->uploaded / l->train_seconds : 0;
    v.bound = v.busy >= FLIM_LOAD_LEAST ? FLIM_LOAD_BUSY
              : v.wait >= WAITING       ? FLIM_LOAD_LOADER
              : v.outside >= OUTSIDE    ? FLIM_LOAD_EVALUATION
              : v.copied >= COPYING     ? FLIM_LOAD_COPIES
                                        : FLIM_LOAD_LAUNCHES;
    return v;
}

void flim_load_text(const flim_load_verdict *v, int64_t workers, int64_t batch, bool cached, char *text, size_t size)
{
    const int used = snprintf(text, size, "the GPU is %s%.0f %% busy: ", v->at_most ? "at most " : "", 100 * v->busy);
    if (used < 0 || (size_t)used >= size) {
        return;
    }
    char *to = text + used;
    size -= (size_t)used;
    switch (v->bound) {
    case FLIM_LOAD_UNKNOWN:
    case FLIM_LOAD_BUSY: text[0] = '\0'; return;
    case FLIM_LOAD_LOADER:
        snprintf(to, size,
                 "%.0f %% of the time training waits for cells to be read and unpacked; use more --workers (now %" PRId64
                 ")%s",
                 100 * v->wait, workers, cached ? "" : ", or --cache device or host, or a file that flim_repack has written");
        return;
    case FLIM_LOAD_EVALUATION:
        snprintf(
            to, size,
            "%.0f %% of the time goes into validation and checkpoints between the epochs; use a larger --eval-batch, or a "
            "smaller --val-fraction",
            100 * v->outside);
        return;
    case FLIM_LOAD_COPIES:
        snprintf(to, size, "cells are copied to it at %.1f GB/s; --cache device copies each of them once", v->copied / 1e9);
        return;
    case FLIM_LOAD_LAUNCHES:
        snprintf(to, size,
                 "batches of %" PRId64
                 " cells are too little work at once; use a larger --batch (gpu_plan says which fit), and "
                 "--lr-scale sqrt with it",
                 batch);
        return;
    }
}
