/* How the run was made: command, card, versions, durations, and the run's own files about its settings. */
#include <math.h>

#include "core/alloc.h"
#include "core/file.h"
#include "report/page/sections.h"

enum { MOST_CONFIG = 1 << 20 };

/* ---- environment.json */

/* Rows of the table: what they are called, and where in environment.json they stand. */
static const struct {
    const char *name, *object, *key; /* object: NULL = at the top */
} facts[] = {
    {"command", NULL, "command_line"},
    {"started", NULL, "started"},
    {"device", "device", "name"},
    {"architecture", "device", "architecture"},
    {"precision", "device", "precision"},
    {"libraries", "versions", "device_libraries"},
    {"HDF5", "versions", "hdf5"},
    {"flimcv", "versions", "flimcv"},
    {"host", NULL, "host"},
    {"system", NULL, "system"},
};

static void set_facts(flim_json *values, const report_run *run)
{
    char path[REPORT_PATH];
    flim_json *json = NULL, *list = flim_json_array();
    snprintf(path, sizeof path, "%.4000s/environment.json", run->folder);
    if (flim_json_read(path, &json, NULL) == FLIM_OK) {
        for (size_t i = 0; i < sizeof facts / sizeof facts[0]; i++) {
            const flim_json *object = facts[i].object ? flim_json_get(json, facts[i].object) : json;
            const char *text = flim_json_string(flim_json_get(object, facts[i].key));
            if (text && text[0]) {
                flim_json *fact = flim_json_object();
                flim_json_set_string(fact, "name", facts[i].name);
                flim_json_set_string(fact, "value", text);
                flim_json_add(list, fact);
            }
        }
    }
    flim_json_free(json);
    flim_json_set(values, "facts", list);
}

/* ---- durations */

/* "1 h 02 min", "3 min 20 s", "42 s" */
static void set_duration(flim_json *object, const char *key, double seconds)
{
    char text[48] = "n/a";
    const int64_t s = (int64_t)(seconds + 0.5);
    if (s >= 3600) {
        snprintf(text, sizeof text, "%d h %02d min", (int)(s / 3600), (int)(s / 60 % 60));
    } else if (s >= 60) {
        snprintf(text, sizeof text, "%d min %02d s", (int)(s / 60), (int)(s % 60));
    } else if (seconds >= 0) {
        snprintf(text, sizeof text, seconds < 10 ? "%.1f s" : "%.0f s", seconds);
    }
    flim_json_set_string(object, key, text);
}

/* What a history says of time and memory; NaN in older ones. */
static flim_json *duration_of(const report_history *h, int k, double *total)
{
    double seconds = 0, rate = 0, peak = NAN;
    for (int64_t i = 0; i < h->n; i++) {
        seconds += h->column[REPORT_SECONDS][i];
        rate += h->column[REPORT_IT_PER_S][i];
        peak = fmax(peak, h->column[REPORT_PEAK_BYTES][i]);
    }
    flim_json *fold = flim_json_object();
    flim_json_set_integer(fold, "k", k);
    flim_json_set_integer(fold, "epochs", h->n);
    set_duration(fold, "time", seconds);
    flim_json_set_number(fold, "seconds", seconds / (double)h->n);
    flim_json_set_number(fold, "rate", rate / (double)h->n);
    flim_json_set_number(fold, "mib", peak / (1 << 20));
    *total += seconds;
    return fold;
}

static void set_durations(flim_json *values, const report_run *run)
{
    double total = 0;
    flim_json *folds = flim_json_array();
    for (int k = 0; k < run->splits.n_folds; k++) {
        if (run->history[k].n > 0) {
            flim_json_add(folds, duration_of(&run->history[k], k, &total));
        }
    }
    flim_json_set(values, "durations", folds);
    flim_json_set_bool(values, "timed", total > 0);
    set_duration(values, "total", total);
}

/* ---- files */

static void set_files(flim_json *values, const report_run *run)
{
    static const char *const files[] = {"config.yaml", "environment.json"};
    flim_json *settings = flim_json_array();
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char path[REPORT_PATH], *text = NULL;
        size_t count = 0;
        snprintf(path, sizeof path, "%.4000s/%s", run->folder, files[i]);
        if (flim_file_read(path, MOST_CONFIG, &text, &count, NULL) == FLIM_OK) {
            flim_json *file = flim_json_object();
            flim_json_set_string(file, "file", files[i]);
            flim_json_set_string(file, "text", text);
            flim_json_add(settings, file);
            flim_free(text);
        }
    }
    flim_json_set(values, "settings", settings);
}

flim_status section_making_fill(flim_json *values, const report_subject *subject, flim_error *err)
{
    (void)err;
    set_facts(values, subject->run);
    set_durations(values, subject->run);
    set_files(values, subject->run);
    return FLIM_OK;
}
