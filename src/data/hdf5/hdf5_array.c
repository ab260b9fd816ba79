#include "data/hdf5/hdf5_array.h"

#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/first_look.h"
#include "core/try.h"
#include "data/hdf5/hdf5_chunks.h"
#include "data/hdf5/hdf5_internal.h"
#include "flim/dataset.h"

enum { MOST_ARRAYS = 65536 };
enum { LOOK_ARRAYS = 16, LOOK_BYTES = 16 << 20 }; /* of a first look */

struct flim_h5_arrays {
    flim_h5 *h5;
    int n, capacity;
    flim_h5_array *array; /* (n) */
};

/* ---- the list, under the lock */

typedef struct listing {
    flim_h5_arrays *arrays;
    flim_status status;
    flim_error *err;
} listing;

/* A float of two bytes is IEEE's, not bfloat16. */
static bool is_half(hid_t type)
{
    size_t sign, exponent, exponent_bits, mantissa, mantissa_bits;
    return H5Tget_fields(type, &sign, &exponent, &exponent_bits, &mantissa, &mantissa_bits) >= 0 && sign == 15 &&
           exponent == 10 && exponent_bits == 5 && mantissa == 0 && mantissa_bits == 10;
}

static bool describe(hid_t dataset, flim_h5_array *out)
{
    int rank = 0;
    hsize_t sizes[8];
    hid_t type = H5Dget_type(dataset);
    const H5T_class_t class = type >= 0 ? H5Tget_class(type) : H5T_NO_CLASS;
    const size_t bytes = type >= 0 ? H5Tget_size(type) : 0;
    out->kind = class == H5T_FLOAT ? 'f' : H5Tget_sign(type) == H5T_SGN_NONE ? 'u' : 'i';
    const bool half = class == H5T_FLOAT && bytes == 2 && is_half(type);
    flim_h5_drop(type);
    const bool known = class == H5T_FLOAT ? half || bytes == 4 || bytes == 8
                                          : class == H5T_INTEGER && (bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8);
    if (!known || !flim_h5_shape(dataset, &rank, sizes) || rank < 3) {
        return false;
    }
    out->bytes = (int)bytes;
    out->n_axes = rank;
    out->matlab = H5Aexists(dataset, "MATLAB_class") > 0;
    for (int i = 0; i < rank; i++) {
        if (sizes[i] < 1 || sizes[i] > INT64_MAX / 16) {
            return false;
        }
        out->size[i] = (int64_t)sizes[i];
    }
    return true;
}

static herr_t add_object(hid_t root, const char *name, const H5L_info_t *link, void *context)
{
    listing *l = context;
    flim_h5_arrays *a = l->arrays;
    if (link->type != H5L_TYPE_HARD || name[0] == '#' || strlen(name) >= FLIM_H5_ARRAY_NAME) { /* #refs#: MATLAB's */
        return 0;
    }
    hid_t object = H5Oopen(root, name, H5P_DEFAULT);
    flim_h5_array array = {0};
    const bool found = object >= 0 && H5Iget_type(object) == H5I_DATASET && describe(object, &array);
    flim_h5_drop(object);
    if (!found || a->n == MOST_ARRAYS) {
        return 0;
    }
    if (a->n == a->capacity) {
        const int capacity = a->capacity ? 2 * a->capacity : 16;
        flim_h5_array *grown = flim_realloc(a->array, (size_t)capacity, sizeof *grown, l->err);
        if (!grown) {
            l->status = FLIM_ERROR_MEMORY;
            return -1;
        }
        a->array = grown;
        a->capacity = capacity;
    }
    memcpy(array.name, name, strlen(name) + 1);
    a->array[a->n++] = array;
    return 0;
}

static flim_status list_arrays(flim_h5_arrays *a, flim_error *err)
{
    listing l = {.arrays = a, .status = FLIM_OK, .err = err};
    char reason[512];
    if (H5Lvisit(a->h5->file, H5_INDEX_NAME, H5_ITER_INC, add_object, &l) >= 0 || l.status != FLIM_OK) {
        return l.status;
    }
    flim_h5_reason(reason, sizeof reason);
    return flim_fail(err, FLIM_ERROR_DATA, "%s: its objects cannot be listed: %s; it may be damaged", a->h5->path, reason);
}

static flim_status open_here(const char *path, const volatile int *stop, flim_h5_arrays **out, flim_error *err)
{
    flim_status status = FLIM_OK;
    const flim_source_options options = {.stop = stop};
    *out = NULL;
    flim_h5_arrays *a = flim_alloc(1, sizeof *a, err);
    FLIM_TRY_DONE(a ? FLIM_OK : FLIM_ERROR_MEMORY);
    FLIM_TRY_DONE(flim_h5_open(path, &options, &a->h5, err));
    const flim_h5_guard guard = flim_h5_enter(a->h5);
    status = list_arrays(a, err);
    flim_h5_leave(guard);
    if (status == FLIM_OK) {
        *out = a;
        a = NULL;
    }
done:
    flim_h5_arrays_close(a);
    return status;
}

/* ---- the first look, in the child */

