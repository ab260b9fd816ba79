/* MATLAB's .mat of version 5 to 7: elements of a type and a length, an array's being flags, axes, a name and numbers; each may be
 * a zlib stream.  Layout: MathWorks, "MAT-File Format", level 5. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/try.h"
#include "formats/zlib_stream.h"
#include "import/bare_array.h"
#include "import/named_arrays.h"

enum { FILE_HEADER = 128, TAG = 8, MOST_ARRAYS = 65536, MOST_NAME = 256, HEAD = 4096 };
enum { TYPE_INT8 = 1, TYPE_INT32 = 5, TYPE_UINT32 = 6, TYPE_MATRIX = 14, TYPE_COMPRESSED = 15 };
enum { CLASS_DOUBLE = 6, CLASS_UINT64 = 15, FLAG_COMPLEX = 0x08 };

/* An array that was found. */
typedef struct mat_array {
    char name[MOST_NAME];
    uint64_t at; /* offset of its element's tag */
} mat_array;

/* Bytes with the numbers of one byte order, and how messages call them. */
typedef struct mat_bytes {
    const char *path;
    uint64_t offset; /* in the file, of the element */
    const uint8_t *data; /* (size) */
    size_t size;
    bool big;
} mat_bytes;

typedef struct mat_file {
    int n, capacity;
    mat_array *array; /* (n) */
    int which; /* of them was chosen */
    /* The array that was chosen, once it was read: its contents as they lie in the file, or unpacked. */
    flim_bare_array chosen;
    mat_bytes contents;
    uint8_t *unpacked;
    size_t bytes; /* of its numbers, which begin at contents.data + chosen.data */
} mat_file;

typedef struct mat_element {
    uint32_t type;
    size_t at, bytes, next; /* of its data; of the element behind it */
} mat_element;

static bool is_mat5(const flim_mapped_file *f)
{
    return f->size >= FILE_HEADER &&
           (memcmp(f->data + 124, "\x00\x01IM", 4) == 0 || memcmp(f->data + 124, "\x01\x00MI", 4) == 0);
}

static uint32_t u32_at(const mat_bytes *b, size_t at)
{
    uint32_t value = 0;
    for (size_t i = 0; i < 4; i++) {
        value |= (uint32_t)b->data[at + (b->big ? 3 - i : i)] << 8 * i;
    }
    return value;
}

static flim_status damaged(const mat_bytes *b, size_t at, const char *what, flim_error *err)
{
    return flim_fail(err, FLIM_ERROR_DATA,
                     "%s: the array at offset %" PRIu64
                     ": %s at byte %zu of it reaches past the end, or is none: the file is damaged or truncated",
                     b->path, b->offset, what, at);
}

/* The element whose tag is at `at`.  Its data need not be there, if `head_only`. */
static flim_status read_tag(const mat_bytes *b, size_t at, bool head_only, const char *what, mat_element *out,
                            flim_error *err)
{
    *out = (mat_element){0};
    if (at > b->size || b->size - at < TAG) {
        return damaged(b, at, what, err);
    }
    const uint32_t first = u32_at(b, at);
    const bool small = first >> 16; /* up to four bytes of data stand in the tag itself */
    *out = (mat_element){.type = small ? first & 0xffff : first, .bytes = small ? first >> 16 : u32_at(b, at + 4)};
    out->at = small ? at + 4 : at + TAG;
    out->next = small ? at + TAG : out->at + (out->bytes + 7) / 8 * 8;
    if ((small && out->bytes > 4) || (!head_only && out->bytes > b->size - out->at)) {
        return damaged(b, at, what, err);
    }
    return FLIM_OK;
}

/* ---- one array */

static bool element_of(uint32_t type, bool big, flim_element *out)
{
    static const struct {
        char kind;
        int bytes;
    } types[] = {[1] = {'i', 1}, [2] = {'u', 1}, [3] = {'i', 2}, [4] = {'u', 2},  [5] = {'i', 4},
                 [6] = {'u', 4}, [7] = {'f', 4}, [9] = {'f', 8}, [12] = {'i', 8}, [13] = {'u', 8}};
    if (type >= sizeof types / sizeof types[0] || types[type].bytes == 0) {
        return false;
    }
    *out = (flim_element){types[type].kind, types[type].bytes, big};
    return true;
}

static flim_status read_axes(const mat_bytes *b, size_t at, flim_bare_array *out, size_t *next, flim_error *err)
{
    mat_element axes;
    FLIM_TRY(read_tag(b, at, false, "its axes", &axes, err));
    if (axes.type != TYPE_INT32 || axes.bytes % 4 != 0) {
        return damaged(b, at, "its axes", err);
    }
    out->n_axes = (int)(axes.bytes / 4 < FLIM_ARRAY_AXES ? axes.bytes / 4 : FLIM_ARRAY_AXES + 1);
    for (int i = 0; i < out->n_axes && i < FLIM_ARRAY_AXES; i++) {
        out->size[i] = (int32_t)u32_at(b, axes.at + 4 * (size_t)i);
    }
    *next = axes.next;
    return FLIM_OK;
}

