/* Views (virtual datasets) that would read fill values: holes, short sources, sources that cannot be opened; and files that a
 * data file may not lead to. */
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <zlib.h>

#include "data/h5_files.h"

enum { N = 12, T = 8, H = 4, W = 5, PIXELS = H * W, VOXELS = T * PIXELS };
static const hsize_t shape[4] = {N, T, H, W};

/* NAME in the scratch folder, in the caller's own buffer. */
static const char *path_of(char path[256], const char *name)
{
    snprintf(path, 256, "%s", scratch_path(name));
    return path;
}

static void write_counts(hid_t file, const char *name, hsize_t cells, h5_layout layout)
{
    static int64_t counts[4 * N * VOXELS];
    const hsize_t sizes[4] = {cells, T, H, W};
    for (hsize_t i = 0; i < cells * VOXELS; i++) {
        counts[i] = 1 + (int64_t)i % 250;
    }
    h5_put(file, name, H5T_STD_U16LE, H5T_NATIVE_INT64, 4, sizes, layout, counts);
}

static void write_source(const char *path, hsize_t cells)
{
    hid_t file = h5_create(path);
    write_counts(file, "x", cells, h5_contiguous);
    int64_t label[4 * N], mask[4 * N * PIXELS];
    const hsize_t sizes[3] = {cells, H, W};
    for (hsize_t i = 0; i < cells * PIXELS; i++) {
        label[i / PIXELS] = (int64_t)(i / PIXELS % 2);
        mask[i] = 1;
    }
    h5_put_ints(file, "label", H5T_STD_U8LE, (int64_t)cells, label);
    h5_put_ints(file, "group", H5T_STD_I32LE, (int64_t)cells, label);
    h5_put(file, "mask", H5T_STD_U8LE, H5T_NATIVE_INT64, 3, sizes, h5_contiguous, mask);
    H5Fclose(file);
}

/* A part of a view: `cells` cells (all other axes whole) from cell `first` of the view on, out of the first of the source. */
typedef struct part {
    const char *file;
    hsize_t first, cells;
} part;

/* name: a view of `rank` axes (the first is N) of the dataset `source` of each part's file. */
static void put_view(hid_t file, const char *name, const char *source, hid_t type, int rank, const hsize_t *sizes,
                     const part *parts, size_t n)
{
    hid_t space = H5Screate_simple(rank, sizes, NULL), dcpl = H5Pcreate(H5P_DATASET_CREATE);
    for (size_t i = 0; i < n; i++) {
        hsize_t start[4] = {parts[i].first, 0, 0, 0}, count[4], zero[4] = {0};
        memcpy(count, sizes, (size_t)rank * sizeof *sizes);
        count[0] = parts[i].cells;
        hid_t from = H5Screate_simple(rank, count, NULL);
        H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL);
        H5Sselect_hyperslab(from, H5S_SELECT_SET, zero, NULL, count, NULL);
        assert_true(H5Pset_virtual(dcpl, space, parts[i].file, source, from) >= 0);
        H5Sclose(from);
    }
    H5Sselect_all(space);
    hid_t set = H5Dcreate2(file, name, type, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    assert_true(set >= 0);
    H5Dclose(set);
    H5Pclose(dcpl);
    H5Sclose(space);
}

static void put_labels(hid_t file)
{
    int64_t label[N];
    for (int i = 0; i < N; i++) {
        label[i] = i % 2;
    }
    h5_put_ints(file, "label", H5T_STD_U8LE, N, label);
}

static void write_view(const char *path, const part *parts, size_t n)
{
    hid_t file = h5_create(path);
    put_labels(file);
    put_view(file, "counts", "/x", H5T_STD_U16LE, 4, shape, parts, n);
    H5Fclose(file);
}

