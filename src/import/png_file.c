/* PNG as labels, through libpng: gray of 1 to 16 bits and indexed colours, whose indices are the labels. */
#include <inttypes.h>
#include <string.h>

#include "core/alloc.h"
#include "core/try.h"
#include "import/label_image.h"

bool flim_is_png(const uint8_t *bytes, size_t count)
{
    return count >= 8 && memcmp(bytes, "\x89PNG\r\n\x1a\n", 8) == 0;
}

#ifdef FLIM_HAVE_PNG
#include <png.h>
#include <setjmp.h>

#define MOST_PIXELS (INT64_C(1) << 28)

/* One decoding.  libpng leaves by longjmp, so what is to be freed is here, not in registers. */
typedef struct decoder {
    const flim_mapped_file *file;
    size_t at;
    png_structp png;
    png_infop info;
    uint8_t *pixels; /* (rows, row bytes) */
    png_bytep *row; /* (rows) into pixels */
    char why[128];
} decoder;

static void read_bytes(png_structp png, png_bytep out, size_t count)
{
    decoder *d = png_get_io_ptr(png);
    if (count > d->file->size - d->at) {
        png_error(png, "the file is truncated");
    }
    memcpy(out, d->file->data + d->at, count);
    d->at += count;
}

static void fail(png_structp png, png_const_charp text)
{
    decoder *d = png_get_error_ptr(png);
    strncpy(d->why, text, sizeof d->why - 1);
    png_longjmp(png, 1);
}

static void drop(png_structp png, png_const_charp text)
{
    (void)png;
    (void)text;
}

static flim_status check_kind(const decoder *d, flim_error *err)
{
    const int colour = png_get_color_type(d->png, d->info);
    if (colour == PNG_COLOR_TYPE_GRAY || colour == PNG_COLOR_TYPE_GRAY_ALPHA || colour == PNG_COLOR_TYPE_PALETTE) {
        const int64_t y = png_get_image_height(d->png, d->info), x = png_get_image_width(d->png, d->info);
        return y <= MOST_PIXELS / x
                   ? FLIM_OK
                   : flim_fail(err, FLIM_ERROR_DATA, "%s: a mask of %" PRId64 " x %" PRId64 " pixels", d->file->path, y, x);
    }
    return flim_fail(
        err, FLIM_ERROR_DATA,
        "%s: a picture in colours (an overlay?), expected a mask: one gray value per pixel, the number of its cell",
        d->file->path);
}

/* Reads into d->pixels, two bytes per pixel if *two.  libpng's jumps end here. */
static flim_status decode(decoder *d, bool *two, flim_error *err)
{
    if (setjmp(png_jmpbuf(d->png))) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s: at offset %zu: %s", d->file->path, d->at, d->why);
    }
    png_set_read_fn(d->png, d, read_bytes);
    png_read_info(d->png, d->info);
    FLIM_TRY(check_kind(d, err));
    png_set_packing(d->png); /* a byte per pixel, and its value stays */
    png_set_strip_alpha(d->png);
    png_read_update_info(d->png, d->info);
    const size_t rows = png_get_image_height(d->png, d->info), bytes = png_get_rowbytes(d->png, d->info);
    *two = png_get_bit_depth(d->png, d->info) == 16;
    if (!(d->pixels = flim_alloc(rows, bytes, err)) || !(d->row = flim_alloc(rows, sizeof *d->row, err))) {
        return FLIM_ERROR_MEMORY;
    }
    for (size_t i = 0; i < rows; i++) {
        d->row[i] = d->pixels + i * bytes;
    }
    png_read_image(d->png, d->row);
    png_read_end(d->png, NULL);
    return FLIM_OK;
}

flim_status flim_png_read(const flim_mapped_file *file, int64_t *y, int64_t *x, uint32_t **label, flim_error *err)
{
    decoder d = {.file = file};
    bool two = false;
    flim_status status = FLIM_OK;
    *label = NULL;
    d.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &d, fail, drop);
    d.info = d.png ? png_create_info_struct(d.png) : NULL;
    FLIM_TRY_DONE(d.info ? FLIM_OK : flim_fail(err, FLIM_ERROR_MEMORY, "out of host memory"));
    FLIM_TRY_DONE(decode(&d, &two, err));
    *y = png_get_image_height(d.png, d.info);
    *x = png_get_image_width(d.png, d.info);
    uint32_t *made = flim_alloc((size_t)(*y * *x), sizeof *made, err); /* (Y,X) */
    FLIM_TRY_DONE(made ? FLIM_OK : FLIM_ERROR_MEMORY);
    for (int64_t i = 0; i < *y * *x; i++) {
        const uint8_t *p = d.row[i / *x] + (i % *x) * (two ? 2 : 1);
        made[i] = two ? (uint32_t)(p[0] << 8 | p[1]) : p[0];
    }
    *label = made;
done:
    png_destroy_read_struct(&d.png, &d.info, NULL);
    flim_free(d.pixels);
    flim_free(d.row);
    return status;
}

#else

flim_status flim_png_read(const flim_mapped_file *file, int64_t *y, int64_t *x, uint32_t **label, flim_error *err)
{
    *y = *x = 0;
    *label = NULL;
    return flim_fail(
        err, FLIM_ERROR_USAGE,
        "%s: a PNG file, and flimcv was built without libpng: install Debian's libpng-dev and build again, or save "
        "the mask as TIFF or .npy",
        file->path);
}
#endif
