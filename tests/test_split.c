/* Splits: random tables of labels and groups for every mode against the rules, against brute force where tables are small, and
 * the messages that a user gets. */
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
#include "cv/split_parts.h"

enum { MOST_CELLS = 160, MOST_GROUPS = 24, MOST_CLASSES = 6 };

/* ---- a log that remembers */

typedef struct lines {
    char text[16384];
} lines;

static void remember(void *context, flim_log_level level, const char *text)
{
    lines *l = context;
    size_t used = strlen(l->text);
    snprintf(l->text + used, sizeof l->text - used, "%s%s\n", level == FLIM_LOG_WARNING ? "warning: " : "", text);
}

/* ---- tables */

typedef struct table {
    flim_split_data data;
    int32_t label[MOST_CELLS];
    int64_t group[MOST_CELLS];
    char name_text[MOST_CELLS][16], group_text[MOST_GROUPS][16];
    const char *name[MOST_CELLS], *group_name[MOST_GROUPS];
} table;

static uint32_t below(flim_random *random, uint32_t bound)
{
    return (uint32_t)flim_random_below(random, bound);
}

static void finish(table *t, int64_t n, int classes, int64_t groups, bool names)
{
    for (int64_t i = 0; i < n; i++) {
        snprintf(t->name_text[i], sizeof t->name_text[i], "cell%03d", (int)((i * 37) % 1000));
        t->name[i] = t->name_text[i];
    }
    for (int64_t g = 0; g < groups; g++) {
        snprintf(t->group_text[g], sizeof t->group_text[g], "g%02d", (int)g);
        t->group_name[g] = t->group_text[g];
    }
    t->data = (flim_split_data){.n = n,
                                .classes = classes,
                                .label = t->label,
                                .groups = groups,
                                .group = groups ? t->group : NULL,
                                .group_name = groups ? t->group_name : NULL,
                                .name = names ? t->name : NULL};
}

/* Shapes that fields have: mixed groups, groups of one class each, a rare class, groups of very different sizes. */
static void random_table(flim_random *random, table *t, int64_t most_groups, int most_classes)
{
    int classes = 2 + (int)below(random, (uint32_t)most_classes - 1);
    int64_t groups = 1 + below(random, (uint32_t)most_groups), n = groups + below(random, (uint32_t)(MOST_CELLS - groups));
    uint32_t shape = below(random, 4);
    if (below(random, 3) == 0) {
        n = groups + below(random, 8); /* scarce */
    }
    for (int64_t i = 0; i < n; i++) {
        t->group[i] = i < groups ? i : below(random, (uint32_t)groups);
        if (i >= groups && shape == 2) {
            t->group[i] = (int64_t)(pow(flim_random_uniform(random), 3) * (double)groups);
        }
        t->label[i] = (int32_t)below(random, (uint32_t)classes);
        if (shape == 1) {
            t->label[i] = (int32_t)(t->group[i] % classes);
        } else if (shape == 3) {
            t->label[i] = below(random, 12) == 0 ? classes - 1 : (int32_t)below(random, (uint32_t)classes - 1);
        } else if (shape == 2 && below(random, 2)) {
            t->label[i] = (int32_t)(t->group[i] % classes);
        }
    }
    finish(t, n, classes, groups, below(random, 2));
}

/* cells of each group and class */
static void count_table(const table *t, int64_t count[MOST_GROUPS][MOST_CLASSES])
{
    memset(count, 0, MOST_GROUPS * sizeof *count);
    for (int64_t i = 0; i < t->data.n; i++) {
        count[t->data.group ? t->group[i] : 0][t->label[i]]++;
    }
}

static int classes_present(const table *t)
{
    int present = 0;
    for (int c = 0; c < t->data.classes; c++) {
        bool has = false;
        for (int64_t i = 0; i < t->data.n; i++) {
            has = has || t->label[i] == c;
        }
        present += has;
    }
    return present;
}

