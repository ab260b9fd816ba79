/* flim_info's report and flim_repack: the numbers of small files that are known, and files that come back the same. */
#include "data/h5_files.h"

#include "core/temporary_files.h"

#include <math.h>
#include <sys/stat.h>

#include "data/info.h"
#include "data/repack.h"

enum { N = 8, T = 10, H = 4, W = 3, PIXELS = H * W, VOXELS = T * PIXELS };
static const hsize_t shape[4] = {N, T, H, W};

/* Cell i: 10 (i + 1) photons in bin 2 + i % 2 at pixel 1, but cell 5 is empty and cell 6 saturated. */
static void fill(double *counts)
{
    memset(counts, 0, N * VOXELS * sizeof *counts);
    for (int i = 0; i < N; i++) {
        if (i != 5) {
            counts[i * VOXELS + (2 + i % 2) * PIXELS + 1] = i == 6 ? 255 : 10 * (i + 1);
        }
    }
}

static void write_file(const char *path, hid_t type, const double *counts, const int64_t *group)
{
    static const char *const classes[] = {"quiescent", "activated"};
    static const int64_t label[N] = {0, 0, 0, 0, 1, 1, 1, 1};
    hid_t file = h5_create(path);
    h5_put(file, "counts", type, H5T_NATIVE_DOUBLE, 4, shape, h5_contiguous, counts);
    h5_put_ints(file, "label", H5T_STD_U8LE, N, label);
    h5_put_ints(file, "group", H5T_STD_I64LE, N, group);
    h5_put_ints(file, "position", H5T_STD_I64LE, N, group);
    h5_put_attribute(file, "class_names", 2, classes);
    H5Fclose(file);
}

static const int64_t two_groups[N] = {2, 10, 2, 10, 2, 10, 2, 10};

static flim_data_report *report_of(const char *path, int64_t most_bad)
{
    flim_data_report *report;
    flim_error err = {0};
    const flim_data_report_options options = {.workers = 3, .most_bad = most_bad};
    if (flim_data_report_create(&path, 1, &options, &report, &err) != FLIM_OK) {
        fail_msg("%s", err.text);
    }
    return report;
}

static bool warns(const flim_data_report *report, const char *text)
{
    for (int i = 0; i < report->n_warnings; i++) {
        if (strstr(report->warning[i], text)) {
            return true;
        }
    }
    for (int i = 0; i < report->findings.n; i++) {
        if (strstr(report->findings.item[i].text, text)) {
            return true;
        }
    }
    return false;
}

static void report_sums_up_by_group_and_class(void **state)
{
    (void)state;
    static double counts[N * VOXELS];
    const char *path = scratch_path("report.h5");
    fill(counts);
    write_file(path, H5T_STD_U8LE, counts, two_groups);
    flim_data_report *report = report_of(path, 5);
    assert_null(report->refused);
    assert_int_equal(report->n_rows, 5);
    static const flim_table_row want[] = {
        /* group, class, cells, mean, median, zeros, saturated, all zero, empty, peak, area */
        {0, 0, 2, 20, 20, 1 - 2.0 / (2 * VOXELS), 0, 0, 0, 2, 1}, /* 10, 30 */
        {0, 1, 2, 152.5, 152.5, 1 - 2.0 / (2 * VOXELS), 1, 0, 0, 2, 1}, /* 50, 255 */
        {1, 0, 2, 30, 30, 1 - 2.0 / (2 * VOXELS), 0, 0, 0, 3, 1}, /* 20, 40 */
        {1, 1, 2, 40, 40, 1 - 1.0 / (2 * VOXELS), 0, 1, 1, 3, 0.5}, /* 0, 80 */
        {-1, -1, 8, 60.625, 35, 1 - 7.0 / (8 * VOXELS), 1, 1, 1, 2, 0.875}, /* 0 10 20 30 40 50 80 255 */
    };
    for (int i = 0; i < 5; i++) {
        const flim_table_row *row = &report->row[i];
        assert_int_equal(row->group, want[i].group);
        assert_int_equal(row->label, want[i].label);
        assert_int_equal(row->cells, want[i].cells);
        assert_true(row->photons_mean == want[i].photons_mean && row->photons_median == want[i].photons_median);
        assert_true(fabs(row->zero_fraction - want[i].zero_fraction) < 1e-12);
        assert_int_equal(row->saturated, want[i].saturated);
        assert_int_equal(row->all_zero, want[i].all_zero);
        assert_int_equal(row->empty_mask, want[i].empty_mask);
        assert_true(row->peak_bin == want[i].peak_bin && row->mask_area == want[i].mask_area);
    }
    assert_string_equal(flim_dataset_get_info(report->dataset)->group_name[1], "10");
    assert_true(warns(report, "1 of 8 cells has no photons"));
    assert_true(warns(report, "may be clipped"));
    assert_true(warns(report, "photons per cell, against the other classes"));
    assert_false(warns(report, "every group holds one class"));
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    flim_data_report_print(report, out);
    fclose(out);
    assert_non_null(strstr(text, "OK for train_cv"));
    assert_non_null(strstr(text, "quiescent"));
    free(text);
    flim_json *json = flim_data_report_json(report);
    int64_t cells;
    assert_int_equal(flim_json_length(flim_json_get(json, "rows")), 4);
    assert_true(flim_json_integer(flim_json_get(flim_json_get(json, "all"), "cells"), &cells));
    assert_int_equal(cells, 8);
    flim_json_free(json);
    flim_data_report_free(report);
}