static void no_cell_comes_from_nowhere(void **state)
{
    (void)state;
    char view[256], path[256];
    path_of(view, "view.h5");
    write_source(path_of(path, "a.h5"), 6);
    write_source(path_of(path, "b.h5"), 6);
    write_view(view, (part[]){{"a.h5", 0, 6}, {"b.h5", 6, 6}}, 2);
    flim_dataset_close(open_good(view, NULL));
    write_view(view, (part[]){{"b.h5", 6, 6}, {"a.h5", 0, 6}}, 2); /* in any order */
    flim_dataset_close(open_good(view, NULL));
    write_view(view, (part[]){{"a.h5", 0, 6}, {"b.h5", 4, 6}, {"b.h5", 6, 6}}, 3); /* one over another */
    flim_dataset_close(open_good(view, NULL));
    static const struct {
        part parts[3];
        size_t n;
        const char *hole;
    } holes[] = {{{{"a.h5", 0, 6}}, 1, "index (6,0,0,0)"},
                 {{{"b.h5", 6, 6}}, 1, "index (0,0,0,0)"},
                 {{{"a.h5", 0, 5}, {"b.h5", 6, 6}}, 2, "index (5,0,0,0)"},
                 {{{"a.h5", 0, 6}, {"b.h5", 6, 5}}, 2, "index (11,0,0,0)"},
                 {{{"a.h5", 0, 6}, {"a.h5", 0, 6}}, 2, "index (6,0,0,0)"}, /* as many values as the view has */
                 {{{"a.h5", 2, 6}, {"b.h5", 0, 6}, {"b.h5", 9, 3}}, 3, "index (8,0,0,0)"}};
    for (size_t i = 0; i < sizeof holes / sizeof holes[0]; i++) {
        write_view(view, holes[i].parts, holes[i].n);
        open_bad(view, NULL, view, "/counts is a view of other files", holes[i].hole, "fill values", NULL);
    }
}

/* Holes that are no whole cells: one time bin, one row, one pixel, every other column. */
static void no_voxel_comes_from_nowhere(void **state)
{
    (void)state;
    char view[256], path[256];
    path_of(view, "voxels.h5");
    write_source(path_of(path, "all.h5"), N);
    static const struct {
        hsize_t start[4], stride[4], count[4], block[4];
        const char *hole;
    } masks[] = {{{0, 0, 0, 0}, {1, 1, 1, 1}, {N, T - 1, H, W}, {1, 1, 1, 1}, "index (0,7,0,0)"},
                 {{0, 0, 1, 0}, {1, 1, 1, 1}, {N, T, H - 1, W}, {1, 1, 1, 1}, "index (0,0,0,0)"},
                 {{0, 0, 0, 0}, {N, T, H, 2}, {1, 1, 1, 3}, {N, T, H, 1}, "index (0,0,0,1)"},
                 {{0, 0, 0, 0}, {2, T, H, W}, {N / 2, 1, 1, 1}, {1, T, H, W}, "index (1,0,0,0)"}};
    for (size_t i = 0; i < sizeof masks / sizeof masks[0]; i++) {
        hid_t file = h5_create(view), space = H5Screate_simple(4, shape, NULL), dcpl = H5Pcreate(H5P_DATASET_CREATE);
        put_labels(file);
        H5Sselect_hyperslab(space, H5S_SELECT_SET, masks[i].start, masks[i].stride, masks[i].count, masks[i].block);
        assert_true(H5Pset_virtual(dcpl, space, "all.h5", "/x", space) >= 0);
        H5Sselect_all(space);
        H5Dclose(H5Dcreate2(file, "counts", H5T_STD_U16LE, space, H5P_DEFAULT, dcpl, H5P_DEFAULT));
        H5Pclose(dcpl);
        H5Sclose(space);
        H5Fclose(file);
        open_bad(view, NULL, view, "/counts is a view", masks[i].hole, NULL);
    }
}

/* Columns and masks likewise. */
static void columns_and_masks_have_no_holes(void **state)
{
    (void)state;
    static const char *const names[] = {"label", "group", "mask"};
    const hsize_t sizes[3] = {N, H, W};
    char view[256], path[256];
    path_of(view, "columns.h5");
    write_source(path_of(path, "all.h5"), N);
    for (size_t i = 0; i < 3; i++) {
        for (hsize_t cells = N - 1; cells <= N; cells++) {
            char says[64];
            hid_t file = h5_create(view);
            write_counts(file, "counts", N, h5_contiguous);
            if (i) {
                put_labels(file);
            }
            put_view(file, names[i], names[i], H5T_STD_U8LE, i == 2 ? 3 : 1, sizes, (part[]){{"all.h5", 0, cells}}, 1);
            H5Fclose(file);
            if (cells == N) {
                flim_dataset_close(open_good(view, NULL));
                continue;
            }
            snprintf(says, sizeof says, "/%s is a view of other files", names[i]);
            open_bad(view, NULL, view, says, "index (11", NULL);
        }
    }
}

