#include "import/element.h"

#include <string.h>

#include "core/half.h"

/* One loop per type, so that the compiler makes vector code of the common ones.  BITS: the unsigned type of the same size. */
#define READ(TYPE, BITS, SWAPPED, IS_COUNT)                                                                                  \
    do {                                                                                                                     \
        for (size_t i = 0; i < n; i++, at += stride) {                                                                       \
            BITS bits;                                                                                                       \
            TYPE value;                                                                                                      \
            memcpy(&bits, at, sizeof bits);                                                                                  \
            bits = swap ? (BITS)(SWAPPED) : bits;                                                                            \
            memcpy(&value, &bits, sizeof value);                                                                             \
            if (!(IS_COUNT)) {                                                                                               \
                return i;                                                                                                    \
            }                                                                                                                \
            out[i] = (uint32_t)value;                                                                                        \
        }                                                                                                                    \
        return n;                                                                                                            \
    } while (0)

static size_t read_unsigned(int bytes, bool swap, const uint8_t *at, ptrdiff_t stride, size_t n, uint32_t *out)
{
    switch (bytes) {
    case 1: READ(uint8_t, uint8_t, bits, true);
    case 2: READ(uint16_t, uint16_t, __builtin_bswap16(bits), true);
    case 4: READ(uint32_t, uint32_t, __builtin_bswap32(bits), true);
    case 8: READ(uint64_t, uint64_t, __builtin_bswap64(bits), value <= UINT32_MAX);
    default: return 0;
    }
}

static size_t read_signed(int bytes, bool swap, const uint8_t *at, ptrdiff_t stride, size_t n, uint32_t *out)
{
    switch (bytes) {
    case 1: READ(int8_t, uint8_t, bits, value >= 0);
    case 2: READ(int16_t, uint16_t, __builtin_bswap16(bits), value >= 0);
    case 4: READ(int32_t, uint32_t, __builtin_bswap32(bits), value >= 0);
    case 8: READ(int64_t, uint64_t, __builtin_bswap64(bits), value >= 0 && value <= UINT32_MAX);
    default: return 0;
    }
}

/* Here and below the conversion is not done where the number is none of the target's range: that has no defined result. */
static size_t read_half(bool swap, const uint8_t *at, ptrdiff_t stride, size_t n, uint32_t *out)
{
    for (size_t i = 0; i < n; i++, at += stride) {
        uint16_t bits;
        memcpy(&bits, at, sizeof bits);
        const float value = flim_float_of_half(swap ? __builtin_bswap16(bits) : bits);
        if (!(value >= 0 && value <= 65504 && value == (float)(uint32_t)value)) {
            return i;
        }
        out[i] = (uint32_t)value;
    }
    return n;
}

static size_t read_real(int bytes, bool swap, const uint8_t *at, ptrdiff_t stride, size_t n, uint32_t *out)
{
    switch (bytes) {
    case 2: return read_half(swap, at, stride, n, out);
    case 4:
        READ(float, uint32_t, __builtin_bswap32(bits),
             value >= 0 && value < 4294967296.0F && value == (float)(uint32_t)value);
    case 8:
        READ(double, uint64_t, __builtin_bswap64(bits),
             value >= 0 && value <= UINT32_MAX && value == (double)(uint32_t)value);
    default: return 0;
    }
}

size_t flim_elements_read(const flim_element *element, const uint8_t *at, ptrdiff_t stride, size_t n, uint32_t *out)
{
    const bool swap = element->big != (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__);
    switch (element->kind) {
    case 'i': return read_signed(element->bytes, swap, at, stride, n, out);
    case 'f': return read_real(element->bytes, swap, at, stride, n, out);
    default: return read_unsigned(element->bytes, swap, at, stride, n, out);
    }
}
