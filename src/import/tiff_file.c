#include "import/tiff_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/try.h"

bool flim_is_tiff(const uint8_t *bytes, size_t count)
{
    return count >= 8 && (memcmp(bytes, "II*\0", 4) == 0 || memcmp(bytes, "MM\0*", 4) == 0 ||
                          memcmp(bytes, "II+\0", 4) == 0 || memcmp(bytes, "MM\0+", 4) == 0);
}

#ifdef FLIM_HAVE_TIFF
#include <tiffio.h>

enum { MOST_PAGES = 65536, MOST_SAMPLES = 65536 };
#define MOST_VALUES (INT64_C(1) << 34) /* of a page */
#define MOST_BYTES ((tmsize_t)1 << 32) /* that libtiff may allocate at once: strips and tiles are pieces of a page */
#define USUAL_PIECE ((int64_t)64 << 20) /* bytes: a tile may be larger than its page, but one of more is no honest one */

struct flim_tiff {
    const flim_mapped_file *file;
    uint64_t at; /* libtiff's place in the file */
    TIFF *handle;
    char why[256]; /* its last error */
    int n_pages, capacity;
    flim_tiff_page *page; /* (n_pages) */
    uint64_t *place; /* (n_pages) offsets of their directories: the list in the file is one-way */
    char *description;
    bool shares; /* page, place and description are those of the flim_tiff that it was reopened from */
};

/* ---- what libtiff asks of a file ---- */

static tmsize_t read_bytes(thandle_t handle, void *out, tmsize_t count)
{
    flim_tiff *t = handle;
    const uint64_t left = t->at < t->file->size ? t->file->size - t->at : 0;
    const size_t n = count < 0 ? 0 : (uint64_t)count < left ? (size_t)count : (size_t)left;
    memcpy(out, t->file->data + t->at, n);
    t->at += n;
    return (tmsize_t)n;
}

static tmsize_t write_bytes(thandle_t handle, void *bytes, tmsize_t count)
{
    (void)handle;
    (void)bytes;
    (void)count;
    return -1;
}

static toff_t seek(thandle_t handle, toff_t offset, int whence)
{
    flim_tiff *t = handle;
    t->at = whence == SEEK_SET ? offset : whence == SEEK_CUR ? t->at + offset : t->file->size + offset;
    t->at = t->at > t->file->size ? t->file->size : t->at;
    return t->at;
}

static int close_nothing(thandle_t handle)
{
    (void)handle;
    return 0;
}

static toff_t size_of(thandle_t handle)
{
    return ((flim_tiff *)handle)->file->size;
}

static int map(thandle_t handle, void **base, toff_t *size)
{
    const flim_tiff *t = handle;
    *base = (void *)(uintptr_t)t->file->data;
    *size = t->file->size;
    return 1;
}

static void unmap(thandle_t handle, void *base, toff_t size)
{
    (void)handle;
    (void)base;
    (void)size;
}

static int keep_reason(TIFF *handle, void *context, const char *module, const char *format, va_list arguments)
{
    flim_tiff *t = context;
    (void)handle;
    (void)module;
    if (!t->why[0]) { /* the first is the cause */
        vsnprintf(t->why, sizeof t->why, format, arguments);
    }
    return 1;
}

static int drop_warning(TIFF *handle, void *context, const char *module, const char *format, va_list arguments)
{
    (void)handle;
    (void)context;
    (void)module;
    (void)format;
    (void)arguments;
    return 1;
}

static flim_status failed(const flim_tiff *t, int page, flim_error *err)
{
    return flim_fail(err, FLIM_ERROR_DATA, "%s: page %d: %s", t->file->path, page + 1,
                     t->why[0] ? t->why : "it cannot be read; the file is damaged or truncated");
}

/* ---- pages ---- */

