/* Cells of a data set, one reader per thread. */
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/try.h"
#include "data/dataset_internal.h"
#include "data/inflate.h"

struct flim_reader {
    flim_dataset *dataset;
    flim_scratch scratch;
    int64_t held; /* the cell whose values they are; -1 = none */
    void *values; /* one cell as the file has it, native byte order */
    uint32_t *seen; /* (H,W), scratch for masks */
    float *ordered; /* one cell in the file's axis order, where that is not T,H,W; else NULL */
};

flim_status flim_reader_create(flim_dataset *dataset, flim_reader **out, flim_error *err)
{
    flim_status status = FLIM_OK;
    size_t raw = 0, values = 0;
    bool transposed = false;
    *out = NULL;
    flim_reader *reader = flim_alloc(1, sizeof *reader, err);
    if (!reader) {
        return FLIM_ERROR_MEMORY;
    }
    reader->dataset = dataset;
    reader->held = -1;
    for (int i = 0; i < dataset->info.n_files; i++) {
        const flim_source_info *info = &dataset->file[i].source->info;
        size_t bytes = (size_t)dataset->voxels * info->number.size;
        values = bytes > values ? bytes : values;
        transposed = transposed || info->transposed;
        raw = info->raw_bytes > raw ? info->raw_bytes : raw;
    }
    reader->scratch.bytes = raw;
    reader->values = flim_alloc_aligned(values, 1, err);
    reader->seen = flim_alloc_aligned((size_t)dataset->pixels, sizeof *reader->seen, err);
    if (raw) {
        reader->scratch.raw = flim_alloc_aligned(raw, 1, err);
        reader->scratch.unpacked = flim_alloc_aligned(raw, 1, err);
    }
    if (transposed) {
        reader->ordered = flim_alloc_aligned((size_t)dataset->voxels, sizeof(float), err);
    }
    if (!reader->values || !reader->seen || (raw && (!reader->scratch.raw || !reader->scratch.unpacked)) ||
        (transposed && !reader->ordered) || flim_inflater_create(&reader->scratch.inflater, err) != FLIM_OK) {
        status = FLIM_ERROR_MEMORY;
        flim_reader_destroy(reader);
        reader = NULL;
    }
    *out = reader;
    return status;
}

void flim_reader_destroy(flim_reader *reader)
{
    if (reader) {
        flim_inflater_destroy(reader->scratch.inflater);
        flim_free(reader->scratch.raw);
        flim_free(reader->scratch.unpacked);
        flim_free(reader->values);
        flim_free(reader->seen);
        flim_free(reader->ordered);
        flim_free(reader);
    }
}

/* Axis sizes of a cell in the file's order, and for each of them the stride in (T,H,W). */
static void file_order(const flim_dataset_info *info, const int order[3], int64_t size[3], int64_t stride[3])
{
    const int64_t sizes[3] = {info->t, info->h, info->w};
    const int64_t strides[3] = {(int64_t)info->h * info->w, info->w, 1};
    for (int i = 0; i < 3; i++) {
        size[i] = sizes[order[i]];
        stride[i] = strides[order[i]];
    }
}

/* in: a cell in the file's axis order -> out (T,H,W). */
static void transpose(const flim_dataset_info *info, const int order[3], const float *in, float *out)
{
    int64_t size[3], stride[3];
    file_order(info, order, size, stride);
    for (int64_t i = 0; i < size[0]; i++) {
        for (int64_t j = 0; j < size[1]; j++) {
            float *row = out + i * stride[0] + j * stride[1];
            for (int64_t k = 0; k < size[2]; k++) {
                row[k * stride[2]] = *in++;
            }
        }
    }
}

static flim_status bad_value(const flim_dataset *d, const flim_dataset_file *file, int64_t cell, int64_t local, int64_t index,
                             double value, flim_error *err)
{
    const flim_source_info *info = &file->source->info;
    int64_t size[3], stride[3], at[3];
    char which[64] = "", found[64];
    file_order(&d->info, info->order, size, stride);
    at[info->order[2]] = index % size[2];
    at[info->order[1]] = index / size[2] % size[1];
    at[info->order[0]] = index / size[2] / size[1];
    if (d->info.n_files > 1) {
        snprintf(which, sizeof which, " (cell %lld of all files)", (long long)cell);
    }
    snprintf(found, sizeof found, "%.9g", value);
    return flim_fail(err, FLIM_ERROR_DATA,
                     "%s: /counts: cell %lld%s, t %lld, y %lld, x %lld: found %s, expected a photon count: %s",
                     d->path[file - d->file], (long long)local, which, (long long)at[0], (long long)at[1], (long long)at[2],
                     value != value ? "NaN" : found, value > 0 ? "finite and at most 2147483647" : "finite and not below 0");
}

