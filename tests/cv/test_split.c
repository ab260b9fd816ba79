/* Splits: random tables of labels and groups for every mode against the rules, and against brute force where tables are small. */
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/alloc.h"
#include "core/file.h"
#include "cv/split_tables.h"

static void require_even_classes(const table *t, const flim_split_request *request, const flim_splits *s, int round)
{
    for (int c = -1; c < t->data.classes; c++) { /* -1: all cells */
        int64_t least = INT64_MAX, most = 0;
        for (int f = 0; f < s->n_folds; f++) {
            int64_t n = 0;
            for (int64_t i = 0; i < s->fold[f].n_test; i++) {
                n += c < 0 || t->label[s->fold[f].test[i]] == c;
            }
            least = n < least ? n : least;
            most = n > most ? n : most;
        }
        REQUIRE(most - least <= 1);
    }
    for (int f = 0; f < s->n_folds; f++) { /* validation: each class within one cell of its share, or one cell at least */
        const flim_fold *fold = &s->fold[f];
        for (int c = 0; c < t->data.classes; c++) {
            int64_t val = 0, train = 0;
            for (int64_t i = 0; i < fold->n_val; i++) {
                val += t->label[fold->val[i]] == c;
            }
            for (int64_t i = 0; i < fold->n_train; i++) {
                train += t->label[fold->train[i]] == c;
            }
            double share = request->val_fraction * (double)(val + train);
            REQUIRE(fabs((double)val - share) < 1 + 1e-9 || val == 1 || train == 1);
        }
    }
}

static const double fractions[] = {0.15, 0.15, 0.3, 0.05, 0};

static void every_mode_keeps_the_rules(void **state)
{
    (void)state;
    flim_random random = flim_random_begin(&(flim_cell_id){.seed = 7}, FLIM_RANDOM_SIMULATE);
    static table storage;
    table *t = &storage;
    int made[5] = {0}, refused = 0;
    for (int round = 0; round < 6000; round++) {
        random_table(&random, t, 12, 5);
        flim_split_request r = {.mode = (flim_split_mode)(round % 5),
                                .folds = 2 + (int)below(&random, 6),
                                .val_fraction = fractions[below(&random, 5)],
                                .seed = below(&random, 1000)};
        const flim_split_request *request = &r;
        if (below(&random, 10) == 0) {
            t->data.group = NULL;
            t->data.groups = 0;
        }
        flim_splits s;
        flim_error err = {0};
        flim_status status = flim_splits_make(&t->data, request, &s, &err);
        bool groups_needed =
            r.mode == FLIM_SPLIT_GROUP || r.mode == FLIM_SPLIT_STRATIFIED_GROUP || r.mode == FLIM_SPLIT_LEAVE_ONE_GROUP_OUT;
        bool possible = classes_present(t) > 1 && (!groups_needed || t->data.groups > 1) &&
                        (r.mode == FLIM_SPLIT_LEAVE_ONE_GROUP_OUT || t->data.n >= r.folds) &&
                        (!groups_needed || r.mode == FLIM_SPLIT_LEAVE_ONE_GROUP_OUT || t->data.groups >= r.folds);
        REQUIRE(status == (possible ? FLIM_OK : FLIM_ERROR_USAGE));
        if (!possible) {
            REQUIRE(s.fold == NULL && strlen(err.text) > 20);
            refused++;
            continue;
        }
        if (r.mode == FLIM_SPLIT_AUTO) {
            bool enough = t->data.group && t->data.groups >= r.folds;
            REQUIRE(s.mode == (enough ? FLIM_SPLIT_STRATIFIED_GROUP : FLIM_SPLIT_STRATIFIED));
        } else {
            REQUIRE(s.mode == r.mode);
        }
        REQUIRE(s.n_folds == (r.mode == FLIM_SPLIT_LEAVE_ONE_GROUP_OUT ? (int)t->data.groups : r.folds));
        require_rules(t, request, &s, round);
        REQUIRE(flim_splits_check(&s, &t->data, &err) == FLIM_OK);
        if (s.mode == FLIM_SPLIT_STRATIFIED) {
            require_even_classes(t, request, &s, round);
        }
        made[s.mode]++;
        flim_splits_free(&s);
    }
    for (int m = 1; m < 5; m++) {
        assert_true(made[m] > 400);
    }
    assert_true(refused > 300);
}

