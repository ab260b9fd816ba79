/* Masks: every kind of file against the labels it was made from; the cells of a mask and their windows against a search pixel by
 * pixel; fields with masks through flim_import, count by count, with every photon accounted for; what is wrong is named. */
#include "import/mask_files.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/file.h"
#include "core/test_folder.h"
#include "flim/dataset.h"
#include "import/import.h"

enum { Y = 33, X = 29, T = 16, BINS = 8 };

static char folder[] = "/dev/shm/flim_masks_XXXXXX"; /* thousands of small files: in memory */
static bytes file;

static const char *in_folder(const char *name)
{
    static char path[256][256]; /* more than a test asks for */
    static int next;
    char *out = path[next++ % 256];
    snprintf(out, sizeof path[0], "%s/%s", folder, name);
    return out;
}

static uint32_t hash(uint32_t n)
{
    n = (n ^ 61) ^ n >> 16;
    n *= 9;
    n = (n ^ n >> 4) * 0x27d4eb2d;
    return n ^ n >> 15;
}

/* Discs of several sizes, some over others, some over the border; the labels have gaps, and one is a ring. */
static void draw_cells(uint32_t *label, uint32_t seed, int discs, uint32_t most)
{
    memset(label, 0, sizeof *label * Y * X);
    for (int d = 0; d < discs; d++) {
        const uint32_t h = hash(seed * 1000 + (uint32_t)d);
        const int cy = (int)(h % Y), cx = (int)(h / Y % X), r = (int)(h / Y / X % 6);
        const uint32_t value = 1 + (uint32_t)d * 7 % most;
        for (int y = 0; y < Y; y++) {
            for (int x = 0; x < X; x++) {
                const int far = (y - cy) * (y - cy) + (x - cx) * (x - cx);
                if (far <= r * r && (d % 4 || far > r)) {
                    label[y * X + x] = value;
                }
            }
        }
    }
}

/* ---- files ---- */

static bool library_is_there(flim_status status, const flim_error *err)
{
    if (status == FLIM_ERROR_USAGE && strstr(err->text, "built without")) {
        print_message("left out: %s\n", err->text);
        return false;
    }
    return true;
}

static void expect_labels(const uint32_t *label, const char *what)
{
    flim_label_image image;
    flim_error err = {0};
    const char *path = in_folder("mask");
    write_bytes_to(path, &file, file.n);
    const flim_status status = flim_label_image_read(path, &image, &err);
    if (!library_is_there(status, &err)) {
        return;
    }
    if (status != FLIM_OK || image.y != Y || image.x != X) {
        fail_msg("%s: %s", what, err.text);
    }
    for (int i = 0; i < Y * X; i++) {
        if (image.label[i] != label[i]) {
            fail_msg("%s: pixel y %d, x %d is %u, expected %u", what, i / X, i % X, image.label[i], label[i]);
        }
    }
    flim_label_image_free(&image);
    for (size_t n = 0; n < file.n; n += n < 200 ? 1 : 37) { /* cut off, it is refused and named, or whole */
        write_bytes_to(path, &file, n);
        const flim_status cut = flim_label_image_read(path, &image, &err);
        if (cut == FLIM_OK) {
            assert_memory_equal(image.label, label, sizeof *label * Y * X);
        } else if (cut != FLIM_ERROR_DATA || !strstr(err.text, path)) {
            fail_msg("%s, cut to %zu of %zu bytes: status %d, '%s'", what, n, file.n, cut, err.text);
        }
        flim_label_image_free(&image);
    }
}

