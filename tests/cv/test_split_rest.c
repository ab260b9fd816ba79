/* Cells in no part, and one split: lists of cells, fractions, named groups, files of one split. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "flim/random.h"
#include "flim/split.h"

enum { N = 120, GROUPS = 6, CLASSES = 3 };
static int32_t label[N];
static int64_t group[N];
static char names[N][16];
static const char *name[N];
static const char *const group_name[GROUPS] = {"D1", "D2", "D3", "D4", "D5", "a,b"};
static const flim_split_data data = {
    .n = N, .classes = CLASSES, .label = label, .groups = GROUPS, .group = group, .group_name = group_name, .name = name};
static char path[] = "/tmp/flim_rest_XXXXXX";

static int make(void **state)
{
    (void)state;
    flim_random random = flim_random_begin(&(flim_cell_id){.seed = 8}, FLIM_RANDOM_SIMULATE);
    for (int i = 0; i < N; i++) {
        label[i] = (int32_t)(flim_random_below(&random, 4) % CLASSES);
        group[i] = i % GROUPS;
        snprintf(names[i], sizeof names[i], "c%03d", (i * 37) % N);
        name[i] = names[i];
    }
    const int file = mkstemp(path);
    return file < 0 ? 1 : close(file);
}

static int end(void **state)
{
    (void)state;
    return unlink(path);
}

static void write_text(const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

/* The part of each cell: 't'rain, 'v'al, 't'est as 'x', 'h'oldout, 'u'nused; each in one of them. */
static void parts_of(const flim_splits *s, int f, char *part)
{
    memset(part, 0, N);
    const struct {
        char mark;
        const int64_t *list;
        int64_t n;
    } lists[] = {{'t', s->fold[f].train, s->fold[f].n_train},
                 {'v', s->fold[f].val, s->fold[f].n_val},
                 {'x', s->fold[f].test, s->fold[f].n_test},
                 {'h', s->holdout, s->n_holdout},
                 {'u', s->unused, s->n_unused}};
    for (size_t l = 0; l < sizeof lists / sizeof lists[0]; l++) {
        for (int64_t i = 0; i < lists[l].n; i++) {
            assert_true(lists[l].list[i] >= 0 && lists[l].list[i] < N && part[lists[l].list[i]] == 0);
            part[lists[l].list[i]] = lists[l].mark;
        }
    }
    for (int i = 0; i < N; i++) {
        assert_true(part[i] != 0);
    }
}

static void same_splits(const flim_splits *a, const flim_splits *b)
{
    assert_int_equal(a->n_folds, b->n_folds);
    for (int f = 0; f < a->n_folds; f++) {
        char x[N], y[N];
        parts_of(a, f, x);
        parts_of(b, f, y);
        assert_memory_equal(x, y, N);
    }
}

