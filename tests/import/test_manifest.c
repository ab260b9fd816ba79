/* What names cannot say: manifests, row by row and refused by line; the published layout; decays rolled to one bin; where each cell
 * comes from. */
#include "import/made_bytes.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <hdf5.h>

#include "core/file.h"
#include "core/sha256.h"
#include "core/test_folder.h"
#include "data/repack.h"
#include "flim/dataset.h"
#include "formats/csv_rows.h"
#include "import/import.h"
#include "import/t0.h"

enum { Y = 3, X = 4, T = 32 };

static char folder[] = "/tmp/flim_manifest_XXXXXX";
static bytes file;

static const char *in_folder(const char *name)
{
    static char path[256][256]; /* more than a test asks for */
    static int next;
    char *out = path[next++ % 256];
    snprintf(out, sizeof path[0], "%s/%s", folder, name);
    return out;
}

/* A decay that begins in bin `edge`, with more photons than its background of 1; `k` tells files apart. */
static uint32_t count_at(int k, int y, int x, int t, int edge)
{
    const int after = (t - edge + T) % T;
    return 1 + (after < 10 ? (uint32_t)(30 - 3 * after + (y * X + x + k) % 3) : 0);
}

static void write_field(const char *name, int k, int edge)
{
    char header[128];
    file = (bytes){0};
    const int length =
        snprintf(header, sizeof header, "{'descr': '|u1', 'fortran_order': False, 'shape': (%d, %d, %d), }", Y, X, T);
    put_text(&file, "\x93NUMPY\x01", 8);
    put(&file, (uint64_t)length, 2);
    put_text(&file, header, (size_t)length);
    for (int i = 0; i < Y * X * T; i++) {
        put(&file, count_at(k, i / T / X, i / T % X, i % T, edge), 1);
    }
    write_bytes_to(in_folder(name), &file, file.n);
}

static void write_text(const char *name, const char *text)
{
    file = (bytes){0};
    put_text(&file, text, strlen(text));
    write_bytes_to(in_folder(name), &file, file.n);
}

static flim_status import_with(const flim_import_request *request, flim_import_result *made, flim_error *err)
{
    const flim_log quiet = {0};
    *err = (flim_error){0};
    return flim_import(request, &quiet, made, err);
}

/* ---- rows of CSV ---- */

/* Rows as "[a|b][c]". */
static void expect_rows(const char *csv, const char *want)
{
    char text[256], found[256] = "", *field[4];
    flim_csv_rows rows = {.at = text};
    flim_error err = {0};
    int n;
    snprintf(text, sizeof text, "%s", csv);
    flim_status status = flim_csv_next_row(&rows, field, 4, &n, &err);
    for (; status == FLIM_OK && n > 0; status = flim_csv_next_row(&rows, field, 4, &n, &err)) {
        for (int i = 0; i < n; i++) {
            strncat(found, i ? "|" : "[", 2);
            strncat(found, field[i], 64);
        }
        strncat(found, "]", 2);
    }
    if (status != FLIM_OK) {
        const size_t used = strlen(found);
        snprintf(found + used, sizeof found - used, "%.128s", err.text);
    }
    if (strcmp(found, want) != 0) {
        fail_msg("'%s' gives %s, expected %s", csv, found, want);
    }
}

static void csv_as_rfc_4180_has_it(void **state)
{
    (void)state;
    expect_rows("", "");
    expect_rows("a,b\nc,d", "[a|b][c|d]");
    expect_rows("a,b\r\n\r\n\nc,d\r\n", "[a|b][c|d]");
    expect_rows("\xef\xbb\xbf"
                "a,\n,b\n,",
                "[a|][|b][|]");
    expect_rows("\"a,b\",\"c\"\"d\"\n\"\",x", "[a,b|c\"d][|x]");
    expect_rows("\"two\nlines\",y", "[two\nlines|y]");
    expect_rows("\"a\"\n\"b", "[a]line 2: a quote that does not end");
    expect_rows("x\n\"a\"b,c", "[x]line 2: text behind a closing quote");
    expect_rows("\"a\nb\"\n1,2,3,4,5", "[a\nb]line 3: more fields than there are columns");
}

/* ---- manifests ---- */