/* Where the values of the current directory's page begin, if they lie there as the machine has them, one strip after another. */
static int64_t find_plain(flim_tiff *t, const flim_tiff_page *p)
{
    uint16_t compression = COMPRESSION_NONE, order = FILLORDER_MSB2LSB;
    const uint64_t *offset = NULL, *bytes = NULL;
    TIFFGetFieldDefaulted(t->handle, TIFFTAG_COMPRESSION, &compression);
    TIFFGetFieldDefaulted(t->handle, TIFFTAG_FILLORDER, &order);
    const bool swapped = TIFFIsByteSwapped(t->handle) && p->element.bytes > 1;
    if (compression != COMPRESSION_NONE || order != FILLORDER_MSB2LSB || swapped || p->element.bytes == 0 ||
        TIFFIsTiled(t->handle) || !TIFFGetField(t->handle, TIFFTAG_STRIPOFFSETS, &offset) ||
        !TIFFGetField(t->handle, TIFFTAG_STRIPBYTECOUNTS, &bytes) || !offset || !bytes) {
        return -1;
    }
    const uint32_t n = TIFFNumberOfStrips(t->handle);
    const uint64_t whole = (uint64_t)(p->y * p->x * p->samples) * (uint64_t)p->element.bytes;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (offset[i] != offset[0] + sum || bytes[i] > whole - sum) {
            return -1;
        }
        sum += bytes[i];
    }
    return n > 0 && sum == whole && offset[0] <= t->file->size && whole <= t->file->size - offset[0] ? (int64_t)offset[0]
                                                                                                     : -1;
}

static flim_status describe_page(flim_tiff *t, flim_tiff_page *out, flim_error *err)
{
    uint32_t x = 0, y = 0;
    uint16_t samples = 1, bits = 1, format = SAMPLEFORMAT_UINT, planar = PLANARCONFIG_CONTIG;
    TIFFGetField(t->handle, TIFFTAG_IMAGEWIDTH, &x);
    TIFFGetField(t->handle, TIFFTAG_IMAGELENGTH, &y);
    TIFFGetFieldDefaulted(t->handle, TIFFTAG_SAMPLESPERPIXEL, &samples);
    TIFFGetFieldDefaulted(t->handle, TIFFTAG_BITSPERSAMPLE, &bits);
    TIFFGetFieldDefaulted(t->handle, TIFFTAG_SAMPLEFORMAT, &format);
    TIFFGetFieldDefaulted(t->handle, TIFFTAG_PLANARCONFIG, &planar);
    const char kind = format == SAMPLEFORMAT_IEEEFP ? 'f' : format == SAMPLEFORMAT_INT ? 'i' : 'u';
    const bool whole = bits == 8 || bits == 16 || bits == 32 || bits == 64;
    if (x < 1 || y < 1 || samples < 1 || y > MOST_VALUES / samples / x) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s: page %d has %" PRIu32 " x %" PRIu32 " pixels of %d values each",
                         t->file->path, t->n_pages + 1, y, x, samples);
    }
    if (kind == 'f' ? bits != 16 && bits != 32 && bits != 64 : !whole && !(bits == 1 && samples == 1)) {
        return flim_fail(err, FLIM_ERROR_DATA,
                         "%s: page %d has values of %d bits (SampleFormat %d), expected integers of 1, 8, 16, 32 or 64 bits, "
                         "or float16, float32 or float64",
                         t->file->path, t->n_pages + 1, bits, format);
    }
    *out = (flim_tiff_page){.y = y,
                            .x = x,
                            .samples = samples,
                            .element = {kind, bits / 8, __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__},
                            .planes = planar == PLANARCONFIG_SEPARATE};
    out->plain = find_plain(t, out);
    return FLIM_OK;
}

static flim_status list_pages(flim_tiff *t, flim_error *err)
{
    const char *text = NULL;
    if (TIFFGetField(t->handle, TIFFTAG_IMAGEDESCRIPTION, &text) == 1 && text) {
        t->description = flim_strdup(text, err);
    } else {
        t->description = flim_strdup("", err);
    }
    if (!t->description) {
        return FLIM_ERROR_MEMORY;
    }
    do {
        if (t->n_pages == MOST_PAGES) {
            return flim_fail(err, FLIM_ERROR_DATA, "%s: more than %d pages", t->file->path, MOST_PAGES);
        }
        if (t->n_pages == t->capacity) {
            const int capacity = t->capacity ? 2 * t->capacity : 64;
            flim_tiff_page *grown = flim_realloc(t->page, (size_t)capacity, sizeof *grown, err);
            t->page = grown ? grown : t->page;
            uint64_t *places = grown ? flim_realloc(t->place, (size_t)capacity, sizeof *places, err) : NULL;
            if (!places) {
                return FLIM_ERROR_MEMORY;
            }
            t->place = places;
            t->capacity = capacity;
        }
        FLIM_TRY(describe_page(t, &t->page[t->n_pages], err));
        t->place[t->n_pages] = TIFFCurrentDirOffset(t->handle);
        t->n_pages++;
    } while (TIFFReadDirectory(t->handle));
    return t->why[0] ? failed(t, t->n_pages, err) : FLIM_OK; /* not the last page, but one that cannot be read */
}

