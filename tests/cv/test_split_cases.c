/* Splits: tables as the field has them, the messages that a user gets, files, and running out of memory. */
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
    assert_non_null(strstr(log.text, "warning: cv stratified: 6 of 6 groups have cells in both training and test set of a "
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
    assert_non_null(strstr(err.text, "13 folds requested, but there are 12 groups; use --folds 12 or fewer"));
    r = (flim_split_request){.mode = FLIM_SPLIT_STRATIFIED, .folds = 138};
    assert_int_equal(flim_splits_make(&t.data, &r, &s, &err), FLIM_ERROR_USAGE);
    assert_non_null(strstr(err.text, "138 folds requested, but there are 137 cells"));
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
    assert_non_null(strstr(log.text, "class '1' (2 cells in 1 group) is absent from the test set of 3 of 4 folds"));
    assert_non_null(strstr(log.text, "class '1' (2 cells in 1 group) is absent from the training set of fold"));
    assert_non_null(strstr(log.text, "class '1' is absent from the validation set of 3 of 4 folds"));
    assert_non_null(strstr(log.text, "no assignment of the groups to 4 folds gives every fold every class"));
    flim_splits_free(&s);
    log.text[0] = '\0';
    r = (flim_split_request){.mode = FLIM_SPLIT_STRATIFIED, .folds = 4, .val_fraction = 0.15, .log = &to};
    t.data.group = NULL;
    assert_int_equal(flim_splits_make(&t.data, &r, &s, NULL), FLIM_OK);
    assert_non_null(strstr(log.text, "class '1' (2 cells) is absent from the test set of 2 of 4 folds"));
    flim_splits_free(&s);
    log.text[0] = '\0';
    static const int64_t two[2 * 2] = {4, 4, 4, 4};
    build(&t, two, 2, 2);
    r.mode = FLIM_SPLIT_LEAVE_ONE_GROUP_OUT;
    assert_int_equal(flim_splits_make(&t.data, &r, &s, NULL), FLIM_OK);
    assert_int_equal(s.fold[0].n_val, 0);
    assert_false(s.fold[0].val_complete);
    assert_non_null(strstr(log.text, "no validation set in 2 of 2 folds (0, 1)"));
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
         "group 'g00' is in both train and test"},
        {"{\"mode\": \"group\", \"folds\": [{\"train\": [2], \"val\": [3], \"test\": [0,1]}]}",
         "group 'g01' is in both train and val"},
        {"{\"mode\": \"stratified\", \"folds\": [{\"train\": [2,3], \"val\": [3], \"test\": [0,1]}]}",
         "cell 3 ('cell111') is in both train and val"},
        {"{\"mode\": \"stratified\", \"folds\": [{\"train\": [2,3], \"test\": [0,1]}, {\"train\": [2,3], \"test\": [0,1]}]}",
         "cell 0 ('cell000') is in the test sets of fold 0 and fold 1"},
        {"{\"mode\": \"stratified\", \"folds\": [{\"train\": [0,1,2], \"test\": [3,4]}, {\"train\": [3,4], \"test\": "
         "[0,1]}]}",
         "is in no test set"},
        {"{\"mode\": \"stratified\", \"folds\": [{\"train\": [0,1,2], \"test\": [3,4,5,6]}]}",
         "cell 6 is out of range, the data has 6"},
        {"{\"mode\": \"stratified\", \"folds\": [{\"train\": [0,1,1], \"test\": [3,4,5]}]}", "1 follows 1"},
        {"{\"mode\": \"stratified\", \"folds\": [{\"train\": [], \"test\": [0,1,2,3,4,5]}]}", "the train set is empty"},
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

    write_text(path, "{\"data\": {\"n\": 400000000000}, \"folds\": [{\"train\": [1], \"test\": [0]}]}");
    assert_int_equal(flim_splits_read(path, NULL, &back, &err), FLIM_ERROR_DATA);
    assert_non_null(strstr(err.text, "for 400000000000 cells, but only 2 are in a set"));

    /* nnU-Net: val is the test set; names or indices; a validation set is made afterwards. */
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

    /* A list of folds that have a test set: val is their validation set. */
    write_text(path, "[{\"train\": [0, 1], \"val\": [2, 3], \"test\": [4, 5]}, {\"train\": [4, 5], \"test\": [0, 1]}, "
                     "{\"train\": [0, 1], \"test\": [2, 3]}]");
    assert_int_equal(flim_splits_read(path, &t.data, &back, &err), FLIM_OK);
    assert_false(back.needs_validation);
    assert_int_equal(back.fold[0].test[0], 4);
    assert_int_equal(back.fold[0].val[1], 3);
    assert_int_equal(back.fold[1].test[1], 1);
    flim_splits_free(&back);
    unlink(path);
}

