/* Everything of a file that is one value a cell (labels, groups, names, masks) and the root's attributes. */
#include "data/hdf5_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"

static flim_status cannot_read(const flim_h5 *h5, const char *name, flim_error *err)
{
    char reason[512];
    flim_h5_reason(reason, sizeof reason);
    return flim_fail(err, FLIM_ERROR_DATA, "%s: /%s: cannot be read: %s", h5->path, name, reason);
}

flim_status flim_h5_column_kind(flim_h5 *h5, const char *name, bool needed, flim_h5_kind *kind, flim_error *err)
{
    *kind = FLIM_H5_NONE;
    hid_t dataset = -1, type = -1;
    flim_h5_guard guard = flim_h5_enter();
    const char *expected = strcmp(name, "label") == 0   ? "one integer a cell, 0..K-1"
                           : strcmp(name, "group") == 0 ? "one integer or string a cell (its donor, patient, dish ...)"
                                                        : "one string a cell";
    flim_status status = flim_h5_dataset(h5, name, needed, expected, H5P_DEFAULT, &dataset, err);
    if (status == FLIM_OK && dataset >= 0) {
        type = H5Dget_type(dataset);
        H5T_class_t class = H5Tget_class(type);
        *kind = class == H5T_STRING                                               ? FLIM_H5_STRINGS
                : class == H5T_INTEGER || class == H5T_FLOAT || class == H5T_ENUM ? FLIM_H5_NUMBERS
                                                                                  : FLIM_H5_OTHER;
        if (*kind == FLIM_H5_OTHER) {
            char found[256];
            flim_h5_describe(dataset, found, sizeof found);
            status = flim_fail(err, FLIM_ERROR_DATA, "%s: /%s: found %s, expected %s", h5->path, name, found, expected);
        }
        if (type >= 0) {
            H5Tclose(type);
        }
        H5Dclose(dataset);
    }
    flim_h5_leave(guard);
    return status;
}

/* Opens a column and checks that it has exactly n values. */
static flim_status open_column(flim_h5 *h5, const char *name, int64_t n, hid_t *dataset, flim_error *err)
{
    int rank;
    hsize_t sizes[8] = {0};
    flim_status status = flim_h5_dataset(h5, name, true, "one value a cell", H5P_DEFAULT, dataset, err);
    if (status != FLIM_OK) {
        return status;
    }
    char found[256];
    flim_h5_describe(*dataset, found, sizeof found);
    if (!flim_h5_shape(*dataset, &rank, sizes) || rank != 1) {
        status = flim_fail(err, FLIM_ERROR_DATA, "%s: /%s: found %s, expected one axis, (%lld), one value a cell", h5->path,
                           name, found, (long long)n);
    } else if (sizes[0] != (hsize_t)n) {
        status = flim_fail(err, FLIM_ERROR_DATA, "%s: /%s has %llu values, /counts has %lld cells; expected one value a cell",
                           h5->path, name, (unsigned long long)sizes[0], (long long)n);
    }
    if (status != FLIM_OK) {
        H5Dclose(*dataset);
        *dataset = -1;
    }
    return status;
}

/* ---- integers */

static flim_status integers_from_doubles(const flim_h5 *h5, const char *name, int64_t n, const double *in, int64_t *out,
                                         flim_error *err)
{
    for (int64_t i = 0; i < n; i++) {
        if (!(fabs(in[i]) <= 0x1p53) || in[i] != floor(in[i])) {
            return flim_fail(err, FLIM_ERROR_DATA, "%s: /%s: cell %lld: found %.9g, expected a whole number", h5->path, name,
                             (long long)i, in[i]);
        }
        out[i] = (int64_t)in[i];
    }
    return FLIM_OK;
}

