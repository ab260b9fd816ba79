/* flim_import's substance: from folders of arrays to a data file and back through the reader, photon by photon. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/file.h"
#include "core/test_folder.h"
#include "flim/dataset.h"
#include "import/file_list.h"
#include "import/file_names.h"
#include "import/import.h"

enum { T = 24, MOST = 7 };

static char folder[] = "/tmp/flim_import_XXXXXX";

static const char *in_folder(const char *name)
{
    static char path[32][1024];
    static int next;
    char *out = path[next++ % 32];
    snprintf(out, sizeof path[0], "%s/%s", folder, name);
    return out;
}

/* Count at (y,x,t) of file number k. */
static unsigned value_at(int k, int y, int x, int t)
{
    return (unsigned)(k * 37 + y * 11 + x * 5 + t * 3) % 251;
}

/* NAME: an array (Y,X,bins) of uint32; `high` is added to its first count. */
static void make_array_of(const char *name, int k, int height, int width, int bins, unsigned high)
{
    char header[128], path[1024];
    snprintf(path, sizeof path, "%s", in_folder(name));
    char *slash = strrchr(path, '/');
    *slash = '\0';
    assert_int_equal(flim_make_folder(path, NULL), FLIM_OK);
    *slash = '/';
    FILE *stream = fopen(path, "wb");
    assert_non_null(stream);
    const int length = snprintf(header, sizeof header, "{'descr': '<u4', 'fortran_order': False, 'shape': (%d, %d, %d), }",
                                height, width, bins);
    fwrite("\x93NUMPY\x01\0", 1, 8, stream);
    fputc(length, stream);
    fputc(0, stream);
    fwrite(header, 1, (size_t)length, stream);
    for (int i = 0; i < height * width * bins; i++) {
        const uint32_t value = value_at(k, i / bins / width, i / bins % width, i % bins) + (i ? 0 : high);
        fwrite(&value, 4, 1, stream);
    }
    assert_int_equal(fclose(stream), 0);
}

static void make_array(const char *name, int k, int height, int width, unsigned high)
{
    make_array_of(name, k, height, width, T, high);
}

static flim_status import_with(flim_import_request request, flim_import_result *result, flim_error *err)
{
    const flim_log quiet = {0};
    *err = (flim_error){0};
    return flim_import(&request, &quiet, result, err);
}

/* Every count of the file's cells, which are the arrays of files `k` of height x width, centred in size x size, `factor`
 * bins added up. */
static void check_cells(const char *path, const int *k, int64_t n, int height, int width, int size, int factor, unsigned high)
{
    flim_dataset *d;
    flim_reader *reader;
    flim_error err = {0};
    float counts[T * MOST * MOST];
    uint8_t mask[MOST * MOST];
    if (flim_dataset_open(&path, 1, &(flim_dataset_options){.trusted = true}, &d, &err) != FLIM_OK) {
        fail_msg("%s", err.text);
    }
    const flim_dataset_info *info = flim_dataset_get_info(d);
    assert_true(info->n == n && info->t == T / factor && info->h == size && info->w == size);
    assert_int_equal(flim_reader_create(d, &reader, &err), FLIM_OK);
    const int top = (size - height) / 2, left = (size - width) / 2;
    for (int64_t cell = 0; cell < n; cell++) {
        memset(counts, 0xff, sizeof counts); /* not a number */
        assert_int_equal(flim_reader_counts(reader, cell, counts, mask, &err), FLIM_OK);
        for (int i = 0; i < info->t * size * size; i++) {
            const int t = i / size / size, y = i / size % size - top, x = i % size - left;
            const bool inside = y >= 0 && y < height && x >= 0 && x < width;
            unsigned want = 0;
            for (int b = 0; inside && b < factor; b++) {
                want += value_at(k[cell], y, x, t * factor + b) + (y + x + t + b ? 0 : high);
            }
            if (counts[i] != (float)want) {
                fail_msg("cell %d, (t,y,x) = (%d,%d,%d): %g, expected %u", (int)cell, t, y + top, x + left, (double)counts[i],
                         want);
            }
            if (info->has_mask) {
                assert_int_equal(mask[i % (size * size)], inside);
            }
        }
    }
    flim_reader_destroy(reader);
    flim_dataset_close(d);
}