/* What stands before the numbers of an array whose contents begin at b's first byte.  *counts: it may be an array of counts, and
 * out is filled, its data being the offset of the numbers' tag. */
static flim_status read_head(const mat_bytes *b, char name[MOST_NAME], bool *counts, flim_bare_array *out, flim_error *err)
{
    mat_element flags, text;
    size_t at = 0;
    *out = (flim_bare_array){0};
    FLIM_TRY(read_tag(b, 0, false, "its flags", &flags, err));
    if (flags.type != TYPE_UINT32 || flags.bytes < 8) {
        return damaged(b, 0, "its flags", err);
    }
    const uint32_t word = u32_at(b, flags.at), class = word & 0xff;
    FLIM_TRY(read_axes(b, flags.next, out, &at, err));
    FLIM_TRY(read_tag(b, at, false, "its name", &text, err));
    snprintf(name, MOST_NAME, "%.*s", (int)(text.bytes < MOST_NAME ? text.bytes : MOST_NAME - 1),
             (const char *)b->data + text.at);
    out->data = text.next;
    *counts = class >= CLASS_DOUBLE && class <= CLASS_UINT64 && !(word >> 8 & FLAG_COMPLEX) && out->n_axes >= 3 &&
              out->n_axes <= FLIM_ARRAY_AXES;
    return FLIM_OK;
}

/* The contents of the array whose tag is at `at` of the file: as they lie there, or the first `most` bytes of them unpacked into
 * *unpacked, the caller's to flim_free.  *total: how many there are in all. */
static flim_status contents_of(const flim_mapped_file *f, uint64_t at, size_t most, mat_bytes *out, uint8_t **unpacked,
                               size_t *total, flim_error *err)
{
    const mat_bytes file = {f->path, at, f->data, f->size, f->data[126] == 'M'};
    mat_element e, inner;
    uint8_t tag[TAG];
    size_t got;
    flim_error why = {0};
    *unpacked = NULL;
    FLIM_TRY(read_tag(&file, (size_t)at, false, "it", &e, err));
    if (e.type == TYPE_MATRIX) {
        *out = (mat_bytes){f->path, at, f->data + e.at, e.bytes, file.big};
        *total = e.bytes;
        return FLIM_OK;
    }
    flim_status status = flim_zlib_read(f->data + e.at, e.bytes, tag, TAG, &got, &why);
    const mat_bytes first = {f->path, at, tag, got, file.big};
    FLIM_TRY(status == FLIM_OK ? read_tag(&first, 0, true, "its compressed data", &inner, err)
                               : flim_fail(err, status, "%s: the array at offset %" PRIu64 ": %s", f->path, at, why.text));
    *total = inner.bytes;
    const size_t wanted = TAG + (inner.bytes < most ? inner.bytes : most);
    if (inner.type != TYPE_MATRIX || inner.bytes / 1100 > e.bytes + 16) { /* deflate's best is 1032 : 1 */
        return damaged(&file, 0, "its compressed data", err);
    }
    if (!(*unpacked = flim_alloc_large(wanted, 1, err))) {
        return FLIM_ERROR_MEMORY;
    }
    status = wanted == TAG + (size_t)inner.bytes ? flim_zlib_read_all(f->data + e.at, e.bytes, *unpacked, wanted, &got, &why)
                                                 : flim_zlib_read(f->data + e.at, e.bytes, *unpacked, wanted, &got, &why);
    if (status != FLIM_OK || got < wanted) {
        flim_free(*unpacked);
        *unpacked = NULL;
        return flim_fail(err, status == FLIM_OK ? FLIM_ERROR_DATA : status,
                         "%s: the array at offset %" PRIu64 ": %s after %zu of %zu bytes", f->path, at,
                         status == FLIM_OK ? "its compressed data ends" : why.text, got, wanted);
    }
    *out = (mat_bytes){f->path, at, *unpacked + TAG, wanted - TAG, file.big};
    return FLIM_OK;
}

/* ---- the file */

static flim_status add_array(mat_file *m, const char *name, uint64_t at, flim_error *err)
{
    if (m->n == m->capacity) {
        const int capacity = m->capacity ? 2 * m->capacity : 16;
        mat_array *grown = flim_realloc(m->array, (size_t)capacity, sizeof *grown, err);
        if (!grown) {
            return FLIM_ERROR_MEMORY;
        }
        m->array = grown;
        m->capacity = capacity;
    }
    mat_array *array = &m->array[m->n++];
    array->at = at;
    snprintf(array->name, sizeof array->name, "%s", name);
    return FLIM_OK;
}

