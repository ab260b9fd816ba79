/* Writes small data files of every kind into a folder, for scripts and for the corpus of fuzz_dataset:
 *
 *   heap.h5       strings of variable length (global heap), one cell per chunk, gzip
 *   filters.h5    chunks of several cells, shuffle + gzip + checksum; a chunk that leaves its filters out; a chunked label
 *   packed.h5     scale_factor, add_offset, _FillValue, missing_value, valid_range
 *   view.h5       counts, label and mask as views of datasets of the same file
 *   references.h5 MATLAB's cellstr and char array, a bitfield label
 *   factor.h5     codes + categories, values + levels, an enumeration
 *   external.h5   names in external storage, counts behind a link into another file (which are not there)
 *
 * Usage: make_h5_files FOLDER
 */
#include "data/h5_files.h"

enum { N = 24, T = 8, H = 5, W = 5, PIXELS = H * W, VOXELS = T * PIXELS };
static const hsize_t shape[4] = {N, T, H, W}, plane[3] = {N, H, W}, one[4] = {1, T, H, W}, many[4] = {5, T, H, W};
static const char *const donors[] = {"D1", "D2", "donor 3", "D4"}, *const classes[] = {"healthy", "AML"};

static int64_t counts[N * VOXELS], label[N], group[N], mask[N * PIXELS];
static const char *text[N];

static void fill(void)
{
    for (int i = 0; i < N * VOXELS; i++) {
        const int t = i / PIXELS % T;
        counts[i] = (i * 7919 % 11) * (T - t) / (4 + i / VOXELS % 2);
    }
    for (int i = 0; i < N; i++) {
        label[i] = i % 2;
        group[i] = i / 2 % 4;
        text[i] = donors[group[i]];
    }
    for (int i = 0; i < N * PIXELS; i++) {
        mask[i] = i % PIXELS > 0;
    }
}

static hid_t begin(const char *folder, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return h5_create(path);
}

static void put_counts(hid_t file, const char *name, h5_layout layout)
{
    h5_put(file, name, H5T_STD_U16LE, H5T_NATIVE_INT64, 4, shape, layout, counts);
}

