/* Fuzz target: any bytes as a data file.  Whatever they are, opening and reading must end, with an error or with checked
 * counts, without touching memory that is not ours and without allocating beyond what the file's size allows.
 * Run it with -malloc_limit_mb=256 -max_len=65536.
 */
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include "flim/dataset.h"
#include "fuzz.h"

static void read_some(flim_dataset *dataset)
{
    const flim_dataset_info *info = flim_dataset_get_info(dataset);
    flim_reader *reader = NULL;
    flim_error err = {0};
    int64_t voxels = (int64_t)info->t * info->h * info->w;
    float *counts = malloc((size_t)voxels * sizeof *counts);
    uint8_t *mask = malloc((size_t)info->h * (size_t)info->w);
    if (counts && mask && flim_reader_create(dataset, &reader, &err) == FLIM_OK) {
        for (int64_t cell = 0; cell < info->n && cell < 4; cell++) {
            if (flim_reader_counts(reader, cell, counts, mask, &err) == FLIM_OK) {
                for (int64_t i = 0; i < voxels; i++) {
                    if (!(counts[i] >= 0)) {
                        abort(); /* a value that is no count got through */
                    }
                }
            }
            flim_reader_signal(reader, cell, counts, mask, &err);
        }
    }
    char sha[65];
    flim_dataset_sha256(dataset, sha);
    flim_reader_destroy(reader);
    free(counts);
    free(mask);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const axes[] = {NULL, "NTHW", "XYTN"};
    /* A real file: HDF5 asks for its path, so memfd_create does not do. */
    char path[] = "/dev/shm/flim_fuzz_XXXXXX", path_on_disk[] = "/tmp/flim_fuzz_XXXXXX", *name = path;
    int fd = mkstemp(path);
    if (fd < 0) {
        name = path_on_disk;
        fd = mkstemp(name);
    }
    if (fd < 0 || (size && write(fd, data, size) != (ssize_t)size)) {
        abort();
    }
    close(fd);
    const char *paths[] = {name};
    const flim_dataset_options options = {.axes = axes[size % 3], .cache = size % 2 ? FLIM_CACHE_HOST : FLIM_CACHE_NONE};
    flim_dataset *dataset = NULL;
    flim_error err = {0};
    flim_status status = flim_dataset_open(paths, 1, &options, &dataset, &err);
    if (status == FLIM_OK) {
        read_some(dataset);
        flim_dataset_close(dataset);
    } else if (!err.text[0] || dataset) {
        abort(); /* an error says why, and leaves nothing */
    }
    unlink(name);
    return 0;
}
