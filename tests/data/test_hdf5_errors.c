/* HDF5's own error stack: in the log when it was asked for, and nowhere else. */
#include "data/h5_files.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "data/info.h"

enum { N = 6, T = 8, H = 4, W = 4, VOXELS = T * H * W };

/* Counts in chunks of two cells (read through the library) with checksums, so that a damaged byte is HDF5's to find. */
static const char *write_file(const char *name)
{
    static const hsize_t shape[4] = {N, T, H, W}, two[4] = {2, T, H, W};
    static int64_t counts[N * VOXELS], label[N];
    const char *path = scratch_path(name);
    for (int i = 0; i < N * VOXELS; i++) {
        counts[i] = i % 7;
    }
    for (int i = 0; i < N; i++) {
        label[i] = i % 2;
    }
    hid_t file = h5_create(path);
    h5_put(file, "counts", H5T_STD_U16LE, H5T_NATIVE_INT64, 4, shape, (h5_layout){two, 4, 1, 1}, counts);
    h5_put_ints(file, "label", H5T_STD_U8LE, N, label);
    H5Fclose(file);
    return path;
}

static void damage_cell_3(const char *path)
{
    const hsize_t offset[4] = {2, 0, 0, 0};
    hsize_t size = 0;
    haddr_t address = 0;
    unsigned mask;
    hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT), set = H5Dopen2(file, "counts", H5P_DEFAULT);
    assert_true(H5Dget_chunk_info_by_coord(set, offset, &mask, &address, &size) >= 0);
    H5Dclose(set);
    H5Fclose(file);
    uint8_t byte;
    int fd = open(path, O_RDWR);
    assert_int_equal(pread(fd, &byte, 1, (off_t)(address + size / 2)), 1);
    byte ^= 0x10;
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)(address + size / 2)), 1);
    close(fd);
}

/* Opens, scans every cell and reports, as the programs do; what went to stderr meanwhile -> printed. */
static void use_file(const char *path, const flim_log *log, const flim_log *stacks, char printed[4096])
{
    char name[256];
    snprintf(name, sizeof name, "%s", scratch_path("stderr.txt"));
    fflush(stderr);
    int keep = dup(2), to = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_true(keep >= 0 && to >= 0);
    dup2(to, 2);
    flim_dataset *d = NULL;
    flim_data_report *report = NULL;
    flim_error err = {0};
    int64_t bad = 0;
    const flim_dataset_options options = {.log = log, .hdf5_errors = stacks};
    const flim_data_report_options how = {.workers = 2, .most_bad = 5, .hdf5_errors = stacks};
    if (flim_dataset_open(&path, 1, &options, &d, &err) == FLIM_OK) {
        flim_dataset_scan(d, 3, NULL, log, NULL, NULL, &bad, &err);
    }
    flim_dataset_close(d);
    flim_data_report_create(&path, 1, &how, &report, &err);
    flim_data_report_free(report);
    fflush(stderr);
    dup2(keep, 2);
    close(keep);
    ssize_t got = pread(to, printed, 4095, 0);
    printed[got > 0 ? got : 0] = '\0';
    close(to);
}

static void check(const char *path, const char *in_stack)
{
    char printed[4096];
    static log_text quiet, notes, stacks;
    quiet = notes = stacks = (log_text){0};
    use_file(path, &(flim_log){log_line, &quiet}, NULL, printed);
    assert_string_equal(printed, "");
    assert_null(strstr(quiet.text, "HDF5 #"));
    use_file(path, &(flim_log){log_line, &notes}, &(flim_log){log_line, &stacks}, printed);
    assert_string_equal(printed, "");
    assert_string_equal(notes.text, quiet.text);
    assert_non_null(strstr(stacks.text, "HDF5 #0 "));
    assert_non_null(strstr(stacks.text, "HDF5 #1 "));
    if (!strstr(stacks.text, in_stack)) {
        fail_msg("'%s' is not in: %s", in_stack, stacks.text);
    }
}

static void a_file_that_does_not_open(void **state)
{
    (void)state;
    struct stat about;
    const char *path = write_file("cut.h5");
    assert_int_equal(stat(path, &about), 0);
    assert_int_equal(truncate(path, about.st_size / 2), 0);
    check(path, "truncated file");
}

static void a_chunk_that_is_damaged(void **state)
{
    (void)state;
    const char *path = write_file("damaged.h5");
    damage_cell_3(path);
    check(path, "filter returned failure during read"); /* HDF5 1.14 no longer tells which filter, a checksum */
}

static void a_good_file_has_no_stack(void **state)
{
    (void)state;
    char printed[4096];
    static log_text notes, stacks;
    use_file(write_file("good.h5"), &(flim_log){log_line, &notes}, &(flim_log){log_line, &stacks}, printed);
    assert_string_equal(printed, "");
    assert_string_equal(stacks.text, "");
}

/* A program that uses HDF5 itself keeps its own way of printing. */
static herr_t own_way(hid_t stack, void *data)
{
    (void)stack;
    (*(int *)data)++;
    return 0;
}

static void the_callers_error_printing_comes_back(void **state)
{
    (void)state;
    int called = 0;
    char printed[4096];
    static log_text notes, stacks;
    const char *path = write_file("mine.h5");
    damage_cell_3(path);
    H5E_auto2_t function;
    void *data;
    assert_true(H5Eset_auto2(H5E_DEFAULT, own_way, &called) >= 0);
    use_file(path, &(flim_log){log_line, &notes}, &(flim_log){log_line, &stacks}, printed);
    assert_int_equal(called, 0);
    assert_true(H5Eget_auto2(H5E_DEFAULT, &function, &data) >= 0);
    assert_true(function == own_way && data == &called);
    H5Eset_auto2(H5E_DEFAULT, (H5E_auto2_t)H5Eprint2, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_that_does_not_open),
        cmocka_unit_test(a_chunk_that_is_damaged),
        cmocka_unit_test(a_good_file_has_no_stack),
        cmocka_unit_test(the_callers_error_printing_comes_back),
    };
    return cmocka_run_group_tests(tests, NULL, remove_scratch);
}
