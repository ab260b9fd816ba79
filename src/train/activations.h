/* How much of a network is inactive: which share of its activations is at or below zero, and which channels never are above it.
 *
 * For: --diagnostics, at the end of an epoch.  A program of its own predicts a few training cells, as they are, with running
 *      statistics, and keeps every tensor (backend/inspect.h).  Counted are the outputs of units that have an activation and whose
 *      input is another unit's: those are at hand on every backend.
 * Owns: the probe owns its program and its cells; flim_activations_destroy.  Device and data set are the caller's.
 * Errors: those of compiling, allocating and reading; FLIM_ERROR_MEMORY says that it is the probe for which there is no memory.
 */
#ifndef FLIM_TRAIN_ACTIVATIONS_H
#define FLIM_TRAIN_ACTIVATIONS_H

#include "flim/dataset.h"
#include "flim/device.h"

enum { FLIM_PROBE_CELLS = 8 }; /* at most */

typedef struct flim_activations flim_activations;

typedef struct flim_activation_figures {
    double inactive; /* share of the values at or below zero, mean over the units; NaN: no such unit */
    double dead; /* share of all their channels without a value above zero in any of the cells; likewise */
} flim_activation_figures;

/* cell (n): FLIM_PROBE_CELLS of them, at even distances, are read. */
flim_status flim_activations_create(flim_device *device, const flim_network *net, flim_precision precision,
                                    bool deterministic, flim_dataset *dataset, const int64_t *cell, int64_t n,
                                    flim_activations **out, flim_error *err);
void flim_activations_destroy(flim_activations *probe); /* NULL is allowed */
/* Bytes of the device that it holds. */
int64_t flim_activations_bytes(const flim_activations *probe);

/* Of these weights: parameter (P), statistic (S). */
flim_status flim_activations_measure(flim_activations *probe, const float *parameter, const float *statistic,
                                     flim_activation_figures *out, flim_error *err);

#endif
