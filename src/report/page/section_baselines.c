/* The network against the simple models that train_cv has fitted in the same folds. */
#include "report/page/sections.h"

bool section_baselines_applies(const report_subject *subject)
{
    for (int b = FLIM_BASELINE_PRIOR + 1; b < FLIM_N_BASELINES; b++) {
        if (subject->run->against[b].paired) {
            return true;
        }
    }
    return false;
}

flim_status section_baselines_fill(flim_json *values, const report_subject *subject, flim_error *err)
{
    (void)err;
    flim_json *baselines = flim_json_array();
    for (int b = FLIM_BASELINE_PRIOR + 1; b < FLIM_N_BASELINES; b++) {
        const report_pair *pair = &subject->run->against[b];
        if (pair->paired) {
            const flim_paired_test *auc = &pair->fold_test[FLIM_ROC_AUC];
            const flim_paired_test *balanced = &pair->fold_test[FLIM_BALANCED_ACCURACY];
            flim_json *object = flim_json_object();
            flim_json_set_string(object, "name", flim_baseline_title(b));
            flim_json_set_number(object, "auc", auc->difference);
            html_set_p(object, "auc_p", auc->p);
            flim_json_set_number(object, "balanced", balanced->difference);
            html_set_p(object, "balanced_p", balanced->p);
            flim_json_set_integer(object, "only_network", pair->only_b);
            flim_json_set_integer(object, "only_baseline", pair->only_a);
            html_set_p(object, "cells_p", pair->cell_test.p);
            flim_json_add(baselines, object);
        }
    }
    flim_json_set(values, "baselines", baselines);
    return FLIM_OK;
}
