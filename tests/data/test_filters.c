/* Filter pipelines of every kind, and chunks that leave some of their filters out (filter masks): all read as the counts that
 * went in, whether the chunks are found at open or, for many cells, one by one. */
#include "data/h5_files.h"

#include <zlib.h>

enum { T = 8, H = 3, W = 5, VOXELS = T * H * W, FEW = 12, MANY = 2100 };

static uint16_t counts[MANY * VOXELS];

static void fill(void)
{
    for (int64_t i = 0; i < MANY * VOXELS; i++) {
        uint64_t hash = (uint64_t)(i + 1) * 0x9e3779b97f4a7c15u;
        counts[i] = hash >> 61 ? 0 : (uint16_t)(hash >> 40 & 1023);
    }
}

static void check_cells(const char *path, int64_t n, const char *layout)
{
    flim_dataset *d = open_good(path, NULL);
    flim_reader *reader;
    flim_error err = {0};
    float out[VOXELS];
    if (layout) {
        assert_string_equal(flim_dataset_get_info(d)->layout, layout);
    }
    assert_int_equal(flim_dataset_get_info(d)->n, n);
    assert_int_equal(flim_reader_create(d, &reader, &err), FLIM_OK);
    for (int64_t i = 0; i < n; i++) {
        int64_t cell = i * 7 % n;
        if (flim_reader_counts(reader, cell, out, NULL, &err) != FLIM_OK) {
            fail_msg("%s", err.text);
        }
        for (int64_t v = 0; v < VOXELS; v++) {
            if (out[v] != (float)counts[cell * VOXELS + v]) {
                fail_msg("%s (%s): cell %d, voxel %d: %g", path, flim_dataset_get_info(d)->layout, (int)cell, (int)v,
                         (double)out[v]);
            }
        }
    }
    flim_reader_destroy(reader);
    flim_dataset_close(d);
}

static herr_t add_filter(hid_t dcpl, char filter)
{
    switch (filter) {
    case 's': return H5Pset_shuffle(dcpl);
    case 'g': return H5Pset_deflate(dcpl, 6);
    case 'f': return H5Pset_fletcher32(dcpl);
    case 'z': return H5Pset_szip(dcpl, H5_SZIP_NN_OPTION_MASK, 8);
    case 'n': return H5Pset_nbit(dcpl);
    default: return H5Pset_scaleoffset(dcpl, H5Z_SO_INT, H5Z_SO_INT_MINBITS_DEFAULT);
    }
}

static void every_pipeline_reads_the_same(void **state)
{
    (void)state;
    static const char *const pipelines[] = {"g",   "s",  "f",   "z",  "n",  "o",  "sg",  "gs",   "gg", "sgf",
                                            "fsg", "fg", "sfg", "sz", "ng", "og", "szf", "ssgg", "ss", "fgsg"};
    static const hsize_t shape[4] = {FEW, T, H, W}, one[4] = {1, T, H, W}, odd[4] = {5, 3, 2, 4};
    unsigned szip = 0;
    if (H5Zfilter_avail(H5Z_FILTER_SZIP) <= 0 || H5Zget_filter_info(H5Z_FILTER_SZIP, &szip) < 0 ||
        !(szip & H5Z_FILTER_CONFIG_ENCODE_ENABLED)) {
        print_message("left out: pipelines with szip, which this libhdf5 cannot write\n");
        szip = 0;
    }
    hid_t twelve = H5Tcopy(H5T_STD_U16LE); /* what nbit is for: 10 bits of 16 */
    H5Tset_precision(twelve, 10);
    for (size_t i = 0; i < sizeof pipelines / sizeof pipelines[0]; i++) {
        for (int chunking = 0; chunking < 2 && (szip || !strchr(pipelines[i], 'z')); chunking++) {
            const char *path = scratch_path("pipeline.h5");
            hid_t file = h5_create(path), space = H5Screate_simple(4, shape, NULL), dcpl = H5Pcreate(H5P_DATASET_CREATE);
            H5Pset_chunk(dcpl, 4, chunking ? odd : one);
            for (const char *f = pipelines[i]; *f; f++) {
                assert_true(add_filter(dcpl, *f) >= 0);
            }
            hid_t set = H5Dcreate2(file, "counts", strchr(pipelines[i], 'n') ? twelve : H5T_STD_U16LE, space, H5P_DEFAULT,
                                   dcpl, H5P_DEFAULT);
            assert_true(set >= 0 && H5Dwrite(set, H5T_NATIVE_UINT16, H5S_ALL, H5S_ALL, H5P_DEFAULT, counts) >= 0);
            H5Dclose(set);
            H5Pclose(dcpl);
            H5Sclose(space);
            H5Fclose(file);
            check_cells(path, FEW, NULL);
        }
    }
    H5Tclose(twelve);
}

