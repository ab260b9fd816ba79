/* Image stacks and named arrays: TIFF in every layout that libtiff writes, what its pages mean, MATLAB's .mat and HDF5; each read
 * back to the counts it was made of, cut off, and refused by name if it says too little. */
#include "import/made_bytes.h"
#include "import/read_plain.h"

#include <stdlib.h>
#include <unistd.h>

#include <hdf5.h>
#include <zlib.h>
#ifdef FLIM_HAVE_TIFF
#include <tiffio.h>
#endif

#include "core/alloc.h"
#include "import/field_file.h"
#include "import/tiff_axes.h"

enum { Y = 5, X = 7, T = 12, N = 3 };

static char folder[] = "/dev/shm/flim_stacks_XXXXXX";
static char path[256];

static uint32_t count_at(int n, int y, int x, int t)
{
    return (uint32_t)(n * 41 + y * 17 + x * 29 + t * 7) % 199;
}

static void check_image(flim_field_file *file, int image, int n, const char *what)
{
    uint32_t *counts;
    uint64_t photons, sum = 0;
    flim_error err = {0};
    const flim_field_image *b = &file->image[image];
    if (b->y != Y || b->x != X || b->t != T) {
        fail_msg("%s: (%d,%d,%d)", what, (int)b->y, (int)b->x, (int)b->t);
    }
    if (read_plain(file, image, &counts, &photons, &err) != FLIM_OK) {
        fail_msg("%s: %s", what, err.text);
    }
    for (int i = 0; i < Y * X * T; i++) {
        const uint32_t want = count_at(n, i / T / X, i / T % X, i % T);
        if (counts[i] != want) {
            fail_msg("%s, image %d: (y,x,t) = (%d,%d,%d) is %u, expected %u", what, image, i / T / X, i / T % X, i % T,
                     counts[i], want);
        }
        sum += want;
    }
    assert_int_equal(photons, sum);
    free(counts);
}

/* The file at `path` has `images` images, n = 0, 1, ... */
static void check_file(const flim_field_options *options, int images, const char *what)
{
    flim_field_file *file;
    flim_error err = {0};
    if (flim_field_open(path, options, &file, &err) != FLIM_OK) {
        fail_msg("%s: %s", what, err.text);
    }
    assert_int_equal(file->n_images, images);
    for (int n = images - 1; n >= 0; n--) { /* in no order that the file has */
        check_image(file, n, n, what);
    }
    flim_field_close(file);
}

static flim_status try_file(const flim_field_options *options, flim_error *err)
{
    flim_field_file *file;
    *err = (flim_error){0};
    flim_status status = flim_field_open(path, options, &file, err);
    for (int i = 0; status == FLIM_OK && i < file->n_images; i++) {
        uint32_t *counts = NULL;
        uint64_t photons;
        status = read_plain(file, i, &counts, &photons, err);
        free(counts);
        if (status != FLIM_OK || i + 1 == file->n_images) {
            flim_field_close(file);
            break;
        }
    }
    return status;
}

static void expect_error(const flim_field_options *options, flim_status want, const char *words)
{
    flim_error err;
    const flim_status status = try_file(options, &err);
    if (status != want || !strstr(err.text, words) || !strstr(err.text, path)) {
        fail_msg("status %d and '%s', expected %d and '%s'", status, err.text, want, words);
    }
}

/* Cut off anywhere it is read, or refused by name; below `enough` always refused. */
static void cut_everywhere(const flim_field_options *options, size_t enough)
{
    static bytes all;
    FILE *stream = fopen(path, "rb");
    assert_non_null(stream);
    all.n = fread(all.data, 1, sizeof all.data, stream);
    fclose(stream);
    for (size_t n = 0; n < all.n; n += n < 200 || all.n - n < 100 ? 1 : 29) {
        flim_error err;
        write_bytes_to(path, &all, n);
        const flim_status status = try_file(options, &err);
        if (status != FLIM_ERROR_DATA && (n < enough || status != FLIM_OK)) {
            fail_msg("cut to %zu of %zu bytes: status %d, '%s'", n, all.n, status, err.text);
        }
    }
    write_bytes_to(path, &all, all.n);
}

