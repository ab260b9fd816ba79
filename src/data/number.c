#include "data/number.h"

#include <math.h>
#include <string.h>

#include "core/half.h"
#include "flim/dataset.h"

/* Byte k (counted from the least significant) of value i is raw[at[k] + i * step] for both layouts. */
static void interleave(const uint8_t *raw, int64_t count, size_t size, bool reversed, uint8_t *out)
{
    for (size_t k = 0; k < size; k++) {
        const uint8_t *plane = raw + (size_t)count * (reversed ? size - 1 - k : k);
        for (int64_t i = 0; i < count; i++) {
            out[(size_t)i * size + k] = plane[i];
        }
    }
}

static void interleave2(const uint8_t *restrict first, const uint8_t *restrict second, int64_t count, uint8_t *restrict out)
{
    for (int64_t i = 0; i < count; i++) {
        out[2 * i] = first[i];
        out[2 * i + 1] = second[i];
    }
}

static void interleave4(const uint8_t *restrict a, const uint8_t *restrict b, const uint8_t *restrict c,
                        const uint8_t *restrict d, int64_t count, uint8_t *restrict out)
{
    for (int64_t i = 0; i < count; i++) {
        out[4 * i] = a[i];
        out[4 * i + 1] = b[i];
        out[4 * i + 2] = c[i];
        out[4 * i + 3] = d[i];
    }
}

void flim_number_swap(flim_number number, int64_t count, void *values)
{
    uint8_t *bytes = values;
    for (int64_t i = 0; i < count; i++) {
        uint8_t *at = bytes + (size_t)i * number.size;
        for (size_t k = 0; k < number.size / 2; k++) {
            uint8_t keep = at[k];
            at[k] = at[number.size - 1 - k];
            at[number.size - 1 - k] = keep;
        }
    }
}

void flim_number_native(flim_number number, bool shuffled, const uint8_t *raw, int64_t count, void *values)
{
    size_t n = (size_t)count;
    if (!shuffled || number.size == 1) {
        memcpy(values, raw, n * number.size);
        if (number.swapped && number.size > 1) {
            flim_number_swap(number, count, values);
        }
    } else if (number.size == 2) {
        interleave2(number.swapped ? raw + n : raw, number.swapped ? raw : raw + n, count, values);
    } else if (number.size == 4) {
        const uint8_t *plane[4] = {raw, raw + n, raw + 2 * n, raw + 3 * n};
        bool s = number.swapped;
        interleave4(plane[s ? 3 : 0], plane[s ? 2 : 1], plane[s ? 1 : 2], plane[s ? 0 : 3], count, values);
    } else {
        interleave(raw, count, number.size, number.swapped, values);
    }
}

/* One loop a type: the check is a plain OR over the values, so that the loop vectorises; the culprit is looked for after. */
#define CONVERT(name, type, expression, is_bad)                                                                              \
    static int64_t name(const type *restrict in, int64_t count, float *restrict out)                                         \
    {                                                                                                                        \
        int bad = 0;                                                                                                         \
        for (int64_t i = 0; i < count; i++) {                                                                                \
            type x = in[i];                                                                                                  \
            bad |= (is_bad);                                                                                                 \
            out[i] = (expression);                                                                                           \
        }                                                                                                                    \
        for (int64_t i = 0; bad && i < count; i++) {                                                                         \
            type x = in[i];                                                                                                  \
            if (is_bad) {                                                                                                    \
                return i;                                                                                                    \
            }                                                                                                                \
        }                                                                                                                    \
        return -1;                                                                                                           \
    }

CONVERT(counts_u8, uint8_t, (float)x, ((void)x, 0))
CONVERT(counts_u16, uint16_t, (float)x, ((void)x, 0))
CONVERT(counts_u32, uint32_t, (float)x, x > (uint32_t)INT32_MAX)
CONVERT(counts_u64, uint64_t, (float)x, x > (uint64_t)INT32_MAX)
CONVERT(counts_s8, int8_t, (float)x, x < 0)
CONVERT(counts_s16, int16_t, (float)x, x < 0)
CONVERT(counts_s32, int32_t, (float)x, x < 0)
CONVERT(counts_s64, int64_t, (float)x, (x < 0) | (x > (int64_t)INT32_MAX))
CONVERT(counts_f16, uint16_t, flim_float_of_half(x) + 0.0f, (x > 0x8000u) | ((x & 0x7c00u) == 0x7c00u))
CONVERT(counts_f32, float, x + 0.0f, !((x >= 0.0f) & (x <= (float)FLIM_COUNT_LIMIT))) /* + 0: -0 becomes 0 */
CONVERT(counts_f64, double, (float)x + 0.0f, !((x >= 0.0) & (x <= FLIM_COUNT_LIMIT)))

