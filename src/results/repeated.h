/* Repeated cross-validation: runs of several seeds, as subfolders of one folder, and what they say together.
 *
 * For: train_cv --seeds, which writes summary.json and summary.csv of the folder, and fold_metrics, which computes them anew.
 * Owns: flim_repeated owns its figures; flim_repeated_free.
 * Errors: FLIM_ERROR_DATA names the file; FLIM_ERROR_WRITE.
 *
 * What varies is kept apart.  With m(s,k) a metric of fold k of seed s, K folds per seed and S seeds, M(s) the mean of a
 * seed's folds and V(s) the variance over them (ddof 1):
 *   mean               mean of the M(s)
 *   sd over folds      sqrt(mean of the V(s)): between folds of one seed, other test cells
 *   sd that seeds add  sqrt(max(0, variance of the M(s) - mean of the V(s) / K)): what another seed alone changes, the ANOVA
 *                      estimator of the one-way random-effects model (Searle, Casella, McCulloch: Variance Components, 1992,
 *                      section 3.5).  The folds of a seed share out the same cells, so their errors are not independent, and
 *                      the estimate is often 0.
 *   sd of seed means   sd (ddof 1) of the M(s), as they are
 *   standard error     of the mean: sqrt((1/(S K) + test/train) v), v the variance (ddof 1) of all m(s,k): the corrected
 *                      resampled variance for training sets that overlap (Nadeau and Bengio, Machine Learning 52, 2003; for
 *                      repeated cross-validation Bouckaert and Frank, PAKDD 2004).  More seeds take only the first term down.
 * Undefined values are left out, as in a run's own means.
 */
#ifndef FLIM_RESULTS_REPEATED_H
#define FLIM_RESULTS_REPEATED_H

#include "core/output.h"
#include "flim/log.h"
#include "results/fold_result.h"

enum { FLIM_MOST_SEEDS = 1000 };

typedef struct flim_seeds {
    int n;
    uint64_t seed[FLIM_MOST_SEEDS];
} flim_seeds;

void flim_seed_folder(uint64_t seed, char out[48]); /* "seed_5" */
bool flim_is_seed_folder(const char *name);
/* The seeds whose runs stand in the folder, in rising order; n = 0 if it has none, or is a run itself. */
flim_status flim_seeds_find(const char *folder, flim_seeds *out, flim_error *err);
/* Those of a list as --seeds takes it. */
flim_status flim_seeds_of(const char *text, flim_seeds *out, flim_error *err);
/* Those that the folder's config.yaml names; n = 0 if it has none. */
flim_status flim_seeds_stored(const char *folder, flim_seeds *out, flim_error *err);
/* The same beside those that are there already, in rising order; a config.yaml that cannot be read names none. */
void flim_seeds_add_stored(const char *folder, flim_seeds *seeds);

typedef struct flim_repeated_seed {
    uint64_t seed;
    int n_folds, done, failed;
    double mean[FLIM_N_METRICS], sd[FLIM_N_METRICS]; /* over its folds that are done */
    flim_metrics pooled; /* of all its test cells */
} flim_repeated_seed;

typedef struct flim_repeated {
    char folder[4096];
    flim_repeated_seed *seed; /* (n) those of which a fold is done */
    int n, wanted; /* wanted: seeds that there are to be */
    double mean[FLIM_N_METRICS], sd_folds[FLIM_N_METRICS], sd_seeds[FLIM_N_METRICS], sd_seed_means[FLIM_N_METRICS],
        standard_error[FLIM_N_METRICS];
    double pooled_mean[FLIM_N_METRICS], pooled_sd[FLIM_N_METRICS]; /* over seeds, of the pooled metrics */
    double test_share; /* cells in test for each in train, all folds together */
} flim_repeated;

flim_status flim_repeated_read(const char *folder, const flim_seeds *seeds, flim_repeated *out, flim_error *err);
void flim_repeated_free(flim_repeated *result); /* zeroed is allowed */
/* Every seed's run has a summary, and no fold is left. */
bool flim_repeated_has_ended(const flim_repeated *result);
/* The folder's summary.json is younger than those of its runs. */
bool flim_repeated_is_summed_up(const flim_repeated *result);
/* summary.json and summary.csv of the folder. */
flim_status flim_repeated_write(const flim_repeated *result, flim_error *err);
/* The table, in 80 columns. */
void flim_repeated_print(const flim_repeated *result, const flim_log *log);
/* How these begin, for flim_output.begins. */
#define FLIM_REPEATED_CSV_BEGINS "row,accuracy,"
#define FLIM_REPEATED_JSON_BEGINS "{\n  \"seeds\": ["
/* The same figures into files of a user's name (fold_metrics). */
flim_status flim_repeated_write_json(const flim_repeated *result, const flim_output *output, flim_error *err);
flim_status flim_repeated_write_csv(const flim_repeated *result, const flim_output *output, flim_error *err);

#endif
