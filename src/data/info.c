#include "data/info.h"

#include <inttypes.h>
#include <stdarg.h>

#include "core/alloc.h"
#include "core/try.h"
#include "core/text.h"
#include "data/dataset_internal.h"
#include "data/scan.h"

/* ---- warnings: gathered as lines */

static void add_warning(void *context, flim_log_level level, const char *text)
{
    (void)level;
    flim_data_report *report = context;
    char **list = flim_realloc(report->warning, (size_t)report->n_warnings + 1, sizeof *list, NULL);
    if (list) {
        report->warning = list;
        list[report->n_warnings] = flim_strdup(text, NULL);
        report->n_warnings += list[report->n_warnings] != NULL;
    }
}

static void warn(flim_data_report *report, const char *format, ...) FLIM_PRINTF(2, 3);
static void warn(flim_data_report *report, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    add_warning(report, FLIM_LOG_WARNING, text);
}

static void warn_of_layout(flim_data_report *report)
{
    const flim_dataset *d = report->dataset;
    for (int i = 0; i < d->info.n_files; i++) {
        const flim_source_info *info = &d->file[i].source->info;
        if (!info->best_layout) {
            warn(report,
                 "%s: /counts is stored as %s, which one thread at a time can read; faster: flim_repack %s OUT.h5, or "
                 "h5repack -l "
                 "counts:CHUNK=1x%dx%dx%d -f counts:SHUF -f counts:GZIP=4 %s OUT.h5",
                 d->path[i], info->layout, d->path[i], info->t, info->h, info->w, d->path[i]);
        }
    }
}

/* What train_cv says of the data before it trains, and refuses if left to its defaults. */
static flim_status find(flim_data_report *report, const flim_cell_summary *summary, flim_error *err)
{
    const flim_dataset *d = report->dataset;
    FLIM_TRY(flim_find_in_data(d, summary, report->row, report->n_rows, d->info.groups > 1, &report->findings, err));
    FLIM_TRY(flim_find_copies(&d->info, summary, NULL, &report->findings, err));
    report->inside = flim_alloc((size_t)d->info.n_files, sizeof *report->inside, err);
    for (int i = 0; report->inside && i < d->info.n_files; i++) {
        report->inside[i] = flim_share_inside(d, summary, i);
    }
    const flim_finding *refusal = flim_findings_refusal(&report->findings);
    if (refusal && !report->refused) {
        report->refused = flim_strdup(refusal->text, err);
    }
    return report->inside && (report->refused || !refusal) ? FLIM_OK : FLIM_ERROR_MEMORY;
}

/* ---- making it */

static flim_status copy_paths(flim_data_report *report, const char *const *paths, int n, flim_error *err)
{
    if (!(report->path = flim_alloc((size_t)n, sizeof *report->path, err))) {
        return FLIM_ERROR_MEMORY;
    }
    for (int i = 0; i < n; i++, report->n_paths++) {
        if (!(report->path[i] = flim_strdup(paths[i], err))) {
            return FLIM_ERROR_MEMORY;
        }
    }
    return FLIM_OK;
}

/* Opens the data as train_cv would; if that is refused, at least their cells.  report->dataset stays NULL if
 * neither works. */
static flim_status open_data(flim_data_report *report, const flim_data_report_options *options, flim_error *err)
{
    const char *const *paths = (const char *const *)report->path;
    const flim_log log = {add_warning, report};
    flim_dataset_options open = {.axes = options->axes,
                                 .allow_external = options->allow_external,
                                 .need_labels = true,
                                 .stop = options->stop,
                                 .log = &log,
                                 .hdf5_errors = options->hdf5_errors};
    flim_error why = {0};
    flim_status status = flim_dataset_open(paths, report->n_paths, &open, &report->dataset, &why);
    if (status == FLIM_ERROR_DATA || status == FLIM_ERROR_USAGE) {
        report->refused = flim_strdup(why.text, err);
        open.need_labels = false;
        open.log = NULL;
        status = flim_dataset_open(paths, report->n_paths, &open, &report->dataset, &why);
        if (status == FLIM_ERROR_DATA || status == FLIM_ERROR_USAGE) {
            return FLIM_OK;
        }
    }
    return status == FLIM_OK ? FLIM_OK : flim_fail(err, status, "%s", why.text);
}

flim_status flim_data_report_create(const char *const *paths, int n_paths, const flim_data_report_options *options,
                                    flim_data_report **out, flim_error *err)
{
    flim_status status = FLIM_OK;
    flim_cell_summary *summary = NULL;
    *out = NULL;
    flim_data_report *report = flim_alloc(1, sizeof *report, err);
    if (!report) {
        return FLIM_ERROR_MEMORY;
    }
    FLIM_TRY_DONE(copy_paths(report, paths, n_paths, err));
    FLIM_TRY_DONE(open_data(report, options, err));
    if (report->dataset) {
        if (!(summary = flim_alloc((size_t)report->dataset->info.n, sizeof *summary, err))) {
            status = FLIM_ERROR_MEMORY;
            goto done;
        }
        FLIM_TRY_DONE(flim_scan_cells(report->dataset, options->workers, options->stop, options->most_bad, summary, NULL,
                                      &report->bad, &report->listed, &report->n_listed, err));
        if (report->bad && !report->refused) {
            report->refused = flim_strprintf(err, "%" PRId64 " of %" PRId64 " cells %s bad", report->bad,
                                             report->dataset->info.n, flim_verb(report->bad, "is", "are"));
        }
        FLIM_TRY_DONE(flim_cell_table_make(report->dataset, summary, &report->row, &report->n_rows, err));
        FLIM_TRY_DONE(find(report, summary, err));
        warn_of_layout(report);
    }
done:
    flim_free(summary);
    if (status == FLIM_OK) {
        *out = report;
    } else {
        flim_data_report_free(report);
    }
    return status;
}

void flim_data_report_free(flim_data_report *report)
{
    if (!report) {
        return;
    }
    for (int i = 0; report->path && i < report->n_paths; i++) {
        flim_free(report->path[i]);
    }
    flim_bad_cells_free(report->listed, report->n_listed);
    for (int i = 0; i < report->n_warnings; i++) {
        flim_free(report->warning[i]);
    }
    flim_findings_free(&report->findings);
    flim_dataset_close(report->dataset);
    flim_free(report->path);
    flim_free(report->refused);
    flim_free(report->row);
    flim_free(report->inside);
    flim_free(report->warning);
    flim_free(report);
}
