/* Transforms that change counts: every voxel against a plain reference, the statistics that physics asks for, totals, edges,
 * and the loader. */
#include "data/h5_files.h"

#include <math.h>

#include "data/transform.h"
#include "flim/augment.h"
#include "flim/dataset_writer.h"
#include "flim/loader.h"
#include "reference/reference.h"

enum { MOST_VOXELS = 4096 };

typedef struct shape {
    int t, h, w;
} shape;

static flim_transform_table compiled(const flim_transform *transform, const shape *s)
{
    flim_transform_table table;
    flim_error err = {0};
    if (flim_transform_compile(transform, s->t, s->h, s->w, &table, &err) != FLIM_OK) {
        fail_msg("(%d,%d,%d): %s", s->t, s->h, s->w, err.text);
    }
    return table;
}

static void apply(const flim_transform *transform, const shape *s, const flim_cell_id *id, const float *counts,
                  const uint8_t *mask, float *out, uint8_t *mask_out)
{
    const flim_transform_table table = compiled(transform, s);
    flim_error err = {0};
    for (int i = 0; i < s->t * s->h * s->w; i++) {
        out[i] = NAN;
    }
    memset(mask_out, 99, (size_t)(s->h * s->w));
    if (flim_transform_apply(&table, id, counts, mask, out, mask_out, &err) != FLIM_OK) {
        fail_msg("%s", err.text);
    }
}

/* ---- the reference: one step after the other, in double precision, photon by photon */

/* A word of what a step's key draws for a voxel: Philox of the key (as a seed) and (voxel, block, what, 0). */
static uint32_t keyed_word(const uint32_t key[2], uint32_t voxel, uint32_t what, uint32_t number)
{
    uint32_t word[4];
    const flim_cell_id id = {(uint64_t)key[1] << 32 | key[0], 0, what, number / 4, 0};
    ref_philox(&id, 0, voxel, word);
    return word[number % 4];
}

/* Photon i of n, as a number of 32 bits: a word of its own up to 8 photons, else a bit of each of 32 words. */
static uint32_t photon_number(const uint32_t key[2], uint32_t voxel, uint32_t what, uint32_t n, uint32_t i)
{
    if (n <= 8) {
        return keyed_word(key, voxel, what, i);
    }
    uint32_t number = 0;
    for (uint32_t plane = 0; plane < 32; plane++) {
        number = number << 1 | (keyed_word(key, voxel, what, i / 32 * 32 + plane) >> i % 32 & 1);
    }
    return number;
}

static uint32_t reference_binomial(uint32_t n, double p, const uint32_t key[2], uint32_t voxel, uint32_t what)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        kept += (double)photon_number(key, voxel, what, n, i) < floor(p * 4294967296.0);
    }
    return kept;
}

static uint32_t reference_poisson(double mean, uint32_t word)
{
    double cdf = 0, term = exp(-mean);
    uint32_t k = 0;
    for (; k < 30; k++, term *= mean / k) {
        cdf += term;
        if ((double)word < floor(cdf * 4294967296.0 + 0.5)) {
            break;
        }
    }
    return k;
}

typedef struct step_draw {
    bool acts;
    double number; /* of a range that is one number */
    uint32_t key[2];
} step_draw;

static step_draw draw_of(const flim_transform *transform, int n, const flim_cell_id *id)
{
    const flim_transform_step *s = &transform->step[n];
    uint32_t word[4];
    ref_philox(id, 5, (uint32_t)n, word);
    const bool whole = s->op <= FLIM_TRANSFORM_SHIFT_ZERO;
    step_draw d = {(double)word[0] < floor(s->probability * 4294967296.0),
                   whole ? s->low + floor((double)word[1] * (s->high - s->low + 1) / 4294967296.0)
                         : s->low + (s->high - s->low) * (double)word[1] / 4294967296.0,
                   {word[2], word[3]}};
    return d;
}

static double count_step(const flim_transform_step *s, const step_draw *d, double n, double photons, uint32_t voxel, bool in)
{
    double sum = 0;
    switch (s->op) {
    case FLIM_TRANSFORM_THIN: return reference_binomial((uint32_t)n, d->number, d->key, voxel, 0);
    case FLIM_TRANSFORM_MATCH:
        return photons <= d->number ? n : reference_binomial((uint32_t)n, d->number / photons, d->key, voxel, 0);
    case FLIM_TRANSFORM_BACKGROUND:
        for (uint32_t i = 0; in && i < (uint32_t)ceil(d->number); i++) {
            sum += reference_poisson(d->number / ceil(d->number), keyed_word(d->key, voxel, 0, i));
        }
        return fmin(n + sum, 65535);
    case FLIM_TRANSFORM_BOOTSTRAP:
        for (uint32_t i = 0; i < (uint32_t)n; i++) {
            sum += reference_poisson(1, keyed_word(d->key, voxel, 0, i));
        }
        return fmin(sum, 65535);
    case FLIM_TRANSFORM_SCALE: {
        const double scaled = n * floor(d->number * 65536 + 0.5) / 65536, part = scaled - floor(scaled);
        const double up = (double)(keyed_word(d->key, voxel, 0, 0) >> 16) < part * 65536;
        return fmin(floor(scaled) + up, 65535);
    }
    default: return n;
    }
}

/* The output voxel (t,pixel), from the source pixel `pixel` of the cell after its symmetries and circular shifts. */
static void reference(const flim_transform *transform, const flim_cell_id *id, const shape *s, const float *counts,
                      const uint8_t *mask, double *out, uint8_t *mask_out)
{
    const int pixels = s->h * s->w;
    double photons = 0;
    int moved = -1, around = 0, symmetry = 0;
    step_draw d[FLIM_MAX_TRANSFORM_STEPS];
    bool drop = false;
    for (int i = 0; i < s->t * pixels; i++) {
        photons += (double)counts[i];
    }
    for (int n = 0; n < transform->n; n++) {
        const flim_transform_op op = transform->step[n].op;
        d[n] = draw_of(transform, n, id);
        moved = d[n].acts && op >= FLIM_TRANSFORM_SHIFT_FILL && op <= FLIM_TRANSFORM_DRIFT_FILL ? n : moved;
        around += d[n].acts && op == FLIM_TRANSFORM_TIME_SHIFT ? (int)d[n].number : 0;
        drop = drop || (d[n].acts && op == FLIM_TRANSFORM_MASK_DROP);
        symmetry ^= d[n].acts && op == FLIM_TRANSFORM_DIHEDRAL ? (int)d[n].number : 0; /* flips: 0..3 compose so */
    }
    const flim_transform_op op = moved < 0 ? FLIM_TRANSFORM_OPS : transform->step[moved].op;
    const double shift = moved < 0 ? 0 : d[moved].number;
    const bool fill = op == FLIM_TRANSFORM_SHIFT_FILL || op == FLIM_TRANSFORM_DRIFT_FILL;
    for (int at = 0; at < s->t * pixels; at++) {
        const int t = at / pixels, y = at % pixels / s->w, x = at % s->w;
        const int pixel = (symmetry & 2 ? s->h - 1 - y : y) * s->w + (symmetry & 1 ? s->w - 1 - x : x);
        double sum = 0;
        mask_out[at % pixels] = drop ? 0 : mask[pixel];
        for (int part = 0; part < 2; part++) { /* what stays in its bin, and what comes from the bin before */
            int bin = t - (int)floor(shift) - part;
            const double share = shift - floor(shift);
            uint32_t voxel = 0;
            if (part == 1 && share == 0) {
                continue;
            }
            if ((bin < 0 || bin >= s->t) && op == FLIM_TRANSFORM_SHIFT_ZERO) {
                continue;
            }
            if ((bin < 0 || bin >= s->t) && fill) {
                const int tail = s->t / 16 > 1 ? s->t / 16 : 1;
                voxel = (uint32_t)(bin * pixels + pixel);
                bin = s->t - 1 - (int)floor((double)keyed_word(d[moved].key, voxel, 2, 0) * tail / 4294967296.0);
                bin = ((bin - around) % s->t + s->t) % s->t;
            } else {
                bin = ((bin - around) % s->t + s->t) % s->t;
                voxel = (uint32_t)(bin * pixels + pixel);
            }
            double n = counts[bin * pixels + pixel];
            for (int k = 0; k < transform->n; k++) {
                n = d[k].acts ? count_step(&transform->step[k], &d[k], n, photons, voxel, mask[pixel] != 0) : n;
            }
            const double on = share > 0 ? reference_binomial((uint32_t)n, share, d[moved].key, voxel, 1) : 0;
            sum += part == 0 ? n - on : on;
        }
        out[at] = fmin(sum, 65535);
    }
}

