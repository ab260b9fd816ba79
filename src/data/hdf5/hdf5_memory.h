/* Small HDF5 files that are made in memory, so that the one writer of files can write them.  Equal calls give equal bytes.  Private to
 * src/data/hdf5/.
 *
 * All under HDF5's lock (flim_h5_enter).  The functions that give a bool are false after an error, which HDF5 still knows.
 */
#ifndef FLIM_DATA_HDF5_MEMORY_H
#define FLIM_DATA_HDF5_MEMORY_H

#include <hdf5.h>
#include <stdbool.h>
#include <stddef.h>

#include "flim/status.h"

/* name: no file of it is made; HDF5 keeps files apart by it.  Negative after an error. */
hid_t flim_h5_memory_create(const char *name);
/* A dataset; data of `type` is stored as file_type. */
bool flim_h5_memory_values(hid_t file, const char *name, hid_t file_type, hid_t type, int rank, const hsize_t *size,
                           const void *data);
bool flim_h5_memory_attribute(hid_t file, const char *name, hid_t file_type, hid_t type, const void *value);
/* Texts of `length` bytes each, filled up with zeros; negative after an error, else the caller's (flim_h5_drop). */
hid_t flim_h5_memory_text(size_t length);
/* Closes the file and hands out its bytes, the caller's (flim_free), if it is good; else the reason, about `what`. */
flim_status flim_h5_memory_image(hid_t file, bool good, const char *what, void **bytes, size_t *count, flim_error *err);

#endif
