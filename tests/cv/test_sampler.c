/* The sampler: frequencies, repeats, determinism, and class weights of the training set alone. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cv/sampler.h"
#include "cv/sort_by_key.h"

enum { CELLS = 400, PART = 200, REPEATS = 4 };

typedef struct fixture {
    flim_split_data data;
    int32_t label[CELLS];
    int64_t group[CELLS], part[PART];
} fixture;

/* Part: every second cell; class 1 is a tenth of it, class 2 stands only outside; groups 0..3 of very different sizes. */
static void make(fixture *f)
{
    for (int i = 0; i < CELLS; i++) {
        f->label[i] = i % 2 ? 2 : (i / 2) % 10 == 0;
        f->group[i] = i < 300 ? 0 : i < 380 ? 2 : 3; /* group 1 has no cells */
    }
    for (int i = 0; i < PART; i++) {
        f->part[i] = 2 * i;
    }
    f->data = (flim_split_data){.n = CELLS, .classes = 3, .label = f->label, .groups = 4, .group = f->group};
}

static void draw(const fixture *f, flim_sampler sampler, uint64_t seed, uint32_t fold, uint32_t epoch, flim_draw *draws)
{
    memset(draws, 0xff, PART * sizeof *draws);
    assert_int_equal(flim_sampler_draw(sampler, REPEATS, &f->data, f->part, PART, seed, fold, epoch, draws, NULL), FLIM_OK);
    int seen[CELLS] = {0};
    for (int i = 0; i < PART; i++) {
        assert_true(draws[i].cell < CELLS && draws[i].cell % 2 == 0); /* only cells of the part */
        assert_int_equal(draws[i].repeat, seen[draws[i].cell]++);
        assert_true(draws[i].weight == 1.0f);
    }
}

static void natural_takes_each_cell_once(void **state)
{
    (void)state;
    fixture f;
    flim_draw draws[PART], next[PART];
    make(&f);
    draw(&f, FLIM_SAMPLER_NATURAL, 42, 0, 0, draws);
    int seen[CELLS] = {0}, moved = 0;
    for (int i = 0; i < PART; i++) {
        seen[draws[i].cell]++;
        moved += draws[i].cell != f.part[i];
    }
    for (int i = 0; i < CELLS; i++) {
        assert_int_equal(seen[i], i % 2 == 0);
    }
    assert_true(moved > PART / 2);
    draw(&f, FLIM_SAMPLER_NATURAL, 42, 0, 1, next);
    assert_memory_not_equal(draws, next, sizeof draws);
}

static void balanced_draws_classes_alike(void **state)
{
    (void)state;
    fixture f;
    flim_draw draws[PART];
    make(&f);
    int of_class[3] = {0}, of_cell[CELLS] = {0}, epochs = 500;
    for (int e = 0; e < epochs; e++) {
        draw(&f, FLIM_SAMPLER_BALANCED, 42, 0, (uint32_t)e, draws);
        for (int i = 0; i < PART; i++) {
            of_class[f.label[draws[i].cell]]++;
            of_cell[draws[i].cell]++;
        }
    }
    double n = (double)epochs * PART; /* 100000 draws: sd of a share of one half is 0.0016 */
    assert_int_equal(of_class[2], 0);
    assert_true(fabs(of_class[1] / n - 0.5) < 0.008);
    for (int i = 0; i < CELLS; i += 2) { /* cells of a class alike: 2500 and 278 draws expected, 5 sd */
        double want = f.label[i] == 1 ? n / 2 / 20 : n / 2 / 180;
        assert_true(fabs(of_cell[i] - want) < 5 * sqrt(want));
    }
}

static void group_balanced_draws_groups_alike(void **state)
{
    (void)state;
    fixture f;
    flim_draw draws[PART];
    make(&f);
    int of_group[4] = {0}, epochs = 300;
    for (int e = 0; e < epochs; e++) {
        draw(&f, FLIM_SAMPLER_GROUP_BALANCED, 42, 0, (uint32_t)e, draws);
        for (int i = 0; i < PART; i++) {
            of_group[f.group[draws[i].cell]]++;
        }
    }
    double n = (double)epochs * PART;
    assert_int_equal(of_group[1], 0);
    for (int g = 0; g < 4; g++) {
        assert_true(g == 1 || fabs(of_group[g] / n - 1.0 / 3) < 0.01);
    }
    f.data.group = NULL;
    flim_error err = {0};
    assert_int_equal(flim_sampler_draw(FLIM_SAMPLER_GROUP_BALANCED, REPEATS, &f.data, f.part, PART, 1, 0, 0, draws, &err),
                     FLIM_ERROR_USAGE);
    assert_non_null(strstr(err.text, "/group"));
}

