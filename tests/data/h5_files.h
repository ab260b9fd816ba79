/* Small HDF5 files for tests, written with HDF5's own API. */
#ifndef FLIM_TESTS_H5_FILES_H
#define FLIM_TESTS_H5_FILES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <hdf5.h>

#include "flim/dataset.h"

/* A folder of the test program's own, made at the first call. */
static inline const char *scratch_path(const char *name)
{
    static char folder[64], path[4][256];
    static int next;
    if (!folder[0]) {
        snprintf(folder, sizeof folder, "/tmp/flim_test_XXXXXX");
        assert_non_null(mkdtemp(folder));
    }
    next = (next + 1) % 4;
    snprintf(path[next], sizeof path[next], "%s/%s", folder, name);
    return path[next];
}

static inline void scratch_remove(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", scratch_path(""));
    assert_int_equal(system(command), 0);
}

// The same as a test's or a group's teardown.
static inline int remove_scratch(void **state)
{
    (void)state;
    scratch_remove();
    return 0;
}

static inline hid_t h5_create(const char *path)
{
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(file >= 0);
    return file;
}

typedef struct h5_layout {
    const hsize_t *chunk; /* NULL = contiguous */
    int gzip; /* level, -1 = none */
    int shuffle, fletcher;
} h5_layout;

static const h5_layout h5_contiguous = {NULL, -1, 0, 0};

static inline hid_t h5_new(hid_t file, const char *name, hid_t type, int rank, const hsize_t *sizes, h5_layout layout)
{
    hid_t space = H5Screate_simple(rank, sizes, NULL), dcpl = H5Pcreate(H5P_DATASET_CREATE);
    if (layout.chunk) {
        assert_true(H5Pset_chunk(dcpl, rank, layout.chunk) >= 0);
    }
    if (layout.shuffle) {
        assert_true(H5Pset_shuffle(dcpl) >= 0);
    }
    if (layout.gzip >= 0) {
        assert_true(H5Pset_deflate(dcpl, (unsigned)layout.gzip) >= 0);
    }
    if (layout.fletcher) {
        assert_true(H5Pset_fletcher32(dcpl) >= 0);
    }
    hid_t set = H5Dcreate2(file, name, type, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    assert_true(set >= 0);
    H5Pclose(dcpl);
    H5Sclose(space);
    return set;
}

/* `data` in memory type `memory`, stored as `type`. */
static inline void h5_put(hid_t file, const char *name, hid_t type, hid_t memory, int rank, const hsize_t *sizes,
                          h5_layout layout, const void *data)
{
    hid_t set = h5_new(file, name, type, rank, sizes, layout);
    assert_true(H5Dwrite(set, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0);
    H5Dclose(set);
}

static inline void h5_put_ints(hid_t file, const char *name, hid_t type, int64_t n, const int64_t *values)
{
    hsize_t size = (hsize_t)n;
    h5_put(file, name, type, H5T_NATIVE_INT64, 1, &size, h5_contiguous, values);
}

/* size 0 = variable length */
static inline void h5_put_strings(hid_t file, const char *name, int64_t n, const char *const *text, size_t size,
                                  H5T_str_t pad, H5T_cset_t set)
{
    hid_t type = H5Tcopy(H5T_C_S1);
    hsize_t sizes = (hsize_t)n;
    assert_true(H5Tset_size(type, size ? size : H5T_VARIABLE) >= 0);
    assert_true(H5Tset_cset(type, set) >= 0);
    if (!size) {
        h5_put(file, name, type, type, 1, &sizes, h5_contiguous, text);
    } else {
        char *flat = calloc((size_t)n, size);
        assert_non_null(flat);
        assert_true(H5Tset_strpad(type, pad) >= 0);
        for (int64_t i = 0; i < n; i++) {
            size_t length = strlen(text[i]);
            if (pad == H5T_STR_SPACEPAD) {
                memset(flat + (size_t)i * size, ' ', size);
            }
            memcpy(flat + (size_t)i * size, text[i], length < size ? length : size);
        }
        h5_put(file, name, type, type, 1, &sizes, h5_contiguous, flat);
        free(flat);
    }
    H5Tclose(type);
}

static inline void h5_put_attribute(hid_t file, const char *name, int64_t n, const char *const *text)
{
    hid_t type = H5Tcopy(H5T_C_S1);
    hsize_t size = (hsize_t)n;
    H5Tset_size(type, H5T_VARIABLE);
    hid_t space = H5Screate_simple(1, &size, NULL);
    hid_t attribute = H5Acreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(attribute >= 0 && H5Awrite(attribute, type, text) >= 0);
    H5Aclose(attribute);
    H5Sclose(space);
    H5Tclose(type);
}

/* ---- what the library logs */
typedef struct log_text {
    char text[8192];
    size_t used;
} log_text;

static inline void log_line(void *context, flim_log_level level, const char *text)
{
    log_text *log = context;
    int length = snprintf(log->text + log->used, sizeof log->text - log->used, "%d %s\n", (int)level, text);
    if (length > 0 && log->used + (size_t)length < sizeof log->text) {
        log->used += (size_t)length;
    }
}

/* Opens, or fails the test with the library's own words. */
static inline flim_dataset *open_good(const char *path, const flim_dataset_options *options)
{
    flim_error err = {0};
    flim_dataset *dataset = NULL;
    if (flim_dataset_open(&path, 1, options, &dataset, &err) != FLIM_OK) {
        fail_msg("%s", err.text);
    }
    return dataset;
}

/* Opens and expects FLIM_ERROR_DATA with all of the given words (NULL ends them) in one text of at most two lines. */
static inline void open_bad(const char *path, const flim_dataset_options *options, ...)
{
    flim_error err = {0};
    flim_dataset *dataset = NULL;
    flim_status status = flim_dataset_open(&path, 1, options, &dataset, &err);
    if (status != FLIM_ERROR_DATA) {
        fail_msg("%s: status %s, expected data: %s", path, flim_status_name(status), err.text);
    }
    assert_null(dataset);
    va_list words;
    va_start(words, options);
    for (const char *word = va_arg(words, const char *); word; word = va_arg(words, const char *)) {
        if (!strstr(err.text, word)) {
            fail_msg("'%s' is not in: %s", word, err.text);
        }
    }
    va_end(words);
    assert_null(strchr(err.text, '\n'));
}

#endif