static const char *const rules[] = {"_in=quiescent", "_act=activated"};

static void folders_of_arrays(void **state)
{
    (void)state;
    make_array("tree/D1/c10_in.npy", 0, 5, 5, 0);
    make_array("tree/D1/c2_act.npy", 1, 5, 5, 0);
    make_array("tree/D2/c1_in.npy", 2, 5, 5, 0);
    make_array("tree/D2/c1_other.npy", 3, 5, 5, 0);
    make_array("tree/D2/.hidden_in.npy", 4, 5, 5, 0);
    const char *input = in_folder("tree"), *out = in_folder("tree.h5");
    const flim_import_request request = {.out = out, .input = &input, .n_inputs = 1, .class_rule = rules, .n_rules = 2};
    flim_import_result made;
    flim_error err;
    if (import_with(request, &made, &err) != FLIM_OK) {
        fail_msg("%s", err.text);
    }
    assert_true(made.files == 3 && made.cells == 3 && made.skipped == 1 && made.groups == 2 && made.classes == 2);
    uint64_t photons = 0;
    for (int i = 0; i < 3 * 25 * T; i++) {
        photons += value_at(i / 25 / T, i / T / 5 % 5, i / T % 5, i % T);
    }
    assert_true(made.photons.cells == photons && made.photons.total == photons);
    check_cells(out, (int[]){1, 0, 2}, 3, 5, 5, 5, 1, 0); /* c2 before c10 */
    flim_dataset *d;
    assert_int_equal(flim_dataset_open(&out, 1, &(flim_dataset_options){.need_labels = true, .need_groups = true}, &d, &err),
                     FLIM_OK);
    const flim_dataset_info *info = flim_dataset_get_info(d);
    assert_string_equal(info->class_name[0], "quiescent");
    assert_string_equal(info->class_name[1], "activated");
    assert_true(info->label[0] == 1 && info->label[1] == 0 && info->label[2] == 0);
    assert_string_equal(info->group_name[info->group[2]], "D2");
    assert_string_equal(info->name[0], "c2_act");
    flim_dataset_close(d);
    /* What is there stays. */
    assert_int_equal(import_with(request, &made, &err), FLIM_ERROR_USAGE);
    assert_non_null(strstr(err.text, out));
}

static void bins_added_up_and_small_fields_centred(void **state)
{
    (void)state;
    make_array("small/a.npy", 5, 4, 5, 70000);
    const char *input = in_folder("small"), *out = in_folder("small.h5");
    flim_import_request request = {.out = out, .input = &input, .n_inputs = 1, .cells.size = MOST};
    flim_import_result made;
    flim_error err;
    request.bins = 5;
    assert_int_equal(import_with(request, &made, &err), FLIM_ERROR_USAGE);
    assert_non_null(strstr(err.text, "--bins"));
    request.bins = 4; /* fewer than the network takes */
    assert_int_equal(import_with(request, &made, &err), FLIM_ERROR_DATA);
    assert_non_null(strstr(err.text, "4 time bins, expected 8 or more"));
    request.bins = T / 3;
    request.cells.size = 4;
    assert_int_equal(import_with(request, &made, &err), FLIM_ERROR_DATA);
    assert_non_null(strstr(err.text, "4 x 5 pixels"));
    request.cells.size = MOST;
    if (import_with(request, &made, &err) != FLIM_OK) { /* 70000 needs more than 16 bits */
        fail_msg("%s", err.text);
    }
    check_cells(out, (int[]){5}, 1, 4, 5, MOST, 3, 70000);
}

