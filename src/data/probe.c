/* The first look at data files in a child process (core/first_look.h says why). */
#include "flim/dataset.h"

#include <stdio.h>

#include "core/alloc.h"
#include "core/first_look.h"
#include "core/try.h"
#include "data/dataset_open.h"
#include "data/format.h"

enum { MOST_CELLS = 64 }; /* read by the child: all of a small file, else some from first to last */

typedef struct files {
    const char *const *paths;
    int n_paths;
    const flim_dataset_options *options;
} files;

/* Opens and reads some cells, then closes everything: damage to the heap shows when it is given back.  Bad values are no matter
 * here, whoever reads the cell will say so. */
static flim_status try_files(void *context, flim_error *err)
{
    const files *f = context;
    flim_dataset *dataset = NULL;
    flim_dataset_options quiet = *f->options;
    quiet.log = NULL;
    quiet.hdf5_errors = NULL;
    quiet.cache = FLIM_CACHE_NONE;
    FLIM_TRY(flim_dataset_open_here(f->paths, f->n_paths, &quiet, true, &dataset, err));
    const flim_dataset_info *info = flim_dataset_get_info(dataset);
    flim_reader *reader = NULL;
    float *counts = flim_alloc((size_t)info->t * (size_t)info->h, (size_t)info->w * sizeof *counts, NULL);
    if (counts && flim_reader_create(dataset, &reader, NULL) == FLIM_OK) {
        int64_t step = info->n <= MOST_CELLS ? 1 : (info->n - 1) / 15;
        for (int64_t cell = 0; cell < info->n; cell += step) {
            flim_reader_counts(reader, cell, counts, NULL, NULL);
        }
    }
    flim_reader_destroy(reader);
    flim_free(counts);
    flim_dataset_close(dataset);
    return FLIM_OK;
}

static flim_status probe(const char *const *paths, int n_paths, const flim_dataset_options *options, bool *ended,
                         flim_error *err)
{
    char version[32], library[48];
    files f = {paths, n_paths, options};
    flim_hdf5_version(version);
    snprintf(library, sizeof library, "HDF5 %s", version);
    const flim_first_look look = {.paths = paths,
                                  .n_paths = n_paths,
                                  .library = library,
                                  .stop = options->stop,
                                  .fork = flim_format_of(paths[0])->fork,
                                  .look = try_files,
                                  .context = &f};
    return flim_look_first(&look, ended, err);
}

flim_status flim_dataset_open(const char *const *paths, int n_paths, const flim_dataset_options *options, flim_dataset **out,
                              flim_error *err)
{
    static const flim_dataset_options none = {0};
    *out = NULL;
    options = options ? options : &none;
    if (n_paths < 1) {
        return flim_fail(err, FLIM_ERROR_USAGE, "no data file was given");
    }
    bool ended = true;
    const flim_status status = options->trusted ? FLIM_OK : probe(paths, n_paths, options, &ended, err);
    if (status != FLIM_OK && !(options->hdf5_errors && ended)) { /* the child's stacks went with it */
        return status;
    }
    return flim_dataset_open_here(paths, n_paths, options, false, out, err);
}
