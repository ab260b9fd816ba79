/* The numbers of /counts and the order of its axes, checked when a file is opened. */
#include "data/hdf5/hdf5_cells.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/try.h"

static bool known_integer(hid_t type, flim_number *number)
{
    size_t size = H5Tget_size(type);
    H5T_order_t order = H5Tget_order(type);
    if ((size != 1 && size != 2 && size != 4 && size != 8) || H5Tget_precision(type) != 8 * size ||
        H5Tget_offset(type) != 0 || (size > 1 && order != H5T_ORDER_LE && order != H5T_ORDER_BE)) {
        return false;
    }
    *number =
        (flim_number){H5Tget_class(type) == H5T_BITFIELD || H5Tget_sign(type) == H5T_SGN_NONE ? FLIM_UNSIGNED : FLIM_SIGNED,
                      size, size > 1 && order != H5Tget_order(H5T_NATIVE_INT)};
    return true;
}

static bool known_float(hid_t type, flim_number *number)
{
    size_t size = H5Tget_size(type), sign, exponent, exponent_bits, mantissa, mantissa_bits;
    H5T_order_t order = H5Tget_order(type);
    static const struct {
        size_t size, exponent_bits, mantissa_bits, bias;
    } ieee[] = {{2, 5, 10, 15}, {4, 8, 23, 127}, {8, 11, 52, 1023}};
    if ((order != H5T_ORDER_LE && order != H5T_ORDER_BE) ||
        H5Tget_fields(type, &sign, &exponent, &exponent_bits, &mantissa, &mantissa_bits) < 0) {
        return false;
    }
    for (size_t i = 0; i < sizeof ieee / sizeof ieee[0]; i++) {
        if (size == ieee[i].size && H5Tget_precision(type) == 8 * size && H5Tget_offset(type) == 0 && sign == 8 * size - 1 &&
            exponent == ieee[i].mantissa_bits && exponent_bits == ieee[i].exponent_bits && mantissa == 0 &&
            mantissa_bits == ieee[i].mantissa_bits && H5Tget_ebias(type) == ieee[i].bias &&
            H5Tget_norm(type) == H5T_NORM_IMPLIED) {
            *number = (flim_number){FLIM_FLOAT, size, order != H5Tget_order(H5T_NATIVE_INT)};
            return true;
        }
    }
    return false;
}

/* The largest value that a type can hold. */
static double largest_value(hid_t type, const flim_h5_packing *packing)
{
    if (H5Tget_class(type) != H5T_INTEGER && H5Tget_class(type) != H5T_BITFIELD) {
        return INFINITY;
    }
    const bool is_signed = H5Tget_class(type) == H5T_INTEGER && H5Tget_sign(type) != H5T_SGN_NONE;
    const double power = ldexp(1, (int)H5Tget_precision(type) - is_signed);
    return (packing->scale > 0 ? power - 1 : is_signed ? -power : 0) * packing->scale + packing->offset;
}

/* What the file's numbers are and as what they will be read.  *plain: raw bytes can be used without HDF5.
 * Other integer and float formats (12 bits in 16, bfloat16, 80-bit floats) are read by HDF5 into the widest
 * native type, which clips nothing. */
flim_status flim_h5_choose_number(flim_h5_cells *cells, hid_t type, bool *plain, const flim_log *log, flim_error *err)
{
    const flim_h5_packing *packing = &cells->packing;
    FLIM_TRY(flim_h5_read_packing(cells->h5, "counts", cells->dataset, true, &cells->packing, err));
    flim_number *number = &cells->info->number;
    flim_status status = FLIM_OK;
    hid_t base = H5Tget_class(type) == H5T_ENUM ? H5Tget_super(type) : H5Tcopy(type); /* bool is an enum */
    H5T_class_t class = H5Tget_class(base);
    *plain = ((class == H5T_INTEGER || class == H5T_BITFIELD) && known_integer(base, number)) ||
             (class == H5T_FLOAT && known_float(base, number));
    cells->info->largest = largest_value(base, packing);
    snprintf(cells->info->gaps, sizeof cells->info->gaps, "%s", packing->gaps);
    if (packing->scaled[0]) {
        flim_log_line(log, FLIM_LOG_NOTE, "%s: /counts: applied to every number: %s", cells->h5->path, packing->scaled);
    }
    if (flim_h5_is_packed(packing) && (class == H5T_INTEGER || class == H5T_FLOAT)) {
        *number = (flim_number){FLIM_FLOAT, 8, false};
        *plain = false;
        cells->memory_type = H5Tcopy(H5T_NATIVE_DOUBLE);
    } else if (*plain) {
        cells->memory_type = flim_h5_native(base);
    } else if (class == H5T_INTEGER && H5Tget_precision(base) <= 64) {
        bool is_signed = H5Tget_sign(base) != H5T_SGN_NONE;
        *number = (flim_number){is_signed ? FLIM_SIGNED : FLIM_UNSIGNED, 8, false};
        cells->memory_type = H5Tcopy(is_signed ? H5T_NATIVE_INT64 : H5T_NATIVE_UINT64);
    } else if (class == H5T_FLOAT) {
        *number = (flim_number){FLIM_FLOAT, 8, false};
        cells->memory_type = H5Tcopy(H5T_NATIVE_DOUBLE);
    } else {
        char found[80];
        flim_h5_type_name(type, true, found, sizeof found);
        status = flim_fail(err, FLIM_ERROR_DATA, "%s: /counts: found %s, expected integers of at most 64 bits or floats",
                           cells->h5->path, found);
    }
    if (status == FLIM_OK && cells->memory_type < 0) {
        status = flim_fail(err, FLIM_ERROR_DATA, "%s: /counts: its number type cannot be read", cells->h5->path);
    }
    flim_h5_drop(base);
    return status;
}