static flim_status list_arrays(const flim_mapped_file *f, mat_file *m, flim_error *err)
{
    mat_bytes file = {f->path, 0, f->data, f->size, f->data[126] == 'M'};
    mat_element e;
    for (size_t at = FILE_HEADER; at < f->size && m->n < MOST_ARRAYS;
         at = e.type == TYPE_COMPRESSED ? e.at + e.bytes : e.next) {
        char name[MOST_NAME];
        uint8_t *unpacked = NULL;
        mat_bytes contents;
        flim_bare_array array;
        bool counts = false;
        size_t total;
        file.offset = at;
        FLIM_TRY(read_tag(&file, at, false, "its tag", &e, err));
        if (e.type != TYPE_MATRIX && e.type != TYPE_COMPRESSED) {
            continue;
        }
        flim_status status = contents_of(f, at, HEAD, &contents, &unpacked, &total, err);
        if (status == FLIM_OK && total > 0) { /* an empty one has no head */
            status = read_head(&contents, name, &counts, &array, err);
        }
        if (status == FLIM_OK && counts) {
            status = add_array(m, name, at, err);
        }
        flim_free(unpacked);
        FLIM_TRY(status);
    }
    return FLIM_OK;
}

/* The array whose tag is at `at`, of whose contents the first `most` bytes are unpacked.  *bytes: of its numbers, which begin at
 * contents->data + out->data, but need not be there if `head_only`. */
static flim_status read_array(const flim_mapped_file *f, uint64_t at, bool head_only, mat_bytes *contents, uint8_t **unpacked,
                              flim_bare_array *out, size_t *bytes, flim_error *err)
{
    char name[MOST_NAME];
    bool counts;
    size_t total;
    mat_element numbers;
    FLIM_TRY(contents_of(f, at, head_only ? HEAD : SIZE_MAX - TAG, contents, unpacked, &total, err));
    FLIM_TRY(read_head(contents, name, &counts, out, err));
    FLIM_TRY(read_tag(contents, (size_t)out->data, head_only, "its numbers", &numbers, err));
    if (!counts || !element_of(numbers.type, contents->big, &out->element) || numbers.at > total ||
        numbers.bytes > total - numbers.at) {
        return damaged(contents, (size_t)out->data, "its numbers", err);
    }
    out->data = numbers.at;
    *bytes = numbers.bytes;
    FLIM_TRY(flim_array_set_order(f->path, out, true, NULL, err));
    if (out->n_axes == 4) {
        flim_array_last_axis_first(out); /* MATLAB's (Y,X,T,N) */
    }
    return FLIM_OK;
}

static flim_status open_mat5(flim_field_file *file, flim_error *err)
{
    const char **name = NULL;
    uint8_t *unpacked = NULL;
    mat_bytes contents;
    flim_bare_array array;
    size_t bytes;
    flim_status status = FLIM_OK;
    mat_file *m = flim_alloc(1, sizeof *m, err);
    file->state = m;
    FLIM_TRY_DONE(m ? FLIM_OK : FLIM_ERROR_MEMORY);
    FLIM_TRY_DONE(list_arrays(&file->map, m, err));
    name = flim_alloc((size_t)m->n, sizeof *name, err); /* (n) */
    FLIM_TRY_DONE(name ? FLIM_OK : FLIM_ERROR_MEMORY);
    for (int i = 0; i < m->n; i++) {
        name[i] = m->array[i].name;
    }
    FLIM_TRY_DONE(flim_choose_array(file, name, m->n, &m->which, err));
    FLIM_TRY_DONE(read_array(&file->map, m->array[m->which].at, true, &contents, &unpacked, &array, &bytes, err));
    status = flim_array_add_images(file, file->map.path, "", &array, bytes, 0, err);
done:
    flim_free(name);
    flim_free(unpacked);
    return status;
}

static flim_status read_mat5(flim_field_file *file, int image, flim_counts *out, flim_error *err)
{
    mat_file *m = file->state;
    if (!m->contents.data) { /* its images share what is unpacked */
        FLIM_TRY(
            read_array(&file->map, m->array[m->which].at, false, &m->contents, &m->unpacked, &m->chosen, &m->bytes, err));
    }
    return flim_array_read_image(file, file->map.path, &m->chosen, flim_array_image_number(file, image),
                                 m->contents.data + m->chosen.data, m->bytes, out, err);
}

static void close_mat5(flim_field_file *file)
{
    mat_file *m = file->state;
    if (m) {
        flim_free(m->unpacked);
        flim_free(m->array);
        flim_free(m);
    }
}

const flim_field_format flim_format_mat5 = {"MATLAB .mat", is_mat5, open_mat5, read_mat5, close_mat5, true};
