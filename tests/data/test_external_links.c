/* Data that lies elsewhere than in the file that is opened: links into other files, virtual datasets, external raw files. 
 * What is there reads as if it lay in the file; what is not there is named at open, where HDF5 would read fill values. */
#include "data/h5_files.h"

#include "flim/loader.h"

enum { N = 10, T = 9, H = 4, W = 5, PIXELS = H * W, VOXELS = T * PIXELS };
static const hsize_t shape[4] = {N, T, H, W}, one[4] = {1, T, H, W};

static int64_t count_of(int64_t cell, int64_t voxel)
{
    return (cell * 31 + voxel * 7) % 11 ? 0 : 1 + (cell * VOXELS + voxel) % 300;
}

static void fill(int64_t counts[N * VOXELS])
{
    for (int64_t i = 0; i < N * VOXELS; i++) {
        counts[i] = count_of(i / VOXELS, i % VOXELS);
    }
}

static void put_labels(hid_t file)
{
    int64_t label[N];
    for (int i = 0; i < N; i++) {
        label[i] = i % 2;
    }
    h5_put_ints(file, "label", H5T_STD_U8LE, N, label);
}

/* All cells, by four threads, with the counts as they are. */
static void check_cells(const char *path)
{
    flim_error err = {0};
    flim_dataset *d = open_good(path, NULL);
    flim_loader *loader;
    flim_draw draws[N];
    const flim_batch *batch;
    int64_t seen = 0;
    for (uint32_t i = 0; i < N; i++) {
        draws[i] = (flim_draw){(i * 7) % N, 0, 1.0f};
    }
    assert_int_equal(flim_dataset_get_info(d)->n, N);
    assert_int_equal(flim_loader_create(d, &(flim_loader_options){.workers = 4, .prefetch = 2, .batch = 3}, &loader, &err),
                     FLIM_OK);
    assert_int_equal(flim_loader_begin(loader, &(flim_phase){.draws = draws, .n_draws = N, .batch = 3}, &err), FLIM_OK);
    for (;;) {
        if (flim_loader_next(loader, &batch, &err) != FLIM_OK) {
            fail_msg("%s", err.text);
        }
        if (!batch) {
            break;
        }
        for (int64_t i = 0; i < batch->n; i++, seen++) {
            for (int64_t v = 0; v < VOXELS; v++) {
                float want = (float)count_of(draws[seen].cell, v);
                flim_signal_from_counts(&want, &want, 1);
                if (batch->signal[i * VOXELS + v] != want) {
                    fail_msg("%s: cell %u voxel %lld", path, draws[seen].cell, (long long)v);
                }
            }
        }
        flim_loader_release(loader, batch);
    }
    assert_int_equal(seen, N);
    flim_loader_destroy(loader);
    flim_dataset_close(d);
}

/* NAME in the scratch folder, which stays in its own buffer. */
static void name_path(char path[256], const char *name)
{
    snprintf(path, 256, "%s", scratch_path(name));
}

/* The file that links and views lead to: /x of a layout. */
static void write_source(const char *path, h5_layout layout)
{
    static int64_t counts[N * VOXELS];
    fill(counts);
    hid_t file = h5_create(path);
    h5_put(file, "x", H5T_STD_U16LE, H5T_NATIVE_INT64, 4, shape, layout, counts);
    H5Fclose(file);
}

/* A file with a link to /x of the other one, and with so much of its own that the other one's addresses lie inside it, too. */
static void links_lead_into_another_file(void **state)
{
    (void)state;
    static int64_t decoy[4 * N * VOXELS];
    const hsize_t large[4] = {4 * N, T, H, W};
    const h5_layout layouts[] = {h5_contiguous, {one, -1, 0, 0}, {one, 4, 1, 0}, {one, -1, 1, 0}};
    char main_path[256], other[256];
    name_path(main_path, "main.h5");
    name_path(other, "other.h5");
    for (int i = 0; i < 4 * N * VOXELS; i++) {
        decoy[i] = 77;
    }
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        write_source(other, layouts[i]);
        hid_t file = h5_create(main_path);
        put_labels(file);
        h5_put(file, "decoy", H5T_STD_U16LE, H5T_NATIVE_INT64, 4, large, h5_contiguous, decoy);
        assert_true(H5Lcreate_external("other.h5", "/x", file, "counts", H5P_DEFAULT, H5P_DEFAULT) >= 0);
        H5Fclose(file);
        check_cells(main_path);
    }
    unlink(other);
    open_bad(main_path, NULL, main_path, "/counts cannot be opened", "other.h5", "a link that leads nowhere", NULL);
}

/* counts: each half a view of /x of one of two files. */
static void write_view(const char *path, const char *const file_names[2], const char *source)
{
    hid_t file = h5_create(path), space = H5Screate_simple(4, shape, NULL), dcpl = H5Pcreate(H5P_DATASET_CREATE);
    const uint16_t nothing = 5;
    put_labels(file);
    H5Pset_fill_value(dcpl, H5T_NATIVE_UINT16, &nothing);
    for (int half = 0; half < 2; half++) {
        const hsize_t start[4] = {(hsize_t)half * N / 2, 0, 0, 0}, count[4] = {N / 2, T, H, W};
        hid_t from = H5Screate_simple(4, shape, NULL);
        H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL);
        H5Sselect_hyperslab(from, H5S_SELECT_SET, start, NULL, count, NULL);
        assert_true(H5Pset_virtual(dcpl, space, file_names[half], source, from) >= 0);
        H5Sclose(from);
    }
    H5Sselect_all(space);
    hid_t set = H5Dcreate2(file, "counts", H5T_STD_U16LE, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    assert_true(set >= 0);
    H5Dclose(set);
    H5Pclose(dcpl);
    H5Sclose(space);
    H5Fclose(file);
}

