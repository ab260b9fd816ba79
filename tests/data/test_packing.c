/* Packed numbers (scale_factor, add_offset, _FillValue ...): applied, or refused by the attribute's name and the first cell;
 * and sums of photons that are exact whatever the type. */
#include "data/cell_figures.h"
#include "data/cell_table.h"
#include "data/dataset_internal.h"
#include "data/h5_files.h"
#include "data/repack.h"

enum { N = 6, T = 8, H = 3, W = 4, PIXELS = H * W, VOXELS = T * PIXELS };
static const hsize_t shape[4] = {N, T, H, W}, plane[3] = {N, H, W};

static void put_number(hid_t set, const char *name, hid_t type, hsize_t n, const double *values)
{
    hid_t space = n ? H5Screate_simple(1, &n, NULL) : H5Screate(H5S_SCALAR);
    hid_t id = H5Acreate2(set, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(id >= 0 && H5Awrite(id, H5T_NATIVE_DOUBLE, values) >= 0);
    H5Aclose(id);
    H5Sclose(space);
}

static void put_text(hid_t set, const char *name, const char *text)
{
    hid_t type = H5Tcopy(H5T_C_S1), space = H5Screate(H5S_SCALAR);
    H5Tset_size(type, strlen(text) + 1);
    hid_t id = H5Acreate2(set, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(id >= 0 && H5Awrite(id, type, text) >= 0);
    H5Aclose(id);
    H5Sclose(space);
    H5Tclose(type);
}

/* Stored numbers of a file: counts (N,T,H,W), label, group (N), mask (N,H,W). */
typedef struct content {
    double counts[N * VOXELS], label[N], group[N], mask[N * PIXELS];
} content;

static void fill(content *c)
{
    for (int i = 0; i < N * VOXELS; i++) {
        c->counts[i] = i % 5 == 0 ? 4 * (1 + i % 11) : 0;
    }
    for (int i = 0; i < N; i++) {
        c->label[i] = i % 2;
        c->group[i] = i / 2;
    }
    for (int i = 0; i < N * PIXELS; i++) {
        c->mask[i] = i % PIXELS != 0; /* pixel (0,0) lies outside */
    }
}

static const char *const names[] = {"counts", "label", "group", "mask"};

static hid_t write_file(const char *path, const content *c, hid_t type, bool mask)
{
    hid_t file = h5_create(path);
    h5_put(file, "counts", type, H5T_NATIVE_DOUBLE, 4, shape, (h5_layout){(hsize_t[]){1, T, H, W}, 4, 1, 0}, c->counts);
    h5_put(file, "label", H5T_STD_I16LE, H5T_NATIVE_DOUBLE, 1, shape, h5_contiguous, c->label);
    h5_put(file, "group", H5T_STD_I32LE, H5T_NATIVE_DOUBLE, 1, shape, h5_contiguous, c->group);
    if (mask) {
        h5_put(file, "mask", H5T_STD_U8LE, H5T_NATIVE_DOUBLE, 3, plane, h5_contiguous, c->mask);
    }
    return file;
}

static void put_on(hid_t file, const char *name, const char *attribute, hid_t type, hsize_t n, const double *values)
{
    hid_t set = H5Dopen2(file, name, H5P_DEFAULT);
    put_number(set, attribute, type, n, values);
    H5Dclose(set);
}

/* Every count of the file is as `want` says, through both readings and in what the scan sums up. */
static void check_counts(const char *path, const double *want)
{
    flim_error err = {0};
    flim_dataset *d = open_good(path, NULL);
    flim_reader *reader;
    float counts[VOXELS], signal[VOXELS];
    flim_cell_summary summary[N];
    int64_t bad;
    assert_int_equal(flim_reader_create(d, &reader, &err), FLIM_OK);
    if (flim_dataset_scan(d, 2, NULL, NULL, summary, NULL, &bad, &err) != FLIM_OK) {
        fail_msg("%s", err.text);
    }
    for (int64_t cell = 0; cell < N; cell++) {
        double sum = 0;
        assert_int_equal(flim_reader_counts(reader, cell, counts, NULL, &err), FLIM_OK);
        assert_int_equal(flim_reader_signal(reader, cell, signal, NULL, &err), FLIM_OK);
        for (int v = 0; v < VOXELS; v++) {
            float right = (float)want[cell * VOXELS + v], log;
            flim_signal_from_counts(&right, &log, 1);
            if (counts[v] != right || signal[v] != log) {
                fail_msg("cell %d, voxel %d: %g, expected %g", (int)cell, v, (double)counts[v], (double)right);
            }
            sum += want[cell * VOXELS + v];
        }
        assert_true(summary[cell].photons == sum);
    }
    flim_reader_destroy(reader);
    flim_dataset_close(d);
}

static void scale_and_offset_are_applied(void **state)
{
    (void)state;
    static content c, stored;
    static const struct {
        double scale, offset;
    } cases[] = {{0.25, 0}, {1, -100}, {2, -8}, {2, 0}, {0.25, 1}, {-1, 200}, {1, 0}};
    char path[256];
    snprintf(path, sizeof path, "%s", scratch_path("packed.h5"));
    fill(&c);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (int float_attribute = 0; float_attribute < 2; float_attribute++) {
            double want[N * VOXELS];
            stored = c;
            for (int v = 0; v < N * VOXELS; v++) {
                stored.counts[v] = cases[i].offset < 0 ? c.counts[v] - cases[i].offset : c.counts[v];
                want[v] = stored.counts[v] * cases[i].scale + cases[i].offset;
            }
            hid_t file = write_file(path, &stored, H5T_STD_U16BE, true);
            const hid_t type = float_attribute ? H5T_IEEE_F32LE : H5T_IEEE_F64LE;
            put_on(file, "counts", "scale_factor", type, 0, &cases[i].scale);
            put_on(file, "counts", "add_offset", type, 1, &cases[i].offset);
            H5Fclose(file);
            check_counts(path, want);
            /* written anew, it means the same */
            char out[256];
            flim_error err = {0};
            flim_repack_result result;
            const char *const paths[] = {path};
            snprintf(out, sizeof out, "%s", scratch_path("again.h5"));
            unlink(out);
            if (flim_repack(paths, 1, out, &(flim_repack_options){.workers = 2}, &result, &err) != FLIM_OK) {
                fail_msg("%s", err.text);
            }
            check_counts(out, want);
        }
    }
}

static void columns_and_masks_are_unpacked(void **state)
{
    (void)state;
    static content c, stored;
    char path[256];
    const double tenth = 0.1, one = -1, back = 1.0 / 255;
    snprintf(path, sizeof path, "%s", scratch_path("columns.h5"));
    fill(&c);
    stored = c;
    for (int i = 0; i < N; i++) {
        stored.label[i] = 10 * c.label[i];
        stored.group[i] = c.group[i] + 1;
    }
    for (int i = 0; i < N * PIXELS; i++) {
        stored.mask[i] = 255 * c.mask[i];
    }
    hid_t file = write_file(path, &stored, H5T_STD_U16LE, true);
    put_on(file, "label", "scale_factor", H5T_IEEE_F32LE, 0, &tenth);
    put_on(file, "group", "add_offset", H5T_IEEE_F64LE, 0, &one);
    put_on(file, "mask", "scale_factor", H5T_IEEE_F32LE, 0, &back);
    H5Fclose(file);
    flim_dataset *d = open_good(path, NULL);
    const flim_dataset_info *info = flim_dataset_get_info(d);
    for (int i = 0; i < N; i++) {
        assert_int_equal(info->label[i], (int)c.label[i]);
        assert_int_equal(atoi(info->group_name[info->group[i]]), (int)c.group[i]);
    }
    for (int i = 0; i < N * PIXELS; i++) {
        assert_int_equal(d->mask[i], (int)c.mask[i]);
    }
    flim_dataset_close(d);
    /* half a class */
    file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
    hid_t set = H5Dopen2(file, "label", H5P_DEFAULT);
    H5Adelete(set, "scale_factor");
    H5Dclose(set);
    const double twentieth = 0.05;
    put_on(file, "label", "scale_factor", H5T_IEEE_F64LE, 0, &twentieth);
    H5Fclose(file);
    open_bad(path, NULL, path, "/label: cell 1: found 0.5, expected a whole number", NULL);
}

/* Opens; the first cell that cannot be read says all of the words, too. */
static void refused(const char *path, const char *const words[4])
{
    flim_error err = {0};
    flim_dataset *d = NULL;
    const char *const paths[] = {path};
    int64_t bad = 0;
    flim_status status = flim_dataset_open(paths, 1, NULL, &d, &err);
    if (status == FLIM_OK) {
        status = flim_dataset_scan(d, 2, NULL, NULL, NULL, NULL, &bad, &err);
    }
    flim_dataset_close(d);
    assert_int_equal(status, FLIM_ERROR_DATA);
    for (int i = 0; i < 4 && words[i]; i++) {
        if (!strstr(err.text, words[i])) {
            fail_msg("'%s' is not in: %s", words[i], err.text);
        }
    }
}

static void numbers_that_stand_for_no_value_are_named(void **state)
{
    (void)state;
    static content c, stored;
    char path[256];
    snprintf(path, sizeof path, "%s", scratch_path("fill.h5"));
    fill(&c);
    static const struct {
        const char *attribute;
        hsize_t n;
        double values[2], stored;
    } cases[] = {{"_FillValue", 0, {65535}, 65535}, {"missing_value", 0, {999}, 999},  {"missing_value", 2, {7, 9999}, 9999},
                 {"valid_max", 0, {1000}, 1001},    {"valid_range", 2, {0, 500}, 501}, {"_FillValue", 1, {65535}, 65535}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (int where = 0; where < 5; where++) { /* nowhere, outside the mask, inside, no mask; scaled and outside */
            const int voxel = 2 * VOXELS + 3 * PIXELS + (where == 2 ? 5 : 0);
            const double half = 0.5;
            double want[N * VOXELS];
            stored = c;
            memcpy(want, c.counts, sizeof want);
            if (where > 0) {
                stored.counts[voxel] = cases[i].stored;
                want[voxel] = 0;
            }
            hid_t file = write_file(path, &stored, H5T_STD_U16LE, where != 3);
            put_on(file, "counts", cases[i].attribute, H5T_IEEE_F64LE, cases[i].n, cases[i].values);
            if (where == 4) {
                put_on(file, "counts", "scale_factor", H5T_IEEE_F64LE, 0, &half);
            }
            H5Fclose(file);
            for (int v = 0; where == 4 && v < N * VOXELS; v++) {
                want[v] *= half;
            }
            if (where == 2 || where == 3) {
                refused(path,
                        (const char *const[4]){strcmp(cases[i].attribute, "valid_range") ? cases[i].attribute : "valid_m",
                                               "cell 2, t 3", where == 2 ? "y 1, x 1, inside the mask" : "y 0, x 0", NULL});
            } else {
                check_counts(path, want);
            }
        }
    }
    /* the other datasets: any cell */
    for (int set = 1; set < 4; set++) {
        const double fill_value = set == 3 ? 255 : -9;
        stored = c;
        *(set == 1 ? &stored.label[4] : set == 2 ? &stored.group[4] : &stored.mask[4 * PIXELS + 6]) = fill_value;
        for (int there = 0; there < 2; there++) {
            hid_t file = write_file(path, there ? &stored : &c, H5T_STD_U16LE, true);
            put_on(file, names[set], "_FillValue", H5T_STD_I16LE, 0, &fill_value);
            H5Fclose(file);
            if (there) {
                open_bad(path, NULL, path, names[set], "cell 4", "_FillValue", NULL);
            } else {
                flim_dataset_close(open_good(path, NULL));
            }
        }
    }
    /* 0 is no photon and outside, whatever it is called; for labels it is a class */
    const double zero = 0;
    hid_t file = write_file(path, &c, H5T_STD_U16LE, true);
    put_on(file, "counts", "_FillValue", H5T_STD_U16LE, 0, &zero);
    put_on(file, "mask", "_FillValue", H5T_STD_U8LE, 0, &zero);
    H5Fclose(file);
    check_counts(path, c.counts);
    file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
    put_on(file, "label", "_FillValue", H5T_STD_I16LE, 0, &zero);
    H5Fclose(file);
    open_bad(path, NULL, path, "/label: cell 0", "_FillValue 0", NULL);
}

/* The same of columns of texts, of any storage; an attribute that no cell has, an empty one and one of numbers say nothing. */
static void texts_that_stand_for_no_value_are_named(void **state)
{
    (void)state;
    static content c;
    static const char *const attributes[] = {"_FillValue", "missing_value"}, *const columns[] = {"group", "name"};
    static const char *const text[N] = {"D1", "D1", "D2", "none given", "", "D3"};
    char path[256];
    snprintf(path, sizeof path, "%s", scratch_path("texts.h5"));
    fill(&c);
    for (int round = 0; round < 24; round++) {
        const char *column = columns[round % 2], *attribute = attributes[round / 2 % 2];
        const size_t size = round / 4 % 3 == 0 ? 0 : 16; /* variable length, padded with zeros, with blanks */
        const H5T_str_t pad = round / 4 % 3 == 2 ? H5T_STR_SPACEPAD : H5T_STR_NULLPAD;
        const char *value = round < 12 ? "none given" : round % 3 == 0 ? "" : round % 3 == 1 ? "D4" : NULL;
        hid_t file = write_file(path, &c, H5T_STD_U16LE, true);
        H5Ldelete(file, column, H5P_DEFAULT);
        h5_put_strings(file, column, N, text, size, pad, H5T_CSET_UTF8);
        hid_t set = H5Dopen2(file, column, H5P_DEFAULT);
        if (value) {
            put_text(set, attribute, value);
        } else {
            put_number(set, attribute, H5T_IEEE_F64LE, 0, &(double){3});
        }
        H5Dclose(set);
        H5Fclose(file);
        if (round < 12) {
            char first[32];
            snprintf(first, sizeof first, "/%s: cell 3", column);
            open_bad(path, NULL, path, first, "'none given'", attribute, NULL);
        } else {
            flim_dataset_close(open_good(path, NULL));
        }
    }
}

static void what_cannot_be_applied_is_refused(void **state)
{
    (void)state;
    static content c;
    char path[256];
    snprintf(path, sizeof path, "%s", scratch_path("odd.h5"));
    fill(&c);
    for (int set = 0; set < 4; set++) {
        for (int i = 0; i < 5; i++) {
            static const char *const attributes[] = {"scale_factor", "scale_factor", "add_offset", "scale_factor",
                                                     "_Unsigned"};
            const double two[2] = {0.5, 0.25}, zero = 0;
            if (i == 4 && set == 3) { /* an unsigned type: the attribute says nothing new */
                continue;
            }
            hid_t file = write_file(path, &c, H5T_STD_I16LE, true), id = H5Dopen2(file, names[set], H5P_DEFAULT);
            if (i == 0 || i == 4) {
                put_text(id, attributes[i], i ? "true" : "0.25");
            } else if (i == 3) {
                put_number(id, attributes[i], H5T_IEEE_F64LE, 0, &zero);
            } else {
                put_number(id, attributes[i], H5T_IEEE_F64LE, 2, two);
            }
            H5Dclose(id);
            H5Fclose(file);
            open_bad(path, NULL, path, names[set], attributes[i], NULL);
        }
    }
}

/* ---- sums */

/* The table of cells has the sum 4294967553 and the peak in bin 77 in each row. */
static void table_is_exact(flim_dataset *d, size_t type, int turned)
{
    flim_error err = {0};
    char line[512];
    const char *path = scratch_path("cells.csv");
    const flim_output output = {.path = path, .kind = "a table", .begins = FLIM_CELL_FIGURES_HEAD};
    assert_int_equal(flim_cell_figures_write(d, 1, NULL, &output, &err), FLIM_OK);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    for (int row = -1; fgets(line, sizeof line, file); row++) {
        if (row >= 0 && !strstr(line, ",4294967553,1,1,77,0,")) {
            fail_msg("type %zu, turned %d, row %d: %s", type, turned, row, line);
        }
    }
    fclose(file);
}

static void sums_are_exact(void **state)
{
    (void)state;
    const hid_t types[] = {H5T_STD_U32LE, H5T_STD_U32BE, H5T_STD_I32LE, H5T_STD_U64LE, H5T_STD_I64BE, H5T_IEEE_F64LE};
    enum { BINS = 256, CELLS = 2 };
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        for (int turned = 0; turned < 2; turned++) {
            static int64_t counts[CELLS * BINS * 9];
            const hsize_t sizes[4] = {CELLS, BINS, 3, 3}, reversed[4] = {3, 3, BINS, CELLS};
            const char *path = scratch_path("wide.h5");
            for (int v = 0; v < CELLS * BINS * 9; v++) {
                const int t = turned ? v / CELLS % BINS : v / 9 % BINS, x = turned ? v / CELLS / BINS / 3 : v % 3,
                          y = turned ? v / CELLS / BINS % 3 : v / 3 % 3;
                counts[v] = x == 1 && y == 0 ? 16777217 + (t == 77) : 0;
            }
            hid_t file = h5_create(path);
            h5_put(file, "counts", types[i], H5T_NATIVE_INT64, 4, turned ? reversed : sizes, h5_contiguous, counts);
            H5Fclose(file);
            flim_error err = {0};
            flim_cell_summary summary[CELLS];
            int64_t bad;
            flim_dataset *d = open_good(path, &(flim_dataset_options){.axes = turned ? "XYTN" : NULL});
            assert_int_equal(flim_dataset_scan(d, 1, NULL, NULL, summary, NULL, &bad, &err), FLIM_OK);
            for (int cell = 0; cell < CELLS; cell++) {
                if (summary[cell].photons != 4294967553.0 || summary[cell].max_count != 16777218.0 ||
                    summary[cell].peak_bin != 77) {
                    fail_msg("type %zu, turned %d: %.1f, most %.1f in bin %d", i, turned, summary[cell].photons,
                             summary[cell].max_count, (int)summary[cell].peak_bin);
                }
            }
            table_is_exact(d, i, turned);
            flim_dataset_close(d);
        }
    }
}

