/* Hidden voxels: as many as the share says, inside the mask only, those of the reference, and what kinds of boxes they form. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "data/hide.h"
#include "data/hide_math.h"
#include "reference/formula.h"
#include "reference/reference.h"

static const struct {
    int t, h, w;
} sizes[] = {{256, 21, 21}, {133, 21, 21}, {8, 3, 3}, {40, 5, 9}, {17, 1, 1}, {19, 6, 5}};
enum { N_SIZES = sizeof sizes / sizeof sizes[0] };

/* A mask with holes; number 0 has no pixel, 1 a single one. */
static int64_t fill_mask(int number, int pixels, uint8_t *mask)
{
    int64_t inside = 0;
    for (int p = 0; p < pixels; p++) {
        const bool in = number == 1 ? p == pixels / 2 : number > 1 && ref_uniform((uint32_t)number, p) < 0.4;
        mask[p] = in ? 1 : 0;
        inside += mask[p];
    }
    return inside;
}

static void the_share_is_exact_and_inside_the_mask(void **state)
{
    (void)state;
    static const uint32_t shares[] = {0, 1, 19661, 39322, 49152, 65535, 65536};
    for (int i = 0; i < N_SIZES; i++) {
        const int t = sizes[i].t, pixels = sizes[i].h * sizes[i].w;
        uint8_t *mask = malloc((size_t)pixels), *hidden = malloc((size_t)(t * pixels)),
                *expected = malloc((size_t)(t * pixels));
        assert_true(mask && hidden && expected);
        for (int m = 0; m < 5; m++) {
            const int64_t voxels = fill_mask(m, pixels, mask) * t;
            for (size_t s = 0; s < sizeof shares / sizeof shares[0]; s++) {
                const flim_cell_id id = {.seed = 99, .fold = 1, .epoch = 3, .cell = (uint32_t)m, .repeat = 2};
                memset(hidden, 0xff, (size_t)(t * pixels));
                const int64_t n = flim_hide_cell(&id, shares[s], t, sizes[i].h, sizes[i].w, mask, hidden);
                int64_t count = 0;
                for (int v = 0; v < t * pixels; v++) {
                    assert_true(hidden[v] <= mask[v % pixels]);
                    count += hidden[v];
                }
                ref_hide(&id, shares[s] / 65536.0, t, sizes[i].h, sizes[i].w, mask, expected);
                if (n != count || n != (voxels * shares[s] + 32768) / 65536 ||
                    memcmp(hidden, expected, (size_t)(t * pixels)) != 0) {
                    fail_msg(
                        "%d x %d x %d, mask %d, share %u: %lld hidden, %lld counted of %lld, or others than the reference", t,
                        sizes[i].h, sizes[i].w, m, shares[s], (long long)n, (long long)count, (long long)voxels);
                }
            }
        }
        free(mask);
        free(hidden);
        free(expected);
    }
}

/* Another cell, repeat, epoch or seed hides other voxels; the same hides the same. */
static void every_part_of_the_key_counts(void **state)
{
    (void)state;
    enum { T = 64, SIDE = 9, VOXELS = T * SIDE * SIDE };
    static uint8_t mask[SIDE * SIDE], first[VOXELS], other[VOXELS];
    const flim_cell_id id = {.seed = 5, .fold = 1, .epoch = 2, .cell = 3, .repeat = 4};
    memset(mask, 1, sizeof mask);
    flim_hide_cell(&id, 39322, T, SIDE, SIDE, mask, first);
    for (int i = 0; i < 6; i++) {
        flim_cell_id changed = id;
        changed.seed += i == 1;
        changed.fold += i == 2;
        changed.epoch += i == 3;
        changed.cell += i == 4;
        changed.repeat += i == 5;
        flim_hide_cell(&changed, 39322, T, SIDE, SIDE, mask, other);
        assert_true((memcmp(first, other, sizeof other) == 0) == (i == 0));
    }
}

/* Kinds by their sizes, over many boxes: 6/16 tubes, 3/16 time blocks, 7/16 blocks; lengths least to most where nothing is cut. */
static void check_mixture(int t, int least, int most)
{
    enum { N = 20000 };
    const flim_hide_bounds b = {t, 2, 18, 3, 19};
    int kinds[3] = {0}, shortest = 999, longest = 0;
    for (uint32_t i = 0; i < N; i++) {
        const flim_cell_id id = {.seed = 1, .cell = i};
        const flim_hide_box box = flim_hide_box_at(&id, i % 7, &b);
        const bool all_time = box.t1 - box.t0 == t, all_pixels = box.y1 - box.y0 == 16 && box.x1 - box.x0 == 16;
        assert_true(box.t0 >= 0 && box.t1 <= t && box.t0 < box.t1);
        assert_true(box.y0 >= 2 && box.y1 <= 18 && box.y0 < box.y1 && box.x0 >= 3 && box.x1 <= 19 && box.x0 < box.x1);
        assert_true(all_time || all_pixels || box.y1 - box.y0 <= 5);
        kinds[all_time ? 0 : all_pixels ? 1 : 2]++;
        if (!all_time && box.t0 > 0 && box.t1 < t) {
            shortest = box.t1 - box.t0 < shortest ? box.t1 - box.t0 : shortest;
            longest = box.t1 - box.t0 > longest ? box.t1 - box.t0 : longest;
        }
    }
    if (shortest != least || longest != most) {
        fail_msg("%d bins: runs of %d to %d bins are hidden, expected %d to %d", t, shortest, longest, least, most);
    }
    assert_true(abs(kinds[0] - N * 6 / 16) < 400 && abs(kinds[1] - N * 3 / 16) < 400 && abs(kinds[2] - N * 7 / 16) < 400);
}

static void boxes_are_mixed_as_said(void **state)
{
    (void)state;
    check_mixture(1024, 16, 32);
    check_mixture(256, 16, 32);
    check_mixture(255, 16, 31);
    check_mixture(64, 4, 8);
    check_mixture(32, 2, 4); /* 16 to 32 of 32 bins would be half of a decay or all of it */
    check_mixture(9, 1, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_share_is_exact_and_inside_the_mask),
                                       cmocka_unit_test(every_part_of_the_key_counts),
                                       cmocka_unit_test(boxes_are_mixed_as_said)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
