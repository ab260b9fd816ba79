/* splits.json and nnU-Net's splits_final.json: read or refused with a text, without data, beside cells whose names are texts and
 * beside cells whose names are numbers, by every reading of numbers; what was read passes the check of its own rules or is
 * refused by it, and reads back the same after it is written. */
#include "fuzz.h"

#include <string.h>

#include "flim/split.h"

static void check_written(const flim_splits *splits, const flim_split_data *data)
{
    char path[64];
    snprintf(path, sizeof path, "/dev/shm/flim_fuzz_splits_%d.json", (int)getpid());
    flim_error err = {0};
    flim_splits back;
    if (flim_splits_write(splits, path, &err) != FLIM_OK || flim_splits_read(path, data, &back, &err) != FLIM_OK) {
        fprintf(stderr, "%s\n", err.text);
        abort();
    }
    if (back.n_folds != splits->n_folds || back.n_holdout != splits->n_holdout || back.mode != splits->mode) {
        abort();
    }
    for (int k = 0; k < back.n_folds; k++) {
        const flim_fold *a = &splits->fold[k], *b = &back.fold[k];
        if (a->n_train != b->n_train || a->n_val != b->n_val || a->n_test != b->n_test ||
            memcmp(a->train, b->train, (size_t)a->n_train * sizeof *a->train) != 0 ||
            memcmp(a->test, b->test, (size_t)a->n_test * sizeof *a->test) != 0) {
            abort();
        }
    }
    flim_splits_free(&back);
    unlink(path);
}

static void read_as(flim_splits_by by, const char *path, const flim_split_data *data, const flim_split_data *check)
{
    flim_splits splits;
    flim_error err = {0};
    if (flim_splits_read_by(by, path, data, &splits, &err) != FLIM_OK) {
        if (!err.text[0]) {
            abort();
        }
        return;
    }
    if (flim_splits_check(&splits, check, &err) == FLIM_OK) {
        check_written(&splits, check);
    }
    flim_splits_free(&splits);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const int32_t label[8] = {0, 1, 0, 1, 0, 1, 0, 1};
    static const int64_t group[8] = {0, 0, 1, 1, 2, 2, 3, 3};
    static const char *const group_name[4] = {"a", "b", "c", "d"};
    static const char *const name[8] = {"c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7"};
    static const char *const number[8] = {"7", "0", "1", "12", "3", "-4", "3", "6"};
    const flim_split_data named = {
        .n = 8, .classes = 2, .label = label, .groups = 4, .group = group, .group_name = group_name, .name = name};
    flim_split_data numbered = named;
    numbered.name = number;
    char path[64];
    int fd = flim_fuzz_file(data, size, path);
    for (int by = FLIM_SPLITS_BY_AUTO; by <= FLIM_SPLITS_BY_NAME; by++) {
        read_as((flim_splits_by)by, path, NULL, &named);
        read_as((flim_splits_by)by, path, &named, &named);
        read_as((flim_splits_by)by, path, &numbered, &numbered);
    }
    close(fd);
    return 0;
}