static void fill_cell(const shape *s, int64_t cell, float *counts, uint8_t *mask)
{
    for (int i = 0; i < s->t * s->h * s->w; i++) {
        const unsigned mixed = (unsigned)(cell * 7919 + i * 104729 + 11) % 1000;
        counts[i] = mixed < 500 ? 0 : mixed < 900 ? (float)(mixed % 12) : mixed < 995 ? (float)(mixed % 150) : 4000.0f;
        counts[i] = cell % 5 ? counts[i] : fminf(counts[i], 60);
    }
    for (int i = 0; i < s->h * s->w; i++) {
        mask[i] = (i * 5 + cell) % 3 != 0;
    }
}

static void equals_the_reference_voxel_by_voxel(void **state)
{
    (void)state;
    static const shape shapes[] = {{8, 5, 5}, {33, 3, 4}, {48, 2, 3}, {5, 4, 4}};
    static const flim_transform_step steps[] = {
        {FLIM_TRANSFORM_DIHEDRAL, 0.7, 0, 3},       {FLIM_TRANSFORM_TIME_SHIFT, 0.5, -9, 9},
        {FLIM_TRANSFORM_THIN, 0.8, 0.37, 0.37},     {FLIM_TRANSFORM_THIN, 0.8, 1, 1},
        {FLIM_TRANSFORM_MATCH, 0.8, 900, 900},      {FLIM_TRANSFORM_BACKGROUND, 0.8, 0.3, 0.3},
        {FLIM_TRANSFORM_BACKGROUND, 0.8, 5.5, 5.5}, {FLIM_TRANSFORM_BOOTSTRAP, 0.7, 0, 0},
        {FLIM_TRANSFORM_SCALE, 0.8, 1.3, 1.3},      {FLIM_TRANSFORM_MASK_DROP, 0.5, 0, 0}};
    static const flim_transform_step moves[] = {{FLIM_TRANSFORM_SHIFT_FILL, 0.9, -4, 4},
                                                {FLIM_TRANSFORM_SHIFT_ZERO, 0.9, -4, 4},
                                                {FLIM_TRANSFORM_DRIFT, 0.9, -4.5, 4},
                                                {FLIM_TRANSFORM_DRIFT_FILL, 0.9, -4, 4.25}};
    flim_random random = flim_random_begin(&(flim_cell_id){.seed = 78}, FLIM_RANDOM_SAMPLER);
    for (int trial = 0; trial < 600; trial++) {
        const shape *s = &shapes[trial % 4];
        flim_transform transform = {.n = (int)flim_random_below(&random, 6)};
        for (int n = 0; n < transform.n; n++) {
            transform.step[n] = steps[flim_random_below(&random, sizeof steps / sizeof steps[0])];
        }
        if (flim_random_below(&random, 4) > 0) {
            transform.step[transform.n++] = moves[flim_random_below(&random, 4)];
        }
        const flim_cell_id id = {0x9876543210u + (uint64_t)trial, (uint32_t)trial % 7, (uint32_t)trial % 11, (uint32_t)trial,
                                 (uint32_t)trial % 3};
        float counts[MOST_VOXELS], got[MOST_VOXELS];
        double want[MOST_VOXELS];
        uint8_t mask[64], got_mask[64], want_mask[64];
        fill_cell(s, trial, counts, mask);
        apply(&transform, s, &id, counts, mask, got, got_mask);
        reference(&transform, &id, s, counts, mask, want, want_mask);
        for (int i = 0; i < s->t * s->h * s->w; i++) {
            if (!((double)got[i] == want[i])) {
                char text[1024];
                flim_augment_text(&transform, text, sizeof text);
                fail_msg("trial %d, '%s', voxel (%d,%d): %g, expected %g", trial, text, i / (s->h * s->w), i % (s->h * s->w),
                         (double)got[i], want[i]);
            }
        }
        if (memcmp(got_mask, want_mask, (size_t)(s->h * s->w)) != 0) {
            fail_msg("trial %d: the mask differs", trial);
        }
    }
}

/* ---- statistics: all from fixed seeds, with bounds of more than four standard deviations */

/* Chi-square of counts against expected ones, neighbours with fewer than 8 joined; *df gets its degrees of freedom. */
static double chi_square(const int64_t *seen, const double *expected, int n, int *df)
{
    double sum = 0, got = 0, want = 0;
    *df = -1;
    for (int i = 0; i < n; i++) {
        got += (double)seen[i];
        want += expected[i];
        if (want >= 8 || i == n - 1) {
            sum += want > 0 ? (got - want) * (got - want) / want : got > 0 ? 1e9 : 0;
            got = want = 0;
            (*df)++;
        }
    }
    *df = *df < 1 ? 1 : *df;
    return sum;
}

static void must_fit(const char *what, const int64_t *seen, const double *expected, int n)
{
    int df;
    const double chi = chi_square(seen, expected, n, &df);
    if (chi > df + 5 * sqrt(2.0 * df) + 10) {
        fail_msg("%s: chi-square %.1f with %d degrees of freedom", what, chi, df);
    }
}

