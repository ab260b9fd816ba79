/* NumPy's .npy and .npz, a zip archive of them: bare arrays of counts. */
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/try.h"
#include "formats/zip.h"
#include "import/npy_header.h"

static bool is_npy(const flim_mapped_file *f)
{
    return flim_is_npy(f->data, f->size);
}

static bool is_npz(const flim_mapped_file *f)
{
    return flim_is_zip(f->data, f->size);
}

/* The images of one array, of whose `whole` bytes the first `count` are there; place: that of the array. */
static flim_status add_images(flim_field_file *file, const char *name, const char *label, const uint8_t *bytes, size_t count,
                              uint64_t whole, uint64_t place, flim_error *err)
{
    flim_bare_array array;
    FLIM_TRY(flim_npy_header(name, bytes, count, &array, err));
    return flim_array_add_images(file, name, label, &array, whole > array.data ? whole - array.data : 0, place, err);
}

static flim_status read_image(flim_field_file *file, const char *name, int image, const uint8_t *bytes, size_t count,
                              flim_counts *out, flim_error *err)
{
    flim_bare_array array;
    FLIM_TRY(flim_npy_header(name, bytes, count, &array, err));
    return flim_array_read_image(file, name, &array, flim_array_image_number(file, image), bytes + array.data,
                                 count - array.data, out, err);
}

/* ---- .npy ---- */

static flim_status open_npy(flim_field_file *file, flim_error *err)
{
    return add_images(file, file->map.path, "", file->map.data, file->map.size, file->map.size, 0, err);
}

static flim_status read_npy(flim_field_file *file, int image, flim_counts *out, flim_error *err)
{
    return read_image(file, file->map.path, image, file->map.data, file->map.size, out, err);
}

/* ---- .npz: the place of a image is the cursor before its entry ---- */

static flim_status in_archive(const flim_field_file *file, const flim_zip_entry *entry, flim_status status,
                              const flim_error *why, flim_error *err)
{
    return status == FLIM_OK
               ? FLIM_OK
               : flim_fail(err, status, "%s%s%s: %s", file->map.path, entry->name[0] ? "/" : "", entry->name, why->text);
}

static flim_status open_npz(flim_field_file *file, flim_error *err)
{
    const flim_mapped_file *f = &file->map;
    uint64_t cursor = 0;
    for (;;) {
        uint8_t head[4096];
        size_t got;
        flim_zip_entry entry = {0};
        flim_error why = {0};
        bool found;
        char name[4200];
        const uint64_t place = cursor;
        FLIM_TRY(in_archive(file, &entry, flim_zip_next(f->data, f->size, &cursor, &entry, &found, &why), &why, err));
        if (!found) {
            return FLIM_OK;
        }
        FLIM_TRY(in_archive(file, &entry, flim_zip_peek(f->data, f->size, &entry, head, sizeof head, &got, &why), &why, err));
        char *suffix = strrchr(entry.name, '.');
        if (!suffix || strcmp(suffix, ".npy") != 0) {
            return flim_fail(err, FLIM_ERROR_DATA, "%s: a zip archive with '%s', expected NumPy's arrays (NAME.npy)", f->path,
                             entry.name);
        }
        snprintf(name, sizeof name, "%.3900s/%s", f->path, entry.name);
        *suffix = '\0';
        FLIM_TRY(add_images(file, name, entry.name, head, got, entry.size, place, err));
    }
}

/* The array that was read last: the images of a stack share what was unpacked. */
typedef struct npz_array {
    uint64_t place;
    uint8_t *bytes; /* (size); NULL = none yet */
    uint64_t size;
    char name[4200]; /* for messages */
} npz_array;

/* Unpacks the array at `place` unless it is the one that is there. */
static flim_status unpack_array(flim_field_file *file, uint64_t place, npz_array **out, flim_error *err)
{
    const flim_mapped_file *f = &file->map;
    npz_array *a = file->state;
    uint64_t cursor = place;
    flim_zip_entry entry = {0};
    flim_error why = {0};
    bool found;
    if (!a && !(file->state = a = flim_alloc(1, sizeof *a, err))) {
        return FLIM_ERROR_MEMORY;
    }
    *out = a;
    if (a->bytes && a->place == place) {
        return FLIM_OK;
    }
    flim_free(a->bytes);
    a->bytes = NULL;
    FLIM_TRY(in_archive(file, &entry, flim_zip_next(f->data, f->size, &cursor, &entry, &found, &why), &why, err));
    uint8_t *bytes = flim_alloc_large(entry.size, 1, err);
    if (!bytes) {
        return FLIM_ERROR_MEMORY;
    }
    const flim_status status = flim_zip_extract(f->data, f->size, &entry, bytes, entry.size, &why);
    if (status != FLIM_OK) {
        flim_free(bytes);
        return in_archive(file, &entry, status, &why, err);
    }
    snprintf(a->name, sizeof a->name, "%.3900s/%s", f->path, entry.name);
    a->place = place;
    a->bytes = bytes;
    a->size = entry.size;
    return FLIM_OK;
}

static flim_status read_npz(flim_field_file *file, int image, flim_counts *out, flim_error *err)
{
    npz_array *a = NULL;
    FLIM_TRY(unpack_array(file, file->place[image], &a, err));
    return read_image(file, a->name, image, a->bytes, a->size, out, err);
}

static void close_npz(flim_field_file *file)
{
    npz_array *a = file->state;
    if (a) {
        flim_free(a->bytes);
        flim_free(a);
    }
}

const flim_field_format flim_format_npy = {"NumPy .npy", is_npy, open_npy, read_npy, NULL, true};
const flim_field_format flim_format_npz = {"NumPy .npz", is_npz, open_npz, read_npz, close_npz, true};