static void lists_that_no_part_takes_are_refused(void **state)
{
    (void)state;
    static table t;
    static const int64_t small[3 * 2] = {1, 1, 1, 1, 1, 1}; /* cells 0,1 | 2,3 | 4,5 */
    static const char *const texts[] = {
        "{\"folds\": [{\"train\": [0, 1], \"validation\": [2, 3], \"test\": [4, 5]}]}",
        "[{\"train\": [0, 1], \"validation\": [2, 3], \"test\": [4, 5]}]",
        "[{\"train\": [0, 1], \"validation\": [2, 3], \"val\": [4, 5]}]",
        "{\"train\": [0, 1], \"validation\": [2, 3], \"test\": [4, 5]}",
        "{\"folds\": [{\"train\": [0, 1], \"test\": [4, 5]}], \"validation\": [2, 3]}",
    };
    char path[256];
    build(&t, small, 3, 2);
    snprintf(path, sizeof path, "/tmp/flim_test_split_lists_%d.json", (int)getpid());
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        flim_splits back;
        flim_error err = {0};
        write_text(path, texts[i]);
        if (flim_splits_read(path, &t.data, &back, &err) != FLIM_ERROR_DATA || !strstr(err.text, "'validation'")) {
            fail_msg("%s: not refused by name: %s", texts[i], err.text);
        }
    }
    unlink(path);
}

/* A value of the wrong kind is refused: taken for one that is absent, it would be an empty set or a check that is not made. */
static void values_of_a_wrong_kind_are_refused(void **state)
{
    (void)state;
    static table t;
    static const int64_t small[3 * 2] = {1, 1, 1, 1, 1, 1}; /* cells 0,1 | 2,3 | 4,5 */
    static const char *const kinds[] = {"\"text\"", "7.5", "-7", "true", "{}", "[{}]", "\"\""};
    static const struct {
        const char *before, *after, *key;
        int good; /* bits: those of kinds[] that may stand there */
    } places[] = {
        {"{\"folds\": [{\"train\": ", ", \"test\": [4, 5]}]}", "train", 0},
        {"{\"folds\": [{\"train\": [0, 1], \"test\": ", "}]}", "test", 0},
        {"{\"folds\": [{\"train\": [0, 1], \"test\": [4, 5], \"val\": ", "}]}", "val", 0},
        {"{\"folds\": [{\"train\": [0, 1], \"test\": [4, 5]}], \"holdout\": ", "}", "holdout", 0},
        {"{\"folds\": [{\"train\": [0, 1], \"test\": [4, 5]}], \"unused\": ", "}", "unused", 0},
        {"{\"folds\": [{\"train\": [0, 1], \"test\": [4, 5]}], \"mode\": ", "}", "mode", 0},
        {"{\"folds\": [{\"train\": [0, 1], \"test\": [4, 5]}], \"seed\": ", "}", "seed", 0},
        {"{\"folds\": [{\"train\": [0, 1], \"test\": [4, 5]}], \"data\": {\"n\": ", "}}", "n", 0},
        {"{\"folds\": [{\"train\": [0, 1], \"test\": [4, 5]}], \"data\": {\"sha256\": ", "}}", "sha256", 1 << 0 | 1 << 6},
        {"[{\"train\": ", ", \"val\": [4, 5]}]", "train", 0},
        {"[{\"train\": [0, 1], \"val\": ", "}]", "val", 0},
        {"{\"train\": ", ", \"test\": [4, 5]}", "train", 0},
        {"{\"train\": [0, 1], \"test\": ", "}", "test", 0},
    };
    char path[256], text[512];
    build(&t, small, 3, 2);
    snprintf(path, sizeof path, "/tmp/flim_test_split_kinds_%d.json", (int)getpid());
    for (size_t p = 0; p < sizeof places / sizeof places[0]; p++) {
        for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
            flim_splits back;
            flim_error err = {0};
            snprintf(text, sizeof text, "%s%s%s", places[p].before, kinds[k], places[p].after);
            write_text(path, text);
            const flim_status status = flim_splits_read(path, &t.data, &back, &err);
            const bool good = places[p].good >> k & 1;
            if (status != (good ? FLIM_OK : FLIM_ERROR_DATA) || (!good && !strstr(err.text, places[p].key))) {
                fail_msg("%s: status %d, '%s'; expected %s", text, status, err.text,
                         good ? "that it is read" : "an error that names the key");
            }
            flim_splits_free(&back);
        }
    }
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
        cmocka_unit_test(quadrants_of_one_field_a_class),
        cmocka_unit_test(six_donors_of_twenty_cells),
        cmocka_unit_test(groups_are_held_out),
        cmocka_unit_test(impossible_requests_say_the_numbers),
        cmocka_unit_test(rare_classes_are_named),
        cmocka_unit_test(files_come_back_and_bad_ones_are_refused),
        cmocka_unit_test(lists_that_no_part_takes_are_refused),
        cmocka_unit_test(values_of_a_wrong_kind_are_refused),
        cmocka_unit_test(running_out_of_memory_is_survived),
        cmocka_unit_test(many_groups),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
