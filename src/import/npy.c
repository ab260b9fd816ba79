/* NumPy's .npy (format 1 to 3, numpy.lib.format) and .npz, a zip archive of them: bare arrays of counts.
 *
 * (Y,X,T) or (T,Y,X), with axes of one before them, or (N,Y,X,T) and (N,T,Y,X): N images.  Both byte orders and both memory
 * orders; whole numbers only.  Arrays of objects are pickles, programs that is, and are never read. */
#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/little_endian.h"
#include "core/try.h"
#include "formats/zip.h"
#include "import/field_file.h"

enum { MOST_AXES = 8, MOST_HEADER = 65536, PREFIX = 10 };

typedef struct array {
    char kind; /* u, i, f, b */
    int bytes; /* of an element */
    bool swap, fortran;
    int n_axes;
    int64_t size[MOST_AXES];
    uint64_t data; /* offset of the first element */
} array;

/* How the axes are taken: strides in elements. */
typedef struct array_view {
    int64_t n, y, x, t, n_step, y_step, x_step, t_step;
} array_view;

static bool is_npy(const flim_mapped_file *f)
{
    return f->size >= PREFIX && memcmp(f->data, "\x93NUMPY", 6) == 0;
}

static bool is_npz(const flim_mapped_file *f)
{
    return flim_is_zip(f->data, f->size);
}

/* The text after 'key': in the header's dictionary, or NULL. */
static const char *find_value(const char *header, const char *key)
{
    const char *at = strstr(header, key);
    at = at ? strchr(at + strlen(key), ':') : NULL;
    return at ? at + 1 + strspn(at + 1, " ") : NULL;
}

static flim_status read_type(const char *name, const char *text, array *out, flim_error *err)
{
    char order = '|';
    if (text[0] != '\'' && text[0] != '"') {
        return flim_fail(err, FLIM_ERROR_DATA, "%s: an array of records ('descr' is %.40s), expected one of numbers", name,
                         text);
    }
    text++;
    if (strchr("<>|=", text[0])) {
        order = *text++;
    }
    out->kind = text[0];
    out->bytes = out->kind && text[1] >= '1' && text[1] <= '8' && strchr("'\"", text[2]) ? text[1] - '0' : 0;
    out->swap = order == '>';
    if (out->kind == 'O') {
        return flim_fail(err, FLIM_ERROR_DATA,
                         "%s: an array of Python objects, which is a program and is not run; save the counts as an array of "
                         "integers, one file per cell or one array per name (numpy.savez)",
                         name);
    }
    const bool integer =
        (out->kind == 'u' || out->kind == 'i') && (out->bytes == 1 || out->bytes == 2 || out->bytes == 4 || out->bytes == 8);
    const bool real = out->kind == 'f' && (out->bytes == 4 || out->bytes == 8);
    if (!integer && !real && !(out->kind == 'b' && out->bytes == 1)) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s: elements of type '%.8s', expected integers or float32 or float64", name,
                         text);
    }
    return FLIM_OK;
}

static flim_status read_shape(const char *name, const char *text, array *out, flim_error *err)
{
    const char *at = text + (text[0] == '(');
    out->n_axes = 0;
    while (*at && *at != ')') {
        char *end;
        const long long size = strtoll(at, &end, 10);
        if (end == at || size < 1 || out->n_axes == MOST_AXES) {
            return flim_fail(err, FLIM_ERROR_DATA, "%s: the shape %.60s, expected (Y,X,T), (T,Y,X) or N of them", name, text);
        }
        out->size[out->n_axes++] = size;
        at = end + strspn(end, " ,L");
    }
    return text[0] == '(' && *at == ')' ? FLIM_OK : flim_fail(err, FLIM_ERROR_DATA, "%s: its header has no shape", name);
}

/* The header at the first of `bytes` bytes; `bytes` may end within the elements. */
static flim_status read_header(const char *name, const uint8_t *bytes, size_t count, array *out, flim_error *err)
{
    char header[MOST_HEADER + 1];
    const bool short_length = count > 6 && bytes[6] == 1;
    const size_t before = short_length ? 10 : 12;
    *out = (array){0};
    if (count < before || memcmp(bytes, "\x93NUMPY", 6) != 0 || bytes[6] < 1 || bytes[6] > 3) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s: no header of NumPy's format 1 to 3", name);
    }
    const size_t length = short_length ? flim_u16_at(bytes + 8) : flim_u32_at(bytes + 8);
    if (length > MOST_HEADER || length > count - before) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s: its header of %zu bytes reaches past the end", name, length);
    }
    memcpy(header, bytes + before, length);
    header[length] = '\0';
    out->data = before + length;
    const char *type = find_value(header, "'descr'"), *order = find_value(header, "'fortran_order'");
    const char *shape = find_value(header, "'shape'");
    if (!type || !order || !shape) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s: its header lacks descr, fortran_order or shape", name);
    }
    out->fortran = strncmp(order, "True", 4) == 0;
    FLIM_TRY(read_type(name, type, out, err));
    return read_shape(name, shape, out, err);
}

