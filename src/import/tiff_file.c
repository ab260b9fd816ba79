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

struct flim_tiff {
    const flim_mapped_file *file;
    uint64_t at; /* libtiff's place in the file */
    TIFF *handle;
    char why[256]; /* its last error */
    int n_pages, capacity;
    flim_tiff_page *page; /* (n_pages) */
    uint64_t *place; /* (n_pages) offsets of their directories: the list in the file is one-way */
    char *description;
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

static flim_status describe_page(flim_tiff *t, flim_tiff_page *out, flim_error *err)
{
    uint32_t x = 0, y = 0;
    uint16_t samples = 1, bits = 1, format = SAMPLEFORMAT_UINT;
    TIFFGetField(t->handle, TIFFTAG_IMAGEWIDTH, &x);
    TIFFGetField(t->handle, TIFFTAG_IMAGELENGTH, &y);
    TIFFGetFieldDefaulted(t->handle, TIFFTAG_SAMPLESPERPIXEL, &samples);
    TIFFGetFieldDefaulted(t->handle, TIFFTAG_BITSPERSAMPLE, &bits);
    TIFFGetFieldDefaulted(t->handle, TIFFTAG_SAMPLEFORMAT, &format);
    const char kind = format == SAMPLEFORMAT_IEEEFP ? 'f' : format == SAMPLEFORMAT_INT ? 'i' : 'u';
    const bool whole = bits == 8 || bits == 16 || bits == 32 || bits == 64;
    if (x < 1 || y < 1 || samples < 1 || y > MOST_VALUES / samples / x) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s: page %d has %" PRIu32 " x %" PRIu32 " pixels of %d values each",
                         t->file->path, t->n_pages + 1, y, x, samples);
    }
    if (kind == 'f' ? bits != 32 && bits != 64 : !whole && !(bits == 1 && samples == 1)) {
        return flim_fail(err, FLIM_ERROR_DATA,
                         "%s: page %d has values of %d bits (SampleFormat %d), expected integers of 1, 8, 16, 32 or 64 bits, "
                         "or float32 or float64",
                         t->file->path, t->n_pages + 1, bits, format);
    }
    *out = (flim_tiff_page){y, x, samples, {kind, bits / 8, __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__}};
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

flim_status flim_tiff_open(const flim_mapped_file *file, flim_tiff **out, flim_error *err)
{
    flim_status status = FLIM_OK;
    *out = NULL;
    flim_tiff *t = flim_alloc(1, sizeof *t, err);
    TIFFOpenOptions *options = t ? TIFFOpenOptionsAlloc() : NULL;
    FLIM_TRY_DONE(options ? FLIM_OK : flim_fail(err, FLIM_ERROR_MEMORY, "out of host memory"));
    t->file = file;
    TIFFOpenOptionsSetMaxSingleMemAlloc(options, MOST_BYTES);
    TIFFOpenOptionsSetErrorHandlerExtR(options, keep_reason, t);
    TIFFOpenOptionsSetWarningHandlerExtR(options, drop_warning, t);
    t->handle =
        TIFFClientOpenExt(file->path, "r", t, read_bytes, write_bytes, seek, close_nothing, size_of, map, unmap, options);
    FLIM_TRY_DONE(t->handle ? FLIM_OK : failed(t, 0, err));
    FLIM_TRY_DONE(list_pages(t, err));
    *out = t;
    t = NULL;
done:
    if (options) {
        TIFFOpenOptionsFree(options);
    }
    flim_tiff_close(t);
    return status;
}

void flim_tiff_close(flim_tiff *t)
{
    if (t) {
        if (t->handle) {
            TIFFClose(t->handle);
        }
        flim_free(t->page);
        flim_free(t->place);
        flim_free(t->description);
        flim_free(t);
    }
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

static flim_status place_piece(const flim_tiff *t, int page, const piece *p, const uint8_t *bytes, uint32_t *out,
                               flim_error *err)
{
    const flim_tiff_page *q = &t->page[page];
    const size_t columns = (size_t)p->columns;
    for (int64_t i = 0; i < p->rows * p->samples; i++) {
        const int64_t row = i / p->samples, sample = i % p->samples, size = q->element.bytes;
        const uint8_t *from = bytes + row * p->pitch + sample * size;
        uint32_t *to = out + ((p->first + sample) * q->y + p->y + row) * q->x + p->x;
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
                              uint32_t *out, flim_error *err)
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
                               uint32_t *out, flim_error *err)
{
    const flim_tiff_page *q = &t->page[page];
    uint16_t planar = PLANARCONFIG_CONTIG;
    uint32_t number = 0;
    TIFFGetFieldDefaulted(t->handle, TIFFTAG_PLANARCONFIG, &planar);
    const int64_t held = planar == PLANARCONFIG_SEPARATE ? 1 : q->samples; /* samples of a piece */
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

flim_status flim_tiff_read(flim_tiff *t, int page, uint32_t *out, flim_error *err)
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
    if (height == 0 || width == 0 || capacity <= 0 || capacity > MOST_BYTES) {
        return failed(t, page, err);
    }
    uint8_t *bytes = flim_alloc((size_t)capacity, 1, err); /* (capacity) */
    if (!bytes) {
        return FLIM_ERROR_MEMORY;
    }
    const flim_status status = read_pieces(t, page, bytes, capacity, height, width, out, err);
    flim_free(bytes);
    return status;
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

flim_status flim_tiff_read(flim_tiff *t, int page, uint32_t *out, flim_error *err)
{
    (void)t;
    (void)page;
    (void)out;
    return flim_fail(err, FLIM_ERROR, "no libtiff");
}
#endif