static void thinning_is_binomial(void **state)
{
    (void)state;
    static const uint32_t numbers[] = {1, 2, 3, 7, 8, 9, 31, 32, 33, 100};
    static const double shares[] = {0.004, 0.3, 0.5, 0.71, 0.999};
    enum { DRAWS = 20000 };
    for (size_t a = 0; a < sizeof numbers / sizeof numbers[0]; a++) {
        for (size_t b = 0; b < sizeof shares / sizeof shares[0]; b++) {
            const uint32_t n = numbers[a], key[2] = {(uint32_t)a * 77 + 5, (uint32_t)b};
            const double p = floor(shares[b] * 4294967296.0) / 4294967296.0;
            int64_t seen[101] = {0};
            double expected[101], sum = 0, squares = 0;
            for (uint32_t v = 0; v < DRAWS; v++) {
                const uint32_t k = flim_draw_binomial(n, (uint32_t)(p * 4294967296.0), key, v, FLIM_DRAW_COUNT);
                assert_true(k <= n);
                seen[k]++;
                sum += k;
                squares += (double)k * k;
            }
            for (uint32_t k = 0; k <= n; k++) {
                expected[k] =
                    DRAWS * exp(lgamma(n + 1.0) - lgamma(k + 1.0) - lgamma(n - k + 1.0) + k * log(p) + (n - k) * log1p(-p));
            }
            char what[64];
            snprintf(what, sizeof what, "Binomial(%u, %g)", n, shares[b]);
            must_fit(what, seen, expected, (int)n + 1);
            const double mean = sum / DRAWS, sd = sqrt(n * p * (1 - p));
            assert_true(fabs(mean - n * p) < 5 * sd / sqrt(DRAWS));
            assert_true(fabs((squares / DRAWS - mean * mean) / (sd * sd) - 1) < 0.2 + (p < 0.01 || p > 0.99 ? 0.4 : 0));
        }
    }
}

/* What a step makes of cells whose voxels all hold n photons: how often each count comes. */
static void tally(const flim_transform_step *step, float n, int cells, int64_t *seen, int most, double *mean,
                  double *variance)
{
    static const shape s = {64, 8, 8};
    static float counts[MOST_VOXELS], got[MOST_VOXELS];
    uint8_t mask[64], got_mask[64];
    const flim_transform transform = {1, {*step}};
    double sum = 0, squares = 0;
    for (int i = 0; i < MOST_VOXELS; i++) {
        counts[i] = n;
    }
    memset(mask, 1, sizeof mask);
    memset(seen, 0, sizeof *seen * (size_t)most);
    for (int cell = 0; cell < cells; cell++) {
        apply(&transform, &s, &(flim_cell_id){11, 1, 2, (uint32_t)cell, 0}, counts, mask, got, got_mask);
        for (int i = 0; i < MOST_VOXELS; i++) {
            assert_true(got[i] >= 0 && floorf(got[i]) == got[i] && got[i] < (float)most);
            seen[(int)got[i]]++;
            sum += (double)got[i];
            squares += (double)got[i] * (double)got[i];
        }
    }
    const double draws = (double)cells * MOST_VOXELS;
    *mean = sum / draws;
    *variance = squares / draws - *mean * *mean;
}

static void background_and_bootstrap_are_poisson(void **state)
{
    (void)state;
    static const struct {
        flim_transform_step step;
        float n;
        double mean;
        int before; /* photons that stay */
    } rows[] = {{{FLIM_TRANSFORM_BACKGROUND, 1, 0.002, 0.002}, 0, 0.002, 0},
                {{FLIM_TRANSFORM_BACKGROUND, 1, 0.3, 0.3}, 2, 0.3, 2},
                {{FLIM_TRANSFORM_BACKGROUND, 1, 1, 1}, 0, 1, 0},
                {{FLIM_TRANSFORM_BACKGROUND, 1, 3.7, 3.7}, 1, 3.7, 1},
                {{FLIM_TRANSFORM_BOOTSTRAP, 1, 0, 0}, 1, 1, 0},
                {{FLIM_TRANSFORM_BOOTSTRAP, 1, 0, 0}, 5, 5, 0}};
    enum { CELLS = 12, MOST = 64 };
    const double draws = (double)CELLS * MOST_VOXELS;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int64_t seen[MOST];
        double expected[MOST] = {0}, mean, variance;
        tally(&rows[i].step, rows[i].n, CELLS, seen, MOST, &mean, &variance);
        for (int k = 0; k + rows[i].before < MOST; k++) {
            expected[k + rows[i].before] = draws * exp(k * log(rows[i].mean) - rows[i].mean - lgamma(k + 1.0));
        }
        must_fit(flim_transform_ops[rows[i].step.op].name, seen, expected, MOST);
        assert_true(fabs(mean - rows[i].before - rows[i].mean) < 5 * sqrt(rows[i].mean / draws));
        assert_true(fabs(variance / rows[i].mean - 1) < 5 * sqrt((2 + 1 / rows[i].mean) / draws));
    }
}

/* What a thinned, matched, bootstrapped or multiplied Poisson count is: the variance over the mean, given the true rate. */
static void fano_factors(void **state)
{
    (void)state;
    static const struct {
        flim_transform_step step;
        double mean, fano;
    } rows[] = {{{FLIM_TRANSFORM_THIN, 1, 0.4, 0.4}, 0.4, 1},
                {{FLIM_TRANSFORM_THIN, 1, 0.85, 0.85}, 0.85, 1},
                {{FLIM_TRANSFORM_BOOTSTRAP, 1, 0, 0}, 1, 2},
                {{FLIM_TRANSFORM_SCALE, 1, 0.6, 0.6}, 0.6, 0.6},
                {{FLIM_TRANSFORM_SCALE, 1, 1.4, 1.4}, 1.4, 1.4}};
    static const shape s = {64, 8, 8};
    static float counts[MOST_VOXELS], got[MOST_VOXELS];
    const double rate = 40; /* high enough that the rounding of a multiplication (variance below 1/4) is small */
    enum { CELLS = 24 };
    uint8_t mask[64], got_mask[64];
    memset(mask, 1, sizeof mask);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const flim_transform transform = {1, {rows[i].step}};
        double sum = 0, squares = 0;
        for (int cell = 0; cell < CELLS; cell++) {
            flim_random random = flim_random_begin(&(flim_cell_id){.seed = 5, .cell = (uint32_t)cell}, FLIM_RANDOM_SIMULATE);
            for (int v = 0; v < MOST_VOXELS; v++) { /* Knuth: how many uniform numbers until their product is below e^-rate */
                double left = flim_random_uniform(&random);
                for (counts[v] = 0; left > exp(-rate); counts[v]++) {
                    left *= flim_random_uniform(&random);
                }
            }
            apply(&transform, &s, &(flim_cell_id){11, 1, 2, (uint32_t)cell, 0}, counts, mask, got, got_mask);
            for (int v = 0; v < MOST_VOXELS; v++) {
                sum += (double)got[v];
                squares += (double)got[v] * (double)got[v];
            }
        }
        const double draws = (double)CELLS * MOST_VOXELS, mean = sum / draws, fano = (squares / draws - mean * mean) / mean;
        if (fabs(mean / (rate * rows[i].mean) - 1) > 0.005 || fabs(fano - rows[i].fano) > 0.03 * rows[i].fano) {
            fail_msg("%s: mean %.3f of %.1f, Fano factor %.3f, expected %.1f", flim_transform_ops[rows[i].step.op].name, mean,
                     rate, fano, rows[i].fano);
        }
    }
}

static double total(const float *counts, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) {
        sum += (double)counts[i];
    }
    return sum;
}