/* ---- class-group ---- */

/* How many of the part's cells a class of a group has; 0 = it is not in the table. */
static int table_size(const fixture *f, int label, int group)
{
    int n = 0;
    for (int i = 0; i < PART; i++) {
        n += f->label[f->part[i]] == label && f->group[f->part[i]] == group;
    }
    return n;
}

/* Expected draws of a table cell of that size: the bound, or the level at which all of them add up to the part's size,
 * found by halving. */
static double expected_draws(const fixture *f, int size, int64_t repeats)
{
    double low = 0, high = PART;
    for (int i = 0; i < 200; i++) {
        double level = (low + high) / 2, sum = 0;
        for (int c = 0; c < 3; c++) {
            for (int g = 0; g < 4; g++) {
                sum += fmin(level, (double)(repeats * table_size(f, c, g)));
            }
        }
        *(sum < PART ? &low : &high) = level;
    }
    return fmin((low + high) / 2, (double)(repeats * size));
}

/* Each epoch: every table cell within one of its expected draws, its cells within one of each other, none above the bound.
 * Over many epochs: the mean of every cell's draws is its expectation within 5 sd; a draw's variance is below 1/4. */
static void class_group_draws_every_class_of_every_group_alike(void **state)
{
    (void)state;
    enum { EPOCHS = 2000 };
    static const int64_t bounds[] = {1, 2, 4, 1000};
    fixture f;
    make(&f);
    for (int k = 0; k < 4; k++) {
        double of_cell[CELLS] = {0}, wanted[3][4];
        int sizes[3][4];
        for (int i = 0; i < 12; i++) {
            sizes[i / 4][i % 4] = table_size(&f, i / 4, i % 4);
            wanted[i / 4][i % 4] = expected_draws(&f, sizes[i / 4][i % 4], bounds[k]);
        }
        for (int e = 0; e < EPOCHS; e++) {
            flim_draw draws[PART];
            int seen[CELLS] = {0}, in_table[3][4] = {{0}};
            assert_int_equal(
                flim_sampler_draw(FLIM_SAMPLER_CLASS_GROUP, bounds[k], &f.data, f.part, PART, 9, 1, (uint32_t)e, draws, NULL),
                FLIM_OK);
            for (int i = 0; i < PART; i++) {
                assert_true(draws[i].cell % 2 == 0 && draws[i].weight == 1.0f);
                assert_int_equal(draws[i].repeat, seen[draws[i].cell]++);
                in_table[f.label[draws[i].cell]][f.group[draws[i].cell]]++;
                of_cell[draws[i].cell]++;
            }
            for (int i = 0; i < PART; i++) {
                const int64_t cell = f.part[i];
                const int size = sizes[f.label[cell]][f.group[cell]];
                const double want = wanted[f.label[cell]][f.group[cell]];
                const int found = in_table[f.label[cell]][f.group[cell]];
                if (!(fabs(found - want) < 1)) {
                    fail_msg("bound %d: %d draws of a class of a group of %d cells, %g expected", (int)bounds[k], found, size,
                             want);
                }
                assert_true(seen[cell] <= bounds[k] && seen[cell] >= found / size && seen[cell] <= (found + size - 1) / size);
            }
        }
        for (int i = 0; i < PART; i++) {
            const int64_t cell = f.part[i];
            const int size = sizes[f.label[cell]][f.group[cell]];
            const double want = wanted[f.label[cell]][f.group[cell]] / size;
            if (!(fabs(of_cell[cell] / EPOCHS - want) < 5 * 0.5 / sqrt((double)EPOCHS) + 1e-9)) {
                fail_msg("bound %d: a cell of %d is drawn %g times per epoch, %g expected", (int)bounds[k], size,
                         of_cell[cell] / EPOCHS, want);
            }
        }
    }
}