static void masks_of_every_kind_of_file(void **state)
{
    (void)state;
    static uint32_t label[Y * X];
    static const struct {
        char kind;
        int size;
        uint32_t most;
    } type[] = {{'u', 1, 255},     {'u', 2, 65535},       {'u', 4, 9999999}, {'i', 1, 127},     {'i', 2, 32767},
                {'i', 4, 1 << 30}, {'u', 8, 4000000000u}, {'f', 2, 2048},    {'f', 4, 1 << 23}, {'f', 8, 4294967295u}};
    char what[64];
    for (size_t k = 0; k < sizeof type / sizeof type[0]; k++) {
        const made_mask mask = {Y, X, label};
        draw_cells(label, (uint32_t)k, 14, type[k].most);
        label[5] = type[k].most;
        for (int variant = 0; variant < 4; variant++) {
            snprintf(what, sizeof what, ".npy of %c%d, variant %d", type[k].kind, type[k].size, variant);
            make_npy_mask(&file, &mask, variant & 1, variant & 2, type[k].kind, type[k].size);
            expect_labels(label, what);
            snprintf(what, sizeof what, "TIFF of %c%d, variant %d", type[k].kind, type[k].size, variant);
            make_tiff_mask(&file, &mask, variant & 1, type[k].kind, type[k].size);
            if (variant < 2) {
                expect_labels(label, what);
            }
        }
    }
    static const int png[][2] = {{0, 1}, {0, 2}, {0, 4}, {0, 8}, {0, 16}, {3, 1}, {3, 4}, {3, 8}, {4, 8}, {4, 16}};
    for (size_t k = 0; k < sizeof png / sizeof png[0]; k++) {
        draw_cells(label, (uint32_t)k, 14, (1u << png[k][1]) - 1);
        label[5] = (1u << png[k][1]) - 1;
        snprintf(what, sizeof what, "PNG of colour type %d, %d bits", png[k][0], png[k][1]);
        make_png_mask(&file, &(made_mask){Y, X, label}, png[k][0], png[k][1]);
        expect_labels(label, what);
    }
}

/* ---- cells and windows ---- */

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t distance(int64_t a, int64_t b)
{
    return a < b ? b - a : a - b;
}

/* One cell against all pixels of the mask. */
static void check_cell(const uint32_t *label, const flim_field_cell *c, const flim_cells_rule *rule)
{
    int64_t y0 = Y, y1 = -1, x0 = X, x1 = -1, n = 0;
    double sum[2] = {0};
    for (int i = 0; i < Y * X; i++) {
        if (label[i] == c->label) {
            y0 = least(y0, i / X);
            y1 = -least(-y1, -(i / X));
            x0 = least(x0, i % X);
            x1 = -least(-x1, -(i % X));
            n++;
            sum[0] += i / X;
            sum[1] += i % X;
        }
    }
    assert_true(n == c->pixels && y0 == c->y0 && y1 == c->y1 && x0 == c->x0 && x1 == c->x1);
    const bool border = y0 == 0 || x0 == 0 || y1 == Y - 1 || x1 == X - 1;
    const bool large = y1 - y0 >= rule->size || x1 - x0 >= rule->size;
    assert_int_equal(c->fate, border && !rule->keep_border ? FLIM_CELL_AT_BORDER
                              : large && !rule->crop_large ? FLIM_CELL_TOO_LARGE
                                                           : FLIM_CELL_KEPT);
    const int64_t first[2] = {y0, x0}, last[2] = {y1, x1}, begin[2] = {c->top, c->left};
    for (int axis = 0; axis < 2; axis++) {
        const int64_t extent = last[axis] - first[axis] + 1, end = begin[axis] + rule->size - 1;
        const bool fits = extent <= rule->size;
        assert_true(!fits || (begin[axis] <= first[axis] && end >= last[axis])); /* whole, if it can be */
        if (rule->crop == FLIM_CROP_BOX) { /* as much on the one side as on the other, but one */
            assert_true(distance(first[axis] - begin[axis], end - last[axis]) <= 1);
            continue;
        }
        const int64_t wished = (int64_t)(sum[axis] / (double)n + 0.5) - rule->size / 2;
        if (begin[axis] != wished) { /* moved no further than to the box's edge */
            assert_true(fits && (begin[axis] < wished ? begin[axis] == first[axis] : end == last[axis]));
        }
    }
}

