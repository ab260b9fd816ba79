#include "report/report.h"

#include "core/alloc.h"
#include "report/report_internal.h"

void flim_report_destroy(flim_report *report)
{
    if (!report) {
        return;
    }
    for (int i = 0; report->run && i < report->n_runs; i++) {
        report_free_run(&report->run[i]);
    }
    for (int i = 0; report->data && i < report->options.n_data; i++) {
        flim_free(report->data[i]);
    }
    flim_free(report->run);
    flim_free(report->comparison);
    flim_free(report->data);
    flim_free(report);
}

/* The writers may need the data again, after the caller's arrays are gone. */
static flim_status copy_options(flim_report *report, const flim_report_options *options, flim_error *err)
{
    report->options = *options;
    report->options.log = NULL;
    report->data = flim_alloc((size_t)options->n_data, sizeof *report->data, err);
    flim_status status = report->data ? FLIM_OK : FLIM_ERROR_MEMORY;
    for (int i = 0; i < options->n_data && status == FLIM_OK; i++) {
        report->data[i] = flim_strdup(options->data[i], err);
        status = report->data[i] ? FLIM_OK : FLIM_ERROR_MEMORY;
    }
    report->options.data = (const char *const *)report->data;
    return status;
}

flim_status flim_report_create(const char *const *run_folders, int n_runs, const flim_report_options *options,
                               flim_report **out, flim_error *err)
{
    *out = NULL;
    if (n_runs < 1) {
        return flim_fail(err, FLIM_ERROR_USAGE, "no run folder was named");
    }
    flim_report *report = flim_alloc(1, sizeof *report, err);
    if (!report) {
        return FLIM_ERROR_MEMORY;
    }
    flim_status status = copy_options(report, options, err);
    report->run = flim_alloc((size_t)n_runs, sizeof *report->run, err);
    report->comparison = flim_alloc((size_t)n_runs, sizeof *report->comparison, err);
    if (!report->run || !report->comparison) {
        status = FLIM_ERROR_MEMORY;
    }
    for (int i = 0; i < n_runs && status == FLIM_OK; i++) {
        report_run *run = &report->run[report->n_runs++];
        status = report_read_run(run_folders[i], options->log, run, err);
        if (status == FLIM_OK) {
            status = report_evaluate(run, options, err);
        }
        if (status == FLIM_OK && i > 0) {
            status = report_compare(&report->run[0], run, &report->comparison[i - 1], err);
        }
    }
    if (status != FLIM_OK) {
        flim_report_destroy(report);
        return status;
    }
    *out = report;
    return FLIM_OK;
}
