#include "data/transform.h"

#include <math.h>
#include <string.h>

#include "core/exact_math.h"
#include "core/try.h"
#include "data/number.h"

const flim_transform_info flim_transform_ops[FLIM_TRANSFORM_OPS] = {
    [FLIM_TRANSFORM_DIHEDRAL] = {"symmetry", "symmetries", 0, 7, 0, 7, .whole = true},
    [FLIM_TRANSFORM_TIME_SHIFT] = {"shift", "bins", -1048576, 1048576, -5, 5, .whole = true},
    [FLIM_TRANSFORM_SHIFT_FILL] = {"shift_fill", "bins", -1048576, 1048576, -5, 5, .whole = true, .alone = true},
    [FLIM_TRANSFORM_SHIFT_ZERO] = {"shift_zero", "bins", -1048576, 1048576, -5, 5, .whole = true, .alone = true,
                                   .not_physical = true},
    [FLIM_TRANSFORM_DRIFT] = {"drift", "bins", -1048576, 1048576, -5, 5, .alone = true, .photons = true},
    [FLIM_TRANSFORM_DRIFT_FILL] = {"drift_fill", "bins", -1048576, 1048576, -5, 5, .alone = true, .photons = true},
    [FLIM_TRANSFORM_THIN] = {"thin", "probability", 1e-6, 1, 0.4, 1, .photons = true, .changes = true},
    [FLIM_TRANSFORM_MATCH] = {"match", "photons", 1, 2147483647, 1, 0, .photons = true, .changes = true},
    [FLIM_TRANSFORM_BACKGROUND] = {"background", "photons", 0, 64, 0, 0.002, .photons = true, .changes = true},
    [FLIM_TRANSFORM_BOOTSTRAP] = {"bootstrap", "none", 0, 0, 0, 0, .photons = true, .changes = true, .not_physical = true},
    [FLIM_TRANSFORM_SCALE] = {"scale", "factor", 0, 16, 0.6, 1.4, .photons = true, .changes = true, .not_physical = true},
    [FLIM_TRANSFORM_MASK_DROP] = {"mask_drop", "none", 0, 0, 0, 0},
    [FLIM_TRANSFORM_BLUR] = {"blur", "pixels", 0, 2, 0.3, 0.8, .photons = true, .moves = true},
    [FLIM_TRANSFORM_ZOOM] = {"zoom", "factor", 0.25, 4, 0.85, 1.15, .photons = true, .moves = true},
    [FLIM_TRANSFORM_ELASTIC] = {"elastic", "pixels", 0, 8, 0.5, 1, .photons = true, .moves = true},
};

const char *flim_transform_needs_photons(const flim_transform *transform)
{
    for (int i = 0; i < transform->n; i++) {
        if (flim_transform_ops[transform->step[i].op].photons) {
            return flim_transform_ops[transform->step[i].op].name;
        }
    }
    return NULL;
}

/* ---- checks */

static bool is_allowed(double value, flim_transform_op op)
{
    return value >= flim_transform_ops[op].least && value <= flim_transform_ops[op].most &&
           (!flim_transform_ops[op].whole || floor(value) == value);
}

