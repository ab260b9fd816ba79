/* HDF5 files of any layout, and MATLAB's .mat of version 7.3, which are HDF5: one array of counts, whose name may be chosen. */
#include <string.h>

#include "core/alloc.h"
#include "core/try.h"
#include "data/hdf5/hdf5_array.h"
#include "import/bare_array.h"
#include "import/named_arrays.h"

enum { MOST_BYTES = 64 << 20 }; /* of images that are read at once: they may share chunks */

/* The open file, and images that were read. */
typedef struct hdf5_file {
    flim_h5_arrays *arrays;
    uint8_t *values; /* (count images); NULL = none yet */
    int number; /* of their array */
    int64_t begin, count;
} hdf5_file;

/* HDF5's signature at 0 or, behind a user block (as MATLAB has it), at 512, 1024, 2048, ... */
static bool is_hdf5(const flim_mapped_file *f)
{
    for (size_t at = 0; at <= f->size && f->size - at >= 8; at = at ? 2 * at : 512) {
        if (memcmp(f->data + at, "\211HDF\r\n\032\n", 8) == 0) {
            return true;
        }
    }
    return false;
}

/* The axes as they were meant: MATLAB writes its own in reversed order, images last. */
static flim_status describe(const char *path, const flim_h5_array *a, flim_bare_array *out, flim_error *err)
{
    *out = (flim_bare_array){.element = {a->kind, a->bytes, __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__}, .n_axes = a->n_axes};
    for (int i = 0; i < a->n_axes; i++) {
        out->size[i] = a->size[a->matlab ? a->n_axes - 1 - i : i];
    }
    FLIM_TRY(flim_array_set_order(path, out, a->matlab, NULL, err));
    if (a->matlab && a->n_axes == 4) {
        flim_array_last_axis_first(out);
    }
    return FLIM_OK;
}

static flim_status open_hdf5(flim_field_file *file, flim_error *err)
{
    flim_bare_array array;
    int chosen = 0;
    hdf5_file *h = flim_alloc(1, sizeof *h, err);
    if (!h) {
        return FLIM_ERROR_MEMORY;
    }
    file->state = h;
    FLIM_TRY(flim_h5_arrays_open(file->map.path, file->options.trusted, file->options.stop, &h->arrays, err));
    flim_h5_arrays *arrays = h->arrays;
    const int n = flim_h5_arrays_count(arrays);
    const char **name = flim_alloc((size_t)n, sizeof *name, err); /* (n) */
    if (!name) {
        return FLIM_ERROR_MEMORY;
    }
    for (int i = 0; i < n; i++) {
        name[i] = flim_h5_arrays_at(arrays, i)->name;
    }
    const flim_status status = flim_choose_array(file, name, n, &chosen, err);
    flim_free(name);
    FLIM_TRY(status);
    FLIM_TRY(describe(file->map.path, flim_h5_arrays_at(arrays, chosen), &array, err));
    /* What a file of that size can hold: deflate's best is 1032 : 1. */
    const uint64_t most = file->map.size < UINT64_MAX / 2048 ? (uint64_t)file->map.size * 1100 + (16 << 20) : UINT64_MAX;
    return flim_array_add_images(file, file->map.path, "", &array, most, (uint64_t)chosen, err);
}

/* Images begin .. of the array, as many as are worth it, unless they are there.  axis: of images; image_bytes: of each. */
static flim_status load_images(hdf5_file *h, int number, int axis, int64_t begin, int64_t image_bytes, flim_error *err)
{
    const int64_t left = flim_h5_arrays_at(h->arrays, number)->size[axis] - begin;
    const int64_t fit = MOST_BYTES / image_bytes, count = fit < 1 ? 1 : fit < left ? fit : left;
    if (h->values && h->number == number && begin >= h->begin && begin < h->begin + h->count) {
        return FLIM_OK;
    }
    flim_free(h->values);
    h->values = NULL;
    uint8_t *values = flim_alloc_large((size_t)count, (size_t)image_bytes, err);
    if (!values) {
        return FLIM_ERROR_MEMORY;
    }
    const flim_status status = flim_h5_arrays_read(h->arrays, number, axis, begin, count, values, err);
    if (status != FLIM_OK) {
        flim_free(values);
        return status;
    }
    *h = (hdf5_file){h->arrays, values, number, begin, count};
    return FLIM_OK;
}

/* Reads one image's part of the array: the axis of images, if there is one, is the first of the file, as it is of MATLAB's. */
static flim_status read_hdf5(flim_field_file *file, int image, flim_counts *out, flim_error *err)
{
    hdf5_file *h = file->state;
    const int number = (int)file->place[image];
    flim_h5_array part = *flim_h5_arrays_at(h->arrays, number);
    const flim_field_image *b = &file->image[image];
    const int64_t bytes = b->y * b->x * b->t * part.bytes; /* of the image */
    int axis = 0; /* of images; the axes before it have one entry */
    while (part.n_axes - axis > 4 && part.size[axis] == 1) {
        axis++;
    }
    const bool several = part.size[axis] > 1 && file->n_images > 1;
    const int64_t begin = several ? flim_array_image_number(file, image) : 0;
    flim_bare_array array;
    if (several) {
        FLIM_TRY(load_images(h, number, axis, begin, bytes, err));
        part.size[axis] = 1;
    } else if (!h->values) {
        if (!(h->values = flim_alloc_large((size_t)bytes, 1, err))) {
            return FLIM_ERROR_MEMORY;
        }
        const flim_status status = flim_h5_arrays_read(h->arrays, number, axis, 0, part.size[axis], h->values, err);
        if (status != FLIM_OK) {
            flim_free(h->values);
            h->values = NULL;
            return status;
        }
    }
    FLIM_TRY(describe(file->map.path, &part, &array, err));
    return flim_array_read_image(file, file->map.path, &array, 0, h->values + (begin - h->begin) * bytes, (uint64_t)bytes,
                                 out, err);
}

static void close_hdf5(flim_field_file *file)
{
    hdf5_file *h = file->state;
    if (h) {
        flim_h5_arrays_close(h->arrays);
        flim_free(h->values);
        flim_free(h);
    }
}

const flim_field_format flim_format_hdf5_arrays = {"HDF5", is_hdf5, open_hdf5, read_hdf5, close_hdf5, true};
