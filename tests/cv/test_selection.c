/* Which cells are taken: terms against a plain search, the fraction against train_cv's own draw, what is refused, and the copy that
 * flim_repack makes of two files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <stdio.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/test_folder.h"
#include "cv/selection.h"
#include "data/repack.h"
#include "flim/dataset_writer.h"
#include "flim/settings.h"
#include "flim/split.h"

enum { N = 60, GROUPS = 5, CLASSES = 3, T = 8, H = 3, W = 3 };

static const char *const group_names[GROUPS] = {"D1", "D2", "D3", "D4", "D5"};
static const char *const class_names[CLASSES] = {"a", "b", "c"};
static int32_t label[N];
static int64_t group[N];
static char name_text[N][16];
static const char *name[N];
static char folder[] = "/tmp/flim_selection_XXXXXX";

static flim_dataset_info data(void)
{
    for (int i = 0; i < N; i++) {
        label[i] = i * 7 % CLASSES;
        group[i] = i * 11 % GROUPS;
        snprintf(name_text[i], sizeof name_text[i], "cell %d", i % 50); /* some names twice */
        name[i] = name_text[i];
    }
    return (flim_dataset_info){.n = N,
                               .classes = CLASSES,
                               .class_name = class_names,
                               .label = label,
                               .groups = GROUPS,
                               .group_name = group_names,
                               .group = group,
                               .name = name};
}

static void terms_are_those_of_a_plain_search(void **state)
{
    (void)state;
    const flim_dataset_info info = data();
    char path[300], list[320];
    snprintf(path, sizeof path, "%s/list", folder);
    FILE *stream = fopen(path, "w");
    assert_non_null(stream);
    fputs("cell 17\n59\n", stream); /* a name and a number */
    fclose(stream);
    snprintf(list, sizeof list, "file=%s", path);
    const char *const select[] = {"group=D2", "group=D4", "class=c", "name=cell 3", list}, *const out[] = {"name=cell 12",
                                                                                                           "group=D4"};
    for (int variant = 0; variant < 64; variant++) {
        const int from = variant % 4, n = variant / 4 % 4, n_out = variant / 16 % 3;
        const flim_selection s = {.select = select + (from + n > 5 ? 5 - n : from),
                                  .n_select = n,
                                  .exclude = out,
                                  .n_exclude = n_out,
                                  .fraction = 1};
        bool left_out[N] = {false};
        int left = 0;
        flim_error err = {0};
        const flim_status status = flim_selection_apply(&s, &info, left_out, &err);
        for (int i = 0; i < N; i++) {
            bool wanted[3] = {false}, fits[3] = {false}, excluded = false;
            for (int k = 0; k < n; k++) {
                const char *term = s.select[k];
                const int kind = term[0] == 'g' ? 0 : term[0] == 'c' ? 1 : 2;
                wanted[kind] = true;
                fits[kind] = fits[kind] || (kind == 0      ? strcmp(group_names[group[i]], term + 6) == 0
                                            : kind == 1    ? strcmp(class_names[label[i]], term + 6) == 0
                                            : term == list ? i == 17 || i == 59
                                                           : strcmp(name[i], term + 5) == 0);
            }
            for (int k = 0; k < n_out; k++) {
                excluded = excluded || (k == 0 ? strcmp(name[i], "cell 12") == 0 : group[i] == 3);
            }
            const bool take = (!wanted[0] || fits[0]) && (!wanted[1] || fits[1]) && (!wanted[2] || fits[2]) && !excluded;
            assert_int_equal(left_out[i], !take);
            left += take;
        }
        assert_int_equal(status, left > 0 ? FLIM_OK : FLIM_ERROR_USAGE);
    }
}

static void the_fraction_is_train_cv_s_own(void **state)
{
    (void)state;
    const flim_dataset_info info = data();
    const flim_split_data split = flim_split_data_of(&info);
    for (int k = 1; k < 10; k++) {
        const flim_settings settings = {.exclude = (char[]){""}, .fraction = k / 10.0, .seed = (uint64_t)k};
        const flim_selection s = {.fraction = k / 10.0, .seed = (uint64_t)k};
        bool *unused, left_out[N] = {false};
        assert_int_equal(flim_split_find_unused(&split, &settings, NULL, &unused, NULL), FLIM_OK);
        assert_int_equal(flim_selection_apply(&s, &info, left_out, NULL), FLIM_OK);
        assert_memory_equal(unused, left_out, sizeof left_out);
        flim_free(unused);
    }
    flim_dataset_info bare = info; /* without labels a share of all */
    bare.label = NULL;
    bare.classes = 0;
    bool left_out[N] = {false};
    int left = 0;
    assert_int_equal(flim_selection_apply(&(flim_selection){.fraction = 0.25}, &bare, left_out, NULL), FLIM_OK);
    for (int i = 0; i < N; i++) {
        left += !left_out[i];
    }
    assert_int_equal(left, N / 4);
}