/* libtiff's view of the mapping. */
static flim_status open_handle(flim_tiff *t, flim_error *err)
{
    TIFFOpenOptions *options = TIFFOpenOptionsAlloc();
    if (!options) {
        return flim_fail(err, FLIM_ERROR_MEMORY, "out of host memory");
    }
    TIFFOpenOptionsSetMaxSingleMemAlloc(options, MOST_BYTES);
    TIFFOpenOptionsSetErrorHandlerExtR(options, keep_reason, t);
    TIFFOpenOptionsSetWarningHandlerExtR(options, drop_warning, t);
    t->handle =
        TIFFClientOpenExt(t->file->path, "r", t, read_bytes, write_bytes, seek, close_nothing, size_of, map, unmap, options);
    TIFFOpenOptionsFree(options);
    return t->handle ? FLIM_OK : failed(t, 0, err);
}

flim_status flim_tiff_open(const flim_mapped_file *file, flim_tiff **out, flim_error *err)
{
    flim_status status = FLIM_OK;
    *out = NULL;
    flim_tiff *t = flim_alloc(1, sizeof *t, err);
    FLIM_TRY_DONE(t ? FLIM_OK : FLIM_ERROR_MEMORY);
    t->file = file;
    FLIM_TRY_DONE(open_handle(t, err));
    FLIM_TRY_DONE(list_pages(t, err));
    *out = t;
    t = NULL;
done:
    flim_tiff_close(t);
    return status;
}

flim_status flim_tiff_reopen(const flim_tiff *tiff, flim_tiff **out, flim_error *err)
{
    *out = NULL;
    flim_tiff *t = flim_alloc(1, sizeof *t, err);
    if (!t) {
        return FLIM_ERROR_MEMORY;
    }
    *t = (flim_tiff){.file = tiff->file,
                     .n_pages = tiff->n_pages,
                     .page = tiff->page,
                     .place = tiff->place,
                     .description = tiff->description,
                     .shares = true};
    const flim_status status = open_handle(t, err);
    if (status == FLIM_OK) {
        *out = t;
    } else {
        flim_tiff_close(t);
    }
    return status;
}

void flim_tiff_close(flim_tiff *t)
{
    if (!t) {
        return;
    }
    if (t->handle) {
        TIFFClose(t->handle);
    }
    if (!t->shares) {
        flim_free(t->page);
        flim_free(t->place);
        flim_free(t->description);
    }
    flim_free(t);
}

int flim_tiff_pages(const flim_tiff *t)
{
    return t->n_pages;
}

const flim_tiff_page *flim_tiff_page_at(const flim_tiff *t, int page)
{
    return &t->page[page];
}

const char *flim_tiff_description(const flim_tiff *t)
{
    return t->description;
}

/* ---- values ---- */

/* A rectangle of a page: a strip, or what of a tile lies within the page. */
typedef struct piece {
    int64_t y, x, rows, columns;
    int64_t pitch; /* bytes from row to row */
    int64_t first, samples; /* of each pixel: those that this piece holds */
} piece;

/* Where the values go: whole numbers (samples,Y,X), or elements as they are. */
typedef struct target {
    uint32_t *numbers;
    uint8_t *elements; /* if there are no numbers: (Y,X,samples), or (samples,Y,X) if page.planes */
} target;

