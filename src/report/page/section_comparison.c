/* Each further run against the first. */
#include <math.h>

#include "report/page/sections.h"

static flim_json *estimate_of(const report_run *run, flim_metric m)
{
    const double value = report_row_of(run, REPORT_POOLED)->value[m];
    flim_json *object = flim_json_object();
    flim_json_set_number(object, "value", value);
    if (isnan(value)) {
        flim_json_set_null(object, "interval");
    } else {
        html_set_interval(object, "interval", &run->interval[m]);
    }
    return object;
}

/* Runs that are split otherwise: why they are not paired, and the pooled estimates if the data are the same. */
static flim_json *unpaired(const report_comparison *c)
{
    char reason[1024];
    flim_json *object = flim_json_object();
    report_explain_unpaired(c, reason, sizeof reason);
    flim_json_set_string(object, "reason", reason);
    if (!c->same_data) {
        flim_json_set_null(object, "estimates");
        return object;
    }
    flim_json *estimates = flim_json_object(), *metrics = flim_json_array();
    for (int m = 0; m < FLIM_N_METRICS; m++) {
        flim_json *metric = flim_json_object(), *values = flim_json_array();
        flim_json_add(values, estimate_of(c->a, (flim_metric)m));
        flim_json_add(values, estimate_of(c->b, (flim_metric)m));
        flim_json_set_string(metric, "name", flim_metric_title((flim_metric)m));
        flim_json_set(metric, "values", values);
        flim_json_add(metrics, metric);
    }
    flim_json_set(estimates, "metrics", metrics);
    flim_json_set(object, "estimates", estimates);
    return object;
}

static flim_json *paired(const report_comparison *c)
{
    flim_json *object = flim_json_object(), *metrics = flim_json_array();
    for (int m = 0; m < FLIM_N_METRICS; m++) {
        const flim_paired_test *test = &c->pair.fold_test[m];
        flim_json *metric = flim_json_object();
        flim_json_set_string(metric, "name", flim_metric_title((flim_metric)m));
        flim_json_set_number(metric, "mean_a", report_row_of(c->a, REPORT_MEAN)->value[m]);
        flim_json_set_number(metric, "mean_b", report_row_of(c->b, REPORT_MEAN)->value[m]);
        flim_json_set_number(metric, "difference", test->difference);
        html_set_interval(metric, "interval", &test->interval);
        html_set_p(metric, "p", test->p);
        flim_json_add(metrics, metric);
    }
    flim_json_set(object, "metrics", metrics);
    flim_json_set_integer(object, "only_a", c->pair.only_a);
    flim_json_set_integer(object, "only_b", c->pair.only_b);
    flim_json_set_number(object, "cells_p", c->pair.cell_test.p);
    return object;
}

static flim_json *comparison_of(const report_comparison *c)
{
    flim_json *object = flim_json_object();
    flim_json_set_string(object, "label_a", c->a->label);
    flim_json_set_string(object, "label_b", c->b->label);
    flim_json_set(object, c->pair.paired ? "paired" : "unpaired", c->pair.paired ? paired(c) : unpaired(c));
    flim_json_set_null(object, c->pair.paired ? "unpaired" : "paired");
    return object;
}

bool section_comparison_applies(const report_subject *subject)
{
    return subject->report->n_runs > 1;
}

flim_status section_comparison_fill(flim_json *values, const report_subject *subject, flim_error *err)
{
    (void)err;
    flim_json *comparisons = flim_json_array();
    for (int i = 0; i + 1 < subject->report->n_runs; i++) {
        flim_json_add(comparisons, comparison_of(&subject->report->comparison[i]));
    }
    flim_json_set(values, "comparisons", comparisons);
    return FLIM_OK;
}
