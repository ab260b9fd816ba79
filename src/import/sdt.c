/* Becker & Hickl .sdt (SPCM): a file header, one or more descriptions of measurements, and blocks of data in a chain.
 *
 * The layout was read from files and from sdtfile (github.com/cgohlke/sdtfile, BSD-3): offsets below are its dtypes'. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/little_endian.h"
#include "core/try.h"
#include "formats/zip.h"
#include "import/element.h"
#include "import/field_file.h"
#include "import/lz4_frame.h"

enum { FILE_HEADER = 42, BLOCK_HEADER = 22, MOST_BLOCKS = 65536 };

/* Offsets within the description of a measurement. */
enum {
    MEAS_TIME = 0,
    MEAS_DATE = 9,
    MEAS_TAC_RANGE = 64,
    MEAS_TAC_GAIN = 68,
    MEAS_ADC_RE = 82,
    MEAS_SCAN = 173,
    MEAS_IMAGE = 309
};
enum { MEAS_LEAST = MEAS_ADC_RE + 2 };

/* A block's type: bits of what it holds and how. */
enum { TYPE_CONTENT = 0xf0, TYPE_ELEMENT = 0xf00, TYPE_ZIP = 0x1000, TYPE_LZ4 = 0x4000 };
enum { CONTENT_DECAY = 0x00, CONTENT_PAGE = 0x10, CONTENT_FCS = 0x20, CONTENT_IMAGE = 0x60, CONTENT_MCS_TA = 0x80 };
enum { ELEMENT_U16 = 0x000, ELEMENT_U32 = 0x100, ELEMENT_F64 = 0x200 };

typedef struct block_header {
    uint64_t data, next; /* offsets in the file */
    uint32_t type, bytes; /* bytes: of the data once unpacked */
    int measurement;
} block_header;

static bool is_sdt(const flim_mapped_file *f)
{
    uint32_t sum = 0;
    if (f->size < FILE_HEADER) {
        return false;
    }
    for (int i = 0; i < FILE_HEADER; i += 2) {
        sum += flim_u16_at(f->data + i);
    }
    const uint16_t valid = flim_u16_at(f->data + 32);
    return (valid == 0x5555 || valid == 0x1111) && (sum & 0xffff) == 0x55aa;
}

static flim_status read_block_header(const flim_mapped_file *f, uint64_t at, block_header *out, flim_error *err)
{
    FLIM_TRY(flim_mapped_check(f, at, BLOCK_HEADER, "the header of a data block", err));
    const uint8_t *h = f->data + at;
    const bool wide = (flim_u16_at(f->data) & 15) >= 15; /* the first two bytes then extend the offsets to 40 bits */
    out->data = flim_u32_at(h + 2) | (wide ? (uint64_t)h[0] << 32 : 0);
    out->next = flim_u32_at(h + 6) | (wide ? (uint64_t)h[1] << 32 : 0);
    out->type = flim_u16_at(h + 10);
    out->measurement = (int16_t)flim_u16_at(h + 12);
    out->bytes = flim_u32_at(h + 18);
    return FLIM_OK;
}

static int element_bytes(uint32_t type)
{
    switch (type & TYPE_ELEMENT) {
    case ELEMENT_U16: return 2;
    case ELEMENT_U32: return 4;
    case ELEMENT_F64: return 8;
    default: return 0;
    }
}

/* The description of a measurement, and what of it every block needs. */
typedef struct measurement {
    const uint8_t *bytes; /* (length) */
    int length; /* grew with SPCM's versions: what is not there counts as 0 */
    int64_t t; /* time bins */
    double range_ns;
} measurement;

static int64_t i32_at(const measurement *m, int at)
{
    return at + 4 <= m->length ? (int32_t)flim_u32_at(m->bytes + at) : 0;
}

static bool fits(int64_t y, int64_t x, int64_t t, int64_t values)
{
    return y > 0 && x > 0 && y <= values / x && y * x <= values / t && y * x * t == values;
}

static int64_t power_of_two(int64_t n)
{
    int64_t p = 1;
    while (p < n) {
        p *= 2;
    }
    return p;
}

