/* What separates wrong cells from right ones: random figures of which one decides, and every number of the table against plain sums. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/alloc.h"
#include "flim/random.h"
#include "report/errors.h"

enum { CELLS = 300, GROUPS = 6 };

typedef struct sample {
    int32_t label[CELLS], predicted[CELLS];
    int64_t group[CELLS];
    double value[ERROR_N_FIGURES][CELLS];
    error_cells cells;
} sample;

/* Figures on very different scales, some not known.  Wrong are the cells whose figure `cause` is high (or low), and a few others. */
static void make(sample *s, int seed, int classes, int cause, bool high)
{
    flim_random random = flim_random_begin(&(flim_cell_id){.seed = (uint64_t)seed}, FLIM_RANDOM_SIMULATE);
    for (int i = 0; i < CELLS; i++) {
        s->label[i] = (int32_t)flim_random_below(&random, (uint32_t)classes);
        s->group[i] = (int64_t)flim_random_below(&random, GROUPS);
        for (int f = 0; f < ERROR_N_FIGURES; f++) {
            const double u = flim_random_uniform(&random);
            s->value[f][i] = flim_random_below(&random, 20) ? (f % 2 ? 1e4 : 1e-3) * (1 + u) : (double)NAN;
        }
        const double unit = cause % 2 ? 1e4 : 1e-3, u = s->value[cause][i] / unit - 1;
        const bool wrong = (high ? u > 0.75 : u < 0.25) || flim_random_below(&random, 25) == 0;
        s->predicted[i] = (s->label[i] + wrong) % classes;
    }
    s->cells = (error_cells){.n = CELLS,
                             .groups = GROUPS,
                             .classes = classes,
                             .label = s->label,
                             .predicted = s->predicted,
                             .group = s->group,
                             .value = &s->value[0][0]};
}

static bool counts(const sample *s, int i, const error_difference *d, bool right, int group)
{
    return (d->label < 0 || s->label[i] == d->label) && (s->label[i] == s->predicted[i]) == right &&
           !isnan(s->value[d->figure][i]) && (group < 0 || s->group[i] == group);
}

static int64_t plain_mean(const sample *s, const error_difference *d, bool right, int group, double *mean)
{
    double sum = 0;
    int64_t n = 0;
    for (int i = 0; i < CELLS; i++) {
        if (counts(s, i, d, right, group)) {
            sum += s->value[d->figure][i];
            n++;
        }
    }
    *mean = sum / (double)n;
    return n;
}

static void check_row(const sample *s, const error_difference *d, int64_t tests, int round)
{
    double wrong, right, of_wrong, of_right;
    const int64_t n_wrong = plain_mean(s, d, false, -1, &wrong), n_right = plain_mean(s, d, true, -1, &right);
    int64_t groups = 0, agree = 0;
    assert_int_equal(d->wrong.n, n_wrong);
    assert_int_equal(d->right.n, n_right);
    for (int g = 0; g < GROUPS; g++) {
        if (plain_mean(s, d, false, g, &of_wrong) > 1 && plain_mean(s, d, true, g, &of_right) > 1) {
            groups++;
            agree += (of_wrong > of_right) == (wrong > right);
        }
    }
    assert_int_equal(d->groups, groups);
    assert_int_equal(d->agree, agree);
    if (fabs(d->test.difference - (wrong - right)) > 1e-9 * fabs(wrong)) {
        fail_msg("round %d, figure %d, label %d: %.12g, by plain sums %.12g", round, d->figure, d->label, d->test.difference,
                 wrong - right);
    }
    assert_true(d->p_holm >= d->test.p && d->p_holm <= fmin(1, (double)tests * d->test.p) + 1e-15);
}

static void the_cause_is_first(void **state)
{
    (void)state;
    static sample s;
    for (int round = 0; round < 6 * ERROR_N_FIGURES; round++) {
        const int cause = round % ERROR_N_FIGURES, classes = 2 + round % 4;
        const bool high = round / ERROR_N_FIGURES % 2;
        error_difference *list;
        int64_t n, tests, seen = 0;
        flim_error err = {0};
        make(&s, round, classes, cause, high);
        assert_int_equal(error_differences(&s.cells, &list, &n, &tests, &err), FLIM_OK);
        assert_int_equal(n, (classes + 1) * ERROR_N_FIGURES);
        assert_int_equal(tests, n);
        for (int64_t i = 0; i < n; i++) {
            const error_difference *d = &list[i];
            if (i % ERROR_N_FIGURES == 0 &&
                ((int)d->figure != cause || (d->test.g > 0) != high || (d->label < 0 && d->p_holm > 0.01))) {
                fail_msg("round %d, label %d: figure %d decides (%s), figure %d is first, g %g, p %g", round, d->label, cause,
                         high ? "high" : "low", d->figure, d->test.g, d->p_holm);
            }
            seen += d->label == -1 ? 1 : 0;
            check_row(&s, d, tests, round);
        }
        assert_int_equal(seen, ERROR_N_FIGURES);
        flim_free(list);
    }
}

/* Too few of either kind, in all and in a class; no groups; a figure that is nowhere known, one that never varies. */
static void what_cannot_be_compared(void **state)
{
    (void)state;
    static sample s;
    error_difference *list;
    int64_t n, tests;
    make(&s, 1, 2, 0, true);
    for (int wrong = 0; wrong < 4; wrong++) {
        for (int i = 0, left = wrong; i < CELLS; i++) {
            const bool is = s.label[i] == 1 && left > 0;
            left -= is;
            s.predicted[i] = is ? 0 : s.label[i];
        }
        s.cells.groups = wrong % 2 ? GROUPS : 0;
        assert_int_equal(error_differences(&s.cells, &list, &n, &tests, NULL), FLIM_OK);
        assert_int_equal(n, wrong < 2 ? 0 : 2 * ERROR_N_FIGURES); /* in all, and in class 1 */
        assert_true(wrong < 2 || list[ERROR_N_FIGURES].label == 1);
        assert_true(wrong != 2 || (list[0].groups == 0 && list[0].agree == 0));
        flim_free(list);
    }
    for (int i = 0; i < CELLS; i++) {
        s.value[ERROR_SNR][i] = NAN;
        s.value[ERROR_SPREAD][i] = 3;
    }
    assert_int_equal(error_differences(&s.cells, &list, &n, &tests, NULL), FLIM_OK);
    assert_int_equal(tests, 2 * (ERROR_N_FIGURES - 2));
    for (int i = ERROR_N_FIGURES - 2; i < ERROR_N_FIGURES; i++) { /* last in the table */
        assert_true((list[i].figure == ERROR_SNR || list[i].figure == ERROR_SPREAD) && isnan(list[i].p_holm));
    }
    flim_free(list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_cause_is_first), cmocka_unit_test(what_cannot_be_compared)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
