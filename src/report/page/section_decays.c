/* Decays: the phasor of each cell, and the mean decay of each class. */
#include <math.h>

#include "core/alloc.h"
#include "core/text.h"
#include "core/try.h"
#include "report/page/cells.h"
#include "report/page/plot.h"
#include "report/page/sections.h"

enum { MOST_CELLS = 4000 /* in the phasor plot */, PHASOR_HEIGHT = 380, DECAY_HEIGHT = 380 };

bool section_decays_applies(const report_subject *subject)
{
    return subject->report->options.pictures;
}

/* ---- phasors */

/* The tested cells of class c by phasor, every step-th of the pool: {g, s}; wrong: those that are predicted wrongly. */
static flim_json *phasors_of(const report_run *run, const report_cells *cells, int c, bool wrong, int64_t step)
{
    flim_json *points = flim_json_array();
    for (int64_t i = 0; i < run->pool.n; i += step) {
        double g, s;
        if (run->pool.label[i] != c || (run->pool.predicted[i] != c) != wrong) {
            continue;
        }
        report_phasor(cells->decay + run->pool.cell[i] * cells->info->t, cells->info->t, &g, &s);
        if (!isnan(g)) {
            flim_json *point = flim_json_object();
            flim_json_set_number(point, "g", g);
            flim_json_set_number(point, "s", s);
            flim_json_add(points, point);
        }
    }
    return points;
}

/* Where single lifetimes lie on the semicircle: g = 1 / (1 + (w tau)^2), s = w tau g. */
static flim_json *lifetimes(double range_ns)
{
    flim_json *list = flim_json_array();
    static const double tau[] = {0.5, 1, 2, 3, 4, 8};
    for (size_t i = 0; range_ns > 0 && i < sizeof tau / sizeof tau[0]; i++) {
        const double wt = 6.283185307179586 * tau[i] / range_ns, g = 1 / (1 + wt * wt);
        char text[32];
        flim_json *one = flim_json_object();
        snprintf(text, sizeof text, "%g ns", tau[i]);
        flim_json_set_number(one, "g", g);
        flim_json_set_number(one, "s", wt * g);
        flim_json_set_string(one, "text", text);
        flim_json_add(list, one);
    }
    return list;
}

static flim_status plot_phasors(flim_json *values, const report_run *run, const report_cells *cells, flim_error *err)
{
    const int64_t step = run->pool.n / MOST_CELLS + 1;
    flim_json *plot = plot_begin(PHASOR_HEIGHT), *series = flim_json_array();
    for (int c = 0; c < run->classes; c++) {
        for (int wrong = 0; wrong < 2; wrong++) {
            flim_json *points = phasors_of(run, cells, c, wrong, step);
            if (flim_json_length(points) == 0) {
                flim_json_free(points);
                continue;
            }
            flim_json *one = flim_json_object();
            char name[PLOT_TIC], title[PLOT_TIC + 16];
            plot_cut_name(run->class_name[c], name);
            snprintf(title, sizeof title, "%s%s", name, wrong ? ", wrong" : "");
            flim_json_set_integer(one, "index", (int64_t)flim_json_length(series));
            flim_json_set_integer(one, "number", c + 1);
            flim_json_set_bool(one, "wrong", wrong);
            flim_json_set_string(one, "title", title);
            flim_json_set(one, "points", points);
            flim_json_add(series, one);
        }
    }
    const bool any = flim_json_length(series) > 0;
    flim_json_set(plot, "series", series);
    flim_json_set(plot, "lifetimes", lifetimes(cells->info->time_range_ns));
    if (step > 1) {
        flim_json_set_integer(values, "every", step);
    } else {
        flim_json_set_null(values, "every");
    }
    return plot_finish(plot, any ? "phasor.gp" : NULL, values, "phasor", err);
}

/* ---- decays */

static flim_status plot_decays(flim_json *values, const report_run *run, const report_cells *cells, flim_error *err)
{
    const flim_dataset_info *info = cells->info;
    const double width = info->time_range_ns > 0 ? info->time_range_ns / info->t : 1;
    flim_json *plot = plot_begin(DECAY_HEIGHT), *classes = flim_json_array();
    for (int c = 0; c < run->classes; c++) {
        flim_json *class = flim_json_object(), *points = flim_json_array();
        char name[PLOT_TIC];
        for (int t = 0; t < info->t; t++) {
            const double share = cells->class_decay[(int64_t)c * info->t + t];
            flim_json *point = flim_json_object();
            flim_json_set_number(point, "x", (t + 0.5) * width);
            flim_json_set_number(point, "y", share > 0 ? share : NAN);
            flim_json_add(points, point);
        }
        plot_cut_name(run->class_name[c], name);
        flim_json_set_integer(class, "index", c);
        flim_json_set_integer(class, "number", c + 1);
        flim_json_set_string(class, "title", name);
        flim_json_set(class, "points", points);
        flim_json_add(classes, class);
    }
    flim_json_set(plot, "classes", classes);
    flim_json_set_number(plot, "end", width * info->t);
    flim_json_set_bool(plot, "ns", info->time_range_ns > 0);
    return plot_finish(plot, "decay.gp", values, "decay", err);
}

flim_status section_decays_fill(flim_json *values, const report_subject *subject, flim_error *err)
{
    const report_cells *cells = subject->cells;
    flim_json_set_string(values, "missing", cells ? NULL : subject->no_cells);
    if (!cells) {
        flim_json_set_null(values, "phasor");
        flim_json_set_null(values, "decay");
        flim_json_set_null(values, "every");
        return FLIM_OK;
    }
    if (cells->info->time_range_ns > 0) {
        flim_json_set_number(values, "range", cells->info->time_range_ns);
        flim_json_set_number(values, "mhz", 1e3 / cells->info->time_range_ns);
    } else {
        flim_json_set_null(values, "range");
    }
    FLIM_TRY(plot_phasors(values, subject->run, cells, err));
    return plot_decays(values, subject->run, cells, err);
}