/* The shape is not in the file: of the shapes that it speaks of, the first with as many values as there are. */
static bool find_shape(const measurement *m, int64_t values, flim_field_image *b)
{
    const int64_t t = m->t, rx = i32_at(m, MEAS_SCAN + 8), ry = i32_at(m, MEAS_SCAN + 12);
    const int64_t routing = (rx > 1 && rx <= 65536 ? rx : 1) * (ry > 1 && ry <= 65536 ? ry : 1);
    const int64_t x[] = {i32_at(m, MEAS_SCAN), i32_at(m, MEAS_IMAGE)};
    const int64_t y[] = {i32_at(m, MEAS_SCAN + 4), i32_at(m, MEAS_IMAGE + 4)};
    b->t = t;
    for (int i = 0; i < 2; i++) {
        if (x[i] < 1 || y[i] < 1 || x[i] > 65536 || y[i] > 65536) {
            continue;
        }
        const int64_t try_y[] = {y[i], y[i] * routing, power_of_two(y[i])};
        const int64_t try_x[] = {x[i], x[i], power_of_two(x[i])};
        for (int k = 0; k < 3; k++) {
            if (fits(try_y[k], try_x[k], t, values)) {
                b->y = try_y[k];
                b->x = try_x[k];
                return true;
            }
        }
    }
    b->y = b->x = 1; /* a decay of its own, or several: a line of pixels */
    if (values % t == 0) {
        b->x = values / t;
        return true;
    }
    return false;
}

/* The measurement that a block belongs to. */
static flim_status read_measurement(const flim_mapped_file *f, int number, measurement *out, flim_error *err)
{
    const uint64_t first = flim_u32_at(f->data + 24);
    const int count = (int16_t)flim_u16_at(f->data + 28), bytes = (int16_t)flim_u16_at(f->data + 30);
    if (number < 0 || number >= count || bytes < MEAS_LEAST) {
        return flim_fail(err, FLIM_ERROR_DATA,
                         "%s: a data block of measurement %d, but the file describes %d measurements in %d bytes each",
                         f->path, number, count, bytes);
    }
    const uint64_t at = first + (uint64_t)number * (uint64_t)bytes;
    FLIM_TRY(flim_mapped_check(f, at, (uint64_t)bytes, "the description of a measurement", err));
    const uint8_t *m = f->data + at;
    const uint16_t adc = flim_u16_at(m + MEAS_ADC_RE);
    const double range = (double)flim_f32_at(m + MEAS_TAC_RANGE); /* seconds, before amplification */
    const int gain = (int16_t)flim_u16_at(m + MEAS_TAC_GAIN);
    *out = (measurement){.bytes = m,
                         .length = bytes,
                         .t = adc ? adc : 65536,
                         .range_ns = isfinite(range) && range > 0 && gain > 0 ? range * 1e9 / gain : 0};
    return FLIM_OK;
}

static void read_texts(flim_field_file *file, const uint8_t *meas)
{
    snprintf(file->date, sizeof file->date, "%.11s %.9s", (const char *)meas + MEAS_DATE, (const char *)meas + MEAS_TIME);
    snprintf(file->instrument, sizeof file->instrument, "Becker & Hickl %.16s", (const char *)meas + 20);
}

static flim_status add_block(flim_field_file *file, uint64_t at, const block_header *h, flim_error *err)
{
    const flim_mapped_file *f = &file->map;
    const uint32_t content = h->type & TYPE_CONTENT;
    flim_field_image block = {0};
    measurement m = {0};
    snprintf(block.name, sizeof block.name, "block %d", file->n_images + 1);
    if (content != CONTENT_DECAY && content != CONTENT_PAGE && content != CONTENT_IMAGE && content != CONTENT_MCS_TA) {
        return flim_fail(err, FLIM_ERROR_DATA,
                         "%s: %s has data of type 0x%04" PRIx32
                         ", which are not decays of pixels (FCS, MCS or single photons)",
                         f->path, block.name, h->type);
    }
    const int bytes = element_bytes(h->type);
    if (bytes == 0 || (h->type & (TYPE_ZIP | TYPE_LZ4)) == (TYPE_ZIP | TYPE_LZ4)) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s: %s is of type 0x%04" PRIx32 ": %s", f->path, block.name, h->type,
                         bytes ? "packed by zip and by LZ4 at once" : "its numbers are of an unknown kind");
    }
    FLIM_TRY(read_measurement(f, h->measurement, &m, err));
    block.range_ns = m.range_ns;
    if (h->bytes == 0 || h->bytes % (uint32_t)bytes != 0 || !find_shape(&m, h->bytes / (uint32_t)bytes, &block)) {
        return flim_fail(err, FLIM_ERROR_DATA,
                         "%s: %s has %" PRIu32 " bytes, which are not a whole number of decays of %" PRId64 " bins", f->path,
                         block.name, h->bytes, m.t);
    }
    if (file->n_images == 0) {
        read_texts(file, m.bytes);
    }
    /* Of a packed block only its end tells how long it is; of the others all has to be there, whatever is to be read. */
    FLIM_TRY(flim_mapped_check(f, h->data, h->type & (TYPE_ZIP | TYPE_LZ4) ? 1 : h->bytes, block.name, err));
    return flim_field_add_image(file, &block, at, err);
}

