/* Columns: one value per cell (labels, groups, names), as numbers or texts. */
#include "data/hdf5/hdf5_column.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/try.h"
#include "data/hdf5/hdf5_chunks.h"
#include "data/hdf5/hdf5_packing.h"

flim_h5_column flim_h5_column_enter(flim_h5 *h5, const char *name)
{
    return (flim_h5_column){h5, name, flim_h5_enter(h5), -1, -1, -1, -1};
}

flim_h5_column flim_h5_column_beside(const flim_h5_column *s, const char *name)
{
    return (flim_h5_column){s->h5, name, s->guard, -1, -1, -1, -1};
}

void flim_h5_column_close(flim_h5_column *s)
{
    flim_h5_drop(s->space);
    flim_h5_drop(s->type);
    flim_h5_drop(s->attribute);
    flim_h5_drop(s->dataset);
    s->space = s->type = s->attribute = s->dataset = -1;
}

void flim_h5_column_leave(flim_h5_column *s)
{
    flim_h5_column_close(s);
    flim_h5_leave(s->guard);
}

flim_status flim_h5_column_cannot_read(const flim_h5_column *s, flim_error *err)
{
    char reason[512];
    flim_h5_reason(reason, sizeof reason);
    if (s->h5->watch.lost[0]) {
        return flim_h5_view_lost(s->h5, s->name, err);
    }
    return s->attribute >= 0
               ? flim_fail(err, FLIM_ERROR_DATA, "%s: attribute %s: cannot be read: %s", s->h5->path, s->name, reason)
               : flim_fail(err, FLIM_ERROR_DATA, "%s: /%s: cannot be read: %s", s->h5->path, s->name, reason);
}

flim_status flim_h5_column_wrong_kind(const flim_h5_column *s, const char *expected, flim_error *err)
{
    char found[256];
    flim_h5_describe(s->dataset, found, sizeof found);
    return flim_fail(err, FLIM_ERROR_DATA, "%s: /%s: found %s, expected %s%s", s->h5->path, s->name, found, expected,
                     flim_h5_column_matlab_hint(s));
}

flim_status flim_h5_column_open(flim_h5_column *s, bool needed, const char *expected, flim_error *err)
{
    FLIM_TRY(flim_h5_dataset(s->h5, s->name, needed, expected, H5P_DEFAULT, &s->dataset, err));
    if (s->dataset < 0) {
        return FLIM_OK;
    }
    s->type = H5Dget_type(s->dataset);
    s->space = H5Dget_space(s->dataset);
    return s->type < 0 || s->space < 0 ? flim_h5_column_cannot_read(s, err) : FLIM_OK;
}

/* One axis of n values, others of length 1: (n), and MATLAB's (1,n) and (n,1). */
static bool is_column(int rank, const hsize_t *sizes, hsize_t n)
{
    hsize_t values = 1;
    int longer = 0;
    for (int i = 0; i < rank; i++) {
        longer += sizes[i] != 1;
        values = sizes[i] != 1 ? sizes[i] : values;
    }
    return rank >= 1 && longer <= 1 && values == n;
}

flim_status flim_h5_column_open_values(flim_h5_column *s, int64_t n, flim_error *err)
{
    int rank;
    hsize_t sizes[8] = {0};
    char expected[120];
    const hsize_t cells = (hsize_t)n;
    FLIM_TRY(flim_h5_column_open(s, true, "one value per cell", err));
    if (!flim_h5_shape(s->dataset, &rank, sizes)) {
        rank = 0;
    }
    const bool codes = flim_h5_column_text(s) == FLIM_H5_CODES;
    if (codes ? sizes[1] != cells : !is_column(rank, sizes, cells)) {
        const hsize_t one_hot = rank == 2 && sizes[0] == cells ? sizes[1] : rank == 2 && sizes[1] == cells ? sizes[0] : 0;
        if (rank == 1) {
            return flim_fail(err, FLIM_ERROR_DATA,
                             "%s: /%s has %llu values, /counts has %lld cells; expected one value per cell", s->h5->path,
                             s->name, (unsigned long long)sizes[0], (long long)n);
        }
        if (one_hot && !codes && strncmp(s->name, "label", 5) == 0) {
            snprintf(expected, sizeof expected, "one class per cell; one-hot labels: write np.argmax(label, axis=%d)",
                     sizes[0] == cells ? 1 : 0);
        } else {
            snprintf(expected, sizeof expected, "one axis, (%lld), one value per cell", (long long)n);
        }
        return flim_h5_column_wrong_kind(s, expected, err);
    }
    return flim_h5_check_chunks(s->h5, s->name, s->dataset, err);
}

