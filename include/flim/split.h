/* Cross-validation folds: train, validation and test sets.
 *
 * For: the modes of docs/metrics.md.  Every test set is disjoint from the others and together they cover all cells that are
 *      not held out; val is taken from the rest; in group modes no group stands in two parts of a fold.
 * Owns: flim_splits owns its arrays; free with flim_splits_free.  The request's arrays are the caller's.
 * Errors: FLIM_ERROR_USAGE more folds than cells or groups, one class, an unknown group, with the numbers;
 *      FLIM_ERROR_DATA a splits file that does not fit the data; FLIM_INTERRUPTED.
 * Deterministic in the seed, and independent of the row order of the data if cells have names or groups.
 */
#ifndef FLIM_SPLIT_H
#define FLIM_SPLIT_H

#include <stdbool.h>
#include <stdint.h>

#include "flim/choices.h"
#include "flim/log.h"
#include "flim/status.h"

/* What is to be split: plain arrays, so that tests need no file. */
typedef struct flim_split_data {
    int64_t n;
    int classes;
    const int32_t *label; /* (n) */
    const char *const *class_name; /* (classes), for messages; may be NULL */
    int64_t groups;
    const int64_t *group; /* (n) or NULL */
    const char *const *group_name; /* (groups) or NULL */
    const char *const *name; /* (n) or NULL */
} flim_split_data;

struct flim_dataset_info;
/* The same of an open data set, whose arrays it points to. */
flim_split_data flim_split_data_of(const struct flim_dataset_info *info);

typedef struct flim_split_request {
    flim_split_mode mode;
    int folds; /* not used by leave-one-group-out */
    double val_fraction; /* 0 = no inner validation; in group modes the fewest groups that hold every class,
                                         then more while they bring val nearer to the fraction without passing it */
    uint64_t seed;
    const char *const *holdout_group; /* (n_holdout) names, kept out of every fold */
    int n_holdout;
    const bool *unused; /* (n) cells that are to stand in no part; NULL = none */
    /* With test groups: one split, not folds.  Without train groups all other groups train; without val groups the inner
     * validation is taken from the training set.  A name of a list may be several, with commas between them. */
    const char *const *train_group, *const *val_group, *const *test_group;
    int n_train_groups, n_val_groups, n_test_groups;
    const flim_log *log; /* notes and warnings */
    const volatile int *stop; /* polled per fold: FLIM_INTERRUPTED; may be NULL */
} flim_split_request;

struct flim_settings;
/* The request that settings make; log: notes and warnings, may be NULL. */
flim_split_request flim_split_request_of(const struct flim_settings *settings, const flim_log *log);
/* The cells that settings leave out (--exclude, --fraction), for request.unused: *unused (data->n) is the caller's (flim_free), after
 * an error, too; NULL if none is to be left out. */
flim_status flim_split_find_unused(const flim_split_data *data, const struct flim_settings *settings, const flim_log *log,
                                   bool **unused, flim_error *err);

/* Sets in[g] (groups) for the groups that the items name, one each or several with commas between them.  key: for messages. */
flim_status flim_split_mark_groups(const flim_split_data *data, const char *key, const char *const *item, int n, bool *in,
                                   flim_error *err);

typedef struct flim_fold {
    int64_t *train, *val, *test; /* cell indices, sorted ascending */
    int64_t n_train, n_val, n_test;
    bool val_complete; /* every class that train has stands in val: threshold and metrics can be chosen on it */
} flim_fold;

typedef struct flim_splits {
    flim_split_mode mode; /* resolved: never AUTO */
    uint64_t seed;
    int64_t n; /* cells in the data */
    char sha256[65]; /* of the data; empty if unknown */
    int n_folds;
    flim_fold *fold; /* (n_folds) */
    int64_t *holdout; /* (n_holdout) sorted */
    int64_t n_holdout;
    int64_t *unused; /* (n_unused) sorted: in no part */
    int64_t n_unused;
    bool needs_validation; /* read from a file that has no validation sets: see flim_splits_add_validation */
} flim_splits;