/* Stored numbers that stand for no value have come as NaN: no photons outside the mask; an error inside, or without one. */
static flim_status settle_gaps(flim_reader *reader, const flim_dataset_file *file, int64_t cell, int64_t local,
                               flim_error *err)
{
    const flim_dataset *d = reader->dataset;
    const flim_source_info *info = &file->source->info;
    double *value = reader->values;
    int64_t size[3], stride[3];
    if (!info->gaps[0]) {
        return FLIM_OK;
    }
    file_order(&d->info, info->order, size, stride);
    for (int64_t i = 0; i < d->voxels; i++) {
        if (value[i] == value[i]) {
            continue;
        }
        const int64_t at = i / size[2] / size[1] * stride[0] + i / size[2] % size[1] * stride[1] + i % size[2] * stride[2];
        const int64_t t = at / d->pixels, pixel = at % d->pixels;
        if (!d->mask || d->mask[cell * d->pixels + pixel]) {
            return flim_fail(err, FLIM_ERROR_DATA,
                             "%s: /counts: cell %lld, t %lld, y %lld, x %lld%s: the number there marks a missing value "
                             "(attributes: %s); expected a photon count; write counts there, or exclude the cell",
                             d->path[file - d->file], (long long)local, (long long)t, (long long)(pixel / d->info.w),
                             (long long)(pixel % d->info.w), d->mask ? ", inside the mask" : "", info->gaps);
        }
        value[i] = 0;
    }
    return FLIM_OK;
}

static flim_status check_cell(const flim_dataset *d, int64_t cell, flim_error *err)
{
    return cell >= 0 && cell < d->info.n
               ? FLIM_OK
               : flim_fail(err, FLIM_ERROR_USAGE, "cell %lld was requested; the data has cells 0 to %lld", (long long)cell,
                           (long long)(d->info.n - 1));
}

/* From the file into out (T,H,W), and into the cache where there is one.  *number and *values: what the mask is made from. */
static flim_status from_file(flim_reader *reader, int64_t cell, bool signal, float *out, flim_number *number,
                             const void **values, flim_error *err)
{
    flim_dataset *d = reader->dataset;
    int64_t local;
    const flim_dataset_file *file = flim_dataset_locate(d, cell, &local);
    const flim_source_info *info = &file->source->info;
    reader->held = -1;
    FLIM_TRY(file->source->ops->read_cell(file->source, local, &reader->scratch, reader->values, err));
    FLIM_TRY(settle_gaps(reader, file, cell, local, err));
    reader->held = cell;
    float *voxels = info->transposed ? reader->ordered : out;
    bool small = info->number.kind == FLIM_UNSIGNED && info->number.size <= 2 && !info->transposed;
    bool table = signal && (small || !d->cache); /* else the counts themselves are needed for the cache */
    int64_t bad = table ? flim_number_signal(info->number, reader->values, d->voxels, d->table, voxels)
                        : flim_number_counts(info->number, reader->values, d->voxels, voxels);
    if (bad >= 0) {
        return bad_value(d, file, cell, local, bad, flim_number_at(info->number, reader->values, bad), err);
    }
    if (info->transposed) {
        transpose(&d->info, info->order, voxels, out);
    }
    if (d->cache && small) {
        flim_cell_cache_offer(d->cache, cell, info->number, reader->values);
    } else if (d->cache) {
        flim_cell_cache_offer_counts(d->cache, cell, out);
    }
    if (signal && !table) {
        flim_signal_from_counts(out, out, d->voxels);
    }
    *number = small ? info->number : (flim_number){FLIM_FLOAT, sizeof *out, false};
    *values = small ? reader->values : out;
    return FLIM_OK;
}

