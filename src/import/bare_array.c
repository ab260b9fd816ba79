#include "import/bare_array.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/try.h"

/* How the axes are taken: strides in elements. */
typedef struct array_view {
    int64_t n, y, x, t, n_step, y_step, x_step, t_step;
} array_view;

flim_status flim_array_set_order(const char *name, flim_bare_array *a, bool fortran, int64_t *total, flim_error *err)
{
    int64_t elements = 1;
    for (int i = 0; i < a->n_axes; i++) {
        const int axis = fortran ? i : a->n_axes - 1 - i;
        if (a->size[axis] < 1 || elements > INT64_MAX / 16 / a->size[axis]) {
            return flim_fail(err, FLIM_ERROR_DATA,
                             "%s: axis %d of its shape has %" PRId64 " elements, expected 1 or more, and not too many in all",
                             name, axis + 1, a->size[axis]);
        }
        a->step[axis] = elements;
        elements *= a->size[axis];
    }
    if (total) {
        *total = elements;
    }
    return FLIM_OK;
}

void flim_array_last_axis_first(flim_bare_array *a)
{
    const int last = a->n_axes - 1;
    const int64_t size = a->size[last], step = a->step[last];
    memmove(a->size + 1, a->size, (size_t)last * sizeof *a->size);
    memmove(a->step + 1, a->step, (size_t)last * sizeof *a->step);
    a->size[0] = size;
    a->step[0] = step;
}

/* Which of three axes of these sizes are the time and the pixels.  The rule: the longer of the first and the last is the time.
 * It is not followed where it leaves a plane of unequal sides and the other reading a square one, as fields of images are: (64,64,32)
 * is rather 64 x 64 pixels than 64 bins of 64 x 32. */
static flim_status choose_axes(const char *name, const int64_t size[3], const flim_field_options *options,
                               flim_array_axes *axes, flim_error *err)
{
    const int64_t a = size[0], b = size[1], c = size[2];
    const flim_array_axes rule = a > c ? FLIM_ARRAY_TYX : FLIM_ARRAY_YXT;
    const bool square = rule == FLIM_ARRAY_TYX ? b == c : a == b, other_square = rule == FLIM_ARRAY_TYX ? a == b : b == c;
    if (a != c && (square || !other_square)) {
        *axes = rule;
        return FLIM_OK;
    }
    const bool as_yxt = options->mask_y == a && options->mask_x == b, as_tyx = options->mask_y == b && options->mask_x == c;
    if (as_yxt != as_tyx) {
        *axes = as_yxt ? FLIM_ARRAY_YXT : FLIM_ARRAY_TYX;
        return FLIM_OK;
    }
    return flim_fail(err, FLIM_ERROR_USAGE,
                     "%s: (%" PRId64 ",%" PRId64 ",%" PRId64 ") may be %" PRId64 " time bins of %" PRId64 " x %" PRId64
                     " pixels, which is --axes YXT, or %" PRId64 " time bins of %" PRId64 " x %" PRId64
                     " pixels, --axes TYX; choose one of them",
                     name, a, b, c, c, a, b, a, b, c);
}

static flim_status find_view(const char *name, const flim_bare_array *a, const flim_field_options *options, array_view *v,
                             flim_error *err)
{
    const int64_t *step = a->step;
    int first = 0; /* axes of one in front say nothing */
    while (a->n_axes - first > 3 && a->size[first] == 1) {
        first++;
    }
    const int left = a->n_axes - first;
    if (left != 3 && left != 4) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s: %d axes, expected (Y,X,T), (T,Y,X) or N of them", name, a->n_axes);
    }
    const int base = first + left - 3;
    *v = (array_view){.n = left == 4 ? a->size[first] : 1, .n_step = left == 4 ? step[first] : 0};
    flim_array_axes axes = options->axes;
    FLIM_TRY(axes == FLIM_ARRAY_AUTO ? choose_axes(name, a->size + base, options, &axes, err) : FLIM_OK);
    const int t = axes == FLIM_ARRAY_TYX ? base : base + 2, y = axes == FLIM_ARRAY_TYX ? base + 1 : base;
    v->t = a->size[t];
    v->t_step = step[t];
    v->y = a->size[y];
    v->y_step = step[y];
    v->x = a->size[y + 1];
    v->x_step = step[y + 1];
    return FLIM_OK;
}

/* All elements of the array are among `bytes` bytes. */
static flim_status check_whole(const char *name, const flim_bare_array *a, const array_view *v, uint64_t bytes,
                               flim_error *err)
{
    const uint64_t needed = (uint64_t)(v->n * v->y * v->x * v->t) * (uint64_t)a->element.bytes;
    return bytes >= needed ? FLIM_OK
                           : flim_fail(err, FLIM_ERROR_DATA,
                                       "%s: its elements end after %" PRIu64 " of %" PRIu64 " bytes: the file is truncated",
                                       name, bytes, needed);
}