/* ---- TIFF ---- */

static void pages_are_what_the_description_says(void **state)
{
    (void)state;
    static const char ome[] =
        "<OME><Image><Pixels DimensionOrder=\"XYTZC\" SizeX='7' SizeC=\"2\"\nSizeT=\"3\" SizeZ=\"4\"/></Image></OME>";
    static const char modulo[] = "<OME><Pixels SizeC=\"2\" SizeZ=\"1\" SizeT=\"24\" DimensionOrder=\"XYCZT\"/>"
                                 "<ModuloAlongT Type=\"lifetime\" Unit=\"ps\" Start=\"0\" End=\"1100\" Step=\"100\"/></OME>";
    flim_tiff_axes axes;
    flim_error err = {0};
    char name[64];
    assert_int_equal(flim_tiff_axes_of("f", "", 12, FLIM_TIME_AUTO, &axes, &err), FLIM_OK);
    assert_true(axes.bins == 12 && flim_tiff_axes_page(&axes, 0, 11) == 11 && axes.range_ns == 0);
    assert_int_equal(flim_tiff_axes_of("f", ome, 24, FLIM_TIME_AUTO, &axes, &err), FLIM_ERROR_USAGE);
    assert_non_null(strstr(err.text, "C 2 x Z 4 x T 3"));
    assert_int_equal(flim_tiff_axes_of("f", ome, 24, FLIM_TIME_Z, &axes, &err), FLIM_OK);
    assert_int_equal(axes.bins, 4);
    for (int image = 0; image < 6; image++) { /* T varies fastest, then Z, then C */
        for (int z = 0; z < 4; z++) {
            assert_int_equal(flim_tiff_axes_page(&axes, image, z), image % 3 + 3 * (z + 4 * (image / 3)));
        }
    }
    flim_tiff_axes_name(&axes, 4, name, sizeof name);
    assert_string_equal(name, "C 1 T 1");
    assert_int_equal(flim_tiff_axes_of("f", ome, 23, FLIM_TIME_Z, &axes, &err), FLIM_ERROR_DATA);
    assert_non_null(strstr(err.text, "the file has 23"));
    /* Two channels, two times of twelve bins of 100 ps each. */
    assert_int_equal(flim_tiff_axes_of("f", modulo, 48, FLIM_TIME_AUTO, &axes, &err), FLIM_OK);
    assert_true(axes.bins == 12 && axes.range_ns > 1.1999 && axes.range_ns < 1.2001);
    for (int image = 0; image < 4; image++) {
        assert_int_equal(flim_tiff_axes_page(&axes, image, 5), image % 2 + 2 * (5 + 12 * (image / 2)));
    }
    assert_int_equal(flim_tiff_axes_of("f", "ImageJ=1.53\nimages=24\nframes=12\nchannels=2\n", 24, FLIM_TIME_T, &axes, &err),
                     FLIM_OK);
    assert_true(axes.bins == 12 && flim_tiff_axes_page(&axes, 1, 3) == 7);
    assert_int_equal(flim_tiff_axes_of("f", "ImageJ=1.53\nimages=500\n", 1, FLIM_TIME_AUTO, &axes, &err), FLIM_ERROR_DATA);
}

#ifdef FLIM_HAVE_TIFF
typedef struct layout {
    const char *mode; /* libtiff's: byte order, BigTIFF */
    int bits, format, compression, predictor;
    bool tiled, samples, planar; /* samples: the time as values of a pixel */
} layout;

static void put_value(const layout *l, uint8_t *at, uint32_t count)
{
    const float small = (float)count;
    const double real = count;
    const uint8_t one = (uint8_t)count;
    const uint16_t two = l->format == SAMPLEFORMAT_IEEEFP ? half_of(count) : (uint16_t)count;
    memcpy(at,
           l->format == SAMPLEFORMAT_IEEEFP && l->bits > 16 ? (l->bits == 32 ? (const void *)&small : &real)
           : l->bits == 8                                   ? (const void *)&one
           : l->bits == 16                                  ? (const void *)&two
                                                            : &count,
           (size_t)l->bits / 8);
}