static void sources_reach_as_far_as_their_part(void **state)
{
    (void)state;
    char view[256], path[256];
    path_of(view, "short.h5");
    write_source(path_of(path, "a.h5"), 6);
    write_source(path_of(path, "b.h5"), 5); /* written anew with one cell less */
    write_view(view, (part[]){{"a.h5", 0, 6}, {"b.h5", 6, 6}}, 2);
    open_bad(view, NULL, view, "b.h5 is too short", "ends at 5, the view takes 6", NULL);
    hid_t file = h5_create(path);
    put_labels(file);
    H5Lcreate_hard(file, "label", file, "x", H5P_DEFAULT, H5P_DEFAULT);
    H5Fclose(file);
    open_bad(view, NULL, view, "b.h5 has 1 axes, the view takes 4", NULL);
    /* a view of a view: the inner one has the hole */
    write_source(path, 6);
    char inner[256];
    file = h5_create(path_of(inner, "inner.h5"));
    put_view(file, "x", "/x", H5T_STD_U16LE, 4, shape, (part[]){{"a.h5", 0, 6}, {"b.h5", 7, 5}}, 2);
    H5Fclose(file);
    write_view(view, (part[]){{"inner.h5", 0, N}}, 1);
    open_bad(view, NULL, view, "index (6,0,0,0)", NULL);
    /* one that leads to itself */
    write_view(view, (part[]){{"short.h5", 0, N}}, 1);
    file = H5Fopen(view, H5F_ACC_RDWR, H5P_DEFAULT);
    put_view(file, "x", "/x", H5T_STD_U16LE, 4, shape, (part[]){{".", 0, N}}, 1);
    H5Fclose(file);
    open_bad(view, NULL, view, "a view of views", NULL);
}

/* Names by a pattern: the view is as long as sources were found. */
static void patterns_have_no_holes(void **state)
{
    (void)state;
    const hsize_t none[4] = {0, T, H, W}, most[4] = {H5S_UNLIMITED, T, H, W}, start[4] = {0}, three[4] = {3, T, H, W},
                  count[4] = {H5S_UNLIMITED, 1, 1, 1}, zero[4] = {0}, one[4] = {1, 1, 1, 1};
    char view[256], path[256];
    path_of(view, "pattern.h5");
    for (int i = 0; i < 4; i++) {
        char name[32];
        snprintf(name, sizeof name, "p_%d.h5", i);
        write_source(path_of(path, name), 3);
    }
    hid_t file = h5_create(view), space = H5Screate_simple(4, none, most), from = H5Screate_simple(4, three, NULL),
          dcpl = H5Pcreate(H5P_DATASET_CREATE);
    put_labels(file);
    H5Sselect_hyperslab(space, H5S_SELECT_SET, start, three, count, three);
    H5Sselect_hyperslab(from, H5S_SELECT_SET, zero, NULL, one, three);
    assert_true(H5Pset_virtual(dcpl, space, "p_%b.h5", "/x", from) >= 0);
    H5Sselect_all(space);
    H5Dclose(H5Dcreate2(file, "counts", H5T_STD_U16LE, space, H5P_DEFAULT, dcpl, H5P_DEFAULT));
    H5Pclose(dcpl);
    H5Sclose(space);
    H5Sclose(from);
    H5Fclose(file);
    flim_dataset *d = open_good(view, NULL);
    assert_int_equal(flim_dataset_get_info(d)->n, N);
    flim_dataset_close(d);
    /* the third is no HDF5 file: HDF5 would end the view before it */
    FILE *f = fopen(path_of(path, "p_2.h5"), "w");
    fputs("gone", f);
    fclose(f);
    open_bad(view, NULL, view, "p_2.h5", NULL);
}

