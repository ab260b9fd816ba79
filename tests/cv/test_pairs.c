/* What an epoch of pretraining draws: each cell once, partners as the rule says, batches of one donor, equal draws from equal keys. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cv/pairs.h"

enum { N = 203, PART = 180, DONORS = 5, CLASSES = 3 };

static int32_t label[N];
static int64_t group[N], part[PART];

/* Donor 4 alone has class 2, and one cell of it; the part leaves out every ninth cell. */
static flim_split_data data(void)
{
    int64_t n = 0;
    for (int64_t i = 0; i < N; i++) {
        group[i] = i * 7 % 23 % DONORS;
        label[i] = (int32_t)(i % 3 == 0);
        if (i % 9 != 8 && n < PART) {
            part[n++] = i;
        }
    }
    assert_int_equal(n, PART);
    label[part[0]] = 2;
    return (flim_split_data){.n = N, .classes = CLASSES, .label = label, .groups = DONORS, .group = group};
}

static void draw(const flim_pairs_rule *rule, const flim_split_data *d, uint32_t epoch, flim_draw *out)
{
    flim_error err = {0};
    if (flim_pairs_draw(rule, d, part, PART, 99, 3, epoch, out, &err) != FLIM_OK) {
        fail_msg("%s", err.text);
    }
}

/* Every cell of the part once among every `step`-th draw from the first. */
static void each_once(const flim_draw *draws, int step)
{
    int times[N] = {0};
    for (int i = 0; i < PART; i++) {
        times[draws[step * i].cell]++;
        assert_true(draws[step * i].weight == 1);
    }
    for (int i = 0; i < PART; i++) {
        assert_int_equal(times[part[i]], 1);
    }
}

/* No cell is drawn twice under one id: two views would be the same. */
static void no_id_twice(const flim_draw *draws, int n)
{
    static bool seen[N][256];
    memset(seen, 0, sizeof seen);
    for (int i = 0; i < n; i++) {
        assert_true(draws[i].repeat < 256 && !seen[draws[i].cell][draws[i].repeat]);
        seen[draws[i].cell][draws[i].repeat] = true;
    }
}

static void two_views_of_each_cell(void **state)
{
    (void)state;
    const flim_split_data d = data();
    flim_draw draws[2 * PART], again[2 * PART], other[2 * PART];
    const flim_pairs_rule rule = {.paired = true, .batch = 8}, alone = {.batch = 8};
    draw(&rule, &d, 5, draws);
    draw(&rule, &d, 5, again);
    draw(&rule, &d, 6, other);
    assert_memory_equal(draws, again, sizeof draws);
    assert_true(memcmp(draws, other, sizeof draws) != 0);
    each_once(draws, 2);
    no_id_twice(draws, 2 * PART);
    for (int i = 0; i < PART; i++) {
        assert_int_equal(draws[2 * i].cell, draws[2 * i + 1].cell);
    }
    draw(&alone, &d, 5, draws);
    each_once(draws, 1);
}

static void partners_are_of_the_class_and_of_another_donor(void **state)
{
    (void)state;
    flim_split_data d = data();
    flim_draw draws[2 * PART];
    const flim_pairs_rule rule = {.paired = true, .pairs = FLIM_PAIRS_CLASS, .batch = 8};
    int others[N] = {0}, different = 0;
    for (uint32_t epoch = 0; epoch < 40; epoch++) {
        draw(&rule, &d, epoch, draws);
        each_once(draws, 2);
        no_id_twice(draws, 2 * PART);
        for (int i = 0; i < PART; i++) {
            const int64_t a = draws[2 * i].cell, b = draws[2 * i + 1].cell;
            assert_int_equal(label[a], label[b]);
            assert_true(label[a] == 2 ? a == b : group[a] != group[b]); /* class 2 has one cell */
            different += others[b]++ == 0;
        }
    }
    assert_int_equal(different, PART); /* everybody is a partner at times */
    d.group = NULL; /* without donors: any other cell of the class */
    draw(&rule, &d, 1, draws);
    for (int i = 0; i < PART; i++) {
        const int64_t a = draws[2 * i].cell, b = draws[2 * i + 1].cell;
        assert_true(label[a] == label[b] && (a != b || label[a] == 2));
    }
    for (int64_t i = 0; i < N; i++) { /* one donor: the fall-back */
        group[i] = 0;
    }
    d.group = group;
    draw(&rule, &d, 1, draws);
    for (int i = 0; i < PART; i++) {
        const int64_t a = draws[2 * i].cell, b = draws[2 * i + 1].cell;
        assert_true(label[a] == label[b] && (a != b || label[a] == 2));
    }
}

/* Batches are of one donor, until what is left of each is less than a batch. */
static void batches_are_of_one_donor(void **state)
{
    (void)state;
    const flim_split_data d = data();
    for (int paired = 0; paired < 2; paired++) {
        flim_draw draws[2 * PART];
        const int batch = 8, views = paired + 1, cells = batch / views;
        const flim_pairs_rule rule = {.paired = paired, .from = FLIM_BATCH_FROM_DONOR, .batch = batch};
        int of[DONORS] = {0}, whole = 0, changes = 0;
        draw(&rule, &d, 2, draws);
        each_once(draws, views);
        for (int i = 0; i < PART; i++) {
            of[group[part[i]]]++;
        }
        for (int g = 0; g < DONORS; g++) {
            whole += of[g] / cells;
        }
        for (int b = 0; b < whole; b++) {
            for (int i = 1; i < batch; i++) {
                assert_int_equal(group[draws[b * batch + i].cell], group[draws[b * batch].cell]);
            }
            changes += b > 0 && group[draws[b * batch].cell] != group[draws[(b - 1) * batch].cell];
        }
        assert_true(whole > 10 && changes > DONORS); /* in random order */
    }
}

static void what_a_rule_needs_is_asked_for(void **state)
{
    (void)state;
    flim_split_data d = data();
    flim_draw draws[2 * PART];
    flim_error err = {0};
    const flim_pairs_rule rules[] = {{.paired = true, .pairs = FLIM_PAIRS_CLASS, .batch = 8},
                                     {.from = FLIM_BATCH_FROM_DONOR, .batch = 8}};
    d.label = NULL;
    d.group = NULL;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(flim_pairs_draw(&rules[i], &d, part, PART, 1, 0, 0, draws, &err), FLIM_ERROR_USAGE);
        assert_non_null(strstr(err.text, i == 0 ? "/label" : "/group"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_views_of_each_cell), cmocka_unit_test(partners_are_of_the_class_and_of_another_donor),
        cmocka_unit_test(batches_are_of_one_donor), cmocka_unit_test(what_a_rule_needs_is_asked_for)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
