/* What matters, first. */
#include <math.h>

#include "report/page/sections.h"

static flim_json *card(const report_run *run, flim_metric m, const char *what)
{
    const double pooled = report_row_of(run, REPORT_POOLED)->value[m], mean = report_row_of(run, REPORT_MEAN)->value[m];
    flim_json *object = flim_json_object(), *folds = flim_json_object();
    flim_json_set_string(object, "what", what);
    flim_json_set_number(object, "pooled", pooled);
    flim_json_set_string(object, "undefined", isnan(pooled) ? flim_metric_undefined_reason(m) : NULL);
    html_set_interval(object, "interval", &run->interval[m]);
    flim_json_set_number(folds, "mean", mean);
    flim_json_set_number(folds, "sd", report_row_of(run, REPORT_SD1)->value[m]);
    flim_json_set_integer(folds, "used", run->used[m]);
    if (isnan(mean)) {
        flim_json_free(folds);
        flim_json_set_null(object, "folds");
    } else {
        flim_json_set(object, "folds", folds);
    }
    return object;
}

flim_status section_summary_fill(flim_json *values, const report_subject *subject, flim_error *err)
{
    (void)err;
    const report_run *run = subject->run;
    flim_json *cards = flim_json_array(), *confounds = flim_json_array();
    flim_json *warnings = flim_json_array(), *notes = flim_json_array();
    flim_json_add(cards, card(run, FLIM_BALANCED_ACCURACY, "Balanced accuracy"));
    flim_json_add(cards, card(run, FLIM_ROC_AUC, "ROC AUC"));
    flim_json_add(cards, card(run, FLIM_ACCURACY, "Accuracy"));
    for (int r = 0; r < run->n_rows; r++) {
        const report_row *row = &run->row[r];
        if (row->kind == REPORT_BASELINE && row->baseline == FLIM_BASELINE_CONFOUNDS) {
            const bool no_auc = isnan(row->value[FLIM_ROC_AUC]);
            flim_json *object = flim_json_object();
            flim_json_set_number(object, "value", row->value[no_auc ? FLIM_BALANCED_ACCURACY : FLIM_ROC_AUC]);
            flim_json_set_string(object, "metric", no_auc ? "balanced accuracy" : "ROC AUC");
            flim_json_add(confounds, object);
        }
    }
    for (int level = FLIM_LOG_WARNING; level >= FLIM_LOG_INFO; level--) {
        for (int i = 0; i < run->n_findings; i++) {
            if ((int)run->finding[i].level == level) {
                flim_json_add_string(level == FLIM_LOG_WARNING ? warnings : notes, run->finding[i].text);
            }
        }
    }
    flim_json_set(values, "cards", cards);
    flim_json_set(values, "confounds", confounds);
    flim_json_set(values, "warnings", warnings);
    flim_json_set(values, "notes", notes);
    return FLIM_OK;
}