/* Folds of the used cells are the folds of data that never had the others; a file keeps them. */
static void unused_cells_are_as_if_they_were_not_there(void **state)
{
    (void)state;
    static const flim_split_mode modes[] = {FLIM_SPLIT_STRATIFIED, FLIM_SPLIT_GROUP, FLIM_SPLIT_STRATIFIED_GROUP,
                                            FLIM_SPLIT_LEAVE_ONE_GROUP_OUT};
    static const char *const held[] = {"D2"};
    flim_random random = flim_random_begin(&(flim_cell_id){.seed = 9}, FLIM_RANDOM_SIMULATE);
    for (int round = 0; round < 16; round++) {
        bool unused[N];
        int32_t l[N];
        int64_t g[N], cell[N], n = 0;
        const char *some[N];
        for (int i = 0; i < N; i++) {
            unused[i] = flim_random_below(&random, 3) == 0 || group[i] == 4; /* one group as a whole */
            if (!unused[i]) {
                l[n] = label[i];
                g[n] = group[i];
                some[n] = name[i];
                cell[n++] = i;
            }
        }
        flim_split_request request = {.mode = modes[round % 4],
                                      .folds = 3,
                                      .val_fraction = 0.2,
                                      .seed = (uint64_t)round,
                                      .holdout_group = held,
                                      .n_holdout = round / 4 % 2};
        const flim_split_data rest = {
            .n = n, .classes = CLASSES, .label = l, .groups = GROUPS, .group = g, .group_name = group_name, .name = some};
        flim_splits plain, left, read;
        flim_error err = {0};
        assert_int_equal(flim_splits_make(&rest, &request, &plain, &err), FLIM_OK);
        request.unused = unused;
        assert_int_equal(flim_splits_make(&data, &request, &left, &err), FLIM_OK);
        assert_int_equal(plain.n_folds, left.n_folds);
        for (int f = 0; f < left.n_folds; f++) {
            char part[N];
            const flim_fold *a = &plain.fold[f], *b = &left.fold[f];
            parts_of(&left, f, part);
            assert_true(a->n_train == b->n_train && a->n_val == b->n_val && a->n_test == b->n_test);
            assert_true(a->val_complete == b->val_complete);
            for (int64_t i = 0; i < a->n_train; i++) {
                assert_true(cell[a->train[i]] == b->train[i]);
            }
            for (int64_t i = 0; i < a->n_val; i++) {
                assert_true(cell[a->val[i]] == b->val[i]);
            }
            for (int64_t i = 0; i < a->n_test; i++) {
                assert_true(cell[a->test[i]] == b->test[i]);
            }
            for (int i = 0; i < N; i++) {
                assert_true((part[i] == 'u') == unused[i]);
            }
        }
        assert_int_equal(flim_splits_write(&left, path, &err), FLIM_OK);
        assert_int_equal(flim_splits_read(path, &data, &read, &err), FLIM_OK);
        same_splits(&left, &read);
        flim_splits_free(&plain);
        flim_splits_free(&left);
        flim_splits_free(&read);
    }
}

/* Of each class the rounded share, at least one; a smaller fraction within a larger one; not where the file has the cells. */
static void fractions_are_stratified_and_nested(void **state)
{
    (void)state;
    bool before[N] = {false};
    for (int f = 9; f >= 0; f--) {
        const double fraction = f == 0 ? 0.001 : 0.1 * f;
        bool unused[N] = {false}, again[N] = {false}, other[N] = {false};
        unused[3] = again[3] = other[3] = true; /* excluded already */
        int cells[CLASSES] = {0}, kept[CLASSES] = {0}, differ = 0;
        assert_int_equal(flim_split_draw_fraction(&data, fraction, 42, unused, NULL), FLIM_OK);
        assert_int_equal(flim_split_draw_fraction(&data, fraction, 42, again, NULL), FLIM_OK);
        assert_int_equal(flim_split_draw_fraction(&data, fraction, 43, other, NULL), FLIM_OK);
        assert_memory_equal(unused, again, sizeof unused);
        for (int i = 0; i < N; i++) {
            cells[label[i]] += i != 3;
            kept[label[i]] += !unused[i];
            differ += unused[i] != other[i];
            assert_true(!before[i] || unused[i]);
            before[i] = unused[i];
        }
        assert_true(unused[3] && (differ > 0 || f == 0));
        for (int c = 0; c < CLASSES; c++) {
            const int want = (int)(fraction * cells[c] + 0.5);
            assert_int_equal(kept[c], want > 1 ? want : 1);
        }
        if (f == 5) { /* the same cells in another order */
            int32_t l[N];
            int64_t g[N];
            const char *moved[N];
            bool there[N] = {false};
            for (int i = 0; i < N; i++) {
                const int to = (7 * i + 11) % N;
                l[to] = label[i];
                g[to] = group[i];
                moved[to] = name[i];
                there[to] = i == 3;
            }
            const flim_split_data shuffled = {.n = N,
                                              .classes = CLASSES,
                                              .label = l,
                                              .groups = GROUPS,
                                              .group = g,
                                              .group_name = group_name,
                                              .name = moved};
            assert_int_equal(flim_split_draw_fraction(&shuffled, fraction, 42, there, NULL), FLIM_OK);
            for (int i = 0; i < N; i++) {
                assert_true(there[(7 * i + 11) % N] == unused[i]);
            }
        }
    }
}

