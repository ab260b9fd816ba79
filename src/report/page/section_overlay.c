/* Two or more runs in the same figures. */
#include <math.h>

#include "core/alloc.h"
#include "core/try.h"
#include "report/page/curve.h"
#include "report/page/plot.h"
#include "report/page/sections.h"

enum { INTERVALS_HEIGHT = 300 };

bool section_overlay_applies(const report_subject *subject)
{
    return subject->report->n_runs > 1;
}

static void set_label(flim_json *line, const flim_report *report, int i)
{
    char name[PLOT_TIC], title[PLOT_TIC + 16];
    plot_cut_name(report->run[i].label, name);
    snprintf(title, sizeof title, "%d: %s", i + 1, name); /* two runs may have one name */
    flim_json_set_integer(line, "index", i);
    flim_json_set_integer(line, "number", i + 1);
    flim_json_set_string(line, "title", title);
}

/* ---- mean ROC curve of each run of two classes */

static flim_status add_roc(flim_json *lines, const flim_report *report, int i, flim_error *err)
{
    const report_run *run = &report->run[i];
    report_mean_curve mean;
    if (run->classes != 2) {
        return FLIM_OK;
    }
    FLIM_TRY(report_curve_average(run, REPORT_ROC, run->pool.logits, &mean, err));
    if (mean.folds == 0) {
        return FLIM_OK;
    }
    flim_json *line = flim_json_object(), *points = flim_json_array();
    for (int g = 0; g < REPORT_GRID; g++) {
        flim_json *point = flim_json_object();
        flim_json_set_number(point, "x", (double)g / (REPORT_GRID - 1));
        flim_json_set_number(point, "y", mean.mean[g]);
        flim_json_add(points, point);
    }
    set_label(line, report, i);
    flim_json_set(line, "points", points);
    flim_json_add(lines, line);
    return FLIM_OK;
}

/* ---- validation loss of each run, mean over the folds that have the epoch */

static void add_loss(flim_json *lines, const flim_report *report, int i)
{
    const report_run *run = &report->run[i];
    flim_json *points = flim_json_array();
    int64_t epochs = 0;
    for (int k = 0; k < run->splits.n_folds; k++) {
        epochs = run->history[k].n > epochs ? run->history[k].n : epochs;
    }
    for (int64_t e = 0; e < epochs; e++) {
        double sum = 0;
        int n = 0;
        for (int k = 0; k < run->splits.n_folds; k++) {
            const report_history *h = &run->history[k];
            if (e < h->n && h->column[REPORT_VAL_LOSS][e] > 0) {
                sum += h->column[REPORT_VAL_LOSS][e];
                n++;
            }
        }
        if (n > 0) {
            flim_json *point = flim_json_object();
            flim_json_set_integer(point, "x", e + 1);
            flim_json_set_number(point, "y", sum / n);
            flim_json_add(points, point);
        }
    }
    if (flim_json_length(points) == 0) {
        flim_json_free(points);
        return;
    }
    flim_json *line = flim_json_object();
    set_label(line, report, i);
    flim_json_set(line, "points", points);
    flim_json_add(lines, line);
}

static flim_status plot_lines(flim_json *values, const char *key, flim_json *lines, bool roc, flim_error *err)
{
    const bool any = flim_json_length(lines) > 0;
    flim_json *plot = plot_begin(PLOT_HEIGHT);
    flim_json_set(plot, "lines", lines);
    flim_json_set_bool(plot, "roc", roc);
    return plot_finish(plot, any ? "overlay.gp" : NULL, values, key, err);
}

/* ---- pooled values with their intervals */

static flim_status plot_intervals(flim_json *values, const flim_report *report, flim_metric m, const char *key,
                                  flim_error *err)
{
    flim_json *plot = plot_begin(INTERVALS_HEIGHT), *runs = flim_json_array();
    for (int i = 0; i < report->n_runs; i++) {
        const report_row *pooled = report_row_of(&report->run[i], REPORT_POOLED);
        if (pooled && !isnan(pooled->value[m])) {
            const flim_interval *interval = &report->run[i].interval[m];
            flim_json *run = flim_json_object();
            char label[PLOT_TIC];
            plot_tic_label(report->run[i].label, label);
            flim_json_set_string(run, "name", label);
            flim_json_set_integer(run, "index", i);
            flim_json_set_integer(run, "number", i + 1);
            flim_json_set_number(run, "value", pooled->value[m]);
            flim_json_set_number(run, "low", isnan(interval->low) ? pooled->value[m] : interval->low);
            flim_json_set_number(run, "high", isnan(interval->low) ? pooled->value[m] : interval->high);
            flim_json_add(runs, run);
        }
    }
    const bool any = flim_json_length(runs) > 0;
    flim_json_set(plot, "runs", runs);
    flim_json_set_integer(plot, "last", report->n_runs - 1);
    flim_json_set_string(plot, "xlabel", flim_metric_title(m));
    return plot_finish(plot, any ? "intervals.gp" : NULL, values, key, err);
}

flim_status section_overlay_fill(flim_json *values, const report_subject *subject, flim_error *err)
{
    const flim_report *report = subject->report;
    flim_json *roc = flim_json_array(), *loss = flim_json_array();
    flim_status status = FLIM_OK;
    for (int i = 0; i < report->n_runs; i++) {
        if (report->run[i].n_folds > 0) {
            FLIM_TRY_DONE(add_roc(roc, report, i, err));
        }
        add_loss(loss, report, i);
    }
    status = plot_lines(values, "roc", roc, true, err);
    roc = NULL;
    FLIM_TRY_DONE(status);
    status = plot_lines(values, "loss", loss, false, err);
    loss = NULL;
    FLIM_TRY_DONE(status);
    FLIM_TRY_DONE(plot_intervals(values, report, FLIM_ROC_AUC, "auc", err));
    FLIM_TRY_DONE(plot_intervals(values, report, FLIM_BALANCED_ACCURACY, "balanced", err));
done:
    flim_json_free(roc);
    flim_json_free(loss);
    return status;
}
