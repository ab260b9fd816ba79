/* The HDF5 reader: every type, order and layout reads the same, and every file that should be refused is, by name. */
#include "data/h5_files.h"

#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "core/sha256.h"
#include "data/dataset_internal.h"
#include "data/hdf5/hdf5_cells.h"
#include "data/number.h"
#ifdef HDF5_GUARD
#include "guard/hdf5_guard_tests.h"
#endif

enum { N = 12, T = 9, H = 5, W = 4, PIXELS = H * W, VOXELS = T * PIXELS };

/* Counts of the test data: 97 % zeros, and 0, 1, 255, 256 and larger where the type can hold them. */
static int64_t pattern(int64_t cell, int64_t voxel, int64_t most)
{
    static const int64_t some[] = {1, 255, 256, 2, 40000, 65535, 7};
    uint64_t hash = (uint64_t)(cell * VOXELS + voxel + 1) * 0x9e3779b97f4a7c15u;
    int64_t value = hash >> 40 & 7 ? 0 : some[(hash >> 50) % 7];
    return value > most ? value % (most + 1) : value;
}

static void fill(int64_t *counts, int64_t most)
{
    for (int64_t i = 0; i < (int64_t)N * VOXELS; i++) {
        counts[i] = pattern(i / VOXELS, i % VOXELS, most);
    }
}

static const hsize_t shape4[4] = {N, T, H, W};
static const hsize_t one_cell[4] = {1, T, H, W};
static const h5_layout best = {one_cell, 4, 1, 0};

static void put_counts(hid_t file, hid_t type, h5_layout layout, int64_t most)
{
    static int64_t counts[N * VOXELS];
    static int8_t bytes[N * VOXELS]; /* HDF5 converts no integers to an enum */
    const bool is_enum = H5Tget_class(type) == H5T_ENUM;
    fill(counts, most);
    for (int i = 0; is_enum && i < N * VOXELS; i++) {
        bytes[i] = (int8_t)counts[i];
    }
    h5_put(file, "counts", type, is_enum ? type : H5T_NATIVE_INT64, 4, shape4, layout,
           is_enum ? (const void *)bytes : (const void *)counts);
}

static const char *simple_file(const char *name)
{
    const char *path = scratch_path(name);
    hid_t file = h5_create(path);
    put_counts(file, H5T_STD_U16LE, best, 65535);
    H5Fclose(file);
    return path;
}

static float signal_of(int64_t count)
{
    return (float)log1p((double)count) / 10.0f;
}

static int ulps(float a, float b)
{
    int32_t x, y;
    memcpy(&x, &a, 4);
    memcpy(&y, &b, 4);
    return abs(x - y);
}

/* Every cell, backwards, as counts and as signal, with the default mask. */
static void check_cells(const char *path, int64_t most, const flim_dataset_options *options)
{
    flim_error err = {0};
    flim_dataset *d = open_good(path, options);
    const flim_dataset_info *info = flim_dataset_get_info(d);
    assert_int_equal(info->n, N);
    assert_int_equal(info->t, T);
    assert_int_equal(info->h, H);
    assert_int_equal(info->w, W);
    flim_reader *reader;
    assert_int_equal(flim_reader_create(d, &reader, &err), FLIM_OK);
    float counts[VOXELS], signal[VOXELS];
    uint8_t mask[PIXELS];
    for (int64_t cell = N - 1; cell >= 0; cell--) {
        for (int i = 0; i < VOXELS; i++) {
            counts[i] = signal[i] = NAN;
        }
        memset(mask, 9, sizeof mask);
        if (flim_reader_counts(reader, cell, counts, mask, &err) != FLIM_OK ||
            flim_reader_signal(reader, cell, signal, NULL, &err) != FLIM_OK) {
            fail_msg("%s: %s", path, err.text);
        }
        int64_t sum[PIXELS] = {0};
        for (int64_t i = 0; i < VOXELS; i++) {
            int64_t want = pattern(cell, i, most);
            sum[i % PIXELS] += want;
            if (counts[i] != (float)want || !(ulps(signal[i], signal_of(want)) <= 1)) {
                fail_msg("%s (%s, %s): cell %d voxel %d: counts %g signal %.9g, expected %d and %.9g", path,
                         info->counts_type, info->layout, (int)cell, (int)i, counts[i], signal[i], (int)want,
                         signal_of(want));
            }
        }
        for (int i = 0; i < PIXELS; i++) {
            assert_int_equal(mask[i], sum[i] > 0);
        }
    }
    flim_reader_destroy(reader);
    flim_dataset_close(d);
}

static void signal_is_numpys_for_every_uint16(void **state)
{
    (void)state;
    static float counts[65536], signal[65536], table[FLIM_TABLE_SIZE];
    for (int i = 0; i < 65536; i++) {
        counts[i] = (float)i;
        signal[i] = NAN;
    }
    flim_signal_from_counts(counts, signal, 65536);
    flim_signal_table(table);
    for (int i = 0; i < 65536; i++) {
        /* numpy 1.24: (np.log1p(np.float32(i)) / 10), here by the correctly rounded log1p */
        if (ulps(signal[i], signal_of(i)) > 1 || table[i] != signal[i]) {
            fail_msg("count %d: %.9g and from the table %.9g, expected %.9g", i, signal[i], table[i], signal_of(i));
        }
    }
    /* numpy.float32(numpy.log1p(x)) / 10 of numpy 1.24 */
    static const struct {
        float count, want;
    } known[] = {{0, 0x0p+0f},          {1, 0x1.1be9cp-4f},     {2, 0x1.c1fddap-4f},    {255, 0x1.1be9cp-1f},
                 {256, 0x1.1c1cdap-1f}, {65535, 0x1.1be9cp+0f}, {0.5f, 0x1.4c2834p-5f}, {1e-7f, 0x1.5798ecp-27f}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        float out;
        flim_signal_from_counts(&known[i].count, &out, 1);
        assert_true(ulps(out, known[i].want) <= 1);
    }
    for (float x = 1e-30f; x < 2e9f; x *= 1.01f) {
        float out;
        flim_signal_from_counts(&x, &out, 1);
        float want = (float)log1p((double)x) / 10.0f;
        if (ulps(out, want) > 1) {
            fail_msg("log1p(%.9g)/10: %.9g, expected %.9g", x, out, want);
        }
    }
}

static hid_t small_float(hid_t base, size_t size, size_t sign, size_t exponent, size_t exponent_bits, size_t mantissa_bits,
                         size_t bias, H5T_order_t order)
{
    hid_t type = H5Tcopy(base);
    assert_true(H5Tset_fields(type, sign, exponent, exponent_bits, 0, mantissa_bits) >= 0);
    assert_true(H5Tset_size(type, size) >= 0 && H5Tset_ebias(type, bias) >= 0 && H5Tset_order(type, order) >= 0);
    return type;
}

/* 256 x 255-like values need 16 mantissa bits: small types get small values. */
/* A normal float without its last bits, rounded to even: 13 of them for fp16 (of the range that occurs here), 16 for bf16. */
static uint32_t rounded(float value, int dropped_bits)
{
    uint32_t bits, half = 1u << (dropped_bits - 1);
    memcpy(&bits, &value, sizeof bits);
    uint32_t odd = bits >> dropped_bits & 1u;
    return (bits + half - 1 + odd) >> dropped_bits;
}

/* CASES.md 39: counts 0..1024 as float32, fp16 and bf16.  log1p in fp32 and cast late: 1025, 535 and 155 distinct values. */
static void counts_stay_apart_as_far_as_the_format_goes(void **state)
{
    (void)state;
    static const struct {
        int dropped_bits, distinct;
    } want[] = {{0, 1025}, {13, 535}, {16, 155}};
    float signal[1025];
    for (int i = 0; i < 1025; i++) {
        signal[i] = (float)i;
    }
    flim_signal_from_counts(signal, signal, 1025);
    for (int f = 0; f < 3; f++) {
        int distinct = 1;
        for (int i = 1; i < 1025; i++) {
            assert_true(signal[i] > signal[i - 1]);
            distinct += want[f].dropped_bits == 0 ||
                        rounded(signal[i], want[f].dropped_bits) != rounded(signal[i - 1], want[f].dropped_bits);
        }
        assert_int_equal(distinct, want[f].distinct);
    }
    for (int i = 252; i <= 260; i++) { /* one and the same bf16 number */
        assert_int_equal(rounded(signal[i], 16), rounded(signal[251], 16));
    }
}

