/* What folds cost as groups, cells and classes grow. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "flim/split.h"

/* n cells of `groups` groups and `classes` classes: cell i < groups is of group i, the others of any. */
typedef struct cells {
    flim_split_data data;
    int32_t *label;
    int64_t *group;
} cells;

static cells make_cells(int64_t n, int64_t groups, int classes)
{
    cells c = {.label = calloc((size_t)n, sizeof *c.label), .group = calloc((size_t)n, sizeof *c.group)};
    uint32_t state = 1;
    for (int64_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        c.group[i] = i < groups ? i : (int64_t)(state >> 8) % groups;
        c.label[i] = (int32_t)((state >> 16) % (uint32_t)classes);
    }
    c.data = (flim_split_data){.n = n, .classes = classes, .label = c.label, .groups = groups, .group = c.group};
    return c;
}

static void free_cells(cells *c)
{
    free(c->label);
    free(c->group);
}

static double seconds_of(int64_t n, int64_t groups, int classes, flim_split_mode mode)
{
    cells c = make_cells(n, groups, classes);
    const flim_split_request request = {.mode = mode, .folds = 5, .val_fraction = 0.15, .seed = 42};
    flim_splits splits;
    flim_error err = {0};
    const clock_t begun = clock();
    if (flim_splits_make(&c.data, &request, &splits, &err) != FLIM_OK) {
        fail_msg("%s", err.text);
    }
    const double seconds = (double)(clock() - begun) / CLOCKS_PER_SEC;
    flim_splits_free(&splits);
    free_cells(&c);
    return seconds;
}

/* Four times the data may take `most` times as long; below some milliseconds a clock says nothing. */
static void grows(const char *what, double few, double many, double most)
{
    printf("%s: %.3f s and %.3f s for four times as many\n", what, few, many);
    if (many > most * (few + 0.01)) {
        fail_msg("%s: %.3f s and %.3f s for four times as many: more than %.0f times as long", what, few, many, most);
    }
}

static void cost_grows_with_the_data(void **state)
{
    (void)state;
    grows("stratified-group, 5000 groups", seconds_of(10000, 5000, 2, FLIM_SPLIT_STRATIFIED_GROUP),
          seconds_of(40000, 20000, 2, FLIM_SPLIT_STRATIFIED_GROUP), 10);
    grows("group, 5000 groups", seconds_of(10000, 5000, 2, FLIM_SPLIT_GROUP), seconds_of(40000, 20000, 2, FLIM_SPLIT_GROUP),
          10);
    /* as many folds as groups, each of which lists all cells: sixteen times the output */
    grows("leave-one-group-out, 200 groups", seconds_of(400, 200, 2, FLIM_SPLIT_LEAVE_ONE_GROUP_OUT),
          seconds_of(1600, 800, 2, FLIM_SPLIT_LEAVE_ONE_GROUP_OUT), 32);
    grows("stratified, 50 classes", seconds_of(20000, 10, 50, FLIM_SPLIT_STRATIFIED),
          seconds_of(20000, 10, 200, FLIM_SPLIT_STRATIFIED), 8);
}

static void the_stop_flag_is_heard(void **state)
{
    (void)state;
    cells c = make_cells(400, 200, 2);
    const int stop = 1;
    const flim_split_request request = {.mode = FLIM_SPLIT_LEAVE_ONE_GROUP_OUT, .val_fraction = 0.15, .stop = &stop};
    flim_splits splits;
    assert_int_equal(flim_splits_make(&c.data, &request, &splits, NULL), FLIM_INTERRUPTED);
    assert_null(splits.fold);
    free_cells(&c);
}

static void folds_that_fit_no_memory_are_refused(void **state)
{
    (void)state;
    const int64_t n = 1000000; /* 8 TB of lists */
    cells c = make_cells(n, n, 2);
    const flim_split_request request = {.mode = FLIM_SPLIT_LEAVE_ONE_GROUP_OUT, .val_fraction = 0.15};
    flim_splits splits;
    flim_error err = {0};
    assert_int_equal(flim_splits_make(&c.data, &request, &splits, &err), FLIM_ERROR_USAGE);
    assert_non_null(strstr(err.text, "use fewer folds"));
    free_cells(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(cost_grows_with_the_data), cmocka_unit_test(the_stop_flag_is_heard),
                                       cmocka_unit_test(folds_that_fit_no_memory_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
