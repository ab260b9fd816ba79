/* Donors, dishes: what the data file calls groups. */
#include <math.h>

#include "report/page/plot.h"
#include "report/page/sections.h"
#include "core/try.h"

enum { MOST_GROUPS = 60 /* in the figure */ };

bool section_groups_applies(const report_subject *subject)
{
    return subject->run->groups > 0;
}

static flim_status plot_groups(flim_json *values, const report_run *run, flim_error *err)
{
    const int64_t groups = run->groups < MOST_GROUPS ? run->groups : MOST_GROUPS;
    const int height = 90 + 26 * (int)groups;
    const report_row *pooled = report_row_of(run, REPORT_POOLED);
    flim_json *plot = plot_begin(height < PLOT_HEIGHT ? PLOT_HEIGHT : height), *list = flim_json_array();
    for (int64_t g = 0; g < groups; g++) {
        const flim_interval interval = html_share_interval(run->group[g].accuracy, (double)run->group[g].n);
        char name[PLOT_TIC];
        flim_json *group = flim_json_object();
        plot_tic_label(run->group[g].name, name);
        flim_json_set_string(group, "name", name);
        flim_json_set_integer(group, "index", g);
        flim_json_set_integer(group, "cells", run->group[g].n);
        flim_json_set_number(group, "accuracy", run->group[g].accuracy);
        flim_json_set_number(group, "low", interval.low);
        flim_json_set_number(group, "high", interval.high);
        flim_json_add(list, group);
    }
    flim_json_set(plot, "groups", list);
    flim_json_set_integer(plot, "last", groups - 1);
    flim_json_set_number(plot, "pooled", pooled ? pooled->value[FLIM_ACCURACY] : NAN);
    return plot_finish(plot, "groups.gp", values, "group_accuracy", err);
}

static void set_groups(flim_json *values, const report_run *run)
{
    flim_json *groups = flim_json_array();
    for (int64_t g = 0; g < run->groups; g++) {
        const report_group *group = &run->group[g];
        flim_json *object = flim_json_object();
        flim_json_set_string(object, "name", group->name);
        flim_json_set_integer(object, "cells", group->n);
        flim_json_set_number(object, "prevalence", group->prevalence);
        flim_json_set_number(object, "accuracy", group->accuracy);
        flim_json_set_number(object, "sensitivity", group->sensitivity);
        flim_json_set_number(object, "specificity", group->specificity);
        flim_json_set_number(object, "auc", group->auc);
        flim_json_add(groups, object);
    }
    flim_json_set(values, "groups", groups);
}

flim_status section_groups_fill(flim_json *values, const report_subject *subject, flim_error *err)
{
    set_groups(values, subject->run);
    return plot_groups(values, subject->run, err);
}
