#include "import/counts.h"

#include <string.h>

#include "core/alloc.h"

enum {
    AT_ONCE = 32, /* pixels: a cache line of two-byte counts is written whole */
    ROW = 8192, /* pixels whose sums stay in a near cache */
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

/* _decay: the sum of n counts `step` apart.  _row: the photons of n pixels `step` apart, the first of them `first` counts behind
 * the first of all.  ACC holds the sum of MOST_TERMS counts. */
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
    static void NAME##_row(const flim_counts *c, int64_t first, int64_t step, int64_t n, uint64_t *sum)                      \
    {                                                                                                                        \
        const TYPE *base = (const TYPE *)c->data + first;                                                                    \
        for (int64_t done = 0; done < c->t; done += MOST_TERMS) {                                                            \
            const int64_t end = c->t - done < MOST_TERMS ? c->t : done + MOST_TERMS;                                         \
            ACC part[ROW] = {0};                                                                                             \
            for (int64_t t = done; t < end; t++) {                                                                           \
                const TYPE *at = base + t * c->t_step;                                                                       \
                for (int64_t i = 0; i < n && step == 1; i++) {                                                               \
                    part[i] += at[i];                                                                                        \
                }                                                                                                            \
                for (int64_t i = 0; i < n && step != 1; i++) {                                                               \
                    part[i] += at[i * step];                                                                                 \
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

/* sum (n): set, not added to. */
static void sum_row(const flim_counts *c, int64_t first, int64_t step, int64_t n, uint64_t *sum)
{
    memset(sum, 0, (size_t)n * sizeof *sum);
    switch (c->bytes) {
    case 1: sum_1_row(c, first, step, n, sum); break;
    case 2: sum_2_row(c, first, step, n, sum); break;
    default: sum_4_row(c, first, step, n, sum); break;
    }
}

/* Pictures, one after another: along the axis whose pixels lie closer (MATLAB's is y), and on into the next row if it follows. */
static void sum_pictures(const flim_counts *c, uint64_t *of_pixel)
{
    const bool by_column = c->y_step < c->x_step;
    const int64_t length = by_column ? c->y : c->x, step = by_column ? c->y_step : c->x_step;
    const int64_t rows = by_column ? c->x : c->y, row_step = by_column ? c->x_step : c->y_step;
    const bool follow = row_step == length * step;
    const int64_t whole = follow ? rows * length : length;
    for (int64_t row = 0; row < (follow ? 1 : rows); row++) {
        for (int64_t i = 0; i < whole; i += ROW) {
            const int64_t n = whole - i < ROW ? whole - i : ROW;
            uint64_t sum[ROW];
            sum_row(c, row * row_step + i * step, step, n, by_column ? sum : of_pixel + row * length + i);
            for (int64_t k = 0; k < n && by_column; k++) {
                const int64_t pixel = row * length + i + k;
                of_pixel[pixel % length * c->x + pixel / length] = sum[k];
            }
        }
    }
}

void flim_counts_sum(const flim_counts *c, uint64_t *of_pixel)
{
    if (c->t_step >= c->x_step || c->t_step >= c->y_step) {
        sum_pictures(c, of_pixel);
        return;
    }
    for (int64_t y = 0; y < c->y; y++) {
        for (int64_t x = 0; x < c->x; x++) {
            of_pixel[y * c->x + x] = sum_decay(c, y * c->y_step + x * c->x_step);
        }
    }
}

/* ---- cells ---- */

/* A run into planes t0 <= t < t1 of OUT, from counts of IN.  MOST: the largest that OUT can hold; counts of IN alone may be larger
 * if they are wider. */
#define MAKE_GATHER(NAME, IN, OUT, MOST)                                                                                     \
    static bool NAME(const flim_counts *c, int64_t factor, int64_t t0, int64_t t1, const flim_pixel_run *r, int64_t pixels,  \
                     OUT *out)                                                                                               \
    {                                                                                                                        \
        const int64_t step = c->x_step, n = r->n;                                                                            \
        uint64_t high = 0;                                                                                                   \
        for (int64_t t = t0; t < t1; t++) {                                                                                  \
            const IN *at = (const IN *)c->data + t * factor * c->t_step + r->from;                                           \
            OUT *plane = out + t * pixels + r->to;                                                                           \
            if (factor == 1 && sizeof(IN) <= sizeof(OUT)) {                                                                  \
                for (int64_t i = 0; i < n && step == 1; i++) {                                                               \
                    plane[i] = (OUT)at[i];                                                                                   \
                }                                                                                                            \
                for (int64_t i = 0; i < n && step != 1; i++) {                                                               \
                    plane[i] = (OUT)at[i * step];                                                                            \
                }                                                                                                            \
                continue;                                                                                                    \
            }                                                                                                                \
            for (int64_t i = 0; i < n; i++) {                                                                                \
                uint64_t sum = 0;                                                                                            \
                for (int64_t k = 0; k < factor; k++) {                                                                       \
                    sum += at[i * step + k * c->t_step];                                                                     \
                }                                                                                                            \
                high = sum > high ? sum : high;                                                                              \
                plane[i] = (OUT)sum;                                                                                         \
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

static bool gather(const flim_counts *c, int64_t factor, int64_t t0, int64_t t1, const flim_pixel_run *r, int64_t pixels,
                   int out_bytes, void *out)
{
    if (out_bytes == 2) {
        return c->bytes == 1   ? gather_1_to_2(c, factor, t0, t1, r, pixels, out)
               : c->bytes == 2 ? gather_2_to_2(c, factor, t0, t1, r, pixels, out)
                               : gather_4_to_2(c, factor, t0, t1, r, pixels, out);
    }
    return c->bytes == 1   ? gather_1_to_4(c, factor, t0, t1, r, pixels, out)
           : c->bytes == 2 ? gather_2_to_4(c, factor, t0, t1, r, pixels, out)
                           : gather_4_to_4(c, factor, t0, t1, r, pixels, out);
}

/* Decays that lie together are turned a few pixels at a time, over all time bins; pictures are copied one after another. */
bool flim_counts_gather(const flim_counts *c, int64_t bins, const flim_pixel_run *run, int64_t n, int64_t pixels,
                        int out_bytes, void *out)
{
    const int64_t factor = c->t / bins;
    bool fit = true;
    for (int64_t k = 0; k < n && c->t_step < c->x_step; k++) {
        for (int64_t i = 0; i < run[k].n; i += AT_ONCE) {
            const int64_t left = run[k].n - i;
            const flim_pixel_run part = {run[k].from + i * c->x_step, run[k].to + i, left < AT_ONCE ? left : AT_ONCE};
            fit = gather(c, factor, 0, bins, &part, pixels, out_bytes, out) && fit;
        }
    }
    for (int64_t t = 0; t < bins && c->t_step >= c->x_step; t++) {
        for (int64_t k = 0; k < n; k++) {
            fit = gather(c, factor, t, t + 1, &run[k], pixels, out_bytes, out) && fit;
        }
    }
    return fit;
}
