/* The baselines of a run: simple models in its folds, whose predictions train_cv leaves beside the network's.
 *
 * For: train_cv, which fits them and writes baseline_*.csv, and fold_metrics, which reads them back.
 * Errors: FLIM_ERROR_DATA for a file that cannot be read.
 */
#ifndef FLIM_RESULTS_BASELINES_H
#define FLIM_RESULTS_BASELINES_H

#include "results/pool.h"

enum { FLIM_BASELINE_PRIOR, FLIM_BASELINE_CONFOUNDS, FLIM_BASELINE_DECAY, FLIM_N_BASELINES };

const char *flim_baseline_name(int baseline); /* "confounds": in keys and file names, baseline_confounds.csv */
const char *flim_baseline_title(int baseline); /* for tables: "brightness, size, peak bin" */

/* Reads baseline_*.csv of a run folder: *found = false, with the reason in `why`, if it is absent or holds other cells or
 * labels than the pool of the network's predictions, in their order. */
flim_status flim_baseline_read(const char *run_folder, int baseline, const flim_pool *pool, flim_predictions *out,
                               bool *found, flim_error *why, flim_error *err);

/* True, with a sentence, if brightness, size and peak bin alone reach four fifths of what the network reaches beyond chance:
 * in pooled AUC, or balanced accuracy if an AUC is undefined; and only if they are clearly (0.1) above chance. */
bool flim_confounds_suffice(int classes, const double network[FLIM_N_METRICS], const double confounds[FLIM_N_METRICS],
                            char *sentence, size_t bytes);
/* True, with a sentence, if a logistic regression on the summed decay, which sees no space, reaches no less than the network in
 * pooled AUC, or balanced accuracy if an AUC is undefined; from 0.05 more on the sentence says "better than". */
bool flim_decay_suffices(const double network[FLIM_N_METRICS], const double decay[FLIM_N_METRICS], char *sentence,
                         size_t bytes);
/* The simple model with the highest pooled value of a metric, of those that look at the data; -1 if it is undefined in all. */
int flim_best_simple_model(const double baseline[FLIM_N_BASELINES][FLIM_N_METRICS], flim_metric metric);

#endif
