/* What the files of the report share.  Private to src/report/.
 *
 * read.c fills a run from its folder, evaluate.c computes rows, groups and findings from it, compare.c pairs two runs; the
 * writers (print.c, files.c, html.c) only look.
 */
#ifndef FLIM_REPORT_PARTS_H
#define FLIM_REPORT_PARTS_H

#include <stdio.h>

#include "flim/interval.h"
#include "flim/metrics.h"
#include "flim/predictions.h"
#include "flim/report.h"
#include "flim/split.h"

enum { REPORT_PATH = 4096, REPORT_BASELINES = 3 };

/* history.csv: the columns that are plotted, (n) each. */
typedef struct report_history {
    int64_t n;
    double *epoch, *train_loss, *val_loss;
} report_history;

typedef struct report_fold {
    int k;
    int64_t n_train, n_val, n_test, epochs, best_epoch;
    double threshold;
    flim_predictions predictions;
    report_history history;
    flim_metrics metrics, at_half;
} report_fold;

/* All out-of-fold predictions together, in the order of the folds. */
typedef struct report_pool {
    int64_t n, groups; /* groups: 0 where the predictions name none */
    int classes;
    int64_t *cell; /* (n) index into the data */
    int *fold; /* (n) number of the fold */
    int32_t *label, *predicted; /* (n) */
    float *logits; /* (n,K') */
    int64_t *group; /* (n) 0..groups-1, by name */
    const char **group_name; /* (groups), the predictions' */
    const char **name; /* (n), the predictions' */
} report_pool;

/* What one line of the tables holds. */
typedef enum report_kind {
    REPORT_FOLD,
    REPORT_MEAN,
    REPORT_SD1,
    REPORT_SD0,
    REPORT_POOLED,
    REPORT_LOW,
    REPORT_HIGH,
    REPORT_HOLDOUT,
    REPORT_BASELINE
} report_kind;

typedef struct report_row {
    report_kind kind;
    char name[64];
    const report_fold *fold; /* of REPORT_FOLD */
    double value[FLIM_N_METRICS];
} report_row;

typedef struct report_group {
    const char *name;
    int64_t n;
    double prevalence, accuracy, sensitivity, specificity, auc; /* prevalence: share of class 1, NaN for K > 2 */
} report_group;

/* Features of each cell of the data, for the baselines. */
typedef struct report_features {
    int64_t n;
    int t;
    double *confounds; /* (n,3): log total photons, mask area, peak bin */
    double *decay; /* (n,T): counts summed over the mask */
    int32_t *label; /* (n) */
} report_features;

typedef struct report_run {
    char folder[REPORT_PATH];
    const char *label; /* last part of the folder's name */
    int classes;
    char **class_name; /* (classes) */
    flim_splits splits;
    report_fold *fold; /* (n_folds) that are done */
    int n_folds;
    flim_predictions holdout; /* n = 0: none */
    report_pool pool;
    report_row *row; /* (n_rows) */
    int n_rows;
    int used[FLIM_N_METRICS]; /* folds in which a metric is defined */
    double delong_auc, delong_se;
    flim_interval delong, interval[FLIM_N_METRICS];
    bool by_group; /* the bootstrap resampled groups */
    report_group *group; /* (pool.groups) worst accuracy first */
    float *baseline_logits[REPORT_BASELINES]; /* (splits.n,K') or NULL */
    int64_t *matrix; /* (classes, classes) true x predicted, pooled */
    char **finding; /* (n_findings) sentences */
    int n_findings;
    bool finding_failed; /* one could not be allocated */
} report_run;

/* Two runs, b against a. */
typedef struct report_comparison {
    const report_run *a, *b;
    bool same_splits;
    flim_paired_test fold_test[FLIM_N_METRICS];
    flim_paired_test cell_test;
    int64_t only_a, only_b; /* cells that only one of them got right */
} report_comparison;

struct flim_report {
    report_run *run; /* (n_runs) */
    int n_runs;
    report_comparison *comparison; /* (n_runs - 1): run i + 1 against run 0 */
    flim_report_options options; /* data and log are only valid in flim_report_create */
    char **data; /* (n_data) copies */
};

extern const char *const report_baseline_names[REPORT_BASELINES];

/* ---- read.c */
flim_status report_read_run(const char *folder, const flim_log *log, report_run *run, flim_error *err);
void report_free_run(report_run *run);
/* Adds a sentence to the run's findings and logs it. */
void report_find(report_run *run, const flim_log *log, flim_log_level level, const char *format, ...) FLIM_PRINTF(4, 5);

/* ---- evaluate.c */
flim_status report_evaluate(report_run *run, const flim_report_options *options, flim_error *err);

/* ---- data.c */
/* Opens the run's data (or options') and fills features; *found = false with a finding where it is absent or another. */
flim_status report_read_features(report_run *run, const flim_report_options *options, report_features *out, bool *found,
                                 flim_error *err);
void report_free_features(report_features *features);

/* A cell as pictures: intensity (H,W), its sum over time, and decay (T), its sum over the mask. */
typedef struct report_picture {
    int t, h, w;
    double *intensity, *decay;
} report_picture;

/* Pictures of the cells named by cell (n); *found as above. */
flim_status report_read_pictures(const report_run *run, const flim_report_options *options, const int64_t *cell, int64_t n,
                                 report_picture *out, bool *found, flim_error *err);

/* ---- compare.c */
flim_status report_compare(const report_run *a, const report_run *b, report_comparison *out, flim_error *err);

/* ---- names for tables */
const char *report_mode(const report_run *run);

#endif
