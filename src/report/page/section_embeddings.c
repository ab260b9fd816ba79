/* The cells of the first model by its first two principal components, coloured by class and by group, and the table of all models. */
#include <math.h>

#include "core/try.h"
#include "report/page/plot.h"
#include "report/page/sections.h"

enum { MOST_CELLS = 4000 /* in a plot */, PLOT_TALL = 420, MOST_NAMES = 12 /* sets with a colour of their own */ };

bool section_embeddings_applies(const report_subject *subject)
{
    return subject->report->components.n > 0 && subject->run == &subject->report->run[0];
}

/* Cells of a set by their first two scores, every step-th; set -1: all. */
static flim_json *points_of(const flim_report *report, bool by_class, int64_t set, int64_t step)
{
    const report_components *c = &report->components;
    flim_json *points = flim_json_array();
    for (int64_t i = 0; i < c->n; i += step) {
        if (set >= 0 && (by_class ? report->embeddings.label[i] : c->group_of[i]) != set) {
            continue;
        }
        flim_json *point = flim_json_object();
        flim_json_set_number(point, "x", c->score[2 * i]);
        flim_json_set_number(point, "y", c->score[2 * i + 1]);
        flim_json_add(points, point);
    }
    return points;
}

static void add_series(flim_json *series, const char *name, flim_json *points)
{
    flim_json *one = flim_json_object();
    char title[PLOT_TIC];
    const int64_t index = (int64_t)flim_json_length(series);
    plot_cut_name(name, title);
    flim_json_set_integer(one, "index", index);
    flim_json_set_integer(one, "number", index + 1);
    flim_json_set_string(one, "title", title);
    flim_json_set(one, "points", points);
    flim_json_add(series, one);
}

/* Sets beyond MOST_NAMES share one colour. */
static flim_status plot_cells(flim_json *values, const char *key, const flim_report *report, bool by_class, flim_error *err)
{
    const report_components *c = &report->components;
    const int64_t sets = by_class ? report->embeddings.classes : c->groups, step = c->n / MOST_CELLS + 1;
    flim_json *plot = plot_begin(PLOT_TALL), *series = flim_json_array();
    char text[PLOT_TIC];
    const bool wanted = sets > 0 && (!by_class || report->embeddings.label) && !isnan(c->component[0].share);
    for (int64_t k = 0; wanted && sets <= MOST_NAMES && k < sets; k++) {
        flim_json *points = points_of(report, by_class, k, step);
        if (flim_json_length(points) == 0) {
            flim_json_free(points);
            continue;
        }
        add_series(series, by_class ? report->embeddings.class_name[k] : c->group_name[k], points);
    }
    if (wanted && sets > MOST_NAMES) {
        snprintf(text, sizeof text, "%d %s", (int)sets, by_class ? "classes" : "groups");
        add_series(series, text, points_of(report, by_class, -1, step));
    }
    for (int k = 0; k < 2; k++) {
        const double share = k < c->n_shown ? c->component[k].share : 0;
        snprintf(text, sizeof text, "component %d (%.1f %% of the variance)", k + 1, 100 * share);
        flim_json_set_string(plot, k ? "ylabel" : "xlabel", text);
    }
    const bool any = flim_json_length(series) > 0;
    flim_json_set(plot, "series", series);
    return plot_finish(plot, any ? "components.gp" : NULL, values, key, err);
}

flim_status section_embeddings_fill(flim_json *values, const report_subject *subject, flim_error *err)
{
    const flim_report *report = subject->report;
    const report_components *c = &report->components;
    flim_json *models = flim_json_array();
    char name[32];
    for (int m = 0; m < c->models; m++) {
        for (int k = 0; k < c->n_shown; k++) {
            const report_component *one = &c->component[m * c->n_shown + k];
            flim_json *row = flim_json_object();
            flim_json_set_string(row, "model", k ? "" : component_model_name(report, m, name));
            flim_json_set_integer(row, "component", k + 1);
            flim_json_set_number(row, "share", one->share);
            flim_json_set_number(row, "eta_class", one->eta_class);
            flim_json_set_number(row, "eta_group", one->eta_group);
            flim_json_set_number(row, "effective", k ? (double)NAN : c->effective[m]);
            flim_json_add(models, row);
        }
    }
    flim_json_set(values, "rows", models);
    flim_json_set_integer(values, "features", c->width);
    flim_json_set_integer(values, "embedded", c->n);
    flim_json_set_string(values, "first", component_model_name(report, 0, name));
    const int64_t step = c->n / MOST_CELLS + 1;
    if (step > 1) {
        flim_json_set_integer(values, "every", step);
    } else {
        flim_json_set_null(values, "every");
    }
    FLIM_TRY(plot_cells(values, "by_class", report, true, err));
    return plot_cells(values, "by_group", report, false, err);
}