static void the_largest_value_of_every_integer_is_known(void **state)
{
    (void)state;
    hid_t twelve = H5Tcopy(H5T_STD_U16LE);
    H5Tset_precision(twelve, 12);
    const struct {
        hid_t type;
        double most;
    } cases[] = {{H5T_STD_U8LE, 255},          {H5T_STD_I8LE, 127},          {H5T_STD_U16BE, 65535}, {H5T_STD_I16LE, 32767},
                 {H5T_STD_I32LE, 2147483647.}, {H5T_STD_U32LE, 2147483647.}, {twelve, 4095}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (int less = 0; less < 2; less++) {
            static content c;
            const char *path = scratch_path("most.h5");
            fill(&c);
            c.counts[3 * VOXELS + 7] = cases[i].most - less;
            H5Fclose(write_file(path, &c, cases[i].type, true));
            flim_error err = {0};
            flim_cell_summary summary[N];
            int64_t bad;
            flim_dataset *d = open_good(path, NULL);
            assert_int_equal(flim_dataset_scan(d, 1, NULL, NULL, summary, NULL, &bad, &err), FLIM_OK);
            for (int cell = 0; cell < N; cell++) {
                assert_int_equal(summary[cell].max_count >= flim_largest_count(d, cell), cell == 3 && !less);
            }
            flim_dataset_close(d);
        }
    }
    H5Tclose(twelve);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scale_and_offset_are_applied),
        cmocka_unit_test(columns_and_masks_are_unpacked),
        cmocka_unit_test(numbers_that_stand_for_no_value_are_named),
        cmocka_unit_test(texts_that_stand_for_no_value_are_named),
        cmocka_unit_test(what_cannot_be_applied_is_refused),
        cmocka_unit_test(sums_are_exact),
        cmocka_unit_test(the_largest_value_of_every_integer_is_known),
    };
    return cmocka_run_group_tests(tests, NULL, remove_scratch);
}
