/* Prediction with trained weights: what the predict program does.
 *
 * For: a data file through weight files and all folds of runs (the mean of their probabilities), with or without
 *      averaging over the symmetries of a cell's plane; predictions.csv out, metrics if the data has labels.
 * Owns: the request's texts are the caller's.  *out is the caller's (flim_predictions_free).
 * Errors: FLIM_ERROR_DATA if weights and data do not fit (T, H, W, classes, preprocessing), naming both; the rest as
 *      flim_train_cv.
 */
#ifndef FLIM_PREDICT_H
#define FLIM_PREDICT_H

#include "flim/embeddings.h"
#include "flim/explanation.h"
#include "flim/metrics.h"
#include "flim/predictions.h"
#include "flim/train.h"

typedef struct flim_predict_request {
    const char *const *model; /* (n_models) run folders with finished folds, and .safetensors files: their mean */
    int n_models;
    const char *const *data; /* (n_data) HDF5 files */
    int n_data;
    const char *axes; /* "NTYX" or as flim_dataset_options.axes */
    bool allow_external; /* as flim_dataset_options.allow_external */
    const char *device; /* as flim_device_open takes it */
    flim_precision precision;
    int64_t batch, workers, prefetch;
    /* On the probability of class 1; NaN = the mean of the folds' thresholds; of a weight file that of the summary.json beside it,
     * 0.5 if there is none. */
    double threshold;
    bool any_mask; /* accept masks from elsewhere than in training: the file's for the counts', or the other way round */
    bool scan; /* look up which cells the models were trained on; reads every cell once more */
    bool tta; /* logits averaged over the four flips and, if H = W, the four with x and y exchanged; a run that was made with
               * --tta is predicted so without asking */
    /* Gets what the photons of each block do to the logits of each model; NULL = not asked for.  The caller's
     * (flim_explanation_free); zeroed after an error. */
    flim_explanation *explanation;
    /* Gets what each model's head pools of each cell; NULL = not asked for.  Only with it may models be encoders without a head, which
     * predict no classes: *out is empty then.  The caller's (flim_embeddings_free); zeroed after an error. */
    flim_embeddings *embeddings;
    const int64_t *explain_cell; /* (n_explain_cells) the cells to explain, each once; n_explain_cells = 0: all */
    int64_t n_explain_cells;
    int64_t explain_bins, explain_pixels; /* of a block: time bins; pixels along y and x */
} flim_predict_request;

/* metrics (may be NULL) are all NaN if the data has no labels. */
flim_status flim_predict(const flim_predict_request *request, const flim_train_hooks *hooks, flim_predictions *out,
                         flim_metrics *metrics, flim_error *err);

#endif
