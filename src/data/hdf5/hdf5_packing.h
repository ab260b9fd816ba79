/* Packed numbers: the attributes by which netCDF and its kin say what a stored number means (CF conventions, 8.1 and 2.5.1).
 *
 * value = stored x scale_factor + add_offset; a stored number equal to _FillValue or missing_value, or outside of valid_min,
 * valid_max or valid_range, stands for no value.
 */
#ifndef FLIM_DATA_HDF5_PACKING_H
#define FLIM_DATA_HDF5_PACKING_H

#include "data/hdf5/hdf5_internal.h"

enum { FLIM_H5_MOST_MISSING = 16 };

typedef struct flim_h5_packing {
    double scale, offset; /* 1, 0 */
    double missing[FLIM_H5_MOST_MISSING];
    int n_missing;
    double low, high; /* -inf, inf */
    char scaled[80]; /* "scale_factor 0.25, add_offset -100"; "" = none */
    char gaps[160]; /* "_FillValue 65535"; "" = every number is one */
} flim_h5_packing;

/* Under the lock.  zero_is_zero: a 0 that stands for nothing means what a 0 means (counts, masks). */
flim_status flim_h5_read_packing(const flim_h5 *h5, const char *name, hid_t dataset, bool zero_is_zero, flim_h5_packing *out,
                                 flim_error *err);
static inline bool flim_h5_is_packed(const flim_h5_packing *packing)
{
    return packing->scaled[0] || packing->gaps[0];
}
/* The value of a stored number; NaN where it stands for none. */
double flim_h5_unpack(const flim_h5_packing *packing, double stored);

#endif