static flim_status exclude_of(const flim_split_data *cells, const char *text, bool *unused, int64_t *count, flim_error *err)
{
    memset(unused, 0, N * sizeof *unused);
    write_text(text);
    return flim_split_read_excluded(cells, path, unused, count, err);
}

static flim_status exclude(const char *text, bool *unused, int64_t *count, flim_error *err)
{
    return exclude_of(&data, text, unused, count, err);
}

static void lists_name_cells_by_name_or_number(void **state)
{
    (void)state;
    bool unused[N];
    int64_t count;
    flim_error err = {0};
    assert_int_equal(
        exclude("# bad ones\n\nc037\r\n 5 \n\"c074\"\nc037\n119 # the last\n7,c001,D1,0,rest\n", unused, &count, &err),
        FLIM_OK);
    assert_int_equal(count, 5);
    for (int i = 0; i < N; i++) {
        const bool want = i == 1 || i == 5 || i == 2 || i == 119 || i == 7;
        assert_true(unused[i] == want);
    }
    assert_int_equal(exclude("index,name,group\n0,c000,D1\n", unused, &count, &err), FLIM_OK);
    assert_true(count == 1 && unused[0]);
    assert_int_equal(exclude("", unused, &count, &err), FLIM_OK);
    assert_int_equal(count, 0);
    static const char *const wrong[] = {"c000\nnobody\n", "120\n", "-1\n", "1.5\n", "c00\n"};
    static const char *const said[] = {":2: 'nobody'", ":1: '120'", ":1: '-1'", ":1: '1.5'", ":1: 'c00'"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(exclude(wrong[i], unused, &count, &err), FLIM_ERROR_USAGE);
        if (!strstr(err.text, said[i]) || !strstr(err.text, "0 to 119")) {
            fail_msg("%s", err.text);
        }
    }
    name[9] = name[8];
    char line[32];
    snprintf(line, sizeof line, "%s\n", name[8]);
    assert_int_equal(exclude(line, unused, &count, &err), FLIM_ERROR_USAGE);
    assert_non_null(strstr(err.text, "use their numbers"));
    name[9] = names[9];
}

/* Cells whose names are numbers: a number that may be two cells is refused, quotes and commas choose. */
static void numbers_that_are_names_are_not_guessed(void **state)
{
    (void)state;
    static char numbers[N][16];
    static const char *numbered[N];
    bool unused[N];
    int64_t count;
    flim_error err = {0};
    for (int i = 0; i < N; i++) { /* 1 .. N, but cell 5 is named 5 */
        snprintf(numbers[i], sizeof numbers[i], "%d", i == 5 ? 5 : i * 37 % N ? i * 37 % N : N);
        numbered[i] = numbers[i];
    }
    snprintf(numbers[65], sizeof numbers[65], "185"); /* 65 * 37 % 120 = 5, which is taken */
    flim_split_data cells = data;
    cells.name = numbered;
    const struct {
        const char *text;
        int cell; /* -1 = refused */
    } cases[] = {{"37\n", -1},  {"\"37\"\n", 1}, {"37,\n", 37},   {"5\n", 5},       {"120\n", 0},    {"0\n", 0},
                 {"185\n", 65}, {"74\n", -1},    {"\"74\"\n", 2}, {"74,x,y\n", 74}, {"\"0\"\n", -1}, {"37", -1}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const flim_status status = exclude_of(&cells, cases[i].text, unused, &count, &err);
        if (status != (cases[i].cell < 0 ? FLIM_ERROR_USAGE : FLIM_OK) ||
            (cases[i].cell >= 0 && !(count == 1 && unused[cases[i].cell]))) {
            fail_msg("%s: %s: %s", cases[i].text, flim_status_name(status), err.text);
        }
    }
    assert_int_equal(exclude_of(&cells, "37\n", unused, &count, &err), FLIM_ERROR_USAGE);
    assert_non_null(
        strstr(err.text, ":1: 37 is cell 37 counted from 0, which is named '49', or the cell named '37', which is cell 1;"));
    assert_non_null(strstr(err.text, "write \"37\" for the name, or 37, (with a comma) for the number"));
}

