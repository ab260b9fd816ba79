/* What a scan sees of one cell beside its sums: what its numbers are, and the pattern by which copies are known. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/cell_pattern.h"
#include "data/cell_values.h"

enum { T = 12, SIDE = 6, WIDE = 7, MOST = T * WIDE * WIDE };

static uint32_t state = 1;

static uint32_t draw(uint32_t below)
{
    state = state * 1664525u + 1013904223u;
    return (state >> 8) % below;
}

static uint64_t pattern_of(const uint32_t *counts, int t, int h, int w)
{
    static int32_t pixel[MOST];
    static uint32_t count[MOST];
    int64_t begin[T + 1], n = 0;
    flim_cell_pattern *pattern;
    flim_error err = {0};
    for (int f = 0; f < t; f++) {
        begin[f] = n;
        for (int i = 0; i < h * w; i++) {
            if (counts[f * h * w + i]) {
                pixel[n] = i;
                count[n++] = counts[f * h * w + i];
            }
        }
    }
    begin[t] = n;
    assert_int_equal(flim_cell_pattern_create(t, h, w, &pattern, &err), FLIM_OK);
    const uint64_t found = flim_cell_pattern_of(pattern, &(flim_lit_voxels){begin, pixel, count});
    flim_cell_pattern_destroy(pattern);
    return found;
}

/* A dim cell: one voxel in ten holds 1 to 5 counts. */
static void make_cell(uint32_t *counts, int voxels)
{
    for (int i = 0; i < voxels; i++) {
        counts[i] = draw(10) ? 0 : 1 + draw(5);
    }
    counts[draw((uint32_t)voxels)] = 1; /* so that the greatest common divisor is 1 */
}

/* out[t][y][x] = factor x in[(t + roll) mod T] at the place that `symmetry` says. */
static void change(const uint32_t *in, int h, int w, int roll, int symmetry, uint32_t factor, uint32_t *out)
{
    for (int t = 0; t < T; t++) {
        for (int y = 0; y < h; y++) {
            for (int x = 0; x < w; x++) {
                int from_y = symmetry & 1 ? h - 1 - y : y, from_x = symmetry & 2 ? w - 1 - x : x;
                if (symmetry & 4) {
                    const int swap = from_y;
                    from_y = from_x;
                    from_x = swap;
                }
                out[(t * h + y) * w + x] = factor * in[((t + roll) % T * h + from_y) * w + from_x];
            }
        }
    }
}

static void copies_have_one_pattern(void **state_)
{
    (void)state_;
    uint32_t cell[MOST], copy[MOST];
    for (int trial = 0; trial < 200; trial++) {
        const bool square = trial % 2;
        const int h = SIDE, w = square ? SIDE : WIDE;
        make_cell(cell, T * h * w);
        const int roll = (int)draw(T), symmetry = (int)draw(square ? 8 : 4);
        const uint32_t factor = 1 + draw(9);
        change(cell, h, w, roll, symmetry, factor, copy);
        const uint64_t a = pattern_of(cell, T, h, w), b = pattern_of(copy, T, h, w);
        if (a == 0 || a != b) {
            fail_msg("trial %d: roll %d, symmetry %d, factor %u: %llx and %llx", trial, roll, symmetry, factor,
                     (unsigned long long)a, (unsigned long long)b);
        }
        copy[draw((uint32_t)(T * h * w))] += 1; /* one photon more is another cell */
        assert_int_not_equal(pattern_of(copy, T, h, w), a);
    }
}

static void other_cells_have_others(void **state_)
{
    (void)state_;
    enum { CELLS = 300 };
    static uint64_t seen[CELLS];
    uint32_t cell[MOST];
    for (int i = 0; i < CELLS; i++) {
        make_cell(cell, T * SIDE * SIDE);
        seen[i] = pattern_of(cell, T, SIDE, SIDE);
        for (int j = 0; j < i; j++) {
            assert_int_not_equal(seen[i], seen[j]);
        }
    }
    /* permuted frames, or one frame flipped alone, are no copies */
    uint32_t other[MOST];
    memcpy(other, cell, sizeof other);
    for (int i = 0; i < SIDE * SIDE; i++) {
        const uint32_t swap = other[i];
        other[i] = other[2 * SIDE * SIDE + i];
        other[2 * SIDE * SIDE + i] = swap;
    }
    assert_int_not_equal(pattern_of(other, T, SIDE, SIDE), seen[CELLS - 1]);
}