static flim_status view_of(const char *name, const array *a, flim_array_axes axes, array_view *v, flim_error *err)
{
    int64_t step[MOST_AXES], total = 1;
    for (int i = 0; i < a->n_axes; i++) {
        const int axis = a->fortran ? i : a->n_axes - 1 - i;
        step[axis] = total;
        if (total > INT64_MAX / 16 / a->size[axis]) {
            return flim_fail(err, FLIM_ERROR_DATA, "%s: its shape has too many elements", name);
        }
        total *= a->size[axis];
    }
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
    if (axes == FLIM_ARRAY_AUTO) {
        if (a->size[base] == a->size[base + 2]) {
            return flim_fail(err, FLIM_ERROR_USAGE,
                             "%s: (%" PRId64 ",%" PRId64 ",%" PRId64
                             "): the first or the last axis may be the time; say which "
                             "with --axes YXT or --axes TYX",
                             name, a->size[base], a->size[base + 1], a->size[base + 2]);
        }
        axes = a->size[base] > a->size[base + 2] ? FLIM_ARRAY_TYX : FLIM_ARRAY_YXT;
    }
    const int t = axes == FLIM_ARRAY_TYX ? base : base + 2, y = axes == FLIM_ARRAY_TYX ? base + 1 : base;
    v->t = a->size[t];
    v->t_step = step[t];
    v->y = a->size[y];
    v->y_step = step[y];
    v->x = a->size[y + 1];
    v->x_step = step[y + 1];
    return FLIM_OK;
}

/* ---- elements ---- */

/* One element as a count; false if it is none. */
static bool count_at(const array *a, const uint8_t *p, uint32_t *out)
{
    uint8_t bytes[8] = {0};
    for (int i = 0; i < a->bytes; i++) {
        bytes[i] = p[a->swap ? a->bytes - 1 - i : i];
    }
    if (a->kind == 'f') {
        const double value = a->bytes == 4 ? (double)flim_f32_at(bytes) : flim_f64_at(bytes);
        *out = value >= 0 && value <= UINT32_MAX ? (uint32_t)value : 0;
        return value >= 0 && value <= UINT32_MAX && floor(value) == value;
    }
    const uint64_t value = flim_u64_at(bytes);
    *out = (uint32_t)value;
    const bool negative = a->kind == 'i' && (bytes[a->bytes - 1] & 0x80);
    return !negative && value <= UINT32_MAX;
}

/* Image n of an array whose elements begin at `data`, `bytes` of them. */
static flim_status read_elements(const char *name, const array *a, const array_view *v, int64_t n, const uint8_t *data,
                                 uint64_t bytes, uint32_t *counts, flim_error *err)
{
    const uint64_t needed = (uint64_t)(v->n * v->y * v->x * v->t) * (uint64_t)a->bytes;
    if (bytes < needed) {
        return flim_fail(err, FLIM_ERROR_DATA,
                         "%s: its elements end after %" PRIu64 " of %" PRIu64 " bytes: its copy is incomplete", name, bytes,
                         needed);
    }
    for (int64_t y = 0; y < v->y; y++) {
        for (int64_t x = 0; x < v->x; x++) {
            const uint8_t *pixel = data + (n * v->n_step + y * v->y_step + x * v->x_step) * a->bytes;
            for (int64_t t = 0; t < v->t; t++) {
                if (!count_at(a, pixel + t * v->t_step * a->bytes, counts++)) {
                    return flim_fail(err, FLIM_ERROR_DATA,
                                     "%s: the value at y %" PRId64 ", x %" PRId64 ", t %" PRId64
                                     " is no photon count: expected "
                                     "whole numbers from 0 to %" PRIu32,
                                     name, y, x, t, UINT32_MAX);
                }
            }
        }
    }
    return FLIM_OK;
}