static void views_need_all_their_sources(void **state)
{
    (void)state;
    char view[256], first[256], second[256];
    name_path(view, "view.h5");
    name_path(first, "first.h5");
    name_path(second, "second.h5");
    write_source(first, (h5_layout){one, 4, 1, 0});
    write_source(second, h5_contiguous);
    const char *const beside[2] = {"first.h5", "second.h5"}, *const whole[2] = {first, second},
                      *const moved[2] = {"/no/such/folder/first.h5", "second.h5"};
    write_view(view, beside, "/x"); /* sources beside the view, not in the working folder */
    check_cells(view);
    write_view(view, moved, "/x");
    check_cells(view);
    write_view(view, whole, "/x");
    check_cells(view);
    write_view(view, beside, "/y");
    open_bad(view, NULL, view, "/counts is a view", "source /y in", "cannot be opened", "fill values", NULL);
    write_view(view, beside, "/x");
    unlink(second);
    open_bad(view, NULL, view, "/counts is a view", "its source second.h5 is not there", NULL);
    /* a view of the file itself */
    static int64_t counts[N * VOXELS];
    const char *const own[2] = {".", "."};
    fill(counts);
    write_view(view, own, "/x");
    open_bad(view, NULL, view, "source /x in the same file", NULL);
    hid_t file = H5Fopen(view, H5F_ACC_RDWR, H5P_DEFAULT);
    h5_put(file, "x", H5T_STD_U16LE, H5T_NATIVE_INT64, 4, shape, h5_contiguous, counts);
    H5Fclose(file);
    check_cells(view);
}

/* counts in two raw files, the first of `split` bytes. */
static void write_external(const char *path, const char *first, const char *second, hsize_t split)
{
    static int64_t counts[N * VOXELS];
    fill(counts);
    hid_t file = h5_create(path), space = H5Screate_simple(4, shape, NULL), dcpl = H5Pcreate(H5P_DATASET_CREATE);
    put_labels(file);
    H5Pset_external(dcpl, first, 16, split);
    H5Pset_external(dcpl, second, 0, H5F_UNLIMITED);
    hid_t set = H5Dcreate2(file, "counts", H5T_STD_U16LE, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    assert_true(set >= 0);
    assert_true(H5Dwrite(set, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, counts) >= 0);
    H5Dclose(set);
    H5Pclose(dcpl);
    H5Sclose(space);
    H5Fclose(file);
}

static void external_files_are_there_and_whole(void **state)
{
    (void)state;
    enum { SPLIT = 1000, REST = N * VOXELS * 2 - SPLIT };
    char path[256], first[256], second[256], have[32], want[32];
    name_path(path, "external.h5");
    name_path(first, "first.raw");
    name_path(second, "second.raw");
    write_external(path, first, second, SPLIT);
    check_cells(path);
    assert_int_equal(truncate(second, REST - 1), 0);
    snprintf(have, sizeof have, "%d bytes", REST - 1);
    snprintf(want, sizeof want, "%d are needed", REST);
    open_bad(path, NULL, path, "/counts lies in the file", "second.raw, which is cut short", have, want, NULL);
    assert_int_equal(truncate(first, 16 + SPLIT - 1), 0);
    open_bad(path, NULL, "first.raw, which is cut short", "1015 bytes", "1016 are needed", NULL);
    unlink(first);
    open_bad(path, NULL, "first.raw, which is not there", "HDF5_EXTFILE_PREFIX", NULL);
}

/* The same for the small columns: a label that is a view of nothing must not be 0 for every cell. */
static void columns_are_looked_at_as_well(void **state)
{
    (void)state;
    static int64_t counts[N * VOXELS];
    const hsize_t n = N;
    char path[256];
    name_path(path, "label.h5");
    fill(counts);
    hid_t file = h5_create(path), space = H5Screate_simple(1, &n, NULL), dcpl = H5Pcreate(H5P_DATASET_CREATE);
    h5_put(file, "counts", H5T_STD_U16LE, H5T_NATIVE_INT64, 4, shape, h5_contiguous, counts);
    assert_true(H5Pset_virtual(dcpl, space, "gone.h5", "/label", space) >= 0);
    H5Dclose(H5Dcreate2(file, "label", H5T_STD_U8LE, space, H5P_DEFAULT, dcpl, H5P_DEFAULT));
    H5Pclose(dcpl);
    H5Sclose(space);
    H5Fclose(file);
    open_bad(path, NULL, path, "/label is a view", "gone.h5", NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(links_lead_into_another_file),
        cmocka_unit_test(views_need_all_their_sources),
        cmocka_unit_test(external_files_are_there_and_whole),
        cmocka_unit_test(columns_are_looked_at_as_well),
    };
    return cmocka_run_group_tests(tests, NULL, remove_scratch);
}
