/* Tables of labels and groups for the tests of the splitter: random ones, given ones, and the rules that every split keeps,
 * written down again without the library's checker.  Include after cmocka.h. */
#ifndef FLIM_TESTS_SPLIT_TABLES_H
#define FLIM_TESTS_SPLIT_TABLES_H

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cv/split/split_internal.h"

enum { MOST_CELLS = 160, MOST_GROUPS = 24, MOST_CLASSES = 6 };

/* ---- a log that remembers */

typedef struct lines {
    char text[16384];
} lines;

static inline void remember(void *context, flim_log_level level, const char *text)
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

static inline uint32_t below(flim_random *random, uint32_t bound)
{
    return (uint32_t)flim_random_below(random, bound);
}

static inline void finish(table *t, int64_t n, int classes, int64_t groups, bool names)
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
static inline void random_table(flim_random *random, table *t, int64_t most_groups, int most_classes)
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
static inline void count_table(const table *t, int64_t count[MOST_GROUPS][MOST_CLASSES])
{
    memset(count, 0, MOST_GROUPS * sizeof *count);
    for (int64_t i = 0; i < t->data.n; i++) {
        count[t->data.group ? t->group[i] : 0][t->label[i]]++;
    }
}

static inline int classes_present(const table *t)
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

static inline void print_table(const table *t, const flim_split_request *request, int round)
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

static inline void require_rules(const table *t, const flim_split_request *request, const flim_splits *s, int round)
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
            REQUIRE(rest == 0 || in_part[0]); /* the validation set never takes a class away */
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

static inline void build(table *t, const int64_t *count, int64_t groups, int classes)
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

#endif