flim_status flim_splits_make(const flim_split_data *data, const flim_split_request *request, flim_splits *out,
                             flim_error *err);
void flim_splits_free(flim_splits *splits); /* leaves it zeroed; zeroed is allowed */

/* Cells of the largest training set, 0 without folds: what a batch need not exceed.  With as many, no fold is left with a
 * batch of the one or two cells that it has more than another.  Of all folds, whichever of them a call trains. */
int64_t flim_splits_largest_part(const flim_splits *splits);

/* Marks in unused (data->n) the cells that a file names, one per line, by name or index; '#' begins a comment, and a line may
 * go on after a comma, as a row of flim_info's table does.  FLIM_ERROR_USAGE names the line that names no cell. */
flim_status flim_split_read_excluded(const flim_split_data *data, const char *path, bool *unused, int64_t *count,
                                     flim_error *err);
/* Marks more cells, so that of each class about `fraction` of those not marked before are left (rounded, one at least): drawn
 * by seed, a smaller fraction's within a larger one's. */
flim_status flim_split_draw_fraction(const flim_split_data *data, double fraction, uint64_t seed, bool *unused,
                                     flim_error *err);
/* Takes the cells marked in unused (data->n) out of all parts. */
flim_status flim_splits_leave_out(flim_splits *splits, const flim_split_data *data, const bool *unused, flim_error *err);

/* Asserts the rules: parts sorted, in range, disjoint; tests (of one split: all parts) and unused a partition; groups whole in group modes; none empty but val. */
flim_status flim_splits_check(const flim_splits *splits, const flim_split_data *data, flim_error *err);

/* FLIM_ERROR_USAGE unless the cells held out are those of the request's holdout groups, for splits that come from a file. */
flim_status flim_splits_check_holdout(const flim_splits *splits, const flim_split_data *data,
                                      const flim_split_request *request, flim_error *err);

/* splits.json of docs/file-format.md (plus "holdout", an array of indices). */
flim_status flim_splits_write(const flim_splits *splits, const char *path, flim_error *err);
/* Reads that, or nnU-Net's splits_final.json shape: an array of {"train": [], "val": []} whose val is the fold's test set,
 * as cell names or indices; or one split, {"train": [], "val": [], "test": []}, whose cells need not be all.  With data (which a file of names and nnU-Net's shape need) the splits are checked against it;
 * without it, val_complete stays false.  If the file has no "mode", it is `group` if the file keeps every group whole, else
 * `stratified`.  by: what whole numbers stand for; in a file with a "mode" or the data's sha256 they count cells, so
 * FLIM_SPLITS_BY_NAME is FLIM_ERROR_USAGE there. */
flim_status flim_splits_read_by(flim_splits_by by, const char *path, const flim_split_data *data, flim_splits *out,
                                flim_error *err);
/* The same by FLIM_SPLITS_BY_AUTO. */
flim_status flim_splits_read(const char *path, const flim_split_data *data, flim_splits *out, flim_error *err);
/* Takes a validation set (request's val_fraction, seed, log) out of the training set of every fold that has none. */
flim_status flim_splits_add_validation(flim_splits *splits, const flim_split_data *data, const flim_split_request *request,
                                       flim_error *err);

/* Logs what a user must know before trusting scores on folds that were read (flim_splits_make does so itself): classes absent from a
 * part, groups that stand in training and test sets at once, incomplete or empty validation sets.  validation_asked: false
 * says that none was wanted. */
flim_status flim_splits_warn(const flim_splits *splits, const flim_split_data *data, bool validation_asked,
                             const flim_log *log, flim_error *err);

/* The fold table: cells by class and groups, for train, val and test, line by line into log. */
void flim_splits_table(const flim_splits *splits, const flim_split_data *data, const flim_log *log);

#endif