int64_t flim_number_counts(flim_number number, const void *values, int64_t count, float *out)
{
    switch (number.kind) {
    case FLIM_UNSIGNED:
        return number.size == 1   ? counts_u8(values, count, out)
               : number.size == 2 ? counts_u16(values, count, out)
               : number.size == 4 ? counts_u32(values, count, out)
                                  : counts_u64(values, count, out);
    case FLIM_SIGNED:
        return number.size == 1   ? counts_s8(values, count, out)
               : number.size == 2 ? counts_s16(values, count, out)
               : number.size == 4 ? counts_s32(values, count, out)
                                  : counts_s64(values, count, out);
    case FLIM_FLOAT: break;
    }
    return number.size == 2   ? counts_f16(values, count, out)
           : number.size == 4 ? counts_f32(values, count, out)
                              : counts_f64(values, count, out);
}

int flim_counts_bytes(const float *counts, int64_t count)
{
    float most = 0;
    int fraction = 0;
    for (int64_t i = 0; i < count; i++) {
        most = counts[i] > most ? counts[i] : most;
    }
    if (most > 65535.0f) {
        return 4;
    }
    for (int64_t i = 0; i < count; i++) {
        fraction |= (float)(int32_t)counts[i] != counts[i];
    }
    return fraction ? 4 : most > 255.0f ? 2 : 1;
}

void flim_counts_narrow(const float *counts, int64_t count, int bytes, void *out)
{
    uint8_t *out1 = out;
    uint16_t *out2 = out;
    for (int64_t i = 0; bytes == 1 && i < count; i++) {
        out1[i] = (uint8_t)counts[i];
    }
    for (int64_t i = 0; bytes == 2 && i < count; i++) {
        out2[i] = (uint16_t)counts[i];
    }
}

double flim_number_at(flim_number number, const void *values, int64_t index)
{
    switch (number.kind) {
    case FLIM_UNSIGNED:
        return number.size == 1   ? ((const uint8_t *)values)[index]
               : number.size == 2 ? ((const uint16_t *)values)[index]
               : number.size == 4 ? ((const uint32_t *)values)[index]
                                  : (double)((const uint64_t *)values)[index];
    case FLIM_SIGNED:
        return number.size == 1   ? ((const int8_t *)values)[index]
               : number.size == 2 ? ((const int16_t *)values)[index]
               : number.size == 4 ? ((const int32_t *)values)[index]
                                  : (double)((const int64_t *)values)[index];
    case FLIM_FLOAT: break;
    }
    return number.size == 2   ? flim_float_of_half(((const uint16_t *)values)[index])
           : number.size == 4 ? ((const float *)values)[index]
                              : ((const double *)values)[index];
}

/* Cells are mostly zeros (97 %): blocks of zero counts are skipped.  16 was the fastest of 4, 8, 16, 32. */
enum { BLOCK = 16 };

static bool all_zero(const void *memory, size_t bytes)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t word;
        memcpy(&word, (const uint8_t *)memory + i, 8);
        sum |= word;
    }
    return sum == 0;
}

static void signal_u8(const uint8_t *restrict in, int64_t count, const float *restrict table, float *restrict out)
{
    int64_t i = 0;
    for (; i + BLOCK <= count; i += BLOCK) {
        if (all_zero(in + i, BLOCK)) {
            memset(out + i, 0, BLOCK * sizeof *out);
            continue;
        }
        for (int64_t j = i; j < i + BLOCK; j++) {
            out[j] = table[in[j]];
        }
    }
    for (; i < count; i++) {
        out[i] = table[in[i]];
    }
}

static void signal_u16(const uint16_t *restrict in, int64_t count, const float *restrict table, float *restrict out)
{
    int64_t i = 0;
    for (; i + BLOCK <= count; i += BLOCK) {
        if (all_zero(in + i, BLOCK * sizeof *in)) {
            memset(out + i, 0, BLOCK * sizeof *out);
            continue;
        }
        for (int64_t j = i; j < i + BLOCK; j++) {
            out[j] = table[in[j]];
        }
    }
    for (; i < count; i++) {
        out[i] = table[in[i]];
    }
}