static flim_status compile_step(const flim_transform_step *in, int number, flim_transform_table *out, flim_error *err)
{
    if ((unsigned)in->op >= FLIM_TRANSFORM_OPS) {
        return flim_fail(err, FLIM_ERROR_USAGE, "step %d of a transform: operation %d is not known", number, (int)in->op);
    }
    const char *name = flim_transform_ops[in->op].name;
    double high = in->high;
    if (!(in->probability >= 0 && in->probability <= 1)) {
        return flim_fail(err, FLIM_ERROR_USAGE, "step %d of a transform, %s: probability %g, expected 0 to 1", number, name,
                         in->probability);
    }
    if (!is_allowed(in->low, in->op) || !is_allowed(in->high, in->op) || in->low > in->high) {
        return flim_fail(err, FLIM_ERROR_USAGE,
                         "step %d of a transform, %s: the range %g to %g, expected %s within %g to %g (%s)", number, name,
                         in->low, in->high, flim_transform_ops[in->op].whole ? "whole numbers" : "numbers",
                         flim_transform_ops[in->op].least, flim_transform_ops[in->op].most, flim_transform_ops[in->op].unit);
    }
    if (flim_transform_ops[in->op].alone && (in->low <= -out->t || in->high >= out->t)) {
        return flim_fail(err, FLIM_ERROR_USAGE,
                         "step %d of a transform, %s: the range %g to %g, but cells have %d bins; expected less than that",
                         number, name, in->low, in->high, out->t);
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
    out->step[number].low = in->low;
    out->step[number].high = high;
    out->step[number].below = (uint64_t)(in->probability * 4294967296.0);
    out->counts_photons = out->counts_photons || in->op == FLIM_TRANSFORM_MATCH;
    out->moves = out->moves || flim_transform_ops[in->op].moves;
    return FLIM_OK;
}

/* How many of each kind there may be. */
static flim_status check_together(const flim_transform *transform, flim_error *err)
{
    const char *alone = NULL;
    int changes = 0, moves = 0;
    for (int i = 0; i < transform->n; i++) {
        const flim_transform_op op = transform->step[i].op;
        changes += flim_transform_ops[op].changes;
        moves += flim_transform_ops[op].moves;
        if (flim_transform_ops[op].alone && alone) {
            return flim_fail(
                err, FLIM_ERROR_USAGE,
                "a transform with %s and %s, expected one of shift_fill, shift_zero, drift and drift_fill at most", alone,
                flim_transform_ops[op].name);
        }
        alone = flim_transform_ops[op].alone ? flim_transform_ops[op].name : alone;
    }
    if (moves > FLIM_MAX_MOVE_STEPS) {
        return flim_fail(err, FLIM_ERROR_USAGE, "a transform with %d of blur, zoom and elastic, expected at most %d", moves,
                         FLIM_MAX_MOVE_STEPS);
    }
    if (changes > FLIM_MAX_COUNT_STEPS) {
        return flim_fail(err, FLIM_ERROR_USAGE, "a transform with %d steps that change counts, expected at most %d", changes,
                         FLIM_MAX_COUNT_STEPS);
    }
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
    if (transform->n > 0 && (h > 8192 || w > 8192)) {
        return flim_fail(err, FLIM_ERROR_USAGE, "a transform of cells of %d x %d pixels, expected at most 8192 x 8192", h, w);
    }
    if (transform->n > 0 && (int64_t)h * w > INT32_MAX / t) {
        return flim_fail(err, FLIM_ERROR_USAGE, "a transform of cells of (T,H,W) = (%d,%d,%d), expected at most %d voxels", t,
                         h, w, INT32_MAX);
    }
    for (int i = 0; i < transform->n; i++) {
        FLIM_TRY(compile_step(&transform->step[i], i, out, err));
    }
    out->needs_photons = flim_transform_needs_photons(transform);
    return check_together(transform, err);
}

flim_status flim_transform_check(const flim_transform *transform, int t, int h, int w, flim_error *err)
{
    flim_transform_table ignored;
    return flim_transform_compile(transform, t, h, w, &ignored, err);
}

/* ---- draws */

/* A share as a 32-bit threshold; 2^32 itself does not occur where this is used. */
static uint32_t threshold(double share)
{
    const double scaled = share * 4294967296.0;
    return scaled >= 4294967295.0 ? UINT32_MAX : (uint32_t)scaled;
}

static double uniform(double low, double high, uint32_t word)
{
    return low + (high - low) * ((double)word / 4294967296.0);
}

/* low (high / low)^u, u the binary fraction 0.word: by square roots alone, which every machine rounds the same way. */
static double log_uniform(double low, double high, uint32_t word)
{
    double value = low, root = high / low;
    for (int bit = 31; bit >= 0; bit--) {
        root = sqrt(root);
        value *= word >> bit & 1 ? root : 1.0;
    }
    return value < high ? value : high;
}

/* Poisson of mean b <= 1: its terms b^k / k! summed, and divided by their sum (which is e^b). */
static flim_poisson poisson_of(double b)
{
    double term[32] = {1.0}, sum = 1.0, below = 0;
    flim_poisson p = {0};
    for (int k = 1; k < 32; k++) {
        term[k] = term[k - 1] * b / k;
        sum += term[k];
    }
    for (int k = 0; k < FLIM_POISSON_ENTRIES; k++) {
        below += term[k];
        const double scaled = floor(below / sum * 4294967296.0 + 0.5);
        if (scaled >= 4294967295.0) {
            break;
        }
        p.at_least[p.n++] = (uint32_t)scaled;
    }
    return p;
}

static void draw_shift(int32_t op, double drawn, int32_t bins, const uint32_t key[2], flim_cell_transform *out)
{
    const double whole = floor(drawn);
    const bool fill = op == FLIM_TRANSFORM_SHIFT_FILL || op == FLIM_TRANSFORM_DRIFT_FILL;
    out->edge = fill ? FLIM_EDGE_FILL : op == FLIM_TRANSFORM_SHIFT_ZERO ? FLIM_EDGE_ZERO : FLIM_EDGE_CIRCULAR;
    out->shift = (int32_t)whole;
    out->fraction = threshold(drawn - whole);
    out->tail = bins / 16 > 1 ? bins / 16 : 1;
    memcpy(out->key, key, sizeof out->key);
}

static void draw_count_step(int32_t op, double low, double high, uint32_t word, uint64_t photons, flim_count_step *out)
{
    double kept = 1;
    out->op = op;
    switch (op) {
    case FLIM_TRANSFORM_THIN: kept = log_uniform(low, high, word); break;
    case FLIM_TRANSFORM_MATCH: kept = log_uniform(low, high, word) / (photons > 0 ? (double)photons : 1.0); break;
    case FLIM_TRANSFORM_BACKGROUND: {
        const double b = uniform(low, high, word), rounds = ceil(b);
        out->number = (uint32_t)rounds;
        out->poisson = poisson_of(rounds > 0 ? b / rounds : 0);
        return;
    }
    case FLIM_TRANSFORM_BOOTSTRAP: out->poisson = poisson_of(1); return;
    default: out->number = (uint32_t)floor(uniform(low, high, word) * 65536.0 + 0.5); return;
    }
    out->op = kept < 1 ? FLIM_TRANSFORM_THIN : FLIM_TRANSFORM_OPS; /* else nothing is to be done */
    out->number = threshold(kept);
}

/* A Gaussian of standard deviation sigma at whole pixels, as a cumulative distribution. */
static void draw_blur(double sigma, flim_move_step *out)
{
    double weight[2 * FLIM_BLUR_REACH + 1], sum = 0, below = 0;
    for (int k = 0; k <= 2 * FLIM_BLUR_REACH; k++) {
        const double d = k - FLIM_BLUR_REACH;
        weight[k] = d == 0 ? 1 : sigma > 0 ? flim_exact_exp(-d * d / (2 * sigma * sigma)) : 0;
        sum += weight[k];
    }
    for (int k = 0; k < 2 * FLIM_BLUR_REACH; k++) {
        below += weight[k];
        out->at_least[k] = threshold(below / sum);
    }
}

static void draw_field(double most, flim_move_step *out)
{
    for (uint32_t node = 0; node < FLIM_FIELD_NODES * FLIM_FIELD_NODES; node++) {
        uint32_t word[4];
        flim_random_keyed_block(out->key, node, 0, FLIM_DRAW_COUNT, word);
        for (int i = 0; i < 2; i++) {
            out->field[node / FLIM_FIELD_NODES][node % FLIM_FIELD_NODES][i] =
                (int32_t)(uniform(-most, most, word[i]) * 65536.0);
        }
    }
}

static void draw_move(int32_t op, double low, double high, const uint32_t word[4], flim_move_step *out)
{
    *out = (flim_move_step){.op = op, .key = {word[2], word[3]}};
    if (op == FLIM_TRANSFORM_BLUR) {
        draw_blur(uniform(low, high, word[1]), out);
    } else if (op == FLIM_TRANSFORM_ELASTIC) {
        draw_field(uniform(low, high, word[1]), out);
    } else {
        const double factor = log_uniform(low, high, word[1]);
        out->factor = (int32_t)(factor * 65536.0 + 0.5);
        out->inverse = (int32_t)(65536.0 / factor + 0.5);
    }
}

void flim_transform_draw(const flim_transform_table *table, const flim_cell_id *id, uint64_t photons,
                         flim_cell_transform *out)
{
    memset(out, 0, sizeof *out);
    out->map = flim_dihedral_map(0, table->h, table->w);
    out->cell = id->cell;
    out->share = 1;
    for (int32_t s = 0; s < table->n; s++) {
        const int32_t op = table->step[s].op;
        const double low = table->step[s].low, high = table->step[s].high;
        uint32_t word[4];
        flim_random_block(id, FLIM_RANDOM_AUGMENT, (uint32_t)s, word);
        if (word[0] >= table->step[s].below) {
            continue;
        }
        const int32_t whole = (int32_t)low + (int32_t)((uint64_t)word[1] * (uint32_t)(high - low + 1) >> 32);
        flim_voxel_map step = flim_dihedral_map(op == FLIM_TRANSFORM_DIHEDRAL ? whole : 0, table->h, table->w);
        switch (op) {
        case FLIM_TRANSFORM_TIME_SHIFT:
            step.bins = -whole % table->t; /* output bin t takes input bin t - shift */
            step.bins += step.bins < 0 ? table->t : 0;
            out->map = flim_compose_maps(&out->map, &step, table->t);
            break;
        case FLIM_TRANSFORM_DIHEDRAL: out->map = flim_compose_maps(&out->map, &step, table->t); break;
        case FLIM_TRANSFORM_SHIFT_FILL:
        case FLIM_TRANSFORM_SHIFT_ZERO: draw_shift(op, whole, table->t, &word[2], out); break;
        case FLIM_TRANSFORM_DRIFT:
        case FLIM_TRANSFORM_DRIFT_FILL: draw_shift(op, uniform(low, high, word[1]), table->t, &word[2], out); break;
        case FLIM_TRANSFORM_MASK_DROP: out->drop_mask = 1; break;
        case FLIM_TRANSFORM_BLUR:
        case FLIM_TRANSFORM_ZOOM:
        case FLIM_TRANSFORM_ELASTIC: draw_move(op, low, high, word, &out->move[out->n_moves++]); break;
        default: {
            flim_count_step *count = &out->step[out->n_steps];
            *count = (flim_count_step){.key = {word[2], word[3]}};
            draw_count_step(op, low, high, word[1], photons, count);
            out->n_steps += count->op != FLIM_TRANSFORM_OPS;
        }
        }
    }
}

int flim_transform_draw_mixed(const flim_transform_table *table, const flim_cell_id *id, const flim_mix *mix, flim_mix_of of,
                              const uint64_t photons[2], flim_cell_transform out[2])
{
    const float share[2] = {1.0f - mix->share, mix->share};
    flim_cell_id ids[2] = {*id, *id};
    ids[1].cell = mix->cell;
    ids[1].repeat = mix->repeat;
    for (int part = 0; part < 2; part++) {
        flim_transform_draw(table, &ids[part], photons[part], &out[part]);
        if (!(mix->share > 0)) {
            return 1;
        }
        if (of == FLIM_MIX_INPUT) {
            out[part].share = share[part];
            continue;
        }
        uint32_t word[4];
        flim_random_block(id, FLIM_RANDOM_MIXUP, (uint32_t)part, word);
        out[part].step[out[part].n_steps++] =
            (flim_count_step){.op = FLIM_TRANSFORM_THIN, .key = {word[0], word[1]}, .number = threshold((double)share[part])};
    }
    return 2;
}

/* ---- applying */

/* A frame of bins that a shift left free. */
static void fill_frame(const flim_cell_transform *c, const flim_cell_view *cell, int32_t bin, float *out)
{
    const float *counts = cell->voxels;
    for (int32_t y = 0; y < cell->h; y++) {
        for (int32_t x = 0; x < cell->w; x++) {
            uint32_t unused;
            const int32_t pixel = flim_map_pixel(&c->map, cell->w, y, x);
            const int64_t at = flim_cell_source(c, cell->t, cell->h * cell->w, bin, pixel, &unused);
            *out++ = at < 0 ? 0.0f : counts[at];
        }
    }
}

/* Voxels move, whatever they hold. */
static void move(const flim_cell_transform *c, const flim_cell_view *cell, float *out)
{
    const flim_voxel_map *map = &c->map;
    const int32_t h = cell->h, w = cell->w, pixels = h * w;
    const int32_t step = flim_map_pixel(map, w, 0, 1) - flim_map_pixel(map, w, 0, 0); /* from one x to the next */
    for (int32_t t = 0; t < cell->t; t++, out += pixels) {
        const int32_t bin = t - c->shift;
        if (bin < 0 || bin >= cell->t) {
            fill_frame(c, cell, bin, out);
            continue;
        }
        const float *frame = (const float *)cell->voxels + (int64_t)flim_map_bin(map, cell->t, bin) * pixels; /* (H,W) */
        for (int32_t y = 0; y < h; y++) {
            const int32_t first = flim_map_pixel(map, w, y, 0);
            for (int32_t x = 0; x < w; x++) {
                out[y * w + x] = frame[first + step * x];
            }
        }
    }
}

static void change(const flim_cell_transform *c, const flim_cell_view *cell, const uint8_t *mask, float *out)
{
    const flim_voxel_map *map = &c->map;
    const int32_t w = cell->w, step = flim_map_pixel(map, w, 0, 1) - flim_map_pixel(map, w, 0, 0);
    for (int32_t t = 0; t < cell->t; t++) {
        for (int32_t y = 0; y < cell->h; y++) {
            const int32_t first = flim_map_pixel(map, w, y, 0);
            for (int32_t x = 0; x < w; x++) {
                const int32_t pixel = first + step * x;
                *out++ = (float)flim_cell_photons(c, cell, t, pixel, mask[pixel] != 0);
            }
        }
    }
}

/* As `change`, and each photon to where it goes. */
static void scatter(const flim_cell_transform *c, const flim_cell_view *cell, const uint8_t *mask, float *out)
{
    const int32_t h = cell->h, w = cell->w, pixels = h * w;
    for (int64_t i = 0; i < (int64_t)cell->t * pixels; i++) {
        out[i] = 0;
    }
    for (int32_t t = 0; t < cell->t; t++, out += pixels) {
        for (int32_t at = 0; at < pixels; at++) {
            const int32_t y = at / w, x = at % w, pixel = flim_map_pixel(&c->map, w, y, x);
            const bool in_mask = mask[pixel] != 0;
            const uint32_t n = flim_cell_photons(c, cell, t, pixel, in_mask);
            for (uint32_t photon = 0; photon < n; photon++) {
                const int32_t to = flim_photon_goes_to(c, mask, h, w, t, y, x, in_mask, photon);
                if (to >= 0 && out[to] < (float)FLIM_MOST_PHOTONS) {
                    out[to]++;
                }
            }
        }
    }
}

uint64_t flim_sum_of_photons(const float *counts, int64_t n)
{
    uint64_t sum = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += (uint64_t)(int32_t)counts[i];
    }
    return sum;
}