static void types_byte_orders_and_layouts_read_the_same(void **state)
{
    (void)state;
    hid_t half = small_float(H5T_IEEE_F32LE, 2, 15, 10, 5, 10, 15, H5T_ORDER_LE);
    hid_t half_big = small_float(H5T_IEEE_F32LE, 2, 15, 10, 5, 10, 15, H5T_ORDER_BE);
    hid_t brain = small_float(H5T_IEEE_F32LE, 2, 15, 7, 8, 7, 127, H5T_ORDER_LE);
    hid_t twelve = H5Tcopy(H5T_STD_U16LE), boolean = H5Tenum_create(H5T_STD_I8LE); /* bool as h5py writes it */
    H5Tset_precision(twelve, 12);
    H5Tenum_insert(boolean, "FALSE", &(int8_t){0});
    H5Tenum_insert(boolean, "TRUE", &(int8_t){1});
    const struct {
        hid_t type;
        int64_t most;
        const char *name;
    } types[] = {
        {boolean, 1, "bool"},
        {H5T_STD_U8LE, 255, "uint8"},
        {H5T_STD_I8LE, 127, "int8"},
        {H5T_STD_U16LE, 65535, "uint16 little-endian"},
        {H5T_STD_U16BE, 65535, "uint16 big-endian"},
        {H5T_STD_I16LE, 32767, "int16 little-endian"},
        {H5T_STD_I16BE, 32767, "int16 big-endian"},
        {H5T_STD_U32LE, 65535, "uint32 little-endian"},
        {H5T_STD_U32BE, 65535, "uint32 big-endian"},
        {H5T_STD_I32LE, 65535, "int32 little-endian"},
        {H5T_STD_I32BE, 65535, "int32 big-endian"},
        {H5T_STD_U64LE, 65535, "uint64 little-endian"},
        {H5T_STD_U64BE, 65535, "uint64 big-endian"},
        {H5T_STD_I64LE, 65535, "int64 little-endian"},
        {H5T_STD_I64BE, 65535, "int64 big-endian"},
        {half, 2048, "float16 little-endian"},
        {half_big, 2048, "float16 big-endian"},
        {H5T_IEEE_F32LE, 65535, "float32 little-endian"},
        {H5T_IEEE_F32BE, 65535, "float32 big-endian"},
        {H5T_IEEE_F64LE, 65535, "float64 little-endian"},
        {H5T_IEEE_F64BE, 65535, "float64 big-endian"},
        {brain, 255, "float16 little-endian"},
        {twelve, 4095, "uint16 little-endian"},
        {H5T_NATIVE_LDOUBLE, 65535, "float128 little-endian"},
    };
    static const hsize_t many[4] = {5, T, H, W}, slices[4] = {1, 4, H, W}, odd[4] = {5, 4, 2, 3};
    const h5_layout layouts[] = {best,           {one_cell, 9, 0, 0}, {one_cell, -1, 1, 0}, {one_cell, -1, 0, 0},
                                 h5_contiguous,  {one_cell, 4, 1, 1}, {many, 4, 1, 0},      {slices, 1, 1, 0},
                                 {odd, 4, 0, 0}, {many, -1, 0, 0}};
    static const char *const layout_names[] = {"chunked (1,9,5,4), shuffle + gzip 4",
                                               "chunked (1,9,5,4), gzip 9",
                                               "chunked (1,9,5,4), shuffle",
                                               "chunked (1,9,5,4), no filter",
                                               "contiguous",
                                               "chunked (1,9,5,4), shuffle + gzip 4 + fletcher32",
                                               "chunked (5,9,5,4), shuffle + gzip 4",
                                               "chunked (1,4,5,4), shuffle + gzip 1",
                                               "chunked (5,4,2,3), gzip 4",
                                               "chunked (5,9,5,4), no filter"};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        for (size_t j = 0; j < sizeof layouts / sizeof layouts[0]; j++) {
            const char *path = scratch_path("types.h5");
            hid_t file = h5_create(path);
            put_counts(file, types[i].type, layouts[j], types[i].most);
            H5Fclose(file);
            check_cells(path, types[i].most, &(flim_dataset_options){.trusted = true});
            check_cells(path, types[i].most,
                        &(flim_dataset_options){.cache = FLIM_CACHE_HOST, .trusted = true}); /* from memory */
            flim_dataset *d = open_good(path, &(flim_dataset_options){.trusted = true});
            assert_string_equal(flim_dataset_get_info(d)->counts_type, types[i].name);
            assert_string_equal(flim_dataset_get_info(d)->layout, layout_names[j]);
            flim_dataset_close(d);
        }
    }
    H5Tclose(half);
    H5Tclose(half_big);
    H5Tclose(brain);
    H5Tclose(twelve);
    H5Tclose(boolean);
}

static void user_blocks_and_new_file_formats_read_the_same(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        const char *path = scratch_path("format.h5");
        hid_t fcpl = H5Pcreate(H5P_FILE_CREATE), fapl = H5Pcreate(H5P_FILE_ACCESS);
        if (i == 0) {
            H5Pset_userblock(fcpl, 1024);
        } else {
            H5Pset_libver_bounds(fapl, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST);
        }
        hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, fcpl, fapl);
        assert_true(file >= 0);
        put_counts(file, H5T_STD_U16BE, i == 2 ? h5_contiguous : best, 65535);
        H5Fclose(file);
        H5Pclose(fcpl);
        H5Pclose(fapl);
        check_cells(path, 65535, NULL);
    }
}

static void chunks_never_written_read_as_the_fill_value(void **state)
{
    (void)state;
    static int64_t counts[VOXELS];
    for (int i = 0; i < 2; i++) {
        const char *path = scratch_path("fill.h5");
        hid_t file = h5_create(path);
        hid_t set = h5_new(file, "counts", H5T_STD_U16LE, 4, shape4, i ? best : h5_contiguous);
        if (i) { /* only cell 3 is written */
            hsize_t start[4] = {3, 0, 0, 0};
            hid_t space = H5Dget_space(set), memory = H5Screate_simple(4, one_cell, NULL);
            H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, one_cell, NULL);
            counts[7] = 77;
            assert_true(H5Dwrite(set, H5T_NATIVE_INT64, memory, space, H5P_DEFAULT, counts) >= 0);
            H5Sclose(space);
            H5Sclose(memory);
        }
        H5Dclose(set);
        H5Fclose(file);
        flim_dataset *d = open_good(path, NULL);
        flim_reader *reader;
        float out[VOXELS];
        flim_error err = {0};
        assert_int_equal(flim_reader_create(d, &reader, NULL), FLIM_OK);
        for (int cell = 0; cell < N; cell++) {
            memset(out, 0xff, sizeof out);
            assert_int_equal(flim_reader_counts(reader, cell, out, NULL, &err), FLIM_OK);
            for (int v = 0; v < VOXELS; v++) {
                assert_true(out[v] == (i && cell == 3 && v == 7 ? 77.0f : 0.0f));
            }
        }
        flim_reader_destroy(reader);
        flim_dataset_close(d);
    }
}

