/* Everything of a file that is one value per cell (labels, groups, names, masks) and the root's attributes. */
#include "data/hdf5/hdf5_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/try.h"

/* What is open while a column or an attribute is read, under the lock. */
typedef struct reading {
    flim_h5 *h5;
    const char *name;
    flim_h5_guard guard;
    hid_t dataset, attribute, type, space; /* -1 = not open */
} reading;

static reading enter(flim_h5 *h5, const char *name)
{
    return (reading){h5, name, flim_h5_enter(h5), -1, -1, -1, -1};
}

static void leave(reading *s)
{
    if (s->space >= 0) {
        H5Sclose(s->space);
    }
    if (s->type >= 0) {
        H5Tclose(s->type);
    }
    if (s->attribute >= 0) {
        H5Aclose(s->attribute);
    }
    if (s->dataset >= 0) {
        H5Dclose(s->dataset);
    }
    flim_h5_leave(s->guard);
}

static flim_status cannot_read(const reading *s, flim_error *err)
{
    char reason[512];
    flim_h5_reason(reason, sizeof reason);
    return s->attribute >= 0
               ? flim_fail(err, FLIM_ERROR_DATA, "%s: attribute %s: cannot be read: %s", s->h5->path, s->name, reason)
               : flim_fail(err, FLIM_ERROR_DATA, "%s: /%s: cannot be read: %s", s->h5->path, s->name, reason);
}

/* Another kind of dataset than was expected. */
static flim_status wrong_kind(const reading *s, const char *expected, flim_error *err)
{
    char found[256];
    flim_h5_describe(s->dataset, found, sizeof found);
    return flim_fail(err, FLIM_ERROR_DATA, "%s: /%s: found %s, expected %s", s->h5->path, s->name, found, expected);
}

/* Opens a dataset with its type and dataspace; s->dataset stays -1 where it does not exist and is not needed. */
static flim_status open_dataset(reading *s, bool needed, const char *expected, flim_error *err)
{
    FLIM_TRY(flim_h5_dataset(s->h5, s->name, needed, expected, H5P_DEFAULT, &s->dataset, err));
    if (s->dataset < 0) {
        return FLIM_OK;
    }
    s->type = H5Dget_type(s->dataset);
    s->space = H5Dget_space(s->dataset);
    return s->type < 0 || s->space < 0 ? cannot_read(s, err) : FLIM_OK;
}

/* The same for an attribute of the root: s->attribute stays -1 where there is none. */
static flim_status open_attribute(reading *s, flim_error *err)
{
    if (H5Aexists(s->h5->file, s->name) <= 0) {
        return FLIM_OK;
    }
    s->attribute = H5Aopen(s->h5->file, s->name, H5P_DEFAULT);
    s->type = s->attribute >= 0 ? H5Aget_type(s->attribute) : -1;
    s->space = s->attribute >= 0 ? H5Aget_space(s->attribute) : -1;
    return s->type < 0 || s->space < 0 ? cannot_read(s, err) : FLIM_OK;
}

/* Opens a column and checks that it has exactly n values. */
static flim_status open_column(reading *s, int64_t n, flim_error *err)
{
    int rank;
    hsize_t sizes[8] = {0};
    char expected[80];
    FLIM_TRY(open_dataset(s, true, "one value a cell", err));
    if (!flim_h5_shape(s->dataset, &rank, sizes) || rank != 1) {
        snprintf(expected, sizeof expected, "one axis, (%lld), one value a cell", (long long)n);
        return wrong_kind(s, expected, err);
    }
    if (sizes[0] != (hsize_t)n) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s: /%s has %llu values, /counts has %lld cells; expected one value a cell",
                         s->h5->path, s->name, (unsigned long long)sizes[0], (long long)n);
    }
    return FLIM_OK;
}

flim_status flim_h5_column_kind(flim_source *source, const char *name, bool needed, flim_column_kind *kind, flim_error *err)
{
    *kind = FLIM_COLUMN_NONE;
    const char *expected = strcmp(name, "label") == 0   ? "one integer a cell, 0..K-1"
                           : strcmp(name, "group") == 0 ? "one integer or string a cell (its donor, patient, dish ...)"
                                                        : "one string a cell";
    reading s = enter(flim_h5_of(source), name);
    flim_status status = open_dataset(&s, needed, expected, err);
    if (status == FLIM_OK && s.dataset >= 0) {
        H5T_class_t class = H5Tget_class(s.type);
        *kind = class == H5T_STRING                                               ? FLIM_COLUMN_STRINGS
                : class == H5T_INTEGER || class == H5T_FLOAT || class == H5T_ENUM ? FLIM_COLUMN_NUMBERS
                                                                                  : FLIM_COLUMN_OTHER;
        if (*kind == FLIM_COLUMN_OTHER) {
            status = wrong_kind(&s, expected, err);
        }
    }
    leave(&s);
    return status;
}