flim_status flim_transform_check_photons(const char *needs, const float *counts, int64_t n, flim_error *err)
{
    return needs && flim_counts_bytes(counts, n) == 4 ? flim_fail(err, FLIM_ERROR_DATA, FLIM_NO_PHOTONS, needs) : FLIM_OK;
}

void flim_cell_apply(const flim_cell_transform *drawn, int t, int h, int w, const float *counts, const uint8_t *mask,
                     float *out, uint8_t *mask_out)
{
    const flim_cell_view cell = {counts, 4, t, h, w};
    if (flim_cell_only_copies(drawn)) {
        move(drawn, &cell, out);
    } else if (drawn->n_moves == 0) {
        change(drawn, &cell, mask, out);
    } else {
        scatter(drawn, &cell, mask, out);
    }
    for (int32_t y = 0; y < h; y++) {
        for (int32_t x = 0; x < w; x++) {
            *mask_out++ = !drawn->drop_mask && flim_cell_mask(drawn, mask, h, w, y, x);
        }
    }
}

flim_status flim_transform_apply(const flim_transform_table *table, const flim_cell_id *id, const float *counts,
                                 const uint8_t *mask, float *out, uint8_t *mask_out, flim_error *err)
{
    const int64_t voxels = (int64_t)table->t * table->h * table->w;
    flim_cell_transform drawn;
    FLIM_TRY(flim_transform_check_photons(table->needs_photons, counts, voxels, err));
    flim_transform_draw(table, id, table->counts_photons ? flim_sum_of_photons(counts, voxels) : 0, &drawn);
    flim_cell_apply(&drawn, table->t, table->h, table->w, counts, mask, out, mask_out);
    return FLIM_OK;
}
