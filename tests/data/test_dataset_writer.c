/* Cells that threads pack, read back by libhdf5's own filters: every width, counts that deflate and counts that do not, in any order,
 * more of them than are under way at once; equal calls give equal bytes; a writer that is dropped leaves nothing. */
#include "data/h5_files.h"

#include "core/sha256.h"
#include "flim/dataset_writer.h"

enum { N = 150, T = 40, H = 9, W = 7, VOXELS = T * H * W };

typedef enum content { SPARSE, NOISE, ZEROS } content;

static uint32_t value_at(content what, int64_t cell, int64_t voxel)
{
    uint64_t x = (uint64_t)(cell * VOXELS + voxel) * 0x9e3779b97f4a7c15u;
    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 32;
    return what == ZEROS ? 0 : what == NOISE ? (uint32_t)x : x % 31 ? 0 : (uint32_t)(x >> 40) % 40;
}

static void fill(content what, int64_t cell, int bytes, void *out)
{
    for (int64_t i = 0; i < VOXELS; i++) {
        const uint32_t value = value_at(what, cell, i);
        const uint8_t narrow = (uint8_t)value;
        const uint16_t middle = (uint16_t)value;
        memcpy((uint8_t *)out + i * bytes,
               bytes == 1   ? (const void *)&narrow
               : bytes == 2 ? (const void *)&middle
                            : &value,
               (size_t)bytes);
    }
}

static void write_file(const char *path, content what, int bytes, int64_t cells, bool in_room)
{
    static uint32_t counts[VOXELS];
    const flim_dataset_layout layout = {.n = N, .t = T, .h = H, .w = W, .count_bytes = bytes};
    flim_dataset_writer *writer;
    flim_error err = {0};
    unlink(path);
    if (flim_dataset_writer_create(path, &layout, &writer, &err) != FLIM_OK) {
        fail_msg("%s", err.text);
    }
    for (int64_t i = 0; i < cells; i++) {
        const int64_t cell = i * 7 % N; /* 7 and 150 have no common divisor: each once */
        void *to = counts;
        if (in_room) {
            assert_int_equal(flim_dataset_writer_room(writer, &to, &err), FLIM_OK);
        }
        fill(what, cell, bytes, to);
        assert_int_equal(flim_dataset_writer_cell(writer, cell, to, NULL, &err), FLIM_OK);
        memset(counts, 0xee, sizeof counts); /* the caller's again */
    }
    if (cells == N && flim_dataset_writer_finish(writer, &err) != FLIM_OK) {
        fail_msg("%s", err.text);
    }
    flim_dataset_writer_destroy(writer);
}

static void hash_of(const char *path, char out[65])
{
    static uint8_t bytes[1 << 24];
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    const size_t n = fread(bytes, 1, sizeof bytes, f);
    assert_true(n > 0 && n < sizeof bytes);
    fclose(f);
    assert_int_equal(flim_sha256_of(bytes, n, out, NULL), FLIM_OK);
}

static void cells_are_read_back_by_hdf5(void **state)
{
    (void)state;
    static uint32_t got[VOXELS], want[VOXELS];
    const char *path = scratch_path("writer.h5");
    char first[65], again[65];
    for (int bytes = 1; bytes <= 4; bytes *= 2) {
        for (content what = SPARSE; what <= ZEROS; what++) {
            const hid_t type = bytes == 1 ? H5T_NATIVE_UINT8 : bytes == 2 ? H5T_NATIVE_UINT16 : H5T_NATIVE_UINT32;
            const hsize_t size[4] = {1, T, H, W};
            write_file(path, what, bytes, N, false);
            hash_of(path, first);
            write_file(path, what, bytes, N, true);
            hash_of(path, again);
            assert_string_equal(first, again);
            const hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT), set = H5Dopen2(file, "counts", H5P_DEFAULT);
            const hid_t space = H5Dget_space(set), memory = H5Screate_simple(4, size, NULL);
            for (int64_t cell = 0; cell < N; cell++) {
                const hsize_t start[4] = {(hsize_t)cell, 0, 0, 0};
                memset(got, 0xee, sizeof got);
                memset(want, 0xee, sizeof want);
                fill(what, cell, bytes, want);
                assert_true(H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, size, NULL) >= 0);
                if (H5Dread(set, type, memory, space, H5P_DEFAULT, got) < 0 || memcmp(got, want, sizeof got) != 0) {
                    fail_msg("%d bytes, content %d: cell %d differs", bytes, what, (int)cell);
                }
            }
            H5Sclose(memory);
            H5Sclose(space);
            H5Dclose(set);
            H5Fclose(file);
        }
    }
}

/* Of a maker that is faster than the threads that pack, and of one that waits for them before its last cell. */
static void bytes_do_not_depend_on_the_pace(void **state)
{
    (void)state;
    enum { CELLS = 12 };
    static uint32_t counts[VOXELS];
    const flim_dataset_layout layout = {.n = CELLS, .t = T, .h = H, .w = W, .count_bytes = 4};
    const char *path = scratch_path("pace.h5"), *const text[] = {"one.sdt", "two.sdt"};
    const int64_t number[] = {1, 2, 3};
    char hash[2][65];
    for (int waits = 0; waits < 2; waits++) {
        flim_dataset_writer *writer;
        flim_error err = {0};
        unlink(path);
        assert_int_equal(flim_dataset_writer_create(path, &layout, &writer, &err), FLIM_OK);
        for (int64_t cell = 0; cell < CELLS; cell++) {
            if (waits && cell == CELLS - 1) {
                usleep(100000);
            }
            fill(NOISE, cell, 4, counts);
            assert_int_equal(flim_dataset_writer_cell(writer, cell, counts, NULL, &err), FLIM_OK);
        }
        assert_int_equal(flim_dataset_writer_add_texts(writer, "import/path", text, 2, &err), FLIM_OK);
        assert_int_equal(flim_dataset_writer_add_numbers(writer, "t0_shift", number, 3, &err), FLIM_OK);
        assert_int_equal(flim_dataset_writer_finish(writer, &err), FLIM_OK);
        flim_dataset_writer_destroy(writer);
        hash_of(path, hash[waits]);
    }
    assert_string_equal(hash[0], hash[1]);
}

static void a_writer_that_is_dropped_leaves_nothing(void **state)
{
    (void)state;
    const char *path = scratch_path("dropped.h5");
    for (int64_t cells = 0; cells < N; cells += 37) {
        write_file(path, SPARSE, 2, cells, cells % 2);
        assert_int_not_equal(access(path, F_OK), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cells_are_read_back_by_hdf5),
        cmocka_unit_test(bytes_do_not_depend_on_the_pace),
        cmocka_unit_test(a_writer_that_is_dropped_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, remove_scratch);
}
