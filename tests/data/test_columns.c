/* Labels, groups, names and masks as other programs write them: MATLAB's shapes and texts, bitfields, factors and categoricals. */
#include "data/dataset_internal.h"
#include "data/h5_files.h"

enum { N = 6, T = 8, H = 3, W = 4, PIXELS = H * W, VOXELS = T * PIXELS };
static const hsize_t shape[4] = {N, T, H, W}, plane[3] = {N, H, W};
static const char *const donors[N] = {"D1", "D1", "Zo\xc3\xab", "", "\xf0\x9f\xa7\xab 7",
                                      "D1"}; /* a longer character than others */
static const int64_t labels[N] = {0, 1, 1, 0, 0, 1};

static hid_t begin_file(const char *path)
{
    static int64_t counts[N * VOXELS];
    for (int i = 0; i < N * VOXELS; i++) {
        counts[i] = i % 7;
    }
    hid_t file = h5_create(path);
    h5_put(file, "counts", H5T_STD_U16LE, H5T_NATIVE_INT64, 4, shape, h5_contiguous, counts);
    return file;
}

static void put_text_attribute(hid_t set, const char *name, const char *text)
{
    hid_t type = H5Tcopy(H5T_C_S1), space = H5Screate(H5S_SCALAR);
    H5Tset_size(type, strlen(text));
    hid_t id = H5Acreate2(set, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(id >= 0 && H5Awrite(id, type, text) >= 0);
    H5Aclose(id);
    H5Sclose(space);
    H5Tclose(type);
}

static void check(const char *path, bool with_labels, bool with_groups, const char *const classes[2])
{
    flim_dataset *d = open_good(path, &(flim_dataset_options){.need_labels = with_labels, .need_groups = with_groups});
    const flim_dataset_info *info = flim_dataset_get_info(d);
    for (int i = 0; i < N; i++) {
        if (with_labels) {
            assert_int_equal(info->label[i], (int)labels[i]);
        }
        if (with_groups) {
            assert_string_equal(info->group_name[info->group[i]], donors[i]);
        }
    }
    for (int k = 0; classes && k < 2; k++) {
        assert_string_equal(info->class_name[k], classes[k]);
    }
    flim_dataset_close(d);
}

static void rows_and_columns_are_columns(void **state)
{
    (void)state;
    static const struct {
        int rank;
        hsize_t sizes[4];
        bool good;
    } cases[] = {{1, {N}, true},          {2, {1, N}, true},      {2, {N, 1}, true},  {3, {1, N, 1}, true},
                 {4, {1, 1, 1, N}, true}, {2, {2, N / 2}, false}, {2, {N, N}, false}, {1, {N - 1}, false},
                 {2, {1, N - 1}, false},  {2, {N - 1, 1}, false}};
    const char *path = scratch_path("shapes.h5");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (int set = 0; set < 2; set++) {
            int64_t many[N * N] = {0};
            memcpy(many, labels, sizeof labels);
            hid_t file = begin_file(path);
            h5_put(file, set ? "group" : "label", H5T_STD_I32LE, H5T_NATIVE_INT64, cases[i].rank, cases[i].sizes,
                   h5_contiguous, many);
            H5Fclose(file);
            if (!cases[i].good) {
                open_bad(path, NULL, path, set ? "/group" : "/label", "per cell", NULL);
            } else if (set == 0) {
                check(path, true, false, NULL);
            } else {
                flim_dataset *d = open_good(path, NULL);
                const flim_dataset_info *info = flim_dataset_get_info(d);
                for (int c = 0; c < N; c++) {
                    assert_int_equal(atoi(info->group_name[info->group[c]]), labels[c]);
                }
                flim_dataset_close(d);
            }
        }
    }
}

static void one_hot_labels_say_argmax(void **state)
{
    (void)state;
    const char *path = scratch_path("hot.h5");
    for (int turned = 0; turned < 2; turned++) {
        const hsize_t sizes[2] = {turned ? 3 : N, turned ? N : 3};
        int64_t hot[3 * N] = {0};
        hid_t file = begin_file(path);
        h5_put(file, "label", H5T_STD_U8LE, H5T_NATIVE_INT64, 2, sizes, h5_contiguous, hot);
        H5Fclose(file);
        open_bad(path, NULL, path, "/label", "one-hot", turned ? "argmax(label, axis=0)" : "argmax(label, axis=1)", NULL);
    }
}

/* ---- MATLAB */