/* Log-uniform p: its logarithm is uniform, so that a quarter of the cells falls into each quarter of the range. */
static void thinning_is_log_uniform_over_cells(void **state)
{
    (void)state;
    const shape s = {4, 1, 1};
    const flim_transform transform = {1, {{FLIM_TRANSFORM_THIN, 1, 0.4, 1}}};
    const flim_transform_table table = compiled(&transform, &s);
    int quarter[4] = {0};
    for (uint32_t cell = 0; cell < 8000; cell++) {
        flim_cell_transform drawn;
        flim_transform_draw(&table, &(flim_cell_id){.cell = cell}, 0, &drawn);
        const double p = drawn.step[0].number / 4294967296.0;
        assert_true(drawn.n_steps == 1 && p >= 0.3999999 && p < 1);
        quarter[(int)(4 * log(p / 0.3999999) / log(1 / 0.3999999))]++;
    }
    for (int i = 0; i < 4; i++) {
        assert_true(abs(quarter[i] - 2000) < 200);
    }
}

static void matching_brings_cells_to_a_level(void **state)
{
    (void)state;
    static const shape s = {64, 8, 8};
    static float counts[MOST_VOXELS], got[MOST_VOXELS];
    const flim_transform transform = {1, {{FLIM_TRANSFORM_MATCH, 1, 3000, 3000}}};
    uint8_t mask[64] = {0}, got_mask[64];
    for (int k = 1; k <= 20; k++) { /* k photons in every third voxel: 1,366 k in all */
        for (int i = 0; i < MOST_VOXELS; i++) {
            counts[i] = i % 3 == 0 ? (float)k : 0;
        }
        apply(&transform, &s, &(flim_cell_id){.cell = (uint32_t)k}, counts, mask, got, got_mask);
        const double before = total(counts, MOST_VOXELS), after = total(got, MOST_VOXELS);
        assert_true(before <= 3000 ? memcmp(counts, got, sizeof got) == 0 : fabs(after - 3000) < 5 * sqrt(3000));
        for (int i = 0; i < MOST_VOXELS; i++) {
            assert_true(got[i] <= counts[i]);
        }
    }
}

static void shifts_keep_or_know_their_photons(void **state)
{
    (void)state;
    static const shape s = {48, 4, 5};
    float counts[960], got[960];
    uint8_t mask[20], got_mask[20];
    for (uint32_t cell = 0; cell < 200; cell++) {
        const flim_cell_id id = {.cell = cell};
        const int k = (int)(cell % 9) - 4;
        const flim_transform drift = {1, {{FLIM_TRANSFORM_DRIFT, 1, -4, 4}}},
                             zero = {1, {{FLIM_TRANSFORM_SHIFT_ZERO, 1, k, k}}},
                             fill = {1, {{FLIM_TRANSFORM_SHIFT_FILL, 1, k, k}}};
        for (int i = 0; i < 960; i++) { /* nothing is alike, no tail is zero */
            counts[i] = (float)(1 + (i + (int)cell) % 251);
        }
        memset(mask, 1, sizeof mask);
        apply(&drift, &s, &id, counts, mask, got, got_mask);
        for (int p = 0; p < 20; p++) {
            double before = 0, after = 0;
            for (int t = 0; t < 48; t++) {
                before += (double)counts[t * 20 + p];
                after += (double)got[t * 20 + p];
            }
            assert_true(before == after); /* pixel by pixel, to the photon */
        }
        apply(&zero, &s, &id, counts, mask, got, got_mask);
        for (int i = 0; i < 960; i++) {
            const int from = i / 20 - k;
            assert_true(got[i] == (from < 0 || from >= 48 ? 0 : counts[from * 20 + i % 20]));
        }
        apply(&fill, &s, &id, counts, mask, got, got_mask);
        for (int i = 0; i < 960; i++) {
            const int from = i / 20 - k;
            bool found = false;
            for (int t = from < 0 || from >= 48 ? 45 : from; t < (from < 0 || from >= 48 ? 48 : from + 1); t++) {
                found = found || got[i] == counts[t * 20 + i % 20];
            }
            assert_true(found && got[i] > 0);
        }
    }
}

/* A drift by k + f bins moves the mean arrival time by that, and its photons by k or k + 1 bins. */
static void a_drift_moves_photons_by_whole_bins(void **state)
{
    (void)state;
    static const shape s = {64, 8, 8};
    static float counts[MOST_VOXELS], got[MOST_VOXELS];
    uint8_t mask[64] = {0}, got_mask[64];
    static const double shifts[] = {0.25, -0.25, 3.5, -7.9, 2};
    for (size_t i = 0; i < sizeof shifts / sizeof shifts[0]; i++) {
        const flim_transform transform = {1, {{FLIM_TRANSFORM_DRIFT, 1, shifts[i], shifts[i]}}};
        const int k = (int)floor(shifts[i]);
        memset(counts, 0, sizeof counts);
        for (int p = 0; p < 64; p++) {
            counts[20 * 64 + p] = 500;
        }
        apply(&transform, &s, &(flim_cell_id){.cell = (uint32_t)i}, counts, mask, got, got_mask);
        double at[2] = {total(got + (20 + k) * 64, 64), total(got + (21 + k) * 64, 64)};
        assert_true(at[0] + at[1] == 64 * 500 && total(got, MOST_VOXELS) == 64 * 500);
        const double f = shifts[i] - k;
        assert_true(fabs(at[1] - 32000 * f) <= 5 * sqrt(32000 * f * (1 - f)));
    }
}

/* ---- photons that move */

enum { SIDE = 21, BINS = 6, MOVED_VOXELS = BINS * SIDE * SIDE };
static const shape moved_shape = {BINS, SIDE, SIDE};

/* A disc of photons off the centre, nothing outside the mask. */
static void fill_disc(int64_t cell, float *counts, uint8_t *mask)
{
    for (int p = 0; p < SIDE * SIDE; p++) {
        const int y = p / SIDE - 9, x = p % SIDE - 11;
        mask[p] = y * y + x * x <= 36;
        for (int t = 0; t < BINS; t++) {
            counts[t * SIDE * SIDE + p] = mask[p] ? (float)((p * 7 + t * 3 + cell) % 5) : 0;
        }
    }
}

static void steps_that_move_by_nothing_change_nothing(void **state)
{
    (void)state;
    const flim_transform transform = {
        3, {{FLIM_TRANSFORM_BLUR, 1, 0, 0}, {FLIM_TRANSFORM_ZOOM, 1, 1, 1}, {FLIM_TRANSFORM_ELASTIC, 1, 0, 0}}};
    float counts[MOVED_VOXELS], got[MOVED_VOXELS];
    uint8_t mask[SIDE * SIDE], got_mask[SIDE * SIDE];
    fill_disc(0, counts, mask);
    apply(&transform, &moved_shape, &(flim_cell_id){0}, counts, mask, got, got_mask);
    assert_memory_equal(got, counts, sizeof got);
    assert_memory_equal(got_mask, mask, sizeof mask);
}

/* What every move owes: whole counts, none made, none from one bin to another, none outside the mask that were inside, and by
 * a blur none lost. */
