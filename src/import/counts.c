#include "import/counts.h"

#include <string.h>

#include "core/alloc.h"

enum {
    AT_ONCE = 32, /* pixels: a cache line of two-byte counts is written whole */
    ROW = 512, /* pixels whose sums stay in the nearest cache */
    MOST_TERMS = 1 << 16 /* two-byte counts whose sum fits 32 bits */
};

void flim_counts_free(flim_counts *counts)
{
    flim_free(counts->memory);
    *counts = (flim_counts){0};
}

/* ---- elements as counts ---- */

/* Are the bits of n signed integers of the machine's order those of counts?  They are if no sign is set. */
static bool all_positive(const uint8_t *bytes, int size, size_t n)
{
    uint8_t signs = 0;
    const size_t high = __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__ ? 0 : (size_t)size - 1;
    for (size_t i = 0; i < n; i++) {
        signs |= bytes[i * (size_t)size + high];
    }
    return signs < 0x80;
}

flim_status flim_counts_from_elements(const flim_element *element, const uint8_t *bytes, size_t n, const void **data,
                                      int *size, void **memory, size_t *good, flim_error *err)
{
    const int width = element->bytes;
    const bool integer = element->kind != 'f' && (width == 1 || width == 2 || width == 4);
    const bool own_order = width == 1 || element->big == (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__);
    *memory = NULL;
    *good = n;
    if (integer && own_order && (element->kind != 'i' || all_positive(bytes, width, n))) {
        *size = width;
        *data = bytes;
        if ((uintptr_t)bytes % (uintptr_t)width == 0) {
            return FLIM_OK;
        }
        if (!(*memory = flim_alloc_large(n, (size_t)width, err))) {
            return FLIM_ERROR_MEMORY;
        }
        memcpy(*memory, bytes, n * (size_t)width);
        *data = *memory;
        return FLIM_OK;
    }
    uint32_t *wide = flim_alloc_large(n, sizeof *wide, err); /* (n) */
    if (!wide) {
        return FLIM_ERROR_MEMORY;
    }
    *good = flim_elements_read(element, bytes, width, n, wide);
    if (*good < n) {
        flim_free(wide);
        return FLIM_OK;
    }
    *size = (int)sizeof *wide;
    *data = *memory = wide;
    return FLIM_OK;
}

/* ---- sums ---- */

/* SUM_DECAY: of n counts `step` apart.  ADD_ROW: each of n counts `step` apart to a sum.  MAKE(NAME, TYPE, ACC): ACC holds the sum
 * of MOST_TERMS counts. */
#define MAKE_SUMS(NAME, TYPE, ACC)                                                                                           \
    static uint64_t NAME##_decay(const TYPE *at, int64_t n, int64_t step)                                                    \
    {                                                                                                                        \
        uint64_t sum = 0;                                                                                                    \
        for (int64_t done = 0; done < n; done += MOST_TERMS) {                                                               \
            const int64_t end = n - done < MOST_TERMS ? n : done + MOST_TERMS;                                               \
            ACC part = 0;                                                                                                    \
            for (int64_t i = done; i < end && step == 1; i++) {                                                              \
                part += at[i];                                                                                               \
            }                                                                                                                \
            for (int64_t i = done; i < end && step != 1; i++) {                                                              \
                part += at[i * step];                                                                                        \
            }                                                                                                                \
            sum += part;                                                                                                     \
        }                                                                                                                    \
        return sum;                                                                                                          \
    }                                                                                                                        \
    static void NAME##_row(const flim_counts *c, int64_t first, int64_t n, uint64_t *sum)                                    \
    {                                                                                                                        \
        const TYPE *base = (const TYPE *)c->data + first;                                                                    \
        for (int64_t done = 0; done < c->t; done += MOST_TERMS) {                                                            \
            const int64_t end = c->t - done < MOST_TERMS ? c->t : done + MOST_TERMS;                                         \
            ACC part[ROW] = {0};                                                                                             \
            for (int64_t t = done; t < end; t++) {                                                                           \
                const TYPE *at = base + t * c->t_step;                                                                       \
                for (int64_t i = 0; i < n && c->x_step == 1; i++) {                                                          \
                    part[i] += at[i];                                                                                        \
                }                                                                                                            \
                for (int64_t i = 0; i < n && c->x_step != 1; i++) {                                                          \
                    part[i] += at[i * c->x_step];                                                                            \
                }                                                                                                            \
            }                                                                                                                \
            for (int64_t i = 0; i < n; i++) {                                                                                \
                sum[i] += part[i];                                                                                           \
            }                                                                                                                \
        }                                                                                                                    \
    }
MAKE_SUMS(sum_1, uint8_t, uint32_t)
MAKE_SUMS(sum_2, uint16_t, uint32_t)
MAKE_SUMS(sum_4, uint32_t, uint64_t)

static uint64_t sum_decay(const flim_counts *c, int64_t first)
{
    switch (c->bytes) {
    case 1: return sum_1_decay((const uint8_t *)c->data + first, c->t, c->t_step);
    case 2: return sum_2_decay((const uint16_t *)c->data + first, c->t, c->t_step);
    default: return sum_4_decay((const uint32_t *)c->data + first, c->t, c->t_step);
    }
}