/* UTF-8 -> UTF-16; returns the length. */
static hsize_t utf16(const char *text, uint16_t *out)
{
    hsize_t n = 0;
    for (const unsigned char *at = (const unsigned char *)text; *at;) {
        if (*at < 0x80) {
            out[n++] = *at++;
        } else if (*at < 0xe0) {
            out[n++] = (uint16_t)((at[0] & 31) << 6 | (at[1] & 63));
            at += 2;
        } else {
            uint32_t c =
                (uint32_t)(at[0] & 7) << 18 | (uint32_t)(at[1] & 63) << 12 | (uint32_t)(at[2] & 63) << 6 | (at[3] & 63);
            c -= 0x10000;
            out[n++] = (uint16_t)(0xd800 + (c >> 10));
            out[n++] = (uint16_t)(0xdc00 + (c & 1023));
            at += 4;
        }
    }
    return n;
}

/* What save -v7.3 makes of {'D1', ...}': references into /#refs#, an empty text with its size for its value. */
static void put_cellstr(hid_t file, const char *name, bool row, hsize_t n)
{
    hobj_ref_t reference[N];
    hid_t folder = H5Gcreate2(file, "#refs#", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    for (int i = 0; i < N; i++) {
        char inner[32];
        uint16_t code[16];
        const uint64_t nothing[2] = {0, 0};
        hsize_t sizes[2] = {utf16(donors[i], code), 1}, two = 2;
        snprintf(inner, sizeof inner, "#refs#/%c", 'a' + i);
        if (sizes[0]) {
            h5_put(file, inner, H5T_STD_U16LE, H5T_NATIVE_UINT16, 2, sizes, h5_contiguous, code);
        } else {
            h5_put(file, inner, H5T_STD_U64LE, H5T_NATIVE_UINT64, 1, &two, h5_contiguous, nothing);
        }
        hid_t set = H5Dopen2(file, inner, H5P_DEFAULT);
        put_text_attribute(set, "MATLAB_class", "char");
        if (!sizes[0]) {
            put_text_attribute(set, "MATLAB_empty", "1");
        }
        H5Dclose(set);
        assert_true(H5Rcreate(&reference[i], file, inner, H5R_OBJECT, -1) >= 0);
    }
    H5Gclose(folder);
    const hsize_t sizes[2] = {row ? n : 1, row ? 1 : n};
    h5_put(file, name, H5T_STD_REF_OBJ, H5T_STD_REF_OBJ, 2, sizes, h5_contiguous, reference);
    hid_t set = H5Dopen2(file, name, H5P_DEFAULT);
    put_text_attribute(set, "MATLAB_class", "cell");
    H5Dclose(set);
}

static void matlab_texts_are_texts(void **state)
{
    (void)state;
    const char *path = scratch_path("matlab.h5");
    for (int row = 0; row < 2; row++) {
        hid_t file = begin_file(path);
        put_cellstr(file, "group", row, N);
        H5Fclose(file);
        check(path, false, true, NULL);
    }
    hid_t file = begin_file(path);
    put_cellstr(file, "group", true, N - 1);
    H5Fclose(file);
    open_bad(path, NULL, path, "/group", "(6), one value per cell", NULL);
    /* a cell array of numbers, and one whose reference leads nowhere */
    for (int how = 0; how < 2; how++) {
        hobj_ref_t reference[N];
        const double number[2] = {1, 2};
        const hsize_t n = N, two = 2;
        file = begin_file(path);
        h5_put(file, "x", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, 1, &two, h5_contiguous, number);
        for (int i = 0; i < N; i++) {
            assert_true(H5Rcreate(&reference[i], file, "x", H5R_OBJECT, -1) >= 0);
            reference[i] = how ? (hobj_ref_t)0 : reference[i];
        }
        h5_put(file, "group", H5T_STD_REF_OBJ, H5T_STD_REF_OBJ, 1, &n, h5_contiguous, reference);
        H5Fclose(file);
        open_bad(path, NULL, path, "/group: cell 0", how ? "leads to nothing" : "float64 (2)", "expected a text", NULL);
    }
    /* a char array: rows padded with blanks, stored as (length, n) */
    uint16_t padded[8 * N];
    for (int i = 0; i < N; i++) {
        uint16_t code[16];
        hsize_t length = utf16(donors[i], code);
        for (hsize_t k = 0; k < 8; k++) {
            padded[k * N + (hsize_t)i] = k < length ? code[k] : ' ';
        }
    }
    const hsize_t sizes[2] = {8, N};
    file = begin_file(path);
    h5_put(file, "group", H5T_STD_U16LE, H5T_NATIVE_UINT16, 2, sizes, h5_contiguous, padded);
    hid_t set = H5Dopen2(file, "group", H5P_DEFAULT);
    put_text_attribute(set, "MATLAB_class", "char");
    H5Dclose(set);
    H5Fclose(file);
    check(path, false, true, NULL);
    /* objects */
    const char *const classes[] = {"string", "categorical", "table"};
    for (size_t i = 0; i < 3; i++) {
        const hsize_t six[2] = {1, 6 + 1};
        const uint32_t object[7] = {0xdd000000};
        file = begin_file(path);
        h5_put(file, "label", H5T_STD_U32LE, H5T_NATIVE_UINT32, 2, six, h5_contiguous, object);
        set = H5Dopen2(file, "label", H5P_DEFAULT);
        put_text_attribute(set, "MATLAB_class", classes[i]);
        H5Dclose(set);
        H5Fclose(file);
        open_bad(path, NULL, path, "/label", "only MATLAB reads", classes[i], NULL);
    }
}

/* ---- bitfields */

static void bitfields_are_numbers(void **state)
{
    (void)state;
    const hid_t stored[] = {H5T_STD_B8LE, H5T_STD_B16LE, H5T_STD_B16BE, H5T_STD_B32LE, H5T_STD_B64BE};
    const hid_t memory[] = {H5T_NATIVE_B8, H5T_NATIVE_B16, H5T_NATIVE_B16, H5T_NATIVE_B32, H5T_NATIVE_B64};
    char path[256];
    snprintf(path, sizeof path, "%s", scratch_path("bits.h5"));
    for (size_t i = 0; i < sizeof stored / sizeof stored[0]; i++) {
        const size_t size = H5Tget_size(memory[i]);
        unsigned char label[N * 8] = {0}, mask[N * PIXELS * 8] = {0};
        for (int c = 0; c < N; c++) {
            label[(size_t)c * size] = (unsigned char)labels[c]; /* little endian, as this machine */
        }
        for (int p = 0; p < N * PIXELS; p++) {
            mask[(size_t)p * size] = p % 3 == 0;
        }
        hid_t file = begin_file(path);
        h5_put(file, "label", stored[i], memory[i], 1, shape, h5_contiguous, label);
        h5_put(file, "mask", stored[i], memory[i], 3, plane, (h5_layout){(hsize_t[]){2, H, W}, 4, 1, 0}, mask);
        H5Fclose(file);
        check(path, true, false, NULL);
        flim_dataset *d = open_good(path, NULL);
        for (int p = 0; p < N * PIXELS; p++) {
            assert_int_equal(d->mask[p], p % 3 == 0);
        }
        flim_dataset_close(d);
    }
    /* counts as Julia's and PyTables' unsigned bits */
    static uint16_t counts[N * VOXELS];
    for (int v = 0; v < N * VOXELS; v++) {
        counts[v] = (uint16_t)(v % 70 ? v % 3 : 60000);
    }
    hid_t file = h5_create(path);
    h5_put(file, "counts", H5T_STD_B16BE, H5T_NATIVE_B16, 4, shape, (h5_layout){(hsize_t[]){1, T, H, W}, 4, 1, 0}, counts);
    H5Fclose(file);
    flim_error err = {0};
    flim_reader *reader;
    float out[VOXELS];
    flim_dataset *d = open_good(path, NULL);
    assert_int_equal(flim_reader_create(d, &reader, &err), FLIM_OK);
    for (int c = 0; c < N; c++) {
        assert_int_equal(flim_reader_counts(reader, c, out, NULL, &err), FLIM_OK);
        for (int v = 0; v < VOXELS; v++) {
            assert_true(out[v] == (float)counts[c * VOXELS + v]);
        }
    }
    flim_reader_destroy(reader);
    flim_dataset_close(d);
}

/* ---- names */

static void put_names(hid_t file, const char *name, const char *const *text, hsize_t n)
{
    h5_put_strings(file, name, (int64_t)n, text, 0, H5T_STR_NULLTERM, H5T_CSET_UTF8);
}

/* codes + categories, values + levels; code < 0: cell 3 has none */
static void put_factor(hid_t file, const char *name, bool is_r, bool missing, const char *const *names, hsize_t n,
                       const int64_t *codes)
{
    char path[64];
    int64_t stored[N];
    H5Gclose(H5Gcreate2(file, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    for (int i = 0; i < N; i++) {
        stored[i] = codes[i] + is_r;
    }
    if (missing) {
        stored[3] = is_r ? INT32_MIN : -1; /* R's NA */
    }
    snprintf(path, sizeof path, "%s/%s", name, is_r ? "values" : "codes");
    h5_put_ints(file, path, is_r ? H5T_STD_I32LE : H5T_STD_I8LE, N, stored);
    snprintf(path, sizeof path, "%s/%s", name, is_r ? "levels" : "categories");
    put_names(file, path, names, n);
}

static const char *const classes[2] = {"healthy", "T cell"};
static const char *const distinct[4] = {"", "D1", "Zo\xc3\xab", "\xf0\x9f\xa7\xab 7"};
static const int64_t donor_codes[N] = {1, 1, 2, 0, 3, 1};

static void factors_and_categoricals_are_read(void **state)
{
    (void)state;
    char path[256];
    snprintf(path, sizeof path, "%s", scratch_path("factor.h5"));
    for (int is_r = 0; is_r < 2; is_r++) {
        hid_t file = begin_file(path);
        put_factor(file, "label", is_r, false, classes, 2, labels);
        put_factor(file, "group", is_r, false, distinct, 4, donor_codes);
        put_factor(file, "name", is_r, false, distinct, 4, donor_codes);
        H5Fclose(file);
        check(path, true, true, classes);
        for (int set = 0; set < 2; set++) {
            file = begin_file(path);
            put_factor(file, set ? "group" : "label", is_r, true, classes, 2, labels);
            H5Fclose(file);
            open_bad(path, NULL, path, set ? "/group/" : "/label/", "cell 3", "stands for no category", NULL);
        }
        file = begin_file(path); /* a code without a name */
        put_factor(file, "label", is_r, false, classes, 1, labels);
        H5Fclose(file);
        open_bad(path, NULL, path, "/label/", "cell 1", "which is none", NULL);
    }
    /* older AnnData: numbers with an attribute that refers to the names */
    hid_t file = begin_file(path);
    h5_put_ints(file, "label", H5T_STD_I8LE, N, labels);
    put_names(file, "__categories", classes, 2);
    hobj_ref_t reference;
    assert_true(H5Rcreate(&reference, file, "__categories", H5R_OBJECT, -1) >= 0);
    hid_t set = H5Dopen2(file, "label", H5P_DEFAULT), space = H5Screate(H5S_SCALAR),
          id = H5Acreate2(set, "categories", H5T_STD_REF_OBJ, space, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(H5Awrite(id, H5T_STD_REF_OBJ, &reference) >= 0);
    H5Aclose(id);
    H5Sclose(space);
    H5Dclose(set);
    H5Fclose(file);
    check(path, true, false, classes);
    /* a group that is neither */
    file = begin_file(path);
    H5Gclose(H5Gcreate2(file, "label", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    h5_put_ints(file, "label/codes", H5T_STD_I8LE, N, labels);
    H5Fclose(file);
    open_bad(path, NULL, path, "/label is a group", NULL);
}

static void enumerations_have_names(void **state)
{
    (void)state;
    static const struct {
        int64_t value[3]; /* of the names, in the order of their making */
        int order[3]; /* which name the k-th class has */
    } cases[] = {{{0, 1, 2}, {0, 1, 2}}, {{1, 2, 3}, {0, 1, 2}}, {{2, 0, 1}, {1, 2, 0}}, {{-5, 70, 7}, {0, 2, 1}}};
    static const char *const names[3] = {"q", "a", "z"};
    char path[256];
    snprintf(path, sizeof path, "%s", scratch_path("enum.h5"));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (int with = 0; with < 3; with++) { /* no attribute class_names; the same names; others */
            hid_t type = H5Tenum_create(H5T_STD_I16BE);
            for (int k = 0; k < 3; k++) {
                int16_t value = (int16_t)cases[i].value[k];
                H5Tconvert(H5T_NATIVE_INT16, H5T_STD_I16BE, 1, &value, NULL, H5P_DEFAULT);
                assert_true(H5Tenum_insert(type, names[k], &value) >= 0);
            }
            int16_t stored[N];
            for (int c = 0; c < N; c++) {
                stored[c] = (int16_t)cases[i].value[cases[i].order[c % 3]];
                H5Tconvert(H5T_NATIVE_INT16, H5T_STD_I16BE, 1, &stored[c], NULL, H5P_DEFAULT);
            }
            const char *const sorted[3] = {names[cases[i].order[0]], names[cases[i].order[1]], names[cases[i].order[2]]};
            const char *const others[3] = {sorted[1], sorted[0], sorted[2]};
            hid_t file = begin_file(path);
            h5_put(file, "label", type, type, 1, shape, h5_contiguous, stored);
            h5_put(file, "group", type, type, 1, shape, h5_contiguous, stored);
            if (with) {
                h5_put_attribute(file, "class_names", 3, with == 1 ? sorted : others);
            }
            H5Tclose(type);
            H5Fclose(file);
            if (with == 2) {
                open_bad(path, NULL, path, "class_names", "calls class 0", NULL);
                continue;
            }
            flim_dataset *d = open_good(path, NULL);
            const flim_dataset_info *info = flim_dataset_get_info(d);
            for (int c = 0; c < N; c++) {
                assert_int_equal(info->label[c], c % 3);
                assert_string_equal(info->class_name[c % 3], sorted[c % 3]);
                assert_string_equal(info->group_name[info->group[c]], sorted[c % 3]);
            }
            flim_dataset_close(d);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_and_columns_are_columns),
        cmocka_unit_test(one_hot_labels_say_argmax),
        cmocka_unit_test(matlab_texts_are_texts),
        cmocka_unit_test(bitfields_are_numbers),
        cmocka_unit_test(factors_and_categoricals_are_read),
        cmocka_unit_test(enumerations_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, remove_scratch);
}