static void put_number(hid_t file, const char *name, const char *attribute, double value)
{
    hid_t set = H5Dopen2(file, name, H5P_DEFAULT), space = H5Screate(H5S_SCALAR),
          id = H5Acreate2(set, attribute, H5T_IEEE_F64LE, space, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(id >= 0 && H5Awrite(id, H5T_NATIVE_DOUBLE, &value) >= 0);
    H5Aclose(id);
    H5Sclose(space);
    H5Dclose(set);
}

static void put_text(hid_t file, const char *name, const char *attribute, const char *value)
{
    hid_t set = H5Dopen2(file, name, H5P_DEFAULT), type = H5Tcopy(H5T_C_S1), space = H5Screate(H5S_SCALAR);
    H5Tset_size(type, strlen(value));
    hid_t id = H5Acreate2(set, attribute, type, space, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(id >= 0 && H5Awrite(id, type, value) >= 0);
    H5Aclose(id);
    H5Sclose(space);
    H5Tclose(type);
    H5Dclose(set);
}

static void heap(const char *folder)
{
    hid_t file = begin(folder, "heap.h5");
    put_counts(file, "counts", (h5_layout){one, 4, 1, 0});
    h5_put_ints(file, "label", H5T_STD_U8LE, N, label);
    h5_put_strings(file, "group", N, text, 0, H5T_STR_NULLTERM, H5T_CSET_UTF8);
    h5_put_attribute(file, "class_names", 2, classes);
    H5Fclose(file);
}

static void filters(const char *folder)
{
    const hsize_t offset[4] = {5, 0, 0, 0}, n = N, six = 6;
    uint16_t plain[5 * VOXELS];
    hid_t file = begin(folder, "filters.h5");
    put_counts(file, "counts", (h5_layout){many, 4, 1, 1});
    for (int i = 0; i < 5 * VOXELS; i++) {
        plain[i] = (uint16_t)counts[5 * VOXELS + i];
    }
    hid_t set = H5Dopen2(file, "counts", H5P_DEFAULT);
    assert_true(H5Dwrite_chunk(set, H5P_DEFAULT, 7, offset, sizeof plain, plain) >= 0);
    H5Dclose(set);
    h5_put(file, "label", H5T_STD_U8LE, H5T_NATIVE_INT64, 1, &n, (h5_layout){&six, 4, 0, 1}, label);
    h5_put(file, "mask", H5T_STD_U8LE, H5T_NATIVE_INT64, 3, plane, (h5_layout){(hsize_t[]){7, H, W}, 4, 0, 0}, mask);
    H5Fclose(file);
}

static void packed(const char *folder)
{
    hid_t file = begin(folder, "packed.h5");
    put_counts(file, "counts", (h5_layout){one, 4, 1, 0});
    h5_put_ints(file, "label", H5T_STD_I16LE, N, label);
    h5_put_ints(file, "group", H5T_STD_I32LE, N, group);
    h5_put(file, "mask", H5T_STD_U8LE, H5T_NATIVE_INT64, 3, plane, h5_contiguous, mask);
    put_number(file, "counts", "scale_factor", 0.5);
    put_number(file, "counts", "_FillValue", 65535);
    put_number(file, "group", "add_offset", 10);
    put_number(file, "label", "missing_value", -1);
    put_number(file, "mask", "valid_max", 200);
    H5Fclose(file);
}

static void put_view(hid_t file, const char *name, const char *source, hid_t type, int rank, const hsize_t *sizes)
{
    hid_t space = H5Screate_simple(rank, sizes, NULL), dcpl = H5Pcreate(H5P_DATASET_CREATE);
    for (int half = 0; half < 2; half++) {
        hsize_t start[4] = {(hsize_t)half * sizes[0] / 2, 0, 0, 0}, count[4];
        memcpy(count, sizes, (size_t)rank * sizeof *sizes);
        count[0] /= 2;
        H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL);
        assert_true(H5Pset_virtual(dcpl, space, ".", source, space) >= 0);
    }
    H5Sselect_all(space);
    H5Dclose(H5Dcreate2(file, name, type, space, H5P_DEFAULT, dcpl, H5P_DEFAULT));
    H5Pclose(dcpl);
    H5Sclose(space);
}

static void view(const char *folder)
{
    hid_t file = begin(folder, "view.h5");
    put_counts(file, "c", (h5_layout){one, 4, 1, 0});
    h5_put_ints(file, "l", H5T_STD_U8LE, N, label);
    h5_put(file, "m", H5T_STD_U8LE, H5T_NATIVE_INT64, 3, plane, h5_contiguous, mask);
    put_view(file, "counts", "/c", H5T_STD_U16LE, 4, shape);
    put_view(file, "label", "/l", H5T_STD_U8LE, 1, shape);
    put_view(file, "mask", "/m", H5T_STD_U8LE, 3, plane);
    H5Fclose(file);
}

static void references(const char *folder)
{
    hobj_ref_t reference[N];
    uint8_t bits[N];
    uint16_t padded[4 * N];
    const hsize_t row[2] = {1, N}, chars[2] = {4, N};
    hid_t file = begin(folder, "references.h5");
    put_counts(file, "counts", (h5_layout){one, 4, 1, 0});
    for (int k = 0; k < 4; k++) {
        char name[8] = {(char)('a' + k)};
        uint16_t code[16];
        hsize_t sizes[2] = {strlen(donors[k]), 1};
        for (hsize_t i = 0; i < sizes[0]; i++) {
            code[i] = (uint16_t)donors[k][i];
        }
        h5_put(file, name, H5T_STD_U16LE, H5T_NATIVE_UINT16, 2, sizes, h5_contiguous, code);
    }
    for (int i = 0; i < N; i++) {
        const char name[2] = {(char)('a' + group[i])};
        assert_true(H5Rcreate(&reference[i], file, name, H5R_OBJECT, -1) >= 0);
        bits[i] = (uint8_t)label[i];
        for (int k = 0; k < 4; k++) {
            padded[k * N + i] = k < 2 ? (uint16_t) "ab"[k] : ' ';
        }
    }
    h5_put(file, "group", H5T_STD_REF_OBJ, H5T_STD_REF_OBJ, 2, row, h5_contiguous, reference);
    h5_put(file, "name", H5T_STD_U16LE, H5T_NATIVE_UINT16, 2, chars, h5_contiguous, padded);
    put_text(file, "name", "MATLAB_class", "char");
    h5_put(file, "label", H5T_STD_B8LE, H5T_NATIVE_B8, 2, row, h5_contiguous, bits);
    H5Fclose(file);
}

static void factor(const char *folder)
{
    int64_t levels[N];
    hid_t file = begin(folder, "factor.h5"), type = H5Tenum_create(H5T_NATIVE_INT64);
    put_counts(file, "counts", (h5_layout){one, 4, 1, 0});
    for (int i = 0; i < N; i++) {
        levels[i] = group[i] + 1;
    }
    H5Gclose(H5Gcreate2(file, "label", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    h5_put_ints(file, "label/codes", H5T_STD_I8LE, N, label);
    h5_put_strings(file, "label/categories", 2, classes, 0, H5T_STR_NULLTERM, H5T_CSET_UTF8);
    H5Gclose(H5Gcreate2(file, "group", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    h5_put_ints(file, "group/values", H5T_STD_I32LE, N, levels);
    h5_put_strings(file, "group/levels", 4, donors, 8, H5T_STR_NULLPAD, H5T_CSET_UTF8);
    for (int64_t k = 0; k < 4; k++) {
        H5Tenum_insert(type, donors[k], &k);
    }
    h5_put(file, "name", type, type, 1, shape, h5_contiguous, group);
    H5Tclose(type);
    H5Fclose(file);
}

static void external(const char *folder)
{
    const hsize_t n = N;
    hid_t file = begin(folder, "external.h5"), space = H5Screate_simple(1, &n, NULL), dcpl = H5Pcreate(H5P_DATASET_CREATE),
          type = H5Tcopy(H5T_C_S1);
    assert_true(H5Lcreate_external("other.h5", "/counts", file, "counts", H5P_DEFAULT, H5P_DEFAULT) >= 0);
    h5_put_ints(file, "label", H5T_STD_U8LE, N, label);
    H5Tset_size(type, 4);
    H5Pset_external(dcpl, "names.raw", 0, 4 * N);
    H5Dclose(H5Dcreate2(file, "name", type, space, H5P_DEFAULT, dcpl, H5P_DEFAULT));
    H5Tclose(type);
    H5Pclose(dcpl);
    H5Sclose(space);
    H5Fclose(file);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "Usage: make_h5_files FOLDER\n");
        return 2;
    }
    fill();
    heap(argv[1]);
    filters(argv[1]);
    packed(argv[1]);
    view(argv[1]);
    references(argv[1]);
    factor(argv[1]);
    external(argv[1]);
    return 0;
}