static void place_elements(const flim_tiff_page *q, const piece *p, const uint8_t *bytes, uint8_t *out)
{
    const int64_t size = q->element.bytes, width = q->planes ? 1 : q->samples; /* samples of a pixel that lie together */
    uint8_t *to = out + ((p->first * q->y + p->y) * q->x + p->x) * width * size; /* first is 0 unless there are planes */
    for (int64_t row = 0; row < p->rows; row++) {
        memcpy(to + row * q->x * width * size, bytes + row * p->pitch, (size_t)(p->columns * width * size));
    }
}

static flim_status place_piece(const flim_tiff *t, int page, const piece *p, const uint8_t *bytes, const target *out,
                               flim_error *err)
{
    const flim_tiff_page *q = &t->page[page];
    const size_t columns = (size_t)p->columns;
    if (out->elements) {
        place_elements(q, p, bytes, out->elements);
        return FLIM_OK;
    }
    for (int64_t i = 0; i < p->rows * p->samples; i++) {
        const int64_t row = i / p->samples, sample = i % p->samples, size = q->element.bytes;
        const uint8_t *from = bytes + row * p->pitch + sample * size;
        uint32_t *to = out->numbers + ((p->first + sample) * q->y + p->y + row) * q->x + p->x;
        for (size_t x = 0; size == 0 && x < columns; x++) { /* one bit per pixel, the first in the highest */
            to[x] = from[x / 8] >> (7 - x % 8) & 1;
        }
        const size_t good = size == 0 ? columns : flim_elements_read(&q->element, from, p->samples * size, columns, to);
        if (good < columns) {
            return flim_fail(err, FLIM_ERROR_DATA,
                             "%s: page %d: the value at y %" PRId64 ", x %" PRId64
                             " is no count: expected whole numbers from 0 to %" PRIu32,
                             t->file->path, page + 1, p->y + row, p->x + (int64_t)good, UINT32_MAX);
        }
    }
    return FLIM_OK;
}

static int64_t row_bytes(const flim_tiff_page *q, int64_t pixels, int64_t samples)
{
    return q->element.bytes == 0 ? (pixels + 7) / 8 : pixels * samples * q->element.bytes;
}

/* One strip or tile, decoded into bytes (capacity). */
static flim_status read_piece(flim_tiff *t, int page, uint32_t number, const piece *p, uint8_t *bytes, tmsize_t capacity,
                              const target *out, flim_error *err)
{
    const bool tiled = TIFFIsTiled(t->handle);
    const tmsize_t needed = (tmsize_t)((p->rows - 1) * p->pitch + row_bytes(&t->page[page], p->columns, p->samples));
    const tmsize_t got = tiled ? TIFFReadEncodedTile(t->handle, number, bytes, capacity)
                               : TIFFReadEncodedStrip(t->handle, number, bytes, capacity);
    if (got < needed) {
        return failed(t, page, err);
    }
    return place_piece(t, page, p, bytes, out, err);
}

static flim_status read_pieces(flim_tiff *t, int page, uint8_t *bytes, tmsize_t capacity, int64_t height, int64_t width,
                               const target *out, flim_error *err)
{
    const flim_tiff_page *q = &t->page[page];
    uint32_t number = 0;
    const int64_t held = q->planes ? 1 : q->samples; /* samples of a piece */
    for (int64_t first = 0; first < q->samples; first += held) {
        for (int64_t y = 0; y < q->y; y += height) {
            for (int64_t x = 0; x < q->x; x += width) {
                const piece p = {.y = y,
                                 .x = x,
                                 .rows = height < q->y - y ? height : q->y - y,
                                 .columns = width < q->x - x ? width : q->x - x,
                                 .pitch = row_bytes(q, width, held),
                                 .first = first,
                                 .samples = held};
                if (height * p.pitch > capacity) {
                    return failed(t, page, err);
                }
                FLIM_TRY(read_piece(t, page, number++, &p, bytes, capacity, out, err));
            }
        }
    }
    return FLIM_OK;
}

