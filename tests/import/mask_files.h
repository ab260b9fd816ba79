/* Masks as files, made byte by byte: TIFF of either byte order, PNG of every gray depth and with a palette, .npy. */
#ifndef FLIM_TESTS_MASK_FILES_H
#define FLIM_TESTS_MASK_FILES_H

#include "import/made_bytes.h"

#include <zlib.h>

typedef struct made_mask {
    int y, x;
    const uint32_t *label; /* (Y,X) */
} made_mask;

static inline void put_big(bytes *b, uint64_t value, int count)
{
    for (int i = count - 1; i >= 0; i--) {
        put(b, value >> 8 * i, 1);
    }
}

static inline void put_number(bytes *b, bool big, uint64_t value, int count)
{
    if (big) {
        put_big(b, value, count);
    } else {
        put(b, value, count);
    }
}

/* A label as an element of `size` bytes: kind u, i or f. */
static inline void put_label(bytes *b, bool big, char kind, int size, uint32_t label)
{
    uint64_t bits = label;
    const double real = label;
    const float small = (float)label;
    uint32_t small_bits;
    if (kind == 'f' && size == 8) {
        memcpy(&bits, &real, 8);
    } else if (kind == 'f' && size == 2) {
        bits = half_of(label);
    } else if (kind == 'f') {
        memcpy(&small_bits, &small, 4);
        bits = small_bits;
    }
    put_number(b, big, bits, size);
}

/* One page, strips of three rows. */
static inline void make_tiff_mask(bytes *b, const made_mask *m, bool big, char kind, int size)
{
    const int strips = (m->y + 2) / 3, entries = 10;
    const struct {
        int tag, type; /* 3 = 16 bits, 4 = 32 bits */
        uint32_t value;
    } field[] = {{256, 4, (uint32_t)m->x},
                 {257, 4, (uint32_t)m->y},
                 {258, 3, (uint32_t)size * 8},
                 {259, 3, 1},
                 {262, 3, 1},
                 {273, 4, 0},
                 {277, 3, 1},
                 {278, 3, 3},
                 {279, 4, 0},
                 {339, 3,
                  kind == 'f'   ? 3
                  : kind == 'i' ? 2
                                : 1}};
    *b = (bytes){0};
    put_text(b, big ? "MM" : "II", 2);
    put_number(b, big, 42, 2);
    put_number(b, big, 8, 4);
    put_number(b, big, (uint64_t)entries, 2);
    const size_t lists = 8 + 2 + 12 * (size_t)entries + 4, data = lists + 8 * (size_t)strips;
    for (int i = 0; i < entries; i++) {
        const bool list = field[i].tag == 273 || field[i].tag == 279;
        put_number(b, big, (uint64_t)field[i].tag, 2);
        put_number(b, big, (uint64_t)field[i].type, 2);
        put_number(b, big, list ? (uint64_t)strips : 1, 4);
        if (list) {
            put_number(b, big, lists + (field[i].tag == 279 ? 4 * (size_t)strips : 0), 4);
        } else {
            put_number(b, big, field[i].value, field[i].type == 3 ? 2 : 4);
            put(b, 0, field[i].type == 3 ? 2 : 0);
        }
    }
    put(b, 0, 4);
    for (int i = 0; i < strips; i++) {
        put_number(b, big, data + (size_t)(i * 3 * m->x * size), 4);
    }
    for (int i = 0; i < strips; i++) {
        put_number(b, big, (uint64_t)((m->y - 3 * i < 3 ? m->y - 3 * i : 3) * m->x * size), 4);
    }
    for (int i = 0; i < m->y * m->x; i++) {
        put_label(b, big, kind, size, m->label[i]);
    }
}

static inline void put_png_chunk(bytes *b, const char *name, const uint8_t *data, size_t n)
{
    put_big(b, n, 4);
    const size_t at = b->n;
    put_text(b, name, 4);
    for (size_t i = 0; i < n; i++) {
        put(b, data[i], 1);
    }
    put_big(b, crc32(crc32(0, NULL, 0), b->data + at, (uInt)(n + 4)), 4);
}

/* colour: 0 gray, 2 RGB (all three the label), 3 palette, 4 gray with alpha; bits per value; labels must fit. */
static inline void make_png_mask(bytes *b, const made_mask *m, int colour, int bits)
{
    static uint8_t rows[1 << 15], packed[1 << 15];
    const int values = colour == 2 ? 3 : colour == 4 ? 2 : 1;
    const size_t pitch = ((size_t)m->x * (size_t)values * (size_t)bits + 7) / 8 + 1;
    uint8_t header[13] = {
        0, 0, (uint8_t)(m->x >> 8), (uint8_t)m->x, 0, 0, (uint8_t)(m->y >> 8), (uint8_t)m->y, (uint8_t)bits, (uint8_t)colour};
    memset(rows, 0, sizeof rows);
    for (int i = 0; i < m->y * m->x; i++) {
        uint8_t *row = rows + (size_t)(i / m->x) * pitch + 1;
        const uint32_t label = m->label[i];
        for (int v = 0; v < values; v++) {
            const int at = (i % m->x * values + v) * bits;
            if (bits == 16) {
                row[at / 8] = (uint8_t)(label >> 8);
                row[at / 8 + 1] = (uint8_t)label;
            } else {
                row[at / 8] |= (uint8_t)(label << (8 - bits - at % 8));
            }
        }
    }
    uLongf n = sizeof packed;
    assert_int_equal(compress(packed, &n, rows, (uLong)(pitch * (size_t)m->y)), Z_OK);
    *b = (bytes){0};
    put_big(b, UINT64_C(0x89504e470d0a1a0a), 8);
    put_png_chunk(b, "IHDR", header, 13);
    if (colour == 3) {
        put_png_chunk(b, "PLTE", rows, (size_t)3 << bits);
    }
    put_png_chunk(b, "IDAT", packed, n);
    put_png_chunk(b, "IEND", NULL, 0);
}

static inline void make_npy_mask(bytes *b, const made_mask *m, bool big, bool fortran, char kind, int size)
{
    char header[256];
    *b = (bytes){0};
    const int length = snprintf(header, sizeof header, "{'descr': '%c%c%d', 'fortran_order': %s, 'shape': (1, %d, %d), }",
                                size == 1 ? '|'
                                : big     ? '>'
                                          : '<',
                                kind, size, fortran ? "True" : "False", m->y, m->x);
    put_big(b, 0x934e554d5059, 6);
    put(b, 1, 2);
    put(b, (uint64_t)length, 2);
    put_text(b, header, (size_t)length);
    for (int i = 0; i < m->y * m->x; i++) {
        const int at = fortran ? i % m->y * m->x + i / m->y : i;
        put_label(b, big, kind, size, m->label[at]);
    }
}

#endif