/* ---- brute force over all assignments of a small table */

typedef struct optimum {
    int64_t gaps;
    double spread; /* mean over classes of sd over folds of the share */
} optimum;

static optimum measure(int64_t count[MOST_GROUPS][MOST_CLASSES], int64_t groups, int classes, int folds, const int *fold_of)
{
    optimum o = {0};
    int present = 0;
    for (int c = 0; c < classes; c++) {
        double total = 0, squares = 0, in[MOST_CELLS] = {0};
        for (int64_t g = 0; g < groups; g++) {
            total += (double)count[g][c];
            in[fold_of[g]] += (double)count[g][c];
        }
        if (total == 0) {
            continue;
        }
        present++;
        for (int f = 0; f < folds; f++) {
            o.gaps += in[f] == 0;
            double off = in[f] / total - 1.0 / folds;
            squares += off * off;
        }
        o.spread += sqrt(squares / folds);
    }
    o.spread /= present;
    return o;
}

static optimum brute_force(int64_t count[MOST_GROUPS][MOST_CLASSES], int64_t groups, int classes, int folds)
{
    optimum best = {.gaps = INT64_MAX};
    int fold_of[MOST_GROUPS] = {0};
    for (;;) {
        optimum o = measure(count, groups, classes, folds, fold_of);
        if (o.gaps < best.gaps || (o.gaps == best.gaps && o.spread < best.spread)) {
            best = o;
        }
        int64_t g = 1; /* group 0 stays in fold 0: fold numbers are free */
        while (g < groups && fold_of[g] == folds - 1) {
            fold_of[g++] = 0;
        }
        if (g >= groups) {
            return best;
        }
        fold_of[g]++;
    }
}

static void test_folds_of(const table *t, const flim_splits *s, int *fold_of)
{
    for (int f = 0; f < s->n_folds; f++) {
        for (int64_t i = 0; i < s->fold[f].n_test; i++) {
            fold_of[t->group[s->fold[f].test[i]]] = f;
        }
    }
}

static void stratified_group_is_as_good_as_brute_force(void **state)
{
    (void)state;
    flim_random random = flim_random_begin(&(flim_cell_id){.seed = 11}, FLIM_RANDOM_SIMULATE);
    static table storage;
    table *t = &storage;
    int tried = 0, full = 0, gaps = 0, short_of_best = 0;
    for (int round = 0; round < 700; round++) {
        random_table(&random, t, 8, 4);
        flim_split_request r = {
            .mode = FLIM_SPLIT_STRATIFIED_GROUP, .folds = 2 + (int)below(&random, 3), .seed = (uint64_t)round};
        const flim_split_request *request = &r;
        if (t->data.groups < r.folds || (r.folds == 4 && t->data.groups > 7) || classes_present(t) < 2) {
            continue;
        }
        flim_splits s;
        flim_error err = {0};
        REQUIRE(flim_splits_make(&t->data, request, &s, &err) == FLIM_OK);
        int64_t count[MOST_GROUPS][MOST_CLASSES];
        int fold_of[MOST_GROUPS];
        count_table(t, count);
        test_folds_of(t, &s, fold_of);
        optimum ours = measure(count, t->data.groups, t->data.classes, r.folds, fold_of);
        optimum best = brute_force(count, t->data.groups, t->data.classes, r.folds);
        REQUIRE(best.gaps > 0 || ours.gaps == 0); /* every class in every fold whenever one exists */
        REQUIRE(ours.gaps <= best.gaps + 0);
        if (ours.spread > best.spread + 1e-3) { /* 1e-3: the weight of even fold sizes */
            short_of_best++;
        }
        tried++;
        full += best.gaps == 0;
        gaps += best.gaps > 0;
        flim_splits_free(&s);
    }
    print_message("brute force: %d tables, %d with full folds, %d less even than the best\n", tried, full, short_of_best);
    assert_true(full > 100 && gaps > 100);
    assert_true(short_of_best * 100 <= tried); /* a search by moves and swaps may stop at a neighbour of the best */
}