static void report_warns_of_confounds_and_lists_bad_cells(void **state)
{
    (void)state;
    static double counts[N * VOXELS];
    static const int64_t confounded[N] = {0, 0, 1, 1, 2, 2, 3, 3};
    const char *path = scratch_path("bad.h5");
    fill(counts);
    counts[7 * VOXELS + 5] = -2;
    counts[2 * VOXELS + 6] = NAN;
    counts[4 * VOXELS] = INFINITY;
    write_file(path, H5T_IEEE_F64LE, counts, confounded);
    for (int64_t most = 0; most < 5; most++) {
        flim_data_report *report = report_of(path, most);
        assert_int_equal(report->bad, 3);
        assert_int_equal(report->n_listed, most < 3 ? most : 3);
        static const int64_t cells[] = {2, 4, 7};
        for (int64_t i = 0; i < report->n_listed; i++) {
            assert_int_equal(report->listed[i].cell, cells[i]);
        }
        assert_non_null(strstr(report->refused, "3 of 8 cells"));
        assert_true(warns(report, "every group has one class only"));
        flim_data_report_free(report);
    }
    flim_data_report *report = report_of("/tmp/flim-no-such-file.h5", 5);
    assert_null(report->dataset);
    assert_non_null(strstr(report->refused, "No such file"));
    flim_json *json = flim_data_report_json(report);
    bool accepted = true;
    assert_true(flim_json_boolean(flim_json_get(json, "accepted"), &accepted));
    assert_false(accepted);
    flim_json_free(json);
    flim_data_report_free(report);
}

static void repack_keeps_every_number(void **state)
{
    (void)state;
    static const struct {
        hid_t *type;
        double value;
        const char *want;
    } kinds[] = {{&H5T_STD_I64BE_g, 10, "uint8"},
                 {&H5T_STD_I64BE_g, 256, "uint16"},
                 {&H5T_IEEE_F64LE_g, 65536, "uint32"},
                 {&H5T_IEEE_F32BE_g, 0.25, "float32"}};
    static double counts[N * VOXELS];
    char in[128], out[128];
    snprintf(in, sizeof in, "%s", scratch_path("in.h5"));
    snprintf(out, sizeof out, "%s", scratch_path("out.h5"));
    const char *path = in;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        fill(counts);
        counts[3 * VOXELS + 9] = kinds[i].value;
        write_file(in, *kinds[i].type, counts, two_groups);
        log_text log = {0};
        flim_log sink = {log_line, &log};
        flim_error err = {0};
        flim_repack_result result;
        unlink(out);
        if (flim_repack(&path, 1, out, &(flim_repack_options){.workers = 2, .log = &sink}, &result, &err) != FLIM_OK) {
            fail_msg("%s", err.text);
        }
        assert_int_equal(result.cells, N);
        assert_string_equal(result.type, kinds[i].want);
        assert_non_null(strstr(log.text, "not copied: position"));
        assert_int_equal(temporary_files_of(out), 0);
        flim_dataset *d = open_good(out, &(flim_dataset_options){.need_labels = true, .need_groups = true});
        const flim_dataset_info *info = flim_dataset_get_info(d);
        assert_string_equal(info->layout, "chunked (1,10,4,3), shuffle + gzip 4");
        assert_string_equal(info->class_name[1], "activated");
        assert_string_equal(info->group_name[0], "2"); /* by value, still */
        flim_reader *reader;
        float got[VOXELS];
        assert_int_equal(flim_reader_create(d, &reader, NULL), FLIM_OK);
        for (int cell = 0; cell < N; cell++) {
            assert_int_equal(flim_reader_counts(reader, cell, got, NULL, NULL), FLIM_OK);
            assert_int_equal(info->group[cell], cell % 2);
            for (int v = 0; v < VOXELS; v++) {
                assert_true(got[v] == (float)counts[cell * VOXELS + v]);
            }
        }
        flim_reader_destroy(reader);
        flim_dataset_close(d);
    }
    flim_error err = {0};
    flim_repack_result result;
    assert_int_equal(flim_repack(&path, 1, out, &(flim_repack_options){.workers = 2}, &result, &err), FLIM_ERROR_USAGE);
    assert_non_null(strstr(err.text, "is an HDF5 file, which is never overwritten"));
    unlink(out);
    counts[0] = -1;
    write_file(in, H5T_IEEE_F64LE, counts, two_groups);
    assert_int_equal(flim_repack(&path, 1, out, &(flim_repack_options){.workers = 2}, &result, &err), FLIM_ERROR_DATA);
    assert_non_null(strstr(err.text, "cell 0, t 0, y 0, x 0: found -1"));
    assert_int_equal(access(out, F_OK), -1);
    assert_int_equal(temporary_files_of(out), 0);
    int stop = 1;
    counts[0] = 0;
    write_file(in, H5T_IEEE_F64LE, counts, two_groups);
    assert_int_equal(flim_repack(&path, 1, out, &(flim_repack_options){.workers = 2, .stop = &stop}, &result, &err),
                     FLIM_INTERRUPTED);
    assert_int_equal(access(out, F_OK), -1);
    assert_int_equal(flim_repack(&path, 1, "/proc/flim/out.h5", &(flim_repack_options){.workers = 2}, &result, &err),
                     FLIM_ERROR_WRITE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(report_sums_up_by_group_and_class),
        cmocka_unit_test(report_warns_of_confounds_and_lists_bad_cells),
        cmocka_unit_test(repack_keeps_every_number),
    };
    H5open();
    return cmocka_run_group_tests(tests, NULL, remove_scratch);
}
