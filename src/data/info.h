/* What is in a data file, and whether train_cv will take it: flim_info's substance.
 *
 * For: every cell of one file (or of several as one list) is read on all threads; cells are summed up by group and class, and
 *      what would mislead a training is put into words.
 * Owns: the report owns all it points to; flim_data_report_free.
 * Errors: a file that cannot be opened at all is no failure of the call: `refused` says why.  FLIM_ERROR_MEMORY,
 *      FLIM_INTERRUPTED.
 */
#ifndef FLIM_DATA_REPORT_H
#define FLIM_DATA_REPORT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "data/findings.h"
#include "data/scan.h"
#include "formats/json.h"

typedef struct flim_data_report {
    int n_paths;
    char **path;
    char *refused; /* why train_cv will not take it; NULL = it will */
    flim_dataset *dataset; /* NULL if it could not be opened even without labels */
    int64_t n_rows;
    flim_table_row *row; /* by group, then class; the last one is the sum */
    double *inside; /* (n_files) flim_share_inside */
    int64_t bad; /* cells that cannot be read or hold numbers that are no counts */
    int64_t n_listed;
    flim_bad_cell *listed; /* the first of them, in order */
    int n_warnings;
    char **warning; /* with the notes of opening */
    flim_findings findings;
} flim_data_report;

typedef struct flim_data_report_options {
    const char *axes;
    bool allow_external; /* as flim_dataset_options has it */
    int workers; /* threads that read */
    int64_t most_bad; /* bad cells to list; INT64_MAX = every one */
    const volatile int *stop;
    const flim_log *hdf5_errors; /* as flim_dataset_options has it; may be NULL */
} flim_data_report_options;

flim_status flim_data_report_create(const char *const *paths, int n_paths, const flim_data_report_options *options,
                                    flim_data_report **out, flim_error *err);
void flim_data_report_free(flim_data_report *report); /* NULL is allowed */
/* For people. */
void flim_data_report_print(const flim_data_report *report, FILE *out);
/* The same as JSON; the caller's. */
flim_json *flim_data_report_json(const flim_data_report *report);

#endif
