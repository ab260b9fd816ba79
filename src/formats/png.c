#include "formats/png.h"

#include <string.h>
#include <zlib.h>

#include "core/alloc.h"

static void put_big_endian(uint8_t *to, size_t value)
{
    for (int i = 0; i < 4; i++) {
        to[i] = (uint8_t)(value >> (24 - 8 * i));
    }
}

/* A chunk around `count` bytes that already stand at `at` + 8: length, type, data, CRC-32; where the next begins. */
static uint8_t *close_chunk(uint8_t *at, const char type[4], size_t count)
{
    put_big_endian(at, count);
    memcpy(at + 4, type, 4);
    put_big_endian(at + 8 + count, crc32(0, at + 4, (uInt)(4 + count)));
    return at + 12 + count;
}

flim_status flim_png_encode(int height, int width, const uint8_t *pixel, uint8_t **png, size_t *bytes, flim_error *err)
{
    static const uint8_t signature[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
    const size_t row = 3 * (size_t)width, raw_bytes = (size_t)height * (row + 1);
    uLongf packed = compressBound((uLong)raw_bytes);
    uint8_t *raw = flim_alloc(raw_bytes, 1, err);
    uint8_t *out = flim_alloc(sizeof signature + 3 * 12 + 13 + packed, 1, err);
    if (!raw || !out) {
        flim_free(raw);
        flim_free(out);
        return FLIM_ERROR_MEMORY;
    }
    for (size_t y = 0; y < (size_t)height; y++) { /* each row begins with its filter: 0 = none */
        memcpy(raw + y * (row + 1) + 1, pixel + y * row, row);
    }
    memcpy(out, signature, sizeof signature);
    uint8_t *at = out + sizeof signature;
    put_big_endian(at + 8, (size_t)width);
    put_big_endian(at + 12, (size_t)height);
    memcpy(at + 16, (const uint8_t[]){8, 2, 0, 0, 0}, 5); /* bits, red-green-blue, the only methods, not interlaced */
    at = close_chunk(at, "IHDR", 13);
    compress2(at + 8, &packed, raw, (uLong)raw_bytes, 6); /* cannot fail: the room is compressBound's */
    at = close_chunk(at, "IDAT", packed);
    at = close_chunk(at, "IEND", 0);
    flim_free(raw);
    *png = out;
    *bytes = (size_t)(at - out);
    return FLIM_OK;
}
