/* A report: runs read, evaluated, and compared with the first. */
#include <string.h>

#include "core/alloc.h"
#include "core/try.h"
#include "report/report_internal.h"

bool flim_report_is_complete(const flim_report *report)
{
    return flim_report_first_unfinished(report) < 0;
}

int flim_report_first_unfinished(const flim_report *report)
{
    for (int i = 0; i < report->n_runs; i++) {
        const report_run *run = &report->run[i];
        if (run->n_folds + run->n_failed < run->splits.n_folds || (!run->summarised && run->n_folds > 0)) {
            return i;
        }
    }
    return -1;
}

bool flim_report_has_results(const flim_report *report)
{
    bool any = true;
    for (int i = 0; i < report->n_runs; i++) {
        any = any && report->run[i].n_folds > 0;
    }
    return any;
}

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
    flim_explanation_free(&report->explanation);
    report_components_free(&report->components);
    flim_embeddings_free(&report->embeddings);
    flim_free(report->data);
    flim_free(report);
}

/* The writers may need the data again, after the caller's arrays are gone. */
static flim_status copy_options(flim_report *report, const flim_report_options *options, flim_error *err)
{
    report->options = *options;
    report->options.log = NULL;
    report->options.explanation = NULL;
    report->options.embeddings = NULL;
    report->data = flim_alloc((size_t)options->n_data, sizeof *report->data, err);
    FLIM_TRY(report->data ? FLIM_OK : FLIM_ERROR_MEMORY);
    for (int i = 0; i < options->n_data; i++) {
        report->data[i] = flim_strdup(options->data[i], err);
        FLIM_TRY(report->data[i] ? FLIM_OK : FLIM_ERROR_MEMORY);
    }
    report->options.data = (const char *const *)report->data;
    return FLIM_OK;
}

/* The explanation must be of the data of a run. */
static flim_status read_explanation(flim_report *report, const char *path, flim_error *err)
{
    bool fits = false;
    FLIM_TRY(flim_explanation_read(path, &report->explanation, err));
    for (int i = 0; i < report->n_runs; i++) {
        fits = fits || strcmp(report->run[i].splits.sha256, report->explanation.data_sha256) == 0;
    }
    return fits ? FLIM_OK
                : flim_fail(err, FLIM_ERROR_DATA, "%s explains cells of other data than those of %s", path,
                            report->run[0].folder);
}

/* The embeddings must be of the first run's data, and not of another run's models. */
static flim_status read_embeddings(flim_report *report, const char *path, flim_error *err)
{
    FLIM_TRY(flim_embeddings_read(path, &report->embeddings, err));
    FLIM_TRY(report_check_embeddings(&report->run[0], path, &report->embeddings, err));
    return report_components_make(&report->embeddings, &report->components, err);
}

static flim_status fill(flim_report *report, const char *const *run_folders, int n_runs, const flim_report_options *options,
                        flim_error *err)
{
    report->run = flim_alloc((size_t)n_runs, sizeof *report->run, err);
    report->comparison = flim_alloc((size_t)n_runs, sizeof *report->comparison, err);
    FLIM_TRY(report->run && report->comparison ? FLIM_OK : FLIM_ERROR_MEMORY);
    FLIM_TRY(copy_options(report, options, err));
    for (int i = 0; i < n_runs; i++) {
        report_run *run = &report->run[report->n_runs++];
        FLIM_TRY(report_read_run(run_folders[i], options->unfinished, options->log, run, err));
        FLIM_TRY(run->n_folds > 0 ? report_evaluate(run, options, err) : FLIM_OK);
        FLIM_TRY(run->n_folds > 0 && options->errors ? report_errors_make(run, options, &run->errors, err) : FLIM_OK);
        if (i > 0) {
            FLIM_TRY(report_compare(&report->run[0], run, &report->comparison[i - 1], err));
        }
    }
    FLIM_TRY(options->explanation ? read_explanation(report, options->explanation, err) : FLIM_OK);
    return options->embeddings ? read_embeddings(report, options->embeddings, err) : FLIM_OK;
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
    const flim_status status = fill(report, run_folders, n_runs, options, err);
    if (status != FLIM_OK) {
        flim_report_destroy(report);
        return status;
    }
    *out = report;
    return FLIM_OK;
}
