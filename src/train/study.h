/* A study: the data set of a run, what a scan saw of it, and its folds.
 *
 * For: train_cv.  open, scan, split, check, in this order; then it does not change.
 * Owns: the data set, the scan's results, the folds and the findings; flim_study_close.
 * Errors: FLIM_ERROR_DATA for files and folds, FLIM_ERROR_USAGE for flags that disagree with them; FLIM_INTERRUPTED.
 */
#ifndef FLIM_TRAIN_STUDY_H
#define FLIM_TRAIN_STUDY_H

#include "data/findings.h"
#include "flim/dataset.h"
#include "flim/settings.h"
#include "flim/split.h"
#include "flim/train.h"

typedef struct flim_study {
    flim_dataset *dataset;
    const flim_dataset_info *info;
    char sha256[65]; /* of labels, groups and names */
    flim_cell_summary *summary; /* (n) of the scan; NULL with --no-scan */
    uint64_t *hash; /* (n) of each cell; likewise */
    double *decay; /* (n,T) summed over the mask; likewise */
    flim_split_data split_data; /* views into info */
    flim_splits splits;
    flim_findings findings; /* what is odd in data and folds */
} flim_study;

/* settings->data and, of a pretraining, pretraining_data; cache: where decoded cells stay; processes: that share the host's memory. */
flim_status flim_study_open(flim_study *study, const flim_settings *settings, flim_cache cache, int processes,
                            const volatile int *stop, const flim_log *log, flim_error *err);
/* Reads every cell once, unless --no-scan. */
flim_status flim_study_scan(flim_study *study, const flim_settings *settings, const volatile int *stop, const flim_log *log,
                            flim_error *err);
/* The folds: made, or read from --splits or the run folder; logs their table. */
flim_status flim_study_split(flim_study *study, const flim_settings *settings, const flim_train_hooks *hooks,
                             const flim_log *log, flim_error *err);
/* Fills and logs study->findings.  FLIM_ERROR_DATA if one of them is an error. */
flim_status flim_study_check(flim_study *study, const flim_settings *settings, const flim_log *log, flim_error *err);
void flim_study_close(flim_study *study); /* zeroed is allowed */

/* fold_findings.c: adds to study->findings cells that are in the data more than once, and a hold-out of one class. */
flim_status flim_study_find_in_folds(flim_study *study, flim_error *err);

#endif
