#include "data/deflate.h"

#if defined FLIM_HAVE_ISAL
#include <isa-l/igzip_lib.h>
#elif defined FLIM_HAVE_LIBDEFLATE
#include <libdeflate.h>
#else
#include <zlib.h>
#endif

#include <stdbool.h>
#include <string.h>

#include "core/alloc.h"

/* The b-th bytes, b = 0 the lowest, of n values. */
static void take_bytes(const void *values, size_t n, int value_bytes, int b, uint8_t *out)
{
    if (value_bytes == 2) {
        const uint16_t *from = values;
        for (size_t i = 0; i < n && b == 0; i++) {
            out[i] = (uint8_t)from[i];
        }
        for (size_t i = 0; i < n && b == 1; i++) {
            out[i] = (uint8_t)(from[i] >> 8);
        }
    } else if (value_bytes == 4) {
        const uint32_t *from = values;
        for (size_t i = 0; i < n; i++) {
            out[i] = (uint8_t)(from[i] >> 8 * b);
        }
    } else {
        memcpy(out, values, n);
    }
}

#if defined FLIM_HAVE_ISAL

enum { PIECE = 1 << 16 }; /* values that are shuffled into the cache before they are packed */

/* Bits that any of n values has. */
static uint32_t bits_of(const void *values, size_t n, int value_bytes)
{
    uint32_t bits = 0;
    if (value_bytes == 2) {
        uint16_t some = 0;
        for (size_t i = 0; i < n; i++) {
            some |= ((const uint16_t *)values)[i];
        }
        bits = some;
    } else if (value_bytes == 4) {
        for (size_t i = 0; i < n; i++) {
            bits |= ((const uint32_t *)values)[i];
        }
    }
    return bits;
}

struct flim_deflater {
    struct isal_zstream stream;
    uint8_t table[ISAL_DEF_LVL1_DEFAULT];
    uint8_t piece[PIECE];
};

flim_status flim_deflater_create(flim_deflater **out, flim_error *err)
{
    *out = flim_alloc(1, sizeof **out, err);
    return *out ? FLIM_OK : FLIM_ERROR_MEMORY;
}

void flim_deflater_destroy(flim_deflater *deflater)
{
    flim_free(deflater);
}

size_t flim_deflate_bound(size_t bytes)
{
    return bytes + bytes / 8 + 1024; /* stored blocks have 5 bytes in 65535; it may split them further */
}

size_t flim_deflate_values(flim_deflater *d, const void *values, size_t n, int value_bytes, void *out)
{
    struct isal_zstream *s = &d->stream;
    const size_t room = flim_deflate_bound(n * (size_t)value_bytes);
    isal_deflate_init(s);
    s->level = 1;
    s->level_buf = d->table;
    s->level_buf_size = sizeof d->table;
    s->gzip_flag = IGZIP_ZLIB;
    s->next_out = out;
    s->avail_out = room > UINT32_MAX ? UINT32_MAX : (uint32_t)room;
    uint32_t bits = 0;
    for (int b = 0; b < value_bytes; b++) {
        const bool zeros = b > 0 && (bits >> 8 * b & 0xff) == 0; /* as counts mostly are: they need not be read once more */
        if (zeros) {
            memset(d->piece, 0, sizeof d->piece);
        }
        for (size_t done = 0; done < n; done += PIECE) {
            const size_t count = n - done < PIECE ? n - done : PIECE;
            const uint8_t *from = (const uint8_t *)values + done * (size_t)value_bytes;
            if (!zeros) {
                take_bytes(from, count, value_bytes, b, d->piece);
            }
            bits |= b == 0 ? bits_of(from, count, value_bytes) : 0;
            s->next_in = d->piece;
            s->avail_in = (uint32_t)count;
            s->end_of_stream = b == value_bytes - 1 && done + count == n;
            if (isal_deflate(s) != COMP_OK || s->avail_in > 0) {
                return 0;
            }
        }
    }
    return s->internal_state.state == ZSTATE_END ? s->total_out : 0;
}

#else

struct flim_deflater {
    void *state; /* libdeflate's */
    uint8_t *shuffled; /* (capacity) */
    size_t capacity;
};

/* All values, shuffled; NULL without memory. */
static const uint8_t *shuffle(flim_deflater *d, const void *values, size_t n, int value_bytes)
{
    const size_t bytes = n * (size_t)value_bytes;
    if (bytes > d->capacity) {
        flim_free(d->shuffled);
        d->shuffled = flim_alloc_large(bytes, 1, NULL);
        d->capacity = d->shuffled ? bytes : 0;
    }
    for (int b = 0; b < value_bytes && d->shuffled; b++) {
        take_bytes(values, n, value_bytes, b, d->shuffled + (size_t)b * n);
    }
    return d->shuffled;
}

#ifdef FLIM_HAVE_LIBDEFLATE

enum { LEVEL = 2 };

flim_status flim_deflater_create(flim_deflater **out, flim_error *err)
{
    flim_deflater *d = flim_alloc(1, sizeof *d, err);
    *out = NULL;
    if (!d) {
        return FLIM_ERROR_MEMORY;
    }
    d->state = libdeflate_alloc_compressor(LEVEL);
    if (!d->state) {
        flim_free(d);
        return flim_fail(err, FLIM_ERROR_MEMORY, "out of host memory: libdeflate could not make a compressor");
    }
    *out = d;
    return FLIM_OK;
}

void flim_deflater_destroy(flim_deflater *d)
{
    if (d) {
        libdeflate_free_compressor(d->state);
        flim_free(d->shuffled);
        flim_free(d);
    }
}

size_t flim_deflate_bound(size_t bytes)
{
    return libdeflate_zlib_compress_bound(NULL, bytes);
}

size_t flim_deflate_values(flim_deflater *d, const void *values, size_t n, int value_bytes, void *out)
{
    const size_t bytes = n * (size_t)value_bytes;
    const uint8_t *in = shuffle(d, values, n, value_bytes);
    return in ? libdeflate_zlib_compress(d->state, in, bytes, out, flim_deflate_bound(bytes)) : 0;
}

#else

enum { LEVEL = 4 };

flim_status flim_deflater_create(flim_deflater **out, flim_error *err)
{
    *out = flim_alloc(1, sizeof **out, err);
    return *out ? FLIM_OK : FLIM_ERROR_MEMORY;
}

void flim_deflater_destroy(flim_deflater *d)
{
    if (d) {
        flim_free(d->shuffled);
        flim_free(d);
    }
}

size_t flim_deflate_bound(size_t bytes)
{
    return compressBound((uLong)bytes);
}

size_t flim_deflate_values(flim_deflater *d, const void *values, size_t n, int value_bytes, void *out)
{
    const uLong bytes = (uLong)(n * (size_t)value_bytes);
    uLongf made = compressBound(bytes);
    const uint8_t *in = shuffle(d, values, n, value_bytes);
    return in && compress2(out, &made, in, bytes, LEVEL) == Z_OK ? made : 0;
}

#endif
#endif
