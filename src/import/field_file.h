/* Instrument files and arrays as fields: photon counts of Y x X pixels over T time bins.
 *
 * For: flim_import.  A file holds one image or several (channels of an .sdt, detectors of a .ptu, arrays of an .npz); each is
 *      listed with its shape before any is decoded.
 * Owns: flim_field_open makes the file; flim_field_close releases it.  Counts are the caller's, and may lie in the open file.
 * Errors: FLIM_ERROR_DATA names the file, what was found and where; FLIM_ERROR_USAGE a choice that the caller has to make;
 *      FLIM_ERROR_MEMORY.
 */
#ifndef FLIM_IMPORT_FIELD_FILE_H
#define FLIM_IMPORT_FIELD_FILE_H

#include <stdbool.h>

#include "import/counts.h"
#include "import/mapped_file.h"

/* Where the time axis of a bare array is. */
typedef enum flim_array_axes {
    /* The longer of the first and the last axis, unless only the other one leaves square pixels: then the mask of the field
     * decides by its shape.  Without one, and where both are equally long, it is FLIM_ERROR_USAGE. */
    FLIM_ARRAY_AUTO,
    FLIM_ARRAY_YXT,
    FLIM_ARRAY_TYX
} flim_array_axes;
extern const char *const flim_array_axes_names[]; /* auto, YXT, TYX; ends in NULL */

/* Which axis of a stack of pictures is the time, if the file has several and does not say. */
typedef enum flim_time_axis { FLIM_TIME_AUTO, FLIM_TIME_C, FLIM_TIME_Z, FLIM_TIME_T } flim_time_axis;
extern const char *const flim_time_axis_names[]; /* auto, C, Z, T; ends in NULL */

/* What a file does not say of itself; zeroed is what is usual. */
typedef struct flim_field_options {
    flim_array_axes axes; /* of bare arrays */
    int64_t mask_y, mask_x; /* pixels of the field's mask, for bare arrays; 0 = there is none, or it was not looked at */
    flim_time_axis time_axis; /* of TIFF stacks */
    const char *dataset; /* of HDF5 and MATLAB files: the array's name; NULL or "": there is but one */
    bool trusted; /* it was opened before: HDF5 needs no first look at it */
    const volatile int *stop; /* ends such a look; may be NULL */
} flim_field_options;

typedef struct flim_field_image {
    char name[64]; /* "channel 1", "detector 0", "arr_0" */
    int64_t y, x, t;
    double range_ns; /* of all T bins; 0 = the file does not say */
} flim_field_image;

typedef struct flim_field_file flim_field_file;

/* One kind of file. */
typedef struct flim_field_format {
    const char *name; /* "Becker & Hickl .sdt" */
    bool (*is)(const flim_mapped_file *file); /* by its first bytes, never by its name */
    flim_status (*open)(flim_field_file *file, flim_error *err); /* lists the images */
    /* out: zeroed by the caller, who frees it, after an error too. */
    flim_status (*read)(flim_field_file *file, int image, flim_counts *out, flim_error *err);
    void (*close)(flim_field_file *file); /* releases file->state; NULL if there is none */
    bool stack; /* its images are cells; else they are channels, of which one is to be chosen */
} flim_field_format;

struct flim_field_file {
    flim_mapped_file map;
    const flim_field_format *format;
    flim_field_options options; /* as asked for */
    void *state; /* the format's own */
    int n_images;
    flim_field_image *image; /* (n_images) */
    uint64_t *place; /* (n_images): where the format finds the image again */
    char instrument[96], date[64]; /* as the file has them; "" if it does not */
    /* Photons of the file that are in no pixel of any image, after flim_field_read of a format that sorts photons itself:
     * before the first line, in the way back of the scanner, beyond the last bin. */
    uint64_t unplaced;
};

flim_status flim_field_open(const char *path, const flim_field_options *options, flim_field_file **out, flim_error *err);
void flim_field_close(flim_field_file *file); /* NULL is allowed */

/* The counts of image `image` in 0..n_images-1; the caller's to flim_counts_free before the file is closed or its next image read. */
flim_status flim_field_read(flim_field_file *file, int image, flim_counts *out, flim_error *err);

/* What messages call an image: "channel 1", "image 3" of a stack without names, "it" where the file has but one. */
void flim_field_image_called(const flim_field_image *image, char *out, size_t size);

/* For the formats: one more image at the end of the list. */
flim_status flim_field_add_image(flim_field_file *file, const flim_field_image *image, uint64_t place, flim_error *err);

extern const flim_field_format flim_format_sdt, flim_format_ptu, flim_format_npy, flim_format_npz, flim_format_tiff,
    flim_format_hdf5_arrays, flim_format_mat5;

#endif
