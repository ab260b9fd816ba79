/* ROC curves, and precision against recall: folds, their mean and spread, and the simple models. */
#include <math.h>

#include "core/alloc.h"
#include "core/try.h"
#include "report/page/curve.h"
#include "report/page/plot.h"
#include "report/page/sections.h"

enum { MOST_POINTS = 2000 };

/* What a line of the plots is; its style in curves.gp. */
typedef enum line_kind { OF_FOLD, OF_CLASS, OF_BASELINE, OF_MEAN } line_kind;

static flim_json *line_of(size_t index, line_kind kind, int number, const char *title, flim_json *points)
{
    static const char *const keys[] = {
        [OF_FOLD] = "fold", [OF_CLASS] = "class", [OF_BASELINE] = "baseline", [OF_MEAN] = "mean"};
    flim_json *line = flim_json_object();
    flim_json_set_integer(line, "index", (int64_t)index);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        flim_json_set_bool(line, keys[i], i == (size_t)kind);
    }
    flim_json_set_integer(line, "number", number);
    flim_json_set_string(line, "title", title);
    flim_json_set(line, "points", points);
    return line;
}

static void add_point(flim_json *points, double x, double y, double sd)
{
    flim_json *point = flim_json_object();
    flim_json_set_number(point, "x", x);
    flim_json_set_number(point, "y", y);
    flim_json_set_number(point, "low", isnan(sd) ? y : fmax(0, y - sd));
    flim_json_set_number(point, "high", isnan(sd) ? y : fmin(1, y + sd));
    flim_json_add(points, point);
}

/* A curve of one fold or class, thinned to about MOST_POINTS. */
static flim_status add_curve(flim_json *lines, const report_run *run, report_curve_kind kind, line_kind as, int only, int c,
                             const char *title, flim_error *err)
{
    report_curve curve = {0};
    const flim_status status = report_curve_make(run, kind, run->pool.logits, only, c, &curve, err);
    if (status == FLIM_OK && curve.n > 0) {
        const int64_t step = curve.n / MOST_POINTS + 1;
        flim_json *points = flim_json_array();
        for (int64_t i = 0; i < curve.n; i += i + step < curve.n || i == curve.n - 1 ? step : curve.n - 1 - i) {
            add_point(points, curve.x[i], curve.y[i], NAN);
        }
        flim_json_add(lines, line_of(flim_json_length(lines), as, as == OF_FOLD ? only + 1 : c + 1, title, points));
    }
    report_curve_free(&curve);
    return status;
}

/* The mean of the folds' curves; baseline: -1 for the network. */
static flim_status add_mean(flim_json *lines, const report_run *run, report_curve_kind kind, int baseline, flim_error *err)
{
    report_mean_curve mean;
    char title[PLOT_TITLE];
    const float *logits = baseline < 0 ? run->pool.logits : run->baseline[baseline].logits;
    double value, sd;
    FLIM_TRY(report_curve_average(run, kind, logits, &mean, err));
    if (mean.folds == 0) {
        return FLIM_OK;
    }
    FLIM_TRY(report_spread(run, baseline, kind == REPORT_ROC ? FLIM_ROC_AUC : FLIM_AVERAGE_PRECISION, &value, &sd, err));
    snprintf(title, sizeof title, isnan(sd) ? "%s (%.3f)" : "%s (%.3f ± %.3f)",
             baseline < 0 ? "network, mean" : flim_baseline_title(baseline), value, sd);
    flim_json *points = flim_json_array();
    for (int g = 0; g < REPORT_GRID; g++) {
        add_point(points, (double)g / (REPORT_GRID - 1), mean.mean[g], mean.sd[g]);
    }
    flim_json_add(lines, line_of(flim_json_length(lines), baseline < 0 ? OF_MEAN : OF_BASELINE, baseline + 1, title, points));
    return FLIM_OK;
}

static flim_status add_two_classes(flim_json *lines, const report_run *run, report_curve_kind kind, flim_error *err)
{
    const flim_metric m = kind == REPORT_ROC ? FLIM_ROC_AUC : FLIM_AVERAGE_PRECISION;
    for (int f = 0; f < run->n_folds; f++) {
        char text[PLOT_TITLE];
        const char *title = plot_fold_title(run->n_folds, run->fold[f].k, f == 0, run->fold[f].metrics.value[m], text);
        FLIM_TRY(add_curve(lines, run, kind, OF_FOLD, run->fold[f].k, 1, title, err));
    }
    for (int b = FLIM_BASELINE_PRIOR + 1; b < FLIM_N_BASELINES; b++) {
        FLIM_TRY(run->baseline[b].n > 0 ? add_mean(lines, run, kind, b, err) : FLIM_OK);
    }
    return add_mean(lines, run, kind, -1, err);
}

static flim_status plot_curves(flim_json *values, const report_run *run, report_curve_kind kind, const char *key,
                               flim_error *err)
{
    flim_json *plot = plot_begin(PLOT_HEIGHT + 40), *lines = flim_json_array();
    flim_status status = run->classes == 2 ? add_two_classes(lines, run, kind, err) : FLIM_OK;
    double positives = 0;
    for (int c = 0; run->classes > 2 && c < run->classes && status == FLIM_OK; c++) {
        status = add_curve(lines, run, kind, OF_CLASS, -1, c, run->class_name[c], err);
    }
    for (int64_t i = 0; i < run->pool.n; i++) {
        positives += run->pool.label[i] == 1;
    }
    const bool any = flim_json_length(lines) > 0;
    flim_json_set(plot, "lines", lines);
    flim_json_set_bool(plot, "roc", kind == REPORT_ROC);
    flim_json_set_number(plot, "guessing", run->classes == 2 ? positives / (double)run->pool.n : NAN);
    if (status != FLIM_OK) {
        flim_json_free(plot);
        return status;
    }
    return plot_finish(plot, any ? "curves.gp" : NULL, values, key, err);
}

flim_status section_curves_fill(flim_json *values, const report_subject *subject, flim_error *err)
{
    FLIM_TRY(plot_curves(values, subject->run, REPORT_ROC, "roc", err));
    return plot_curves(values, subject->run, REPORT_PRECISION_RECALL, "precision_recall", err);
}
