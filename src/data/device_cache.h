/* Cells of a data set in the device's memory, so that a training step needs nothing from the host but cell numbers.
 *
 * For: --cache device.  Three steps: widths (how narrow each cell's counts can be stored), plan (before the program is
 *      allocated), fill (after it).  A loader made with options.device_cached then delivers batches without voxels.
 * Owns: nothing; `bytes` is the caller's, (n) entries.
 * Errors: FLIM_ERROR_USAGE if the device has no memory of its own; FLIM_ERROR_DATA from reading; FLIM_INTERRUPTED.
 */
#ifndef FLIM_DATA_DEVICE_CACHE_H
#define FLIM_DATA_DEVICE_CACHE_H

#include "flim/dataset.h"
#include "flim/device.h"

/* bytes[i] of a voxel of cell i: 1, 2 or 4.  summary: (n) of a scan, which says what each cell needs; NULL: what the file's
 * type can hold. */
void flim_device_cache_widths(const flim_dataset *dataset, const flim_cell_summary *summary, uint8_t *bytes);

/* Device bytes that these cells take, to within a MiB; flim_program_memory has the exact number once they are planned. */
int64_t flim_device_cache_bytes(const flim_dataset *dataset, const uint8_t *bytes);

/* flim_program_plan_cache with the data set's own signal table. */
flim_status flim_device_cache_plan(flim_program *program, const flim_dataset *dataset, const uint8_t *bytes, flim_error *err);

/* Reads every cell on `workers` threads and stores it in the program.  `stop` (may be NULL) is polled. */
flim_status flim_device_cache_fill(flim_program *program, flim_dataset *dataset, const uint8_t *bytes, int workers,
                                   const volatile int *stop, flim_error *err);

#endif
