/* The header of NumPy's .npy, format 1 to 3 (numpy.lib.format). */
#ifndef FLIM_IMPORT_NPY_HEADER_H
#define FLIM_IMPORT_NPY_HEADER_H

#include "import/bare_array.h"

bool flim_is_npy(const uint8_t *bytes, size_t count);

/* The array whose header is the first of `count` bytes; its elements need not be among them.  FLIM_ERROR_DATA with `name`: arrays
 * of objects are pickles, programs that is, and are never read. */
flim_status flim_npy_header(const char *name, const uint8_t *bytes, size_t count, flim_bare_array *out, flim_error *err);

#endif
