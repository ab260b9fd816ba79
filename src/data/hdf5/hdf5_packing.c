#include "data/hdf5/hdf5_packing.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/try.h"

/* The numbers of an attribute, at most `most`; *n = 0 where there is none. */
static flim_status read_numbers(const flim_h5 *h5, const char *name, hid_t dataset, const char *attribute, int most,
                                double *values, int *n, flim_error *err)
{
    flim_status status = FLIM_OK;
    char found[80] = "something unreadable";
    *n = 0;
    if (H5Aexists(dataset, attribute) <= 0) {
        return FLIM_OK;
    }
    const hid_t id = H5Aopen(dataset, attribute, H5P_DEFAULT), type = id >= 0 ? H5Aget_type(id) : -1,
                space = id >= 0 ? H5Aget_space(id) : -1;
    const H5T_class_t class = type >= 0 ? H5Tget_class(type) : H5T_NO_CLASS;
    const hssize_t count = space >= 0 ? H5Sget_simple_extent_npoints(space) : 0;
    if (type >= 0) {
        flim_h5_type_name(type, true, found, sizeof found);
    }
    if ((class != H5T_INTEGER && class != H5T_FLOAT) || count < 1 || count > most ||
        H5Aread(id, H5T_NATIVE_DOUBLE, values) < 0) {
        status = flim_fail(err, FLIM_ERROR_DATA,
                           "%s: /%s: attribute %s: found %lld x %s, expected %s: what the numbers of /%s mean is not known; "
                           "write the values themselves, without the attribute",
                           h5->path, name, attribute, (long long)(count < 0 ? 0 : count), found,
                           most == 1 ? "one number" : "numbers", name);
    } else {
        *n = (int)count;
    }
    flim_h5_drop(space);
    flim_h5_drop(type);
    flim_h5_drop(id);
    return status;
}

/* ", name value" at the end of a text. */
static void note(char *text, size_t size, const char *name, double value)
{
    const size_t used = strlen(text);
    snprintf(text + used, size - used, "%s%s %.9g", used ? ", " : "", name, value);
}

/* netCDF-3 has no unsigned integers of some widths, so files say so beside them. */
static flim_status check_unsigned(const flim_h5 *h5, const char *name, hid_t dataset, flim_error *err)
{
    char text[16] = "";
    if (H5Aexists(dataset, "_Unsigned") <= 0) {
        return FLIM_OK;
    }
    const hid_t id = H5Aopen(dataset, "_Unsigned", H5P_DEFAULT), type = id >= 0 ? H5Aget_type(id) : -1,
                stored = H5Dget_type(dataset);
    const bool is_signed = stored >= 0 && H5Tget_class(stored) == H5T_INTEGER && H5Tget_sign(stored) == H5T_SGN_2;
    if (type >= 0 && H5Tget_class(type) == H5T_STRING && H5Tis_variable_str(type) == 0 && H5Tget_size(type) < sizeof text) {
        H5Aread(id, type, text);
    }
    flim_h5_drop(stored);
    flim_h5_drop(type);
    flim_h5_drop(id);
    return !is_signed || strncmp(text, "f", 1) == 0 || strncmp(text, "F", 1) == 0
               ? FLIM_OK
               : flim_fail(
                     err, FLIM_ERROR_DATA,
                     "%s: /%s: attribute _Unsigned says that its signed integers are meant as unsigned ones; write it with "
                     "an unsigned type",
                     h5->path, name);
}

flim_status flim_h5_read_packing(const flim_h5 *h5, const char *name, hid_t dataset, bool zero_is_zero, flim_h5_packing *out,
                                 flim_error *err)
{
    static const char *const fills[] = {"_FillValue", "missing_value"};
    double value[FLIM_H5_MOST_MISSING], range[2];
    int n = 0;
    *out = (flim_h5_packing){.scale = 1, .low = -INFINITY, .high = INFINITY};
    FLIM_TRY(check_unsigned(h5, name, dataset, err));
    FLIM_TRY(read_numbers(h5, name, dataset, "scale_factor", 1, value, &n, err));
    out->scale = n ? value[0] : 1;
    FLIM_TRY(read_numbers(h5, name, dataset, "add_offset", 1, value, &n, err));
    out->offset = n ? value[0] : 0;
    if (!isfinite(out->scale) || out->scale == 0 || !isfinite(out->offset)) {
        return flim_fail(err, FLIM_ERROR_DATA,
                         "%s: /%s: attributes scale_factor %.9g and add_offset %.9g give its numbers no value", h5->path,
                         name, out->scale, out->offset);
    }
    if (out->scale != 1) {
        note(out->scaled, sizeof out->scaled, "scale_factor", out->scale);
    }
    if (out->offset != 0) {
        note(out->scaled, sizeof out->scaled, "add_offset", out->offset);
    }
    const bool keeps_zero = zero_is_zero && out->offset == 0;
    for (size_t i = 0; i < 2; i++) {
        FLIM_TRY(read_numbers(h5, name, dataset, fills[i], FLIM_H5_MOST_MISSING / 2, value, &n, err));
        for (int j = 0; j < n; j++) {
            if (!(value[j] == 0 && keeps_zero)) {
                out->missing[out->n_missing++] = value[j];
                note(out->gaps, sizeof out->gaps, fills[i], value[j]);
            }
        }
    }
    FLIM_TRY(read_numbers(h5, name, dataset, "valid_range", 2, range, &n, err));
    if (n == 2) {
        out->low = range[0];
        out->high = range[1];
    }
    FLIM_TRY(read_numbers(h5, name, dataset, "valid_min", 1, range, &n, err));
    out->low = n ? range[0] : out->low;
    FLIM_TRY(read_numbers(h5, name, dataset, "valid_max", 1, range, &n, err));
    out->high = n ? range[0] : out->high;
    if (isfinite(out->low)) {
        note(out->gaps, sizeof out->gaps, "valid_min", out->low);
    }
    if (isfinite(out->high)) {
        note(out->gaps, sizeof out->gaps, "valid_max", out->high);
    }
    return FLIM_OK;
}

double flim_h5_unpack(const flim_h5_packing *packing, double stored)
{
    for (int i = 0; i < packing->n_missing; i++) {
        if (stored == packing->missing[i] || (isnan(stored) && isnan(packing->missing[i]))) {
            return NAN;
        }
    }
    if (stored < packing->low || stored > packing->high) {
        return NAN;
    }
    return stored * packing->scale + packing->offset;
}