/* The images of one array; place: that of the array. */
static flim_status add_images(flim_field_file *file, const char *name, const char *label, const uint8_t *bytes, size_t count,
                              uint64_t place, flim_error *err)
{
    array a;
    array_view v;
    FLIM_TRY(read_header(name, bytes, count, &a, err));
    FLIM_TRY(view_of(name, &a, file->axes, &v, err));
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

/* The number of a image within its array: images of an array follow one another. */
static int64_t number_in_array(const flim_field_file *file, int image)
{
    int64_t n = 0;
    while (image > 0 && file->place[image - 1] == file->place[image]) {
        image--;
        n++;
    }
    return n;
}

static flim_status read_image(flim_field_file *file, const char *name, int image, const uint8_t *bytes, size_t count,
                              uint32_t *counts, flim_error *err)
{
    array a;
    array_view v;
    FLIM_TRY(read_header(name, bytes, count, &a, err));
    FLIM_TRY(view_of(name, &a, file->axes, &v, err));
    return read_elements(name, &a, &v, number_in_array(file, image), bytes + a.data, count - a.data, counts, err);
}

/* ---- .npy ---- */

static flim_status open_npy(flim_field_file *file, flim_error *err)
{
    return add_images(file, file->map.path, "", file->map.data, file->map.size, 0, err);
}

static flim_status read_npy(flim_field_file *file, int image, uint32_t *counts, flim_error *err)
{
    return read_image(file, file->map.path, image, file->map.data, file->map.size, counts, err);
}

/* ---- .npz: the place of a image is the cursor before its entry ---- */

static flim_status in_archive(const flim_field_file *file, const flim_zip_entry *entry, flim_status status,
                              const flim_error *why, flim_error *err)
{
    return status == FLIM_OK
               ? FLIM_OK
               : flim_fail(err, status, "%s%s%s: %s", file->map.path, entry->name[0] ? "/" : "", entry->name, why->text);
}

static flim_status open_npz(flim_field_file *file, flim_error *err)
{
    const flim_mapped_file *f = &file->map;
    uint64_t cursor = 0;
    for (;;) {
        uint8_t head[4096];
        size_t got;
        flim_zip_entry entry = {0};
        flim_error why = {0};
        bool found;
        char name[4200];
        const uint64_t place = cursor;
        FLIM_TRY(in_archive(file, &entry, flim_zip_next(f->data, f->size, &cursor, &entry, &found, &why), &why, err));
        if (!found) {
            return FLIM_OK;
        }
        FLIM_TRY(in_archive(file, &entry, flim_zip_peek(f->data, f->size, &entry, head, sizeof head, &got, &why), &why, err));
        char *suffix = strrchr(entry.name, '.');
        if (!suffix || strcmp(suffix, ".npy") != 0) {
            return flim_fail(err, FLIM_ERROR_DATA, "%s: a zip archive that holds '%s', expected NumPy's arrays (NAME.npy)",
                             f->path, entry.name);
        }
        snprintf(name, sizeof name, "%.3900s/%s", f->path, entry.name);
        *suffix = '\0';
        FLIM_TRY(add_images(file, name, entry.name, head, got, place, err));
    }
}

static flim_status read_npz(flim_field_file *file, int image, uint32_t *counts, flim_error *err)
{
    const flim_mapped_file *f = &file->map;
    uint64_t cursor = file->place[image];
    flim_zip_entry entry = {0};
    flim_error why = {0};
    bool found;
    char name[4200];
    FLIM_TRY(in_archive(file, &entry, flim_zip_next(f->data, f->size, &cursor, &entry, &found, &why), &why, err));
    uint8_t *bytes = flim_alloc(entry.size, 1, err); /* (entry.size) */
    if (!bytes) {
        return FLIM_ERROR_MEMORY;
    }
    flim_status status = flim_zip_extract(f->data, f->size, &entry, bytes, entry.size, &why);
    FLIM_TRY_DONE(in_archive(file, &entry, status, &why, err));
    snprintf(name, sizeof name, "%.3900s/%s", f->path, entry.name);
    status = read_image(file, name, image, bytes, entry.size, counts, err);
done:
    flim_free(bytes);
    return status;
}

const flim_field_format flim_format_npy = {"NumPy .npy", is_npy, open_npy, read_npy};
const flim_field_format flim_format_npz = {"NumPy .npz", is_npz, open_npz, read_npz};
