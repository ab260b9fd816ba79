/* The metrics of the test sets: folds, spread, pool, intervals, simple models. */
#include "report/page/sections.h"

static flim_json *row_of(const report_row *row, bool first_baseline)
{
    flim_json *object = flim_json_object(), *numbers = flim_json_array();
    flim_json_set_bool(object, "first_baseline", first_baseline);
    flim_json_set_string(object, "style",
                         row->kind == REPORT_POOLED     ? "pooled part"
                         : row->kind == REPORT_MEAN     ? "part"
                         : row->kind == REPORT_BASELINE ? "baseline"
                                                        : "");
    flim_json_set_string(object, "name", row->name);
    if (row->fold) {
        flim_json *fold = flim_json_object();
        flim_json_set_integer(fold, "n_test", row->fold->n_test);
        flim_json_set_integer(fold, "best_epoch", row->fold->best_epoch);
        flim_json_set_integer(fold, "epochs", row->fold->epochs);
        flim_json_set_number(fold, "threshold", row->fold->threshold);
        flim_json_set(object, "fold", fold);
    } else {
        flim_json_set_null(object, "fold");
    }
    for (int m = 0; m < FLIM_N_METRICS; m++) {
        flim_json_add_number(numbers, row->value[m]);
    }
    flim_json_set(object, "values", numbers);
    return object;
}

flim_status section_metrics_fill(flim_json *values, const report_subject *subject, flim_error *err)
{
    (void)err;
    const report_run *run = subject->run;
    flim_json *heads = flim_json_array(), *rows = flim_json_array();
    bool baselines = false;
    for (int m = 0; m < FLIM_N_METRICS; m++) {
        flim_json_add_string(heads, flim_metric_title((flim_metric)m));
    }
    for (int r = 0; r < run->n_rows; r++) {
        const bool baseline = run->row[r].kind == REPORT_BASELINE;
        flim_json_add(rows, row_of(&run->row[r], baseline && !baselines));
        baselines = baselines || baseline;
    }
    flim_json_set(values, "heads", heads);
    flim_json_set(values, "rows", rows);
    flim_json_set_integer(values, "columns", FLIM_N_METRICS + (run->classes == 2 ? 4 : 3));
    flim_json_set_string(values, "resampled", run->by_group ? "groups" : "cells");
    html_set_interval(values, "delong", &run->delong);
    return FLIM_OK;
}
