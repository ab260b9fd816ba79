/* Donors, dishes: what the data file calls groups. */
#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "core/try.h"
#include "report/page/plot.h"
#include "report/page/sections.h"

enum { MOST_GROUPS = 60 /* in the figure */, MOST_GROUPS_OF_FOLD = 24 };

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
    static const flim_metric two[] = {FLIM_ACCURACY, FLIM_RECALL, FLIM_SPECIFICITY, FLIM_ROC_AUC};
    flim_json *groups = flim_json_array(), *heads = flim_json_array();
    for (size_t i = 0; i < sizeof two / sizeof two[0]; i++) {
        if (run->classes == 2 || (two[i] != FLIM_RECALL && two[i] != FLIM_SPECIFICITY)) {
            flim_json_add_string(heads, flim_metric_title(two[i]));
        }
    }
    for (int64_t g = 0; g < run->groups; g++) {
        const report_group *group = &run->group[g];
        flim_json *object = flim_json_object();
        flim_json_set_string(object, "name", group->name);
        flim_json_set_integer(object, "cells", group->n);
        flim_json_set_number(object, "prevalence", group->prevalence);
        flim_json_set_number(object, "accuracy", group->accuracy);
        flim_json_set_number(object, "recall", group->sensitivity);
        flim_json_set_number(object, "specificity", group->specificity);
        flim_json_set_number(object, "auc", group->auc);
        flim_json_add(groups, object);
    }
    flim_json_set(values, "groups", groups);
    flim_json_set(values, "heads", heads);
}

/* The groups of one fold's test set, from counts (groups) of its cells and of those predicted rightly. */
static void set_groups_of_fold(flim_json *fold, const report_run *run, const int64_t *cells, const int64_t *right)
{
    flim_json *groups = flim_json_array();
    int64_t shown = 0, there = 0;
    for (int64_t g = 0; g < run->groups; g++) {
        there += cells[g] > 0;
        if (cells[g] > 0 && shown < MOST_GROUPS_OF_FOLD) {
            flim_json *group = flim_json_object();
            flim_json_set_string(group, "name", run->group_name[g]);
            flim_json_set_integer(group, "cells", cells[g]);
            flim_json_set_number(group, "accuracy", (double)right[g] / (double)cells[g]);
            flim_json_add(groups, group);
            shown++;
        }
    }
    flim_json_set(fold, "groups", groups);
    if (there > shown) {
        flim_json_set_integer(fold, "more", there - shown);
    } else {
        flim_json_set_null(fold, "more");
    }
}

/* f: index of a fold that is done; cells, right: (groups) scratch; of_class: (classes) scratch. */
static flim_json *fold_of(const report_run *run, int f, int64_t *cells, int64_t *right, int64_t *of_class)
{
    const flim_fold_result *result = &run->fold[f];
    flim_json *fold = flim_json_object(), *classes = flim_json_array();
    memset(cells, 0, (size_t)run->groups * sizeof *cells);
    memset(right, 0, (size_t)run->groups * sizeof *right);
    memset(of_class, 0, (size_t)run->classes * sizeof *of_class);
    for (int64_t i = 0; i < run->pool.n; i++) {
        if (run->pool.fold[i] == result->k) {
            cells[run->group_of[i]]++;
            right[run->group_of[i]] += run->pool.label[i] == run->pool.predicted[i];
            of_class[run->pool.label[i]]++;
        }
    }
    for (int c = 0; c < run->classes; c++) {
        flim_json_add_integer(classes, of_class[c]);
    }
    flim_json_set_integer(fold, "k", result->k);
    flim_json_set_integer(fold, "train", result->n_train);
    flim_json_set_integer(fold, "validation", result->n_val);
    flim_json_set_integer(fold, "test", result->n_test);
    flim_json_set_number(fold, "accuracy", result->metrics.value[FLIM_ACCURACY]);
    flim_json_set(fold, "cells", classes);
    set_groups_of_fold(fold, run, cells, right);
    return fold;
}

static flim_status set_folds(flim_json *values, const report_run *run, flim_error *err)
{
    int64_t *cells = flim_alloc((size_t)run->groups, sizeof *cells, err);
    int64_t *right = flim_alloc((size_t)run->groups, sizeof *right, err);
    int64_t *of_class = flim_alloc((size_t)run->classes, sizeof *of_class, err);
    const bool whole = cells && right && of_class;
    flim_json *folds = flim_json_array();
    for (int f = 0; whole && f < run->n_folds; f++) {
        flim_json_add(folds, fold_of(run, f, cells, right, of_class));
    }
    flim_json_set(values, "folds", folds);
    flim_free(cells);
    flim_free(right);
    flim_free(of_class);
    return whole ? FLIM_OK : FLIM_ERROR_MEMORY;
}

flim_status section_groups_fill(flim_json *values, const report_subject *subject, flim_error *err)
{
    set_groups(values, subject->run);
    FLIM_TRY(set_folds(values, subject->run, err));
    return plot_groups(values, subject->run, err);
}