/* Rows of flim_info's table say number and name: those of other data leave out nothing. */
static void rows_of_other_data_are_refused(void **state)
{
    (void)state;
    static const char head[] = "index,name,group,label\n";
    char text[256];
    bool unused[N];
    int64_t count;
    flim_error err = {0};
    snprintf(text, sizeof text, "%s7,%s,D2,0\n8,\"%s\",D3,0\n9,,D4,0\n", head, name[7], name[8]);
    assert_int_equal(exclude(text, unused, &count, &err), FLIM_OK);
    assert_true(count == 3 && unused[7] && unused[8] && unused[9]);
    snprintf(text, sizeof text, "%s7,%s,D2,0\n8,%s,D3,0\n", head, name[7], name[9]);
    assert_int_equal(exclude(text, unused, &count, &err), FLIM_ERROR_USAGE);
    assert_non_null(strstr(err.text, ":3: cell 8 is '"));
    assert_non_null(strstr(err.text, "a table of other data?"));
    name[8] = "a \"b\", c";
    name[9] = "=1+1";
    snprintf(text, sizeof text, "%s8,\"a \"\"b\"\", c\",D3,0\n9,'=1+1,D4,0\n", head);
    const flim_status status = exclude(text, unused, &count, &err);
    name[8] = names[8];
    name[9] = names[9];
    assert_int_equal(status, FLIM_OK);
    assert_true(count == 2 && unused[8] && unused[9]);
}

static flim_split_request single(const char *const *train, int n_train, const char *const *val, int n_val,
                                 const char *const *test, int n_test)
{
    return (flim_split_request){.folds = 5,
                                .val_fraction = 0.2,
                                .seed = 1,
                                .train_group = train,
                                .n_train_groups = n_train,
                                .val_group = val,
                                .n_val_groups = n_val,
                                .test_group = test,
                                .n_test_groups = n_test};
}

static void groups_make_one_split(void **state)
{
    (void)state;
    static const char *const train[] = {"D1,D2"}, *const val[] = {"D4"}, *const test[] = {"D5", "a,b"};
    flim_splits s, read;
    flim_error err = {0};
    char part[N];
    flim_split_request request = single(train, 1, val, 1, test, 2);
    assert_int_equal(flim_splits_make(&data, &request, &s, &err), FLIM_OK);
    assert_true(s.n_folds == 1 && s.mode == FLIM_SPLIT_GROUP);
    parts_of(&s, 0, part);
    for (int i = 0; i < N; i++) {
        assert_int_equal(part[i], "ttuvxx"[group[i]]);
    }
    assert_int_equal(flim_splits_write(&s, path, &err), FLIM_OK);
    assert_int_equal(flim_splits_read(path, &data, &read, &err), FLIM_OK);
    same_splits(&s, &read);
    flim_splits_free(&read);
    assert_int_equal(flim_splits_read(path, NULL, &read, &err), FLIM_OK); /* as fold_metrics reads it */
    same_splits(&s, &read);
    flim_splits_free(&read);
    flim_splits_free(&s);
    request = single(NULL, 0, val, 1, test, 2); /* all others train */
    assert_int_equal(flim_splits_make(&data, &request, &s, &err), FLIM_OK);
    parts_of(&s, 0, part);
    for (int i = 0; i < N; i++) {
        assert_int_equal(part[i], "tttvxx"[group[i]]);
    }
    flim_splits_free(&s);
    request = single(NULL, 0, NULL, 0, test, 2); /* the validation set is whole groups of what trains */
    bool unused[N] = {false};
    unused[0] = unused[4] = true;
    request.unused = unused;
    assert_int_equal(flim_splits_make(&data, &request, &s, &err), FLIM_OK);
    parts_of(&s, 0, part);
    char of_group[GROUPS] = {0};
    for (int i = 0; i < N; i++) {
        assert_true((part[i] == 'u') == unused[i] && (unused[i] || (part[i] == 'x') == (group[i] >= 4)));
        assert_true(unused[i] || of_group[group[i]] == 0 || of_group[group[i]] == part[i]);
        of_group[group[i]] = unused[i] ? of_group[group[i]] : part[i];
    }
    assert_true(s.fold[0].n_val > 0);
    flim_splits_free(&s);
    static const char *const both[] = {"D5,D1"}, *const nobody[] = {"D1,D7"}, *const rest[] = {"D1,D2,D3,D4"};
    request = single(train, 1, both, 1, test, 2);
    assert_int_equal(flim_splits_make(&data, &request, &s, &err), FLIM_ERROR_USAGE);
    assert_non_null(strstr(err.text, "train_groups and by val_groups"));
    request = single(nobody, 1, NULL, 0, test, 2);
    assert_int_equal(flim_splits_make(&data, &request, &s, &err), FLIM_ERROR_USAGE);
    assert_non_null(strstr(err.text, "train_groups 'D7': no such group"));
    request = single(NULL, 0, rest, 1, test, 2);
    assert_int_equal(flim_splits_make(&data, &request, &s, &err), FLIM_ERROR_USAGE);
    assert_non_null(strstr(err.text, "no group is left to train on"));
    flim_split_data without = data;
    without.group = NULL;
    without.groups = 0;
    request = single(train, 1, NULL, 0, test, 2);
    assert_int_equal(flim_splits_make(&without, &request, &s, &err), FLIM_ERROR_USAGE);
    assert_non_null(strstr(err.text, "no /group"));
}