int64_t flim_number_signal(flim_number number, const void *values, int64_t count, const float *table, float *out)
{
    if (number.kind == FLIM_UNSIGNED && number.size == 1) {
        signal_u8(values, count, table, out);
        return -1;
    }
    if (number.kind == FLIM_UNSIGNED && number.size == 2) {
        signal_u16(values, count, table, out);
        return -1;
    }
    int64_t bad = flim_number_counts(number, values, count, out);
    if (bad < 0) {
        flim_signal_from_counts(out, out, count);
    }
    return bad;
}

/* log1p in double without branches, so that the loop vectorises: d = 1 + x with its rounding error c; d = 2^k m with
 * sqrt(1/2) <= m < sqrt(2); log m = 2 atanh(s), s = (m-1)/(m+1), |s| <= 0.1716, by its series up to s^13 (error 3e-12
 * relative); log1p x = k ln 2 + log m + c / d.  Rounded to float the result is correct but for ties within 1e-11. */
static inline float log1p_tenth(float x)
{
    const int64_t offset = 0x3fe6a09e667f3bcd; /* bits of sqrt(1/2) */
    double value = x, d = 1.0 + value, c = value - (d - 1.0);
    int64_t bits, scale;
    memcpy(&bits, &d, sizeof bits);
    uint64_t k = (uint64_t)(bits - offset) >> 52; /* >= 0: d >= 1 */
    scale = bits - (int64_t)(k << 52);
    double m, exponent;
    memcpy(&m, &scale, sizeof m);
    uint64_t magic = k | 0x4330000000000000u; /* the double 2^52 + k */
    memcpy(&exponent, &magic, sizeof exponent);
    exponent -= 0x1p52;
    double s = (m - 1.0) / (m + 1.0), z = s * s;
    double series = z * (1.0 / 3 + z * (1.0 / 5 + z * (1.0 / 7 + z * (1.0 / 9 + z * (1.0 / 11 + z * (1.0 / 13))))));
    double log = exponent * 0.69314718055994530942 + (2.0 * s + 2.0 * s * series + c / d);
    return (float)log / 10.0f;
}

void flim_signal_from_counts(const float *counts, float *signal, int64_t count)
{
    int64_t i = 0;
    for (; i + BLOCK <= count; i += BLOCK) {
        float block[BLOCK];
        memcpy(block, counts + i, sizeof block);
        if (all_zero(block, sizeof block)) {
            memset(signal + i, 0, sizeof block);
            continue;
        }
        for (int j = 0; j < BLOCK; j++) {
            block[j] = log1p_tenth(block[j]);
        }
        memcpy(signal + i, block, sizeof block);
    }
    for (; i < count; i++) {
        signal[i] = log1p_tenth(counts[i]);
    }
}

void flim_signal_table(float *table)
{
    for (int i = 0; i < FLIM_TABLE_SIZE; i++) {
        table[i] = (float)i;
    }
    flim_signal_from_counts(table, table, FLIM_TABLE_SIZE);
}

/* Frames OR-ed into `seen`: a photon count is never negative and floats hold no -0, so any bit is a photon. */
#define MASK(name, type)                                                                                                     \
    static void name(const type *restrict values, int64_t frames, int64_t pixels, type *restrict seen,                       \
                     uint8_t *restrict mask)                                                                                 \
    {                                                                                                                        \
        memset(seen, 0, (size_t)pixels * sizeof *seen);                                                                      \
        for (int64_t t = 0; t < frames; t++) {                                                                               \
            const type *restrict frame = values + t * pixels;                                                                \
            for (int64_t i = 0; i < pixels; i++) {                                                                           \
                seen[i] |= frame[i];                                                                                         \
            }                                                                                                                \
        }                                                                                                                    \
        for (int64_t i = 0; i < pixels; i++) {                                                                               \
            mask[i] = seen[i] != 0;                                                                                          \
        }                                                                                                                    \
    }

MASK(mask_u8, uint8_t)
MASK(mask_u16, uint16_t)
MASK(mask_u32, uint32_t)

void flim_number_mask(flim_number number, const void *values, int64_t frames, int64_t pixels, uint32_t *seen, uint8_t *mask)
{
    if (number.size == 1) {
        mask_u8(values, frames, pixels, (uint8_t *)seen, mask);
    } else if (number.size == 2) {
        mask_u16(values, frames, pixels, (uint16_t *)seen, mask);
    } else {
        mask_u32(values, frames, pixels, seen, mask);
    }
}
