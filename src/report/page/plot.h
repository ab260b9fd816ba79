/* What the figures of the page share: a plot is values for a gnuplot template, drawn as SVG and put into the page as data. */
#ifndef FLIM_REPORT_PLOT_H
#define FLIM_REPORT_PLOT_H

#include "formats/json.h"
#include "report/report_internal.h"

enum { PLOT_WIDTH = 430, PLOT_HEIGHT = 400, PLOT_TITLE = 64, PLOT_TIC = 96 };

/* The values of a plot's template, with its size. */
flim_json *plot_begin(int height);
/* Draws the plot, sets values[key] to it as base64, and frees the plot's values.  template_name = NULL: nothing to draw, null. */
flim_status plot_finish(flim_json *plot, const char *template_name, flim_json *values, const char *key, flim_error *err);
/* "fold 3 (0.812)", without a value if that is NaN; if there are too many folds to name, "folds" for the first line and NULL
 * for the rest. */
const char *plot_fold_title(int n_folds, int k, bool first, double value, char title[PLOT_TITLE]);
/* A name of the data, cut if it is long, for a key. */
void plot_cut_name(const char *name, char out[PLOT_TIC]);
/* A name as the label of a tic, which gnuplot takes for a format: per cent signs are doubled. */
void plot_tic_label(const char *name, char out[PLOT_TIC]);

#endif
