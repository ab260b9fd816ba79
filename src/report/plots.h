/* The plots of the page, each as SVG text (the caller frees it with flim_free). */
#ifndef FLIM_REPORT_PLOTS_H
#define FLIM_REPORT_PLOTS_H

#include "report/report_internal.h"

typedef struct report_svg {
    char *text;
    size_t bytes;
} report_svg;

/* Training (dashed) and validation loss by epoch, a colour a fold.  Empty where no fold has a history. */
flim_status report_plot_learning(const report_run *run, report_svg *out, flim_error *err);
/* Two classes: folds thin, pooled thick; else one pooled curve a class, each against the rest. */
flim_status report_plot_roc(const report_run *run, report_svg *out, flim_error *err);
flim_status report_plot_precision_recall(const report_run *run, report_svg *out, flim_error *err);
/* Observed against predicted share in ten bins: of class 1 with two classes, else of the winning class. */
flim_status report_plot_calibration(const report_run *run, report_svg *out, flim_error *err);
/* Distribution by class of the probability of class 1 (two classes) or of the own class. */
flim_status report_plot_histogram(const report_run *run, report_svg *out, flim_error *err);
/* Accuracy of each group.  Empty without groups. */
flim_status report_plot_groups(const report_run *run, report_svg *out, flim_error *err);

#endif