/* Under a limit of open files that the sources do not fit into: an error that speaks of it, whatever is the view. */
/* A source whose chunks are packed by two deflates; chunk `bad` of /x and /mask, and the label's only one, hold `bytes` zeros,
 * packed, or not where `mask` says so. */
static void write_damaged(const char *path, const char *what, hsize_t bad, uint32_t mask, size_t bytes)
{
    static const char *const names[] = {"x", "mask", "label", "group"};
    static const int axes[] = {4, 3, 1, 1};
    const hsize_t sizes[4][4] = {{N, T, H, W}, {N, H, W}, {N}, {N}}, chunks[4][4] = {{1, T, H, W}, {1, H, W}, {N}, {N}};
    static int64_t ones[N * VOXELS];
    uint8_t *zeros = calloc(bytes, 1), *once = malloc(bytes + 1024), *twice = malloc(bytes + 2048);
    uLongf inner = (uLongf)bytes + 1024, outer = (uLongf)bytes + 2048;
    assert_true(zeros && once && twice);
    assert_int_equal(compress2(once, &inner, zeros, (uLong)bytes, 9), Z_OK);
    assert_int_equal(compress2(twice, &outer, once, inner, 9), Z_OK);
    for (int i = 0; i < N * VOXELS; i++) {
        ones[i] = i % N % 2;
    }
    hid_t file = h5_create(path);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        hid_t space = H5Screate_simple(axes[i], sizes[i], NULL), dcpl = H5Pcreate(H5P_DATASET_CREATE);
        const hsize_t offset[4] = {axes[i] > 1 ? bad : 0};
        assert_true(H5Pset_chunk(dcpl, axes[i], chunks[i]) >= 0 && H5Pset_deflate(dcpl, 9) >= 0 &&
                    H5Pset_deflate(dcpl, 9) >= 0);
        hid_t set = H5Dcreate2(file, names[i], H5T_STD_U16LE, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
        assert_true(set >= 0 && H5Dwrite(set, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, ones) >= 0);
        if (strcmp(names[i], what) == 0) {
            assert_true(
                H5Dwrite_chunk(set, H5P_DEFAULT, mask, offset, mask == 3 ? bytes : outer, mask == 3 ? zeros : twice) >= 0);
        }
        H5Dclose(set);
        H5Pclose(dcpl);
        H5Sclose(space);
    }
    H5Fclose(file);
    free(zeros);
    free(once);
    free(twice);
}

/* HDF5 hands out what lies behind a chunk that is too short, and fills the memory with one that is too long, through a view as
 * well; what the view does not take may be as it likes. */
static void chunks_behind_a_view_have_their_size(void **state)
{
    (void)state;
    static const char *const source[] = {"x", "mask", "label", "group"}, *const name[] = {"counts", "mask", "label", "group"};
    static const int axes[] = {4, 3, 1, 1};
    const hsize_t sizes[4][4] = {{6, T, H, W}, {6, H, W}, {6}, {6}};
    const part parts[] = {{"damaged.h5", 0, 6}};
    char view[256], path[256];
    path_of(view, "over.h5");
    path_of(path, "damaged.h5");
    for (size_t which = 0; which < 4; which++) {
        const size_t right = axes[which] == 4 ? VOXELS * 2 : axes[which] == 3 ? PIXELS * 2 : N * 2;
        const struct {
            size_t bytes;
            uint32_t mask;
            hsize_t bad;
        } cases[] = {{right, 0, 3},     {right, 3, 3},    {right - 2, 0, 3}, {right - 2, 3, 3},
                     {right + 2, 0, 3}, {64 << 20, 0, 3}, {right - 2, 0, 7}};
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
            write_damaged(path, source[which], cases[i].bad, cases[i].mask, cases[i].bytes);
            hid_t file = h5_create(view);
            for (size_t k = 0; k < 4; k++) {
                put_view(file, name[k], source[k], H5T_STD_U16LE, axes[k], sizes[k], parts, 1);
            }
            H5Fclose(file);
            const bool outside = axes[which] > 1 && cases[i].bad >= 6;
            if (cases[i].bytes == right || outside) {
                flim_dataset_close(open_good(view, NULL));
            } else {
                char words[64];
                snprintf(words, sizeof words, "/%s in ", source[which]);
                open_bad(view, NULL, view, words, "damaged.h5", "the chunk at (", NULL);
            }
        }
    }
}