/* Strips hold whole rows, which libtiff can decode where they are to be. */
static flim_status read_strips(flim_tiff *t, int page, int64_t height, uint8_t *out, flim_error *err)
{
    const flim_tiff_page *q = &t->page[page];
    const int64_t row = row_bytes(q, q->x, q->planes ? 1 : q->samples);
    uint32_t number = 0;
    for (int64_t plane = 0; plane < (q->planes ? q->samples : 1); plane++) {
        for (int64_t y = 0; y < q->y; y += height) {
            const tmsize_t bytes = (tmsize_t)((height < q->y - y ? height : q->y - y) * row);
            if (TIFFReadEncodedStrip(t->handle, number++, out, bytes) < bytes) {
                return failed(t, page, err);
            }
            out += bytes;
        }
    }
    return FLIM_OK;
}

static flim_status read_page(flim_tiff *t, int page, const target *out, flim_error *err)
{
    const flim_tiff_page *q = &t->page[page];
    uint32_t height = 0, width = 0;
    t->why[0] = '\0';
    if (TIFFCurrentDirOffset(t->handle) != t->place[page] && !TIFFSetSubDirectory(t->handle, t->place[page])) {
        return failed(t, page, err);
    }
    const bool tiled = TIFFIsTiled(t->handle);
    if (tiled) {
        TIFFGetField(t->handle, TIFFTAG_TILELENGTH, &height);
        TIFFGetField(t->handle, TIFFTAG_TILEWIDTH, &width);
    } else {
        TIFFGetFieldDefaulted(t->handle, TIFFTAG_ROWSPERSTRIP, &height);
        height = height > q->y ? (uint32_t)q->y : height;
        width = (uint32_t)q->x;
    }
    const tmsize_t capacity = tiled ? TIFFTileSize(t->handle) : TIFFStripSize(t->handle);
    const int64_t whole = row_bytes(q, q->x, q->samples) * q->y;
    if (height == 0 || width == 0 || capacity <= 0 || capacity > MOST_BYTES ||
        (capacity > USUAL_PIECE && capacity / 4 > whole)) {
        return failed(t, page, err);
    }
    if (!tiled && out->elements) {
        return read_strips(t, page, height, out->elements, err);
    }
    uint8_t *bytes = flim_alloc((size_t)capacity, 1, err); /* (capacity) */
    if (!bytes) {
        return FLIM_ERROR_MEMORY;
    }
    const flim_status status = read_pieces(t, page, bytes, capacity, height, width, out, err);
    flim_free(bytes);
    return status;
}

flim_status flim_tiff_read(flim_tiff *t, int page, uint32_t *out, flim_error *err)
{
    return read_page(t, page, &(target){.numbers = out}, err);
}

flim_status flim_tiff_read_elements(flim_tiff *t, int page, void *out, flim_error *err)
{
    return read_page(t, page, &(target){.elements = out}, err);
}

#else

static flim_status lacking(const flim_mapped_file *file, flim_error *err)
{
    return flim_fail(err, FLIM_ERROR_USAGE,
                     "%s: a TIFF file, and flimcv was built without libtiff 4.5 or later: install Debian's libtiff-dev and "
                     "build again, or save it as .npy",
                     file->path);
}

flim_status flim_tiff_open(const flim_mapped_file *file, flim_tiff **out, flim_error *err)
{
    *out = NULL;
    return lacking(file, err);
}

void flim_tiff_close(flim_tiff *t)
{
    (void)t;
}

int flim_tiff_pages(const flim_tiff *t)
{
    (void)t;
    return 0;
}

const flim_tiff_page *flim_tiff_page_at(const flim_tiff *t, int page)
{
    (void)t;
    (void)page;
    return NULL;
}

const char *flim_tiff_description(const flim_tiff *t)
{
    (void)t;
    return "";
}

flim_status flim_tiff_reopen(const flim_tiff *t, flim_tiff **out, flim_error *err)
{
    (void)t;
    *out = NULL;
    return flim_fail(err, FLIM_ERROR, "no libtiff");
}

flim_status flim_tiff_read(flim_tiff *t, int page, uint32_t *out, flim_error *err)
{
    (void)t;
    (void)page;
    (void)out;
    return flim_fail(err, FLIM_ERROR, "no libtiff");
}

flim_status flim_tiff_read_elements(flim_tiff *t, int page, void *out, flim_error *err)
{
    (void)t;
    (void)page;
    (void)out;
    return flim_fail(err, FLIM_ERROR, "no libtiff");
}
#endif