/* The exact search by itself, on tables where greedy placing tends to fail, against brute force. */
static void cover_search_is_exact(void **state)
{
    (void)state;
    flim_random random = flim_random_begin(&(flim_cell_id){.seed = 13}, FLIM_RANDOM_SIMULATE);
    int found = 0, none = 0;
    for (int round = 0; round < 1500; round++) {
        int64_t count[MOST_GROUPS][MOST_CLASSES] = {{0}}, flat[MOST_GROUPS * MOST_CLASSES];
        int classes = 2 + (int)below(&random, 4), folds = 2 + (int)below(&random, 2), fold_of[MOST_GROUPS];
        int64_t groups = folds + (int64_t)below(&random, 6);
        bool any[MOST_CLASSES] = {false};
        for (int64_t g = 0; g < groups; g++) {
            for (int c = 0; c < classes; c++) {
                count[g][c] = below(&random, 5) < 2;
            }
            count[g][below(&random, (uint32_t)classes)] = 1;
            for (int c = 0; c < classes; c++) {
                flat[g * classes + c] = count[g][c];
                any[c] = any[c] || count[g][c];
            }
        }
        flim_cover cover;
        assert_int_equal(flim_cover_folds(groups, classes, flat, folds, &cover, fold_of, NULL), FLIM_OK);
        optimum best = brute_force(count, groups, classes, folds);
        if (cover != (best.gaps == 0 ? FLIM_COVER_FOUND : FLIM_COVER_NONE)) {
            fail_msg("round %d: cover %d, brute force leaves %" PRId64 " gaps", round, (int)cover, best.gaps);
        }
        if (cover == FLIM_COVER_FOUND) {
            found++;
            for (int f = 0; f < folds; f++) {
                for (int c = 0; c < classes; c++) {
                    bool has = !any[c];
                    for (int64_t g = 0; g < groups; g++) {
                        has = has || (fold_of[g] == f && count[g][c]);
                    }
                    assert_true(has);
                }
            }
        } else {
            none++;
        }
    }
    print_message("cover search: %d found, %d shown impossible\n", found, none);
    assert_true(found > 200 && none > 200);
}

/* Hidden covers without slack: each fold's classes are dealt to one to four groups, every class once per fold, so that almost
 * every other assignment has gaps.  It must be found again, up to 40 groups. */
static void hidden_covers_are_found(void **state)
{
    (void)state;
    enum { CLASSES = 6, FOLDS = 10 };
    flim_random random = flim_random_begin(&(flim_cell_id){.seed = 99}, FLIM_RANDOM_SIMULATE);
    int64_t largest = 0;
    for (int round = 0; round < 150; round++) {
        int64_t count[4 * FOLDS * CLASSES] = {0}, shuffled[4 * FOLDS * CLASSES], order[4 * FOLDS], groups = 0;
        int classes = 2 + (int)below(&random, CLASSES - 1), folds = 2 + (int)below(&random, FOLDS - 1);
        int fold_of[4 * FOLDS];
        for (int f = 0; f < folds; f++) {
            int64_t turn[CLASSES] = {0, 1, 2, 3, 4, 5};
            int parts = 1 + (int)below(&random, classes < 4 ? (uint32_t)classes : 4);
            flim_random_shuffle(&random, turn, (size_t)classes);
            for (int c = 0; c < classes; c++) { /* the first `parts` classes make sure that no group is empty */
                int64_t part = turn[c] < parts ? turn[c] : (int64_t)below(&random, (uint32_t)parts);
                count[(groups + part) * classes + c] = 1 + (int64_t)below(&random, 20);
            }
            groups += parts;
        }
        for (int64_t g = 0; g < groups; g++) {
            order[g] = g;
        }
        flim_random_shuffle(&random, order, (size_t)groups);
        for (int64_t g = 0; g < groups; g++) {
            memcpy(shuffled + g * classes, count + order[g] * classes, (size_t)classes * sizeof *count);
        }
        flim_cover cover;
        assert_int_equal(flim_assign_groups(groups, classes, shuffled, folds, 42, &cover, fold_of, NULL), FLIM_OK);
        bool has[FOLDS][CLASSES] = {{false}};
        for (int64_t g = 0; g < groups; g++) {
            for (int c = 0; c < classes; c++) {
                has[fold_of[g]][c] = has[fold_of[g]][c] || shuffled[g * classes + c];
            }
        }
        for (int f = 0; f < folds; f++) {
            for (int c = 0; c < classes; c++) {
                if (!has[f][c]) {
                    fail_msg("round %d: %" PRId64
                             " groups, %d classes, %d folds: fold %d lacks class %d, though there is a way",
                             round, groups, classes, folds, f, c);
                }
            }
        }
        assert_int_equal(cover, FLIM_COVER_FOUND);
        largest = groups > largest ? groups : largest;
    }
    assert_true(largest >= 25);
}

