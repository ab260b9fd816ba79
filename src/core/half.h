/* IEEE 754 binary16, which neither C17 nor every compiler has.
 *
 * For: data files and weight files that hold halves.  Exact; a NaN keeps its sign and payload.
 */
#ifndef FLIM_CORE_HALF_H
#define FLIM_CORE_HALF_H

#include <stdint.h>
#include <string.h>

static inline float flim_float_of_half(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16, exponent = half >> 10 & 31u, mantissa = half & 1023u, bits;
    float value;
    if (exponent == 31) {
        bits = sign | 0x7f800000u | mantissa << 13;
    } else if (exponent) {
        bits = sign | (exponent + 112) << 23 | mantissa << 13;
    } else {
        value = (float)mantissa * 0x1p-24f; /* subnormal, exact */
        return sign ? -value : value;
    }
    memcpy(&value, &bits, sizeof value);
    return value;
}

#endif