/* One cell's chunk of a shuffle + gzip dataset with the filters of `mask` left out: bit 0 shuffle, bit 1 gzip. */
static size_t make_chunk(int64_t cell, unsigned mask, uint8_t *out, size_t room)
{
    uint8_t bytes[VOXELS * 2];
    for (int v = 0; v < VOXELS; v++) {
        uint16_t count = counts[cell * VOXELS + v];
        bytes[mask & 1 ? 2 * v : v] = (uint8_t)count;
        bytes[mask & 1 ? 2 * v + 1 : VOXELS + v] = (uint8_t)(count >> 8);
    }
    if (mask & 2) {
        memcpy(out, bytes, sizeof bytes);
        return sizeof bytes;
    }
    uLongf length = (uLongf)room;
    assert_int_equal(compress2(out, &length, bytes, sizeof bytes, 4), Z_OK);
    return (size_t)length;
}

static void chunks_may_leave_filters_out(void **state)
{
    (void)state;
    static const hsize_t one[4] = {1, T, H, W};
    for (int many = 0; many < 2; many++) {
        const hsize_t n = many ? MANY : FEW, shape[4] = {n, T, H, W};
        const char *path = scratch_path("masks.h5");
        hid_t file = h5_create(path), set = h5_new(file, "counts", H5T_STD_U16LE, 4, shape, (h5_layout){one, 4, 1, 0});
        for (hsize_t cell = 0; cell < n; cell++) {
            uint8_t chunk[VOXELS * 4];
            const hsize_t offset[4] = {cell, 0, 0, 0};
            size_t length = make_chunk((int64_t)cell, cell % 4, chunk, sizeof chunk);
            assert_true(H5Dwrite_chunk(set, H5P_DEFAULT, (uint32_t)(cell % 4), offset, length, chunk) >= 0);
        }
        H5Dclose(set);
        H5Fclose(file);
        check_cells(path, (int64_t)n, "chunked (1,8,3,5), shuffle + gzip 4");
    }
}

/* `bytes` packed with zlib `times` times over -> out; returns the length. */
static size_t pack(const uint8_t *bytes, size_t length, int times, uint8_t *out, size_t room)
{
    uint8_t *from = malloc(room);
    assert_non_null(from);
    for (int i = 0; i < times; i++) {
        uLongf packed = (uLongf)room;
        assert_int_equal(compress2(out, &packed, i ? from : bytes, (uLong)length, 9), Z_OK);
        length = packed;
        memcpy(from, out, length);
    }
    if (times == 0) {
        memcpy(out, bytes, length);
    }
    free(from);
    return length;
}

