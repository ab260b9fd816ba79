/* TIFF and OME-TIFF stacks: the time as pages, or as the values of a pixel (channels). */
#include <inttypes.h>
#include <stdio.h>

#include "core/alloc.h"
#include "core/threads.h"
#include "core/try.h"
#include "import/field_file.h"
#include "import/tiff_axes.h"
#include "import/tiff_file.h"

enum { MOST_THREADS = 16, LEAST_BYTES = 1 << 20 /* of a stack that is worth more threads than one */ };

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

/* ---- values ---- */

/* The pages of an image: its time bins, or one whose pixels have samples. */
typedef struct page_list {
    const flim_tiff *tiff;
    flim_tiff_axes axes;
    int64_t image, n;
    bool samples;
    flim_tiff_page page; /* the first of them */
    bool numbers; /* they are read as uint32: their elements differ, or are bits */
    size_t page_bytes; /* of what is read of one */
    uint8_t *out; /* (n, page_bytes) */
} page_list;

static int page_at(const page_list *l, int64_t t)
{
    return l->samples ? (int)l->image : (int)flim_tiff_axes_page(&l->axes, l->image, t);
}

static flim_status list_image(const flim_field_file *file, int image, page_list *out, flim_error *err)
{
    const flim_field_image *b = &file->image[image];
    const flim_tiff *tiff = file->state;
    *out = (page_list){.tiff = tiff, .image = (int64_t)file->place[image]};
    out->samples = flim_tiff_page_at(tiff, 0)->samples > 1;
    out->n = out->samples ? 1 : b->t;
    FLIM_TRY(out->samples ? FLIM_OK
                          : flim_tiff_axes_of(file->map.path, flim_tiff_description(tiff), flim_tiff_pages(tiff),
                                              file->options.time_axis, &out->axes, err));
    out->page = *flim_tiff_page_at(tiff, page_at(out, 0));
    out->numbers = out->page.element.bytes == 0;
    for (int64_t t = 1; t < out->n; t++) {
        const flim_element *e = &flim_tiff_page_at(tiff, page_at(out, t))->element;
        out->numbers = out->numbers || e->kind != out->page.element.kind || e->bytes != out->page.element.bytes;
    }
    out->page_bytes = (size_t)(b->y * b->x * out->page.samples) * (out->numbers ? 4 : (size_t)out->page.element.bytes);
    return FLIM_OK;
}

/* Do all pages lie in the file as they are, `step` bytes from one to the next? */
static bool lie_in_file(const page_list *l, int64_t *step)
{
    const int64_t size = l->page.element.bytes;
    *step = (int64_t)l->page_bytes;
    for (int64_t t = 0; t < l->n; t++) {
        const int64_t plain = flim_tiff_page_at(l->tiff, page_at(l, t))->plain;
        *step = t == 1 ? plain - l->page.plain : *step;
        if (l->numbers || plain < 0 || plain != l->page.plain + t * *step) {
            return false;
        }
    }
    return *step >= (int64_t)l->page_bytes && *step % size == 0;
}

static flim_status begin_pages(void *context, void *own, flim_error *err)
{
    const page_list *l = context;
    return flim_tiff_reopen(l->tiff, own, err);
}

static flim_status read_page(void *context, void *own, int64_t t, flim_error *err)
{
    const page_list *l = context;
    flim_tiff *tiff = *(flim_tiff **)own;
    uint8_t *out = l->out + (size_t)t * l->page_bytes;
    return l->numbers ? flim_tiff_read(tiff, page_at(l, t), (uint32_t *)(void *)out, err)
                      : flim_tiff_read_elements(tiff, page_at(l, t), out, err);
}

static void end_pages(void *own)
{
    flim_tiff_close(*(flim_tiff **)own);
}

static flim_status read_pages(page_list *l, flim_tiff *tiff, flim_error *err)
{
    const int cores = flim_processors();
    const int threads = l->n < cores ? (int)l->n : cores < MOST_THREADS ? cores : MOST_THREADS;
    if (threads > 1 && l->page_bytes * (size_t)l->n >= LEAST_BYTES) {
        const flim_shared_work work = {.items = l->n,
                                       .stride = 1,
                                       .context = l,
                                       .begin = begin_pages,
                                       .item = read_page,
                                       .end = end_pages,
                                       .own_bytes = sizeof(flim_tiff *)};
        return flim_share_work(&work, threads, err);
    }
    for (int64_t t = 0; t < l->n; t++) {
        FLIM_TRY(read_page(l, &tiff, t, err));
    }
    return FLIM_OK;
}

/* The elements of the image's pages, which follow one another at `bytes`, as counts. */
static flim_status to_counts(const flim_field_file *file, const page_list *l, const uint8_t *bytes, flim_counts *out,
                             flim_error *err)
{
    const flim_element number = {'u', 4, __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__};
    const size_t n = (size_t)(out->y * out->x * out->t);
    size_t good;
    FLIM_TRY(flim_counts_from_elements(l->numbers ? &number : &l->page.element, bytes, n, &out->data, &out->bytes,
                                       &out->memory, &good, err));
    if (good == n) {
        return FLIM_OK;
    }
    const int64_t at = (int64_t)good;
    return flim_fail(err, FLIM_ERROR_DATA,
                     "%s: page %d: the value at y %" PRId64 ", x %" PRId64
                     " is no count: expected whole numbers from 0 to %" PRIu32,
                     file->map.path, page_at(l, l->samples ? 0 : at / out->t_step) + 1, at / out->y_step % out->y,
                     at / out->x_step % out->x, UINT32_MAX);
}

static flim_status read_tiff(flim_field_file *file, int image, flim_counts *out, flim_error *err)
{
    const flim_field_image *b = &file->image[image];
    page_list l;
    int64_t step;
    flim_status status = FLIM_OK;
    FLIM_TRY(list_image(file, image, &l, err));
    const bool together = l.samples && !l.page.planes && !l.numbers; /* the decay of a pixel lies together */
    *out = (flim_counts){.y = b->y,
                         .x = b->x,
                         .t = b->t,
                         .y_step = together ? b->x * b->t : b->x,
                         .x_step = together ? b->t : 1,
                         .t_step = together ? 1 : b->x * b->y};
    if (lie_in_file(&l, &step) && (step == (int64_t)l.page_bytes || l.page.element.kind == 'u')) {
        const uint8_t *first = file->map.data + l.page.plain;
        const int size = l.page.element.bytes;
        if (step == (int64_t)l.page_bytes) {
            return to_counts(file, &l, first, out, err);
        }
        if (size <= 4 && (uintptr_t)first % (uintptr_t)size == 0) { /* something between the pages */
            out->t_step = step / size;
            out->data = first;
            out->bytes = size;
            return FLIM_OK;
        }
    }
    l.out = flim_alloc_large((size_t)l.n, l.page_bytes, err);
    FLIM_TRY_DONE(l.out ? FLIM_OK : FLIM_ERROR_MEMORY);
    FLIM_TRY_DONE(read_pages(&l, file->state, err));
    FLIM_TRY_DONE(to_counts(file, &l, l.out, out, err));
    if (!out->memory) {
        out->memory = l.out;
        l.out = NULL;
    }
done:
    flim_free(l.out);
    return status;
}

static void close_tiff(flim_field_file *file)
{
    flim_tiff_close(file->state);
}

const flim_field_format flim_format_tiff = {"TIFF", is_tiff, open_tiff, read_tiff, close_tiff, false};
