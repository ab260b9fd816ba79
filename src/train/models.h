/* The weight files that predict averages: found in run folders or named one by one, and checked against each other and the
 * data.  Private to src/train/.
 *
 * Owns: its list; flim_models_free.
 * Errors: FLIM_ERROR_DATA names both sides of what does not fit; FLIM_ERROR_USAGE for files that no one network can hold.
 */
#ifndef FLIM_TRAIN_MODELS_H
#define FLIM_TRAIN_MODELS_H

#include "flim/dataset.h"
#include "flim/log.h"
#include "flim/provenance.h"
#include "flim/weights.h"

typedef struct flim_model {
    char path[4096];
    flim_provenance about; /* its sets of cells are in `seen` */
    double threshold; /* the fold's; of a file that was named alone that of the summary.json beside it, else 0.5 */
} flim_model;

typedef struct flim_models {
    int n;
    flim_model *model; /* (n) */
    flim_weights_info weights; /* of the first: width, classes, shape and names, which all have */
    flim_cell_set seen; /* cells that any of them has seen in training or validation */
    bool any_cells_known, all_cells_known; /* some of them, all of them say which cells these are */
    double threshold; /* the mean */
    bool mask_counts; /* as in training */
    bool tta; /* one of the runs, or the run that a file stands in, evaluated itself so: its thresholds are of such scores */
    int runs; /* run folders among the names */
    char run[4096]; /* the last of them, "" = none */
    char trained_on[65]; /* SHA-256 of its data; "" = not known */
} flim_models;

/* name: (n) run folders and .safetensors files.  encoders: files without a head are taken, too: weights.classes is 0 then. */
flim_status flim_models_find(const char *const *name, int n, bool encoders, const flim_log *log, flim_models *out,
                             flim_error *err);
void flim_models_free(flim_models *models); /* zeroed is allowed */

/* Shape, classes, time range and masks of the data.  any_mask: masks from elsewhere are only warned of. */
flim_status flim_models_check_data(const flim_models *models, const flim_dataset_info *info, bool any_mask,
                                   const flim_log *log, flim_error *err);
/* Warns of cells, by hash (n), that models were trained on, with their number and the first of them; hash NULL: not known. */
void flim_models_warn_of_seen(const flim_models *models, const flim_dataset_info *info, const uint64_t *hash,
                              const flim_log *log);

#endif