/* Values of a row or tile row: samples first..first + n - 1 of pixels x0.. of row y. */
static void fill_row(const layout *l, uint8_t *row, int page, int y, int x0, int columns, int first, int n)
{
    for (int x = 0; x < columns; x++) {
        for (int s = 0; s < n; s++) {
            const bool inside = y < Y && x0 + x < X;
            const uint32_t count = !inside      ? 77
                                   : l->samples ? count_at(page, y, x0 + x, first + s)
                                                : count_at(page / T, y, x0 + x, page % T);
            put_value(l, row + (x * n + s) * l->bits / 8, count);
        }
    }
}

static void write_page(TIFF *tiff, const layout *l, int page)
{
    static uint8_t tile[16 * 16 * T * 8];
    const int samples = l->samples ? T : 1, held = l->planar ? 1 : samples;
    TIFFSetField(tiff, TIFFTAG_IMAGEWIDTH, X);
    TIFFSetField(tiff, TIFFTAG_IMAGELENGTH, Y);
    TIFFSetField(tiff, TIFFTAG_BITSPERSAMPLE, l->bits);
    TIFFSetField(tiff, TIFFTAG_SAMPLESPERPIXEL, samples);
    TIFFSetField(tiff, TIFFTAG_SAMPLEFORMAT, l->format);
    TIFFSetField(tiff, TIFFTAG_COMPRESSION, l->compression);
    TIFFSetField(tiff, TIFFTAG_PHOTOMETRIC, PHOTOMETRIC_MINISBLACK);
    TIFFSetField(tiff, TIFFTAG_PLANARCONFIG, l->planar ? PLANARCONFIG_SEPARATE : PLANARCONFIG_CONTIG);
    if (l->predictor) {
        TIFFSetField(tiff, TIFFTAG_PREDICTOR, l->predictor);
    }
    if (l->tiled) {
        TIFFSetField(tiff, TIFFTAG_TILEWIDTH, 16);
        TIFFSetField(tiff, TIFFTAG_TILELENGTH, 16);
    } else {
        TIFFSetField(tiff, TIFFTAG_ROWSPERSTRIP, 2);
    }
    for (int first = 0; first < samples; first += held) {
        for (int y = 0; y < (l->tiled ? 16 : Y); y++) {
            fill_row(l, tile + (l->tiled ? y * 16 * held * l->bits / 8 : 0), page, y, 0, l->tiled ? 16 : X, first, held);
            if (!l->tiled) {
                assert_int_equal(TIFFWriteScanline(tiff, tile, (uint32_t)y, (uint16_t)first), 1);
            }
        }
        if (l->tiled) {
            assert_true(TIFFWriteTile(tiff, tile, 0, 0, 0, (uint16_t)first) > 0);
        }
    }
    assert_int_equal(TIFFWriteDirectory(tiff), 1);
}

