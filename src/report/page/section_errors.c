/* Where the run errs: outcomes, what separates wrong from right cells, errors by group (report/errors.h). */
#include <math.h>
#include <stdio.h>

#include "report/page/sections.h"

bool section_errors_applies(const report_subject *subject)
{
    return subject->run->errors != NULL;
}

static void set_outcomes(flim_json *values, const report_run *run)
{
    flim_json *list = flim_json_array();
    for (int i = 0; i < run->errors->n_outcomes; i++) {
        const error_outcome *o = &run->errors->outcome[i];
        flim_json *object = flim_json_object();
        flim_json_set_string(object, "kind", o->kind);
        flim_json_set_string(object, "class", run->class_name[o->label]);
        flim_json_set_integer(object, "cells", o->cells);
        flim_json_set_number(object, "mean", o->confidence.mean);
        flim_json_set_number(object, "sd", o->confidence.sd);
        flim_json_set_number(object, "median", o->confidence.median);
        flim_json_add(list, object);
    }
    flim_json_set(values, "outcomes", list);
}

static void set_differences(flim_json *values, const report_run *run)
{
    const report_errors *e = run->errors;
    flim_json *list = flim_json_array();
    for (int64_t i = 0; i < e->n_differences; i++) {
        const error_difference *d = &e->difference[i];
        flim_json *object = flim_json_object();
        flim_json_set_string(object, "figure", error_figure_title(d->figure, e->in_ns));
        flim_json_set_string(object, "class", d->label == ERROR_ALL_CLASSES ? "all" : run->class_name[d->label]);
        flim_json_set_number(object, "wrong", d->wrong.n ? d->wrong.mean : (double)NAN);
        flim_json_set_number(object, "right", d->right.n ? d->right.mean : (double)NAN);
        flim_json_set_number(object, "g", d->test.g);
        html_set_p(object, "p", d->test.p);
        html_set_p(object, "p_holm", d->p_holm);
        flim_json_set_integer(object, "agree", d->agree);
        flim_json_set_integer(object, "compared", d->groups);
        flim_json_add(list, object);
    }
    flim_json_set(values, "differences", list);
    flim_json_set_bool(values, "compared", e->n_differences > 0);
    flim_json_set_integer(values, "tests", e->tests);
}

static void set_groups(flim_json *values, const report_run *run)
{
    const report_errors *e = run->errors;
    flim_json *list = flim_json_array();
    for (int64_t i = 0; i < e->n_groups; i++) {
        const error_group *g = &e->group[i];
        flim_json *object = flim_json_object();
        flim_json_set_string(object, "name", g->name);
        flim_json_set_integer(object, "cells", g->cells);
        flim_json_set_integer(object, "wrong", g->wrong);
        flim_json_set_number(object, "sure", g->confidence);
        flim_json_set_string(object, "figure", isnan(g->g) ? "" : error_figure_title(g->figure, e->in_ns));
        flim_json_set_number(object, "g", g->g);
        flim_json_add(list, object);
    }
    flim_json_set(values, "error_groups", list);
}

static void set_fits(flim_json *values, const report_errors *e)
{
    flim_json *list = flim_json_array();
    for (int i = 0; i < e->n_fit; i++) {
        const report_fit *fit = &e->fit[i];
        flim_json *object = flim_json_object();
        char name[24] = "mean";
        if (fit->fold >= 0) {
            snprintf(name, sizeof name, "fold %d", fit->fold);
        }
        flim_json_set_string(object, "name", name);
        flim_json_set_number(object, "train_accuracy", fit->chosen.train_accuracy);
        flim_json_set_number(object, "val_accuracy", fit->chosen.val_accuracy);
        flim_json_set_number(object, "gap", fit->gap);
        flim_json_set_number(object, "train_loss", fit->chosen.train_loss);
        flim_json_set_number(object, "val_loss", fit->chosen.val_loss);
        flim_json_set_number(object, "train_loss_end", fit->last.train_loss);
        flim_json_set_number(object, "val_loss_end", fit->last.val_loss);
        flim_json_set_string(object, "fit", report_fit_name(fit->verdict));
        flim_json_add(list, object);
    }
    flim_json_set(values, "fits", list);
    flim_json_set_string(values, "fit_advice", report_fit_advice(&e->fit[e->n_fit - 1]));
    flim_json_set_string(values, "fit_rule", report_fit_rule());
}

flim_status section_errors_fill(flim_json *values, const report_subject *subject, flim_error *err)
{
    (void)err;
    const report_errors *e = subject->run->errors;
    char verdict[512];
    error_verdict(e, verdict, sizeof verdict);
    flim_json_set_string(values, "verdict", verdict);
    flim_json_set_integer(values, "n_wrong", e->wrong);
    flim_json_set_string(values, "missing", e->missing);
    set_outcomes(values, subject->run);
    set_fits(values, e);
    set_differences(values, subject->run);
    set_groups(values, subject->run);
    return FLIM_OK;
}
