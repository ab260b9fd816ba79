/* What the pages of a TIFF stack are: channels, planes and times, in which order, and which of them is the time of the decay.
 *
 * For: the reader of TIFF stacks.  Known are OME-XML (Pixels, and ModuloAlongX of type lifetime) and ImageJ's description; without
 *      either the pages are the time.
 */
#ifndef FLIM_IMPORT_TIFF_AXES_H
#define FLIM_IMPORT_TIFF_AXES_H

#include "import/field_file.h"

typedef struct flim_tiff_axes {
    int64_t size[3]; /* of C, Z, T */
    int order[3]; /* of 0 = C, 1 = Z, 2 = T: the first varies fastest from page to page */
    int time; /* which of them is the decay's */
    int64_t bins; /* time bins; fewer than size[time] if that axis holds several decays one after another */
    double range_ns; /* of all bins; 0 = unknown */
} flim_tiff_axes;

/* FLIM_ERROR_DATA if the description and the number of pages disagree; FLIM_ERROR_USAGE if several axes may be the time. */
flim_status flim_tiff_axes_of(const char *path, const char *description, int64_t pages, flim_time_axis asked,
                              flim_tiff_axes *out, flim_error *err);

/* The page of image `image` (of pages / bins) that holds time bin t. */
int64_t flim_tiff_axes_page(const flim_tiff_axes *axes, int64_t image, int64_t t);
/* "C 1 T 2": what tells the image from others; "" if it is the only one. */
void flim_tiff_axes_name(const flim_tiff_axes *axes, int64_t image, char *out, size_t size);

#endif