/* All subsets of the rest's groups: which classes can val hold while train keeps them all, and with how few groups? */
static void validation_takes_the_fewest_groups(void **state)
{
    (void)state;
    flim_random random = flim_random_begin(&(flim_cell_id){.seed = 17}, FLIM_RANDOM_SIMULATE);
    static table storage;
    table *t = &storage;
    int complete = 0, incomplete = 0, empty = 0, beyond = 0;
    for (int round = 0; round < 1500; round++) {
        random_table(&random, t, 10, 4);
        flim_split_request r = {.mode = (flim_split_mode)(FLIM_SPLIT_GROUP + round % 3),
                                .folds = 2 + (int)below(&random, 3),
                                .val_fraction = fractions[below(&random, 4)],
                                .seed = (uint64_t)round};
        const flim_split_request *request = &r;
        flim_splits s;
        if (flim_splits_make(&t->data, request, &s, NULL) != FLIM_OK) {
            continue;
        }
        int64_t count[MOST_GROUPS][MOST_CLASSES];
        count_table(t, count);
        for (int f = 0; f < s.n_folds; f++) {
            const flim_fold *fold = &s.fold[f];
            bool in_rest[MOST_GROUPS] = {false}, in_val[MOST_GROUPS] = {false};
            int64_t rest[MOST_GROUPS], n_rest = 0, val_groups = 0;
            for (int64_t i = 0; i < fold->n_train; i++) {
                in_rest[t->group[fold->train[i]]] = true;
            }
            for (int64_t i = 0; i < fold->n_val; i++) {
                in_rest[t->group[fold->val[i]]] = in_val[t->group[fold->val[i]]] = true;
            }
            for (int64_t g = 0; g < t->data.groups; g++) {
                if (in_rest[g]) {
                    rest[n_rest++] = g;
                    val_groups += in_val[g];
                }
            }
            int best_classes = 0, best_groups = 0, ours = 0, wanted = 0;
            for (unsigned subset = 0; subset < 1u << n_rest; subset++) {
                int held = 0, groups = __builtin_popcount(subset), needed = 0;
                bool train_keeps = true;
                for (int c = 0; c < t->data.classes; c++) {
                    bool has_val = false, has_train = false;
                    for (int64_t i = 0; i < n_rest; i++) {
                        if (count[rest[i]][c]) {
                            has_val = has_val || (subset >> i & 1);
                            has_train = has_train || !(subset >> i & 1);
                        }
                    }
                    train_keeps = train_keeps && (has_train || !has_val);
                    held += has_val;
                    needed += has_val || has_train;
                }
                wanted = needed;
                if (train_keeps && (held > best_classes || (held == best_classes && groups < best_groups))) {
                    best_classes = held;
                    best_groups = groups;
                }
            }
            for (int c = 0; c < t->data.classes; c++) {
                bool has = false;
                for (int64_t g = 0; g < t->data.groups; g++) {
                    has = has || (in_val[g] && count[g][c]);
                }
                ours += has;
            }
            REQUIRE(ours == best_classes);
            REQUIRE(fold->val_complete == (best_classes == wanted));
            REQUIRE(val_groups >= best_groups);
            double share = (double)fold->n_val / (double)(fold->n_val + fold->n_train);
            REQUIRE(val_groups == best_groups || share <= r.val_fraction + 1e-9);
            complete += fold->val_complete;
            incomplete += !fold->val_complete && fold->n_val > 0;
            empty += fold->n_val == 0;
            beyond += val_groups > best_groups;
        }
        flim_splits_free(&s);
    }
    print_message("validation: %d complete, %d without some class, %d empty, %d grown to the fraction\n", complete,
                  incomplete, empty, beyond);
    assert_true(complete > 500 && incomplete > 100 && empty > 100 && beyond > 20);
}

/* ---- order of rows, seed */