/* A table that a person can count: groups of 8 and 2 cells of class 0, 2 of class 1. */
static void class_group_by_hand(void **state)
{
    (void)state;
    int32_t label[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1};
    int64_t group[12] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1}, part[12];
    const flim_split_data data = {.n = 12, .classes = 2, .label = label, .groups = 2, .group = group};
    flim_sampler_table table;
    flim_draw draws[12];
    for (int i = 0; i < 12; i++) {
        part[i] = i;
    }
    /* Three of the table's four cells have cells, so 4 draws each: half a draw of the eight, two of the others. */
    assert_int_equal(flim_sampler_describe(2, &data, part, 12, &table, NULL), FLIM_OK);
    assert_true(table.cells == 3 && table.least == 0.5 && table.most == 2);
    assert_true(fabs(table.effective - 144 / (8 * 0.25 + 4 * 4.0)) < 1e-12);
    for (uint32_t e = 0; e < 20; e++) {
        int large = 0, seen[12] = {0};
        assert_int_equal(flim_sampler_draw(FLIM_SAMPLER_CLASS_GROUP, 2, &data, part, 12, 3, 0, e, draws, NULL), FLIM_OK);
        for (int i = 0; i < 12; i++) {
            large += draws[i].cell < 8;
            seen[draws[i].cell]++;
        }
        assert_int_equal(large, 4);
        for (int i = 8; i < 12; i++) {
            assert_int_equal(seen[i], 2);
        }
    }
    /* At most one draw per cell: each cell once. */
    assert_int_equal(flim_sampler_describe(1, &data, part, 12, &table, NULL), FLIM_OK);
    assert_true(table.bounded == 3 && table.least == 1 && table.most == 1 && table.effective == 12);
    assert_int_equal(flim_sampler_draw(FLIM_SAMPLER_CLASS_GROUP, 1, &data, part, 12, 3, 0, 0, draws, NULL), FLIM_OK);
    int seen[12] = {0};
    for (int i = 0; i < 12; i++) {
        assert_int_equal(seen[draws[i].cell]++, 0);
    }
    /* One cell, and none at all. */
    assert_int_equal(flim_sampler_draw(FLIM_SAMPLER_CLASS_GROUP, 4, &data, part, 1, 3, 0, 0, draws, NULL), FLIM_OK);
    assert_int_equal(draws[0].cell, 0);
    assert_int_equal(flim_sampler_draw(FLIM_SAMPLER_CLASS_GROUP, 4, &data, part, 0, 3, 0, 0, draws, NULL), FLIM_OK);
    const flim_split_data alone = {.n = 12, .classes = 2, .label = label};
    flim_error err = {0};
    assert_int_equal(flim_sampler_draw(FLIM_SAMPLER_CLASS_GROUP, 4, &alone, part, 12, 3, 0, 0, draws, &err),
                     FLIM_ERROR_USAGE);
    assert_non_null(strstr(err.text, "sampler class-group: the data has no /group"));
    assert_int_equal(flim_sampler_describe(4, &alone, part, 12, &table, &err), FLIM_ERROR_USAGE);
}

static void draws_are_a_pure_function_of_seed_fold_epoch(void **state)
{
    (void)state;
    fixture f;
    flim_draw a[PART], b[PART];
    make(&f);
    for (int sampler = FLIM_SAMPLER_NATURAL; sampler <= FLIM_SAMPLER_CLASS_GROUP; sampler++) {
        draw(&f, (flim_sampler)sampler, 42, 3, 7, a);
        draw(&f, (flim_sampler)sampler, 42, 3, 7, b);
        assert_memory_equal(a, b, sizeof a);
        draw(&f, (flim_sampler)sampler, 43, 3, 7, b);
        assert_memory_not_equal(a, b, sizeof a);
        draw(&f, (flim_sampler)sampler, 42, 4, 7, b);
        assert_memory_not_equal(a, b, sizeof a);
        draw(&f, (flim_sampler)sampler, 42, 3, 8, b);
        assert_memory_not_equal(a, b, sizeof a);
    }
    flim_draw one;
    assert_int_equal(flim_sampler_draw(FLIM_SAMPLER_BALANCED, REPEATS, &f.data, f.part, 1, 1, 0, 0, &one, NULL), FLIM_OK);
    assert_int_equal(one.cell, 0);
    assert_int_equal(flim_sampler_draw(FLIM_SAMPLER_BALANCED, REPEATS, &f.data, f.part, 0, 1, 0, 0, &one, NULL), FLIM_OK);
}

