/* From a run's predictions, and its data where it is there, to the analysis of its errors. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/median.h"
#include "core/try.h"
#include "data/cell_figures.h"
#include "report/report_internal.h"

static const struct {
    const char *title, *name, *title_bins, *name_bins; /* the latter where the length of a bin is not known */
} figures[ERROR_N_FIGURES] = {[ERROR_PHOTONS] = {"photons", "photons", NULL, NULL},
                              [ERROR_MASK_PIXELS] = {"mask, pixels", "mask_pixels", NULL, NULL},
                              [ERROR_PEAK_BIN] = {"peak bin", "peak_bin", NULL, NULL},
                              [ERROR_BACKGROUND] = {"background", "background_per_bin", NULL, NULL},
                              [ERROR_SNR] = {"SNR", "snr", NULL, NULL},
                              [ERROR_LIFETIME] = {"lifetime, ns", "lifetime_ns", "lifetime, bins", "lifetime_bins"},
                              [ERROR_SPREAD] = {"spread, pixels", "spread_pixels", NULL, NULL}};

const char *error_figure_title(error_figure figure, bool in_ns)
{
    return in_ns || !figures[figure].title_bins ? figures[figure].title : figures[figure].title_bins;
}

const char *error_figure_name(error_figure figure, bool in_ns)
{
    return in_ns || !figures[figure].name_bins ? figures[figure].name : figures[figure].name_bins;
}

/* values (n) without NaN; sorts them. */
static error_range range_of(double *values, int64_t n)
{
    flim_moments moments = {0};
    error_range out = {.n = n, .mean = NAN, .sd = NAN, .least = NAN, .median = NAN, .most = NAN};
    if (n > 0) {
        out.median = flim_median(values, n);
        out.least = values[0];
        out.most = values[n - 1];
        for (int64_t i = 0; i < n; i++) {
            flim_moments_add(&moments, values[i]);
        }
        out.mean = moments.mean;
        out.sd = flim_moments_sd(&moments);
    }
    return out;
}

/* ---- from predictions alone */

static const char *kind_of(int classes, int32_t label, bool right)
{
    if (classes > 2) {
        return right ? "right" : "wrong";
    }
    return label == 1 ? (right ? "TP" : "FN") : right ? "TN" : "FP";
}

/* confidence: (n) in the pool's order; scratch (n). */
static flim_status make_outcomes(const report_run *run, const double *confidence, double *scratch, report_errors *out,
                                 flim_error *err)
{
    const flim_pool *p = &run->pool;
    out->outcome = flim_alloc(2 * (size_t)run->classes, sizeof *out->outcome, err);
    FLIM_TRY(out->outcome ? FLIM_OK : FLIM_ERROR_MEMORY);
    for (int k = 0; k < 2 * run->classes; k++) {
        const bool right = k % 2 == 0;
        const int32_t label = run->classes == 2 ? 1 - k / 2 : k / 2; /* the positive class first */
        error_outcome *o = &out->outcome[out->n_outcomes++];
        int64_t finite = 0;
        *o = (error_outcome){.kind = kind_of(run->classes, label, right), .label = label, .right = right};
        for (int64_t i = 0; i < p->n; i++) {
            if (p->label[i] == label && (p->predicted[i] == label) == right) {
                o->cells++;
                scratch[finite] = confidence[i];
                finite += !isnan(confidence[i]);
            }
        }
        o->confidence = range_of(scratch, finite);
        out->cells += o->cells;
        out->wrong += right ? 0 : o->cells;
    }
    return FLIM_OK;
}

static int most_wrong_first(const void *a, const void *b)
{
    const error_group *x = a, *y = b;
    const double share_x = (double)x->wrong / (double)x->cells, share_y = (double)y->wrong / (double)y->cells;
    if (share_x != share_y) {
        return share_x > share_y ? -1 : 1;
    }
    return strcmp(x->name, y->name);
}

/* The figure in which the wrong cells of group g differ most from its right ones. */
static void find_most_different(const error_cells *cells, int64_t g, error_group *group)
{
    for (int f = 0; f < ERROR_N_FIGURES; f++) {
        const double *value = cells->value + f * cells->n;
        flim_moments of[2] = {{0}};
        for (int64_t i = 0; i < cells->n; i++) {
            if (cells->group[i] == g && !isnan(value[i])) {
                flim_moments_add(&of[cells->label[i] == cells->predicted[i]], value[i]);
            }
        }
        const flim_welch test = flim_welch_test(&of[0], &of[1]);
        if (!isnan(test.g) && (isnan(group->g) || fabs(test.g) > fabs(group->g))) {
            group->g = test.g;
            group->figure = (error_figure)f;
        }
    }
}

