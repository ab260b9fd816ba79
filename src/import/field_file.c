#include "import/field_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/try.h"

const char *const flim_array_axes_names[] = {"auto", "YXT", "TYX", NULL};

const char *const flim_time_axis_names[] = {"auto", "C", "Z", "T", NULL};

static const flim_field_format *const format[] = {&flim_format_sdt, &flim_format_ptu,  &flim_format_npy,
                                                  &flim_format_npz, &flim_format_tiff, &flim_format_hdf5_arrays,
                                                  &flim_format_mat5};
enum { N_FORMATS = sizeof format / sizeof format[0] };

/* A field of more voxels is no field: 4096 x 4096 pixels of 4096 bins. */
#define MOST_VOXELS (INT64_C(1) << 36)

static flim_status find_format(flim_field_file *file, flim_error *err)
{
    for (int i = 0; i < N_FORMATS; i++) {
        if (format[i]->is(&file->map)) {
            file->format = format[i];
            return FLIM_OK;
        }
    }
    return flim_fail(err, FLIM_ERROR_DATA,
                     "%s: its first bytes are those of no format that is read (Becker & Hickl .sdt, PicoQuant .ptu, NumPy's "
                     ".npy and .npz, TIFF, HDF5, MATLAB's .mat)",
                     file->map.path);
}

flim_status flim_field_open(const char *path, const flim_field_options *options, flim_field_file **out, flim_error *err)
{
    *out = NULL;
    flim_field_file *file = flim_alloc(1, sizeof *file, err);
    if (!file) {
        return FLIM_ERROR_MEMORY;
    }
    flim_status status = FLIM_OK;
    file->options = *options;
    FLIM_TRY_DONE(flim_mapped_open(path, &file->map, err));
    FLIM_TRY_DONE(find_format(file, err));
    FLIM_TRY_DONE(file->format->open(file, err));
    if (file->n_images == 0) {
        FLIM_TRY_DONE(flim_fail(err, FLIM_ERROR_DATA, "%s: a %s file without data", path, file->format->name));
    }
    *out = file;
    file = NULL;
done:
    flim_field_close(file);
    return status;
}

void flim_field_close(flim_field_file *file)
{
    if (file) {
        if (file->format && file->format->close) {
            file->format->close(file);
        }
        flim_mapped_close(&file->map);
        flim_free(file->image);
        flim_free(file->place);
        flim_free(file);
    }
}

void flim_field_image_called(const flim_field_image *image, char *out, size_t size)
{
    const char first = image->name[0];
    snprintf(out, size, "%s%s", first >= '0' && first <= '9' ? "image " : "", first ? image->name : "it");
}

flim_status flim_field_add_image(flim_field_file *file, const flim_field_image *image, uint64_t place, flim_error *err)
{
    if (image->y < 1 || image->x < 1 || image->t < 1 || image->y > MOST_VOXELS / image->x ||
        image->y * image->x > MOST_VOXELS / image->t) {
        char called[80];
        flim_field_image_called(image, called, sizeof called);
        return flim_fail(err, FLIM_ERROR_DATA,
                         "%s: %s has %" PRId64 " x %" PRId64 " pixels and %" PRId64
                         " time bins, expected at least one of each "
                         "and at most %" PRId64 " voxels",
                         file->map.path, called, image->y, image->x, image->t, MOST_VOXELS);
    }
    const size_t n = (size_t)file->n_images;
    if ((n & (n - 1)) == 0) { /* at powers of two: room for as many again */
        const size_t room = n ? 2 * n : 1;
        flim_field_image *grown = flim_realloc(file->image, room, sizeof *grown, err);
        if (!grown) {
            return FLIM_ERROR_MEMORY;
        }
        file->image = grown;
        uint64_t *places = flim_realloc(file->place, room, sizeof *places, err);
        if (!places) {
            return FLIM_ERROR_MEMORY;
        }
        file->place = places;
    }
    file->image[file->n_images] = *image;
    file->place[file->n_images++] = place;
    return FLIM_OK;
}

flim_status flim_field_read(flim_field_file *file, int image, flim_counts *out, flim_error *err)
{
    *out = (flim_counts){0};
    file->unplaced = 0;
    const flim_status status = file->format->read(file, image, out, err);
    if (status != FLIM_OK) {
        flim_counts_free(out);
    }
    return status;
}
