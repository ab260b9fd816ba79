/* Inference over a list of cells, in the list's order, with the weights that the program has.
 *
 * For: validation, test, hold-out and predict; the mean of several models.
 * Owns: nothing; an ensemble owns its arrays, flim_ensemble_free.
 * Errors: those of reading and of the device; FLIM_INTERRUPTED if a signal came.  With several ranks each evaluates a share of
 *      the batches, and an error of one is every one's.
 */
#ifndef FLIM_TRAIN_EVALUATION_H
#define FLIM_TRAIN_EVALUATION_H

#include "flim/dataset.h"
#include "flim/predictions.h"
#include "train/order.h"
#include "train/trainer.h"

typedef struct flim_evaluation {
    const flim_train_hooks *hooks;
    flim_progress at; /* phase, fold, folds, epoch, epochs of the progress to report */
    bool tta; /* each cell in every symmetry of its plane (h,w) that keeps its shape: 8 if h = w, else 4 */
    float *pooled; /* (n,C) of what the head pooled, from the cells as they lie; NULL = not asked for */
} flim_evaluation;

/* Logits (n,K') of the cells cell[0..n-1]; with tta the mean over the symmetries of each cell's logits, summed in double: the
 * symmetries are a group, so a cell and the same cell laid down another way have the same views and the same mean. */
flim_status flim_trainer_evaluate(flim_trainer *trainer, const flim_evaluation *evaluation, const int64_t *cell, int64_t n,
                                  float *logits, flim_error *err);

/* The part of this rank in an evaluation that rank 0 has told it of. */
flim_status flim_trainer_follow_evaluation(flim_trainer *trainer, flim_order *order, flim_error *err);

/* The predictions of cells from their logits (n,K'): names, groups, labels of the data, classes decided at the threshold. */
flim_status flim_predictions_of(const flim_dataset_info *info, int classes, const int64_t *cell, int64_t n,
                                const float *logits, double threshold, flim_predictions *out, flim_error *err);

/* Several models, whose probabilities are averaged. */
typedef struct flim_ensemble {
    int64_t n;
    int classes, models;
    float *parameter, *statistic; /* (P), (S) of the model at work */
    float *logits; /* (n,K') of the last pass */
    double *one, *sum; /* (n,K) probabilities of one pass, and of all */
} flim_ensemble;

flim_status flim_ensemble_create(const flim_trainer *trainer, int classes, int64_t n, flim_ensemble *out, flim_error *err);
void flim_ensemble_free(flim_ensemble *ensemble); /* zeroed is allowed */
/* Reads a weights file into the program: the next model. */
flim_status flim_ensemble_load(flim_ensemble *ensemble, flim_trainer *trainer, const char *path, flim_error *err);
/* Evaluates the cells cell[0..n-1]. */
flim_status flim_ensemble_add(flim_ensemble *ensemble, flim_trainer *trainer, const flim_evaluation *evaluation,
                              const int64_t *cell, flim_error *err);
/* ensemble->logits of the mean probability, so that metrics read it like any other prediction: the log-odds for two
 * classes, else log-probabilities. */
void flim_ensemble_mean(flim_ensemble *ensemble);

#endif