/* ---- integers */

static flim_status integers_from_doubles(const reading *s, int64_t n, int64_t *out, flim_error *err)
{
    flim_status status = FLIM_OK;
    double *in = flim_alloc((size_t)n, sizeof *in, err);
    if (!in) {
        return FLIM_ERROR_MEMORY;
    }
    if (H5Dread(s->dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, in) < 0) {
        status = cannot_read(s, err);
    }
    for (int64_t i = 0; i < n && status == FLIM_OK; i++) {
        if (!(fabs(in[i]) <= 0x1p53) || in[i] != floor(in[i])) {
            status = flim_fail(err, FLIM_ERROR_DATA, "%s: /%s: cell %lld: found %.9g, expected a whole number", s->h5->path,
                               s->name, (long long)i, in[i]);
        } else {
            out[i] = (int64_t)in[i];
        }
    }
    flim_free(in);
    return status;
}

/* HDF5 clips what does not fit the memory type, silently: unsigned values are read as unsigned, then checked. */
static flim_status integers(const reading *s, int64_t n, bool is_unsigned, int64_t *values, flim_error *err)
{
    if (H5Dread(s->dataset, is_unsigned ? H5T_NATIVE_UINT64 : H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) < 0) {
        return cannot_read(s, err);
    }
    for (int64_t i = 0; is_unsigned && i < n; i++) {
        if (values[i] < 0) {
            return flim_fail(err, FLIM_ERROR_DATA, "%s: /%s: cell %lld: found %llu, expected at most 9223372036854775807",
                             s->h5->path, s->name, (long long)i, (unsigned long long)values[i]);
        }
    }
    return FLIM_OK;
}

