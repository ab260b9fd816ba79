/* Arrays of numbers in any HDF5 file, whatever they are called: for the importer, which makes data files of them.
 *
 * Owns: flim_h5_arrays_open makes it; flim_h5_arrays_close releases it.
 * Errors: FLIM_ERROR_DATA with file, dataset and reason.
 */
#ifndef FLIM_DATA_HDF5_ARRAY_H
#define FLIM_DATA_HDF5_ARRAY_H

#include <stdbool.h>
#include <stdint.h>

#include "flim/status.h"

enum { FLIM_H5_ARRAY_AXES = 8, FLIM_H5_ARRAY_NAME = 256 };

typedef struct flim_h5_array {
    char name[FLIM_H5_ARRAY_NAME]; /* "group/dataset", without a slash in front */
    int n_axes;
    int64_t size[FLIM_H5_ARRAY_AXES]; /* (n_axes); the last varies fastest */
    char kind; /* u, i, f */
    int bytes; /* of a number */
    bool matlab; /* MATLAB's own: its axes are in reversed order */
} flim_h5_array;

typedef struct flim_h5_arrays flim_h5_arrays;

/* Lists the datasets of numbers that have three axes or more and a value at least, in all groups, sorted by name; links into other
 * files are not followed.  Unless `trusted`, a child process looks first (core/first_look.h); stop: ends its look, may be NULL. */
flim_status flim_h5_arrays_open(const char *path, bool trusted, const volatile int *stop, flim_h5_arrays **out,
                                flim_error *err);
void flim_h5_arrays_close(flim_h5_arrays *arrays); /* NULL is allowed */
int flim_h5_arrays_count(const flim_h5_arrays *arrays);
const flim_h5_array *flim_h5_arrays_at(const flim_h5_arrays *arrays, int number);

/* Entries begin .. begin + count - 1 of axis `axis`, all of the others, in this machine's byte order; values: that many numbers of
 * the array's kind. */
flim_status flim_h5_arrays_read(flim_h5_arrays *arrays, int number, int axis, int64_t begin, int64_t count, void *values,
                                flim_error *err);

#endif
