/* Arrays of HDF5 files: chunks of every shape and filter, some never written, cut by the extent; stored in either byte order; one image
 * of several; damaged chunks. */
#include "data/h5_files.h"

#include "import/field_file.h"
#include "import/read_plain.h"

enum { N = 3, Y = 7, X = 5, T = 19, VALUES = N * Y * X * T };

static int64_t value_at(int64_t i)
{
    return i * 37 % 251;
}

/* IEEE's binary16, which HDF5 has no name for; the caller's to close. */
static hid_t half_type(H5T_order_t order)
{
    const hid_t type = H5Tcopy(H5T_IEEE_F32LE);
    assert_true(H5Tset_fields(type, 15, 10, 5, 0, 10) >= 0 && H5Tset_size(type, 2) >= 0 && H5Tset_ebias(type, 15) >= 0 &&
                H5Tset_order(type, order) >= 0);
    return type;
}

typedef enum packing { PLAIN, DEFLATED, SHUFFLED, CHECKED, N_PACKINGS } packing;

static hid_t properties(packing how, const hsize_t *chunk)
{
    const hid_t list = H5Pcreate(H5P_DATASET_CREATE);
    assert_true(H5Pset_chunk(list, 4, chunk) >= 0);
    if (how >= SHUFFLED) {
        H5Pset_shuffle(list);
    }
    if (how >= DEFLATED) {
        H5Pset_deflate(list, 6);
    }
    if (how == CHECKED) {
        H5Pset_fletcher32(list);
    }
    return list;
}

/* "decays" (N,Y,X,T); `written`: images from the first. */
static void write_array(const char *path, hid_t type, packing how, const hsize_t *chunk, hsize_t written)
{
    static int64_t values[VALUES];
    const hsize_t size[4] = {N, Y, X, T}, some[4] = {written, Y, X, T}, zero[4] = {0};
    for (int64_t i = 0; i < VALUES; i++) {
        values[i] = value_at(i);
    }
    unlink(path);
    const hid_t file = h5_create(path), list = properties(how, chunk), space = H5Screate_simple(4, size, NULL);
    const hid_t set = H5Dcreate2(file, "decays", type, space, H5P_DEFAULT, list, H5P_DEFAULT);
    const hid_t memory = H5Screate_simple(4, some, NULL);
    assert_true(H5Sselect_hyperslab(space, H5S_SELECT_SET, zero, NULL, some, NULL) >= 0);
    assert_true(set >= 0 && H5Dwrite(set, H5T_NATIVE_INT64, memory, space, H5P_DEFAULT, values) >= 0);
    H5Sclose(memory);
    H5Dclose(set);
    H5Sclose(space);
    H5Pclose(list);
    H5Fclose(file);
}

static void check_array(const char *path, hsize_t written, const char *what)
{
    flim_field_file *file;
    flim_error err = {0};
    if (flim_field_open(path, &(flim_field_options){.axes = FLIM_ARRAY_YXT}, &file, &err) != FLIM_OK) {
        fail_msg("%s: %s", what, err.text);
    }
    assert_int_equal(file->n_images, N);
    for (int n = N - 1; n >= 0; n--) {
        uint32_t *counts;
        uint64_t photons;
        if (read_plain(file, n, &counts, &photons, &err) != FLIM_OK) {
            fail_msg("%s, image %d: %s", what, n, err.text);
        }
        for (int i = 0; i < Y * X * T; i++) {
            const int64_t want = (hsize_t)n < written ? value_at((int64_t)n * Y * X * T + i) : 0;
            if (counts[i] != want) {
                fail_msg("%s, image %d: value %d is %u, expected %d", what, n, i, counts[i], (int)want);
            }
        }
        free(counts);
    }
    flim_field_close(file);
}