static void what_does_not_fit_together_is_named(void **state)
{
    (void)state;
    make_array("mixed/a_in_act.npy", 0, 5, 5, 0);
    const char *input = in_folder("mixed"), *out = in_folder("mixed.h5");
    flim_import_request request = {.out = out, .input = &input, .n_inputs = 1, .class_rule = rules, .n_rules = 2};
    flim_import_result made;
    flim_error err;
    assert_int_equal(import_with(request, &made, &err), FLIM_ERROR_USAGE);
    assert_non_null(strstr(err.text, "matches two classes"));
    request.n_rules = 1;
    assert_int_equal(import_with(request, &made, &err), FLIM_ERROR_USAGE);
    const char *const none[] = {"xyz=a", "zyx=b"};
    request.class_rule = none;
    request.n_rules = 2;
    assert_int_equal(import_with(request, &made, &err), FLIM_ERROR_DATA);
    assert_non_null(strstr(err.text, "no cell"));
    request.n_rules = 0;
    make_array("mixed/b.npy", 0, 5, 4, 0);
    assert_int_equal(import_with(request, &made, &err), FLIM_ERROR_DATA);
    assert_non_null(strstr(err.text, "b.npy"));
    const char *twice[] = {in_folder("mixed/a_in_act.npy"), in_folder("mixed/a_in_act.npy")};
    request.input = twice;
    request.n_inputs = 2;
    assert_int_equal(import_with(request, &made, &err), FLIM_ERROR_USAGE);
    assert_non_null(strstr(err.text, "given twice"));
    assert_false(flim_file_exists(out));
    volatile int stop = 15;
    request.n_inputs = 1;
    request.stop = &stop;
    assert_int_equal(import_with(request, &made, &err), FLIM_INTERRUPTED);
    assert_false(flim_file_exists(out));
}

/* A folder that a path calls "." or "..", or does not name, has its name on the disk; what a path calls it stays. */
static void folders_have_their_names(void **state)
{
    (void)state;
    static const char *const paths[][2] = {{"a.npy", "D7"},
                                           {"./a.npy", "D7"},
                                           {".//a.npy", "D7"},
                                           {"../a.npy", "places"},
                                           {"../../places/D7/a.npy", "D7"},
                                           {"../D8/a.npy", "D8"},
                                           {"../D8//a.npy", "D8"},
                                           {"../D8/./a.npy", "D8"},
                                           {"../D8/../a.npy", "places"},
                                           {"/a.npy", "/"},
                                           {"/tmp/a.npy", "tmp"},
                                           {"//a.npy", "/"},
                                           {"../.hidden/a.npy", ".hidden"},
                                           {"../..x/a.npy", "..x"},
                                           {"../.../a.npy", "..."},
                                           {"../link/a.npy", "link"},
                                           {"../link/./a.npy", "D8"},
                                           {"../none/a.npy", "none"},
                                           {"../none/./a.npy", "."}};
    static const char *const inputs[] = {".", "./", "a.npy", "./a.npy", "../D7", "../D7//", "../D7/."};
    char before[1024];
    flim_error err;
    make_array("places/D7/a.npy", 0, 5, 5, 0);
    make_array("places/D8/a.npy", 0, 5, 5, 0);
    assert_int_equal(symlink("D8", in_folder("places/link")), 0);
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(in_folder("places/D7")), 0);
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        char *found = flim_path_folder(paths[i][0], &err);
        if (strcmp(found, paths[i][1]) != 0) {
            fail_msg("%s is in '%s', expected '%s'", paths[i][0], found, paths[i][1]);
        }
        flim_free(found);
    }
    for (size_t i = 0; i < sizeof inputs / sizeof inputs[0]; i++) {
        const char *out = in_folder("places.h5");
        const flim_import_request request = {.out = out, .input = &inputs[i], .n_inputs = 1};
        flim_import_result made;
        flim_dataset *d;
        assert_int_equal(import_with(request, &made, &err), FLIM_OK);
        assert_int_equal(flim_dataset_open(&out, 1, &(flim_dataset_options){.need_groups = true}, &d, &err), FLIM_OK);
        assert_int_equal(flim_dataset_get_info(d)->groups, 1);
        assert_string_equal(flim_dataset_get_info(d)->group_name[0], "D7");
        flim_dataset_close(d);
        unlink(out);
    }
    assert_int_equal(chdir(before), 0);
}

