/* What every plot begins and ends with. */
#include <math.h>

#include "report/gnuplot.h"
#include "report/plots.h"

enum { MOST_NAMED = 8 /* folds with an entry of their own in the key of a plot */ };

flim_json *plot_begin(int height)
{
    flim_json *plot = flim_json_object();
    flim_json_set_integer(plot, "width", PLOT_WIDTH);
    flim_json_set_integer(plot, "height", height);
    return plot;
}

flim_status plot_finish(flim_json *plot, const char *template_name, report_svg *out, flim_error *err)
{
    const flim_status status = template_name ? gnuplot_draw(template_name, plot, &out->text, &out->bytes, err) : FLIM_OK;
    flim_json_free(plot);
    return status;
}

const char *plot_fold_title(const report_run *run, int f, double value, char title[PLOT_TITLE])
{
    if (run->n_folds > MOST_NAMED) {
        return f == 0 ? "folds" : NULL;
    }
    snprintf(title, PLOT_TITLE, isnan(value) ? "fold %d" : "fold %d (%.3f)", run->fold[f].k, value);
    return title;
}