static void moved_photons_stay_in_their_bin_and_mask(void **state)
{
    (void)state;
    static const struct {
        flim_transform transform;
        double kept; /* share of the photons, at least */
    } rows[] = {
        {{1, {{FLIM_TRANSFORM_BLUR, 1, 0.3, 1.5}}}, 1},
        {{1, {{FLIM_TRANSFORM_ZOOM, 1, 0.5, 0.99}}}, 0.93},
        {{1, {{FLIM_TRANSFORM_ZOOM, 1, 1.01, 1.3}}}, 0.93},
        {{1, {{FLIM_TRANSFORM_ELASTIC, 1, 0.2, 1.5}}}, 0.93},
        {{3, {{FLIM_TRANSFORM_ZOOM, 1, 0.85, 1.15}, {FLIM_TRANSFORM_ELASTIC, 1, 0.5, 1}, {FLIM_TRANSFORM_BLUR, 1, 0.3, 0.8}}},
         0.93}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        double before = 0, after = 0;
        for (uint32_t cell = 0; cell < 30; cell++) {
            float counts[MOVED_VOXELS], got[MOVED_VOXELS];
            uint8_t mask[SIDE * SIDE], got_mask[SIDE * SIDE];
            fill_disc(cell, counts, mask);
            apply(&rows[i].transform, &moved_shape, &(flim_cell_id){.cell = cell}, counts, mask, got, got_mask);
            for (int t = 0; t < BINS; t++) {
                const double had = total(counts + t * SIDE * SIDE, SIDE * SIDE),
                             has = total(got + t * SIDE * SIDE, SIDE * SIDE);
                assert_true(has <= had && has >= rows[i].kept * 0.9 * had);
                before += had;
                after += has;
            }
            for (int v = 0; v < MOVED_VOXELS; v++) {
                assert_true(got[v] >= 0 && floorf(got[v]) == got[v] && (got[v] == 0 || got_mask[v % (SIDE * SIDE)]));
            }
        }
        if (after < rows[i].kept * before || after > before) {
            fail_msg("%s: %.0f of %.0f photons are left", flim_transform_ops[rows[i].transform.step[0].op].name, after,
                     before);
        }
    }
}

static void a_blur_is_gaussian(void **state)
{
    (void)state;
    static const double sigmas[] = {0.3, 0.8, 1.6};
    for (size_t i = 0; i < sizeof sigmas / sizeof sigmas[0]; i++) {
        const double sigma = sigmas[i];
        const flim_transform transform = {1, {{FLIM_TRANSFORM_BLUR, 1, sigma, sigma}}};
        float counts[MOVED_VOXELS] = {0}, got[MOVED_VOXELS];
        uint8_t mask[SIDE * SIDE], got_mask[SIDE * SIDE];
        int64_t seen[SIDE * SIDE];
        double expected[SIDE * SIDE], axis[SIDE], sum = 0;
        memset(mask, 1, sizeof mask);
        counts[10 * SIDE + 10] = 40000;
        apply(&transform, &moved_shape, &(flim_cell_id){.cell = 3}, counts, mask, got, got_mask);
        for (int d = 0; d < SIDE; d++) {
            axis[d] = abs(d - 10) <= 6 ? exp(-(d - 10) * (d - 10) / (2 * sigma * sigma)) : 0;
            sum += axis[d];
        }
        for (int p = 0; p < SIDE * SIDE; p++) {
            seen[p] = (int64_t)got[p];
            expected[p] = 40000 * axis[p / SIDE] * axis[p % SIDE] / (sum * sum);
        }
        must_fit("blur", seen, expected, SIDE * SIDE);
    }
}

/* The mask and the photons of a zoom against the same in double precision; its scale from the second moment. */
static void a_zoom_scales_mask_and_photons(void **state)
{
    (void)state;
    static const double factors[] = {0.5, 0.85, 1.15, 1.7};
    for (size_t i = 0; i < sizeof factors / sizeof factors[0]; i++) {
        const double z = factors[i], c = SIDE / 2.0;
        const flim_transform transform = {1, {{FLIM_TRANSFORM_ZOOM, 1, z, z}}};
        float counts[MOVED_VOXELS] = {0}, got[MOVED_VOXELS];
        uint8_t mask[SIDE * SIDE], got_mask[SIDE * SIDE];
        double moment[2] = {0}, photons[2] = {0};
        for (int p = 0; p < SIDE * SIDE; p++) { /* a disc of radius 5: inside at every factor */
            const double y = p / SIDE + 0.5 - c, x = p % SIDE + 0.5 - c;
            mask[p] = y * y + x * x < 25;
            counts[p] = mask[p] ? 200 : 0;
        }
        apply(&transform, &moved_shape, &(flim_cell_id){.cell = 3}, counts, mask, got, got_mask);
        for (int p = 0; p < SIDE * SIDE; p++) {
            const double y = p / SIDE + 0.5 - c, x = p % SIDE + 0.5 - c, from_y = c + y / z, from_x = c + x / z;
            const bool near_edge = fabs(from_y - round(from_y)) < 1e-3 || fabs(from_x - round(from_x)) < 1e-3;
            const bool inside = from_y >= 0 && from_x >= 0 && from_y < SIDE && from_x < SIDE;
            const int want = inside && mask[(int)from_y * SIDE + (int)from_x];
            assert_true(near_edge || got_mask[p] == want);
            moment[0] += (double)counts[p] * (y * y + x * x + 1.0 / 6); /* a pixel's own spread: 1/12 per axis */
            moment[1] += (double)got[p] * (y * y + x * x + 1.0 / 6);
            photons[0] += (double)counts[p];
            photons[1] += (double)got[p];
        }
        const double scale = moment[1] / photons[1] / (moment[0] / photons[0]);
        if (fabs(scale / (z * z) - 1) > 0.12 || photons[1] < 0.93 * photons[0]) {
            fail_msg("zoom by %g: the second moment grew by %g, %g of the photons are left", z, scale,
                     photons[1] / photons[0]);
        }
    }
}

/* A field moves mask and photons alike: their centres go together, and not the same way in every cell. */
static void a_field_moves_mask_and_photons_together(void **state)
{
    (void)state;
    const flim_transform transform = {1, {{FLIM_TRANSFORM_ELASTIC, 1, 1.5, 1.5}}};
    double product[3] = {0};
    for (uint32_t cell = 0; cell < 40; cell++) {
        float counts[MOVED_VOXELS] = {0}, got[MOVED_VOXELS];
        uint8_t mask[SIDE * SIDE], got_mask[SIDE * SIDE];
        double centre[3][3] = {{0}};
        for (int p = 0; p < SIDE * SIDE; p++) {
            const int y = p / SIDE - 10, x = p % SIDE - 10;
            mask[p] = y * y + x * x <= 36;
            counts[p] = mask[p] ? 50 : 0;
        }
        apply(&transform, &moved_shape, &(flim_cell_id){.cell = cell}, counts, mask, got, got_mask);
        for (int p = 0; p < SIDE * SIDE; p++) {
            const double weight[3] = {mask[p], got_mask[p], (double)got[p]};
            for (int k = 0; k < 3; k++) {
                centre[k][0] += weight[k] * (p / SIDE);
                centre[k][1] += weight[k] * (p % SIDE);
                centre[k][2] += weight[k];
            }
        }
        for (int axis = 0; axis < 2; axis++) {
            const double mask_went = centre[1][axis] / centre[1][2] - centre[0][axis] / centre[0][2],
                         photons_went = centre[2][axis] / centre[2][2] - centre[0][axis] / centre[0][2];
            assert_true(fabs(mask_went - photons_went) < 1); /* a mask moves by whole pixels, photons do not */
            product[0] += mask_went * mask_went;
            product[1] += photons_went * photons_went;
            product[2] += mask_went * photons_went;
        }
        assert_true(fabs(centre[1][2] / centre[0][2] - 1) < 0.5);
    }
    if (sqrt(product[1] / 80) < 0.3 || product[2] < 0.85 * sqrt(product[0] * product[1])) {
        fail_msg("photons went %.3f pixels, the mask %.3f, correlation %.3f", sqrt(product[1] / 80), sqrt(product[0] / 80),
                 product[2] / sqrt(product[0] * product[1]));
    }
}