static flim_status open_sdt(flim_field_file *file, flim_error *err)
{
    const flim_mapped_file *f = &file->map;
    if (flim_u16_at(f->data + 32) == 0x1111) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s: SPCM marked its data as not valid when it saved them", f->path);
    }
    int n = (int16_t)flim_u16_at(f->data + 18);
    uint64_t at = flim_u32_at(f->data + 14);
    if (n == 0x7fff) { /* more than fit 15 bits are in the reserved field */
        const uint32_t many = flim_u32_at(f->data + 34);
        n = many <= MOST_BLOCKS ? (int)many : -1;
    }
    if (n < 0 || n > MOST_BLOCKS) {
        return flim_fail(err, FLIM_ERROR_DATA, "%s: its header counts %d data blocks, expected 1 to %d", f->path, n,
                         MOST_BLOCKS);
    }
    for (int i = 0; i < n; i++) {
        block_header h;
        FLIM_TRY(read_block_header(f, at, &h, err));
        FLIM_TRY(add_block(file, at, &h, err));
        if (i + 1 < n && h.next <= at) {
            return flim_fail(err, FLIM_ERROR_DATA,
                             "%s: the data block at offset %" PRIu64 " says that the next one is at %" PRIu64 ", expected "
                             "a later place",
                             f->path, at, h.next);
        }
        at = h.next;
    }
    return FLIM_OK;
}

/* Numbers of the block's element type as counts. */
static flim_status to_counts(const flim_field_file *file, int number, const block_header *h, const uint8_t *data,
                             flim_counts *out, flim_error *err)
{
    const int bytes = element_bytes(h->type);
    const flim_field_image *b = &file->image[number];
    const size_t n = bytes > 0 ? h->bytes / (uint32_t)bytes : 0;
    const flim_element element = {.kind = bytes == 8 ? 'f' : 'u', .bytes = bytes};
    size_t good;
    *out = (flim_counts){.y = b->y, .x = b->x, .t = b->t, .y_step = b->x * b->t, .x_step = b->t, .t_step = 1};
    FLIM_TRY(flim_counts_from_elements(&element, data, n, &out->data, &out->bytes, &out->memory, &good, err));
    return good == n ? FLIM_OK
                     : flim_fail(err, FLIM_ERROR_DATA, "%s: value %zu of a data block is %g, expected a count",
                                 file->map.path, good, flim_f64_at(data + good * sizeof(double)));
}

/* The contents of a packed block, h->bytes of them; flim_free. */
static flim_status unpack(const flim_mapped_file *f, const char *name, const block_header *h, uint8_t **out, flim_error *err)
{
    flim_error why = {0};
    FLIM_TRY(flim_mapped_check(f, h->data, 1, name, err));
    if (!(*out = flim_alloc_large(h->bytes, 1, err))) {
        return FLIM_ERROR_MEMORY;
    }
    /* The archive ends where the next block begins, or with the file; its own list of contents need not be whole. */
    const size_t bytes = (size_t)((h->next > h->data && h->next <= f->size ? h->next : f->size) - h->data);
    const uint8_t *packed = f->data + h->data;
    flim_zip_entry entry;
    flim_status status =
        h->type & TYPE_LZ4 ? flim_lz4_read(packed, bytes, *out, h->bytes, &why) : flim_zip_first(packed, bytes, &entry, &why);
    if (status == FLIM_OK && !(h->type & TYPE_LZ4)) {
        status = flim_zip_extract(packed, bytes, &entry, *out, h->bytes, &why);
    }
    return status == FLIM_OK ? FLIM_OK
                             : flim_fail(err, status, "%s: %s, at offset %" PRIu64 ": %s", f->path, name, h->data, why.text);
}

static flim_status read_sdt(flim_field_file *file, int number, flim_counts *out, flim_error *err)
{
    const flim_mapped_file *f = &file->map;
    block_header h;
    flim_status status = FLIM_OK;
    uint8_t *unpacked = NULL; /* (h.bytes) */
    FLIM_TRY(read_block_header(f, file->place[number], &h, err));
    if (!(h.type & (TYPE_ZIP | TYPE_LZ4))) {
        FLIM_TRY(flim_mapped_check(f, h.data, h.bytes, file->image[number].name, err));
        return to_counts(file, number, &h, f->data + h.data, out, err);
    }
    FLIM_TRY_DONE(unpack(f, file->image[number].name, &h, &unpacked, err));
    FLIM_TRY_DONE(to_counts(file, number, &h, unpacked, out, err));
    if (!out->memory) { /* they lie in what was unpacked */
        out->memory = unpacked;
        unpacked = NULL;
    }
done:
    flim_free(unpacked);
    return status;
}

const flim_field_format flim_format_sdt = {"Becker & Hickl .sdt", is_sdt, open_sdt, read_sdt, NULL, false};