static void tiff_in_every_layout(void **state)
{
    (void)state;
    static const char *const modes[] = {"wl", "wb", "w8l", "w8b"};
    static const int kinds[][2] = {{8, SAMPLEFORMAT_UINT},   {16, SAMPLEFORMAT_UINT},   {32, SAMPLEFORMAT_UINT},
                                   {16, SAMPLEFORMAT_INT},   {16, SAMPLEFORMAT_IEEEFP}, {32, SAMPLEFORMAT_IEEEFP},
                                   {64, SAMPLEFORMAT_IEEEFP}};
    static const int packed[][2] = {{COMPRESSION_NONE, 0},          {COMPRESSION_LZW, 0},
                                    {COMPRESSION_LZW, 2},           {COMPRESSION_PACKBITS, 0},
                                    {COMPRESSION_ADOBE_DEFLATE, 0}, {COMPRESSION_ADOBE_DEFLATE, 2}};
    char what[128];
    for (int i = 0; i < 4 * 7 * 6 * 2 * 3; i++) {
        const int kind = i / 4 % 7, pack = i / 28 % 6, shape = i / 336;
        const layout l = {.mode = modes[i % 4],
                          .bits = kinds[kind][0],
                          .format = kinds[kind][1],
                          .compression = packed[pack][0],
                          .predictor = kinds[kind][1] == SAMPLEFORMAT_IEEEFP ? 0 : packed[pack][1],
                          .tiled = i / 168 % 2,
                          .samples = shape > 0,
                          .planar = shape > 1};
        snprintf(what, sizeof what,
                 "mode %s, %d bits, format %d, compression %d, predictor %d, tiled %d, samples %d, planar %d", l.mode, l.bits,
                 l.format, l.compression, l.predictor, l.tiled, l.samples, l.planar);
        TIFF *tiff = TIFFOpen(path, l.mode);
        assert_non_null(tiff);
        for (int page = 0; page < (l.samples ? 2 : T); page++) {
            write_page(tiff, &l, page);
        }
        TIFFClose(tiff);
        check_file(&(flim_field_options){0}, l.samples ? 2 : 1, what);
        if (i % 131 == 0) {
            cut_everywhere(&(flim_field_options){0}, 8);
        }
    }
}

static void tiff_that_is_no_stack_is_named(void **state)
{
    (void)state;
    const layout l = {.mode = "wl", .bits = 16, .format = SAMPLEFORMAT_UINT, .compression = COMPRESSION_NONE};
    const flim_field_options usual = {0};
    TIFF *tiff = TIFFOpen(path, "wl");
    write_page(tiff, &l, 0);
    TIFFClose(tiff);
    expect_error(&usual, FLIM_ERROR_DATA, "one page with one value per pixel");
    tiff = TIFFOpen(path, "wl");
    write_page(tiff, &l, 0);
    const layout other = {
        .mode = "wl", .bits = 16, .format = SAMPLEFORMAT_UINT, .compression = COMPRESSION_NONE, .samples = true};
    write_page(tiff, &other, 0);
    TIFFClose(tiff);
    expect_error(&usual, FLIM_ERROR_DATA, "page 2 has 5 x 7 pixels of 12 values, page 1 5 x 7 of 1");
    tiff = TIFFOpen(path, "wl");
    const layout real = {.mode = "wl", .bits = 32, .format = SAMPLEFORMAT_IEEEFP, .compression = COMPRESSION_NONE};
    for (int page = 0; page < T; page++) {
        write_page(tiff, &real, page);
    }
    TIFFClose(tiff);
    FILE *stream = fopen(path, "r+b");
    fseek(stream, 8 + 4 * 9, SEEK_SET); /* the tenth pixel of the first page */
    const float half = 0.5F;
    fwrite(&half, 4, 1, stream);
    fclose(stream);
    expect_error(&usual, FLIM_ERROR_DATA, "page 1: the value at y 1, x 2 is no count");
}
#endif

/* ---- MATLAB ---- */

static void put_order(bytes *b, bool big, uint64_t value, int count)
{
    for (int i = 0; i < count; i++) {
        put(b, value >> 8 * (big ? count - 1 - i : i) & 0xff, 1);
    }
}