flim_status flim_h5_read_integers(flim_h5 *h5, const char *name, int64_t n, int64_t *values, flim_error *err)
{
    hid_t dataset = -1, type = -1;
    double *doubles = NULL;
    flim_h5_guard guard = flim_h5_enter();
    flim_status status = open_column(h5, name, n, &dataset, err);
    if (status != FLIM_OK) {
        goto done;
    }
    type = H5Dget_type(dataset);
    H5T_class_t class = H5Tget_class(type);
    hid_t base = class == H5T_ENUM ? H5Tget_super(type) : -1;
    bool is_unsigned = H5Tget_sign(base >= 0 ? base : type) == H5T_SGN_NONE;
    if (base >= 0) {
        H5Tclose(base);
    }
    size_t size = H5Tget_size(type);
    if ((class != H5T_INTEGER && class != H5T_ENUM && class != H5T_FLOAT) || size == 0 || size > 8) {
        char found[256];
        flim_h5_describe(dataset, found, sizeof found);
        status =
            flim_fail(err, FLIM_ERROR_DATA, "%s: /%s: found %s, expected integers of at most 64 bits", h5->path, name, found);
        goto done;
    }
    if (class == H5T_FLOAT) {
        if (!(doubles = flim_alloc((size_t)n, sizeof *doubles, err))) {
            status = FLIM_ERROR_MEMORY;
        } else if (H5Dread(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, doubles) < 0) {
            status = cannot_read(h5, name, err);
        } else {
            status = integers_from_doubles(h5, name, n, doubles, values, err);
        }
        goto done;
    }
    /* HDF5 clips what does not fit the memory type, silently: unsigned values are read as unsigned, then checked. */
    if (H5Dread(dataset, is_unsigned ? H5T_NATIVE_UINT64 : H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) < 0) {
        status = cannot_read(h5, name, err);
        goto done;
    }
    for (int64_t i = 0; is_unsigned && i < n; i++) {
        if (values[i] < 0) {
            status = flim_fail(err, FLIM_ERROR_DATA, "%s: /%s: cell %lld: found %llu, expected at most 9223372036854775807",
                               h5->path, name, (long long)i, (unsigned long long)values[i]);
            goto done;
        }
    }
done:
    flim_free(doubles);
    if (type >= 0) {
        H5Tclose(type);
    }
    if (dataset >= 0) {
        H5Dclose(dataset);
    }
    flim_h5_leave(guard);
    return status;
}

/* ---- strings */

/* A fixed-length string as text: up to the first zero byte; Fortran's blank padding is no part of it. */
static char *fixed_string(const char *bytes, size_t size, H5T_str_t padding, flim_error *err)
{
    size_t length = strnlen(bytes, size);
    while (padding == H5T_STR_SPACEPAD && length && bytes[length - 1] == ' ') {
        length--;
    }
    char *text = flim_alloc(length + 1, 1, err);
    if (text) {
        memcpy(text, bytes, length);
    }
    return text;
}

/* HDF5 allocates each variable-length string by what the file says; this keeps the sum under the file's limit. */
typedef struct budget {
    int64_t left;
} budget;

static void *budget_alloc(size_t size, void *info)
{
    budget *b = info;
    if (size > INT64_MAX || (int64_t)size > b->left) {
        return NULL;
    }
    b->left -= (int64_t)size;
    return flim_alloc(size, 1, NULL); /* HDF5 pairs it with budget_free */
}

static void budget_free(void *memory, void *info)
{
    (void)info;
    flim_free(memory);
}

/* n strings from a dataset (attribute < 0) or an attribute into list. */
static flim_status read_strings(const flim_h5 *h5, const char *name, hid_t dataset, hid_t attribute, hid_t type, hid_t space,
                                int64_t n, char **list, flim_error *err)
{
    flim_status status = FLIM_OK;
    size_t size = H5Tget_size(type);
    bool variable = H5Tis_variable_str(type) > 0;
    char *buffer = NULL;
    hid_t transfer = -1;
    budget left = {flim_h5_limit(h5)};
    if ((status = flim_h5_check_bytes(h5, name, n, size, err)) != FLIM_OK) {
        return status;
    }
    if (!(buffer = flim_alloc((size_t)n, size, err))) {
        return FLIM_ERROR_MEMORY;
    }
    transfer = H5Pcreate(H5P_DATASET_XFER);
    if (transfer < 0 || H5Pset_vlen_mem_manager(transfer, budget_alloc, &left, budget_free, &left) < 0 ||
        (attribute >= 0 ? H5Aread(attribute, type, buffer) : H5Dread(dataset, type, H5S_ALL, H5S_ALL, transfer, buffer)) <
            0) {
        status = cannot_read(h5, name, err);
        goto done;
    }
    for (int64_t i = 0; i < n && status == FLIM_OK; i++) {
        if (variable) {
            const char *text = ((char **)(void *)buffer)[i];
            list[i] = flim_strdup(text ? text : "", err);
        } else {
            list[i] = fixed_string(buffer + (size_t)i * size, size, H5Tget_strpad(type), err);
        }
        status = list[i] ? FLIM_OK : FLIM_ERROR_MEMORY;
    }
    if (variable) {
        H5Dvlen_reclaim(type, space, attribute >= 0 ? H5P_DEFAULT : transfer, buffer);
    }
done:
    if (transfer >= 0) {
        H5Pclose(transfer);
    }
    flim_free(buffer);
    return status;
}