static void a_manifest_says_what_names_do_not(void **state)
{
    (void)state;
    static const int from[] = {2, 0, 3};
    const char *out = in_folder("m.h5");
    for (int k = 0; k < 4; k++) {
        char name[32];
        snprintf(name, sizeof name, "f%d.npy", k);
        write_field(name, k, 5);
    }
    write_text(
        "m.csv",
        "label,path,group,name\n10,f2.npy,\"dish, 1\",third\n2,f0.npy,d2,\n,f1.npy,d2,\r\n10,f3.npy,d2,\"a \"\"b\"\"\"\n");
    const flim_import_request r = {
        .out = out, .manifest = in_folder("m.csv"), .cells.size = 4, .fields.axes = FLIM_ARRAY_YXT};
    flim_import_result made;
    flim_error err;
    if (import_with(&r, &made, &err) != FLIM_OK) {
        fail_msg("%s", err.text);
    }
    assert_true(made.cells == 3 && made.skipped == 1 && made.classes == 2 && made.groups == 2);
    flim_dataset *d;
    flim_reader *reader;
    float counts[T * 16];
    assert_int_equal(flim_dataset_open(&out, 1, &(flim_dataset_options){.trusted = true}, &d, NULL), FLIM_OK);
    assert_int_equal(flim_reader_create(d, &reader, NULL), FLIM_OK);
    const flim_dataset_info *info = flim_dataset_get_info(d);
    static const char *const name[] = {"third", "f0", "a \"b\""}, *const group[] = {"dish, 1", "d2", "d2"};
    static const int label[] = {1, 0, 1}; /* 2 before 10 */
    assert_string_equal(info->class_name[0], "2");
    for (int i = 0; i < 3; i++) {
        assert_string_equal(info->name[i], name[i]);
        assert_string_equal(info->group_name[info->group[i]], group[i]);
        assert_int_equal(info->label[i], label[i]);
        assert_int_equal(flim_reader_counts(reader, i, counts, NULL, NULL), FLIM_OK);
        for (int v = 0; v < T * 12; v++) { /* three rows of four, above an empty one */
            assert_true(counts[v / 12 * 16 + v % 12] == (float)count_at(from[i], v / 4 % 3, v % 4, v / 12, 5));
        }
    }
    flim_reader_destroy(reader);
    flim_dataset_close(d);
}

static void manifests_that_are_wrong_are_refused_by_line(void **state)
{
    (void)state;
    static const struct {
        const char *text, *words;
        flim_status status;
    } wrong[] = {
        {"", "names no column 'path'", FLIM_ERROR_DATA},
        {"file,label\n", "line 1: column 'file' is not known", FLIM_ERROR_DATA},
        {"path,path\n", "line 1: column 'path' is there twice", FLIM_ERROR_DATA},
        {"label,group\n", "names no column 'path'", FLIM_ERROR_DATA},
        {"path\n", "names no file", FLIM_ERROR_DATA},
        {"path,group\nf0.npy,a\nf1.npy\n", "line 3: 1 fields, expected 2", FLIM_ERROR_DATA},
        {"path,group\nf0.npy,a\nf1.npy,\n", "line 3: no group", FLIM_ERROR_DATA},
        {"path,group\n,a\n", "line 2: no path", FLIM_ERROR_DATA},
        {"path,label\nf0.npy,a\nf1.npy,a\n", "only one class, 'a'", FLIM_ERROR_USAGE},
        {"path,label\nf0.npy,\"a\n", "line 2: a quote that does not end", FLIM_ERROR_DATA},
        {"path,mask\nf0.npy,no.png\n", "no.png, is not there", FLIM_ERROR_DATA},
        {"path\nnowhere.npy\n", "nowhere.npy", FLIM_ERROR_DATA},
    };
    const char *out = in_folder("wrong.h5");
    const flim_import_request r = {.out = out, .manifest = in_folder("w.csv"), .fields.axes = FLIM_ARRAY_YXT};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        flim_import_result made;
        flim_error err;
        write_text("w.csv", wrong[i].text);
        const flim_status status = import_with(&r, &made, &err);
        if (status != wrong[i].status || !strstr(err.text, wrong[i].words)) {
            fail_msg("'%s': status %d and '%s', expected %d and '%s'", wrong[i].text, status, err.text, wrong[i].status,
                     wrong[i].words);
        }
        assert_false(flim_file_exists(out));
    }
}