static void print_table(const table *t, const flim_split_request *request, int round)
{
    print_message("round %d: mode %s, folds %d, val %g, seed %" PRIu64 ", n %" PRId64 ", classes %d, groups %" PRId64 "\n",
                  round, flim_split_mode_name(request->mode), request->folds, request->val_fraction, request->seed, t->data.n,
                  t->data.classes, t->data.groups);
    int64_t count[MOST_GROUPS][MOST_CLASSES];
    count_table(t, count);
    for (int64_t g = 0; g < t->data.groups; g++) {
        for (int c = 0; c < t->data.classes; c++) {
            print_message(" %" PRId64, count[g][c]);
        }
        print_message(";");
    }
    print_message("\n");
}

#define REQUIRE(condition)                                                                                                   \
    do {                                                                                                                     \
        if (!(condition)) {                                                                                                  \
            print_table(t, request, round);                                                                                  \
            fail_msg("%s", #condition);                                                                                      \
        }                                                                                                                    \
    } while (0)

/* ---- the rules, written down again without the library's checker */

static void require_rules(const table *t, const flim_split_request *request, const flim_splits *s, int round)
{
    bool by_group = s->mode != FLIM_SPLIT_STRATIFIED;
    int tested[MOST_CELLS] = {0};
    for (int f = 0; f < s->n_folds; f++) {
        const flim_fold *fold = &s->fold[f];
        const int64_t *list[3] = {fold->train, fold->val, fold->test};
        int64_t n[3] = {fold->n_train, fold->n_val, fold->n_test};
        int part_of[MOST_CELLS], part_of_group[MOST_GROUPS];
        memset(part_of, -1, sizeof part_of);
        memset(part_of_group, -1, sizeof part_of_group);
        REQUIRE(n[0] > 0 && n[2] > 0);
        REQUIRE(n[0] + n[1] + n[2] + s->n_holdout == t->data.n);
        for (int part = 0; part < 3; part++) {
            for (int64_t i = 0; i < n[part]; i++) {
                int64_t cell = list[part][i];
                REQUIRE(cell >= 0 && cell < t->data.n);
                REQUIRE(i == 0 || list[part][i - 1] < cell);
                REQUIRE(part_of[cell] < 0);
                part_of[cell] = part;
                if (by_group) {
                    int *of_group = &part_of_group[t->group[cell]];
                    REQUIRE(*of_group < 0 || *of_group == part);
                    *of_group = part;
                }
            }
        }
        for (int64_t i = 0; i < fold->n_test; i++) {
            tested[fold->test[i]]++;
        }
        bool complete = fold->n_val > 0;
        for (int c = 0; c < t->data.classes; c++) {
            bool in_part[2] = {false, false};
            int64_t rest = 0;
            for (int part = 0; part < 2; part++) {
                for (int64_t i = 0; i < n[part]; i++) {
                    in_part[part] = in_part[part] || t->label[list[part][i]] == c;
                    rest += t->label[list[part][i]] == c;
                }
            }
            REQUIRE(rest == 0 || in_part[0]); /* the validation part never takes a class away */
            complete = complete && (in_part[1] || !in_part[0]);
            if (!by_group && request->val_fraction > 0 && rest > 1) {
                REQUIRE(in_part[1]);
            }
        }
        REQUIRE(complete == fold->val_complete);
    }
    for (int64_t i = 0; i < s->n_holdout; i++) {
        tested[s->holdout[i]]++;
    }
    for (int64_t i = 0; i < t->data.n; i++) {
        REQUIRE(tested[i] == 1);
    }
}

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

static void build(table *t, const int64_t *count, int64_t groups, int classes)
{
    int64_t n = 0;
    for (int64_t g = 0; g < groups; g++) {
        for (int c = 0; c < classes; c++) {
            for (int64_t i = 0; i < count[g * classes + c]; i++) {
                t->group[n] = g;
                t->label[n++] = c;
            }
        }
    }
    finish(t, n, classes, groups, true);
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

/* ---- tables of the field */

/* real_flim_cells.h5: quadrants of one field a class; T cells, Panc1, yeast. */
/* clang-format off */
static const int64_t real_cells[12 * 3] = {5, 0, 0,  9, 0, 0,  6, 0, 0,  11, 0, 0,  0, 5, 0,  0, 13, 0,  0, 13, 0,  0, 11, 0,
                                           0, 0, 16,  0, 0, 15,  0, 0, 13,  0, 0, 20};
/* clang-format on */

static void quadrants_of_one_field_a_class(void **state)
{
    (void)state;
    static table t;
    build(&t, real_cells, 12, 3);
    lines log = {{0}};
    flim_log to = {remember, &log};
    for (uint64_t seed = 0; seed < 20; seed++) {
        flim_split_request r = {.mode = FLIM_SPLIT_AUTO, .folds = 4, .val_fraction = 0.15, .seed = seed, .log = &to};
        flim_splits s;
        assert_int_equal(flim_splits_make(&t.data, &r, &s, NULL), FLIM_OK);
        assert_int_equal(s.mode, FLIM_SPLIT_STRATIFIED_GROUP);
        for (int f = 0; f < 4; f++) {
            assert_true(s.fold[f].val_complete);
            for (int part = 0; part < 2; part++) {
                int groups_of_class[3] = {0}, seen[12] = {0};
                const int64_t *list = part ? s.fold[f].test : s.fold[f].val;
                for (int64_t i = 0; i < (part ? s.fold[f].n_test : s.fold[f].n_val); i++) {
                    groups_of_class[t.label[list[i]]] += !seen[t.group[list[i]]]++;
                }
                for (int c = 0; c < 3; c++) {
                    assert_int_equal(groups_of_class[c], 1);
                }
            }
        }
        flim_splits_free(&s);
    }
    assert_string_equal(log.text, "");
}

static void six_donors_of_twenty_cells(void **state)
{
    (void)state;
    static table t;
    int64_t count[6 * 2];
    for (int i = 0; i < 12; i++) {
        count[i] = 10;
    }
    build(&t, count, 6, 2);
    lines log = {{0}};
    flim_log to = {remember, &log};
    flim_split_request r = {.mode = FLIM_SPLIT_STRATIFIED, .folds = 5, .val_fraction = 0.15, .seed = 42, .log = &to};
    flim_splits s;
    assert_int_equal(flim_splits_make(&t.data, &r, &s, NULL), FLIM_OK);
    assert_non_null(strstr(log.text,
                           "warning: cv stratified: 6 of 6 groups have cells in both the training and the test part of a "
                           "fold (g00, g01, g02, g03, g04, g05)"));
    flim_splits_free(&s);
    log.text[0] = '\0';
    r.mode = FLIM_SPLIT_LEAVE_ONE_GROUP_OUT;
    assert_int_equal(flim_splits_make(&t.data, &r, &s, NULL), FLIM_OK);
    assert_string_equal(log.text, "");
    assert_int_equal(s.n_folds, 6);
    for (int f = 0; f < 6; f++) {
        assert_int_equal(s.fold[f].n_test, 20);
        assert_int_equal(s.fold[f].n_val, 20);
        assert_int_equal(t.group[s.fold[f].test[0]], f);
    }
    flim_splits_table(&s, &t.data, &to);
    assert_non_null(strstr(log.text, "fold  part      cells  groups       0       1\n"
                                     "   0  train        80       4      40      40\n"));
    assert_non_null(strstr(log.text, "      test         20       1      10      10  g05\n"));
    flim_splits_free(&s);

    log.text[0] = '\0';
    r.mode = FLIM_SPLIT_AUTO;
    r.folds = 7;
    assert_int_equal(flim_splits_make(&t.data, &r, &s, NULL), FLIM_OK);
    assert_int_equal(s.mode, FLIM_SPLIT_STRATIFIED);
    assert_non_null(strstr(log.text, "/group has 6 groups for 7 folds"));
    assert_non_null(strstr(log.text, "6 of 6 groups have cells in both"));
    flim_splits_free(&s);
}

static void groups_are_held_out(void **state)
{
    (void)state;
    static table t;
    build(&t, real_cells, 12, 3);
    const char *names[] = {"g01", "g05", "g08"};
    lines log = {{0}};
    flim_log to = {remember, &log};
    flim_split_request r = {
        .mode = FLIM_SPLIT_AUTO, .folds = 3, .val_fraction = 0.15, .holdout_group = names, .n_holdout = 3, .log = &to};
    flim_splits s;
    flim_error err = {0};
    assert_int_equal(flim_splits_make(&t.data, &r, &s, &err), FLIM_OK);
    assert_int_equal(s.n_holdout, 9 + 13 + 16);
    require_rules(&t, &r, &s, 0);
    for (int64_t i = 0; i < s.n_holdout; i++) {
        int64_t g = t.group[s.holdout[i]];
        assert_true(g == 1 || g == 5 || g == 8);
    }
    flim_splits_free(&s);
    names[1] = "g50";
    assert_int_equal(flim_splits_make(&t.data, &r, &s, &err), FLIM_ERROR_USAGE);
    assert_non_null(strstr(err.text, "holdout_group 'g50': no such group among the 12"));
    assert_non_null(strstr(err.text, "did you mean 'g00'?"));
}

static void impossible_requests_say_the_numbers(void **state)
{
    (void)state;
    static table t;
    build(&t, real_cells, 12, 3);
    flim_splits s;
    flim_error err = {0};
    flim_split_request r = {.mode = FLIM_SPLIT_GROUP, .folds = 13, .val_fraction = 0.15};
    assert_int_equal(flim_splits_make(&t.data, &r, &s, &err), FLIM_ERROR_USAGE);
    assert_non_null(strstr(err.text, "13 folds asked for, but there are 12 groups; use --folds 12 or fewer"));
    r = (flim_split_request){.mode = FLIM_SPLIT_STRATIFIED, .folds = 138};
    assert_int_equal(flim_splits_make(&t.data, &r, &s, &err), FLIM_ERROR_USAGE);
    assert_non_null(strstr(err.text, "138 folds asked for, but there are 137 cells"));
    r.folds = 1;
    assert_int_equal(flim_splits_make(&t.data, &r, &s, &err), FLIM_ERROR_USAGE);
    r = (flim_split_request){.mode = FLIM_SPLIT_STRATIFIED, .folds = 2, .val_fraction = NAN};
    assert_int_equal(flim_splits_make(&t.data, &r, &s, &err), FLIM_ERROR_USAGE);

    static const int64_t one_class[2 * 2] = {5, 0, 5, 0};
    build(&t, one_class, 2, 2);
    r = (flim_split_request){.mode = FLIM_SPLIT_STRATIFIED, .folds = 2};
    assert_int_equal(flim_splits_make(&t.data, &r, &s, &err), FLIM_ERROR_USAGE);
    assert_non_null(strstr(err.text, "all 10 cells are of one class, '0'"));
    static const int64_t one_group[1 * 2] = {5, 5};
    build(&t, one_group, 1, 2);
    r.mode = FLIM_SPLIT_LEAVE_ONE_GROUP_OUT;
    assert_int_equal(flim_splits_make(&t.data, &r, &s, &err), FLIM_ERROR_USAGE);
    assert_non_null(strstr(err.text, "there is one group, 'g00'"));
    t.data.group = NULL;
    assert_int_equal(flim_splits_make(&t.data, &r, &s, &err), FLIM_ERROR_USAGE);
    assert_non_null(strstr(err.text, "no /group"));
}

static void rare_classes_are_named(void **state)
{
    (void)state;
    static table t;
    static const int64_t rare[4 * 2] = {10, 2, 10, 0, 10, 0, 10, 0}; /* class 1: two cells of one group */
    build(&t, rare, 4, 2);
    lines log = {{0}};
    flim_log to = {remember, &log};
    flim_split_request r = {.mode = FLIM_SPLIT_STRATIFIED_GROUP, .folds = 4, .val_fraction = 0.15, .log = &to};
    flim_splits s;
    assert_int_equal(flim_splits_make(&t.data, &r, &s, NULL), FLIM_OK);
    assert_non_null(strstr(log.text, "class '1' (2 cells in 1 groups) is absent from the test part of 3 of 4 folds"));
    assert_non_null(strstr(log.text, "class '1' (2 cells in 1 groups) is absent from the training part of fold"));
    assert_non_null(strstr(log.text, "class '1' is absent from the inner validation part of 3 of 4 folds"));
    assert_non_null(strstr(log.text, "no way to deal the groups into 4 folds gives every fold every class"));
    flim_splits_free(&s);
    log.text[0] = '\0';
    r = (flim_split_request){.mode = FLIM_SPLIT_STRATIFIED, .folds = 4, .val_fraction = 0.15, .log = &to};
    t.data.group = NULL;
    assert_int_equal(flim_splits_make(&t.data, &r, &s, NULL), FLIM_OK);
    assert_non_null(strstr(log.text, "class '1' (2 cells) is absent from the test part of 2 of 4 folds"));
    flim_splits_free(&s);
    log.text[0] = '\0';
    static const int64_t two[2 * 2] = {4, 4, 4, 4};
    build(&t, two, 2, 2);
    r.mode = FLIM_SPLIT_LEAVE_ONE_GROUP_OUT;
    assert_int_equal(flim_splits_make(&t.data, &r, &s, NULL), FLIM_OK);
    assert_int_equal(s.fold[0].n_val, 0);
    assert_false(s.fold[0].val_complete);
    assert_non_null(strstr(log.text, "no inner validation part in 2 of 2 folds (0, 1)"));
    flim_splits_free(&s);
}

/* ---- files */

static void write_text(const char *path, const char *text)
{
    assert_int_equal(flim_file_write(path, text, strlen(text), NULL), FLIM_OK);
}

static void files_come_back_and_bad_ones_are_refused(void **state)
{
    (void)state;
    static table t;
    build(&t, real_cells, 12, 3);
    char path[256];
    snprintf(path, sizeof path, "/tmp/flim_test_split_%d.json", (int)getpid());
    const char *held[] = {"g11"};
    flim_split_request r = {.mode = FLIM_SPLIT_STRATIFIED_GROUP,
                            .folds = 3,
                            .val_fraction = 0.15,
                            .seed = UINT64_MAX,
                            .holdout_group = held,
                            .n_holdout = 1};
    flim_splits s, back;
    flim_error err = {0};
    assert_int_equal(flim_splits_make(&t.data, &r, &s, &err), FLIM_OK);
    snprintf(s.sha256, sizeof s.sha256, "%064d", 7);
    assert_int_equal(flim_splits_write(&s, path, &err), FLIM_OK);
    for (int with_data = 0; with_data < 2; with_data++) {
        assert_int_equal(flim_splits_read(path, with_data ? &t.data : NULL, &back, &err), FLIM_OK);
        assert_int_equal(back.mode, s.mode);
        assert_true(back.seed == s.seed && back.n == s.n && back.n_folds == 3 && !back.needs_validation);
        assert_string_equal(back.sha256, s.sha256);
        assert_int_equal(back.n_holdout, 20);
        for (int f = 0; f < 3; f++) {
            assert_int_equal(back.fold[f].n_train, s.fold[f].n_train);
            assert_memory_equal(back.fold[f].train, s.fold[f].train, (size_t)s.fold[f].n_train * sizeof(int64_t));
            assert_memory_equal(back.fold[f].val, s.fold[f].val, (size_t)s.fold[f].n_val * sizeof(int64_t));
            assert_memory_equal(back.fold[f].test, s.fold[f].test, (size_t)s.fold[f].n_test * sizeof(int64_t));
            assert_int_equal(back.fold[f].val_complete, with_data && s.fold[f].val_complete);
        }
        flim_splits_free(&back);
    }
    flim_splits_free(&s);

    static const int64_t small[3 * 2] = {1, 1, 1, 1, 1, 1}; /* cells 0,1 | 2,3 | 4,5 */
    build(&t, small, 3, 2);
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"{\"mode\": \"group\", \"folds\": [{\"train\": [1,2,3], \"val\": [], \"test\": [0]}]}",
         "group 'g00' stands in train and in test"},
        {"{\"mode\": \"group\", \"folds\": [{\"train\": [2], \"val\": [3], \"test\": [0,1]}]}",
         "group 'g01' stands in train and in val"},
        {"{\"mode\": \"stratified\", \"folds\": [{\"train\": [2,3], \"val\": [3], \"test\": [0,1]}]}",
         "cell 3 ('cell111') stands in train and in val"},
        {"{\"mode\": \"stratified\", \"folds\": [{\"train\": [2,3], \"test\": [0,1]}, {\"train\": [2,3], \"test\": [0,1]}]}",
         "cell 0 ('cell000') is tested in fold 0 and in fold 1"},
        {"{\"mode\": \"stratified\", \"folds\": [{\"train\": [0,1,2], \"test\": [3,4]}]}", "stands in no test part"},
        {"{\"mode\": \"stratified\", \"folds\": [{\"train\": [0,1,2], \"test\": [3,4,5,6]}]}",
         "cell 6 is out of range, the data has 6"},
        {"{\"mode\": \"stratified\", \"folds\": [{\"train\": [0,1,1], \"test\": [3,4,5]}]}", "1 follows 1"},
        {"{\"mode\": \"stratified\", \"folds\": [{\"train\": [], \"test\": [0,1,2,3,4,5]}]}", "the train part is empty"},
        {"{\"mode\": \"stratified\", \"folds\": [{\"train\": [1]}]}", "\"test\" is missing"},
        {"{\"mode\": \"stratified\", \"data\": {\"n\": 7}, \"folds\": [{\"train\": [1], \"test\": [0]}]}",
         "for 7 cells, but the data has 6"},
        {"{\"mode\": \"odd\", \"folds\": [{\"train\": [1], \"test\": [0]}]}", "mode 'odd'"},
        {"{\"mode\": \"stratified\", \"folds\": [{\"train\": [1.5], \"test\": [0]}]}", "entry 0 is neither"},
        {"{\"mode\": \"stratified\", \"folds\": [{\"train\": [\"nobody\"], \"test\": [0]}]}", "no cell named 'nobody'"},
        {"{\"mode\": \"stratified\"}", "no folds"},
        {"[]", "no folds"},
        {"{", ".json"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        write_text(path, bad[i].text);
        err.text[0] = '\0';
        assert_int_equal(flim_splits_read(path, &t.data, &back, &err), FLIM_ERROR_DATA);
        if (!strstr(err.text, bad[i].says) || !strstr(err.text, path)) {
            fail_msg("case %zu: '%s' does not say '%s' and the path", i, err.text, bad[i].says);
        }
        assert_null(back.fold);
    }

    /* nnU-Net: val is the test part; names or indices; an inner validation part is made afterwards. */
    write_text(path, "[{\"train\": [\"cell000\", \"cell074\", 3, 1], \"val\": [\"cell148\", 5]}, {\"train\": [4, 5], "
                     "\"val\": [0, 1, 2, 3]}]");
    assert_int_equal(flim_splits_read(path, &t.data, &back, &err), FLIM_OK);
    assert_int_equal(back.mode, FLIM_SPLIT_GROUP);
    assert_true(back.needs_validation);
    assert_int_equal(back.fold[0].n_test, 2);
    assert_int_equal(back.fold[0].test[0], 4);
    assert_int_equal(back.fold[0].train[2], 2);
    r = (flim_split_request){.val_fraction = 0.15, .seed = 3};
    assert_int_equal(flim_splits_add_validation(&back, &t.data, &r, &err), FLIM_OK);
    assert_int_equal(back.fold[0].n_val, 2); /* one of two groups */
    assert_true(back.fold[0].val_complete);
    assert_int_equal(back.fold[1].n_val, 0); /* its only group stays in train */
    flim_splits_free(&back);
    write_text(path, "[{\"train\": [0, 2, 4, 5], \"val\": [1, 3]}, {\"train\": [1, 3], \"val\": [0, 2, 4, 5]}]");
    assert_int_equal(flim_splits_read(path, &t.data, &back, &err), FLIM_OK);
    assert_int_equal(back.mode, FLIM_SPLIT_STRATIFIED); /* groups are split */
    flim_splits_free(&back);
    unlink(path);
}

/* Every allocation of a split fails once: the status says so and nothing stays behind (the sanitizer build looks). */
static void running_out_of_memory_is_survived(void **state)
{
    (void)state;
    static table t;
    build(&t, real_cells, 12, 3);
    flim_split_request r = {.mode = FLIM_SPLIT_STRATIFIED_GROUP, .folds = 4, .val_fraction = 0.15};
    flim_splits s;
    for (int mode = FLIM_SPLIT_STRATIFIED; mode <= FLIM_SPLIT_STRATIFIED_GROUP; mode++) {
        r.mode = (flim_split_mode)mode;
        long n = 1;
        for (;; n++) {
            flim_error err = {0};
            flim_alloc_fail_at(n);
            flim_status status = flim_splits_make(&t.data, &r, &s, &err);
            flim_alloc_fail_at(0);
            if (status == FLIM_OK) {
                break;
            }
            assert_int_equal(status, FLIM_ERROR_MEMORY);
            assert_null(s.fold);
        }
        assert_true(n > 10);
        flim_splits_free(&s);
    }
}

/* Large tables stay fast and the work is bounded. */
static void many_groups(void **state)
{
    (void)state;
    enum { GROUPS = 3000, CLASSES = 3 };
    int64_t *count = calloc(GROUPS * CLASSES, sizeof *count);
    int *fold_of = calloc(GROUPS, sizeof *fold_of);
    assert_true(count && fold_of);
    flim_random random = flim_random_begin(&(flim_cell_id){.seed = 23}, FLIM_RANDOM_SIMULATE);
    int64_t total[CLASSES] = {0}, in[5][CLASSES] = {{0}};
    for (int i = 0; i < GROUPS * CLASSES; i++) {
        count[i] = 1 + below(&random, 30);
        total[i % CLASSES] += count[i];
    }
    flim_cover cover;
    assert_int_equal(flim_assign_groups(GROUPS, CLASSES, count, 5, 1, &cover, fold_of, NULL), FLIM_OK);
    assert_int_equal(cover, FLIM_COVER_FOUND);
    for (int i = 0; i < GROUPS * CLASSES; i++) {
        in[fold_of[i / CLASSES]][i % CLASSES] += count[i];
    }
    for (int f = 0; f < 5; f++) {
        for (int c = 0; c < CLASSES; c++) {
            assert_true(llabs(in[f][c] * 5 - total[c]) < 50);
        }
    }
    free(count);
    free(fold_of);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_mode_keeps_the_rules),
        cmocka_unit_test(stratified_group_is_as_good_as_brute_force),
        cmocka_unit_test(cover_search_is_exact),
        cmocka_unit_test(validation_takes_the_fewest_groups),
        cmocka_unit_test(rows_in_another_order_give_the_same_folds),
        cmocka_unit_test(the_seed_decides),
        cmocka_unit_test(quadrants_of_one_field_a_class),
        cmocka_unit_test(six_donors_of_twenty_cells),
        cmocka_unit_test(groups_are_held_out),
        cmocka_unit_test(impossible_requests_say_the_numbers),
        cmocka_unit_test(rare_classes_are_named),
        cmocka_unit_test(files_come_back_and_bad_ones_are_refused),
        cmocka_unit_test(running_out_of_memory_is_survived),
        cmocka_unit_test(many_groups),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