static void bad_values_are_named_by_cell_and_voxel(void **state)
{
    (void)state;
    const struct {
        hid_t type;
        double value;
        const char *text;
    } bad[] = {
        {H5T_STD_I8LE, -1, "found -1"},
        {H5T_STD_I16BE, -3, "found -3"},
        {H5T_STD_I32LE, -70000, "found -70000"},
        {H5T_STD_I64LE, -5, "found -5"},
        {H5T_STD_U32LE, 4294967295.0, "found 4.29496"},
        {H5T_STD_U64LE, 1e15, "found 1e+15"},
        {H5T_STD_I64BE, 1e12, "found 1e+12"},
        {H5T_IEEE_F32LE, NAN, "found NaN"},
        {H5T_IEEE_F32BE, INFINITY, "found inf"},
        {H5T_IEEE_F64LE, -0.25, "found -0.25"},
        {H5T_IEEE_F64LE, 1e300, "found 1e+300"},
        {H5T_IEEE_F32LE, -INFINITY, "found -inf"},
    };
    static double counts[N * VOXELS];
    const int at = 7 * VOXELS + 6 * PIXELS + 3 * W + 2;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        for (int layout = 0; layout < 2; layout++) {
            const char *path = scratch_path("bad.h5");
            hid_t file = h5_create(path);
            counts[at] = bad[i].value;
            h5_put(file, "counts", bad[i].type, H5T_NATIVE_DOUBLE, 4, shape4, layout ? h5_contiguous : best, counts);
            H5Fclose(file);
            flim_dataset *d = open_good(path, NULL);
            flim_reader *reader;
            float out[VOXELS];
            assert_int_equal(flim_reader_create(d, &reader, NULL), FLIM_OK);
            for (int signal = 0; signal < 2; signal++) {
                flim_error err = {0};
                flim_status status =
                    signal ? flim_reader_signal(reader, 7, out, NULL, &err) : flim_reader_counts(reader, 7, out, NULL, &err);
                assert_int_equal(status, FLIM_ERROR_DATA);
                if (!strstr(err.text, "/counts: cell 7, t 6, y 3, x 2: ") || !strstr(err.text, bad[i].text) ||
                    !strstr(err.text, path)) {
                    fail_msg("value %g: %s", bad[i].value, err.text);
                }
                assert_int_equal(flim_reader_signal(reader, 6, out, NULL, &err), FLIM_OK);
            }
            flim_reader_destroy(reader);
            log_text log = {0};
            int64_t count = 0;
            flim_error err = {0};
            flim_cell_summary summary[N];
            assert_int_equal(flim_dataset_scan(d, 3, NULL, &(flim_log){log_line, &log}, summary, NULL, &count, &err),
                             FLIM_ERROR_DATA);
            assert_int_equal(count, 1);
            assert_non_null(strstr(err.text, "1 of 12 cells is bad; the first: "));
            assert_non_null(strstr(err.text, "cell 7, t 6"));
            assert_null(strstr(log.text, "cell 7, t 6")); /* what the error says is said once */
            assert_int_equal(summary[7].peak_bin, -1);
            assert_int_equal(summary[6].zero_voxels, VOXELS);
            flim_dataset_close(d);
        }
    }
}

static void the_cache_keeps_only_what_it_can_give_back(void **state)
{
    (void)state;
    static float counts[N * VOXELS];
    for (int64_t i = 0; i < (int64_t)N * VOXELS; i++) {
        counts[i] = (float)pattern(i / VOXELS, i % VOXELS, 65535);
    }
    counts[0] = 0.5f;
    counts[VOXELS] = 65536.0f;
    counts[2 * VOXELS] = 1e6f;
    const char *path = scratch_path("cache.h5");
    hid_t file = h5_create(path);
    h5_put(file, "counts", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 4, shape4, best, counts);
    H5Fclose(file);
    flim_dataset *d = open_good(path, &(flim_dataset_options){.cache = FLIM_CACHE_HOST}), *plain = open_good(path, NULL);
    assert_int_equal(flim_dataset_get_info(d)->cache_bytes, N * VOXELS * 2);
    assert_int_equal(flim_dataset_get_info(plain)->cache_bytes, 0);
    flim_reader *reader, *other;
    assert_int_equal(flim_reader_create(d, &reader, NULL), FLIM_OK);
    assert_int_equal(flim_reader_create(plain, &other, NULL), FLIM_OK);
    for (int pass = 0; pass < 3; pass++) {
        for (int cell = 0; cell < N; cell++) {
            float out[VOXELS], want[VOXELS];
            uint8_t mask[PIXELS], want_mask[PIXELS];
            for (int signal = 0; signal < 2; signal++) {
                flim_status (*read)(flim_reader *, int64_t, float *, uint8_t *, flim_error *) =
                    signal ? flim_reader_signal : flim_reader_counts;
                memset(out, 0xff, sizeof out);
                assert_int_equal(read(reader, cell, out, mask, NULL), FLIM_OK);
                assert_int_equal(read(other, cell, want, want_mask, NULL), FLIM_OK);
                assert_memory_equal(out, want, sizeof out); /* bit for bit */
                assert_memory_equal(mask, want_mask, sizeof mask);
            }
        }
    }
    flim_reader_destroy(reader);
    flim_reader_destroy(other);
    flim_dataset_close(d);
    flim_dataset_close(plain);
}

static void scan_summarises_every_cell(void **state)
{
    (void)state;
    const char *path = simple_file("scan.h5");
    flim_dataset *d = open_good(path, NULL);
    flim_cell_summary summary[N];
    int64_t bad = -1;
    for (int workers = 1; workers <= 8; workers *= 2) {
        memset(summary, 0xff, sizeof summary);
        assert_int_equal(flim_dataset_scan(d, workers, NULL, NULL, summary, NULL, &bad, NULL), FLIM_OK);
        assert_int_equal(bad, 0);
        for (int cell = 0; cell < N; cell++) {
            int64_t sum = 0, zeros = 0, most = 0, decay[T] = {0}, pixel[PIXELS] = {0}, mask = 0;
            int peak = 0;
            for (int i = 0; i < VOXELS; i++) {
                int64_t value = pattern(cell, i, 65535);
                sum += value;
                zeros += value == 0;
                most = value > most ? value : most;
                decay[i / PIXELS] += value;
                pixel[i % PIXELS] += value;
            }
            for (int t = 0; t < T; t++) {
                peak = decay[t] > decay[peak] ? t : peak;
            }
            for (int i = 0; i < PIXELS; i++) {
                mask += pixel[i] > 0;
            }
            assert_true(summary[cell].photons == (double)sum && summary[cell].max_count == (double)most);
            assert_int_equal(summary[cell].zero_voxels, zeros);
            assert_int_equal(summary[cell].mask_pixels, mask);
            assert_int_equal(summary[cell].peak_bin, peak);
        }
    }
    int stop = 1;
    assert_int_equal(flim_dataset_scan(d, 2, &stop, NULL, summary, NULL, &bad, NULL), FLIM_INTERRUPTED);
    flim_dataset_close(d);
}

/* One cell at a time, shuffled, out of a chunk that holds them all: the chunk must be inflated once, not once per cell. */
static void chunks_of_many_cells_stay_in_the_cache(void **state)
{
    (void)state;
    enum { CELLS = 64, BINS = 64, SIDE = 21, CELL = BINS * SIDE * SIDE };
    static uint16_t counts[CELLS * CELL];
    static float out[CELL];
    const hsize_t shape[4] = {CELLS, BINS, SIDE, SIDE}, one[4] = {1, BINS, SIDE, SIDE}, slices[4] = {16, 8, SIDE, SIDE};
    const hsize_t *const chunks[] = {one, shape, slices};
    double seconds[3];
    for (int64_t i = 0; i < (int64_t)CELLS * CELL; i++) {
        counts[i] = (uint16_t)pattern(i / CELL, i % CELL, 255);
    }
    for (int i = 0; i < 3; i++) {
        const char *path = scratch_path("chunks.h5");
        hid_t file = h5_create(path);
        h5_put(file, "counts", H5T_STD_U16LE, H5T_NATIVE_UINT16, 4, shape, (h5_layout){chunks[i], 4, 1, 0}, counts);
        H5Fclose(file);
        flim_dataset *d = open_good(path, &(flim_dataset_options){.trusted = true});
        flim_reader *reader;
        assert_int_equal(flim_reader_create(d, &reader, NULL), FLIM_OK);
        clock_t start = clock(); /* processor time: others may be at work */
        for (int64_t cell = 0; cell < CELLS; cell++) {
            assert_int_equal(flim_reader_counts(reader, cell * 37 % CELLS, out, NULL, NULL), FLIM_OK);
        }
        seconds[i] = (double)(clock() - start) / CLOCKS_PER_SEC;
        flim_reader_destroy(reader);
        flim_dataset_close(d);
    }
    if (seconds[1] > 5 * seconds[0] + 0.02 || seconds[2] > 5 * seconds[0] + 0.02) {
        fail_msg("64 cells took %.3f s from chunks of one, %.3f s from one chunk, %.3f s from chunks of (16,8,21,21)",
                 seconds[0], seconds[1], seconds[2]);
    }
    print_message("64 cells: %.4f s from chunks of one, %.4f from one chunk, %.4f from slices\n", seconds[0], seconds[1],
                  seconds[2]);
}

