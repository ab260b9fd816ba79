/* HDF5 files of any layout, and MATLAB's .mat of version 7.3, which are HDF5: one array of counts, whose name may be chosen. */
#include <string.h>

#include "core/alloc.h"
#include "core/try.h"
#include "data/hdf5/hdf5_array.h"
#include "import/bare_array.h"
#include "import/named_arrays.h"

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
    flim_h5_arrays *arrays;
    flim_bare_array array;
    int chosen = 0;
    FLIM_TRY(flim_h5_arrays_open(file->map.path, file->options.trusted, file->options.stop, &arrays, err));
    file->state = arrays;
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

/* Reads one image's part of the array: the axis of images, if there is one, is the first of the file, as it is of MATLAB's. */
static flim_status read_hdf5(flim_field_file *file, int image, flim_counts *out, flim_error *err)
{
    const int number = (int)file->place[image];
    flim_h5_array part = *flim_h5_arrays_at(file->state, number);
    const flim_field_image *b = &file->image[image];
    const int64_t total = b->y * b->x * b->t;
    int axis = 0; /* of images; the axes before it have one entry */
    while (part.n_axes - axis > 4 && part.size[axis] == 1) {
        axis++;
    }
    const bool several = part.size[axis] > 1 && file->n_images > 1;
    const int64_t begin = several ? flim_array_image_number(file, image) : 0;
    flim_bare_array array;
    part.size[axis] = several ? 1 : part.size[axis];
    FLIM_TRY(describe(file->map.path, &part, &array, err));
    uint8_t *values = flim_alloc_large((size_t)total, (size_t)part.bytes, err); /* (total) */
    if (!values) {
        return FLIM_ERROR_MEMORY;
    }
    flim_status status = flim_h5_arrays_read(file->state, number, axis, begin, part.size[axis], values, err);
    if (status == FLIM_OK) {
        status =
            flim_array_read_image(file, file->map.path, &array, 0, values, (uint64_t)total * (uint64_t)part.bytes, out, err);
    }
    if (status == FLIM_OK && !out->memory) {
        out->memory = values;
        values = NULL;
    }
    flim_free(values);
    return status;
}

static void close_hdf5(flim_field_file *file)
{
    flim_h5_arrays_close(file->state);
}

const flim_field_format flim_format_hdf5_arrays = {"HDF5", is_hdf5, open_hdf5, read_hdf5, close_hdf5, true};