/* Names of the values of a column of categories, for labels and groups. */
flim_status flim_h5_column_names(flim_source *source, const char *name, char ***names, int64_t *count, flim_error *err)
{
    flim_h5_categories c;
    flim_h5_column s = flim_h5_column_enter(flim_h5_of(source), name);
    *names = NULL;
    *count = 0;
    flim_status status = flim_h5_categories_find(&s, &c, err);
    if (status == FLIM_OK && c.codes[0]) {
        status = flim_h5_categories_names(&s, &c, names, count, err);
    }
    flim_h5_categories_close(&c);
    flim_h5_column_leave(&s);
    return status;
}

flim_status flim_h5_column_kind(flim_source *source, const char *name, bool needed, flim_column_kind *kind, flim_error *err)
{
    *kind = FLIM_COLUMN_NONE;
    const bool label = strcmp(name, "label") == 0;
    const char *expected = label                        ? "one integer per cell, 0..K-1"
                           : strcmp(name, "group") == 0 ? "one integer or string per cell (its donor, patient, dish ...)"
                                                        : "one string per cell";
    flim_h5_categories c;
    flim_h5_column s = flim_h5_column_enter(flim_h5_of(source), name);
    flim_status status = flim_h5_categories_find(&s, &c, err);
    if (status != FLIM_OK) {
        goto done;
    }
    if (c.codes[0]) {
        *kind = label ? FLIM_COLUMN_NUMBERS : FLIM_COLUMN_STRINGS;
        goto done;
    }
    status = flim_h5_column_open(&s, needed, expected, err);
    if (status == FLIM_OK && s.dataset >= 0) {
        H5T_class_t class = H5Tget_class(s.type);
        *kind = flim_h5_column_text(&s) != FLIM_H5_NO_TEXT ? FLIM_COLUMN_STRINGS
                : class == H5T_INTEGER || class == H5T_FLOAT || class == H5T_ENUM || class == H5T_BITFIELD
                    ? FLIM_COLUMN_NUMBERS
                    : FLIM_COLUMN_OTHER;
        if (*kind == FLIM_COLUMN_OTHER) {
            status = flim_h5_column_wrong_kind(&s, expected, err);
        }
    }
done:
    flim_h5_categories_close(&c);
    flim_h5_column_leave(&s);
    return status;
}

/* ---- integers */