static void rows_in_another_order_give_the_same_folds(void **state)
{
    (void)state;
    flim_random random = flim_random_begin(&(flim_cell_id){.seed = 19}, FLIM_RANDOM_SIMULATE);
    static table a, b;
    for (int round = 0; round < 600; round++) {
        random_table(&random, &a, 12, 4);
        finish(&a, a.data.n, a.data.classes, a.data.groups, true);
        int64_t order[MOST_CELLS], group_order[MOST_GROUPS], back[MOST_GROUPS];
        for (int64_t i = 0; i < a.data.n; i++) {
            order[i] = i;
        }
        for (int64_t g = 0; g < a.data.groups; g++) {
            group_order[g] = g;
        }
        flim_random_shuffle(&random, order, (size_t)a.data.n);
        flim_random_shuffle(&random, group_order, (size_t)a.data.groups); /* even the numbers of the groups may differ */
        b = a;
        finish(&b, a.data.n, a.data.classes, a.data.groups, true);
        for (int64_t g = 0; g < a.data.groups; g++) {
            b.group_name[g] = a.group_text[group_order[g]];
            back[group_order[g]] = g;
        }
        for (int64_t i = 0; i < a.data.n; i++) {
            b.label[i] = a.label[order[i]];
            b.group[i] = back[a.group[order[i]]];
            b.name[i] = a.name_text[order[i]];
        }
        flim_split_request r = {.mode = (flim_split_mode)(round % 5), .folds = 3, .val_fraction = 0.15, .seed = 5};
        flim_splits x, y;
        flim_status status = flim_splits_make(&a.data, &r, &x, NULL);
        assert_int_equal(flim_splits_make(&b.data, &r, &y, NULL), status);
        if (status != FLIM_OK) {
            continue;
        }
        assert_int_equal(x.n_folds, y.n_folds);
        for (int f = 0; f < x.n_folds; f++) {
            int part_x[MOST_CELLS] = {0}, part_y[MOST_CELLS] = {0};
            for (int64_t i = 0; i < x.fold[f].n_test; i++) {
                part_x[x.fold[f].test[i]] = 2;
            }
            for (int64_t i = 0; i < x.fold[f].n_val; i++) {
                part_x[x.fold[f].val[i]] = 1;
            }
            assert_int_equal(y.fold[f].n_test, x.fold[f].n_test);
            for (int64_t i = 0; i < y.fold[f].n_test; i++) {
                part_y[order[y.fold[f].test[i]]] = 2;
            }
            for (int64_t i = 0; i < y.fold[f].n_val; i++) {
                part_y[order[y.fold[f].val[i]]] = 1;
            }
            if (memcmp(part_x, part_y, sizeof part_x) != 0) {
                print_table(&a, &r, round);
                fail_msg("fold %d differs when the rows stand in another order", f);
            }
        }
        flim_splits_free(&x);
        flim_splits_free(&y);
    }
}

static void the_seed_decides(void **state)
{
    (void)state;
    static table t;
    int64_t count[12 * 2];
    for (int i = 0; i < 24; i++) {
        count[i] = 5;
    }
    build(&t, count, 12, 2);
    for (int mode = FLIM_SPLIT_STRATIFIED; mode <= FLIM_SPLIT_STRATIFIED_GROUP; mode++) {
        flim_split_request r = {.mode = (flim_split_mode)mode, .folds = 4, .val_fraction = 0.15, .seed = 1};
        flim_splits s[3];
        for (int i = 0; i < 3; i++) {
            r.seed = i == 2 ? 2 : 1;
            assert_int_equal(flim_splits_make(&t.data, &r, &s[i], NULL), FLIM_OK);
        }
        size_t bytes = (size_t)s[0].fold[0].n_test * sizeof(int64_t);
        assert_memory_equal(s[0].fold[0].test, s[1].fold[0].test, bytes);
        assert_int_equal(s[0].fold[0].n_val, s[1].fold[0].n_val);
        assert_memory_equal(s[0].fold[0].val, s[1].fold[0].val, (size_t)s[0].fold[0].n_val * sizeof(int64_t));
        assert_true(s[0].fold[0].n_test != s[2].fold[0].n_test || memcmp(s[0].fold[0].test, s[2].fold[0].test, bytes) != 0);
        for (int i = 0; i < 3; i++) {
            flim_splits_free(&s[i]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_mode_keeps_the_rules),
        cmocka_unit_test(stratified_group_is_as_good_as_brute_force),
        cmocka_unit_test(cover_search_is_exact),
        cmocka_unit_test(hidden_covers_are_found),
        cmocka_unit_test(validation_takes_the_fewest_groups),
        cmocka_unit_test(rows_in_another_order_give_the_same_folds),
        cmocka_unit_test(the_seed_decides),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