/* Steps that change counts draw by the place in the data: a symmetry or a shift ahead of them moves the result. */
static void changes_and_symmetries_commute(void **state)
{
    (void)state;
    static const shape s = {12, 5, 5};
    for (int k = 0; k < 8; k++) {
        const flim_transform both = {3,
                                     {{FLIM_TRANSFORM_DIHEDRAL, 1, k, k},
                                      {FLIM_TRANSFORM_THIN, 1, 0.5, 0.5},
                                      {FLIM_TRANSFORM_BACKGROUND, 1, 0.4, 0.4}}},
                             changes = {3,
                                        {{FLIM_TRANSFORM_DIHEDRAL, 0, k, k},
                                         {FLIM_TRANSFORM_THIN, 1, 0.5, 0.5},
                                         {FLIM_TRANSFORM_BACKGROUND, 1, 0.4, 0.4}}},
                             turn = {2, {{FLIM_TRANSFORM_DIHEDRAL, 1, k, k}}};
        float counts[300], got[300], changed[300], want[300];
        uint8_t mask[25], got_mask[25], changed_mask[25], want_mask[25];
        const flim_cell_id id = {.cell = (uint32_t)k};
        fill_cell(&s, k, counts, mask);
        apply(&both, &s, &id, counts, mask, got, got_mask);
        apply(&changes, &s, &id, counts, mask, changed, changed_mask);
        const flim_transform only = {1, {turn.step[0]}};
        apply(&only, &s, &id, changed, changed_mask, want, want_mask);
        assert_memory_equal(got, want, sizeof got);
        assert_memory_equal(got_mask, want_mask, sizeof got_mask);
    }
}

/* Two ids, steps or voxels that differ in anything draw anew: no pair of thinned cells is alike. */
static void every_part_of_the_id_decides(void **state)
{
    (void)state;
    static const shape s = {64, 8, 8};
    static float counts[MOST_VOXELS], got[8][MOST_VOXELS];
    uint8_t mask[64] = {0}, got_mask[64];
    static const flim_cell_id ids[] = {{1, 2, 3, 4, 5},
                                       {2, 2, 3, 4, 5},
                                       {1, 3, 3, 4, 5},
                                       {1, 2, 4, 4, 5},
                                       {1, 2, 3, 5, 5},
                                       {1, 2, 3, 4, 6},
                                       {1ull << 40 | 1, 2, 3, 4, 5},
                                       {1, 2, 3, 4, 5}};
    for (int i = 0; i < MOST_VOXELS; i++) {
        counts[i] = 1;
    }
    for (int i = 0; i < 8; i++) {
        const flim_transform transform = {
            2, {{FLIM_TRANSFORM_THIN, i == 7 ? 0 : 1, 0.5, 0.5}, {FLIM_TRANSFORM_THIN, i == 7 ? 1 : 0, 0.5, 0.5}}};
        apply(&transform, &s, &ids[i], counts, mask, got[i], got_mask);
        for (int j = 0; j < i; j++) {
            int alike = 0;
            for (int v = 0; v < MOST_VOXELS; v++) {
                alike += got[i][v] == got[j][v];
            }
            assert_true(abs(alike - MOST_VOXELS / 2) < 5 * 32); /* half of them by chance, sd 32 */
        }
        static const int lag[] = {1, 2, 3, 4, 8, 64, 65, 512};
        for (size_t k = 0; k < sizeof lag / sizeof lag[0]; k++) {
            int alike = 0;
            for (int v = 0; v + lag[k] < MOST_VOXELS; v++) {
                alike += got[i][v] == got[i][v + lag[k]];
            }
            assert_true(abs(alike - (MOST_VOXELS - lag[k]) / 2) < 5 * 32);
        }
    }
}

static void a_voxel_holds_at_most_65535(void **state)
{
    (void)state;
    static const shape s = {8, 1, 1};
    const flim_transform transform = {
        3, {{FLIM_TRANSFORM_BACKGROUND, 1, 60, 60}, {FLIM_TRANSFORM_SCALE, 1, 1, 1}, {FLIM_TRANSFORM_DRIFT, 1, 1.5, 1.5}}};
    float counts[8], got[8];
    uint8_t mask[1] = {1}, got_mask[1];
    for (int i = 0; i < 8; i++) {
        counts[i] = 65530;
    }
    apply(&transform, &s, &(flim_cell_id){0}, counts, mask, got, got_mask);
    for (int i = 0; i < 8; i++) {
        assert_true(got[i] > 64000 && got[i] <= 65535);
    }
}

static void counts_that_are_no_photons_are_refused(void **state)
{
    (void)state;
    static const shape s = {4, 2, 2};
    static const flim_transform_op moving[] = {FLIM_TRANSFORM_DIHEDRAL, FLIM_TRANSFORM_TIME_SHIFT, FLIM_TRANSFORM_SHIFT_FILL,
                                               FLIM_TRANSFORM_SHIFT_ZERO};
    static const float bad[] = {0.5f, 65536, 1e9f, 3.0000002f};
    float counts[16] = {1, 2, 3}, got[16];
    uint8_t mask[4] = {1, 1, 1, 1}, got_mask[4];
    flim_error err = {0};
    for (size_t b = 0; b < sizeof bad / sizeof bad[0]; b++) {
        counts[7] = bad[b];
        for (int op = FLIM_TRANSFORM_DRIFT; op < FLIM_TRANSFORM_OPS; op++) {
            if (op == FLIM_TRANSFORM_MASK_DROP) {
                continue;
            }
            const bool ranged = flim_transform_ops[op].least < flim_transform_ops[op].most;
            const flim_transform one = {1, {{(flim_transform_op)op, 1, ranged ? 1 : 0, ranged ? 1 : 0}}};
            const flim_transform_table table = compiled(&one, &s);
            assert_int_equal(flim_transform_apply(&table, &(flim_cell_id){0}, counts, mask, got, got_mask, &err),
                             FLIM_ERROR_DATA);
            assert_non_null(strstr(err.text, flim_transform_ops[op].name));
            assert_string_equal(flim_transform_needs_photons(&one), flim_transform_ops[op].name);
        }
        for (size_t i = 0; i < sizeof moving / sizeof moving[0]; i++) {
            const flim_transform one = {1, {{moving[i], 1, 1, 1}}};
            apply(&one, &s, &(flim_cell_id){0}, counts, mask, got, got_mask);
            assert_null(flim_transform_needs_photons(&one));
        }
    }
}