/* A chunk whose filters give another size than the chunk has: libhdf5 would hand out what lies on the heap, or fill memory. */
static void chunks_of_another_size_are_refused(void **state)
{
    (void)state;
    enum { BOMB = 64 << 20, ROOM = 1 << 20 };
    static const struct {
        const char *pipeline;
        int deflates; /* that are really there */
        unsigned mask;
        int64_t more; /* bytes, over the chunk's */
    } cases[] = {{"sg", 0, 3, -8},    {"sg", 0, 3, 100},  {"sg", 0, 2, -8},     {"sg", 1, 1, -2},    {"sg", 1, 0, -2},
                 {"sg", 1, 0, 2},     {"g", 1, 0, -1},    {"gg", 0, 3, -7},     {"gg", 1, 1, -7},    {"gg", 1, 2, 7},
                 {"ggg", 3, 0, BOMB}, {"gg", 2, 0, BOMB}, {"sggg", 3, 0, BOMB}, {"gsg", 2, 0, BOMB}, {"g", 1, 0, ROOM},
                 {"f", 0, 1, -4},     {"f", 0, 0, 0},     {"n", 0, 1, -10},     {"sgf", 0, 7, -1},   {"o", 0, 1, -1}};
    static uint8_t out[ROOM];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (int what = 0; what < 3; what++) { /* one cell per chunk, three, and a label */
            const hsize_t cells = 6, per = what == 1 ? 3 : what == 2 ? 6 : 1, shape[4] = {cells, T, H, W};
            const hsize_t chunk[4] = {per, T, H, W}, offset[4] = {what == 2 ? 0 : 3, 0, 0, 0};
            const size_t right = what == 2 ? 6 * sizeof(uint16_t) : (size_t)per * VOXELS * 2;
            const char *path = scratch_path("size.h5");
            hid_t file = h5_create(path), space = H5Screate_simple(what == 2 ? 1 : 4, what == 2 ? &cells : shape, NULL),
                  dcpl = H5Pcreate(H5P_DATASET_CREATE);
            H5Pset_chunk(dcpl, what == 2 ? 1 : 4, chunk);
            for (const char *f = cases[i].pipeline; *f; f++) {
                assert_true(add_filter(dcpl, *f) >= 0);
            }
            if (what == 2) {
                h5_put(file, "counts", H5T_STD_U16LE, H5T_NATIVE_UINT16, 4, shape, h5_contiguous, counts);
            }
            hid_t set =
                H5Dcreate2(file, what == 2 ? "label" : "counts", H5T_STD_U16LE, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
            assert_true(set >= 0);
            if (what < 2) {
                assert_true(H5Dwrite(set, H5T_NATIVE_UINT16, H5S_ALL, H5S_ALL, H5P_DEFAULT, counts) >= 0);
            }
            const size_t length = (size_t)((int64_t)right + cases[i].more);
            uint8_t *bytes = calloc(length, 1);
            assert_non_null(bytes);
            const size_t stored = pack(bytes, length, cases[i].deflates, out, sizeof out);
            free(bytes);
            assert_true(H5Dwrite_chunk(set, H5P_DEFAULT, cases[i].mask, offset, stored, out) >= 0);
            H5Dclose(set);
            H5Pclose(dcpl);
            H5Sclose(space);
            H5Fclose(file);
            if (what == 2) {
                open_bad(path, NULL, path, "/label", NULL);
                continue;
            }
            flim_error err = {0};
            float cell[VOXELS];
            flim_reader *reader = NULL;
            flim_dataset *d = open_good(path, NULL);
            assert_int_equal(flim_reader_create(d, &reader, &err), FLIM_OK);
            for (int64_t c = 0; c < 6; c++) {
                const bool damaged = c >= 3 && c < 3 + (int64_t)per;
                const flim_status status = flim_reader_counts(reader, c, cell, NULL, &err);
                if (status != (damaged ? FLIM_ERROR_DATA : FLIM_OK)) {
                    fail_msg("pipeline %s, mask %u, %+lld bytes, %d cells a chunk: cell %lld: %s: %s", cases[i].pipeline,
                             cases[i].mask, (long long)cases[i].more, (int)per, (long long)c, flim_status_name(status),
                             err.text);
                }
            }
            flim_reader_destroy(reader);
            flim_dataset_close(d);
        }
    }
}

static int begin(void **state)
{
    (void)state;
    fill();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pipeline_reads_the_same),
        cmocka_unit_test(chunks_may_leave_filters_out),
        cmocka_unit_test(chunks_of_another_size_are_refused),
    };
    return cmocka_run_group_tests(tests, begin, remove_scratch);
}
