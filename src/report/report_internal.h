/* What the files of the report share.  Private to src/report/.
 *
 * read_runs.c fills a run from its folder; evaluate_runs.c computes rows and findings from it, group_tables.c what is by
 * group, calibration_table.c how its probabilities fit, error_analysis.c, error_differences.c and error_gap.c where it errs; check_runs.c compares summary.json with it, compare_runs.c pairs two runs, or a run and its baselines.  The writers
 * (report_tables.c, report_files.c, html.c) only read it.
 */
#ifndef FLIM_REPORT_INTERNAL_H
#define FLIM_REPORT_INTERNAL_H

#include <stdio.h>

#include "cv/metrics/interval.h"
#include "flim/explanation.h"
#include "flim/dataset.h"
#include "formats/json.h"
#include "report/errors.h"
#include "report/principal.h"
#include "report/report.h"
#include "results/baseline_results.h"

enum { REPORT_PATH = 4096 };

/* history.csv: the columns that are shown. */
typedef enum report_column {
    REPORT_EPOCH,
    REPORT_LR,
    REPORT_TRAIN_LOSS,
    REPORT_VAL_LOSS,
    REPORT_TRAIN_ACCURACY,
    REPORT_VAL_ACCURACY,
    REPORT_VAL_AUC,
    REPORT_GRAD_NORM, /* the mean of the epoch's updates; before there was one, of the last update */
    REPORT_SECONDS,
    REPORT_IT_PER_S,
    REPORT_PEAK_BYTES,
    REPORT_N_COLUMNS
} report_column;

typedef struct report_history {
    int64_t n; /* epochs; 0 = there is no history */
    double *column[REPORT_N_COLUMNS]; /* (n); NaN where a field is empty or the file has no such column */
} report_history;

/* What one line of the tables holds. */
typedef enum report_kind {
    REPORT_FOLD,
    REPORT_MEAN,
    REPORT_SD1,
    REPORT_SD0,
    REPORT_MEAN_HALF, /* at threshold 0.5; two classes only */
    REPORT_POOLED,
    REPORT_LOW,
    REPORT_HIGH,
    REPORT_POOLED_HALF, /* likewise */
    REPORT_CALIBRATED, /* pooled */
    REPORT_CORRECTED, /* pooled, to the estimated prior of each test set */
    REPORT_HOLDOUT,
    REPORT_BASELINE
} report_kind;

typedef struct report_row {
    report_kind kind;
    char name[64];
    const flim_fold_result *fold; /* of REPORT_FOLD */
    int baseline; /* of REPORT_BASELINE */
    double value[FLIM_N_METRICS];
} report_row;

typedef struct report_group {
    const char *name;
    int64_t n, right;
    double prevalence, accuracy, sensitivity, specificity, auc; /* prevalence: share of class 1, NaN for K > 2 */
} report_group;

/* How well probabilities fit, of one fold's test set or of all: as the network gives them, and calibrated on the validation set. */
enum { REPORT_N_CALIBRATION = 3 };
extern const flim_metric report_calibration_metric[REPORT_N_CALIBRATION]; /* ECE, Brier score, log loss */

typedef struct report_calibration {
    char name[32]; /* "fold 2", "mean", "pooled" */
    int fold; /* -1: of no one fold */
    double temperature; /* of the fold, or their mean; NaN = none: the fold has no calibration */
    double before[REPORT_N_CALIBRATION], after[REPORT_N_CALIBRATION]; /* likewise; the mean is over folds that have both */
} report_calibration;

typedef struct report_finding {
    flim_log_level level;
    char *text; /* one sentence */
} report_finding;

/* Two predictors of the same cells in the same folds, b against a. */
typedef struct report_pair {
    bool paired; /* false: the rest is empty */
    flim_paired_test fold_test[FLIM_N_METRICS];
    flim_paired_test cell_test;
    int64_t only_a, only_b; /* cells that only one of them got right */
} report_pair;

typedef struct report_run {
    char folder[REPORT_PATH];
    const char *label; /* last part of the folder's name */
    int classes;
    char **class_name; /* (classes) */
    flim_splits splits;
    flim_fold_result *fold; /* (n_folds) that are done */
    int n_folds;
    report_history *history; /* (splits.n_folds) by number of the fold, also of those that still train */
    flim_predictions holdout; /* n = 0: none */
    flim_pool pool;
    char splits_sha256[65]; /* of splits.json, which weights name */
    int n_failed; /* folds */
    bool summarised; /* summary.json holds the folds that are done */
    int64_t groups; /* 0 if the predictions name none */
    int64_t shared_groups; /* that stand in training and test sets at once */
    int64_t *group_of; /* (pool.n) 0..groups-1, by name */
    const char **group_name; /* (groups) views into the predictions */
    report_group *group; /* (groups) worst accuracy first */
    report_row *row; /* (n_rows) */
    int n_rows;
    report_calibration *calibration; /* (n_calibration) folds, mean, pooled */
    int n_calibration;
    int used[FLIM_N_METRICS]; /* folds in which a metric is defined */
    double delong_auc, delong_se;
    flim_interval delong, interval[FLIM_N_METRICS];
    bool by_group; /* the bootstrap resampled groups */
    flim_predictions baseline[FLIM_N_BASELINES]; /* in the pool's order; n = 0: none */
    report_pair against[FLIM_N_BASELINES]; /* the network against each */
    int64_t *matrix; /* (classes, classes) true x predicted, pooled */
    report_errors *errors; /* NULL: not asked for */
    report_finding *finding; /* (n_findings) */
    int n_findings;
    bool finding_failed; /* one could not be allocated */
} report_run;

