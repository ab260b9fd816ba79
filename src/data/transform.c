#include "data/transform.h"

#include <math.h>
#include <stdbool.h>

#include "core/try.h"

/* One row per operation: its name in messages, and the numbers that it can draw. */
static const struct {
    const char *name, *unit;
    double least, most;
} operation[FLIM_TRANSFORM_OPS] = {
    [FLIM_TRANSFORM_DIHEDRAL] = {"dihedral", "symmetries", 0, 7},
    [FLIM_TRANSFORM_TIME_SHIFT] = {"time_shift", "bins", -1048576, 1048576},
};

static bool is_whole(double value, double least, double most)
{
    return value >= least && value <= most && floor(value) == value;
}

static flim_status compile_step(const flim_transform_step *in, int number, flim_transform_table *out, flim_error *err)
{
    if ((unsigned)in->op >= FLIM_TRANSFORM_OPS) {
        return flim_fail(err, FLIM_ERROR_USAGE, "step %d of a transform: operation %d is not known", number, (int)in->op);
    }
    const char *name = operation[in->op].name;
    const double least = operation[in->op].least;
    double most = operation[in->op].most, high = in->high;
    if (!(in->probability >= 0 && in->probability <= 1)) {
        return flim_fail(err, FLIM_ERROR_USAGE, "step %d of a transform, %s: probability %g, expected 0 to 1", number, name,
                         in->probability);
    }
    if (!is_whole(in->low, least, most) || !is_whole(in->high, least, most) || in->low > in->high) {
        return flim_fail(err, FLIM_ERROR_USAGE,
                         "step %d of a transform, %s: the range %g to %g, expected whole numbers within %g to %g (%s)",
                         number, name, in->low, in->high, least, most, operation[in->op].unit);
    }
    if (in->op == FLIM_TRANSFORM_DIHEDRAL && out->h != out->w) {
        high = fmin(high, 3);
        if (in->low > high) {
            return flim_fail(
                err, FLIM_ERROR_USAGE,
                "step %d of a transform, %s: symmetries %g to %g exchange rows and columns, but cells have %d rows "
                "and %d columns; expected symmetries within 0 to 3",
                number, name, in->low, in->high, out->h, out->w);
        }
    }
    out->step[number].op = (int32_t)in->op;
    out->step[number].low = (int32_t)in->low;
    out->step[number].count = (uint32_t)(high - in->low) + 1;
    out->step[number].below = (uint64_t)(in->probability * 4294967296.0);
    return FLIM_OK;
}

flim_status flim_transform_compile(const flim_transform *transform, int t, int h, int w, flim_transform_table *out,
                                   flim_error *err)
{
    *out = (flim_transform_table){.n = transform->n, .t = t, .h = h, .w = w};
    if (transform->n < 0 || transform->n > FLIM_MAX_TRANSFORM_STEPS) {
        return flim_fail(err, FLIM_ERROR_USAGE, "a transform of %d steps, expected 0 to %d", transform->n,
                         FLIM_MAX_TRANSFORM_STEPS);
    }
    if (transform->n > 0 && (int64_t)h * w > INT32_MAX / t) {
        return flim_fail(err, FLIM_ERROR_USAGE, "a transform of cells of (T,H,W) = (%d,%d,%d), expected at most %d voxels", t,
                         h, w, INT32_MAX);
    }
    for (int i = 0; i < transform->n; i++) {
        FLIM_TRY(compile_step(&transform->step[i], i, out, err));
    }
    return FLIM_OK;
}

flim_status flim_transform_check(const flim_transform *transform, int t, int h, int w, flim_error *err)
{
    flim_transform_table ignored;
    return flim_transform_compile(transform, t, h, w, &ignored, err);
}

void flim_transform_apply(const flim_transform_table *table, const flim_cell_id *id, const float *counts, const uint8_t *mask,
                          float *out, uint8_t *mask_out)
{
    const flim_voxel_map map = flim_transform_map(table, id);
    const int32_t t_size = table->t, h = table->h, w = table->w, pixels = h * w;
    const int32_t step = flim_map_pixel(&map, w, 0, 1) - flim_map_pixel(&map, w, 0, 0); /* from one x to the next */
    for (int32_t t = 0; t < t_size; t++) {
        const float *frame = counts + (int64_t)flim_map_bin(&map, t_size, t) * pixels; /* (H,W) */
        for (int32_t y = 0; y < h; y++) {
            const int32_t first = flim_map_pixel(&map, w, y, 0);
            for (int32_t x = 0; x < w; x++) {
                *out++ = frame[first + step * x];
            }
        }
    }
    for (int32_t y = 0; y < h; y++) {
        for (int32_t x = 0; x < w; x++) {
            *mask_out++ = mask[flim_map_pixel(&map, w, y, x)];
        }
    }
}
