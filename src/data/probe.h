/* A first opening of data files in a child process.
 *
 * Why: libhdf5 (1.10 to 1.14 at least) crashes, loops for ever or asks for absurd memory on some damaged files, and can leave
 * its own state broken after a failed open.  The child finds out, under limits that follow the size of the files; the parent
 * opens only what the child has opened, and otherwise hands on the child's error.
 */
#ifndef FLIM_DATA_PROBE_H
#define FLIM_DATA_PROBE_H

#include "flim/dataset.h"

/* FLIM_OK where the files can be opened here, else the error; *ended: the child came to its end with that answer, and did not
 * crash.  Where no child can be made the answer is FLIM_OK. */
flim_status flim_dataset_probe(const char *const *paths, int n_paths, const flim_dataset_options *options, bool *ended,
                               flim_error *err);

/* flim_dataset_open without the probe. */
flim_status flim_dataset_open_here(const char *const *paths, int n_paths, const flim_dataset_options *options,
                                   flim_dataset **out, flim_error *err);

#endif