static void cells_and_windows_are_those_of_a_plain_search(void **state)
{
    (void)state;
    static uint32_t label[Y * X];
    for (uint32_t seed = 0; seed < 60; seed++) {
        const flim_cells_rule rule = {.by = FLIM_CELLS_VALUE,
                                      .crop = (flim_crop)(seed % 2),
                                      .size = 3 + seed % 9,
                                      .keep_border = seed % 3 == 0,
                                      .crop_large = seed % 5 == 0};
        flim_field_cells cells;
        draw_cells(label, seed, 12, 40000);
        assert_int_equal(flim_field_cells_find("m", &(flim_label_image){Y, X, label}, &rule, &cells, NULL), FLIM_OK);
        for (int32_t k = 0; k < cells.n; k++) {
            assert_true(k == 0 || cells.cell[k - 1].label < cells.cell[k].label);
            check_cell(label, &cells.cell[k], &rule);
        }
        for (int i = 0; i < Y * X; i++) {
            assert_int_equal(cells.of_pixel[i] < 0 ? 0 : cells.cell[cells.of_pixel[i]].label, label[i]);
        }
        flim_field_cells_free(&cells);
    }
}

static void pieces_of_a_binary_mask(void **state)
{
    (void)state;
    static const char picture[5][8] = {"##....#", "..#..#.", ".......", "#.###.#", "#.#.#.#"};
    static const int piece[5][7] = {
        {1, 1, 0, 0, 0, 0, 2}, {0, 0, 1, 0, 0, 2, 0}, {0}, {3, 0, 4, 4, 4, 0, 5}, {3, 0, 4, 0, 4, 0, 5}};
    uint32_t label[35];
    flim_field_cells cells;
    flim_error err = {0};
    const flim_label_image image = {5, 7, label};
    flim_cells_rule rule = {.size = 3};
    for (int i = 0; i < 35; i++) {
        label[i] = picture[i / 7][i % 7] == '#' ? 255 : 0;
    }
    assert_int_equal(flim_field_cells_find("binary.tif", &image, &rule, &cells, &err), FLIM_ERROR_USAGE);
    assert_non_null(strstr(err.text, "binary.tif: a mask of one value, 255, in 5 pieces"));
    rule.by = FLIM_CELLS_VALUE;
    assert_int_equal(flim_field_cells_find("binary.tif", &image, &rule, &cells, &err), FLIM_OK);
    assert_true(cells.n == 1 && cells.cell[0].label == 255 && cells.cell[0].pixels == 14);
    flim_field_cells_free(&cells);
    rule.by = FLIM_CELLS_PIECE;
    assert_int_equal(flim_field_cells_find("binary.tif", &image, &rule, &cells, &err), FLIM_OK);
    assert_int_equal(cells.n, 5);
    for (int i = 0; i < 35; i++) {
        assert_int_equal(cells.of_pixel[i], piece[i / 7][i % 7] - 1);
    }
    flim_field_cells_free(&cells);
    memset(label, 0, sizeof label); /* no cell at all */
    assert_int_equal(flim_field_cells_find("empty.tif", &image, &rule, &cells, &err), FLIM_OK);
    assert_int_equal(cells.n, 0);
    flim_field_cells_free(&cells);
}

/* ---- whole fields ---- */

static uint32_t count_at(int k, int y, int x, int t)
{
    return hash((uint32_t)(((k * Y + y) * X + x) * T + t)) % 7;
}

static void write_field(const char *path, int k)
{
    char header[128];
    file = (bytes){0};
    const int length =
        snprintf(header, sizeof header, "{'descr': '|u1', 'fortran_order': False, 'shape': (%d, %d, %d), }", Y, X, T);
    put_big(&file, 0x934e554d5059, 6);
    put(&file, 1, 2);
    put(&file, (uint64_t)length, 2);
    put_text(&file, header, (size_t)length);
    for (int i = 0; i < Y * X * T; i++) {
        put(&file, count_at(k, i / T / X, i / T % X, i % T), 1);
    }
    write_bytes_to(path, &file, file.n);
}

