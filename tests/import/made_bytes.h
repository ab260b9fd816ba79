/* A file as it grows in memory, for tests that make files byte by byte: little endian, unless a function says otherwise. */
#ifndef FLIM_TESTS_MADE_BYTES_H
#define FLIM_TESTS_MADE_BYTES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

typedef struct bytes {
    uint8_t data[1 << 16];
    size_t n;
} bytes;

static inline void put(bytes *b, uint64_t value, int count)
{
    for (int i = 0; i < count; i++) {
        assert_true(b->n < sizeof b->data);
        b->data[b->n++] = (uint8_t)(i < 8 ? value >> 8 * i : 0);
    }
}

static inline void put_text(bytes *b, const char *text, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        put(b, i < strlen(text) ? (uint8_t)text[i] : 0, 1);
    }
}

/* The bits of a whole number as IEEE's binary16, which must hold it. */
static inline uint16_t half_of(uint32_t number)
{
    unsigned exponent = 0;
    while (number >> (exponent + 1)) {
        exponent++;
    }
    const uint32_t mantissa = exponent > 10 ? number >> (exponent - 10) : number << (10 - exponent);
    assert_true(exponent < 16 && (exponent <= 10 || mantissa << (exponent - 10) == number));
    return (uint16_t)(number ? (exponent + 15) << 10 | (mantissa & 1023) : 0);
}

static inline void set(bytes *b, size_t at, uint64_t value, int count)
{
    for (int i = 0; i < count; i++) {
        b->data[at + (size_t)i] = (uint8_t)(value >> 8 * i);
    }
}

static inline void write_bytes_to(const char *path, const bytes *b, size_t count)
{
    FILE *stream = fopen(path, "wb");
    assert_non_null(stream);
    assert_int_equal(fwrite(b->data, 1, count, stream), count);
    assert_int_equal(fclose(stream), 0);
}

#endif