/* Chunks that do not fit into the cache: read all the same, said once, with both programs that cure it; the limit holds. */
static void a_cache_too_small_is_said(void **state)
{
    (void)state;
    static const hsize_t three[4] = {3, T, H, W};
    const int64_t chunk = 3 * VOXELS * 2;
    const char *path = scratch_path("large.h5");
    hid_t file = h5_create(path);
    put_counts(file, H5T_STD_U16LE, (h5_layout){three, 4, 1, 0}, 65535);
    H5Fclose(file);
    for (int fits = 0; fits < 2; fits++) {
        log_text log = {0};
        flim_log sink = {log_line, &log};
        const flim_dataset_options options = {.chunk_cache = fits ? 4 * chunk : 2 * chunk, .log = &sink};
        check_cells(path, 65535, &options);
        const char *said = strstr(log.text, "/counts is slow to read in random order: chunks of (3,9,5,4) have 3 cells each");
        assert_int_equal(said == NULL, fits);
        assert_true(fits || (strstr(said, "flim_repack IN OUT") && strstr(said, "h5repack -l counts:CHUNK=1x9x5x4")));
        flim_dataset *d = open_good(path, &options);
        assert_true(flim_h5_of(d->file[0].source)->cells->cache_bytes <= options.chunk_cache);
        flim_dataset_close(d);
    }
}

/* ---- columns */

static void labels_of_every_type(void **state)
{
    (void)state;
    const hid_t types[] = {H5T_STD_I8LE,  H5T_STD_U8LE,   H5T_STD_I64LE,  H5T_STD_I32BE,
                           H5T_STD_U64BE, H5T_IEEE_F32LE, H5T_IEEE_F64BE, H5T_STD_U16LE};
    int64_t label[N];
    for (int i = 0; i < N; i++) {
        label[i] = i * 5 % 3;
    }
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        const char *path = scratch_path("label.h5");
        hid_t file = h5_create(path);
        put_counts(file, H5T_STD_U16LE, best, 65535);
        h5_put_ints(file, "label", types[i], N, label);
        H5Fclose(file);
        flim_dataset *d = open_good(path, &(flim_dataset_options){.need_labels = true});
        const flim_dataset_info *info = flim_dataset_get_info(d);
        assert_int_equal(info->classes, 3);
        assert_string_equal(info->class_name[2], "2");
        for (int j = 0; j < N; j++) {
            assert_int_equal(info->label[j], label[j]);
        }
        flim_dataset_close(d);
    }
}

static void bad_labels(void **state)
{
    (void)state;
    static const char *const names[] = {"quiescent", "activated"};
    const struct {
        double value[4]; /* repeated */
        bool names;
        const char *want[3];
    } bad[] = {
        {{1, 2, 1, 2}, false, {"0..K-1", "1 (6 cells), 2 (6 cells)", "/label"}},
        {{0, 1, -1, 1}, false, {"cell 2 has label -1", "-1 (3 cells)", "/label"}},
        {{0, 1, 2, 1}, true, {"cell 2 has label 2", "0..1", "2 names"}},
        {{0, 1, 0.5, 1}, false, {"cell 2: found 0.5", "whole number", "/label"}},
        {{0, 1, NAN, 1}, false, {"cell 2: found", "nan", "/label"}},
        {{0, 0, 0, 0}, false, {"two classes", "all 12 cells", "/label"}},
        {{0, 3, 1, 0}, false, {"0..K-1", "3 (3 cells)", "/label"}},
    };
    const hsize_t n = N;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        double label[N];
        for (int j = 0; j < N; j++) {
            label[j] = bad[i].value[j % 4];
        }
        const char *path = scratch_path("bad_label.h5");
        hid_t file = h5_create(path);
        put_counts(file, H5T_STD_U16LE, best, 65535);
        h5_put(file, "label", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, 1, &n, h5_contiguous, label);
        if (bad[i].names) {
            h5_put_attribute(file, "class_names", 2, names);
        }
        H5Fclose(file);
        open_bad(path, &(flim_dataset_options){.need_labels = true}, path, bad[i].want[0], bad[i].want[1], bad[i].want[2],
                 NULL);
    }
}

static void groups_of_every_storage(void **state)
{
    (void)state;
    /* In the order of numpy.unique on the decoded strings, which for UTF-8 is that of the bytes. */
    static const char *const donor[N] = {"D2", "D1",  "Zo\xc3\xab", "D10",        "D1 ", "D2",
                                         "d1", "D10", "D1",         "Zo\xc3\xab", "d1",  "D1 "};
    static const char *const sorted[] = {"D1", "D1 ", "D10", "D2", "Zo\xc3\xab", "d1"};
    for (int i = 0; i < 6; i++) {
        const char *path = scratch_path("group.h5");
        hid_t file = h5_create(path);
        put_counts(file, H5T_STD_U16LE, best, 65535);
        bool blanks = i != 4; /* Fortran's padding cannot tell "D1" from "D1 " */
        h5_put_strings(file, "group", N, donor, i < 2 ? 0 : 8,
                       i == 4   ? H5T_STR_SPACEPAD
                       : i == 5 ? H5T_STR_NULLTERM
                                : H5T_STR_NULLPAD,
                       i == 1 || i == 3 ? H5T_CSET_ASCII : H5T_CSET_UTF8);
        H5Fclose(file);
        flim_dataset *d = open_good(path, &(flim_dataset_options){.need_groups = true});
        const flim_dataset_info *info = flim_dataset_get_info(d);
        assert_int_equal(info->groups, blanks ? 6 : 5);
        for (int j = 0; blanks && j < 6; j++) {
            assert_string_equal(info->group_name[j], sorted[j]);
        }
        for (int j = 0; j < N; j++) {
            const char *name = info->group_name[info->group[j]];
            assert_int_equal(strncmp(name, donor[j], blanks ? 20 : 2), 0);
        }
        flim_dataset_close(d);
    }
    /* integers: sorted by value, named by attribute where that fits */
    static const char *const names[] = {"alpha", "beta", "gamma", "delta"};
    for (int i = 0; i < 3; i++) {
        int64_t value[N];
        for (int j = 0; j < N; j++) {
            value[j] = i == 2 ? j * 10 - 20 : 3 - j % 4;
        }
        const char *path = scratch_path("group.h5");
        hid_t file = h5_create(path);
        put_counts(file, H5T_STD_U16LE, best, 65535);
        h5_put_ints(file, "group", H5T_STD_I32BE, N, value);
        if (i > 0) {
            h5_put_attribute(file, "group_names", 4, names);
        }
        H5Fclose(file);
        flim_dataset *d = open_good(path, NULL);
        const flim_dataset_info *info = flim_dataset_get_info(d);
        assert_int_equal(info->groups, i == 2 ? N : 4);
        assert_string_equal(info->group_name[0], i == 0 ? "0" : i == 1 ? "alpha" : "-20");
        assert_string_equal(info->group_name[1], i == 0 ? "1" : i == 1 ? "beta" : "-10");
        assert_string_equal(info->group_name[info->group[0]], i == 0 ? "3" : i == 1 ? "delta" : "-20");
        flim_dataset_close(d);
    }
}