/* ---- t0 ---- */

static void rising_edges_are_found_and_decays_rolled(void **state)
{
    (void)state;
    uint64_t decay[T], scratch[T];
    uint32_t planes[T * 5], rolled[T * 5], copy[T * 5];
    for (int edge = 0; edge < T; edge++) {
        for (int t = 0; t < T; t++) {
            decay[t] = count_at(0, 0, 0, t, edge);
        }
        assert_int_equal(flim_rising_edge(decay, T, scratch), edge);
        decay[(edge + T - 1) % T] += 10; /* a foot of less than half */
        assert_int_equal(flim_rising_edge(decay, T, scratch), edge);
        decay[(edge + T - 1) % T] += 10; /* of more than half */
        assert_int_equal(flim_rising_edge(decay, T, scratch), (edge + T - 1) % T);
    }
    for (int t = 0; t < T; t++) {
        decay[t] = 7;
    }
    assert_int_equal(flim_rising_edge(decay, T, scratch), -1);
    memset(decay, 0, sizeof decay);
    assert_int_equal(flim_rising_edge(decay, T, scratch), -1);
    for (int shift = 0; shift < T; shift++) {
        for (int i = 0; i < T * 5; i++) {
            planes[i] = (uint32_t)i;
        }
        flim_roll_bins(planes, T, 5 * sizeof *planes, shift, copy);
        for (int i = 0; i < T * 5; i++) {
            rolled[(i / 5 + shift) % T * 5 + i % 5] = (uint32_t)i;
        }
        assert_memory_equal(planes, rolled, sizeof planes);
    }
}

static void read_numbers(const char *path, const char *name, int64_t *out)
{
    const hid_t f = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT), set = H5Dopen2(f, name, H5P_DEFAULT);
    assert_true(H5Dread(set, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, out) >= 0);
    H5Dclose(set);
    H5Fclose(f);
}

/* (n) texts of at most 255 bytes, as they are in the file. */
static void read_texts(const char *path, const char *name, char (*out)[256])
{
    const hid_t f = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT), set = H5Dopen2(f, name, H5P_DEFAULT),
                type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, 256);
    H5Tset_cset(type, H5T_CSET_UTF8);
    assert_true(H5Dread(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, out) >= 0);
    H5Tclose(type);
    H5Dclose(set);
    H5Fclose(f);
}

static void cells_are_aligned_and_say_where_they_come_from(void **state)
{
    (void)state;
    static const int edge[] = {2, 9, 31};
    const char *out = in_folder("t0.h5"), *input = in_folder("tree");
    int64_t shift[3], from[3];
    char text[3][256], want[65];
    assert_int_equal(mkdir(in_folder("tree"), 0755), 0);
    assert_int_equal(mkdir(in_folder("tree/isolated_cells_D1"), 0755), 0);
    assert_int_equal(mkdir(in_folder("tree/other"), 0755), 0);
    write_field("tree/isolated_cells_D1/a.npy", 0, edge[0]);
    write_field("tree/isolated_cells_D1/b.npy", 1, edge[1]);
    write_field("tree/other/c.npy", 2, edge[2]);
    assert_int_equal(flim_sha256_of(file.data, file.n, want, NULL), FLIM_OK);
    const flim_import_request r = {.out = out,
                                   .input = &input,
                                   .n_inputs = 1,
                                   .group_prefix = "isolated_cells_",
                                   .fields.axes = FLIM_ARRAY_YXT,
                                   .align_t0 = true,
                                   .t0_bin = -1};
    flim_import_result made;
    flim_error err;
    if (import_with(&r, &made, &err) != FLIM_OK) {
        fail_msg("%s", err.text);
    }
    assert_true(made.groups == 2 && made.photons.total == made.photons.cells && made.least_shift == -5 &&
                made.most_shift == 5);
    read_numbers(out, "t0_shift", shift);
    read_numbers(out, "import/file", from);
    flim_dataset *d;
    flim_reader *reader;
    float counts[T * Y * X];
    assert_int_equal(flim_dataset_open(&out, 1, &(flim_dataset_options){.trusted = true}, &d, NULL), FLIM_OK);
    assert_int_equal(flim_reader_create(d, &reader, NULL), FLIM_OK);
    assert_string_equal(flim_dataset_get_info(d)->group_name[0], "D1");
    for (int i = 0; i < 3; i++) {
        assert_int_equal(from[i], i);
        assert_int_equal(((edge[i] + shift[i]) % T + T) % T, T / 8);
        assert_int_equal(flim_reader_counts(reader, i, counts, NULL, NULL), FLIM_OK);
        for (int v = 0; v < T * Y * X; v++) {
            assert_true(counts[v] == (float)count_at(i, v / X % Y, v % X, v / X / Y, T / 8));
        }
    }
    flim_reader_destroy(reader);
    flim_dataset_close(d);
    read_texts(out, "import/sha256", text);
    assert_string_equal(text[2], want);
    read_texts(out, "import/path", text);
    assert_string_equal(text[2], in_folder("tree/other/c.npy"));
}

