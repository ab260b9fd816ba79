#include "data/info.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/try.h"
#include "core/median.h"
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

/* ---- the table */

/* Sorts; -1 where there are none. */
static double median(double *values, int64_t n)
{
    return n == 0 ? -1 : flim_median(values, n);
}

static double type_limit(const flim_dataset *d, int64_t cell)
{
    int64_t local;
    flim_number number = flim_dataset_locate(d, cell, &local)->source->info.number;
    if (number.kind == FLIM_FLOAT || number.size > 2) {
        return INFINITY;
    }
    return number.kind == FLIM_UNSIGNED ? (number.size == 1 ? 255 : 65535) : (number.size == 1 ? 127 : 32767);
}

typedef struct keyed {
    int64_t group;
    int32_t label;
    int64_t cell;
} keyed;

static int by_key(const void *a, const void *b)
{
    const keyed *x = a, *y = b;
    int64_t order = x->group != y->group   ? x->group - y->group
                    : x->label != y->label ? x->label - y->label
                                           : x->cell - y->cell;
    return (order > 0) - (order < 0);
}

/* Sums up key[0..n-1]; scratch: (n) doubles. */
static flim_report_row sum_up(const flim_dataset *d, const keyed *key, int64_t n, const flim_cell_summary *summary,
                              double *scratch)
{
    flim_report_row row = {.group = key[0].group, .label = key[0].label, .cells = n};
    double photons = 0, zeros = 0, area = 0;
    int64_t lit = 0;
    for (int64_t i = 0; i < n; i++) {
        const flim_cell_summary *s = &summary[key[i].cell];
        photons += s->photons;
        zeros += (double)s->zero_voxels;
        area += (double)s->mask_pixels;
        row.saturated += s->max_count >= type_limit(d, key[i].cell);
        row.all_zero += s->peak_bin < 0;
        row.empty_mask += s->mask_pixels == 0;
        scratch[i] = s->photons;
    }
    row.photons_median = median(scratch, n);
    for (int64_t i = 0; i < n; i++) {
        if (summary[key[i].cell].peak_bin >= 0) {
            scratch[lit++] = summary[key[i].cell].peak_bin;
        }
    }
    row.peak_bin = median(scratch, lit);
    row.photons_mean = photons / (double)n;
    row.zero_fraction = zeros / (double)n / (double)d->voxels;
    row.mask_area = area / (double)n;
    return row;
}

static flim_status make_table(flim_data_report *report, const flim_cell_summary *summary, flim_error *err)
{
    const flim_dataset *d = report->dataset;
    int64_t n = d->info.n, rows = 1;
    flim_status status = FLIM_OK;
    keyed *key = flim_alloc((size_t)n, sizeof *key, err);
    double *scratch = flim_alloc((size_t)n, sizeof *scratch, err);
    if (!key || !scratch) {
        status = FLIM_ERROR_MEMORY;
        goto done;
    }
    for (int64_t i = 0; i < n; i++) {
        key[i] = (keyed){d->group ? d->group[i] : -1, d->label ? d->label[i] : -1, i};
    }
    qsort(key, (size_t)n, sizeof *key, by_key);
    for (int64_t i = 1; i < n; i++) {
        rows += key[i].group != key[i - 1].group || key[i].label != key[i - 1].label;
    }
    if (!(report->row = flim_alloc((size_t)rows + 1, sizeof *report->row, err))) {
        status = FLIM_ERROR_MEMORY;
        goto done;
    }
    for (int64_t first = 0, end; first < n; first = end) {
        for (end = first; end < n && key[end].group == key[first].group && key[end].label == key[first].label;) {
            end++;
        }
        report->row[report->n_rows++] = sum_up(d, key + first, end - first, summary, scratch);
    }
    report->row[report->n_rows] = sum_up(d, key, n, summary, scratch);
    report->row[report->n_rows].group = report->row[report->n_rows].label = -1;
    report->n_rows++;
done:
    flim_free(scratch);
    flim_free(key);
    return status;
}

/* ---- what would mislead */

static void warn_of_content(flim_data_report *report)
{
    const flim_dataset *d = report->dataset;
    const flim_report_row *row = report->row, *sum = &row[report->n_rows - 1];
    if (sum->all_zero > report->bad) {
        warn(report, "%" PRId64 " of %" PRId64 " cells hold no photon", sum->all_zero - report->bad, sum->cells);
    }
    if (sum->empty_mask > sum->all_zero) {
        warn(report, "%" PRId64 " cells have an empty mask", sum->empty_mask);
    }
    if (sum->saturated) {
        warn(report, "%" PRId64 " cells have voxels at the largest number that %s holds: they may be clipped", sum->saturated,
             d->info.counts_type);
    }
    const int64_t rows = report->n_rows - 1;
    double first_peak = -1, least_peak = 0, most_peak = 0;
    for (int64_t i = 0; i < rows; i++) {
        if (row[i].peak_bin >= 0) {
            least_peak = first_peak < 0 || row[i].peak_bin < least_peak ? row[i].peak_bin : least_peak;
            most_peak = first_peak < 0 || row[i].peak_bin > most_peak ? row[i].peak_bin : most_peak;
            first_peak = row[i].peak_bin;
        }
    }
    if (most_peak - least_peak > 2) {
        warn(report,
             "the decay peaks between bin %g and bin %g, depending on group and class: a shifted instrument response can be "
             "mistaken for a lifetime",
             least_peak, most_peak);
    }
    for (int32_t k = 0; d->label && k < d->info.classes; k++) {
        int64_t cells = 0;
        double photons = 0, area = 0, rest_photons = 0, rest_area = 0;
        for (int64_t i = 0; i < rows; i++) {
            bool own = row[i].label == k;
            cells += own ? row[i].cells : 0;
            *(own ? &photons : &rest_photons) += row[i].photons_mean * (double)row[i].cells;
            *(own ? &area : &rest_area) += row[i].mask_area * (double)row[i].cells;
        }
        double rest = (double)(sum->cells - cells);
        if (cells && rest > 0) {
            double bright = photons / (double)cells / (rest_photons / rest),
                   large = area / (double)cells / (rest_area / rest);
            if (bright > 1.5 || bright < 1 / 1.5) {
                warn(report, "class %s has %.2f times the photons of the others: brightness alone may tell it",
                     d->class_name[k], bright);
            }
            if (large > 1.5 || large < 1 / 1.5) {
                warn(report, "class %s has %.2f times the mask area of the others: size alone may tell it", d->class_name[k],
                     large);
            }
        }
    }
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
static flim_status find(flim_data_report *report, flim_error *err)
{
    FLIM_TRY(flim_find_in_groups(&report->dataset->info, report->dataset->info.groups > 1, &report->findings, err));
    const flim_finding *refusal = flim_findings_refusal(&report->findings);
    if (refusal && !report->refused && !(report->refused = flim_strdup(refusal->text, err))) {
        return FLIM_ERROR_MEMORY;
    }
    return FLIM_OK;
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
    flim_dataset_options open = {
        .axes = options->axes, .need_labels = true, .log = &log, .hdf5_errors = options->hdf5_errors};
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
            report->refused =
                flim_strprintf(err, "%" PRId64 " of %" PRId64 " cells are bad", report->bad, report->dataset->info.n);
        }
        FLIM_TRY_DONE(make_table(report, summary, err));
        FLIM_TRY_DONE(find(report, err));
        warn_of_content(report);
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
    flim_free(report->warning);
    flim_free(report);
}
