/* The weights of a finished fold, which must be the fold's own.
 *
 * For: predict, the hold-out ensemble, train_cv --resume and fold_metrics.
 * Errors: FLIM_ERROR_DATA names the file; one of another fold or run is shown with both.
 */
#ifndef FLIM_RESULTS_FOLD_WEIGHTS_H
#define FLIM_RESULTS_FOLD_WEIGHTS_H

#include "flim/provenance.h"

/* SHA-256 of RUN/splits.json, which the weights of its folds carry. */
flim_status flim_fold_splits_sha256(const char *run_folder, char out[65], flim_error *err);

/* The weights in `path`, of which `about` is the provenance, must be those of fold k of this run: by fold, splits and recipe. */
flim_status flim_fold_weights_check(const flim_provenance *about, const char *path, const char *run_folder, int k,
                                    const char *splits_sha256, flim_error *err);

/* The provenance of RUN/fold_K/best.safetensors; the caller's to free.  splits_sha256 as above. */
flim_status flim_fold_weights_about(const char *run_folder, int k, const char *splits_sha256, flim_provenance *out,
                                    flim_error *err);

/* If `path` is RUN/fold_K/best.safetensors of a run folder: true, with the folder (`size` bytes) and K. */
bool flim_fold_of_weights(const char *path, char *run_folder, size_t size, int *k);

#endif