static void a_file_of_one_split_needs_not_all_cells(void **state)
{
    (void)state;
    flim_splits s;
    flim_error err = {0};
    char part[N];
    write_text("{\"train\": [0, 1, \"c111\"], \"val\": [2], \"test\": [5, 4]}"); /* c111 is cell 3 */
    assert_int_equal(flim_splits_read(path, &data, &s, &err), FLIM_OK);
    parts_of(&s, 0, part);
    for (int i = 0; i < N; i++) {
        assert_int_equal(part[i], i < 6 ? "ttvtxx"[i] : 'u');
    }
    bool unused[N] = {false};
    unused[1] = unused[5] = true;
    assert_int_equal(flim_splits_leave_out(&s, &data, unused, &err), FLIM_OK);
    parts_of(&s, 0, part);
    for (int i = 0; i < N; i++) {
        assert_int_equal(part[i], i < 6 ? "tuvtxu"[i] : 'u');
    }
    unused[4] = true; /* nothing is left to test */
    assert_int_equal(flim_splits_leave_out(&s, &data, unused, &err), FLIM_ERROR_DATA);
    assert_non_null(strstr(err.text, "the test set is empty"));
    flim_splits_free(&s);
    static const char *const wrong[] = {"{\"train\": [0, 1], \"val\": [2], \"test\": [1]}", "{\"train\": [0], \"val\": [1]}",
                                        "{\"train\": [0], \"test\": [500]}", "{\"train\": [0], \"test\": []}",
                                        "{\"folds\": [{\"train\": [0], \"test\": [1]}, {\"train\": [1], \"test\": [0]}]}"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        write_text(wrong[i]);
        if (flim_splits_read(path, &data, &s, &err) != FLIM_ERROR_DATA) {
            fail_msg("%s was taken", wrong[i]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unused_cells_are_as_if_they_were_not_there), cmocka_unit_test(fractions_are_stratified_and_nested),
        cmocka_unit_test(lists_name_cells_by_name_or_number),         cmocka_unit_test(groups_make_one_split),
        cmocka_unit_test(numbers_that_are_names_are_not_guessed),     cmocka_unit_test(rows_of_other_data_are_refused),
        cmocka_unit_test(a_file_of_one_split_needs_not_all_cells),
    };
    return cmocka_run_group_tests(tests, make, end);
}