/* cells->value = NULL: no figures. */
static flim_status make_groups(const report_run *run, const error_cells *cells, const double *confidence, report_errors *out,
                               flim_error *err)
{
    out->group = flim_alloc((size_t)run->groups, sizeof *out->group, err);
    FLIM_TRY(out->group ? FLIM_OK : FLIM_ERROR_MEMORY);
    out->n_groups = run->groups;
    for (int64_t g = 0; g < run->groups; g++) {
        error_group *group = &out->group[g];
        flim_moments sure = {0};
        *group = (error_group){.name = run->group_name[g], .confidence = NAN, .g = NAN};
        for (int64_t i = 0; i < cells->n; i++) {
            if (cells->group[i] != g) {
                continue;
            }
            const bool right = cells->label[i] == cells->predicted[i], positive = cells->label[i] == 1;
            group->cells++;
            group->tp += positive && right;
            group->fn += positive && !right;
            group->tn += !positive && right;
            group->fp += !positive && !right;
            group->wrong += !right;
            if (!right && !isnan(confidence[i])) {
                flim_moments_add(&sure, confidence[i]);
            }
        }
        group->confidence = sure.n ? sure.mean : (double)NAN;
        if (cells->value) {
            find_most_different(cells, g, group);
        }
    }
    qsort(out->group, (size_t)run->groups, sizeof *out->group, most_wrong_first);
    return FLIM_OK;
}

/* ---- from the data */

/* value (ERROR_N_FIGURES,n) gets the figures of the pool's cells; row (cells of the data) is scratch. */
static void take_figures(const report_run *run, const flim_dataset_info *info, const flim_cell_figures *row, double *value)
{
    const double bin = info->time_range_ns > 0 ? info->time_range_ns / info->t : 1;
    const int64_t n = run->pool.n;
    for (int64_t i = 0; i < n; i++) {
        const flim_cell_figures *r = &row[run->pool.cell[i]];
        const bool known = !isnan(r->photons);
        value[ERROR_PHOTONS * n + i] = r->photons;
        value[ERROR_MASK_PIXELS * n + i] = known ? (double)r->mask_pixels : (double)NAN;
        value[ERROR_PEAK_BIN * n + i] = r->peak_bin >= 0 ? r->peak_bin : (double)NAN;
        value[ERROR_BACKGROUND * n + i] = r->background;
        value[ERROR_SNR * n + i] = r->snr;
        value[ERROR_LIFETIME * n + i] = r->lifetime * bin;
        value[ERROR_SPREAD * n + i] = r->spread;
    }
}

/* Reads the data; out->has_figures says whether it could, out->missing why not. */
static flim_status read_figures(const report_run *run, const flim_report_options *options, double *value, report_errors *out,
                                flim_error *err)
{
    flim_dataset *dataset = NULL;
    flim_cell_figures *row = NULL;
    flim_error why = {0};
    flim_status status = FLIM_OK;
    FLIM_TRY(report_open_data(run, options, &dataset, &why, err));
    if (!dataset) {
        out->missing = flim_strdup(why.text, err);
        return out->missing ? FLIM_OK : FLIM_ERROR_MEMORY;
    }
    const flim_dataset_info *info = flim_dataset_get_info(dataset);
    row = flim_alloc((size_t)info->n, sizeof *row, err);
    out->decay = options->pictures ? flim_alloc((size_t)info->n * (size_t)info->t, sizeof *out->decay, err) : NULL;
    FLIM_TRY_DONE(row && (out->decay || !options->pictures) ? FLIM_OK : FLIM_ERROR_MEMORY);
    FLIM_TRY_DONE(flim_cell_figures_read(dataset, options->workers, NULL, row, out->decay, err));
    for (int64_t i = 0; i < info->n && out->decay; i++) {
        if (isnan(row[i].photons)) { /* the page, which says why a cell cannot be read, is to find out by itself */
            flim_free(out->decay);
            out->decay = NULL;
        }
    }
    take_figures(run, info, row, value);
    out->has_figures = true;
    out->in_ns = info->time_range_ns > 0;
done:
    flim_free(row);
    flim_dataset_close(dataset);
    return status;
}

/* ---- all of it */