static flim_status integers_from_doubles(const flim_h5_column *s, const flim_h5_packing *packing, int64_t n, int64_t *out,
                                         flim_error *err)
{
    flim_status status = FLIM_OK;
    double *in = flim_alloc((size_t)n, sizeof *in, err);
    if (!in) {
        return FLIM_ERROR_MEMORY;
    }
    if (flim_h5_read_values(s->h5, s->dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, in) < 0) {
        status = flim_h5_column_cannot_read(s, err);
    }
    for (int64_t i = 0; i < n && status == FLIM_OK; i++) {
        const double stored = in[i];
        in[i] = flim_h5_unpack(packing, stored);
        if (packing->scaled[0] && fabs(in[i] - nearbyint(in[i])) < 1e-6 * fmax(1, fabs(in[i]))) {
            in[i] = nearbyint(in[i]); /* 10 x 0.1 as a float is not 1 */
        }
        if (isnan(in[i]) && packing->gaps[0]) {
            status =
                flim_fail(err, FLIM_ERROR_DATA,
                          "%s: /%s: cell %lld: found %.9g, which marks a missing value (attributes: %s); expected a number",
                          s->h5->path, s->name, (long long)i, stored, packing->gaps);
        } else if (!(fabs(in[i]) <= 0x1p53) || in[i] != floor(in[i])) {
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
static flim_status integers(const flim_h5_column *s, int64_t n, bool is_unsigned, int64_t *values, flim_error *err)
{
    if (flim_h5_read_values(s->h5, s->dataset, is_unsigned ? H5T_NATIVE_UINT64 : H5T_NATIVE_INT64, H5S_ALL, H5S_ALL,
                            H5P_DEFAULT, values) < 0) {
        return flim_h5_column_cannot_read(s, err);
    }
    for (int64_t i = 0; is_unsigned && i < n; i++) {
        if (values[i] < 0) {
            return flim_fail(err, FLIM_ERROR_DATA, "%s: /%s: cell %lld: found %llu, expected at most 9223372036854775807",
                             s->h5->path, s->name, (long long)i, (unsigned long long)values[i]);
        }
    }
    return FLIM_OK;
}

void flim_h5_widen_bits(size_t size, int64_t count, int64_t *values)
{
    const uint8_t *bytes = (const uint8_t *)values;
    const bool little = H5Tget_order(H5T_NATIVE_INT) == H5T_ORDER_LE;
    for (int64_t i = count; i-- > 0;) { /* from the end: what is read lies before what is written */
        uint64_t bits = 0;
        for (size_t k = 0; k < size; k++) {
            bits |= (uint64_t)bytes[(size_t)i * size + (little ? k : size - 1 - k)] << 8 * k;
        }
        memcpy(&values[i], &bits, sizeof bits);
    }
}

/* PyTables' and Julia's Bool are bitfields, which HDF5 does not convert to numbers. */
static flim_status integers_from_bits(const flim_h5_column *s, int64_t n, int64_t *values, flim_error *err)
{
    flim_status status = FLIM_OK;
    const hid_t bits = flim_h5_native(s->type);
    const size_t size = H5Tget_size(s->type);
    if (bits < 0 || size > sizeof *values ||
        flim_h5_read_values(s->h5, s->dataset, bits, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) < 0) {
        status = flim_h5_column_cannot_read(s, err);
    } else {
        flim_h5_widen_bits(size, n, values);
    }
    flim_h5_drop(bits);
    return status;
}

flim_status flim_h5_column_integers(const flim_h5_column *s, int64_t n, int64_t *values, flim_error *err)
{
    flim_h5_packing packing;
    FLIM_TRY(flim_h5_read_packing(s->h5, s->name, s->dataset, false, &packing, err));
    const H5T_class_t class = H5Tget_class(s->type);
    const hid_t base = class == H5T_ENUM ? H5Tget_super(s->type) : -1;
    const bool is_unsigned = H5Tget_sign(base >= 0 ? base : s->type) == H5T_SGN_NONE;
    const size_t size = H5Tget_size(s->type);
    flim_h5_drop(base);
    if (size == 0 || size > 8 || (class != H5T_INTEGER && class != H5T_ENUM && class != H5T_FLOAT && class != H5T_BITFIELD)) {
        return flim_h5_column_wrong_kind(s, "integers of at most 64 bits", err);
    }
    return class == H5T_BITFIELD                               ? integers_from_bits(s, n, values, err)
           : class == H5T_FLOAT || flim_h5_is_packed(&packing) ? integers_from_doubles(s, &packing, n, values, err)
                                                               : integers(s, n, is_unsigned, values, err);
}

/* The column and its categories, if it has any; else it is opened.  Both are the caller's for leave_column, after an error,
 * too. */
static flim_status enter_column(flim_source *source, const char *name, flim_h5_column *s, flim_h5_categories *c,
                                flim_error *err)
{
    *s = flim_h5_column_enter(flim_h5_of(source), name);
    FLIM_TRY(flim_h5_categories_find(s, c, err));
    return c->codes[0] ? FLIM_OK : flim_h5_column_open_values(s, source->info.n, err);
}

static void leave_column(flim_h5_column *s, flim_h5_categories *c)
{
    flim_h5_categories_close(c);
    flim_h5_column_leave(s);
}

flim_status flim_h5_read_integers(flim_source *source, const char *name, int64_t *values, flim_error *err)
{
    const int64_t n = source->info.n;
    flim_h5_categories c;
    flim_h5_column s;
    flim_status status = enter_column(source, name, &s, &c, err);
    if (status == FLIM_OK) {
        status =
            c.codes[0] ? flim_h5_categories_numbers(&s, &c, n, values, err) : flim_h5_column_integers(&s, n, values, err);
    }
    leave_column(&s, &c);
    return status;
}

/* ---- strings */

/* The names of n numbers. */
static flim_status named(const flim_h5_column *s, const flim_h5_categories *c, int64_t n, char **list, flim_error *err)
{
    char **names = NULL;
    int64_t count = 0;
    flim_status status = FLIM_OK;
    int64_t *number = flim_alloc((size_t)n, sizeof *number, err);
    if (!number) {
        return FLIM_ERROR_MEMORY;
    }
    FLIM_TRY_DONE(flim_h5_categories_names(s, c, &names, &count, err));
    FLIM_TRY_DONE(flim_h5_categories_numbers(s, c, n, number, err));
    for (int64_t i = 0; i < n && status == FLIM_OK; i++) {
        list[i] = flim_strdup(names[number[i]], err);
        status = list[i] ? FLIM_OK : FLIM_ERROR_MEMORY;
    }
done:
    flim_free_list(names, count);
    flim_free(number);
    return status;
}

flim_status flim_h5_read_strings(flim_source *source, const char *name, char **list, flim_error *err)
{
    const int64_t n = source->info.n;
    flim_h5_categories c;
    flim_h5_column s;
    flim_status status = enter_column(source, name, &s, &c, err);
    if (status == FLIM_OK) {
        status = c.codes[0] ? named(&s, &c, n, list, err) : flim_h5_column_texts(&s, n, list, err);
    }
    leave_column(&s, &c);
    return status;
}

flim_status flim_h5_read_texts(flim_source *source, const char *name, char ***list, int64_t *count, flim_error *err)
{
    int rank = 0;
    hsize_t sizes[8] = {0};
    flim_h5_column s = flim_h5_column_enter(flim_h5_of(source), name);
    flim_status status = flim_h5_column_open(&s, true, "texts", err);
    *list = NULL;
    *count = 0;
    if (status == FLIM_OK && (flim_h5_column_text(&s) != FLIM_H5_STRINGS || !flim_h5_shape(s.dataset, &rank, sizes) ||
                              rank != 1 || sizes[0] > (hsize_t)flim_h5_limit(s.h5))) {
        status = flim_h5_column_wrong_kind(&s, "texts along one axis", err);
    }
    const int64_t n = status == FLIM_OK ? (int64_t)sizes[0] : 0;
    if (status == FLIM_OK) {
        status = flim_h5_check_chunks(s.h5, name, s.dataset, err);
    }
    char **all = status == FLIM_OK ? flim_alloc((size_t)n, sizeof *all, err) : NULL;
    if (status == FLIM_OK) {
        status = all ? flim_h5_column_texts(&s, n, all, err) : FLIM_ERROR_MEMORY;
    }
    flim_h5_column_leave(&s);
    if (status == FLIM_OK) {
        *list = all;
        *count = n;
    } else {
        flim_free_list(all, n);
    }
    return status;
}
