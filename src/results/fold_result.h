/* The result of one fold: its summary.json and predictions.csv, as they stand in a run folder.
 *
 * For: train_cv's summary, fold_metrics and predict, which all read finished folds back; and the one form in which results
 *      are written as JSON and CSV.
 * Owns: a result owns its predictions; free with flim_fold_result_free.
 * Errors: FLIM_ERROR_DATA names the file and what is missing in it or does not fit the splits.
 */
#ifndef FLIM_RESULTS_FOLD_RESULT_H
#define FLIM_RESULTS_FOLD_RESULT_H

#include <stdio.h>

#include "formats/json.h"
#include "flim/metrics.h"
#include "flim/predictions.h"
#include "flim/split.h"
#include "results/fold_shift.h"
#include "results/metrics_json.h"

typedef struct flim_fold_result {
    int k; /* number of the fold, from 0 */
    int64_t n_train, n_val, n_test, epochs, best_epoch; /* best_epoch counts from 1 */
    double threshold; /* on the probability of class 1, from the validation set; 0.5 with more classes */
    bool has_start; /* the fold started from weights of a file, */
    int64_t seen; /* which had seen so many of its test cells; -1 = not known */
    flim_predictions predictions; /* of the test cells, in the order of the splits */
    flim_metrics metrics, at_half; /* of the test cells: as predicted, and decided at 0.5 */
    flim_fold_shift shift;
    /* Of the test cells with calibrated scores, and with those corrected to the estimated prior; only if shift.classes > 0. */
    flim_metrics calibrated, corrected;
} flim_fold_result;

/* The number that stands for the final model, which no fold can have; and the name of a fold's folder in that of the run. */
enum { FLIM_FINAL_FOLD = 65535, FLIM_PRETRAINING_FOLD = 65534 };
void flim_fold_folder(int k, char out[32]); /* "fold_K", "final", "pretraining" */
/* The same for people: "fold 3", "the final model", "the pretraining"; out may be what is returned. */
const char *flim_fold_name(int k, char out[32]);

/* The folder is of pretrain, which has an encoder and no results; not that of a fold, which may hold one of these. */
bool flim_run_is_pretraining(const char *run_folder);
/* True if fold_K/DONE stands. */
bool flim_fold_is_done(const char *run_folder, int k);
/* The file of a run folder whose lock its processes share while they are at work. */
#define FLIM_RUN_WORKING ".working"
/* Whether a train_cv is at work in the folder; true if that cannot be told. */
bool flim_run_is_worked_at(const char *run_folder);
/* The threshold of a finished fold, without its predictions. */
flim_status flim_fold_threshold(const char *run_folder, int k, double *threshold, flim_error *err);
/* The same of a summary.json that has been read: of a fold or a final model.  path: for the error. */
flim_status flim_summary_threshold(const flim_json *summary, const char *path, double *threshold, flim_error *err);
/* Reads a finished fold.  part: its place in splits.json, whose test cells the predictions must be, each once and
 * labelled. */
flim_status flim_fold_result_read(const char *run_folder, int k, const flim_fold *part, flim_fold_result *out,
                                  flim_error *err);
void flim_fold_result_free(flim_fold_result *result); /* leaves it zeroed; zeroed is allowed */

/* In one sentence, how many test cells the weights that the folds started from had seen; false if there is nothing to say. */
bool flim_fold_results_seen(const flim_fold_result *results, int n_results, char *text, size_t size);

/* The fold's entry of summary.json, without its predictions.  The caller's. */
flim_json *flim_fold_result_json(const flim_fold_result *result);

/* CSV with the columns `first` (one name or more), n_train ... threshold and every metric.  A row begins with the fields of
 * `first`, which the caller has written; fold is NULL in rows that are of no one fold.  Undefined is empty. */
void flim_result_csv_head(FILE *stream, const char *first);
void flim_result_csv_row(FILE *stream, const flim_fold_result *fold, const double value[FLIM_N_METRICS]);

#endif