/* ---- repacking ---- */

/* Leaves out the cells whose bit is set. */
static flim_status leave_out(void *context, const flim_dataset_info *info, bool *left_out, flim_error *err)
{
    const uint64_t bits = *(const uint64_t *)context;
    (void)err;
    for (int64_t i = 0; i < info->n; i++) {
        left_out[i] = bits >> i & 1;
    }
    return FLIM_OK;
}

static void import_folder(const char *out, const char *input, bool align)
{
    const flim_import_request r = {.out = out,
                                   .input = &input,
                                   .n_inputs = 1,
                                   .fields.axes = FLIM_ARRAY_YXT,
                                   .align_t0 = align,
                                   .t0_bin = -1,
                                   .range_ns = 10};
    flim_import_result made;
    flim_error err;
    if (import_with(&r, &made, &err) != FLIM_OK) {
        fail_msg("%s", err.text);
    }
}

static void count_not_copied(void *context, flim_log_level level, const char *text)
{
    (void)level;
    *(int *)context += strstr(text, "not copied") != NULL;
}

static bool has_object(const char *path, const char *name)
{
    const hid_t f = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    const bool there = H5Lexists(f, name, H5P_DEFAULT) > 0;
    H5Fclose(f);
    return there;
}

/* Two imports, of which one was aligned and a file is in both, and a file that flim_import did not make: what is known of each cell
 * goes along, whatever part is taken. */
