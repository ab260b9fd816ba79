#include "results/metrics_json.h"

flim_json *flim_metrics_json(const double value[FLIM_N_METRICS])
{
    flim_json *object = flim_json_object();
    for (int m = 0; m < FLIM_N_METRICS; m++) {
        flim_json_set_number(object, flim_metric_name((flim_metric)m), value[m]);
    }
    return object;
}
