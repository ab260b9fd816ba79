/* Metrics as JSON: {"accuracy": 0.9, ...}. */
#ifndef FLIM_RESULTS_METRICS_JSON_H
#define FLIM_RESULTS_METRICS_JSON_H

#include "flim/metrics.h"
#include "formats/json.h"

/* Undefined ones are null.  The caller's. */
flim_json *flim_metrics_json(const double value[FLIM_N_METRICS]);

#endif