static void chunks_of_every_shape_and_filter(void **state)
{
    (void)state;
    static const hsize_t chunk[][4] = {{1, Y, X, T}, {2, 3, 5, 19}, {1, 1, 1, T}, {3, 4, 2, 7}, {1, 7, 5, 1}, {2, 7, 4, 16}};
    const hid_t half = half_type(H5T_ORDER_LE), half_big = half_type(H5T_ORDER_BE);
    const hid_t type[] = {half,          half_big,      H5T_STD_U8LE,  H5T_STD_U16LE,  H5T_STD_U16BE,
                          H5T_STD_I32LE, H5T_STD_U32BE, H5T_STD_U64LE, H5T_IEEE_F32LE, H5T_IEEE_F64BE};
    const char *path = scratch_path("array.h5");
    for (size_t c = 0; c < sizeof chunk / sizeof chunk[0]; c++) {
        for (size_t k = 0; k < sizeof type / sizeof type[0]; k++) {
            for (packing how = PLAIN; how < N_PACKINGS; how++) {
                char what[80];
                const hsize_t written = (c + k + how) % 3 == 0 ? 2 : N;
                snprintf(what, sizeof what, "chunk %zu, type %zu, packing %d", c, k, how);
                write_array(path, type[k], how, chunk[c], written);
                check_array(path, written, what);
            }
        }
    }
    H5Tclose(half);
    H5Tclose(half_big);
}

/* A float of two bytes that is not IEEE's: Google's bfloat16. */
static void other_halves_are_no_arrays(void **state)
{
    (void)state;
    const hsize_t chunk[4] = {1, Y, X, T};
    const char *path = scratch_path("bfloat.h5");
    const hid_t type = H5Tcopy(H5T_IEEE_F32LE);
    flim_field_file *file;
    flim_error err = {0};
    assert_true(H5Tset_fields(type, 15, 7, 8, 0, 7) >= 0 && H5Tset_size(type, 2) >= 0);
    write_array(path, type, PLAIN, chunk, N);
    H5Tclose(type);
    assert_int_equal(flim_field_open(path, &(flim_field_options){.axes = FLIM_ARRAY_YXT}, &file, &err), FLIM_ERROR_DATA);
    assert_non_null(strstr(err.text, "no array of numbers"));
}

/* A byte of the file changed, everywhere: it is read, or refused by name; nothing else. */
static void flipped_bytes_are_errors_of_the_file(void **state)
{
    (void)state;
    static const hsize_t chunk[4] = {2, 3, 5, 19};
    static uint8_t bytes[1 << 16];
    const char *path = scratch_path("flipped.h5");
    write_array(path, H5T_STD_U16LE, SHUFFLED, chunk, N);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    const size_t n = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    assert_true(n > 2000 && n < sizeof bytes);
    for (size_t at = n / 2; at < n; at += 61) { /* the chunks, mostly: what stands before them is HDF5's own */
        flim_field_file *file;
        flim_error err = {0};
        bytes[at] ^= 0x40;
        f = fopen(path, "wb");
        assert_true(f && fwrite(bytes, 1, n, f) == n && fclose(f) == 0);
        bytes[at] ^= 0x40;
        flim_status status = flim_field_open(path, &(flim_field_options){.axes = FLIM_ARRAY_YXT}, &file, &err);
        if (status == FLIM_OK) {
            for (int i = 0; i < file->n_images && status == FLIM_OK; i++) {
                flim_counts counts;
                status = flim_field_read(file, i, &counts, &err);
                flim_counts_free(&counts);
            }
            flim_field_close(file);
        }
        if (status != FLIM_OK && (status != FLIM_ERROR_DATA || !strstr(err.text, "flipped.h5"))) {
            fail_msg("byte %zu: status %d, '%s'", at, status, err.text);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_of_every_shape_and_filter),
        cmocka_unit_test(other_halves_are_no_arrays),
        cmocka_unit_test(flipped_bytes_are_errors_of_the_file),
    };
    return cmocka_run_group_tests(tests, NULL, remove_scratch);
}
