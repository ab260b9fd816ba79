/* Masks as label images: which cell a pixel of a field belongs to.
 *
 * For: flim_import.  Read from TIFF, PNG (gray or indexed) and .npy of integers or whole floats, as Cellpose, ImageJ, StarDist
 *      and skimage write them.
 * Owns: flim_label_image_read fills it; flim_label_image_free releases it.
 * Errors: FLIM_ERROR_DATA with the file and what is wrong with it; FLIM_ERROR_USAGE if flimcv was built without the library.
 */
#ifndef FLIM_IMPORT_LABEL_IMAGE_H
#define FLIM_IMPORT_LABEL_IMAGE_H

#include <stdbool.h>

#include "import/mapped_file.h"

typedef struct flim_label_image {
    int64_t y, x;
    uint32_t *label; /* (Y,X); 0 = no cell */
} flim_label_image;

flim_status flim_label_image_read(const char *path, flim_label_image *out, flim_error *err);
void flim_label_image_free(flim_label_image *image); /* leaves it zeroed; zeroed is allowed */

/* Labels (Y,X) of a gray or indexed PNG that is `file`; *label is the caller's (flim_free). */
flim_status flim_png_read(const flim_mapped_file *file, int64_t *y, int64_t *x, uint32_t **label, flim_error *err);
bool flim_is_png(const uint8_t *bytes, size_t count);

#endif
