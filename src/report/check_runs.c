/* summary.json against what the predictions say; and what it says was odd in the data. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "report/report_internal.h"

enum { SHOWN = 5 }; /* differences that are spelt out */

typedef struct differences {
    int64_t count;
    char text[512];
} differences;

static void compare_values(differences *d, const char *where, const flim_json *object, const double value[FLIM_N_METRICS])
{
    for (int m = 0; m < FLIM_N_METRICS; m++) {
        double stored = NAN;
        const char *name = flim_metric_name((flim_metric)m);
        const flim_json *item = flim_json_get(object, name);
        bool number = flim_json_number(item, &stored);
        bool same = number ? fabs(stored - value[m]) <= 1e-9 * fmax(1, fabs(value[m]))
                           : isnan(value[m]) && item && flim_json_is_null(item);
        if (same) {
            continue;
        }
        size_t used = strlen(d->text);
        if (d->count++ < SHOWN) {
            char text[32] = "none", recomputed[32] = "undefined";
            if (number) {
                snprintf(text, sizeof text, "%.9g", stored);
            }
            if (!isnan(value[m])) {
                snprintf(recomputed, sizeof recomputed, "%.9g", value[m]);
            }
            snprintf(d->text + used, sizeof d->text - used, "%s%s %s %s, recomputed %s", used ? "; " : "", where, name, text,
                     recomputed);
        }
    }
}

/* The entry of fold k in "folds", NULL if there is none. */
static const flim_json *entry_of(const flim_json *folds, int k)
{
    for (size_t i = 0; i < flim_json_length(folds); i++) {
        const flim_json *entry = flim_json_at(folds, i);
        int64_t number = -1;
        if (flim_json_integer(flim_json_get(entry, "fold"), &number) && number == k) {
            return entry;
        }
    }
    return NULL;
}

static void compare_row(differences *d, const flim_json *json, const report_row *row)
{
    static const struct {
        report_kind kind;
        const char *key;
        bool optional; /* absent from runs made before it was written */
    } keys[] = {{REPORT_MEAN, "mean", false},
                {REPORT_SD1, "sd", false},
                {REPORT_POOLED, "pooled", false},
                {REPORT_HOLDOUT, "holdout", false},
                {REPORT_MEAN_HALF, "mean_at_0.5", true},
                {REPORT_POOLED_HALF, "pooled_at_0.5", true},
                {REPORT_CALIBRATED, "pooled_calibrated", true},
                {REPORT_CORRECTED, "pooled_prior_corrected", true}};
    char where[96];
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const flim_json *object = flim_json_get(json, keys[i].key);
        if (row->kind == keys[i].kind && (object || !keys[i].optional)) {
            compare_values(d, keys[i].key, object, row->value);
        }
    }
    if (row->kind == REPORT_FOLD) {
        const flim_json *entry = entry_of(flim_json_get(json, "folds"), row->fold->k);
        compare_values(d, row->name, flim_json_get(entry, "metrics"), row->value);
        snprintf(where, sizeof where, "%s at 0.5", row->name);
        compare_values(d, where, flim_json_get(entry, "metrics_at_0.5"), row->fold->at_half.value);
    } else if (row->kind == REPORT_BASELINE && flim_json_get(json, "baselines")) {
        const char *name = flim_baseline_name(row->baseline);
        snprintf(where, sizeof where, "baseline %s", name);
        compare_values(d, where, flim_json_get(flim_json_get(json, "baselines"), name), row->value);
    }
}

/* What train_cv found odd in data and folds (docs/findings.md). */
static void repeat_findings(report_run *run, const flim_json *list, const flim_log *log)
{
    for (size_t i = 0; i < flim_json_length(list); i++) {
        const flim_json *one = flim_json_at(list, i);
        const char *text = flim_json_string(flim_json_get(one, "text")),
                   *severity = flim_json_string(flim_json_get(one, "severity"));
        if (text && severity) {
            report_find(run, log, strcmp(severity, "note") == 0 ? FLIM_LOG_NOTE : FLIM_LOG_WARNING, "data: %s", text);
        }
    }
}

flim_status report_check_summary(report_run *run, const flim_log *log)
{
    char path[REPORT_PATH];
    flim_json *json = NULL;
    flim_error why = {0};
    differences d = {0};
    snprintf(path, sizeof path, "%.4000s/summary.json", run->folder);
    flim_status status = flim_json_read(path, &json, &why);
    if (status != FLIM_OK) {
        report_find(run, log, FLIM_LOG_WARNING, "summary.json cannot be compared: %s", why.text);
        return status == FLIM_ERROR_MEMORY ? status : FLIM_OK;
    }
    const size_t folds = flim_json_length(flim_json_get(json, "folds"));
    run->summarised = folds == (size_t)run->n_folds;
    if (!run->summarised) {
        report_find(run, log, FLIM_LOG_WARNING, "summary.json has %zu folds, %d are done", folds, run->n_folds);
    }
    for (int r = 0; r < run->n_rows; r++) {
        compare_row(&d, json, &run->row[r]);
    }
    if (d.count) {
        report_find(run, log, FLIM_LOG_WARNING, "summary.json disagrees with predictions.csv in %" PRId64 " numbers: %s%s",
                    d.count, d.text, d.count > SHOWN ? "; ..." : "");
    }
    repeat_findings(run, flim_json_get(json, "findings"), log);
    flim_json_free(json);
    return FLIM_OK;
}
