/* Reports on finished runs: what fold_metrics shows.
 *
 * For: one or more run folders.  Everything is recomputed from the folds' predictions.csv; summary.json is only compared.
 *      Beside the network stand intervals, the baselines whose predictions train_cv left in the folder, and a table of
 *      groups; two or more runs are compared in pairs with the first.
 * Owns: a report owns all it read.  Errors: FLIM_ERROR_DATA for a folder that is no run, or predictions that do not fit its
 *      splits; FLIM_ERROR_WRITE; FLIM_ERROR_MEMORY.  What a reader must know but is no error goes to the log as a warning.
 */
#ifndef FLIM_REPORT_H
#define FLIM_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "core/output.h"
#include "flim/log.h"
#include "flim/status.h"

typedef struct flim_report flim_report;

typedef struct flim_report_options {
    const char *const *data; /* (n_data) HDF5 files to read instead of those of the run's config.yaml */
    int n_data;
    bool pictures; /* read the data for the HTML page's pictures of cells; with `errors` it is read once for both */
    const char *explanation; /* file of predict --explain to show with the cells; NULL = none */
    const char
        *embeddings; /* file of predict --embeddings of the first run's data, whose components are shown; NULL = none */
    bool errors; /* analyse them: reads the data, if it is there */
    int workers; /* threads that read it */
    int replicates; /* of the bootstrap; 0 = no intervals */
    uint64_t seed; /* of the bootstrap */
    bool unfinished; /* a run of which no fold is done yet is no error: the page shows what there is */
    int refresh; /* the page asks to be loaded again after so many seconds, unless the runs are complete; 0 = never */
    const flim_log *log; /* notes and warnings; may be NULL */
} flim_report_options;

flim_status flim_report_create(const char *const *run_folders, int n_runs, const flim_report_options *options,
                               flim_report **out, flim_error *err);
/* Every fold of every run is done or has failed, and summary.json holds those that are done: nothing more will come. */
bool flim_report_is_complete(const flim_report *report);
int flim_report_first_unfinished(const flim_report *report); /* the first run that is not so; -1 = none */
/* Every run has a fold that is done: there are results. */
bool flim_report_has_results(const flim_report *report);
void flim_report_destroy(flim_report *report); /* NULL is allowed */

/* The tables for a terminal, line by line; columns: of it, for which the table of the metrics is parted if need be; 0 = as wide
 * as it is. */
flim_status flim_report_print(const flim_report *report, int columns, const flim_log *log, flim_error *err);
/* One row per fold, then mean, sd, pooled, interval ends, those at threshold 0.5, holdout, baselines; undefined is empty.
 * All runs below each other.  With options->errors the analysis of the errors instead. */
flim_status flim_report_write_csv(const flim_report *report, const flim_output *output, flim_error *err);
flim_status flim_report_write_json(const flim_report *report, const flim_output *output, flim_error *err);
flim_status flim_report_write_markdown(const flim_report *report, const flim_output *output, flim_error *err);
/* One self-contained page; plots by gnuplot: FLIM_ERROR if it is not installed or fails. */
flim_status flim_report_write_html(const flim_report *report, const flim_output *output, flim_error *err);

/* How each of these files begins, for flim_output.begins. */
#define FLIM_REPORT_CSV_BEGINS "run,row,"
#define FLIM_REPORT_JSON_BEGINS "{\n  \"runs\": ["
#define FLIM_REPORT_MARKDOWN_BEGINS "# Cross-validation report\n"
#define FLIM_REPORT_HTML_BEGINS                                                                                              \
    "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>Cross-validation report: "

#endif