static void long_names_stay_whole(void **state)
{
    (void)state;
    static char text[N][320];
    const char *list[N];
    for (int i = 0; i < N; i++) {
        memset(text[i], 'a' + i, 300);
        list[i] = text[i];
    }
    for (int fixed = 0; fixed < 2; fixed++) {
        const char *path = scratch_path("long.h5");
        hid_t file = h5_create(path);
        put_counts(file, H5T_STD_U16LE, best, 65535);
        h5_put_strings(file, "group", N, list, fixed ? 300 : 0, H5T_STR_NULLPAD, H5T_CSET_UTF8);
        h5_put_strings(file, "name", N, list, fixed ? 310 : 0, H5T_STR_NULLPAD, H5T_CSET_ASCII);
        H5Fclose(file);
        flim_dataset *d = open_good(path, NULL);
        for (int i = 0; i < N; i++) {
            assert_string_equal(flim_dataset_get_info(d)->group_name[i], text[i]);
            assert_string_equal(flim_dataset_get_info(d)->name[i], text[i]);
        }
        flim_dataset_close(d);
    }
}

static void masks_of_every_type(void **state)
{
    (void)state;
    hid_t boolean = H5Tenum_create(H5T_STD_I8LE);
    int8_t no = 0, yes = 1;
    H5Tenum_insert(boolean, "FALSE", &no);
    H5Tenum_insert(boolean, "TRUE", &yes);
    const struct {
        hid_t type, memory;
        int inside;
    } types[] = {{boolean, boolean, 1},
                 {H5T_STD_U8LE, H5T_NATIVE_INT8, 1},
                 {H5T_STD_U8LE, H5T_NATIVE_UINT8, 255},
                 {H5T_IEEE_F32BE, H5T_NATIVE_INT8, 1},
                 {H5T_STD_I32BE, H5T_NATIVE_INT8, 7},
                 {H5T_IEEE_F64LE, H5T_NATIVE_INT8, 1}};
    const hsize_t shape3[3] = {N, H, W}, chunk3[3] = {1, H, W};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        uint8_t mask[N * PIXELS], got[PIXELS];
        float counts[VOXELS];
        for (int j = 0; j < N * PIXELS; j++) {
            mask[j] = (uint8_t)(j * 11 % 3 == 1 ? types[i].inside : 0);
        }
        const char *path = scratch_path("mask.h5");
        hid_t file = h5_create(path);
        put_counts(file, H5T_STD_U16LE, best, 65535);
        h5_put(file, "mask", types[i].type, types[i].memory, 3, shape3, i % 2 ? h5_contiguous : (h5_layout){chunk3, 4, 1, 0},
               mask);
        H5Fclose(file);
        for (int zero = 0; zero < 2; zero++) {
            log_text log = {0};
            flim_log sink = {log_line, &log};
            flim_dataset *d = open_good(path, &(flim_dataset_options){.mask_counts = zero, .log = &sink});
            assert_true(flim_dataset_get_info(d)->has_mask);
            assert_int_equal(strstr(log.text, "neither 0 nor 1") != NULL, types[i].inside != 1);
            flim_reader *reader;
            assert_int_equal(flim_reader_create(d, &reader, NULL), FLIM_OK);
            for (int cell = 0; cell < N; cell++) {
                assert_int_equal(flim_reader_counts(reader, cell, counts, got, NULL), FLIM_OK);
                for (int v = 0; v < VOXELS; v++) {
                    bool inside = mask[cell * PIXELS + v % PIXELS] != 0;
                    assert_int_equal(got[v % PIXELS], inside);
                    assert_true(counts[v] == (inside || !zero ? (float)pattern(cell, v, 65535) : 0.0f));
                }
            }
            flim_reader_destroy(reader);
            flim_dataset_close(d);
        }
    }
    H5Tclose(boolean);
}

/* ---- files to refuse */

static void not_a_data_file(void **state)
{
    (void)state;
    open_bad("/tmp/flim-no-such-file.h5", NULL, "/tmp/flim-no-such-file.h5", "No such file", NULL);
    open_bad("/tmp", NULL, "/tmp", "a directory", NULL);
    const char *path = scratch_path("text.h5");
    FILE *stream = fopen(path, "w");
    fputs("these are not the bytes", stream);
    fclose(stream);
    open_bad(path, NULL, path, "not an HDF5 file", NULL);
    stream = fopen(path, "w");
    fclose(stream);
    open_bad(path, NULL, path, "empty (0 bytes)", NULL);
}

static void truncated_file_names_both_sizes(void **state)
{
    (void)state;
    const char *path = simple_file("short.h5");
    struct stat about;
    assert_int_equal(stat(path, &about), 0);
    assert_int_equal(truncate(path, about.st_size / 2), 0);
    char have[32], want[32];
    snprintf(have, sizeof have, "%lld", (long long)about.st_size / 2);
    snprintf(want, sizeof want, "%lld", (long long)about.st_size);
    open_bad(path, NULL, path, have, want, "copy incomplete", NULL);
}

static void one_damaged_chunk_is_named(void **state)
{
    (void)state;
    for (int fletcher = 0; fletcher < 2; fletcher++) {
        const char *path = scratch_path("damaged.h5");
        hid_t file = h5_create(path);
        put_counts(file, H5T_STD_U16LE, (h5_layout){one_cell, 4, 1, fletcher}, 65535);
        hid_t set = H5Dopen2(file, "counts", H5P_DEFAULT);
        hsize_t offset[4] = {5, 0, 0, 0}, size = 0;
        unsigned mask;
        haddr_t address = 0;
        H5Fflush(file, H5F_SCOPE_GLOBAL);
        assert_true(H5Dget_chunk_info_by_coord(set, offset, &mask, &address, &size) >= 0);
        H5Dclose(set);
        H5Fclose(file);
        int fd = open(path, O_RDWR);
        uint8_t byte;
        assert_int_equal(pread(fd, &byte, 1, (off_t)(address + size / 2)), 1);
        byte ^= 0x10;
        assert_int_equal(pwrite(fd, &byte, 1, (off_t)(address + size / 2)), 1);
        close(fd);
        flim_dataset *d = open_good(path, NULL);
        flim_reader *reader;
        flim_error err = {0};
        float out[VOXELS];
        assert_int_equal(flim_reader_create(d, &reader, NULL), FLIM_OK);
        for (int cell = 0; cell < N; cell++) {
            assert_int_equal(flim_reader_signal(reader, cell, out, NULL, &err), cell == 5 ? FLIM_ERROR_DATA : FLIM_OK);
        }
        assert_non_null(strstr(err.text, path));
        assert_non_null(strstr(err.text, "/counts: cell 5 "));
        flim_reader_destroy(reader);
        flim_dataset_close(d);
    }
}