/* The first, a middle and the last entry of an array's first axis that has several; all if they are few. */
static void read_some(flim_h5_arrays *arrays, int number)
{
    const flim_h5_array *a = &arrays->array[number];
    int axis = 0;
    int64_t entry = a->bytes;
    while (axis < a->n_axes - 1 && a->size[axis] == 1) {
        axis++;
    }
    for (int i = axis + 1; i < a->n_axes; i++) {
        if (entry > LOOK_BYTES / a->size[i]) {
            return; /* one entry is more than a look: its chunks are checked when they are read */
        }
        entry *= a->size[i];
    }
    void *values = flim_alloc((size_t)entry, 1, NULL);
    const int64_t n = a->size[axis], step = n <= LOOK_BYTES / entry ? 1 : (n - 1) / 2 > 0 ? (n - 1) / 2 : 1;
    for (int64_t i = 0; values && i < n; i += step) {
        flim_h5_arrays_read(arrays, number, axis, i, 1, values, NULL);
    }
    flim_free(values);
}

typedef struct first_file {
    const char *path;
    const volatile int *stop;
} first_file;

static flim_status try_file(void *context, flim_error *err)
{
    const first_file *f = context;
    flim_h5_arrays *arrays;
    FLIM_TRY(open_here(f->path, f->stop, &arrays, err));
    for (int i = 0; i < arrays->n && i < LOOK_ARRAYS; i++) {
        read_some(arrays, i);
    }
    flim_h5_arrays_close(arrays);
    return FLIM_OK;
}

flim_status flim_h5_arrays_open(const char *path, bool trusted, const volatile int *stop, flim_h5_arrays **out,
                                flim_error *err)
{
    char version[32], library[48];
    first_file file = {path, stop};
    bool ended;
    *out = NULL;
    flim_hdf5_version(version);
    snprintf(library, sizeof library, "HDF5 %s", version);
    const flim_first_look look = {.paths = &path,
                                  .n_paths = 1,
                                  .library = library,
                                  .stop = stop,
                                  .fork = flim_h5_fork,
                                  .look = try_file,
                                  .context = &file};
    FLIM_TRY(trusted ? FLIM_OK : flim_look_first(&look, &ended, err));
    return open_here(path, stop, out, err);
}

void flim_h5_arrays_close(flim_h5_arrays *a)
{
    if (a) {
        flim_h5_close(a->h5);
        flim_free(a->array);
        flim_free(a);
    }
}

int flim_h5_arrays_count(const flim_h5_arrays *a)
{
    return a->n;
}

const flim_h5_array *flim_h5_arrays_at(const flim_h5_arrays *a, int number)
{
    return &a->array[number];
}

/* ---- values, under the lock */

/* A box of the dataset: chunks are unpacked here if they can be, else looked at before HDF5 is let at them. */
static flim_status read_box(flim_h5 *h5, const flim_h5_array *a, hid_t dataset, const hsize_t *start, const hsize_t *size,
                            void *values, flim_error *err)
{
    char reason[512];
    bool done = false;
    flim_h5_chunks *chunks = NULL;
    flim_status status = FLIM_OK;
    hid_t stored = H5Dget_type(dataset), type = stored >= 0 ? flim_h5_native(stored) : -1;
    hid_t space = H5Dget_space(dataset), memory = H5Screate_simple(a->n_axes, size, NULL);
    bool good = type >= 0 && space >= 0 && memory >= 0 && H5Tget_size(type) == (size_t)a->bytes &&
                H5Sget_simple_extent_ndims(space) == a->n_axes &&
                H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, size, NULL) >= 0;
    if (good) {
        FLIM_TRY_DONE(flim_h5_chunks_create(h5, a->name, dataset, &chunks, err));
    }
    if (chunks && H5Tequal(stored, type) > 0) {
        FLIM_TRY_DONE(flim_h5_chunks_copy(chunks, start, size, (size_t)a->bytes, values, &done, err));
    }
    if (chunks && !done) {
        FLIM_TRY_DONE(flim_h5_chunks_check(chunks, -1, start, size, err));
    }
    good = good && (done || flim_h5_read_values(h5, dataset, type, memory, space, H5P_DEFAULT, values) >= 0);
    if (!good) {
        flim_h5_reason(reason, sizeof reason);
        status =
            flim_fail(err, FLIM_ERROR_DATA, "%s: /%s cannot be read: %s; the file may be damaged", h5->path, a->name, reason);
    }
done:
    flim_h5_chunks_destroy(chunks);
    flim_h5_drop(memory);
    flim_h5_drop(space);
    flim_h5_drop(type);
    flim_h5_drop(stored);
    return status;
}

static flim_status read_slab(flim_h5 *h5, const flim_h5_array *a, hid_t dataset, int axis, int64_t begin, int64_t count,
                             void *values, flim_error *err)
{
    hsize_t start[FLIM_H5_ARRAY_AXES] = {0}, size[FLIM_H5_ARRAY_AXES] = {0};
    for (int i = 0; i < a->n_axes; i++) {
        size[i] = (hsize_t)a->size[i];
    }
    start[axis] = (hsize_t)begin;
    size[axis] = (hsize_t)count;
    return read_box(h5, a, dataset, start, size, values, err);
}

flim_status flim_h5_arrays_read(flim_h5_arrays *arrays, int number, int axis, int64_t begin, int64_t count, void *values,
                                flim_error *err)
{
    const flim_h5_array *a = &arrays->array[number];
    hid_t dataset = -1;
    const flim_h5_guard guard = flim_h5_enter(arrays->h5);
    flim_status status = flim_h5_dataset(arrays->h5, a->name, true, "an array of counts", H5P_DEFAULT, &dataset, err);
    if (status == FLIM_OK) {
        status = read_slab(arrays->h5, a, dataset, axis, begin, count, values, err);
    }
    flim_h5_drop(dataset);
    flim_h5_leave(guard);
    return status;
}
