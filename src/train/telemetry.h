/* How the device did during an epoch: its own figures, read no more often than they change.
 *
 * For: the epoch's row of history.csv, which has those of training, the progress line, and device_load.h, for which the sums go
 *      on through validation; figures that a device does not report are NaN.
 * Owns: plain structs.  Errors: none.
 */
#ifndef FLIM_TRAIN_TELEMETRY_H
#define FLIM_TRAIN_TELEMETRY_H

#include "flim/device.h"
#include "train/fold_state.h"

typedef struct flim_telemetry {
    double read_at; /* seconds; -1 = not yet */
    flim_device_status now;
    double busy, watts, most_bytes, most_celsius; /* sums of the first two */
    int64_t n_busy, n_watts, n_reads;
} flim_telemetry;

void flim_telemetry_begin(flim_telemetry *telemetry, const flim_device *device); /* of an epoch */
void flim_telemetry_update(flim_telemetry *telemetry, const flim_device *device); /* after a batch; most calls do nothing */
void flim_telemetry_end(const flim_telemetry *telemetry, flim_epoch_row *row);

#endif