/* "the value at y 1, x 2, t 3": of the element that is `at` elements behind the first of an image. */
static flim_status no_count(const char *name, const array_view *v, int64_t at, flim_error *err)
{
    return flim_fail(err, FLIM_ERROR_DATA,
                     "%s: the value at y %" PRId64 ", x %" PRId64 ", t %" PRId64
                     " is not a photon count: expected whole numbers from 0 to %" PRIu32,
                     name, at / v->y_step % v->y, at / v->x_step % v->x, at / v->t_step % v->t, UINT32_MAX);
}

/* Image n whose elements lie between those of others, as (Y,X,T). */
static flim_status copy_view(const char *name, const flim_bare_array *a, const array_view *v, const uint8_t *first,
                             flim_counts *out, flim_error *err)
{
    const int64_t size = a->element.bytes;
    uint32_t *counts = flim_alloc_large((size_t)(v->y * v->x * v->t), sizeof *counts, err);
    if (!counts) {
        return FLIM_ERROR_MEMORY;
    }
    *out = (flim_counts){counts, 4, v->y, v->x, v->t, v->x * v->t, v->t, 1, counts};
    for (int64_t y = 0; y < v->y; y++) {
        for (int64_t x = 0; x < v->x; x++, counts += v->t) {
            const int64_t pixel = y * v->y_step + x * v->x_step;
            const size_t good = flim_elements_read(&a->element, first + pixel * size, v->t_step * size, (size_t)v->t, counts);
            if (good < (size_t)v->t) {
                flim_counts_free(out);
                return no_count(name, v, pixel + (int64_t)good * v->t_step, err);
            }
        }
    }
    return FLIM_OK;
}

/* Image n of an array whose elements are the first of `bytes` bytes at `data`: they stay where they are, if they can. */
static flim_status read_view(const char *name, const flim_bare_array *a, const array_view *v, int64_t n, const uint8_t *data,
                             uint64_t bytes, flim_counts *out, flim_error *err)
{
    size_t good;
    FLIM_TRY(check_whole(name, a, v, bytes, err));
    const uint8_t *first = data + n * v->n_step * a->element.bytes;
    const int64_t count = v->y * v->x * v->t;
    if (v->n > 1 && v->n_step < count) {
        return copy_view(name, a, v, first, out, err);
    }
    *out = (flim_counts){.y = v->y, .x = v->x, .t = v->t, .y_step = v->y_step, .x_step = v->x_step, .t_step = v->t_step};
    FLIM_TRY(flim_counts_from_elements(&a->element, first, (size_t)count, &out->data, &out->bytes, &out->memory, &good, err));
    return good == (size_t)count ? FLIM_OK : no_count(name, v, (int64_t)good, err);
}

flim_status flim_array_add_images(flim_field_file *file, const char *name, const char *label, const flim_bare_array *array,
                                  uint64_t bytes, uint64_t place, flim_error *err)
{
    array_view v = {0};
    FLIM_TRY(find_view(name, array, &file->options, &v, err));
    FLIM_TRY(check_whole(name, array, &v, bytes, err));
    if (v.n > INT32_MAX - file->n_images) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s: %" PRId64 " images, expected at most %d in a file", name, v.n, INT32_MAX);
    }
    for (int64_t n = 0; n < v.n; n++) {
        flim_field_image image = {.y = v.y, .x = v.x, .t = v.t};
        if (v.n == 1) {
            snprintf(image.name, sizeof image.name, "%.40s", label);
        } else {
            snprintf(image.name, sizeof image.name, "%.40s%s%" PRId64, label, label[0] ? " " : "", n);
        }
        FLIM_TRY(flim_field_add_image(file, &image, place, err));
    }
    return FLIM_OK;
}

/* Images of an array follow one another. */
int64_t flim_array_image_number(const flim_field_file *file, int image)
{
    int64_t n = 0;
    while (image > 0 && file->place[image - 1] == file->place[image]) {
        image--;
        n++;
    }
    return n;
}

flim_status flim_array_read_image(const flim_field_file *file, const char *name, const flim_bare_array *array, int64_t number,
                                  const uint8_t *data, uint64_t count, flim_counts *out, flim_error *err)
{
    array_view v = {0};
    FLIM_TRY(find_view(name, array, &file->options, &v, err));
    return read_view(name, array, &v, number, data, count, out, err);
}