static void sum_row(const flim_counts *c, int64_t first, int64_t n, uint64_t *sum)
{
    switch (c->bytes) {
    case 1: sum_1_row(c, first, n, sum); break;
    case 2: sum_2_row(c, first, n, sum); break;
    default: sum_4_row(c, first, n, sum); break;
    }
}

void flim_counts_sum(const flim_counts *c, uint64_t *of_pixel)
{
    const bool decays_lie_together = c->t_step < c->x_step;
    for (int64_t y = 0; y < c->y; y++) {
        uint64_t *row = of_pixel + y * c->x;
        for (int64_t x = 0; x < c->x && decays_lie_together; x++) {
            row[x] = sum_decay(c, y * c->y_step + x * c->x_step);
        }
        for (int64_t x = 0; x < c->x && !decays_lie_together; x += ROW) {
            const int64_t n = c->x - x < ROW ? c->x - x : ROW;
            memset(row + x, 0, (size_t)n * sizeof *row);
            sum_row(c, y * c->y_step + x * c->x_step, n, row + x);
        }
    }
}

/* ---- cells ---- */

/* n <= AT_ONCE pixels of the list. */
typedef struct pixel_block {
    const int64_t *from;
    const int32_t *to;
    int64_t n;
    bool run; /* from and to grow by one from pixel to pixel */
} pixel_block;

static pixel_block block_of(const int64_t *from, const int32_t *to, int64_t n)
{
    pixel_block b = {from, to, n < AT_ONCE ? n : AT_ONCE, true};
    for (int64_t i = 1; i < b.n; i++) {
        b.run = b.run && from[i] == from[0] + i && to[i] == to[0] + i;
    }
    return b;
}

/* Planes of OUT from counts of IN.  MOST: the largest that OUT can hold; counts of IN alone may be larger if they are wider. */
#define MAKE_GATHER(NAME, IN, OUT, MOST)                                                                                     \
    static bool NAME(const flim_counts *c, int64_t bins, const pixel_block *b, int64_t pixels, OUT *out)                     \
    {                                                                                                                        \
        const int64_t factor = c->t / bins;                                                                                  \
        uint64_t high = 0;                                                                                                   \
        for (int64_t t = 0; t < bins; t++) {                                                                                 \
            const IN *at = (const IN *)c->data + t * factor * c->t_step;                                                     \
            OUT *plane = out + t * pixels;                                                                                   \
            if (factor == 1 && sizeof(IN) <= sizeof(OUT)) {                                                                  \
                for (int64_t i = 0; i < b->n && b->run; i++) {                                                               \
                    plane[b->to[0] + i] = (OUT)at[b->from[0] + i];                                                           \
                }                                                                                                            \
                for (int64_t i = 0; i < b->n && !b->run; i++) {                                                              \
                    plane[b->to[i]] = (OUT)at[b->from[i]];                                                                   \
                }                                                                                                            \
                continue;                                                                                                    \
            }                                                                                                                \
            for (int64_t i = 0; i < b->n; i++) {                                                                             \
                uint64_t sum = 0;                                                                                            \
                for (int64_t k = 0; k < factor; k++) {                                                                       \
                    sum += at[b->from[i] + k * c->t_step];                                                                   \
                }                                                                                                            \
                high = sum > high ? sum : high;                                                                              \
                plane[b->to[i]] = (OUT)sum;                                                                                  \
            }                                                                                                                \
        }                                                                                                                    \
        return high <= (MOST);                                                                                               \
    }
MAKE_GATHER(gather_1_to_2, uint8_t, uint16_t, UINT16_MAX)
MAKE_GATHER(gather_2_to_2, uint16_t, uint16_t, UINT16_MAX)
MAKE_GATHER(gather_4_to_2, uint32_t, uint16_t, UINT16_MAX)
MAKE_GATHER(gather_1_to_4, uint8_t, uint32_t, UINT32_MAX)
MAKE_GATHER(gather_2_to_4, uint16_t, uint32_t, UINT32_MAX)
MAKE_GATHER(gather_4_to_4, uint32_t, uint32_t, UINT32_MAX)

static bool gather_block(const flim_counts *c, int64_t bins, const pixel_block *b, int64_t pixels, int out_bytes, void *out)
{
    if (out_bytes == 2) {
        return c->bytes == 1   ? gather_1_to_2(c, bins, b, pixels, out)
               : c->bytes == 2 ? gather_2_to_2(c, bins, b, pixels, out)
                               : gather_4_to_2(c, bins, b, pixels, out);
    }
    return c->bytes == 1   ? gather_1_to_4(c, bins, b, pixels, out)
           : c->bytes == 2 ? gather_2_to_4(c, bins, b, pixels, out)
                           : gather_4_to_4(c, bins, b, pixels, out);
}

bool flim_counts_gather(const flim_counts *c, int64_t bins, const int64_t *from, const int32_t *to, int64_t n, int64_t pixels,
                        int out_bytes, void *out)
{
    bool fit = true;
    for (int64_t i = 0; i < n && fit; i += AT_ONCE) {
        const pixel_block b = block_of(from + i, to + i, n - i);
        fit = gather_block(c, bins, &b, pixels, out_bytes, out);
    }
    return fit;
}