flim_status flim_h5_read_strings(flim_h5 *h5, const char *name, int64_t n, char **list, flim_error *err)
{
    hid_t dataset = -1, type = -1, space = -1;
    flim_h5_guard guard = flim_h5_enter();
    flim_status status = open_column(h5, name, n, &dataset, err);
    if (status != FLIM_OK) {
        goto done;
    }
    type = H5Dget_type(dataset);
    space = H5Dget_space(dataset);
    if (type < 0 || space < 0) {
        status = cannot_read(h5, name, err);
    } else if (H5Tget_class(type) != H5T_STRING) {
        char found[256];
        flim_h5_describe(dataset, found, sizeof found);
        status = flim_fail(err, FLIM_ERROR_DATA, "%s: /%s: found %s, expected strings", h5->path, name, found);
    } else {
        status = read_strings(h5, name, dataset, -1, type, space, n, list, err);
    }
done:
    if (space >= 0) {
        H5Sclose(space);
    }
    if (type >= 0) {
        H5Tclose(type);
    }
    if (dataset >= 0) {
        H5Dclose(dataset);
    }
    flim_h5_leave(guard);
    return status;
}

/* ---- attributes */

flim_status flim_h5_attribute_strings(flim_h5 *h5, const char *name, char ***list, int64_t *count, flim_error *err)
{
    flim_status status = FLIM_OK;
    hid_t attribute = -1, type = -1, space = -1;
    char **strings = NULL;
    int64_t n = 0;
    *list = NULL;
    *count = 0;
    flim_h5_guard guard = flim_h5_enter();
    if (H5Aexists(h5->file, name) <= 0) {
        goto done;
    }
    attribute = H5Aopen(h5->file, name, H5P_DEFAULT);
    type = attribute >= 0 ? H5Aget_type(attribute) : -1;
    space = attribute >= 0 ? H5Aget_space(attribute) : -1;
    if (type < 0 || space < 0) {
        status = cannot_read(h5, name, err);
        goto done;
    }
    n = (int64_t)H5Sget_simple_extent_npoints(space);
    if (H5Tget_class(type) != H5T_STRING || H5Sget_simple_extent_type(space) == H5S_NULL || n < 1) {
        char found[80];
        flim_h5_type_name(type, true, found, sizeof found);
        status = flim_fail(err, FLIM_ERROR_DATA, "%s: attribute %s: found %lld x %s, expected a list of strings", h5->path,
                           name, (long long)(n < 0 ? 0 : n), found);
        n = 0;
        goto done;
    }
    if ((status = flim_h5_check_bytes(h5, name, n, sizeof *strings, err)) != FLIM_OK) {
        n = 0;
        goto done;
    }
    if (!(strings = flim_alloc((size_t)n, sizeof *strings, err))) {
        status = FLIM_ERROR_MEMORY;
        goto done;
    }
    status = read_strings(h5, name, -1, attribute, type, space, n, strings, err);
done:
    if (space >= 0) {
        H5Sclose(space);
    }
    if (type >= 0) {
        H5Tclose(type);
    }
    if (attribute >= 0) {
        H5Aclose(attribute);
    }
    flim_h5_leave(guard);
    if (status == FLIM_OK) {
        *list = strings;
        *count = n;
    } else {
        for (int64_t i = 0; strings && i < n; i++) {
            flim_free(strings[i]);
        }
        flim_free(strings);
    }
    return status;
}

flim_status flim_h5_attribute_number(flim_h5 *h5, const char *name, double *value, flim_error *err)
{
    flim_status status = FLIM_OK;
    hid_t attribute = -1, type = -1, space = -1;
    double found = 0;
    flim_h5_guard guard = flim_h5_enter();
    if (H5Aexists(h5->file, name) <= 0) {
        goto done;
    }
    attribute = H5Aopen(h5->file, name, H5P_DEFAULT);
    type = attribute >= 0 ? H5Aget_type(attribute) : -1;
    space = attribute >= 0 ? H5Aget_space(attribute) : -1;
    H5T_class_t class = type >= 0 ? H5Tget_class(type) : H5T_NO_CLASS;
    if ((class != H5T_INTEGER && class != H5T_FLOAT) || space < 0 || H5Sget_simple_extent_npoints(space) != 1) {
        status = flim_fail(err, FLIM_ERROR_DATA, "%s: attribute %s: expected one number", h5->path, name);
    } else if (H5Aread(attribute, H5T_NATIVE_DOUBLE, &found) < 0) {
        status = cannot_read(h5, name, err);
    } else {
        *value = found;
    }
done:
    if (space >= 0) {
        H5Sclose(space);
    }
    if (type >= 0) {
        H5Tclose(type);
    }
    if (attribute >= 0) {
        H5Aclose(attribute);
    }
    flim_h5_leave(guard);
    return status;
}

