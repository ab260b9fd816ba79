/* TIFF through libtiff: any byte order, strips or tiles, any compression that libtiff was built with, BigTIFF.
 *
 * For: masks and image stacks.  Pages are listed with their shape before any is decoded.
 * Owns: flim_tiff_open makes it; flim_tiff_close releases it.  The mapping is the caller's and outlives it.
 * Errors: FLIM_ERROR_DATA with file, page and libtiff's reason; FLIM_ERROR_USAGE if flimcv was built without libtiff.
 */
#ifndef FLIM_IMPORT_TIFF_FILE_H
#define FLIM_IMPORT_TIFF_FILE_H

#include "import/element.h"
#include "import/mapped_file.h"

typedef struct flim_tiff flim_tiff;

typedef struct flim_tiff_page {
    int64_t y, x, samples;
    flim_element element; /* as libtiff hands it over, in the machine's byte order; 0 bytes = one bit */
    bool planes; /* its samples lie one plane after another, else those of a pixel together */
    int64_t plain; /* offset of its values if they lie in the file one after another as the machine has them, else -1 */
} flim_tiff_page;

bool flim_is_tiff(const uint8_t *bytes, size_t count);

flim_status flim_tiff_open(const flim_mapped_file *file, flim_tiff **out, flim_error *err);
void flim_tiff_close(flim_tiff *tiff); /* NULL is allowed */

int flim_tiff_pages(const flim_tiff *tiff); /* at least 1 */
const flim_tiff_page *flim_tiff_page_at(const flim_tiff *tiff, int page);
const char *flim_tiff_description(const flim_tiff *tiff); /* tag ImageDescription of the first page; "" if it has none */

/* The same file once more, for another thread: closed before `tiff`, whose list of pages it shares. */
flim_status flim_tiff_reopen(const flim_tiff *tiff, flim_tiff **out, flim_error *err);

/* A page as whole numbers from 0 to 4294967295, (samples,Y,X). */
flim_status flim_tiff_read(flim_tiff *tiff, int page, uint32_t *out, flim_error *err);
/* A page of elements of one byte or more as they are: (Y,X,samples), or (samples,Y,X) if page.planes. */
flim_status flim_tiff_read_elements(flim_tiff *tiff, int page, void *out, flim_error *err);

#endif