/* Two runs, b against a. */
typedef struct report_comparison {
    const report_run *a, *b;
    bool same_data; /* the same cells and labels; without pair.paired they are split otherwise */
    report_pair pair;
} report_comparison;

struct flim_report {
    report_run *run; /* (n_runs) */
    int n_runs;
    report_comparison *comparison; /* (n_runs - 1): run i + 1 against run 0 */
    flim_report_options options; /* data and log are only valid in flim_report_create */
    char **data; /* (n_data) copies */
    flim_explanation explanation; /* n = 0: none */
    flim_embeddings embeddings; /* of the first run's data; n = 0: none */
    report_components components; /* of these */
};

/* ---- read_runs.c */
/* unfinished: n_folds may become 0; then only folder, label, splits and history are filled. */
flim_status report_read_run(const char *folder, bool unfinished, const flim_log *log, report_run *run, flim_error *err);
void report_free_run(report_run *run);
/* Adds a sentence to the run's findings and logs it. */
void report_find(report_run *run, const flim_log *log, flim_log_level level, const char *format, ...) FLIM_PRINTF(4, 5);

/* ---- evaluate_runs.c */
flim_status report_evaluate(report_run *run, const flim_report_options *options, flim_error *err);

/* The row of that kind, NULL if there is none; of REPORT_BASELINE and REPORT_FOLD the first. */
const report_row *report_row_of(const report_run *run, report_kind kind);
/* The row of a baseline; NULL if it has not been read. */
const report_row *report_baseline_row(const report_run *run, int baseline);

/* ---- calibration_table.c: after the rows */
flim_status report_calibration_rows(report_run *run, flim_error *err);

/* ---- group_tables.c */
/* Numbers the groups that the predictions name. */
flim_status report_number_groups(report_run *run, flim_error *err);
/* Warns if groups stand in training and test sets at once. */
flim_status report_find_shared_groups(report_run *run, const flim_log *log, flim_error *err);
flim_status report_group_rows(report_run *run, flim_error *err);

/* ---- check_runs.c */
/* Finds the numbers of summary.json that are not those of the rows. */
flim_status report_check_summary(report_run *run, const flim_log *log);

/* ---- run_data.c */
/* Opens the data of a run: options' files, else those of its config.yaml.  *dataset = NULL if they cannot be opened or are
 * others; why gets the reason. */
flim_status report_open_data(const report_run *run, const flim_report_options *options, flim_dataset **dataset,
                             flim_error *why, flim_error *err);

/* ---- check_embeddings.c */
/* FLIM_ERROR_DATA for embeddings of other cells than the run's (the first that differs is named), or of a model that is not the
 * run's as far as the file says. */
flim_status report_check_embeddings(const report_run *run, const char *path, const flim_embeddings *embeddings,
                                    flim_error *err);

/* ---- compare_runs.c */
/* value[m * splits.n_folds + k] of metric m in fold k, of a baseline that has been read or of the network (baseline = -1); NaN
 * if the fold is not done. */
flim_status report_fold_values(const report_run *run, int baseline, double *value, flim_error *err);
/* Mean and sd (ddof 1) of one metric over those folds. */
flim_status report_spread(const report_run *run, int baseline, flim_metric m, double *mean, double *sd, flim_error *err);
flim_status report_compare(const report_run *a, const report_run *b, report_comparison *out, flim_error *err);
/* What a reader must know of two runs that are not paired: one or two sentences into text. */
void report_explain_unpaired(const report_comparison *c, char *text, size_t bytes);
/* The network against a baseline that has been read; folds in which one is undefined are left out. */
flim_status report_compare_with_baseline(const report_run *run, int baseline, report_pair *out, flim_error *err);

/* ---- report_files.c */
/* A name or a sentence as part of a Markdown table. */
void report_markdown_cell(FILE *stream, const char *text);

/* ---- component_tables.c: if report->components.n > 0 */
/* "fold 2" or "final model" if the file says so, else "model 2". */
const char *component_model_name(const flim_report *report, int model, char text[32]);
void component_tables_print(const flim_report *report, const flim_log *log);
flim_json *component_json(const flim_report *report); /* the caller's */
void component_markdown_write(FILE *stream, const flim_report *report);

/* ---- error_tables.c, error_files.c */
void error_tables_print(const report_run *run, const flim_log *log);
flim_status error_csv_write(const flim_report *report, const flim_output *output, flim_error *err);
flim_json *error_json(const report_run *run); /* the caller's */
void error_markdown_write(FILE *stream, const report_run *run);

static inline const char *report_mode(const report_run *run)
{
    return flim_split_mode_name(run->splits.mode);
}

#endif