/* MATLAB's (Y,X,T,N) of `images` images as an array NAME: type 2 = uint8, 9 = double. */
static void put_matrix(bytes *b, bool big, const char *name, int type, int images)
{
    const size_t tag = b->n;
    const int size = type == 9 ? 8 : 1, axes = images > 1 ? 4 : 3;
    put_order(b, big, 14, 4);
    put_order(b, big, 0, 4);
    put_order(b, big, 6, 4); /* flags */
    put_order(b, big, 8, 4);
    put_order(b, big, type == 9 ? 6 : 9, 4);
    put_order(b, big, 0, 4);
    put_order(b, big, 5, 4); /* axes */
    put_order(b, big, (uint64_t)axes * 4, 4);
    const int shape[] = {Y, X, T, images};
    for (int i = 0; i < (axes + 1) / 2 * 2; i++) {
        put_order(b, big, i < axes ? (uint64_t)shape[i] : 0, 4);
    }
    if (strlen(name) <= 4) {
        put_order(b, big, (uint64_t)strlen(name) << 16 | 1, 4);
        put_text(b, name, 4);
    } else {
        put_order(b, big, 1, 4);
        put_order(b, big, strlen(name), 4);
        put_text(b, name, (strlen(name) + 7) / 8 * 8);
    }
    put_order(b, big, (uint64_t)type, 4);
    put_order(b, big, (uint64_t)(Y * X * T * images * size), 4);
    for (int i = 0; i < Y * X * T * images; i++) {
        const double real = count_at(i / (Y * X * T), i % Y, i / Y % X, i / (Y * X) % T);
        uint64_t bits;
        memcpy(&bits, &real, 8);
        put_order(b, big, type == 9 ? bits : (uint64_t)real, size);
    }
    while (b->n % 8) {
        put(b, 0, 1);
    }
    const uint64_t length = b->n - tag - 8;
    for (int i = 0; i < 4; i++) {
        b->data[tag + 4 + (size_t)i] = (uint8_t)(length >> 8 * (big ? 3 - i : i));
    }
}

static void begin_mat(bytes *b, bool big)
{
    *b = (bytes){0};
    put_text(b, "MATLAB 5.0 MAT-file", 124);
    put_order(b, big, 0x0100, 2);
    put_text(b, big ? "MI" : "IM", 2);
}

static void put_compressed(bytes *b, bool big, const bytes *array)
{
    static uint8_t packed[1 << 15];
    uLongf n = sizeof packed;
    assert_int_equal(compress(packed, &n, array->data, array->n), Z_OK);
    put_order(b, big, 15, 4);
    put_order(b, big, n, 4);
    for (size_t i = 0; i < n; i++) {
        put(b, packed[i], 1);
    }
}

static void matlab_files_of_every_kind(void **state)
{
    (void)state;
    bytes *b = malloc(sizeof *b), *array = malloc(sizeof *array);
    char what[64];
    assert_true(b && array);
    for (int i = 0; i < 16; i++) {
        const bool big = i & 1, packed = i & 2, several = i & 4;
        const int type = i & 8 ? 9 : 2, images = several ? N : 1;
        snprintf(what, sizeof what, ".mat, variant %d", i);
        begin_mat(b, big);
        *array = (bytes){0};
        put_matrix(array, big, "counts of a cell", type, images);
        if (packed) {
            put_compressed(b, big, array);
        } else {
            put_matrix(b, big, "c", type, images);
        }
        write_bytes_to(path, b, b->n);
        check_file(&(flim_field_options){.axes = FLIM_ARRAY_YXT}, images, what);
        cut_everywhere(&(flim_field_options){.axes = FLIM_ARRAY_YXT}, b->n - 7);
    }
    begin_mat(b, false); /* two arrays, and one that is none of counts */
    put_matrix(b, false, "a", 2, 1);
    put_matrix(b, false, "volume", 2, 1);
    const size_t third = b->n;
    put_matrix(b, false, "text", 2, 1);
    set(b, third + 16, 4, 1); /* of class char */
    write_bytes_to(path, b, b->n);
    expect_error(&(flim_field_options){.axes = FLIM_ARRAY_YXT}, FLIM_ERROR_USAGE,
                 "2 arrays; choose one with --dataset: a, volume");
    expect_error(&(flim_field_options){.dataset = "text"}, FLIM_ERROR_USAGE, "--dataset text is none");
    check_file(&(flim_field_options){.axes = FLIM_ARRAY_YXT, .dataset = "volume"}, 1, "the second array");
    begin_mat(b, false);
    write_bytes_to(path, b, b->n);
    expect_error(&(flim_field_options){0}, FLIM_ERROR_DATA, "no array of numbers");
    begin_mat(b, false);
    *array = (bytes){0};
    put_matrix(array, false, "c", 2, 1);
    put_compressed(b, false, array);
    b->data[b->n / 2] ^= 0x55;
    write_bytes_to(path, b, b->n);
    expect_error(&(flim_field_options){.axes = FLIM_ARRAY_YXT}, FLIM_ERROR_DATA, "the array at offset 128");
    free(b);
    free(array);
}