static void terms_that_fit_nothing_are_named(void **state)
{
    (void)state;
    flim_dataset_info info = data();
    static const char *const wrong[][2] = {{"group=D9", "'group=D9': no cell has that; did you mean 'D"},
                                           {"class=x", "'class=x': no cell has that"},
                                           {"name=cell 99", "'name=cell 99': no cell has that"},
                                           {"donor=D1", "expected group=NAME, class=NAME, name=NAME or file=PATH"},
                                           {"file=/nowhere/list", "/nowhere/list"}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        bool left_out[N] = {false};
        flim_error err = {0};
        const flim_selection s = {.select = wrong[i], .n_select = 1, .fraction = 1};
        const flim_status status = flim_selection_apply(&s, &info, left_out, &err);
        if (status == FLIM_OK || !strstr(err.text, wrong[i][1])) {
            fail_msg("%s: status %d, '%s'", wrong[i][0], status, err.text);
        }
    }
    info.group = NULL;
    const char *const term = "group=D1";
    bool left_out[N] = {false};
    assert_int_equal(
        flim_selection_apply(&(flim_selection){.exclude = &term, .n_exclude = 1, .fraction = 1}, &info, left_out, NULL),
        FLIM_ERROR_USAGE);
}

/* Cells first .. first + n - 1 of data(); every count of cell i is i. */
static void write_part(const char *path, int first, int n)
{
    const flim_dataset_info info = data();
    const char *groups[N];
    flim_dataset_writer *writer;
    flim_error err = {0};
    for (int i = 0; i < N; i++) {
        groups[i] = group_names[group[i]];
    }
    const flim_dataset_layout layout = {.n = n,
                                        .t = T,
                                        .h = H,
                                        .w = W,
                                        .count_bytes = 2,
                                        .classes = CLASSES,
                                        .class_name = class_names,
                                        .label = label + first,
                                        .group = groups + first,
                                        .name = info.name + first};
    if (flim_dataset_writer_create(path, &layout, &writer, &err) != FLIM_OK) {
        fail_msg("%s", err.text);
    }
    for (int i = 0; i < n; i++) {
        uint16_t counts[T * H * W];
        for (int v = 0; v < T * H * W; v++) {
            counts[v] = (uint16_t)(first + i);
        }
        assert_int_equal(flim_dataset_writer_cell(writer, i, counts, NULL, &err), FLIM_OK);
    }
    assert_int_equal(flim_dataset_writer_finish(writer, &err), FLIM_OK);
    flim_dataset_writer_destroy(writer);
}

static flim_status choose(void *context, const flim_dataset_info *info, bool *left_out, flim_error *err)
{
    return flim_selection_apply(context, info, left_out, err);
}

static void a_copy_has_the_cells_that_were_chosen(void **state)
{
    (void)state;
    static const char *const select[] = {"group=D1", "group=D3", "class=b"};
    char path[3][300];
    for (int i = 0; i < 3; i++) {
        snprintf(path[i], sizeof path[i], "%s/%d.h5", folder, i);
    }
    const char *const in[] = {path[0], path[1]}, *const out = path[2];
    write_part(path[0], 0, 25);
    write_part(path[1], 25, N - 25);
    flim_selection s = {.select = select, .n_select = 3, .fraction = 1};
    flim_repack_result made;
    flim_error err = {0};
    const flim_repack_options how = {.workers = 1, .choose = choose, .choose_context = &s};
    if (flim_repack(in, 2, out, &how, &made, &err) != FLIM_OK) {
        fail_msg("%s", err.text);
    }
    flim_dataset *d;
    flim_reader *reader;
    assert_int_equal(flim_dataset_open(&out, 1, &(flim_dataset_options){.trusted = true}, &d, NULL), FLIM_OK);
    assert_int_equal(flim_reader_create(d, &reader, NULL), FLIM_OK);
    const flim_dataset_info *info = flim_dataset_get_info(d);
    int64_t at = 0;
    for (int i = 0; i < N; i++) {
        if (label[i] != 1 || (group[i] != 0 && group[i] != 2)) {
            continue;
        }
        float counts[T * H * W];
        assert_int_equal(flim_reader_counts(reader, at, counts, NULL, NULL), FLIM_OK);
        assert_true(counts[0] == (float)i && counts[T * H * W - 1] == (float)i);
        assert_string_equal(info->name[at], name[i]);
        assert_string_equal(info->group_name[info->group[at]], group_names[group[i]]);
        assert_string_equal(info->class_name[info->label[at]], class_names[label[i]]);
        at++;
    }
    assert_true(info->n == at && made.cells == at && made.cells_before == N && strcmp(made.type, "uint8") == 0);
    flim_reader_destroy(reader);
    flim_dataset_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(terms_are_those_of_a_plain_search),
        cmocka_unit_test(the_fraction_is_train_cv_s_own),
        cmocka_unit_test(terms_that_fit_nothing_are_named),
        cmocka_unit_test(a_copy_has_the_cells_that_were_chosen),
    };
    return RUN_IN_FOLDER(folder, tests);
}
