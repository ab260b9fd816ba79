/* Arrays of numbers without a description, as fields: (Y,X,T) or (T,Y,X), with axes of one before them, or (N,Y,X,T) and
 * (N,T,Y,X): N images.
 *
 * For: the readers of files that hold such arrays (NumPy, HDF5, MATLAB).  The axes may lie in any order in the file.
 * Owns: nothing.
 * Errors: FLIM_ERROR_DATA with the name that the reader gives, FLIM_ERROR_USAGE if the time may be two of the axes
 *      (FLIM_ARRAY_AUTO).
 */
#ifndef FLIM_IMPORT_BARE_ARRAY_H
#define FLIM_IMPORT_BARE_ARRAY_H

#include "import/element.h"
#include "import/field_file.h"

enum { FLIM_ARRAY_AXES = 8 };

typedef struct flim_bare_array {
    flim_element element;
    int n_axes;
    int64_t size[FLIM_ARRAY_AXES]; /* (n_axes), each at least 1 */
    int64_t step[FLIM_ARRAY_AXES]; /* (n_axes) from an entry to the next one, in elements */
    uint64_t data; /* offset of the first element in the bytes that its reader hands on */
} flim_bare_array;

/* Fills step from the sizes.  fortran: the first axis varies fastest; else the last.  *total (may be NULL) gets the number of
 * elements; FLIM_ERROR_DATA if their bytes are more than a size can say. */
flim_status flim_array_set_order(const char *name, flim_bare_array *array, bool fortran, int64_t *total, flim_error *err);
/* MATLAB's order of images: (Y,X,T,N) becomes (N,Y,X,T). */
void flim_array_last_axis_first(flim_bare_array *array);

/* Adds the images of an array to the file's list.  name: of the array, for messages; label: how its images are called, "" for
 * the file's only one; bytes: at most so many are there of its elements, so that no header makes a list that is longer than its
 * file; place: where the reader finds the array again. */
flim_status flim_array_add_images(flim_field_file *file, const char *name, const char *label, const flim_bare_array *array,
                                  uint64_t bytes, uint64_t place, flim_error *err);

/* The number of an image within its array. */
int64_t flim_array_image_number(const flim_field_file *file, int image);

/* Image `number` of an array, from its elements: the first of `count` bytes at `data`, which out may point into. */
flim_status flim_array_read_image(const flim_field_file *file, const char *name, const flim_bare_array *array, int64_t number,
                                  const uint8_t *data, uint64_t count, flim_counts *out, flim_error *err);

#endif
