#include "report/page/plot.h"

#include <math.h>

#include "core/alloc.h"
#include "core/text.h"
#include "core/try.h"
#include "report/page/gnuplot.h"

enum { MOST_NAMED = 8 /* folds with an entry of their own in the key of a plot */ };

flim_json *plot_begin(int height)
{
    flim_json *plot = flim_json_object();
    flim_json_set_integer(plot, "width", PLOT_WIDTH);
    flim_json_set_integer(plot, "height", height);
    return plot;
}

flim_status plot_finish(flim_json *plot, const char *template_name, flim_json *values, const char *key, flim_error *err)
{
    char *svg = NULL, *text = NULL;
    size_t bytes = 0;
    flim_status status = FLIM_OK;
    if (template_name) {
        FLIM_TRY_DONE(gnuplot_draw(template_name, plot, &svg, &bytes, err));
        text = flim_base64(svg, bytes, err);
        FLIM_TRY_DONE(text ? FLIM_OK : FLIM_ERROR_MEMORY);
    }
    flim_json_set_string(values, key, text);
done:
    flim_json_free(plot);
    flim_free(svg);
    flim_free(text);
    return status;
}

const char *plot_fold_title(int n_folds, int k, bool first, double value, char title[PLOT_TITLE])
{
    if (n_folds > MOST_NAMED) {
        return first ? "folds" : NULL;
    }
    snprintf(title, PLOT_TITLE, isnan(value) ? "fold %d" : "fold %d (%.3f)", k, value);
    return title;
}

void plot_cut_name(const char *name, char out[PLOT_TIC])
{
    char shown[256];
    flim_text_show(name, shown, sizeof shown);
    const size_t length = flim_utf8_cut(shown, 40);
    snprintf(out, PLOT_TIC, "%.*s%s", (int)length, shown, shown[length] ? "…" : "");
}

void plot_tic_label(const char *name, char out[PLOT_TIC])
{
    char cut[PLOT_TIC];
    size_t used = 0;
    plot_cut_name(name, cut);
    for (const char *at = cut; *at && used + 2 < PLOT_TIC; at++) {
        out[used++] = *at;
        if (*at == '%') {
            out[used++] = '%';
        }
    }
    out[used] = '\0';
}
