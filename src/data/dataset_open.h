/* flim_dataset_open without the first opening in a child process (probe.c), or, with first_look, in that process. */
#ifndef FLIM_DATA_DATASET_OPEN_H
#define FLIM_DATA_DATASET_OPEN_H

#include "flim/dataset.h"

flim_status flim_dataset_open_here(const char *const *paths, int n_paths, const flim_dataset_options *options,
                                   bool first_look, flim_dataset **out, flim_error *err);

#endif
