/* TIFF and OME-TIFF stacks: the time as pages, or as the values of a pixel (channels). */
#include <inttypes.h>
#include <stdio.h>

#include "core/alloc.h"
#include "core/try.h"
#include "import/field_file.h"
#include "import/tiff_axes.h"
#include "import/tiff_file.h"

enum {
    AT_ONCE = 16, /* pages, so that a cache line of counts is filled at once */
    APART = 48 /* counts between them: planes a power of two apart would share a set of the cache */
};

static bool is_tiff(const flim_mapped_file *f)
{
    return flim_is_tiff(f->data, f->size);
}

static flim_status check_pages(const flim_mapped_file *f, const flim_tiff *tiff, flim_error *err)
{
    const flim_tiff_page *first = flim_tiff_page_at(tiff, 0);
    const int pages = flim_tiff_pages(tiff);
    for (int i = 1; i < pages; i++) {
        const flim_tiff_page *p = flim_tiff_page_at(tiff, i);
        if (p->y != first->y || p->x != first->x || p->samples != first->samples) {
            return flim_fail(err, FLIM_ERROR_DATA,
                             "%s: page %d has %" PRId64 " x %" PRId64 " pixels of %" PRId64 " values, page 1 %" PRId64
                             " x %" PRId64 " of %" PRId64,
                             f->path, i + 1, p->y, p->x, p->samples, first->y, first->x, first->samples);
        }
    }
    return pages == 1 && first->samples == 1
               ? flim_fail(
                     err, FLIM_ERROR_DATA,
                     "%s: one page with one value per pixel, expected a stack: time bins as pages, or as values of a pixel; "
                     "masks are named by --mask",
                     f->path)
               : FLIM_OK;
}

/* Each page is an image, the values of a pixel its decay. */
static flim_status list_pages(flim_field_file *file, const flim_tiff *tiff, flim_error *err)
{
    const flim_tiff_page *first = flim_tiff_page_at(tiff, 0);
    for (int i = 0; i < flim_tiff_pages(tiff); i++) {
        flim_field_image image = {.y = first->y, .x = first->x, .t = first->samples};
        snprintf(image.name, sizeof image.name, "page %d", i + 1);
        FLIM_TRY(flim_field_add_image(file, &image, (uint64_t)i, err));
    }
    return FLIM_OK;
}

static flim_status list_stacks(flim_field_file *file, const flim_tiff *tiff, flim_error *err)
{
    const flim_tiff_page *first = flim_tiff_page_at(tiff, 0);
    const int64_t pages = flim_tiff_pages(tiff);
    flim_tiff_axes axes;
    FLIM_TRY(flim_tiff_axes_of(file->map.path, flim_tiff_description(tiff), pages, file->options.time_axis, &axes, err));
    for (int64_t i = 0; i < pages / axes.bins; i++) {
        flim_field_image image = {.y = first->y, .x = first->x, .t = axes.bins, .range_ns = axes.range_ns};
        flim_tiff_axes_name(&axes, i, image.name, sizeof image.name);
        FLIM_TRY(flim_field_add_image(file, &image, (uint64_t)i, err));
    }
    return FLIM_OK;
}

static flim_status open_tiff(flim_field_file *file, flim_error *err)
{
    flim_tiff *tiff;
    FLIM_TRY(flim_tiff_open(&file->map, &tiff, err));
    file->state = tiff;
    FLIM_TRY(check_pages(&file->map, tiff, err));
    return flim_tiff_page_at(tiff, 0)->samples > 1 ? list_pages(file, tiff, err) : list_stacks(file, tiff, err);
}

/* planes (count, pixels), `pitch` counts apart, which begin at time bin t, into counts (pixels,T). */
static void spread(const uint32_t *planes, int64_t count, int64_t pixels, int64_t pitch, int64_t t, int64_t bins,
                   uint32_t *counts)
{
    for (int64_t i = 0; i < pixels; i++) {
        for (int64_t k = 0; k < count; k++) {
            counts[i * bins + t + k] = planes[k * pitch + i];
        }
    }
}

static flim_status read_pages(const flim_field_file *file, flim_tiff *tiff, int image, uint32_t *planes, uint32_t *counts,
                              flim_error *err)
{
    const flim_field_image *b = &file->image[image];
    const int64_t pixels = b->y * b->x;
    flim_tiff_axes axes;
    FLIM_TRY(flim_tiff_axes_of(file->map.path, flim_tiff_description(tiff), flim_tiff_pages(tiff), file->options.time_axis,
                               &axes, err));
    for (int64_t t = 0; t < b->t; t += AT_ONCE) {
        const int64_t count = b->t - t < AT_ONCE ? b->t - t : AT_ONCE;
        for (int64_t k = 0; k < count; k++) {
            FLIM_TRY(flim_tiff_read(tiff, (int)flim_tiff_axes_page(&axes, (int64_t)file->place[image], t + k),
                                    planes + k * (pixels + APART), err));
        }
        spread(planes, count, pixels, pixels + APART, t, b->t, counts);
    }
    return FLIM_OK;
}

static flim_status read_tiff(flim_field_file *file, int image, uint32_t *counts, flim_error *err)
{
    const flim_field_image *b = &file->image[image];
    const bool samples = flim_tiff_page_at(file->state, 0)->samples > 1;
    flim_status status = FLIM_OK;
    const int64_t pixels = b->y * b->x, pitch = samples ? pixels : pixels + APART;
    uint32_t *planes = flim_alloc((size_t)pitch, (size_t)(samples ? b->t : AT_ONCE) * sizeof *planes, err); /* (.,Y,X) */
    FLIM_TRY_DONE(planes ? FLIM_OK : FLIM_ERROR_MEMORY);
    if (samples) {
        FLIM_TRY_DONE(flim_tiff_read(file->state, (int)file->place[image], planes, err));
        spread(planes, b->t, pixels, pixels, 0, b->t, counts);
    } else {
        status = read_pages(file, file->state, image, planes, counts, err);
    }
done:
    flim_free(planes);
    return status;
}

static void close_tiff(flim_field_file *file)
{
    flim_tiff_close(file->state);
}

const flim_field_format flim_format_tiff = {"TIFF", is_tiff, open_tiff, read_tiff, close_tiff, false};
