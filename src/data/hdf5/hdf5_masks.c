/* Masks: one per cell, of any number type. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/try.h"
#include "data/hdf5/hdf5_chunks.h"
#include "data/hdf5/hdf5_column.h"
#include "data/hdf5/hdf5_packing.h"

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
static flim_status mask_block(const flim_h5_column *s, const flim_h5_packing *packing, const double *values,
                              const hsize_t step[3], int64_t first, int64_t cells, int h, int w, uint8_t *mask,
                              flim_mask_values *seen, flim_error *err)
{
    for (int64_t cell = 0; cell < cells; cell++) {
        double one = 0; /* the first whole number inside */
        bool mixed = false;
        for (int y = 0; y < h; y++) {
            for (int x = 0; x < w; x++) {
                const double stored = values[(hsize_t)cell * step[0] + (hsize_t)y * step[1] + (hsize_t)x * step[2]];
                const double value = flim_h5_unpack(packing, stored);
                if (isnan(value) && packing->gaps[0]) {
                    return flim_fail(err, FLIM_ERROR_DATA,
                                     "%s: /mask: cell %lld, y %d, x %d: found %.9g, which marks a missing value (attributes: "
                                     "%s); expected 0 (outside) or not (inside)",
                                     s->h5->path, (long long)first + (long long)cell, y, x, stored, packing->gaps);
                }
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

/* Bits have no conversion to numbers in HDF5: the bytes that were read -> doubles, in place. */
static void bits_to_doubles(size_t size, int64_t count, double *values)
{
    flim_h5_widen_bits(size, count, (int64_t *)(void *)values);
    for (int64_t i = 0; i < count; i++) {
        int64_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        values[i] = (double)(uint64_t)bits;
    }
}

/* Blocks of cells as doubles: every non-zero integer or float stays non-zero. */
static flim_status mask_blocks(flim_h5_column *s, const flim_h5_packing *packing, const int at[3], const hsize_t sizes[3],
                               int64_t n, int h, int w, uint8_t *mask, flim_mask_values *seen, flim_error *err)
{
    const int64_t pixels = (int64_t)h * w, most = 1 + (1 << 18) / pixels, block = most < n ? most : n;
    flim_status status = FLIM_OK;
    double *values = flim_alloc((size_t)(block * pixels), sizeof *values, err);
    if (!values) {
        return FLIM_ERROR_MEMORY;
    }
    const hid_t bits = H5Tget_class(s->type) == H5T_BITFIELD ? flim_h5_native(s->type) : -1;
    for (int64_t first = 0; first < n && status == FLIM_OK; first += block) {
        int64_t cells = first + block < n ? block : n - first;
        hsize_t start[3] = {0, 0, 0}, count[3] = {sizes[0], sizes[1], sizes[2]};
        start[at[0]] = (hsize_t)first;
        count[at[0]] = (hsize_t)cells;
        const hsize_t stride[3] = {count[1] * count[2], count[2], 1}, step[3] = {stride[at[0]], stride[at[1]], stride[at[2]]};
        hid_t memory = H5Screate_simple(3, count, NULL);
        if (memory < 0 || H5Sselect_hyperslab(s->space, H5S_SELECT_SET, start, NULL, count, NULL) < 0 ||
            flim_h5_read_values(s->h5, s->dataset, bits >= 0 ? bits : H5T_NATIVE_DOUBLE, memory, s->space, H5P_DEFAULT,
                                values) < 0) {
            status = flim_h5_column_cannot_read(s, err);
            flim_fail_prefix(err, "cells %lld to %lld: ", (long long)first, (long long)(first + cells - 1));
        } else {
            if (bits >= 0) {
                bits_to_doubles(H5Tget_size(bits), cells * pixels, values);
            }
            status = mask_block(s, packing, values, step, first, cells, h, w, mask + first * pixels, seen, err);
        }
        flim_h5_drop(memory);
    }
    flim_h5_drop(bits);
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
    flim_h5_column s = flim_h5_column_enter(flim_h5_of(source), "mask");
    flim_status status;
    FLIM_TRY_DONE(flim_h5_column_open(&s, false, "(N,H,W)", err));
    if (s.dataset < 0) {
        goto done;
    }
    if (!flim_h5_shape(s.dataset, &rank, sizes) || rank != 3 || memcmp(sizes, want, sizeof want) != 0) {
        char expected[160];
        snprintf(expected, sizeof expected, "(%llu,%llu,%llu): one mask of %d x %d pixels for each of the %lld cells",
                 (unsigned long long)want[0], (unsigned long long)want[1], (unsigned long long)want[2], h, w, (long long)n);
        status = flim_h5_column_wrong_kind(&s, expected, err);
        goto done;
    }
    FLIM_TRY_DONE(flim_h5_check_chunks(s.h5, s.name, s.dataset, err));
    flim_h5_packing packing;
    FLIM_TRY_DONE(flim_h5_read_packing(s.h5, "mask", s.dataset, true, &packing, err));
    H5T_class_t class = H5Tget_class(s.type);
    status =
        class != H5T_INTEGER && class != H5T_FLOAT && class != H5T_ENUM && (class != H5T_BITFIELD || H5Tget_size(s.type) > 8)
            ? flim_h5_column_wrong_kind(&s, "bool, integers or floats", err)
            : mask_blocks(&s, &packing, at, want, n, h, w, mask, seen, err);
    *found = status == FLIM_OK;
done:
    flim_h5_column_leave(&s);
    return status;
}