static void wrong_shapes_and_names(void **state)
{
    (void)state;
    static int64_t zeros[N * VOXELS * 3]; /* the largest of the shapes below */
    const flim_dataset_options need = {.need_labels = true, .need_groups = true};
    const char *path = scratch_path("shape.h5");
    /* misspelt, with what exists */
    hid_t file = h5_create(path);
    h5_put(file, "volumes", H5T_STD_U16LE, H5T_NATIVE_INT64, 4, shape4, h5_contiguous, zeros);
    h5_put_ints(file, "labels", H5T_STD_U8LE, N, zeros);
    H5Fclose(file);
    open_bad(path, NULL, path, "no /counts", "/volumes: uint16 (12,9,5,4)", "/labels: uint8 (12)", "is it /volumes?", NULL);
    file = h5_create(path);
    put_counts(file, H5T_STD_U16LE, best, 65535);
    h5_put_ints(file, "labels", H5T_STD_U8LE, N, zeros);
    H5Fclose(file);
    open_bad(path, &need, path, "no /label", "is it /labels?", NULL);
    log_text log = {0};
    flim_log sink = {log_line, &log};
    flim_dataset_close(open_good(path, &(flim_dataset_options){.log = &sink}));
    assert_non_null(strstr(log.text, "there is /labels but no /label"));
    /* groups as an attribute, of /counts or of the root */
    for (int i = 0; i < 2; i++) {
        static const char *const donors[N] = {"a", "a", "a", "b", "b", "b", "c", "c", "c", "d", "d", "d"};
        file = h5_create(path);
        put_counts(file, H5T_STD_U16LE, best, 65535);
        hid_t counts = H5Dopen2(file, "counts", H5P_DEFAULT);
        h5_put_attribute(i ? file : counts, i ? "donor" : "group", N, donors);
        H5Dclose(counts);
        H5Fclose(file);
        log = (log_text){0};
        flim_dataset_close(open_good(path, &(flim_dataset_options){.log = &sink}));
        if (!strstr(log.text, i ? "an attribute donor of / but no /group" : "an attribute group of /counts but no /group")) {
            fail_msg("%s", log.text);
        }
    }
    /* empty file, group, dangling links, null and empty spaces */
    file = h5_create(path);
    H5Fclose(file);
    open_bad(path, NULL, "no /counts", "has no objects", NULL);
    file = h5_create(path);
    H5Gclose(H5Gcreate2(file, "counts", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    H5Fclose(file);
    open_bad(path, NULL, path, "/counts is a group", NULL);
    file = h5_create(path);
    H5Lcreate_soft("/nowhere", file, "counts", H5P_DEFAULT, H5P_DEFAULT);
    H5Fclose(file);
    open_bad(path, NULL, path, "/counts cannot be opened", "leads nowhere", NULL);
    file = h5_create(path);
    H5Lcreate_external("missing.h5", "/counts", file, "counts", H5P_DEFAULT, H5P_DEFAULT);
    H5Fclose(file);
    open_bad(path, NULL, path, "/counts cannot be opened", NULL);
    file = h5_create(path);
    hid_t null = H5Screate(H5S_NULL);
    H5Dclose(H5Dcreate2(file, "counts", H5T_STD_U16LE, null, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    H5Sclose(null);
    H5Fclose(file);
    open_bad(path, NULL, path, "null dataspace", "(N,T,H,W)", NULL);
    const struct {
        int rank;
        hsize_t size[5];
        const char *want[3];
    } shapes[] = {
        {4, {0, T, H, W}, {"(0,9,5,4)", "N >= 1", "/counts"}},
        {3, {N, T, H * W}, {"(12,9,20)", "four axes", "/counts"}},
        {5, {N, 2, T, H, W}, {"(12,2,9,5,4)", "four axes", "/counts"}},
        {4, {5, 5, 16, N}, {"(5,5,16,12)", "XYTN", "--axes"}},
        {4, {N, 5, 5, 16}, {"(12,5,5,16)", "NYXT", "--axes"}},
        {4, {16, 5, 5, N}, {"(16,5,5,12)", "TYXN", "--axes"}},
        {4, {N, 7, H, W}, {"T = 7", "T >= 8", "/counts"}},
        {4, {N, T, 2, 2}, {"(12,9,2,2)", "H and W >= 3", "/counts"}},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        file = h5_create(path);
        h5_put(file, "counts", H5T_STD_U16LE, H5T_NATIVE_INT64, shapes[i].rank, shapes[i].size, h5_contiguous, zeros);
        H5Fclose(file);
        open_bad(path, NULL, path, shapes[i].want[0], shapes[i].want[1], shapes[i].want[2], NULL);
    }
    file = h5_create(path);
    hid_t text = H5Tcopy(H5T_C_S1);
    H5Dclose(h5_new(file, "counts", text, 4, shape4, h5_contiguous));
    H5Tclose(text);
    H5Fclose(file);
    open_bad(path, NULL, path, "/counts: found string", NULL);
    /* N of the columns, ranks of the masks */
    for (int off = -1; off <= 1; off += 2) {
        static const char *const columns[] = {"label", "group"};
        for (int i = 0; i < 2; i++) {
            file = h5_create(path);
            put_counts(file, H5T_STD_U16LE, best, 65535);
            h5_put_ints(file, columns[i], H5T_STD_U8LE, N + off, zeros);
            H5Fclose(file);
            open_bad(path, NULL, path, columns[i], off < 0 ? "has 11 values" : "has 13 values", "12 cells", NULL);
        }
    }
    const struct {
        int rank;
        hsize_t size[4];
        const char *want;
    } masks[] = {{4, {N, T, H, W}, "(12,9,5,4)"},
                 {4, {N, 1, H, W}, "(12,1,5,4)"},
                 {3, {N, W, H}, "(12,4,5)"},
                 {3, {N + 1, H, W}, "(13,5,4)"},
                 {2, {H, W}, "(5,4)"}};
    for (size_t i = 0; i < sizeof masks / sizeof masks[0]; i++) {
        file = h5_create(path);
        put_counts(file, H5T_STD_U16LE, best, 65535);
        h5_put(file, "mask", H5T_STD_U8LE, H5T_NATIVE_INT64, masks[i].rank, masks[i].size, h5_contiguous, zeros);
        H5Fclose(file);
        open_bad(path, NULL, path, "/mask", masks[i].want, "expected (12,5,4)", NULL);
    }
}

static void unknown_filters_are_named_with_the_remedy(void **state)
{
    (void)state;
    /* As h5py writes lzf: an optional filter that this library lacks, on chunks that were not shrunk, so that one cell reads. */
    const char *path = scratch_path("filter.h5");
    hid_t file = h5_create(path), space = H5Screate_simple(4, shape4, NULL), dcpl = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(dcpl, 4, one_cell);
    H5Pset_filter(dcpl, 32015, H5Z_FLAG_OPTIONAL, 0, NULL);
    hid_t set = H5Dcreate2(file, "counts", H5T_STD_U16LE, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    assert_true(set >= 0);
    H5Dclose(set);
    H5Pclose(dcpl);
    H5Sclose(space);
    H5Fclose(file);
    open_bad(path, NULL, path, "filter 32015", "zstd", "HDF5_PLUGIN_PATH", "h5repack", NULL);
}

static void axes_are_permuted_only_when_told(void **state)
{
    (void)state;
    static const struct {
        const char *axes;
        int at[4]; /* file axis of N, T, Y, X */
    } orders[] = {{"XYTN", {3, 2, 1, 0}}, {"NYXT", {0, 3, 1, 2}}, {"tyxn", {3, 0, 1, 2}},
                  {"NTXY", {0, 1, 3, 2}}, {"NTYX", {0, 1, 2, 3}}, {"nthw", {0, 1, 2, 3}}};
    static int64_t counts[N * VOXELS];
    static uint8_t mask[N * PIXELS];
    for (size_t i = 0; i < sizeof orders / sizeof orders[0]; i++) {
        const int *at = orders[i].at;
        const int64_t natural[4] = {N, T, H, W};
        hsize_t size[4], chunk[4];
        for (int k = 0; k < 4; k++) {
            size[at[k]] = (hsize_t)natural[k];
            chunk[at[k]] = k == 0 ? 1 : (hsize_t)natural[k];
        }
        /* the mask's axes: those of the counts without T */
        hsize_t mask_size[3];
        int mask_at[4];
        for (int k = 0; k < 4; k++) {
            mask_at[k] = at[k] - (at[k] > at[1]);
            if (k != 1) {
                mask_size[mask_at[k]] = (hsize_t)natural[k];
            }
        }
        for (int64_t n = 0; n < N; n++) {
            for (int64_t v = 0; v < VOXELS; v++) {
                const int64_t index[4] = {n, v / PIXELS, v / W % H, v % W};
                int64_t place[4], mask_place[3];
                for (int k = 0; k < 4; k++) {
                    place[at[k]] = index[k];
                    if (k != 1) {
                        mask_place[mask_at[k]] = index[k];
                    }
                }
                counts[((place[0] * (int64_t)size[1] + place[1]) * (int64_t)size[2] + place[2]) * (int64_t)size[3] +
                       place[3]] = pattern(n, v, 65535);
                mask[(mask_place[0] * (int64_t)mask_size[1] + mask_place[1]) * (int64_t)mask_size[2] + mask_place[2]] =
                    (n * PIXELS + v % PIXELS) % 3 == 0;
            }
        }
        for (int layout = 0; layout < 2; layout++) {
            const char *path = scratch_path("axes.h5");
            hid_t file = h5_create(path);
            h5_put(file, "counts", H5T_STD_U16LE, H5T_NATIVE_INT64, 4, size,
                   layout ? h5_contiguous : (h5_layout){chunk, 4, 1, 0}, counts);
            H5Fclose(file);
            check_cells(path, 65535, &(flim_dataset_options){.axes = orders[i].axes});
            check_cells(path, 65535, &(flim_dataset_options){.axes = orders[i].axes, .cache = FLIM_CACHE_AUTO});
            file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
            h5_put(file, "mask", H5T_STD_U8LE, H5T_NATIVE_UINT8, 3, mask_size, h5_contiguous, mask);
            H5Fclose(file);
            flim_dataset *d = open_good(path, &(flim_dataset_options){.axes = orders[i].axes});
            flim_reader *reader;
            float out[VOXELS];
            uint8_t got[PIXELS];
            assert_int_equal(flim_reader_create(d, &reader, NULL), FLIM_OK);
            for (int cell = 0; cell < N; cell++) {
                assert_int_equal(flim_reader_counts(reader, cell, out, got, NULL), FLIM_OK);
                for (int p = 0; p < PIXELS; p++) {
                    assert_int_equal(got[p], (cell * PIXELS + p) % 3 == 0);
                }
            }
            flim_reader_destroy(reader);
            flim_dataset_close(d);
        }
    }
    static const char *const wrong[] = {"NTY", "NTYXX", "NTYY", "ABCD"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        const char *path = simple_file("axes.h5");
        flim_dataset *d;
        flim_error err = {0};
        assert_int_equal(flim_dataset_open(&path, 1, &(flim_dataset_options){.axes = wrong[i]}, &d, &err), FLIM_ERROR_USAGE);
        assert_non_null(strstr(err.text, wrong[i]));
    }
    /* as long as it looks right, or is said to be */
    static const hsize_t wide[4] = {4, 9, 9, 20};
    static int64_t none[4 * 9 * 9 * 20];
    for (int i = 0; i < 2; i++) {
        const char *path = scratch_path("axes.h5");
        hid_t file = h5_create(path);
        h5_put(file, "counts", H5T_STD_U16LE, H5T_NATIVE_INT64, 4, wide, h5_contiguous, none);
        H5Fclose(file);
        if (i == 0) {
            open_bad(path, &(flim_dataset_options){.axes = "NTYX"}, "NTHW", NULL);
        } else {
            flim_dataset_close(open_good(path, &(flim_dataset_options){.axes = "NTHW"}));
        }
    }
    /* N that looks like an image side */
    static int64_t zeros[9 * VOXELS];
    const hsize_t same[4] = {9, T, 3, 3};
    const char *path = scratch_path("axes.h5");
    hid_t file = h5_create(path);
    h5_put(file, "counts", H5T_STD_U16LE, H5T_NATIVE_INT64, 4, same, h5_contiguous, zeros);
    H5Fclose(file);
    log_text log = {0};
    flim_log sink = {log_line, &log};
    flim_dataset *d = open_good(path, &(flim_dataset_options){.log = &sink});
    assert_int_equal(flim_dataset_get_info(d)->n, 9);
    flim_dataset_close(d);
    assert_non_null(strstr(log.text, "first axis is used as the cells"));
}

/* ---- several files, sha256, real data, and the file stays as it was */

static void several_files_are_one_list(void **state)
{
    (void)state;
    char a[128], b[128], c[128];
    static int64_t counts[5 * VOXELS], label[N], other[5] = {0, 1, 1, 0, 1};
    static const char *const names[] = {"quiescent", "activated"}, *const reversed[] = {"activated", "quiescent"};
    const char *donor_a[N], *const donor_b[5] = {"D2", "D9", "D2", "D9", "D2"};
    for (int i = 0; i < N; i++) {
        label[i] = i % 2;
        donor_a[i] = i % 3 ? "D1" : "D2";
    }
    snprintf(a, sizeof a, "%s", scratch_path("a.h5"));
    snprintf(b, sizeof b, "%s", scratch_path("b.h5"));
    snprintf(c, sizeof c, "%s", scratch_path("c.h5"));
    hid_t file = h5_create(a);
    put_counts(file, H5T_STD_U16LE, best, 65535);
    h5_put_ints(file, "label", H5T_STD_U8LE, N, label);
    h5_put_strings(file, "group", N, donor_a, 0, H5T_STR_NULLTERM, H5T_CSET_UTF8);
    h5_put_attribute(file, "class_names", 2, names);
    H5Fclose(file);
    const hsize_t five[4] = {5, T, H, W};
    for (int64_t i = 0; i < 5 * VOXELS; i++) {
        counts[i] = pattern(100 + i / VOXELS, i % VOXELS, 255);
    }
    counts[3 * VOXELS + 1] = -4;
    for (int wrong = 0; wrong < 2; wrong++) {
        file = h5_create(wrong ? c : b);
        h5_put(file, "counts", H5T_STD_I32BE, H5T_NATIVE_INT64, 4, five, h5_contiguous, counts);
        h5_put_ints(file, "label", H5T_STD_I64LE, 5, other);
        h5_put_strings(file, "group", 5, donor_b, 4, H5T_STR_NULLPAD, H5T_CSET_ASCII);
        h5_put_attribute(file, "class_names", 2, wrong ? reversed : names);
        H5Fclose(file);
    }
    const char *paths[] = {a, b};
    flim_dataset *d;
    flim_error err = {0};
    assert_int_equal(flim_dataset_open(paths, 2, NULL, &d, &err), FLIM_OK);
    const flim_dataset_info *info = flim_dataset_get_info(d);
    assert_int_equal(info->n, 17);
    assert_int_equal(info->n_files, 2);
    assert_int_equal(info->groups, 3);
    assert_string_equal(info->group_name[info->group[12]], "D2");
    assert_string_equal(info->group_name[info->group[13]], "D9");
    assert_int_equal(info->label[13], 1);
    assert_string_equal(info->class_name[1], "activated");
    flim_reader *reader;
    float out[VOXELS];
    assert_int_equal(flim_reader_create(d, &reader, NULL), FLIM_OK);
    for (int cell = 0; cell < 17; cell++) {
        if (cell == 15) {
            continue;
        }
        assert_int_equal(flim_reader_counts(reader, cell, out, NULL, &err), FLIM_OK);
        for (int v = 0; v < VOXELS; v++) {
            assert_true(out[v] == (float)(cell < N ? pattern(cell, v, 65535) : pattern(88 + cell, v, 255)));
        }
    }
    assert_int_equal(flim_reader_counts(reader, 15, out, NULL, &err), FLIM_ERROR_DATA);
    assert_non_null(strstr(err.text, b));
    assert_non_null(strstr(err.text, "cell 3 (cell 15 of all files), t 0, y 0, x 1: found -4"));
    assert_int_equal(flim_reader_counts(reader, 17, out, NULL, &err), FLIM_ERROR_USAGE);
    flim_reader_destroy(reader);
    flim_dataset_close(d);
    paths[1] = c;
    assert_int_equal(flim_dataset_open(paths, 2, NULL, &d, &err), FLIM_ERROR_DATA);
    assert_non_null(strstr(err.text, "class_names"));
    paths[1] = a;
    assert_int_equal(flim_dataset_open(paths, 2, NULL, &d, &err), FLIM_ERROR_USAGE);
    simple_file("b.h5");
    paths[1] = b;
    assert_int_equal(flim_dataset_open(paths, 2, NULL, &d, &err), FLIM_ERROR_DATA);
    assert_non_null(strstr(err.text, "no /label"));
}

static void sha256_is_the_specifications(void **state)
{
    (void)state;
    int64_t label[N];
    const char *donor[N], *name[N];
    char text[N][16];
    for (int i = 0; i < N; i++) {
        label[i] = i % 3;
        snprintf(text[i], sizeof text[i], "cell %d", i);
        name[i] = text[i];
        donor[i] = i % 2 ? "D1" : "Zo\xc3\xab";
    }
    const char *path = scratch_path("sha.h5");
    hid_t file = h5_create(path);
    put_counts(file, H5T_STD_U16LE, best, 65535);
    h5_put_ints(file, "label", H5T_STD_U8LE, N, label);
    h5_put_strings(file, "group", N, donor, 0, H5T_STR_NULLTERM, H5T_CSET_UTF8);
    h5_put_strings(file, "name", N, name, 12, H5T_STR_NULLPAD, H5T_CSET_ASCII);
    H5Fclose(file);
    flim_dataset *d = open_good(path, NULL);
    char sha[65];
    flim_dataset_sha256(d, sha);
    /* python3: hashlib.sha256(numpy.array([12, 9, 5, 4] + [i % 3 for i in range(12)], '<i8').tobytes()
     *     + b''.join(('D1' if i % 2 else 'Zoë').encode() + b'\0' for i in range(12))
     *     + b''.join(('cell %d' % i).encode() + b'\0' for i in range(12))).hexdigest() */
    assert_string_equal(sha, "17cce4bbeccd47f707f8516c6ae1062c373ea65fd0b90d582d24c7c1a59fe4a0");
    flim_dataset_close(d);
}

static void file_sha(const char *path, char out[65], struct stat *about)
{
    FILE *stream = fopen(path, "rb");
    assert_non_null(stream);
    static char bytes[1 << 20];
    size_t n = fread(bytes, 1, sizeof bytes, stream);
    fclose(stream);
    assert_int_equal(flim_sha256_of(bytes, n, out, NULL), FLIM_OK);
    assert_int_equal(stat(path, about), 0);
}

static void locks_and_read_only_media(void **state)
{
    (void)state;
    char path[256], before[65], after[65];
    struct stat old, new;
    snprintf(path, sizeof path, "%s", simple_file("locked.h5"));
    chmod(path, 0444);
    file_sha(path, before, &old);
    check_cells(path, 65535, NULL);
    /* open for reading twice at once */
    flim_dataset *first = open_good(path, NULL);
    check_cells(path, 65535, NULL);
    flim_dataset_close(first);
    file_sha(path, after, &new);
    assert_string_equal(before, after);
    assert_memory_equal(&old.st_mtim, &new.st_mtim, sizeof old.st_mtim);
    assert_memory_equal(&old.st_ctim, &new.st_ctim, sizeof old.st_ctim);
    chmod(path, 0644);
    /* another process has it open for writing; then that process is killed with the file open in the newest format */
    for (int swmr = 0; swmr < 2; swmr++) {
        int pipes[2];
        assert_int_equal(pipe(pipes), 0);
        pid_t child = fork();
        if (child == 0) {
            hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);
            H5Pset_libver_bounds(fapl, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST);
            hid_t file = swmr ? H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, fapl) : H5Fopen(path, H5F_ACC_RDWR, fapl);
            if (swmr) {
                put_counts(file, H5T_STD_U16LE, best, 65535);
                H5Fflush(file, H5F_SCOPE_GLOBAL);
            }
            ssize_t wrote = write(pipes[1], file >= 0 ? "y" : "n", 1);
            pause();
            _exit(wrote == 1);
        }
        char ready = 0;
        assert_int_equal(read(pipes[0], &ready, 1), 1);
        assert_int_equal(ready, 'y');
        open_bad(path, NULL, path, "open for writing", "HDF5_USE_FILE_LOCKING", NULL);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        close(pipes[0]);
        close(pipes[1]);
        if (swmr) {
            file_sha(path, before, &old);
            open_bad(path, NULL, path, "open for writing", "h5clear", NULL);
            file_sha(path, after, &new);
            assert_string_equal(before, after);
        } else {
            check_cells(path, 65535, NULL);
        }
    }
}

static void real_cells_add_up(void **state)
{
    (void)state;
    const char *path = FLIM_SHARED_DATA "/real_flim_cells.h5";
    if (access(path, R_OK) != 0) {
        print_message("skipped: %s is not there\n", path);
        skip();
    }
    flim_dataset *d = open_good(path, &(flim_dataset_options){.need_labels = true, .need_groups = true});
    const flim_dataset_info *info = flim_dataset_get_info(d);
    assert_int_equal(info->n, 137);
    assert_int_equal(info->classes, 3);
    assert_int_equal(info->groups, 12);
    assert_string_equal(info->class_name[2], "yeast");
    assert_string_equal(info->group_name[0], "tcells002_q0");
    static flim_cell_summary summary[137];
    int64_t bad, zeros = 0, pixels = 0, count[3] = {0};
    double photons = 0, most = 0;
    assert_int_equal(flim_dataset_scan(d, 2, NULL, NULL, summary, NULL, &bad, NULL), FLIM_OK);
    for (int i = 0; i < 137; i++) {
        photons += summary[i].photons;
        zeros += summary[i].zero_voxels;
        pixels += summary[i].mask_pixels;
        most = summary[i].max_count > most ? summary[i].max_count : most;
        count[info->label[i]]++;
    }
    assert_int_equal(count[0], 31);
    assert_int_equal(count[1], 42);
    assert_int_equal(count[2], 64);
    /* h5py: counts.sum(), (counts == 0).sum(), (mask > 0).sum(), counts.max() */
    assert_true(photons == 6030369.0);
    assert_int_equal(zeros, 12674322);
    assert_int_equal(pixels, 44666);
    assert_true(most == 163.0);
    flim_dataset_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#ifdef HDF5_GUARD
        cmocka_unit_test(the_guard_sees_threads_that_meet),
#endif
        cmocka_unit_test(signal_is_numpys_for_every_uint16),
        cmocka_unit_test(counts_stay_apart_as_far_as_the_format_goes),
        cmocka_unit_test(types_byte_orders_and_layouts_read_the_same),
        cmocka_unit_test(user_blocks_and_new_file_formats_read_the_same),
        cmocka_unit_test(chunks_never_written_read_as_the_fill_value),
        cmocka_unit_test(bad_values_are_named_by_cell_and_voxel),
        cmocka_unit_test(the_cache_keeps_only_what_it_can_give_back),
        cmocka_unit_test(scan_summarises_every_cell),
        cmocka_unit_test(chunks_of_many_cells_stay_in_the_cache),
        cmocka_unit_test(a_cache_too_small_is_said),
        cmocka_unit_test(labels_of_every_type),
        cmocka_unit_test(bad_labels),
        cmocka_unit_test(groups_of_every_storage),
        cmocka_unit_test(long_names_stay_whole),
        cmocka_unit_test(masks_of_every_type),
        cmocka_unit_test(not_a_data_file),
        cmocka_unit_test(truncated_file_names_both_sizes),
        cmocka_unit_test(one_damaged_chunk_is_named),
        cmocka_unit_test(wrong_shapes_and_names),
        cmocka_unit_test(unknown_filters_are_named_with_the_remedy),
        cmocka_unit_test(axes_are_permuted_only_when_told),
        cmocka_unit_test(several_files_are_one_list),
        cmocka_unit_test(sha256_is_the_specifications),
        cmocka_unit_test(locks_and_read_only_media),
        cmocka_unit_test(real_cells_add_up),
#ifdef HDF5_GUARD
        cmocka_unit_test(no_two_threads_were_inside_libhdf5),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, remove_scratch);
}
