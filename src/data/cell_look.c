#include "data/cell_look.h"

#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "core/try.h"
#include "data/cell_pattern.h"
#include "data/cell_values.h"
#include "data/dataset_internal.h"

enum { MOST_SHIFT = 3 };

struct flim_cell_look {
    const flim_dataset *dataset;
    flim_cell_pattern *pattern;
    double *image; /* (H,W) photons of each pixel */
    int64_t *begin; /* (T+1) these four: flim_lit_voxels, in room for all voxels and one more */
    int32_t *pixel;
    uint32_t *count;
    float *value; /* as stored */
};

flim_status flim_cell_look_create(const flim_dataset *d, flim_cell_look **out, flim_error *err)
{
    flim_status status = FLIM_OK;
    *out = NULL;
    flim_cell_look *look = flim_alloc(1, sizeof *look, err);
    FLIM_TRY_DONE(look ? FLIM_OK : FLIM_ERROR_MEMORY);
    look->dataset = d;
    look->image = flim_alloc((size_t)d->pixels, sizeof *look->image, err);
    look->begin = flim_alloc((size_t)d->info.t + 1, sizeof *look->begin, err);
    look->pixel = flim_alloc_aligned((size_t)d->voxels + 1, sizeof *look->pixel, err);
    look->count = flim_alloc_aligned((size_t)d->voxels + 1, sizeof *look->count, err);
    look->value = flim_alloc_aligned((size_t)d->voxels + 1, sizeof *look->value, err);
    FLIM_TRY_DONE(look->image && look->begin && look->pixel && look->count && look->value ? FLIM_OK : FLIM_ERROR_MEMORY);
    status = flim_cell_pattern_create(d->info.t, d->info.h, d->info.w, &look->pattern, err);
done:
    if (status == FLIM_OK) {
        *out = look;
    } else {
        flim_cell_look_destroy(look);
    }
    return status;
}

void flim_cell_look_destroy(flim_cell_look *look)
{
    if (look) {
        flim_cell_pattern_destroy(look->pattern);
        flim_free(look->image);
        flim_free(look->begin);
        flim_free(look->pixel);
        flim_free(look->count);
        flim_free(look->value);
        flim_free(look);
    }
}

/* Bits that are equal for floats that are equal up to a power of two. */
static uint32_t mantissa_of(float value, int exponent)
{
    const float scaled = ldexpf(value, -exponent);
    uint32_t bits;
    memcpy(&bits, &scaled, sizeof bits);
    return bits;
}

/* look->count from look->value (n): whole numbers that a factor has made of each other stay so. */
static void make_counts(flim_cell_look *look, int64_t n, const flim_cell_summary *of)
{
    int exponent = 0;
    float most = 0;
    for (int64_t i = 0; i < n; i++) {
        most = look->value[i] > most ? look->value[i] : most;
    }
    frexpf(most, &exponent);
    for (int64_t i = 0; i < n; i++) {
        if (of->values == FLIM_VALUES_WHOLE) {
            look->count[i] = (uint32_t)look->value[i];
        } else if (of->values == FLIM_VALUES_OTHER) {
            look->count[i] = mantissa_of(look->value[i], exponent);
        } else {
            const double count = flim_value_count(of->values, of->unit, (double)look->value[i]);
            look->count[i] = count < 4294967295.0 ? (uint32_t)count : UINT32_MAX;
        }
    }
}

/* The voxels above 0 into begin, pixel and value; returns how many. */
static int64_t gather(flim_cell_look *look, const float *counts)
{
    const flim_dataset *d = look->dataset;
    int64_t n = 0;
    for (int t = 0; t < d->info.t; t++) {
        const float *frame = counts + (int64_t)t * d->pixels;
        look->begin[t] = n;
        for (int64_t i = 0; i < d->pixels; i++) { /* without a branch: which voxels are lit cannot be foretold */
            look->pixel[n] = (int32_t)i;
            look->value[n] = frame[i];
            n += frame[i] > 0.0f;
        }
    }
    look->begin[d->info.t] = n;
    return n;
}