static void too_few_descriptors_are_said(void **state)
{
    (void)state;
    enum { SOURCES = 12 };
    struct rlimit before, few;
    char view[256], path[256];
    part parts[SOURCES];
    static char names[SOURCES][32];
    path_of(view, "many.h5");
    for (int i = 0; i < SOURCES; i++) {
        snprintf(names[i], sizeof names[i], "m_%d.h5", i);
        write_source(path_of(path, names[i]), 1);
        parts[i] = (part){names[i], (hsize_t)i, 1};
    }
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    const hsize_t sizes[3] = {N, H, W};
    static const char *const views[] = {"counts", "label", "group", "mask"};
    for (size_t v = 0; v < 4; v++) {
        hid_t file = h5_create(view);
        if (v > 0) {
            write_counts(file, "counts", N, h5_contiguous);
            put_view(file, views[v], views[v], H5T_STD_U8LE, v == 3 ? 3 : 1, sizes, parts, SOURCES);
        } else {
            put_view(file, "counts", "/x", H5T_STD_U16LE, 4, shape, parts, SOURCES);
        }
        if (v != 1) {
            put_labels(file);
        }
        H5Fclose(file);
        const int next = dup(0);
        close(next);
        int refused = 0, taken = 0;
        for (int spare = 3; spare < 3 * SOURCES; spare++) {
            flim_error err = {0};
            flim_dataset *d = NULL;
            few = before;
            few.rlim_cur = (rlim_t)(next + spare);
            setrlimit(RLIMIT_NOFILE, &few);
            const char *const paths[] = {view};
            const flim_status status = flim_dataset_open(paths, 1, NULL, &d, &err);
            flim_reader *reader = NULL;
            float counts[VOXELS];
            if (status == FLIM_OK && flim_reader_create(d, &reader, &err) == FLIM_OK) {
                for (int64_t cell = 0; cell < N; cell++) { /* what was accepted is read as it is */
                    if (flim_reader_counts(reader, cell, counts, NULL, &err) != FLIM_OK) {
                        fail_msg("%s: %d descriptors: %s", views[v], spare, err.text);
                    }
                    assert_true(counts[0] == (float)(v == 0 ? 1 : 1 + cell * VOXELS % 250));
                }
            }
            flim_reader_destroy(reader);
            flim_dataset_close(d);
            setrlimit(RLIMIT_NOFILE, &before);
            if (status != FLIM_OK) {
                if (status != FLIM_ERROR_DATA || !strstr(err.text, "ulimit -n") || strstr(err.text, "damaged")) {
                    fail_msg("%s: %d descriptors: %s", views[v], spare, err.text);
                }
                refused++;
            }
            taken += status == FLIM_OK;
        }
        assert_true(refused > 0 && taken > 0);
    }
}

/* ---- what a data file may lead to */

/* Each way of leading elsewhere, into `elsewhere` (a file with /x and /label of N cells). */
typedef enum way { LINK, SOFT_LINK, VIEW, VIEW_OF_LABEL, STORAGE, LINK_TO_VIEW, WAYS } way;
static const char *const way_names[] = {"external link",    "soft link to an external link", "view", "view of labels",
                                        "external storage", "link to a file with a view"};