static void names(void **state)
{
    (void)state;
    int s;
    flim_error err = {0};
    for (int i = FLIM_SAMPLER_NATURAL; i <= FLIM_SAMPLER_CLASS_GROUP; i++) {
        assert_int_equal(flim_parse_choice("sampler", flim_sampler_names[i], flim_sampler_names, &s, &err), FLIM_OK);
        assert_int_equal(s, i);
    }
    assert_int_equal(flim_parse_choice("sampler", "balance", flim_sampler_names, &s, &err), FLIM_ERROR_USAGE);
    assert_string_equal(
        err.text,
        "sampler: 'balance' is not one of natural, balanced, group-balanced, class-group (did you mean 'balanced'?)");
}

/* Training part 30/10, test set 0/40: weights 2/3 and 2 (sklearn's compute_class_weight on the training set), not 4/3 and
 * 0.8 (on all cells). */
static void weights_come_from_the_training_part(void **state)
{
    (void)state;
    int32_t label[80];
    int64_t part[40];
    for (int i = 0; i < 80; i++) {
        label[i] = i >= 30;
    }
    for (int i = 0; i < 40; i++) {
        part[i] = i;
    }
    flim_split_data data = {.n = 80, .classes = 3, .label = label};
    double weight[3] = {NAN, NAN, NAN};
    flim_class_weights(&data, part, 40, weight);
    assert_true(fabs(weight[0] - 2.0 / 3) < 1e-15 && weight[1] == 2.0 && weight[2] == 0.0);
    flim_class_weights(&data, part, 30, weight); /* class 1 absent: finite, zero */
    assert_true(weight[0] == 1.0 && weight[1] == 0.0 && weight[2] == 0.0);
}

/* Against looking for each key in turn; start and sorted hold anything before. */
static void items_of_a_key_lie_together_in_their_order(void **state)
{
    (void)state;
    enum { MOST = 60, KEYS = 9 };
    flim_random random = flim_random_begin(&(flim_cell_id){.seed = 5}, FLIM_RANDOM_SIMULATE);
    for (int round = 0; round < 500; round++) {
        int64_t key[MOST], item[MOST], start[KEYS + 1], sorted[MOST], at = 0;
        const int64_t n = (int64_t)flim_random_below(&random, MOST), keys = 1 + (int64_t)flim_random_below(&random, KEYS);
        for (int64_t i = 0; i < MOST; i++) {
            key[i] = (int64_t)flim_random_below(&random, (uint64_t)keys);
            item[i] = (int64_t)flim_random_below(&random, MOST);
            sorted[i] = -1;
        }
        memset(start, 0xff, sizeof start);
        flim_sort_by_key(item, n, key, keys, start, sorted);
        for (int64_t k = 0; k < keys; k++) {
            assert_int_equal(start[k], at);
            for (int64_t i = 0; i < n; i++) {
                if (key[item[i]] == k && sorted[at++] != item[i]) {
                    fail_msg("round %d: place %d has item %d, expected %d", round, (int)at - 1, (int)sorted[at - 1],
                             (int)item[i]);
                }
            }
        }
        assert_true(start[keys] == n && at == n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(natural_takes_each_cell_once),
        cmocka_unit_test(balanced_draws_classes_alike),
        cmocka_unit_test(group_balanced_draws_groups_alike),
        cmocka_unit_test(class_group_draws_every_class_of_every_group_alike),
        cmocka_unit_test(class_group_by_hand),
        cmocka_unit_test(draws_are_a_pure_function_of_seed_fold_epoch),
        cmocka_unit_test(names),
        cmocka_unit_test(weights_come_from_the_training_part),
        cmocka_unit_test(items_of_a_key_lie_together_in_their_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