static void what_an_import_noted_survives_repacking(void **state)
{
    (void)state;
    static const int edge[] = {3, 8, 20, 12, 30};
    static const char *const name[] = {"one/a.npy", "one/b.npy", "one/c.npy", "two/a.npy", "two/d.npy"};
    const char *paths[3], *out = in_folder("joined.h5");
    int64_t shift[8], from[8], whole[3];
    char text[8][256], sha[8][256], want[5][65];
    for (int i = 0; i < 5; i++) {
        mkdir(in_folder(i < 3 ? "one" : "two"), 0755);
        write_field(name[i], i, edge[i]);
        assert_int_equal(flim_sha256_of(file.data, file.n, want[i], NULL), FLIM_OK);
    }
    import_folder(paths[0] = in_folder("one.h5"), in_folder("one"), true);
    import_folder(paths[1] = in_folder("two.h5"), in_folder("two"), false);
    import_folder(paths[2] = in_folder("plain.h5"), in_folder("two"), false);
    const hid_t f = H5Fopen(paths[2], H5F_ACC_RDWR, H5P_DEFAULT);
    assert_true(f >= 0 && H5Ldelete(f, "import", H5P_DEFAULT) >= 0);
    H5Fclose(f);
    read_numbers(paths[0], "t0_shift", whole);
    static const struct {
        uint64_t left_out; /* bits of the cells of one.h5 (0 1 2), two.h5 (3 4) and plain.h5 (5 6) */
        int n_paths, cell[7], n;
    } parts[] = {{0, 3, {0, 1, 2, 3, 4, 5, 6}, 7},
                 {2 | 8, 3, {0, 2, 4, 5, 6}, 5},
                 {6, 1, {0}, 1},
                 {1, 2, {1, 2, 3, 4}, 4},
                 {7, 3, {3, 4, 5, 6}, 4}};
    for (size_t p = 0; p < sizeof parts / sizeof parts[0]; p++) {
        uint64_t bits = parts[p].left_out;
        int noted = 0;
        const flim_log log = {count_not_copied, &noted};
        flim_repack_result made;
        flim_error err = {0};
        unlink(out);
        memset(text, 0, sizeof text);
        const flim_repack_options how = {
            .workers = 2, .choose = bits ? leave_out : NULL, .choose_context = &bits, .log = &log};
        if (flim_repack(paths, parts[p].n_paths, out, &how, &made, &err) != FLIM_OK) {
            fail_msg("part %zu: %s", p, err.text);
        }
        assert_true(made.cells == parts[p].n && noted == 0);
        read_numbers(out, "import/file", from);
        read_texts(out, "import/path", text);
        read_texts(out, "import/sha256", sha);
        const bool aligned = parts[p].cell[0] < 3;
        assert_int_equal(has_object(out, "t0_shift"), aligned);
        if (aligned) {
            read_numbers(out, "t0_shift", shift);
        }
        for (int i = 0; i < parts[p].n; i++) {
            const int cell = parts[p].cell[i];
            if (cell >= 5) {
                assert_int_equal(from[i], -1);
            } else {
                assert_true(from[i] >= 0 && from[i] < parts[p].n);
                assert_string_equal(text[from[i]], in_folder(name[cell]));
                assert_string_equal(sha[from[i]], want[cell]);
            }
            assert_true(!aligned || shift[i] == (cell < 3 ? whole[cell] : 0));
        }
    }
    /* A file that is in two of the inputs is one source. */
    const char *again = in_folder("again.h5");
    const flim_repack_options all = {.workers = 2, .log = &(flim_log){0}};
    flim_repack_result made;
    flim_error err = {0};
    uint64_t last = parts[4].left_out;
    unlink(out);
    assert_int_equal(
        flim_repack(paths, 2, out,
                    &(flim_repack_options){.workers = 1, .choose = leave_out, .choose_context = &last, .log = &(flim_log){0}},
                    &made, &err),
        FLIM_OK);
    assert_int_equal(flim_repack((const char *const[]){out, paths[1]}, 2, again, &all, &made, &err), FLIM_OK);
    read_numbers(again, "import/file", from);
    assert_true(from[0] == 0 && from[1] == 1 && from[2] == 0 && from[3] == 1);
}

/* Objects of these names that are somebody else's: named, and left. */
static void what_only_looks_like_an_import_is_noted(void **state)
{
    (void)state;
    const char *in = in_folder("other_import.h5"), *out = in_folder("other_out.h5");
    const double wrong[2] = {0.5, 1.5};
    const hsize_t two = 2;
    flim_repack_result made;
    flim_error err = {0};
    int noted = 0;
    const flim_log log = {count_not_copied, &noted};
    mkdir(in_folder("lone"), 0755);
    write_field("lone/a.npy", 0, 4);
    import_folder(in, in_folder("lone"), false);
    const hid_t f = H5Fopen(in, H5F_ACC_RDWR, H5P_DEFAULT), space = H5Screate_simple(1, &two, NULL);
    assert_true(H5Ldelete(f, "import/path", H5P_DEFAULT) >= 0);
    const hid_t set = H5Dcreate2(f, "t0_shift", H5T_IEEE_F64LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(H5Dwrite(set, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, wrong) >= 0);
    H5Dclose(set);
    H5Sclose(space);
    H5Fclose(f);
    assert_int_equal(flim_repack(&in, 1, out, &(flim_repack_options){.workers = 1, .log = &log}, &made, &err), FLIM_OK);
    assert_int_equal(noted, 2);
    assert_false(has_object(out, "import") || has_object(out, "t0_shift"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(csv_as_rfc_4180_has_it),
        cmocka_unit_test(a_manifest_says_what_names_do_not),
        cmocka_unit_test(manifests_that_are_wrong_are_refused_by_line),
        cmocka_unit_test(rising_edges_are_found_and_decays_rolled),
        cmocka_unit_test(cells_are_aligned_and_say_where_they_come_from),
        cmocka_unit_test(what_an_import_noted_survives_repacking),
        cmocka_unit_test(what_only_looks_like_an_import_is_noted),
    };
    return RUN_IN_FOLDER(folder, tests);
}