static flim_import_result import_masks(const flim_import_request *request)
{
    flim_import_result made;
    flim_error err = {0};
    const flim_log quiet = {0};
    unlink(request->out);
    if (flim_import(request, &quiet, &made, &err) != FLIM_OK) {
        fail_msg("%s", err.text);
    }
    return made;
}

typedef struct expected {
    flim_photon_account photons;
    int64_t cells, border, large;
} expected;

/* One window of the data file against the field and the mask, and its photons. */
static void check_window(flim_reader *reader, int64_t at, int k, const uint32_t *label, const flim_field_cell *c,
                         const flim_import_request *r, expected *want)
{
    static float counts[T * 64 * 64];
    static uint8_t mask[64 * 64];
    const int size = (int)r->cells.size;
    memset(counts, 0xff, sizeof counts); /* not a number */
    assert_int_equal(flim_reader_counts(reader, at, counts, mask, NULL), FLIM_OK);
    for (int i = 0; i < BINS * size * size; i++) {
        const int t = i / size / size, y = (int)c->top + i / size % size, x = (int)c->left + i % size;
        const bool within = y >= 0 && x >= 0 && y < Y && x < X, own = within && label[y * X + x] == c->label;
        const bool box = y >= c->y0 && y <= c->y1 && x >= c->x0 && x <= c->x1;
        const bool shown = within && (own || (!r->mask_counts && (r->cells.crop == FLIM_CROP_CENTROID || box)));
        const uint32_t value = shown ? count_at(k, y, x, 2 * t) + count_at(k, y, x, 2 * t + 1) : 0;
        if (counts[i] != (float)value || mask[i % (size * size)] != own) {
            fail_msg("cell %d (label %u), t %d, field's y %d, x %d: %g and mask %d, expected %u and %d", (int)at, c->label, t,
                     y, x, (double)counts[i], mask[i % (size * size)], value, own);
        }
        *(own ? &want->photons.cells : &want->photons.copies) += value;
    }
}

static void check_field(flim_reader *reader, int k, const uint32_t *label, const flim_import_request *r, expected *want)
{
    flim_field_cells cells;
    assert_int_equal(
        flim_field_cells_find("m", &(flim_label_image){Y, X, (uint32_t *)(uintptr_t)label}, &r->cells, &cells, NULL),
        FLIM_OK);
    for (int32_t i = 0; i < cells.n; i++) {
        const flim_field_cell *c = &cells.cell[i];
        want->border += c->fate == FLIM_CELL_AT_BORDER;
        want->large += c->fate == FLIM_CELL_TOO_LARGE;
        if (c->fate == FLIM_CELL_KEPT) {
            check_window(reader, want->cells++, k, label, c, r, want);
        }
    }
    for (int i = 0; i < Y * X * T; i++) {
        const int y = i / T / X, x = i / T % X;
        const uint32_t count = count_at(k, y, x, i % T);
        const int32_t of = cells.of_pixel[y * X + x];
        const flim_field_cell *c = of < 0 ? NULL : &cells.cell[of];
        want->photons.total += count;
        if (!c) {
            want->photons.background += count;
        } else if (c->fate != FLIM_CELL_KEPT) {
            want->photons.left_out += count;
        } else if (y < c->top || x < c->left || y >= c->top + r->cells.size || x >= c->left + r->cells.size) {
            want->photons.beyond += count;
        }
    }
    flim_field_cells_free(&cells);
}