/* Bins that the cells do not have: of files as they are, and with neighbours added up. */
static void t0_bins_are_those_of_the_cells(void **state)
{
    (void)state;
    static const struct {
        int64_t bins, t0_bin;
        const char *words; /* NULL = good */
    } asked[] = {{0, 40, "--t0-bin 40: "},
                 {0, T, "have 24 time bins, 0 to 23"},
                 {0, T - 1, NULL},
                 {0, -1, NULL},
                 {T / 3, T / 3, "have 8 time bins, 0 to 7"},
                 {T / 3, T - 1, "--t0-bin 23: "},
                 {T / 3, T / 3 - 1, NULL}};
    make_array("t0/a.npy", 0, 5, 5, 0);
    const char *input = in_folder("t0"), *out = in_folder("t0.h5");
    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
        const flim_import_request request = {
            .out = out, .input = &input, .n_inputs = 1, .bins = asked[i].bins, .align_t0 = true, .t0_bin = asked[i].t0_bin};
        flim_import_result made;
        flim_error err;
        const flim_status status = import_with(request, &made, &err);
        if (status != (asked[i].words ? FLIM_ERROR_USAGE : FLIM_OK) ||
            (asked[i].words && !strstr(err.text, asked[i].words))) {
            fail_msg("%zu: status %d and '%s'", i, status, err.text);
        }
        assert_int_equal(flim_file_exists(out), !asked[i].words);
        unlink(out);
    }
}

/* A message has a word where a file's only image has no name. */
static void images_without_a_name_are_called_something(void **state)
{
    (void)state;
    make_array("unlike/a.npy", 0, 5, 5, 0);
    make_array_of("unlike/b.npy", 0, 5, 5, 2 * T, 0);
    const char *input = in_folder("unlike"), *out = in_folder("unlike.h5");
    flim_import_request request = {.out = out, .input = &input, .n_inputs = 1};
    flim_import_result made;
    flim_error err;
    char want[2200];
    assert_int_equal(import_with(request, &made, &err), FLIM_ERROR_DATA);
    snprintf(want, sizeof want, "%s: it has 48 time bins, %s has 24", in_folder("unlike/b.npy"), in_folder("unlike/a.npy"));
    assert_string_equal(err.text, want);
    request.channel = 2;
    assert_int_equal(import_with(request, &made, &err), FLIM_ERROR_USAGE);
    snprintf(want, sizeof want, "%s: --channel 2, but it has 1", in_folder("unlike/a.npy"));
    assert_string_equal(err.text, want);
    static const struct {
        flim_field_image image;
        const char *called;
    } images[] = {{{.name = ""}, "it"}, {{.name = "3"}, "image 3"}, {{.name = "channel 1"}, "channel 1"}};
    for (size_t i = 0; i < sizeof images / sizeof images[0]; i++) {
        char called[80];
        flim_field_image_called(&images[i].image, called, sizeof called);
        assert_string_equal(called, images[i].called);
    }
}

static void lists_are_sorted_by_numbers_and_end(void **state)
{
    (void)state;
    static const char *const name[] = {"a1", "a02", "a10", "b", "b/c3", "b/c20"};
    char path[300];
    flim_string_list list = {0};
    flim_error err = {0};
    make_array("list/b/c20", 0, 1, 1, 0);
    make_array("list/b/c3", 0, 1, 1, 0);
    make_array("list/a10", 0, 1, 1, 0);
    make_array("list/a02", 0, 1, 1, 0);
    make_array("list/a1", 0, 1, 1, 0);
    const char *input = in_folder("list");
    assert_int_equal(flim_list_files(&input, 1, &list, &err), FLIM_OK);
    assert_int_equal(list.n, 5);
    for (int i = 0, k = 0; i < 6; i++) {
        if (i != 3) {
            snprintf(path, sizeof path, "list/%s", name[i]);
            assert_string_equal(list.item[k++], in_folder(path));
        }
    }
    flim_string_list_free(&list);
    assert_int_equal(symlink("..", in_folder("list/b/up")), 0);
    assert_int_equal(flim_list_files(&input, 1, &list, &err), FLIM_ERROR_DATA);
    assert_non_null(strstr(err.text, "folders deep"));
    flim_string_list_free(&list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(folders_of_arrays),
        cmocka_unit_test(bins_added_up_and_small_fields_centred),
        cmocka_unit_test(what_does_not_fit_together_is_named),
        cmocka_unit_test(folders_have_their_names),
        cmocka_unit_test(t0_bins_are_those_of_the_cells),
        cmocka_unit_test(images_without_a_name_are_called_something),
        cmocka_unit_test(lists_are_sorted_by_numbers_and_end),
    };
    return RUN_IN_FOLDER(folder, tests);
}