static void transforms_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    static const struct {
        flim_transform transform;
        const char *text;
    } bad[] = {{{1, {{FLIM_TRANSFORM_THIN, 1, 0, 1}}}, "thin: the range 0 to 1"},
               {{1, {{FLIM_TRANSFORM_THIN, 1, 0.5, 1.5}}}, "thin"},
               {{1, {{FLIM_TRANSFORM_SHIFT_FILL, 1, -1.5, 1}}}, "whole numbers"},
               {{1, {{FLIM_TRANSFORM_SHIFT_FILL, 1, -16, 1}}}, "cells have 16 bins"},
               {{1, {{FLIM_TRANSFORM_DRIFT, 1, 0, 16}}}, "cells have 16 bins"},
               {{1, {{FLIM_TRANSFORM_BACKGROUND, 1, 0, 100}}}, "background"},
               {{1, {{FLIM_TRANSFORM_BACKGROUND, 1, NAN, 1}}}, "background"},
               {{1, {{FLIM_TRANSFORM_BOOTSTRAP, 1, 0, 1}}}, "bootstrap"},
               {{1, {{FLIM_TRANSFORM_MATCH, 1, 0, 10}}}, "match"},
               {{1, {{FLIM_TRANSFORM_BLUR, 1, 0, 3}}}, "blur"},
               {{1, {{FLIM_TRANSFORM_ZOOM, 1, 0, 1}}}, "zoom"},
               {{5,
                 {{FLIM_TRANSFORM_BLUR, 1, 1, 1},
                  {FLIM_TRANSFORM_BLUR, 1, 1, 1},
                  {FLIM_TRANSFORM_ZOOM, 1, 1, 1},
                  {FLIM_TRANSFORM_ELASTIC, 1, 1, 1},
                  {FLIM_TRANSFORM_BLUR, 1, 1, 1}}},
                "5 of blur, zoom and elastic"},
               {{2, {{FLIM_TRANSFORM_DRIFT, 1, 0, 1}, {FLIM_TRANSFORM_SHIFT_ZERO, 1, 0, 1}}}, "drift and shift_zero"},
               {{9,
                 {{FLIM_TRANSFORM_BOOTSTRAP, 1, 0, 0},
                  {FLIM_TRANSFORM_BOOTSTRAP, 1, 0, 0},
                  {FLIM_TRANSFORM_BOOTSTRAP, 1, 0, 0},
                  {FLIM_TRANSFORM_BOOTSTRAP, 1, 0, 0},
                  {FLIM_TRANSFORM_BOOTSTRAP, 1, 0, 0},
                  {FLIM_TRANSFORM_BOOTSTRAP, 1, 0, 0},
                  {FLIM_TRANSFORM_BOOTSTRAP, 1, 0, 0},
                  {FLIM_TRANSFORM_BOOTSTRAP, 1, 0, 0},
                  {FLIM_TRANSFORM_BOOTSTRAP, 1, 0, 0}}},
                "9 steps that change counts"}};
    flim_error err = {0};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(flim_transform_check(&bad[i].transform, 16, 4, 6, &err), FLIM_ERROR_USAGE);
        if (!strstr(err.text, bad[i].text)) {
            fail_msg("'%s' lacks '%s'", err.text, bad[i].text);
        }
    }
}

/* ---- names */

static flim_status parse_for(bool photons, const char *const *items, flim_transform *out, flim_error *err)
{
    flim_string_list list = {0};
    for (; *items; items++) {
        assert_int_equal(flim_string_list_add(&list, *items, NULL), FLIM_OK);
    }
    const flim_status status = flim_augment_parse(&list, photons, out, err);
    flim_string_list_free(&list);
    return status;
}

static flim_status parse(const char *const *items, flim_transform *out, flim_error *err)
{
    return parse_for(true, items, out, err);
}

static void auto_follows_the_counts(void **state)
{
    (void)state;
    static const struct {
        bool photons;
        const char *item[3], *text;
    } cases[] = {{true, {"auto"}, "symmetry:1:0:7 thin:0.25:0.4:1"},
                 {false, {"auto"}, "symmetry:1:0:7"},
                 {true, {"auto", "mask_drop"}, "symmetry:1:0:7 thin:0.25:0.4:1 mask_drop:1:0:0"},
                 {false, {"auto", "mask_drop"}, "symmetry:1:0:7 mask_drop:1:0:0"},
                 {false, {"flim"}, "symmetry:1:0:7 thin:0.25:0.4:1"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        flim_transform transform;
        flim_error err = {0};
        char text[1024];
        if (parse_for(cases[i].photons, cases[i].item, &transform, &err) != FLIM_OK) {
            fail_msg("case %zu: %s", i, err.text);
        }
        flim_augment_text(&transform, text, sizeof text);
        assert_string_equal(text, cases[i].text);
    }
}

static void names_become_steps(void **state)
{
    (void)state;
    static const struct {
        const char *item[4], *text;
    } good[] = {{{NULL}, "none"},
                {{"none"}, "none"},
                {{"thin"}, "thin:1:0.4:1"},
                {{"thin:0.25"}, "thin:0.25:0.4:1"},
                {{"thin:0.8:0.5:0.5", "symmetry"}, "thin:0.8:0.5:0.5 symmetry:1:0:7"},
                {{"match:1:1000:2e3", "bootstrap:0.1", "mask_drop"}, "match:1:1000:2000 bootstrap:0.1:0:0 mask_drop:1:0:0"},
                {{"flim", "shift"}, "symmetry:1:0:7 thin:0.25:0.4:1 shift:1:-5:5"}};
    static const struct {
        const char *item[3], *text;
    } bad[] = {{{"thim"}, "did you mean 'thin'"},
               {{"flm"}, "did you mean 'flim'"},
               {{"thin:"}, "''"},
               {{"thin:1:0.5"}, "thin:PROBABILITY:LOW:HIGH"},
               {{"thin:1:0.5:1:2"}, "more than"},
               {{"thin:2"}, "out of range 0..1"},
               {{"thin:x"}, "'x' is not a finite number"},
               {{"thin:1:1:0.5"}, "the range 1 to 0.5"},
               {{"thin:1:0.5:nan"}, "nan"},
               {{"match"}, "its range depends on the data"},
               {{"match:0.5"}, "its range depends on the data"},
               {{"bootstrap:1:0:0"}, "expected bootstrap:PROBABILITY"},
               {{"shift:1:0.5:1"}, "whole numbers"},
               {{"none", "flim"}, "none must be the only item"},
               {{"drift_fill", "paper"}, "drift_fill and shift_zero"},
               {{""}, "is not known"},
               {{":"}, "is not known"}};
    flim_transform transform;
    flim_error err = {0};
    char text[1024];
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        if (parse(good[i].item, &transform, &err) != FLIM_OK) {
            fail_msg("%s", err.text);
        }
        flim_augment_text(&transform, text, sizeof text);
        assert_string_equal(text, good[i].text);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(parse(bad[i].item, &transform, &err), FLIM_ERROR_USAGE);
        if (!strstr(err.text, bad[i].text) || !strstr(err.text, "augment: ")) {
            fail_msg("'%s' lacks '%s'", err.text, bad[i].text);
        }
    }
    static const char *const paper[] = {"paper", NULL};
    assert_int_equal(parse(paper, &transform, &err), FLIM_OK);
    flim_augment_not_physical(&transform, text, sizeof text);
    assert_string_equal(text, "shift_zero, scale");
    /* What a step's text says is the step. */
    for (int op = 0; op < FLIM_TRANSFORM_OPS; op++) {
        const bool ranged = flim_transform_ops[op].least < flim_transform_ops[op].most;
        const flim_transform one = {1, {{(flim_transform_op)op, 0.125, ranged ? 1 : 0, ranged ? 1 : 0}}};
        flim_augment_text(&one, text, sizeof text);
        char *end = strstr(text, ":0:0");
        if (end && !ranged) {
            *end = '\0';
        }
        const char *const item[] = {text, NULL};
        assert_int_equal(parse(item, &transform, &err), FLIM_OK);
        assert_memory_equal(&transform.step[0], &one.step[0], sizeof one.step[0]);
    }
}

