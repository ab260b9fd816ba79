#include "import/label_image.h"

#include <inttypes.h>

#include "core/alloc.h"
#include "core/try.h"
#include "import/npy_header.h"
#include "import/tiff_file.h"

#define MOST_PIXELS (INT64_C(1) << 28)

static flim_status make(const char *path, int64_t y, int64_t x, flim_label_image *out, flim_error *err)
{
    if (y < 1 || x < 1 || y > MOST_PIXELS / x) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s: a mask of %" PRId64 " x %" PRId64 " pixels", path, y, x);
    }
    *out = (flim_label_image){.y = y, .x = x, .label = flim_alloc((size_t)(y * x), sizeof *out->label, err)};
    return out->label ? FLIM_OK : FLIM_ERROR_MEMORY;
}

static flim_status read_npy(const flim_mapped_file *f, flim_label_image *out, flim_error *err)
{
    flim_bare_array a;
    FLIM_TRY(flim_npy_header(f->path, f->data, f->size, &a, err));
    int first = 0;
    while (a.n_axes - first > 2 && a.size[first] == 1) { /* axes of one in front say nothing */
        first++;
    }
    if (a.n_axes - first != 2) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s: an array of %d axes, expected a mask (Y,X)", f->path, a.n_axes);
    }
    const int64_t y = a.size[first], x = a.size[first + 1], size = a.element.bytes;
    if (y * x * size > (int64_t)(f->size - a.data)) {
        return flim_fail(err, FLIM_ERROR_DATA,
                         "%s: its elements end after %zu of %" PRId64 " bytes, at offset %zu: the file is truncated", f->path,
                         (size_t)(f->size - a.data), y * x * size, f->size);
    }
    FLIM_TRY(make(f->path, y, x, out, err));
    for (int64_t row = 0; row < y; row++) {
        const uint8_t *at = f->data + a.data + row * a.step[first] * size;
        const size_t good = flim_elements_read(&a.element, at, a.step[first + 1] * size, (size_t)x, out->label + row * x);
        if (good < (size_t)x) {
            return flim_fail(err, FLIM_ERROR_DATA,
                             "%s: the value at y %" PRId64 ", x %zu is no label: expected whole numbers from 0 to %" PRIu32,
                             f->path, row, good, UINT32_MAX);
        }
    }
    return FLIM_OK;
}

static flim_status read_tiff(const flim_mapped_file *f, flim_label_image *out, flim_error *err)
{
    flim_tiff *tiff;
    flim_status status = FLIM_OK;
    FLIM_TRY(flim_tiff_open(f, &tiff, err));
    const flim_tiff_page *page = flim_tiff_page_at(tiff, 0);
    if (flim_tiff_pages(tiff) != 1 || page->samples != 1) {
        FLIM_TRY_DONE(flim_fail(err, FLIM_ERROR_DATA,
                                "%s: %d pages of %" PRId64
                                " values per pixel, expected a mask: one page, one value per pixel",
                                f->path, flim_tiff_pages(tiff), page->samples));
    }
    FLIM_TRY_DONE(make(f->path, page->y, page->x, out, err));
    status = flim_tiff_read(tiff, 0, out->label, err);
done:
    flim_tiff_close(tiff);
    return status;
}

flim_status flim_label_image_read(const char *path, flim_label_image *out, flim_error *err)
{
    flim_mapped_file file;
    flim_status status = FLIM_OK;
    *out = (flim_label_image){0};
    FLIM_TRY_DONE(flim_mapped_open(path, &file, err));
    if (flim_is_npy(file.data, file.size)) {
        status = read_npy(&file, out, err);
    } else if (flim_is_tiff(file.data, file.size)) {
        status = read_tiff(&file, out, err);
    } else if (flim_is_png(file.data, file.size)) {
        status = flim_png_read(&file, &out->y, &out->x, &out->label, err);
    } else {
        status = flim_fail(err, FLIM_ERROR_DATA,
                           "%s: its first bytes are those of no mask that is read (TIFF, PNG, NumPy's .npy)", path);
    }
done:
    flim_mapped_close(&file);
    if (status != FLIM_OK) {
        flim_label_image_free(out);
    }
    return status;
}

void flim_label_image_free(flim_label_image *image)
{
    flim_free(image->label);
    *image = (flim_label_image){0};
}
