/* Why a GPU is not busy: from what a run measures of its epochs to what bounds it, and what to do about that.
 *
 * For: the warning of train_cv and docs/troubleshooting.md, whose table has the same rules.
 *      An epoch after the call's first counts (the first one tunes, captures and fills caches); once enough is known, a run below
 *      FLIM_LOAD_LEAST is told once.
 * Owns: plain structs.  Errors: none.
 */
#ifndef FLIM_TRAIN_DEVICE_LOAD_H
#define FLIM_TRAIN_DEVICE_LOAD_H

#include "train/telemetry.h"

#define FLIM_LOAD_LEAST 0.70 /* share of the time in which a kernel runs: below it, there is a warning */

/* What whole epochs came to, summed. */
typedef struct flim_load {
    int64_t epochs;
    double seconds, train_seconds; /* of all that an epoch does; of training */
    double wait_seconds; /* of training, for cells */
    double busy; /* sum of the device's readings over all of it */
    int64_t readings; /* 0: the driver tells none */
    double uploaded; /* bytes of cells that training copied to the device */
} flim_load;

typedef enum flim_load_bound {
    FLIM_LOAD_UNKNOWN, /* too little is known yet */
    FLIM_LOAD_BUSY, /* 70 % or more */
    FLIM_LOAD_LOADER, /* cells are not read and unpacked fast enough */
    FLIM_LOAD_EVALUATION, /* validation, checkpoints and records between the epochs' training */
    FLIM_LOAD_COPIES, /* cells are not copied fast enough */
    FLIM_LOAD_LAUNCHES /* none of these: its kernels are too short for what surrounds them */
} flim_load_bound;

typedef struct flim_load_verdict {
    flim_load_bound bound;
    bool at_most; /* the driver tells nothing: `busy` is what the waiting leaves */
    double busy, wait, outside; /* shares of the time: a kernel ran; waiting for cells; outside training */
    double copied; /* bytes a second, while training */
} flim_load_verdict;

/* Adds an epoch: its row, the seconds of all of it, the telemetry that began with it and went on to its end; bytes of a cell that
 * each batch copies, 0 if they are cached in device memory. */
void flim_load_add(flim_load *load, const flim_epoch_row *row, double seconds, const flim_telemetry *telemetry,
                   int64_t cell_bytes);

/* In this order: waiting for cells takes a tenth of the time or more; what is outside training three tenths; training copies
 * 5 GB/s or more, a third of what PCIe 3.0 x16 can do; else launches.  Unknown before ten seconds and, if there are readings,
 * twenty of them. */
flim_load_verdict flim_load_judge(const flim_load *load);

/* One sentence or two, with what to do; "" for UNKNOWN and BUSY.  workers, batch: as the run has them; cached: in device
 * memory. */
void flim_load_text(const flim_load_verdict *verdict, int64_t workers, int64_t batch, bool cached, char *text, size_t size);

#endif