static void lead(const char *path, way how, const char *elsewhere)
{
    char inside[256];
    const hsize_t n = N;
    hid_t file = h5_create(path);
    if (how == LINK_TO_VIEW) {
        hid_t other = h5_create(path_of(inside, "folder/inside.h5"));
        put_view(other, "x", "/x", H5T_STD_U16LE, 4, shape, (part[]){{elsewhere, 0, N}}, 1);
        H5Fclose(other);
        H5Lcreate_external("inside.h5", "/x", file, "counts", H5P_DEFAULT, H5P_DEFAULT);
    } else if (how == LINK || how == SOFT_LINK) {
        H5Lcreate_external(elsewhere, "/x", file, how == LINK ? "counts" : "c", H5P_DEFAULT, H5P_DEFAULT);
        if (how == SOFT_LINK) {
            H5Lcreate_soft("/c", file, "counts", H5P_DEFAULT, H5P_DEFAULT);
        }
    } else if (how == VIEW) {
        put_view(file, "counts", "/x", H5T_STD_U16LE, 4, shape, (part[]){{elsewhere, 0, N}}, 1);
    } else {
        write_counts(file, "counts", N, h5_contiguous);
    }
    if (how == VIEW_OF_LABEL) {
        put_view(file, "label", "label", H5T_STD_U8LE, 1, &n, (part[]){{elsewhere, 0, N}}, 1);
    } else {
        put_labels(file);
    }
    if (how == STORAGE) {
        hid_t space = H5Screate_simple(1, &n, NULL), dcpl = H5Pcreate(H5P_DATASET_CREATE), type = H5Tcopy(H5T_C_S1);
        H5Tset_size(type, 8);
        H5Pset_external(dcpl, elsewhere, 0, 8 * N);
        H5Dclose(H5Dcreate2(file, "name", type, space, H5P_DEFAULT, dcpl, H5P_DEFAULT));
        H5Tclose(type);
        H5Pclose(dcpl);
        H5Sclose(space);
    }
    H5Fclose(file);
}

static void only_the_data_files_folder_is_read(void **state)
{
    (void)state;
    char path[256], outside[256], inside[256], link[256], fifo[256];
    assert_int_equal(mkdir(path_of(path, "folder"), 0700), 0);
    assert_int_equal(mkdir(path_of(path, "folder/below"), 0700), 0);
    assert_int_equal(mkdir(path_of(path, "folder2"), 0700), 0); /* its name begins with the folder's */
    path_of(path, "folder/data.h5");
    write_source(path_of(outside, "folder2/outside.h5"), N);
    write_source(path_of(inside, "folder/below/inside.h5"), N);
    path_of(link, "folder/link.h5");
    assert_int_equal(symlink(outside, link), 0);
    assert_int_equal(mkfifo(path_of(fifo, "folder/fifo"), 0600), 0);
    const flim_dataset_options allow = {.allow_external = true};
    for (way how = 0; how < WAYS; how++) {
        print_message("%s\n", way_names[how]);
        lead(path, how, inside);
        flim_dataset_close(open_good(path, NULL));
        lead(path, how, outside);
        open_bad(path, NULL, path, "folder2/outside.h5", "outside of the data file's folder", "--allow-external", NULL);
        flim_dataset_close(open_good(path, &allow));
        if (how != STORAGE) {
            lead(path, how, "../folder2/outside.h5");
            open_bad(path, NULL, path, "folder2/outside.h5", "--allow-external", NULL);
            flim_dataset_close(open_good(path, &allow));
        }
        lead(path, how, link); /* a link of the file system inside the folder that leads out of it */
        open_bad(path, NULL, path, "folder2/outside.h5", "--allow-external", NULL);
        lead(path, how, fifo); /* does not wait */
        const bool by_driver = how == LINK || how == SOFT_LINK;
        for (int allowed = 0; allowed < 2; allowed++) {
            open_bad(path, allowed ? &allow : NULL, path, "fifo", by_driver ? "no regular file" : "not there", NULL);
        }
    }
    /* The data file itself may be given by a link. */
    char given[256];
    lead(path, VIEW, inside);
    assert_int_equal(symlink(path, path_of(given, "folder2/given.h5")), 0);
    flim_dataset_close(open_good(given, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_cell_comes_from_nowhere),      cmocka_unit_test(no_voxel_comes_from_nowhere),
        cmocka_unit_test(columns_and_masks_have_no_holes), cmocka_unit_test(sources_reach_as_far_as_their_part),
        cmocka_unit_test(patterns_have_no_holes),          cmocka_unit_test(chunks_behind_a_view_have_their_size),
        cmocka_unit_test(too_few_descriptors_are_said),    cmocka_unit_test(only_the_data_files_folder_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, remove_scratch);
}
