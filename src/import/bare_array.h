/* Arrays of numbers without a description, as fields: (Y,X,T) or (T,Y,X), with axes of one before them, or (N,Y,X,T) and
 * (N,T,Y,X): N images.
 *
 * For: the readers of files that hold such arrays (NumPy, HDF5, MATLAB).
 * Owns: nothing.
 * Errors: FLIM_ERROR_DATA with the name that the reader gives, FLIM_ERROR_USAGE if the time may be two of the axes.
 */
#ifndef FLIM_IMPORT_BARE_ARRAY_H
#define FLIM_IMPORT_BARE_ARRAY_H

#include "import/element.h"
#include "import/field_file.h"

enum { FLIM_ARRAY_AXES = 8 };

typedef struct flim_bare_array {
    flim_element element;
    bool fortran; /* the first axis varies fastest; else the last */
    int n_axes;
    int64_t size[FLIM_ARRAY_AXES]; /* (n_axes), each at least 1 */
    uint64_t data; /* offset of the first element in the bytes that its reader hands on */
} flim_bare_array;

/* Elements in all.  FLIM_ERROR_DATA if their bytes are more than a size can say. */
flim_status flim_array_total(const char *name, const flim_bare_array *array, int64_t *total, flim_error *err);

/* Adds the images of an array to the file's list.  name: of the array, for messages; label: how its images are called, "" for
 * the file's only one; place: where the reader finds the array again. */
flim_status flim_array_add_images(flim_field_file *file, const char *name, const char *label, const flim_bare_array *array,
                                  uint64_t place, flim_error *err);

/* Image `image` of the file, which is in this array, from the array's elements: the first of `count` bytes at `data`.
 * counts: (Y,X,T). */
flim_status flim_array_read_image(const flim_field_file *file, const char *name, const flim_bare_array *array, int image,
                                  const uint8_t *data, uint64_t count, uint32_t *counts, flim_error *err);

#endif