/* ---- HDF5 ---- */

/* axes: of the file; the counts of image n at entry n of the first, if there are several. */
static void put_dataset(hid_t file, const char *name, hid_t type, bool matlab, int images)
{
    static double values[N * Y * X * T];
    const hsize_t plain[] = {(hsize_t)images, Y, X, T}, reversed[] = {(hsize_t)images, T, X, Y};
    const int first = images > 1 ? 0 : 1;
    for (int i = 0; i < images * Y * X * T; i++) {
        const int n = i / (Y * X * T), rest = i % (Y * X * T);
        values[i] =
            matlab ? count_at(n, rest % Y, rest / Y % X, rest / Y / X) : count_at(n, rest / T / X, rest / T % X, rest % T);
    }
    const hid_t space = H5Screate_simple(4 - first, (matlab ? reversed : plain) + first, NULL);
    const hid_t set = H5Dcreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(set >= 0 && H5Dwrite(set, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
    if (matlab) {
        const hid_t scalar = H5Screate(H5S_SCALAR);
        H5Aclose(H5Acreate2(set, "MATLAB_class", H5T_C_S1, scalar, H5P_DEFAULT, H5P_DEFAULT));
        H5Sclose(scalar);
    }
    H5Dclose(set);
    H5Sclose(space);
}

static void hdf5_of_other_names_and_matlab_7_3(void **state)
{
    (void)state;
    const hid_t types[] = {H5T_STD_U8BE, H5T_STD_U16LE, H5T_STD_I32BE, H5T_STD_U64LE, H5T_IEEE_F32BE, H5T_IEEE_F64LE};
    const flim_field_options yxt = {.axes = FLIM_ARRAY_YXT};
    char what[64];
    for (int i = 0; i < 24; i++) {
        const bool matlab = i % 2, several = i / 2 % 2;
        snprintf(what, sizeof what, "HDF5, variant %d", i);
        const hid_t creation = H5Pcreate(H5P_FILE_CREATE);
        H5Pset_userblock(creation, matlab ? 512 : 0);
        const hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, creation, H5P_DEFAULT);
        H5Gclose(H5Gcreate2(file, "scan", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
        put_dataset(file, "scan/photons", types[i / 4], matlab, several ? N : 1);
        H5Fclose(file);
        H5Pclose(creation);
        check_file(&yxt, several ? N : 1, what);
        check_file(&(flim_field_options){.axes = FLIM_ARRAY_YXT, .dataset = "/scan/photons"}, several ? N : 1, what);
    }
    const hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    put_dataset(file, "one", H5T_STD_U16LE, false, 1);
    put_dataset(file, "two", H5T_STD_U16LE, false, 1);
    H5Fclose(file);
    expect_error(&yxt, FLIM_ERROR_USAGE, "2 arrays; choose one with --dataset: one, two");
    expect_error(&(flim_field_options){.dataset = "three"}, FLIM_ERROR_USAGE, "--dataset three is none of its 2 arrays");
    check_file(&(flim_field_options){.axes = FLIM_ARRAY_YXT, .dataset = "two"}, 1, "the second dataset");
    H5Fclose(H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT));
    expect_error(&yxt, FLIM_ERROR_DATA, "no array of numbers");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_are_what_the_description_says),
#ifdef FLIM_HAVE_TIFF
        cmocka_unit_test(tiff_in_every_layout),
        cmocka_unit_test(tiff_that_is_no_stack_is_named),
#endif
        cmocka_unit_test(matlab_files_of_every_kind),
        cmocka_unit_test(hdf5_of_other_names_and_matlab_7_3),
    };
    if (access("/dev/shm", W_OK) != 0) {
        strcpy(folder, "/tmp/flim_stacks_XXXXXX");
    }
    if (!mkdtemp(folder)) {
        return 1;
    }
    snprintf(path, sizeof path, "%s/file", folder);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    rmdir(folder);
    return failed;
}