/* ---- masks */

/* axes without T, in the file's order: position of N, Y, X among the mask's axes. */
static void mask_axes(const char *axes, int at[3])
{
    int next = 0;
    for (int i = 0; i < 4; i++) {
        if (axes[i] != 'T') {
            at[axes[i] == 'N' ? 0 : axes[i] == 'Y' ? 1 : 2] = next++;
        }
    }
}

flim_status flim_h5_read_mask(flim_h5 *h5, const char *axes, int64_t n, int h, int w, uint8_t *mask, bool *found,
                              int64_t *other, flim_error *err)
{
    flim_status status = FLIM_OK;
    hid_t dataset = -1, type = -1, space = -1, memory = -1;
    double *values = NULL;
    *found = false;
    *other = 0;
    flim_h5_guard guard = flim_h5_enter();
    status = flim_h5_dataset(h5, "mask", false, "(N,H,W)", H5P_DEFAULT, &dataset, err);
    if (status != FLIM_OK || dataset < 0) {
        goto done;
    }
    int rank, at[3];
    hsize_t sizes[8] = {0}, want[3];
    mask_axes(axes, at);
    want[at[0]] = (hsize_t)n;
    want[at[1]] = (hsize_t)h;
    want[at[2]] = (hsize_t)w;
    char text[256];
    flim_h5_describe(dataset, text, sizeof text);
    if (!flim_h5_shape(dataset, &rank, sizes) || rank != 3 || memcmp(sizes, want, sizeof want) != 0) {
        status = flim_fail(
            err, FLIM_ERROR_DATA,
            "%s: /mask: found %s, expected (%llu,%llu,%llu): one mask of %d x %d pixels for each of the %lld cells", h5->path,
            text, (unsigned long long)want[0], (unsigned long long)want[1], (unsigned long long)want[2], h, w, (long long)n);
        goto done;
    }
    type = H5Dget_type(dataset);
    H5T_class_t class = H5Tget_class(type);
    if (class != H5T_INTEGER && class != H5T_FLOAT && class != H5T_ENUM) {
        status = flim_fail(err, FLIM_ERROR_DATA, "%s: /mask: found %s, expected bool, integers or floats", h5->path, text);
        goto done;
    }
    /* Blocks of cells as doubles: every non-zero integer or float stays non-zero. */
    int64_t pixels = (int64_t)h * w, block = 1 + (1 << 18) / pixels;
    block = block < n ? block : n;
    if (!(values = flim_alloc((size_t)(block * pixels), sizeof *values, err))) {
        status = FLIM_ERROR_MEMORY;
        goto done;
    }
    space = H5Dget_space(dataset);
    for (int64_t first = 0; first < n; first += block) {
        int64_t cells = first + block < n ? block : n - first;
        hsize_t start[3] = {0, 0, 0}, count[3] = {want[0], want[1], want[2]};
        start[at[0]] = (hsize_t)first;
        count[at[0]] = (hsize_t)cells;
        memory = H5Screate_simple(3, count, NULL);
        if (memory < 0 || H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL) < 0 ||
            H5Dread(dataset, H5T_NATIVE_DOUBLE, memory, space, H5P_DEFAULT, values) < 0) {
            status = cannot_read(h5, "mask", err);
            flim_fail_prefix(err, "cells %lld to %lld: ", (long long)first, (long long)first + cells - 1);
            goto done;
        }
        H5Sclose(memory);
        memory = -1;
        hsize_t step[3] = {count[1] * count[2], count[2], 1};
        for (int64_t cell = 0; cell < cells; cell++) {
            for (int y = 0; y < h; y++) {
                for (int x = 0; x < w; x++) {
                    double value = values[(hsize_t)cell * step[at[0]] + (hsize_t)y * step[at[1]] + (hsize_t)x * step[at[2]]];
                    if (isnan(value)) {
                        status =
                            flim_fail(err, FLIM_ERROR_DATA,
                                      "%s: /mask: cell %lld, y %d, x %d: found NaN, expected 0 (outside) or not (inside)",
                                      h5->path, (long long)first + cell, y, x);
                        goto done;
                    }
                    mask[(first + cell) * pixels + (int64_t)y * w + x] = value != 0.0;
                    *other += value != 0.0 && value != 1.0;
                }
            }
        }
    }
    *found = true;
done:
    flim_free(values);
    if (memory >= 0) {
        H5Sclose(memory);
    }
    if (space >= 0) {
        H5Sclose(space);
    }
    if (type >= 0) {
        H5Tclose(type);
    }
    if (dataset >= 0) {
        H5Dclose(dataset);
    }
    flim_h5_leave(guard);
    return status;
}