static flim_status read_cell(flim_reader *reader, int64_t cell, bool signal, float *out, uint8_t *mask, flim_error *err)
{
    flim_dataset *d = reader->dataset;
    flim_number number = {FLIM_FLOAT, sizeof *out, false};
    FLIM_TRY(check_cell(d, cell, err));
    const void *values = d->cache ? flim_cell_cache_find(d->cache, cell, &number) : NULL;
    if (values && signal) {
        flim_number_signal(number, values, d->voxels, d->table, out);
    } else if (values) {
        flim_number_counts(number, values, d->voxels, out);
    } else {
        FLIM_TRY(from_file(reader, cell, signal, out, &number, &values, err));
    }
    const uint8_t *stored = d->mask ? d->mask + cell * d->pixels : NULL;
    if (mask && stored) {
        memcpy(mask, stored, (size_t)d->pixels);
    } else if (mask) {
        flim_number_mask(number, values, d->info.t, d->pixels, reader->seen, mask);
    }
    return FLIM_OK;
}

void flim_reader_drop_outside(const flim_dataset *d, int64_t cell, float *values)
{
    if (!d->mask_counts || !d->mask) { /* without a stored mask every voxel outside is 0 already */
        return;
    }
    const uint8_t *stored = d->mask + cell * d->pixels;
    for (int64_t t = 0; t < d->info.t; t++) {
        float *frame = values + t * d->pixels;
        for (int64_t i = 0; i < d->pixels; i++) {
            frame[i] = stored[i] ? frame[i] : 0.0f;
        }
    }
}

static bool is_wide(flim_number number)
{
    return number.size > sizeof(float) || (number.size == sizeof(float) && number.kind != FLIM_FLOAT);
}

bool flim_dataset_has_wide_counts(const flim_dataset *dataset)
{
    for (int i = 0; i < dataset->info.n_files; i++) {
        if (is_wide(dataset->file[i].source->info.number)) {
            return true;
        }
    }
    return false;
}

bool flim_reader_exact_counts(const flim_reader *reader, int64_t cell, double *counts)
{
    int64_t local, size[3], stride[3], i = 0;
    const flim_dataset *d = reader->dataset;
    const flim_source_info *info = &flim_dataset_locate(d, cell, &local)->source->info;
    if (reader->held != cell || !is_wide(info->number)) {
        return false;
    }
    const uint8_t *inside = d->mask_counts && d->mask ? d->mask + cell * d->pixels : NULL;
    file_order(&d->info, info->order, size, stride);
    for (int64_t a = 0; a < size[0]; a++) {
        for (int64_t b = 0; b < size[1]; b++) {
            for (int64_t c = 0; c < size[2]; c++, i++) {
                const int64_t at = a * stride[0] + b * stride[1] + c * stride[2];
                counts[at] = inside && !inside[at % d->pixels] ? 0 : flim_number_at(info->number, reader->values, i);
            }
        }
    }
    return true;
}

flim_status flim_reader_values(flim_reader *reader, int64_t cell, flim_number *number, const void **values, flim_error *err)
{
    flim_dataset *d = reader->dataset;
    *values = NULL;
    FLIM_TRY(check_cell(d, cell, err));
    if (d->cache && (*values = flim_cell_cache_find(d->cache, cell, number))) {
        return FLIM_OK;
    }
    int64_t local;
    const flim_dataset_file *file = flim_dataset_locate(d, cell, &local);
    *number = file->source->info.number;
    *values = reader->values;
    reader->held = -1;
    FLIM_TRY(file->source->ops->read_cell(file->source, local, &reader->scratch, reader->values, err));
    return settle_gaps(reader, file, cell, local, err);
}

flim_status flim_reader_counts(flim_reader *reader, int64_t cell, float *counts, uint8_t *mask, flim_error *err)
{
    FLIM_TRY(read_cell(reader, cell, false, counts, mask, err));
    flim_reader_drop_outside(reader->dataset, cell, counts);
    return FLIM_OK;
}

flim_status flim_reader_stored_counts(flim_reader *reader, int64_t cell, float *counts, uint8_t *mask, flim_error *err)
{
    return read_cell(reader, cell, false, counts, mask, err);
}

flim_status flim_reader_signal(flim_reader *reader, int64_t cell, float *signal, uint8_t *mask, flim_error *err)
{
    FLIM_TRY(read_cell(reader, cell, true, signal, mask, err));
    flim_reader_drop_outside(reader->dataset, cell, signal);
    return FLIM_OK;
}
