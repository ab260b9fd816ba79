/* Where a run errs: which cells, how sure it was of them, and in what wrong cells differ from right ones.
 *
 * For: fold_metrics --errors.  error_analysis.c, error_differences.c and error_gap.c compute, error_tables.c shows it on a terminal, error_files.c writes it, and
 *      page/section_errors.c puts it on the page.
 * Owns: an analysis owns its arrays; names are views into the run.
 * Errors: FLIM_ERROR_MEMORY.  Data that cannot be read is none: what predictions alone give is there then, and why the rest is
 *      missing.
 */
#ifndef FLIM_REPORT_ERRORS_H
#define FLIM_REPORT_ERRORS_H

#include <stdbool.h>
#include <stdint.h>

#include "cv/metrics/welch.h"
#include "flim/status.h"
#include "report/fit.h"

struct report_run;
struct flim_report_options;

/* What is known of a cell beside its class (data/cell_figures.h). */
typedef enum error_figure {
    ERROR_PHOTONS,
    ERROR_MASK_PIXELS,
    ERROR_PEAK_BIN,
    ERROR_BACKGROUND,
    ERROR_SNR,
    ERROR_LIFETIME,
    ERROR_SPREAD,
    ERROR_N_FIGURES
} error_figure;

/* Some values, NaN left out.  All but n are NaN if none is left, sd of one too (ddof 1). */
typedef struct error_range {
    int64_t n;
    double mean, sd, least, median, most;
} error_range;

/* The cells of one class that are predicted rightly, or wrongly. */
typedef struct error_outcome {
    const char *kind; /* two classes: TP, FN (class 1), TN, FP (class 0); else right, wrong */
    int32_t label;
    bool right;
    int64_t cells;
    error_range confidence; /* probability of the predicted class */
} error_outcome;

/* One figure, wrong cells against right ones. */
typedef struct error_difference {
    error_figure figure;
    int32_t label; /* of the cells that are compared; ERROR_ALL_CLASSES */
    flim_moments wrong, right;
    flim_welch test; /* wrong - right */
    double p_holm; /* over all figures and classes of the run */
    int64_t groups, agree; /* groups with two wrong and two right cells or more; those whose difference has the same sign */
} error_difference;
enum { ERROR_ALL_CLASSES = -1 };

typedef struct error_group {
    const char *name;
    int64_t cells, wrong;
    int64_t tp, tn, fp, fn; /* two classes */
    double confidence; /* mean, of wrong cells */
    error_figure figure; /* the one in which its wrong cells differ most from its right ones, */
    double g; /* by so much; NaN: fewer than two of either, or no figures */
} error_group;

typedef struct report_errors {
    int64_t cells, wrong;
    error_outcome *outcome; /* (n_outcomes) for each class right, then wrong; two classes: TP, FN, TN, FP */
    int n_outcomes;
    error_group *group; /* (n_groups) highest share of wrong cells first */
    int64_t n_groups;
    bool has_figures;
    char *missing; /* why not */
    bool in_ns; /* lifetimes; else bins */
    /* (cells of the data,T) by time bin, summed over the mask: for the page, which need not read them again; NULL = none. */
    double *decay;
    report_fit *fit; /* (n_fit) training against validation: each fold, then the mean of two and more */
    int n_fit;
    error_difference *difference; /* (n_differences) all classes first, then by class; the largest |g| first */
    int64_t n_differences, tests; /* tests: differences that have a p */
} report_errors;

/* Cells with their figures: what differences are computed from. */
typedef struct error_cells {
    int64_t n, groups; /* groups: 0 = none */
    int classes;
    const int32_t *label, *predicted; /* (n) */
    const int64_t *group; /* (n), NULL if groups = 0 */
    const double *value; /* (ERROR_N_FIGURES,n), NaN = not known */
} error_cells;

/* All differences, for all classes together and for each class that has two wrong and two right cells, ranked.  *out is the
 * caller's (flim_free), *n of them, *tests with a p. */
flim_status error_differences(const error_cells *cells, error_difference **out, int64_t *n, int64_t *tests, flim_error *err);

/* *out: flim_free'd by report_errors_free.  The data is that of the run's config.yaml or of options. */
flim_status report_errors_make(const struct report_run *run, const struct flim_report_options *options, report_errors **out,
                               flim_error *err);
void report_errors_free(report_errors *errors); /* NULL is allowed */
/* error_gap.c: out->fit. */
flim_status report_fit_make(const struct report_run *run, report_errors *out, flim_error *err);

/* "photons", "lifetime (ns)" for tables; "photons", "lifetime_ns" for files. */
const char *error_figure_title(error_figure figure, bool in_ns);
const char *error_figure_name(error_figure figure, bool in_ns);
/* What the differences come to, in one sentence. */
void error_verdict(const report_errors *errors, char *text, size_t size);

#endif