static flim_status analyse(const report_run *run, const flim_report_options *options, report_errors *out, flim_error *err)
{
    const flim_pool *p = &run->pool;
    const size_t n = (size_t)p->n, k = (size_t)run->classes;
    double *probability = flim_alloc(n * k, sizeof *probability, err); /* (n,K) */
    double *confidence = flim_alloc(n, sizeof *confidence, err), *scratch = flim_alloc(n, sizeof *scratch, err);
    double *value = flim_alloc(n * ERROR_N_FIGURES, sizeof *value, err);
    flim_status status = FLIM_OK;
    FLIM_TRY_DONE(probability && confidence && scratch && value ? FLIM_OK : FLIM_ERROR_MEMORY);
    flim_probabilities(p->n, run->classes, p->logits, probability);
    for (size_t i = 0; i < n; i++) {
        confidence[i] = probability[i * k + (size_t)p->predicted[i]];
    }
    FLIM_TRY_DONE(report_fit_make(run, out, err));
    FLIM_TRY_DONE(make_outcomes(run, confidence, scratch, out, err));
    FLIM_TRY_DONE(read_figures(run, options, value, out, err));
    const error_cells cells = {.n = p->n,
                               .groups = run->groups,
                               .classes = run->classes,
                               .label = p->label,
                               .predicted = p->predicted,
                               .group = run->groups ? run->group_of : NULL,
                               .value = out->has_figures ? value : NULL};
    FLIM_TRY_DONE(make_groups(run, &cells, confidence, out, err));
    if (out->has_figures) {
        status = error_differences(&cells, &out->difference, &out->n_differences, &out->tests, err);
    }
done:
    flim_free(probability);
    flim_free(confidence);
    flim_free(scratch);
    flim_free(value);
    return status;
}

flim_status report_errors_make(const report_run *run, const flim_report_options *options, report_errors **out,
                               flim_error *err)
{
    *out = flim_alloc(1, sizeof **out, err);
    return *out ? analyse(run, options, *out, err) : FLIM_ERROR_MEMORY; /* the run frees what is half made */
}

void report_errors_free(report_errors *errors)
{
    if (errors) {
        flim_free(errors->outcome);
        flim_free(errors->group);
        flim_free(errors->missing);
        flim_free(errors->decay);
        flim_free(errors->difference);
        flim_free(errors->fit);
        flim_free(errors);
    }
}

/* Of all classes together, the largest difference that is sure; else NULL. */
static const error_difference *first_sure(const report_errors *errors)
{
    for (int64_t i = 0; i < errors->n_differences; i++) {
        const error_difference *d = &errors->difference[i];
        if (d->label == ERROR_ALL_CLASSES && d->p_holm < 0.05) {
            return d;
        }
    }
    return NULL;
}

/* A figure that differs between the classes separates wrong from right cells wherever one class has more errors, though it has
 * nothing to do with them: whether it also does within a class. */
static bool is_within_a_class(const report_errors *errors, const error_difference *all)
{
    for (int64_t i = 0; i < errors->n_differences; i++) {
        const error_difference *d = &errors->difference[i];
        if (d->label != ERROR_ALL_CLASSES && d->figure == all->figure && d->p_holm < 0.05 &&
            d->test.difference * all->test.difference > 0) {
            return true;
        }
    }
    return false;
}

static void tell_difference(const report_errors *errors, const error_difference *d, char *text, size_t size)
{
    const char *warning = "";
    char groups[64] = "";
    if (d->groups) {
        snprintf(groups, sizeof groups, ", so in %" PRId64 " of %" PRId64 " groups", d->agree, d->groups);
    }
    if (!is_within_a_class(errors, d)) {
        warning = " It does so in no class alone: it may only differ between the classes, of which one has more errors.";
    } else if (d->groups && 2 * d->agree <= d->groups) {
        warning = " Within most groups it does not: it differs between the groups, of which some have more errors.";
    }
    snprintf(text, size, "What separates wrong from right cells most: %s, %s in wrong ones (g %+.2f, p by Holm %.2g%s).%s",
             error_figure_title(d->figure, errors->in_ns), d->test.difference < 0 ? "lower" : "higher", d->test.g, d->p_holm,
             groups, warning);
}

void error_verdict(const report_errors *errors, char *text, size_t size)
{
    const error_difference *first = first_sure(errors);
    if (errors->wrong == 0) {
        snprintf(text, size, "No cell is predicted wrongly.");
    } else if (!errors->has_figures) {
        snprintf(text, size,
                 "The figures of the cells are missing, so nothing is said of what separates wrong from right ones.");
    } else if (errors->n_differences == 0) {
        snprintf(text, size, "Too few cells are wrong, or right, to be compared: two of either are the least.");
    } else if (!first) {
        snprintf(
            text, size,
            "No figure separates wrong from right cells of all classes together: none has a p by Holm below 0.05 (%" PRId64
            " tests).",
            errors->tests);
    } else {
        tell_difference(errors, first, text, size);
    }
}
