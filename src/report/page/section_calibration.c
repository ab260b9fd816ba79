/* Predicted probabilities: are they what they say, and where do the cells of each class lie? */
#include <math.h>

#include "core/alloc.h"
#include "core/text.h"
#include "core/try.h"
#include "report/page/plot.h"
#include "report/page/sections.h"

enum { CALIBRATION_BINS = 10, HISTOGRAM_BINS = 20 };

/* Probabilities (n,K) of the pool. */
static double *pool_probabilities(const report_run *run, flim_error *err)
{
    double *p = flim_alloc((size_t)run->pool.n * (size_t)run->classes, sizeof *p, err);
    if (p) {
        flim_probabilities(run->pool.n, run->classes, run->pool.logits, p);
    }
    return p;
}

static flim_status plot_calibration(flim_json *values, const report_run *run, flim_error *err)
{
    double said[CALIBRATION_BINS] = {0}, seen[CALIBRATION_BINS] = {0}, n[CALIBRATION_BINS] = {0};
    int classes = run->classes;
    double *p = pool_probabilities(run, err);
    if (!p) {
        return FLIM_ERROR_MEMORY;
    }
    for (int64_t i = 0; i < run->pool.n; i++) {
        int c = 1;
        for (int d = 0; classes > 2 && d < classes; d++) {
            c = p[i * classes + d] > p[i * classes + c] ? d : c;
        }
        double value = p[i * classes + c];
        int bin = (int)(value * CALIBRATION_BINS);
        bin = bin < CALIBRATION_BINS ? bin : CALIBRATION_BINS - 1;
        said[bin] += value;
        seen[bin] += run->pool.label[i] == c;
        n[bin] += 1;
    }
    flim_free(p);
    flim_json *plot = plot_begin(PLOT_HEIGHT), *bins = flim_json_array();
    for (int b = 0; b < CALIBRATION_BINS; b++) {
        if (n[b] > 0) {
            const double share = seen[b] / n[b];
            const flim_interval interval = html_share_interval(share, n[b]);
            flim_json *bin = flim_json_object();
            flim_json_set_number(bin, "said", said[b] / n[b]);
            flim_json_set_number(bin, "seen", share);
            flim_json_set_number(bin, "low", interval.low);
            flim_json_set_number(bin, "high", interval.high);
            flim_json_set_number(bin, "cells", n[b]);
            flim_json_add(bins, bin);
        }
    }
    flim_json_set(plot, "bins", bins);
    flim_json_set_bool(plot, "two", classes == 2);
    return plot_finish(plot, "calibration.gp", values, "calibration", err);
}

/* The lowest and highest threshold of the folds. */
static void threshold_range(const report_run *run, double *low, double *high)
{
    *low = 1;
    *high = 0;
    for (int f = 0; f < run->n_folds; f++) {
        *low = fmin(*low, run->fold[f].threshold);
        *high = fmax(*high, run->fold[f].threshold);
    }
}

/* One class of the histogram: the share of its cells in each bin, so that a rare class is seen as well as a common one. */
static flim_json *class_histogram(const report_run *run, const int64_t count[HISTOGRAM_BINS], int c)
{
    int64_t total = 0;
    flim_json *class = flim_json_object(), *bins = flim_json_array();
    for (int b = 0; b < HISTOGRAM_BINS; b++) {
        total += count[b];
    }
    for (int b = 0; b < HISTOGRAM_BINS; b++) {
        flim_json *bin = flim_json_object();
        flim_json_set_number(bin, "middle", (b + 0.5) / HISTOGRAM_BINS);
        flim_json_set_number(bin, "percent", 100 * (total ? (double)count[b] / (double)total : 0));
        flim_json_add(bins, bin);
    }
    flim_json_set_integer(class, "index", c);
    flim_json_set_integer(class, "number", c + 1);
    flim_json_set_string(class, "name", run->class_name[c]);
    flim_json_set(class, "bins", bins);
    return class;
}

static flim_status plot_histogram(flim_json *values, const report_run *run, flim_error *err)
{
    flim_status status = FLIM_OK;
    const int classes = run->classes;
    char xlabel[256];
    double *p = pool_probabilities(run, err);
    int64_t *count = flim_alloc((size_t)classes * HISTOGRAM_BINS, sizeof *count, err); /* (classes, bins) */
    FLIM_TRY_DONE(p && count ? FLIM_OK : FLIM_ERROR_MEMORY);
    for (int64_t i = 0; i < run->pool.n; i++) {
        int32_t label = run->pool.label[i];
        double value = p[i * classes + (classes == 2 ? 1 : label)];
        int bin = (int)(value * HISTOGRAM_BINS);
        count[label * HISTOGRAM_BINS + (bin < HISTOGRAM_BINS ? bin : HISTOGRAM_BINS - 1)]++;
    }
    flim_json *plot = plot_begin(PLOT_HEIGHT), *list = flim_json_array(), *thresholds = NULL;
    for (int c = 0; c < classes; c++) {
        flim_json_add(list, class_histogram(run, count + c * HISTOGRAM_BINS, c));
    }
    if (classes == 2) {
        double low, high;
        threshold_range(run, &low, &high);
        thresholds = flim_json_object();
        flim_json_set_number(thresholds, "low", fmin(low, high - 0.002));
        flim_json_set_number(thresholds, "high", high);
        flim_json_set(plot, "thresholds", thresholds);
    } else {
        flim_json_set_null(plot, "thresholds");
    }
    const char *of = classes == 2 ? run->class_name[1] : "the own class";
    snprintf(xlabel, sizeof xlabel, "probability of %.*s", (int)flim_utf8_cut(of, 200), of);
    flim_json_set(plot, "classes", list);
    flim_json_set_string(plot, "xlabel", xlabel);
    status = plot_finish(plot, "histogram.gp", values, "histogram", err);
done:
    flim_free(p);
    flim_free(count);
    return status;
}

static void set_table(flim_json *values, const report_run *run)
{
    static const char *const before[] = {"ece", "brier", "log_loss"};
    static const char *const after[] = {"ece_after", "brier_after", "log_loss_after"};
    flim_json *list = flim_json_array();
    for (int r = 0; r < run->n_calibration; r++) {
        const report_calibration *row = &run->calibration[r];
        flim_json *object = flim_json_object();
        flim_json_set_string(object, "name", row->name);
        flim_json_set_number(object, "temperature", row->temperature);
        for (int i = 0; i < REPORT_N_CALIBRATION; i++) {
            flim_json_set_number(object, before[i], row->before[i]);
            flim_json_set_number(object, after[i], row->after[i]);
        }
        flim_json_add(list, object);
    }
    flim_json_set(values, "calibrations", list);
}

flim_status section_calibration_fill(flim_json *values, const report_subject *subject, flim_error *err)
{
    set_table(values, subject->run);
    FLIM_TRY(plot_calibration(values, subject->run, err));
    return plot_histogram(values, subject->run, err);
}