static void fields_with_masks_count_by_count(void **state)
{
    (void)state;
    static uint32_t label[2][Y * X];
    assert_int_equal(mkdir(in_folder("fields"), 0755), 0);
    const char *input = in_folder("fields"), *out = in_folder("fields.h5");
    for (int variant = 0; variant < 24; variant++) {
        const flim_import_request r = {.out = out,
                                       .input = &input,
                                       .n_inputs = 1,
                                       .mask = "*_cp_masks.npy",
                                       .cells = {.by = FLIM_CELLS_VALUE,
                                                 .crop = (flim_crop)(variant % 2),
                                                 .size = variant % 3 == 0 ? 6 : 11,
                                                 .keep_border = variant & 2,
                                                 .crop_large = variant & 4},
                                       .mask_counts = variant & 8,
                                       .fields.axes = FLIM_ARRAY_YXT,
                                       .bins = BINS};
        for (int k = 0; k < 2; k++) {
            char name[64];
            draw_cells(label[k], (uint32_t)(2 * variant + k), 10, 9000);
            snprintf(name, sizeof name, "fields/f%d.npy", k);
            write_field(in_folder(name), k);
            make_npy_mask(&file, &(made_mask){Y, X, label[k]}, k, k, 'u', 2);
            snprintf(name, sizeof name, "fields/f%d_cp_masks.npy", k);
            write_bytes_to(in_folder(name), &file, file.n);
        }
        const flim_import_result made = import_masks(&r);
        expected want = {0};
        flim_dataset *d;
        flim_reader *reader;
        assert_int_equal(flim_dataset_open(&out, 1, &(flim_dataset_options){.trusted = true}, &d, NULL), FLIM_OK);
        assert_int_equal(flim_reader_create(d, &reader, NULL), FLIM_OK);
        check_field(reader, 0, label[0], &r, &want);
        check_field(reader, 1, label[1], &r, &want);
        flim_reader_destroy(reader);
        flim_dataset_close(d);
        assert_true(made.files == 2 && made.cells == want.cells && made.at_border == want.border &&
                    made.too_large == want.large);
        assert_memory_equal(&made.photons, &want.photons, sizeof want.photons);
        const flim_photon_account *a = &made.photons;
        assert_int_equal(a->cells + a->beyond + a->left_out + a->background + a->unplaced, a->total);
    }
}

/* An array (12,12,8) may be 8 bins or 12: its mask says which, in both passes over the file. */
static void a_mask_says_which_axis_is_the_time(void **state)
{
    (void)state;
    static uint32_t label[12 * 12];
    static const char header[] = "{'descr': '|u1', 'fortran_order': False, 'shape': (12, 12, 8), }";
    const char *field = in_folder("doubt.npy"), *out = in_folder("doubt.h5");
    flim_import_request r = {.out = out,
                             .input = &field,
                             .n_inputs = 1,
                             .mask = "*_mask",
                             .cells = {.by = FLIM_CELLS_VALUE, .size = 12, .keep_border = true}};
    for (int i = 0; i < 12 * 12; i++) {
        label[i] = 1;
    }
    file = (bytes){0};
    put(&file, 0x93, 1);
    put_text(&file, "NUMPY\1", 7);
    put(&file, strlen(header), 2);
    put_text(&file, header, strlen(header));
    for (int i = 0; i < 12 * 12 * 8; i++) {
        put(&file, 1, 1);
    }
    write_bytes_to(field, &file, file.n);
    for (int x = 8; x <= 12; x += 4) {
        make_npy_mask(&file, &(made_mask){12, x, label}, false, false, 'u', 2);
        write_bytes_to(in_folder("doubt_mask"), &file, file.n);
        const flim_import_result made = import_masks(&r);
        assert_int_equal(made.t, x == 8 ? 12 : 8);
        assert_int_equal(made.photons.cells, 12 * 12 * 8);
    }
    make_npy_mask(&file, &(made_mask){8, 12, label}, false, false, 'u', 2);
    write_bytes_to(in_folder("doubt_mask"), &file, file.n);
    flim_import_result made;
    flim_error err = {0};
    unlink(out);
    assert_int_equal(flim_import(&r, &(flim_log){0}, &made, &err), FLIM_ERROR_USAGE);
    assert_non_null(strstr(err.text, "--axes YXT"));
    r.mask = NULL;
    assert_int_equal(flim_import(&r, &(flim_log){0}, &made, &err), FLIM_ERROR_USAGE);
    assert_false(flim_file_exists(out));
}