/* ---- through the loader */

enum { CELLS = 12, DRAWS = 40 };

static flim_dataset *make_data(const shape *s, float fraction)
{
    const flim_dataset_layout layout = {
        .n = CELLS, .t = s->t, .h = s->h, .w = s->w, .count_bytes = 4, .count_float = true, .mask = true};
    const char *path = scratch_path("counts.h5");
    flim_dataset_writer *writer;
    unlink(path);
    assert_int_equal(flim_dataset_writer_create(path, &layout, &writer, NULL), FLIM_OK);
    for (int64_t cell = 0; cell < CELLS; cell++) {
        float counts[MOST_VOXELS];
        uint8_t mask[64];
        fill_cell(s, cell, counts, mask);
        counts[3] += cell == 7 ? fraction : 0;
        assert_int_equal(flim_dataset_writer_cell(writer, cell, counts, mask, NULL), FLIM_OK);
    }
    assert_int_equal(flim_dataset_writer_finish(writer, NULL), FLIM_OK);
    flim_dataset_writer_destroy(writer);
    return open_good(path, &(flim_dataset_options){.cache = FLIM_CACHE_NONE});
}

static void batches_do_not_depend_on_threads(void **state)
{
    (void)state;
    static const shape s = {20, 5, 5};
    static const int workers[] = {1, 3, 8};
    static const char *const items[] = {"flim", "match:0.5:500:900", "bootstrap:0.3", "zoom:0.5", "elastic:0.5", "blur:0.5",
                                        NULL};
    flim_draw draws[DRAWS];
    flim_error err = {0};
    flim_phase phase = {.draws = draws, .n_draws = DRAWS, .seed = 3, .fold = 1, .epoch = 4};
    assert_int_equal(parse(items, &phase.transform, &err), FLIM_OK);
    for (int i = 0; i < DRAWS; i++) {
        draws[i] = (flim_draw){(uint32_t)(i * 5 % CELLS), (uint32_t)(i / CELLS), 1};
    }
    flim_dataset *d = make_data(&s, 0);
    flim_reader *reader;
    assert_int_equal(flim_reader_create(d, &reader, NULL), FLIM_OK);
    for (int k = 0; k < 3; k++) {
        const flim_batch *batch;
        flim_loader *loader;
        int64_t seen = 0;
        phase.batch = 1 + 6 * k;
        assert_int_equal(
            flim_loader_create(d, &(flim_loader_options){.workers = workers[k], .prefetch = 2, .batch = 20}, &loader, NULL),
            FLIM_OK);
        assert_int_equal(flim_loader_begin(loader, &phase, &err), FLIM_OK);
        while (flim_loader_next(loader, &batch, &err) == FLIM_OK && batch) {
            for (int64_t i = 0; i < batch->n; i++) {
                float counts[500], want[500];
                uint8_t mask[25], want_mask[25];
                assert_int_equal(flim_reader_counts(reader, batch->id[i].cell, counts, mask, NULL), FLIM_OK);
                apply(&phase.transform, &s, &batch->id[i], counts, mask, want, want_mask);
                flim_signal_from_counts(want, want, 500);
                assert_memory_equal(batch->signal + i * 500, want, sizeof want);
                assert_memory_equal(batch->mask + i * 25, want_mask, sizeof want_mask);
            }
            seen += batch->n;
            flim_loader_release(loader, batch);
        }
        assert_int_equal(seen, DRAWS);
        flim_loader_destroy(loader);
    }
    flim_reader_destroy(reader);
    flim_dataset_close(d);
}

static void the_loader_names_a_cell_that_is_refused(void **state)
{
    (void)state;
    static const shape s = {20, 5, 5};
    flim_draw draws[CELLS];
    flim_error err = {0};
    const flim_batch *batch;
    flim_loader *loader;
    flim_phase phase = {.draws = draws, .n_draws = CELLS, .batch = 5, .transform = {1, {{FLIM_TRANSFORM_THIN, 1, 0.5, 0.5}}}};
    for (int i = 0; i < CELLS; i++) {
        draws[i] = (flim_draw){(uint32_t)i, 0, 1};
    }
    flim_dataset *d = make_data(&s, 0.25f);
    assert_int_equal(flim_loader_create(d, &(flim_loader_options){.workers = 2, .prefetch = 2, .batch = 5}, &loader, NULL),
                     FLIM_OK);
    assert_int_equal(flim_loader_begin(loader, &phase, &err), FLIM_OK);
    assert_int_equal(flim_loader_next(loader, &batch, &err), FLIM_OK);
    flim_loader_release(loader, batch);
    assert_int_equal(flim_loader_next(loader, &batch, &err), FLIM_ERROR_DATA);
    if (!strstr(err.text, "counts.h5: /counts: cell 7: ") || !strstr(err.text, "thin")) {
        fail_msg("'%s'", err.text);
    }
    flim_loader_destroy(loader);
    flim_dataset_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_the_reference_voxel_by_voxel),
        cmocka_unit_test(thinning_is_binomial),
        cmocka_unit_test(background_and_bootstrap_are_poisson),
        cmocka_unit_test(fano_factors),
        cmocka_unit_test(thinning_is_log_uniform_over_cells),
        cmocka_unit_test(matching_brings_cells_to_a_level),
        cmocka_unit_test(shifts_keep_or_know_their_photons),
        cmocka_unit_test(a_drift_moves_photons_by_whole_bins),
        cmocka_unit_test(steps_that_move_by_nothing_change_nothing),
        cmocka_unit_test(moved_photons_stay_in_their_bin_and_mask),
        cmocka_unit_test(a_blur_is_gaussian),
        cmocka_unit_test(a_zoom_scales_mask_and_photons),
        cmocka_unit_test(a_field_moves_mask_and_photons_together),
        cmocka_unit_test(changes_and_symmetries_commute),
        cmocka_unit_test(every_part_of_the_id_decides),
        cmocka_unit_test(a_voxel_holds_at_most_65535),
        cmocka_unit_test(counts_that_are_no_photons_are_refused),
        cmocka_unit_test(transforms_that_make_no_sense_are_refused),
        cmocka_unit_test(names_become_steps),
        cmocka_unit_test(auto_follows_the_counts),
        cmocka_unit_test(batches_do_not_depend_on_threads),
        cmocka_unit_test(the_loader_names_a_cell_that_is_refused),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    scratch_remove();
    return failed;
}