flim_status flim_h5_read_integers(flim_source *source, const char *name, int64_t *values, flim_error *err)
{
    const int64_t n = source->info.n;
    reading s = enter(flim_h5_of(source), name);
    flim_status status;
    FLIM_TRY_DONE(open_column(&s, n, err));
    const H5T_class_t class = H5Tget_class(s.type);
    const hid_t base = class == H5T_ENUM ? H5Tget_super(s.type) : -1;
    const bool is_unsigned = H5Tget_sign(base >= 0 ? base : s.type) == H5T_SGN_NONE;
    const size_t size = H5Tget_size(s.type);
    if (base >= 0) {
        H5Tclose(base);
    }
    status = (class != H5T_INTEGER && class != H5T_ENUM && class != H5T_FLOAT) || size == 0 || size > 8
                 ? wrong_kind(&s, "integers of at most 64 bits", err)
             : class == H5T_FLOAT ? integers_from_doubles(&s, n, values, err)
                                  : integers(&s, n, is_unsigned, values, err);
done:
    leave(&s);
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

/* The n strings of an open column or attribute into list. */
static flim_status strings(const reading *s, int64_t n, char **list, flim_error *err)
{
    const size_t size = H5Tget_size(s->type);
    const bool variable = H5Tis_variable_str(s->type) > 0;
    const H5T_str_t padding = variable ? H5T_STR_NULLTERM : H5Tget_strpad(s->type);
    char *buffer = NULL;
    hid_t transfer = -1;
    budget left = {flim_h5_limit(s->h5)};
    flim_status status = FLIM_OK;
    FLIM_TRY(flim_h5_check_bytes(s->h5, s->name, n, size, err));
    if (!(buffer = flim_alloc((size_t)n, size, err))) {
        return FLIM_ERROR_MEMORY;
    }
    transfer = H5Pcreate(H5P_DATASET_XFER);
    if (transfer < 0 || H5Pset_vlen_mem_manager(transfer, budget_alloc, &left, budget_free, &left) < 0 ||
        (s->attribute >= 0 ? H5Aread(s->attribute, s->type, buffer)
                           : H5Dread(s->dataset, s->type, H5S_ALL, H5S_ALL, transfer, buffer)) < 0) {
        status = cannot_read(s, err);
        goto done;
    }
    for (int64_t i = 0; i < n && status == FLIM_OK; i++) {
        if (variable) {
            const char *text = ((char **)(void *)buffer)[i];
            list[i] = flim_strdup(text ? text : "", err);
        } else {
            list[i] = fixed_string(buffer + (size_t)i * size, size, padding, err);
        }
        status = list[i] ? FLIM_OK : FLIM_ERROR_MEMORY;
    }
    if (variable) {
        H5Dvlen_reclaim(s->type, s->space, s->attribute >= 0 ? H5P_DEFAULT : transfer, buffer);
    }
done:
    if (transfer >= 0) {
        H5Pclose(transfer);
    }
    flim_free(buffer);
    return status;
}

flim_status flim_h5_read_strings(flim_source *source, const char *name, char **list, flim_error *err)
{
    const int64_t n = source->info.n;
    reading s = enter(flim_h5_of(source), name);
    flim_status status = open_column(&s, n, err);
    if (status == FLIM_OK) {
        status = H5Tget_class(s.type) == H5T_STRING ? strings(&s, n, list, err) : wrong_kind(&s, "strings", err);
    }
    leave(&s);
    return status;
}

/* ---- attributes */

/* A list of strings, not empty. */
static flim_status check_strings(const reading *s, int64_t *n, flim_error *err)
{
    *n = (int64_t)H5Sget_simple_extent_npoints(s->space);
    if (H5Tget_class(s->type) != H5T_STRING || H5Sget_simple_extent_type(s->space) == H5S_NULL || *n < 1) {
        char found[80];
        flim_h5_type_name(s->type, true, found, sizeof found);
        return flim_fail(err, FLIM_ERROR_DATA, "%s: attribute %s: found %lld x %s, expected a list of strings", s->h5->path,
                         s->name, (long long)(*n < 0 ? 0 : *n), found);
    }
    return flim_h5_check_bytes(s->h5, s->name, *n, sizeof(char *), err);
}

flim_status flim_h5_attribute_strings(flim_source *source, const char *name, char ***list, int64_t *count, flim_error *err)
{
    char **all = NULL;
    int64_t n = 0;
    *list = NULL;
    *count = 0;
    reading s = enter(flim_h5_of(source), name);
    flim_status status = open_attribute(&s, err);
    if (status == FLIM_OK && s.attribute >= 0 && (status = check_strings(&s, &n, err)) == FLIM_OK) {
        all = flim_alloc((size_t)n, sizeof *all, err);
        status = all ? strings(&s, n, all, err) : FLIM_ERROR_MEMORY;
    }
    leave(&s);
    if (status == FLIM_OK) {
        *list = all;
        *count = all ? n : 0;
        return FLIM_OK;
    }
    flim_free_list(all, n);
    return status;
}

flim_status flim_h5_attribute_number(flim_source *source, const char *name, double *value, flim_error *err)
{
    double found = 0;
    reading s = enter(flim_h5_of(source), name);
    flim_status status = open_attribute(&s, err);
    if (status == FLIM_OK && s.attribute >= 0) {
        H5T_class_t class = H5Tget_class(s.type);
        if ((class != H5T_INTEGER && class != H5T_FLOAT) || H5Sget_simple_extent_npoints(s.space) != 1) {
            status = flim_fail(err, FLIM_ERROR_DATA, "%s: attribute %s: expected one number", s.h5->path, name);
        } else if (H5Aread(s.attribute, H5T_NATIVE_DOUBLE, &found) < 0) {
            status = cannot_read(&s, err);
        } else {
            *value = found;
        }
    }
    leave(&s);
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

/* one, mixed: of the cell. */
static void note_value(double value, int64_t cell, double *one, bool *mixed, flim_mask_values *seen)
{
    if (value == 0.0) {
        return;
    }
    seen->other += value != 1.0;
    if (value > 0.0 && value < 1.0) {
        seen->least = seen->soft == 0 || value < seen->least ? value : seen->least;
        seen->most = seen->soft == 0 || value > seen->most ? value : seen->most;
        seen->soft++;
    } else if (*one == 0.0) {
        *one = value;
    } else if (value != *one && !*mixed) {
        *mixed = true;
        if (seen->mixed == 0) {
            seen->pair[0] = *one;
            seen->pair[1] = value;
        }
        if (seen->mixed < (int64_t)(sizeof seen->mixed_cell / sizeof seen->mixed_cell[0])) {
            seen->mixed_cell[seen->mixed] = cell;
        }
        seen->mixed++;
    }
}

/* Values of a block of cells, read in the file's axis order -> mask (cells,H,W) 0/1; first: number of the
 * block's first cell. */
static flim_status mask_block(const reading *s, const double *values, const hsize_t step[3], int64_t first, int64_t cells,
                              int h, int w, uint8_t *mask, flim_mask_values *seen, flim_error *err)
{
    for (int64_t cell = 0; cell < cells; cell++) {
        double one = 0; /* the first whole number inside */
        bool mixed = false;
        for (int y = 0; y < h; y++) {
            for (int x = 0; x < w; x++) {
                double value = values[(hsize_t)cell * step[0] + (hsize_t)y * step[1] + (hsize_t)x * step[2]];
                if (isnan(value)) {
                    return flim_fail(err, FLIM_ERROR_DATA,
                                     "%s: /mask: cell %lld, y %d, x %d: found NaN, expected 0 (outside) or not (inside)",
                                     s->h5->path, (long long)first + (long long)cell, y, x);
                }
                *mask++ = value != 0.0;
                note_value(value, first + cell, &one, &mixed, seen);
            }
        }
    }
    return FLIM_OK;
}

/* Blocks of cells as doubles: every non-zero integer or float stays non-zero. */
static flim_status mask_blocks(reading *s, const int at[3], const hsize_t sizes[3], int64_t n, int h, int w, uint8_t *mask,
                               flim_mask_values *seen, flim_error *err)
{
    const int64_t pixels = (int64_t)h * w, most = 1 + (1 << 18) / pixels, block = most < n ? most : n;
    flim_status status = FLIM_OK;
    double *values = flim_alloc((size_t)(block * pixels), sizeof *values, err);
    if (!values) {
        return FLIM_ERROR_MEMORY;
    }
    for (int64_t first = 0; first < n && status == FLIM_OK; first += block) {
        int64_t cells = first + block < n ? block : n - first;
        hsize_t start[3] = {0, 0, 0}, count[3] = {sizes[0], sizes[1], sizes[2]};
        start[at[0]] = (hsize_t)first;
        count[at[0]] = (hsize_t)cells;
        const hsize_t stride[3] = {count[1] * count[2], count[2], 1}, step[3] = {stride[at[0]], stride[at[1]], stride[at[2]]};
        hid_t memory = H5Screate_simple(3, count, NULL);
        if (memory < 0 || H5Sselect_hyperslab(s->space, H5S_SELECT_SET, start, NULL, count, NULL) < 0 ||
            H5Dread(s->dataset, H5T_NATIVE_DOUBLE, memory, s->space, H5P_DEFAULT, values) < 0) {
            status = cannot_read(s, err);
            flim_fail_prefix(err, "cells %lld to %lld: ", (long long)first, (long long)(first + cells - 1));
        } else {
            status = mask_block(s, values, step, first, cells, h, w, mask + first * pixels, seen, err);
        }
        if (memory >= 0) {
            H5Sclose(memory);
        }
    }
    flim_free(values);
    return status;
}

flim_status flim_h5_read_mask(flim_source *source, const char *axes, uint8_t *mask, bool *found, flim_mask_values *seen,
                              flim_error *err)
{
    const int64_t n = source->info.n;
    const int h = source->info.h, w = source->info.w;
    int rank, at[3];
    hsize_t sizes[8] = {0}, want[3];
    *found = false;
    *seen = (flim_mask_values){0};
    mask_axes(axes, at);
    want[at[0]] = (hsize_t)n;
    want[at[1]] = (hsize_t)h;
    want[at[2]] = (hsize_t)w;
    reading s = enter(flim_h5_of(source), "mask");
    flim_status status;
    FLIM_TRY_DONE(open_dataset(&s, false, "(N,H,W)", err));
    if (s.dataset < 0) {
        goto done;
    }
    if (!flim_h5_shape(s.dataset, &rank, sizes) || rank != 3 || memcmp(sizes, want, sizeof want) != 0) {
        char expected[160];
        snprintf(expected, sizeof expected, "(%llu,%llu,%llu): one mask of %d x %d pixels for each of the %lld cells",
                 (unsigned long long)want[0], (unsigned long long)want[1], (unsigned long long)want[2], h, w, (long long)n);
        status = wrong_kind(&s, expected, err);
        goto done;
    }
    H5T_class_t class = H5Tget_class(s.type);
    status = class != H5T_INTEGER && class != H5T_FLOAT && class != H5T_ENUM
                 ? wrong_kind(&s, "bool, integers or floats", err)
                 : mask_blocks(&s, at, want, n, h, w, mask, seen, err);
    *found = status == FLIM_OK;
done:
    leave(&s);
    return status;
}