/* ---- what is wrong ---- */

static void expect_refusal(const flim_import_request *r, flim_status want, const char *words)
{
    flim_import_result made;
    flim_error err = {0};
    const flim_log quiet = {0};
    const flim_status status = flim_import(r, &quiet, &made, &err);
    if (!library_is_there(status, &err)) {
        return;
    }
    if (status != want || !strstr(err.text, words)) {
        fail_msg("status %d and '%s', expected %d and '%s'", status, err.text, want, words);
    }
    assert_false(flim_file_exists(r->out));
}

static void masks_that_do_not_fit_are_named(void **state)
{
    (void)state;
    static uint32_t label[Y * X];
    const char *field = in_folder("one.npy"), *mask = in_folder("one_mask"), *out = in_folder("one.h5");
    const flim_import_request r = {
        .out = out, .input = &field, .n_inputs = 1, .mask = "*_mask", .cells.size = 9, .fields.axes = FLIM_ARRAY_YXT};
    write_field(field, 0);
    expect_refusal(&r, FLIM_ERROR_DATA, "one_mask, is not there");
    draw_cells(label, 1, 8, 100);
    const made_mask turned = {X, Y, label}, good = {Y, X, label};
    make_npy_mask(&file, &turned, false, false, 'u', 2);
    write_bytes_to(mask, &file, file.n);
    expect_refusal(&r, FLIM_ERROR_DATA, "one_mask: a mask of 29 x 33 pixels, but");
    make_npy_mask(&file, &good, false, false, 'O', 8); /* Cellpose's _seg.npy: a pickle */
    write_bytes_to(mask, &file, file.n);
    expect_refusal(&r, FLIM_ERROR_DATA, "one_mask: an array of Python objects");
    make_png_mask(&file, &good, 2, 8);
    write_bytes_to(mask, &file, file.n);
    expect_refusal(&r, FLIM_ERROR_DATA, "one_mask: a picture in colours");
    make_tiff_mask(&file, &good, false, 'i', 2);
    set(&file, file.n - 2, 0xffff, 2);
    write_bytes_to(mask, &file, file.n);
    expect_refusal(&r, FLIM_ERROR_DATA, "one_mask: page 1: the value at y 32, x 28");
    make_npy_mask(&file, &good, true, false, 'f', 4);
    file.data[file.n - 4] = 0x3f; /* 0.5 */
    write_bytes_to(mask, &file, file.n);
    expect_refusal(&r, FLIM_ERROR_DATA, "y 32, x 28 is no label");
    write_bytes_to(mask, &(bytes){.data = "this is a text, no mask at all", .n = 30}, 30);
    expect_refusal(&r, FLIM_ERROR_DATA, "one_mask: its first bytes");
    memset(label, 0, sizeof label);
    make_npy_mask(&file, &good, false, false, 'u', 1);
    write_bytes_to(mask, &file, file.n);
    expect_refusal(&r, FLIM_ERROR_DATA, "no cell is left");
    const char *two[] = {field, in_folder("two.npy")};
    write_field(two[1], 1);
    const flim_import_request both = {.out = out, .input = two, .n_inputs = 2, .mask = mask};
    expect_refusal(&both, FLIM_ERROR_USAGE, "a * in it stands for the field's name");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(masks_of_every_kind_of_file),     cmocka_unit_test(cells_and_windows_are_those_of_a_plain_search),
        cmocka_unit_test(pieces_of_a_binary_mask),         cmocka_unit_test(fields_with_masks_count_by_count),
        cmocka_unit_test(masks_that_do_not_fit_are_named), cmocka_unit_test(a_mask_says_which_axis_is_the_time),
    };
    if (access("/dev/shm", W_OK) != 0) {
        strcpy(folder, "/tmp/flim_masks_XXXXXX");
    }
    return RUN_IN_FOLDER(folder, tests);
}