/* Pixel of the mask that lies over pixel (y, x) of the counts, -1 = none. */
static int64_t under(flim_mask_place place, int y, int x, int h, int w)
{
    switch (place) {
    case FLIM_MASK_TRANSPOSED: return h == w ? (int64_t)x * w + y : -1;
    case FLIM_MASK_OTHER_TRANSPOSED: return h == w ? (int64_t)(w - 1 - x) * w + (h - 1 - y) : -1;
    case FLIM_MASK_QUARTER_TURN: return h == w ? (int64_t)x * w + (h - 1 - y) : -1;
    case FLIM_MASK_THREE_QUARTER_TURN: return h == w ? (int64_t)(w - 1 - x) * w + y : -1;
    case FLIM_MASK_FLIPPED_ROWS: return (int64_t)(h - 1 - y) * w + x;
    case FLIM_MASK_FLIPPED_COLUMNS: return (int64_t)y * w + (w - 1 - x);
    case FLIM_MASK_HALF_TURN: return (int64_t)(h - 1 - y) * w + (w - 1 - x);
    default: return (int64_t)y * w + x;
    }
}

static double photons_under(const flim_cell_look *look, const uint8_t *mask, flim_mask_place place)
{
    const int h = look->dataset->info.h, w = look->dataset->info.w;
    double sum = 0;
    for (int y = 0; y < h; y++) {
        for (int x = 0; x < w; x++) {
            const int64_t at = under(place, y, x, h, w);
            sum += at >= 0 && mask[at] ? look->image[y * w + x] : 0.0;
        }
    }
    return sum;
}

/* The most that the mask holds if it is shifted by up to MOST_SHIFT pixels. */
static double photons_under_shifted(const flim_cell_look *look, const uint8_t *mask)
{
    const int h = look->dataset->info.h, w = look->dataset->info.w;
    double most = 0;
    for (int dy = -MOST_SHIFT; dy <= MOST_SHIFT; dy++) {
        for (int dx = -MOST_SHIFT; dx <= MOST_SHIFT; dx++) {
            double sum = 0;
            const int first = dx > 0 ? dx : 0, end = dx < 0 ? w + dx : w;
            for (int y = dy > 0 ? dy : 0; y < h && y - dy < h; y++) {
                const int64_t row = (int64_t)(y - dy) * w - dx;
                for (int x = first; x < end; x++) {
                    sum += mask[row + x] ? look->image[y * w + x] : 0.0;
                }
            }
            most = sum > most ? sum : most;
        }
    }
    return most;
}

static void fit_mask(const flim_cell_look *look, int64_t cell, double photons, float inside[FLIM_N_MASK_PLACES])
{
    const flim_dataset *d = look->dataset;
    int64_t local;
    const flim_dataset_file *file = flim_dataset_locate(d, cell, &local);
    const uint8_t *mask = d->mask + cell * d->pixels;
    const bool before = local > 0, after = local + 1 < file->source->info.n, square = d->info.h == d->info.w;
    for (flim_mask_place place = 0; place < FLIM_N_MASK_PLACES; place++) {
        const bool turns = place == FLIM_MASK_TRANSPOSED || place == FLIM_MASK_OTHER_TRANSPOSED ||
                           place == FLIM_MASK_QUARTER_TURN || place == FLIM_MASK_THREE_QUARTER_TURN;
        if (place == FLIM_MASK_SHIFTED) {
            inside[place] = (float)(photons_under_shifted(look, mask) / photons);
        } else if (place == FLIM_MASK_INVERTED) {
            inside[place] = 1 - inside[FLIM_MASK_AS_IT_IS];
        } else if (place == FLIM_MASK_OF_CELL_BEFORE) {
            inside[place] = before ? (float)(photons_under(look, mask - d->pixels, place) / photons) : NAN;
        } else if (place == FLIM_MASK_OF_CELL_AFTER) {
            inside[place] = after ? (float)(photons_under(look, mask + d->pixels, place) / photons) : NAN;
        } else {
            inside[place] = turns && !square ? NAN : (float)(photons_under(look, mask, place) / photons);
        }
    }
}

void flim_cell_look_at(flim_cell_look *look, int64_t cell, const float *counts, flim_cell_summary *out)
{
    const flim_dataset *d = look->dataset;
    const int64_t n = gather(look, counts);
    const flim_lit_voxels lit = {look->begin, look->pixel, look->count};
    memset(look->image, 0, (size_t)d->pixels * sizeof *look->image);
    out->stored_photons = 0;
    for (int64_t i = 0; i < n; i++) {
        look->image[look->pixel[i]] += (double)look->value[i];
        out->stored_photons += (double)look->value[i];
    }
    out->values = flim_values_of(look->value, n, &out->unit);
    make_counts(look, n, out);
    out->pattern = flim_cell_pattern_of(look->pattern, &lit);
    for (int place = 0; place < FLIM_N_MASK_PLACES; place++) {
        out->inside[place] = NAN;
    }
    if (d->mask && out->stored_photons > 0) {
        fit_mask(look, cell, out->stored_photons, out->inside);
    }
}