static void dim_cells_have_none(void **state_)
{
    (void)state_;
    uint32_t cell[MOST] = {0};
    assert_int_equal(pattern_of(cell, T, SIDE, SIDE), 0);
    for (int i = 0; i < 7; i++) {
        cell[11 * i] = 3;
    }
    assert_int_equal(pattern_of(cell, T, SIDE, SIDE), 0);
    cell[100] = 1;
    assert_int_not_equal(pattern_of(cell, T, SIDE, SIDE), 0);
    for (int i = 0; i < T * SIDE * SIDE; i++) {
        cell[i] = 4; /* all frames alike: any beginning is the least */
    }
    assert_int_not_equal(pattern_of(cell, T, SIDE, SIDE), 0);
}

static void numbers_are_named(void **state_)
{
    (void)state_;
    enum { N = 400 };
    static const struct {
        flim_values kind;
        double unit;
    } kinds[] = {
        {FLIM_VALUES_WHOLE, 1}, {FLIM_VALUES_LOG1P, 1},       {FLIM_VALUES_LOG1P_TENTH, 1},       {FLIM_VALUES_LOG10, 1},
        {FLIM_VALUES_LOG2, 1},  {FLIM_VALUES_ROOT, 1},        {FLIM_VALUES_MULTIPLES, 1.0 / 255}, {FLIM_VALUES_OTHER, 1},
        {FLIM_VALUES_WHOLE, 1}, {FLIM_VALUES_MULTIPLES, 0.37}};
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        for (int trial = 0; trial < 20; trial++) {
            float value[N];
            double unit;
            for (int i = 0; i < N; i++) {
                const double c = 2 + draw(trial % 2 ? 200 : 4);
                value[i] = (float)(kinds[k].kind == FLIM_VALUES_LOG1P         ? log1p(c)
                                   : kinds[k].kind == FLIM_VALUES_LOG1P_TENTH ? log1p(c) / 10
                                   : kinds[k].kind == FLIM_VALUES_LOG10       ? log10(1 + c)
                                   : kinds[k].kind == FLIM_VALUES_LOG2        ? log2(1 + c)
                                   : kinds[k].kind == FLIM_VALUES_ROOT        ? sqrt(c)
                                   : kinds[k].kind == FLIM_VALUES_OTHER       ? c + draw(1000003) / 1000003.0
                                                                              : c * kinds[k].unit);
            }
            const flim_values found = flim_values_of(value, N, &unit);
            if (found != kinds[k].kind) {
                fail_msg("case %zu, trial %d: found '%s', expected '%s'", k, trial, flim_values_words(found),
                         flim_values_words(kinds[k].kind));
            }
            for (int i = 0; i < N && found != FLIM_VALUES_OTHER; i++) {
                const double count = flim_value_count(found, unit, (double)value[i]);
                assert_true(count == nearbyint(count));
            }
        }
    }
    const float large[] = {16777216.0f, 8388609.0f, 2147483520.0f, 3.0f}, three[] = {0.5f, 0.25f, 0.125f};
    double unit;
    assert_int_equal(flim_values_of(large, 4, &unit), FLIM_VALUES_WHOLE);
    assert_int_equal(flim_values_of(three, 3, &unit), FLIM_VALUES_OTHER); /* too few to say more */
    assert_int_equal(flim_values_of(three, 0, &unit), FLIM_VALUES_WHOLE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(copies_have_one_pattern), cmocka_unit_test(other_cells_have_others),
                                       cmocka_unit_test(dim_cells_have_none), cmocka_unit_test(numbers_are_named)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
