/* Principal components of embeddings for a terminal, as JSON and as Markdown. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/text.h"
#include "report/report_internal.h"

const char *component_model_name(const flim_report *report, int model, char text[32])
{
    const flim_embedded_model *about = report->embeddings.model ? &report->embeddings.model[model] : NULL;
    const int fold = about ? about->fold : -1;
    if (fold == FLIM_FINAL_FOLD) {
        snprintf(text, 32, "final model");
    } else {
        snprintf(text, 32, "%s %d", fold >= 0 ? "fold" : "model", fold >= 0 ? fold : model);
    }
    return text;
}

static const report_component *component_of(const report_components *c, int model, int k)
{
    return &c->component[model * c->n_shown + k];
}

static const char *number(double value, char text[16])
{
    snprintf(text, 16, isnan(value) ? "n/a" : "%.3f", value);
    return text;
}

void component_tables_print(const flim_report *report, const flim_log *log)
{
    const report_components *c = &report->components;
    char name[32], a[16], b[16], d[16], e[16];
    flim_log_line(log, FLIM_LOG_INFO,
                  "embeddings: principal components of %d features, %" PRId64 " cells, %" PRId64
                  " group%s; cells of all sets",
                  c->width, c->n, c->groups, flim_s(c->groups));
    flim_log_line(log, FLIM_LOG_INFO, "  %-12s %-9s %9s %12s %12s", "", "component", "variance", "eta2 class", "eta2 group");
    for (int m = 0; m < c->models; m++) {
        for (int k = 0; k < c->n_shown; k++) {
            const report_component *one = component_of(c, m, k);
            flim_log_line(log, FLIM_LOG_INFO, "  %-12s %-9d %9s %12s %12s", k ? "" : component_model_name(report, m, name),
                          k + 1, number(one->share, a), number(one->eta_class, b), number(one->eta_group, d));
        }
        flim_log_line(log, FLIM_LOG_INFO, "  %-12s effective dimensions %s of %d", "", number(c->effective[m], e), c->width);
    }
    flim_log_line(
        log, FLIM_LOG_INFO,
        "  variance: share of the features' variance; eta2: share of the component's variance between classes, groups");
}

flim_json *component_json(const flim_report *report)
{
    const report_components *c = &report->components;
    flim_json *object = flim_json_object(), *models = flim_json_array();
    flim_json_set_integer(object, "cells", c->n);
    flim_json_set_integer(object, "features", c->width);
    flim_json_set_integer(object, "groups", c->groups);
    for (int m = 0; m < c->models; m++) {
        flim_json *model = flim_json_object(), *components = flim_json_array();
        char name[32];
        flim_json_set_string(model, "model", component_model_name(report, m, name));
        flim_json_set_number(model, "effective_dimensions", c->effective[m]);
        for (int k = 0; k < c->n_shown; k++) {
            const report_component *one = component_of(c, m, k);
            flim_json *component = flim_json_object();
            flim_json_set_number(component, "share_of_variance", one->share);
            flim_json_set_number(component, "eta_squared_class", one->eta_class);
            flim_json_set_number(component, "eta_squared_group", one->eta_group);
            flim_json_add(components, component);
        }
        flim_json_set(model, "components", components);
        flim_json_add(models, model);
    }
    flim_json_set(object, "models", models);
    return object;
}

void component_markdown_write(FILE *stream, const flim_report *report)
{
    const report_components *c = &report->components;
    char name[32], a[16], b[16], d[16];
    fprintf(stream,
            "## Embeddings\n\nPrincipal components of %d features of %" PRId64
            " cells.\n\n| | component | share of the variance | eta² class | eta² group |\n|---|---:|---:|---:|---:|\n",
            c->width, c->n);
    for (int m = 0; m < c->models; m++) {
        for (int k = 0; k < c->n_shown; k++) {
            const report_component *one = component_of(c, m, k);
            fprintf(stream, "| %s | %d | %s | %s | %s |\n", component_model_name(report, m, name), k + 1,
                    number(one->share, a), number(one->eta_class, b), number(one->eta_group, d));
        }
    }
    fputs("\n", stream);
}
