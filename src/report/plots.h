/* The plots of the page, each as SVG text (the caller frees it with flim_free). */
#ifndef FLIM_REPORT_PLOTS_H
#define FLIM_REPORT_PLOTS_H

#include "formats/json.h"
#include "report/report_internal.h"

typedef struct report_svg {
    char *text;
    size_t bytes;
} report_svg;

enum { PLOT_WIDTH = 430, PLOT_HEIGHT = 400, PLOT_TITLE = 64 };

/* The values of a plot's template, with its size. */
flim_json *plot_begin(int height);
/* Draws the plot, nothing if template_name is NULL, and frees its values. */
flim_status plot_finish(flim_json *plot, const char *template_name, report_svg *out, flim_error *err);
/* "fold 3 (0.812)", without a value if that is NaN; if there are too many folds to name, "folds" for the first and NULL for
 * the rest. */
const char *plot_fold_title(const report_run *run, int f, double value, char title[PLOT_TITLE]);

/* Training (dashed) and validation loss by epoch, one colour per fold.  Empty if no fold has a history. */
flim_status report_plot_learning(const report_run *run, report_svg *out, flim_error *err);
/* Two classes: folds thin, pooled thick; else one pooled curve per class, each against the rest. */
flim_status report_plot_roc(const report_run *run, report_svg *out, flim_error *err);
flim_status report_plot_precision_recall(const report_run *run, report_svg *out, flim_error *err);
/* Observed against predicted share in ten bins: of class 1 with two classes, else of the winning class. */
flim_status report_plot_calibration(const report_run *run, report_svg *out, flim_error *err);
/* Distribution by class of the probability of class 1 (two classes) or of the own class. */
flim_status report_plot_histogram(const report_run *run, report_svg *out, flim_error *err);
/* Accuracy of each group.  Empty without groups. */
flim_status report_plot_groups(const report_run *run, report_svg *out, flim_error *err);

#endif
