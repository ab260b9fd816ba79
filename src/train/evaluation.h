/* Inference over a list of cells, in the list's order. */
#ifndef FLIM_TRAIN_EVALUATE_H
#define FLIM_TRAIN_EVALUATE_H

#include "flim/dataset.h"
#include "flim/device.h"
#include "flim/loader.h"
#include "flim/predictions.h"
#include "flim/train.h"

/* What runs and where it stands, for progress; nothing is owned. */
typedef struct flim_evaluation {
    flim_program *program;
    flim_loader *loader;
    int outputs; /* K' of the program's network */
    int64_t batch; /* cells a predict call */
    flim_transform transform; /* of every cell; n = 0: none */
    const flim_train_hooks *hooks;
    flim_progress at; /* phase, fold, folds, epoch, epochs of the progress to report */
} flim_evaluation;

/* Logits of the cells part[0..n-1] with the program's present weights; logits: (n,K').  FLIM_INTERRUPTED when a signal came. */
flim_status flim_evaluate(const flim_evaluation *evaluation, const int64_t *part, int64_t n, float *logits, flim_error *err);

/* The predictions of a part from its logits (n,K'): names, groups, labels of the data, classes decided at the threshold. */
flim_status flim_predictions_of(const flim_dataset_info *info, int classes, const int64_t *part, int64_t n,
                                const float *logits, double threshold, flim_predictions *out, flim_error *err);

/* The mean probability of an ensemble as logits, so that metrics read it like any other prediction: the log-odds for two
 * classes, else log-probabilities.  sum: (n,K) sums of `models` probabilities; logits: (n,K'). */
void flim_ensemble_logits(int64_t n, int classes, const double *sum, int models, float *logits);

#endif