flim_status flim_h5_check_axes(flim_h5_cells *cells, const char *axes, const flim_log *log, flim_error *err)
{
    static const char letters[] = "NTYX";
    const char *path = cells->h5->path, *order = axes ? axes : letters;
    char found[256];
    int rank, next = 0;
    hsize_t sizes[8] = {0};
    flim_h5_describe(cells->dataset, found, sizeof found);
    if (!flim_h5_shape(cells->dataset, &rank, sizes) || rank != 4) {
        return flim_fail(err, FLIM_ERROR_DATA,
                         "%s: /counts: found %s, expected four axes (N,T,H,W): cells, time bins, rows, columns", path, found);
    }
    for (int i = 0; i < 4; i++) {
        const char *at = strchr(letters, order[i]);
        cells->axis[i] = (int)(at - letters);
        cells->size[i] = sizes[i];
        if (cells->axis[i] == 0) {
            cells->n_axis = i;
        } else {
            cells->info->order[next++] = cells->axis[i] - 1;
        }
        if (sizes[i] == 0) {
            return flim_fail(err, FLIM_ERROR_DATA, "%s: /counts: found %s, which is empty; expected (N,T,H,W) with N >= 1",
                             path, found);
        }
        if (sizes[i] > INT32_MAX) {
            return flim_fail(err, FLIM_ERROR_DATA, "%s: /counts: found %s, expected no axis longer than 2147483647", path,
                             found);
        }
        int *target[4] = {NULL, &cells->info->t, &cells->info->h, &cells->info->w};
        if (cells->axis[i] == 0) {
            cells->info->n = (int64_t)sizes[i];
        } else {
            *target[cells->axis[i]] = (int)sizes[i];
        }
    }
    cells->info->transposed = cells->info->order[0] != 0 || cells->info->order[1] != 1;
    /* Images are square or nearly so: rows and columns that differ much where two other neighbours agree is MATLAB's or
     * Julia's order, or time last. */
    bool reversed = sizes[0] == sizes[1] && sizes[2] >= 2 * sizes[1] && sizes[2] != sizes[3];
    bool time_last = sizes[1] == sizes[2] && sizes[3] >= 2 * sizes[2];
    if (!axes && (reversed || time_last)) {
        return flim_fail(err, FLIM_ERROR_DATA,
                         "%s: /counts: found %s, expected (N,T,H,W): cells, time bins, rows, columns; this looks like %s: "
                         "set the order with --axes, or --axes NTHW if it is right as it is",
                         path, found, reversed ? "XYTN, as MATLAB and Julia write it" : "NYXT or TYXN");
    }
    if (cells->info->t < 8 || cells->info->h < 3 || cells->info->w < 3) {
        return flim_fail(err, FLIM_ERROR_DATA,
                         "%s: /counts: found %s, read as %lld cells of T = %d, H = %d, W = %d; expected T >= 8, H and W >= "
                         "3; set another order of axes with --axes",
                         path, found, (long long)cells->info->n, cells->info->t, cells->info->h, cells->info->w);
    }
    if (!axes && (sizes[0] == sizes[1] || sizes[0] == sizes[2])) {
        flim_log_line(
            log, FLIM_LOG_NOTE,
            "%s: /counts is %s: N cannot be told by its size; the first axis is used as the cells (--axes changes this)",
            path, found);
    }
    return FLIM_OK;
}
